//! The body of a request: bytes, or what Python feeds piece by piece.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use fullbore::client::Body;
use http::HeaderMap;
use http_body::Frame;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use std::sync::{Mutex, PoisonError};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, Receiver, Sender};

use crate::outcome::Outcome;
use crate::owned::Owned;
use crate::queue::{Call, Queue};
use crate::request::{Fields, header_map};
use crate::runtime::Runtime;

/// Bytes up to this length are copied: then no thread of the runtime ever releases an object of Python for them.
const MOST_COPIED: usize = 1 << 20;

/// The pieces that wait for the network.
const PIECES: usize = 4;

/// Bytes of Python as those of the library.
pub(crate) fn bytes(bytes: PyBackedBytes) -> Bytes {
    match bytes.len() <= MOST_COPIED {
        true => Bytes::copy_from_slice(&bytes),
        false => Bytes::from_owner(bytes),
    }
}

enum Piece {
    Data(Bytes),
    End(Option<HeaderMap>),
    Broken(String),
}

/// A body that Python feeds. Whatever is dropped before [`Feed::finish`] breaks the request off.
#[pyclass(frozen, module = "fullbore._native")]
pub(crate) struct Feed {
    inner: Owned<Inner>,
}

struct Inner {
    runtime: Handle,
    sender: Sender<Piece>,
    receiver: Mutex<Option<Receiver<Piece>>>,
}

#[pymethods]
impl Feed {
    #[new]
    fn new(runtime: &Runtime) -> PyResult<Self> {
        let (sender, receiver) = mpsc::channel(PIECES);
        let inner = Inner {
            runtime: runtime.handle()?.clone(),
            sender,
            receiver: Mutex::new(Some(receiver)),
        };
        Ok(Feed {
            inner: Owned::new(inner),
        })
    }

    /// Adds a piece. Returns whether more is wanted, or a call that will say so once the piece had room.
    fn push(&self, queue: &Queue, data: PyBackedBytes) -> PyResult<(Option<bool>, Option<Call>)> {
        self.put(queue, Piece::Data(bytes(data)))
    }

    /// Ends the body, as [`Self::push`], with these fields behind it.
    #[pyo3(signature = (queue, trailers=None))]
    fn finish(&self, queue: &Queue, trailers: Option<Fields>) -> PyResult<(Option<bool>, Option<Call>)> {
        self.put(queue, Piece::End(trailers.as_ref().map(header_map).transpose()?))
    }

    /// Breaks the request off, for this reason, as [`Self::push`].
    fn fail(&self, queue: &Queue, reason: String) -> PyResult<(Option<bool>, Option<Call>)> {
        self.put(queue, Piece::Broken(reason))
    }
}

impl Feed {
    fn put(&self, queue: &Queue, piece: Piece) -> PyResult<(Option<bool>, Option<Call>)> {
        let inner = self.inner.get()?;
        match inner.sender.try_send(piece) {
            Ok(()) => Ok((Some(true), None)),
            Err(mpsc::error::TrySendError::Closed(_)) => Ok((Some(false), None)),
            Err(mpsc::error::TrySendError::Full(piece)) => {
                let sender = inner.sender.clone();
                let call = queue.start(&inner.runtime, async move {
                    Ok(Outcome::of(sender.send(piece).await.is_ok()))
                })?;
                Ok((None, Some(call)))
            }
        }
    }

    /// The body, once.
    pub(crate) fn body(&self) -> PyResult<Body> {
        let mut receiver = self
            .inner
            .get()?
            .receiver
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match receiver.take() {
            Some(receiver) => Ok(Body::wrap(Fed {
                receiver,
                is_over: false,
            })),
            None => Err(PyRuntimeError::new_err("the body was sent already")),
        }
    }
}

struct Fed {
    receiver: Receiver<Piece>,
    /// The trailers were taken.
    is_over: bool,
}

impl http_body::Body for Fed {
    type Data = Bytes;
    type Error = fullbore::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, fullbore::BoxError>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let piece = std::task::ready!(self.receiver.poll_recv(cx));
        Poll::Ready(match piece {
            Some(Piece::Data(data)) => Some(Ok(Frame::data(data))),
            Some(Piece::End(trailers)) => {
                self.is_over = true;
                trailers.map(|trailers| Ok(Frame::trailers(trailers)))
            }
            Some(Piece::Broken(reason)) => Some(Err(reason.into())),
            None => Some(Err("nobody feeds it any more".into())),
        })
    }
}
