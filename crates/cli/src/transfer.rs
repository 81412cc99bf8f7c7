//! What `get` and `put` share: the client, retries, the way of a body to its file, and what a run prints.
//!
//! | module | subject |
//! |---|---|
//! | `client` | URLs, the `Client` that the options describe, the fields of a request, its status |
//! | `retry` | which failures are temporary, and when to repeat a request |
//! | `target` | where a body goes |
//! | `receive` | from a response's body to its target |
//! | `partial_file` | a file that gets its name when it is complete |
//! | `private`, `part_names` | temporary files that other users cannot write, and their names |
//! | `progress` | the progress bar |
//! | `waits` | what a transfer waited for |
//! | `output` | text or JSON |

pub(crate) mod client;
pub(crate) mod output;
pub(crate) mod part_names;
pub(crate) mod partial_file;
pub(crate) mod private;
pub(crate) mod progress;
pub(crate) mod receive;
pub(crate) mod retry;
pub(crate) mod target;
pub(crate) mod waits;
