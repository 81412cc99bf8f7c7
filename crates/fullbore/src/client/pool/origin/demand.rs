//! How many connections an origin needs now: what the limits, the pauses and the versions leave of what `growth` and
//! `lifetimes` ask for.

use tokio::time::Instant;

use super::PoolState;
use super::versions::Version;
use crate::client::pool::growth::Load;

impl PoolState {
    /// The number of connections to open now.
    pub(super) fn missing(&self, most: usize, now: Instant) -> usize {
        if self.waiting.is_empty() {
            return 0;
        }
        let pauses = self.pause.is_some_and(|(until, _)| now < until);
        let wanted = match &self.version {
            _ if self.refuses(self.in_flight(), now) => 0,
            _ if self
                .refusals
                .as_ref()
                .is_some_and(|refusals| !refusals.is_answered()) =>
            {
                1
            }
            // Each connection carries one request.
            Version::Http1 | Version::OnlyHttp1 if !pauses => self.members.len() + self.waiting.len(),
            _ if self.members.is_empty() => self.successors().saturating_add(self.opening).max(1),
            _ if pauses => 0,
            _ => {
                let open = self.members.len() + self.opening;
                let grown = self.growth.target_connections(&self.load(), now);
                let grown = grown.max(self.spreading.wanted());
                grown.max(open.saturating_add(self.successors()))
            }
        };
        wanted.min(most).saturating_sub(self.members.len() + self.opening)
    }

    /// The load of connections whose peer allows streams.
    pub(super) fn load(&self) -> Load {
        let mut load = Load {
            waiting: self.waiting.len() as u64,
            ..Load::default()
        };
        for member in &self.members {
            let in_flight = u64::from(member.in_flight);
            let left = in_flight.saturating_add(member.left(self.lifetime));
            let streams = u64::from(member.connection.max_streams()).min(left);
            load.connections += usize::from(streams > 0);
            load.streams += streams;
            load.in_flight += in_flight;
            load.probes = load.probes.max(member.connection.probes());
            load.round_trip = match (load.round_trip, member.connection.round_trip()) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
        }
        load
    }
}
