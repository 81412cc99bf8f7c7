//! Which failures may pass, and how long to wait before the next try.

use std::time::{Duration, SystemTime};

use fullbore::{ErrorKind, Incoming};
use http::header::RETRY_AFTER;
use http::{HeaderValue, Response};

use crate::exit::Failure;

/// The first wait; each further one is twice as long.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait of our own, and the longest that a server is obeyed in.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(600);

/// A try that failed.
pub(super) struct Failed {
    pub(super) failure: Failure,
    /// Whether it may be another time.
    pub(super) transient: bool,
    /// What the server said about when.
    after: Option<Duration>,
}

impl Failed {
    /// It would fail again.
    pub(super) fn lasting(failure: Failure) -> Self {
        Self {
            failure,
            transient: false,
            after: None,
        }
    }

    /// It may be another time.
    pub(super) fn passing(failure: Failure) -> Self {
        Self {
            failure,
            transient: true,
            after: None,
        }
    }

    /// What the library reported. A GET changes nothing on the server, so that even one that it may have seen is sent
    /// again.
    pub(super) fn of(place: &str, error: &fullbore::Error) -> Self {
        let transient = matches!(
            error.kind(),
            ErrorKind::Connect
                | ErrorKind::Closed
                | ErrorKind::GoAway
                | ErrorKind::Reset
                | ErrorKind::Timeout
                | ErrorKind::Io
        );
        Self {
            failure: Failure::from_library(place, error),
            transient,
            after: None,
        }
    }

    /// A status that is a failure: some say that it passes.
    pub(super) fn by_status(failure: Failure, response: &Response<Incoming>) -> Self {
        let after = response.headers().get(RETRY_AFTER);
        Self {
            failure,
            transient: matches!(response.status().as_u16(), 408 | 429 | 500 | 502 | 503 | 504),
            after: after.and_then(|value| retry_after(value, SystemTime::now())),
        }
    }
}

/// `Retry-After` (RFC 9110 section 10.2.3): seconds, or a date.
fn retry_after(value: &HeaderValue, now: SystemTime) -> Option<Duration> {
    let text = value.to_str().ok()?.trim();
    let wait = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => httpdate::parse_http_date(text)
            .ok()?
            .duration_since(now)
            .unwrap_or_default(),
    };
    Some(wait.min(LONGEST_RETRY_AFTER))
}

/// How many more tries there are, and how long each waits.
pub(super) struct Retries {
    left: u32,
    wait: Duration,
}

impl Retries {
    pub(super) fn new(tries: u32) -> Self {
        Self {
            left: tries,
            wait: FIRST_WAIT,
        }
    }

    /// How long to wait before the next try; none when there is to be none.
    pub(super) fn next(&mut self, failed: &Failed) -> Option<Duration> {
        if !failed.transient {
            return None;
        }
        self.left = self.left.checked_sub(1)?;
        let wait = self.wait;
        self.wait = (wait * 2).min(LONGEST_WAIT);
        Some(failed.after.unwrap_or(wait))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    #[test]
    fn a_server_says_when_in_seconds_or_by_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let after = |text: &'static str| retry_after(&HeaderValue::from_static(text), now);
        assert_eq!(after("7"), Some(Duration::from_secs(7)));
        assert_eq!(
            after("Sun, 06 Nov 1994 08:49:47 GMT"),
            Some(Duration::from_secs(10))
        );
        assert_eq!(after("Sun, 06 Nov 1994 08:49:27 GMT"), Some(Duration::ZERO));
        assert_eq!(after("100000"), Some(LONGEST_RETRY_AFTER));
        assert_eq!(after("soon"), None);
    }

    #[test]
    fn waits_double_up_to_a_minute_and_end_with_the_tries() {
        let failure = || Failure::new(Exit::Closed, "it broke off");
        let passing = Failed {
            failure: failure(),
            transient: true,
            after: None,
        };
        let mut retries = Retries::new(8);
        let waits: Vec<u64> = std::iter::from_fn(|| retries.next(&passing))
            .map(|wait| wait.as_secs())
            .collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(Retries::new(8).next(&Failed::lasting(failure())), None);
    }
}
