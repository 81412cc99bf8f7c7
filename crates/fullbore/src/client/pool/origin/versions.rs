//! Which version of HTTP an origin speaks.
//!
//! Over TLS each connection agrees on one (ALPN). In cleartext the pool begins in HTTP/2 with prior knowledge (RFC 9113
//! section 3.3), and remembers what its connections learn. A peer that answers requests with HTTP_1_1_REQUIRED gets
//! connections of HTTP/1.1 alone from then on.

use std::sync::Arc;

use tokio::time::Instant;

use super::{Effects, Member, OriginPool, PoolState, PooledConnection};
use crate::client::connect::HttpVersion;
use crate::error::{Error, ErrorKind};
use crate::settings::HttpVersions;

/// What is known of an origin.
#[derive(Debug, Default)]
pub(super) enum Version {
    /// Nothing.
    #[default]
    Unknown,
    /// It has sent SETTINGS.
    Http2,
    /// It has answered in HTTP/1.1.
    Http1,
    /// It has answered a connection of HTTP/2 with nothing, or with something that is neither HTTP/2 nor HTTP/1. The
    /// connection ended with this error. One connection of HTTP/1.1 is to tell.
    TryHttp1(Error),
    /// It speaks HTTP/2, and has required HTTP/1.1 for a request (HTTP_1_1_REQUIRED, RFC 9113 section 7).
    OnlyHttp1,
}

impl PoolState {
    /// What a connection has shown, unless the peer has said what it requires.
    pub(super) fn learn(&mut self, version: Version) {
        if !self.requires_http1() {
            self.version = version;
        }
    }

    pub(super) fn requires_http1(&self) -> bool {
        matches!(self.version, Version::OnlyHttp1)
    }
}

impl OriginPool {
    /// The version of a new connection. Over TLS, `Http2` leaves it to ALPN.
    pub(super) fn presumed(&self, version: &Version) -> HttpVersion {
        match (self.settings.connector.versions_for(&self.origin), version) {
            (HttpVersions::Http1, _) | (HttpVersions::Both, Version::OnlyHttp1) => HttpVersion::Http1,
            _ if self.origin.is_tls() => HttpVersion::Http2,
            _ if self.settings.connector.is_forwarded(&self.origin) => HttpVersion::Http1,
            (HttpVersions::Both, Version::TryHttp1(first)) if first.is_silence() => HttpVersion::PerhapsHttp1,
            (HttpVersions::Both, Version::Http1 | Version::TryHttp1(_)) => HttpVersion::Http1,
            (HttpVersions::Both, Version::Unknown) => HttpVersion::PerhapsHttp2,
            _ => HttpVersion::Http2,
        }
    }

    /// Whether requests may be sent in another version than the one that is presumed.
    fn may_change(&self) -> bool {
        let connector = &self.settings.connector;
        connector.versions_for(&self.origin) == HttpVersions::Both
            && !self.origin.is_tls()
            && !connector.is_forwarded(&self.origin)
    }

    /// A connection was opened.
    pub(super) fn version_opened(
        &self,
        state: &mut PoolState,
        connection: &PooledConnection,
        is_http1: bool,
        agreed: bool,
    ) {
        if is_http1 {
            connection.set_http1();
        }
        if agreed || !self.may_change() {
            connection.set_agreed();
            state.learn(match is_http1 {
                true => Version::Http1,
                false => Version::Http2,
            });
        }
    }

    /// The first response of an HTTP/1.1 connection arrived.
    pub(super) fn http1_proven(self: &Arc<Self>) {
        let now = Instant::now();
        let mut state = self.lock();
        state.learn(Version::Http1);
        let effects = self.update(&mut state, now);
        drop(state);
        self.apply(effects);
    }

    /// The peer has answered a request with HTTP_1_1_REQUIRED. Connections of HTTP/2 take no more requests, and close when those
    /// in progress have ended. Returns whether requests may be sent in HTTP/1.1.
    pub(in crate::client::pool) fn require_http1(self: &Arc<Self>) -> bool {
        if self.settings.connector.versions_for(&self.origin) != HttpVersions::Both {
            return false;
        }
        let mut state = self.lock();
        state.version = Version::OnlyHttp1;
        let members = std::mem::take(&mut state.members).into_iter();
        let (kept, removed): (Vec<_>, Vec<_>) = members.partition(|member| member.handle.is_http1());
        state.members = kept;
        let effects = self.update(&mut state, Instant::now());
        drop(state);
        for member in &removed {
            member.handle.shutdown();
        }
        self.apply(effects);
        true
    }

    /// A connection has ended before the peer proved to speak its version. The peer may speak another one, which the
    /// requests that wait, and those of this connection, are sent in. `member` has taken requests, or could have.
    pub(super) fn ended_unproven(
        self: &Arc<Self>,
        state: &mut PoolState,
        connection: &PooledConnection,
        member: Option<&Member>,
        error: &Error,
    ) -> Effects {
        let (may_change, is_http1) = (self.may_change(), connection.is_http1());
        let next = match &state.version {
            _ if may_change && error.is_other_version() => match is_http1 {
                true => Version::Http2,
                false => Version::Http1,
            },
            // Many servers of HTTP/1.1 close the connection when they read the preface, and some wait for the rest of a request.
            Version::Unknown
                if may_change && !is_http1 && (error.is_unanswered() || error.is_not_http2()) =>
            {
                Version::TryHttp1(error.clone())
            }
            Version::TryHttp1(_) if error.kind() != ErrorKind::Canceled => {
                state.version = Version::Unknown;
                return self.not_opened(state, error);
            }
            // What one request met says nothing about others. A connection that nobody needed is not missed.
            _ if is_http1 && !error.is_unanswered() && (member.is_some() || state.waiting.is_empty()) => {
                return self.update(state, Instant::now());
            }
            // Nor does a request that got no answer on the last connection, where there is no other version to try: each that
            // waits finds out for itself.
            _ if is_http1
                && !may_change
                && state.members.is_empty()
                && state.opening == 0
                && member.is_some_and(|member| member.in_flight > 0) =>
            {
                state.pause = None;
                return self.update(state, Instant::now());
            }
            _ => {
                // While another connection is open, the peer closes this one for another reason.
                if may_change && error.is_unanswered() && state.members.is_empty() {
                    state.version = Version::Unknown;
                }
                return self.not_opened(state, error);
            }
        };
        state.version = next;
        connection.set_other_version();
        self.update(state, Instant::now())
    }

    /// The error of a connection that ended before it was proven: an origin that answers in neither version says so.
    pub(super) fn explain(&self, error: &Error) -> Error {
        match &self.lock().version {
            Version::TryHttp1(first)
                if first.is_not_http2()
                    && matches!(
                        error.kind(),
                        ErrorKind::Closed | ErrorKind::Io | ErrorKind::Protocol | ErrorKind::Timeout
                    ) =>
            {
                Error::with_source(
                    ErrorKind::NotHttp2,
                    "nor did it answer a second connection in HTTP/1.1",
                    first.clone(),
                )
            }
            Version::TryHttp1(first) if error.is_closed() => Error::with_source(
                ErrorKind::NotHttp2,
                "it closed the connection before it answered, and a second one in HTTP/1.1 too",
                first.clone(),
            ),
            _ => error.clone(),
        }
    }

    /// Closes the idle HTTP/1.1 connections: the peer has closed one of their age.
    pub(in crate::client::pool) fn drop_idle(&self) {
        let removed = self.lock().take_all_idle();
        drop(removed);
    }
}
