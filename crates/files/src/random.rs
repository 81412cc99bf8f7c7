//! Random numbers for names and boundaries.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

/// 64 bits that a peer cannot predict: each `RandomState` has random keys.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
