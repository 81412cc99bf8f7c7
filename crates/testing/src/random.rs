//! Random numbers from a seed (splitmix64): the same seed gives the same numbers in every run.

/// A generator.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A generator that starts at `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// An independent generator, for one of several threads.
    pub fn fork(&mut self) -> Self {
        Self(self.next())
    }

    /// 64 random bits.
    #[allow(clippy::should_implement_trait, reason = "it never ends and is not iterated")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; 0 when `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next().checked_rem(end).unwrap_or(0)
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// A number below `1 << bits`; every order of magnitude is equally likely.
    pub fn magnitude(&mut self, bits: u32) -> u64 {
        let end = 1_u64 << self.between(0, u64::from(bits));
        self.below(end)
    }

    /// True once in `times` on average.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One element of `all`; `None` when it is empty.
    pub fn choose<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        all.get(self.below(all.len() as u64) as usize)
    }

    /// `count` random octets.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count + 8);
        while bytes.len() < count {
            bytes.extend(self.next().to_le_bytes());
        }
        bytes.truncate(count);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_choices_and_choices_stay_within_their_bounds() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            (0..1_000)
                .map(|_| [random.below(10), random.between(5, 7), random.magnitude(20)])
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
