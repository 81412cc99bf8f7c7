//! What may be tried again, when, and from where: failures that pass, their waits, and the part of a body that came.
//!
//! A body is gone on with only where the server proves that it is the same: by an entity tag that is strong, or a date,
//! in `If-Range` (RFC 9110 section 13.1.5), and by the `Content-Range` of its answer. `fetch` asks and acts.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, SystemTime};

use fullbore::{ErrorKind, Incoming};
use http::header::{CONTENT_RANGE, ETAG, IF_RANGE, LAST_MODIFIED, RANGE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use http_body::Body as _;
use tokio::task::spawn_blocking;

use crate::exit::{Exit, Failure};

use super::draft::Draft;

/// The first wait; each further one is twice as long.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait of our own, and the longest that a server is obeyed in.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(600);

/// A shorter body is asked for anew rather than looked for on the disk, in bytes: it leaves with one write, and the search
/// would cost a thread's wake-up for each of 10,000 files.
const NOT_WORTH_A_SEARCH: u64 = 64 << 10;

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

/// What an earlier run has left of a body.
pub(super) enum Found {
    /// Nothing that is of use.
    Nothing,
    /// Its beginning.
    Some,
    /// All of it, without its name.
    All,
}

/// As much of a body as has come.
pub(super) struct Part {
    pub(super) draft: Draft,
    /// How many bytes of the body are in the draft.
    pub(super) offset: u64,
    /// What the server calls this version of the body.
    pub(super) validator: Option<HeaderValue>,
}

impl Part {
    /// Nothing has come.
    pub(super) fn new(draft: Draft) -> Self {
        Self {
            draft,
            offset: 0,
            validator: None,
        }
    }

    /// The fields that ask for the rest, if there is a beginning that can be gone on with.
    pub(super) fn range(&self) -> Option<[(HeaderName, HeaderValue); 2]> {
        let validator = self.validator.clone().filter(|_| self.offset > 0)?;
        let range = HeaderValue::try_from(format!("bytes={}-", self.offset)).ok()?;
        Some([(RANGE, range), (IF_RANGE, validator)])
    }

    /// Whether an earlier run has left some of the body that this response begins: it is taken over then, and the rest
    /// to be asked for, unless there is none.
    ///
    /// # Errors
    /// A fault of this program.
    pub(super) async fn find(&mut self, url: &str, response: &Response<Incoming>) -> Result<Found, Failure> {
        if self.offset > 0 || response.status() != StatusCode::OK {
            return Ok(Found::Nothing);
        }
        let Some(validator) = strong_validator(response) else {
            return Ok(Found::Nothing);
        };
        let length = response.body().size_hint().exact();
        if self.draft.discards() || length.is_some_and(|length| length <= NOT_WORTH_A_SEARCH) {
            self.validator = Some(validator);
            return Ok(Found::Nothing);
        }
        let mark = mark(url, &validator);
        let mut draft = std::mem::replace(&mut self.draft, Draft::nowhere());
        let found = spawn_blocking(move || {
            let found = draft.find(mark);
            (draft, found)
        });
        let (draft, found) = found.await.map_err(|error| {
            let text = format!("{url}: a file was lost by a fault of this program: {error}");
            Failure::new(Exit::Other, text)
        })?;
        self.draft = draft;
        self.offset = found.unwrap_or(0);
        self.validator = Some(validator);
        match length {
            _ if self.offset == 0 => Ok(Found::Nothing),
            Some(length) if length == self.offset => Ok(Found::All),
            Some(length) if length < self.offset => {
                self.restart();
                Ok(Found::Nothing)
            }
            _ => Ok(Found::Some),
        }
    }

    /// Forgets what came; false when that cannot be taken back.
    pub(super) fn restart(&mut self) -> bool {
        let restarted = self.draft.restart();
        if restarted {
            self.offset = 0;
            self.validator = None;
        }
        restarted
    }

    /// Gives the file its name: nothing is missing.
    ///
    /// # Errors
    /// It cannot be had.
    pub(super) async fn finish(self) -> Result<(), Failure> {
        let finished = spawn_blocking(move || self.draft.finish(&[])).await;
        finished.unwrap_or_else(|error| {
            let text = format!("a file was lost by a fault of this program: {error}");
            Err(Failure::new(Exit::Other, text))
        })
    }

    /// Looks what this response is of: the rest of the part, or a body from its beginning.
    ///
    /// # Errors
    /// It can be neither put behind what came nor begun anew.
    pub(super) fn take_up(&mut self, url: &str, response: &Response<Incoming>) -> Result<(), Failure> {
        if response.status() == StatusCode::PARTIAL_CONTENT {
            let begins = response.headers().get(CONTENT_RANGE).and_then(first_byte);
            let same = match (strong_validator(response), &self.validator) {
                (Some(new), Some(old)) => new == *old,
                _ => true,
            };
            if self.offset > 0 && begins == Some(self.offset) && same {
                return Ok(());
            }
            let text = format!(
                "{url}: the server sent another part than it was asked for; the fault is the server's"
            );
            return Err(Failure::new(Exit::Protocol, text));
        }
        if self.offset > 0 && !self.restart() {
            let text = format!(
                "{url}: it broke off, and the server does not go on with it; what was written so far cannot be taken \
                 back, so run it again"
            );
            return Err(Failure::new(Exit::Closed, text));
        }
        self.validator = strong_validator(response).filter(|_| response.status() == StatusCode::OK);
        if let Some(validator) = &self.validator {
            self.draft.mark(mark(url, validator));
        }
        Ok(())
    }

    /// Leaves what came for a later run; whether there is anything that one could go on with.
    pub(super) fn leave(self) -> bool {
        self.offset > 0 && self.validator.is_some() && self.draft.leave()
    }
}

/// What `If-Range` may hold: an entity tag that is strong (RFC 9110 section 13.1.5), or else a date.
fn strong_validator(response: &Response<Incoming>) -> Option<HeaderValue> {
    let headers = response.headers();
    match headers.get(ETAG) {
        Some(tag) => Some(tag.clone()).filter(|tag| tag.as_bytes().starts_with(b"\"")),
        None => headers.get(LAST_MODIFIED).cloned(),
    }
}

/// What tells this version of this body from others, for the name of its part. Two runs of the same program agree on it.
fn mark(url: &str, validator: &HeaderValue) -> u64 {
    let mut hasher = DefaultHasher::new();
    (url, validator.as_bytes()).hash(&mut hasher);
    hasher.finish()
}

/// Where a part begins: `bytes 5-9/10` (RFC 9110 section 14.4).
fn first_byte(value: &HeaderValue) -> Option<u64> {
    let range = value.to_str().ok()?.strip_prefix("bytes ")?;
    range.split_once('-')?.0.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn the_first_byte_of_a_part_is_read_or_not_guessed() {
        let first = |text: &'static str| first_byte(&HeaderValue::from_static(text));
        assert_eq!(first("bytes 5-9/10"), Some(5));
        assert_eq!(first("bytes 5-9/*"), Some(5));
        assert_eq!(first("bytes */10"), None);
        assert_eq!(first("octets 5-9/10"), None);
    }
}
