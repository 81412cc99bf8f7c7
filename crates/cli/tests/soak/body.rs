//! A part of the byte pattern as a body: whole, slow, broken off, or without a length.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use fullbore::{BoxError, Incoming};
use fullbore_testing::pattern::{self, Check};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::time::{Sleep, sleep};

use crate::Outcome;

/// How a body is sent.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Manner {
    /// Waits this long before each piece.
    pub(crate) pause: Option<Duration>,
    /// Fails where it should end.
    pub(crate) fails: bool,
    /// Has no `content-length`.
    pub(crate) unsized_: bool,
}

/// The body.
pub(crate) struct Pieces {
    position: u64,
    end: u64,
    manner: Manner,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Pieces {
    pub(crate) fn new(position: u64, length: u64, manner: Manner) -> Self {
        let end = position + length;
        Self {
            position,
            end,
            manner,
            sleep: None,
        }
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(pause) = self.manner.pause {
            let waiting = self.sleep.get_or_insert_with(|| Box::pin(sleep(pause)));
            if waiting.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.sleep = None;
        }
        let left = self.end - self.position;
        if left == 0 {
            return Poll::Ready(self.manner.fails.then(|| Err("fails as it was told to".into())));
        }
        // A slow body has few pieces, so that its pauses and not its length make it slow.
        let most = if self.manner.pause.is_some() {
            (left / 8).max(1)
        } else {
            left
        };
        let piece = pattern::slice(self.position, most.min(64 << 10));
        self.position += piece.len() as u64;
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.position == self.end && !self.manner.fails
    }

    fn size_hint(&self) -> SizeHint {
        match self.manner {
            Manner {
                fails: false,
                unsized_: false,
                ..
            } => SizeHint::with_exact(self.end - self.position),
            _ => SizeHint::default(),
        }
    }
}

/// Reads up to `enough` bytes, comparing them and pausing before each frame; how many came.
pub(crate) async fn check(
    body: &mut Incoming,
    salt: u64,
    enough: u64,
    pause: Option<Duration>,
) -> Outcome<u64> {
    let mut check = Check::new(salt);
    while check.count() < enough {
        let Some(frame) = body.frame().await else { break };
        let frame = frame.map_err(|error| format!("after {} bytes: {error}", check.count()))?;
        check.update(frame.data_ref().map_or(&[][..], |data| data))?;
        if let Some(pause) = pause {
            sleep(pause).await;
        }
    }
    Ok(check.count())
}

/// Reads all of a body of this length.
pub(crate) async fn check_all(
    mut body: Incoming,
    salt: u64,
    length: u64,
    pause: Option<Duration>,
) -> Outcome {
    match check(&mut body, salt, u64::MAX, pause).await? {
        count if count == length => Ok(()),
        count => Err(format!("{count} bytes arrived, {length} were sent").into()),
    }
}
