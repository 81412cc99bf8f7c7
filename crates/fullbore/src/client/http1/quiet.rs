//! A waker that keeps silent while its task is about to look anyway.
//!
//! hyper's connection is driven by the task that gives it requests. Each request that it is given wakes it, and so the task would
//! be scheduled once more for what it does at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

/// The waker of what a task drives.
pub(super) struct Quiet {
    inner: Arc<Inner>,
    /// Of `inner`.
    waker: Waker,
}

struct Inner {
    task: Waker,
    is_silent: AtomicBool,
}

impl Quiet {
    /// Wakes the task of this context.
    pub(super) fn new(cx: &Context<'_>) -> Self {
        let inner = Arc::new(Inner {
            task: cx.waker().clone(),
            is_silent: AtomicBool::new(false),
        });
        let waker = Waker::from(Arc::clone(&inner));
        Quiet { inner, waker }
    }

    /// Wakes nobody until [`Self::waker`] is called: whoever calls this polls with that waker in any case.
    pub(super) fn silence(&self) {
        self.inner.is_silent.store(true, Ordering::Release);
    }

    /// The waker to poll with.
    pub(super) fn waker(&mut self, cx: &Context<'_>) -> &Waker {
        if !self.inner.task.will_wake(cx.waker()) {
            *self = Quiet::new(cx);
        }
        // Whoever was silenced before has come before this poll, which sees what it wanted to tell.
        self.inner.is_silent.swap(false, Ordering::AcqRel);
        &self.waker
    }
}

impl Wake for Inner {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Written to, so that the swap that ends the silence comes after it.
        if !self.is_silent.fetch_or(false, Ordering::AcqRel) {
            self.task.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fullbore_testing::wakes::Wakes;

    use super::*;

    #[test]
    fn it_wakes_its_task_but_while_the_task_is_about_to_look() {
        let wakes = Arc::new(Wakes::default());
        let task = Waker::from(Arc::clone(&wakes));
        let cx = Context::from_waker(&task);
        let mut quiet = Quiet::new(&cx);
        let driven = quiet.waker(&cx).clone();
        driven.wake_by_ref();
        assert_eq!(wakes.count(), 1);
        quiet.silence();
        driven.wake_by_ref();
        assert_eq!(wakes.count(), 1);
        assert!(quiet.waker(&cx).will_wake(&driven));
        driven.wake();
        assert_eq!(wakes.count(), 2);
    }

    #[test]
    fn it_follows_its_owner_to_another_task() {
        let wakes = [(); 2].map(|()| Arc::new(Wakes::default()));
        let tasks = [0, 1].map(|index| Waker::from(Arc::clone(&wakes[index])));
        let mut quiet = Quiet::new(&Context::from_waker(&tasks[0]));
        quiet.silence();
        quiet.waker(&Context::from_waker(&tasks[1])).wake_by_ref();
        assert_eq!(wakes.each_ref().map(|wakes| wakes.count()), [0, 1]);
    }
}
