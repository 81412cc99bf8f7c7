//! The ledger: what sending on a connection has waited for, and how long (law 8).

use core::time::Duration;

use crate::time::Time;

/// What a connection that sends is doing, or is held by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stall {
    /// Nothing is to be sent: it is up to the application, or to the peer.
    Idle,
    /// Frames are leaving.
    Moving,
    /// Data waits for windows of streams.
    StreamWindow,
    /// Data waits for the window of the connection.
    ConnectionWindow,
    /// Requests wait for the peer to allow more streams.
    StreamCount,
    /// What was built waits for the transport to take it.
    Socket,
}

/// How many states there are.
const STATES: usize = 6;

/// The time spent in each state since the connection began. The state is kept always; a change costs an addition.
///
/// ```
/// use fullbore_proto::{Ledger, Stall, Time};
///
/// let ledger = Ledger::new(Time::ZERO);
/// assert_eq!(ledger.state(), Stall::Idle);
/// assert_eq!(ledger.spent(Stall::Idle, Time::from_nanos(5)).as_nanos(), 5);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Ledger {
    state: Stall,
    since: Time,
    spent: [Duration; STATES],
}

impl Ledger {
    /// A ledger that begins idle.
    pub fn new(now: Time) -> Self {
        Ledger {
            state: Stall::Idle,
            since: now,
            spent: [Duration::ZERO; STATES],
        }
    }

    /// The present state.
    pub fn state(&self) -> Stall {
        self.state
    }

    /// How long the connection has been in a state, all told, up to `now`.
    pub fn spent(&self, state: Stall, now: Time) -> Duration {
        let present = match state == self.state {
            true => now.since(self.since),
            false => Duration::ZERO,
        };
        self.spent[state as usize] + present
    }

    /// The state is another one from `now` on.
    pub(crate) fn enter(&mut self, state: Stall, now: Time) {
        if state != self.state {
            self.spent[self.state as usize] += now.since(self.since);
            self.state = state;
            self.since = now;
        }
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
        let spent = |state| ledger.spent(state, at(100)).as_nanos();
        assert_eq!(spent(Stall::Idle), 10);
        assert_eq!(spent(Stall::Moving), 20 + 30);
        assert_eq!(spent(Stall::StreamWindow), 40);
    }
}
