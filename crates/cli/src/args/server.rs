//! The options of a server, whatever it serves: those that `serve` and `proxy` share.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args as Options;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use fullbore::rustls::pki_types::ServerName;
use fullbore::server::DEFAULT_MAX_TOTAL_STREAMS;
use fullbore_files::LogFormat;
use http::header::{HeaderName, HeaderValue};
use ipnet::IpNet;

use super::listen_address::ListenAddress;
use super::path::PathArgs;
use crate::exit::Failure;
use crate::sizes;

const ADDRESSES: &str = "Addresses";
const TLS: &str = "TLS";
pub(super) const RESPONSES: &str = "Responses";
const ACCESS: &str = "Access";
const LOG: &str = "Log and metrics";
const LIMITS: &str = "Limits";

/// Addresses, TLS, access, log and limits.
#[derive(Options, Debug)]
#[command(group = clap::ArgGroup::new("security").args(["cert", "self_signed", "plaintext"]))]
#[command(group = clap::ArgGroup::new("tls").args(["cert", "self_signed"]))]
pub(crate) struct ServerArgs {
    /// The address to listen on, such as 127.0.0.1:8080, [::]:8080 for every address of IPv6 and IPv4, or unix:/run/web.sock;
    /// can be repeated. Port 0 is any free port [default: 127.0.0.1:8080, or the sockets that systemd passes]
    #[arg(long, value_name = "ADDR", help_heading = ADDRESSES)]
    pub(crate) listen: Vec<ListenAddress>,

    /// Let other devices of the network in: listen on every address of this machine, and print the addresses to type and, in a
    /// terminal, a QR code. With -p on that port
    #[arg(long, conflicts_with = "listen", help_heading = ADDRESSES)]
    pub(crate) lan: bool,

