//! The body of a request on its way to the origin. It is not begun before the origin wants it, and can be taken back while it is
//! not begun.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use fullbore::BoxError;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::{fields, forwarded};

/// How long a body waits for 100 (Continue), as curl's. Origins that do not know the expectation send none (RFC 9110 section
/// 10.1.1).
const CONTINUE: Duration = Duration::from_secs(1);

/// A body that its request can give back. Two owners share it: the request, and the client that sends it.
pub(crate) struct Kept<B>(Arc<Mutex<State<B>>>);

struct State<B> {
    body: Option<Pin<Box<B>>>,
    begun: bool,
    /// When its end was passed on.
    ended: Option<Instant>,
}

impl<B: Body> Kept<B> {
    pub(crate) fn new(body: B) -> Self {
        Self(Arc::new(Mutex::new(State {
            body: Some(Box::pin(body)),
            begun: false,
            ended: None,
        })))
    }

    /// The body, for one attempt to send it.
    pub(crate) fn sending(&self, gate: Option<Arc<Gate>>) -> RequestBody<B> {
        let wait = gate.map(|gate| -> Wait {
            // From now on: the client of HTTP/1.1 waits as long itself before it asks for the body.
            let timeout = sleep(CONTINUE);
            Box::pin(async move {
                tokio::select! {
                    () = gate.0.notified() => {}
                    () = timeout => {}
                }
            })
        });
        RequestBody {
            kept: Arc::clone(&self.0),
            wait,
        }
    }

    /// When its end was passed on, if it was.
    pub(crate) fn ended(&self) -> Option<Instant> {
        lock(&self.0).ended
    }

    /// Whether a part of it was taken.
    pub(crate) fn is_begun(&self) -> bool {
        lock(&self.0).begun
    }
}

/// Holds a body back until it is opened.
#[derive(Default)]
pub(crate) struct Gate(Notify);

impl Gate {
    pub(crate) fn open(&self) {
        // It is remembered for a body that does not wait yet.
        self.0.notify_one();
    }
}

type Wait = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A body for the client.
pub(crate) struct RequestBody<B> {
    kept: Arc<Mutex<State<B>>>,
    wait: Option<Wait>,
}

impl<B> Body for RequestBody<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(wait) = &mut self.wait {
            ready!(wait.as_mut().poll(cx));
            self.wait = None;
        }
        let mut state = lock(&self.kept);
        state.begun = true;
        let Some(body) = &mut state.body else {
            return Poll::Ready(Some(Err("the body was taken back".into())));
        };
        let mut frame = ready!(body.as_mut().poll_frame(cx));
        if frame.is_none() || body.is_end_stream() {
            state.ended = Some(Instant::now());
        }
        if let Some(Ok(frame)) = &mut frame {
            if let Some(trailers) = frame.trailers_mut() {
                forwarded::remove_from_trailers(trailers);
                fields::remove_from_trailers(trailers);
            }
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        lock(&self.kept)
            .body
            .as_ref()
            .is_some_and(|body| body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        match &lock(&self.kept).body {
            Some(body) => body.size_hint(),
            None => SizeHint::default(),
        }
    }
}

impl<B> Drop for RequestBody<B> {
    /// The client needs it no more. The sender of a body that was begun is told.
    fn drop(&mut self) {
        let mut state = lock(&self.kept);
        if state.begun {
            state.body = None;
        }
    }
}

fn lock<B>(kept: &Mutex<State<B>>) -> MutexGuard<'_, State<B>> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}
