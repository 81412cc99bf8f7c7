//! Parsers of times, rates and sizes: `100ms`, `1Gbit`, `64KiB`.
//!
//! A number, with or without decimals, is followed by a unit. A space may separate them. The case of the unit does not
//! matter.

use std::fmt;
use std::time::Duration;

/// Nanoseconds.
const TIMES: &[(&str, u64)] = &[("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];

/// Bits a second, in powers of ten.
const RATES: &[(&str, u64)] = &[
    ("bit", 1),
    ("kbit", 1_000),
    ("mbit", 1_000_000),
    ("gbit", 1_000_000_000),
];

/// Bytes, in powers of ten or two.
const SIZES: &[(&str, u64)] = &[
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

/// A time in `ns`, `us`, `ms` or `s`: `100ms`, `0.3ms`. `0` needs no unit.
///
/// # Errors
/// Anything else.
///
/// ```
/// use std::time::Duration;
/// assert_eq!(fullbore_link::units::time("100ms"), Ok(Duration::from_millis(100)));
/// ```
pub fn time(text: &str) -> Result<Duration, UnitError> {
    if text.trim() == "0" {
        return Ok(Duration::ZERO);
    }
    parse(text, TIMES).map(Duration::from_nanos).ok_or(UnitError(
        "a time with its unit, such as 100ms, 2.5ms, 300us or 1s",
    ))
}

/// A rate in bits a second, in powers of ten: `bit`, `kbit`, `Mbit` or `Gbit`, each with or without `/s`.
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
    match parse(text, RATES) {
        None | Some(0) => Err(UnitError("bits a second, such as 1Gbit, 100Mbit or 56kbit")),
        Some(bits) => Ok(bits),
    }
}

/// A number of bytes: `B` or no unit, `kB`, `MB`, `GB`, `TB` (powers of ten), `KiB`, `MiB`, `GiB`, `TiB` (powers of two).
///
/// # Errors
/// Anything else, and fractions of a byte.
///
/// ```
/// assert_eq!(fullbore_link::units::bytes("64KiB"), Ok(65_536));
/// ```
pub fn bytes(text: &str) -> Result<u64, UnitError> {
    parse(text, SIZES).ok_or(UnitError("whole bytes, such as 65535, 64KiB, 16MiB or 1GB"))
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

/// Exact: decimals that are not a whole number of the smallest unit are refused, not rounded.
fn parse(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let end = text
        .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = unit.trim_start();
    let factor = units
        .iter()
        .find(|row| row.0.eq_ignore_ascii_case(unit))
        .map(|row| row.1)?;
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
    fn times_have_a_unit() {
        for (text, nanoseconds) in [
            ("0", 0),
            ("100ms", 100_000_000),
            ("0.3ms", 300_000),
            ("1.5 s", 1_500_000_000),
            ("20us", 20_000),
            ("7NS", 7),
        ] {
            assert_eq!(time(text), Ok(Duration::from_nanos(nanoseconds)), "{text}");
        }
        for text in [
            "",
            "100",
            "ms",
            "-1ms",
            "1m",
            "1e3ms",
            "0.5ns",
            "1.2.3s",
            "99999999999s",
        ] {
            assert!(time(text).is_err(), "{text} was accepted");
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
        ] {
            assert_eq!(rate(text), Ok(bits), "{text}");
        }
        for text in ["", "0Gbit", "1G", "1Gbps", "1GB", "1000", "0.1bit"] {
            assert!(rate(text).is_err(), "{text} was accepted");
        }
    }

    #[test]
    fn sizes_are_powers_of_ten_or_of_two_as_they_say() {
        for (text, size) in [
            ("0", 0),
            ("65535", 65_535),
            ("64KiB", 65_536),
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
            "1K",
            "+1",
            "0.5B",
            "1.KiB",
        ] {
            assert!(bytes(text).is_err(), "{text} was accepted");
        }
    }
}
