//! The addresses that `serve` can listen on, as the command line has them.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use crate::exit::Failure;

/// The longest path of a Unix socket, in bytes: `sun_path` has 108 on Linux, the last of which is zero.
const LONGEST_PATH: usize = 107;

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListenAddress {
    /// An address of IP and a port.
    Ip(SocketAddr),
    /// A host name and a port: all addresses of the name.
    Name(String, u16),
    /// `unix:/path`.
    Unix(PathBuf),
}

impl FromStr for ListenAddress {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        if let Some(path) = text.strip_prefix("unix:") {
            return socket_path(path).map(ListenAddress::Unix);
        }
        if let Ok(address) = text.parse() {
            return Ok(ListenAddress::Ip(address));
        }
        if text.contains("//") {
            return Err(Failure::usage(
                "expected an address and no URL; type it as 127.0.0.1:8080",
            ));
        }
        if text.parse::<u16>().is_ok() {
            return Err(Failure::usage(format!(
                "the address is missing; type 127.0.0.1:{text} for this machine only, or [::]:{text} for all"
            )));
        }
        let Some((host, port)) = text
            .rsplit_once(':')
            .filter(|(host, _)| !host.contains(['[', ']']))
        else {
            return Err(Failure::usage(format!(
                "the port is missing; type it behind the address, as in {}",
                if text.starts_with('[') {
                    "[::1]:8080"
                } else {
                    "127.0.0.1:8080"
                }
            )));
        };
        if host.contains(':') {
            return Err(Failure::usage(
                "an IPv6 address needs brackets and a port; type it as [::1]:8080",
            ));
        }
        let Ok(port) = port.parse() else {
            return Err(Failure::usage("the port must be a number from 0 to 65535"));
        };
        match host {
            "" => Err(Failure::usage(format!(
                "the address is missing; type 127.0.0.1:{port} for this machine only, or [::]:{port} for all"
            ))),
            host if host.contains(|letter: char| letter.is_whitespace() || letter == '/') => Err(
                Failure::usage("the host name has a character that no host name has"),
            ),
            host => Ok(ListenAddress::Name(host.to_owned(), port)),
        }
    }
}

fn socket_path(path: &str) -> Result<PathBuf, Failure> {
    if !cfg!(unix) {
        return Err(Failure::usage("this system has no Unix sockets"));
    }
    if path.is_empty() {
        return Err(Failure::usage(
            "the path of the socket is missing; type it as unix:/run/web.sock",
        ));
    }
    if path.len() > LONGEST_PATH {
        return Err(Failure::usage(format!(
            "the path of a Unix socket has at most {LONGEST_PATH} bytes, and this one has {}; use a shorter one",
            path.len()
        )));
    }
    Ok(PathBuf::from(path))
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenAddress::Ip(address) => address.fmt(f),
            ListenAddress::Name(host, port) => write!(f, "{host}:{port}"),
            ListenAddress::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_names_and_paths_are_told_apart_and_printed_as_typed() {
        for text in ["127.0.0.1:0", "[::]:8080", "[fe80::1%2]:80", "localhost:8080"] {
            let address: ListenAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
            assert_eq!(matches!(address, ListenAddress::Name(..)), text.starts_with('l'));
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_socket_is_a_path_of_at_most_107_bytes() {
        let longest = format!("unix:/{}", "a".repeat(LONGEST_PATH - 1));
        assert_eq!(longest.parse::<ListenAddress>().unwrap().to_string(), longest);
        assert!(format!("{longest}a").parse::<ListenAddress>().is_err());
        assert!("unix:".parse::<ListenAddress>().is_err());
    }

    #[test]
    fn what_is_no_address_is_refused_with_what_to_type() {
        for (text, part) in [
            ("8080", "type 127.0.0.1:8080"),
            (":8080", "127.0.0.1:8080"),
            ("::1", "[::1]:8080"),
            ("::1:8080", "[::1]:8080"),
            ("[::1]", "[::1]:8080"),
            ("localhost", "127.0.0.1:8080"),
            ("localhost:http", "a number from 0 to 65535"),
            ("localhost:70000", "a number from 0 to 65535"),
            ("http://localhost:80", "no URL"),
            ("a b:80", "no host name has"),
            ("", "127.0.0.1:8080"),
        ] {
            let refused = text.parse::<ListenAddress>().unwrap_err();
            assert!(refused.message.contains(part), "{text}: {refused}");
        }
    }
}
