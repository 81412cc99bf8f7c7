//! How other devices reach a server: the addresses of this machine, as URLs to type and as a QR code.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

use qrcode::QrCode;
use qrcode::render::unicode::Dense1x2;

/// The most addresses that are printed: a host of many containers has hundreds.
const MOST: usize = 8;

/// The addresses of this machine that other devices may reach, those of IPv4 first: they are shorter to type. The first of all
/// is that of the default route, if it has one. None of a
/// single link (fe80::), which a URL cannot name in browsers.
pub(super) fn addresses() -> Vec<IpAddr> {
    // Without them the server works all the same.
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let found = interfaces.iter().map(if_addrs::Interface::ip);
    let mut found: Vec<IpAddr> = found
        .filter(|ip| !ip.is_loopback() && !is_link_local(*ip))
        .collect();
    let usual = usual_address();
    // Bridges of containers and virtual machines have addresses too, which no other device reaches.
    found.sort_by_key(|ip| (ip.is_ipv6(), Some(*ip) != usual));
    found.dedup();
    found.truncate(MOST);
    found
}

/// The address of IPv4 from which this machine reaches others: that of its default route. Nothing is sent.
fn usual_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // An address for documentation (RFC 5737), and the port to which nothing listens.
    socket.connect(("192.0.2.1", 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// The URLs under which other devices reach a server that listens there; none for one that listens on this machine alone.
/// `path` is that of the only file, or `/`.
pub(super) fn urls(scheme: &str, listening: SocketAddr, addresses: &[IpAddr], path: &str) -> Vec<String> {
    let ip = listening.ip();
    let is_reached = |address: &&IpAddr| match ip.is_unspecified() {
        // `[::]` takes the connections of IPv4 too.
        true => ip.is_ipv6() || address.is_ipv4(),
        false => **address == ip,
    };
    let url = |address: &IpAddr| format!("{scheme}://{}{path}", SocketAddr::new(*address, listening.port()));
    addresses.iter().filter(is_reached).map(url).collect()
}

/// What to print for people beside these URLs.
pub(super) fn sentence(urls: &[String]) -> Option<String> {
    (!urls.is_empty()).then(|| format!("other devices reach it at:\n  {}", urls.join("\n  ")))
}

/// A QR code of a URL, as lines of half blocks; `None` for a URL that no code can hold.
pub(super) fn code(url: &str) -> Option<String> {
    let code = QrCode::new(url).ok()?;
    // A code is dark on light, and most terminals are light on dark.
    let mut drawn = code.render::<Dense1x2>();
    Some(
        drawn
            .dark_color(Dense1x2::Light)
            .light_color(Dense1x2::Dark)
            .build(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_on_all_addresses_is_reached_at_each_and_one_of_ipv4_at_these_alone() {
        let addresses: [IpAddr; 2] = ["192.0.2.7".parse().unwrap(), "2001:db8::7".parse().unwrap()];
        let of = |listening: &str| urls("http", listening.parse().unwrap(), &addresses, "/");
        let (four, six) = ("http://192.0.2.7:8080/", "http://[2001:db8::7]:8080/");
        assert_eq!(of("[::]:8080"), [four, six]);
        assert_eq!(of("0.0.0.0:8080"), [four]);
        assert_eq!(of("192.0.2.7:8080"), [four]);
        assert!(of("127.0.0.1:8080").is_empty() && of("198.51.100.1:8080").is_empty());
        let of_file = urls("http", "0.0.0.0:8080".parse().unwrap(), &addresses, "/a%20b.iso");
        assert_eq!(of_file, ["http://192.0.2.7:8080/a%20b.iso"]);
        assert_eq!(sentence(&[]), None);
        assert!(sentence(&of("[::]:8080")).is_some_and(|text| text.ends_with(six)));
    }

    #[test]
    fn the_address_of_the_default_route_is_the_first() {
        let found = addresses();
        let usual = usual_address().filter(|ip| found.contains(ip));
        assert!(
            usual.is_none_or(|usual| found.first() == Some(&usual)),
            "{found:?}"
        );
        assert!(found.is_sorted_by_key(IpAddr::is_ipv6) && found.len() <= MOST);
    }

    #[test]
    fn a_code_is_a_square_of_half_blocks_with_a_border() {
        let code = code("http://192.0.2.7:8080/").unwrap();
        let lines: Vec<&str> = code.lines().collect();
        let width = lines[0].chars().count();
        // Version 2 has 25 modules, and a border of 4 on each side.
        assert_eq!((width, lines.len()), (33, 17));
        assert!(lines.iter().all(|line| line.chars().count() == width));
        assert!(lines[0].chars().all(|block| block == '█'), "{code}");
        assert!(super::code(&"x".repeat(8_000)).is_none());
    }
}
