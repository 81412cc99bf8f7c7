//! `serve --trusted-proxy`: the address of a client behind a reverse proxy. Limits, passwords and the log take it for the peer's.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};

use fullbore::Incoming;
use fullbore::server::PeerAddr;
use fullbore_files::{Log, LogBody, LogFuture};
use http::{HeaderMap, HeaderName, Request, Response};
use ipnet::IpNet;
use tower_service::Service;

use super::answer::SiteFuture;
use super::body::SiteBody;
use super::site::Site;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The most addresses of a request that are looked at: there are few proxies in a row.
const MOST_ADDRESSES: usize = 32;

/// A site, and the proxies in front of it.
#[derive(Clone)]
pub(super) struct Behind {
    site: Log<Site>,
    trusted: Option<Arc<[IpNet]>>,
}

impl Behind {
    pub(super) fn new(site: Log<Site>, trusted: Option<Arc<[IpNet]>>) -> Self {
        Self { site, trusted }
    }
}

impl Service<Request<Incoming>> for Behind {
    type Response = Response<LogBody<SiteBody>>;
    type Error = Infallible;
    type Future = LogFuture<SiteFuture>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // The sites are always ready.
        Poll::Ready(Ok(()))
    }

    #[inline]
    fn call(&mut self, request: Request<Incoming>) -> LogFuture<SiteFuture> {
        match &self.trusted {
            None => self.site.call(request),
            Some(trusted) => self.site.call(with_client(request, trusted)),
        }
    }
}

/// The request with the address of its client, if the peer is a proxy that is trusted.
fn with_client(mut request: Request<Incoming>, trusted: &[IpNet]) -> Request<Incoming> {
    let peer = PeerAddr::current().map(|PeerAddr(address)| address.ip());
    if let Some(client) = client(request.headers(), peer, trusted) {
        request
            .extensions_mut()
            .insert(PeerAddr(SocketAddr::new(client, 0)));
    }
    request
}

/// The last address of `x-forwarded-for` that is no trusted proxy: what comes before it is what that one says. `None` if the peer is
/// not trusted, or has said nothing. The peer of a Unix socket has no address, and is trusted: its folder has permissions.
fn client(fields: &HeaderMap, peer: Option<IpAddr>, trusted: &[IpNet]) -> Option<IpAddr> {
    let is_trusted = |address: &IpAddr| {
        let address = address.to_canonical();
        trusted.iter().any(|network| network.contains(&address))
    };
    if !peer.as_ref().is_none_or(is_trusted) {
        return None;
    }
    let lines = fields.get_all(FORWARDED_FOR).iter().rev();
    let members = lines.flat_map(|line| line.as_bytes().rsplit(|octet| *octet == b','));
    let mut found = None;
    for member in members.take(MOST_ADDRESSES) {
        // What is no address may be anything.
        let Some(address) = address(member) else { break };
        found = Some(address);
        if !is_trusted(&address) {
            break;
        }
    }
    found
}

/// An address, with or without a port.
fn address(member: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(member).ok()?.trim();
    let with_port = || text.parse().ok().map(|address: SocketAddr| address.ip());
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    bare.unwrap_or(text).parse().ok().or_else(with_port)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_client_is_the_last_one_that_is_no_trusted_proxy() {
        let trusted: Vec<IpNet> = ["127.0.0.1/32", "10.0.0.0/8", "2001:db8::/32"]
            .iter()
            .map(|network| network.parse().unwrap())
            .collect();
        for (peer, lines, expected) in [
            (Some("127.0.0.1"), &["192.0.2.7"][..], Some("192.0.2.7")),
            (Some("::ffff:127.0.0.1"), &["192.0.2.7:4711"], Some("192.0.2.7")),
            (
                Some("127.0.0.1"),
                &["6.6.6.6, 192.0.2.7, 10.1.2.3"],
                Some("192.0.2.7"),
            ),
            (
                Some("127.0.0.1"),
                &["6.6.6.6", "192.0.2.7", "10.1.2.3"],
                Some("192.0.2.7"),
            ),
            (Some("10.0.0.1"), &["[2001:4::1]:443"], Some("2001:4::1")),
            (Some("10.0.0.1"), &["[2001:4::1]"], Some("2001:4::1")),
            (Some("10.0.0.1"), &["2001:4::1,2001:db8::1"], Some("2001:4::1")),
            // All are proxies: the first one sent it itself.
            (Some("127.0.0.1"), &["10.1.1.1, 10.2.2.2"], Some("10.1.1.1")),
            (
                Some("127.0.0.1"),
                &["6.6.6.6, unknown, 10.2.2.2"],
                Some("10.2.2.2"),
            ),
            (Some("127.0.0.1"), &["unknown"], None),
            (Some("127.0.0.1"), &[], None),
            // Nobody else is believed.
            (Some("192.0.2.9"), &["192.0.2.7"], None),
            (None, &["192.0.2.7"], Some("192.0.2.7")),
        ] {
            let mut fields = HeaderMap::new();
            for line in lines {
                fields.append(FORWARDED_FOR, HeaderValue::from_static(line));
            }
            let peer = peer.map(|peer| peer.parse().unwrap());
            let expected = expected.map(|expected| expected.parse().unwrap());
            assert_eq!(client(&fields, peer, &trusted), expected, "{peer:?} {lines:?}");
        }
    }
}
