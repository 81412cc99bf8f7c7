//! The peer of a request, by which shares of jobs and uploads are counted.

use std::net::{IpAddr, Ipv6Addr};

use fullbore::server::PeerAddr;
use http::Extensions;

/// An IPv4 address, written as IPv6 or not, or the /64 of an IPv6 address, which a single host usually has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Peer(IpAddr);

impl Peer {
    /// The peer, if it is known: from the request, or from the server that is calling the service.
    pub(crate) fn of(extensions: &Extensions) -> Option<Peer> {
        let PeerAddr(address) = extensions.get().copied().or_else(PeerAddr::current)?;
        Some(Peer::at(address.ip()))
    }

    pub(crate) fn at(address: IpAddr) -> Peer {
        Peer(match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
            v4 => v4,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(address: &str) -> Peer {
        Peer::at(address.parse().unwrap())
    }

    #[test]
    fn an_ipv6_peer_is_its_network_and_a_mapped_address_is_the_one_that_it_maps() {
        assert_eq!(peer("2001:db8:1:2::1"), peer("2001:db8:1:2:ffff::9"));
        assert_ne!(peer("2001:db8:1:2::1"), peer("2001:db8:1:3::1"));
        assert_eq!(peer("::ffff:10.0.0.1"), peer("10.0.0.1"));
        assert_ne!(peer("10.0.0.1"), peer("10.0.0.2"));
    }
}
