//! What the requests of a connection carry in their extensions: the peer's address, and what a hook of the caller's adds.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use fullbore_proto::Report;
use http::{Extensions, Request, StatusCode, Version};
use http_body::Body;
use tower_service::Service;

use crate::body::Incoming;
use crate::error::Error;

/// The peer's address, in the extensions of requests if the server
/// [adds it](crate::ServerBuilder::peer_addresses).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PeerAddr(pub SocketAddr);

thread_local! {
    /// The peer whose request this thread passes to a service.
    static CALLER: Cell<Option<SocketAddr>> = const { Cell::new(None) };
}

/// While this lives, [`PeerAddr::current`] returns its address. A service may panic.
struct Calling;

impl Calling {
    fn of(address: Option<SocketAddr>) -> Self {
        CALLER.set(address);
        Calling
    }
}

impl Drop for Calling {
    fn drop(&mut self) {
        CALLER.set(None);
    }
}

impl PeerAddr {
    /// The peer whose request a [`Server`](crate::Server) passes to a service on this thread. Call it in
    /// [`Service::call`], before that returns. Unlike [`ServerBuilder::peer_addresses`] it costs nothing for each
    /// request. `None` for a peer without an IP address, as on a Unix socket.
    ///
    /// [`ServerBuilder::peer_addresses`]: crate::ServerBuilder::peer_addresses
    pub fn current() -> Option<PeerAddr> {
        CALLER.get().map(PeerAddr)
    }
}

/// A connection that was accepted, for [`ServerBuilder::on_connect`](crate::ServerBuilder::on_connect).
#[derive(Debug)]
pub struct Accepted<'a> {
    pub(super) peer: Option<SocketAddr>,
    pub(super) local: Option<SocketAddr>,
    pub(super) io: &'a dyn Any,
    #[cfg(feature = "tls")]
    pub(super) tls: Option<&'a tokio_rustls::rustls::ServerConnection>,
}

impl<'a> Accepted<'a> {
    /// The peer's address, if it is one of IP.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// The address that the peer has connected to, if it is an IP address.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.local
    }

    /// What the listener accepted, if it is a `T`: a [`tokio::net::UnixStream`], say, which knows the credentials of its peer.
    /// Over TLS it is the transport below. The server reads and writes it, so only ask it for properties.
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// #[derive(Clone)]
    /// struct UserId(u32);
    ///
    /// let builder = fullbore::Server::builder().on_connect(|connection, extensions| {
    ///     let io = connection.io::<tokio::net::UnixStream>();
    ///     if let Some(Ok(peer)) = io.map(|io| io.peer_cred()) {
    ///         extensions.insert(UserId(peer.uid()));
    ///     }
    /// });
    /// # }
    /// ```
    pub fn io<T: 'static>(&self) -> Option<&'a T> {
        self.io.downcast_ref()
    }

    /// The TLS session after its handshake, with the client's certificates, its server name and the negotiated protocol.
    #[cfg(feature = "tls")]
    pub fn tls(&self) -> Option<&'a tokio_rustls::rustls::ServerConnection> {
        self.tls
    }
}

/// Fills what each request of a connection has in its extensions.
#[derive(Clone)]
pub(super) struct OnConnect(pub(super) Arc<Hook>);

type Hook = dyn Fn(&Accepted<'_>, &mut Extensions) + Send + Sync;

impl OnConnect {
    pub(super) fn extensions(&self, accepted: &Accepted<'_>) -> Option<Arc<Extensions>> {
        let mut extensions = Extensions::new();
        (self.0)(accepted, &mut extensions);
        (!extensions.is_empty()).then(|| Arc::new(extensions))
    }
}

impl fmt::Debug for OnConnect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnConnect").finish_non_exhaustive()
    }
}

