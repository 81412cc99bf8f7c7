//! Fields of a message as Python takes them.

use http::HeaderMap;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

/// Pairs of bytes, those of one name one after another.
pub(crate) fn pairs<'py>(py: Python<'py>, headers: &HeaderMap) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for (name, value) in headers {
        let pair = [
            PyBytes::new(py, name.as_str().as_bytes()),
            PyBytes::new(py, value.as_bytes()),
        ];
        list.append(PyTuple::new(py, pair)?)?;
    }
    Ok(list)
}
