//! Conditional requests: RFC 9110 section 13, in the order of section 13.2.2.
//!
//! Called by `files` and `listing`, and by `uploads` before an upload replaces a file.

use std::fs::Metadata;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{AsHeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE};
use http::{HeaderMap, HeaderName, HeaderValue, Method};

/// The most bytes of a list of entity tags that are read, and of a date. With HPACK a request repeats a field of 60 KB for one
/// byte. Clients send some tags of 30 bytes each.
const FIELD_BYTES: usize = 4 * 1024;

/// The first second after the year 9999, where the HTTP-date format ends.
pub(crate) const END_OF_DATES: u64 = 253_402_300_800;

/// The second of January 1980, in nanoseconds: no file that is served was written before.
const FIRST_REAL_TIME: i128 = 315_619_200 * 1_000_000_000;

/// How old the date of a file is when it is a strong validator (RFC 9110 section 8.8.2.2): a file may change twice within a
/// second, and the clock of a file system may differ from that of the server. 60 s as in Apache httpd and RFC 7232 section
/// 2.2.2.
const SETTLED: Duration = Duration::from_secs(60);

/// The validators of a file: RFC 9110 section 8.8.
#[derive(Clone, Debug)]
pub(crate) struct Validators {
    etag: String,
    modified: Option<SystemTime>,
}

/// The result of the preconditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Perform the method.
    Proceed,
    /// Answer 304.
    NotModified,
    /// Answer 412.
    Failed,
}

impl Validators {
    /// The validators of a file whose metadata was read at the time `now`.
    ///
    /// The tag is strong: it has the size and the modification time in nanoseconds, which change with any change of the
    /// content that a file system records. It is the same on every host that has the file with its time: one that differs
    /// would end a download that continues on another host behind a balancer.
    ///
    /// A time of before 1980 says nothing: package managers and builds that are to be reproducible give all files the same,
    /// such as the first second of 1970 or of 1980. With such a time, the tag also has that of the last change of the inode,
    /// which nobody can set.
    pub(crate) fn of(metadata: &Metadata, now: SystemTime) -> Validators {
        let modified = metadata.modified().ok();
        let nanos = modified.map_or(0, nanos_since_epoch);
        let length = metadata.len();
        let etag = match nanos < FIRST_REAL_TIME {
            true => format!("\"{length:x}-{nanos:x}-{:x}\"", changed(metadata)),
            false => format!("\"{length:x}-{nanos:x}\""),
        };
        // If-Modified-Since would find each new content unchanged.
        let modified = modified.filter(|_| nanos >= FIRST_REAL_TIME);
        Validators {
            etag,
            modified: modified.and_then(|modified| http_second(modified, now)),
        }
    }

    /// Those of the sibling of a file, which another coding of it may resemble in size and time.
    pub(crate) fn coded(mut self, suffix: &str) -> Validators {
        // The quotation mark ends it.
        self.etag.truncate(self.etag.len().saturating_sub(1));
        self.etag.extend(["-", suffix, "\""]);
        self
    }

    /// Of what is no file: a strong tag alone.
    pub(crate) fn tagged(etag: String) -> Validators {
        Validators { etag, modified: None }
    }

    /// The value of `etag`.
    pub(crate) fn etag(&self) -> Option<HeaderValue> {
        HeaderValue::try_from(self.etag.as_str()).ok()
    }

    /// The value of `last-modified`; `None` for a time that the format cannot express.
    pub(crate) fn last_modified(&self) -> Option<HeaderValue> {
        let modified = self.modified?;
        HeaderValue::try_from(httpdate::fmt_http_date(modified)).ok()
    }
}

/// Whether a request has preconditions. Few have any, and comparing each name is cheaper than four lookups.
pub(crate) fn is_conditional(headers: &HeaderMap) -> bool {
    let conditional = |name: &HeaderName| name.as_str().starts_with("if-");
    headers.keys().any(conditional)
}

