//! The connections to one origin and the requests that wait for a stream on any of them.
//!
//! A request belongs to no connection until it has a slot: it waits in one queue, and goes where a slot is free first.
//! All of it stands under one short lock, taken once for a request and once for its end. Nothing is sent, woken, opened
//! or dropped under it that might come back here: what is to be done is collected as [`Work`] and done behind it.

mod refusing;

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::OriginStats;
use super::builder::Settings;
use super::demand::{Demand, Load};
use super::denial::{Denial, Wait};
use super::lane::Lane;
use super::opening;
use super::refusal::Refusals;
use crate::client::connect::Origin;
use crate::client::connection::SendRequest;
use crate::error::{Error, ErrorKind};
use crate::observer::{Observer, Slot};

/// How long no further connection is tried after one could not be opened, at first and at most: twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The right to open one stream on one connection.
pub(super) struct Lease {
    pub(super) sender: SendRequest,
    pub(super) slot: Slot,
}

/// The pool of one origin.
pub(super) struct OriginPool {
    origin: Origin<'static>,
    settings: Arc<Settings>,
    /// All connections of the client that have not ended.
    connections: TaskTracker,
    state: Mutex<State>,
    /// Whether the client has let go of it: set under the lock.
    retired: AtomicBool,
    /// Whether requests wait for the number of streams, for drivers to look at without the lock.
    queued: AtomicBool,
    /// Whether the peer has refused requests since it last answered one, or allowed no stream, for answers to look at
    /// without the lock.
    refuses: AtomicBool,
}

#[derive(Default)]
struct State {
    /// Connections that take requests. Those that end are not here, though their streams may go on.
    members: Vec<Member>,
    /// How many are being opened.
    opening: usize,
    /// Requests without a slot, in order. None waits while a slot is free.
    waiting: BTreeMap<i64, Waiter>,
    /// Where the next request goes, and where one goes that has waited before.
    back: i64,
    front: i64,
    demand: Demand,
    /// After a failure: until when no further connection is tried, and how long that was.
    pause: Option<(Instant, Duration)>,
    /// What the peer has refused since it last answered a request.
    refusals: Option<Refusals>,
    /// How long requests have waited although nothing is under way: the peer allows no stream.
    denial: Denial,
    /// When the queue is looked at without anything having happened.
    look_at: Option<Instant>,
    /// How many streams the peer allowed when it last said.
    known_streams: Option<u32>,
    /// Where connections run: the runtime of the request that waited last.
    runtime: Option<Handle>,
    /// Whether somebody looks after connections that are not needed any more.
    tended: bool,
}

struct Member {
    lane: Arc<Lane>,
    sender: SendRequest,
    in_flight: u32,
}

struct Waiter {
    answer: oneshot::Sender<Result<Lease, Error>>,
    /// When its time is over at a peer that allows no stream, on the clock of [`Denial`].
    until: Duration,
}

/// What a change under the lock has led to.
#[derive(Default)]
struct Work {
    granted: Vec<(Waiter, Lease)>,
    failed: Option<(BTreeMap<i64, Waiter>, Error)>,
    /// Connections to open, and where.
    open: Option<(Vec<Arc<Lane>>, Handle)>,
    /// When to look at the queue again, and where.
    look: Option<(Instant, Handle)>,
    /// To be let go of.
    removed: Vec<Member>,
}

impl OriginPool {
    pub(super) fn new(
        origin: Origin<'static>,
        settings: Arc<Settings>,
        connections: TaskTracker,
    ) -> Arc<Self> {
        Arc::new(OriginPool {
            origin,
            settings,
            connections,
            state: Mutex::default(),
            retired: AtomicBool::new(false),
            queued: AtomicBool::new(false),
            refuses: AtomicBool::new(false),
        })
    }

    /// A slot on the connection that has the most of them, at once or when one is free; `again` puts a request ahead
    /// that has had one before, and `wait` is how long it has waited. Dropping the future leaves the queue.
    ///
    /// # Errors
    /// Why no connection can be had.
    pub(super) async fn lease(self: &Arc<Self>, mut again: bool, wait: &mut Wait) -> Result<Lease, Error> {
        loop {
            let lease = match self.take_or_wait(again, wait)? {
                Place::Slot(lease) => lease,
                Place::Queue(waiting) => waiting.await?,
            };
            if lease.sender.is_open() {
                return Ok(lease);
            }
            // The connection went on its way out while this request was woken.
            if let Some(error) = lease.sender.failure() {
                return Err(error);
            }
            again = true;
        }
    }

