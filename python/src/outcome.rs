//! What a completed call has brought, and the object of Python that it becomes.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::failure::Failure;
use crate::head::Head;

pub(crate) enum Outcome {
    Nothing,
    Flag(bool),
    Text(Option<String>),
    Head(Box<Head>),
    /// Heads and bodies, in the order of their requests.
    Many(Vec<Result<Whole, Failure>>),
    Saved(Saved),
}

/// A response with its whole body.
pub(crate) struct Whole {
    pub(crate) head: Head,
    pub(crate) body: Vec<u8>,
}

/// A file that was downloaded.
pub(crate) struct Saved {
    pub(crate) size: u64,
    /// The bytes that an earlier run had left.
    pub(crate) resumed: u64,
    pub(crate) connections: usize,
    pub(crate) url: String,
}

impl Outcome {
    pub(crate) fn into_value(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        match self {
            Outcome::Nothing => Ok(py.None().into_bound(py)),
            Outcome::Flag(flag) => flag.into_bound_py_any(py),
            Outcome::Text(text) => text.into_bound_py_any(py),
            Outcome::Head(head) => (*head).into_bound_py_any(py),
            Outcome::Many(results) => {
                let list = PyList::empty(py);
                for result in results {
                    list.append(match result {
                        Ok(Whole { head, body }) => (head, PyBytes::new(py, &body)).into_bound_py_any(py)?,
                        Err(failure) => failure.into_value(py)?.into_any(),
                    })?;
                }
                Ok(list.into_any())
            }
            Outcome::Saved(saved) => {
                (saved.size, saved.resumed, saved.connections, saved.url).into_bound_py_any(py)
            }
        }
    }
}
