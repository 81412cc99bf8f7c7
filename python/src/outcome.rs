//! What a completed call has brought: it becomes an object of Python on the thread that takes it from the queue.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;

type Make = dyn for<'py> FnOnce(Python<'py>) -> PyResult<Bound<'py, PyAny>> + Send;

pub(crate) struct Outcome(Box<Make>);

impl Outcome {
    pub(crate) fn nothing() -> Self {
        Self::made_by(|py| Ok(py.None().into_bound(py)))
    }

    pub(crate) fn of<T>(value: T) -> Self
    where
        T: for<'py> IntoPyObject<'py> + Send + 'static,
    {
        Self::made_by(move |py| value.into_bound_py_any(py))
    }

    pub(crate) fn made_by(
        make: impl for<'py> FnOnce(Python<'py>) -> PyResult<Bound<'py, PyAny>> + Send + 'static,
    ) -> Self {
        Self(Box::new(make))
    }

    pub(crate) fn into_value(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        self.0(py)
    }
}
