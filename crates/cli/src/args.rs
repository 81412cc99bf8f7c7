//! The command line: every command, option and example.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args as Options, Parser, Subcommand};
use fullbore::server::DEFAULT_MAX_TOTAL_STREAMS;
use fullbore::{Config, DEFAULT_MEMORY_BUDGET, MemoryBudget, Refill, TcpBuffers, WindowSize};
use fullbore_link::units;
use http::header::{HeaderName, HeaderValue};

use crate::exit::{self, Failure};
use crate::sizes;

/// Fast HTTP/2 and HTTP/1.1 downloads, uploads and file server
#[derive(Parser, Debug)]
#[command(
    name = "fullbore",
    version,
    propagate_version = true,
    arg_required_else_help = true
)]
#[command(after_help = after_help(ROOT_EXAMPLES))]
pub(crate) struct Args {
    /// Log connections, resets, stalls and limits to standard error; -vv also requests (or set RUST_LOG=fullbore=debug)
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = "Log")]
    pub(crate) verbose: u8,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Download URLs in parallel
    #[command(after_help = after_help(GET_EXAMPLES))]
    Get(GetArgs),
    /// Upload a file and print the response
    #[command(after_help = after_help(PUT_EXAMPLES))]
    Put(PutArgs),
    /// Serve a folder over HTTP/2 and HTTP/1.1
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(ServeArgs),
    /// Emulate a long path in front of a server: delay, rate and buffer
    #[command(after_help = LINK_EXAMPLES)]
    Link(LinkArgs),
    /// Transfer data between a client and a server in this process, check every byte and print the speeds
    #[command(after_help = DEMO_EXAMPLES)]
    Demo,
}

const ROOT_EXAMPLES: &str = "\
Examples:
  fullbore demo                                        a test run of a few seconds
  fullbore get -O https://example.org/big.iso          download a file under its own name
  fullbore serve . --plaintext                         serve this folder on 127.0.0.1:8080";

const GET_EXAMPLES: &str = "\
Examples:
  fullbore get https://example.org/a.json              print the body
  fullbore get -o big.iso https://example.org/big.iso  save to a file
  fullbore get -i urls.txt --dir tiles                 save the files of a list in a folder
  fullbore get --discard --json https://example.org/x  measure without saving
  fullbore get --retry 10 -O https://example.org/x     resume after temporary failures
  fullbore get --insecure -O https://127.0.0.1:8080/x  accept a self-signed certificate";

const PUT_EXAMPLES: &str = "\
Examples:
  fullbore put big.iso https://example.org/upload/big.iso
  tar c src | fullbore put - https://example.org/upload/src.tar
  fullbore put -X POST -H 'content-type: application/json' a.json https://example.org/api";

const SERVE_EXAMPLES: &str = "\
Examples:
  fullbore serve . --plaintext                         http://127.0.0.1:8080, without TLS
  fullbore serve /srv/www --listen 0.0.0.0:443 --cert cert.pem --key key.pem
  fullbore serve . --self-signed --uploads incoming    https with a new certificate; PUT stores files";

const LINK_EXAMPLES: &str = "\
Examples:
  fullbore link --to 127.0.0.1:8080 --rtt 100ms        a server 100 ms away
  fullbore link --listen 127.0.0.1:9000 --to localhost:8080 --rtt 100ms --rate 1Gbit
  fullbore link --to 127.0.0.1:8080 --count-frames --json

Units: ns us ms s; bit kbit Mbit Gbit (a second); B kB MB GB (powers of ten), KiB MiB GiB (powers of two).
All connections share the emulated link. It runs until Ctrl-C or SIGTERM.";

const DEMO_EXAMPLES: &str = "\
Example:
  fullbore demo";

fn after_help(examples: &str) -> String {
    format!("{examples}\n\n{}", exit::table())
}

/// The options of `get` and `put` for connections and requests.
#[derive(Options, Clone, Debug)]
pub(crate) struct ConnectionArgs {
    /// Trust the certificates in this PEM file instead of the system's: as authorities, and each as a server's own
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    pub(crate) cacert: Option<PathBuf>,

    /// Accept any certificate. Anybody on the path can then read and change the data
    #[arg(long)]
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

