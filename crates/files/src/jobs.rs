//! Blocking jobs, shared out among peers.
//!
//! Whatever may wait for a disk runs on the runtime's blocking threads, whose queue is first come, first served. A peer that
//! asks for ten thousand files at once would be ahead of everybody else there. So each peer has a few jobs in the queue at a time;
//! its others wait here, cost no thread, and go with their streams. Called by `service` and `file_body`.

use std::future::Future;
use std::hash::BuildHasher as _;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use fullbore::server::PeerAddr;
use http::Extensions;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;

/// Peers are told apart by a hash of so many values: two that meet in one share what one may have. The hash is keyed at random,
/// so that nobody can choose whom to meet.
const SHARES: usize = 256;

/// What has a share of its own: an address, or the 64 bits of an IPv6 address that a network is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Peer(IpAddr);

/// The jobs of a service.
#[derive(Debug)]
pub(crate) struct Jobs {
    shares: Vec<Arc<Semaphore>>,
    hashing: std::hash::RandomState,
    #[cfg(test)]
    begun: std::sync::atomic::AtomicUsize,
}

/// A job that waits or runs. One that has not begun is dropped with this.
#[derive(Debug)]
pub(crate) struct Job<T>(JoinHandle<Option<T>>);

impl Peer {
    /// Who asks, if that is known: from the request, or from the server that is handing it over.
    pub(crate) fn of(extensions: &Extensions) -> Option<Peer> {
        let PeerAddr(address) = extensions.get().copied().or_else(PeerAddr::current)?;
        Some(Peer::at(address.ip()))
    }

    fn at(address: IpAddr) -> Peer {
        Peer(match address.to_canonical() {
            IpAddr::V6(six) => IpAddr::V6((u128::from(six) >> 64 << 64).into()),
            four => four,
        })
    }
}

impl Jobs {
    /// Jobs of which each peer has `most` at a time, at least one.
    pub(crate) fn new(most: usize) -> Arc<Jobs> {
        let most = most.clamp(1, Semaphore::MAX_PERMITS);
        Arc::new(Jobs {
            shares: (0..SHARES).map(|_| Arc::new(Semaphore::new(most))).collect(),
            hashing: std::hash::RandomState::new(),
            #[cfg(test)]
            begun: std::sync::atomic::AtomicUsize::new(0),
        })
    }

    /// Has `work` done on a blocking thread of `runtime` when it is the peer's turn; at once if nobody knows who it is.
    pub(crate) fn begin<T: Send + 'static>(
        self: &Arc<Self>,
        runtime: &Handle,
        peer: Option<Peer>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Job<T> {
        let jobs = Arc::clone(self);
        let work = move |permit: Option<OwnedSemaphorePermit>| {
            jobs.count();
            let done = work();
            drop(permit);
            Some(done)
        };
        let Some(share) = peer.and_then(|peer| self.share(peer)) else {
            return Job(runtime.spawn_blocking(move || work(None)));
        };
        match Arc::clone(share).try_acquire_owned() {
            Ok(permit) => Job(runtime.spawn_blocking(move || work(Some(permit)))),
            Err(_) => {
                let (share, threads) = (Arc::clone(share), runtime.clone());
                Job(runtime.spawn(async move {
                    // It is never closed.
                    let permit = share.acquire_owned().await.ok()?;
                    let mut job = Job(threads.spawn_blocking(move || work(Some(permit))));
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

impl<T> Future for Job<T> {
    type Output = io::Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        Pin::new(&mut self.0).poll(cx).map(|done| match done {
            Ok(Some(done)) => Ok(done),
            Ok(None) => Err(io::Error::other("a job was given up")),
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

    #[test]
    fn an_ipv6_peer_is_its_network_and_a_mapped_address_is_the_one_that_it_maps() {
        assert_eq!(peer("2001:db8:1:2::1"), peer("2001:db8:1:2:ffff::9"));
        assert_ne!(peer("2001:db8:1:2::1"), peer("2001:db8:1:3::1"));
        assert_eq!(peer("::ffff:10.0.0.1"), peer("10.0.0.1"));
        assert_ne!(peer("10.0.0.1"), peer("10.0.0.2"));
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
