//! A connection that has no frames and no windows, such as one of HTTP/1.1, as its owner sees it: what it reports is judged as
//! the report of a connection of HTTP/2 is.

use core::time::Duration;

use crate::flow::{Arrivals, Awaited, FLOWING, Ledger, Promise, Rhythm, Stall};
use crate::frame::FrameType;
use crate::stats::{Report, Stats};
use crate::tcp::TcpInfo;
use crate::time::Time;

/// How long an answer may take over a path whose round trip is unknown: more is the peer's.
const LONGEST_ANSWER: Duration = Duration::from_millis(1_250);

/// Notes what a connection without frames does, for its [`Report`].
///
/// ```
/// use fullbore_proto::{Direction, Role, Seen, Stall, Time, Verdict, Watched};
///
/// let at = |seconds: u64| Time::from_nanos(seconds * 1_000_000_000);
/// let mut watched = Watched::new(at(0));
/// watched.note(Seen { receiving: Stall::Application, ..Seen::default() }, at(1));
/// let report = watched.report(None, at(3));
/// let verdict = Verdict::of(Role::Client, Direction::Receiving, &[report]).expect("it was busy");
/// assert_eq!(verdict.cause.name(), "this_side");
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Watched {
    seen: Seen,
    sending: Ledger,
    receiving: Ledger,
    rhythm: Rhythm,
    answers: Answers,
    /// The round trip of TCP, if that is the path's.
    round_trip: Option<Duration>,
}

/// What a connection does, and what it has carried so far.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    /// What sending waits for from now on.
    pub sending: Stall,
    /// What receiving waits for from now on: [`Stall::Moving`] for more of a message, [`Stall::Peer`] for the first octet of a
    /// response.
    pub receiving: Stall,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Requests begun.
    pub requests: u64,
}

impl Default for Seen {
    /// An idle connection.
    fn default() -> Self {
        Seen {
            sending: Stall::Idle,
            receiving: Stall::Idle,
            sent_bytes: 0,
            received_bytes: 0,
            requests: 0,
        }
    }
}

/// How long responses took to begin.
#[derive(Debug, Clone, Copy, Default)]
struct Answers {
    shortest: Option<Duration>,
    count: u32,
    spent: Duration,
    /// The part of it that no path explains.
    late: Duration,
}

impl Answers {
    /// A response has begun after so long, or has not begun yet.
    fn add(&mut self, time: Duration, has_begun: bool) {
        if has_begun {
            self.shortest = Some(self.shortest.map_or(time, |shortest| shortest.min(time)));
        }
        self.count = self.count.saturating_add(1);
        self.spent += time;
        self.late += time.saturating_sub(LONGEST_ANSWER);
    }

    /// What a round trip explains of them, and what it does not.
    fn explained(&self, round_trip: Option<Duration>) -> (Duration, Duration) {
        let Some(trip) = round_trip else {
            return (Duration::ZERO, self.late);
        };
        let explained = self.spent.min((trip + trip / 4).saturating_mul(self.count));
        (explained, self.spent - explained)
    }
}

impl Watched {
    /// An idle connection that begins at `now`.
    pub fn new(now: Time) -> Self {
        Watched {
            seen: Seen::default(),
            sending: Ledger::new(now),
            receiving: Ledger::new(now),
            rhythm: Rhythm::default(),
            answers: Answers::default(),
            round_trip: None,
        }
    }

    /// What the connection does at `now`. Call it whenever something arrived, left, or waits for something else.
    pub fn note(&mut self, seen: Seen, now: Time) {
        self.sending.enter(seen.sending, now);
        let has_arrived = seen.received_bytes > self.seen.received_bytes;
        // Until something arrives, what is waited for goes on.
        if has_arrived || seen.receiving != self.seen.receiving {
            self.settle_receiving(has_arrived, now);
            self.receiving.enter(seen.receiving, now);
        }
        self.seen = seen;
    }

    /// The kernel was asked: the rhythm of what arrives is compared with the round trip of TCP, if that spans the path.
    pub fn note_tcp(&mut self, tcp: &TcpInfo) {
        let trip = Some(tcp.min_round_trip).filter(|trip| !trip.is_zero());
        self.round_trip = trip.filter(|_| self.is_spanned_by(tcp));
    }

    /// What it has carried.
    pub fn seen(&self) -> &Seen {
        &self.seen
    }

