//! Jobs that end small files: create, write and rename. Few threads do them, one after the other.
//!
//! Of 10,000 small files each would wake a thread of its own, which costs more than what the job does. So a thread that has ended
//! one job takes the next, and another thread begins only when many wait: the disk is slow then. Called by `receive`.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tokio::task::spawn_blocking;

use crate::exit::{Exit, Failure};

/// The most threads: half of those for files.
const THREADS: usize = 8;

/// Another thread begins when more jobs than this wait for each one.
const WAITING: usize = 8;

/// The jobs of a run.
#[derive(Default)]
pub(crate) struct Finisher(Mutex<State>);

#[derive(Default)]
struct State {
    threads: usize,
    waiting: VecDeque<Job>,
}

type Job = Box<dyn FnOnce() + Send>;

impl Finisher {
    /// Does a job, after those that wait.
    ///
    /// # Errors
    /// The job failed.
    pub(crate) async fn run(
        self: &Arc<Self>,
        job: impl FnOnce() -> Result<(), Failure> + Send + 'static,
    ) -> Result<(), Failure> {
        let (sender, done) = oneshot::channel();
        self.add(Box::new(move || {
            // Nobody waits for it after an interruption.
            let _ = sender.send(job());
        }));
        done.await.unwrap_or_else(|_| {
            let text = "a write failed by an error of fullbore";
            Err(Failure::new(Exit::Other, text))
        })
    }

    fn add(self: &Arc<Self>, job: Job) {
        let mut state = self.lock();
        state.waiting.push_back(job);
        let is_slow = state.waiting.len() > WAITING * state.threads && state.threads < THREADS;
        if state.threads > 0 && !is_slow {
            return;
        }
        state.threads += 1;
        drop(state);
        let this = Arc::clone(self);
        spawn_blocking(move || this.work());
    }

    fn work(&self) {
        while let Some(job) = self.next() {
            // Its sender is dropped then, and who waits for it is told.
            let _ = catch_unwind(AssertUnwindSafe(job));
        }
    }

    /// The next job. Without one the thread has ended: it is counted no more before another job can be added.
    fn next(&self) -> Option<Job> {
        let mut state = self.lock();
        let job = state.waiting.pop_front();
        if job.is_none() {
            state.threads -= 1;
        }
        job
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn one_thread_does_what_it_can_and_others_begin_when_jobs_wait() {
        let finisher = Arc::new(Finisher::default());
        let (gate, closed) = mpsc::channel::<()>();
        let closed = Arc::new(Mutex::new(closed));
        let mut jobs = tokio::task::JoinSet::new();
        for number in 1..=200 {
            let (all, closed) = (Arc::clone(&finisher), Arc::clone(&closed));
            jobs.spawn(async move {
                let job = move || {
                    let _ = closed.lock().map(|closed| closed.recv());
                    match number {
                        13 => panic!("the thirteenth fails"),
                        _ => Ok(()),
                    }
                };
                all.run(job).await
            });
            tokio::task::yield_now().await;
            if number <= WAITING {
                assert_eq!(finisher.lock().threads, 1);
            }
        }
        assert_eq!(finisher.lock().threads, THREADS);
        drop(gate);
        let ended = jobs.join_all().await;
        assert_eq!(ended.iter().filter(|ended| ended.is_err()).count(), 1);
        while finisher.lock().threads > 0 {
            tokio::task::yield_now().await;
        }
        assert!(finisher.run(|| Ok(())).await.is_ok());
    }
}
