//! The behaviour of the crate, in memory and in one program.

mod obligations;
mod plain;
mod stress;
mod support;
#[cfg(not(any(feature = "fixed-windows", feature = "unstable")))]
mod windows;
