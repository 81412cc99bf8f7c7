//! Range requests: RFC 9110 section 14.
//!
//! Called by `files`.

use std::ops::Range;

use http::HeaderMap;
use http::header::RANGE;

/// The ranges that a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The whole file: there is no `range`, or it is invalid.
    Whole,
    /// One range: 206 with `content-range`.
    One(Range<u64>),
    /// Two or more, in the order of the request: 206 with `multipart/byteranges`.
    Many(Vec<Range<u64>>),
    /// No range is in the file, or there are too many: 416.
    Unsatisfiable,
}

/// The most bytes of a range, with spaces.
const RANGE_BYTES: usize = 64;

/// One `range-spec` of section 14.1.1, not yet applied to a length.
#[derive(Clone, Copy)]
enum Spec {
    From(u64),
    Between(u64, u64),
    Last(u64),
}

/// Whether the request has the field. Few requests do, and comparing each name is cheaper than a lookup.
pub(crate) fn is_asked(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| name == RANGE)
}

/// How many ranges a request may ask for. Each is a part of the response with fields of its own.
const MAX_RANGES: usize = 16;

/// Reads the `range` field for a file of `length` bytes.
///
/// An invalid field is ignored, as section 14.2 allows. More ranges than the limit, or more than two that overlap (section
/// 17.15), are unsatisfiable. Two ranges that overlap are sent as one.
pub(crate) fn wanted(headers: &HeaderMap, length: u64) -> Wanted {
    let mut fields = headers.get_all(RANGE).iter();
    // The field is not a list: a second line makes it invalid.
    let (Some(field), None) = (fields.next(), fields.next()) else {
        return Wanted::Whole;
    };
    let Some(set) = std::str::from_utf8(field.as_bytes()).ok().and_then(range_set) else {
        return Wanted::Whole;
    };

    // A range has two numbers of 20 digits at most. With HPACK a request repeats a long field for one byte.
    if set.len() > RANGE_BYTES * MAX_RANGES {
        return Wanted::Unsatisfiable;
    }
    let mut ranges = Vec::new();
    let mut count = 0;
    for part in set.split(',') {
        let part = part.trim_matches([' ', '\t']);
        if part.is_empty() {
            // Empty list elements are accepted: section 5.6.1.2.
            continue;
        }
        let Some(spec) = Spec::parse(part) else {
            return Wanted::Whole;
        };
        count += 1;
        if count <= MAX_RANGES {
            ranges.extend(spec.within(length));
        }
    }
    if count == 0 {
        return Wanted::Whole;
    }
    if count > MAX_RANGES {
        return Wanted::Unsatisfiable;
    }
    if ranges.iter().any(Range::is_empty) {
        // A suffix of an empty file is satisfiable, but `content-range` cannot express it.
        return Wanted::Whole;
    }
    let Some(mut ranges) = join_overlapping(ranges) else {
        return Wanted::Unsatisfiable;
    };
    match (ranges.pop(), ranges.is_empty()) {
        (None, _) => Wanted::Unsatisfiable,
        (Some(range), true) => Wanted::One(range),
        (Some(range), false) => {
            ranges.push(range);
            Wanted::Many(ranges)
        }
    }
}

/// The set after `bytes=`; `None` for another unit. Units are case-insensitive (section 14.1).
fn range_set(field: &str) -> Option<&str> {
    let (unit, set) = field.split_once('=')?;
    unit.trim().eq_ignore_ascii_case("bytes").then_some(set)
}

impl Spec {
    fn parse(text: &str) -> Option<Spec> {
        let (first, last) = text.split_once('-')?;
        match (first.is_empty(), last.is_empty()) {
            (true, true) => None,
            (true, false) => Some(Spec::Last(number(last)?)),
            (false, true) => Some(Spec::From(number(first)?)),
            (false, false) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(Spec::Between(first, last))
            }
        }
    }

    /// The range in a file of `length` bytes; `None` when it is unsatisfiable (section 14.1.2).
    fn within(self, length: u64) -> Option<Range<u64>> {
        match self {
            Spec::Last(0) => None,
            Spec::Last(suffix) => Some(length.saturating_sub(suffix)..length),
            Spec::From(first) => (first < length).then_some(first..length),
            Spec::Between(first, last) => {
                (first < length).then_some(first..last.saturating_add(1).min(length))
            }
        }
    }
}

/// `1*DIGIT`. A number that exceeds 64 bits is past the end of any file.
fn number(digits: &str) -> Option<u64> {
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some(digits.parse().unwrap_or(u64::MAX))
}

