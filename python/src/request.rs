//! Requests, from what Python gives.

use fullbore::Client;
use fullbore::client::{Body, RequestBuilder, Response, SentBytes};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::failure::Failure;
use crate::limits::Limits;

/// Names and values of fields.
pub(crate) type Fields = Vec<(PyBackedBytes, PyBackedBytes)>;

/// What all requests of a call have.
#[derive(Clone)]
pub(crate) struct Template {
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    pub(crate) limits: Limits,
    /// The redirects that are followed, if they are others than those of the client.
    pub(crate) max_redirects: Option<u32>,
}

impl Template {
    pub(crate) fn new(
        method: &str,
        headers: &Fields,
        limits: Limits,
        max_redirects: Option<u32>,
    ) -> PyResult<Self> {
        Ok(Template {
            method: Method::from_bytes(method.as_bytes())
                .map_err(|_| PyValueError::new_err(format!("method: {method:?} is no method of HTTP")))?,
            headers: header_map(headers)?,
            limits,
            max_redirects,
        })
    }

    pub(crate) fn request(&self, client: &Client, url: &str, body: Option<Body>) -> RequestBuilder {
        let mut request = client.request_to(self.method.clone(), url);
        if !self.headers.is_empty() {
            request = request.headers(self.headers.clone());
        }
        if let Some(body) = body {
            request = request.body(body);
        }
        if let Some(limit) = self.limits.total {
            request = request.timeout(limit);
        }
        if let Some(redirects) = self.max_redirects {
            request = request.max_redirects(redirects);
        }
        request
    }

    /// Sends the request within its limits on time.
    pub(crate) async fn send(
        &self,
        client: &Client,
        url: &str,
        body: Option<Body>,
    ) -> Result<Response, Failure> {
        let sent = SentBytes::new();
        // In a box, which is gone when the response is here: the future of this function would reserve its memory twice.
        let mut request = {
            let request = self.request(client, url, body);
            Box::pin(request.extension(sent.clone()).send())
        };
        if !self.limits.watches() {
            return Ok(request.await?);
        }
        self.limits.watch(client, request.as_mut(), &sent, url).await
    }
}

/// The fields of a request.
///
/// # Errors
/// `ValueError` for a name or value that cannot be sent.
pub(crate) fn header_map(fields: &Fields) -> PyResult<HeaderMap> {
    let mut headers = HeaderMap::with_capacity(fields.len());
    for (name, value) in fields {
        let name = HeaderName::from_bytes(name).map_err(|_| {
            let shown = name.escape_ascii();
            PyValueError::new_err(format!("headers: \"{shown}\" is no name of a field"))
        })?;
        let mut checked = HeaderValue::from_bytes(value).map_err(|_| {
            PyValueError::new_err(format!("headers: the value of {name} has a control character"))
        })?;
        checked.set_sensitive(name == http::header::AUTHORIZATION || name == http::header::COOKIE);
        headers
            .try_append(name, checked)
            .map_err(|_| PyValueError::new_err("headers: there are too many fields"))?;
    }
    Ok(headers)
}
