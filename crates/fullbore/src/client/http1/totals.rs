//! What the HTTP/1.1 connections of a client have done, and what they waited for.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fullbore_proto::Stall;
use tokio::time::Instant;

use super::outgoing::Upload;
use crate::http1::Traffic;

/// What the HTTP/1.1 connections of a [`Client`](crate::Client) have done and waited for.
///
/// Such a connection is one stream, whose window is that of TCP. So there are no windows of HTTP to wait for, and nothing
/// tells a slow path from a server that is slow to send.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct Http1Report {
    /// Connections that were opened.
    pub connections: u64,
    /// Requests that were sent.
    pub requests: u64,
    /// Bytes that were sent, with heads, above TLS.
    pub sent_bytes: u64,
    /// Bytes that were received, with heads, above TLS.
    pub received_bytes: u64,
    sending: Spent,
    receiving: Spent,
}

impl Http1Report {
    /// For how long sending has waited for this, over all connections. [`Stall::Socket`] is the path or the server,
    /// [`Stall::Application`] the source of the body, [`Stall::Peer`] the server that has the whole request.
    pub fn sending(&self, state: Stall) -> Duration {
        self.sending.of(state)
    }

    /// For how long receiving has waited for this, over all connections. [`Stall::Moving`] is the path or the server,
    /// [`Stall::Application`] the reader of the body, [`Stall::Peer`] the server that has the whole request.
    pub fn receiving(&self, state: Stall) -> Duration {
        self.receiving.of(state)
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Spent {
    moving: Duration,
    socket: Duration,
    application: Duration,
    peer: Duration,
}

impl Spent {
    fn of(&self, state: Stall) -> Duration {
        match state {
            Stall::Moving => self.moving,
            Stall::Socket => self.socket,
            Stall::Application => self.application,
            Stall::Peer => self.peer,
            _ => Duration::ZERO,
        }
    }

    fn add(&mut self, state: Stall, time: Duration) {
        match state {
            Stall::Moving => self.moving += time,
            Stall::Socket => self.socket += time,
            Stall::Application => self.application += time,
            Stall::Peer => self.peer += time,
            _ => {}
        }
    }
}

/// The report of a client, to which its connections add.
#[derive(Debug, Default)]
pub(in crate::client) struct Totals(Mutex<Http1Report>);

impl Totals {
    /// The report; `None` if no connection was opened.
    pub(in crate::client) fn report(&self) -> Option<Http1Report> {
        Some(*self.lock()).filter(|report| report.connections > 0)
    }

    pub(super) fn add_connection(&self) {
        self.lock().connections += 1;
    }

    fn lock(&self) -> MutexGuard<'_, Http1Report> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Measures one exchange. The report has it as it goes on: whoever has read the whole response may ask for the report
/// before the connection's task knows that the exchange has ended.
pub(super) struct Ledger<'a> {
    totals: &'a Totals,
    added: Traffic,
    now: Traffic,
    since: Instant,
    sending: Stall,
    receiving: Stall,
}

impl<'a> Ledger<'a> {
    pub(super) fn start(totals: &'a Totals, traffic: Traffic) -> Self {
        totals.lock().requests += 1;
        Ledger {
            totals,
            added: traffic,
            now: traffic,
            since: Instant::now(),
            sending: Stall::Idle,
            receiving: Stall::Idle,
        }
    }

    /// What the exchange waits for from now on, until its response has begun or after that.
    pub(super) fn enter(&mut self, upload: &Upload, traffic: Traffic, answered: bool, now: Instant) {
        self.now = traffic;
        self.settle(now);
        let sent = upload.ended().is_some();
        self.sending = match (traffic.awaits_write, sent, answered) {
            (true, ..) => Stall::Socket,
            (_, true, false) => Stall::Peer,
            (_, true, true) => Stall::Idle,
            (_, false, _) => Stall::Application,
        };
        self.receiving = match (answered, traffic.awaits_read) {
            (false, _) if sent => Stall::Peer,
            (true, _) if !upload.is_read() => Stall::Idle,
            (true, true) => Stall::Moving,
            (true, false) => Stall::Application,
            (false, _) => Stall::Idle,
        };
    }

    fn settle(&mut self, now: Instant) {
        let time = now.saturating_duration_since(self.since);
        self.since = now;
        let mut report = self.totals.lock();
        report.sending.add(self.sending, time);
        report.receiving.add(self.receiving, time);
        report.sent_bytes += self.now.sent - self.added.sent;
        report.received_bytes += self.now.received - self.added.received;
        self.added = self.now;
    }
}

impl Drop for Ledger<'_> {
    fn drop(&mut self) {
        self.settle(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_report_has_an_exchange_before_it_ends() {
        let totals = Totals::default();
        totals.add_connection();
        let mut traffic = Traffic::default();
        let mut ledger = Ledger::start(&totals, traffic);
        let upload = Upload::new(None);
        ledger.enter(&upload, traffic, false, Instant::now());
        tokio::time::advance(Duration::from_secs(2)).await;
        traffic.sent = 100;
        traffic.received = 50;
        ledger.enter(&upload, traffic, true, Instant::now());

        let ended = |report: Option<Http1Report>| {
            let report = report.expect("a connection was opened");
            let source = report.sending(Stall::Application);
            (report.requests, report.sent_bytes, report.received_bytes, source)
        };
        assert_eq!(ended(totals.report()), (1, 100, 50, Duration::from_secs(2)));
        drop(ledger);
        assert_eq!(ended(totals.report()), (1, 100, 50, Duration::from_secs(2)));
    }

    #[tokio::test(start_paused = true)]
    async fn receiving_waits_for_the_path_while_octets_are_awaited_and_otherwise_for_the_reader() {
        let totals = Totals::default();
        totals.add_connection();
        let mut traffic = Traffic::default();
        let mut ledger = Ledger::start(&totals, traffic);
        let upload = Upload::new(None);
        for (awaits_read, seconds) in [(true, 3), (false, 5), (true, 10)] {
            traffic.awaits_read = awaits_read;
            ledger.enter(&upload, traffic, true, Instant::now());
            tokio::time::advance(Duration::from_secs(seconds)).await;
        }
        drop(ledger);
        let report = totals.report().expect("a connection was opened");
        let spent = |state| report.receiving(state).as_secs();
        assert_eq!((spent(Stall::Moving), spent(Stall::Application)), (13, 5));
        assert_eq!((spent(Stall::Peer), spent(Stall::Socket)), (0, 0));
    }
}
