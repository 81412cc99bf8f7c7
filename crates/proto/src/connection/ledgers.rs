//! The ledgers of the connection, and what a stream waits for (law 8). `stalls` finds what the connection waits for.

use core::mem;
use core::time::Duration;

use crate::flow::{FLOWING, Ledger, ReceiveWindow, Rhythm, Stall};
use crate::role::Role;
use crate::stats::StreamReport;
use crate::stream::{Phase, Stream, StreamState, WantsCredit};
use crate::time::Time;

#[derive(Debug)]
pub(super) struct Ledgers {
    role: Role,
    sending: Ledger,
    receiving: Ledger,
    /// Whether the owner holds requests back because the peer allows no more streams.
    requests_kept_back: bool,
    /// How many MiB were sent before the last PING that followed an upload.
    asked_after: u32,
    /// Whether that PING is unanswered.
    is_asked: bool,
    /// None before the first pause in what arrives.
    rhythm: Option<Box<Rhythm>>,
}

/// There is at most one PING behind uploads for each MiB (two to this power) of DATA.
const LARGE_UPLOAD: u32 = 20;

impl Ledgers {
    pub(super) fn new(role: Role, now: Time) -> Self {
        Ledgers {
            role,
            sending: Ledger::new(now),
            receiving: Ledger::new(now),
            requests_kept_back: false,
            asked_after: 0,
            is_asked: false,
            rhythm: None,
        }
    }

    /// What sending has waited for, up to `now`.
    pub(super) fn sending(&self, now: Time) -> Ledger {
        let mut ledger = self.sending;
        ledger.enter(Stall::Idle, now);
        ledger
    }

    pub(super) fn receiving(&self) -> Ledger {
        self.receiving
    }

    pub(super) fn rhythm(&self) -> Rhythm {
        self.rhythm.as_deref().copied().unwrap_or_default()
    }

    pub(super) fn rhythm_mut(&mut self) -> &mut Rhythm {
        self.rhythm.get_or_insert_default()
    }

    #[inline]
    pub(super) fn receiving_since(&self) -> Time {
        self.receiving.since()
    }

    pub(super) fn settle_receiving(&mut self, attribution: Attribution, now: Time) {
        attribution.settle(&mut self.receiving, now);
    }

    pub(super) fn enter_sending(&mut self, state: Stall, now: Time) {
        // Time in the same state stays unsettled: of an upload it may turn out to have been the path's.
        if state != self.sending.state() {
            self.sending.enter(state, now);
        }
    }

    /// Whether enough was sent since the last PING behind uploads, of `sent` bytes of DATA in all.
    #[inline]
    pub(super) fn may_ask_whether_drained(&self, sent: u64) -> bool {
        (sent >> LARGE_UPLOAD) as u32 != self.asked_after
    }

    pub(super) fn note_asked(&mut self, sent: u64) {
        self.asked_after = (sent >> LARGE_UPLOAD) as u32;
        self.is_asked = true;
    }

    /// Whether a PING behind uploads is unanswered. From now on none is.
    pub(super) fn take_asked(&mut self) -> bool {
        mem::take(&mut self.is_asked)
    }

    /// Attributes the unsettled time of sending up to `until` to `state`.
    pub(super) fn settle_sending(&mut self, state: Stall, until: Time) {
        self.sending.settle(state, until);
    }

    /// The state of sending.
    pub(super) fn sending_state(&self) -> Stall {
        self.sending.state()
    }

    pub(super) fn requests_kept_back(&self) -> bool {
        self.requests_kept_back
    }

    pub(super) fn set_requests_kept_back(&mut self, kept_back: bool) {
        self.requests_kept_back = kept_back;
    }

    /// Updates the sending ledger of a stream after its queue, credit or state changed.
    #[inline]
    pub(super) fn note_stream_sending(&self, stream: &mut Stream, now: Time) {
        let state = stream.sending_state(self.role == Role::Client);
        stream.send.ledger.enter(state, &self.sending, now);
    }

    pub(super) fn note_stream_closed(&self, stream: &mut Stream, now: Time) {
        stream.send.ledger.enter(Some(Stall::Idle), &self.sending, now);
    }

    pub(super) fn report(
        &self,
        stream: &Stream,
        connection: &ReceiveWindow,
        round_trip: Option<Duration>,
        now: Time,
    ) -> StreamReport {
        let (send, receive) = (&stream.send, &stream.receive);
        let mut receiving = receive.ledger;
        stream.settle_into(&mut receiving, connection, round_trip, now);
        StreamReport {
            sending: send.ledger.settled(&self.sending, now),
            receiving,
            sent_bytes: send.credit.sent(),
            received_bytes: receive.window.received(),
            send_window: send.credit.available(),
            receive_window: receive.window.size().bytes(),
            receive_window_remaining: receive.window.remaining(),
            queued: send.queue.bytes(),
            unread: receive.window.unconsumed(),
        }
    }
}

