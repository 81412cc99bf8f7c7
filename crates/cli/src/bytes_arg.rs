//! Byte counts on the command line: `65535`, `64KiB`, `16MiB`, `1GB`, and the limits of the windows they set.
//!
//! Called by clap while it parses; touches nothing.

use std::str::FromStr;

use crate::exit::Failure;

/// The largest flow-control window, 2^31-1 octets (RFC 9113 section 6.9.1).
const LARGEST_WINDOW: u64 = (1 << 31) - 1;
/// The connection window that no SETTINGS can lower (RFC 9113 section 6.9.2).
const SMALLEST_CONNECTION_WINDOW: u64 = 65_535;

const UNITS: [(&str, u64); 10] = [
    ("", 1),
    ("b", 1),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
];

/// A number of bytes with an optional unit; the unit's case does not matter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bytes(pub(crate) u64);

impl FromStr for Bytes {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let unit = unit.trim_start().to_ascii_lowercase();
        let factor = UNITS.iter().find(|row| row.0 == unit).map(|row| row.1);
        match (number.parse::<u64>(), factor) {
            (Ok(number), Some(factor)) => number
                .checked_mul(factor)
                .map(Self)
                .ok_or_else(|| Failure::usage(format!("{text} is more bytes than can be counted"))),
            _ => Err(Failure::usage(
                "expected whole bytes such as 65535, 64KiB, 16MiB or 1GB",
            )),
        }
    }
}

/// A stream's receive window: 1 to 2^31-1 bytes.
pub(crate) fn stream_window(text: &str) -> Result<u32, Failure> {
    within(text, 1, "a stream window")
}

/// A connection's receive window: 65,535 to 2^31-1 bytes.
pub(crate) fn connection_window(text: &str) -> Result<u32, Failure> {
    within(text, SMALLEST_CONNECTION_WINDOW, "a connection window")
}

/// The remaining window at which it is refilled: 1 to 2^31-1 bytes.
pub(crate) fn refill_at(text: &str) -> Result<u32, Failure> {
    within(text, 1, "a refill threshold")
}

/// A memory budget: enough for one connection's first window, 65,535 bytes.
pub(crate) fn budget(text: &str) -> Result<u64, Failure> {
    let Bytes(bytes) = text.parse()?;
    if bytes < SMALLEST_CONNECTION_WINDOW {
        return Err(Failure::usage(format!(
            "a budget is {SMALLEST_CONNECTION_WINDOW} bytes at least, the window that every connection begins with"
        )));
    }
    Ok(bytes)
}

/// A buffer of the kernel's: 1 to 2^31-1 bytes, of which the kernel makes what it allows.
pub(crate) fn tcp_buffer(text: &str) -> Result<u32, Failure> {
    within(text, 1, "a TCP buffer")
}

fn within(text: &str, smallest: u64, what: &str) -> Result<u32, Failure> {
    let Bytes(bytes) = text.parse()?;
    if bytes < smallest || bytes > LARGEST_WINDOW {
        return Err(Failure::usage(format!(
            "{what} is {smallest} to {LARGEST_WINDOW} bytes"
        )));
    }
    u32::try_from(bytes).map_err(|error| Failure::usage(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_powers_of_ten_or_of_two_as_they_say() {
        for (text, bytes) in [
            ("0", 0),
            ("65535", 65_535),
            ("64KiB", 65_536),
            ("16mib", 16 << 20),
            ("1GB", 1_000_000_000),
            ("3 kB", 3_000),
            ("7B", 7),
        ] {
            assert_eq!(text.parse::<Bytes>().map(|b| b.0).ok(), Some(bytes));
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in ["", "KiB", "1.5MiB", "-1", "12 parsecs", "99999999999TiB", "1K"] {
            assert!(text.parse::<Bytes>().is_err(), "{text} was accepted");
        }
    }

    #[test]
    fn windows_keep_to_the_limits_of_rfc_9113() {
        assert!(stream_window("0").is_err());
        assert_eq!(stream_window("1").ok(), Some(1));
        assert_eq!(stream_window("2147483647").ok(), Some(2_147_483_647));
        assert!(stream_window("2GiB").is_err());
        assert!(connection_window("65534").is_err());
        assert_eq!(connection_window("65535").ok(), Some(65_535));
    }
}
