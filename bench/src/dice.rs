//! Random choices that a seed makes again. Knows nothing of what is chosen; `soak` and `kills` call it.

/// splitmix64.
#[derive(Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Dice of their own for one of many.
    pub(crate) fn part(&mut self) -> Self {
        Self(self.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `end`, or 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next().checked_rem(end).unwrap_or(0)
    }

    /// From `least` to `most`, both among them.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most.saturating_sub(least) + 1)
    }

    /// Below `1 << bits`, small ones as likely as large ones: first how many bits, then which.
    pub(crate) fn size(&mut self, bits: u32) -> u64 {
        let most = 1_u64 << self.between(0, u64::from(bits));
        self.below(most)
    }

    /// Once in `times`.
    pub(crate) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn one_of<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        all.get(usize::try_from(self.below(all.len() as u64)).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_the_same_choices_again_and_they_stay_within_their_bounds() {
        let draw = |seed| {
            let mut dice = Dice::new(seed);
            (0..1_000)
                .map(|_| [dice.below(10), dice.between(5, 7), dice.size(20)])
                .collect::<Vec<_>>()
        };
        let drawn = draw(1);
        assert_eq!(drawn, draw(1));
        assert_ne!(drawn, draw(2));
        for [below, between, size] in &drawn {
            assert!(*below < 10 && (5..=7).contains(between) && *size < 1 << 20);
        }
        assert!(drawn.iter().any(|[_, _, size]| *size < 1_000));
        assert!(drawn.iter().any(|[_, _, size]| *size > 500_000));
    }
}