    /// Listen on 127.0.0.1:N and [::1]:N
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..), help_heading = ADDRESSES)]
    pub(crate) port: Option<u16>,

    /// The permissions of Unix sockets, in octal
    #[arg(long, value_name = "MODE", default_value = "600", value_parser = permissions, help_heading = ADDRESSES)]
    pub(crate) socket_mode: Permissions,

    /// Also listen on this address without TLS, and redirect every request to https (308). The certificate must be valid for
    /// the host that the client names
    #[arg(long, value_name = "ADDR", requires = "tls", conflicts_with = "plaintext", help_heading = ADDRESSES)]
    pub(crate) redirect_http: Option<ListenAddress>,

    /// The certificate chain (PEM). It is read again when the file changes, and on SIGHUP
    #[arg(long, value_name = "FILE", requires = "key", help_heading = TLS)]
    pub(crate) cert: Option<PathBuf>,

    /// The private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "cert", help_heading = TLS)]
    pub(crate) key: Option<PathBuf>,

    /// Use a self-signed certificate, which is kept in the user's state folder and renewed. Prints how clients trust it
    #[arg(long, help_heading = TLS)]
    pub(crate) self_signed: bool,

    /// A name or address of this server for the self-signed certificate, beside localhost and those it listens on; can be
    /// repeated
    #[arg(long, value_name = "NAME", requires = "self_signed", conflicts_with_all = ["cert", "plaintext"], value_parser = certificate_name, help_heading = TLS)]
    pub(crate) self_signed_name: Vec<String>,

    /// Accept only clients with a certificate that an authority in this file (PEM) has signed
    #[arg(long, value_name = "FILE", requires = "tls", conflicts_with = "plaintext", help_heading = TLS)]
    pub(crate) client_ca: Option<PathBuf>,

    /// Serve without TLS: the default on addresses of this machine alone, and with --lan
    #[arg(long, help_heading = TLS)]
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

    /// Add a header field to every response but those to CORS preflight requests; can be repeated
    #[arg(long, value_name = "NAME: VALUE", help_heading = RESPONSES)]
    pub(crate) header: Vec<ResponseField>,

    /// Answer GET of this path with 200, without a password and without looking at what is behind it
    #[arg(long, value_name = "PATH", value_parser = path_of_url, help_heading = RESPONSES)]
    pub(crate) health: Option<String>,

    /// Require a name and password (RFC 7617); can be repeated. `fullbore hash-password NAME` prints what to type
    #[arg(long, value_name = "NAME:HASH", help_heading = ACCESS)]
    pub(crate) auth: Vec<String>,

    /// The same for users who may also upload: others may only read, everybody if nobody else has a password; can be repeated
    #[arg(long, value_name = "NAME:HASH", help_heading = ACCESS)]
    pub(crate) auth_write: Vec<String>,

    /// Read more users for --auth from this file, one NAME:HASH a line, as `htpasswd -B` writes them
    #[arg(long, value_name = "FILE", help_heading = ACCESS)]
    pub(crate) auth_file: Option<PathBuf>,

    /// Serve metrics for Prometheus at /metrics of this address, and 200 at /healthz
    #[arg(long, value_name = "ADDR", help_heading = LOG)]
    pub(crate) metrics: Option<ListenAddress>,

    /// Print an access log on standard output, one line for each request
    #[arg(long, help_heading = LOG)]
    pub(crate) log: bool,

    /// The format of the access log: fullbore's own, that of Apache, or a JSON object in each line
    #[arg(long, value_name = "FORMAT", requires = "log", default_value = "text", value_parser = log_format(), help_heading = LOG)]
    pub(crate) log_format: LogFormat,

    /// Congestion control of the TCP connections, such as bbr (Linux): how fast this side sends, above all after a loss
    /// [default: the system's]
    #[arg(long, value_name = "NAME")]
    pub(crate) congestion_control: Option<String>,

    #[command(flatten)]
    pub(crate) path: PathArgs,

    /// Close a connection that has had no request for this long, such as 180, 180s or 3m; 0 for no limit
    #[arg(long, value_name = "SECS", default_value = "180s", value_parser = sizes::limit_or_none, help_heading = LIMITS)]
    pub(crate) keepalive_timeout: Duration,

    /// Close a connection when the header of a request takes longer than this
    #[arg(long, value_name = "SECS", default_value = "30s", value_parser = sizes::limit, help_heading = LIMITS)]
    pub(crate) client_header_timeout: Duration,

    /// End an upload when no data arrives for this long; 0 for no limit [default: 60s; no limit for a proxy, whose streams of
    /// messages may be silent]
    #[arg(long, value_name = "SECS", value_parser = sizes::limit_or_none, help_heading = LIMITS)]
    pub(crate) client_body_timeout: Option<Duration>,

    /// End an upload that is slower than this many bytes a second, measured over each --client-body-timeout; 0 for no
    /// limit. Time in which the server does not read does not count
    #[arg(long, value_name = "BYTES", default_value = "50", value_parser = sizes::byte_rate, help_heading = LIMITS)]
    pub(crate) client_body_rate: u32,

    /// End a response when the client takes longer than this to receive a KiB of it; 0 for no limit
    #[arg(long, value_name = "SECS", default_value = "60s", value_parser = sizes::limit_or_none, help_heading = LIMITS)]
    pub(crate) send_timeout: Duration,

    /// Time for requests in progress to end after SIGTERM or Ctrl-C, such as 30s or 500ms; 0 for no limit
    #[arg(long, value_name = "SECS", default_value = "30s", value_parser = sizes::limit_or_none, help_heading = LIMITS)]
    pub(crate) drain_timeout: Duration,

    /// Maximum number of streams on an HTTP/2 connection (SETTINGS_MAX_CONCURRENT_STREAMS)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = LIMITS)]
    pub(crate) max_streams: Option<u32>,

    /// Maximum number of HTTP/2 streams of all clients together; one address can have half of them
    #[arg(long, value_name = "N", default_value_t = DEFAULT_MAX_TOTAL_STREAMS, value_parser = clap::value_parser!(u64).range(1..), help_heading = LIMITS)]
    pub(crate) max_total_streams: u64,

    /// Maximum number of connections. A new connection beyond it replaces one that is idle or makes the least progress
    /// [default: 4096, or fewer if the process has too few file descriptors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = LIMITS)]
    pub(crate) max_connections: Option<u32>,
}

