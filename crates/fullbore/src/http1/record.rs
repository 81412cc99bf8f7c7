//! What one HTTP/1.1 connection has done and waited for, with what the kernel says of its TCP connection.

use std::sync::{Mutex, MutexGuard, PoisonError};

use fullbore_proto::{Report, Seen, TcpInfo, Time, Watched};
use tokio::time::Instant;

use crate::tcp;

/// The record of a connection. Its task writes it, and others ask for reports.
#[derive(Debug)]
pub(crate) struct Record {
    origin: Instant,
    ends: Option<tcp::Ends>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    watched: Watched,
    /// What the kernel said last.
    tcp: Option<TcpInfo>,
    /// The bytes that are to be carried before it is asked again: twice as many each time.
    ask_at: u64,
    /// The connection has ended: the kernel is not asked any more.
    is_over: bool,
}

impl Record {
    /// That of a connection which begins, between these ends if they are known.
    pub(crate) fn new(ends: Option<tcp::Ends>) -> Self {
        Record {
            origin: Instant::now(),
            ends,
            state: Mutex::new(State {
                watched: Watched::new(Time::ZERO),
                tcp: None,
                ask_at: tcp::LEAST_BYTES,
                is_over: false,
            }),
        }
    }

    /// What the connection does from `now` on, and what it has carried.
    pub(crate) fn note(&self, seen: Seen, now: Instant) {
        let mut state = self.lock();
        state.watched.note(seen, self.time(now));
        if seen.sent_bytes.max(seen.received_bytes) >= state.ask_at {
            state.ask_at = seen.sent_bytes.max(seen.received_bytes).saturating_mul(2);
            if let Some(tcp) = self.ends.and_then(tcp::Ends::info) {
                state.watched.note_tcp(&tcp);
                state.tcp = Some(tcp);
            }
        }
    }

    /// What the connection does, and what it has carried.
    pub(crate) fn seen(&self) -> Seen {
        *self.lock().watched.seen()
    }

    /// The connection is about to end.
    pub(crate) fn end(&self) {
        let report = self.report();
        let mut state = self.lock();
        state.tcp = report.tcp;
        state.is_over = true;
    }

    /// The state of the connection.
    pub(crate) fn report(&self) -> Report {
        let state = self.lock();
        let seen = state.watched.seen();
        let asks = !state.is_over && seen.sent_bytes.max(seen.received_bytes) >= tcp::LEAST_BYTES;
        let asked = match asks {
            true => self.ends.and_then(tcp::Ends::info),
            false => None,
        };
        state
            .watched
            .report(asked.or(state.tcp), self.time(Instant::now()))
    }

    fn time(&self, at: Instant) -> Time {
        let nanos = at.saturating_duration_since(self.origin).as_nanos();
        Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
