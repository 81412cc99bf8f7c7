//! The limits on time of a connection: those of HTTP/2 by the same settings, measured where hyper reads and writes.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use fullbore_proto::Config;
use tokio::time::Instant;

use crate::alarm::{Alarm, Alarms};
use crate::error::Error;
use crate::http1::{Exchange, Traffic, Waiting};

/// The bytes that count as progress of what the peer takes, as in the engine.
const LEAST_PROGRESS: u64 = 1 << 10;

/// From this `idle_timeout` on, an answered request takes no look at the clock, and an idle connection may last longer than the
/// limit by [`Alarm::longest_rest`], which is 2 s as a rule. With a shorter limit the clock is read each time.
const EXACT_IDLE: Duration = Duration::from_secs(20);

/// Which limit was exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expired {
    /// Nothing came.
    Silence,
    /// The head of a request.
    Head,
    /// No request.
    Idle,
    /// The body of a request.
    Body,
    /// The peer takes too little.
    Send,
    /// The peer has ended its half.
    HalfClose,
    /// The server shuts down, and there is no request.
    Shutdown,
}

impl Expired {
    /// The error that ends the connection; `None` when it was just not used.
    pub(super) fn error(self, config: &Config) -> Option<Error> {
        let (text, limit) = match self {
            Expired::Idle | Expired::Shutdown => return None,
            Expired::Silence => ("waiting for the first request", config.preface_timeout()),
            Expired::Head => (
                "waiting for the rest of a request's head",
                config.header_timeout(),
            ),
            Expired::Body => (
                "waiting for the body of the request",
                config.body_timeout().unwrap_or_default(),
            ),
            Expired::Send => (
                "waiting for the peer to read the response",
                config.send_timeout().unwrap_or_default(),
            ),
            Expired::HalfClose => (
                "the peer had ended its half of the transport, and took too little of the response",
                config.half_close_timeout(),
            ),
        };
        Some(Error::timeout(text, limit))
    }
}

/// Measures the time of a connection. What most polls need comes first, so that it is on one line of the processor's cache.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Limits {
    /// The requests that have been seen.
    requests: u64,
    /// At the last look requests had been answered, which is not in what follows yet: the bytes that had been received then.
    answered: Option<u64>,
    /// While [`Alarm::fired`] is this, the timer wakes this task as `awake_for_idle` says.
    fired: Option<u64>,
    /// Whom the timer wakes.
    waker: Waker,
    /// Whether a body, a write or the peer's end waited at the last poll.
    waits: bool,
    /// Whether a request was in progress.
    busy: bool,
    /// Whether `looked` is exact.
    is_looked_exact: bool,
    /// Wakes this task when the next limit may be exceeded.
    timer: Option<Alarm>,
    /// When it was polled last; if that was without a look at the clock, up to [`Alarm::longest_rest`] before.
    looked: Instant,
    /// When the timer wakes this task, if it then has not been idle for too long, whenever that began after the timer was set.
    awake_for_idle: Option<Instant>,
    /// Since when there is no request, and the bytes that had been received then.
    idle: Instant,
    idle_received: u64,
    /// Since when a head is arriving.
    head: Option<Instant>,
    body: Waiting,
    send: Waiting,
    half_closed: Waiting,
    /// When the connection ends unless there is a request, since the server shuts down.
    leaves: Option<Instant>,
    config: Arc<Config>,
    alarms: Option<Alarms>,
}

impl Limits {
    /// `alarms` are those of the server, if it has any.
    pub(super) fn new(config: Arc<Config>, alarms: Option<Alarms>) -> Self {
        let now = Instant::now();
        Limits {
            requests: 0,
            answered: None,
            fired: None,
            waker: Waker::noop().clone(),
            waits: false,
            busy: false,
            is_looked_exact: true,
            timer: None,
            looked: now,
            awake_for_idle: None,
            idle: now,
            idle_received: 0,
            head: None,
            body: Waiting::new(),
            send: Waiting::new(),
            half_closed: Waiting::new(),
            leaves: None,
            config,
            alarms,
        }
    }

