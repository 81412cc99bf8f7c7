//! The instances of an application: which of them gets a request, and which is left out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use fullbore::ext::OriginTime;
use http::StatusCode;
use tokio::time::Instant;

use crate::figures::{Figures, InstanceFigures};
use crate::origin::Origin;
use crate::settings::Change;

/// So many failures in a row leave an instance out. One may be an accident of a single connection.
const MOST_FAILURES: u32 = 3;

/// For so long, as nginx's `fail_timeout`. After that a single failure leaves it out again.
const LEFT_OUT: Duration = Duration::from_secs(10);

/// All instances.
#[derive(Debug)]
pub(crate) struct Instances {
    all: Vec<Instance>,
    /// Where the search for the next one begins, so that equal ones take turns.
    turn: AtomicUsize,
    begun: Instant,
}

#[derive(Debug)]
struct Instance {
    origin: Origin,
    under_way: AtomicUsize,
    /// Failures since the last answer.
    failures: AtomicU32,
    /// Until when it is left out, in milliseconds since the beginning.
    out_until: AtomicU64,
    /// A check of its health says that it cannot answer.
    unhealthy: AtomicBool,
    /// The operator was told that it is left out.
    is_told: AtomicBool,
    figures: Figures,
}

/// What is known of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InstanceStats {
    /// Its URL, as it was given.
    pub origin: String,
    /// Requests whose response has not ended.
    pub requests: usize,
    /// Whether it gets requests: it neither failed repeatedly nor a check of its health.
    pub in_use: bool,
    /// Connections that take requests.
    pub connections: usize,
    /// Requests that wait for a connection, or for a stream of one.
    pub waiting: usize,
    /// How it has answered so far.
    pub figures: InstanceFigures,
}

/// A request under way at an instance. Dropping it ends the count.
#[derive(Debug)]
pub(crate) struct UnderWay {
    instances: Arc<Instances>,
    index: usize,
    since: Instant,
}

