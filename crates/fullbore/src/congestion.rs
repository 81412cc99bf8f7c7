//! The congestion control of TCP connections (TCP_CONGESTION, Linux).

use std::io;
use std::sync::Arc;

use socket2::SockRef;

use crate::error::Error;

/// The setting of Linux that says what a process without privileges may choose.
#[cfg(target_os = "linux")]
const ALLOWED: &str = "net.ipv4.tcp_allowed_congestion_control";

/// A congestion control that this process may use.
#[derive(Debug, Clone)]
pub(crate) struct CongestionControl(Arc<str>);

impl CongestionControl {
    /// Tries it on a socket that is closed again.
    ///
    /// # Errors
    /// The system does not have it, or does not allow it. Then the error says what it allows.
    pub(crate) fn named(name: &str) -> Result<Self, Error> {
        let this = Self(name.into());
        this.try_on_a_socket().map_err(|error| refused(name, &error))?;
        Ok(this)
    }

    /// Sets it for a connection, or for all that a listening socket will accept.
    pub(crate) fn apply(&self, socket: &SockRef<'_>) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        return socket.set_tcp_congestion(self.0.as_bytes());
        #[cfg(not(target_os = "linux"))]
        {
            let _ = socket;
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    #[cfg(target_os = "linux")]
    fn try_on_a_socket(&self) -> io::Result<()> {
        use socket2::{Domain, Protocol, Socket, Type};
        let tcp = |domain| Socket::new(domain, Type::STREAM, Some(Protocol::TCP));
        let socket = tcp(Domain::IPV4).or_else(|_| tcp(Domain::IPV6))?;
        self.apply(&SockRef::from(&socket))?;
        // The kernel reads a name up to a zero, and no more than 15 octets.
        let set = socket.tcp_congestion()?;
        match set.split(|octet| *octet == 0).next() == Some(self.0.as_bytes()) {
            true => Ok(()),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn try_on_a_socket(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(target_os = "linux")]
fn refused(name: &str, error: &io::Error) -> Error {
    let why = match error.kind() {
        io::ErrorKind::PermissionDenied => "is not allowed".to_owned(),
        io::ErrorKind::NotFound | io::ErrorKind::InvalidInput => {
            "does not exist, or its module is not loaded".to_owned()
        }
        _ => format!("cannot be set ({error})"),
    };
    let path = format!("/proc/sys/{}", ALLOWED.replace('.', "/"));
    let allowed = std::fs::read_to_string(path).unwrap_or_default();
    let allowed: Vec<_> = allowed.split_whitespace().collect();
    let allowed = match allowed.is_empty() {
        true => String::new(),
        false => format!("; the system allows {} ({ALLOWED})", allowed.join(", ")),
    };
    Error::config(format!("the congestion control {name:?} {why}{allowed}"))
}

#[cfg(not(target_os = "linux"))]
fn refused(name: &str, _: &io::Error) -> Error {
    Error::config(format!(
        "the congestion control {name:?} cannot be set: only on Linux a program chooses one"
    ))
}

/// One for tests: not that of the system, if it allows another.
#[cfg(all(test, target_os = "linux"))]
pub(crate) fn another() -> String {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap();
    let used = read("tcp_congestion_control");
    let allowed = read("tcp_allowed_congestion_control");
    let other = allowed.split_whitespace().find(|&name| name != used.trim());
    other.unwrap_or("reno").to_owned()
}

/// What a socket has.
#[cfg(all(test, target_os = "linux"))]
pub(crate) fn of(socket: &SockRef<'_>) -> String {
    let name = String::from_utf8(socket.tcp_congestion().unwrap()).unwrap();
    name.trim_end_matches('\0').to_owned()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn what_the_system_lacks_is_refused_with_a_list_of_what_it_allows() {
        // Linux always has and allows it.
        assert!(CongestionControl::named("reno").is_ok());
        for wrong in ["", "renown", "reno\0", "reno\0x", "reno and fifteen octets more"] {
            let refused = CongestionControl::named(wrong);
            let error = refused.err().unwrap_or_else(|| panic!("{wrong:?} was accepted"));
            assert_eq!(error.kind(), ErrorKind::Config);
            let said = error.to_string();
            assert!(said.contains(&format!("{wrong:?} does not exist")), "{said}");
            assert!(said.contains("; the system allows "), "{said}");
            assert!(
                said.ends_with(" (net.ipv4.tcp_allowed_congestion_control)"),
                "{said}"
            );
        }
        let said = refused("cubic", &io::ErrorKind::PermissionDenied.into()).to_string();
        assert!(
            said.contains("the congestion control \"cubic\" is not allowed; the system allows "),
            "{said}"
        );
    }

    #[tokio::test]
    async fn a_setting_that_cannot_be_had_is_an_error_of_both_builders() {
        let client = crate::Client::builder().congestion_control("renown").build();
        let server = crate::Server::builder().congestion_control("renown");
        let server = server.bind("127.0.0.1:0").await;
        for error in [client.err(), server.err()] {
            assert_eq!(error.expect("an error").kind(), ErrorKind::Config);
        }
    }
}
