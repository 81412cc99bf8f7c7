//! Which failures are temporary, and how long to wait before the next attempt.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use fullbore::{ErrorKind, Incoming};
use http::header::RETRY_AFTER;
use http::{HeaderValue, Response};
use tokio::time::Instant;
use url::{Origin, Url};

use crate::exit::{Exit, Failure};

use super::error_body;

/// The first wait, less a random share of up to half. Each further wait is twice as long.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait of our own, and the longest accepted `Retry-After`.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(600);

/// A failed attempt.
pub(crate) struct Failed {
    pub(crate) failure: Failure,
    /// Another attempt may succeed.
    pub(crate) transient: bool,
    /// The peer did not process the request, so any method may be repeated.
    pub(crate) unprocessed: bool,
    /// The status of the response, if there was one.
    pub(crate) status: Option<u16>,
    /// The attempt exceeded `--max-time`.
    pub(crate) is_late: bool,
    /// No connection was made to this origin; and the URL in the failure.
    pub(crate) unreachable: Option<(Origin, String)>,
    /// Other requests to the origin would fail too.
    of_origin: bool,
    /// `Retry-After`.
    after: Option<Duration>,
}

impl Failed {
    /// A permanent failure.
    pub(crate) fn permanent(failure: Failure) -> Self {
        Self {
            failure,
            transient: false,
            unprocessed: false,
            status: None,
            is_late: false,
            unreachable: None,
            of_origin: false,
            after: None,
        }
    }

    /// A temporary failure.
    pub(crate) fn temporary(failure: Failure) -> Self {
        Self {
            failure,
            transient: true,
            unprocessed: false,
            status: None,
            is_late: false,
            unreachable: None,
            of_origin: false,
            after: None,
        }
    }

    /// The failure that a response with this status would be.
    pub(crate) fn with_status(self, status: u16) -> Self {
        Self {
            status: Some(status),
            ..self
        }
    }

    /// The failure of a request for this URL, shown so, to which no connection was made.
    pub(crate) fn with_unreachable(self, url: &Url, name: &str) -> Self {
        Self {
            unreachable: Some((url.origin(), name.to_owned())),
            ..self
        }
    }

    /// An attempt exceeded `--max-time`; `missing` says what had not happened.
    pub(crate) fn too_long(place: &str, missing: &str, limit: Duration) -> Self {
        let text = format!("{place}: {missing} within --max-time {limit:?}; try again, or allow more time");
        Self {
            is_late: true,
            ..Self::temporary(Failure::new(Exit::Timeout, text))
        }
    }

    /// An error of the library. A request that the peer may have processed is repeated only if its method allows it.
    pub(crate) fn of(place: &str, error: &fullbore::Error) -> Self {
        Self::of_kind(Failure::from_library(place, error), error.kind())
    }

    fn of_kind(failure: Failure, kind: ErrorKind) -> Self {
        let transient = matches!(
            kind,
            ErrorKind::Connect
                | ErrorKind::Closed
                | ErrorKind::Refused
                | ErrorKind::Reset
                | ErrorKind::Timeout
                | ErrorKind::Io
        );
        Self {
            failure,
            transient,
            unprocessed: matches!(kind, ErrorKind::Connect | ErrorKind::Refused),
            status: None,
            is_late: false,
            unreachable: None,
            of_origin: transient && kind != ErrorKind::Reset,
            after: None,
        }
    }

    /// A status that is a failure; some are temporary.
    pub(crate) fn by_status(failure: Failure, response: &Response<Incoming>) -> Self {
        let after = response.headers().get(RETRY_AFTER);
        Self {
            failure,
            transient: matches!(response.status().as_u16(), 408 | 429 | 500 | 502 | 503 | 504),
            unprocessed: false,
            status: Some(response.status().as_u16()),
            is_late: false,
            unreachable: None,
            of_origin: matches!(response.status().as_u16(), 429 | 503),
            after: after.and_then(|value| retry_after(value, SystemTime::now())),
        }
    }
}

impl Failed {
    /// The server has too much to do (429, 503).
    pub(crate) fn is_busy(&self) -> bool {
        self.failure.exit == Exit::Status && self.of_origin
    }

