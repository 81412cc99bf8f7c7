//! Detects that a connection is idle, so that it frees the memory it keeps for its next batch.
//!
//! A busy connection keeps a slab and cells that it would otherwise allocate for every batch. Its timer fires ten times a second,
//! less often once it is seen to receive little, and never while nothing happens. A connection whose requests come one by one,
//! each after a rest, has no timer: it frees its memory when it has answered, while that is still in the processor's cache.

use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use super::read::SMALLEST_READ;
use super::timer::Timer;

/// A connection is idle when it has received nothing for this long at a look. Of connections that are opened together, those that
/// received something within this time hold some 12 KiB each, and what they free lies between what they keep: of 10,000 that
/// were opened within two seconds each took 3 KiB more of resident memory when this was a second.
const IDLE: Duration = Duration::from_millis(100);

/// The longest time between two looks at a connection that was busy at the last one, in units of [`IDLE`]. Each look costs a
/// wake-up.
const LONGEST: u32 = 8;

/// The timer of one connection.
#[derive(Debug, Default)]
pub(super) struct IdleTimer {
    timer: Option<Timer>,
    /// How long the timer was set to, in units of [`IDLE`].
    span: u32,
    /// Whether something was received since the last call.
    busy: bool,
    /// How many octets since the timer was set.
    octets: usize,
    /// The time of the last call before which something was received.
    heard: Option<Instant>,
}

/// What a connection has received of late.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Activity {
    /// It is busy, or was found idle before.
    Unchanged,
    /// Less than the smallest read asks for in each tenth of a second since the last look, on average.
    Little,
    /// Nothing of late, or one request after a rest.
    Nothing,
}

impl IdleTimer {
    /// So many octets were received.
    pub(super) fn received(&mut self, octets: usize) {
        self.busy = true;
        self.octets = self.octets.saturating_add(octets);
    }

