//! What the tests of all crates and the benchmarks share. No crate but tests and `bench` depends on this one, and it
//! depends on no other crate of the workspace, so that every crate can test with it.

#![forbid(unsafe_code)]

pub mod frames;
pub mod nobody;
pub mod pattern;
pub mod peer;
pub mod process;
pub mod random;
pub mod wakes;
