//! What TCP says of the path while an experiment lasts.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use fullbore_proto::TcpInfo;
use tokio::time::Instant;

use super::judge::Facts;

/// What the kernel says of a connection.
pub(in crate::client) type TcpReport = Pin<Box<dyn Future<Output = Option<TcpInfo>> + Send>>;

/// How often TCP is asked, and over how many answers its round trip is looked at, once there are so many. A queue is there
/// all the time while a connection fills the link, and a busy machine is late only now and then.
const INTERVAL: Duration = Duration::from_millis(50);
const ANSWERS: usize = 3;
const ENOUGH: usize = 2;

/// For how long a packet out of order, or one that was sent again, says that packets are lost: this time, or this many round
/// trips if they take longer. Of 500 packets a round trip, and 0.01 % lost, one is lost in 20 round trips.
const MEMORY: Duration = Duration::from_secs(2);
const MEMORY_ROUNDS: u32 = 20;

/// A queue makes the round trip this much longer than the least: by this factor, and by more than a busy machine does.
const QUEUE: f64 = 1.15;
const BUSY: Duration = Duration::from_millis(5);

/// Asks TCP about a connection, and keeps the last answers.
#[derive(Default)]
pub(in crate::client) struct Watch {
    asked: Option<TcpReport>,
    asked_at: Option<Instant>,
    round_trips: VecDeque<Duration>,
    least: Option<Duration>,
    out_of_order: u64,
    sent_again: u64,
    lost_at: Option<Instant>,
}

impl Watch {
    /// Asks from time to time.
    pub(in crate::client) fn ask(&mut self, report: impl FnOnce() -> TcpReport, now: Instant) {
        let is_due = self.asked_at.is_none_or(|at| now >= at + INTERVAL);
        if is_due && self.asked.is_none() {
            self.asked = Some(report());
            self.asked_at = Some(now);
        }
    }

    pub(in crate::client) fn poll(&mut self, now: Instant, cx: &mut Context<'_>) {
        if let Some(Poll::Ready(answer)) = self.asked.as_mut().map(|asked| asked.as_mut().poll(cx)) {
            self.asked = None;
            if let Some(tcp) = answer {
                self.note(&tcp, now);
            }
        }
    }

    /// Keeps an answer, from time to time.
    pub(in crate::client) fn look(&mut self, tcp: &TcpInfo, now: Instant) {
        if self.asked_at.is_none_or(|at| now >= at + INTERVAL) {
            self.asked_at = Some(now);
            self.note(tcp, now);
        }
    }

    /// Whether packets came out of order, or were sent again.
    pub(in crate::client) fn has_lost(&self) -> bool {
        self.lost_at.is_some()
    }

    fn note(&mut self, tcp: &TcpInfo, now: Instant) {
        // With what queues add on the way of most of the data.
        let is_sending = tcp.first_sent_bytes() > tcp.received_bytes;
        let now_trip = if is_sending {
            tcp.round_trip
        } else {
            tcp.receive_round_trip
        };
        let trips = [tcp.min_round_trip, now_trip];
        let known = trips.into_iter().filter(|trip| !trip.is_zero());
        self.least = known.chain(self.least).min();
        if !now_trip.is_zero() {
            self.round_trips.push_back(now_trip);
            if self.round_trips.len() > ANSWERS {
                self.round_trips.pop_front();
            }
        }
        let out_of_order = tcp.out_of_order_segments.unwrap_or(0);
        if out_of_order > self.out_of_order || tcp.sent_again_bytes > self.sent_again {
            self.out_of_order = out_of_order.max(self.out_of_order);
            self.sent_again = tcp.sent_again_bytes.max(self.sent_again);
            self.lost_at = Some(now);
        }
    }

    /// The last round trips.
    #[cfg(feature = "tracing")]
    pub(in crate::client) fn round_trips(&self) -> &VecDeque<Duration> {
        &self.round_trips
    }

    /// What is known, once there were enough answers.
    pub(in crate::client) fn facts(&self, now: Instant) -> Option<Facts> {
        let least = self.least?;
        let shortest = self.round_trips.iter().min()?;
        (self.round_trips.len() >= ENOUGH).then(|| Facts {
            is_queueing: *shortest > least.mul_f64(QUEUE) + BUSY,
            may_queue: *shortest > least.mul_f64(QUEUE),
            loses: self
                .lost_at
                .is_some_and(|at| now < at + MEMORY.max(MEMORY_ROUNDS * least)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn seen(trips: &[u32], out_of_order: u64) -> Option<Facts> {
        let now = Instant::now();
        let mut watch = Watch::default();
        for trip in trips {
            let mut tcp = TcpInfo::default();
            tcp.min_round_trip = 100 * MS;
            tcp.receive_round_trip = *trip * MS;
            tcp.out_of_order_segments = Some(out_of_order);
            watch.note(&tcp, now);
        }
        watch.facts(now + MS)
    }

    #[test]
    fn a_queue_is_there_while_every_round_trip_is_longer_than_the_least() {
        let is_queueing = |trips: &[u32]| seen(trips, 0).map(|facts| facts.is_queueing);
        assert_eq!(is_queueing(&[200]), None, "too few answers");
        assert_eq!(is_queueing(&[200; 2]), Some(true));
        assert_eq!(is_queueing(&[200, 110, 200]), Some(false));
        assert_eq!(is_queueing(&[100, 200, 200, 200]), Some(true));
        assert_eq!(is_queueing(&[0, 100]), None, "an unknown one");
    }

    #[test]
    fn of_a_connection_that_sends_the_round_trip_and_the_losses_are_those_of_what_it_sends() {
        let facts = |trip: u32, sent_again: u64| {
            let now = Instant::now();
            let mut watch = Watch::default();
            let mut tcp = TcpInfo::default();
            tcp.min_round_trip = 100 * MS;
            tcp.receive_round_trip = 100 * MS;
            tcp.round_trip = trip * MS;
            (tcp.received_bytes, tcp.sent_bytes, tcp.sent_again_bytes) = (1_000, 100_000, sent_again);
            watch.note(&tcp, now);
            watch.note(&tcp, now);
            watch
                .facts(now + MS)
                .map(|facts| (facts.is_queueing, facts.loses))
        };
        assert_eq!(facts(100, 0), Some((false, false)));
        assert_eq!(facts(200, 0), Some((true, false)));
        assert_eq!(facts(100, 1_448), Some((false, true)));
    }

    #[test]
    fn packets_out_of_order_are_losses_for_a_while() {
        assert_eq!(seen(&[100; 5], 0).map(|facts| facts.loses), Some(false));
        assert_eq!(seen(&[100; 5], 3).map(|facts| facts.loses), Some(true));
        let now = Instant::now();
        let mut watch = Watch::default();
        let mut tcp = TcpInfo::default();
        tcp.receive_round_trip = MS;
        tcp.out_of_order_segments = Some(3);
        for step in 0..40 {
            watch.note(&tcp, now + step * INTERVAL);
        }
        assert_eq!(
            watch.facts(now + 40 * INTERVAL).map(|facts| facts.loses),
            Some(false)
        );
    }
}
