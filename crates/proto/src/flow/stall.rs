//! Ledgers: what a direction of a connection has waited for, and for how long (law 8).

use core::time::Duration;

use crate::time::Time;

/// What one direction of a connection does or waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stall {
    /// Nothing is in progress.
    Idle,
    /// Data flows: the path or the transport sets the speed.
    Moving,
    /// Data waits for a stream window.
    StreamWindow,
    /// Data waits for the connection window.
    ConnectionWindow,
    /// Requests wait until the peer allows more streams.
    StreamCount,
    /// A write waits for the transport.
    Socket,
    /// The local application is slow to read, or slow to supply data.
    Application,
    /// It is the peer's turn: it has credit, or a complete request, and nothing has arrived.
    Peer,
}

impl Stall {
    /// All states.
    pub const ALL: [Stall; 8] = [
        Stall::Idle,
        Stall::Moving,
        Stall::StreamWindow,
        Stall::ConnectionWindow,
        Stall::StreamCount,
        Stall::Socket,
        Stall::Application,
        Stall::Peer,
    ];

    /// All states but [`Stall::Idle`].
    pub fn busy() -> impl Iterator<Item = Stall> {
        Stall::ALL.into_iter().filter(|&state| state != Stall::Idle)
    }

    /// The name of the state.
    pub const fn name(self) -> &'static str {
        match self {
            Stall::Idle => "idle",
            Stall::Moving => "moving",
            Stall::StreamWindow => "stream_window",
            Stall::ConnectionWindow => "connection_window",
            Stall::StreamCount => "stream_count",
            Stall::Socket => "socket",
            Stall::Application => "application",
            Stall::Peer => "peer",
        }
    }
}

/// The time spent in each state since the connection began.
///
/// ```
/// use fullbore_proto::{Ledger, Stall, Time};
///
/// let ledger = Ledger::new(Time::ZERO);
/// assert_eq!(ledger.spent(Stall::Moving).as_nanos(), 0);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Ledger {
    state: Stall,
    since: Time,
    /// In nanoseconds.
    spent: [u64; Stall::ALL.len()],
}

impl Ledger {
    /// A ledger that starts idle at `now`.
    pub fn new(now: Time) -> Self {
        Ledger {
            state: Stall::Idle,
            since: now,
            spent: [0; Stall::ALL.len()],
        }
    }

    /// The total settled time in a state.
    pub fn spent(&self, state: Stall) -> Duration {
        Duration::from_nanos(self.spent[state as usize])
    }

    /// The total settled time in all states except [`Stall::Idle`].
    pub fn busy(&self) -> Duration {
        Duration::from_nanos(self.spent.iter().sum::<u64>()) - self.spent(Stall::Idle)
    }

    pub(crate) fn state(&self) -> Stall {
        self.state
    }

    pub(crate) fn since(&self) -> Time {
        self.since
    }

    /// Enters another state at `now`.
    pub(crate) fn enter(&mut self, state: Stall, now: Time) {
        self.settle(self.state, now);
        self.state = state;
    }

    /// Attributes at most `spent` nanoseconds of the unsettled time up to `now` to `state`.
    fn settle_for(&mut self, state: Stall, spent: u64, now: Time) {
        let until = Time::from_nanos(self.since.as_nanos().saturating_add(spent));
        self.settle(state, until.min(now));
    }

    /// The nanoseconds in a state up to `now`, the unsettled time of the current state included.
    fn spent_until(&self, state: Stall, now: Time) -> u64 {
        let unsettled = match self.state == state {
            true => now.as_nanos().saturating_sub(self.since.as_nanos()),
            false => 0,
        };
        self.spent[state as usize] + unsettled
    }

    /// Attributes the unsettled time up to `now` to `state`.
    pub(crate) fn settle(&mut self, state: Stall, now: Time) {
        self.spent[state as usize] += now.as_nanos().saturating_sub(self.since.as_nanos());
        self.since = self.since.max(now);
    }
}

