//! The options of `fullbore serve`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args as Options;
use fullbore::server::DEFAULT_MAX_TOTAL_STREAMS;
use fullbore_link::units;

use super::path::PathArgs;
use crate::sizes;

pub(super) const EXAMPLES: &str = "\
Examples:
  fullbore serve . --plaintext                         http://127.0.0.1:8080, without TLS
  fullbore serve /srv/www --listen 0.0.0.0:443 --cert cert.pem --key key.pem
  fullbore serve . --self-signed --uploads .           https with a new certificate; PUT and a form store files";

/// `fullbore serve`.
#[derive(Options, Debug)]
#[command(group = clap::ArgGroup::new("security").required(true).args(["cert", "self_signed", "plaintext"]))]
pub(crate) struct ServeArgs {
    /// The folder to serve
    #[arg(value_name = "ROOT", default_value = ".")]
    pub(crate) root: PathBuf,

    /// The address to listen on; port 0 is any free port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub(crate) listen: String,

    /// The certificate chain (PEM)
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) cert: Option<PathBuf>,

    /// The private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,

    /// Create a new self-signed certificate at each start; clients need --insecure
    #[arg(long)]
    pub(crate) self_signed: bool,

    /// Serve without TLS; the first octets of a connection decide between HTTP/2 and HTTP/1.1
    #[arg(long)]
    pub(crate) plaintext: bool,

    /// Speak only HTTP/1.1 [default: HTTP/2 and HTTP/1.1; over TLS the handshake decides]
    #[arg(long = "http1.1", conflicts_with = "http2")]
    pub(crate) http1: bool,

    /// Speak only HTTP/2
    #[arg(long)]
    pub(crate) http2: bool,

    /// Run N independent single-threaded workers that share the port (SO_REUSEPORT, Linux) [default: one work-stealing
    /// thread for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1_024))]
    pub(crate) threads: Option<u16>,

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

    /// Accept uploads: store them below this folder at the path of the request, or `discard` them [default: refuse them]
    #[arg(long, value_name = "DIR|discard")]
    pub(crate) uploads: Option<PathBuf>,

    /// Let PUT and forms replace existing files [default: 409]
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

    /// Print an access log on standard output, one line for each request
    #[arg(long)]
    pub(crate) log: bool,

    /// Maximum size of log lines that wait to be written; further lines are dropped and counted in the log [default: 4MiB]
    #[arg(long, value_name = "BYTES", requires = "log", value_parser = units::bytes)]
    pub(crate) log_buffer: Option<u64>,

    #[command(flatten)]
    pub(crate) path: PathArgs,

    /// Close a connection that has had no request for this long, such as 180, 180s or 3m; 0 for no limit
    #[arg(long, value_name = "SECS", default_value = "180s", value_parser = sizes::limit_or_none)]
    pub(crate) keepalive_timeout: Duration,

    /// Close a connection when the header of a request takes longer than this
    #[arg(long, value_name = "SECS", default_value = "30s", value_parser = sizes::limit)]
    pub(crate) client_header_timeout: Duration,

    /// End an upload when no data arrives for this long; 0 for no limit
    #[arg(long, value_name = "SECS", default_value = "60s", value_parser = sizes::limit_or_none)]
    pub(crate) client_body_timeout: Duration,

    /// End an upload that is slower than this many bytes a second, measured over each --client-body-timeout; 0 for no
    /// limit. Time in which the server does not read does not count
    #[arg(long, value_name = "BYTES", default_value = "50", value_parser = sizes::byte_rate)]
    pub(crate) client_body_rate: u32,

    /// End a response when the client takes longer than this to receive a KiB of it; 0 for no limit
    #[arg(long, value_name = "SECS", default_value = "60s", value_parser = sizes::limit_or_none)]
    pub(crate) send_timeout: Duration,

    /// Time for requests in progress to end after SIGTERM or Ctrl-C, such as 30s or 500ms; 0 for no limit
    #[arg(long, value_name = "SECS", default_value = "30s", value_parser = sizes::limit_or_none)]
    pub(crate) drain_timeout: Duration,

    /// Also serve paths with names that begin with a dot, such as /.git/config [default: 404, except below /.well-known]
    #[arg(long)]
    pub(crate) hidden: bool,

    /// Send files without copying them, as sendfile does (Linux, HTTP/2 without TLS). Use it only for files that do not change while
    /// they are served: if a file is truncated or overwritten, a client may receive zeros or a mixture of old and new
    /// content. The server closes the connection when it detects a change, but it cannot detect a change of data that is
    /// already in the socket
    #[arg(long)]
    pub(crate) sendfile: bool,

    /// Maximum number of streams on an HTTP/2 connection (SETTINGS_MAX_CONCURRENT_STREAMS)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_streams: Option<u32>,

    /// Maximum number of HTTP/2 streams of all clients together; one address can have half of them
    #[arg(long, value_name = "N", default_value_t = DEFAULT_MAX_TOTAL_STREAMS, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_total_streams: u64,

    /// Maximum number of connections. A new connection beyond it replaces one that is idle or makes the least progress
    /// [default: 4096, or fewer if the process has too few file descriptors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_connections: Option<u32>,
}
