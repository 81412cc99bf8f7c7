//! The sockets that `serve` listens on: addresses of IP, Unix sockets, and those that systemd passes.
//!
//! All of them are opened once, by [`open`]. Each runtime then takes its own [`Listener`]s from a [`Place`].

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

#[cfg(unix)]
use super::unix_socket;
#[cfg(unix)]
pub(super) use super::unix_socket::SocketFile;
use crate::args::{ListenAddress, ServerArgs};
use crate::exit::{Exit, Failure};

/// There are no Unix sockets.
#[cfg(not(unix))]
pub(super) type SocketFile = std::convert::Infallible;

/// The port without `--listen` and `--port`.
const DEFAULT_PORT: u16 = 8080;

/// How many connections may wait to be accepted. The system may allow fewer (`net.core.somaxconn`).
const BACKLOG: i32 = 4_096;

/// A socket that listens.
pub(super) struct Place {
    socket: Bound,
    /// As messages name it.
    name: String,
    /// Removed when it is dropped.
    file: Option<SocketFile>,
}

enum Bound {
    /// Each runtime gets a duplicate of it.
    Tcp(TcpListener, SocketAddr),
    /// Each runtime listens on the address with a socket of its own (SO_REUSEPORT), so that the kernel spreads the
    /// connections. This one is for the first runtime. The last field says whether it is for IPv6 alone.
    Shared(TcpListener, SocketAddr, bool),
    #[cfg(unix)]
    Unix(std::os::unix::net::UnixListener),
}

/// The listening socket of one runtime.
pub(super) enum Listener {
    Tcp(tokio::net::TcpListener),
    #[cfg(unix)]
    Unix(tokio::net::UnixListener),
}

/// How sockets are opened.
#[derive(Clone, Copy)]
pub(super) struct Opening {
    /// Whether each runtime has a socket of its own on an address of IP.
    pub(super) shared: bool,
    /// The permissions of Unix sockets.
    #[cfg_attr(not(unix), expect(dead_code, reason = "there are none"))]
    pub(super) mode: u32,
}

/// Opens every address that the options name, those of systemd, or else the default one.
///
/// # Errors
/// A socket cannot be opened.
pub(super) fn open(args: &ServerArgs, opening: Opening) -> Result<Vec<Place>, Failure> {
    let mut wanted = args.listen.clone();
    if args.lan {
        return open_to_all(args.port.unwrap_or(DEFAULT_PORT), opening);
    }
    if let Some(port) = args.port {
        for ip in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
            wanted.push(ListenAddress::Ip(SocketAddr::new(ip, port)));
        }
    }
    let mut places = passed_by_systemd()?;
    if wanted.is_empty() && places.is_empty() {
        let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), DEFAULT_PORT);
        wanted.push(ListenAddress::Ip(address));
    }
    for address in &wanted {
        match open_one(address, &wanted, opening) {
            Ok(opened) => places.extend(opened),
            // `--port` also works on a machine without IPv6.
            Err(CannotOpen::Missing(_)) if !args.listen.contains(address) && !places.is_empty() => {}
            Err(CannotOpen::Missing(failure) | CannotOpen::Other(failure)) => return Err(failure),
        }
    }
    Ok(places)
}

/// Opens every address of this machine, those of IPv4 alone where it has no others.
fn open_to_all(port: u16, opening: Opening) -> Result<Vec<Place>, Failure> {
    let all: [IpAddr; 2] = [Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()];
    let mut missing = None;
    for ip in all {
        match open_ip(SocketAddr::new(ip, port), &[], opening) {
            Ok(place) => return Ok(vec![place]),
            Err(CannotOpen::Missing(failure)) => missing = Some(failure),
            Err(CannotOpen::Other(failure)) => return Err(failure),
        }
    }
    Err(missing.unwrap_or_else(|| Failure::new(Exit::Listen, "this machine has no addresses")))
}

/// Opens one address for one runtime.
///
/// # Errors
/// A socket cannot be opened.
pub(super) fn open_alone(address: &ListenAddress, mode: u32) -> Result<Vec<Place>, Failure> {
    let opening = Opening { shared: false, mode };
    open_one(address, std::slice::from_ref(address), opening).map_err(|error| match error {
        CannotOpen::Missing(failure) | CannotOpen::Other(failure) => failure,
    })
}