/// What the sending half of one stream has waited for.
///
/// While the stream has data and window, it waits for whatever the connection waits for. That time is copied from the
/// connection's ledger when the state ends, so a frame costs nothing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SendingLedger {
    own: Ledger,
    /// The nanoseconds that the connection had spent on its window and on the socket when the stream became ready.
    ready: Option<(u64, u64)>,
}

impl SendingLedger {
    pub(crate) fn new(now: Time) -> Self {
        SendingLedger {
            own: Ledger::new(now),
            ready: None,
        }
    }

    /// Enters a state of its own at `now`, or none to follow the connection.
    pub(crate) fn enter(&mut self, state: Option<Stall>, connection: &Ledger, now: Time) {
        let is_same = match state {
            Some(state) => self.ready.is_none() && self.own.state == state,
            None => self.ready.is_some(),
        };
        if is_same {
            return;
        }
        let waited = (
            connection.spent_until(Stall::ConnectionWindow, now),
            connection.spent_until(Stall::Socket, now),
        );
        match self.ready.take() {
            Some((window, socket)) => {
                self.own
                    .settle_for(Stall::ConnectionWindow, waited.0.saturating_sub(window), now);
                self.own
                    .settle_for(Stall::Socket, waited.1.saturating_sub(socket), now);
                self.own.settle(Stall::Moving, now);
            }
            None => self.own.settle(self.own.state, now),
        }
        match state {
            Some(state) => self.own.state = state,
            None => self.ready = Some(waited),
        }
    }

    /// The ledger, settled up to `now`.
    pub(crate) fn settled(mut self, connection: &Ledger, now: Time) -> Ledger {
        let ends = self.ready.map(|_| Stall::Idle);
        self.enter(ends, connection, now);
        self.own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_that_is_ready_moves_whenever_the_connection_waits_for_nothing() {
        let at = Time::from_nanos;
        let mut connection = Ledger::new(at(0));
        let mut stream = SendingLedger::new(at(0));
        connection.enter(Stall::Moving, at(3));
        stream.enter(None, &connection, at(5));
        connection.enter(Stall::ConnectionWindow, at(10));
        connection.enter(Stall::Socket, at(30));
        connection.enter(Stall::Moving, at(60));
        stream.enter(Some(Stall::StreamWindow), &connection, at(100));
        let spent = |ledger: Ledger| Stall::ALL.map(|state| (state, ledger.spent(state).as_nanos()));
        let mut expected = Stall::ALL.map(|state| (state, 0));
        let mut spends = |state, nanos| {
            let slot = expected.iter_mut().find(|slot| slot.0 == state);
            slot.unwrap().1 = nanos;
        };
        spends(Stall::Idle, 5);
        spends(Stall::ConnectionWindow, 20);
        spends(Stall::Socket, 30);
        spends(Stall::Moving, 45);
        spends(Stall::StreamWindow, 7);
        assert_eq!(spent(stream.settled(&connection, at(107))), expected);
    }

    #[test]
    fn all_states_but_idle_are_busy() {
        let busy: Vec<_> = Stall::busy().collect();
        assert_eq!(busy, Stall::ALL[1..]);
        assert_eq!(Stall::ALL[0], Stall::Idle);
    }

    #[test]
    fn times_add_up_to_the_age_of_the_connection() {
        let at = Time::from_nanos;
        let mut ledger = Ledger::new(at(0));
        ledger.enter(Stall::Moving, at(10));
        ledger.enter(Stall::Moving, at(15));
        ledger.enter(Stall::StreamWindow, at(30));
        ledger.enter(Stall::Moving, at(70));
        ledger.settle(Stall::Peer, at(100));
        let spent = |state| ledger.spent(state).as_nanos();
        assert_eq!(spent(Stall::Idle), 10);
        assert_eq!(spent(Stall::Moving), 20);
        assert_eq!(spent(Stall::StreamWindow), 40);
        assert_eq!(spent(Stall::Peer), 30);
        assert_eq!(ledger.busy().as_nanos(), 90);
    }
}