    /// The state of the connection at `now`, with what the kernel says of TCP below. It has no windows.
    pub fn report(&self, tcp: Option<TcpInfo>, now: Time) -> Report {
        let mut until = *self;
        until.settle_receiving(false, now);
        until.sending.enter(Stall::Idle, now);
        let trip = tcp
            .filter(|tcp| self.is_spanned_by(tcp))
            .map(|tcp| tcp.min_round_trip)
            .filter(|trip| !trip.is_zero());
        let arrivals = until.rhythm.arrivals();
        let (answers, late) = until.answers.explained(trip);
        let mut report = without_windows(until.sending, until.receiving, &self.seen);
        report.arrivals = Arrivals {
            answers,
            silence: arrivals.silence + late,
            ..arrivals
        };
        report.answered_within = self.answers.shortest;
        report.tcp = tcp;
        report
    }

    fn is_spanned_by(&self, tcp: &TcpInfo) -> bool {
        self.answers
            .shortest
            .is_none_or(|shortest| tcp.spans(Some(shortest)))
    }

    /// Attributes the time since something arrived last, or changed.
    fn settle_receiving(&mut self, has_arrived: bool, now: Time) {
        let since = self.receiving.since();
        let pause = now.since(since);
        if pause.is_zero() {
            return;
        }
        let state = match self.seen.receiving {
            Stall::Peer => {
                self.answers.add(pause, has_arrived);
                Stall::Peer
            }
            Stall::Moving if pause >= FLOWING => {
                self.note_pause(since, now, Awaited::Data);
                Stall::Peer
            }
            state => {
                if state == Stall::Application {
                    self.note_pause(since, now, Awaited::Window);
                }
                state
            }
        };
        self.receiving.settle(state, now);
    }

    fn note_pause(&mut self, since: Time, now: Time, awaited: Awaited) {
        // The shortest answer took a round trip at least.
        let trip = self.round_trip.or(self.answers.shortest);
        let received = self.seen.received_bytes;
        self.rhythm.pause((since, now), received, awaited, trip);
    }
}