/// Joins two ranges that overlap, at the position of the first; `None` when more than two overlap.
fn join_overlapping(mut ranges: Vec<Range<u64>>) -> Option<Vec<Range<u64>>> {
    let overlaps = |a: &Range<u64>, b: &Range<u64>| a.start < b.end && b.start < a.end;
    let mut joined: Option<(usize, usize)> = None;
    for (i, a) in ranges.iter().enumerate() {
        for (j, b) in ranges.iter().enumerate().skip(i + 1) {
            if overlaps(a, b) && joined.replace((i, j)).is_some() {
                return None;
            }
        }
    }
    if let Some((i, j)) = joined {
        let second = ranges.remove(j);
        if let Some(first) = ranges.get_mut(i) {
            *first = first.start.min(second.start)..first.end.max(second.end);
        }
    }
    Some(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: &str, length: u64) -> Wanted {
        let mut headers = HeaderMap::new();
        headers.insert(RANGE, value.parse().unwrap());
        wanted(&headers, length)
    }

    #[test]
    fn one_range_in_each_form() {
        for (value, expected) in [
            ("bytes=0-0", 0..1),
            ("bytes=0-9", 0..10),
            ("bytes=2-", 2..10),
            ("bytes=9-9", 9..10),
            ("bytes=9-", 9..10),
            ("bytes=0-99", 0..10),
            ("bytes=3-99999999999999999999999999", 3..10),
            ("bytes=-3", 7..10),
            ("bytes=-10", 0..10),
            ("bytes=-11", 0..10),
            ("bytes=-99999999999999999999999999", 0..10),
            ("BYTES=1-2", 1..3),
            ("bytes= 1-2", 1..3),
            ("bytes=,,1-2 ,", 1..3),
            ("bytes=00000000000000000000001-2", 1..3),
            ("bytes=20-30,1-2", 1..3),
            ("bytes=1-2,-0", 1..3),
        ] {
            assert_eq!(of(value, 10), Wanted::One(expected), "{value}");
        }
    }

    #[test]
    fn rubbish_is_ignored() {
        for value in [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "bytes=-",
            "bytes=--1",
            "bytes=5",
            "bytes=a-b",
            "bytes=1-b",
            "bytes=+1-2",
            "bytes=1-2-3",
            "bytes=5-4",
            "bytes=0-1,x",
            "bytes=1 - 2",
            "bytes 0-1",
            "items=0-1",
            "none=0-1",
            "bytes=0-1;2-3",
            "bytes=0x1-0x2",
            "bytes=0-1,5-4",
        ] {
            assert_eq!(of(value, 10), Wanted::Whole, "{value}");
        }
        assert_eq!(wanted(&HeaderMap::new(), 10), Wanted::Whole);
    }

    #[test]
    fn two_lines_are_rubbish() {
        let mut headers = HeaderMap::new();
        headers.append(RANGE, "bytes=0-1".parse().unwrap());
        headers.append(RANGE, "bytes=2-3".parse().unwrap());
        assert_eq!(wanted(&headers, 10), Wanted::Whole);
    }

    #[test]
    fn what_is_not_in_the_file_is_unsatisfiable() {
        for value in [
            "bytes=10-",
            "bytes=10-10",
            "bytes=99999999999999999999999999-",
            "bytes=-0",
            "bytes=10-,-0,99-100",
        ] {
            assert_eq!(of(value, 10), Wanted::Unsatisfiable, "{value}");
        }
    }

    #[test]
    fn an_empty_file_has_no_first_byte_but_has_a_suffix() {
        assert_eq!(of("bytes=0-", 0), Wanted::Unsatisfiable);
        assert_eq!(of("bytes=0-0", 0), Wanted::Unsatisfiable);
        assert_eq!(of("bytes=-5", 0), Wanted::Whole);
        assert_eq!(of("bytes=-0", 0), Wanted::Unsatisfiable);
    }

    #[test]
    fn many_keep_their_order() {
        assert_eq!(of("bytes=8-, 0-1,-4", 20), Wanted::Many(vec![8..20, 0..2]));
        assert_eq!(
            of("bytes=8-9, 0-1 , 4-5", 20),
            Wanted::Many(vec![8..10, 0..2, 4..6])
        );
        // Neighbours do not overlap.
        assert_eq!(of("bytes=0-1,2-3", 20), Wanted::Many(vec![0..2, 2..4]));
    }

    #[test]
    fn two_that_overlap_become_one_and_more_are_refused() {
        assert_eq!(of("bytes=0-5,3-8", 10), Wanted::One(0..9));
        assert_eq!(of("bytes=3-8,0-5", 10), Wanted::One(0..9));
        assert_eq!(of("bytes=0-,0-", 10), Wanted::One(0..10));
        assert_eq!(of("bytes=0-,0-,0-", 10), Wanted::Unsatisfiable);
        assert_eq!(of("bytes=0-5,4-8,6-9", 10), Wanted::Unsatisfiable);
        assert_eq!(of("bytes=0-1,1-2,5-6,6-7", 10), Wanted::Unsatisfiable);
    }

    #[test]
    fn the_number_of_ranges_is_bounded() {
        let set = |n: usize| {
            let parts: Vec<String> = (0..n).map(|i| format!("{0}-{0}", i * 2)).collect();
            format!("bytes={}", parts.join(","))
        };
        assert!(matches!(of(&set(16), 1000), Wanted::Many(r) if r.len() == 16));
        assert_eq!(of(&set(17), 1000), Wanted::Unsatisfiable);
        // Those past the end count too.
        assert_eq!(of(&set(17), 1), Wanted::Unsatisfiable);
        assert_eq!(of(&format!("{},x", set(17)), 1000), Wanted::Whole);
    }
}
