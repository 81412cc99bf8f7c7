//! The payloads of outgoing DATA: bytes in memory, or external ranges.
//!
//! The engine frames payloads and never reads them, so a payload need not be in memory: the owner of the connection may send a
//! file range to a socket without a copy. `connection::send` takes payloads, `stream::send_queue` queues them, and `transmit`
//! puts them onto write lists.

use core::any::Any;
use core::fmt;
use std::sync::Arc;

use bytes::Bytes;

/// A part of a body.
///
/// ```
/// use std::sync::Arc;
/// use bytes::Bytes;
/// use fullbore_proto::{External, Payload};
///
/// assert_eq!(Payload::from(Bytes::from_static(b"hello")).len(), 5);
///
/// // 16 KiB from octet 4,096 on of a source that only the owner of the connection knows.
/// let external = External::new(Arc::new("a file"), 4_096, 16_384);
/// assert_eq!(external.owner().downcast_ref(), Some(&"a file"));
/// assert_eq!(Payload::from(external).len(), 16_384);
/// ```
#[derive(Debug, Clone)]
pub enum Payload {
    /// Octets in memory, by reference.
    Memory(Bytes),
    /// Octets that the owner of the connection can write without having them in memory: see [`crate::Transmit::segments`].
    External(External),
}

/// A range of a source that the engine does not know, such as a file.
#[derive(Clone)]
pub struct External {
    owner: Arc<dyn Any + Send + Sync>,
    start: u64,
    length: usize,
}

impl External {
    /// `length` octets of the source `owner`, from `start` on.
    pub fn new(owner: Arc<dyn Any + Send + Sync>, start: u64, length: usize) -> Self {
        External { owner, start, length }
    }

    /// The source.
    pub fn owner(&self) -> &(dyn Any + Send + Sync) {
        &*self.owner
    }

    /// The offset of the first octet in the source.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The number of octets.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether the range is empty.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Whether `other` begins where this ends.
    pub(crate) fn continues_with(&self, other: &External) -> bool {
        let end = self.start.checked_add(self.length as u64);
        Arc::ptr_eq(&self.owner, &other.owner) && end == Some(other.start)
    }

    /// Extends the range by `count` octets.
    pub(crate) fn extend(&mut self, count: usize) {
        self.length += count;
    }

    /// Splits off the first `count` octets, or all of them if there are fewer.
    pub(crate) fn split_to(&mut self, count: usize) -> External {
        let mut first = self.clone();
        first.length = count.min(first.length);
        self.advance(count);
        first
    }

    /// Drops the first `count` octets, or all of them if there are fewer.
    pub(crate) fn advance(&mut self, count: usize) {
        let count = count.min(self.length);
        self.start = self.start.saturating_add(count as u64);
        self.length -= count;
    }
}

impl fmt::Debug for External {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let External { start, length, .. } = self;
        write!(f, "External({length} from {start} on)")
    }
}

impl Payload {
    /// The number of octets.
    pub fn len(&self) -> usize {
        match self {
            Payload::Memory(bytes) => bytes.len(),
            Payload::External(external) => external.len(),
        }
    }

    /// Whether the payload is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Splits off the first `count` octets; the caller asks for no more than [`Self::len`].
    #[inline]
    pub(crate) fn split_to(&mut self, count: usize) -> Payload {
        match self {
            Payload::Memory(bytes) => Payload::Memory(bytes.split_to(count)),
            Payload::External(external) => Payload::External(external.split_to(count)),
        }
    }
}

impl Default for Payload {
    fn default() -> Self {
        Payload::Memory(Bytes::new())
    }
}

impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Self {
        Payload::Memory(bytes)
    }
}

impl From<External> for Payload {
    fn from(external: External) -> Self {
        Payload::External(external)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_empty_when_it_has_no_octet() {
        let range = |length| External::new(Arc::new(()), 7, length);
        assert!(range(0).is_empty() && !range(1).is_empty());
        assert!(Payload::from(range(0)).is_empty() && !Payload::from(range(1)).is_empty());
    }
}
