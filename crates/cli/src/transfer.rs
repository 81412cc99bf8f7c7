//! What `get` and `put` share: the client, retries, the way of a body to its file, and what a run prints.

pub(crate) mod client;
pub(crate) mod detached;
pub(crate) mod error_body;
mod finisher;
pub(crate) mod gate;
pub(crate) mod lists;
pub(crate) mod netrc;
pub(crate) mod output;
pub(crate) mod partial_file;
pub(crate) mod parts;
pub(crate) mod private;
pub(crate) mod progress;
pub(crate) mod rate_limit;
pub(crate) mod receive;
pub(crate) mod redirects;
pub(crate) mod request_fields;
pub(crate) mod retry;
pub(crate) mod seconds;
pub(crate) mod source;
pub(crate) mod state_folder;
pub(crate) mod status;
pub(crate) mod target;
mod tcp_waits;
pub(crate) mod transfer_coding;
pub(crate) mod waits;
