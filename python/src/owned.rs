//! What must not be touched in a process that was forked: values whose locks a thread may hold that does not exist there.

use std::mem;
use std::process;

use pyo3::PyResult;
use pyo3::exceptions::PyRuntimeError;

/// A value of one process. In another one it can neither be used nor dropped.
pub(crate) struct Owned<T> {
    value: Option<T>,
    process: u32,
}

impl<T> Owned<T> {
    pub(crate) fn new(value: T) -> Self {
        Owned {
            value: Some(value),
            process: process::id(),
        }
    }

    /// # Errors
    /// The process was forked since the value was made.
    pub(crate) fn get(&self) -> PyResult<&T> {
        match &self.value {
            Some(value) if self.process == process::id() => Ok(value),
            _ => Err(PyRuntimeError::new_err(
                "this object of fullbore was made before a fork; make it anew in this process",
            )),
        }
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if self.process != process::id() {
            mem::forget(self.value.take());
        }
    }
}
