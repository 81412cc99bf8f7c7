//! Requests that repeat the one before them. Clients of an interface send the same header block again and again; as long as the
//! dynamic table does not change, it stands for the same request, which is not decoded and checked again.

use http::Request;

use crate::priority::Priority;

/// The longest block that is remembered, in octets. What repeats takes a few octets for each field.
const LONGEST: usize = 128;

/// A request that was found to be in order.
#[derive(Debug, Clone)]
pub(super) struct Received {
    pub(super) request: Request<()>,
    /// The length of its body, if it says so.
    pub(super) expected: Option<u64>,
    pub(super) priority: Option<Priority>,
}

/// The last header block, if it has left the dynamic table as it was.
#[derive(Debug)]
pub(super) struct LastRequest {
    block: [u8; LONGEST],
    length: usize,
    /// Whether it is the same as the one before.
    again: bool,
    /// Its request. Kept once the block has come twice, so that requests which differ cost no copy.
    received: Option<Received>,
}

impl LastRequest {
    pub(super) fn new() -> Self {
        LastRequest {
            block: [0; LONGEST],
            length: 0,
            again: false,
            received: None,
        }
    }

    /// A block arrives. Returns whether it stands for the request that [`Self::received`] has; otherwise it is decoded, and
    /// [`Self::decoded`] follows.
    #[inline]
    pub(super) fn compare(&mut self, block: &[u8]) -> bool {
        self.again = self.length > 0 && self.block() == block;
        self.again && self.received.is_some()
    }

    /// The block was decoded, and has changed the dynamic table or not.
    #[inline]
    pub(super) fn decoded(&mut self, block: &[u8], table_changed: bool) {
        if self.again {
            return;
        }
        self.received = None;
        self.length = 0;
        if let (Some(room), false) = (self.block.get_mut(..block.len()), table_changed) {
            room.copy_from_slice(block);
            self.length = block.len();
        }
    }

    /// The block that was decoded last is this request.
    #[inline]
    pub(super) fn keep(&mut self, received: &Received) {
        if self.again {
            self.received = Some(received.clone());
        }
    }

    pub(super) fn block(&self) -> &[u8] {
        self.block.get(..self.length).unwrap_or_default()
    }

    #[inline]
    pub(super) fn received(&self) -> Option<&Received> {
        self.received.as_ref()
    }
}
