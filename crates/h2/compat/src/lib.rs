//! The tests of this package are programs of hyper, axum, reqwest, tonic, pingora and hickory on `crates/h2`.
#![forbid(unsafe_code)]