    /// Limit for name resolution, TCP and TLS, in seconds [default: 30]
    #[arg(long, value_name = "SECS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) connect_timeout: Option<u64>,

    /// Fail when the server sends no response or body data, reads nothing, or allows no new stream for this many seconds; 0
    /// for no limit
    #[arg(long, value_name = "SECS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(..=86_400))]
    pub(crate) speed_time: u64,

    /// Fail when a response body arrives slower than this many bytes a second, measured over --speed-time; with 0, one byte
    /// is enough
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub(crate) speed_limit: u32,

    /// Limit for each attempt as a whole, in seconds [default: no limit]
    #[arg(short = 'm', long, value_name = "SECS", value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    pub(crate) max_time: Option<u64>,
}

/// What `get`, `put` and `serve` let the user set about windows and TCP.
#[derive(Options, Clone, Debug)]
pub(crate) struct PathArgs {
    /// Receive window of each stream, such as 16MiB: how much the peer may send ahead [default: adapts to the path]
    #[arg(long, value_name = "BYTES", value_parser = sizes::stream_window)]
    pub(crate) stream_window: Option<WindowSize>,

    /// Receive window of each connection [default: adapts to the path]
    #[arg(long, value_name = "BYTES", value_parser = sizes::connection_window)]
    pub(crate) connection_window: Option<WindowSize>,

    /// Send WINDOW_UPDATE when no more than this remains of a receive window [default: when a quarter is used, or a
    /// thirty-second of a fixed window that limits the transfer]
    #[arg(long, value_name = "BYTES", value_parser = sizes::size)]
    pub(crate) refill_at: Option<u32>,

    /// Memory for all receive windows together, such as 64MiB [default: 512MiB]
    #[arg(long, value_name = "BYTES", value_parser = sizes::budget)]
    pub(crate) budget: Option<u64>,

    /// Size of the kernel's TCP receive buffer (SO_RCVBUF) [default: the kernel tunes it]
    #[arg(long, value_name = "BYTES", value_parser = sizes::size)]
    pub(crate) tcp_receive_buffer: Option<u32>,

    /// Size of the kernel's TCP send buffer (SO_SNDBUF) [default: the kernel tunes it]
    #[arg(long, value_name = "BYTES", value_parser = sizes::size)]
    pub(crate) tcp_send_buffer: Option<u32>,

    /// Limit of unsent data in the kernel (TCP_NOTSENT_LOWAT, Linux); a low limit speeds up urgent responses beside large
    /// ones [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = sizes::size)]
    pub(crate) tcp_unsent: Option<u32>,
}

impl PathArgs {
    /// Applies the options of windows to a client's or a server's settings. A window that is set does not adapt.
    pub(crate) fn configure(&self, config: &mut Config) {
        config.adaptive &= self.stream_window.or(self.connection_window).is_none();
        config.stream_window = self.stream_window.unwrap_or(config.stream_window);
        config.connection_window = self.connection_window.unwrap_or(config.connection_window);
        if let Some(bytes) = self.refill_at {
            config.stream_refill = Refill::Remaining(bytes);
            config.connection_refill = Refill::Remaining(bytes);
        }
    }

    pub(crate) fn memory_budget(&self) -> MemoryBudget {
        MemoryBudget::new(self.budget.unwrap_or(DEFAULT_MEMORY_BUDGET))
    }

    pub(crate) fn tcp_buffers(&self) -> TcpBuffers {
        TcpBuffers {
            send: self.tcp_send_buffer,
            receive: self.tcp_receive_buffer,
            unsent: self.tcp_unsent,
        }
    }
}

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

    /// Follow up to 10 redirects, but none from https to http. Fields of -H are not sent to another origin
    #[arg(short = 'L', long)]
    pub(crate) location: bool,

    /// Like -L, and send the fields of -H to every origin, including all origins of a list
    #[arg(long)]
    pub(crate) location_trusted: bool,

    /// Like -L, and follow redirects from https to http, where anybody on the path can read and change the data
    #[arg(long)]
    pub(crate) location_insecure: bool,

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

