//! The command line: every command, option and example, and nothing that acts on them.
//!
//! clap builds these from what the user typed; `main` hands each command its own part.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args as Options, Parser, Subcommand};
use fullbore::server::DEFAULT_MAX_TOTAL_STREAMS;
use fullbore_link::units;
use http::header::{HeaderName, HeaderValue};

use crate::bytes_arg::{self, Bytes};
use crate::exit::{self, Failure};

/// HTTP/2 at the speed of the path: downloads, uploads and a file server.
#[derive(Parser, Debug)]
#[command(
    name = "fullbore",
    version,
    propagate_version = true,
    arg_required_else_help = true
)]
#[command(after_help = after_help(ROOT_EXAMPLES))]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Download URLs, all in parallel, over as few connections as the path allows
    #[command(after_help = after_help(GET_EXAMPLES))]
    Get(GetArgs),
    /// Upload a file and print the answer
    #[command(after_help = after_help(PUT_EXAMPLES))]
    Put(PutArgs),
    /// Serve a folder over HTTP/2
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(ServeArgs),
    /// Put an emulated long path in front of a server: delay, rate and buffer
    #[command(after_help = LINK_EXAMPLES)]
    Link(LinkArgs),
    /// Move bytes through a client and a server in this process, check each one, print the speeds
    #[command(after_help = DEMO_EXAMPLES)]
    Demo,
}

const ROOT_EXAMPLES: &str = "\
Examples:
  fullbore demo                                        see it work, in a few seconds
  fullbore get -O https://example.org/big.iso          download a file under its own name
  fullbore serve . --plaintext                         serve this folder on 127.0.0.1:8080";

const GET_EXAMPLES: &str = "\
Examples:
  fullbore get https://example.org/a.json              the body to standard output
  fullbore get -o big.iso https://example.org/big.iso  to a file, complete or not at all
  fullbore get -i urls.txt --dir tiles                 10,000 files at once into a folder
  fullbore get --discard --json https://example.org/x  measure, keep nothing
  fullbore get --retry 10 -O https://example.org/x     go on where a broken connection left off
  fullbore get --insecure -O https://127.0.0.1:8080/x  accept a self-signed certificate";

const PUT_EXAMPLES: &str = "\
Examples:
  fullbore put big.iso https://example.org/upload/big.iso
  tar c src | fullbore put - https://example.org/upload/src.tar
  fullbore put -X POST -H 'content-type: application/json' a.json https://example.org/api";

const SERVE_EXAMPLES: &str = "\
Examples:
  fullbore serve . --plaintext                         http://127.0.0.1:8080, no TLS
  fullbore serve /srv/www --listen 0.0.0.0:443 --cert cert.pem --key key.pem
  fullbore serve . --self-signed --uploads incoming    https with a new certificate; PUT stores files";

const LINK_EXAMPLES: &str = "\
Examples:
  fullbore link --to 127.0.0.1:8080 --rtt 100ms        100 ms away, on any free port
  fullbore link --listen 127.0.0.1:9000 --to localhost:8080 --rtt 100ms --rate 1Gbit
  fullbore link --to 127.0.0.1:8080 --count-frames --json

Units: ns us ms s; bit kbit Mbit Gbit (a second); B kB MB GB (powers of ten), KiB MiB GiB (powers of two).
All connections share the link. It runs until Ctrl-C or SIGTERM.";

const DEMO_EXAMPLES: &str = "\
Example:
  fullbore demo";

fn after_help(examples: &str) -> String {
    format!("{examples}\n\n{}", exit::table())
}

/// What `get` and `put` both let the user say about a connection and its requests.
#[derive(Options, Clone, Debug)]
pub(crate) struct ConnectionArgs {
    /// Trust the authorities in this PEM file instead of the system's
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    pub(crate) cacert: Option<PathBuf>,

    /// Accept any certificate: anybody on the path may read and change what is sent
    #[arg(long)]
    pub(crate) insecure: bool,

    /// Send this header field with each request; may be given many times
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    pub(crate) headers: Vec<HeaderLine>,

    /// How many bytes the peer may send ahead on one stream, such as 16MiB
    #[arg(long, value_name = "BYTES", value_parser = bytes_arg::stream_window)]
    pub(crate) stream_window: Option<u32>,

    /// How many bytes the peer may send ahead on the whole connection
    #[arg(long, value_name = "BYTES", value_parser = bytes_arg::connection_window)]
    pub(crate) connection_window: Option<u32>,

    /// Refill both windows when no more than this remains of them [default: once a quarter is used up, or a thirty-second of a fixed window that the path waits for]
    #[arg(long, value_name = "BYTES", value_parser = bytes_arg::refill_at)]
    pub(crate) refill_at: Option<u32>,

