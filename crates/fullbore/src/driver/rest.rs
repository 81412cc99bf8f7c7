//! A connection at rest keeps no memory for the next batch.
//!
//! What a busy connection keeps, a slab and cells, it would allocate anew for every batch otherwise. A timer is set once a
//! second at most, and never while nothing happens.

use std::future::Future;
use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use fullbore_proto::{StreamMap, Transmit};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, Sleep};

use super::{Accept, Driver, transport};

/// How long nothing has to come before a connection is at rest.
const REST: Duration = Duration::from_secs(1);

/// Whether the connection is at rest.
#[derive(Debug, Default)]
pub(super) struct Rest {
    timer: Option<Pin<Box<Sleep>>>,
    /// Whether anything came since the timer was set.
    disturbed: bool,
}

impl Rest {
    /// Something came.
    pub(super) fn disturb(&mut self) {
        self.disturbed = true;
    }

    /// Whether the connection has just come to rest. Called before the driver sleeps.
    fn begins(&mut self, cx: &mut Context<'_>) -> bool {
        loop {
            let Some(timer) = &mut self.timer else {
                if !self.disturbed {
                    return false;
                }
                self.disturbed = false;
                self.timer = Some(Box::pin(tokio::time::sleep(REST)));
                continue;
            };
            if timer.as_mut().poll(cx).is_pending() {
                return false;
            }
            if !self.disturbed {
                self.timer = None;
                return true;
            }
            self.disturbed = false;
            timer.as_mut().reset(Instant::now() + REST);
        }
    }
}

impl<T, A> Driver<T, A>
where
    T: AsyncRead + AsyncWrite + Unpin,
    A: Accept,
{
    /// Lets go of what only a busy connection needs, once nothing has come for a while.
    pub(super) fn rest(&mut self, cx: &mut Context<'_>) {
        if self.rest.begins(cx) {
            self.slab = bytes::BytesMut::new();
            self.read_size = transport::SMALLEST_READ;
            self.spare_cells = Vec::new();
            if self.cells.is_empty() {
                self.cells = StreamMap::default();
            }
            self.out = Transmit::new();
            self.connection.trim();
            self.accept.rest();
        }
    }
}