/// Evaluates the preconditions of a request against the current file, `None` when there is none.
pub(crate) fn evaluate(method: &Method, headers: &HeaderMap, current: Option<&Validators>) -> Verdict {
    if !is_conditional(headers) {
        return Verdict::Proceed;
    }
    let safe = method == Method::GET || method == Method::HEAD;
    let modified = current.and_then(|v| v.modified);

    // Steps 1 and 2 of section 13.2.2: If-Match, and If-Unmodified-Since only where there is no If-Match.
    if headers.contains_key(IF_MATCH) {
        if matches_any(headers, IF_MATCH, current, Comparison::Strong) != Some(true) {
            return Verdict::Failed;
        }
    } else if let (Some(limit), Some(modified)) = (date(headers, IF_UNMODIFIED_SINCE), modified) {
        if modified > limit {
            return Verdict::Failed;
        }
    }

    // Steps 3 and 4: If-None-Match, and If-Modified-Since only where there is no If-None-Match.
    if headers.contains_key(IF_NONE_MATCH) {
        match matches_any(headers, IF_NONE_MATCH, current, Comparison::Weak) {
            Some(true) if safe => return Verdict::NotModified,
            Some(false) => {}
            None if safe => {}
            Some(true) | None => return Verdict::Failed,
        }
    } else if safe {
        if let (Some(since), Some(modified)) = (date(headers, IF_MODIFIED_SINCE), modified) {
            if modified <= since {
                return Verdict::NotModified;
            }
        }
    }
    Verdict::Proceed
}

/// Step 5: whether `if-range` allows the `range` of the request at the time `now` (RFC 9110 section 13.1.5).
pub(crate) fn range_applies(headers: &HeaderMap, current: &Validators, now: SystemTime) -> bool {
    if !headers.contains_key(IF_RANGE) {
        return true;
    }
    let Some(value) = only(headers, IF_RANGE) else {
        return false;
    };
    if value.starts_with('"') || value.starts_with("W/") {
        // The strong comparison: a weak tag never matches.
        return value == current.etag;
    }
    match (httpdate::parse_http_date(value), current.modified) {
        // "exactly matches", unlike If-Unmodified-Since; and the date is a strong validator.
        (Ok(date), Some(modified)) => date == modified && modified + SETTLED <= now,
        _ => false,
    }
}

/// Whether an upload must not replace a file: `if-none-match: *`.
pub(crate) fn demands_absence(headers: &HeaderMap) -> bool {
    only(headers, IF_NONE_MATCH) == Some("*")
}

/// How two entity tags are compared: RFC 9110 section 8.8.3.2.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Strong,
    Weak,
}

/// Whether `*` or a tag of the list in the field `name` matches. A list is read up to its first syntax error; `None` if it is too
/// long to be read, and what was read of it does not match.
fn matches_any(
    headers: &HeaderMap,
    name: impl AsHeaderName,
    current: Option<&Validators>,
    comparison: Comparison,
) -> Option<bool> {
    let Some(current) = current else {
        return Some(false);
    };
    let mut left = FIELD_BYTES;
    for value in headers.get_all(name) {
        let whole = value.as_bytes();
        let read = whole.get(..left).unwrap_or(whole);
        let text = std::str::from_utf8(read).unwrap_or_default();
        if text.trim() == "*" || list_has(text, &current.etag, comparison) {
            return Some(true);
        }
        if read.len() < whole.len() {
            return None;
        }
        // An empty field is work too.
        left = left.saturating_sub(read.len().max(1));
    }
    Some(false)
}

/// Whether `1#entity-tag` contains `etag`. Tags may contain commas, so this does not split at commas.
fn list_has(list: &str, etag: &str, comparison: Comparison) -> bool {
    let mut rest = list;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let (weak, quoted) = match rest.strip_prefix("W/") {
            Some(after) => (true, after),
            None => (false, rest),
        };
        let Some(inner) = quoted.strip_prefix('"') else {
            return false;
        };
        let Some(end) = inner.find('"') else {
            return false;
        };
        let (tag, after) = quoted.split_at(end + 2);
        if tag == etag && (!weak || comparison == Comparison::Weak) {
            return true;
        }
        rest = after;
    }
}

