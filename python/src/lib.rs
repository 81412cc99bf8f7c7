//! The native half of the Python package `fullbore`. `package/fullbore` has the other half, and its interface.
//!
//! | subject | module |
//! |---|---|
//! | threads; completions, for one thread or event loop | `runtime`; `queue` |
//! | settings, requests and their bodies, limits on time | `settings`, `request`, `outgoing`, `limits` |
//! | responses | `head`, `fields`, `reader` |
//! | many requests in one call; `Retry-After` | `many`; `retry` |
//! | downloads, their files, and how far they are | `download`, `part_file`, `file_writer`, `progress` |
//! | what a call brings; errors; what connections waited for | `outcome`; `failure`; `report` |
//! | values that must not be touched after a fork | `owned` |
//!
//! No thread of the runtime calls the interpreter: see `queue`.

#![forbid(unsafe_code)]

mod client;
mod download;
mod failure;
mod fields;
mod file_writer;
mod head;
mod limits;
mod many;
mod outcome;
mod outgoing;
mod owned;
mod part_file;
mod progress;
mod queue;
mod reader;
mod report;
mod request;
mod retry;
mod runtime;
mod settings;

/// Received bytes are allocated on threads of the network and freed on those of Python. glibc's allocator returns that memory to the
/// system, and the network then waits for new pages: 1 GiB as one body takes 1.07 s with it, and 0.93 s with this one.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The module `fullbore._native`.
#[pyo3::pymodule(gil_used = false)]
mod _native {
    #[pymodule_export]
    use super::{
        client::Client,
        head::Head,
        outgoing::Feed,
        progress::Progress,
        queue::{Call, Queue},
        reader::Reader,
        runtime::Runtime,
    };
}
