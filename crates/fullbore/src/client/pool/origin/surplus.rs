//! Connections that are not needed: those beyond the peak of some time, and HTTP/1.1 connections beyond the number that may
//! be idle.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle as Runtime;

use super::{Member, OriginPool, PoolState, PooledConnection};

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
            streams += u64::from(member.connection.max_streams());
            if streams >= peak {
                break;
            }
        }
        self.members.split_off(needed)
    }

    /// Takes out an HTTP/1.1 connection that has become idle, if there are more than `most`.
    pub(super) fn take_idle(&mut self, connection: &PooledConnection, most: usize) -> Option<Member> {
        let is_idle = |member: &&Member| member.in_flight == 0 && member.connection.is_http1();
        match self.members.iter().filter(is_idle).count() > most {
            true => self.remove(connection),
            false => None,
        }
    }

    /// Takes out all HTTP/1.1 connections that are idle.
    pub(super) fn take_all_idle(&mut self) -> Vec<Member> {
        let is_idle = |member: &Member| member.in_flight == 0 && member.connection.is_http1();
        let (idle, busy) = std::mem::take(&mut self.members).into_iter().partition(is_idle);
        self.members = busy;
        idle
    }
}
