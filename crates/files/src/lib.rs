//! A file server as a [`tower_service::Service`]: GET and HEAD of the files under a folder, PUT and POST into one.
//!
//! What lives here: the settings, and the list of the rooms below. Listening, TLS and HTTP/2 are not: [`Files`] is a
//! [`tower_service::Service`] that takes an [`http::Request`] and gives an [`http::Response`], and whoever holds a
//! connection calls it. It must be called within a tokio runtime with its timers on, since files are read and written by
//! its blocking threads, and uploads have times.
//!
//! | room | subject |
//! |---|---|
//! | `service` | which method goes where |
//! | `resolve` | a request path becomes names, or is refused |
//! | `open` | names become an open file that is inside the root |
//! | `files` | GET and HEAD: the file's answer |
//! | `disk` | reading with and without the patience to wait |
//! | `jobs` | blocking jobs, a share for each peer |
//! | `optional` | system calls that may be denied |
//! | `cache`, `identity` | files that were asked for lately, and whether they are still what they were |
//! | `representation` | the fields that describe a file |
//! | `conditional` | RFC 9110 section 13 |
//! | `range` | RFC 9110 section 14 |
//! | `file_body` | the octets of a file as a response body |
//! | `source` | the file that a body reads from, held open or found again |
//! | `buffers` | the buffers that files are read into |
//! | `uploads` | PUT and POST |
//! | `room` | what all uploads together may take |
//! | `writer` | from the octets of an upload to its file |
//! | `store` | the file that an upload becomes |
//! | `respond` | short answers, `date` and `server` |
//! | `log` | the access log |
//!
//! What is served: every regular file under the root that the process may read, and whatever symbolic links lead to as long as
//! it is under the root too. Paths with a name that begins with a dot are not found unless [`Settings::hidden`] is set,
//! `/.well-known` excepted. Directories answer with their index file,
//! and are never listed.

#![forbid(unsafe_code)]

mod buffers;
mod cache;
mod conditional;
mod disk;
mod file_body;
mod files;
mod identity;
mod jobs;
mod log;
mod open;
#[cfg(target_os = "linux")]
mod optional;
mod range;
mod representation;
mod resolve;
mod respond;
mod room;
mod service;
mod source;
mod store;
#[cfg(test)]
mod tests;
mod uploads;
mod writer;

use std::path::PathBuf;
use std::time::Duration;

pub use file_body::ServeBody;
pub use fullbore::server::PeerAddr;
pub use log::{Log, LogBody, LogFuture, LogLimits, LogWriter};
pub use service::{Files, ServeFuture};

/// What PUT and POST do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Uploads {
    /// Nothing: they are answered with 405.
    #[default]
    Refuse,
    /// The octets are counted and forgotten; the answer is the count.
    Discard,
    /// The octets become a file in this directory, under the last segment of the request's path.
    Directory(PathBuf),
}