    /// How many bytes of memory all windows together may promise to peers, such as 64MiB [default: 512MiB]
    #[arg(long, value_name = "BYTES", value_parser = bytes_arg::budget)]
    pub(crate) budget: Option<u64>,

    /// The size of the kernel's TCP receive buffer [default: the kernel tunes it]
    #[arg(long, value_name = "BYTES", value_parser = bytes_arg::tcp_buffer)]
    pub(crate) tcp_receive_buffer: Option<u32>,

    /// The size of the kernel's TCP send buffer [default: the kernel tunes it]
    #[arg(long, value_name = "BYTES", value_parser = bytes_arg::tcp_buffer)]
    pub(crate) tcp_send_buffer: Option<u32>,

    /// How many bytes may wait unsent in the kernel, ahead of whatever is more urgent (Linux) [default: as many as its buffer holds]
    #[arg(long, value_name = "BYTES", value_parser = bytes_arg::tcp_buffer)]
    pub(crate) tcp_unsent: Option<u32>,

    /// Give up on connecting after this many seconds [default: 30]
    #[arg(long, value_name = "SECS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) connect_timeout: Option<u64>,

    /// Give up when for this many seconds the server sends no response, nothing of a body, takes nothing of one, or allows
    /// no stream; 0 never
    #[arg(long, value_name = "SECS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(..=86_400))]
    pub(crate) speed_time: u64,

    /// Give up on a response's body that brings fewer bytes a second than this over --speed-time; 0: any byte counts
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub(crate) speed_limit: u32,

    /// Give up on a try that takes longer than this many seconds in all [default: no limit]
    #[arg(short = 'm', long, value_name = "SECS", value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    pub(crate) max_time: Option<u64>,
}

/// `fullbore get`.
#[derive(Options, Debug)]
pub(crate) struct GetArgs {
    /// What to download
    #[arg(value_name = "URL", required_unless_present = "list")]
    pub(crate) urls: Vec<String>,

    /// Write the body to this file; `-` is standard output
    #[arg(short, long, value_name = "FILE", group = "place")]
    pub(crate) output: Option<PathBuf>,

    /// Write each body to a file in this folder, named after the last part of its URL
    #[arg(short = 'O', long, group = "place")]
    pub(crate) remote_name: bool,

    /// Like -O, into another folder, which is made if need be
    #[arg(long, value_name = "DIR", group = "place")]
    pub(crate) dir: Option<PathBuf>,

    /// Receive each body and throw it away
    #[arg(long, group = "place")]
    pub(crate) discard: bool,

    /// Read more URLs from this file, one a line; `-` is standard input, `#` starts a comment
    #[arg(short = 'i', long = "input", value_name = "FILE")]
    pub(crate) list: Option<PathBuf>,

