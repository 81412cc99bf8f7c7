//! The connections to one origin, and the requests that wait for a stream on any of them.
//!
//! A request belongs to no connection until it has a slot. It waits in one queue, and takes the first slot that is
//! free. One short lock protects the state; a request takes it once, and its end once. Nothing that could call back
//! is called under the lock: a change collects its [`Effects`], which are applied after the lock is released.

mod demand;
mod further;
mod lifetimes;
mod member;
mod observer;
mod queue;
mod refusals;
mod spreading;
mod surplus;
mod versions;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle as Runtime;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::further::Further;
use self::member::Member;
pub(super) use self::queue::Place;
use self::queue::QueuedRequest;
use self::refusals::Check;
use self::spreading::Spreading;
use self::versions::Version;
use super::attempt::{self, Ended};
use super::backoff::Backoff;
use super::builder::Settings;
use super::connection_state::ConnectionState;
use super::growth::Growth;
use super::wait_clock::WaitClock;
use crate::client::connect::{HttpVersion, Opened, Origin};
use crate::client::handle::Handle;
use crate::error::{Error, ErrorKind};
use crate::observer::{Observer, Slot};

/// How long no further connection is opened after a failure: at first, and at most. The pause doubles each time, until a
/// connection that was opened since the last failure has served a request.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The state of a [`Client`](crate::Client)'s pool for one origin.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OriginStats {
    /// Scheme, host and port, as in `https://example.com:443`.
    pub origin: String,
    /// Connections that take requests.
    pub connections: usize,
    /// Attempts to connect.
    pub opening: usize,
    /// Requests whose streams are open or about to be.
    pub in_flight: usize,
    /// Requests that wait for a stream.
    pub waiting: usize,
}

/// The right to open one stream on one connection.
pub(super) struct Lease {
    pub(super) handle: Handle,
    pub(super) slot: Slot,
}

/// The pool of one origin.
pub(super) struct OriginPool {
    origin: Origin<'static>,
    settings: Arc<Settings>,
    /// The most connections.
    most: usize,
    /// All connections of the client that have not ended.
    connections: TaskTracker,
    state: Mutex<PoolState>,
    /// Further connections to the same origin, each of a download.
    further: Further,
    /// Canceled when the client drops the pool: attempts to connect end.
    retiring: CancellationToken,
    /// Whether the client has dropped the pool. Written under the lock.
    retired: AtomicBool,
    /// Whether requests wait for streams. Drivers read it without the lock.
    queued: AtomicBool,
    /// Whether the peer has refused requests, or allowed no stream, since its last response. Responses read it
    /// without the lock.
    refuses: AtomicBool,
}

#[derive(Default)]
struct PoolState {
    /// Connections that take requests. A closing connection is not here, though its streams may be open.
    members: Vec<Member>,
    /// The number of attempts to connect.
    opening: usize,
    /// Requests without a slot, in order. None waits while a slot is free.
    waiting: BTreeMap<u64, Waiter>,
    /// After how many requests the peer ends a connection.
    lifetime: Option<u64>,
    /// The number of requests so far.
    requests: u64,
    growth: Growth,
    /// Which version of HTTP the origin speaks.
    version: Version,
    /// After a failure: until when no further connection is opened, and how long that was.
    pause: Option<(Instant, Duration)>,
    /// What the peer has refused.
    refusals: Option<Backoff>,
    /// How often the peer answered after it had not processed a request; and whether it has answered since the last time.
    rounds: u64,
    unanswered: bool,
    /// How long requests have waited while the peer allowed no stream.
    clock: WaitClock,
    /// When the queue is checked next, if nothing happens before.
    check_at: Option<Instant>,
    /// The peer's last limit on streams.
    known_streams: Option<u32>,
    /// Where connections run: the runtime of the request that waited last.
    runtime: Option<Runtime>,
    /// Whether the task that closes surplus connections runs.
    cleanup_running: bool,
    spreading: Spreading,
}

/// A connection of the pool. Its driver reports to it (`observer`).
struct PooledConnection {
    pool: Weak<OriginPool>,
    state: ConnectionState,
}

impl Deref for PooledConnection {
    type Target = ConnectionState;

    fn deref(&self) -> &ConnectionState {
        &self.state
    }
}

