//! Times in whole seconds, as lists of folders, HTTP dates and the times of uploads have them.

use std::fs::Metadata;
use std::time::{SystemTime, UNIX_EPOCH};

/// The whole seconds from 1970 to this time, rounded down.
pub(crate) fn of_time(time: SystemTime) -> Option<i64> {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_secs()).ok(),
        Err(before) => {
            let before = before.duration();
            let seconds = i64::try_from(before.as_secs()).ok()?;
            Some(-seconds - i64::from(before.subsec_nanos() > 0))
        }
    }
}

/// The second in which a file was modified.
pub(crate) fn of_file(found: &Metadata) -> Option<i64> {
    of_time(found.modified().ok()?)
}

/// The second of a time in the form of RFC 3339 in UTC, from 1970 on; a fraction is dropped.
pub(crate) fn of_rfc3339(text: &str) -> Option<i64> {
    // The parser takes a time without a zone for one in UTC.
    let utc = text.ends_with('Z').then_some(text)?;
    of_time(humantime::parse_rfc3339_weak(utc).ok()?)
}

/// The second of an HTTP date (RFC 9110 section 5.6.7).
pub(crate) fn of_http_date(text: &str) -> Option<i64> {
    of_time(httpdate::parse_http_date(text).ok()?)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_time_of_a_list_is_a_second() {
        for (text, second) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2026-01-02T03:04:05Z", Some(1_767_323_045)),
            ("2026-01-02T03:04:05.123456789Z", Some(1_767_323_045)),
            ("2000-02-29T12:00:00Z", Some(951_825_600)),
            ("2100-03-01T00:00:00Z", Some(4_107_542_400)),
            ("9999-12-31T23:59:59Z", Some(253_402_300_799)),
            ("2026-13-02T03:04:05Z", None),
            ("2026-01-02T03:04:05+02:00", None),
            ("2026-01-02T03:04:05", None),
            ("2026-01-02", None),
            ("", None),
        ] {
            assert_eq!(of_rfc3339(text), second, "{text}");
        }
        assert_eq!(of_http_date("Thu, 01 Jan 1970 00:00:09 GMT"), Some(9));
        assert_eq!(of_time(UNIX_EPOCH - Duration::from_millis(1)), Some(-1));
    }
}
