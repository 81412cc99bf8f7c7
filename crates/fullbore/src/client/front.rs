//! The settings of a client for the requests of a [`RequestBuilder`](super::RequestBuilder).

#[cfg(feature = "cookies")]
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;

#[cfg(feature = "cookies")]
use super::cookies::Jar;

/// The settings. `default_headers` and `head_timeout` also hold for [`Client::request`](super::Client::request).
#[derive(Debug, Clone, Default)]
pub(super) struct Front {
    pub(super) default_headers: HeaderMap,
    /// The time until the end of the response's body.
    pub(super) timeout: Option<Duration>,
    /// The time until the head of the response.
    pub(super) head_timeout: Option<Duration>,
    /// The redirects that are followed, if a number is set.
    #[cfg(feature = "redirect")]
    pub(super) max_redirects: Option<u32>,
    /// Whether content codings are left to the caller.
    #[cfg(feature = "__decode")]
    pub(super) keeps_codings: bool,
    #[cfg(feature = "cookies")]
    pub(super) cookies: Option<Arc<Jar>>,
}
