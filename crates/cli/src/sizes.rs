//! Sizes and times on the command line that have a range: `65535`, `64K`, `1GB`; `5`, `500ms`, `2m`.

use std::time::Duration;

use fullbore::settings::WindowSize;
use fullbore_link::units;

use crate::exit::Failure;

/// The initial connection window, which no SETTINGS can lower (RFC 9113 section 6.9.2).
const SMALLEST_CONNECTION_WINDOW: u32 = 65_535;

/// The longest time limit: a longer one is a typing error.
const LONGEST_LIMIT: Duration = Duration::from_secs(365 * 86_400);

/// The receive window of a stream: 1 to 2^31-1 bytes (RFC 9113 section 6.9.1).
pub(crate) fn stream_window(text: &str) -> Result<WindowSize, Failure> {
    window(text, 1)
}

/// The receive window of a connection: 65,535 to 2^31-1 bytes.
pub(crate) fn connection_window(text: &str) -> Result<WindowSize, Failure> {
    window(text, SMALLEST_CONNECTION_WINDOW)
}

/// A threshold within a window, or a buffer of the kernel: 1 to 2^31-1 bytes.
pub(crate) fn size(text: &str) -> Result<u32, Failure> {
    window(text, 1).map(WindowSize::bytes)
}

/// What may wait unsent in the kernel, as [`size`]; 0 is no limit.
pub(crate) fn unsent(text: &str) -> Result<u32, Failure> {
    match text.trim() {
        "0" => Ok(0),
        text => size(text),
    }
}

/// A memory budget: at least the initial window of one connection.
pub(crate) fn budget(text: &str) -> Result<u64, Failure> {
    let bytes = bytes(text)?;
    if bytes < u64::from(SMALLEST_CONNECTION_WINDOW) {
        return Err(Failure::usage(format!(
            "expected at least {SMALLEST_CONNECTION_WINDOW} bytes, the initial window of a connection"
        )));
    }
    Ok(bytes)
}

/// A whole number in a range.
pub(crate) fn count<const LEAST: u32, const MOST: u32>(text: &str) -> Result<u32, Failure> {
    let number = text
        .trim()
        .parse()
        .ok()
        .filter(|number| (LEAST..=MOST).contains(number));
    number.ok_or_else(|| Failure::usage(format!("expected a whole number from {LEAST} to {MOST}")))
}

/// A number of bytes a second; 0 is no limit.
pub(crate) fn byte_rate(text: &str) -> Result<u32, Failure> {
    u32::try_from(bytes(text)?).map_err(|_| Failure::usage(format!("expected at most {} bytes", u32::MAX)))
}

/// A time limit above 0; without a unit, in seconds.
pub(crate) fn limit(text: &str) -> Result<Duration, Failure> {
    let limit = limit_or_none(text)?;
    if limit.is_zero() {
        return Err(Failure::usage("expected more than 0 seconds"));
    }
    Ok(limit)
}

/// A time limit; without a unit, in seconds. 0 is no limit.
pub(crate) fn limit_or_none(text: &str) -> Result<Duration, Failure> {
    let limit = units::seconds(text).map_err(|error| Failure::usage(error.to_string()))?;
    if limit > LONGEST_LIMIT {
        return Err(Failure::usage("expected at most a year (8760h)"));
    }
    Ok(limit)
}

fn window(text: &str, smallest: u32) -> Result<WindowSize, Failure> {
    let window = u32::try_from(bytes(text)?).ok().and_then(WindowSize::new);
    window.filter(|window| window.bytes() >= smallest).ok_or_else(|| {
        let largest = WindowSize::MAX.bytes();
        Failure::usage(format!("expected {smallest} to {largest} bytes"))
    })
}

pub(crate) fn bytes(text: &str) -> Result<u64, Failure> {
    units::bytes(text).map_err(|error| Failure::usage(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_keep_to_the_limits_of_rfc_9113() {
        assert!(stream_window("0").is_err());
        assert_eq!(stream_window("1").ok(), WindowSize::new(1));
        assert_eq!(stream_window("2147483647").ok(), Some(WindowSize::MAX));
        assert!(stream_window("2GiB").is_err());
        assert!(stream_window("8GiB").is_err());
        assert!(connection_window("65534").is_err());
        assert_eq!(connection_window("65535").ok(), WindowSize::new(65_535));
        assert!(budget("65534").is_err());
        assert_eq!(budget("5GiB").ok(), Some(5 << 30));
    }

    #[test]
    fn time_limits_end_at_a_year_and_some_may_be_none() {
        assert_eq!(limit_or_none("0").ok(), Some(Duration::ZERO));
        assert_eq!(limit("8760h").ok(), Some(LONGEST_LIMIT));
        for wrong in ["0", "0ms", "8761h", "", "soon"] {
            assert!(limit(wrong).is_err(), "{wrong}");
        }
        assert_eq!(byte_rate("64K").ok(), Some(65_536));
        assert!(byte_rate("4G").is_err());
    }
}
