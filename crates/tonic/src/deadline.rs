//! The deadline of a call, and the field `grpc-timeout` that carries it.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::{Instant, Sleep};

/// The field of a request that says how long the client waits for the whole call.
const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// One more than the largest value that the field may have: eight digits.
const TOO_LARGE: u128 = 100_000_000;

/// The units of the field, in nanoseconds, from the smallest to the largest.
const UNITS: [(u8, u128); 6] = [
    (b'n', 1),
    (b'u', 1_000),
    (b'm', 1_000_000),
    (b'S', 1_000_000_000),
    (b'M', 60 * 1_000_000_000),
    (b'H', 3_600 * 1_000_000_000),
];

/// When a call ends at the latest, if ever.
#[derive(Debug, Default)]
pub(crate) struct Deadline(Option<Pin<Box<Sleep>>>);

impl Deadline {
    /// The deadline of a request that begins now, from its field. A field that is malformed is ignored.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let timeout = headers.get(GRPC_TIMEOUT).and_then(parse);
        Deadline(timeout.map(|timeout| Box::pin(tokio::time::sleep(timeout))))
    }

    /// Completes when the deadline has passed.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.0 {
            Some(sleep) => sleep.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }

    /// When the call ends, if ever.
    pub(crate) fn at(&self) -> Option<Instant> {
        self.0.as_ref().map(|sleep| sleep.deadline())
    }

    /// Whether the deadline has passed.
    pub(crate) fn has_passed(&self) -> bool {
        let passed = |sleep: &Pin<Box<Sleep>>| sleep.deadline() <= Instant::now();
        self.0.as_ref().is_some_and(passed)
    }
}

/// Adds a timeout to a request, unless it has a shorter one.
pub(crate) fn limit(headers: &mut HeaderMap, timeout: Duration) {
    let own = headers.get(GRPC_TIMEOUT).and_then(parse);
    if own.is_none_or(|own| own > timeout) {
        headers.insert(GRPC_TIMEOUT, format(timeout));
    }
}

fn parse(value: &HeaderValue) -> Option<Duration> {
    let (unit, digits) = value.as_bytes().split_last()?;
    let (_, nanos) = UNITS.iter().find(|(name, _)| name == unit)?;
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value: u128 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    let nanos = value * nanos;
    let seconds = u64::try_from(nanos / 1_000_000_000).ok()?;
    Some(Duration::new(seconds, (nanos % 1_000_000_000) as u32))
}

/// The timeout in the smallest unit that has room for it, rounded up.
fn format(timeout: Duration) -> HeaderValue {
    let nanos = timeout.as_nanos();
    let fits = |(_, unit): &(u8, u128)| nanos.div_ceil(*unit) < TOO_LARGE;
    let (name, unit) = UNITS.into_iter().find(fits).unwrap_or(UNITS[5]);
    let value = nanos.div_ceil(unit).min(TOO_LARGE - 1);
    let text = format!("{value}{}", char::from(name));
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static("0n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<Duration> {
        parse(&HeaderValue::from_str(text).unwrap())
    }

    #[test]
    fn a_timeout_has_up_to_eight_digits_and_one_of_six_units() {
        assert_eq!(parsed("3H"), Some(Duration::from_secs(3 * 3_600)));
        assert_eq!(parsed("2M"), Some(Duration::from_secs(120)));
        assert_eq!(parsed("42S"), Some(Duration::from_secs(42)));
        assert_eq!(parsed("13m"), Some(Duration::from_millis(13)));
        assert_eq!(parsed("2u"), Some(Duration::from_micros(2)));
        assert_eq!(parsed("99999999n"), Some(Duration::from_nanos(99_999_999)));
        let longest = Duration::from_secs(99_999_999 * 3_600);
        assert_eq!(parsed("99999999H"), Some(longest));
        for text in [
            "",
            "1",
            "S",
            "123456789S",
            "1s",
            "-1S",
            "+1S",
            "1.5S",
            "1 S",
            "S1",
        ] {
            assert_eq!(parsed(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_timeout_is_written_in_the_smallest_unit_that_has_room() {
        for (timeout, text) in [
            (Duration::ZERO, "0n"),
            (Duration::from_millis(50), "50000000n"),
            (Duration::from_nanos(100_000_001), "100001u"),
            (Duration::from_secs(60), "60000000u"),
            (Duration::from_secs(100), "100000m"),
            (Duration::from_secs(100_000_000), "1666667M"),
            (Duration::MAX, "99999999H"),
        ] {
            assert_eq!(format(timeout), text, "{timeout:?}");
        }
    }

    #[test]
    fn a_limit_shortens_a_timeout_and_never_lengthens_one() {
        let mut headers = HeaderMap::new();
        limit(&mut headers, Duration::from_secs(2));
        assert_eq!(headers[GRPC_TIMEOUT], "2000000u");
        limit(&mut headers, Duration::from_secs(3));
        assert_eq!(headers[GRPC_TIMEOUT], "2000000u");
        limit(&mut headers, Duration::from_millis(1));
        assert_eq!(headers[GRPC_TIMEOUT], "1000000n");
        assert_eq!(headers.len(), 1);
    }
}