/// A connection that has ended, for [`ServerBuilder::on_end`](crate::ServerBuilder::on_end).
#[derive(Debug)]
#[non_exhaustive]
pub struct Ended<'a> {
    /// The peer's address, if it is one of IP.
    pub peer_addr: Option<SocketAddr>,
    /// The version of HTTP. `None` when the peer did not send enough to tell it.
    pub version: Option<Version>,
    /// Octets received from the transport; over TLS what was decrypted.
    pub received_bytes: u64,
    /// Octets sent to the transport; over TLS before they were encrypted.
    pub sent_bytes: u64,
    /// The counters of the connection, and what it waited for. Over HTTP/1.1 there is none before a transfer that fills the
    /// transport, or 256 KiB of requests; it has no windows and frames, and begins there.
    pub report: Option<&'a Report>,
    /// Why it ended, unless it was closed in order.
    pub error: Option<&'a Error>,
    /// Whether it was ended for another one: see [`ConnectionLimits`](super::ConnectionLimits).
    pub evicted: bool,
    /// The status of the last request of an HTTP/1.1 connection, if the server refused it before a service saw it: a head that is
    /// malformed or too large (400, 414, 431), or that took too long (408).
    pub refused: Option<StatusCode>,
}

/// Is told of each connection that has ended.
#[derive(Clone)]
pub(super) struct OnEnd(pub(super) Arc<EndHook>);

type EndHook = dyn Fn(&Ended<'_>) + Send + Sync;

impl fmt::Debug for OnEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnEnd").finish_non_exhaustive()
    }
}

/// What is added to the requests of one connection.
#[derive(Clone, Default)]
pub(super) struct Added {
    pub(super) address: Option<SocketAddr>,
    /// The address is added to every request.
    pub(super) to_all: bool,
    /// The address is added to requests with a body.
    pub(super) to_uploads: bool,
    /// Added to every request.
    pub(super) extensions: Option<Arc<Extensions>>,
}

/// Adds to requests what is known of their connection.
#[derive(Clone)]
pub(super) struct WithPeer<S> {
    pub(super) service: S,
    pub(super) added: Added,
}

impl<S> Service<Request<Incoming>> for WithPeer<S>
where
    S: Service<Request<Incoming>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    // A request that is borrowed is copied when it is moved on, a quarter of a KiB. So this is done elsewhere.
    #[inline]
    fn call(&mut self, request: Request<Incoming>) -> S::Future {
        let _calling = Calling::of(self.added.address);
        match self.added.is_some() {
            true => self.service.call(self.added.added_to(request)),
            false => self.service.call(request),
        }
    }
}

impl Added {
    /// Whether anything is added to requests.
    fn is_some(&self) -> bool {
        self.to_all || self.to_uploads || self.extensions.is_some()
    }

    #[inline(never)]
    fn added_to(&self, mut request: Request<Incoming>) -> Request<Incoming> {
        if self.to_all || (self.to_uploads && !request.body().is_end_stream()) {
            if let Some(address) = self.address {
                request.extensions_mut().insert(PeerAddr(address));
            }
        }
        if let Some(extensions) = &self.extensions {
            request.extensions_mut().extend(Extensions::clone(extensions));
        }
        request
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    /// A service that panics when it is called by the peer that it expects.
    struct Panicking(SocketAddr);

    impl Service<Request<Incoming>> for Panicking {
        type Response = ();
        type Error = ();
        type Future = std::future::Ready<Result<(), ()>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ()>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<Incoming>) -> Self::Future {
            assert_ne!(PeerAddr::current(), Some(PeerAddr(self.0)), "a panic");
            std::future::ready(Ok(()))
        }
    }

    #[test]
    fn a_service_that_panics_leaves_no_address_to_the_next_one() {
        let address = SocketAddr::from(([192, 0, 2, 1], 1));
        let mut service = WithPeer {
            service: Panicking(address),
            added: Added {
                address: Some(address),
                ..Added::default()
            },
        };
        let request = Request::new(Incoming::empty());
        let called = catch_unwind(AssertUnwindSafe(|| drop(service.call(request))));
        assert!(called.is_err(), "it knows who calls");
        assert_eq!(PeerAddr::current(), None);
    }
}
