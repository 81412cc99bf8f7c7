//! What all requests of a proxy share, and the failures that it reports.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use http::{HeaderValue, StatusCode};
use ipnet::IpNet;

/// What all requests share.
pub(crate) struct Settings {
    pub(crate) https: bool,
    pub(crate) host: OriginHost,
    pub(crate) trusted: Vec<IpNet>,
    pub(crate) on_failure: Option<Arc<Hook>>,
}

pub(crate) type Hook = dyn Fn(&Failure<'_>) + Send + Sync;

/// The `host` that the origin sees.
pub(crate) enum OriginHost {
    OfClient,
    Always(HeaderValue),
}

impl Settings {
    pub(crate) fn report(&self, failure: &Failure<'_>) {
        if let Some(hook) = &self.on_failure {
            hook(failure);
        }
    }
}

/// A request that the origin did not answer, or a response that broke off: for [`ProxyBuilder::on_failure`].
///
/// [`Display`](fmt::Display) prints the origin and the error with its causes. It is for the operator, not for clients.
///
/// [`ProxyBuilder::on_failure`]: crate::ProxyBuilder::on_failure
#[derive(Debug)]
#[non_exhaustive]
pub struct Failure<'a> {
    /// The URL of the instance, as it was given. None if the request was not passed on.
    pub origin: Option<&'a str>,
    /// The status that the client gets. None if the response had begun, so that it is reset.
    pub status: Option<StatusCode>,
    /// Why.
    pub error: &'a (dyn StdError + 'static),
}

impl fmt::Display for Failure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            Some(status) => write!(f, "{}", status.as_u16())?,
            None => f.write_str("the response broke off")?,
        }
        if let Some(origin) = self.origin {
            write!(f, ": {origin}")?;
        }
        write!(f, ": {}", self.error)?;
        let mut cause = self.error.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}