struct Waiter {
    answer: oneshot::Sender<Result<Lease, Error>>,
    /// When it expires at a peer that allows no stream: a reading of [`WaitClock`].
    until: Duration,
}

/// What remains to be done after a change, without the lock.
#[derive(Default)]
struct Effects {
    assigned: Vec<(Waiter, Lease)>,
    failed: Option<(BTreeMap<u64, Waiter>, Error)>,
    /// Connections to open, and where.
    open: Option<(Vec<Arc<PooledConnection>>, Runtime)>,
    /// The version that they speak, unless ALPN decides.
    presumed: HttpVersion,
    /// Whether they take the place of one that was lost with its runtime.
    is_second: bool,
    /// When to check the queue again, and where.
    check: Option<(Instant, Runtime)>,
    /// Where to start the task that closes surplus connections.
    cleanup: Option<Runtime>,
    /// Where to start the task that spreads requests.
    spreader: Option<Runtime>,
    /// To be dropped.
    removed: Vec<Member>,
}

impl OriginPool {
    pub(super) fn new(
        origin: Origin<'static>,
        settings: Arc<Settings>,
        connections: TaskTracker,
    ) -> Arc<Self> {
        let most = settings.max_connections;
        Self::with_most(origin, settings, most, connections)
    }

    fn with_most(
        origin: Origin<'static>,
        settings: Arc<Settings>,
        most: usize,
        connections: TaskTracker,
    ) -> Arc<Self> {
        Arc::new(OriginPool {
            origin,
            settings,
            most,
            connections,
            state: Mutex::default(),
            further: Further::default(),
            retiring: CancellationToken::new(),
            retired: AtomicBool::new(false),
            queued: AtomicBool::new(false),
            refuses: AtomicBool::new(false),
        })
    }

    /// Takes a slot on the connection that has the most free ones, at once or when one becomes free. A request that was
    /// sent before keeps its place. Dropping the future leaves the queue.
    ///
    /// # Errors
    /// Why no connection can be opened.
    pub(super) async fn lease(self: &Arc<Self>, place: &mut Place) -> Result<Lease, Error> {
        loop {
            let lease = match self.take_or_wait(place)? {
                Acquired::Slot(lease) => lease,
                Acquired::Queued(waiting) => waiting.await?,
            };
            if lease.handle.is_open() {
                return Ok(lease);
            }
            // The connection began to close while this request was woken.
            if let Some(error) = lease.handle.failure() {
                // Whether the peer speaks another version is known once the pool has learnt from the end.
                lease.handle.settled().await;
                if !lease.handle.is_other_version() {
                    return Err(error);
                }
            }
        }
    }

    fn take_or_wait(self: &Arc<Self>, place: &mut Place) -> Result<Acquired, Error> {
        let now = Instant::now();
        let mut state = self.lock();
        if self.is_retired() {
            return Err(shut_down());
        }
        if let Some(error) = self.recent_failure(&mut state, now) {
            return Err(error);
        }
        let is_new = place.number.is_none();
        let number = state.number(place);
        if state.waiting.is_empty() {
            if let Some(lease) = state.take(now) {
                return Ok(Acquired::Slot(lease));
            }
        }
        // A request that was sent before was let in already.
        if is_new && state.waiting.len() >= self.settings.max_waiting {
            let text = "too many requests wait for a connection (limit: ClientBuilder::max_waiting_requests)";
            return Err(Error::new(ErrorKind::Busy, text));
        }
        let Ok(runtime) = Runtime::try_current() else {
            let text = "send requests from within a tokio runtime";
            return Err(Error::new(ErrorKind::Config, text));
        };
        let previous = state.runtime.replace(runtime);
        let (answer, receiver) = oneshot::channel();
        let alone = state.waiting.is_empty();
        let until = match self.settings.stream_wait_timeout {
            Some(limit) => state.clock.join(&mut place.wait, alone, limit, now),
            None => Duration::MAX,
        };
        state.waiting.insert(number, Waiter { answer, until });
        state.update_growth(now);
        let effects = self.update(&mut state, now);
        drop(state);
        drop(previous);
        self.apply(effects);
        Ok(Acquired::Queued(QueuedRequest {
            pool: Arc::clone(self),
            number,
            receiver,
            answered: false,
        }))
    }

