//! The body of an HTTP/1.1 request: whatever the caller's type, of the announced length, and held back while the server
//! may refuse it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep};

use super::sent::SentBody;
use super::tolerant::Writes;
use crate::client::erased::Erased;
use crate::content_length::Length;
use crate::error::{BoxError, Error};
use crate::http1::{BodyEnd, BodyWatch, Measured, Next};

/// A body for hyper.
pub(crate) struct Outgoing {
    body: Option<Boxed>,
    measured: Measured,
    /// Set when the request is sent.
    upload: Option<Arc<Upload>>,
    patience: Option<Pin<Box<Sleep>>>,
}

type Boxed = Pin<Box<Erasable>>;
type Erasable = dyn Body<Data = Bytes, Error = BoxError> + Send;

/// What the connection, the body of the request and the reader of the response tell each other.
#[derive(Default)]
pub(super) struct Upload(Mutex<State>);

#[derive(Default)]
struct State {
    /// When the last octet was handed over.
    ended: Option<Instant>,
    /// Whether 100 (Continue) has to come first, and how long the body waits for it.
    waits: Option<Duration>,
    /// Whether the server answered with an error before it had the body, so that no more of it is sent.
    refused: bool,
    /// Whether the response was read to its end, or given up.
    response_read: bool,
    /// Informational responses so far.
    informational: u32,
    error: Option<Error>,
    waker: Option<Waker>,
    /// What has left of the body, if the caller wants to know.
    sent: Option<SentBody>,
}

impl Upload {
    pub(super) fn new(waits: Option<Duration>) -> Arc<Self> {
        let state = State {
            waits,
            ..State::default()
        };
        Arc::new(Upload(Mutex::new(state)))
    }

    /// An informational response came. With 100 (Continue) the server wants the body.
    pub(super) fn informed(&self, is_continue: bool) {
        self.change(|state| {
            state.informational += 1;
            state.waits = state.waits.filter(|_| !is_continue);
        });
    }

    /// The number of informational responses.
    pub(super) fn informational(&self) -> u32 {
        self.lock().informational
    }

    /// The final response has begun. With an error status the server does not want the rest of the body (RFC 9112
    /// section 9.5).
    pub(super) fn answered(&self, is_error: bool) {
        self.change(|state| {
            state.waits = None;
            state.refused = is_error && state.ended.is_none();
        });
    }

    /// Whether the body of the response is being read.
    pub(super) fn is_read(&self) -> bool {
        !self.lock().response_read
    }

