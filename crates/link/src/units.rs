//! Parsers of times, rates and sizes: `100ms`, `1Gbit`, `64K`.
//!
//! One rule for all of them: a number, with or without decimals, is followed by a unit. A space may separate them, and the
//! case of the unit does not matter. A number without a unit is in the unit that the function states.

use std::fmt;
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;
const MILLISECOND: u64 = 1_000_000;

/// Nanoseconds.
const TIMES: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("ms", MILLISECOND),
    ("s", SECOND),
    ("m", 60 * SECOND),
    ("min", 60 * SECOND),
    ("h", 3_600 * SECOND),
];

/// Bits a second, in powers of ten.
const RATES: &[(&str, u64)] = &[
    ("bit", 1),
    ("kbit", 1_000),
    ("mbit", 1_000_000),
    ("gbit", 1_000_000_000),
];

/// Bytes, in powers of ten or two. A letter alone is a power of two, as in curl and wget.
const SIZES: &[(&str, u64)] = &[
    ("b", 1),
    ("k", 1 << 10),
    ("m", 1 << 20),
    ("g", 1 << 30),
    ("t", 1 << 40),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
];

/// A time in `ns`, `us`, `ms`, `s`, `m` (minutes) or `h`; without a unit, in seconds.
///
/// # Errors
/// Anything else.
///
/// ```
/// use std::time::Duration;
/// assert_eq!(fullbore_link::units::seconds("5"), Ok(Duration::from_secs(5)));
/// assert_eq!(fullbore_link::units::seconds("500ms"), Ok(Duration::from_millis(500)));
/// ```
pub fn seconds(text: &str) -> Result<Duration, UnitError> {
    parse(text, TIMES, SECOND)
        .map(Duration::from_nanos)
        .ok_or(UnitError(
            "seconds, or a time with its unit, such as 5, 500ms, 1.5s or 2m",
        ))
}

/// A time as for [`seconds`]; without a unit, in milliseconds.
///
/// # Errors
/// Anything else.
///
/// ```
/// use std::time::Duration;
/// assert_eq!(fullbore_link::units::milliseconds("100"), Ok(Duration::from_millis(100)));
/// assert_eq!(fullbore_link::units::milliseconds("0.3ms"), Ok(Duration::from_micros(300)));
/// ```
pub fn milliseconds(text: &str) -> Result<Duration, UnitError> {
    parse(text, TIMES, MILLISECOND)
        .map(Duration::from_nanos)
        .ok_or(UnitError(
            "milliseconds, or a time with its unit, such as 100, 2.5ms, 300us or 1s",
        ))
}

/// A rate in bits a second, in powers of ten: `bit`, `kbit`, `Mbit` or `Gbit`, each with or without `/s`, or no unit.
///
/// # Errors
/// Anything else, and zero.
///
/// ```
/// assert_eq!(fullbore_link::units::rate("1Gbit"), Ok(1_000_000_000));
/// assert_eq!(fullbore_link::units::rate("2.5 Mbit/s"), Ok(2_500_000));
/// ```
pub fn rate(text: &str) -> Result<u64, UnitError> {
    let text = text.trim_end();
    let text = text.strip_suffix("/s").unwrap_or(text);
    match parse(text, RATES, 1) {
        None | Some(0) => Err(UnitError("bits a second, such as 1Gbit, 100Mbit or 56kbit")),
        Some(bits) => Ok(bits),
    }
}

/// A number of bytes: `K`, `M`, `G`, `T` and `KiB`, `MiB`, `GiB`, `TiB` (powers of two), `kB`, `MB`, `GB`, `TB` (powers of
/// ten), `B` or no unit.
///
/// # Errors
/// Anything else, and fractions of a byte.
///
/// ```
/// assert_eq!(fullbore_link::units::bytes("64K"), Ok(65_536));
/// assert_eq!(fullbore_link::units::bytes("64KiB"), Ok(65_536));
/// assert_eq!(fullbore_link::units::bytes("64kB"), Ok(64_000));
/// ```
pub fn bytes(text: &str) -> Result<u64, UnitError> {
    parse(text, SIZES, 1).ok_or(UnitError(
        "whole bytes, such as 65535, 64K, 16M or 1G (powers of two), or 1GB (a power of ten)",
    ))
}

