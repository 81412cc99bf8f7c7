//! The threads that the requests run on. None of them ever touches the interpreter.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use tokio::runtime::{Builder, Handle};

use crate::owned::Owned;

/// The threads of a runtime, unless a number is given: TLS of a few gigabits. More would take turns with the interpreter's.
const MOST_THREADS: usize = 4;

#[pyclass(frozen, module = "fullbore._native")]
pub(crate) struct Runtime {
    inner: Owned<Inner>,
}

struct Inner {
    handle: Handle,
    runtime: Mutex<Option<tokio::runtime::Runtime>>,
}

#[pymethods]
impl Runtime {
    #[new]
    #[pyo3(signature = (threads=None))]
    fn new(threads: Option<usize>) -> PyResult<Self> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads.unwrap_or(cores.min(MOST_THREADS)).max(1))
            .thread_name("fullbore")
            .enable_all()
            .build()?;
        let inner = Inner {
            handle: runtime.handle().clone(),
            runtime: Mutex::new(Some(runtime)),
        };
        Ok(Runtime {
            inner: Owned::new(inner),
        })
    }

    /// Ends all requests, and the threads: those that do not end in this time are left alone.
    fn shutdown(&self, py: Python<'_>, seconds: f64) -> PyResult<()> {
        let inner = self.inner.get()?;
        let runtime = inner
            .runtime
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let limit = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        if let Some(runtime) = runtime {
            py.detach(|| runtime.shutdown_timeout(limit));
        }
        Ok(())
    }
}

impl Runtime {
    pub(crate) fn handle(&self) -> PyResult<&Handle> {
        Ok(&self.inner.get()?.handle)
    }
}
