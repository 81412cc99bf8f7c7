//! Sizes on the command line that have a range: `65535`, `64KiB`, `16MiB`, `1GB`.

use fullbore::WindowSize;
use fullbore_link::units;

use crate::exit::Failure;

/// The largest flow-control window, 2^31-1 octets (RFC 9113 section 6.9.1).
const LARGEST_WINDOW: u64 = (1 << 31) - 1;
/// The initial connection window, which no SETTINGS can lower (RFC 9113 section 6.9.2).
const SMALLEST_CONNECTION_WINDOW: u64 = 65_535;

/// The receive window of a stream: 1 to 2^31-1 bytes.
pub(crate) fn stream_window(text: &str) -> Result<WindowSize, Failure> {
    window(text, 1, "a stream window")
}

/// The receive window of a connection: 65,535 to 2^31-1 bytes.
pub(crate) fn connection_window(text: &str) -> Result<WindowSize, Failure> {
    window(text, SMALLEST_CONNECTION_WINDOW, "a connection window")
}

/// The rest of a window at which it is refilled: 1 to 2^31-1 bytes.
pub(crate) fn refill_at(text: &str) -> Result<u32, Failure> {
    within(text, 1, "a refill threshold")
}

/// A memory budget: at least the initial window of one connection, 65,535 bytes.
pub(crate) fn budget(text: &str) -> Result<u64, Failure> {
    let bytes = bytes(text)?;
    if bytes < SMALLEST_CONNECTION_WINDOW {
        return Err(Failure::usage(format!(
            "a budget must be at least {SMALLEST_CONNECTION_WINDOW} bytes, the initial window of a connection"
        )));
    }
    Ok(bytes)
}

/// A buffer of the kernel: 1 to 2^31-1 bytes. The kernel may choose less.
pub(crate) fn tcp_buffer(text: &str) -> Result<u32, Failure> {
    within(text, 1, "a TCP buffer")
}

fn window(text: &str, smallest: u64, what: &str) -> Result<WindowSize, Failure> {
    let bytes = within(text, smallest, what)?;
    WindowSize::new(bytes).ok_or_else(|| Failure::usage(format!("{what} of {bytes} bytes is not possible")))
}

fn within(text: &str, smallest: u64, what: &str) -> Result<u32, Failure> {
    let bytes = bytes(text)?;
    u32::try_from(bytes)
        .ok()
        .filter(|_| (smallest..=LARGEST_WINDOW).contains(&bytes))
        .ok_or_else(|| Failure::usage(format!("{what} must have {smallest} to {LARGEST_WINDOW} bytes")))
}

fn bytes(text: &str) -> Result<u64, Failure> {
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
}
