//! The service behind `fullbore serve`.
#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod serve;
