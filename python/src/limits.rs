//! The limits on time of a request.

use std::pin::Pin;
use std::time::Duration;

use fullbore::Client;
use fullbore::client::{Response, SentBytes};
use futures_util::FutureExt;
use pyo3::prelude::*;
use tokio::time::{Instant, timeout};

use crate::failure::Failure;

/// How often a wait is looked at: in the eighth part of its limit, within these bounds.
const SHORTEST_LOOK: Duration = Duration::from_millis(1);
const LONGEST_LOOK: Duration = Duration::from_millis(250);

/// The limits, of which each may be missing.
#[derive(Clone, Copy, Default)]
pub(crate) struct Limits {
    connect: Option<Duration>,
    pool: Option<Duration>,
    write: Option<Duration>,
    response: Option<Duration>,
    pub(crate) read: Option<Duration>,
    pub(crate) total: Option<Duration>,
}

/// In seconds: connect, response, read, write, pool, total.
impl<'py> FromPyObject<'_, 'py> for Limits {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        type All = (
            Option<f64>,
            Option<f64>,
            Option<f64>,
            Option<f64>,
            Option<f64>,
            Option<f64>,
        );
        let Some((connect, response, read, write, pool, total)) = value.extract::<Option<All>>()? else {
            return Ok(Self::default());
        };
        Ok(Limits {
            connect: seconds(connect),
            pool: seconds(pool),
            write: seconds(write),
            response: seconds(response),
            read: seconds(read),
            total: seconds(total),
        })
    }
}

/// What is longer than a `Duration` is no limit.
pub(crate) fn seconds(value: Option<f64>) -> Option<Duration> {
    Duration::try_from_secs_f64(value?).ok()
}

impl Limits {
    /// Whether the progress of the request has to be watched.
    pub(crate) fn watches(&self) -> bool {
        self.of_head().next().is_some()
    }

    /// Those that can end the wait for a response.
    fn of_head(&self) -> impl Iterator<Item = Duration> {
        [self.connect, self.pool, self.write, self.response]
            .into_iter()
            .flatten()
    }

    /// Sends a request that is counted by `sent`.
    pub(crate) async fn watch(
        &self,
        client: &Client,
        mut request: Pin<&mut impl Future<Output = Result<Response, fullbore::Error>>>,
        sent: &SentBytes,
        url: &str,
    ) -> Result<Response, Failure> {
        let shortest = self.of_head().min().unwrap_or(LONGEST_LOOK);
        let look = (shortest / 8).clamp(SHORTEST_LOOK, LONGEST_LOOK);
        let (mut seen, mut since) = ((Phase::Connecting, 0), Instant::now());
        loop {
            if let Ok(answered) = timeout(look, request.as_mut()).await {
                return Ok(answered?);
            }
            let phase = Phase::of(client, sent, url);
            let now = (phase, sent.get());
            let was = std::mem::replace(&mut seen, now);
            if now != was {
                since = Instant::now();
            }
            let (limit, kind, what) = match phase {
                Phase::Connecting => (self.connect, "connect_timeout", "no connection was made"),
                Phase::Waiting => (self.pool, "pool_timeout", "no connection of the pool was free"),
                Phase::Sending => (
                    self.write,
                    "write_timeout",
                    "the server took no more of the request's body",
                ),
                Phase::Sent => (self.response, "response_timeout", "no response came"),
            };
            // A limit that is shorter than a look has passed between two of them.
            let is_short = |limit: Duration| limit < look && phase == was.0;
            if let Some(limit) = limit.filter(|&limit| is_short(limit) || since.elapsed() >= limit) {
                return Err(Failure::timeout(kind, what, limit).of(&without_secrets(url)));
            }
        }
    }
}

/// What a request waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Connecting,
    Waiting,
    Sending,
    Sent,
}

impl Phase {
    fn of(client: &Client, sent: &SentBytes, url: &str) -> Self {
        if !sent.has_begun() {
            return match client.connections(url) {
                0 => Phase::Connecting,
                _ => Phase::Waiting,
            };
        }
        match sent.ended().now_or_never() {
            None => Phase::Sending,
            Some(()) => Phase::Sent,
        }
    }
}

/// A URL for a message: without name, password, query and fragment.
pub(crate) fn without_secrets(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{path}")
}