/// A text that is not in the expected form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnitError(&'static str);

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}", self.0)
    }
}

impl std::error::Error for UnitError {}

/// `bare` is the factor of a number without a unit. Exact: decimals that are not a whole number of the smallest unit are
/// refused, not rounded.
fn parse(text: &str, units: &[(&str, u64)], bare: u64) -> Option<u64> {
    let text = text.trim();
    let end = text
        .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = unit.trim_start();
    let factor = match unit {
        "" => bare,
        unit => units.iter().find(|row| row.0.eq_ignore_ascii_case(unit))?.1,
    };
    let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
    let whole = whole.parse::<u64>().ok()?.checked_mul(factor)?;
    let scale = 10_u64.checked_pow(u32::try_from(decimals.len()).ok()?)?;
    let part = decimals.parse::<u64>().ok()?.checked_mul(factor)?;
    if part % scale != 0 {
        return None;
    }
    whole.checked_add(part / scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit_or_is_in_the_one_that_is_stated() {
        assert_eq!(seconds("5"), Ok(Duration::from_secs(5)));
        assert_eq!(seconds("0"), Ok(Duration::ZERO));
        assert_eq!(seconds("1.5"), Ok(Duration::from_millis(1_500)));
        assert_eq!(milliseconds("100"), Ok(Duration::from_millis(100)));
        assert_eq!(milliseconds("0"), Ok(Duration::ZERO));
        for (text, nanoseconds) in [
            ("5s", 5_000_000_000),
            ("2m", 120_000_000_000),
            ("2 min", 120_000_000_000),
            ("1H", 3_600_000_000_000),
            ("100ms", 100_000_000),
            ("0.3ms", 300_000),
            ("1.5 s", 1_500_000_000),
            ("20us", 20_000),
            ("7NS", 7),
        ] {
            let time = Duration::from_nanos(nanoseconds);
            assert_eq!(
                (seconds(text), milliseconds(text)),
                (Ok(time), Ok(time)),
                "{text}"
            );
        }
        for text in [
            "",
            "ms",
            "-1ms",
            "1 month",
            "1e3ms",
            "0.5ns",
            "1.2.3s",
            "99999999999s",
        ] {
            assert!(
                seconds(text).is_err() && milliseconds(text).is_err(),
                "{text} was accepted"
            );
        }
    }

    #[test]
    fn rates_are_powers_of_ten() {
        for (text, bits) in [
            ("1Gbit", 1_000_000_000),
            ("1gbit/s", 1_000_000_000),
            ("2.5Gbit", 2_500_000_000),
            ("100 Mbit", 100_000_000),
            ("56kbit", 56_000),
            ("9bit", 9),
            ("1000", 1_000),
        ] {
            assert_eq!(rate(text), Ok(bits), "{text}");
        }
        for text in ["", "0Gbit", "1G", "1Gbps", "1GB", "0.1bit"] {
            assert!(rate(text).is_err(), "{text} was accepted");
        }
    }

    #[test]
    fn sizes_are_powers_of_ten_or_of_two_as_they_say() {
        for (text, size) in [
            ("0", 0),
            ("65535", 65_535),
            ("64KiB", 65_536),
            ("64K", 65_536),
            ("64k", 65_536),
            ("64M", 64 << 20),
            ("1G", 1 << 30),
            ("1.5k", 1_536),
            ("16mib", 16 << 20),
            ("1GB", 1_000_000_000),
            ("1.5 kB", 1_500),
            ("7B", 7),
            ("3 TiB", 3 << 40),
            ("2tb", 2_000_000_000_000),
        ] {
            assert_eq!(bytes(text), Ok(size), "{text}");
        }
        for text in [
            "",
            "KiB",
            "-1",
            "12 parsecs",
            "99999999999TiB",
            "+1",
            "0.5B",
            "1.KiB",
        ] {
            assert!(bytes(text).is_err(), "{text} was accepted");
        }
    }
}
