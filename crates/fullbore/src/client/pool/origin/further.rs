//! Further connections to an origin, of which each belongs to one download.
//!
//! Such a connection is a pool of one: it is opened, it falls back, and what it did not process is sent again as in any
//! pool. Its origin's pool knows it for reports and for the limit on connections.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use super::OriginPool;

/// The further connections of one origin.
#[derive(Default)]
pub(super) struct Further(Mutex<Vec<Weak<OriginPool>>>);

impl Further {
    /// Those that have not been given back.
    pub(super) fn pools(&self) -> Vec<Arc<OriginPool>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|pool| pool.strong_count() > 0);
        all.iter().filter_map(Weak::upgrade).collect()
    }
}

impl OriginPool {
    /// A pool for one further connection, which is opened for its first request; `None` if there are as many as allowed.
    /// Retire it to give it back.
    pub(in crate::client::pool) fn further(self: &Arc<Self>) -> Option<Arc<OriginPool>> {
        let own = self.lock().members.len().max(1);
        let mut all = self.further.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|pool| pool.upgrade().is_some_and(|pool| !pool.is_retired()));
        if all.len() + own >= self.most || self.is_retired() {
            return None;
        }
        let (origin, settings) = (self.origin.clone(), Arc::clone(&self.settings));
        let pool = OriginPool::with_most(origin, settings, 1, self.connections.clone());
        all.push(Arc::downgrade(&pool));
        Some(pool)
    }

    /// How many there are.
    pub(super) fn further_connections(&self) -> usize {
        let pools = self.further.pools();
        pools.iter().filter(|pool| !pool.is_retired()).count()
    }

    /// The least round trip of its connections, if one has been measured.
    pub(in crate::client::pool) fn round_trip(&self) -> Option<Duration> {
        let state = self.lock();
        let members = state.members.iter();
        members.filter_map(|member| member.connection.round_trip()).min()
    }

    /// The most connections to the origin, further ones included.
    pub(in crate::client::pool) fn most_connections(&self) -> usize {
        self.most
    }
}
