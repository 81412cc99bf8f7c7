//! The head of a response.

use fullbore::client::Response;
use http::{HeaderMap, Version};
use pyo3::prelude::*;
use pyo3::types::PyList;
use tokio::runtime::Handle;

use crate::fields::pairs;
use crate::reader::Reader;

#[pyclass(frozen, module = "fullbore._native")]
pub(crate) struct Head {
    #[pyo3(get)]
    status: u16,
    /// 9 for HTTP/0.9, 10, 11, 20.
    #[pyo3(get)]
    version: u8,
    #[pyo3(get)]
    url: String,
    pub(crate) headers: HeaderMap,
    body: std::sync::Mutex<Option<Reader>>,
}

#[pymethods]
impl Head {
    /// The fields as pairs of bytes, those of one name one after another.
    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        pairs(py, &self.headers)
    }

    /// The body, once.
    fn take_body(&self) -> Option<Reader> {
        self.body.lock().ok()?.take()
    }
}

impl Head {
    /// Splits a response into its head and its body.
    pub(crate) fn split(response: Response) -> (Self, fullbore::Incoming) {
        let url = response.url().to_string();
        let (parts, body) = response.into_parts();
        let head = Head {
            status: parts.status.as_u16(),
            version: number(parts.version),
            url,
            headers: parts.headers,
            body: std::sync::Mutex::default(),
        };
        (head, body)
    }

    /// A head, and the reader of its body.
    pub(crate) fn with_body(response: Response, runtime: &Handle) -> (Self, Reader) {
        let (head, body) = Self::split(response);
        let reader = Reader::new(body, head.url.clone(), runtime.clone());
        (head, reader)
    }

    pub(crate) fn keeping(mut self, reader: Reader) -> Self {
        self.body = std::sync::Mutex::new(Some(reader));
        self
    }
}

fn number(version: Version) -> u8 {
    match version {
        Version::HTTP_09 => 9,
        Version::HTTP_10 => 10,
        Version::HTTP_11 => 11,
        Version::HTTP_3 => 30,
        _ => 20,
    }
}
