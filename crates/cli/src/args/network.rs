//! The options of `get` and `put` for the way to a server: proxies, addresses, the rate.

use std::net::IpAddr;
use std::str::FromStr;

use clap::Args as Options;
use fullbore_link::units;

use crate::exit::Failure;

/// The options of `get` and `put` for the way to a server.
#[derive(Options, Clone, Debug)]
#[command(next_help_heading = "Network")]
pub(crate) struct NetworkArgs {
    /// Reach servers through this proxy: http://, https://, socks5:// or socks5h://, as in
    /// http://user:password@proxy.example:3128; '' for none [default: the variables https_proxy, http_proxy and all_proxy]
    #[arg(short = 'x', long, value_name = "URL")]
    pub(crate) proxy: Option<String>,

    /// Reach these hosts without a proxy: names with those below them, addresses, networks, or `*`, each for one port if it
    /// ends in one, separated by commas [default: the variable no_proxy]
    #[arg(long, value_name = "LIST")]
    pub(crate) noproxy: Option<String>,

    /// Connect only to IPv4 addresses
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    pub(crate) ipv4: bool,

    /// Connect only to IPv6 addresses
    #[arg(short = '6', long)]
    pub(crate) ipv6: bool,

    /// Connect to this address in place of those of HOST, when the port is PORT; `*` stands for all hosts, and further
    /// addresses follow after commas; can be repeated
    #[arg(long, value_name = "HOST:PORT:ADDR")]
    pub(crate) resolve: Vec<Resolve>,

    /// Limit the rate of all transfers together, in bytes a second, such as 500KiB or 2MB
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) limit_rate: Option<u64>,
}

/// One `--resolve` option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resolve {
    /// Empty for all hosts.
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) addresses: Vec<IpAddr>,
}

impl FromStr for Resolve {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        let form = || Failure::usage("expected HOST:PORT:ADDR, such as example.org:443:192.0.2.7");
        let (host, rest) = text.split_once(':').ok_or_else(form)?;
        let (port, list) = rest.split_once(':').ok_or_else(form)?;
        if host.is_empty() {
            return Err(form());
        }
        let port = port.parse().ok().filter(|&port| port > 0);
        let port = port.ok_or_else(|| Failure::usage("the port must be a number from 1 to 65535"))?;
        let address = |text: &str| {
            let text = text.trim();
            let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
            let parsed = bare.unwrap_or(text).parse();
            parsed.map_err(|_| Failure::usage(format!("{text:?} is not an IPv4 or IPv6 address")))
        };
        Ok(Self {
            host: if host == "*" {
                String::new()
            } else {
                host.to_owned()
            },
            port,
            addresses: list.split(',').map(address).collect::<Result<_, _>>()?,
        })
    }
}

fn rate(text: &str) -> Result<u64, Failure> {
    let text = text.strip_suffix("/s").unwrap_or(text);
    match units::bytes(text) {
        Ok(0) => Err(Failure::usage("expected at least 1 byte a second")),
        Ok(bytes) => Ok(bytes),
        Err(error) => Err(Failure::usage(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_for_a_host_are_read_as_curl_reads_them() {
        let parsed = |text: &str| {
            let resolve: Result<Resolve, _> = text.parse();
            resolve
                .ok()
                .map(|resolve| (resolve.host, resolve.port, resolve.addresses.len()))
        };
        let of = |host: &str, port, count| Some((host.to_owned(), port, count));
        assert_eq!(parsed("example.org:443:192.0.2.7"), of("example.org", 443, 1));
        assert_eq!(parsed("h:80:192.0.2.7,[2001:db8::1],::1"), of("h", 80, 3));
        assert_eq!(parsed("*:80:::1"), of("", 80, 1));
        for wrong in [
            "",
            "h",
            "h:80",
            "h:x:::1",
            "h:0:::1",
            ":80:::1",
            "h:80:",
            "h:80:other",
        ] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_rate_is_bytes_a_second() {
        assert_eq!(rate("2MB").ok(), Some(2_000_000));
        assert_eq!(rate("64KiB/s").ok(), Some(65_536));
        assert!(rate("0").is_err() && rate("fast").is_err());
    }
}
