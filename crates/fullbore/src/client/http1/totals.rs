//! What the HTTP/1.1 connections of a client have done, and what they waited for.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fullbore_proto::{Direction, Report, Role, Seen, Stall, Verdict};
use tokio::time::Instant;

use super::outgoing::Upload;
use crate::http1::{Record, Traffic};

/// The reports of so many connections that have ended, those that carried most, are kept for the verdict.
const MOST_ENDED: usize = 16;

/// What the HTTP/1.1 connections of a [`Client`](crate::Client) have done and waited for.
///
/// Such a connection is one stream, whose window is that of TCP. So there are no windows of HTTP to wait for. What limited it is
/// judged by the rhythm of what arrived, and by what the kernel says of TCP (Linux).
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
    /// By direction: of sending, and of receiving.
    verdicts: [Option<Verdict>; 2],
}

impl Http1Report {
    /// For how long sending has waited for this, over all connections. [`Stall::Socket`] is the path or the server,
    /// [`Stall::Application`] the source of the body, [`Stall::Peer`] the server that has the whole request.
    pub fn sending(&self, state: Stall) -> Duration {
        self.sending.of(state)
    }

    /// For how long receiving has waited for this, over all connections. In [`Stall::Moving`] data flowed, [`Stall::Application`]
    /// is the reader of the body, and [`Stall::Peer`] the path or the server.
    pub fn receiving(&self, state: Stall) -> Duration {
        self.receiving.of(state)
    }

    /// What limited the connections in one direction: those that are open, and those that have ended and carried most. `None` if
    /// they were idle.
    pub fn verdict(&self, direction: Direction) -> Option<Verdict> {
        match direction {
            Direction::Sending => self.verdicts[0],
            Direction::Receiving => self.verdicts[1],
        }
    }

