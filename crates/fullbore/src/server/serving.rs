//! Serves one connection: until it ends, its server shuts down, or another connection needs its place.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use fullbore_proto::ErrorCode;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

use super::admission::{Permit, Told};
use super::auto::{Prepare, ServeConnectionAuto, serve_connection_auto};
use super::http_service::HttpService;
use super::peer::OnEnd;
use crate::error::Error;
use crate::settings::HttpVersions;

/// How long an evicted connection may take to send its GOAWAY.
const EVICTION_TIMEOUT: Duration = Duration::from_millis(250);

/// The debug data of an eviction: of an idle connection, and of one with requests.
const IDLE: &str = "the server has reached its limit of connections, and this connection was idle";
const SCARCE: &str =
    "the server is short of connections, streams or memory, and this connection made the least progress";

/// Who is told of the end of a connection, and the peer's address.
pub(super) type End = Box<(OnEnd, Option<SocketAddr>)>;

/// Serves a transport that was accepted, until its connection ends, also when the server shuts down or evicts it.
pub(super) fn serve<T, S>(
    io: T,
    service: S,
    versions: HttpVersions,
    prepare: Prepare<T, S>,
    permit: Permit,
    end: Option<End>,
) -> impl Future<Output = ()>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: HttpService,
{
    let connection = serve_connection_auto(io, service, permit.config());
    let connection = connection.http_versions(versions).preparing(prepare);
    Serving {
        phase: Phase::Served(connection),
        waker: Waker::noop().clone(),
        told: Told::default(),
        permit,
        end,
    }
}

/// Why a connection is no longer served.
enum Served {
    /// It has ended.
    Ended(Result<(), Error>),
    /// It was evicted.
    Evicted,
    /// Its server is gone, or has waited long enough.
    Gone,
}

/// The future of a connection. What every poll needs comes first, so that it is on few lines of the processor's cache.
#[repr(C)]
struct Serving<T, S> {
    phase: Phase<T, S>,
    /// Whom the permit wakes, and what the connection had been told by then.
    waker: Waker,
    told: Told,
    /// Returned behind the connection's memory.
    permit: Permit,
    end: Option<End>,
}

enum Phase<T, S> {
    Served(ServeConnectionAuto<T, S>),
    /// It was evicted, and may still send its last frames.
    Evicted(BoxFuture<'static, ()>),
    Over,
}

impl<T, S> Serving<T, S>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: HttpService,
{
    /// Runs the connection until it is no longer served.
    fn poll_served(&mut self, cx: &mut Context<'_>) -> Poll<Served> {
        let Phase::Served(connection) = &mut self.phase else {
            return Poll::Ready(Served::Gone);
        };
        self.permit.prefetch();
        loop {
            let polled = Pin::new(&mut *connection).poll(cx);
            connection.record(&mut self.permit);
            if let Poll::Ready(result) = polled {
                return Poll::Ready(Served::Ended(result));
            }
            if self.told.is_gone() {
                return Poll::Ready(Served::Gone);
            }
            // Waking takes the waker. While nothing was told, the one that was registered is still there.
            let told_nothing = self.told == Told::default() && self.permit.told() == self.told;
            if told_nothing && self.waker.will_wake(cx.waker()) {
                return Poll::Pending;
            }
            self.permit.register(cx);
            self.waker.clone_from(cx.waker());
            let before = std::mem::replace(&mut self.told, self.permit.told());
            if self.told == before {
                return Poll::Pending;
            }
            if self.told.is_evicted() {
                return Poll::Ready(Served::Evicted);
            }
            if !before.shuts_down() {
                connection.graceful_shutdown();
            }
        }
    }

    /// The connection is no longer served.
    fn leave(&mut self, served: &Served) {
        let Phase::Served(mut connection) = std::mem::replace(&mut self.phase, Phase::Over) else {
            return;
        };
        let end = self.end.take();
        let error = match served {
            Served::Ended(result) => result.as_ref().err(),
            Served::Gone => None,
            Served::Evicted => {
                match self.permit.is_idle() {
                    true => connection.abort(ErrorCode::NO_ERROR, IDLE),
                    false => connection.abort(ErrorCode::ENHANCE_YOUR_CALM, SCARCE),
                }
                self.phase = Phase::Evicted(Box::pin(async move {
                    let _ = tokio::time::timeout(EVICTION_TIMEOUT, &mut connection).await;
                    if let Some(end) = end {
                        connection.tell_end(&end.0, end.1, None, true);
                    }
                }));
                return;
            }
        };
        if let Some(end) = end {
            connection.tell_end(&end.0, end.1, error, false);
        }
    }
}

impl<T, S> Future for Serving<T, S>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: HttpService,
{
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if let Phase::Served(_) = self.phase {
            let served = ready!(self.poll_served(cx));
            self.leave(&served);
        }
        if let Phase::Evicted(closing) = &mut self.phase {
            ready!(closing.as_mut().poll(cx));
            self.phase = Phase::Over;
        }
        Poll::Ready(())
    }
}
