//! The body of a response, as it is read.
//!
//! Bytes that have arrived are taken without a task ([`Reader::poll`]); a task only waits for them ([`Reader::wait`]). It keeps
//! them here, so that a wait that is canceled loses nothing.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes};
use fullbore::Incoming;
use http::HeaderMap;
use http_body::Body;
use pyo3::IntoPyObjectExt;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use tokio::runtime::Handle;
use tokio::sync::Mutex as Turn;

use crate::failure::Failure;
use crate::fields::pairs;
use crate::limits::seconds;
use crate::outcome::Outcome;
use crate::owned::Owned;
use crate::queue::{Call, Queue};

/// A longer body is read in pieces.
const MOST_GATHERED: usize = 4 << 20;

#[pyclass(frozen, module = "fullbore._native")]
pub(crate) struct Reader {
    inner: Owned<Inner>,
}

struct Inner {
    runtime: Handle,
    shared: Arc<Shared>,
}

struct Shared {
    url: String,
    state: Turn<State>,
    trailers: Mutex<Option<HeaderMap>>,
}

struct State {
    /// `None` at the end.
    incoming: Option<Incoming>,
    /// What was taken from it and not yet read.
    held: VecDeque<Bytes>,
    held_bytes: usize,
    failure: Option<Failure>,
}

impl Reader {
    pub(crate) fn new(incoming: Incoming, url: String, runtime: Handle) -> Self {
        let state = State {
            incoming: Some(incoming),
            held: VecDeque::new(),
            held_bytes: 0,
            failure: None,
        };
        let shared = Shared {
            url,
            state: Turn::new(state),
            trailers: Mutex::default(),
        };
        let inner = Inner {
            runtime,
            shared: Arc::new(shared),
        };
        Reader {
            inner: Owned::new(inner),
        }
    }

    /// Calls `take` when `least` bytes are held, or the body has ended. Of what has arrived, about `most` are held.
    fn arrived<T>(
        &self,
        least: usize,
        most: usize,
        take: impl FnOnce(&mut State) -> PyResult<T>,
    ) -> PyResult<Option<T>> {
        let inner = self.inner.get()?;
        let Ok(mut state) = inner.shared.state.try_lock() else {
            // Somebody waits, or the end of a wait that was canceled is not here yet: the next wait comes behind it.
            return Ok(None);
        };
        let _guard = inner.runtime.enter();
        let mut cx = Context::from_waker(Waker::noop());
        while state.held_bytes < most && inner.shared.poll_frame(&mut state, &mut cx).is_ready() {
            if state.incoming.is_none() {
                break;
            }
        }
        if state.incoming.is_some() && state.held_bytes < least.max(1) {
            return Ok(None);
        }
        take(&mut state).map(Some)
    }

    /// Waits for the end of the body, which is then here or has failed. Of a longer one than `MOST_GATHERED` it waits for so much:
    /// the rest is read in pieces, so that it is not in memory twice.
    pub(crate) async fn gather_all(&self, limit: Option<Duration>) {
        if let Ok(inner) = self.inner.get() {
            inner.shared.gather(MOST_GATHERED, limit).await;
        }
    }
}

#[pymethods]
impl Reader {
    /// Returns `least` to `most` bytes, less at the end, and none behind it; `None` if they have not arrived. Without `least`
    /// the whole rest is wanted, or the failure that it has ended with, which comes behind the last bytes otherwise.
    #[pyo3(signature = (least=None, most=None))]
    fn poll<'py>(
        &self,
        py: Python<'py>,
        least: Option<usize>,
        most: Option<usize>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (is_whole, least) = (least.is_none(), least.unwrap_or(usize::MAX));
        let most = most.unwrap_or(usize::MAX);
        self.arrived(least, most, |state| {
            if state.held_bytes == 0 || is_whole {
                if let Some(failure) = &state.failure {
                    return Ok(failure.clone().into_value(py)?.into_any());
                }
            }
            let size = state.held_bytes.min(most);
            let bytes = PyBytes::new_with(py, size, |mut whole| {
                state.take(size, |part| {
                    let (filled, rest) = std::mem::take(&mut whole).split_at_mut(part.len());
                    filled.copy_from_slice(part);
                    whole = rest;
                });
                Ok(())
            })?;
            Ok(bytes.into_any())
        })
    }

    /// Copies `least` to `most` bytes to a place of a buffer, less at its end or that of the body, and returns how many; `None` if
    /// they have not arrived. The failure that the body has ended with comes behind the last bytes.
    fn poll_into<'py>(
        &self,
        py: Python<'py>,
        buffer: PyBuffer<u8>,
        place: usize,
        least: usize,
        most: usize,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let room = buffer.as_mut_slice(py).and_then(|whole| whole.get(place..));
        let mut room =
            room.ok_or_else(|| PyValueError::new_err("buffer has no such place, or is read-only"))?;
        let most = most.min(room.len());
        self.arrived(least.min(most), most, |state| {
            if state.held_bytes == 0 {
                if let Some(failure) = &state.failure {
                    return Ok(failure.clone().into_value(py)?.into_any());
                }
            }
            let size = state.held_bytes.min(most);
            state.take(size, |part| {
                let (filled, rest) = room.split_at(part.len());
                for (cell, byte) in filled.iter().zip(part) {
                    cell.set(*byte);
                }
                room = rest;
            });
            size.into_bound_py_any(py)
        })
    }

    /// Completes when `least` bytes have arrived, or the body has ended or failed. `limit` is that of each wait for more.
    /// Without `least` it is the whole body.
    fn wait(&self, queue: &Queue, least: Option<usize>, limit: Option<f64>) -> PyResult<Call> {
        let inner = self.inner.get()?;
        let (shared, limit) = (Arc::clone(&inner.shared), seconds(limit));
        queue.start(&inner.runtime, async move {
            shared.gather(least.unwrap_or(usize::MAX), limit).await;
            Ok(Outcome::nothing())
        })
    }

    /// The length of the rest of the body, if it is known. A peer may announce what it never sends.
    fn announced(&self) -> PyResult<Option<u64>> {
        let state = self.inner.get()?.shared.state.try_lock();
        Ok(state.ok().and_then(|state| {
            let left = state
                .incoming
                .as_ref()
                .map_or(Some(0), |incoming| incoming.size_hint().exact());
            left.map(|left| left.saturating_add(state.held_bytes as u64))
        }))
    }

    /// The fields behind the body, if it has ended and there were any.
    fn trailers<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyList>>> {
        let shared = &self.inner.get()?.shared;
        let trailers = shared.trailers.lock().unwrap_or_else(PoisonError::into_inner);
        trailers.as_ref().map(|trailers| pairs(py, trailers)).transpose()
    }

    /// Whether all of it has been read.
    fn is_at_end(&self) -> PyResult<bool> {
        let state = self.inner.get()?.shared.state.try_lock();
        Ok(state.is_ok_and(|state| {
            let left = state
                .incoming
                .as_ref()
                .is_some_and(|incoming| !incoming.is_end_stream());
            !left && state.held_bytes == 0 && state.failure.is_none()
        }))
    }

    /// Drops the rest: over HTTP/2 the stream is reset, over HTTP/1.1 the connection ends.
    fn close(&self) {
        let Ok(inner) = self.inner.get() else { return };
        let shared = Arc::clone(&inner.shared);
        if let Ok(mut state) = inner.shared.state.try_lock() {
            state.close();
            return;
        }
        inner
            .runtime
            .spawn(async move { shared.state.lock().await.close() });
    }
}

