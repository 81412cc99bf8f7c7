//! The body of a received message; the chunks of bodies that are sent, which may be ranges of files.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use fullbore_proto::StreamReport;
use http_body::{Body, Frame, SizeHint};

use crate::cell::{Cell, StreamCommand};
use crate::error::Error;
use crate::http1::{BodyEnd, BodyWatch, Http1Body};

pub use crate::content_length::content_length;
pub use crate::file::{Chunk, FileRange, OpenFile};

/// The body of a received message: a request on a server, a response on a client.
///
/// Chunks are slices of what was read from the transport; nothing is copied. Over HTTP/2, taking a chunk returns its
/// flow-control credit. A reader that stops reading stops the peer on this stream. It does not stop other streams, as
/// long as the memory budget has room for what is left unread. Dropping the body before its end resets the stream
/// (client) or discards the rest (server), and returns all credit. Over HTTP/1.1 a reader that stops reading stops the
/// connection, whose window is that of TCP, and dropping the body before its end ends the connection, unless the rest
/// has arrived already.
pub struct Incoming {
    source: Source,
    /// The bytes that remain, if there is a `content-length`.
    remaining: Option<u64>,
    /// Whether the client waits for 100 (Continue). The first read sends it.
    expects_continue: bool,
}

/// Who reads the body from the transport.
enum Source {
    /// The message has no body.
    Empty,
    /// The driver of an HTTP/2 connection.
    Cell(Arc<Cell>),
    /// hyper, over HTTP/1.1.
    /// Boxed: the bodies of HTTP/2 requests are moved several times, and this one is the longest.
    Http1(Box<Http1Body>),
    /// Nobody any more: hyper has read all of it.
    Whole(Box<Bytes>),
    Wrapped(Box<Wrapped>),
}

/// A body around another one.
struct Wrapped {
    body: Pin<Box<WrappedBody>>,
    /// That of the inner body, if it came over HTTP/2.
    cell: Option<Arc<Cell>>,
}

/// The stream of a body, if it came over HTTP/2.
pub(crate) struct StreamHandle(Option<Arc<Cell>>);

/// A body that has one of these within.
pub(crate) type WrappedBody = dyn Body<Data = Bytes, Error = Error> + Send + Sync;

impl Incoming {
    pub(crate) fn new(cell: Arc<Cell>, content_length: Option<u64>) -> Self {
        Incoming {
            source: Source::Cell(cell),
            remaining: content_length,
            expects_continue: false,
        }
    }

    /// The body of a message over HTTP/1.1, of this length if it is known. `watch` is told when it ends, which may be at once.
    pub(crate) fn http1(
        body: hyper::body::Incoming,
        remaining: Option<u64>,
        watch: Box<dyn BodyWatch>,
    ) -> Self {
        let source = match body.is_end_stream() {
            true => {
                watch.ended(BodyEnd::Complete);
                Source::Empty
            }
            false => Source::Http1(Box::new(Http1Body::new(body, watch))),
        };
        Incoming {
            source,
            remaining,
            expects_continue: false,
        }
    }

    /// The body of a message over HTTP/1.1 that was read to its end.
    pub(crate) fn whole(bytes: Bytes) -> Self {
        Incoming {
            remaining: Some(bytes.len() as u64),
            source: Source::Whole(Box::new(bytes)),
            expects_continue: false,
        }
    }

    /// The end of a message that has no body.
    pub(crate) fn empty() -> Self {
        Incoming {
            source: Source::Empty,
            remaining: Some(0),
            expects_continue: false,
        }
    }

    /// Puts another body around this one, unless it has ended.
    pub(crate) fn wrapped(self, wrap: impl FnOnce(Self) -> Pin<Box<WrappedBody>>) -> Self {
        if self.is_end_stream() {
            return self;
        }
        let handle = self.handle();
        Self::around(handle, wrap(self))
    }

    /// The handle for [`Self::around`].
    pub(crate) fn handle(&self) -> StreamHandle {
        StreamHandle(self.cell().cloned())
    }

    /// A body that has another one within, with the handle of that one.
    pub(crate) fn around(StreamHandle(cell): StreamHandle, body: Pin<Box<WrappedBody>>) -> Self {
        Incoming {
            remaining: body.size_hint().exact(),
            source: Source::Wrapped(Box::new(Wrapped { body, cell })),
            expects_continue: false,
        }
    }

    /// The cell of an HTTP/2 stream.
    fn cell(&self) -> Option<&Arc<Cell>> {
        match &self.source {
            Source::Cell(cell) => Some(cell),
            Source::Wrapped(wrapped) => wrapped.cell.as_ref(),
            Source::Empty | Source::Http1(_) | Source::Whole(_) => None,
        }
    }

