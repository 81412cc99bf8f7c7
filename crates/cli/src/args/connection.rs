//! The options of `get` and `put` for connections and requests.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args as Options;
use http::header::{HeaderName, HeaderValue};

use super::credentials::CredentialArgs;
use super::network::NetworkArgs;
use super::path::PathArgs;
use crate::exit::Failure;
use crate::sizes;

const REDIRECTS: &str = "Redirects";
const TIME: &str = "Time limits";

/// The options of `get` and `put` for connections and requests.
#[derive(Options, Clone, Debug)]
pub(crate) struct ConnectionArgs {
    /// Trust the certificates in this PEM file instead of the system's: as authorities, and each as a server's own
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    pub(crate) cacert: Option<PathBuf>,

    /// Accept any certificate. Anybody on the path can then read and change the data
    #[arg(short = 'k', long)]
    pub(crate) insecure: bool,

    /// Add a header field to each request; can be repeated
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    pub(crate) headers: Vec<HeaderLine>,

    /// Speak only HTTP/1.1 [default: HTTP/2 where the server speaks it; with https:// the TLS handshake decides, with http://
    /// the server's answer to HTTP/2 does]
    #[arg(long = "http1.1", conflicts_with = "http2")]
    pub(crate) http1: bool,

    /// Speak only HTTP/2, with http:// by prior knowledge
    #[arg(long)]
    pub(crate) http2: bool,

    #[command(flatten)]
    pub(crate) path: PathArgs,

    #[command(flatten)]
    pub(crate) network: NetworkArgs,

    #[command(flatten)]
    pub(crate) credentials: CredentialArgs,

    /// Follow redirects: the default
    #[arg(short = 'L', long, hide = true)]
    pub(crate) location: bool,

    /// Follow no redirect: one is a failure, and names the URL to which it leads
    #[arg(long, conflicts_with_all = ["location", "location_trusted", "location_insecure"], help_heading = REDIRECTS)]
    pub(crate) no_location: bool,

    /// Maximum number of redirects to follow
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = sizes::count::<0, 1_000>, help_heading = REDIRECTS)]
    pub(crate) max_redirs: u32,

    /// Send the fields of -H, and names and passwords, to every origin, including all origins of a list
    #[arg(long, help_heading = REDIRECTS)]
    pub(crate) location_trusted: bool,

    /// Also follow redirects from https to http, where anybody on the path can read and change the data
    #[arg(long, help_heading = REDIRECTS)]
    pub(crate) location_insecure: bool,

    /// Limit for name resolution, TCP and TLS, such as 5, 5s or 500ms [default: 30s]
    #[arg(long, value_name = "SECS", value_parser = sizes::limit, help_heading = TIME)]
    pub(crate) connect_timeout: Option<Duration>,

    /// Fail when the server sends no response or body data, reads nothing, or allows no new stream for this long; 0 for no
    /// limit
    #[arg(long, value_name = "SECS", default_value = "60s", value_parser = sizes::limit_or_none, help_heading = TIME)]
    pub(crate) speed_time: Duration,

    /// Fail when a response body arrives slower than this many bytes a second, measured over --speed-time; with 0, one byte
    /// is enough
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = sizes::byte_rate, help_heading = TIME)]
    pub(crate) speed_limit: u32,

    /// Limit for each attempt as a whole, such as 90, 90s or 5m [default: no limit]
    #[arg(short = 'm', long, value_name = "SECS", value_parser = sizes::limit, help_heading = TIME)]
    pub(crate) max_time: Option<Duration>,
}

/// One `-H` option: a header field that HTTP/2 allows and that this program does not derive.
#[derive(Clone, Debug)]
pub(crate) struct HeaderLine {
    pub(crate) name: HeaderName,
    pub(crate) value: HeaderValue,
}

/// Connection-specific fields (RFC 9113 section 8.2.2), and fields that this program derives.
const REFUSED_HEADERS: [(&str, &str); 7] = [
    ("connection", "HTTP/2 has no connection-specific fields"),
    ("keep-alive", "HTTP/2 has no connection-specific fields"),
    ("proxy-connection", "HTTP/2 has no connection-specific fields"),
    ("transfer-encoding", "HTTP/2 has no connection-specific fields"),
    ("upgrade", "HTTP/2 has no connection-specific fields"),
    ("host", "the host is taken from the URL"),
    ("content-length", "the length is taken from the file"),
];

impl FromStr for HeaderLine {
    type Err = Failure;

    fn from_str(line: &str) -> Result<Self, Failure> {
        let (name, value) = line
            .split_once(':')
            .ok_or_else(|| Failure::usage("expected `NAME: VALUE`"))?;
        let name = HeaderName::from_str(name.trim()).map_err(|_| Failure::usage("invalid field name"))?;
        if let Some((_, reason)) = REFUSED_HEADERS.iter().find(|row| row.0 == name.as_str()) {
            return Err(Failure::usage(*reason));
        }
        let value = HeaderValue::from_str(value.trim())
            .map_err(|_| Failure::usage("a field value must not contain control characters"))?;
        if name == http::header::TE && value != "trailers" {
            // RFC 9113 section 8.2.2: TE, if present, is "trailers" and nothing else.
            return Err(Failure::usage("HTTP/2 allows only `te: trailers`"));
        }
        Ok(Self { name, value })
    }
}
