//! Figures for people.

/// MB/s: 10^6 bytes a second.
#[expect(
    clippy::cast_precision_loss,
    reason = "a figure for people; 2^53 bytes are 9 PB"
)]
pub(crate) fn rate(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        bytes as f64 / 1e6 / seconds
    } else {
        0.0
    }
}

/// A number with a comma after every third digit.
pub(crate) fn grouped(number: u64) -> String {
    indicatif::HumanCount(number).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_three_digits() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (12_345_678, "12,345,678"),
        ] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn no_time_is_no_infinite_speed() {
        assert!(rate(1, 0.0).abs() < f64::EPSILON);
        assert!((rate(3_000_000, 1.5) - 2.0).abs() < 1e-9);
    }
}