    pub(crate) fn expecting_continue(mut self, expects: bool) -> Self {
        self.expects_continue = expects;
        self
    }

    /// Enlarges the receive window of this body's stream to `bytes`, at once and permanently. Giving the current size
    /// changes nothing.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when `bytes` is not 1..=2^31-1, the body has ended or the message came
    /// over HTTP/1.1; [`ErrorKind::WindowShrinks`](crate::ErrorKind::WindowShrinks) when the window is larger.
    pub async fn grow_receive_window(&self, bytes: u32) -> Result<(), Error> {
        let size = crate::settings::window("a stream", 1, bytes)?;
        let gone = || Error::config("the body has come to its end, and its window with it");
        let over_http1 = match &self.source {
            Source::Http1(_) | Source::Whole(_) => true,
            Source::Wrapped(wrapped) => wrapped.cell.is_none(),
            Source::Empty | Source::Cell(_) => false,
        };
        if over_http1 {
            return Err(Error::config(
                "over HTTP/1.1 the kernel sets the receive window; use TcpBuffers",
            ));
        }
        let cell = self.cell().ok_or_else(gone)?;
        let (answer, answered) = tokio::sync::oneshot::channel();
        {
            let mut state = cell.lock();
            if state.inbound.ended || state.error.is_some() {
                return Err(gone());
            }
            state
                .outbound
                .commands
                .push_back(StreamCommand::GrowWindow(size, answer));
        }
        cell.post();
        answered.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Returns what this body's stream has waited for, with its bytes, windows and queues in both directions. It is
    /// available until the body is dropped; `None` when the connection has ended, when the message has no body, or when it
    /// came over HTTP/1.1.
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = fullbore::Client::new();
    /// let response = client.get("https://example.com/").await?;
    /// if let Some(report) = response.body().report().await {
    ///     let held = report.receiving.spent(fullbore::stats::Stall::StreamWindow);
    ///     println!("held by its window for {held:?}");
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn report(&self) -> Option<StreamReport> {
        self.cell()?.ask_report()?.await.ok()
    }

    fn ask_to_continue(&mut self) {
        self.expects_continue = false;
        let Some(cell) = self.cell() else { return };
        let mut state = cell.lock();
        let outbound = &state.outbound;
        let is_late = state.inbound.ended || !state.inbound.chunks.is_empty();
        if is_late || outbound.finished || outbound.continued {
            return;
        }
        let mut response = http::Response::new(());
        *response.status_mut() = http::StatusCode::CONTINUE;
        // Ahead of the handler's commands. If the final head has left, the engine ignores it.
        let command = StreamCommand::Informational(Box::new(response));
        state.outbound.commands.push_front(command);
        drop(state);
        cell.post();
    }
}

impl Body for Incoming {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if self.expects_continue {
            self.ask_to_continue();
        }
        let this = &mut *self;
        let cell = match &mut this.source {
            Source::Cell(cell) => cell,
            Source::Http1(body) => return body.poll_frame(&mut this.remaining, cx),
            Source::Wrapped(wrapped) => {
                let frame = ready!(wrapped.body.as_mut().poll_frame(cx));
                this.remaining = wrapped.body.size_hint().exact();
                return Poll::Ready(frame);
            }
            Source::Whole(bytes) => {
                let bytes = std::mem::take(&mut **bytes);
                this.source = Source::Empty;
                this.remaining = Some(0);
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            Source::Empty => return Poll::Ready(None),
        };
        let frame = ready!(cell.poll_frame(cx));
        let chunk = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref());
        if let (Some(remaining), Some(chunk)) = (&mut this.remaining, chunk) {
            *remaining = remaining.saturating_sub(chunk.len() as u64);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Empty => true,
            Source::Http1(body) => body.is_end_stream(),
            Source::Whole(_) => false,
            Source::Wrapped(wrapped) => wrapped.body.is_end_stream(),
            Source::Cell(cell) => {
                let state = cell.lock();
                let inbound = &state.inbound;
                inbound.ended && inbound.chunks.is_empty() && inbound.trailers.is_none()
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self.remaining {
            Some(bytes) => SizeHint::with_exact(bytes),
            None if self.is_end_stream() => SizeHint::with_exact(0),
            None => SizeHint::default(),
        }
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if let Source::Cell(cell) = &self.source {
            cell.drop_reader();
        }
    }
}

impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming")
            .field("remaining", &self.remaining)
            .finish_non_exhaustive()
    }
}