/// The field's date. A field that is absent, repeated or not an HTTP-date is ignored (sections 13.1.3 and 13.1.4).
fn date(headers: &HeaderMap, name: impl AsHeaderName) -> Option<SystemTime> {
    httpdate::parse_http_date(only(headers, name)?).ok()
}

/// The value of a field that occurs exactly once.
fn only(headers: &HeaderMap, name: impl AsHeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) if value.len() <= FIELD_BYTES => value.to_str().ok().map(str::trim),
        _ => None,
    }
}

/// A time in whole seconds, not later than now (section 8.8.2.1); `None` before 1970 and after 9999, which have no
/// HTTP-date.
fn http_second(time: SystemTime, now: SystemTime) -> Option<SystemTime> {
    let seconds = time.min(now).duration_since(UNIX_EPOCH).ok()?.as_secs();
    (seconds < END_OF_DATES).then(|| UNIX_EPOCH + Duration::from_secs(seconds))
}

fn nanos_since_epoch(time: SystemTime) -> i128 {
    let nanos = |d: Duration| i128::try_from(d.as_nanos()).unwrap_or(i128::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => nanos(after),
        Err(before) => -nanos(before.duration()),
    }
}

/// When the inode last changed, in nanoseconds.
#[cfg(unix)]
fn changed(metadata: &Metadata) -> i128 {
    use std::os::unix::fs::MetadataExt as _;
    i128::from(metadata.ctime()) * 1_000_000_000 + i128::from(metadata.ctime_nsec())
}

