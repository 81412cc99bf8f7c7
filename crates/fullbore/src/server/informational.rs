//! Informational responses (1xx) of handlers, ahead of their final ones.
//!
//! Most handlers send none, and their requests cost nothing. A handler that asks for the handle gets one that belongs to no
//! stream yet, and keeps what is sent until the poll of the handler is over. Then the handle is bound to the stream.

use std::cell::Cell as ThreadCell;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use http::{Response, StatusCode};

use crate::cell::{Cell, StreamCommand};
use crate::error::{Error, ErrorKind};

/// The most that a handle sends. A client that reads nothing makes each of them wait in memory.
const MOST: u32 = 64;

/// Sends informational responses (RFC 9110 section 15.2) to the client of a request, such as 103 (Early Hints), ahead of the
/// response. Cheap to clone; clones are of the same request.
///
/// A request whose client waits for 100 (Continue) gets it when the handler first reads the body. A handler that sends it
/// earlier decides on that itself.
///
/// ```
/// # async fn page() -> String { String::new() }
/// use fullbore::server::Informational;
///
/// async fn handler() -> String {
///     if let Some(informational) = Informational::current() {
///         let hints = http::Response::builder().status(103).header("link", "</style.css>; rel=preload; as=style");
///         let _ = hints.body(()).map(|hints| informational.send(hints));
///     }
///     page().await
/// }
/// ```
#[derive(Clone)]
pub struct Informational(Arc<Mutex<State>>);

struct State {
    stream: Stream,
    left: u32,
}

enum Stream {
    /// The handler is being polled. What was sent so far.
    Unbound(Vec<Response<()>>),
    Bound(Arc<Cell>),
}

impl Informational {
    /// The handle for the request whose handler is being called or polled by a server of this library, on this thread. A task
    /// that the handler spawns has to be given it.
    ///
    /// `None` over HTTP/1.1: hyper sends no informational response but 100 (Continue), when the body is read.
    pub fn current() -> Option<Self> {
        let offer = OFFER.replace(Offer::None);
        let handle = match offer {
            Offer::None => return None,
            Offer::Open => Informational::new(),
            Offer::Taken(handle) => handle,
        };
        OFFER.set(Offer::Taken(handle.clone()));
        Some(handle)
    }

    /// Sends a response with a status of 1xx. It has no effect once the final response has begun, or the stream has ended, and
    /// for all but the first 64 of a request.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidMessage`]: the status is not 1xx, or it is 101, which HTTP/2 does not have. A field that HTTP/2
    /// does not allow fails the stream.
    pub fn send(&self, response: Response<()>) -> Result<(), Error> {
        let status = response.status();
        if !status.is_informational() || status == StatusCode::SWITCHING_PROTOCOLS {
            let text = format!("{} is no informational response of HTTP/2", status.as_u16());
            return Err(Error::new(ErrorKind::InvalidMessage, text));
        }
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.left > 0 {
            state.left -= 1;
            match &mut state.stream {
                Stream::Unbound(waiting) => waiting.push(response),
                Stream::Bound(cell) => queue(cell, [response]),
            }
        }
        Ok(())
    }

    fn new() -> Self {
        Informational(Arc::new(Mutex::new(State {
            stream: Stream::Unbound(Vec::new()),
            left: MOST,
        })))
    }

    /// Sends what the handler left, and the rest at once.
    pub(super) fn bind(&self, cell: &Arc<Cell>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Stream::Unbound(waiting) = &mut state.stream {
            queue(cell, std::mem::take(waiting));
            state.stream = Stream::Bound(Arc::clone(cell));
        }
    }
}

impl fmt::Debug for Informational {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Informational").finish_non_exhaustive()
    }
}

fn queue(cell: &Arc<Cell>, responses: impl IntoIterator<Item = Response<()>>) {
    let mut state = cell.lock();
    if state.outbound.finished || state.error.is_some() {
        return;
    }
    for response in responses {
        state.outbound.continued |= response.status() == StatusCode::CONTINUE;
        let command = StreamCommand::Informational(Box::new(response));
        state.outbound.commands.push_back(command);
    }
    drop(state);
    cell.post();
}

thread_local! {
    static OFFER: ThreadCell<Offer> = const { ThreadCell::new(Offer::None) };
}

/// What [`Informational::current`] finds.
enum Offer {
    /// No handler is being polled.
    None,
    /// One that has not asked.
    Open,
    Taken(Informational),
}

/// While this lives, the thread calls or polls the handler of one request. A handler may panic, and may itself poll a server.
pub(super) struct Offering {
    outer: Offer,
}

impl Offering {
    pub(super) fn begin() -> Self {
        Offering {
            outer: OFFER.replace(Offer::Open),
        }
    }

    /// The handle, if the handler asked for it.
    pub(super) fn taken(&self) -> Option<Informational> {
        match OFFER.replace(Offer::None) {
            Offer::Taken(handle) => Some(handle),
            Offer::None | Offer::Open => None,
        }
    }
}

impl Drop for Offering {
    fn drop(&mut self) {
        OFFER.set(std::mem::replace(&mut self.outer, Offer::None));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_handle_is_that_of_the_handler_that_is_polled_also_within_another_one() {
        let is_same = |one: &Informational, other: &Informational| Arc::ptr_eq(&one.0, &other.0);
        assert!(Informational::current().is_none());
        let outer = Offering::begin();
        let mine = Informational::current().expect("one");
        let inner = Offering::begin();
        assert!(inner.taken().is_none(), "nobody has asked");
        drop(inner);
        let inner = Offering::begin();
        let other = Informational::current().expect("one");
        assert!(!is_same(&mine, &other));
        drop(inner);
        assert!(is_same(&mine, &Informational::current().expect("one")));
        assert!(is_same(&mine, &outer.taken().expect("it was taken")));
        drop(outer);
        assert!(Informational::current().is_none());
    }
}