/// How the service behaves, and how much it may spend on one request.
///
/// ```
/// # use fullbore_files::{Settings, Uploads};
/// let settings = Settings {
///     uploads: Uploads::Discard,
///     ..Settings::default()
/// };
/// assert_eq!(settings.max_ranges, 16);
/// ```
#[derive(Clone, Debug)]
pub struct Settings {
    /// What PUT and POST do. Default: [`Uploads::Refuse`].
    pub uploads: Uploads,
    /// Whether paths with names that begin with a dot are served too, such as `/.git/config`; those below `/.well-known` always
    /// are (RFC 8615). Default: no.
    pub hidden: bool,
    /// How many blocking jobs one peer may have queued or running at once: an address, or an IPv6 network of 64 bits. Others of
    /// its requests wait for their turn. It holds where the peer is known: under [`fullbore::Server`]. Default: 8, of the 64
    /// threads that `fullbore serve` has for them.
    pub jobs_per_peer: usize,
    /// The file that answers for a directory. Default: `index.html`.
    pub index: String,
    /// A file of at most so many bytes is read whole, to be kept in memory. Default: 64 KiB.
    pub whole_body_bytes: usize,
    /// A file of at most so many bytes is read whole even if it is not to be kept, since it was changed just now: in pieces
    /// it would not leave in one frame. Default: 16 KiB.
    pub one_frame_bytes: usize,
    /// What files that were read whole come to, in bytes, kept ones and those on their way together; others are read in
    /// chunks while there is no room. Default: 96 MiB, 64 MiB more than are kept.
    pub all_whole_bytes: usize,
    /// How many files are held open by responses that read them and uploads that write them. Those of further responses are opened anew for
    /// each chunk, and a response ends with an error when its file is not the same any more. Default: 512, half of the
    /// usual limit of a process; `fullbore serve` takes half of its own.
    pub open_files: usize,
    /// Of other files so many bytes are read first, and then as many each time as before that together: a stream whose
    /// peer takes nothing holds little. Default: 4 KiB.
    pub first_chunk_bytes: usize,
    /// The longest such chunk, in bytes. Default: 256 KiB.
    pub chunk_bytes: usize,
    /// What the chunks of all responses come to, in bytes, before all are as short as the first: none is longer than an
    /// eighth of what is left of this. Default: 2 MiB.
    pub all_chunks_bytes: usize,
    /// Whether files are handed over as ranges of `chunk_bytes` ([`fullbore::FileRange`]) once the system has them in memory,
    /// rather than read ahead: for fullbore's own server, on Linux. Default: no.
    pub sends_files: bool,
    /// How many buffers of `chunk_bytes` are kept for the next reader once they are free, for all responses together.
    /// Default: 8, which is 2 MiB at the default `chunk_bytes`.
    pub idle_chunks: usize,
    /// How many bytes of small files are kept in memory for the next who asks, what belongs to them included, and what
    /// describes longer ones; 0 for none. Each is held against the file system when it is used. Default: 32 MiB.
    pub cache_bytes: usize,
    /// How long a file has to have been left alone before it is kept. Default: 2 s, the coarsest tick of a file system's clock
    /// in common use.
    pub cache_after: Duration,
    /// How many ranges a request may ask for at once; one that asks for more is answered with 416. Default: 16.
    pub max_ranges: usize,
    /// The largest upload that is taken, in bytes; a larger one is answered with 413. Default: 16 GiB.
    pub max_upload_bytes: u64,
    /// How many uploads may be stored at once; each takes one of [`Self::open_files`] once octets of it have come. One
    /// more is answered with 503 and `Retry-After`, and so is one of an address ([`PeerAddr`]) that has half of them; an
    /// IPv6 /64 counts as one address. Default: 256, half of `open_files`.
    pub max_uploads: usize,
    /// How many bytes of the disk stay free: an upload that would take more is answered with 507, by its `content-length`
    /// before anything of it is read, and again while it is written. Unless it is `Some(0)` a twentieth of the disk's
    /// inodes stays free too. Default: 1 GiB, or a twentieth of a disk smaller than 20 GiB.
    pub min_free_bytes: Option<u64>,
    /// How many bytes of an upload are gathered for one write; a second lot of the same size may gather while the
    /// first is being written. Default: 256 KiB.
    pub upload_batch_bytes: usize,
    /// What such lots of all uploads come to, in bytes: each is shorter when there are many, but 4 KiB
    /// at least, and as much longer as the frame is that fills it.
    /// Default: 64 MiB.
    pub all_batches_bytes: usize,
    /// How long octets of an upload wait for more to be written with them. Default: 1 s.
    pub upload_flush_after: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            uploads: Uploads::Refuse,
            hidden: false,
            jobs_per_peer: 8,
            index: "index.html".to_owned(),
            whole_body_bytes: 64 * 1024,
            one_frame_bytes: 16 * 1024,
            all_whole_bytes: 96 << 20,
            open_files: 512,
            chunk_bytes: 256 * 1024,
            first_chunk_bytes: 4 * 1024,
            all_chunks_bytes: 2 << 20,
            sends_files: false,
            idle_chunks: 8,
            cache_bytes: 32 << 20,
            cache_after: Duration::from_secs(2),
            max_ranges: 16,
            max_upload_bytes: 16 << 30,
            max_uploads: 256,
            min_free_bytes: None,
            upload_batch_bytes: 256 * 1024,
            all_batches_bytes: 64 << 20,
            upload_flush_after: Duration::from_secs(1),
        }
    }
}

impl Settings {
    fn chunks(&self) -> buffers::Sizes {
        buffers::Sizes {
            most: self.chunk_bytes,
            first: self.first_chunk_bytes,
            all: self.all_chunks_bytes,
            whole: self.all_whole_bytes,
        }
    }
}
