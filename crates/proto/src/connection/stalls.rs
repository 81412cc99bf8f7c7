//! What the connection as a whole waits for (law 8 of `docs/design/flow-control.md`), judged by its streams and its windows.
//!
//! What sending waits for is known when a write is built. What receiving waited for is known in hindsight, when data arrives: a
//! closed window, a slow reader, or the peer.

use core::time::Duration;

use super::Connection;
use super::ledgers::{Attribution, flowing, receives};
use super::ping::Pings;
use crate::flow::{Arrivals, Awaited, FLOWING, Ledger, Stall};
use crate::role::Role;
use crate::stream::{Phase, Stream, WantsCredit};
use crate::time::Time;

/// How many streams are sampled to find what the connection waits for.
const SAMPLE: usize = 64;

impl Connection {
    /// The transport takes no more of what [`Self::transmit`] built, for now.
    pub fn socket_blocked(&mut self, now: Time) {
        self.advance_time(now);
        self.ledgers.enter_sending(Stall::Socket, self.now);
    }

    /// The transport has taken everything that [`Self::transmit`] built, and there is no more.
    pub fn socket_idle(&mut self, now: Time) {
        self.advance_time(now);
        self.flow.overhead_mut().list(0);
        self.renew_overhead_lease();
        self.update_sending_ledger(false);
    }

    /// Says whether the owner holds requests back because the peer allows no more streams, as a connection pool does. The
    /// ledgers see nothing else of these requests.
    pub fn set_requests_kept_back(&mut self, kept_back: bool, now: Time) {
        if self.ledgers.requests_kept_back() != kept_back {
            self.advance_time(now);
            self.update_receiving_ledger();
            self.ledgers.set_requests_kept_back(kept_back);
        }
    }

    /// A write was built, or the transport has taken it.
    pub(super) fn update_sending_ledger(&mut self, data_left: bool) {
        let state = match data_left {
            true => Stall::Moving,
            false => self.sending_stall(),
        };
        if state != Stall::Peer {
            // An answer that overtakes that to the PING behind the upload: no less was on its way.
            self.upload_was_on_its_way();
        }
        self.ledgers.enter_sending(state, self.now);
    }

    /// After a list, if much was sent: asks the server when the last upload of those in progress has crossed the path.
    #[cold]
    pub(super) fn ask_whether_drained(&mut self) {
        if self.settings.is_received() && self.sending_stall() == Stall::Peer {
            let sent = self.flow.credit().sent();
            self.ledgers.note_asked(sent);
            Pings::ask_whether_drained(&mut self.writer);
        }
    }

    /// The server has read what was sent before it was asked: until a round trip ago, the upload was on its way.
    pub(super) fn upload_was_on_its_way(&mut self) {
        if self.ledgers.sending_state() == Stall::Peer && self.ledgers.take_asked() {
            let round_trip = self.pings.minimum().unwrap_or(Duration::ZERO);
            let until = self.now.as_nanos().saturating_sub(round_trip.as_nanos() as u64);
            self.ledgers
                .settle_sending(Stall::Moving, Time::from_nanos(until));
        }
    }

    /// DATA or HEADERS arrived, or a stream opens: attributes the time since the last one.
    #[inline]
    pub(super) fn update_receiving_ledger(&mut self) {
        // Frames of one batch cost a comparison each.
        if self.ledgers.receiving_since() < self.now {
            self.settle_receiving_ledger();
        }
    }

    fn settle_receiving_ledger(&mut self) {
        let attribution = self.attribute_receiving(self.ledgers.receiving_since(), self.now);
        let since = self.ledgers.receiving_since();
        if let Some(awaited) = self.awaited(attribution, since, self.now) {
            let received = self.flow.window().received();
            let rhythm = self.ledgers.rhythm_mut();
            rhythm.pause((since, self.now), received, awaited, self.pings.minimum());
        }
        self.ledgers.settle_receiving(attribution, self.now);
    }

    /// How data has arrived, up to `now`.
    pub(super) fn arrivals(&self, now: Time) -> Arrivals {
        let since = self.ledgers.receiving().since();
        let mut rhythm = self.ledgers.rhythm();
        if since < now {
            let attribution = self.attribute_receiving(since, now);
            if let Some(awaited) = self.awaited(attribution, since, now) {
                let received = self.flow.window().received();
                rhythm.pause((since, now), received, awaited, self.pings.minimum());
            }
        }
        rhythm.arrivals()
    }

