//! Requests over several connections where TCP holds one back: a task asks the connections while requests wait, and does what
//! `planner` says. See [`ClientBuilder::spread_requests`](crate::ClientBuilder::spread_requests).

use std::sync::{Arc, Weak};
use std::time::Duration;

use fullbore_proto::Stall;
use tokio::runtime::Handle as Runtime;
use tokio::time::Instant;

use super::member::Member;
use super::{OriginPool, PoolState};
use crate::client::connection::SendRequest;
use crate::client::handle::Handle;
use crate::client::pool::planner::{FIRST_REQUESTS, FURTHER_REQUESTS, Plan, Planner, Reading, Requests};

/// How often the connections are asked, and how often until they have carried enough to know the path, for so long.
const TICK: Duration = Duration::from_millis(25);
const FIRST_TICK: Duration = Duration::from_millis(5);
const FIRST_TICKS: u32 = 400;

/// After so many times without a request that waits, nobody asks any more.
const QUIET_TICKS: u32 = 40;

/// What the pool knows of it.
#[derive(Default)]
pub(super) struct Spreading {
    /// Whether the task runs.
    runs: bool,
    /// Whether requests need not be held back on this path.
    is_lifted: bool,
    /// Whether a further connection could not be had.
    refused: bool,
    /// How many connections there are to be now.
    wanted: usize,
    /// How many requests a further connection has at first.
    further: Option<u32>,
    members: u64,
    completed: u64,
}

impl Spreading {
    /// The next connection takes another path, perhaps.
    pub(super) fn forget_path(&mut self) {
        (self.is_lifted, self.refused, self.further) = (false, false, None);
    }

    pub(super) fn set_refused(&mut self) {
        self.refused = true;
    }

    /// How many connections are wanted in all.
    pub(super) fn wanted(&self) -> usize {
        self.wanted
    }

    pub(super) fn exchange_completed(&mut self) {
        self.completed += 1;
    }
}

impl OriginPool {
    /// Takes in a connection.
    pub(super) fn join(&self, state: &mut PoolState, mut member: Member) {
        state.spreading.members += 1;
        member.id = state.spreading.members;
        let is_limited_by_tcp = !member.handle.is_http1() && !member.connection.is_near();
        let holds_back = self.may_hold_back() && !state.spreading.is_lifted && is_limited_by_tcp;
        if holds_back {
            member.ahead = match state.members.is_empty() {
                true => FIRST_REQUESTS,
                false => state.spreading.further.unwrap_or(FURTHER_REQUESTS),
            };
        }
        state.members.push(member);
    }

    /// Whether requests may wait although the peer allows more streams.
    pub(super) fn may_hold_back(&self) -> bool {
        self.settings.spreads_requests
    }

    /// Where to start the task, if requests wait.
    pub(super) fn spreader_to_start(&self, state: &mut PoolState) -> Option<Runtime> {
        let is_held_back = |member: &Member| member.ahead < u32::MAX;
        let is_needed = !state.waiting.is_empty() && state.members.iter().any(is_held_back);
        if !is_needed || state.spreading.runs || self.is_retired() {
            return None;
        }
        let runtime = state.runtime.clone()?;
        state.spreading.runs = true;
        Some(runtime)
    }

    /// Starts the task. Called without the lock: a runtime that has shut down drops the task at once.
    pub(super) fn start_spreader(self: &Arc<Self>, runtime: &Runtime) {
        let most = self.most;
        let spreader = Spreader {
            pool: Arc::downgrade(self),
            planner: Planner::new(most, Instant::now()),
            closing: Vec::new(),
            ticks: 0,
            quiet: 0,
            done: false,
        };
        runtime.spawn(spreader.run());
    }

    /// The connections that take requests, and the requests.
    fn survey(&self) -> (Vec<Asked>, Requests) {
        let state = self.lock();
        let members = state.members.iter().filter_map(|member| match &member.handle {
            Handle::Http2(sender) => Some(Asked {
                id: member.id,
                begun: member.connection.begun(),
                answered: member.connection.has_served(),
                sender: sender.clone(),
            }),
            Handle::Http1(_) => None,
        });
        let requests = Requests {
            waiting: state.waiting.len() as u64,
            completed: state.spreading.completed,
            shortest: state.growth.shortest(),
            opening: state.opening,
            refused: state.spreading.refused,
        };
        (members.collect(), requests)
    }

