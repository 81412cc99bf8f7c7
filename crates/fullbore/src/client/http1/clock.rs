//! The limits on time of one exchange, with the names and meanings that they have in HTTP/2, and what it waits for.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use fullbore_proto::{Config, PeerLimit};
use tokio::time::Instant;

use super::outgoing::Upload;
use super::timer::Timer;
use super::totals::Ledger;
use crate::error::{Error, ErrorKind};
use crate::http1::{Record, Traffic, Waiting};

/// What counts as progress of a peer that reads slowly ([`Config::send_timeout`]).
const SENT: u64 = 1 << 10;

/// Informational responses that each request may have, as in HTTP/2. [`PeerLimit::Informational`] counts only the others.
const FREE_INFORMATIONAL: u32 = 8;

/// The limits of a connection.
#[derive(Debug, Clone)]
pub(super) struct Limits {
    header_timeout: Duration,
    response_timeout: Option<Duration>,
    body_timeout: Option<Duration>,
    /// The bytes that have to arrive within `body_timeout`.
    body_bytes: u64,
    send_timeout: Option<Duration>,
    informational: u32,
}

impl Limits {
    pub(super) fn of(config: &Config) -> Self {
        let millis = config.body_timeout().unwrap_or_default().as_millis();
        let bytes = u128::from(config.body_rate()) * millis / 1_000;
        Limits {
            header_timeout: config.header_timeout(),
            response_timeout: config.response_timeout(),
            body_timeout: config.body_timeout(),
            body_bytes: u64::try_from(bytes).unwrap_or(u64::MAX).max(1),
            send_timeout: config.send_timeout(),
            informational: config
                .limit(PeerLimit::Informational)
                .burst
                .saturating_add(FREE_INFORMATIONAL),
        }
    }
}

impl Limits {
    /// These limits, with another one on the time to the head of the response, unless theirs is shorter.
    pub(super) fn responding_within(self, limit: Duration) -> Self {
        let response_timeout = Some(self.response_timeout.unwrap_or(limit).min(limit));
        Limits {
            response_timeout,
            ..self
        }
    }
}

/// The limits of one exchange, while it lasts.
pub(super) struct Clock<'a> {
    limits: &'a Limits,
    upload: &'a Upload,
    now: Instant,
    /// When the connection was first driven with the request. Its slot may have been taken long before: the caller's future is
    /// polled when the caller likes.
    begun: Option<Instant>,
    traffic: Traffic,
    /// The bytes that had been received before the response, or the last informational one.
    received: u64,
    informational: u32,
    /// When the first octet of a head arrived.
    head_begun: Option<Instant>,
    sending: Waiting,
    receiving: Waiting,
    ledger: Ledger<'a>,
    timer: &'a mut Timer,
}

/// When an exchange fails, and how.
struct Deadline {
    at: Instant,
    text: &'static str,
    limit: Duration,
}

impl<'a> Clock<'a> {
    pub(super) fn start(
        limits: &'a Limits,
        upload: &'a Upload,
        record: &'a Record,
        timer: &'a mut Timer,
        (traffic, now): (Traffic, Instant),
    ) -> Self {
        Clock {
            limits,
            upload,
            now,
            begun: None,
            traffic,
            received: traffic.received,
            informational: 0,
            head_begun: None,
            sending: Waiting::new(),
            receiving: Waiting::new(),
            ledger: Ledger::start(record),
            timer,
        }
    }

    /// The connection was driven: what has passed.
    pub(super) fn driven(&mut self, traffic: Traffic) {
        self.now = Instant::now();
        self.begun.get_or_insert(self.now);
        self.traffic = traffic;
    }

    /// Notes what the exchange waits for since then, before or after the final response has begun.
    pub(super) fn note(&mut self, answered: bool) {
        self.ledger.enter(self.upload, self.traffic, answered, self.now);
    }

    /// The exchange has ended when the connection was driven last. Returns when that was.
    pub(super) fn end(&mut self) -> Instant {
        self.ledger.end(self.traffic, self.now);
        self.now
    }

    /// Waits until the head of the response is overdue.
    pub(super) fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        let (traffic, now) = (self.traffic, self.now);
        let informational = self.upload.informational();
        if informational > self.limits.informational {
            let text = "the server sent too many informational responses (limit: PeerLimit::Informational)";
            return Poll::Ready(Error::new(ErrorKind::Protocol, text));
        }
        if informational != self.informational {
            self.informational = informational;
            self.received = traffic.received;
            self.head_begun = None;
        }
        if traffic.received > self.received {
            self.head_begun.get_or_insert(now);
        }
        let begun = self.head_begun.and_then(|begun| {
            let text = "the head of the response was not complete";
            Deadline::after(begun, self.limits.header_timeout, text)
        });
        // It ends with the whole head, as in HTTP/2: a server that sends the head octet by octet gets no more time.
        let response = self.limits.response_timeout.and_then(|limit| {
            let ended = self.upload.ended()?.max(self.begun?);
            Deadline::after(ended, limit, "the server did not respond")
        });
        let head = begun.into_iter().chain(response);
        self.poll_until(cx, head.min_by_key(|deadline| deadline.at))
    }

    /// Waits until the rest of the exchange is overdue.
    pub(super) fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        let (traffic, now) = (self.traffic, self.now);
        let waits = traffic.awaits_read && self.upload.is_read();
        self.receiving
            .update(waits, traffic.received, self.limits.body_bytes, now);
        let body = self.limits.body_timeout.and_then(|limit| {
            let at = self.receiving.deadline(limit)?;
            Some(Deadline {
                at,
                text: "the body of the response made too little progress",
                limit,
            })
        });
        self.poll_until(cx, body)
    }

    fn poll_until(&mut self, cx: &mut Context<'_>, deadline: Option<Deadline>) -> Poll<Error> {
        let (traffic, now) = (self.traffic, self.now);
        self.sending.update(traffic.awaits_write, traffic.sent, SENT, now);
        let sending = self.limits.send_timeout.and_then(|limit| {
            let at = self.sending.deadline(limit)?;
            Some(Deadline {
                at,
                text: "send timed out: the server is not reading",
                limit,
            })
        });
        let first = deadline
            .into_iter()
            .chain(sending)
            .min_by_key(|deadline| deadline.at);
        let Some(first) = first else {
            return Poll::Pending;
        };
        if first.at > now {
            ready!(self.timer.poll(first.at, cx));
            if first.at > Instant::now() {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        Poll::Ready(Error::timeout(first.text, first.limit))
    }
}

impl Deadline {
    fn after(begun: Instant, limit: Duration, text: &'static str) -> Option<Self> {
        let at = begun.checked_add(limit)?;
        Some(Deadline { at, text, limit })
    }
}
