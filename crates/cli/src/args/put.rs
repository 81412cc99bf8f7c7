//! The options of `fullbore put`.

use std::path::PathBuf;

use clap::Args as Options;

use super::connection::ConnectionArgs;
use super::output::OutputArgs;
use crate::sizes;

pub(super) const EXAMPLES: &str = "\
Examples:
  fullbore put big.iso https://example.org/upload/     to https://example.org/upload/big.iso
  tar c src | fullbore put - https://example.org/upload/src.tar
  fullbore put -X POST -H 'content-type: application/json' a.json https://example.org/api";

/// `fullbore put`.
#[derive(Options, Debug)]
pub(crate) struct PutArgs {
    /// The file to upload; `-` is standard input, sent with a content-length if it is a regular file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// The URL to upload to. PUT to a URL that ends in a slash adds the name of the file
    #[arg(value_name = "URL")]
    pub(crate) url: String,

    /// The method of the request
    #[arg(short = 'X', long = "request", value_name = "METHOD", default_value = "PUT")]
    pub(crate) method: http::Method,

    /// Save the response body to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Repeat temporary failures up to this many times, after about 1, 2, 4 seconds and so on, or when Retry-After says so.
    /// Needs a regular file. A method that is not idempotent, such as POST, is repeated only if the server did not process
    /// the request
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = sizes::count::<0, 1_000>)]
    pub(crate) retry: u32,

    /// Replace the file of -o if it exists
    #[arg(short, long, requires = "output")]
    pub(crate) force: bool,

    /// Print one JSON document on standard error, or on standard output with -o
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
