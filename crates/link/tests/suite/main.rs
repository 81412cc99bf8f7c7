//! The behaviour of the link.

mod bytes;
mod ends;
mod frames;
mod support;
