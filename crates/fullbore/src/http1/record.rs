//! What one HTTP/1.1 connection has done and waited for, with what the kernel says of its TCP connection.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use fullbore_proto::{Report, Seen, TcpInfo, Time, Watched};
use tokio::time::Instant;

use crate::tcp;

/// The record of a connection. Its task writes it, and others ask for reports.
#[derive(Debug)]
pub(crate) struct Record {
    origin: Instant,
    /// Set once, when it is known.
    ends: OnceLock<tcp::Ends>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    whole: Part,
    /// The response that somebody asks about.
    response: Option<Part>,
    /// What the kernel said last.
    tcp: Option<TcpInfo>,
    /// The bytes that are to be carried before it is asked again: twice as many each time.
    ask_at: u64,
    /// The connection has ended: the kernel is not asked any more.
    is_over: bool,
}

/// What a connection does from some time on.
#[derive(Debug, Clone, Copy)]
struct Part {
    watched: Watched,
    /// What had been sent and received before.
    before: (u64, u64),
}

impl Part {
    fn note(&mut self, seen: Seen, now: Time) {
        let (sent, received) = self.before;
        let of_part = Seen {
            sent_bytes: seen.sent_bytes.saturating_sub(sent),
            received_bytes: seen.received_bytes.saturating_sub(received),
            ..seen
        };
        self.watched.note(of_part, now);
    }
}

impl Record {
    /// The record of a new connection, between these ends if they are known.
    pub(crate) fn new(ends: Option<tcp::Ends>) -> Self {
        Self::after((0, 0), ends)
    }

    /// The record of a connection that has sent and received so many bytes already.
    pub(crate) fn after(before: (u64, u64), ends: Option<tcp::Ends>) -> Self {
        Record {
            origin: Instant::now(),
            ends: ends.map_or_else(OnceLock::new, OnceLock::from),
            state: Mutex::new(State {
                whole: Part {
                    watched: Watched::new(Time::ZERO),
                    before,
                },
                response: None,
                tcp: None,
                ask_at: tcp::LEAST_BYTES,
                is_over: false,
            }),
        }
    }

    /// The ends of the TCP connection.
    pub(crate) fn set_ends(&self, ends: tcp::Ends) {
        let _ = self.ends.set(ends);
    }

    /// What the connection does from `now` on, and what it has carried.
    pub(crate) fn note(&self, seen: Seen, now: Instant) {
        let mut state = self.lock();
        state.whole.note(seen, self.time(now));
        if let Some(response) = &mut state.response {
            response.note(seen, self.time(now));
        }
        if seen.sent_bytes.max(seen.received_bytes) >= state.ask_at {
            state.ask_at = seen.sent_bytes.max(seen.received_bytes).saturating_mul(2);
            if let Some(tcp) = self.ends.get().and_then(|ends| ends.info()) {
                state.whole.watched.note_tcp(&tcp);
                state.tcp = Some(tcp);
            }
        }
    }

    /// What the connection does, and what it has carried.
    pub(crate) fn seen(&self) -> Seen {
        *self.lock().whole.watched.seen()
    }

    /// The connection is about to end.
    pub(crate) fn end(&self) {
        let report = self.report();
        let mut state = self.lock();
        state.tcp = report.tcp;
        state.is_over = true;
    }

    /// A response begins after so many sent and received bytes. [`Self::response_report`] will be about it.
    pub(crate) fn begin_response(&self, before: (u64, u64)) {
        let watched = Watched::new(self.time(Instant::now()));
        self.lock().response = Some(Part { watched, before });
    }

    /// The state of the connection as if it had carried only the response that began last.
    pub(crate) fn response_report(&self) -> Option<Report> {
        let tcp = self.report().tcp;
        let response = self.lock().response?;
        Some(response.watched.report(tcp, self.time(Instant::now())))
    }

    /// The state of the connection.
    pub(crate) fn report(&self) -> Report {
        let state = self.lock();
        let seen = state.whole.watched.seen();
        let asks = !state.is_over && seen.sent_bytes.max(seen.received_bytes) >= tcp::LEAST_BYTES;
        let asked = match asks {
            true => self.ends.get().and_then(|ends| ends.info()),
            false => None,
        };
        let whole = &state.whole.watched;
        whole.report(asked.or(state.tcp), self.time(Instant::now()))
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
