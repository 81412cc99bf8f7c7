//! Blocking jobs, with a share for each peer.
//!
//! Operations that may wait for a disk run on the runtime's blocking threads, whose queue is first come, first served. A
//! peer that requests ten thousand files would delay all others. So each peer has a few jobs in that queue at a time. Its
//! other jobs wait here without a thread, and are dropped with their streams. Jobs that keep a processor busy have a limit
//! for all peers too, for which peers wait in turn. `turns` has the queue of a peer. Called by `service`, `file_body`, `compress`, `uploads` and `writer`.

use std::fmt;
use std::future::Future;
use std::hash::BuildHasher as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;

use crate::peer::Peer;
use crate::turns::{Haste, Turn, Turns};

/// The number of shares. Peers whose hashes collide share one. The hash has a random key, so a peer cannot choose whose
/// share it uses.
const SHARES: usize = 256;

/// The jobs of a service.
#[derive(Debug)]
pub(crate) struct Jobs {
    kind: Kind,
    hashing: std::hash::RandomState,
    #[cfg(test)]
    begun: std::sync::atomic::AtomicUsize,
}

#[derive(Debug)]
enum Kind {
    /// Each peer has some threads.
    Shares(Vec<Arc<Turns>>),
    /// Jobs of each peer run at a time, and jobs of all peers, for which the peers wait in turn.
    Limited(Vec<Arc<Semaphore>>, Arc<Semaphore>),
}

/// A job that waits or runs. Dropping it cancels a job that has not begun, unless it is [kept](Job::keep).
pub(crate) struct Job<T>(Doing<T>);

enum Doing<T> {
    Thread(JoinHandle<Option<T>>),
    Turn(Turn<T>),
    Kept(JoinHandle<Option<T>>),
    Done,
}

impl Jobs {
    /// Each peer has at most `most` jobs at a time, and at least one.
    pub(crate) fn new(most: usize) -> Arc<Jobs> {
        let most = most.max(1);
        Jobs::of(Kind::Shares((0..SHARES).map(|_| Turns::new(most)).collect()))
    }

    /// The same, and at most `all` jobs run at a time.
    pub(crate) fn limited(most: usize, all: usize) -> Arc<Jobs> {
        let most = most.clamp(1, Semaphore::MAX_PERMITS);
        let shares = (0..SHARES).map(|_| Arc::new(Semaphore::new(most))).collect();
        Jobs::of(Kind::Limited(shares, Arc::new(Semaphore::new(all))))
    }

    fn of(kind: Kind) -> Arc<Jobs> {
        Arc::new(Jobs {
            kind,
            hashing: std::hash::RandomState::new(),
            #[cfg(test)]
            begun: std::sync::atomic::AtomicUsize::new(0),
        })
    }

    /// Runs `work` on a blocking thread of `runtime` once the peer's share allows it; at once if the peer is unknown.
    pub(crate) fn begin<T: Send + 'static>(
        self: &Arc<Self>,
        runtime: &Handle,
        peer: Option<Peer>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Job<T> {
        self.begin_in(Haste::Now, runtime, peer, work)
    }

    /// The same; `haste` is that of the peer's jobs where all peers together have no limit.
    pub(crate) fn begin_in<T: Send + 'static>(
        self: &Arc<Self>,
        haste: Haste,
        runtime: &Handle,
        peer: Option<Peer>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Job<T> {
        let jobs = Arc::clone(self);
        let work = move || {
            jobs.count();
            work()
        };
        let share = peer.map(|peer| self.share(peer));
        match (&self.kind, share) {
            (Kind::Shares(shares), Some(share)) => match shares.get(share) {
                Some(turns) => Job(Doing::Turn(turns.begin(runtime, haste, work))),
                None => Job(Doing::Thread(runtime.spawn_blocking(move || Some(work())))),
            },
            (Kind::Shares(_), None) => Job(Doing::Thread(runtime.spawn_blocking(move || Some(work())))),
            (Kind::Limited(shares, all), share) => {
                let share = share.and_then(|share| shares.get(share)).cloned();
                limited(runtime, share, Arc::clone(all), work)
            }
        }
    }

    /// The place of the peer's share.
    fn share(&self, peer: Peer) -> usize {
        // Below the number of shares.
        (self.hashing.hash_one(peer) % SHARES as u64) as usize
    }

    fn count(&self) {
        #[cfg(test)]
        self.begun.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }

    /// How many have begun.
    #[cfg(test)]
    pub(crate) fn begun(&self) -> usize {
        self.begun.load(std::sync::atomic::Ordering::Relaxed)
    }
}

/// Runs `work` once the peer's share and the limit of all jobs allow it.
fn limited<T: Send + 'static>(
    runtime: &Handle,
    share: Option<Arc<Semaphore>>,
    all: Arc<Semaphore>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Job<T> {
    let work = move |permits: Permits| {
        let done = work();
        drop(permits);
        Some(done)
    };
    Job(Doing::Thread(match Permits::try_take(share.as_ref(), &all) {
        Some(permits) => runtime.spawn_blocking(move || work(permits)),
        None => {
            let threads = runtime.clone();
            runtime.spawn(async move {
                let permits = Permits::take(share, all).await?;
                let mut job = Job(Doing::Thread(threads.spawn_blocking(move || work(permits))));
                (&mut job).await.ok()
            })
        }
    }))
}

