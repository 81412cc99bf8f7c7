//! Blocking jobs, with a share for each peer.
//!
//! Operations that may wait for a disk run on the runtime's blocking threads, whose queue is first come, first served. A
//! peer that requests ten thousand files would delay all others. So each peer has a few jobs in that queue at a time. Its
//! other jobs wait here without a thread, and are dropped with their streams. Jobs that keep a processor busy have a limit
//! for all peers too, for which peers wait in turn. Called by `service`, `file_body`, `compress`, `uploads` and `writer`.

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

/// The number of shares. Peers whose hashes collide share one. The hash has a random key, so a peer cannot choose whose
/// share it uses.
const SHARES: usize = 256;

/// The jobs of a service.
#[derive(Debug)]
pub(crate) struct Jobs {
    shares: Vec<Arc<Semaphore>>,
    /// How many jobs run at a time.
    all: Option<Arc<Semaphore>>,
    hashing: std::hash::RandomState,
    #[cfg(test)]
    begun: std::sync::atomic::AtomicUsize,
}

/// A job that waits or runs. Dropping it cancels a job that has not begun.
#[derive(Debug)]
pub(crate) struct Job<T>(JoinHandle<Option<T>>);

impl Jobs {
    /// Each peer has at most `most` jobs at a time, and at least one.
    pub(crate) fn new(most: usize) -> Arc<Jobs> {
        Jobs::with(most, None)
    }

    /// The same, and at most `all` jobs run at a time.
    pub(crate) fn limited(most: usize, all: usize) -> Arc<Jobs> {
        Jobs::with(most, Some(Arc::new(Semaphore::new(all))))
    }

    fn with(most: usize, all: Option<Arc<Semaphore>>) -> Arc<Jobs> {
        let most = most.clamp(1, Semaphore::MAX_PERMITS);
        Arc::new(Jobs {
            shares: (0..SHARES).map(|_| Arc::new(Semaphore::new(most))).collect(),
            all,
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
        let jobs = Arc::clone(self);
        let work = move |permits: Permits| {
            jobs.count();
            let done = work();
            drop(permits);
            Some(done)
        };
        let share = peer.and_then(|peer| self.share(peer)).cloned();
        let all = self.all.clone();
        match Permits::try_take(share.as_ref(), all.as_ref()) {
            Some(permits) => Job(runtime.spawn_blocking(move || work(permits))),
            None => {
                let threads = runtime.clone();
                Job(runtime.spawn(async move {
                    let permits = Permits::take(share, all).await?;
                    let mut job = Job(threads.spawn_blocking(move || work(permits)));
                    (&mut job).await.ok()
                }))
            }
        }
    }

    fn share(&self, peer: Peer) -> Option<&Arc<Semaphore>> {
        let at = self.hashing.hash_one(peer) % SHARES as u64;
        self.shares.get(usize::try_from(at).ok()?)
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

/// That a job may run: the permit of the peer's share, and that of all jobs. Held until it has run.
struct Permits {
    _share: Option<OwnedSemaphorePermit>,
    _all: Option<OwnedSemaphorePermit>,
}

impl Permits {
    /// `None` if the job has to wait for one of them.
    fn try_take(share: Option<&Arc<Semaphore>>, all: Option<&Arc<Semaphore>>) -> Option<Permits> {
        let take = |of: Option<&Arc<Semaphore>>| {
            let permit = of.map(|of| Arc::clone(of).try_acquire_owned());
            permit.transpose().ok()
        };
        Some(Permits {
            _share: take(share)?,
            _all: take(all)?,
        })
    }

    /// A peer waits for the limit of all jobs only with what its share allows.
    async fn take(share: Option<Arc<Semaphore>>, all: Option<Arc<Semaphore>>) -> Option<Permits> {
        let take = async |of: Option<Arc<Semaphore>>| match of {
            // It is never closed.
            Some(of) => of.acquire_owned().await.ok().map(Some),
            None => Some(None),
        };
        Some(Permits {
            _share: take(share).await?,
            _all: take(all).await?,
        })
    }
}

impl<T> Future for Job<T> {
    type Output = io::Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        Pin::new(&mut self.0).poll(cx).map(|done| match done {
            Ok(Some(done)) => Ok(done),
            Ok(None) => Err(io::Error::other("a blocking job was cancelled")),
            Err(lost) => Err(io::Error::other(lost)),
        })
    }
}

impl<T> Drop for Job<T> {
    fn drop(&mut self) {
        self.0.abort();
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
        let other = match std::ptr::eq(jobs.share(crowd).unwrap(), jobs.share(other).unwrap()) {
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
        let share = |address: &str| jobs.share(peer(address)).unwrap();
        if !Arc::ptr_eq(share("10.0.0.1"), share("10.0.0.2")) {
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
