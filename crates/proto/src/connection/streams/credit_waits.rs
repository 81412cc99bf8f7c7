//! The streams whose owners wait until the window of the connection, which is closed, opens: in the order in which they
//! began to wait, so that each of them has its turn if a window lasts for few.

use std::collections::BTreeMap;

use crate::id::Key;
use crate::stream::{Stream, WantsCredit};

#[derive(Debug, Default)]
pub(super) struct CreditWaits {
    /// Each at its place.
    waits: BTreeMap<u64, Key>,
}

impl CreditWaits {
    pub(super) fn is_empty(&self) -> bool {
        self.waits.is_empty()
    }

    /// Lists a stream. One that waits already keeps its place.
    pub(super) fn insert(&mut self, key: Key, stream: &mut Stream) {
        if !matches!(stream.send.wants_credit, WantsCredit::OfBoth(_)) {
            let place = self.waits.last_key_value().map_or(0, |(last, _)| last + 1);
            stream.send.wants_credit = WantsCredit::OfBoth(place);
            self.waits.insert(place, key);
        }
    }

    /// The stream waits no more.
    pub(super) fn remove(&mut self, stream: &mut Stream) {
        if let WantsCredit::OfBoth(place) = stream.send.wants_credit {
            self.waits.remove(&place);
        }
        stream.send.wants_credit = WantsCredit::No;
    }

    /// The one that has waited longest.
    pub(super) fn first(&self) -> Option<Key> {
        self.waits.first_key_value().map(|(_, &key)| key)
    }

    pub(super) fn clear(&mut self) {
        self.waits.clear();
    }
}