impl ServerArgs {
    /// Whether the listeners speak TLS.
    pub(crate) fn has_tls(&self) -> bool {
        self.cert.is_some() || self.self_signed
    }

    /// Whether some requests need a password.
    pub(crate) fn has_users(&self) -> bool {
        self.auth_file.is_some() || !self.auth.is_empty() || !self.auth_write.is_empty()
    }
}

/// Permissions as `chmod` takes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Permissions(pub(crate) u32);

fn permissions(text: &str) -> Result<Permissions, Failure> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(Permissions(mode)),
        _ => Err(Failure::usage(
            "expected permissions in octal, such as 600, 660 or 666",
        )),
    }
}

/// A DNS name, also with a wildcard in front, or an IP address.
fn certificate_name(text: &str) -> Result<String, Failure> {
    match ServerName::try_from(text.strip_prefix("*.").unwrap_or(text)) {
        Ok(_) => Ok(text.to_ascii_lowercase()),
        Err(_) => Err(Failure::usage(
            "expected a DNS name or an IP address without a port, such as files.example.org or 192.0.2.7",
        )),
    }
}

/// A header field of responses, whose framing the server makes itself.
#[derive(Clone, Debug)]
pub(crate) struct ResponseField {
    pub(crate) name: HeaderName,
    pub(crate) value: HeaderValue,
}

impl FromStr for ResponseField {
    type Err = Failure;

    fn from_str(line: &str) -> Result<Self, Failure> {
        /// Fields that say where a response ends and how it is coded.
        const OWN: [&str; 11] = [
            "connection",
            "content-encoding",
            "content-length",
            "content-range",
            "keep-alive",
            "proxy-connection",
            "te",
            "trailer",
            "transfer-encoding",
            "upgrade",
            "date",
        ];
        let (name, value) = line.split_once(':').ok_or_else(|| {
            Failure::usage("expected a name, a colon and a value, such as 'x-frame-options: DENY'")
        })?;
        let name = HeaderName::from_str(name.trim()).map_err(|_| {
            Failure::usage(
                "the name of a field has letters, digits and hyphens only, as in 'x-frame-options: DENY'",
            )
        })?;
        if OWN.contains(&name.as_str()) {
            return Err(Failure::usage(format!(
                "the server sets {name} itself; leave it out"
            )));
        }
        let value = field_value(value.trim())?;
        Ok(Self { name, value })
    }
}

pub(super) fn field_value(text: &str) -> Result<HeaderValue, Failure> {
    match HeaderValue::from_str(text) {
        Ok(value) if !text.is_empty() => Ok(value),
        _ => Err(Failure::usage(
            "the value of a field is one line of visible characters",
        )),
    }
}

pub(super) fn path_of_url(text: &str) -> Result<String, Failure> {
    match text.parse::<http::uri::PathAndQuery>() {
        Ok(path) if text.starts_with('/') && path.path() == text => Ok(text.to_owned()),
        _ => Err(Failure::usage(
            "expected a path that begins with a slash and has no query, such as /healthz",
        )),
    }
}

fn log_format() -> impl TypedValueParser<Value = LogFormat> {
    PossibleValuesParser::new(["text", "combined", "json"]).map(|name| match name.as_str() {
        "combined" => LogFormat::Combined,
        "json" => LogFormat::Json,
        _ => LogFormat::Text,
    })
}

/// A network, or one address.
pub(super) fn network(text: &str) -> Result<IpNet, Failure> {
    let address = || {
        text.parse()
            .ok()
            .map(|address: std::net::IpAddr| IpNet::from(address))
    };
    text.parse()
        .ok()
        .or_else(address)
        .ok_or_else(|| Failure::usage("expected a network, such as 10.0.0.0/8, 2001:db8::/32 or 192.0.2.7"))
}
