//! The options of `fullbore proxy`.

use std::time::Duration;

use clap::Args as Options;
use http::HeaderValue;
use http::uri::Authority;
use ipnet::IpNet;

use super::server::{ServerArgs, network, path_of_url};
use crate::exit::Failure;
use crate::sizes;

pub(super) const EXAMPLES: &str = "\
Examples:
  fullbore proxy http://127.0.0.1:3000                 http://127.0.0.1:8080, without TLS
  fullbore proxy http://127.0.0.1:3000 --listen [::]:443 --cert cert.pem --key key.pem
  fullbore proxy h2c://127.0.0.1:50051 --self-signed --log     gRPC";

const ORIGIN: &str = "Application";

/// `fullbore proxy`.
#[derive(Options, Debug)]
pub(crate) struct ProxyArgs {
    #[command(flatten)]
    pub(crate) origin: OriginArgs,

    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Where requests go.
#[derive(Options, Debug)]
pub(crate) struct OriginArgs {
    /// The application: http://HOST:PORT (HTTP/1.1), h2c://HOST:PORT (HTTP/2), https://HOST:PORT or unix:/PATH (either)
    #[arg(value_name = "ORIGIN")]
    pub(crate) origin: String,

    /// Another instance of the same application; can be repeated. The one with the fewest requests under way gets the next; one
    /// that cannot be reached, does not answer or refuses three times in a row gets none for 10 s
    #[arg(long, value_name = "ORIGIN", help_heading = ORIGIN)]
    pub(crate) to: Vec<String>,

    /// The host that the application sees [default: that of the client]
    #[arg(long, value_name = "HOST", value_parser = host, help_heading = ORIGIN)]
    pub(crate) origin_host: Option<HeaderValue>,

    /// Ask each instance for this path every 5 s. One that does not answer with 2xx or 3xx within 2 s gets no requests
    #[arg(long, value_name = "PATH", value_parser = path_of_url, help_heading = ORIGIN)]
    pub(crate) origin_health: Option<String>,

    /// Believe the X-Forwarded-For, X-Forwarded-Proto, X-Forwarded-Host and Forwarded of proxies in this network, such as
    /// 10.0.0.0/8, and extend them; can be repeated [default: those of every client are replaced]
    #[arg(long, value_name = "NET", value_parser = network, help_heading = ORIGIN)]
    pub(crate) trusted_proxy: Vec<IpNet>,

    /// How long a connection to the application may take; then 504
    #[arg(long, value_name = "SECS", default_value = "5s", value_parser = sizes::limit, help_heading = ORIGIN)]
    pub(crate) origin_connect_timeout: Duration,

    /// How long the application may take to answer, from the end of the request to the whole head of the response; then 504.
    /// 0 for no limit
    #[arg(long, value_name = "SECS", default_value = "60s", value_parser = sizes::limit_or_none, help_heading = ORIGIN)]
    pub(crate) origin_timeout: Duration,

    /// Close a connection to the application that had no request for this long: less than it waits itself, which is 5 s with
    /// Node
    #[arg(long, value_name = "SECS", default_value = "4s", value_parser = sizes::limit, help_heading = ORIGIN)]
    pub(crate) origin_keepalive_timeout: Duration,

    /// Maximum number of connections to each instance. Over HTTP/1.1 each request under way has one; further requests wait
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..), help_heading = ORIGIN)]
    pub(crate) origin_connections: u32,

    /// Maximum number of requests that wait for a connection to each instance. Further ones get 503
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..), help_heading = ORIGIN)]
    pub(crate) origin_queue: u32,
}

/// A host with or without a port.
fn host(text: &str) -> Result<HeaderValue, Failure> {
    let valid = text
        .parse::<Authority>()
        .is_ok_and(|host| !host.as_str().contains('@'));
    HeaderValue::from_str(text)
        .ok()
        .filter(|_| valid)
        .ok_or_else(|| Failure::usage("expected a host, such as app.internal or app.internal:8443"))
}
