//! The tests of this package are programs of hyper, axum and reqwest on `crates/h2`.
#![forbid(unsafe_code)]