impl Place {
    /// As messages name it.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The address, if it is one of IP.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        match &self.socket {
            Bound::Tcp(_, address) | Bound::Shared(_, address, _) => Some(*address),
            #[cfg(unix)]
            Bound::Unix(_) => None,
        }
    }

    /// A listener for another runtime than the first one. Call it in that runtime.
    ///
    /// # Errors
    /// The socket cannot be duplicated, or another one cannot be opened.
    pub(super) fn listener(&self) -> Result<Listener, Failure> {
        let made = match &self.socket {
            Bound::Tcp(socket, _) => socket.try_clone().and_then(Listener::tcp),
            Bound::Shared(_, address, v6_only) => listen_on(*address, *v6_only, true).and_then(Listener::tcp),
            #[cfg(unix)]
            Bound::Unix(socket) => socket.try_clone().and_then(Listener::unix),
        };
        made.map_err(|error| cannot_listen(&self.name, &error))
    }

    /// The listener of the first runtime, and the file of a Unix socket. When the runtimes close their listeners, the system
    /// accepts no more connections.
    pub(super) fn into_listener(self) -> Result<(Listener, Option<SocketFile>), Failure> {
        let made = match self.socket {
            Bound::Tcp(socket, _) | Bound::Shared(socket, ..) => Listener::tcp(socket),
            #[cfg(unix)]
            Bound::Unix(socket) => Listener::unix(socket),
        };
        made.map(|listener| (listener, self.file))
            .map_err(|error| cannot_listen(&self.name, &error))
    }
}

impl Listener {
    fn tcp(socket: TcpListener) -> io::Result<Self> {
        tokio::net::TcpListener::from_std(socket).map(Listener::Tcp)
    }

    #[cfg(unix)]
    fn unix(socket: std::os::unix::net::UnixListener) -> io::Result<Self> {
        tokio::net::UnixListener::from_std(socket).map(Listener::Unix)
    }
}

enum CannotOpen {
    /// This machine does not have the address.
    Missing(Failure),
    Other(Failure),
}

fn open_one(
    address: &ListenAddress,
    all: &[ListenAddress],
    opening: Opening,
) -> Result<Vec<Place>, CannotOpen> {
    match address {
        ListenAddress::Ip(ip) => open_ip(*ip, all, opening).map(|place| vec![place]),
        ListenAddress::Name(host, port) => open_name(host, *port, all, opening),
        #[cfg(unix)]
        ListenAddress::Unix(path) => {
            let (socket, file) = unix_socket::open(path, opening.mode).map_err(CannotOpen::Other)?;
            Ok(vec![Place {
                socket: Bound::Unix(socket),
                name: address.to_string(),
                file: Some(file),
            }])
        }
        #[cfg(not(unix))]
        ListenAddress::Unix(_) => {
            let text = "this system has no Unix sockets; use an address such as 127.0.0.1:8080";
            Err(CannotOpen::Other(Failure::usage(text)))
        }
    }
}

/// Opens every address of a name that this machine has.
fn open_name(
    host: &str,
    port: u16,
    all: &[ListenAddress],
    opening: Opening,
) -> Result<Vec<Place>, CannotOpen> {
    let addresses = (host, port).to_socket_addrs().map_err(|_| {
        let text = format!(
            "cannot listen on {host}:{port}: the host name does not resolve; use an address, such as 127.0.0.1:{port} or \
             [::]:{port}"
        );
        CannotOpen::Other(Failure::new(Exit::Listen, text))
    })?;
    let mut places: Vec<Place> = Vec::new();
    let mut missing = None;
    for mut address in addresses {
        // All of them have the port that the first one has got.
        if let Some(first) = places.first().and_then(Place::address) {
            address.set_port(first.port());
        }
        if places.iter().any(|place| place.address() == Some(address)) {
            continue;
        }
        match open_ip(address, all, opening) {
            Ok(place) => places.push(place),
            Err(CannotOpen::Missing(failure)) => missing = Some(CannotOpen::Missing(failure)),
            Err(error) => return Err(error),
        }
    }
    match missing {
        Some(missing) if places.is_empty() => Err(missing),
        _ => Ok(places),
    }
}