    /// What a pause waited for. None if it was none.
    fn awaited(&self, attribution: Attribution, since: Time, now: Time) -> Option<Awaited> {
        if now.since(since) < FLOWING {
            return None;
        }
        match attribution.state() {
            Stall::Peer => {
                let mut receiving = self.streams.iter().take(SAMPLE).filter(|stream| receives(stream));
                Some(
                    match receiving.any(|stream| stream.receive.phase != Phase::Headers) {
                        true => Awaited::Data,
                        false => Awaited::Answer,
                    },
                )
            }
            Stall::StreamWindow | Stall::ConnectionWindow | Stall::Application => Some(Awaited::Window),
            _ => None,
        }
    }

    /// A reader has taken something. That changes the ledger only when nothing more is to come and time has passed.
    pub(super) fn update_ledger_after_read(&mut self) {
        if self.ledgers.receiving_since() < self.now && !self.is_receiving() {
            self.settle_receiving_ledger();
        }
    }

    /// What receiving has waited for, up to `now`.
    pub fn receiving_ledger(&self, now: Time) -> Ledger {
        let mut ledger = self.ledgers.receiving();
        let since = ledger.since();
        if since < now {
            self.attribute_receiving(since, now).settle(&mut ledger, now);
        }
        ledger
    }

    fn lacks_streams(&self) -> bool {
        let is_full = self.streams.active() >= self.settings.max_concurrent_streams();
        self.ledgers.requests_kept_back() || is_full && self.streams.waiting() > 0
    }

    fn is_receiving(&self) -> bool {
        self.streams.iter().take(SAMPLE).any(receives)
    }

    /// What sending waits for when nothing leaves.
    fn sending_stall(&self) -> Stall {
        if !self.streams.has_nothing_to_send() {
            return Stall::ConnectionWindow;
        }
        if self.streams.is_blocked() {
            return Stall::StreamWindow;
        }
        if self.lacks_streams() {
            return Stall::StreamCount;
        }
        // Streams that are not stored wait for the owner.
        let (mut unfinished, mut blocked) = (!self.streams.fresh().is_empty(), false);
        for stream in self.streams.iter().take(SAMPLE) {
            if !stream.state.can_send() || stream.send.phase == Phase::Done {
                continue;
            }
            if matches!(stream.send.wants_credit, WantsCredit::OfBoth(_)) {
                return Stall::ConnectionWindow;
            }
            unfinished = true;
            blocked |= stream.waits_for_credit();
        }
        match unfinished {
            true if blocked => Stall::StreamWindow,
            true => Stall::Application,
            // The requests are complete: the server has to answer.
            false if self.role == Role::Client && !self.streams.is_empty() => Stall::Peer,
            false => Stall::Idle,
        }
    }

    /// What receiving waited for from `since`, when something arrived last.
    fn attribute_receiving(&self, since: Time, now: Time) -> Attribution {
        let all = |state| Attribution::all(state, since, now);
        let window = self.flow.window();
        let receiving = || self.streams.iter().take(SAMPLE).filter(|stream| receives(stream));
        let Some(first) = receiving().next() else {
            return all(match (self.lacks_streams(), window.unconsumed()) {
                (true, _) => Stall::StreamCount,
                (false, 0) => Stall::Idle,
                // Everything has arrived, and the owner has not read or not released it.
                (false, _) => Stall::Application,
            });
        };
        if now.since(since) < FLOWING {
            return all(flowing(Stall::ConnectionWindow, window).unwrap_or_else(|| {
                let is_all_out = |stream: &Stream| stream.receive.window.is_all_out();
                match is_all_out(first) && receiving().all(is_all_out) {
                    true => flowing(Stall::StreamWindow, &first.receive.window).unwrap_or(Stall::Moving),
                    false => Stall::Moving,
                }
            }));
        }
        let round_trip = self.pings.minimum().unwrap_or(Duration::ZERO);
        let closed =
            |state, is_unread, until| Attribution::closed(state, is_unread, (since, until), round_trip);
        if let Some(until) = window.opens(since, now, round_trip) {
            return closed(Stall::ConnectionWindow, window.is_held(), until);
        }
        let opens = |stream: &Stream| stream.receive.window.opens(since, now, round_trip);
        // None as soon as one of them was open.
        let first = receiving().map(opens).reduce(|one, other| Some(one?.min(other?)));
        if let Some(until) = first.flatten() {
            let is_unread = receiving().any(|stream| stream.receive.window.is_held());
            return closed(Stall::StreamWindow, is_unread, until);
        }
        all(match self.lacks_streams() {
            true => Stall::StreamCount,
            false => Stall::Peer,
        })
    }
}
