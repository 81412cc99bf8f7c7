//! A waker that keeps silent about what its own task does.
//!
//! hyper's connection is driven by the task that gives it requests and takes responses from it. Each of these wakes hyper's
//! connection, and so the task would be scheduled once more for what it does at once, or for nothing.

use std::cell::Cell;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

thread_local! {
    /// The address of the waker that is silent on this thread.
    static SILENT: Cell<usize> = const { Cell::new(0) };
}

/// The waker of what a task drives.
pub(super) struct Quiet {
    inner: Arc<Inner>,
    /// Of `inner`.
    waker: Waker,
}

struct Inner {
    task: Waker,
}

impl Quiet {
    /// Wakes the task of this context.
    pub(super) fn new(cx: &Context<'_>) -> Self {
        let task = cx.waker().clone();
        let inner = Arc::new(Inner { task });
        let waker = Waker::from(Arc::clone(&inner));
        Quiet { inner, waker }
    }

    /// The waker to poll with.
    pub(super) fn waker(&mut self, cx: &Context<'_>) -> &Waker {
        if !self.inner.task.will_wake(cx.waker()) {
            *self = Quiet::new(cx);
        }
        &self.waker
    }

    /// Does what would wake the task, which drives the rest in any case. Other threads wake it meanwhile.
    pub(super) fn silently<R>(&self, act: impl FnOnce() -> R) -> R {
        let _silence = Silence(SILENT.replace(self.inner.address()));
        act()
    }
}

/// Ends the silence, also after a panic.
struct Silence(usize);

impl Drop for Silence {
    fn drop(&mut self) {
        SILENT.set(self.0);
    }
}

impl Inner {
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

impl Wake for Inner {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if SILENT.get() != self.address() {
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
    fn it_wakes_its_task_but_for_what_the_task_itself_does() {
        let wakes = Arc::new(Wakes::default());
        let task = Waker::from(Arc::clone(&wakes));
        let cx = Context::from_waker(&task);
        let mut quiet = Quiet::new(&cx);
        let other = Quiet::new(&cx).waker;
        let driven = quiet.waker(&cx).clone();
        driven.wake_by_ref();
        assert_eq!(wakes.count(), 1);
        quiet.silently(|| driven.wake_by_ref());
        assert_eq!(wakes.count(), 1);
        quiet.silently(|| other.wake_by_ref());
        assert_eq!(wakes.count(), 2, "that is another task's");
        quiet.silently(|| std::thread::scope(|scope| drop(scope.spawn(|| driven.wake_by_ref()))));
        assert_eq!(wakes.count(), 3, "that is another thread's");
        driven.wake();
        assert_eq!(wakes.count(), 4, "the silence is over");
    }

    #[test]
    fn it_follows_its_owner_to_another_task() {
        let wakes = [(); 2].map(|()| Arc::new(Wakes::default()));
        let tasks = [0, 1].map(|index| Waker::from(Arc::clone(&wakes[index])));
        let mut quiet = Quiet::new(&Context::from_waker(&tasks[0]));
        quiet.waker(&Context::from_waker(&tasks[1])).wake_by_ref();
        assert_eq!(wakes.each_ref().map(|wakes| wakes.count()), [0, 1]);
    }
}