    /// Called before the driver sleeps. `quiet` is whether no stream is open.
    ///
    /// A second wake-up, for a timer, would find the connection out of the processor's cache.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, quiet: bool, now: Instant) -> Activity {
        if std::mem::take(&mut self.busy) {
            let before = self.heard.replace(now);
            if self.timer.is_none() {
                self.octets = 0;
                if quiet && before.is_some_and(|before| now.duration_since(before) >= IDLE) {
                    return Activity::Nothing;
                }
                self.span = 1;
                self.timer = Some(Timer::at(now + IDLE));
            }
        }
        let mut activity = Activity::Unchanged;
        while let Some(timer) = &mut self.timer {
            if timer.poll(cx, now) == Poll::Pending {
                break;
            }
            if self.heard.is_none_or(|heard| now.duration_since(heard) >= IDLE) {
                self.timer = None;
                return Activity::Nothing;
            }
            // Who receives little keeps little, so that the next look may come later.
            self.span = match self.octets < SMALLEST_READ * self.span as usize {
                true => (self.span * 2).min(LONGEST),
                false => 1,
            };
            if self.span > 1 {
                activity = Activity::Little;
            }
            self.octets = 0;
            timer.reset(now + IDLE * self.span);
        }
        activity
    }

    /// Whether the connection was found idle before, or has never received anything.
    pub(super) fn is_idle(&self) -> bool {
        self.timer.is_none() && !self.busy
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Arc;

    use fullbore_proto::Config;
    use tokio::io::AsyncWriteExt;
    use tokio::time::timeout;

    use super::*;
    use crate::cell::Mailbox;
    use crate::driver::{Driver, NoAccept};

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_says_little_but_often_does_not_keep_what_a_burst_took() {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let mut driver = Driver::server(near, Arc::new(Config::default()), Mailbox::new(), NoAccept);
        far.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\0\x04\x01\0\0\0\0")
            .await
            .expect("the pipe has room");
        // Frames of a type that is not known, as many as fill the largest read.
        let unknown = [&b"\0\x40\0\x77\0\0\0\0\0"[..], &[0; 16_384]].concat();
        far.write_all(&unknown.repeat(40))
            .await
            .expect("the pipe has room");
        let ended = timeout(Duration::from_millis(1), poll_fn(|cx| driver.poll(cx))).await;
        assert!(ended.is_err(), "the connection ended: {ended:?}");
        let largest = driver.input.size;
        assert!(largest > SMALLEST_READ, "{largest}");
        for _ in 0..10 {
            far.write_all(&unknown[..9]).await.expect("the pipe has room");
            far.write_all(&unknown[9..]).await.expect("the pipe has room");
            let ended = timeout(IDLE / 2, poll_fn(|cx| driver.poll(cx))).await;
            assert!(ended.is_err(), "the connection ended: {ended:?}");
        }
        assert_eq!(driver.input.size, largest, "what comes still is much");
        for _ in 0..10 {
            far.write_all(b"\0\0\0\x77\0\0\0\0\0")
                .await
                .expect("the pipe has room");
            let ended = timeout(IDLE / 2, poll_fn(|cx| driver.poll(cx))).await;
            assert!(ended.is_err(), "the connection ended: {ended:?}");
        }
        assert_eq!(driver.input.size, SMALLEST_READ);
        assert!(driver.input.slab.capacity() <= SMALLEST_READ);
    }

    #[tokio::test(start_paused = true)]
    async fn timers_that_wake_a_connection_at_rest_leave_it_without_a_slab() {
        let (near, mut far) = tokio::io::duplex(64 << 10);
        let mut driver = Driver::server(near, Arc::new(Config::default()), Mailbox::new(), NoAccept);
        far.write_all(BEGINNING).await.expect("the pipe has room");
        for seconds in [3, 60] {
            let ended = timeout(Duration::from_secs(seconds), poll_fn(|cx| driver.poll(cx))).await;
            assert!(ended.is_err(), "the connection ended: {ended:?}");
            assert_eq!(driver.input.slab.capacity(), 0, "after {seconds} s more");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn less_than_the_smallest_read_in_a_tenth_of_a_second_is_little() {
        use Activity::{Little, Nothing, Unchanged};

        let mut idle = IdleTimer::default();
        let mut seen = Vec::new();
        for octets in [1, SMALLEST_READ - 1, SMALLEST_READ, SMALLEST_READ - 1, 0, 0] {
            if octets > 0 {
                // The next look comes later.
                idle.received(octets * idle.span.max(1) as usize);
            }
            seen.push(poll_fn(|cx| std::task::Poll::Ready(idle.poll(cx, false, Instant::now()))).await);
            // The first only sets the timer.
            tokio::time::sleep(IDLE * idle.span).await;
        }
        assert_eq!(seen, [Unchanged, Little, Unchanged, Little, Nothing, Unchanged]);
        assert!(idle.is_idle());
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_each_follow_a_rest_need_no_timer() {
        use Activity::{Nothing, Unchanged};

        let mut idle = IdleTimer::default();
        let mut seen = Vec::new();
        // How long each request comes after the one before, and whether it is answered at once.
        let (rest, burst) = (3 * IDLE, IDLE / 2);
        for (after, quiet) in [
            (rest, true),
            (rest, true),
            (rest, true),
            (burst, true),
            (rest, false),
            (rest, true),
        ] {
            // A timer that is over wakes the driver.
            for _ in 0..2 {
                tokio::time::sleep(after / 2).await;
                let _ = poll_fn(|cx| std::task::Poll::Ready(idle.poll(cx, quiet, Instant::now()))).await;
            }
            idle.received(1);
            seen.push((
                poll_fn(|cx| std::task::Poll::Ready(idle.poll(cx, quiet, Instant::now()))).await,
                idle.timer.is_some(),
            ));
        }
        let (by_timer, at_once) = (|| (Unchanged, true), || (Nothing, false));
        let wanted = [
            by_timer(),
            at_once(),
            at_once(),
            by_timer(),
            by_timer(),
            at_once(),
        ];
        assert_eq!(seen, wanted);
    }

    /// The preface, SETTINGS, and the acknowledgement of the server's.
    const BEGINNING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\0\x04\x01\0\0\0\0";
}
