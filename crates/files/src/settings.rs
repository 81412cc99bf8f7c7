//! The settings of the service: what it serves, and how much a request may cost.

use std::path::PathBuf;
use std::time::Duration;

/// What PUT and POST do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Uploads {
    /// Respond with 405.
    #[default]
    Refuse,
    /// Count the bytes and drop them. The response is the count.
    Discard,
    /// Store the body as a file below this folder, at the path of the request: PUT `/a/b.txt` becomes `a/b.txt`. If the
    /// folder is below the served one, a path that begins with its place there names the same file as in GET: with
    /// `incoming` of the served folder, both `/incoming/a/b.txt` and `/a/b.txt` are `incoming/a/b.txt`.
    Directory(PathBuf),
}

/// How the service behaves, and how much it may spend on requests.
///
/// ```
/// # use fullbore_files::{Settings, Uploads};
/// let mut settings = Settings::default();
/// settings.uploads = Uploads::Discard;
/// ```
#[derive(Clone, Debug)]
pub struct Settings {
    /// What PUT and POST do. Default: [`Uploads::Refuse`].
    pub uploads: Uploads,
    /// Whether PUT and forms replace an existing file. If not, they are answered with 409, and so is an upload with a name that
    /// answers for other paths, if it is served: `index.html` with [`Self::listing`] or [`Self::spa`], that of the
    /// [error page](Self::error_page), of a [sibling](Self::precompressed) or a file with one, and without a dot with
    /// [`Self::spa`]. A POST of another type never replaces a file. Default: no.
    pub overwrite: bool,
    /// Whether a folder without `index.html` is answered with a list of its files, in HTML or, if `accept` prefers it,
    /// `application/json`. If not, it is answered with 404. Default: no.
    pub listing: bool,
    /// The path below the root of the file that is the content of 404 responses to GET, such as `404.html`. If it does not
    /// exist, they have one line of text. Default: none.
    pub error_page: Option<String>,
    /// Whether a path without a file is answered with the `index.html` of the root and 200, for applications that route in the
    /// browser. This applies if the last name of the path has no dot and `accept` allows `text/html`. Default: no.
    pub spa: bool,
    /// Whether to send `a.br`, `a.zst` or `a.gz` in place of `a` to clients whose `accept-encoding` prefers it. A sibling that
    /// is older than its file is not used. All responses with files then have `vary`. Default: no.
    pub precompressed: bool,
    /// Whether to compress listings, and files of a compressible type and of 1 KiB or more, with gzip while they are sent. Such
    /// a response has a weak `etag` and no ranges. Default: no.
    pub compress: bool,
    /// Whether to serve paths with names that begin with a dot, such as `/.git/config`. Paths below `/.well-known` are
    /// always served (RFC 8615). Default: no.
    pub hidden: bool,
    /// How many files responses and uploads hold open. Beyond it, a response reopens its file for each chunk, and fails
    /// if the file has changed. Default: 512, half of the usual limit of a process.
    pub open_files: usize,
    /// The largest upload in bytes; of a form, all its parts together. A larger one is answered with 413. Default: 16
    /// GiB.
    pub max_upload_bytes: u64,
    /// How many uploads may be stored at once. Each takes one of [`Self::open_files`] once it has received bytes. One
    /// more is answered with 503 and `Retry-After`, and so is one of a peer that has half of them. Default: 256, half of
    /// `open_files`.
    pub max_uploads: usize,
    /// How many bytes of the disk stay free. An upload that would need them is answered with 507: by its
    /// `content-length` before its body is read, and again while it is written. Unless this is `Some(0)`, a twentieth of
    /// the inodes stays free too. Default: 1 GiB, or a twentieth of a disk smaller than 20 GiB.
    pub min_free_bytes: Option<u64>,
    /// What nobody has to set but tests.
    pub(crate) limits: Limits,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            uploads: Uploads::Refuse,
            overwrite: false,
            listing: false,
            error_page: None,
            spa: false,
            precompressed: false,
            compress: false,
            hidden: false,
            open_files: 512,
            max_upload_bytes: 16 << 30,
            max_uploads: 256,
            min_free_bytes: None,
            limits: Limits::DEFAULT,
        }
    }
}