    /// Whether the peer allows all streams that have slots on the connection. Before its SETTINGS arrived, slots were presumed.
    pub(super) fn allows(&self, lease: &Lease) -> bool {
        let state = self.lock();
        let is_it = |member: &&Member| member.handle.is_same_connection(&lease.handle);
        let member = state.members.iter().find(is_it);
        member.is_none_or(|member| member.in_flight <= member.connection.max_streams())
    }

    /// Closes the connections gracefully, and fails the requests that wait.
    pub(super) fn retire(&self) {
        let mut state = self.lock();
        self.retired.store(true, Ordering::Release);
        let members = std::mem::take(&mut state.members);
        let waiting = std::mem::take(&mut state.waiting);
        self.update_queued(&state);
        drop(state);
        for member in members {
            member.handle.shutdown();
        }
        fail(waiting, &shut_down());
        self.retiring.cancel();
        for further in self.further.pools() {
            further.retire();
        }
    }

    /// Whether the client has dropped the pool, so that it takes no more requests.
    pub(super) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    /// Whether requests wait for a slot.
    pub(super) fn has_waiting(&self) -> bool {
        self.queued.load(Ordering::Relaxed)
    }

    fn update_queued(&self, state: &PoolState) {
        // Without a connection, requests do not wait for streams.
        let queued = !state.waiting.is_empty() && !state.members.is_empty();
        self.queued.store(queued, Ordering::Relaxed);
    }

    /// Whether the pool can be dropped without loss.
    pub(super) fn is_unused(&self) -> bool {
        let state = self.lock();
        state.members.is_empty() && state.waiting.is_empty() && state.opening == 0
    }

    /// The connections that take requests, those of downloads among them.
    pub(super) fn handles(&self) -> Vec<Handle> {
        let own = self
            .lock()
            .members
            .iter()
            .map(|member| member.handle.clone())
            .collect();
        let further = self.further.pools().into_iter().map(|pool| pool.handles());
        further.fold(own, |mut all: Vec<_>, handles| {
            all.extend(handles);
            all
        })
    }

