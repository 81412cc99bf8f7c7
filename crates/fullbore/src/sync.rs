//! The synchronisation types of the mailbox and the cells. `tests/wakes.rs` replaces them with loom's.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
pub(crate) use std::sync::{Mutex, MutexGuard};

pub(crate) use atomic_waker::AtomicWaker;
pub(crate) use crossbeam_queue::SegQueue;
