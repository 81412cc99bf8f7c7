//! A connection that takes requests.

use std::sync::Arc;

use tokio::time::Instant;

use super::PooledConnection;
use crate::client::handle::Handle;

pub(super) struct Member {
    /// Names it among those of the pool.
    pub(super) id: u64,
    pub(super) connection: Arc<PooledConnection>,
    pub(super) handle: Handle,
    pub(super) in_flight: u32,
    /// How many requests it may have at once, below the peer's limit (`spreading`).
    pub(super) ahead: u32,
    /// The requests that it was given.
    pub(super) taken: u64,
    /// Since when these are as many as the peer takes.
    pub(super) spent: Option<Instant>,
    /// When it was given the first one.
    pub(super) first_at: Option<Instant>,
    /// As that of the connection when a request ended. With many connections, what is behind a pointer is not in the cache.
    pub(super) served: bool,
}

impl Member {
    pub(super) fn new(connection: Arc<PooledConnection>, handle: Handle) -> Self {
        Member {
            id: 0,
            connection,
            handle,
            in_flight: 0,
            ahead: u32::MAX,
            taken: 0,
            spent: None,
            first_at: None,
            served: false,
        }
    }

    pub(super) fn is(&self, connection: &PooledConnection) -> bool {
        std::ptr::eq(Arc::as_ptr(&self.connection), connection)
    }

    /// The requests that it may have at once.
    pub(super) fn room(&self) -> u32 {
        self.connection.max_streams().min(self.ahead)
    }

    /// The requests that it takes now, if connections end after `lifetime`.
    pub(super) fn free(&self, lifetime: Option<u64>) -> u64 {
        if self.in_flight > 0 && self.handle.is_http1() {
            return 0;
        }
        match self.handle.is_open() {
            true => u64::from(self.room().saturating_sub(self.in_flight)).min(self.left(lifetime)),
            false => 0,
        }
    }
}