    /// Does what is planned. Returns the connections that it closes.
    fn follow(self: &Arc<Self>, plan: Plan) -> Vec<u64> {
        let now = Instant::now();
        let downloads = self.further_connections();
        let mut state = self.lock();
        let mut removed = Vec::new();
        match plan {
            Plan::Lift => {
                state.spreading.is_lifted = true;
                for member in &mut state.members {
                    member.ahead = u32::MAX;
                }
            }
            Plan::Keep {
                ahead,
                further,
                open,
                close,
            } => {
                for (id, ahead) in ahead {
                    if let Some(member) = state.members.iter_mut().find(|member| member.id == id) {
                        member.ahead = ahead.max(1);
                    }
                }
                state.spreading.further = Some(further);
                // The oldest stays, which may be another one by now: `remove` forgets the path with the last.
                let oldest = state.members.first().map(|member| member.id);
                let (closing, kept) = std::mem::take(&mut state.members)
                    .into_iter()
                    .partition(|member| Some(member.id) != oldest && close.contains(&member.id));
                (removed, state.members) = (closing, kept);
                let others = state.members.len() + state.opening + downloads;
                let room = self.most.saturating_sub(others);
                if open > 0 {
                    state.spreading.wanted = state.members.len() + state.opening + open.min(room);
                }
            }
        }
        let effects = self.update(&mut state, now);
        state.spreading.wanted = 0;
        drop(state);
        let closed = removed.iter().map(|member| member.id).collect();
        for member in &removed {
            member.handle.shutdown();
        }
        drop(removed);
        self.apply(effects);
        closed
    }

    /// Whether the task ends, because nothing is to be decided.
    fn ends_spreading(&self) -> bool {
        let mut state = self.lock();
        let ends = state.spreading.is_lifted || state.waiting.is_empty() || state.members.is_empty();
        if ends {
            state.spreading.runs = false;
        }
        ends
    }
}

/// A connection that is asked.
#[derive(Clone)]
struct Asked {
    id: u64,
    begun: Instant,
    answered: bool,
    sender: SendRequest,
}

impl Asked {
    async fn reading(&self, takes_requests: bool) -> Option<Reading> {
        let report = self.sender.report().await.ok()?;
        Some(Reading {
            id: self.id,
            begun: self.begun,
            takes_requests,
            answered: self.answered,
            // What is written and not sent may wait in a buffer of many megabytes.
            carried: report.stats.received_bytes + report.tcp.map_or(0, |tcp| tcp.first_sent_bytes()),
            waited_for_readers: report.receiving.spent(Stall::Application),
            round_trip: report.stats.round_trip.minimum(),
            tcp: report.tcp,
        })
    }
}

/// The task.
struct Spreader {
    pool: Weak<OriginPool>,
    planner: Planner,
    /// Connections that complete what they have.
    closing: Vec<Asked>,
    ticks: u32,
    /// The number of ticks without a request that waited.
    quiet: u32,
    done: bool,
}

impl Spreader {
    async fn run(mut self) {
        loop {
            self.ticks = self.ticks.saturating_add(1);
            tokio::time::sleep(match self.planner.has_begun() || self.ticks > FIRST_TICKS {
                true => TICK,
                false => FIRST_TICK,
            })
            .await;
            let Some((asked, requests)) = self.pool.upgrade().map(|pool| pool.survey()) else {
                return;
            };
            let readings = self.readings(&asked).await;
            let Some(pool) = self.pool.upgrade() else { return };
            self.quiet = match requests.waiting {
                0 => self.quiet + 1,
                _ => 0,
            };
            if readings.iter().any(|reading| reading.takes_requests) {
                let plan = self.planner.plan(&readings, requests, Instant::now());
                let is_over = plan == Plan::Lift;
                let closed = pool.follow(plan);
                let closing = asked.into_iter().filter(|asked| closed.contains(&asked.id));
                self.closing.extend(closing);
                self.quiet += if is_over { QUIET_TICKS } else { 0 };
            } else {
                self.quiet += 1;
            }
            self.done = self.quiet >= QUIET_TICKS && pool.ends_spreading();
            if self.done {
                return;
            }
        }
    }

    /// Asks the connections, those that are closing last.
    async fn readings(&mut self, asked: &[Asked]) -> Vec<Reading> {
        let mut readings = Vec::with_capacity(asked.len() + self.closing.len());
        for open in asked {
            readings.extend(open.reading(true).await);
        }
        let mut still_closing = Vec::new();
        for closing in self.closing.drain(..) {
            if let Some(reading) = closing.reading(false).await {
                readings.push(reading);
                still_closing.push(closing);
            }
        }
        self.closing = still_closing;
        readings
    }
}

impl Drop for Spreader {
    fn drop(&mut self) {
        // Lost with its runtime: the next request that waits starts another.
        if let Some(pool) = self.pool.upgrade().filter(|_| !self.done) {
            pool.lock().spreading.runs = false;
        }
    }
}
