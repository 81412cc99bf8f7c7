//! The ledger: what a direction of a connection has waited for, and how long (law 8).

use core::time::Duration;

use crate::time::Time;

/// What one direction of a connection is doing, or is held by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stall {
    /// Nothing is under way.
    Idle,
    /// Data flows: the path, or the transport, sets the speed.
    Moving,
    /// Data waits for windows of streams.
    StreamWindow,
    /// Data waits for the window of the connection.
    ConnectionWindow,
    /// Requests wait for the peer to allow more streams.
    StreamCount,
    /// What was built waits for the transport to take it.
    Socket,
    /// This side's own application is slow to read, or to say what is to be sent.
    Application,
    /// The peer's turn: it has leave to send, or all it needs for an answer, and nothing has come.
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
    spent: [Duration; Stall::ALL.len()],
}

impl Ledger {
    /// A ledger that begins idle.
    pub fn new(now: Time) -> Self {
        Ledger {
            state: Stall::Idle,
            since: now,
            spent: [Duration::ZERO; Stall::ALL.len()],
        }
    }

    /// How long the direction has been in a state, all told, as far as it is settled.
    pub fn spent(&self, state: Stall) -> Duration {
        self.spent[state as usize]
    }

    /// The time that is settled, of all states but [`Stall::Idle`].
    pub fn busy(&self) -> Duration {
        self.spent.iter().sum::<Duration>() - self.spent(Stall::Idle)
    }

    /// Since when the time is not settled.
    pub(crate) fn since(&self) -> Time {
        self.since
    }

    /// The state is another one from `now` on.
    pub(crate) fn enter(&mut self, state: Stall, now: Time) {
        self.settle(self.state, now);
        self.state = state;
    }

    /// In hindsight, the time up to `now` was spent in `state`.
    pub(crate) fn settle(&mut self, state: Stall, now: Time) {
        self.spent[state as usize] += now.since(self.since);
        self.since = self.since.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
