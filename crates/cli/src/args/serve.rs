//! The options of `fullbore serve`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args as Options;
use fullbore_link::units;
use http::header::HeaderValue;
use ipnet::IpNet;

use super::server::{RESPONSES, ServerArgs, field_value, network};
use crate::exit::Failure;

pub(super) const EXAMPLES: &str = "\
Examples:
  fullbore serve                                       this folder on http://127.0.0.1:8080
  fullbore serve --lan --uploads .                     the devices of this network may add files
  fullbore serve big.iso --lan                         one file
  fullbore serve /srv/www --listen [::]:443 --cert cert.pem --key key.pem";

/// `fullbore serve`.
#[derive(Options, Debug)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) files: FileArgs,

    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// What is served.
#[derive(Options, Debug)]
pub(crate) struct FileArgs {
    /// The folder to serve, or one file
    #[arg(value_name = "ROOT", default_value = ".")]
    pub(crate) root: PathBuf,

    /// Answer a folder without index.html with 404 [default: with a list of its files]
    #[arg(long)]
    pub(crate) no_listing: bool,

    /// Send this file below ROOT with each 404, such as 404.html [default: one line of text]
    #[arg(long, value_name = "FILE")]
    pub(crate) error_page: Option<String>,

    /// Answer a path without a file with index.html and 200, for applications that route in the browser. Paths whose last
    /// name has a dot stay 404
    #[arg(long)]
    pub(crate) spa: bool,

    /// Send a.br, a.zst or a.gz in place of a, if the client accepts it and it is not older
    #[arg(long)]
    pub(crate) precompressed: bool,

    /// Compress lists of folders, and text of 1 KiB or more, with gzip while it is sent
    #[arg(long)]
    pub(crate) compress: bool,

    /// Accept uploads: store them below this folder at the path of the request, or `discard` them. They are served only if the
    /// folder is ROOT or below it [default: refuse them]
    #[arg(long, value_name = "DIR|discard")]
    pub(crate) uploads: Option<PathBuf>,

    /// Let PUT and forms replace existing files, and store names that answer for other paths, such as index.html [default:
    /// 409]
    #[arg(long, requires = "uploads")]
    pub(crate) overwrite: bool,

    /// Maximum size of an upload; a larger one is answered with 413
    #[arg(long, value_name = "BYTES", default_value = "16GiB", value_parser = units::bytes)]
    pub(crate) max_upload: u64,

    /// Maximum number of uploads stored at once; more are answered with 503 and Retry-After. One address can have half of
    /// them [default: a quarter of the process's file descriptors, at most 4096]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) parallel_uploads: Option<u32>,

    /// Disk space that uploads leave free; an upload that needs it is answered with 507 [default: 1GiB, or a twentieth of
    /// a disk smaller than 20 GiB]
    #[arg(long, value_name = "BYTES", value_parser = units::bytes)]
    pub(crate) min_free: Option<u64>,

    /// Take the client's address from the X-Forwarded-For of proxies in this network, such as 127.0.0.1, and of those that connect to
    /// a Unix socket, for limits, passwords and the log; can be repeated [default: the address that connects]
    #[arg(long, value_name = "NET", value_parser = network, help_heading = "Access")]
    pub(crate) trusted_proxy: Vec<IpNet>,

    /// The cache-control field of files, such as max-age=3600
    #[arg(long, value_name = "VALUE", value_parser = field_value, help_heading = RESPONSES)]
    pub(crate) cache_control: Option<HeaderValue>,

    /// Let scripts of this origin, such as https://app.example.org, read the responses (CORS); can be repeated. Without a
    /// value those of every origin
    #[arg(long, value_name = "ORIGIN", num_args = 0..=1, require_equals = true, default_missing_value = "*", help_heading = RESPONSES)]
    pub(crate) cors: Vec<Origin>,

    /// Also serve paths with names that begin with a dot, such as /.git/config [default: 404, except below /.well-known]
    #[arg(long)]
    pub(crate) hidden: bool,

    /// Send files without copying them, as sendfile does (Linux, HTTP/2 without TLS). Use it only for files that do not change while
    /// they are served: if a file is truncated or overwritten, a client may receive zeros or a mixture of old and new
    /// content. The server closes the connection when it detects a change, but it cannot detect a change of data that is
    /// already in the socket
    #[arg(long)]
    pub(crate) sendfile: bool,
}

/// An origin (RFC 6454) whose scripts may read the responses.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    Any,
    Only(HeaderValue),
}

impl FromStr for Origin {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        if text == "*" {
            return Ok(Origin::Any);
        }
        // A browser sends the origin without a path and without the port that its scheme has by default.
        let url = url::Url::parse(text).ok().filter(|url| url.has_host());
        let origin = url.map(|url| url.origin().ascii_serialization());
        match origin.filter(|origin| origin == text.trim_end_matches('/')) {
            Some(origin) => HeaderValue::try_from(origin)
                .map(Origin::Only)
                .map_err(|_| bad_origin()),
            None => Err(bad_origin()),
        }
    }
}

fn bad_origin() -> Failure {
    Failure::usage("expected an origin: scheme and host, without a path, such as https://app.example.org")
}
