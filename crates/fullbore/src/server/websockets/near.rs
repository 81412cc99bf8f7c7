//! The handler's end of a pipe.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::sync::oneshot;

use super::limit::Place;
use crate::error::Error;

/// How what the client sends has ended, and the place of the WebSocket. Both ends of the pipe hold it.
#[derive(Debug)]
pub(super) struct End {
    error: OnceLock<Error>,
    _place: Place,
}

impl End {
    pub(super) fn new(place: Place) -> Self {
        End {
            error: OnceLock::new(),
            _place: place,
        }
    }

    /// The client has reset its stream, or its connection has ended. Call it before the pipe is closed.
    pub(super) fn fail(&self, error: Error) {
        // The first one counts.
        let _ = self.error.set(error);
    }
}

/// The handler's end: a pipe whose reader fails where the request body failed.
#[derive(Debug)]
pub(super) struct Near {
    pipe: DuplexStream,
    end: Arc<End>,
    /// Dropped with this.
    _alive: oneshot::Sender<()>,
}

impl Near {
    pub(super) fn new(pipe: DuplexStream, end: Arc<End>, alive: oneshot::Sender<()>) -> Self {
        Near {
            pipe,
            end,
            _alive: alive,
        }
    }
}

impl AsyncRead for Near {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.pipe).poll_read(cx, buffer))?;
        let has_read = buffer.filled().len() > before || buffer.remaining() == 0;
        Poll::Ready(match self.end.error.get().filter(|_| !has_read) {
            Some(error) => Err(io::Error::new(io::ErrorKind::ConnectionReset, error.clone())),
            None => Ok(()),
        })
    }
}

impl AsyncWrite for Near {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.pipe).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.pipe).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.pipe.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_shutdown(cx)
    }
}
