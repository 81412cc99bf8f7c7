//! Connections that are not needed: those beyond the peak of some time, HTTP/1.1 connections beyond the number that may be
//! idle, and those that keep a server from others.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle as Runtime;
use tokio::time::Instant;

use super::member::Member;
use super::{OriginPool, PoolState, PooledConnection};
use crate::client::handle::Handle;

/// How long a connection of HTTP/1.1 may wait for its first answer before idle ones are closed. A server that serves one
/// connection after the other does not begin with it before.
const HINDERED: Duration = Duration::from_millis(250);

/// The same while requests are queued: the connection that has just answered is closed rather than used again.
const STARVED: Duration = Duration::from_secs(2);

impl OriginPool {
    /// Starts the task that closes them. Called without the lock: a runtime that has shut down drops the task at once.
    pub(super) fn start_cleanup(self: &Arc<Self>, runtime: &Runtime) {
        let cleanup = Cleanup {
            pool: Arc::downgrade(self),
            done: false,
        };
        runtime.spawn(cleanup.run(self.settings.idle_timeout));
    }

    /// Closes connections that the peak since the last call did not need. Returns whether only one is left.
    fn close_surplus(&self) -> bool {
        let mut state = self.lock();
        let removed = state.take_surplus();
        let alone = state.members.len() <= 1;
        if alone {
            state.cleanup_running = false;
        }
        drop(state);
        // Without its opener, a connection ends as soon as its streams do.
        drop(removed);
        alone
    }
}

struct Cleanup {
    pool: Weak<OriginPool>,
    done: bool,
}

impl Cleanup {
    async fn run(mut self, every: Duration) {
        loop {
            // A period of zero would block the runtime.
            tokio::time::sleep(every.max(Duration::from_millis(1))).await;
            self.done = match self.pool.upgrade() {
                Some(pool) => pool.close_surplus(),
                None => true,
            };
            if self.done {
                return;
            }
        }
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        // Lost with its runtime: the next connection starts another.
        if let Some(pool) = self.pool.upgrade().filter(|_| !self.done) {
            pool.lock().cleanup_running = false;
        }
    }
}

impl Member {
    fn is_idle_http1(&self) -> bool {
        self.in_flight == 0 && self.handle.is_http1()
    }

    /// It has a request, and no answer yet.
    fn is_unanswered_http1(&self) -> bool {
        !self.served && self.taken > 0 && self.handle.is_http1() && !self.connection.has_served()
    }
}

/// Servers that take few connections.
impl OriginPool {
    /// The server has turned away the first request on a connection. If there are others, it takes no more than
    /// these: this one gets no further request, and no other one is opened for some time. Returns whether that is so.
    pub(super) fn turned_away(self: &Arc<Self>, connection: &PooledConnection) -> bool {
        let now = Instant::now();
        let mut state = self.lock();
        if state.members.len() + state.opening <= 1 {
            return false;
        }
        state.pause_growth(now);
        let removed = state.remove(connection);
        let mut effects = self.update(&mut state, now);
        effects.removed.extend(removed);
        drop(state);
        self.apply(effects);
        true
    }

    /// A response of HTTP/2 says that the server takes no more. On a further connection that has served nothing, that is
    /// because it takes no further connection: others carry the request. Returns whether that is so.
    pub(in crate::client::pool) fn turns_away(self: &Arc<Self>, handle: &Handle) -> bool {
        if !self.settings.spreads_requests || handle.is_turned_away() {
            return handle.is_turned_away();
        }
        let state = self.lock();
        let is_it = |member: &&Member| member.handle.is_same_connection(handle);
        let others_serve = state
            .members
            .iter()
            .any(|member| !is_it(&member) && member.connection.has_served());
        let connection = state.members.iter().find(is_it);
        let connection = connection.map(|member| Arc::clone(&member.connection));
        drop(state);
        let unserved = connection.filter(|connection| others_serve && !connection.has_served());
        let Some(connection) = unserved.filter(|connection| self.turned_away(connection)) else {
            return handle.is_turned_away();
        };
        connection.set_turned_away();
        true
    }

    /// Whether there are other connections than one that has ended.
    pub(in crate::client::pool) fn has_others(&self) -> bool {
        let state = self.lock();
        !state.members.is_empty() || state.opening > 0
    }
}

impl PoolState {
    /// Where to start the task that closes them, if there is more than one connection and it does not run.
    pub(super) fn cleanup_to_start(&mut self) -> Option<Runtime> {
        let runtime = self.runtime.clone().filter(|_| self.members.len() > 1)?;
        let runs = std::mem::replace(&mut self.cleanup_running, true);
        (!runs).then_some(runtime)
    }

    /// Takes out the youngest connections whose streams the peak since the last call did not need.
    fn take_surplus(&mut self) -> Vec<Member> {
        let load = self.load();
        let peak = self.growth.take_peak(load.in_flight + load.waiting);
        let mut streams = 0;
        let mut needed = 0;
        for member in &self.members {
            needed += 1;
            streams += u64::from(member.room());
            if streams >= peak {
                break;
            }
        }
        self.members.split_off(needed)
    }

    /// Takes out an HTTP/1.1 connection that has become idle, if there are more than `most`, or if another one has waited so
    /// long for its first answer that the server may serve one connection after the other.
    pub(super) fn take_idle(
        &mut self,
        connection: &PooledConnection,
        most: usize,
        now: Instant,
    ) -> Option<Member> {
        let none_waits = self.waiting.is_empty();
        if none_waits && !self.may_close_idle(most) {
            return None;
        }
        let starves = self.waits_since(now).is_some_and(|waited| waited >= STARVED);
        let idle = self
            .members
            .iter()
            .filter(|member| member.is_idle_http1())
            .count();
        match starves || (none_waits && idle > most) {
            true => self.remove(connection),
            false => None,
        }
    }

    /// Whether an HTTP/1.1 connection that has become idle may have to close, although no request waits.
    pub(super) fn may_close_idle(&self, most: usize) -> bool {
        self.members.len() > most || self.has_unanswered_http1()
    }

    /// When idle HTTP/1.1 connections are closed, because another one waits for its first answer.
    pub(super) fn idle_check(&self, now: Instant) -> Option<Instant> {
        let has_idle = self.members.iter().any(Member::is_idle_http1);
        let waited = self.waits_since(now).filter(|_| has_idle)?;
        Some(now + HINDERED.saturating_sub(waited).max(Duration::from_millis(1)))
    }

    /// Takes out the idle HTTP/1.1 connections, if another one has waited for its first answer.
    pub(super) fn take_obstacles(&mut self, now: Instant) -> Vec<Member> {
        match self.waits_since(now).is_some_and(|waited| waited >= HINDERED) {
            true => self.take_all_idle(),
            false => Vec::new(),
        }
    }

    /// Whether an HTTP/1.1 connection waits for its first answer.
    pub(super) fn has_unanswered_http1(&self) -> bool {
        self.members.iter().any(Member::is_unanswered_http1)
    }

    /// For how long an HTTP/1.1 connection has waited for its first answer.
    fn waits_since(&self, now: Instant) -> Option<Duration> {
        let members = self.members.iter().filter(|member| member.is_unanswered_http1());
        let first = members.filter_map(|member| member.first_at).min()?;
        Some(now.duration_since(first))
    }

    /// Takes out all HTTP/1.1 connections that are idle.
    pub(super) fn take_all_idle(&mut self) -> Vec<Member> {
        let members = std::mem::take(&mut self.members).into_iter();
        let (idle, busy) = members.partition(Member::is_idle_http1);
        self.members = busy;
        idle
    }
}
