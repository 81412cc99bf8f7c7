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
    pub(crate) on_change: Option<Arc<ChangeHook>>,
}

pub(crate) type Hook = dyn Fn(&Failure<'_>) + Send + Sync;
pub(crate) type ChangeHook = dyn Fn(&InstanceChange<'_>) + Send + Sync;

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

    pub(crate) fn report_change(
        &self,
        change: Option<Change>,
        origin: &str,
        error: Option<&(dyn StdError + 'static)>,
    ) {
        if let (Some(hook), Some(change)) = (&self.on_change, change) {
            hook(&InstanceChange {
                origin,
                change,
                error,
            });
        }
    }
}

/// What changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// The instance failed several times in a row, or the check of its health, and gets no requests. Others answer in its place.
    LeftOut,
    /// It answers again.
    Back,
}

/// One of several instances is left out, or answers again: for [`ProxyBuilder::on_instance`].
///
/// [`Display`](fmt::Display) prints the instance, what changed, and why. It is for the operator, not for clients.
///
/// [`ProxyBuilder::on_instance`]: crate::ProxyBuilder::on_instance
#[derive(Debug)]
#[non_exhaustive]
pub struct InstanceChange<'a> {
    /// The URL of the instance, as it was given.
    pub origin: &'a str,
    /// What changed.
    pub change: Change,
    /// Why it is left out. None if its health was checked.
    pub error: Option<&'a (dyn StdError + 'static)>,
}

impl fmt::Display for InstanceChange<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.change, self.error) {
            (Change::Back, _) => write!(f, "{} answers again", self.origin),
            (Change::LeftOut, None) => {
                write!(
                    f,
                    "{} gets no requests: it does not pass the check of its health",
                    self.origin
                )
            }
            (Change::LeftOut, Some(error)) => {
                write!(f, "{} gets no requests until it answers: ", self.origin)?;
                write_causes(f, error)
            }
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
        f.write_str(": ")?;
        write_causes(f, self.error)
    }
}

/// Writes an error and its causes.
fn write_causes(f: &mut fmt::Formatter<'_>, error: &(dyn StdError + 'static)) -> fmt::Result {
    write!(f, "{error}")?;
    let mut cause = error.source();
    while let Some(error) = cause {
        write!(f, ": {error}")?;
        cause = error.source();
    }
    Ok(())
}
