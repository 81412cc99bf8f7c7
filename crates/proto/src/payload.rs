//! What a body is made of on its way out: octets that are here, or octets that lie elsewhere.
//!
//! The engine frames payloads and never looks into them. So what is to be sent need not be in memory: its owner may
//! know of a shorter way for it, from a file to a socket say. `connection::send` takes payloads, `stream::send_queue` keeps
//! them, `transmit` lists them.

use core::any::Any;
use core::fmt;
use std::sync::Arc;

use bytes::Bytes;

/// A stretch of a body.
///
/// ```
/// use std::sync::Arc;
/// use bytes::Bytes;
/// use fullbore_proto::{Elsewhere, Payload};
///
/// assert_eq!(Payload::from(Bytes::from_static(b"hello")).len(), 5);
///
/// // 16 KiB from octet 4,096 on of whatever the owner of the connection knows under that name.
/// let elsewhere = Elsewhere::new(Arc::new("a file"), 4_096, 16_384);
/// assert_eq!(elsewhere.owner().downcast_ref(), Some(&"a file"));
/// assert_eq!(Payload::from(elsewhere).len(), 16_384);
/// ```
#[derive(Debug, Clone)]
pub enum Payload {
    /// Octets in memory, by reference.
    Here(Bytes),
    /// Octets that the owner of the connection can write without having them in memory: see [`crate::Transmit::parts`].
    Elsewhere(Elsewhere),
}

/// A range of something that the engine does not know.
#[derive(Clone)]
pub struct Elsewhere {
    owner: Arc<dyn Any + Send + Sync>,
    start: u64,
    length: usize,
}

impl Elsewhere {
    /// `length` octets from `start` on of what `owner` stands for.
    pub fn new(owner: Arc<dyn Any + Send + Sync>, start: u64, length: usize) -> Self {
        Elsewhere { owner, start, length }
    }

    /// Whose octets they are.
    pub fn owner(&self) -> &(dyn Any + Send + Sync) {
        &*self.owner
    }

    /// Where they begin, in octets.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// How many they are.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Whether `other` begins where this ends.
    pub(crate) fn continues_with(&self, other: &Elsewhere) -> bool {
        let end = self.start.checked_add(self.length as u64);
        Arc::ptr_eq(&self.owner, &other.owner) && end == Some(other.start)
    }

    /// Makes it longer by `count`.
    pub(crate) fn extend(&mut self, count: usize) {
        self.length += count;
    }

    /// Takes off the first `count`, or all if there are not so many.
    pub(crate) fn split_to(&mut self, count: usize) -> Elsewhere {
        let mut first = self.clone();
        first.length = count.min(first.length);
        self.advance(count);
        first
    }

    /// Drops the first `count`, or all if there are not so many.
    pub(crate) fn advance(&mut self, count: usize) {
        let count = count.min(self.length);
        self.start = self.start.saturating_add(count as u64);
        self.length -= count;
    }
}

impl fmt::Debug for Elsewhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Elsewhere { start, length, .. } = self;
        write!(f, "Elsewhere({length} from {start} on)")
    }
}

impl Payload {
    /// How many octets it has.
    pub fn len(&self) -> usize {
        match self {
            Payload::Here(bytes) => bytes.len(),
            Payload::Elsewhere(elsewhere) => elsewhere.len(),
        }
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes off the first `count` octets, of at least so many.
    pub(crate) fn split_to(&mut self, count: usize) -> Payload {
        match self {
            Payload::Here(bytes) => Payload::Here(bytes.split_to(count)),
            Payload::Elsewhere(elsewhere) => Payload::Elsewhere(elsewhere.split_to(count)),
        }
    }
}

impl Default for Payload {
    fn default() -> Self {
        Payload::Here(Bytes::new())
    }
}

impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Self {
        Payload::Here(bytes)
    }
}

impl From<Elsewhere> for Payload {
    fn from(elsewhere: Elsewhere) -> Self {
        Payload::Elsewhere(elsewhere)
    }
}
