//! What handles and drivers share state by. The mailbox and the cells take it from here, so that `tests/wakes.rs` can put
//! loom's in its place.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
pub(crate) use std::sync::{Mutex, MutexGuard};

pub(crate) use atomic_waker::AtomicWaker;
pub(crate) use crossbeam_queue::SegQueue;
