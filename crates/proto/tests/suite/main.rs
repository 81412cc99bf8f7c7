//! The behaviour of the engine, in one program because one is linked faster than four.

#[path = "../support/mod.rs"]
mod support;

mod conformance;
mod exchange;
mod flow;
mod random;
