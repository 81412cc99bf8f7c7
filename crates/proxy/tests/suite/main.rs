//! The proxy between clients and origins of both versions, in one program because one is linked faster than ten.

mod bad_origins;
mod bodies;
mod ends;
mod fields;
mod informational;
mod instances;
mod killed;
mod random;
mod silence;
mod smuggling;
mod support;
mod web_sockets;
