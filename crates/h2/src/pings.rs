//! The user's PING (RFC 9113 section 6.7): one handle sends it, one at a time.

use std::task::{Context, Poll, Waker};

use crate::error::Error;
use crate::failure::{Failure, UserError};

/// The opaque data of it.
pub(crate) const OPAQUE: [u8; 8] = [0x3b, 0x7c, 0xdb, 0x7a, 0x0b, 0x87, 0x16, 0xb4];

#[derive(Debug, Default)]
pub(crate) struct Pings {
    stage: Stage,
    task: Option<Waker>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nobody has asked for the handle.
    #[default]
    Untaken,
    Idle,
    Sent,
    Answered,
    Closed,
}

impl Pings {
    /// True for the first caller.
    pub(crate) fn take(&mut self) -> bool {
        let is_first = self.stage == Stage::Untaken;
        if is_first {
            self.stage = Stage::Idle;
        }
        is_first
    }

    /// Whether one may be sent.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.stage {
            Stage::Idle => Ok(()),
            Stage::Closed => Err(closed().into()),
            _ => Err(UserError::SendPingWhilePending.into()),
        }
    }

    pub(crate) fn note_sent(&mut self) {
        self.stage = Stage::Sent;
    }

    pub(crate) fn poll_pong(&mut self, cx: &Context<'_>) -> Poll<Result<(), Error>> {
        match self.stage {
            Stage::Answered => {
                self.stage = Stage::Idle;
                Poll::Ready(Ok(()))
            }
            Stage::Closed => Poll::Ready(Err(closed().into())),
            _ => {
                self.task = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// The peer has acknowledged it.
    pub(crate) fn answer(&mut self) {
        if self.stage == Stage::Sent {
            self.stage = Stage::Answered;
        }
        self.wake();
    }

    /// The connection has ended.
    pub(crate) fn close(&mut self) {
        self.stage = Stage::Closed;
        self.wake();
    }

    fn wake(&mut self) {
        if let Some(task) = self.task.take() {
            task.wake();
        }
    }
}

fn closed() -> Failure {
    Failure::Io(std::io::ErrorKind::BrokenPipe, None)
}
