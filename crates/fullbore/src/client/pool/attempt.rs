//! Opens one connection in a task of its own: the request that needed it may be canceled, but others need it too.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::builder::Settings;
use crate::client::connect::{HttpVersion, Opened, Origin};
use crate::error::{Error, ErrorKind};
use crate::observer::Observer;

/// How an attempt ends.
pub(super) enum Ended {
    Connected(Result<Opened, Error>),
    /// Its runtime has shut down, before it began or after.
    Lost {
        begun: bool,
    },
}

/// Starts to connect, and calls `finish` in any case. The token is held until then, and a pool that retires ends the attempt.
pub(super) fn spawn(
    runtime: &Handle,
    (settings, origin, presumed): (Arc<Settings>, Origin<'static>, HttpVersion),
    observer: Arc<dyn Observer>,
    (retiring, token): (CancellationToken, TaskTrackerToken),
    finish: impl FnOnce(Ended) + Send + 'static,
) {
    let mut attempt = Attempt {
        finish: Some(finish),
        begun: false,
        connecting: false,
    };
    runtime.spawn(async move {
        let _token = token;
        attempt.begun = true;
        let mut connecting = pin!(connect(&settings, &origin, presumed, observer));
        let connected = poll_fn(|cx| {
            attempt.connecting = true;
            let connected = connecting.as_mut().poll(cx);
            attempt.connecting = false;
            connected
        });
        let connected = tokio::select! {
            connected = connected => connected,
            () = retiring.cancelled() => Err(Error::new(ErrorKind::Canceled, "the client was shut down")),
        };
        // The preface leaves before the first requests, so that its SETTINGS measure the round trip of the path.
        tokio::task::yield_now().await;
        attempt.finish(Ended::Connected(connected));
    });
}

/// An attempt in progress.
struct Attempt<F: FnOnce(Ended)> {
    finish: Option<F>,
    begun: bool,
    /// The connector runs just now.
    connecting: bool,
}

impl<F: FnOnce(Ended)> Attempt<F> {
    fn finish(&mut self, ended: Ended) {
        if let Some(finish) = self.finish.take() {
            finish(ended);
        }
    }
}

impl<F: FnOnce(Ended)> Drop for Attempt<F> {
    fn drop(&mut self) {
        // Another panic may drop a runtime with its tasks.
        self.finish(match self.connecting {
            true => Ended::Connected(Err(Error::new(ErrorKind::Connect, "the connector panicked"))),
            false => Ended::Lost { begun: self.begun },
        });
    }
}

async fn connect(
    settings: &Settings,
    origin: &Origin<'_>,
    presumed: HttpVersion,
    observer: Arc<dyn Observer>,
) -> Result<Opened, Error> {
    let limit = settings.connect_timeout;
    let connecting = settings.connector.connect(origin, presumed, observer);
    let connected = tokio::time::timeout(limit, connecting).await;
    connected.unwrap_or_else(|_| {
        let steps = match settings.connector.uses_proxy(origin) {
            true => "name resolution, TCP, the proxy and TLS",
            false => "name resolution, TCP and TLS",
        };
        Err(Error::connect_timeout(steps, limit))
    })
}