/// `fullbore put`.
#[derive(Options, Debug)]
pub(crate) struct PutArgs {
    /// The file to upload; `-` is standard input, sent without a content-length
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// The URL to upload to
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
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1_000))]
    pub(crate) retry: u32,

    /// Replace the file of -o if it exists
    #[arg(short, long, requires = "output")]
    pub(crate) force: bool,

    /// Print one JSON document on standard error, or on standard output with -o
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}

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

    /// Accept uploads: store them in this folder, or `discard` them [default: refuse them]
    #[arg(long, value_name = "DIR|discard")]
    pub(crate) uploads: Option<PathBuf>,

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

    /// Close a connection that has had no request for this many seconds; 0 for no limit
    #[arg(long, value_name = "SECS", default_value_t = 180)]
    pub(crate) keepalive_timeout: u64,

    /// Close a connection when the header of a request takes longer than this many seconds
    #[arg(long, value_name = "SECS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) client_header_timeout: u64,

    /// End an upload when no data arrives for this many seconds; 0 for no limit
    #[arg(long, value_name = "SECS", default_value_t = 60)]
    pub(crate) client_body_timeout: u64,

    /// End an upload that is slower than this many bytes a second, measured over each --client-body-timeout; 0 for no
    /// limit. Time in which the server does not read does not count
    #[arg(long, value_name = "BYTES", default_value_t = 50)]
    pub(crate) client_body_rate: u32,

    /// End a response when the client takes longer than this many seconds to receive a KiB of it; 0 for no limit
    #[arg(long, value_name = "SECS", default_value_t = 60)]
    pub(crate) send_timeout: u64,

    /// Time for requests in progress to end after SIGTERM or Ctrl-C, such as 30s or 500ms; 0 for no limit
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = seconds_or_time)]
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

/// A time with a unit, or a number of seconds like the other limits of `serve`.
fn seconds_or_time(text: &str) -> Result<Duration, Failure> {
    match text.parse() {
        Ok(seconds) => Ok(Duration::from_secs(seconds)),
        Err(_) => units::time(text).map_err(|error| Failure::usage(error.to_string())),
    }
}

/// `fullbore link`.
#[derive(Options, Debug)]
pub(crate) struct LinkArgs {
    /// The address to listen on; port 0 is any free port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    pub(crate) listen: String,