    fn add(&mut self, report: &Report) {
        self.requests += report.stats.sent_frames.total();
        self.sent_bytes += report.stats.sent_bytes;
        self.received_bytes += report.stats.received_bytes;
        for state in Stall::busy() {
            self.sending.add(state, report.sending.spent(state));
            self.receiving.add(state, report.receiving.spent(state));
        }
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

/// The connections of a client.
#[derive(Debug, Default)]
pub(in crate::client) struct Totals(Mutex<Connections>);

#[derive(Debug, Default)]
struct Connections {
    opened: u64,
    open: Vec<Arc<Record>>,
    /// The sums of those that have ended, without a verdict.
    ended: Http1Report,
    /// Of those that have ended and carried most.
    largest: Vec<Report>,
}

impl Totals {
    /// The report; `None` if no connection was opened.
    pub(in crate::client) fn report(&self) -> Option<Http1Report> {
        let (mut report, mut reports, open) = {
            let connections = self.lock();
            let report = Http1Report {
                connections: connections.opened,
                ..connections.ended
            };
            (report, connections.largest.clone(), connections.open.clone())
        };
        for record in open {
            let of_record = record.report();
            report.add(&of_record);
            reports.push(of_record);
        }
        let verdict = |direction| Verdict::of(Role::Client, direction, &reports);
        report.verdicts = [verdict(Direction::Sending), verdict(Direction::Receiving)];
        Some(report).filter(|report| report.connections > 0)
    }

    pub(super) fn begin(&self, record: &Arc<Record>) {
        let mut connections = self.lock();
        connections.opened += 1;
        connections.open.push(Arc::clone(record));
    }

    /// The connection has ended.
    pub(super) fn end(&self, record: &Arc<Record>) {
        record.end();
        let report = record.report();
        let mut connections = self.lock();
        let Some(place) = connections.open.iter().position(|one| Arc::ptr_eq(one, record)) else {
            return;
        };
        connections.open.swap_remove(place);
        connections.ended.add(&report);
        connections.largest.push(report);
        if connections.largest.len() > MOST_ENDED {
            let carried = |report: &Report| report.stats.sent_bytes + report.stats.received_bytes;
            connections
                .largest
                .sort_by_key(|report| std::cmp::Reverse(carried(report)));
            connections.largest.truncate(MOST_ENDED);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Connections> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Measures one exchange. The record has it as it goes on: whoever has read the whole response may ask for the report
/// before the connection's task knows that the exchange has ended.
pub(super) struct Ledger<'a> {
    record: &'a Record,
    seen: Seen,
    is_over: bool,
}

impl<'a> Ledger<'a> {
    /// Nothing is noted before [`Self::enter`].
    pub(super) fn start(record: &'a Record) -> Self {
        let mut seen = record.seen();
        seen.requests += 1;
        Ledger {
            record,
            seen,
            is_over: false,
        }
    }

    /// The exchange has ended at this time, unless it had ended before.
    pub(super) fn end(&mut self, traffic: Traffic, now: Instant) {
        if !std::mem::replace(&mut self.is_over, true) {
            self.note(traffic, (Stall::Idle, Stall::Idle), now);
        }
    }

    /// What the exchange waits for from now on, until its response has begun or after that.
    pub(super) fn enter(&mut self, upload: &Upload, traffic: Traffic, answered: bool, now: Instant) {
        let sent = upload.ended().is_some();
        let sending = match (traffic.awaits_write, sent, answered) {
            (true, ..) => Stall::Socket,
            (_, true, false) => Stall::Peer,
            (_, true, true) => Stall::Idle,
            (_, false, _) => Stall::Application,
        };
        let receiving = match (answered, traffic.awaits_read) {
            (false, _) if sent => Stall::Peer,
            (true, _) if !upload.is_read() => Stall::Idle,
            (true, true) => Stall::Moving,
            (true, false) => Stall::Application,
            (false, _) => Stall::Idle,
        };
        self.note(traffic, (sending, receiving), now);
    }

    fn note(&mut self, traffic: Traffic, (sending, receiving): (Stall, Stall), now: Instant) {
        self.seen = Seen {
            sending,
            receiving,
            sent_bytes: traffic.sent,
            received_bytes: traffic.received,
            ..self.seen
        };
        self.record.note(self.seen, now);
    }
}

impl Drop for Ledger<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            (self.seen.sending, self.seen.receiving) = (Stall::Idle, Stall::Idle);
            self.record.note(self.seen, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun() -> (Totals, Arc<Record>) {
        let (totals, record) = (Totals::default(), Arc::new(Record::new(None)));
        totals.begin(&record);
        (totals, record)
    }

    #[tokio::test(start_paused = true)]
    async fn the_report_has_an_exchange_before_it_ends() {
        let (totals, record) = begun();
        let mut traffic = Traffic::default();
        let mut ledger = Ledger::start(&record);
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
        totals.end(&record);
        assert_eq!(ended(totals.report()), (1, 100, 50, Duration::from_secs(2)));
    }

    #[tokio::test(start_paused = true)]
    async fn receiving_waits_for_the_path_while_octets_are_awaited_and_otherwise_for_the_reader() {
        let (totals, record) = begun();
        let mut traffic = Traffic::default();
        let mut ledger = Ledger::start(&record);
        let upload = Upload::new(None);
        for (awaits_read, seconds) in [(true, 3), (false, 5), (true, 10)] {
            traffic.awaits_read = awaits_read;
            ledger.enter(&upload, traffic, true, Instant::now());
            tokio::time::advance(Duration::from_secs(seconds)).await;
        }
        for _ in 0..1_000 {
            traffic.received += 1;
            ledger.enter(&upload, traffic, true, Instant::now());
            tokio::time::advance(Duration::from_millis(2)).await;
        }
        drop(ledger);
        let report = totals.report().expect("a connection was opened");
        let spent = |state| report.receiving(state).as_secs();
        assert_eq!((spent(Stall::Peer), spent(Stall::Application)), (13, 5));
        assert_eq!((spent(Stall::Moving), spent(Stall::Socket)), (2, 0));
        let verdict = report.verdict(Direction::Receiving).expect("it was busy");
        assert_eq!(verdict.cause.name(), "peer", "no path pauses for ten seconds");
    }

    #[tokio::test(start_paused = true)]
    async fn the_verdict_is_that_of_the_connections_that_carried_most() {
        let totals = Totals::default();
        for connection in 0..100 {
            let record = Arc::new(Record::new(None));
            totals.begin(&record);
            let mut traffic = Traffic::default();
            let mut ledger = Ledger::start(&record);
            // The large one waits for its reader, all others for the server.
            (traffic.received, traffic.awaits_read) = match connection {
                50 => (1_000_000, false),
                _ => (1_000, true),
            };
            ledger.enter(&Upload::new(None), traffic, true, Instant::now());
            let waits = if connection == 50 { 60_000 } else { 900 };
            tokio::time::advance(Duration::from_millis(waits)).await;
            drop(ledger);
            totals.end(&record);
        }
        let report = totals.report().expect("connections were opened");
        assert_eq!((report.connections, report.requests), (100, 100));
        let verdict = report.verdict(Direction::Receiving).expect("they were busy");
        assert_eq!(verdict.cause.name(), "this_side");
        assert!(report.verdict(Direction::Sending).is_some());
    }
}
