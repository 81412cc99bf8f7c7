//! A hash map by stream identifier, safe from identifiers that a peer chooses.

use core::hash::{BuildHasher, Hasher};
use std::collections::HashMap;
use std::collections::hash_map::RandomState;

use super::stream_id::StreamId;

/// A map by stream identifier that hashes with two multiplications.
///
/// Each map has a secret key. Otherwise a peer could choose identifiers whose hashes collide, and each frame on one
/// of them would search through all.
pub type StreamMap<T> = HashMap<StreamId, T, IdHashing>;

/// The hashing of a [`StreamMap`], with a key that no peer knows.
#[derive(Debug, Clone, Copy)]
pub struct IdHashing {
    multiplier: u64,
}

impl Default for IdHashing {
    fn default() -> Self {
        // The standard library provides a random key without a system call.
        let random = RandomState::new().build_hasher().finish();
        IdHashing {
            multiplier: random | 1,
        }
    }
}

impl BuildHasher for IdHashing {
    type Hasher = IdHasher;

    fn build_hasher(&self) -> IdHasher {
        IdHasher(self.multiplier)
    }
}

/// The hasher of a [`StreamMap`]: the product of the identifier and the key, of which both halves count. The second product
/// spreads identifiers in a row. Without it one key of a hundred puts 10,000 of them into 5,650 of 16,384 buckets or fewer.
#[derive(Debug, Clone, Copy)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(u32::from(byte));
        }
    }

    fn write_u32(&mut self, value: u32) {
        let product = u128::from(value) * u128::from(self.0);
        let folded = (product as u64 ^ (product >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = folded ^ (folded >> 32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u32) -> StreamId {
        StreamId::new(number).expect("not 0")
    }

    #[test]
    fn identifiers_that_collide_in_one_map_do_not_in_another() {
        let bucket = |hashing: &IdHashing, number: u32| hashing.hash_one(id(number)) & 0x3fff;
        let known = IdHashing::default();
        let colliding: Vec<u32> = (0..1 << 23)
            .map(|index| 2 * index + 1)
            .filter(|&number| bucket(&known, number) == 0)
            .collect();
        assert!(colliding.len() > 100, "{}", colliding.len());
        let other = IdHashing::default();
        let mut buckets: Vec<u64> = colliding.iter().map(|&number| bucket(&other, number)).collect();
        buckets.sort_unstable();
        buckets.dedup();
        assert!(
            buckets.len() * 2 > colliding.len(),
            "{} of {}",
            buckets.len(),
            colliding.len()
        );
    }

    #[test]
    fn identifiers_in_a_row_spread_over_a_map() {
        // The keys are the same in each run, since six random keys in a million give only 5,800 to 6,500 buckets. Without the
        // second product, the keys of 1,866 and 1,880 fail.
        for number in 1_801..=1_900_u64 {
            let hashing = IdHashing {
                multiplier: number.wrapping_mul(0xd130_2b97_3f5a_61c5) | 1,
            };
            let mut buckets: Vec<u64> = (0..10_000)
                .map(|index| hashing.hash_one(id(2 * index + 1)) & 0x3fff)
                .collect();
            buckets.sort_unstable();
            buckets.dedup();
            // As many as 10,000 that fall at random meet.
            assert!(buckets.len() > 6_500, "{} with {hashing:?}", buckets.len());
        }
    }
}