impl Shared {
    /// Waits until so many bytes are held, or the body has ended or failed.
    async fn gather(&self, least: usize, limit: Option<Duration>) {
        let mut state = self.state.lock().await;
        while state.incoming.is_some() && state.held_bytes < least.max(1) {
            let next = std::future::poll_fn(|cx| self.poll_frame(&mut state, cx));
            match limit {
                None => next.await,
                Some(limit) => {
                    if tokio::time::timeout(limit, next).await.is_err() {
                        let late = Failure::timeout("read_timeout", "no more of the body came", limit);
                        state.fail(late.of(&self.url));
                    }
                }
            }
        }
    }

    fn poll_frame(&self, state: &mut State, cx: &mut Context<'_>) -> Poll<()> {
        let Some(incoming) = &mut state.incoming else {
            return Poll::Ready(());
        };
        match std::task::ready!(Pin::new(incoming).poll_frame(cx)) {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => {
                    state.held_bytes += data.len();
                    state.held.push_back(data);
                }
                Err(frame) => {
                    *self.trailers.lock().unwrap_or_else(PoisonError::into_inner) =
                        frame.into_trailers().ok();
                }
            },
            Some(Err(error)) => state.fail(Failure::from(error).of(&self.url)),
            None => state.incoming = None,
        }
        Poll::Ready(())
    }
}

impl State {
    fn fail(&mut self, failure: Failure) {
        self.incoming = None;
        self.failure = Some(failure);
    }

    fn close(&mut self) {
        if self.incoming.take().is_some() || self.held_bytes > 0 {
            self.failure = Some(Failure::new(
                "stream_closed",
                "the response was closed before its end",
            ));
        }
        self.held.clear();
        self.held_bytes = 0;
    }

    /// Passes on the first `size` bytes, part by part. So many are held.
    fn take(&mut self, mut size: usize, mut copy: impl FnMut(&[u8])) {
        self.held_bytes -= size;
        while size > 0 {
            let Some(mut chunk) = self.held.pop_front() else {
                return;
            };
            let part = chunk.len().min(size);
            copy(&chunk[..part]);
            size -= part;
            chunk.advance(part);
            if chunk.has_remaining() {
                self.held.push_front(chunk);
            }
        }
    }
}

/// Reads a whole body into memory of its own.
pub(crate) async fn read_whole(mut incoming: Incoming, limit: Option<Duration>) -> Result<Vec<u8>, Failure> {
    /// The most that is reserved because a length promises it.
    const MOST_RESERVED: u64 = 1 << 20;
    let expected = incoming
        .size_hint()
        .exact()
        .unwrap_or_default()
        .min(MOST_RESERVED);
    let mut whole = Vec::with_capacity(usize::try_from(expected).unwrap_or_default());
    loop {
        let next = std::future::poll_fn(|cx| Pin::new(&mut incoming).poll_frame(cx));
        let frame = match limit {
            None => next.await,
            Some(limit) => tokio::time::timeout(limit, next)
                .await
                .map_err(|_| Failure::timeout("read_timeout", "no more of the body came", limit))?,
        };
        match frame {
            Some(frame) => {
                if let Ok(data) = frame?.into_data() {
                    whole.extend_from_slice(&data);
                }
            }
            None => return Ok(whole),
        }
    }
}