impl Instances {
    pub(crate) fn new(origins: Vec<Origin>) -> Arc<Self> {
        let instance = |origin| Instance {
            origin,
            under_way: AtomicUsize::new(0),
            failures: AtomicU32::new(0),
            out_until: AtomicU64::new(0),
            unhealthy: AtomicBool::new(false),
            is_told: AtomicBool::new(false),
            figures: Figures::default(),
        };
        Arc::new(Self {
            all: origins.into_iter().map(instance).collect(),
            turn: AtomicUsize::new(0),
            begun: Instant::now(),
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// The instance with the fewest requests under way, of those that are in use; if none is, of all. `except` has failed
    /// this request, and is taken only when there is no other.
    pub(crate) fn pick(self: &Arc<Self>, except: Option<usize>) -> UnderWay {
        let index = match self.all.len() {
            1 => 0,
            count => {
                let now = self.now();
                let first = self.turn.fetch_add(1, Ordering::Relaxed);
                let turns = (0..count).map(|turn| first.wrapping_add(turn) % count);
                let rank = |index: &usize| {
                    let instance = &self.all[*index];
                    let under_way = instance.under_way.load(Ordering::Relaxed);
                    (Some(*index) == except, !instance.is_in_use(now), under_way)
                };
                turns.min_by_key(rank).unwrap_or(0)
            }
        };
        self.all[index].under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay {
            instances: Arc::clone(self),
            index,
            since: Instant::now(),
        }
    }

    pub(crate) fn origin(&self, index: usize) -> &Origin {
        &self.all[index].origin
    }

    /// Sets what a check of its health says. Returns what the operator is to be told.
    pub(crate) fn set_healthy(&self, index: usize, healthy: bool) -> Option<Change> {
        let instance = &self.all[index];
        instance.unhealthy.store(!healthy, Ordering::Relaxed);
        match healthy {
            true => instance.is_back(),
            false => self.is_out(instance),
        }
    }

    /// What to tell of an instance that is left out. One that has no other is never left out.
    fn is_out(&self, instance: &Instance) -> Option<Change> {
        (self.len() > 1 && !instance.is_told.swap(true, Ordering::Relaxed)).then_some(Change::LeftOut)
    }

    pub(crate) fn stats(&self) -> Vec<InstanceStats> {
        let now = self.now();
        let stats = |instance: &Instance| {
            let pools = instance.origin.stats();
            InstanceStats {
                origin: instance.origin.name.clone(),
                requests: instance.under_way.load(Ordering::Relaxed),
                in_use: instance.is_in_use(now),
                connections: pools.iter().map(|pool| pool.connections).sum(),
                waiting: pools.iter().map(|pool| pool.waiting).sum(),
                figures: instance.figures.read(),
            }
        };
        self.all.iter().map(stats).collect()
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl Instance {
    fn is_in_use(&self, now: u64) -> bool {
        !self.unhealthy.load(Ordering::Relaxed) && self.out_until.load(Ordering::Relaxed) <= now
    }

    /// What to tell of an instance that answers.
    fn is_back(&self) -> Option<Change> {
        let is_told = self.is_told.load(Ordering::Relaxed) && self.is_told.swap(false, Ordering::Relaxed);
        is_told.then_some(Change::Back)
    }
}

impl UnderWay {
    pub(crate) fn origin(&self) -> &Origin {
        &self.instance().origin
    }

    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// Another count of the same request.
    pub(crate) fn another(&self) -> UnderWay {
        self.instance().under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay {
            instances: Arc::clone(&self.instances),
            index: self.index,
            since: self.since,
        }
    }

    /// The body of the request has ended, if it has one, and only its answer is waited for.
    pub(crate) fn waits_since(&mut self, ended: Option<Instant>) {
        self.since = ended.unwrap_or(self.since);
    }

    /// How long the answer was waited for.
    pub(crate) fn waited(&self) -> OriginTime {
        OriginTime(self.since.elapsed())
    }

    /// The instance has answered after this time, whatever it said. Returns what the operator is to be told.
    pub(crate) fn answered(&self, OriginTime(waited): OriginTime) -> Option<Change> {
        let instance = self.instance();
        instance.figures.add_answer(waited);
        if instance.failures.load(Ordering::Relaxed) > 0 {
            instance.failures.store(0, Ordering::Relaxed);
        }
        instance.is_back()
    }

    /// It could not be reached, or gave no answer. Returns what the operator is to be told.
    pub(crate) fn failed(&self) -> Option<Change> {
        let instance = self.instance();
        let failures = instance
            .failures
            .fetch_add(1, Ordering::Relaxed)
            .saturating_add(1);
        if failures < MOST_FAILURES {
            return None;
        }
        let now = self.instances.now();
        let until = now + LEFT_OUT.as_millis() as u64;
        // Requests that were under way fail too, and are no further ejection.
        if instance.out_until.swap(until, Ordering::Relaxed) <= now {
            instance.figures.add_ejection();
        }
        self.instances.is_out(instance)
    }

    /// The client is answered with this status in its place.
    pub(crate) fn refused(&self, status: StatusCode) {
        self.instance().figures.add_failure(status);
    }

    /// Its response broke off.
    pub(crate) fn broke_off(&self) {
        self.instance().figures.add_broken();
    }

    /// The request goes to another instance.
    pub(crate) fn passed_on(&self) {
        self.instance().figures.add_repeat();
    }

    fn instance(&self) -> &Instance {
        &self.instances.all[self.index]
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.instance().under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::origin::Target;

    fn instances(count: usize) -> Arc<Instances> {
        let origin = |number| {
            let target = Target::parse(&format!("http://h{number}")).expect("a URL");
            target.origin(fullbore::Client::builder()).expect("an origin")
        };
        Instances::new((0..count).map(origin).collect())
    }

    #[test]
    fn the_instance_with_the_fewest_requests_under_way_is_next() {
        let three = instances(3);
        let mut taken: Vec<_> = (0..6).map(|_| three.pick(None)).collect();
        let mut counts: Vec<_> = three.stats().iter().map(|stats| stats.requests).collect();
        assert_eq!(counts, [2, 2, 2]);
        taken.retain(|request| request.index() != 1);
        assert_eq!(
            [three.pick(None), three.pick(None)].map(|next| next.index()),
            [1, 1]
        );
        taken.clear();
        counts = three.stats().iter().map(|stats| stats.requests).collect();
        assert_eq!(counts, [0, 0, 0]);
        // Equal ones take turns.
        let mut turns: Vec<_> = (0..3).map(|_| three.pick(None).index()).collect();
        turns.sort_unstable();
        assert_eq!(turns, [0, 1, 2]);
    }

    #[test]
    fn an_instance_that_fails_three_times_in_a_row_is_left_out_for_ten_seconds() {
        let two = instances(2);
        let fail = || {
            let request = two.pick(Some(1));
            assert_eq!(request.index(), 0);
            request.failed();
        };
        let in_use = || two.stats()[0].in_use;
        fail();
        fail();
        two.pick(Some(1)).answered(OriginTime(Duration::ZERO));
        fail();
        fail();
        assert!(in_use(), "an answer ends the row");
        fail();
        assert!(!in_use());
        for _ in 0..4 {
            assert_eq!(two.pick(None).index(), 1);
        }
        let until = two.all[0].out_until.swap(0, Ordering::Relaxed);
        assert!((9_000..=20_000).contains(&until), "{until} ms");
        assert!(in_use());
        fail();
        assert!(!in_use(), "it has answered nothing meanwhile");
        // When nobody is in use, everybody is tried.
        two.set_healthy(1, false);
        let mut tried: Vec<_> = (0..2).map(|_| two.pick(None).index()).collect();
        tried.sort_unstable();
        assert_eq!(tried, [0, 1]);
    }
}
