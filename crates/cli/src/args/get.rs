//! The options of `fullbore get`.

use std::path::PathBuf;

use clap::Args as Options;

use super::connection::ConnectionArgs;
use super::output::OutputArgs;
use crate::checksum::Checksum;
use crate::sizes;

pub(super) const EXAMPLES: &str = "\
Examples:
  fullbore get https://example.org/a.json              print the body
  fullbore get -o big.iso https://example.org/big.iso  save to a file
  fullbore get -i urls.txt --dir tiles                 save the files of a list in a folder
  fullbore get -r https://example.org/photos/ photos   download a folder; again with -N: what is new
  fullbore get --retry 10 -O https://example.org/x     resume after temporary failures
  fullbore get --insecure -O https://127.0.0.1:8080/x  accept a self-signed certificate";

/// `fullbore get`.
#[derive(Options, Debug)]
pub(crate) struct GetArgs {
    /// The URLs to download; with -r one URL, and the folder for its files
    #[arg(value_name = "URL", required_unless_present = "list")]
    pub(crate) urls: Vec<String>,

    /// Save the body to this file; `-` is standard output
    #[arg(short, long, value_name = "FILE", group = "place")]
    pub(crate) output: Option<PathBuf>,

    /// Save each body in the current folder, named after the last segment of its URL
    #[arg(short = 'O', long, conflicts_with_all = ["output", "discard", "head", "include"])]
    pub(crate) remote_name: bool,

    /// Like -O, in this folder, which is created if it does not exist
    #[arg(long, value_name = "DIR", group = "place")]
    pub(crate) dir: Option<PathBuf>,

    /// With -O or --dir, save each body below a folder of its host and the folders of its path, as wget -x does
    #[arg(long, conflicts_with_all = ["recursive", "remote_header_name"])]
    pub(crate) force_directories: bool,

