//! Medians and spreads of samples. No I/O.

/// The middle of some samples and how far they lie apart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// `None` when there are no samples. An even number of samples has the mean of the middle two as its median.
    pub(crate) fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted: Vec<f64> = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let upper = *sorted.get(sorted.len() / 2)?;
        let median = match sorted.len() % 2 {
            0 => (upper + sorted.get(sorted.len() / 2 - 1).copied()?) / 2.0,
            _ => upper,
        };
        Some(Self { median, min, max })
    }

    /// `median (min-max)` with so many digits after the point; the median alone when all samples look the same.
    pub(crate) fn text(&self, digits: usize) -> String {
        let [median, min, max] = [self.median, self.min, self.max].map(|figure| format!("{figure:.digits$}"));
        if min == max {
            median
        } else {
            format!("{median} ({min}-{max})")
        }
    }
}

impl std::ops::Mul<f64> for Spread {
    type Output = Spread;

    /// The same in another unit.
    fn mul(self, scale: f64) -> Spread {
        Spread {
            median: self.median * scale,
            min: self.min * scale,
            max: self.max * scale,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_samples_have_no_spread() {
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn an_odd_number_of_samples_has_its_middle_one() {
        assert_eq!(
            Spread::of(&[3.0, 1.0, 2.0]),
            Some(Spread {
                median: 2.0,
                min: 1.0,
                max: 3.0
            })
        );
    }

    #[test]
    fn an_even_number_of_samples_has_the_mean_of_the_middle_two() {
        assert_eq!(
            Spread::of(&[4.0, 1.0, 2.0, 8.0]),
            Some(Spread {
                median: 3.0,
                min: 1.0,
                max: 8.0
            })
        );
    }

    #[test]
    fn one_sample_is_its_own_spread() {
        assert_eq!(
            Spread::of(&[7.5]),
            Some(Spread {
                median: 7.5,
                min: 7.5,
                max: 7.5
            })
        );
    }

    #[test]
    fn samples_that_look_alike_are_printed_once() {
        assert_eq!(
            Spread {
                median: 1.04,
                min: 1.01,
                max: 1.04
            }
            .text(1),
            "1.0"
        );
        assert_eq!(
            Spread {
                median: 1.04,
                min: 0.9,
                max: 1.2
            }
            .text(1),
            "1.0 (0.9-1.2)"
        );
    }
}
