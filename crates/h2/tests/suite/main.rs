//! The behaviour of the crate, in memory and in one program.

mod obligations;
mod plain;
mod support;