/// The file that answers for a folder.
pub(crate) const INDEX: &str = "index.html";

/// Limits with one value for all users.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Entries of a folder that are listed; of a larger folder, an arbitrary selection of this many, or in JSON the next ones by
    /// name. A page of more takes a browser seconds to lay out.
    pub(crate) listed: usize,
    /// Entries of a list in JSON, with those of the lists of sub-folders that a client may ask for beside it. 10 KB for each of them
    /// take longer at 1 Gbit/s than a round trip of 100 ms, in which the client asks for the rest.
    pub(crate) sublisted: usize,
    /// How long the lists of sub-folders may be read: longer only where a disk is slow, and each is asked for by itself then.
    pub(crate) sublists_for: Duration,
    /// The bytes of all listings, from when their folders are read until they are sent, and of all forms and their answers:
    /// some 48 KiB each while they arrive. Beyond it, and for a peer that has half of it, the answer is 503.
    pub(crate) all_listings_bytes: usize,
    /// Folders that are sent as archives at a time, half of them to one peer. Each keeps a disk busy and holds a file and a
    /// piece of 256 KiB. More are answered with 503.
    pub(crate) archives: usize,
    /// The bytes of the directories of all zip archives, half of them for one peer. An archive holds its directory until its end: some
    /// 500 bytes for a path of 40. One address has 100,000 such files at a time. Beyond it, the archive breaks off.
    pub(crate) zip_directories_bytes: usize,
    /// Responses that are compressed at a time. Each holds some 400 KiB. Others are sent as they are.
    pub(crate) compressed: usize,
    /// Blocking jobs of one peer that may be queued or running. Further requests of the peer wait. A disk is not faster with
    /// more, and the threads are for all peers.
    pub(crate) jobs_per_peer: usize,
    /// A file of up to this many bytes is read whole and may be cached.
    pub(crate) whole_body_bytes: usize,
    /// A file of up to this many bytes is read whole even if it changed too recently to be cached, so that it leaves in one
    /// DATA frame.
    pub(crate) one_frame_bytes: usize,
    /// The bytes of files read whole, cached or in transit: 64 MiB more than the cache. Beyond it, files are read in chunks.
    pub(crate) all_whole_bytes: usize,
    /// The first chunk of a response. Each further chunk is as long as all before it, so a stream whose peer reads nothing
    /// holds little.
    pub(crate) first_chunk_bytes: usize,
    /// The longest chunk. A longer one saves no more system calls that could be measured.
    pub(crate) chunk_bytes: usize,
    /// The size of the cache, with its bookkeeping. `precompressed` takes a sixteenth more. It holds small files, and the
    /// header fields of larger ones. Each entry is compared with the file system before use.
    pub(crate) cache_bytes: usize,
    /// How long a file must have been unchanged before it is cached: the coarsest timestamp of a common file system.
    pub(crate) cache_after: Duration,
    /// Folders that the path of an upload may have. They are made as needed. More are answered with 400.
    pub(crate) upload_folders: usize,
    /// Parts, files and others, of a form. More are answered with 413.
    pub(crate) form_parts: usize,
    /// Bytes of an upload that are gathered for one write. A second batch may gather while the first is written.
    pub(crate) batch_bytes: usize,
    /// How long received bytes of an upload wait for more before they are written.
    pub(crate) flush_after: Duration,
}

impl Limits {
    pub(crate) const DEFAULT: Self = Self {
        listed: 10_000,
        sublisted: 2_000,
        sublists_for: Duration::from_millis(50),
        all_listings_bytes: 64 << 20,
        archives: 16,
        zip_directories_bytes: 96 << 20,
        compressed: 128,
        jobs_per_peer: 8,
        whole_body_bytes: 64 << 10,
        one_frame_bytes: 16 << 10,
        all_whole_bytes: 96 << 20,
        first_chunk_bytes: 4 << 10,
        chunk_bytes: 256 << 10,
        cache_bytes: 32 << 20,
        cache_after: Duration::from_secs(2),
        upload_folders: 16,
        form_parts: 1_000,
        batch_bytes: 256 << 10,
        flush_after: Duration::from_secs(1),
    };
}
