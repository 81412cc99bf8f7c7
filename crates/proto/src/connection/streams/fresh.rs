//! Requests that are complete and that nothing has touched since. No stream is stored for them yet: most are answered by one
//! response that fits (`respond`), and need none. Whatever else concerns such a stream stores it first.

use super::Streams;
use crate::event::EventId;
use crate::id::StreamId;
use crate::priority::Priority;
use crate::time::Time;

/// What has to be known of such a request. The rest of its stream follows from it.
#[derive(Debug)]
pub(in crate::connection) struct Fresh {
    pub(in crate::connection) id: StreamId,
    pub(in crate::connection) priority: Option<Priority>,
    /// The memory of its field section beyond the free part, in bytes.
    pub(in crate::connection) header_memory: usize,
    /// Whether it is CONNECT.
    pub(in crate::connection) tunnel: bool,
    /// When it arrived.
    pub(in crate::connection) begun: Time,
    pub(in crate::connection) event: EventId,
}

impl Streams {
    /// A complete request opens a stream. The caller has called `open_by_peer`.
    pub(in crate::connection) fn open_fresh(&mut self, fresh: Fresh) {
        self.lists.header_memory += fresh.header_memory;
        self.fresh.push_back(fresh);
    }

    /// Whether there are streams that are not stored.
    #[inline]
    pub(in crate::connection) fn has_fresh(&self) -> bool {
        !self.fresh.is_empty()
    }

    /// The place of a stream that is not stored.
    pub(in crate::connection) fn find_fresh(&self, id: StreamId) -> Option<usize> {
        // Owners take requests in their order, and most answer them in it.
        match self.fresh.front() {
            Some(first) if first.id == id => Some(0),
            // Clients open streams in the order of their identifiers.
            Some(first) if first.id < id => self.fresh.binary_search_by_key(&id, |fresh| fresh.id).ok(),
            _ => None,
        }
    }

    pub(in crate::connection) fn fresh(&self, index: usize) -> Option<&Fresh> {
        self.fresh.get(index)
    }

    /// Takes the request at an index off the list.
    pub(in crate::connection) fn take_fresh(&mut self, index: usize) -> Option<Fresh> {
        let fresh = match index {
            0 => self.fresh.pop_front(),
            _ => self.fresh.remove(index),
        }?;
        self.lists.header_memory -= fresh.header_memory;
        Some(fresh)
    }
}
