//! Requests that are complete and that nothing has touched since. No stream is stored for them yet: most are answered by one
//! response that fits (`respond`), and need none. Whatever else concerns such a stream stores it first.

use std::collections::VecDeque;

use crate::event::EventId;
use crate::id::StreamId;
use crate::prefetch::rewind;
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

/// These requests, in the order of their streams: that in which a client opens them.
#[derive(Debug, Default)]
pub(in crate::connection) struct FreshStreams {
    list: VecDeque<Fresh>,
    header_memory: usize,
}

impl FreshStreams {
    #[inline]
    pub(in crate::connection) fn len(&self) -> usize {
        self.list.len()
    }

    #[inline]
    pub(in crate::connection) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(in crate::connection) fn header_memory(&self) -> usize {
        self.header_memory
    }

    /// A complete request opens a stream.
    pub(in crate::connection) fn push(&mut self, fresh: Fresh) {
        self.header_memory += fresh.header_memory;
        self.list.push_back(fresh);
    }

    /// The index of a stream.
    pub(in crate::connection) fn find(&self, id: StreamId) -> Option<usize> {
        match self.list.front() {
            // Owners take requests in this order, and most answer them in it.
            Some(first) if first.id == id => Some(0),
            Some(first) if first.id < id => self.list.binary_search_by_key(&id, |fresh| fresh.id).ok(),
            _ => None,
        }
    }

    pub(in crate::connection) fn get(&self, index: usize) -> Option<&Fresh> {
        self.list.get(index)
    }

    /// Takes a request off the list.
    pub(in crate::connection) fn take(&mut self, index: usize) -> Option<Fresh> {
        let fresh = match index {
            0 => self.list.pop_front(),
            _ => self.list.remove(index),
        }?;
        rewind(&mut self.list);
        self.header_memory -= fresh.header_memory;
        Some(fresh)
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn trim(&mut self) {
        self.list.shrink_to_fit();
    }
}

/// A connection may have ten thousand of them.
const _: () = assert!(size_of::<Fresh>() <= 32);