/// The report of a connection without frames and windows. All that it carries counts as data.
fn without_windows(sending: Ledger, receiving: Ledger, seen: &Seen) -> Report {
    let mut stats = Stats {
        received_bytes: seen.received_bytes,
        received_data_bytes: seen.received_bytes,
        sent_bytes: seen.sent_bytes,
        sent_data_bytes: seen.sent_bytes,
        ..Stats::default()
    };
    stats.sent_frames.add_many(FrameType::HEADERS, seen.requests);
    Report {
        stats,
        sending,
        receiving,
        arrivals: Arrivals::default(),
        receive_window: 0,
        stream_receive_window: 0,
        largest_stream_receive_window: 0,
        send_window: 0,
        largest_send_window: 0,
        stream_send_window: 0,
        largest_stream_send_window: 0,
        promise: Promise::default(),
        streams: 0,
        waiting_streams: 0,
        peer_max_concurrent_streams: 1,
        answered_within: None,
        tcp: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cause, Direction, Role, Verdict};

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    /// TCP with a round trip of so many microseconds, and so many segments of 10,000 out of order.
    fn tcp(micros: u64, out_of_order: u64) -> TcpInfo {
        TcpInfo {
            min_round_trip: Duration::from_micros(micros),
            round_trip: Duration::from_micros(micros),
            received_segments: 10_000,
            out_of_order_segments: Some(out_of_order),
            receive_window: 3_000_000,
            busy: Duration::from_secs(10),
            ..TcpInfo::default()
        }
    }

    /// A response that begins after `answer` ms, and then comes in pieces of 30,000 bytes that begin `period` ms apart and take
    /// `length` ms.
    fn download(answer: u64, rhythm: (u64, u64), tcp: Option<TcpInfo>) -> Cause {
        judged(answer, rhythm, tcp).cause
    }

    fn judged(answer: u64, (period, length): (u64, u64), tcp: Option<TcpInfo>) -> Verdict {
        let mut watched = Watched::new(at(0));
        let mut seen = Seen {
            receiving: Stall::Peer,
            requests: 1,
            ..Seen::default()
        };
        watched.note(seen, at(0));
        seen.receiving = Stall::Moving;
        for piece in 0..40 {
            for step in 0..=length {
                seen.received_bytes += 30_000 / (length + 1);
                watched.note(seen, at(answer + piece * period + step));
            }
            if let (Some(tcp), 5) = (&tcp, piece) {
                watched.note_tcp(tcp);
            }
        }
        seen.receiving = Stall::Idle;
        watched.note(seen, at(answer + 40 * period));
        let report = watched.report(tcp, at(100_000));
        let verdict = Verdict::of(Role::Client, Direction::Receiving, &[report]);
        verdict.expect("it was busy")
    }

    #[test]
    fn a_download_without_frames_has_its_cause() {
        let direct = Some(tcp(100_000, 0));
        assert_eq!(download(100, (100, 90), direct), Cause::Path);
        assert_eq!(download(100, (101, 30), direct).name(), "peer_window");
        assert_eq!(
            download(100, (250, 10), direct),
            Cause::Peer,
            "no loss explains it"
        );
        assert_eq!(download(100, (250, 10), None), Cause::PeerOrPath);
        // 16 segments are on their way in a round trip.
        let lossy = Some(tcp(100_000, 500));
        assert_eq!(download(100, (130, 10), lossy).name(), "loss");
        assert_eq!(download(3_000, (60, 0), None), Cause::PeerOrPath);
        assert_eq!(
            download(6_000, (60, 0), None),
            Cause::Peer,
            "no path takes so long"
        );
    }

    #[test]
    fn tcp_that_ends_at_a_proxy_close_by_blames_nobody() {
        let near = Some(tcp(100, 0));
        assert_eq!(download(100, (250, 10), near), Cause::PeerOrPath);
        assert_eq!(download(100, (101, 30), near).name(), "peer_window");
        let round_trip = |tcp| judged(100, (250, 10), tcp).round_trip;
        assert_eq!((round_trip(near), round_trip(None)), (None, None));
        assert_eq!(
            round_trip(Some(tcp(100_000, 0))),
            Some(Duration::from_millis(100))
        );
    }

    #[test]
    fn requests_in_turn_take_a_round_trip_each_or_longer() {
        let asked = |answer: u64, tcp: TcpInfo| {
            let mut watched = Watched::new(at(0));
            let mut seen = Seen::default();
            for request in 0..50 {
                let begins = request * 1_000;
                (seen.receiving, seen.requests) = (Stall::Peer, request + 1);
                watched.note(seen, at(begins));
                seen.received_bytes += 20_000;
                seen.receiving = Stall::Moving;
                let after = if request == 0 { 100 } else { answer };
                watched.note(seen, at(begins + after));
                seen.receiving = Stall::Idle;
                watched.note(seen, at(begins + after + 1));
            }
            let report = watched.report(Some(tcp), at(100_000));
            let verdict = Verdict::of(Role::Client, Direction::Receiving, &[report]);
            verdict.expect("it was busy").cause
        };
        assert_eq!(asked(110, tcp(100_000, 0)), Cause::RoundTrips);
        assert_eq!(asked(500, tcp(100_000, 0)), Cause::Peer);
        assert_eq!(
            asked(110, tcp(100, 0)),
            Cause::PeerOrPath,
            "a proxy is in between"
        );
    }

    #[test]
    fn an_upload_without_frames_is_judged_by_tcp_or_not_at_all() {
        let upload = |tcp: Option<TcpInfo>| {
            let mut watched = Watched::new(at(0));
            let mut seen = Seen {
                sending: Stall::Socket,
                requests: 1,
                ..Seen::default()
            };
            watched.note(seen, at(0));
            (seen.sending, seen.receiving, seen.sent_bytes) = (Stall::Peer, Stall::Peer, 10_000_000);
            watched.note(seen, at(9_000));
            (seen.sending, seen.receiving, seen.received_bytes) = (Stall::Idle, Stall::Idle, 100);
            watched.note(seen, at(9_100));
            let report = watched.report(tcp, at(100_000));
            let verdict = Verdict::of(Role::Client, Direction::Sending, &[report]);
            verdict.expect("it was busy").cause
        };
        let mut closed = tcp(100_000, 0);
        closed.receiver_limited = Duration::from_secs(8);
        assert_eq!(upload(Some(closed)).name(), "peer_tcp_receive_buffer");
        assert_eq!(upload(Some(tcp(100_000, 0))), Cause::Path);
        closed.min_round_trip = Duration::from_micros(100);
        assert_eq!(
            upload(Some(closed)),
            Cause::PeerOrPath,
            "a proxy's buffer is full"
        );
        assert_eq!(upload(None), Cause::PeerOrPath);
    }
}
