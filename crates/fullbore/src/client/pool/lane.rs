//! What a download sends its requests on: the connections of a pool, or a further one that it has for itself.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};

use super::origin::OriginPool;
use super::{Client, Limited, Nothing, add_missing, exchange};
use crate::body::Incoming;
use crate::client::experiment::TcpReport;
use crate::client::handle::Handle;
use crate::error::Error;

/// A response that is to come.
pub(in crate::client) type Answer = Pin<Box<dyn Future<Output = Result<Response<Incoming>, Error>> + Send>>;

/// A way to an origin. Dropping a further one closes its connection, when its requests are complete.
pub(in crate::client) struct Lane {
    pool: Arc<OriginPool>,
    is_further: bool,
    request_timeout: Option<Duration>,
}

impl Client {
    /// The pool of this request's origin. The request gets the fields that all requests of the client have.
    pub(in crate::client) fn lane(&self, request: &mut Request<()>) -> Result<Lane, Error> {
        let pool = Arc::clone(&*self.pool(request.uri())?);
        add_missing(request.headers_mut(), &self.front().default_headers);
        Ok(Lane {
            pool,
            is_further: false,
            request_timeout: self.front().head_timeout,
        })
    }
}

impl Lane {
    /// Sends a request without a body.
    pub(in crate::client) fn send(&self, request: Request<()>) -> Answer {
        let (pool, limit) = (Arc::clone(&self.pool), self.request_timeout);
        Box::pin(async move {
            let head = Arc::new(request);
            let asked = Arc::clone(&head);
            let sent = Limited::new(limit, exchange::repeatable(&pool, head, Nothing)).await;
            sent.map_err(|error| error.of_request(asked.uri()))
        })
    }

    /// A way with a connection of its own; `None` if the origin has as many as it may have.
    pub(in crate::client) fn further(&self) -> Option<Lane> {
        Some(Lane {
            pool: self.pool.further()?,
            is_further: true,
            request_timeout: self.request_timeout,
        })
    }

    /// Another use of the same pool, which gives each request of HTTP/1.1 a connection of its own.
    pub(in crate::client) fn same(&self) -> Lane {
        Lane {
            pool: Arc::clone(&self.pool),
            is_further: false,
            request_timeout: self.request_timeout,
        }
    }

    /// The most connections to the origin.
    pub(in crate::client) fn most(&self) -> usize {
        self.pool.most_connections()
    }

    /// What TCP says of one of its connections, if it spans the path.
    pub(in crate::client) fn tcp(&self) -> TcpReport {
        let handles = self.pool.handles();
        Box::pin(async move {
            for handle in handles {
                match handle {
                    Handle::Http2(sender) => {
                        let report = sender.report().await.ok()?;
                        let round_trip = report.stats.round_trip.minimum();
                        return report.tcp.filter(|tcp| tcp.spans(round_trip));
                    }
                    // One that has carried too little says nothing.
                    Handle::Http1(sender) => match sender.tcp() {
                        None => {}
                        known => return known,
                    },
                }
            }
            None
        })
    }

    /// The connections of the pool that take requests.
    pub(in crate::client) fn connections(&self) -> usize {
        self.pool.stats().connections
    }

    /// Whether it carries no more than so many requests.
    pub(in crate::client) fn is_alone(&self, requests: usize) -> bool {
        self.pool.stats().in_flight <= requests
    }

    /// The least round trip that was measured.
    pub(in crate::client) fn round_trip(&self) -> Option<Duration> {
        self.pool.round_trip()
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        if self.is_further {
            self.pool.retire();
        }
    }
}
