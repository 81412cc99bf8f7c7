//! The options of `fullbore put`.

use std::path::{Path, PathBuf};

use clap::Args as Options;

use super::connection::ConnectionArgs;
use super::output::OutputArgs;
use crate::exit::Failure;
use crate::sizes;

pub(super) const EXAMPLES: &str = "\
Examples:
  fullbore put big.iso https://example.org/upload/     to https://example.org/upload/big.iso
  fullbore put photos a.txt https://example.org/up/    to up/photos/… and up/a.txt
  fullbore put --skip-existing site/ https://example.org/   the content of a folder, if it changed
  fullbore put big.iso https://example.org/upload/     again, after a failure: resumes if the server can
  tar c src | fullbore put - https://example.org/upload/src.tar
  fullbore put -X POST -H 'content-type: application/json' a.json https://example.org/api";

/// `fullbore put`.
#[derive(Options, Debug)]
#[command(override_usage = "fullbore put [OPTIONS] <FILE>... <URL>")]
pub(crate) struct PutArgs {
    /// The files and folders to upload, `-` for standard input, and last the URL
    ///
    /// PUT to a URL that ends in a slash adds the name of the file. Several files, and folders, need such a URL and are sent at
    /// once: `photos` is stored as photos/…, and `photos/` is the content of the folder. Links to files are followed, links to
    /// folders are not. Standard input is sent alone, with a content-length if it is a regular file.
    // One list: options may stand between a file and the URL.
    #[arg(value_name = "FILE|URL", required = true, num_args = 1..)]
    operands: Vec<PathBuf>,

    /// The method of the request
    #[arg(short = 'X', long = "request", value_name = "METHOD", default_value = "PUT")]
    pub(crate) method: http::Method,

    /// Save the response body to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Repeat temporary failures up to this many times, after about 1, 2, 4 seconds and so on, or when Retry-After says so.
    /// Needs a regular file. A method that is not idempotent, such as POST, is repeated only if the server did not process
    /// the request. A file of 8 MiB or more resumes where the server supports it, as long as it makes progress without --retry
    /// too
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = sizes::count::<0, 1_000>)]
    pub(crate) retry: u32,

    /// Send no file that the server has with the same size and second of modification
    ///
    /// The server is asked for a list of each folder, or for each file where it has no lists. A file that was modified within
    /// the current second is sent when that is over, so that a later change is never missed.
    #[arg(long)]
    pub(crate) skip_existing: bool,

    /// With --skip-existing, also leave out files of the same size and content whose time differs
    ///
    /// The server is asked for the SHA-256 of its file (Repr-Digest, RFC 9530), as `fullbore serve --uploads` tells it. Of a server that
    /// does not, such files are sent, and a note says so. The server's file keeps its time.
    #[arg(long, requires = "skip_existing")]
    pub(crate) checksum: bool,

    /// Send names in folders that begin with a dot, too; `fullbore serve` refuses them
    #[arg(long)]
    pub(crate) hidden: bool,

    /// Maximum number of files sent at once; a server may allow fewer
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = sizes::count::<1, 100_000>)]
    pub(crate) parallel: u32,

    /// Send many files over N connections at most [default: 8, opened as they make it faster]
    #[arg(long, value_name = "N", value_parser = sizes::count::<1, 1_000>)]
    pub(crate) connections: Option<u32>,

    /// Replace the file of -o if it exists
    #[arg(long, requires = "output")]
    pub(crate) force: bool,

    /// Fail at a status of 400 or above: the default. In curl too, -f does not replace files
    #[arg(short, long, hide = true)]
    pub(crate) fail: bool,

    /// Print one JSON document on standard output. It has the response's body, if that is text and not saved with -o
    #[arg(long)]
    pub(crate) json: bool,

    /// Congestion control of the TCP connections, such as bbr (Linux): how fast this side sends, above all after a loss
    /// [default: the system's]
    #[arg(long, value_name = "NAME")]
    pub(crate) congestion_control: Option<String>,

    #[command(flatten)]
    pub(crate) print: OutputArgs,

    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}

impl PutArgs {
    /// The files and folders.
    pub(crate) fn files(&self) -> &[PathBuf] {
        self.operands.split_last().map_or(&[], |(_, files)| files)
    }

    /// The first file, which is the only one of a single upload.
    pub(crate) fn file(&self) -> &Path {
        self.files().first().map_or(Path::new("-"), PathBuf::as_path)
    }

    /// The URL.
    ///
    /// # Errors
    /// It is missing.
    pub(crate) fn url(&self) -> Result<String, Failure> {
        match self.operands.as_slice() {
            [_, .., url] => Ok(url.to_string_lossy().into_owned()),
            [one] => Err(Failure::usage(format!(
                "{}: the file or the URL is missing: fullbore put <FILE>... <URL>",
                one.display()
            ))),
            [] => Err(Failure::usage(
                "the file and the URL are missing: fullbore put <FILE>... <URL>",
            )),
        }
    }
}