    fn take_or_wait(self: &Arc<Self>, again: bool, wait: &mut Wait) -> Result<Place, Error> {
        let now = Instant::now();
        let mut state = self.lock();
        if self.is_retired() {
            return Err(shut_down());
        }
        if let Some(error) = self.recent_failure(&mut state, now) {
            return Err(error);
        }
        if state.waiting.is_empty() {
            if let Some(lease) = state.take(now) {
                return Ok(Place::Slot(lease));
            }
        }
        let Ok(runtime) = Handle::try_current() else {
            let text = "send requests from within a tokio runtime";
            return Err(Error::new(ErrorKind::Config, text));
        };
        let previous = state.runtime.replace(runtime);
        let number = state.number(again);
        let (answer, receiver) = oneshot::channel();
        let alone = state.waiting.is_empty();
        let until = match self.settings.stream_wait_timeout {
            Some(limit) => state.denial.join(wait, alone, limit, now),
            None => Duration::MAX,
        };
        state.waiting.insert(number, Waiter { answer, until });
        state.note_waiting(now);
        let work = self.settle(&mut state, now);
        drop(state);
        drop(previous);
        self.carry_out(work);
        Ok(Place::Queue(Waiting {
            pool: Arc::clone(self),
            number,
            receiver,
            answered: false,
        }))
    }

    /// What is under way goes on; what waits is told.
    pub(super) fn retire(&self) {
        let mut state = self.lock();
        self.retired.store(true, Ordering::Release);
        let members = std::mem::take(&mut state.members);
        let waiting = std::mem::take(&mut state.waiting);
        self.note_queue(&state);
        drop(state);
        for member in members {
            member.sender.shutdown();
        }
        fail(waiting, &shut_down());
    }

    /// Whether the client has let go of it, so that it takes no more requests.
    pub(super) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    /// Whether requests wait for a slot.
    pub(super) fn has_waiting(&self) -> bool {
        self.queued.load(Ordering::Relaxed)
    }

    fn note_queue(&self, state: &State) {
        // Without a connection it is not the number of streams that they wait for.
        let queued = !state.waiting.is_empty() && !state.members.is_empty();
        self.queued.store(queued, Ordering::Relaxed);
    }

    /// Whether nothing would be lost with it.
    pub(super) fn is_unused(&self) -> bool {
        let state = self.lock();
        state.members.is_empty() && state.waiting.is_empty() && state.opening == 0
    }

    /// The connections that take requests.
    pub(super) fn senders(&self) -> Vec<SendRequest> {
        let state = self.lock();
        state.members.iter().map(|member| member.sender.clone()).collect()
    }