/// That a job may run: the permit of the peer's share, and that of all jobs. Held until it has run.
struct Permits {
    _share: Option<OwnedSemaphorePermit>,
    _all: OwnedSemaphorePermit,
}

impl Permits {
    /// `None` if the job has to wait for one of them.
    fn try_take(share: Option<&Arc<Semaphore>>, all: &Arc<Semaphore>) -> Option<Permits> {
        let share = share.map(|share| Arc::clone(share).try_acquire_owned());
        Some(Permits {
            _share: share.transpose().ok()?,
            _all: Arc::clone(all).try_acquire_owned().ok()?,
        })
    }

    /// A peer waits for the limit of all jobs only with what its share allows.
    async fn take(share: Option<Arc<Semaphore>>, all: Arc<Semaphore>) -> Option<Permits> {
        // They are never closed.
        let share = match share {
            Some(share) => Some(share.acquire_owned().await.ok()?),
            None => None,
        };
        Some(Permits {
            _share: share,
            _all: all.acquire_owned().await.ok()?,
        })
    }
}

impl<T> Job<T> {
    /// Does the job even if this is dropped.
    pub(crate) fn keep(mut self) -> Self {
        self.0 = match std::mem::replace(&mut self.0, Doing::Done) {
            Doing::Turn(turn) => Doing::Turn(turn.keep()),
            Doing::Thread(thread) => Doing::Kept(thread),
            other => other,
        };
        self
    }
}

impl<T> Future for Job<T> {
    type Output = io::Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let thread = match &mut self.0 {
            Doing::Turn(turn) => return Pin::new(turn).poll(cx),
            Doing::Thread(thread) | Doing::Kept(thread) => thread,
            Doing::Done => return Poll::Ready(Err(io::Error::other("a blocking job is over"))),
        };
        Pin::new(thread).poll(cx).map(|done| match done {
            Ok(Some(done)) => Ok(done),
            Ok(None) => Err(io::Error::other("a blocking job was cancelled")),
            Err(lost) => Err(io::Error::other(lost)),
        })
    }
}

impl<T> Drop for Job<T> {
    fn drop(&mut self) {
        if let Doing::Thread(thread) = &self.0 {
            thread.abort();
        }
    }
}

impl<T> fmt::Debug for Job<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc;

    use super::*;

    fn peer(address: &str) -> Peer {
        Peer::at(address.parse().unwrap())
    }

    #[tokio::test]
    async fn a_peer_with_many_jobs_does_not_keep_another_ones_waiting() {
        let jobs = Jobs::new(2);
        let runtime = Handle::current();
        let (crowd, other) = (peer("10.0.0.1"), peer("10.0.0.2"));
        // Two that share a hash are one peer here.
        let other = match jobs.share(crowd) == jobs.share(other) {
            true => None,
            false => Some(other),
        };
        let (gate, closed) = mpsc::channel::<()>();
        let closed = Arc::new(Mutex::new(closed));
        let held: Vec<_> = (0..100)
            .map(|number| {
                let closed = Arc::clone(&closed);
                jobs.begin(&runtime, Some(crowd), move || {
                    let _ = closed.lock().unwrap().recv();
                    number
                })
            })
            .collect();
        assert_eq!(jobs.begin(&runtime, other, || "done").await.unwrap(), "done");
        assert!(jobs.begun() <= 3, "{} have begun", jobs.begun());
        drop(gate);
        for (number, job) in held.into_iter().enumerate() {
            assert_eq!(job.await.unwrap(), number);
        }
        assert_eq!(jobs.begun(), 101);
    }

    #[tokio::test]
    async fn jobs_with_a_limit_for_all_run_so_many_at_a_time_and_peers_take_turns() {
        let jobs = Jobs::limited(1, 1);
        let runtime = Handle::current();
        let (gate, closed) = mpsc::channel::<()>();
        let order = Arc::new(Mutex::new(Vec::new()));
        let first = jobs.begin(&runtime, None, move || closed.recv().is_err());
        let job = |address: &str, name: &'static str| {
            let order = Arc::clone(&order);
            jobs.begin(&runtime, Some(peer(address)), move || {
                order.lock().unwrap().push(name)
            })
        };
        let mut others: Vec<_> = (0..20).map(|_| job("10.0.0.1", "crowd")).collect();
        others.push(job("10.0.0.2", "other"));
        // All of them wait where they are to wait.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(jobs.begun() <= 1);
        drop(gate);
        assert!(first.await.unwrap());
        for job in others {
            job.await.unwrap();
        }
        let share = |address: &str| jobs.share(peer(address));
        if share("10.0.0.1") != share("10.0.0.2") {
            let order = order.lock().unwrap();
            let at = order.iter().position(|name| *name == "other").unwrap();
            assert!(at <= 1, "{order:?}");
        }
    }

    #[tokio::test]
    async fn what_is_dropped_before_its_turn_is_never_done() {
        let jobs = Jobs::new(1);
        let runtime = Handle::current();
        let one = Some(peer("10.0.0.1"));
        let (gate, closed) = mpsc::channel::<()>();
        let first = jobs.begin(&runtime, one, move || closed.recv().is_err());
        let others: Vec<_> = (0..50).map(|_| jobs.begin(&runtime, one, || ())).collect();
        drop(others);
        drop(gate);
        assert!(first.await.unwrap());
        jobs.begin(&runtime, one, || ()).await.unwrap();
        assert_eq!(jobs.begun(), 2);
    }
}