fn open_ip(address: SocketAddr, all: &[ListenAddress], opening: Opening) -> Result<Place, CannotOpen> {
    // `[::]` takes the connections of IPv4 too, unless another socket is for these.
    let v6_only = all.iter().any(|other| match other {
        ListenAddress::Ip(other) => other.is_ipv4() && other.port() == address.port() && other.port() != 0,
        _ => false,
    });
    let name = address.to_string();
    match bind(address, v6_only, opening.shared) {
        Ok((socket, address)) => Ok(Place {
            socket,
            name: address.to_string(),
            file: None,
        }),
        Err(error) if is_missing(&error) => Err(CannotOpen::Missing(cannot_listen(&name, &error))),
        Err(error) => Err(CannotOpen::Other(cannot_listen(&name, &error))),
    }
}

/// Returns the address too, in which port 0 has become a free one.
fn bind(address: SocketAddr, v6_only: bool, shared: bool) -> io::Result<(Bound, SocketAddr)> {
    // First without SO_REUSEPORT, which would silently share the port with another program.
    let socket = listen_on(address, v6_only, false)?;
    let address = socket.local_addr()?;
    if !shared {
        return Ok((Bound::Tcp(socket, address), address));
    }
    drop(socket);
    let socket = listen_on(address, v6_only, true)?;
    Ok((Bound::Shared(socket, address, v6_only), address))
}

fn listen_on(address: SocketAddr, v6_only: bool, shared: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        socket.set_only_v6(v6_only)?;
    }
    // Elsewhere it would let another program take the port.
    #[cfg(unix)]
    socket.set_reuse_address(true)?;
    #[cfg(target_os = "linux")]
    if shared {
        socket.set_reuse_port(true)?;
    }
    #[cfg(not(target_os = "linux"))]
    let _ = shared;
    socket.set_nonblocking(true)?;
    socket.bind(&SockAddr::from(address))?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// The sockets that systemd passes to this process (`LISTEN_FDS`), whatever their addresses.
#[cfg(unix)]
fn passed_by_systemd() -> Result<Vec<Place>, Failure> {
    let mut passed = listenfd::ListenFd::from_env();
    let mut places = Vec::new();
    for index in 0..passed.len() {
        let place = passed_place(&mut passed, index).map_err(|error| {
            let text = format!(
                "cannot listen on socket {} of those that systemd passes: {error}; use ListenStream= in the socket unit",
                index + 1
            );
            Failure::new(Exit::Listen, text)
        })?;
        places.extend(place);
    }
    Ok(places)
}

#[cfg(unix)]
fn passed_place(passed: &mut listenfd::ListenFd, index: usize) -> io::Result<Option<Place>> {
    let (socket, name) = match passed.take_tcp_listener(index) {
        Ok(None) => return Ok(None),
        Ok(Some(socket)) => {
            socket.set_nonblocking(true)?;
            let address = socket.local_addr()?;
            (Bound::Tcp(socket, address), address.to_string())
        }
        // It stays where it was when it is not one of TCP.
        Err(_) => {
            let Some(socket) = passed.take_unix_listener(index)? else {
                return Ok(None);
            };
            socket.set_nonblocking(true)?;
            let address = socket.local_addr()?;
            let path = address.as_pathname();
            let name = path.map_or("a socket of systemd".to_owned(), |path| {
                format!("unix:{}", path.display())
            });
            (Bound::Unix(socket), name)
        }
    };
    Ok(Some(Place {
        socket,
        name,
        file: None,
    }))
}

#[cfg(not(unix))]
fn passed_by_systemd() -> Result<Vec<Place>, Failure> {
    Ok(Vec::new())
}

/// Whether this machine does not have the address, or the version of IP.
fn is_missing(error: &io::Error) -> bool {
    #[cfg(unix)]
    if error.raw_os_error() == Some(libc::EAFNOSUPPORT) {
        return true;
    }
    error.kind() == io::ErrorKind::AddrNotAvailable
}

