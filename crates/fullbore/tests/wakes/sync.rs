//! Loom's counterparts of the types in `src/sync.rs`.
//!
//! Loom treats SeqCst accesses as AcqRel, and so reports orders that SeqCst forbids. Here a SeqCst access is a
//! read-modify-write, which sees the one before it. What remains are the interleavings, which is what SeqCst means. Weaker
//! accesses are passed on as they are. A load that is a read-modify-write also publishes what came before it: a weaker access
//! beside it may seem sound where it is not.

use std::collections::VecDeque;
use std::sync::LockResult;
use std::task::Waker;

use loom::sync::atomic as inner;
pub(crate) use loom::sync::atomic::Ordering;
pub(crate) use loom::sync::{Mutex, MutexGuard};

macro_rules! atomic {
    ($name:ident, $value:ty, $read:expr) => {
        #[derive(Debug)]
        pub(crate) struct $name(inner::$name);

        impl $name {
            pub(crate) fn new(value: $value) -> Self {
                $name(inner::$name::new(value))
            }

            pub(crate) fn load(&self, ordering: Ordering) -> $value {
                match ordering {
                    Ordering::SeqCst => $read(&self.0, Ordering::AcqRel),
                    weaker => self.0.load(weaker),
                }
            }

            pub(crate) fn store(&self, value: $value, ordering: Ordering) {
                match ordering {
                    Ordering::SeqCst => drop(self.0.swap(value, Ordering::AcqRel)),
                    weaker => self.0.store(value, weaker),
                }
            }

            pub(crate) fn swap(&self, value: $value, ordering: Ordering) -> $value {
                self.0.swap(value, ordering)
            }

            pub(crate) fn get_mut(&mut self) -> &mut $value {
                unreachable!("no model has a cell used again")
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new(<$value>::default())
            }
        }
    };
}

macro_rules! number {
    ($name:ident, $value:ty) => {
        atomic!($name, $value, |inner: &inner::$name, ordering| inner
            .fetch_add(0, ordering));

        impl $name {
            pub(crate) fn fetch_add(&self, value: $value, ordering: Ordering) -> $value {
                self.0.fetch_add(value, ordering)
            }

            pub(crate) fn fetch_sub(&self, value: $value, ordering: Ordering) -> $value {
                self.0.fetch_sub(value, ordering)
            }
        }
    };
}

atomic!(AtomicBool, bool, |inner: &inner::AtomicBool, ordering| inner
    .fetch_or(false, ordering));
number!(AtomicU64, u64);
number!(AtomicUsize, usize);

/// `atomic_waker::AtomicWaker`.
#[derive(Debug, Default)]
pub(crate) struct AtomicWaker(loom::future::AtomicWaker);

impl AtomicWaker {
    pub(crate) fn register(&self, waker: &Waker) {
        self.0.register_by_ref(waker);
    }

    pub(crate) fn wake(&self) {
        self.0.wake();
    }
}

/// `crossbeam_queue::SegQueue`: an item synchronises the thread that pushed it with the one that pops it. `is_empty` reads two
/// counters and synchronises nothing.
pub(crate) struct SegQueue<T> {
    items: Mutex<VecDeque<T>>,
    pushed: AtomicUsize,
    popped: AtomicUsize,
}

impl<T> Default for SegQueue<T> {
    fn default() -> Self {
        SegQueue {
            items: Mutex::new(VecDeque::new()),
            pushed: AtomicUsize::default(),
            popped: AtomicUsize::default(),
        }
    }
}

impl<T> SegQueue<T> {
    pub(crate) fn push(&self, item: T) {
        let mut items = unpoisoned(self.items.lock());
        items.push_back(item);
        self.pushed.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn pop(&self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let mut items = unpoisoned(self.items.lock());
        let item = items.pop_front()?;
        self.popped.fetch_add(1, Ordering::SeqCst);
        Some(item)
    }

    pub(crate) fn is_empty(&self) -> bool {
        let popped = self.popped.load(Ordering::SeqCst);
        popped == self.pushed.load(Ordering::SeqCst)
    }
}

fn unpoisoned<T>(result: LockResult<T>) -> T {
    result.unwrap_or_else(std::sync::PoisonError::into_inner)
}
