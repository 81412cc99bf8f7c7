//! The tests of this package are programs of hyper, axum, reqwest and tonic on `crates/h2`.
#![forbid(unsafe_code)]
