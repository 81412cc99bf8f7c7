//! The limit on the time of one attempt (`--max-time`).

use std::future::Future;
use std::time::Duration;

use tokio::time::timeout_at;

use crate::transfer::retry::Failed;

/// The time of an attempt (`--max-time`).
#[derive(Clone, Copy)]
pub(super) struct TimeLimit {
    length: Duration,
    /// `None` without a limit.
    until: Option<tokio::time::Instant>,
}

impl TimeLimit {
    /// From now on.
    pub(super) fn new(length: Option<Duration>) -> Self {
        Self {
            length: length.unwrap_or_default(),
            until: length.map(|length| tokio::time::Instant::now() + length),
        }
    }

    /// Waits for a part of the attempt. `place` is the URL, for messages.
    ///
    /// # Errors
    /// The time of the attempt is over.
    pub(super) async fn hold<T>(self, place: &str, part: impl Future<Output = T>) -> Result<T, Failed> {
        match self.until {
            None => Ok(part.await),
            Some(until) => timeout_at(until, part)
                .await
                .map_err(|_| Failed::too_long(place, "no complete response had arrived", self.length)),
        }
    }
}
