//! A handle of a pooled connection, whichever version of HTTP it speaks.

use super::connection::SendRequest;
use super::http1;
use crate::error::{Error, ErrorKind};
use crate::observer::Observer;

/// Sends requests on a connection.
#[derive(Clone)]
pub(super) enum Handle {
    Http1(http1::SendRequest),
    Http2(SendRequest),
}

impl Handle {
    /// Whether the connection takes requests, as far as is known.
    pub(super) fn is_open(&self) -> bool {
        match self {
            Handle::Http1(handle) => handle.is_open(),
            Handle::Http2(handle) => handle.is_open(),
        }
    }

    pub(super) fn is_same_connection(&self, other: &Handle) -> bool {
        match (self, other) {
            (Handle::Http1(one), Handle::Http1(other)) => one.is_same_connection(other),
            (Handle::Http2(one), Handle::Http2(other)) => one.is_same_connection(other),
            _ => false,
        }
    }

    pub(super) fn is_http1(&self) -> bool {
        matches!(self, Handle::Http1(_))
    }

    /// Ends the connection gracefully.
    pub(super) fn shutdown(&self) {
        match self {
            Handle::Http1(handle) => handle.shutdown(),
            Handle::Http2(handle) => handle.shutdown(),
        }
    }

    /// The pool's view of the connection.
    pub(super) fn observer(&self) -> Option<&dyn Observer> {
        match self {
            Handle::Http1(handle) => Some(handle.observer()),
            Handle::Http2(handle) => handle.observer(),
        }
    }

    /// Why no connection can be had, if this one ended before the peer's first answer and the pool knows why.
    pub(super) fn failure(&self) -> Option<Error> {
        let failure = self.observer()?.failure()?;
        // A server may close an HTTP/1.1 connection at any time, also before its first request.
        let is_final = !self.is_http1() || matches!(failure.kind(), ErrorKind::NotHttp2 | ErrorKind::Tls);
        is_final.then_some(failure)
    }

    /// Whether the peer speaks another version of HTTP.
    pub(super) fn is_other_version(&self) -> bool {
        self.observer()
            .is_some_and(|observer| observer.is_other_version())
    }

    /// Whether the first response on the connection said that the server takes no further one.
    pub(super) fn is_turned_away(&self) -> bool {
        self.observer().is_some_and(|observer| observer.is_turned_away())
    }

    /// Waits until the peer has proved to speak the version of this connection, or the connection has ended.
    pub(super) async fn version_proven(&self) {
        if let Some(observer) = self.observer().filter(|observer| !observer.is_version_proven()) {
            observer.version_proven().await;
        }
    }

    /// Waits until the peer has said something in the version of this connection, or the connection has ended.
    pub(super) async fn settled(&self) {
        if let Some(observer) = self.observer() {
            observer.settled().await;
        }
    }
}
