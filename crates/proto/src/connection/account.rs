//! Keeping the ledgers (law 8): at every moment each direction of the connection is in one state.
//!
//! What sending waits for is known when a write is built. What receiving waited for is known in hindsight, when data
//! comes at last: which windows were closed for it, whose reader was slow, or that it was the peer's turn.

use core::time::Duration;

use super::Connection;
use crate::flow::{Ledger, ReceiveWindow, Stall};
use crate::id::{Key, StreamId};
use crate::role::Role;
use crate::stats::StreamReport;
use crate::stream::{Phase, State, Stream};
use crate::time::Time;

/// Data that comes within this of other data counts as one flow. A link slower than 3 Mbit/s has wider gaps between
/// segments.
const FLOWING: Duration = Duration::from_millis(4);

/// How many streams are looked at for a judgement: it is made once in a while, and need not see ten thousand.
const SAMPLE: usize = 64;

impl Connection {
    /// What sending has waited for, up to `now`.
    pub fn sending_ledger(&self, now: Time) -> Ledger {
        let mut ledger = self.sending;
        ledger.enter(Stall::Idle, now);
        ledger
    }

    /// What receiving has waited for, up to `now`.
    pub fn receiving_ledger(&self, now: Time) -> Ledger {
        let mut ledger = self.receiving;
        self.settle_receiving(&mut ledger, now);
        ledger
    }

    /// The transport takes no more of what [`Self::transmit`] gave, for now.
    pub fn socket_blocked(&mut self, now: Time) {
        self.see(now);
        self.sending.enter(Stall::Socket, self.now);
    }

    /// The transport has taken all that [`Self::transmit`] gave, and there is no more.
    pub fn socket_idle(&mut self, now: Time) {
        self.see(now);
        self.overhead.listed = 0;
        self.cover_again();
        self.account_sending(false);
    }

    /// Says whether the owner keeps requests back because the peer allows no more streams at once, as one that pools
    /// connections does: the ledgers see nothing else of them.
    pub fn set_requests_kept_back(&mut self, kept_back: bool, now: Time) {
        if self.requests_kept_back != kept_back {
            self.see(now);
            self.account_receiving();
            self.requests_kept_back = kept_back;
        }
    }

    /// Whether requests wait for the peer to allow more streams.
    fn lacks_streams(&self) -> bool {
        self.requests_kept_back || !self.waiting.is_empty()
    }

    /// After a write was built, or taken.
    pub(super) fn account_sending(&mut self, data_left: bool) {
        let state = match data_left {
            true => Stall::Moving,
            false => self.judge_sending(),
        };
        self.sending.enter(state, self.now);
    }

    /// Data or a head has come, or a stream begins: what was it that receiving waited for until now?
    #[inline]
    pub(super) fn account_receiving(&mut self) {
        // Frames of one batch cost a comparison each.
        if self.receiving.since() < self.now {
            self.account_receiving_now();
        }
    }

    fn account_receiving_now(&mut self) {
        let mut ledger = self.receiving;
        self.settle_receiving(&mut ledger, self.now);
        self.receiving = ledger;
    }

    /// A reader has taken something. That is news only when nothing more is to come, and time has passed.
    pub(super) fn account_reading(&mut self) {
        if self.receiving.since() < self.now && !self.is_receiving() {
            self.account_receiving();
        }
    }

    /// What sending waits for when nothing leaves.
    fn judge_sending(&self) -> Stall {
        if !self.schedule.is_empty() {
            return Stall::ConnectionWindow;
        }
        if self.window_blocked > 0 || !self.held.is_empty() {
            return Stall::StreamWindow;
        }
        if self.lacks_streams() {
            return Stall::StreamCount;
        }
        let unfinished = |stream: &Stream| stream.state.can_send() && stream.send.phase != Phase::Done;
        match self.streams.iter().take(SAMPLE).any(unfinished) {
            true => Stall::Application,
            // A client's request is whole, and so it is the peer's turn.
            false if self.role == Role::Client && self.streams.len() > 0 => Stall::Peer,
            false => Stall::Idle,
        }
    }

    /// A stream and what it has waited for, up to `now`; none when it is gone.
    pub fn stream_report(&self, stream: StreamId, now: Time) -> Option<StreamReport> {
        let stream = self.streams.get(self.streams.find(stream)?)?;
        let (send, receive) = (&stream.send, &stream.receive);
        let round_trip = self.stats.round_trip.minimum();
        let mut receiving = receive.ledger;
        stream.settle_into(&mut receiving, &self.receive_window, round_trip, now);
        Some(StreamReport {
            sending: send.ledger.settled(&self.sending, now),
            receiving,
            sent_bytes: send.credit.sent(),
            received_bytes: receive.window.received(),
            send_window: send.credit.available(),
            receive_window: receive.window.size().bytes(),
            receive_window_remaining: receive.window.remaining(),
            queued: send.queue.bytes(),
            unread: receive.window.unconsumed(),
        })
    }

    /// A stream's queue, credit or state has changed: what does its sending wait for now?
    pub(super) fn account_stream_sending(&mut self, key: Key) {
        let is_client = self.role == Role::Client;
        if let Some(stream) = self.streams.get_mut(key) {
            let state = stream.sending_state(is_client);
            stream.send.ledger.enter(state, &self.sending, self.now);
        }
    }

    /// Something has come on a stream, or is about to change: what was it that its receiving waited for until now?
    pub(super) fn account_stream_receiving(&mut self, key: Key) {
        if let Some(stream) = self.streams.get_mut(key) {
            stream.settle_receiving(&self.receive_window, self.stats.round_trip.minimum(), self.now);
        }
    }

