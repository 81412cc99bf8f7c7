//! How many WebSockets there are over HTTP/2, and how many of them an address has.
//!
//! Over HTTP/1.1 a WebSocket is a connection, which [`ConnectionLimits`](crate::server::ConnectionLimits) counts. Over HTTP/2 a
//! client opens hundreds on one connection, for a few bytes each.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use crate::server::admission::address_group;
use crate::server::peer::PeerAddr;

/// The WebSockets over HTTP/2 of a process, unless a limit is set. Together they take at most 320 MiB beside what their handlers
/// hold.
pub const DEFAULT_MAX_WEB_SOCKETS: usize = 4_096;

/// A limit on the WebSockets over HTTP/2 of one or more [`WebSockets`](super::WebSockets) together. Clones share it.
///
/// An address ([`address_group`]) has at most as many as are left for all others: half of them if it is alone. Peers whose
/// address is not known, as on a Unix socket or without a [`Server`](crate::Server), count as one address.
///
/// ```
/// use fullbore::server::WebSocketLimit;
///
/// let limit = WebSocketLimit::new(20_000);
/// assert_eq!((limit.max(), limit.open()), (20_000, 0));
/// ```
#[derive(Clone)]
pub struct WebSocketLimit {
    inner: Arc<Inner>,
}

struct Inner {
    max: usize,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    all: usize,
    by_address: HashMap<Option<IpAddr>, usize>,
}

/// The place of one WebSocket. Dropping it makes room for another.
#[derive(Debug)]
pub(super) struct Place {
    limit: WebSocketLimit,
    address: Option<IpAddr>,
}

impl WebSocketLimit {
    /// A limit of `max` WebSockets.
    pub fn new(max: usize) -> Self {
        WebSocketLimit {
            inner: Arc::new(Inner {
                max,
                open: Mutex::default(),
            }),
        }
    }

    /// The one of the process.
    pub(super) fn of_process() -> Self {
        static LIMIT: LazyLock<WebSocketLimit> =
            LazyLock::new(|| WebSocketLimit::new(DEFAULT_MAX_WEB_SOCKETS));
        LIMIT.clone()
    }

    /// The limit.
    pub fn max(&self) -> usize {
        self.inner.max
    }

    /// How many there are.
    pub fn open(&self) -> usize {
        self.lock().all
    }

    /// A place for a WebSocket of this peer, if it may have another.
    pub(super) fn take(&self, peer: Option<PeerAddr>) -> Option<Place> {
        let address = peer.map(|peer| address_group(peer.0.ip()));
        let mut open = self.lock();
        let own = open.by_address.get(&address).copied().unwrap_or_default();
        if own >= self.inner.max.saturating_sub(open.all) {
            return None;
        }
        open.all += 1;
        open.by_address.insert(address, own + 1);
        drop(open);
        let limit = self.clone();
        Some(Place { limit, address })
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.inner.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.limit.lock();
        open.all -= 1;
        if let Some(own) = open.by_address.get_mut(&self.address) {
            *own -= 1;
            if *own == 0 {
                open.by_address.remove(&self.address);
            }
        }
    }
}

impl fmt::Debug for WebSocketLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebSocketLimit")
            .field("max", &self.max())
            .field("open", &self.open())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> Option<PeerAddr> {
        Some(PeerAddr(text.parse().expect("an address")))
    }

    fn take(limit: &WebSocketLimit, from: &str, most: usize) -> Vec<Place> {
        (0..most).map_while(|_| limit.take(peer(from))).collect()
    }

    #[test]
    fn an_address_has_as_many_as_are_left_for_all_others() {
        let limit = WebSocketLimit::new(16);
        let first = take(&limit, "192.0.2.1:1", 100);
        let second = take(&limit, "192.0.2.2:1", 100);
        let third = take(&limit, "[2001:db8::1]:1", 100);
        assert_eq!((first.len(), second.len(), third.len()), (8, 4, 2));
        assert!(
            limit.take(peer("[2001:db8::2]:1")).is_none(),
            "it is of the same group"
        );
        let unknown: Vec<_> = std::iter::from_fn(|| limit.take(None)).collect();
        assert_eq!((unknown.len(), limit.open()), (1, 15));
        drop(first);
        assert_eq!(limit.open(), 7);
        let more = take(&limit, "192.0.2.2:1", 100);
        assert_eq!((more.len(), limit.open()), (3, 10));
        drop((second, third, unknown, more));
        assert_eq!(limit.open(), 0);
        assert!(limit.lock().by_address.is_empty());
    }
}