fn cannot_listen(name: &str, error: &io::Error) -> Failure {
    let text = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "another program listens there; stop it, or use another port with -p or another address with --listen, such as \
             127.0.0.1:0 for any free port"
                .to_owned()
        }
        _ if is_missing(error) => {
            "this machine does not have the address; 0.0.0.0 stands for all its addresses of IPv4, and [::] for all of both \
             versions"
                .to_owned()
        }
        io::ErrorKind::PermissionDenied => {
            "the system does not allow it; ports below 1024 need a privilege, so use a higher port or a socket of systemd"
                .to_owned()
        }
        _ => format!("{error}; use another address with --listen"),
    };
    Failure::new(Exit::Listen, format!("cannot listen on {name}: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(addresses: &[&str]) -> Vec<Place> {
        let all: Vec<ListenAddress> = addresses.iter().map(|text| text.parse().unwrap()).collect();
        let opening = Opening {
            shared: false,
            mode: 0o600,
        };
        let places = all.iter().map(|address| open_one(address, &all, opening));
        places
            .flat_map(|places| match places {
                Ok(places) => places,
                Err(CannotOpen::Missing(failure) | CannotOpen::Other(failure)) => panic!("{failure}"),
            })
            .collect()
    }

    #[test]
    fn all_addresses_of_a_name_have_the_same_port() {
        let places = opened(&["localhost:0"]);
        let ports: Vec<u16> = places
            .iter()
            .map(|place| place.address().unwrap().port())
            .collect();
        assert!(!ports.is_empty() && ports[0] != 0);
        assert!(ports.iter().all(|port| *port == ports[0]), "{ports:?}");
    }

    #[test]
    fn every_address_of_ipv6_takes_ipv4_too_unless_that_has_a_socket_of_its_own() {
        let Ok(free) = TcpListener::bind("[::]:0") else {
            // No IPv6 here.
            return;
        };
        drop(free);
        let both = opened(&["[::]:0"]);
        let port = both[0].address().unwrap().port();
        assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        drop(both);
        let (all, v4) = (format!("[::]:{port}"), format!("127.0.0.1:{port}"));
        let places = opened(&[&all, &v4]);
        let names: Vec<&str> = places.iter().map(Place::name).collect();
        assert_eq!(names, [&all, &v4]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_address_of_one_runtime_is_shared_with_no_other_program() {
        let places = open_alone(&"127.0.0.1:0".parse().unwrap(), 0o600).unwrap();
        let other = listen_on(places[0].address().unwrap(), false, true);
        assert_eq!(
            other.err().map(|error| error.kind()),
            Some(io::ErrorKind::AddrInUse)
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn two_thousand_clients_may_connect_before_one_is_accepted() {
        let most = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
        if most.trim().parse::<u32>().unwrap() < 2_000 {
            return;
        }
        for shared in [false, true] {
            let listener = listen_on(SocketAddr::from(([127, 0, 0, 1], 0)), false, shared).unwrap();
            let address = listener.local_addr().unwrap();
            for _ in 0..2_000 {
                // A SYN beyond the backlog has no answer until one is accepted.
                std::net::TcpStream::connect_timeout(&address, std::time::Duration::from_secs(30)).unwrap();
            }
        }
    }

    #[test]
    fn an_address_that_the_machine_does_not_have_is_told_from_a_port_that_is_taken() {
        let opening = Opening {
            shared: false,
            mode: 0o600,
        };
        // TEST-NET-1, RFC 5737.
        let missing: ListenAddress = "192.0.2.1:0".parse().unwrap();
        assert!(matches!(
            open_one(&missing, &[], opening),
            Err(CannotOpen::Missing(_))
        ));
        let holder = TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = ListenAddress::Ip(holder.local_addr().unwrap());
        match open_one(&taken, &[], opening) {
            Err(CannotOpen::Other(failure)) => {
                assert_eq!(failure.exit, Exit::Listen);
                assert!(failure.message.contains("another program"), "{failure}");
            }
            _ => panic!("the port was not held"),
        }
    }
}