    fn is_receiving(&self) -> bool {
        self.streams.iter().take(SAMPLE).any(receives)
    }

    /// Settles what receiving waited for since something came last.
    fn settle_receiving(&self, ledger: &mut Ledger, now: Time) {
        let since = ledger.since();
        if since < now {
            self.judge_receiving(since, now).settle(ledger, now);
        }
    }

    /// What receiving waited for from `since`, when something came last.
    fn judge_receiving(&self, since: Time, now: Time) -> Judgement {
        let all = |state| Judgement::all(state, since, now);
        if !self.is_receiving() {
            return all(match (self.lacks_streams(), self.lent) {
                (true, _) => Stall::StreamCount,
                (false, 0) => Stall::Idle,
                // All has come, and lies there.
                (false, _) => Stall::Application,
            });
        }
        if now.since(since) < FLOWING {
            return all(Stall::Moving);
        }
        let round_trip = self.stats.round_trip.minimum().unwrap_or(Duration::ZERO);
        let closed =
            |state, is_unread, until| Judgement::closed(state, is_unread, (since, until), round_trip);
        if let Some(until) = self.receive_window.opens(since, now, round_trip) {
            return closed(Stall::ConnectionWindow, self.receive_window.is_unread(), until);
        }
        let streams = || self.streams.iter().take(SAMPLE).filter(|stream| receives(stream));
        let opens = |stream: &Stream| stream.receive.window.opens(since, now, round_trip);
        // None as soon as one of them was open.
        let first = streams().map(opens).reduce(|one, other| Some(one?.min(other?)));
        if let Some(until) = first.flatten() {
            let is_unread = streams().any(|stream| stream.receive.window.is_unread());
            return closed(Stall::StreamWindow, is_unread, until);
        }
        all(match self.lacks_streams() {
            true => Stall::StreamCount,
            false => Stall::Peer,
        })
    }
}

/// What receiving waited for since something came last; after that it was the peer's turn.
struct Judgement {
    /// Until when readers had not taken what was there.
    unread_until: Time,
    /// What it was from then on, and until when.
    state: Stall,
    until: Time,
}

impl Judgement {
    fn all(state: Stall, since: Time, until: Time) -> Self {
        Judgement {
            unread_until: since,
            state,
            until,
        }
    }

    /// A window was closed. Before its refill left that was because readers had not taken what was there; from then on
    /// because it is smaller than the path.
    fn closed(state: Stall, is_unread: bool, (since, until): (Time, Time), round_trip: Duration) -> Self {
        Judgement {
            unread_until: match is_unread {
                true => until,
                false => since + until.since(since).saturating_sub(round_trip),
            },
            state,
            until,
        }
    }

    fn settle(self, ledger: &mut Ledger, now: Time) {
        ledger.settle(Stall::Application, self.unread_until.min(now));
        ledger.settle(self.state, self.until.min(now));
        ledger.settle(Stall::Peer, now);
    }
}

impl Stream {
    /// What sending waits for by the stream's own state; none when it waits for its turn, and so for what the connection
    /// waits for.
    fn sending_state(&self, is_client: bool) -> Option<Stall> {
        let half = &self.send;
        if self.state == State::Waiting {
            return Some(Stall::StreamCount);
        }
        if half.ended || !self.state.can_send() {
            return Some(match is_client && receives(self) {
                true => Stall::Peer,
                false => Stall::Idle,
            });
        }
        match (half.queue.is_empty(), half.scheduled.is_some(), half.phase) {
            (false, true, _) => None,
            (false, false, _) => Some(Stall::StreamWindow),
            (true, _, Phase::Done) => Some(Stall::Idle),
            (true, _, _) => Some(Stall::Application),
        }
    }

    /// Settles what receiving waited for until now.
    pub(super) fn settle_receiving(
        &mut self,
        connection: &ReceiveWindow,
        round_trip: Option<Duration>,
        now: Time,
    ) {
        // Frames of one batch cost a comparison each.
        if self.receive.ledger.since() < now {
            let mut ledger = self.receive.ledger;
            self.settle_into(&mut ledger, connection, round_trip, now);
            self.receive.ledger = ledger;
        }
    }

    fn settle_into(
        &self,
        ledger: &mut Ledger,
        connection: &ReceiveWindow,
        round_trip: Option<Duration>,
        now: Time,
    ) {
        let since = ledger.since();
        if since < now {
            self.judge_receiving(connection, round_trip, since, now)
                .settle(ledger, now);
        }
    }

    fn judge_receiving(
        &self,
        connection: &ReceiveWindow,
        round_trip: Option<Duration>,
        since: Time,
        now: Time,
    ) -> Judgement {
        let window = &self.receive.window;
        let all = |state| Judgement::all(state, since, now);
        if self.state == State::Waiting {
            return all(Stall::StreamCount);
        }
        if !receives(self) {
            return all(match window.unconsumed() {
                0 => Stall::Idle,
                _ => Stall::Application,
            });
        }
        if self.receive.phase == Phase::Head {
            return all(Stall::Peer);
        }
        if now.since(since) < FLOWING {
            return all(Stall::Moving);
        }
        let round_trip = round_trip.unwrap_or(Duration::ZERO);
        let windows = [
            (Stall::ConnectionWindow, connection),
            (Stall::StreamWindow, window),
        ];
        for (state, window) in windows {
            if let Some(until) = window.opens(since, now, round_trip) {
                return Judgement::closed(state, window.is_unread(), (since, until), round_trip);
            }
        }
        all(Stall::Peer)
    }
}

/// Whether more of a message is to come on the stream.
fn receives(stream: &Stream) -> bool {
    stream.state.can_receive() && stream.receive.phase != Phase::Done && !stream.receive.discard
}
