//! Programs of hyper, axum, reqwest, tonic, pingora and hickory on `crates/h2`, in one program, which is linked once.

mod dns;
#[path = "../../../../tonic/tests/support/mod.rs"]
mod grpc;
mod pingora;
mod support;
mod tls;

mod calls;
mod hickory;
mod path;
mod peers;
mod programs;
mod proxy;
mod report;
