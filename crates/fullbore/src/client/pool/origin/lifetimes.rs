//! Peers that end each connection after a number of requests, as nginx does (`keepalive_requests`).
//!
//! The requests that are sent behind the last one are sent for nothing, and wait for another round trip. So the pool
//! remembers the number, sends no more on the next connections, and opens others before these end. A peer that ended one
//! connection for another reason disproves the number, by the answers to so many requests or by time.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::member::Member;
use super::{OriginPool, PoolState};

/// How long a connection that has taken so many requests is expected to be ended. The GOAWAY comes with the answer to the
/// last one.
const PATIENCE: Duration = Duration::from_secs(1);

impl OriginPool {
    /// The peer has ended a connection after so many requests, and left out others.
    pub(super) fn ended_after(self: &Arc<Self>, requests: u64) {
        let now = Instant::now();
        let mut state = self.lock();
        state.lifetime = Some(requests.max(1));
        for member in &mut state.members {
            member.spent = (member.taken >= requests).then_some(now);
        }
    }
}

impl Member {
    /// How many more requests it may take.
    pub(super) fn left(&self, lifetime: Option<u64>) -> u64 {
        lifetime.map_or(u64::MAX, |most| most.saturating_sub(self.taken))
    }

    /// Counts a request.
    pub(super) fn count_request(&mut self, lifetime: Option<u64>, now: Instant) {
        self.in_flight += 1;
        self.taken += 1;
        self.first_at.get_or_insert(now);
        if self.left(lifetime) == 0 {
            self.spent = Some(now);
        }
    }
}

impl PoolState {
    /// Forgets the number when a connection has outlived it.
    pub(super) fn doubt_lifetime(&mut self, now: Instant) {
        let outlived = |member: &Member| {
            member
                .spent
                .is_some_and(|since| member.in_flight == 0 || now >= since + PATIENCE)
        };
        if self.lifetime.is_some() && self.members.iter().any(outlived) {
            self.lifetime = None;
        }
    }

    /// When a connection has outlived the number, if nothing happens before.
    pub(super) fn lifetime_check(&self) -> Option<Instant> {
        self.lifetime?;
        let since = self.members.iter().filter_map(|member| member.spent).min()?;
        Some(since + PATIENCE)
    }

    /// Connections that are needed beside those that are open or being opened, because these will have taken all requests
    /// that they may.
    pub(super) fn successors(&self) -> usize {
        let Some(lifetime) = self.lifetime else {
            return 0;
        };
        let members = self.members.iter().map(|member| member.left(self.lifetime));
        let left = members.sum::<u64>() + lifetime.saturating_mul(self.opening as u64);
        let beyond = (self.waiting.len() as u64).saturating_sub(left);
        match self.growth.is_long_path() {
            true => usize::try_from(beyond.div_ceil(lifetime)).unwrap_or(usize::MAX),
            // One after the other is as fast.
            false => usize::from(beyond > 0 && left == 0),
        }
    }
}