    /// Adds the text of the error response.
    pub(crate) async fn with_body(mut self, response: Response<Incoming>) -> Self {
        self.failure.body = error_body::read(response).await;
        self
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

/// The remaining attempts, and their waits.
pub(crate) struct Retries {
    left: u32,
    wait: Duration,
}

impl Retries {
    pub(crate) fn new(tries: u32) -> Self {
        Self {
            left: tries,
            wait: FIRST_WAIT,
        }
    }

    /// How long to wait before the next attempt; `None` when there is none.
    pub(crate) fn next(&mut self, failed: &Failed) -> Option<Duration> {
        if !failed.transient {
            return None;
        }
        self.left = self.left.checked_sub(1)?;
        let wait = self.wait;
        self.wait = (wait * 2).min(LONGEST_WAIT);
        let drawn = RandomState::new().hash_one(0_u8);
        Some(match failed.after {
            None => some_of(wait, drawn),
            // A server that asks for no pause does not get the same request in a loop.
            Some(after) => after.max(some_of(FIRST_WAIT, drawn)),
        })
    }
}

/// Half of the wait to all of it, at random, so that clients that failed together do not return together.
fn some_of(wait: Duration, drawn: u64) -> Duration {
    const STEPS: u32 = 1 << 10;
    let step = drawn % u64::from(STEPS);
    wait / 2 + wait / 2 * u32::try_from(step).unwrap_or(STEPS) / STEPS
}

/// The pauses that all requests of a run to one origin share: an origin that is down is not asked again for each URL.
#[derive(Default)]
pub(crate) struct Pauses {
    any: AtomicBool,
    origins: Mutex<HashMap<Origin, Pause>>,
}

#[derive(Clone, Copy)]
struct Pause {
    /// When it began.
    from: Instant,
    until: Instant,
}

impl Pauses {
    /// An attempt that began at `begun` has failed and is to be repeated after `wait`: returns when. A failure of an attempt
    /// that began before the current pause of its origin does not extend the pause.
    pub(crate) fn after(
        &self,
        url: &Url,
        failed: &Failed,
        begun: Instant,
        now: Instant,
        wait: Duration,
    ) -> Instant {
        let own = now + wait;
        if !failed.of_origin {
            return own;
        }
        self.any.store(true, Ordering::Relaxed);
        let mut origins = self.origins.lock().unwrap_or_else(PoisonError::into_inner);
        let pause = origins.entry(url.origin()).or_insert(Pause {
            from: now,
            until: own,
        });
        if pause.from < begun || failed.after.is_some() {
            pause.until = pause.until.max(own);
            pause.from = now;
        }
        pause.until
    }

    /// When a request to this URL may be sent.
    pub(crate) fn until(&self, url: &Url) -> Option<Instant> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        let origins = self.origins.lock().unwrap_or_else(PoisonError::into_inner);
        origins.get(&url.origin()).map(|pause| pause.until)
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

    fn failure() -> Failure {
        Failure::new(Exit::Closed, "it broke off")
    }

    #[test]
    fn each_kind_of_error_says_whether_to_try_again_whether_it_was_processed_and_whom_it_concerns() {
        for (kind, transient, unprocessed, of_origin) in [
            (ErrorKind::Connect, true, true, true),
            (ErrorKind::Refused, true, true, true),
            (ErrorKind::Closed, true, false, true),
            (ErrorKind::Timeout, true, false, true),
            (ErrorKind::Io, true, false, true),
            (ErrorKind::Reset, true, false, false),
            (ErrorKind::Protocol, false, false, false),
            (ErrorKind::BodyLength, false, false, false),
        ] {
            let failed = Failed::of_kind(failure(), kind);
            assert_eq!(failed.transient, transient, "{kind:?}");
            assert_eq!(failed.unprocessed, unprocessed, "{kind:?}");
            assert_eq!(failed.of_origin, of_origin, "{kind:?}");
            assert_eq!(failed.after, None, "{kind:?}");
        }
        let late = Failed::too_long(
            "http://h/",
            "the body had not come to its end",
            Duration::from_secs(7),
        );
        assert_eq!((late.failure.exit, late.transient), (Exit::Timeout, true));
        assert!(!late.unprocessed && !late.of_origin);
        let text = &late.failure.message;
        assert!(text.contains("within --max-time 7s"), "{text}");
    }

    #[test]
    fn waits_double_up_to_a_minute_by_half_of_them_at_random_and_end_with_the_tries() {
        let passing = Failed::temporary(failure());
        let mut retries = Retries::new(8);
        let mut waits = std::iter::from_fn(|| retries.next(&passing));
        for most in [1, 2, 4, 8, 16, 32, 60, 60].map(Duration::from_secs) {
            let wait = waits.next();
            assert!(
                wait.is_some_and(|wait| most / 2 <= wait && wait <= most),
                "{wait:?} of {most:?}"
            );
        }
        assert_eq!(waits.next(), None);
        assert_eq!(Retries::new(8).next(&Failed::permanent(failure())), None);
        let drawn: std::collections::HashSet<_> = (0..20).map(|_| Retries::new(1).next(&passing)).collect();
        assert!(drawn.len() > 1, "everybody comes back at once");
    }

    #[test]
    fn a_server_that_asks_for_no_pause_is_asked_again_after_half_a_second_at_least() {
        for (after, least, most) in [(0, 500, 1_000), (7_000, 7_000, 7_000)].map(|row: (u64, u64, u64)| {
            let time = Duration::from_millis;
            (time(row.0), time(row.1), time(row.2))
        }) {
            let failed = Failed {
                after: Some(after),
                ..Failed::temporary(failure())
            };
            let wait = Retries::new(1).next(&failed);
            assert!(wait.is_some_and(|wait| least <= wait && wait <= most), "{wait:?}");
        }
    }

    #[test]
    fn a_wait_has_1024_lengths_from_its_half_to_just_below_all_of_it() {
        let wait = Duration::from_millis(2_048);
        for (drawn, millis) in [
            (0, 1_024),
            (1, 1_025),
            (512, 1_536),
            (1_023, 2_047),
            (1_024, 1_024),
            (1_025, 1_025),
        ] {
            assert_eq!(some_of(wait, drawn), Duration::from_millis(millis), "{drawn}");
        }
    }

    #[test]
    fn what_the_server_says_counts_for_more_than_the_wait_that_would_be_drawn() {
        let told = Failed {
            after: Some(Duration::from_secs(90)),
            ..Failed::temporary(failure())
        };
        let mut retries = Retries::new(2);
        assert_eq!(retries.next(&told), Some(Duration::from_secs(90)));
        // It is the second wait all the same.
        let wait = retries.next(&Failed::temporary(failure()));
        assert!(wait >= Some(Duration::from_secs(1)), "{wait:?}");
        assert_eq!(retries.next(&told), None);
        assert_eq!(Retries::new(0).next(&told), None);
    }

    #[test]
    fn what_fails_together_pauses_once_and_others_of_the_origin_wait_with_it() -> Result<(), url::ParseError>
    {
        let pauses = Pauses::default();
        let (url, other) = (Url::parse("https://a/x")?, Url::parse("https://b/")?);
        let down = Failed {
            unreachable: None,
            of_origin: true,
            ..Failed::temporary(failure())
        };
        let begun = Instant::now();
        let second = |count| begun + Duration::from_secs(count);
        assert_eq!(pauses.until(&url), None);
        let first = pauses.after(&url, &down, begun, second(1), Duration::from_secs(1));
        assert_eq!(first, second(2));
        // A thousand that were under way too.
        for wait in 1..=1_000 {
            let until = pauses.after(&url, &down, begun, second(1), Duration::from_secs(wait));
            assert_eq!(until, first);
        }
        assert_eq!(pauses.until(&Url::parse("https://a/y")?), Some(first));
        assert_eq!(pauses.until(&other), None);
        // One that began afterwards.
        let again = pauses.after(&url, &down, second(2), second(3), Duration::from_secs(2));
        assert_eq!(again, second(5));
        // One that the server told when, though it was under way.
        let told = Failed {
            unreachable: None,
            of_origin: true,
            after: Some(Duration::from_secs(7)),
            ..Failed::temporary(failure())
        };
        let until = pauses.after(&url, &told, begun, second(3), Duration::from_secs(7));
        assert_eq!(until, second(10));
        // What concerns one URL alone.
        let reset = Failed::temporary(failure());
        let own = pauses.after(&other, &reset, begun, second(3), Duration::from_secs(4));
        assert_eq!(own, second(7));
        assert_eq!(pauses.until(&other), None);
        Ok(())
    }
}
