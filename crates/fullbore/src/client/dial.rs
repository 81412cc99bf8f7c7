//! From a host name to a TCP connection: name resolution, and attempts to several addresses that race (RFC 8305).

use std::collections::HashMap;
use std::fmt::Write;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpSocket, TcpStream};

use crate::congestion::CongestionControl;
use crate::error::{Error, ErrorKind};
use crate::settings::TcpBuffers;

/// How long an attempt has before the next address is tried beside it (RFC 8305 section 5: the Connection Attempt
/// Delay, for which it recommends this value).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// How often the kernel probes a silent peer, and how many probes it sends before it ends the connection. Together they
/// take a minute, as long as an HTTP/2 peer has to answer a PING. Other systems have their own values.
#[cfg(any(target_os = "linux", target_os = "macos", target_os = "windows"))]
const PROBES: (Duration, u32) = (Duration::from_secs(10), 6);

/// The addresses of a host that a client connects to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressFamily {
    /// All: the families take turns (RFC 8305).
    #[default]
    Any,
    /// Those of IPv4.
    V4,
    /// Those of IPv6.
    V6,
}

impl AddressFamily {
    fn has(self, address: IpAddr) -> bool {
        match self {
            AddressFamily::Any => true,
            AddressFamily::V4 => address.is_ipv4(),
            AddressFamily::V6 => address.is_ipv6(),
        }
    }

    fn name(self) -> &'static str {
        match self {
            AddressFamily::Any => "",
            AddressFamily::V4 => "IPv4 ",
            AddressFamily::V6 => "IPv6 ",
        }
    }
}

/// Opens TCP connections.
#[derive(Debug, Clone, Default)]
pub(super) struct Dialer {
    pub(super) tcp: TcpOptions,
    pub(super) family: AddressFamily,
    /// The addresses that the caller gave for a host, in lower case, and a port. An empty host stands for all.
    pub(super) fixed: HashMap<(String, u16), Vec<IpAddr>>,
}

/// The options of a TCP connection.
#[derive(Debug, Clone, Default)]
pub(super) struct TcpOptions {
    pub(super) buffers: TcpBuffers,
    pub(super) congestion_control: Option<CongestionControl>,
    /// The silence after which the kernel probes the peer.
    pub(super) keep_alive: Option<Duration>,
}

impl TcpOptions {
    async fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let Some(control) = &self.congestion_control else {
            return TcpStream::connect(address).await;
        };
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        control.apply(&SockRef::from(&socket))?;
        socket.connect(address).await
    }

    /// Errors of the system are ignored.
    fn apply(&self, stream: &TcpStream) {
        self.buffers.apply(stream);
        let Some(silence) = self.keep_alive else { return };
        let probes = TcpKeepalive::new().with_time(silence);
        #[cfg(any(target_os = "linux", target_os = "macos", target_os = "windows"))]
        let probes = probes.with_interval(PROBES.0).with_retries(PROBES.1);
        let _ = SockRef::from(stream).set_tcp_keepalive(&probes);
    }
}

impl Dialer {
    /// Connects to the first address of the host that accepts.
    ///
    /// # Errors
    /// The name does not resolve, or no address accepts. Then the error says why for each of them.
    pub(super) async fn dial(&self, host: &str, port: u16) -> Result<TcpStream, Error> {
        let addresses = self.resolve(host, port).await?;
        let connected = race(interleave(addresses), |address| self.tcp.connect(address)).await;
        let stream = connected.map_err(|failures| not_connected(host, failures))?;
        self.tcp.apply(&stream);
        Ok(stream)
    }

