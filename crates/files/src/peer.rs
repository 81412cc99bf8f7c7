//! The peer of a request, by which shares of jobs and uploads are counted.

use std::net::IpAddr;

use fullbore::server::{PeerAddr, address_group};
use http::Extensions;

/// The [`address_group`] of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Peer(IpAddr);

impl Peer {
    /// The peer, if it is known: from the request, or from the server that is calling the service.
    pub(crate) fn of(extensions: &Extensions) -> Option<Peer> {
        let PeerAddr(address) = extensions.get().copied().or_else(PeerAddr::current)?;
        Some(Peer::at(address.ip()))
    }

    pub(crate) fn at(address: IpAddr) -> Peer {
        Peer(address_group(address))
    }

    /// The first address of the group.
    pub(crate) fn address(self) -> IpAddr {
        self.0
    }
}
