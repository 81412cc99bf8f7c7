//! A client: its settings, and what it starts.

use std::path::PathBuf;
use std::sync::Arc;

use fullbore::Client as Library;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use tokio::runtime::Handle;

use crate::download::{self, Download};
use crate::failure::Failure;
use crate::head::Head;
use crate::limits::Limits;
use crate::many::{self, Many};
use crate::outcome::Outcome;
use crate::outgoing::{self, Feed};
use crate::owned::Owned;
use crate::progress::Progress;
use crate::queue::{Call, Queue};
use crate::request::{Fields, Template};
use crate::runtime::Runtime;
use crate::settings::Settings;

#[pyclass(frozen, module = "fullbore._native")]
pub(crate) struct Client {
    inner: Owned<Inner>,
}

struct Inner {
    runtime: Handle,
    client: Library,
}

/// The body of a request.
#[derive(FromPyObject)]
enum Content<'py> {
    Whole(PyBackedBytes),
    Fed(PyRef<'py, Feed>),
}

#[pymethods]
impl Client {
    #[new]
    fn new(py: Python<'_>, runtime: &Runtime, settings: Settings) -> PyResult<Self> {
        let runtime = runtime.handle()?.clone();
        // The platform's certificates are read from files.
        let client = py.detach(|| settings.client()).map_err(Failure::raised)?;
        let inner = Inner { runtime, client };
        Ok(Client {
            inner: Owned::new(inner),
        })
    }

    /// Sends a request. The call brings a [`Head`]; with `reads_body`, when its body has come.
    #[pyo3(signature = (queue, method, url, headers, body, limits, reads_body, max_redirects=None))]
    #[expect(clippy::too_many_arguments, reason = "they are named in Python")]
    fn send(
        &self,
        queue: &Queue,
        method: &str,
        url: String,
        headers: Fields,
        body: Option<Content<'_>>,
        limits: Limits,
        reads_body: bool,
        max_redirects: Option<u32>,
    ) -> PyResult<Call> {
        let inner = self.inner.get()?;
        let template = Template::new(method, &headers, limits, max_redirects)?;
        let body = match body {
            None => None,
            Some(Content::Whole(bytes)) => Some(outgoing::bytes(bytes).into()),
            Some(Content::Fed(feed)) => Some(feed.body()?),
        };
        let (client, runtime) = (inner.client.clone(), inner.runtime.clone());
        queue.start(&inner.runtime, async move {
            let response = template.send(&client, &url, body).await?;
            let (head, reader) = Head::with_body(response, &runtime);
            if reads_body {
                reader.gather_all(template.limits.read).await;
            }
            Ok(Outcome::of(head.keeping(reader)))
        })
    }

    /// Sends GET requests, and reads their bodies. The call brings them in order.
    #[pyo3(signature = (queue, items, headers, limits, at_once, repeats, stops_at_error, is_lenient=false, max_redirects=None))]
    #[expect(clippy::too_many_arguments, reason = "they are named in Python")]
    fn get_many(
        &self,
        py: Python<'_>,
        queue: &Queue,
        items: Vec<many::Item>,
        headers: Fields,
        limits: Limits,
        at_once: usize,
        repeats: u32,
        stops_at_error: bool,
        is_lenient: bool,
        max_redirects: Option<u32>,
    ) -> PyResult<Call> {
        let inner = self.inner.get()?;
        let many = Many {
            client: inner.client.clone(),
            template: Arc::new(Template::new("GET", &headers, limits, max_redirects)?),
            at_once: at_once.max(1),
            repeats,
            stops_at_error,
            is_lenient,
        };
        let results = many::Results::new(py, items.len())?;
        queue.start(&inner.runtime, many.run(items, results, queue.batches()?))
    }

    /// Downloads a file. The call brings its size, what an earlier run had left, the connections, and the last URL.
    #[pyo3(signature = (queue, url, path, headers, limits, checksum, connections, repeats, progress))]
    #[expect(clippy::too_many_arguments, reason = "they are named in Python")]
    fn download(
        &self,
        queue: &Queue,
        url: String,
        path: String,
        headers: Fields,
        limits: Limits,
        checksum: Option<(String, PyBackedBytes)>,
        connections: Option<usize>,
        repeats: u32,
        progress: &Progress,
    ) -> PyResult<Call> {
        let inner = self.inner.get()?;
        let download = Download {
            client: inner.client.clone(),
            template: Template::new("GET", &headers, limits, None)?,
            url,
            path: PathBuf::from(path),
            checksum: checksum
                .map(|(name, digest)| download::Checksum::new(&name, &digest))
                .transpose()?,
            connections,
            repeats,
            progress: progress.clone_counter(),
        };
        queue.start(&inner.runtime, download.run())
    }

    /// What the connections have waited for, in words.
    fn report(&self, queue: &Queue) -> PyResult<Call> {
        let inner = self.inner.get()?;
        let client = inner.client.clone();
        queue.start(&inner.runtime, async move {
            Ok(Outcome::of(crate::report::of(&client).await))
        })
    }

    /// The connections to the origin of a URL.
    fn connections(&self, url: &str) -> PyResult<usize> {
        Ok(self.inner.get()?.client.connections(url))
    }

    /// Shuts the connections down, and waits for so long.
    fn shutdown(&self, queue: &Queue, limit: f64) -> PyResult<Call> {
        let inner = self.inner.get()?;
        let (client, limit) = (inner.client.clone(), crate::limits::seconds(Some(limit)));
        queue.start(&inner.runtime, async move {
            let _ = tokio::time::timeout(limit.unwrap_or_default(), client.shutdown()).await;
            Ok(Outcome::nothing())
        })
    }
}