    /// The server to connect to
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) to: String,

    /// Round-trip time to add, half of it each way, such as 100ms
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = units::time)]
    pub(crate) rtt: Duration,

    /// Rate in each direction, such as 1Gbit [default: no limit]
    #[arg(long, value_name = "RATE", value_parser = units::rate)]
    pub(crate) rate: Option<u64>,

    /// Size of the buffer in each direction; the link stops reading when it is full
    #[arg(long, value_name = "BYTES", default_value = "64MiB", value_parser = units::bytes)]
    pub(crate) buffer: u64,

    /// Random variation of each packet's delay, up or down; packets keep their order
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = units::time)]
    pub(crate) jitter: Duration,

    /// Seed of the random delays of --jitter
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,

    /// Delay the TCP handshake by a round trip too
    #[arg(long)]
    pub(crate) handshake: bool,

    /// Count HTTP/2 frames by type on cleartext connections, and print the counts when a connection ends
    #[arg(long)]
    pub(crate) count_frames: bool,

    /// Print a line of JSON for each connection instead of a table
    #[arg(long, requires = "count_frames")]
    pub(crate) json: bool,
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Args::command().debug_assert();
    }

    #[test]
    fn every_command_shows_an_example() {
        for command in Args::command().get_subcommands_mut() {
            let help = command.render_help().to_string();
            assert!(help.contains("Example"), "{} has none", command.get_name());
        }
    }

    #[test]
    fn header_fields_of_a_connection_are_refused() {
        for line in [
            "Connection: close",
            "transfer-encoding: chunked",
            "te: gzip",
            "no colon",
            "a b: c",
        ] {
            assert!(line.parse::<HeaderLine>().is_err(), "{line} was accepted");
        }
        assert!("TE: trailers".parse::<HeaderLine>().is_ok());
        assert!("authorization: Basic Zm9vOmJhcg==".parse::<HeaderLine>().is_ok());
    }

    #[test]
    fn the_time_to_drain_has_a_unit_or_is_in_seconds() {
        let of = |args: &[&str]| match Args::try_parse_from(
            [&["fullbore", "serve", "--plaintext"], args].concat(),
        ) {
            Ok(Args {
                command: Command::Serve(serve),
                ..
            }) => Some(serve.drain_timeout),
            _ => None,
        };
        assert_eq!(of(&[]), Some(Duration::from_secs(30)));
        assert_eq!(of(&["--drain-timeout", "5"]), Some(Duration::from_secs(5)));
        assert_eq!(of(&["--drain-timeout", "5ms"]), Some(Duration::from_millis(5)));
        assert_eq!(of(&["--drain-timeout", "0"]), Some(Duration::ZERO));
        for wrong in ["", "s", "-1", "5 parsecs"] {
            assert_eq!(of(&["--drain-timeout", wrong]), None, "{wrong}");
        }
    }

    #[test]
    fn what_may_wait_unsent_is_a_size_that_the_kernel_takes() {
        let of = |args: &[&str]| match Args::try_parse_from([&["fullbore"], args].concat()).ok()?.command {
            Command::Serve(serve) => serve.path.tcp_unsent,
            Command::Get(get) => get.connection.path.tcp_unsent,
            Command::Put(put) => put.connection.path.tcp_unsent,
            _ => None,
        };
        let serve = ["serve", "--plaintext"];
        assert_eq!(of(&serve), None);
        assert_eq!(
            of(&[&serve[..], &["--tcp-unsent", "128KiB"]].concat()),
            Some(131_072)
        );
        assert_eq!(of(&["get", "--tcp-unsent", "1MiB", "http://a/"]), Some(1 << 20));
        assert_eq!(
            of(&["put", "--tcp-unsent", "65535", "f", "http://a/"]),
            Some(65_535)
        );
        for wrong in ["0", "", "-1", "2GiB", "much"] {
            let args = [&["fullbore"], &serve[..], &["--tcp-unsent", wrong]].concat();
            assert!(Args::try_parse_from(args).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_window_that_is_set_is_fixed_and_others_keep_their_defaults() {
        let configured = |args: &[&str]| {
            let parsed = Args::try_parse_from([&["fullbore", "get", "http://a/"], args].concat());
            let mut config = Config::default();
            if let Ok(Args {
                command: Command::Get(get),
                ..
            }) = parsed
            {
                get.connection.path.configure(&mut config);
            }
            let windows = (config.stream_window.bytes(), config.connection_window.bytes());
            (
                windows,
                config.adaptive,
                config.stream_refill,
                config.connection_refill,
            )
        };
        let (windows, adaptive, refill, _) = configured(&[]);
        assert!(adaptive);
        assert_eq!(
            configured(&["--stream-window", "1MiB"]),
            ((1 << 20, windows.1), false, refill, refill)
        );
        assert_eq!(
            configured(&["--connection-window", "1MiB"]),
            ((windows.0, 1 << 20), false, refill, refill)
        );
        let at = Refill::Remaining(7);
        assert_eq!(configured(&["--refill-at", "7"]), (windows, true, at, at));
    }

    #[test]
    fn a_dead_transfer_ends_after_a_minute_unless_told_otherwise() {
        let of =
            |args: &[&str]| match Args::try_parse_from([&["fullbore", "get", "http://a/"], args].concat())
                .ok()?
                .command
            {
                Command::Get(get) => Some((get.connection.speed_time, get.connection.max_time)),
                _ => None,
            };
        assert_eq!(of(&[]), Some((60, None)));
        assert_eq!(of(&["--speed-time", "0", "-m", "9"]), Some((0, Some(9))));
        assert_eq!(of(&["--max-time", "0"]), None);
    }

    #[test]
    fn serve_asks_for_tls_or_for_its_absence() {
        assert!(Args::try_parse_from(["fullbore", "serve"]).is_err());
        assert!(Args::try_parse_from(["fullbore", "serve", "--cert", "c.pem"]).is_err());
        assert!(Args::try_parse_from(["fullbore", "serve", "--plaintext", "--self-signed"]).is_err());
        assert!(Args::try_parse_from(["fullbore", "serve", "--plaintext"]).is_ok());
        assert!(Args::try_parse_from(["fullbore", "serve", "--cert", "c.pem", "--key", "k.pem"]).is_ok());
    }
}
