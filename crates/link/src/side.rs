//! The two sides of the link, and pairs of values for them.

use std::ops::{Index, IndexMut};

/// The peer of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    /// It connected to the link.
    Client,
    /// The link connected to it.
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

/// A value for each side. For a direction, the index is the side that *sends*.
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