    /// Download a folder and everything below it, as its server lists it. It goes to the folder that follows the URL, to --dir, or
    /// to a folder of the same name. Files keep the modification times of the server
    #[arg(short, long, conflicts_with_all = ["list", "output", "remote_name", "discard", "head", "include", "checksum",
        "remote_header_name", "continued", "offset", "time_cond", "etag_compare", "etag_save"])]
    pub(crate) recursive: bool,

    /// With -r, download only files that are newer on the server or have another size, and replace those here
    #[arg(short = 'N', long, requires = "recursive", conflicts_with_all = ["force", "skip_existing"])]
    pub(crate) newer: bool,

    /// With -r, only files whose name, or path below the folder if there is a slash, matches this pattern, such as '*.iso' or
    /// 'docs/**'; can be repeated
    #[arg(long, value_name = "GLOB", requires = "recursive")]
    pub(crate) accept: Vec<String>,

    /// With -r, no files and folders that match this pattern; can be repeated
    #[arg(long, value_name = "GLOB", requires = "recursive")]
    pub(crate) reject: Vec<String>,

    /// With -r, go down so many folders; 0 is the folder alone
    #[arg(long, value_name = "N", default_value_t = 32, requires = "recursive", value_parser = sizes::count::<0, 1_000>)]
    pub(crate) depth: u32,

    /// Give each file the modification time that the server states (last-modified)
    #[arg(short = 'R', long)]
    pub(crate) remote_time: bool,

    /// Receive each body and discard it
    #[arg(long, group = "place")]
    pub(crate) discard: bool,

    /// Read more URLs from this file, one on each line; `-` is standard input, `#` begins a comment line. Indented lines below
    /// a URL are its options, as in aria2: out=NAME, checksum=sha-256=HEX
    #[arg(short = 'i', long = "input", value_name = "FILE")]
    pub(crate) list: Option<PathBuf>,

    /// Fail unless the body has this checksum, such as sha256:9f86d081…; sha384, sha512 and sha1 too. A file with another
    /// checksum does not get its name
    #[arg(long, value_name = "TYPE:HEX")]
    pub(crate) checksum: Option<Checksum>,

    /// With -O or --dir, take the name from the response (Content-Disposition): never a path, never hidden, never that of an
    /// existing file
    #[arg(short = 'J', long, conflicts_with_all = ["continued", "offset"])]
    pub(crate) remote_header_name: bool,

    /// Append the rest to an existing file that another program has begun. The file is trusted to be the beginning of the body:
    /// only its length is checked, so give --checksum too. Parts of this program are resumed without this option
    #[arg(short = 'c', long = "continue", conflicts_with_all = ["force", "skip_existing", "compressed"])]
    pub(crate) continued: bool,

    /// `-C -` is --continue, as in curl
    #[arg(short = 'C', long = "continue-at", value_name = "-", value_parser = ["-"], conflicts_with_all = ["force", "skip_existing", "compressed"])]
    pub(crate) offset: Option<String>,

    /// Print the fields of the responses and request nothing else (HEAD)
    #[arg(short = 'I', long, conflicts_with_all = ["place", "include", "checksum"])]
    pub(crate) head: bool,

    /// Print the fields of the responses in front of the body, on standard output
    #[arg(long, conflicts_with = "place")]
    pub(crate) include: bool,

    /// Download only if the body was modified after the time of this file, or after this HTTP date
    #[arg(short = 'z', long, value_name = "FILE|DATE")]
    pub(crate) time_cond: Option<String>,

    /// Download only if the entity tag differs from the one in this file
    #[arg(long, value_name = "FILE")]
    pub(crate) etag_compare: Option<PathBuf>,

    /// Save the entity tag of the body in this file
    #[arg(long, value_name = "FILE")]
    pub(crate) etag_save: Option<PathBuf>,

    /// Ask for a compressed body and decode it (zstd, br, gzip, deflate). Such a download cannot be resumed
    #[arg(long)]
    pub(crate) compressed: bool,

    /// Fail when a body has more bytes than this; with --compressed, decoded ones count. Without it, the disk is the limit
    #[arg(long, value_name = "SIZE", value_parser = sizes::bytes)]
    pub(crate) max_filesize: Option<u64>,

    /// Maximum number of requests at once; the server may allow fewer
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = sizes::count::<1, 100_000>)]
    pub(crate) parallel: u32,

    /// Receive a large body over N connections, and send other requests over N at most. Without it, a run opens as many as
    /// make it faster, up to 8, where losses, TCP's buffers, or the server's limit on streams hold one back; with a window
    /// that is set by hand, a body comes over one
    #[arg(long, value_name = "N", value_parser = sizes::count::<1, 1_000>)]
    pub(crate) connections: Option<u32>,

    /// Repeat temporary failures up to this many times, after about 1, 2, 4 seconds and so on, or when Retry-After says so.
    /// All URLs of an origin wait together
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = sizes::count::<0, 1_000>)]
    pub(crate) retry: u32,

    /// Replace existing files
    #[arg(long)]
    pub(crate) force: bool,

    /// Fail at a status of 400 or above: the default. In curl too, -f does not replace files
    #[arg(short, long, hide = true)]
    pub(crate) fail: bool,

    /// Skip existing files. This continues a run that was stopped
    #[arg(long, conflicts_with = "force")]
    pub(crate) skip_existing: bool,

    /// Print one JSON document on standard output, or on standard error if a body goes to standard output
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) print: OutputArgs,

    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}

impl GetArgs {
    /// Over how many connections a body comes; `None` for as many as make it faster. Windows that are set by hand are those
    /// of one.
    pub(crate) fn connections_of_a_body(&self) -> Option<usize> {
        let path = &self.connection.path;
        let has_window = path.stream_window.or(path.connection_window).is_some();
        let connections = self.connections.or(has_window.then_some(1));
        connections.map(|connections| usize::try_from(connections).unwrap_or(usize::MAX))
    }

    /// Whether existing files are continued.
    pub(crate) fn continues(&self) -> bool {
        self.continued || self.offset.is_some()
    }
}
