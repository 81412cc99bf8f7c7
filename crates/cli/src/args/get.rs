//! The options of `fullbore get`.

use std::path::PathBuf;

use clap::Args as Options;

use super::connection::ConnectionArgs;

pub(super) const EXAMPLES: &str = "\
Examples:
  fullbore get https://example.org/a.json              print the body
  fullbore get -o big.iso https://example.org/big.iso  save to a file
  fullbore get -i urls.txt --dir tiles                 save the files of a list in a folder
  fullbore get --discard --json https://example.org/x  measure without saving
  fullbore get --retry 10 -O https://example.org/x     resume after temporary failures
  fullbore get --insecure -O https://127.0.0.1:8080/x  accept a self-signed certificate";

/// `fullbore get`.
#[derive(Options, Debug)]
pub(crate) struct GetArgs {
    /// The URLs to download
    #[arg(value_name = "URL", required_unless_present = "list")]
    pub(crate) urls: Vec<String>,

    /// Save the body to this file; `-` is standard output
    #[arg(short, long, value_name = "FILE", group = "place")]
    pub(crate) output: Option<PathBuf>,

    /// Save each body in the current folder, named after the last segment of its URL
    #[arg(short = 'O', long, group = "place")]
    pub(crate) remote_name: bool,

    /// Like -O, in this folder, which is created if it does not exist
    #[arg(long, value_name = "DIR", group = "place")]
    pub(crate) dir: Option<PathBuf>,

    /// Receive each body and discard it
    #[arg(long, group = "place")]
    pub(crate) discard: bool,

    /// Read more URLs from this file, one on each line; `-` is standard input, `#` begins a comment line
    #[arg(short = 'i', long = "input", value_name = "FILE")]
    pub(crate) list: Option<PathBuf>,

    /// Maximum number of requests at once; the server may allow fewer
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) parallel: u32,

    /// Maximum number of connections to one origin. More than one is opened only when a long round trip and the server's
    /// limit on streams slow a run down
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) connections: u32,

    /// Repeat temporary failures up to this many times, after about 1, 2, 4 seconds and so on, or when Retry-After says so.
    /// All URLs of an origin wait together
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1_000))]
    pub(crate) retry: u32,

    /// Replace existing files
    #[arg(short, long)]
    pub(crate) force: bool,

    /// Skip existing files. This continues a run that was stopped
    #[arg(long, conflicts_with = "force")]
    pub(crate) skip_existing: bool,

    /// Print one JSON document on standard output, or on standard error if a body goes to standard output
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}
