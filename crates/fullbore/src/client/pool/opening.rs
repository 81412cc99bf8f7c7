//! Opening one connection for a pool, in a task of its own: whoever waited for it may give up, others may not.

use std::sync::{Arc, Weak};

use tokio::runtime::Handle;

use super::builder::Settings;
use super::lane::Lane;
use super::origin::OriginPool;
use crate::client::connect::Origin;
use crate::client::connection::SendRequest;
use crate::error::{Error, ErrorKind};

/// Begins to connect; the pool hears of it in any case.
pub(super) fn spawn(
    runtime: &Handle,
    pool: Weak<OriginPool>,
    lane: Arc<Lane>,
    settings: Arc<Settings>,
    origin: Origin<'static>,
) {
    let attempt = Attempt {
        pool,
        lane: Some(lane),
    };
    runtime.spawn(attempt.run(settings, origin));
}

/// An attempt that is under way. When it is lost with its runtime, that is how it ended.
struct Attempt {
    pool: Weak<OriginPool>,
    lane: Option<Arc<Lane>>,
}

impl Attempt {
    async fn run(mut self, settings: Arc<Settings>, origin: Origin<'static>) {
        let Some(lane) = self.lane.as_ref().map(Arc::clone) else {
            return;
        };
        let connected = connect(&settings, &origin, lane).await;
        // The preface leaves before the first requests do, so that the round trip of its SETTINGS is that of the path.
        tokio::task::yield_now().await;
        self.finish(connected);
    }

    fn finish(&mut self, connected: Result<SendRequest, Error>) {
        if let (Some(lane), Some(pool)) = (self.lane.take(), self.pool.upgrade()) {
            pool.opened(lane, connected);
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let text = "the runtime shut down";
        self.finish(Err(Error::new(ErrorKind::Connect, text)));
    }
}

async fn connect(settings: &Settings, origin: &Origin<'_>, lane: Arc<Lane>) -> Result<SendRequest, Error> {
    let limit = settings.connect_timeout;
    match tokio::time::timeout(limit, settings.connector.connect(origin, lane)).await {
        Ok(connected) => connected,
        Err(_) => Err(Error::timeout(
            "name resolution, TCP and TLS took too long",
            limit,
        )),
    }
}
