//! Blocking jobs of one peer, in their order, on as many threads as the peer has a share of.
//!
//! A thread that has ended a job takes the next one: a job that stores a small file takes less time than to wake a thread. After some
//! of them other peers have the thread. A job that is dropped before its turn is never done. Called by `jobs`.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// How many jobs a thread does one after the other.
const DONE_BY_A_THREAD: usize = 16;

/// How soon a job is begun while others of its peer are being done.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Haste {
    /// At once, by another thread: a disk may have to be waited for.
    Now,
    /// By a thread that has done another, unless many wait. Threads that store files in one folder wait for each other.
    Soon,
}

impl Haste {
    /// How many jobs wait for each thread before another one begins.
    fn waiting(self) -> usize {
        match self {
            Self::Now => 0,
            Self::Soon => 4,
        }
    }
}

/// The jobs of a peer.
pub(crate) struct Turns {
    /// The most threads.
    most: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Those that work, or wait for their place.
    threads: usize,
    /// The jobs that have not begun, in their order.
    waiting: BTreeMap<u64, Box<dyn FnOnce() + Send>>,
    /// The number of the next job.
    next: u64,
}

/// A job that waits or is being done.
pub(crate) struct Turn<T> {
    done: oneshot::Receiver<T>,
    of: Arc<Turns>,
    number: u64,
    /// It is done even if nobody waits for it.
    is_kept: bool,
}

impl Turns {
    pub(crate) fn new(most: usize) -> Arc<Turns> {
        Arc::new(Turns {
            most,
            state: Mutex::default(),
        })
    }

    /// Adds a job, which a blocking thread of `runtime` does, or one that has done another.
    pub(crate) fn begin<T: Send + 'static>(
        self: &Arc<Self>,
        runtime: &Handle,
        haste: Haste,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Turn<T> {
        let (sender, done) = oneshot::channel();
        let work = Box::new(move || {
            // Nobody may wait for it any more.
            let _ = sender.send(work());
        });
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        state.waiting.insert(number, work);
        let is_due = state.threads == 0 || state.waiting.len() > haste.waiting() * state.threads;
        let is_begun = state.threads < self.most && is_due;
        if is_begun {
            state.threads += 1;
        }
        drop(state);
        if is_begun {
            Thread(Some(Arc::clone(self))).start(runtime.clone());
        }
        Turn {
            done,
            of: Arc::clone(self),
            number,
            is_kept: false,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turns")
            .field("most", &self.most)
            .finish_non_exhaustive()
    }
}

/// A thread of a peer, counted in [`State::threads`] while this is `Some`.
struct Thread(Option<Arc<Turns>>);

impl Thread {
    fn start(self, runtime: Handle) {
        let threads = runtime.clone();
        threads.spawn_blocking(move || self.work(runtime));
    }

    fn work(mut self, runtime: Handle) {
        for _ in 0..DONE_BY_A_THREAD {
            let Some(work) = self.next() else { return };
            // Its sender is dropped then, and who waits for it is told.
            let _ = catch_unwind(AssertUnwindSafe(work));
        }
        self.start(runtime);
    }

    /// The next job. Without one the thread has ended: it is counted no more before another job can be added.
    fn next(&mut self) -> Option<Box<dyn FnOnce() + Send>> {
        let of = self.0.take()?;
        let mut state = of.lock();
        match state.waiting.pop_first() {
            None => {
                state.threads -= 1;
                None
            }
            Some((_, work)) => {
                drop(state);
                self.0 = Some(of);
                Some(work)
            }
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // The runtime has ended before the thread had its place.
        if let Some(of) = self.0.take() {
            of.lock().threads -= 1;
        }
    }
}

impl<T> Turn<T> {
    /// Does the job even if this is dropped.
    pub(crate) fn keep(mut self) -> Self {
        self.is_kept = true;
        self
    }
}

impl<T> Future for Turn<T> {
    type Output = io::Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let done = Pin::new(&mut self.done).poll(cx);
        done.map(|done| done.map_err(|_| io::Error::other("a blocking job was lost")))
    }
}

impl<T> Drop for Turn<T> {
    fn drop(&mut self) {
        if !self.is_kept {
            // What it holds is dropped without the lock.
            let work = self.of.lock().waiting.remove(&self.number);
            drop(work);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_thread_does_the_next_job_and_a_panic_is_that_of_its_job_alone() {
        let turns = Turns::new(1);
        let runtime = Handle::current();
        let (gate, closed) = mpsc::channel::<()>();
        let first = turns.begin(&runtime, Haste::Now, move || closed.recv().is_err());
        let order = Arc::new(Mutex::new(Vec::new()));
        let jobs: Vec<_> = (0..100)
            .map(|number| {
                let order = Arc::clone(&order);
                turns.begin(&runtime, Haste::Now, move || {
                    assert!(number != 7, "the seventh fails");
                    order.lock().unwrap().push(number);
                    number
                })
            })
            .collect();
        drop(gate);
        assert!(first.await.unwrap());
        for (number, job) in jobs.into_iter().enumerate() {
            assert_eq!(job.await.ok(), (number != 7).then_some(number));
        }
        let expected: Vec<usize> = (0..100).filter(|number| *number != 7).collect();
        assert_eq!(*order.lock().unwrap(), expected);
        while turns.lock().threads > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(
            turns.begin(&runtime, Haste::Now, || "again").await.unwrap(),
            "again"
        );
    }

    #[tokio::test]
    async fn a_job_that_is_kept_is_done_though_nobody_waits_for_it() {
        let turns = Turns::new(1);
        let runtime = Handle::current();
        let (gate, closed) = mpsc::channel::<()>();
        let first = turns.begin(&runtime, Haste::Now, move || closed.recv().is_err());
        let (sender, done) = mpsc::channel();
        for number in 0..4 {
            let sender = sender.clone();
            let job = turns.begin(&runtime, Haste::Now, move || sender.send(number).unwrap());
            let _dropped = if number % 2 == 1 { job.keep() } else { job };
        }
        drop((gate, sender));
        assert!(first.await.unwrap());
        turns.begin(&runtime, Haste::Now, || ()).await.unwrap();
        assert_eq!(done.iter().collect::<Vec<i32>>(), [1, 3]);
    }

    #[tokio::test]
    async fn a_further_thread_begins_at_once_or_when_four_jobs_wait_for_each() {
        for (haste, threads) in [(Haste::Now, 8), (Haste::Soon, 4)] {
            let turns = Turns::new(8);
            let runtime = Handle::current();
            let (gate, closed) = mpsc::channel::<()>();
            let closed = Arc::new(Mutex::new(closed));
            // Nothing is done while the lock of one that waits is held.
            let jobs: Vec<_> = (0..16)
                .map(|_| {
                    let closed = Arc::clone(&closed);
                    let done = move || closed.lock().unwrap().recv().is_err();
                    turns.begin(&runtime, haste, done)
                })
                .collect();
            let begun = turns.lock().threads;
            assert!(begun <= threads && begun > 1, "{begun}");
            drop(gate);
            for job in jobs {
                assert!(job.await.unwrap());
            }
        }
    }

    #[test]
    fn a_runtime_that_ends_takes_no_thread_with_it() {
        let turns = Turns::new(1);
        let runtime = || tokio::runtime::Builder::new_current_thread().build().unwrap();
        let ended = runtime();
        let handle = ended.handle().clone();
        drop(ended);
        let lost = turns.begin(&handle, Haste::Now, || 1);
        let lives = runtime();
        let found = turns.begin(lives.handle(), Haste::Now, || 2);
        assert_eq!(lives.block_on(found).unwrap(), 2);
        drop(lost);
    }
}
