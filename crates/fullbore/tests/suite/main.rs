//! The behaviour of the library, in one program because one is linked faster than sixteen. What needs a process of its own
//! stands beside it.

#[path = "../support/mod.rs"]
mod support;

mod attacks;
mod authority;
mod axum;
mod backpressure;
mod cancel;
mod client;
mod clock;
mod connections;
mod crowded;
mod draining;
mod errors;
mod exchange;
mod faults;
mod files;
mod front;
mod half_close;
mod half_rtt;
mod http1;
mod http1_client;
mod informational;
mod lengths;
mod liveness;
mod local;
mod pool;
mod proxy;
mod refusals;
mod sent_bytes;
mod shutdown;
mod silence;
mod streams;
mod tls;
mod tower;
mod urgent;
mod verdicts;
mod writes;