/// What receiving waited for since something last arrived. From `until` on it waited for the peer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attribution {
    /// Until when readers had not taken what had arrived.
    unread_until: Time,
    /// What receiving waited for from then on, and until when.
    state: Stall,
    until: Time,
}

impl Attribution {
    pub(super) fn all(state: Stall, since: Time, until: Time) -> Self {
        Attribution {
            unread_until: since,
            state,
            until,
        }
    }

    /// A window was closed: until its refill was sent because of slow readers, and from then on because it is smaller
    /// than the path needs.
    pub(super) fn closed(
        state: Stall,
        is_unread: bool,
        (since, until): (Time, Time),
        round_trip: Duration,
    ) -> Self {
        Attribution {
            unread_until: match is_unread {
                true => until,
                false => since + until.since(since).saturating_sub(round_trip),
            },
            state,
            until,
        }
    }

    pub(super) fn state(self) -> Stall {
        self.state
    }

    pub(super) fn settle(self, ledger: &mut Ledger, now: Time) {
        ledger.settle(Stall::Application, self.unread_until.min(now));
        ledger.settle(self.state, self.until.min(now));
        ledger.settle(Stall::Peer, now);
    }
}

impl Stream {
    /// END_STREAM was sent or queued.
    pub(super) fn note_end_sent(&mut self, ledgers: &Ledgers, now: Time) {
        self.send.ended = true;
        self.state = self.state.after_send_end();
        ledgers.note_stream_sending(self, now);
    }

    /// What sending waits for by the state of the stream. None if the stream waits for its turn, and so for what the
    /// connection waits for.
    fn sending_state(&self, is_client: bool) -> Option<Stall> {
        let half = &self.send;
        if self.state == StreamState::Waiting {
            return Some(Stall::StreamCount);
        }
        if !self.state.can_send() {
            return Some(match is_client && receives(self) {
                true => Stall::Peer,
                false => Stall::Idle,
            });
        }
        match (half.queue.is_empty(), half.scheduled.is_some(), half.phase) {
            (false, true, _) => None,
            (false, false, _) => Some(Stall::StreamWindow),
            (true, _, Phase::Done) => Some(Stall::Idle),
            (true, _, _) if self.waits_for_credit() => Some(Stall::StreamWindow),
            (true, _, _) => Some(Stall::Application),
        }
    }

    /// Whether the owner queues no more until the stream's window opens.
    pub(super) fn waits_for_credit(&self) -> bool {
        self.send.wants_credit != WantsCredit::No && self.send.credit.usable() == 0
    }

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
            self.attribute_receiving(connection, round_trip, since, now)
                .settle(ledger, now);
        }
    }

    fn attribute_receiving(
        &self,
        connection: &ReceiveWindow,
        round_trip: Option<Duration>,
        since: Time,
        now: Time,
    ) -> Attribution {
        let window = &self.receive.window;
        let all = |state| Attribution::all(state, since, now);
        if self.state == StreamState::Waiting {
            return all(Stall::StreamCount);
        }
        if !receives(self) {
            return all(match window.unconsumed() {
                0 => Stall::Idle,
                _ => Stall::Application,
            });
        }
        if self.receive.phase == Phase::Headers {
            return all(Stall::Peer);
        }
        let windows = [
            (Stall::ConnectionWindow, connection),
            (Stall::StreamWindow, window),
        ];
        if now.since(since) < FLOWING {
            let full = windows.iter().find_map(|&(state, window)| flowing(state, window));
            return all(full.unwrap_or(Stall::Moving));
        }
        let round_trip = round_trip.unwrap_or(Duration::ZERO);
        for (state, window) in windows {
            if let Some(until) = window.opens(since, now, round_trip) {
                return Attribution::closed(state, window.is_held(), (since, until), round_trip);
            }
        }
        all(Stall::Peer)
    }
}

/// What holds back data that flows: a window whose credit is all on its way, or the reader that keeps it so. None if the window
/// has room.
#[inline]
pub(super) fn flowing(state: Stall, window: &ReceiveWindow) -> Option<Stall> {
    match (window.is_all_out(), window.is_held()) {
        (false, _) => None,
        (true, false) => Some(state),
        (true, true) => Some(Stall::Application),
    }
}

/// Whether more of a message has to arrive on the stream.
pub(super) fn receives(stream: &Stream) -> bool {
    stream.state.can_receive() && stream.receive.phase != Phase::Done && !stream.receive.is_discarded()
}
