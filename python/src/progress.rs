//! How far a download is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::prelude::*;

/// The total of a download whose length is unknown.
const UNKNOWN: u64 = u64::MAX;

#[derive(Debug)]
pub(crate) struct Counter {
    received: AtomicU64,
    total: AtomicU64,
}

impl Counter {
    pub(crate) fn begin(&self, received: u64, total: Option<u64>) {
        self.received.store(received, Ordering::Relaxed);
        self.total.store(total.unwrap_or(UNKNOWN), Ordering::Relaxed);
    }

    pub(crate) fn add(&self, bytes: u64) {
        self.received.fetch_add(bytes, Ordering::Relaxed);
    }
}

#[pyclass(frozen, module = "fullbore._native")]
pub(crate) struct Progress {
    counter: Arc<Counter>,
}

#[pymethods]
impl Progress {
    #[new]
    fn new() -> Self {
        let counter = Counter {
            received: AtomicU64::new(0),
            total: AtomicU64::new(UNKNOWN),
        };
        Progress {
            counter: Arc::new(counter),
        }
    }

    /// The bytes that are there, and the length of the whole if it is known.
    fn get(&self) -> (u64, Option<u64>) {
        let total = self.counter.total.load(Ordering::Relaxed);
        let received = self.counter.received.load(Ordering::Relaxed);
        (received, (total != UNKNOWN).then_some(total))
    }
}

impl Progress {
    pub(crate) fn clone_counter(&self) -> Arc<Counter> {
        Arc::clone(&self.counter)
    }
}
