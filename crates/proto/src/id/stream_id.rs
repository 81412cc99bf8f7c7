//! Stream identifiers (RFC 9113 section 5.1.1).

use core::fmt;
use core::num::NonZeroU64;

/// The largest identifier, 2^31-1.
const MAX: u32 = (1 << 31) - 1;

/// The identifier of a stream: 1..=2^31-1. A client opens the odd ones, a server would open the even ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(u32);

impl StreamId {
    /// The first stream that a client opens.
    pub const FIRST_CLIENT: StreamId = StreamId(1);

    /// The identifier `value`, unless it is 0 (the connection itself) or has the reserved bit set.
    pub const fn new(value: u32) -> Option<StreamId> {
        if value == 0 || value > MAX {
            None
        } else {
            Some(StreamId(value))
        }
    }

    /// The number, as it stands in frames.
    pub const fn value(self) -> u32 {
        self.0
    }

    /// Whether a client opens it (odd), rather than a server.
    pub const fn is_client_initiated(self) -> bool {
        self.0 % 2 == 1
    }

    /// The next identifier of the same side; none once they are used up, and then only a new connection helps.
    pub const fn next(self) -> Option<StreamId> {
        StreamId::new(self.0 + 2)
    }
}

impl From<StreamId> for NonZeroU64 {
    fn from(id: StreamId) -> Self {
        // It is not 0.
        NonZeroU64::new(u64::from(id.0)).unwrap_or(NonZeroU64::MIN)
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamId({})", self.0)
    }
}
