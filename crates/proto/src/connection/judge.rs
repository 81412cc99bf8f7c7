//! What the connection as a whole waits for (law 8), judged by its streams and its windows.
//!
//! What sending waits for is known when a write is built. What receiving waited for is known in hindsight, when data comes:
//! which windows were closed for it, whose reader was slow, or that it was the peer's turn.

use core::time::Duration;

use super::flow_control::FlowControl;
use super::ledgers::{FLOWING, Judgement, Ledgers, receives};
use super::streams::Streams;
use crate::flow::{Ledger, Stall};
use crate::role::Role;
use crate::stream::{Phase, Stream};
use crate::time::Time;

/// How many streams are looked at for a judgement: it is made once in a while, and need not see ten thousand.
const SAMPLE: usize = 64;

/// What the connection is judged by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Judge<'a> {
    streams: &'a Streams,
    flow: &'a FlowControl,
    round_trip: Option<Duration>,
    requests_kept_back: bool,
}

impl<'a> Judge<'a> {
    pub(super) fn new(
        streams: &'a Streams,
        flow: &'a FlowControl,
        ledgers: &Ledgers,
        round_trip: Option<Duration>,
    ) -> Self {
        Judge {
            streams,
            flow,
            round_trip,
            requests_kept_back: ledgers.requests_kept_back(),
        }
    }

    /// Whether requests wait for the peer to allow more streams.
    fn lacks_streams(&self) -> bool {
        self.requests_kept_back || self.streams.waiting() > 0
    }

    /// Whether more of a message is to come on some stream.
    pub(super) fn is_receiving(&self) -> bool {
        self.streams.iter().take(SAMPLE).any(receives)
    }

    /// What sending waits for when nothing leaves.
    pub(super) fn sending(&self, role: Role) -> Stall {
        if !self.streams.has_nothing_to_send() {
            return Stall::ConnectionWindow;
        }
        if self.streams.is_blocked() {
            return Stall::StreamWindow;
        }
        if self.lacks_streams() {
            return Stall::StreamCount;
        }
        let unfinished = |stream: &Stream| stream.state.can_send() && stream.send.phase != Phase::Done;
        match self.streams.iter().take(SAMPLE).any(unfinished) {
            true => Stall::Application,
            // A client's request is whole, and so it is the peer's turn.
            false if role == Role::Client && !self.streams.is_empty() => Stall::Peer,
            false => Stall::Idle,
        }
    }

    /// The ledger of receiving, settled up to `now`.
    pub(super) fn settled(&self, mut ledger: Ledger, now: Time) -> Ledger {
        let since = ledger.since();
        if since < now {
            self.receiving(since, now).settle(&mut ledger, now);
        }
        ledger
    }

    /// What receiving waited for from `since`, when something came last.
    pub(super) fn receiving(&self, since: Time, now: Time) -> Judgement {
        let all = |state| Judgement::all(state, since, now);
        if !self.is_receiving() {
            return all(match (self.lacks_streams(), self.flow.lent()) {
                (true, _) => Stall::StreamCount,
                (false, 0) => Stall::Idle,
                // All has come, and the owner has not released it.
                (false, _) => Stall::Application,
            });
        }
        if now.since(since) < FLOWING {
            return all(Stall::Moving);
        }
        let window = self.flow.window();
        let round_trip = self.round_trip.unwrap_or(Duration::ZERO);
        let closed =
            |state, is_unread, until| Judgement::closed(state, is_unread, (since, until), round_trip);
        if let Some(until) = window.opens(since, now, round_trip) {
            return closed(Stall::ConnectionWindow, window.is_unread(), until);
        }
        let receiving = || self.streams.iter().take(SAMPLE).filter(|stream| receives(stream));
        let opens = |stream: &Stream| stream.receive.window.opens(since, now, round_trip);
        // None as soon as one of them was open.
        let first = receiving().map(opens).reduce(|one, other| Some(one?.min(other?)));
        if let Some(until) = first.flatten() {
            let is_unread = receiving().any(|stream| stream.receive.window.is_unread());
            return closed(Stall::StreamWindow, is_unread, until);
        }
        all(match self.lacks_streams() {
            true => Stall::StreamCount,
            false => Stall::Peer,
        })
    }
}
