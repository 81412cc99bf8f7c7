//! Opens one connection in a task of its own: the request that needed it may be canceled, but others need it too.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::builder::Settings;
use crate::client::connect::{HttpVersion, Opened, Origin};
use crate::error::{Error, ErrorKind};
use crate::observer::Observer;

/// Starts to connect, and calls `finish` with the result in any case.
pub(super) fn spawn(
    runtime: &Handle,
    settings: Arc<Settings>,
    origin: Origin<'static>,
    presumed: HttpVersion,
    observer: Arc<dyn Observer>,
    finish: impl FnOnce(Result<Opened, Error>) + Send + 'static,
) {
    let mut attempt = Attempt(Some(finish));
    runtime.spawn(async move {
        let connected = connect(&settings, &origin, presumed, observer).await;
        // The preface leaves before the first requests, so that its SETTINGS measure the round trip of the path.
        tokio::task::yield_now().await;
        attempt.finish(connected);
    });
}

/// An attempt in progress. If its task is dropped, the attempt has failed.
struct Attempt<F: FnOnce(Result<Opened, Error>)>(Option<F>);

impl<F: FnOnce(Result<Opened, Error>)> Attempt<F> {
    fn finish(&mut self, connected: Result<Opened, Error>) {
        if let Some(finish) = self.0.take() {
            finish(connected);
        }
    }
}

impl<F: FnOnce(Result<Opened, Error>)> Drop for Attempt<F> {
    fn drop(&mut self) {
        let why = match std::thread::panicking() {
            true => "the connector panicked",
            false => "the runtime shut down",
        };
        self.finish(Err(Error::new(ErrorKind::Connect, why)));
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
    connected.unwrap_or_else(|_| Err(Error::connect_timeout(limit)))
}