    /// When it was polled last, or up to [`Alarm::longest_rest`] before.
    pub(super) fn last_looked(&self) -> Instant {
        self.looked
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// The server shuts down: the head of a request has to arrive within `shutdown_grace`.
    pub(super) fn shut_down(&mut self) {
        self.leaves = Instant::now().checked_add(self.config.shutdown_grace());
    }

    /// Notes, without a look at the clock, that requests were answered and that the connection rests now. `false`, and nothing is
    /// noted, if [`Self::poll`] has to be called: when no request was answered, or it is not certain that the timer wakes this task
    /// before the connection has been idle for too long.
    #[inline]
    pub(super) fn note_answered(&mut self, requests: u64, received: u64, cx: &Context<'_>) -> bool {
        let has_answered = requests != self.requests && !self.waits;
        let is_awake = self.fired.is_some() && self.fired == self.fired();
        if !has_answered || !is_awake || !self.waker.will_wake(cx.waker()) {
            return false;
        }
        self.requests = requests;
        self.answered = Some(received);
        self.is_looked_exact = false;
        true
    }

    /// Ready when a limit is exceeded. Call it whenever the connection was polled.
    pub(super) fn poll(
        &mut self,
        request: Exchange,
        traffic: Traffic,
        cx: &mut Context<'_>,
    ) -> Poll<Expired> {
        let fired = self.fired();
        let mut now = Instant::now();
        if self.has_only_answered(request, traffic) {
            self.requests = request.requests;
            self.answered = Some(traffic.received);
            self.looked = now;
            self.is_looked_exact = true;
            if self.is_awake_in_time(now, cx) {
                let idle = self.config.idle_timeout();
                self.fired = fired.filter(|_| idle.is_some_and(|limit| limit >= EXACT_IDLE));
                return Poll::Pending;
            }
        }
        self.settle(fired, now);
        self.looked = now;
        self.is_looked_exact = true;
        self.fired = None;
        loop {
            self.update(request, traffic, now);
            let Some((at, expired)) = self.next(request, traffic, now) else {
                return Poll::Pending;
            };
            if at <= now {
                if let Some(expired) = expired {
                    return Poll::Ready(expired);
                }
            }
            if self.is_awake_at(at, now, cx) {
                return Poll::Pending;
            }
            // A timer that fires early is set anew; it is never moved for each request.
            let timer = match &mut self.timer {
                Some(timer) if now < timer.deadline() && timer.deadline() <= at => timer,
                timer => timer.insert(Alarm::at(at, self.alarms.as_ref())),
            };
            if timer.poll(cx).is_pending() {
                let idle = self
                    .config
                    .idle_timeout()
                    .and_then(|limit| now.checked_add(limit));
                let deadline = timer.deadline();
                self.awake_for_idle = idle.filter(|idle| deadline <= *idle).map(|_| deadline);
                self.waker.clone_from(cx.waker());
                return Poll::Pending;
            }
            now = Instant::now();
        }
    }

    /// Whether requests were answered since the last poll, and nothing else is to be measured: what most polls find.
    fn has_only_answered(&self, request: Exchange, traffic: Traffic) -> bool {
        request.requests != self.requests && !request.is_busy() && !traffic.awaits_write && !self.waits
    }

    /// Takes into account the requests that had been answered at the last look. `fired` is [`Alarm::fired`].
    fn settle(&mut self, fired: Option<u64>, now: Instant) {
        if let Some(received) = self.answered.take() {
            self.busy = false;
            self.body.restart(received);
            self.idle = match self.is_looked_exact {
                true => self.looked,
                // The last answer was before the timer fired next. It has not fired yet:
                false if fired == self.fired => now,
                false => {
                    let rest = self.timer.as_ref().map_or(Duration::ZERO, Alarm::longest_rest);
                    now.min(self.looked + rest)
                }
            };
            self.idle_received = received;
            self.head = None;
        }
    }

    /// [`Alarm::fired`] of the timer.
    fn fired(&self) -> Option<u64> {
        self.timer.as_ref().and_then(Alarm::fired)
    }

    /// Whether the timer wakes this task before it has been idle for too long from now on, as it was told before.
    fn is_awake_in_time(&self, now: Instant, cx: &Context<'_>) -> bool {
        self.awake_for_idle.is_some_and(|at| now < at) && self.waker.will_wake(cx.waker())
    }

    /// Whether the timer wakes this task by then, as it was told before.
    fn is_awake_at(&self, at: Instant, now: Instant, cx: &Context<'_>) -> bool {
        let timer = self.timer.as_ref().map(Alarm::deadline);
        timer.is_some_and(|timer| now < timer && timer <= at) && self.waker.will_wake(cx.waker())
    }

    fn update(&mut self, request: Exchange, traffic: Traffic, now: Instant) {
        let was_busy = std::mem::replace(&mut self.busy, request.is_busy());
        if request.requests != self.requests || self.busy || was_busy {
            if request.requests != self.requests {
                self.requests = request.requests;
                self.body.restart(traffic.received);
            }
            self.idle = now;
            self.idle_received = traffic.received;
            self.head = None;
        } else if traffic.received > self.idle_received && self.head.is_none() {
            self.head = Some(now);
        }
        let awaits_body = request.receives && traffic.awaits_read;
        let half_closed = request.is_busy() && traffic.ended;
        let waits = awaits_body || traffic.awaits_write || half_closed;
        let waited = std::mem::replace(&mut self.waits, waits);
        if !waits && !waited {
            return;
        }
        let least = self.least_body_bytes();
        self.body.update(awaits_body, traffic.received, least, now);
        if !traffic.awaits_write || !waited {
            self.send.restart(traffic.sent);
        }
        self.send
            .update(traffic.awaits_write, traffic.sent, LEAST_PROGRESS, now);
        self.half_closed
            .update(half_closed, traffic.sent, LEAST_PROGRESS, now);
    }

    /// When to look again, and what is exceeded then if nothing changes.
    fn next(&self, request: Exchange, traffic: Traffic, now: Instant) -> Option<(Instant, Option<Expired>)> {
        let config = &self.config;
        let is_busy = request.is_busy() || traffic.awaits_write;
        let idle = match (is_busy, self.head) {
            (true, _) => None,
            (false, Some(since)) => Some((since.checked_add(config.header_timeout()), Expired::Head)),
            (false, None) if self.requests == 0 => {
                Some((self.idle.checked_add(config.preface_timeout()), Expired::Silence))
            }
            (false, None) => config
                .idle_timeout()
                .map(|limit| (self.idle.checked_add(limit), Expired::Idle)),
        };
        let limit =
            |waiting: &Waiting, limit: Option<Duration>| limit.and_then(|limit| waiting.deadline(limit));
        let mut next = idle.and_then(|(at, expired)| Some((at?, Some(expired))));
        let mut or = |at: Option<Instant>, expired| match (at, next) {
            (Some(at), Some((before, _))) if before <= at => {}
            (Some(at), _) => next = Some((at, expired)),
            (None, _) => {}
        };
        or(self.leaves.filter(|_| !is_busy), Some(Expired::Shutdown));
        or(limit(&self.body, config.body_timeout()), Some(Expired::Body));
        or(limit(&self.send, config.send_timeout()), Some(Expired::Send));
        or(
            limit(&self.half_closed, Some(config.half_close_timeout())),
            Some(Expired::HalfClose),
        );
        // Another task reads and writes a tunnel, so nothing else looks.
        let look = config.send_timeout().filter(|_| request.tunnel);
        or(look.and_then(|limit| now.checked_add(limit / 4)), None);
        next
    }

    /// The bytes of a body that have to arrive within `body_timeout`.
    fn least_body_bytes(&self) -> u64 {
        let timeout = self.config.body_timeout().unwrap_or_default();
        let bytes = u128::from(self.config.body_rate()) * timeout.as_millis() / 1_000;
        u64::try_from(bytes).unwrap_or(u64::MAX).max(1)
    }
}

#[cfg(test)]
mod tests;
