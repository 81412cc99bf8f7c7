//! What an octet of the peer's may cost: for each type of frame and each field of it, how many streams are looked up or
//! gone through, how many entries of lists are moved, and how much is allocated, with 1, 100 and 10,000 streams open.
//! None of it grows with the streams, unless the peer has paid for that out of a limit. `rest` counts what a connection
//! keeps when all streams are gone.

#[path = "../support/mod.rs"]
mod support;

mod crowd;
mod frames_to_clients;
mod frames_to_servers;
mod rest;
mod settings;