    /// Waits until the body of the response was read to its end, or given up.
    pub(super) fn poll_response_read(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if state.response_read {
            return Poll::Ready(());
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// When the body was handed over.
    pub(super) fn ended(&self) -> Option<Instant> {
        self.lock().ended
    }

    /// Why the exchange failed on this side. Only the first error counts.
    pub(super) fn fail(&self, error: &Error) {
        self.lock().error.get_or_insert_with(|| error.clone());
    }

    pub(super) fn error(&self) -> Option<Error> {
        self.lock().error.clone()
    }

    /// Counts what leaves of the body.
    pub(super) fn count(&self, sent: SentBody) {
        self.lock().sent = Some(sent);
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Measures what leaves of a body, while its connection carries it.
pub(super) struct Departure<'a> {
    upload: &'a Upload,
    writes: &'a Writes,
    /// What the connection had sent before; `None` if nobody wants to know.
    before: Option<u64>,
}

impl<'a> Departure<'a> {
    pub(super) fn start(upload: &'a Upload, writes: &'a Writes, before: u64) -> Self {
        let is_wanted = upload.lock().sent.is_some();
        if is_wanted {
            writes.find_head();
        }
        Departure {
            upload,
            writes,
            before: is_wanted.then_some(before),
        }
    }

    /// The connection has sent so many octets.
    pub(super) fn wrote(&self, octets: u64) {
        let Some(head) = self.before.and_then(|before| Some(before + self.writes.head()?)) else {
            return;
        };
        let mut state = self.upload.lock();
        let ended = state.ended.is_some();
        if let Some(sent) = &mut state.sent {
            sent.wrote(octets.saturating_sub(head));
            if ended && sent.is_all() {
                state.sent = None;
            }
        }
    }
}

impl Drop for Departure<'_> {
    fn drop(&mut self) {
        if self.before.is_some() {
            self.upload.lock().sent = None;
        }
    }
}

/// The reader of the response.
pub(super) struct Reader(pub(super) Arc<Upload>);

impl BodyWatch for Reader {
    fn ended(self: Box<Self>, _: BodyEnd) {
        self.0.change(|state| state.response_read = true);
    }

    fn cause(&self) -> Option<Error> {
        self.0.error()
    }
}

impl Outgoing {
    pub(crate) fn empty() -> Self {
        Outgoing {
            body: None,
            measured: Measured::default(),
            upload: None,
            patience: None,
        }
    }

    pub(crate) fn new<B>(body: B) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        if body.is_end_stream() {
            return Self::empty();
        }
        Outgoing {
            body: Some(Box::pin(Erased { body })),
            ..Self::empty()
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.body.is_none()
    }

    /// Begins to be sent, with this length.
    pub(super) fn begin(&mut self, upload: &Arc<Upload>, length: Length, now: Instant) {
        self.measured = Measured::new(length);
        self.upload = Some(Arc::clone(upload));
        self.patience = None;
        if self.is_empty() {
            upload.lock().ended = Some(now);
        }
    }

    /// Looks through a body of no length, for which hyper does not ask.
    ///
    /// # Errors
    /// There is more in it, or it fails.
    pub(super) fn poll_begun(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if self.measured.is_over() {
            if let Some(Err(error)) = ready!(self.poll_next(cx)) {
                return Poll::Ready(Err(error));
            }
            self.body = None;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_allowed(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        let Some(upload) = &self.upload else {
            return Poll::Ready(Ok(()));
        };
        let mut state = upload.lock();
        if state.refused {
            if state.response_read {
                return Poll::Ready(Err("the server answered before it had the body".into()));
            }
            state.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let Some(wait) = state.waits else {
            return Poll::Ready(Ok(()));
        };
        state.waker = Some(cx.waker().clone());
        drop(state);
        let patience = self.patience.get_or_insert_with(|| Box::pin(sleep(wait)));
        ready!(patience.as_mut().poll(cx));
        if let Some(upload) = &self.upload {
            upload.lock().waits = None;
        }
        Poll::Ready(Ok(()))
    }

    /// The next frame.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        let frame = ready!(self.measured.poll(cx, |cx| poll_source(body.as_mut(), cx)));
        let ends = match &frame {
            None => true,
            Some(Ok(frame)) => frame.is_trailers() || self.is_end_stream() || self.measured.is_over(),
            Some(Err(error)) => {
                self.body = None;
                if let Some(upload) = &self.upload {
                    upload.fail(error);
                }
                false
            }
        };
        if let Some(upload) = &self.upload {
            let mut state = upload.lock();
            if let (Some(sent), Some(Ok(frame))) = (&mut state.sent, &frame) {
                sent.yielded(frame.data_ref().map_or(0, Bytes::len));
            }
            if ends {
                state.ended = Some(Instant::now());
            }
        }
        Poll::Ready(frame)
    }
}

fn poll_source(mut body: Pin<&mut Erasable>, cx: &mut Context<'_>) -> Poll<Result<Next, Error>> {
    loop {
        let Some(frame) = ready!(body.as_mut().poll_frame(cx)) else {
            return Poll::Ready(Ok(Next::End));
        };
        match frame.map_err(Error::body)?.into_data() {
            Ok(bytes) => return Poll::Ready(Ok(Next::Data(bytes, body.is_end_stream()))),
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    return Poll::Ready(Ok(Next::Trailers(trailers)));
                }
            }
        }
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        ready!(self.poll_allowed(cx))?;
        self.poll_next(cx).map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(|body| body.is_end_stream()) && !self.measured.holds()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Some(body) => body.size_hint(),
            None => SizeHint::with_exact(0),
        }
    }
}

impl fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outgoing")
            .field("measured", &self.measured)
            .finish_non_exhaustive()
    }
}
