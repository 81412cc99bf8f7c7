//! A connection at rest keeps no memory for the next batch.
//!
//! What a busy connection keeps, a slab and cells, it would allocate anew for every batch otherwise. A timer is set ten
//! times a second at most, and never while nothing happens.

use std::future::Future;
use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use bytes::Buf;
use fullbore_proto::{StreamMap, Time, Transmit};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, Sleep};

use super::{Accept, Driver, transport};

/// How long nothing has to come before a connection is at rest. Of connections that come together, all that came within this
/// time hold some 12 KiB each, and what they give back lies between what they keep: of 10,000 that were opened within two
/// seconds each took 3 KiB more of resident memory when it was a second.
const REST: Duration = Duration::from_millis(100);

/// Whether the connection is at rest.
#[derive(Debug, Default)]
pub(super) struct Rest {
    timer: Option<Pin<Box<Sleep>>>,
    /// Whether anything came since the timer was set.
    disturbed: bool,
    /// How many octets came since then.
    octets: usize,
}

/// How long nothing has come.
#[derive(Debug, PartialEq, Eq)]
enum Quiet {
    /// Not long.
    No,
    /// Little has come since the timer was set: less than the smallest read asks for.
    Nearly,
    /// Nothing has.
    Yes,
}

impl Rest {
    /// So many octets came.
    pub(super) fn disturb(&mut self, octets: usize) {
        self.disturbed = true;
        self.octets = self.octets.saturating_add(octets);
    }

    /// Whether the connection has just come to rest. Called before the driver sleeps.
    fn begins(&mut self, cx: &mut Context<'_>) -> Quiet {
        let mut quiet = Quiet::No;
        loop {
            let Some(timer) = &mut self.timer else {
                if !self.disturbed {
                    return quiet;
                }
                self.disturbed = false;
                self.octets = 0;
                self.timer = Some(Box::pin(tokio::time::sleep(REST)));
                continue;
            };
            if timer.as_mut().poll(cx).is_pending() {
                return quiet;
            }
            if !self.disturbed {
                self.timer = None;
                return Quiet::Yes;
            }
            if self.octets < transport::SMALLEST_READ {
                quiet = Quiet::Nearly;
            }
            self.disturbed = false;
            self.octets = 0;
            timer.as_mut().reset(Instant::now() + REST);
        }
    }

    /// Whether it is at rest already, or nothing ever came.
    fn goes_on(&self) -> bool {
        self.timer.is_none() && !self.disturbed
    }
}

impl<T, A> Driver<T, A>
where
    T: AsyncRead + AsyncWrite + Unpin,
    A: Accept,
{
    /// Lets go of what only a busy connection needs, once nothing has come for a while.
    pub(super) fn rest(&mut self, cx: &mut Context<'_>) {
        let quiet = self.rest.begins(cx);
        let grown = self.read_size > transport::SMALLEST_READ;
        if quiet == Quiet::Yes || (quiet == Quiet::Nearly && grown) {
            // A peer that says little, but often, does not keep what a burst took.
            self.slab = bytes::BytesMut::new();
            self.read_size = transport::SMALLEST_READ;
        }
        if quiet == Quiet::Yes {
            self.spare_cells = Vec::new();
            if self.cells.is_empty() {
                self.cells = StreamMap::default();
            }
            // A peer that neither says nor reads anything is to get the rest of the list when it reads again.
            if !self.out.has_remaining() {
                self.out = Transmit::new();
            }
            self.connection.trim();
            self.dated_until = Time::ZERO;
            self.accept.rest();
        } else if self.rest.goes_on() {
            // Something else than the peer has woken it, a timer perhaps, and the read found nothing to put into a slab.
            self.slab = bytes::BytesMut::new();
        }
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
    use crate::driver::NoAccept;

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
        let largest = driver.read_size;
        assert!(largest > transport::SMALLEST_READ, "{largest}");
        for _ in 0..10 {
            far.write_all(&unknown[..9]).await.expect("the pipe has room");
            far.write_all(&unknown[9..]).await.expect("the pipe has room");
            let ended = timeout(REST / 2, poll_fn(|cx| driver.poll(cx))).await;
            assert!(ended.is_err(), "the connection ended: {ended:?}");
        }
        assert_eq!(driver.read_size, largest, "what comes still is much");
        for _ in 0..10 {
            far.write_all(b"\0\0\0\x77\0\0\0\0\0")
                .await
                .expect("the pipe has room");
            let ended = timeout(REST / 2, poll_fn(|cx| driver.poll(cx))).await;
            assert!(ended.is_err(), "the connection ended: {ended:?}");
        }
        assert_eq!(driver.read_size, transport::SMALLEST_READ);
        assert!(driver.slab.capacity() <= transport::SMALLEST_READ);
    }

    #[tokio::test(start_paused = true)]
    async fn timers_that_wake_a_connection_at_rest_leave_it_without_a_slab() {
        let (near, mut far) = tokio::io::duplex(64 << 10);
        let mut driver = Driver::server(near, Arc::new(Config::default()), Mailbox::new(), NoAccept);
        far.write_all(BEGINNING).await.expect("the pipe has room");
        for seconds in [3, 60] {
            let ended = timeout(Duration::from_secs(seconds), poll_fn(|cx| driver.poll(cx))).await;
            assert!(ended.is_err(), "the connection ended: {ended:?}");
            assert_eq!(driver.slab.capacity(), 0, "after {seconds} s more");
        }
    }

    /// The preface, SETTINGS, and the acknowledgement of the server's.
    const BEGINNING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\0\x04\x01\0\0\0\0";

    /// A PING that is acknowledged already.
    const PING: &[u8] = b"\0\0\x08\x06\x01\0\0\0\0rejoiced";

    #[tokio::test(start_paused = true)]
    async fn a_busy_connection_keeps_its_slab_until_nothing_has_come_for_a_tenth_of_a_second() {
        let (near, mut far) = tokio::io::duplex(64 << 10);
        let mut driver = Driver::server(near, Arc::new(Config::default()), Mailbox::new(), NoAccept);
        let mut run = async |octets: &[u8], millis| {
            far.write_all(octets).await.expect("the pipe has room");
            let time = Duration::from_millis(millis);
            let ended = timeout(time, poll_fn(|cx| driver.poll(cx))).await;
            assert!(ended.is_err(), "the connection ended: {ended:?}");
            driver.slab.capacity()
        };
        assert_ne!(run(BEGINNING, 1).await, 0);
        // The timer of 100 ms is set again whenever something has come before it fires.
        for _ in 0..5 {
            assert_ne!(run(PING, 99).await, 0);
        }
        assert_eq!(run(b"", 200).await, 0);
    }
}
