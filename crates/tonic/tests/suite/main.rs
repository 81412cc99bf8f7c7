//! gRPC over the channel and the server of fullbore, beside tonic's own.

#[path = "../support/mod.rs"]
mod support;

mod deadlines;
mod endings;
mod pairs;
mod repeats;
mod scripts;
mod sites;
