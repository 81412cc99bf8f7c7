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
    /// Whether PUT and forms replace an existing file. If not, they are answered with 409, and so is an upload with a name that
    /// answers for other paths, if it is served: that of the [index](Self::index) with [`Self::listing`] or [`Self::spa`], of the
    /// [error page](Self::error_page), of a [sibling](Self::precompressed) or a file with one, and without a dot with
    /// [`Self::spa`]. A POST of another type never replaces a file. Default: no.
    pub overwrite: bool,
    /// Whether a folder without an index is answered with a list of its files, in HTML or, if `accept` prefers it,
    /// `application/json`. If not, it is answered with 404. Default: no.
    pub listing: bool,
    /// How many entries of a folder are listed. Of a larger folder an arbitrary selection of this many is listed, and
    /// the listing says that there are more. Default: 10,000.
    pub max_listed: usize,
    /// The memory of all listings, in bytes, from when their folders are read until they are sent, and of all forms and
    /// their answers: some 48 KiB each while they arrive. Beyond it, and for a peer that has half of it, a listing or a form
    /// is answered with 503. Default: 64 MiB.
    pub all_listings_bytes: usize,
    /// The path below the root of the file that is the content of 404 responses to GET, such as `404.html`. If it does not
    /// exist, they have one line of text. Default: none.
    pub error_page: Option<String>,
    /// Whether a path without a file is answered with the index of the root and 200, for applications that route in the
    /// browser. This applies if the last name of the path has no dot and `accept` allows `text/html`. Default: no.
    pub spa: bool,
    /// Whether to send `a.br`, `a.zst` or `a.gz` in place of `a` to clients whose `accept-encoding` prefers it. A sibling that
    /// is older than its file is not used. All responses with files then have `vary`. Default: no.
    pub precompressed: bool,
    /// Whether to compress listings, and files of a compressible type and of [`Self::compress_from_bytes`] or more, with
    /// gzip while they are sent. Such a response has a weak `etag` and no ranges. Default: no.
    pub compress: bool,
    /// The smallest file that is compressed, in bytes. Default: 1 KiB.
    pub compress_from_bytes: u64,
    /// How many responses may be compressed at a time. Each holds some 400 KiB. Others are sent as they are. Default: 128.
    pub max_compressed: usize,
    /// Whether to serve paths with names that begin with a dot, such as `/.git/config`. Paths below `/.well-known` are
    /// always served (RFC 8615). Default: no.
    pub hidden: bool,
    /// How many blocking jobs of one peer may be queued or running. A peer is an IPv4 address or an IPv6 /64. Further
    /// requests of the peer wait. This needs [`PeerAddr`](crate::PeerAddr). Default: 8.
    pub jobs_per_peer: usize,
    /// The file that answers for a folder. Default: `index.html`.
    pub index: String,
    /// A file of up to this many bytes is read whole and may be cached. Default: 64 KiB.
    pub whole_body_bytes: usize,
    /// A file of up to this many bytes is read whole even if it changed too recently to be cached, so that it leaves in
    /// one DATA frame. Default: 16 KiB.
    pub one_frame_bytes: usize,
    /// The memory of files read whole, cached or in transit, in bytes. Beyond it, files are read in chunks. Default:
    /// 96 MiB, 64 MiB more than the cache.
    pub all_whole_bytes: usize,
    /// How many files responses and uploads hold open. Beyond it, a response reopens its file for each chunk, and fails
    /// if the file has changed. Default: 512, half of the usual limit of a process.
    pub open_files: usize,
    /// The first chunk of a response, in bytes. Each further chunk is as long as all before it, so a stream whose peer
    /// reads nothing holds little. Default: 4 KiB.
    pub first_chunk_bytes: usize,
    /// The longest chunk, in bytes. Default: 256 KiB.
    pub chunk_bytes: usize,
    /// The memory of the chunks of all responses, in bytes. No chunk is longer than an eighth of what is left of it,
    /// or than [`Self::first_chunk_bytes`] when nothing is left. Default: 2 MiB.
    pub all_chunks_bytes: usize,
    /// How many free buffers of `chunk_bytes` are kept for reuse. Default: 8, which is 2 MiB at the default
    /// `chunk_bytes`.
    pub idle_chunks: usize,
    /// The size of the cache in bytes, with its bookkeeping; 0 for none. [`Self::precompressed`] takes a sixteenth
    /// more. The cache holds small files, and the header fields of larger ones. Each entry is compared with the file
    /// system before use. Default: 32 MiB.
    pub cache_bytes: usize,
    /// How long a file must have been unchanged before it is cached. Default: 2 s, the coarsest timestamp of a common
    /// file system.
    pub cache_after: Duration,
    /// How many ranges a request may ask for. More are answered with 416. Default: 16.
    pub max_ranges: usize,
    /// The largest upload in bytes; of a form, all its parts together. A larger one is answered with 413. Default: 16
    /// GiB.
    pub max_upload_bytes: u64,
    /// How many folders the path of an upload may have. They are made as needed. More are answered with 400. Default: 16.
    pub max_upload_folders: usize,
    /// How many parts, files and others, a form (multipart/form-data) may have. More are answered with 413. Default:
    /// 1,000.
    pub max_form_parts: usize,
    /// How many uploads may be stored at once. Each takes one of [`Self::open_files`] once it has received bytes. One
    /// more is answered with 503 and `Retry-After`, and so is one of a peer that has half of them. Default: 256, half of
    /// `open_files`.
    pub max_uploads: usize,
    /// How many bytes of the disk stay free. An upload that would need them is answered with 507: by its
    /// `content-length` before its body is read, and again while it is written. Unless this is `Some(0)`, a twentieth of
    /// the inodes stays free too. Default: 1 GiB, or a twentieth of a disk smaller than 20 GiB.
    pub min_free_bytes: Option<u64>,
    /// How many bytes of an upload are gathered for one write. A second batch of this size may gather while the first is
    /// written. Default: 256 KiB.
    pub upload_batch_bytes: usize,
    /// The memory of the batches of all uploads, in bytes. With many uploads each batch is shorter, but at least 4 KiB,
    /// and it may exceed its size by the frame that fills it. Default: 64 MiB.
    pub all_batches_bytes: usize,
    /// How long received bytes of an upload wait for more before they are written. Default: 1 s.
    pub upload_flush_after: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            uploads: Uploads::Refuse,
            overwrite: false,
            listing: false,
            max_listed: 10_000,
            all_listings_bytes: 64 << 20,
            error_page: None,
            spa: false,
            precompressed: false,
            compress: false,
            compress_from_bytes: 1_024,
            max_compressed: 128,
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
            idle_chunks: 8,
            cache_bytes: 32 << 20,
            cache_after: Duration::from_secs(2),
            max_ranges: 16,
            max_upload_bytes: 16 << 30,
            max_upload_folders: 16,
            max_form_parts: 1_000,
            max_uploads: 256,
            min_free_bytes: None,
            upload_batch_bytes: 256 * 1024,
            all_batches_bytes: 64 << 20,
            upload_flush_after: Duration::from_secs(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_the_documented_ones() {
        const KIB: usize = 1_024;
        const MIB: usize = 1_024 * KIB;
        let settings = Settings::default();
        assert!(
            !settings.hidden && !settings.overwrite && !settings.listing && settings.min_free_bytes.is_none()
        );
        assert!(
            !settings.spa && !settings.precompressed && !settings.compress && settings.error_page.is_none()
        );
        assert_eq!(settings.compress_from_bytes, 1_024);
        assert_eq!(settings.index, "index.html");
        assert_eq!(settings.max_upload_bytes, 16 * 1_024 * MIB as u64);
        assert_eq!(settings.cache_after, Duration::from_secs(2));
        assert_eq!(settings.upload_flush_after, Duration::from_secs(1));
        for (value, expected) in [
            (settings.max_listed, 10_000),
            (settings.max_compressed, 128),
            (settings.all_listings_bytes, 64 * MIB),
            (settings.jobs_per_peer, 8),
            (settings.whole_body_bytes, 64 * KIB),
            (settings.one_frame_bytes, 16 * KIB),
            (settings.all_whole_bytes, 96 * MIB),
            (settings.open_files, 512),
            (settings.first_chunk_bytes, 4 * KIB),
            (settings.chunk_bytes, 256 * KIB),
            (settings.all_chunks_bytes, 2 * MIB),
            (settings.idle_chunks, 8),
            (settings.cache_bytes, 32 * MIB),
            (settings.max_ranges, 16),
            (settings.max_upload_folders, 16),
            (settings.max_form_parts, 1_000),
            (settings.max_uploads, 256),
            (settings.upload_batch_bytes, 256 * KIB),
            (settings.all_batches_bytes, 64 * MIB),
        ] {
            assert_eq!(value, expected);
        }
    }
}