    /// How many requests are under way at once; the server may allow fewer
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) parallel: u32,

    /// How many connections to one origin at most; more than one only over a long path whose server allows few streams
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) connections: u32,

    /// Try again this many times what failed in passing, after about 1, 2, 4 seconds and so on, or when the server says so;
    /// all URLs of an origin wait together
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1_000))]
    pub(crate) retry: u32,

    /// Follow redirects, at most 10; the fields of -H are not sent to another origin, and no redirect leads from https to
    /// http
    #[arg(short = 'L', long)]
    pub(crate) location: bool,

    /// Like -L, and send the fields of -H to every origin, also to all of a list
    #[arg(long)]
    pub(crate) location_trusted: bool,

    /// Like -L, and follow redirects from https to http, where anybody on the path may read and change what is sent
    #[arg(long)]
    pub(crate) location_insecure: bool,

    /// Replace files that exist
    #[arg(short, long)]
    pub(crate) force: bool,

    /// Leave files that exist as they are and download the others: a run that was stopped goes on
    #[arg(long, conflicts_with = "force")]
    pub(crate) skip_existing: bool,

    /// Print one JSON document on standard output (on standard error if a body goes to standard output)
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

    /// Where to
    #[arg(value_name = "URL")]
    pub(crate) url: String,

    /// The request's method
    #[arg(short = 'X', long = "request", value_name = "METHOD", default_value = "PUT")]
    pub(crate) method: http::Method,

    /// Write the answer's body to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Try again this many times what failed in passing, after about 1, 2, 4 seconds and so on, or when the server says so:
    /// a PUT of a regular file, and of other methods only what the server did nothing about
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1_000))]
    pub(crate) retry: u32,

    /// Replace the file of -o if it exists
    #[arg(short, long, requires = "output")]
    pub(crate) force: bool,

    /// Print one JSON document on standard error, or on standard output if -o takes the answer's body
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

    /// Where to listen; port 0 takes any free port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub(crate) listen: String,

    /// The certificate chain, PEM
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) cert: Option<PathBuf>,

    /// The certificate's private key, PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,

    /// Make a certificate for localhost at each start; clients need --insecure
    #[arg(long)]
    pub(crate) self_signed: bool,

    /// No TLS: HTTP/2 by prior knowledge
    #[arg(long)]
    pub(crate) plaintext: bool,

    /// Threads that have nothing in common, each with a share of the connections [default: one for each core, and
    /// every connection is served by the one that is free]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1_024))]
    pub(crate) threads: Option<u16>,

    /// Take uploads: store them in this folder, or `discard` them [default: refuse them]
    #[arg(long, value_name = "DIR|discard")]
    pub(crate) uploads: Option<PathBuf>,

    /// The largest upload that is taken; a larger one is answered with 413
    #[arg(long, value_name = "BYTES", default_value = "16GiB")]
    pub(crate) max_upload: Bytes,

    /// How many uploads may be stored at once; one more is answered with 503 and Retry-After,
    /// and so is an address that has half of them [default: a quarter of the
    /// descriptors that the process may have, 4096 at most]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) parallel_uploads: Option<u32>,

    /// How much of the disk uploads leave free; one that would take more is answered with 507 [default: 1GiB, or a
    /// twentieth of a disk smaller than 20 GiB]
    #[arg(long, value_name = "BYTES")]
    pub(crate) min_free: Option<Bytes>,

    /// Print a line for each request on standard output
    #[arg(long)]
    pub(crate) log: bool,

    /// How many bytes of such lines may wait to be written; further ones are dropped, and counted in the log [default: 4MiB]
    #[arg(long, value_name = "BYTES", requires = "log")]
    pub(crate) log_buffer: Option<Bytes>,

    /// How many bytes a client may send ahead on one stream, such as 16MiB
    #[arg(long, value_name = "BYTES", value_parser = bytes_arg::stream_window)]
    pub(crate) stream_window: Option<u32>,

    /// How many bytes a client may send ahead on a whole connection
    #[arg(long, value_name = "BYTES", value_parser = bytes_arg::connection_window)]
    pub(crate) connection_window: Option<u32>,

    /// Refill both windows when no more than this remains of them [default: once a quarter is used up, or a thirty-second of a fixed window that the path waits for]
    #[arg(long, value_name = "BYTES", value_parser = bytes_arg::refill_at)]
    pub(crate) refill_at: Option<u32>,

    /// How many bytes of memory all windows together may promise to clients, such as 64MiB [default: 512MiB]
    #[arg(long, value_name = "BYTES", value_parser = bytes_arg::budget)]
    pub(crate) budget: Option<u64>,

    /// The size of the kernel's TCP receive buffer [default: the kernel tunes it]
    #[arg(long, value_name = "BYTES", value_parser = bytes_arg::tcp_buffer)]
    pub(crate) tcp_receive_buffer: Option<u32>,

    /// The size of the kernel's TCP send buffer [default: the kernel tunes it]
    #[arg(long, value_name = "BYTES", value_parser = bytes_arg::tcp_buffer)]
    pub(crate) tcp_send_buffer: Option<u32>,

    /// How many bytes may wait unsent in the kernel, ahead of whatever is more urgent (Linux) [default: as many as its buffer holds]
    #[arg(long, value_name = "BYTES", value_parser = bytes_arg::tcp_buffer)]
    pub(crate) tcp_unsent: Option<u32>,

    /// Close a connection without a request after this many seconds; 0 never
    #[arg(long, value_name = "SECS", default_value_t = 180)]
    pub(crate) keepalive_timeout: u64,

    /// Give up on a request's header block that takes longer than this many seconds
    #[arg(long, value_name = "SECS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) client_header_timeout: u64,

    /// Give up on an upload of which nothing comes for this many seconds; 0 never
    #[arg(long, value_name = "SECS", default_value_t = 60)]
    pub(crate) client_body_timeout: u64,

    /// Give up on an upload of which fewer bytes a second arrive, as the mean over each --client-body-timeout; 0 never.
    /// Time in which the server itself reads too slowly does not count
    #[arg(long, value_name = "BYTES", default_value_t = 50)]
    pub(crate) client_body_rate: u32,

    /// Give up on a client that takes longer than this many seconds for each KiB of a response; 0 never
    #[arg(long, value_name = "SECS", default_value_t = 60)]
    pub(crate) send_timeout: u64,

    /// How long requests under way may take to end after SIGTERM or Ctrl-C, such as 30s or 500ms; 0 as long as they like
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = seconds_or_time)]
    pub(crate) drain_timeout: Duration,

    /// Serve paths with names that begin with a dot too, such as /.git/config [default: 404, except below /.well-known]
    #[arg(long)]
    pub(crate) hidden: bool,

    /// Without TLS, have the system send the pages of files without a copy, as sendfile does (Linux) [default: read files as
    /// they leave]. Only for files that nothing changes while they are served: of a file that is cut short or written in
    /// place a client may receive zeros, or a mixture of the old and the new content. The server closes the connection when
    /// it notices a change, but it cannot notice one of what waits in the socket already
    #[arg(long)]
    pub(crate) sendfile: bool,

    /// How many streams a client may have open at once on a connection
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_streams: Option<u32>,

    /// How many streams all clients together may have open at once; one address has half of them at most
    #[arg(long, value_name = "N", default_value_t = DEFAULT_MAX_TOTAL_STREAMS, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_total_streams: u64,

    /// How many connections there may be at once; then one that is idle, or makes the least progress, ends for a newcomer
    /// [default: 4096, or as many as the limit of descriptors leaves beside those for files]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_connections: Option<u32>,
}