/// The standard library has no such time on other systems. Size and time must suffice.
#[cfg(not(unix))]
fn changed(_: &Metadata) -> i128 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: &str = "Sun, 06 Nov 1994 12:00:00 GMT";
    const BEFORE: &str = "Sun, 06 Nov 1994 11:59:59 GMT";
    const AFTER: &str = "Sun, 06 Nov 1994 12:00:01 GMT";

    fn current() -> Validators {
        Validators {
            etag: "\"a,b\"".to_owned(),
            modified: httpdate::parse_http_date(NOON).ok(),
        }
    }

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            map.append(*name, value.parse().unwrap());
        }
        map
    }

    fn get(fields: &[(&'static str, &str)]) -> Verdict {
        evaluate(&Method::GET, &headers(fields), Some(&current()))
    }

    #[test]
    fn each_condition_alone() {
        use Verdict::{Failed, NotModified, Proceed};
        for (name, value, expected) in [
            ("if-match", "\"a,b\"", Proceed),
            ("if-match", "*", Proceed),
            ("if-match", "\"x\", \"a,b\"", Proceed),
            ("if-match", "\"x\"", Failed),
            ("if-match", "W/\"a,b\"", Failed),
            ("if-match", "", Failed),
            ("if-match", "a,b", Failed),
            ("if-match", "\"a,b", Failed),
            ("if-none-match", "\"a,b\"", NotModified),
            ("if-none-match", "W/\"a,b\"", NotModified),
            ("if-none-match", " , ,\"x\" ,\t W/\"a,b\"", NotModified),
            ("if-none-match", "*", NotModified),
            ("if-none-match", "\"a\"", Proceed),
            ("if-none-match", "\"b\", \"a\"", Proceed),
            ("if-none-match", "a,b", Proceed),
            ("if-none-match", "w/\"a,b\"", Proceed),
            ("if-modified-since", NOON, NotModified),
            ("if-modified-since", AFTER, NotModified),
            ("if-modified-since", BEFORE, Proceed),
            ("if-modified-since", "yesterday", Proceed),
            ("if-modified-since", "Sunday, 06-Nov-94 12:00:00 GMT", NotModified),
            ("if-modified-since", "Sun Nov  6 12:00:00 1994", NotModified),
            ("if-unmodified-since", NOON, Proceed),
            ("if-unmodified-since", AFTER, Proceed),
            ("if-unmodified-since", BEFORE, Failed),
            ("if-unmodified-since", "rubbish", Proceed),
        ] {
            assert_eq!(get(&[(name, value)]), expected, "{name}: {value}");
        }
    }

    #[test]
    fn a_tag_condition_silences_its_date_condition() {
        assert_eq!(
            get(&[("if-match", "\"a,b\""), ("if-unmodified-since", BEFORE)]),
            Verdict::Proceed
        );
        assert_eq!(
            get(&[("if-none-match", "\"x\""), ("if-modified-since", AFTER)]),
            Verdict::Proceed
        );
    }

    #[test]
    fn the_first_group_is_weighed_before_the_second() {
        assert_eq!(
            get(&[("if-match", "\"x\""), ("if-none-match", "\"a,b\"")]),
            Verdict::Failed
        );
        assert_eq!(
            get(&[("if-match", "\"a,b\""), ("if-none-match", "\"a,b\"")]),
            Verdict::NotModified
        );
        assert_eq!(
            get(&[("if-unmodified-since", BEFORE), ("if-none-match", "*")]),
            Verdict::Failed
        );
        assert_eq!(
            get(&[("if-match", "*"), ("if-modified-since", NOON)]),
            Verdict::NotModified
        );
    }

    #[test]
    fn lists_over_several_lines_are_one_list() {
        assert_eq!(
            get(&[("if-none-match", "\"x\""), ("if-none-match", "\"a,b\"")]),
            Verdict::NotModified
        );
    }

    #[test]
    fn a_date_that_is_there_twice_is_ignored() {
        assert_eq!(
            get(&[("if-modified-since", NOON), ("if-modified-since", NOON)]),
            Verdict::Proceed
        );
    }

    #[test]
    fn a_write_fails_where_a_read_is_not_modified_and_knows_no_modified_since() {
        let put = |fields: &[(&'static str, &str)], current: Option<&Validators>| {
            evaluate(&Method::PUT, &headers(fields), current)
        };
        let now = current();
        assert_eq!(put(&[("if-none-match", "*")], Some(&now)), Verdict::Failed);
        assert_eq!(put(&[("if-none-match", "*")], None), Verdict::Proceed);
        assert_eq!(put(&[("if-match", "*")], None), Verdict::Failed);
        assert_eq!(put(&[("if-modified-since", NOON)], Some(&now)), Verdict::Proceed);
    }

    /// A time at which the date of the current file is a strong validator.
    fn later() -> SystemTime {
        httpdate::parse_http_date(NOON).unwrap() + Duration::from_secs(60)
    }

    #[test]
    fn a_date_that_is_not_a_minute_old_allows_no_range() {
        for (seconds, expected) in [(0, false), (1, false), (59, false), (60, true)] {
            let now = httpdate::parse_http_date(NOON).unwrap() + Duration::from_secs(seconds);
            let fields = headers(&[("if-range", NOON)]);
            assert_eq!(range_applies(&fields, &current(), now), expected, "{seconds}");
            let fields = headers(&[("if-range", "\"a,b\"")]);
            assert!(range_applies(&fields, &current(), now), "a tag");
        }
    }

    #[test]
    fn if_range_matches_strongly_or_to_the_second() {
        for (value, expected) in [
            ("\"a,b\"", true),
            ("W/\"a,b\"", false),
            ("\"x\"", false),
            (NOON, true),
            (BEFORE, false),
            (AFTER, false),
            ("rubbish", false),
            ("*", false),
        ] {
            assert_eq!(
                range_applies(&headers(&[("if-range", value)]), &current(), later()),
                expected,
                "{value}"
            );
        }
        assert!(range_applies(&HeaderMap::new(), &current(), later()));
        assert!(!range_applies(
            &headers(&[("if-range", NOON), ("if-range", NOON)]),
            &current(),
            later()
        ));
    }

    #[test]
    fn times_that_have_no_http_date_have_no_last_modified() {
        let now = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let second = Duration::from_secs(1);
        assert_eq!(http_second(UNIX_EPOCH - second, now), None);
        assert_eq!(http_second(UNIX_EPOCH, now), Some(UNIX_EPOCH));
        assert_eq!(http_second(now + second, now), Some(now));
        let far = UNIX_EPOCH + Duration::from_secs(END_OF_DATES);
        assert_eq!(http_second(far, far), None);
        assert!(http_second(far - second, far).is_some());
    }
}
