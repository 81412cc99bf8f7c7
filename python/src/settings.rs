//! The settings of a client. Python has checked their types and ranges.

use std::time::Duration;

use fullbore::client::Proxies;
use fullbore::settings::{HttpVersions, MemoryBudget};
use fullbore::tls::{self, Roots};
use http::HeaderMap;
use pyo3::prelude::*;

use crate::failure::Failure;
use crate::request::{Fields, header_map};

/// Which proxies there are.
#[derive(FromPyObject)]
enum Proxy {
    /// Those of the environment, or none.
    FromEnvironment(bool),
    At(String),
}

/// Which certificates are trusted.
#[derive(FromPyObject)]
enum Verify {
    /// Those of the platform, or any.
    Verified(bool),
    Pem(Vec<u8>),
}

pub(crate) struct Settings {
    headers: HeaderMap,
    connect_timeout: f64,
    max_connections: u32,
    max_redirects: u32,
    decompression: bool,
    cookies: bool,
    versions: HttpVersions,
    /// Whether `http://` begins in HTTP/2.
    has_prior_knowledge: bool,
    verify: Verify,
    certificate: Option<(Vec<u8>, Vec<u8>)>,
    proxy: Proxy,
    memory: u64,
    idle_timeout: f64,
}

/// From a dictionary, with every entry.
impl<'py> FromPyObject<'_, 'py> for Settings {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let headers: Fields = value.get_item("headers")?.extract()?;
        let http1: bool = value.get_item("http1")?.extract()?;
        let http2: bool = value.get_item("http2")?.extract()?;
        Ok(Settings {
            headers: header_map(&headers)?,
            connect_timeout: value.get_item("connect_timeout")?.extract()?,
            max_connections: value.get_item("max_connections")?.extract()?,
            max_redirects: value.get_item("max_redirects")?.extract()?,
            decompression: value.get_item("decompression")?.extract()?,
            cookies: value.get_item("cookies")?.extract()?,
            versions: match (http1, http2) {
                (true, false) => HttpVersions::Http1,
                (false, true) => HttpVersions::Http2,
                _ => HttpVersions::Both,
            },
            has_prior_knowledge: !http1 || value.get_item("http2_prior_knowledge")?.extract::<bool>()?,
            verify: value.get_item("verify")?.extract()?,
            certificate: value.get_item("cert")?.extract()?,
            proxy: value.get_item("proxy")?.extract()?,
            memory: value.get_item("memory")?.extract()?,
            idle_timeout: value.get_item("idle_timeout")?.extract()?,
        })
    }
}

impl Settings {
    pub(crate) fn client(self) -> Result<fullbore::Client, Failure> {
        let roots = match self.verify {
            Verify::Verified(true) => Roots::Platform,
            Verify::Verified(false) => Roots::InsecureAcceptAny,
            Verify::Pem(pem) => Roots::Pem(pem),
        };
        let tls = match self.certificate {
            Some((certificate, key)) => tls::client_config_with_certificate(roots, &certificate, &key),
            None => tls::client_config(roots),
        };
        let mut builder = fullbore::Client::builder()
            .tls_config(tls?.into())
            .default_headers(self.headers)
            .connect_timeout(Duration::try_from_secs_f64(self.connect_timeout).unwrap_or(Duration::MAX))
            .max_connections(self.max_connections)
            // As the program: with losses, requests on one connection take several times as long.
            .spread_requests(self.max_connections > 1)
            .max_redirects(self.max_redirects)
            .decompression(self.decompression)
            .cookie_store(self.cookies)
            .http_versions(self.versions)
            .cleartext_versions(match self.has_prior_knowledge {
                true => self.versions,
                false => HttpVersions::Http1,
            })
            .memory_budget(MemoryBudget::new(self.memory))
            .pool_idle_timeout(Duration::try_from_secs_f64(self.idle_timeout).unwrap_or(Duration::MAX));
        match self.proxy {
            Proxy::FromEnvironment(true) => builder = builder.proxies(Proxies::from_env()?),
            Proxy::FromEnvironment(false) => {}
            Proxy::At(url) => builder = builder.proxies(Proxies::all(&url)?),
        }
        Ok(builder.build()?)
    }
}