    pub(super) fn stats(&self) -> OriginStats {
        let state = self.lock();
        let load = state.load();
        let mut stats = OriginStats {
            origin: self.origin.to_string(),
            connections: state.members.len(),
            opening: state.opening,
            in_flight: usize::try_from(load.in_flight).unwrap_or(usize::MAX),
            waiting: state.waiting.len(),
        };
        drop(state);
        for further in self.further.pools().iter().map(|pool| pool.stats()) {
            stats.connections += further.connections;
            stats.opening += further.opening;
            stats.in_flight += further.in_flight;
            stats.waiting += further.waiting;
        }
        stats
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        // No code that holds the lock panics, and the state is consistent between any two steps.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// After any change: assigns free slots to waiting requests, and decides which connections to open.
    fn update(self: &Arc<Self>, state: &mut PoolState, now: Instant) -> Effects {
        let assigned = state.assign_slots(now);
        let failed = self.failure_of_all(state, now);
        self.update_queued(state);
        let missing = match self.is_retired() {
            true => 0,
            false => state.missing(self.most, now),
        };
        let mut effects = Effects {
            assigned,
            failed,
            ..Effects::default()
        };
        if missing > 0 {
            if let Some(runtime) = &state.runtime {
                let known = state.known_streams;
                let no_other = state.members.is_empty() && state.opening == 0;
                let only = no_other || state.successors() > 0;
                let connection = |_| {
                    let state = match only {
                        true => ConnectionState::first(known),
                        false => ConnectionState::further(),
                    };
                    let pool = Arc::downgrade(self);
                    Arc::new(PooledConnection { pool, state })
                };
                effects.open = Some(((0..missing).map(connection).collect(), runtime.clone()));
                effects.presumed = self.presumed(&state.version);
                state.opening += missing;
            }
        }
        effects.check = self.next_check(state, now);
        effects.spreader = self.spreader_to_start(state);
        effects
    }

    /// Applies effects, without the lock.
    fn apply(self: &Arc<Self>, effects: Effects) {
        drop(effects.removed);
        if let Some((waiting, error)) = effects.failed {
            fail(waiting, &error);
        }
        if let Some((connections, runtime)) = effects.open {
            for connection in connections {
                let (settings, origin) = (Arc::clone(&self.settings), self.origin.clone());
                let observer = Arc::clone(&connection) as Arc<dyn Observer>;
                let pool = Arc::downgrade(self);
                let (presumed, is_second) = (effects.presumed, effects.is_second);
                let retiring = self.retiring.clone();
                // `Client::shutdown` waits for it too.
                let token = self.connections.token();
                attempt::spawn(
                    &runtime,
                    (settings, origin, presumed),
                    observer,
                    (retiring, token),
                    move |ended| match (pool.upgrade(), ended) {
                        (Some(pool), Ended::Connected(connected)) => pool.opened(connection, connected),
                        (Some(pool), Ended::Lost { begun }) => pool.lost(is_second && !begun),
                        (None, _) => {}
                    },
                );
            }
        }
        if let Some((at, runtime)) = effects.check {
            runtime.spawn(Check::new(self, at).run());
        }
        if let Some(runtime) = effects.cleanup {
            self.start_cleanup(&runtime);
        }
        if let Some(runtime) = effects.spreader {
            self.start_spreader(&runtime);
        }
        let mut assigned = VecDeque::from(effects.assigned);
        while let Some((waiter, lease)) = assigned.pop_front() {
            if let Err(Ok(lease)) = waiter.answer.send(Ok(lease)) {
                // The request was just canceled. Its slot goes to the next one here, because a recursion could become
                // deep.
                lease.slot.forget();
                let mut state = self.lock();
                state.return_slot(|member| member.handle.is_same_connection(&lease.handle));
                assigned.extend(state.assign_slots(Instant::now()));
                self.update_queued(&state);
            }
        }
    }
}

/// What connections report.
impl OriginPool {
    fn settings_received(self: &Arc<Self>, max_streams: u32) {
        let now = Instant::now();
        let mut state = self.lock();
        state.known_streams = Some(max_streams);
        state.learn(Version::Http2);
        // The number of slots has changed.
        state.growth.reset_queue();
        state.update_growth(now);
        let effects = self.update(&mut state, now);
        drop(state);
        self.apply(effects);
    }

    /// The first response on a connection. If it was opened since the last failure, the peer takes connections again.
    fn first_answered(&self, connection: &PooledConnection) {
        let mut state = self.lock();
        let begun = connection.begun();
        if state.pause.is_some_and(|(until, pause)| begun + pause >= until) {
            state.pause = None;
        }
    }

    fn slot_freed(self: &Arc<Self>, connection: &PooledConnection, exchange: Option<Duration>) {
        let mut state = self.lock();
        state.return_slot(|member| member.is(connection));
        if let Some(took) = exchange {
            state.growth.exchange_completed(took);
            state.spreading.exchange_completed();
        }
        let none_waits = state.waiting.is_empty();
        let most_idle = self.settings.max_idle_http1;
        if none_waits && !(connection.is_http1() && state.may_close_idle(most_idle)) {
            // The slot stays free until the next request. Nothing else has changed.
            return;
        }
        let now = Instant::now();
        let idle = match connection.is_http1() {
            true => state.take_idle(connection, most_idle, now),
            false => None,
        };
        if none_waits && idle.is_none() && !state.has_unanswered_http1() {
            return;
        }
        let mut effects = self.update(&mut state, now);
        effects.removed.extend(idle);
        drop(state);
        self.apply(effects);
    }

    /// The connection takes no more requests. Waiting requests need another one.
    fn closing(self: &Arc<Self>, connection: &PooledConnection) {
        let now = Instant::now();
        let mut state = self.lock();
        let removed = state.remove(connection);
        if removed.is_some() && !state.members.is_empty() && state.refusals.is_some() {
            // The peer may allow no further connection.
            state.pause_growth(now);
        }
        let mut effects = self.update(&mut state, now);
        effects.removed.extend(removed);
        drop(state);
        self.apply(effects);
    }

