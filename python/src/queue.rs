//! Completions of requests, for one thread or event loop of Python.
//!
//! A request that completes puts its result here, and the first of a batch makes a socket readable. The loop, or a thread in
//! `select`, then takes all of them. So the threads of the runtime need no interpreter, and a thread that waits does so in
//! Python, where signals reach it and the end of the interpreter too.

use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::failure::Failure;
use crate::outcome::Outcome;
use crate::owned::Owned;

#[cfg(unix)]
use std::os::{fd::AsRawFd, unix::net::UnixStream as Socket};

#[cfg(windows)]
use std::{net::TcpStream as Socket, os::windows::io::AsRawSocket};

#[pyclass(frozen, module = "fullbore._native")]
pub(crate) struct Queue {
    inner: Owned<Inner>,
}

struct Inner {
    woken: Socket,
    shared: Arc<Shared>,
}

struct Shared {
    done: Mutex<Vec<Done>>,
    /// Whether the socket is readable, or about to be.
    is_awake: AtomicBool,
    wake: Socket,
    next: AtomicU64,
}

struct Done {
    id: u64,
    result: Result<Outcome, Failure>,
}

/// The id of what belongs to no call: those of calls begin with 1.
const NOBODY: u64 = 0;

/// Takes batches of a call's results before the call completes, so that they become objects of Python early.
#[derive(Clone)]
pub(crate) struct Batches(Arc<Shared>);

impl Batches {
    /// Runs `batch` with the interpreter when the queue is drained next; what it returns is dropped.
    pub(crate) fn put(&self, batch: Outcome) {
        self.0.put(Done {
            id: NOBODY,
            result: Ok(batch),
        });
    }
}

#[pymethods]
impl Queue {
    #[new]
    fn new() -> PyResult<Self> {
        let (wake, woken) = pair()?;
        wake.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        let shared = Shared {
            done: Mutex::default(),
            is_awake: AtomicBool::new(false),
            wake,
            next: AtomicU64::new(1),
        };
        let inner = Inner {
            woken,
            shared: Arc::new(shared),
        };
        Ok(Queue {
            inner: Owned::new(inner),
        })
    }

    /// The socket that is readable when something has completed.
    #[cfg(unix)]
    fn fileno(&self) -> PyResult<i32> {
        Ok(self.inner.get()?.woken.as_raw_fd())
    }

    #[cfg(windows)]
    fn fileno(&self) -> PyResult<u64> {
        Ok(self.inner.get()?.woken.as_raw_socket())
    }

    /// Takes what has completed: a list of `(id, value, failure)`. A failure is what [`Failure::into_value`] says, or an
    /// exception.
    fn drain<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let inner = self.inner.get()?;
        // At most one byte is there for each time that this was called.
        let _ = (&inner.woken).read(&mut [0; 64]);
        inner.shared.is_awake.store(false, Ordering::SeqCst);
        let done = std::mem::take(&mut *inner.shared.lock());
        let list = PyList::empty(py);
        for Done { id, result } in done {
            let value = result.map(|outcome| outcome.into_value(py));
            if id == NOBODY {
                // What failed is missing in the results of its call; those of others are here too.
                drop(value);
                continue;
            }
            let (value, failure) = match value {
                Ok(Ok(value)) => (value, py.None().into_bound(py)),
                Ok(Err(error)) => (
                    py.None().into_bound(py),
                    error.into_value(py).into_bound(py).into_any(),
                ),
                Err(failure) => (py.None().into_bound(py), failure.into_value(py)?.into_any()),
            };
            list.append(PyTuple::new(
                py,
                [id.into_pyobject(py)?.into_any(), value, failure],
            )?)?;
        }
        Ok(list)
    }
}

impl Queue {
    pub(crate) fn batches(&self) -> PyResult<Batches> {
        Ok(Batches(Arc::clone(&self.inner.get()?.shared)))
    }

    /// Runs a future to its end, and puts its result into the queue.
    pub(crate) fn start<F>(&self, runtime: &Handle, future: F) -> PyResult<Call>
    where
        F: Future<Output = Result<Outcome, Failure>> + Send + 'static,
    {
        let shared = Arc::clone(&self.inner.get()?.shared);
        let id = shared.next.fetch_add(1, Ordering::Relaxed);
        let promise = Promise {
            shared,
            id,
            is_kept: false,
        };
        let task = runtime.spawn(async move {
            let mut promise = promise;
            let result = future.await;
            promise.keep(result);
        });
        Ok(Call {
            id,
            task: Owned::new(task.abort_handle()),
        })
    }
}

impl Shared {
    fn put(&self, done: Done) {
        self.lock().push(done);
        if !self.is_awake.swap(true, Ordering::SeqCst) {
            // A full socket is readable.
            let _ = (&self.wake).write(&[1]);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Done>> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A result that is owed. Whatever ends the task, its queue is told.
struct Promise {
    shared: Arc<Shared>,
    id: u64,
    is_kept: bool,
}

impl Promise {
    fn keep(&mut self, result: Result<Outcome, Failure>) {
        self.is_kept = true;
        self.shared.put(Done { id: self.id, result });
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        if !self.is_kept {
            self.keep(Err(Failure::canceled()));
        }
    }
}

/// What was started, until its result is in the queue.
#[pyclass(frozen, module = "fullbore._native")]
pub(crate) struct Call {
    #[pyo3(get)]
    id: u64,
    task: Owned<AbortHandle>,
}

#[pymethods]
impl Call {
    /// Drops what was started: a request's stream is reset.
    fn cancel(&self) {
        // In a forked process there is nothing to cancel.
        if let Ok(task) = self.task.get() {
            task.abort();
        }
    }
}

#[cfg(unix)]
fn pair() -> io::Result<(Socket, Socket)> {
    Socket::pair()
}

/// Windows has no pair of sockets.
#[cfg(windows)]
fn pair() -> io::Result<(Socket, Socket)> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let wake = Socket::connect(listener.local_addr()?)?;
    loop {
        let (woken, from) = listener.accept()?;
        // Another process may have connected first.
        if from == wake.local_addr()? {
            return Ok((wake, woken));
        }
    }
}