    pub(super) fn stats(&self) -> OriginStats {
        let state = self.lock();
        let load = state.load();
        OriginStats {
            origin: self.origin.to_string(),
            connections: state.members.len(),
            opening: state.opening,
            in_flight: usize::try_from(load.in_flight).unwrap_or(usize::MAX),
            waiting: state.waiting.len(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that holds the lock panics, and the state is sound between any two steps.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// After any change: slots that are free go to who waits, and connections that are missing are opened.
    fn settle(self: &Arc<Self>, state: &mut State, now: Instant) -> Work {
        let granted = state.grants(now);
        let failed = self.failure_of_all(state, now);
        self.note_queue(state);
        let missing = match self.is_retired() {
            true => 0,
            false => state.missing(self.settings.max_connections, now),
        };
        let mut work = Work {
            granted,
            failed,
            ..Work::default()
        };
        if missing > 0 {
            if let Some(runtime) = &state.runtime {
                let known = state.known_streams;
                let only = state.members.is_empty() && state.opening == 0;
                let lane = |_| match only {
                    true => Lane::first(Arc::downgrade(self), known),
                    false => Lane::further(Arc::downgrade(self)),
                };
                work.open = Some(((0..missing).map(lane).collect(), runtime.clone()));
                state.opening += missing;
            }
        }
        work.look = self.next_look(state, now);
        work
    }

    /// Does outside of the lock what was found to be done.
    fn carry_out(self: &Arc<Self>, work: Work) {
        drop(work.removed);
        if let Some((waiting, error)) = work.failed {
            fail(waiting, &error);
        }
        if let Some((lanes, runtime)) = work.open {
            for lane in lanes {
                let settings = Arc::clone(&self.settings);
                opening::spawn(
                    &runtime,
                    Arc::downgrade(self),
                    lane,
                    settings,
                    self.origin.clone(),
                );
            }
        }
        if let Some((at, runtime)) = work.look {
            let pool = Arc::downgrade(self);
            runtime.spawn(async move {
                tokio::time::sleep_until(at).await;
                if let Some(pool) = pool.upgrade() {
                    pool.look(at);
                }
            });
        }
        let mut granted = VecDeque::from(work.granted);
        while let Some((waiter, lease)) = granted.pop_front() {
            if let Err(Ok(lease)) = waiter.answer.send(Ok(lease)) {
                // It has just given up: the next one, without a detour that could become a long one.
                lease.slot.forget();
                let mut state = self.lock();
                state.give_back(|member| member.sender.is_of(&lease.sender));
                granted.extend(state.grants(Instant::now()));
                self.note_queue(&state);
            }
        }
    }
}

/// What lanes report.
impl OriginPool {
    pub(super) fn settings_received(self: &Arc<Self>, max_streams: u32) {
        let now = Instant::now();
        let mut state = self.lock();
        state.known_streams = Some(max_streams);
        state.pause = None;
        // There are other slots now: how they fare is still to be seen.
        state.demand.start_over();
        state.note_waiting(now);
        let work = self.settle(&mut state, now);
        drop(state);
        self.carry_out(work);
    }

    pub(super) fn slot_freed(self: &Arc<Self>, lane: &Lane, exchange: Option<Duration>) {
        let mut state = self.lock();
        state.give_back(|member| member.is(lane));
        if let Some(took) = exchange {
            state.demand.exchanged(took);
        }
        if state.waiting.is_empty() {
            // It stays free until somebody comes: nothing else has changed.
            return;
        }
        let now = Instant::now();
        let work = self.settle(&mut state, now);
        drop(state);
        self.carry_out(work);
    }

    /// The connection takes no more requests; those that wait need another.
    pub(super) fn closing(self: &Arc<Self>, lane: &Lane) {
        let now = Instant::now();
        let mut state = self.lock();
        let removed = state.remove(lane);
        if removed.is_some() && !state.members.is_empty() && state.refusals.is_some() {
            // The peer may allow no further connection.
            state.pause_further(now);
        }
        let mut work = self.settle(&mut state, now);
        work.removed.extend(removed);
        drop(state);
        self.carry_out(work);
    }

    /// The connection is over. If the peer never said anything in HTTP/2 it was not opened in the first place.
    pub(super) fn closed(self: &Arc<Self>, lane: &Lane, error: &Error) {
        if lane.is_settled() {
            if !lane.has_served() && self.has_member(lane) {
                self.refused(error, lane.begun());
            }
            return self.closing(lane);
        }
        let mut state = self.lock();
        let removed = state.remove(lane);
        // Before it was a member, whoever opens it will find it closed.
        let work = match removed.is_some() {
            true => self.not_opened(&mut state, error),
            false => Work::default(),
        };
        drop(state);
        drop(removed);
        self.carry_out(work);
    }

    /// An attempt to open a connection has come to its end.
    pub(super) fn opened(self: &Arc<Self>, lane: Arc<Lane>, connected: Result<SendRequest, Error>) {
        let now = Instant::now();
        let mut state = self.lock();
        state.opening = state.opening.saturating_sub(1);
        let work = match connected {
            Ok(sender) if self.is_retired() => {
                drop(state);
                return sender.shutdown();
            }
            // A connection that ends tells its lane after this mark is set: it is seen here, or the lane is found.
            Ok(sender) if !sender.is_open() => {
                let mut work = self.not_opened(&mut state, &lane.error());
                work.removed.push(Member::new(lane, sender));
                work
            }
            Ok(sender) => {
                lane.track(self.connections.token());
                state.members.push(Member::new(lane, sender));
                state.demand.start_over();
                state.note_waiting(now);
                self.tend(&mut state);
                self.settle(&mut state, now)
            }
            Err(error) => self.not_opened(&mut state, &error),
        };
        drop(state);
        self.carry_out(work);
    }

    /// A connection could not be opened: that of a lone one ends all waiting, a further one is not tried for a while.
    fn not_opened(self: &Arc<Self>, state: &mut State, error: &Error) -> Work {
        let now = Instant::now();
        if state.members.is_empty() && state.opening == 0 {
            state.pause = None;
            state.demand.start_over();
            let waiting = std::mem::take(&mut state.waiting);
            state.denial.note(false, now);
            self.note_queue(state);
            return Work {
                failed: Some((waiting, error.clone())),
                ..Work::default()
            };
        }
        state.pause_further(now);
        self.settle(state, now)
    }

    fn has_member(&self, lane: &Lane) -> bool {
        self.lock().members.iter().any(|member| member.is(lane))
    }
}

/// Connections that are not needed any more.
impl OriginPool {
    /// Sees to it that somebody looks after them while there is more than one.
    fn tend(self: &Arc<Self>, state: &mut State) {
        let Some(runtime) = state.runtime.as_ref().filter(|_| state.members.len() > 1) else {
            return;
        };
        if !std::mem::replace(&mut state.tended, true) {
            let tending = Tending {
                pool: Arc::downgrade(self),
                done: false,
            };
            runtime.spawn(tending.run(self.settings.idle_timeout));
        }
    }

    /// Closes those that the busiest moment since the last time would not have needed; whether one is left alone.
    fn close_unneeded(&self) -> bool {
        let mut state = self.lock();
        let removed = state.unneeded();
        let alone = state.members.len() <= 1;
        if alone {
            state.tended = false;
        }
        drop(state);
        // Without its opener a connection ends as soon as its streams have.
        drop(removed);
        alone
    }
}

struct Tending {
    pool: Weak<OriginPool>,
    done: bool,
}

impl Tending {
    async fn run(mut self, every: Duration) {
        loop {
            // A period of no length would never let anybody else run.
            tokio::time::sleep(every.max(Duration::from_millis(1))).await;
            self.done = match self.pool.upgrade() {
                Some(pool) => pool.close_unneeded(),
                None => true,
            };
            if self.done {
                return;
            }
        }
    }
}

impl Drop for Tending {
    fn drop(&mut self) {
        // Lost with its runtime: the next connection brings another.
        if let Some(pool) = self.pool.upgrade().filter(|_| !self.done) {
            pool.lock().tended = false;
        }
    }
}

impl Member {
    fn new(lane: Arc<Lane>, sender: SendRequest) -> Self {
        Member {
            lane,
            sender,
            in_flight: 0,
        }
    }

    fn is(&self, lane: &Lane) -> bool {
        std::ptr::eq(Arc::as_ptr(&self.lane), lane)
    }

    fn free(&self) -> u32 {
        match self.sender.is_open() {
            true => self.lane.max_streams().saturating_sub(self.in_flight),
            false => 0,
        }
    }
}

impl State {
    /// A slot on the connection that has the most; the oldest of equals, so that the others may fall idle.
    fn take(&mut self, now: Instant) -> Option<Lease> {
        if self
            .refusals
            .as_ref()
            .is_some_and(|refusals| !refusals.lets_try(now))
        {
            return None;
        }
        let carried = self.in_flight() + 1 + self.waiting.len() as u64;
        let member = self.members.iter_mut().rev().max_by_key(|member| member.free())?;
        if member.free() == 0 {
            return None;
        }
        member.in_flight += 1;
        self.demand.seen(carried);
        if let Some(refusals) = &mut self.refusals {
            refusals.tries(now);
        }
        Some(Lease {
            sender: member.sender.clone(),
            slot: Slot::new(Arc::clone(&member.lane) as Arc<dyn Observer>, now),
        })
    }

    /// Streams under way on connections that take requests.
    fn in_flight(&self) -> u64 {
        self.members
            .iter()
            .map(|member| u64::from(member.in_flight))
            .sum()
    }

    /// Has further connections wait: one could not be opened, or the peer has ended it.
    fn pause_further(&mut self, now: Instant) {
        let pause = match self.pause {
            // Those that were begun together failed together.
            Some((until, pause)) if now < until => pause,
            Some((_, pause)) => (pause * 2).min(LONGEST_PAUSE),
            None => FIRST_PAUSE,
        };
        self.pause = Some((now + pause, pause));
    }

    /// A slot on a connection, if it is still among those that take requests.
    fn give_back(&mut self, is_it: impl Fn(&Member) -> bool) {
        if let Some(member) = self.members.iter_mut().find(|member| is_it(member)) {
            member.in_flight = member.in_flight.saturating_sub(1);
        }
    }

    fn remove(&mut self, lane: &Lane) -> Option<Member> {
        let index = self.members.iter().position(|member| member.is(lane))?;
        let removed = self.members.remove(index);
        if self.members.is_empty() {
            self.demand.start_over();
            self.demand.forget_path();
        }
        Some(removed)
    }

    /// The place in the queue.
    fn number(&mut self, again: bool) -> i64 {
        match again {
            true => {
                self.front -= 1;
                self.front
            }
            false => {
                self.back += 1;
                self.back
            }
        }
    }

    /// Slots for those that wait, as far as there are any.
    fn grants(&mut self, now: Instant) -> Vec<(Waiter, Lease)> {
        let mut granted = Vec::new();
        while !self.waiting.is_empty() {
            let Some(lease) = self.take(now) else {
                return granted;
            };
            if let Some((_, waiter)) = self.waiting.pop_first() {
                granted.push((waiter, lease));
            }
        }
        self.demand.emptied(now);
        self.denial.note(false, now);
        granted
    }

    /// Whether requests wait and the peer allows no stream, on any connection or, without one, when it last said.
    fn is_denied(&self) -> bool {
        let allows_none = match self.members.is_empty() {
            true => self.known_streams == Some(0),
            false => self.members.iter().all(|member| member.lane.max_streams() == 0),
        };
        allows_none && !self.waiting.is_empty() && self.opening == 0 && self.in_flight() == 0
    }

    /// Takes those out of the queue whose time is over at a peer that allows no stream.
    fn take_overdue(&mut self, limit: Duration, now: Instant) -> BTreeMap<i64, Waiter> {
        let denial = &self.denial;
        let (overdue, waiting): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|(_, waiter)| denial.is_over(waiter.until, limit, now));
        let first = waiting.values().map(|waiter| waiter.until).min();
        self.denial.looked(first.unwrap_or_default(), limit, now);
        self.waiting = waiting;
        overdue
    }

    /// Requests wait although there are connections.
    fn note_waiting(&mut self, now: Instant) {
        if !self.waiting.is_empty() && !self.members.is_empty() {
            self.demand.waits(now);
        }
    }

    /// How many connections are to be opened now.
    fn missing(&self, most: usize, now: Instant) -> usize {
        if self.waiting.is_empty() {
            return 0;
        }
        let wanted = match self.pause {
            _ if self
                .refusals
                .as_ref()
                .is_some_and(|refusals| !refusals.lets_try(now)) =>
            {
                0
            }
            _ if self.members.is_empty() || self.refusals.is_some() => 1,
            Some((until, _)) if now < until => 0,
            _ => self.demand.justified(&self.load(), now),
        };
        wanted.min(most).saturating_sub(self.members.len() + self.opening)
    }

    /// Of the connections that the peer has opened to requests.
    fn load(&self) -> Load {
        let mut load = Load {
            waiting: self.waiting.len() as u64,
            ..Load::default()
        };
        for member in &self.members {
            let streams = member.lane.max_streams();
            load.connections += usize::from(streams > 0);
            load.streams += u64::from(streams);
            load.in_flight += u64::from(member.in_flight);
            load.probes = load.probes.max(member.lane.probes());
            load.round_trip = match (load.round_trip, member.lane.round_trip()) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
        }
        load
    }

    /// Takes out the youngest connections whose streams the busiest moment since the last time could have done without.
    fn unneeded(&mut self) -> Vec<Member> {
        let load = self.load();
        let peak = self.demand.take_peak(load.in_flight + load.waiting);
        let mut streams = 0;
        let mut needed = 0;
        for member in &self.members {
            needed += 1;
            streams += u64::from(member.lane.max_streams());
            if streams >= peak {
                break;
            }
        }
        self.members.split_off(needed)
    }
}

/// Where a request finds itself.
enum Place {
    Slot(Lease),
    Queue(Waiting),
}

/// A place in the queue.
struct Waiting {
    pool: Arc<OriginPool>,
    number: i64,
    receiver: oneshot::Receiver<Result<Lease, Error>>,
    answered: bool,
}

impl Future for Waiting {
    type Output = Result<Lease, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = ready!(Pin::new(&mut self.receiver).poll(cx));
        self.answered = true;
        Poll::Ready(answer.unwrap_or_else(|_| Err(shut_down())))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let mut state = self.pool.lock();
        let waiter = state.waiting.remove(&self.number);
        if state.waiting.is_empty() {
            let now = Instant::now();
            state.demand.emptied(now);
            state.denial.note(false, now);
        }
        self.pool.note_queue(&state);
        drop(state);
        // A slot that came meanwhile is dropped with the receiver, and goes to the next.
        drop(waiter);
    }
}

fn fail(waiting: BTreeMap<i64, Waiter>, error: &Error) {
    for waiter in waiting.into_values() {
        // Whoever has given up needs no answer.
        let _ = waiter.answer.send(Err(error.clone()));
    }
}

fn shut_down() -> Error {
    Error::new(
        ErrorKind::Canceled,
        "the client was shut down before the request was sent",
    )
}