/// A time with its unit, or a number of seconds, as the other limits of `serve` are.
fn seconds_or_time(text: &str) -> Result<Duration, Failure> {
    match text.parse() {
        Ok(seconds) => Ok(Duration::from_secs(seconds)),
        Err(_) => units::time(text).map_err(|error| Failure::usage(error.to_string())),
    }
}

/// `fullbore link`.
#[derive(Options, Debug)]
pub(crate) struct LinkArgs {
    /// Where to listen; port 0 takes any free port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    pub(crate) listen: String,

    /// The server to connect to for each client
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) to: String,

    /// The round-trip time to add, half of it each way, such as 100ms
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = units::time)]
    pub(crate) rtt: Duration,

    /// The rate in each direction, such as 1Gbit [default: no limit]
    #[arg(long, value_name = "RATE", value_parser = units::rate)]
    pub(crate) rate: Option<u64>,

    /// How many bytes may wait for the link in each direction before it stops reading
    #[arg(long, value_name = "BYTES", default_value = "64MiB", value_parser = units::bytes)]
    pub(crate) buffer: u64,

    /// How far each packet's delay may be off, either way; packets never overtake each other
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = units::time)]
    pub(crate) jitter: Duration,

    /// Which sequence of delays --jitter draws
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,

    /// Let the TCP handshake take its round trip as well
    #[arg(long)]
    pub(crate) handshake: bool,

    /// Print how many HTTP/2 frames of each type a cleartext connection carried, when it ends
    #[arg(long)]
    pub(crate) count_frames: bool,

    /// Print a line of JSON for each connection instead of a table
    #[arg(long, requires = "count_frames")]
    pub(crate) json: bool,
}

/// One `-H` option: a header field that HTTP/2 can carry and that the user may choose.
#[derive(Clone, Debug)]
pub(crate) struct HeaderLine {
    pub(crate) name: HeaderName,
    pub(crate) value: HeaderValue,
}

/// Fields that belong to the connection (RFC 9113 section 8.2.2), or that this program derives itself.
const REFUSED_HEADERS: [(&str, &str); 7] = [
    ("connection", "HTTP/2 has no connection header fields"),
    ("keep-alive", "HTTP/2 has no connection header fields"),
    ("proxy-connection", "HTTP/2 has no connection header fields"),
    ("transfer-encoding", "HTTP/2 has no connection header fields"),
    ("upgrade", "HTTP/2 has no connection header fields"),
    ("host", "the host is taken from the URL"),
    ("content-length", "the length is taken from the file"),
];

impl FromStr for HeaderLine {
    type Err = Failure;

    fn from_str(line: &str) -> Result<Self, Failure> {
        let (name, value) = line
            .split_once(':')
            .ok_or_else(|| Failure::usage("expected `name: value`"))?;
        let name = HeaderName::from_str(name.trim())
            .map_err(|_| Failure::usage("that is no header field's name"))?;
        if let Some((_, reason)) = REFUSED_HEADERS.iter().find(|row| row.0 == name.as_str()) {
            return Err(Failure::usage(*reason));
        }
        let value = HeaderValue::from_str(value.trim())
            .map_err(|_| Failure::usage("a header field's value holds no control characters"))?;
        if name == http::header::TE && value != "trailers" {
            // RFC 9113 section 8.2.2: TE, if present, is "trailers" and nothing else.
            return Err(Failure::usage("in HTTP/2, te can only be `trailers`"));
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
            Command::Serve(serve) => serve.tcp_unsent,
            Command::Get(get) => get.connection.tcp_unsent,
            Command::Put(put) => put.connection.tcp_unsent,
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