    /// The connection has ended. If the peer has not proved to speak its version, it counts as not opened.
    fn closed(self: &Arc<Self>, connection: &PooledConnection, error: &Error) {
        if connection.is_settled() {
            let unused = !connection.has_served() && !connection.is_http1();
            if unused && self.has_member(connection) {
                self.refused(error, connection, None);
            }
            return self.closing(connection);
        }
        let mut state = self.lock();
        let removed = state.remove(connection);
        // If it was not a member yet, `opened` will find it closed.
        let effects = match &removed {
            Some(member) => self.ended_unproven(&mut state, connection, Some(member), error),
            None => Effects::default(),
        };
        drop(state);
        drop(removed);
        self.apply(effects);
    }

    /// An attempt to connect has ended.
    fn opened(self: &Arc<Self>, connection: Arc<PooledConnection>, connected: Result<Opened, Error>) {
        let now = Instant::now();
        let mut state = self.lock();
        state.opening = state.opening.saturating_sub(1);
        let effects = match connected {
            Ok(Opened { handle, .. }) if self.is_retired() => {
                drop(state);
                connection.track(self.connections.token());
                return handle.shutdown();
            }
            // It was opened before the peer said so.
            Ok(Opened { handle, .. }) if state.requires_http1() && !handle.is_http1() => {
                let mut effects = self.update(&mut state, now);
                effects.removed.push(Member::new(connection, handle));
                effects
            }
            Ok(Opened { handle, agreed }) => {
                self.version_opened(&mut state, &connection, handle.is_http1(), agreed);
                match handle.is_open() {
                    // A closing connection sets this mark before it reports: either the mark is seen here, or the
                    // report finds the member.
                    false => {
                        let mut effects =
                            self.ended_unproven(&mut state, &connection, None, &connection.error());
                        effects.removed.push(Member::new(connection, handle));
                        effects
                    }
                    true => {
                        connection.track(self.connections.token());
                        self.join(&mut state, Member::new(connection, handle));
                        state.growth.reset_queue();
                        state.update_growth(now);
                        let mut effects = self.update(&mut state, now);
                        effects.cleanup = state.cleanup_to_start();
                        effects
                    }
                }
            }
            Err(error) => self.not_opened(&mut state, &error),
        };
        drop(state);
        self.apply(effects);
    }

    /// The runtime of an attempt has shut down. That of the request that waited last takes its place, unless that is `known`
    /// to have shut down too.
    fn lost(self: &Arc<Self>, known: bool) {
        let mut state = self.lock();
        state.opening = state.opening.saturating_sub(1);
        let effects = match known {
            true => self.not_opened(&mut state, &runtime_shut_down()),
            false => Effects {
                is_second: true,
                ..self.update(&mut state, Instant::now())
            },
        };
        drop(state);
        self.apply(effects);
    }

    /// A connection could not be opened. If it was the only one, all waiting requests fail. Otherwise growth pauses.
    fn not_opened(self: &Arc<Self>, state: &mut PoolState, error: &Error) -> Effects {
        if state.members.is_empty() && state.opening == 0 {
            state.pause = None;
            return self.fail_waiting(state, error);
        }
        let now = Instant::now();
        state.pause_growth(now);
        self.update(state, now)
    }

    /// Fails all waiting requests.
    fn fail_waiting(&self, state: &mut PoolState, error: &Error) -> Effects {
        state.growth.reset_queue();
        let waiting = std::mem::take(&mut state.waiting);
        state.clock.set_running(false, Instant::now());
        self.update_queued(state);
        Effects {
            failed: Some((waiting, error.clone())),
            ..Effects::default()
        }
    }

    fn has_member(&self, connection: &PooledConnection) -> bool {
        self.lock().members.iter().any(|member| member.is(connection))
    }
}

impl PoolState {
    /// Takes a slot on the connection that has the most free ones, and of equals on the oldest, so that others become
    /// idle.
    fn take(&mut self, now: Instant) -> Option<Lease> {
        let open = self.in_flight();
        if self.refuses(open, now) {
            return None;
        }
        let carried = open + 1 + self.waiting.len() as u64;
        self.doubt_lifetime(now);
        let lifetime = self.lifetime;
        let (mut most, mut found) = (0, None);
        for member in &mut self.members {
            let free = member.free(lifetime);
            if free > most {
                // One of HTTP/1.1 has one at most.
                let is_http1 = member.handle.is_http1();
                (most, found) = (free, Some(member));
                if is_http1 {
                    break;
                }
            }
        }
        let member = found?;
        member.count_request(lifetime, now);
        self.growth.record_load(carried);
        if let Some(refusals) = &mut self.refusals {
            refusals.attempt_started(open, self.growth.exchange(), now);
        }
        Some(Lease {
            handle: member.handle.clone(),
            slot: Slot::new(Arc::clone(&member.connection) as Arc<dyn Observer>, now),
        })
    }

