//! The two sides of the link, and two of anything, one for each.
//!
//! Plain data; used by every other file.

use std::ops::{Index, IndexMut};

/// Who is at the other end of a socket of the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    /// The one that connected to the link.
    Client,
    /// The one that the link connected to.
    Server,
}

impl Side {
    pub(crate) const BOTH: [Side; 2] = [Side::Client, Side::Server];

    pub(crate) fn other(self) -> Side {
        match self {
            Side::Client => Side::Server,
            Side::Server => Side::Client,
        }
    }
}

/// One of something for each side. For what belongs to a direction, the index is the side that *sends*.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pair<T> {
    pub(crate) client: T,
    pub(crate) server: T,
}

impl<T> Index<Side> for Pair<T> {
    type Output = T;

    fn index(&self, side: Side) -> &T {
        match side {
            Side::Client => &self.client,
            Side::Server => &self.server,
        }
    }
}

impl<T> IndexMut<Side> for Pair<T> {
    fn index_mut(&mut self, side: Side) -> &mut T {
        match side {
            Side::Client => &mut self.client,
            Side::Server => &mut self.server,
        }
    }
}