    /// The addresses of a host. There is at least one.
    pub(super) async fn resolve(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, Error> {
        let mut addresses = match self.fixed(host, port) {
            Some(fixed) => fixed.iter().map(|&address| (address, port).into()).collect(),
            None => look_up(host, port).await?,
        };
        addresses.retain(|address| self.family.has(address.ip()));
        match addresses.is_empty() {
            false => Ok(addresses),
            true => {
                let text = format!("{host} has no {}address", self.family.name());
                Err(Error::new(ErrorKind::Resolve, text))
            }
        }
    }

    fn fixed(&self, host: &str, port: u16) -> Option<&Vec<IpAddr>> {
        if self.fixed.is_empty() {
            return None;
        }
        let named = self.fixed.get(&(host.to_ascii_lowercase(), port));
        named.or_else(|| self.fixed.get(&(String::new(), port)))
    }
}

async fn look_up(host: &str, port: u16) -> Result<Vec<SocketAddr>, Error> {
    if is_localhost(host) {
        return Ok(vec![
            (Ipv6Addr::LOCALHOST, port).into(),
            (Ipv4Addr::LOCALHOST, port).into(),
        ]);
    }
    let resolved = tokio::net::lookup_host((host, port)).await;
    let addresses = resolved.map_err(|error| Error::with_source(ErrorKind::Resolve, host, error))?;
    Ok(addresses.collect())
}

/// Whether a name means the loopback addresses on every system (RFC 6761 section 6.3).
fn is_localhost(host: &str) -> bool {
    let name = host.strip_suffix('.').unwrap_or(host);
    let last = name.rsplit('.').next();
    last.is_some_and(|label| label.eq_ignore_ascii_case("localhost"))
}

/// Lets the families take turns. The system's order within each stays, and the family of its first address begins
/// (RFC 8305 section 4).
fn interleave(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let first_is_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (first, second): (Vec<_>, Vec<_>) = addresses
        .into_iter()
        .partition(|address| address.is_ipv6() == first_is_v6);
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let mut mixed = Vec::new();
    loop {
        let turn = [first.next(), second.next()];
        if turn == [None, None] {
            return mixed;
        }
        mixed.extend(turn.into_iter().flatten());
    }
}

/// Tries the addresses in order: the next one when an attempt fails, or has taken [`ATTEMPT_DELAY`]. The first that
/// succeeds ends the others.
async fn race<T, F>(
    addresses: Vec<SocketAddr>,
    attempt: impl Fn(SocketAddr) -> F,
) -> Result<T, Vec<(SocketAddr, io::Error)>>
where
    F: Future<Output = io::Result<T>>,
{
    let mut left = addresses.into_iter();
    let mut attempts = FuturesUnordered::new();
    let mut failures = Vec::new();
    loop {
        match left.next() {
            Some(address) => {
                let attempt = attempt(address);
                attempts.push(async move { (address, attempt.await) });
            }
            None if attempts.is_empty() => return Err(failures),
            None => {}
        }
        tokio::select! {
            biased;
            Some((address, ended)) = attempts.next() => match ended {
                Ok(connected) => return Ok(connected),
                Err(error) => failures.push((address, error)),
            },
            () = tokio::time::sleep(ATTEMPT_DELAY), if left.len() > 0 => {}
        }
    }
}

/// The last failure is the source of the error. The others stand in its text.
fn not_connected(host: &str, mut failures: Vec<(SocketAddr, io::Error)>) -> Error {
    let Some((last, error)) = failures.pop() else {
        return Error::new(ErrorKind::Resolve, format!("{host} has no address"));
    };
    // An address is not said twice.
    let is_address = host.trim_matches(['[', ']']).parse() == Ok(last.ip());
    let mut text = match is_address {
        true => String::new(),
        false => format!("{host} at "),
    };
    for (address, error) in failures {
        let _ = write!(text, "{address} ({error}), ");
    }
    let _ = write!(text, "{last}");
    Error::with_source(ErrorKind::Connect, text, error)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::error::Error as _;
    use std::io::ErrorKind::{ConnectionRefused, NetworkUnreachable, TimedOut};

    use tokio::time::{Instant, sleep};

    use super::*;

    /// When an attempt ends, in milliseconds, and how.
    type Outcome = (u64, Result<(), io::ErrorKind>);

    /// What each attempt did: when it began, in milliseconds, and to which address.
    type Begun = Vec<(u128, SocketAddr)>;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    /// Races the addresses 10.0.0.1, 10.0.0.2 and so on, with an outcome for each.
    async fn run(outcomes: &[Outcome]) -> (Result<SocketAddr, Vec<io::ErrorKind>>, Begun, u128) {
        let begun = RefCell::new(Begun::new());
        let start = Instant::now();
        let addresses: Vec<SocketAddr> = (1..=outcomes.len())
            .map(|number| format!("10.0.0.{number}:80").parse().unwrap())
            .collect();
        let raced = race(addresses, |address| {
            let mut begun = begun.borrow_mut();
            let (takes, outcome) = outcomes[begun.len()];
            begun.push((start.elapsed().as_millis(), address));
            async move {
                sleep(Duration::from_millis(takes)).await;
                outcome.map(|()| address).map_err(Into::into)
            }
        });
        let raced = raced.await;
        let kinds =
            |failures: Vec<(SocketAddr, io::Error)>| failures.iter().map(|(_, error)| error.kind()).collect();
        (
            raced.map_err(kinds),
            begun.into_inner(),
            start.elapsed().as_millis(),
        )
    }

    fn begins(begun: &Begun) -> Vec<u128> {
        begun.iter().map(|(at, _)| *at).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_answers_within_250_ms_is_the_only_one_that_is_tried() {
        let (raced, begun, took) = run(&[(249, Ok(())), (0, Ok(()))]).await;
        assert_eq!(raced, Ok(addresses(&["10.0.0.1:80"])[0]));
        assert_eq!((begins(&begun), took), (vec![0], 249));
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_address_delays_the_next_one_by_250_ms() {
        let silent = (1_000_000, Err(TimedOut));
        let (raced, begun, took) = run(&[silent, silent, (40, Ok(())), (0, Ok(()))]).await;
        assert_eq!(raced, Ok(addresses(&["10.0.0.3:80"])[0]));
        assert_eq!((begins(&begun), took), (vec![0, 250, 500], 540));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_address_wins_if_it_is_the_first_to_accept() {
        let (raced, begun, took) = run(&[(300, Ok(())), (100, Ok(()))]).await;
        assert_eq!(raced, Ok(addresses(&["10.0.0.1:80"])[0]));
        assert_eq!((begins(&begun), took), (vec![0, 250], 300));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_starts_the_next_attempt_at_once() {
        let (raced, begun, took) = run(&[
            (10, Err(ConnectionRefused)),
            (1_000_000, Err(TimedOut)),
            (20, Err(NetworkUnreachable)),
            (5, Ok(())),
        ])
        .await;
        assert_eq!(raced, Ok(addresses(&["10.0.0.4:80"])[0]));
        // The third begins 250 ms after the second, and its failure starts the fourth.
        assert_eq!((begins(&begun), took), (vec![0, 10, 260, 280], 285));
    }

    #[tokio::test(start_paused = true)]
    async fn when_no_address_accepts_every_failure_is_reported() {
        let (raced, begun, took) = run(&[
            (400, Err(ConnectionRefused)),
            (20, Err(NetworkUnreachable)),
            (600, Err(TimedOut)),
        ])
        .await;
        assert_eq!(raced, Err(vec![NetworkUnreachable, ConnectionRefused, TimedOut]));
        assert_eq!((begins(&begun), took), (vec![0, 250, 270], 870));
        assert_eq!(run(&[]).await.0, Err(vec![]));
    }

    #[test]
    fn families_take_turns_and_the_one_that_the_system_prefers_begins() {
        let mixed = interleave(addresses(&[
            "[2001:db8::1]:1",
            "[2001:db8::2]:1",
            "[2001:db8::3]:1",
            "192.0.2.1:1",
            "192.0.2.2:1",
        ]));
        let expected = [
            "[2001:db8::1]:1",
            "192.0.2.1:1",
            "[2001:db8::2]:1",
            "192.0.2.2:1",
            "[2001:db8::3]:1",
        ];
        assert_eq!(mixed, addresses(&expected));
        let mixed = interleave(addresses(&["192.0.2.1:1", "192.0.2.2:1", "[2001:db8::1]:1"]));
        assert_eq!(
            mixed,
            addresses(&["192.0.2.1:1", "[2001:db8::1]:1", "192.0.2.2:1"])
        );
        assert_eq!(interleave(Vec::new()), []);
    }

    #[tokio::test]
    async fn localhost_is_both_loopback_addresses_and_names_below_it_too() {
        for name in ["localhost", "LocalHost.", "app.localhost"] {
            let resolved = Dialer::default().resolve(name, 80).await.unwrap();
            assert_eq!(resolved, addresses(&["[::1]:80", "127.0.0.1:80"]), "{name}");
        }
        for name in ["localhost.example", "notlocalhost", ""] {
            assert!(!is_localhost(name), "{name}");
        }
    }

    #[tokio::test]
    async fn a_family_leaves_out_the_addresses_of_the_other_one_and_says_when_none_is_left() {
        let dialer = |family| Dialer {
            family,
            ..Dialer::default()
        };
        let resolved = dialer(AddressFamily::V4).resolve("localhost", 80).await;
        assert_eq!(resolved.unwrap(), addresses(&["127.0.0.1:80"]));
        let resolved = dialer(AddressFamily::V6).resolve("localhost", 80).await;
        assert_eq!(resolved.unwrap(), addresses(&["[::1]:80"]));
        let resolved = dialer(AddressFamily::V6).resolve("127.0.0.1", 80).await;
        let error = resolved.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Resolve);
        assert!(
            error.to_string().ends_with("127.0.0.1 has no IPv6 address"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn addresses_that_the_caller_gives_take_the_place_of_name_resolution() {
        let mut dialer = Dialer::default();
        let given: Vec<IpAddr> = vec!["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()];
        dialer.fixed.insert(("name.invalid".to_owned(), 80), given);
        dialer
            .fixed
            .insert((String::new(), 81), vec!["192.0.2.2".parse().unwrap()]);
        let resolved = dialer.resolve("Name.Invalid", 80).await.unwrap();
        assert_eq!(resolved, addresses(&["192.0.2.1:80", "[2001:db8::1]:80"]));
        let resolved = dialer.resolve("other.invalid", 81).await.unwrap();
        assert_eq!(resolved, addresses(&["192.0.2.2:81"]));
        let other_port = dialer.resolve("name.invalid", 443).await.unwrap_err();
        assert_eq!(other_port.kind(), ErrorKind::Resolve);
    }

    #[test]
    fn an_error_names_each_address_with_its_failure_and_repeats_none() {
        let failures = addresses(&["[::1]:8080", "127.0.0.1:8080"]).into_iter();
        let failures = failures.zip([NetworkUnreachable, ConnectionRefused].map(io::Error::from));
        let error = not_connected("localhost", failures.collect());
        assert_eq!(error.kind(), ErrorKind::Connect);
        assert_eq!(
            error.to_string(),
            "cannot connect: localhost at [::1]:8080 (network unreachable), 127.0.0.1:8080"
        );
        assert_eq!(error.source().unwrap().to_string(), "connection refused");
        for (host, address) in [("192.0.2.1", "192.0.2.1:80"), ("[::1]", "[::1]:80")] {
            let failures = addresses(&[address]).into_iter();
            let failures = failures.map(|address| (address, ConnectionRefused.into()));
            let error = not_connected(host, failures.collect());
            assert_eq!(error.to_string(), format!("cannot connect: {address}"));
        }
        assert_eq!(
            not_connected("example.com", Vec::new()).kind(),
            ErrorKind::Resolve
        );
    }

    #[tokio::test]
    async fn a_connection_to_a_name_with_one_dead_address_is_made_with_its_options() {
        // Nothing listens on the same port of ::1.
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut dialer = Dialer::default();
        dialer.tcp.keep_alive = Some(Duration::from_secs(60));
        let stream = dialer.dial("localhost", port).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), listener.local_addr().unwrap());
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap() && stream.nodelay().unwrap());
        #[cfg(target_os = "linux")]
        {
            assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(60));
            let probes = (socket.tcp_keepalive_interval(), socket.tcp_keepalive_retries());
            assert_eq!((probes.0.unwrap(), probes.1.unwrap()), PROBES);
        }
        dialer.tcp.keep_alive = None;
        let stream = dialer.dial("127.0.0.1", port).await.unwrap();
        assert!(!SockRef::from(&stream).keepalive().unwrap());
        #[cfg(target_os = "linux")]
        {
            let another = crate::congestion::another();
            dialer.tcp.congestion_control = CongestionControl::named(&another).ok();
            let stream = dialer.dial("localhost", port).await.unwrap();
            assert_eq!(crate::congestion::of(&SockRef::from(&stream)), another);
        }
    }
}