    /// Open streams on connections that take requests.
    fn in_flight(&self) -> u64 {
        self.members
            .iter()
            .map(|member| u64::from(member.in_flight))
            .sum()
    }

    /// Pauses growth: a connection could not be opened, or the peer has closed it.
    fn pause_growth(&mut self, now: Instant) {
        self.spreading.set_refused();
        let pause = match self.pause {
            // Attempts that began together failed together.
            Some((until, pause)) if now < until => pause,
            Some((_, pause)) => (pause * 2).min(LONGEST_PAUSE),
            None => FIRST_PAUSE,
        };
        self.pause = Some((now + pause, pause));
    }

    /// Returns a slot of a connection, if that still takes requests.
    fn return_slot(&mut self, is_it: impl Fn(&Member) -> bool) {
        if let Some(member) = self.members.iter_mut().find(|member| is_it(member)) {
            member.in_flight = member.in_flight.saturating_sub(1);
            member.served = member.connection.has_served();
        }
    }

    fn remove(&mut self, connection: &PooledConnection) -> Option<Member> {
        let index = self.members.iter().position(|member| member.is(connection))?;
        let removed = self.members.remove(index);
        if self.members.is_empty() {
            self.growth.reset_queue();
            self.growth.forget_path();
            self.spreading.forget_path();
        }
        Some(removed)
    }

    /// The number of a request in the queue.
    fn number(&mut self, place: &mut Place) -> u64 {
        *place.number.get_or_insert_with(|| {
            self.requests += 1;
            self.requests
        })
    }

    /// Assigns free slots to waiting requests.
    fn assign_slots(&mut self, now: Instant) -> Vec<(Waiter, Lease)> {
        let mut assigned = Vec::new();
        while !self.waiting.is_empty() {
            let Some(lease) = self.take(now) else {
                return assigned;
            };
            if let Some((_, waiter)) = self.waiting.pop_first() {
                assigned.push((waiter, lease));
            }
        }
        self.growth.queue_emptied(now);
        self.clock.set_running(false, now);
        assigned
    }

    /// Whether requests wait and the peer allows no stream: on any connection or, without one, in its last SETTINGS.
    fn is_denied(&self) -> bool {
        let allows_none = match self.members.is_empty() {
            true => self.known_streams == Some(0),
            false => self
                .members
                .iter()
                .all(|member| member.connection.max_streams() == 0),
        };
        allows_none && !self.waiting.is_empty() && self.opening == 0 && self.in_flight() == 0
    }

    /// Takes expired requests out of the queue.
    fn take_overdue(&mut self, limit: Duration, now: Instant) -> BTreeMap<u64, Waiter> {
        let clock = &self.clock;
        let (overdue, waiting): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|(_, waiter)| clock.is_over(waiter.until, limit, now));
        let first = waiting.values().map(|waiter| waiter.until).min();
        self.clock.scanned(first.unwrap_or_default(), limit, now);
        self.waiting = waiting;
        overdue
    }

    /// Tells `growth` that requests wait although there are connections.
    fn update_growth(&mut self, now: Instant) {
        if !self.waiting.is_empty() && !self.members.is_empty() {
            self.growth.queue_filled(now);
        }
    }
}

/// The result of a request for a slot.
enum Acquired {
    Slot(Lease),
    Queued(QueuedRequest),
}

fn fail(waiting: BTreeMap<u64, Waiter>, error: &Error) {
    for waiter in waiting.into_values() {
        // A canceled request needs no answer.
        let _ = waiter.answer.send(Err(error.clone()));
    }
}

fn shut_down() -> Error {
    Error::new(
        ErrorKind::Canceled,
        "the client was shut down before the request was sent",
    )
}

#[cfg(test)]
mod tests;

fn runtime_shut_down() -> Error {
    Error::new(ErrorKind::Connect, "the runtime shut down")
}
