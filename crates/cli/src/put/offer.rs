//! Which servers say that uploads can be resumed, before anything is sent to them (section "Limits" of the draft: `upload-limit`
//! in the response to OPTIONS). Called by `resumable`.
//!
//! Over HTTP/2 the server names the upload resource with 104 while it receives the first request, which costs no round trip. Over
//! HTTP/1.1 many servers send no 104, and many proxies pass none on. There, and where a 104 is missing, the upload begins with an
//! empty request instead, whose final response names the resource. Other servers would store an empty file, so they are asked
//! first. One question serves all uploads of a run to the same origin.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fullbore::Client;
use http::header::HeaderMap;
use http::{Method, Request, Version};
use http_body_util::Empty;
use url::{Origin, Url};

use super::resource::{self, Limits};

/// How long the server may take for its answer. A server that has none gets the file in one request, as without the question.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a request over HTTP/2 goes on without a 104 response until the server is asked. A server sends it as soon as it has
/// the head of the request. What was sent until then is sent again.
const UNNAMED: Duration = Duration::from_secs(1);

/// What is known of the servers of a run.
#[derive(Default)]
pub(super) struct Offers {
    known: Mutex<HashMap<Origin, Known>>,
    /// Held by the upload that asks. Those that need no answer do not wait for it.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Clone, Copy, Default)]
struct Known {
    is_http1: Option<bool>,
    /// A 104 response was missing.
    loses_104: bool,
    /// The answer to OPTIONS.
    offer: Option<Option<Limits>>,
}

impl Offers {
    /// The limits of a server to which an upload begins with an empty request; `None` if it begins with the whole file. `fields`
    /// are those of the upload.
    ///
    /// # Errors
    /// There is no connection.
    pub(super) async fn at_first(
        &self,
        client: &Client,
        url: &Url,
        fields: &HeaderMap,
    ) -> Result<Option<Limits>, fullbore::Error> {
        let known = self.known(url);
        let loses_104 = known.loses_104 || self.is_http1(client, url, fields).await?;
        match loses_104 {
            true => Ok(self.offer(client, url, fields).await),
            false => Ok(None),
        }
    }

    /// Waits as long as a 104 response may take, and then asks the server. Returns its limits if a 104 should have come.
    pub(super) async fn without_104(&self, client: &Client, url: &Url, fields: &HeaderMap) -> Option<Limits> {
        tokio::time::sleep(UNNAMED).await;
        self.after_break(client, url, fields).await
    }

    /// The limits of a server whose 104 is missing, if it speaks the protocol.
    pub(super) async fn after_break(&self, client: &Client, url: &Url, fields: &HeaderMap) -> Option<Limits> {
        let offer = self.offer(client, url, fields).await;
        if offer.is_some() {
            self.learn(url, |known| known.loses_104 = true);
        }
        offer
    }

    fn known(&self, url: &Url) -> Known {
        let all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&url.origin()).copied().unwrap_or_default()
    }

    fn learn(&self, url: &Url, fact: impl FnOnce(&mut Known)) {
        let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        fact(all.entry(url.origin()).or_default());
    }

    /// Whether the origin is reached over HTTP/1.1. In cleartext only a response tells. That of OPTIONS takes no longer than the
    /// server's SETTINGS, which an upload waits for after 65,535 bytes.
    async fn is_http1(
        &self,
        client: &Client,
        url: &Url,
        fields: &HeaderMap,
    ) -> Result<bool, fullbore::Error> {
        if let Some(is_http1) = self.known(url).is_http1 {
            return Ok(is_http1);
        }
        client.connect(url.as_str()).await?;
        if url.scheme() == "http" {
            let _ = self.offer(client, url, fields).await;
            return Ok(self.known(url).is_http1 == Some(true));
        }
        let is_http1 = client.http1_report().is_some() && client.reports().await.is_empty();
        self.learn(url, |known| known.is_http1 = Some(is_http1));
        Ok(is_http1)
    }

    /// The answer to OPTIONS. A server that does not answer in time, or not over HTTP/1.1, is not asked again.
    async fn offer(&self, client: &Client, url: &Url, fields: &HeaderMap) -> Option<Limits> {
        let _asking = self.asking.lock().await;
        let known = self.known(url);
        if let Some(offer) = known.offer {
            return offer;
        }
        let asked = tokio::time::timeout(PATIENCE, ask(client, url, fields)).await;
        let (is_http1, offer) = match asked {
            Ok(Some((version, offer))) => (Some(version < Version::HTTP_2), offer),
            Ok(None) if known.is_http1 != Some(true) => return None,
            Ok(None) | Err(_) => (known.is_http1, None),
        };
        self.learn(url, |known| {
            known.is_http1 = is_http1;
            known.offer = Some(offer);
        });
        offer
    }
}

/// The version of the response to OPTIONS, and its limits; `None` if the request fails.
async fn ask(client: &Client, url: &Url, fields: &HeaderMap) -> Option<(Version, Option<Limits>)> {
    let request = Request::builder().method(Method::OPTIONS).uri(url.as_str());
    let mut request = request.body(Empty::<bytes::Bytes>::new()).ok()?;
    *request.headers_mut() = resource::fields_of_resource(fields);
    let response = client.request_repeatable(request).await.ok()?;
    let limits = Limits::of(response.headers());
    let offer = limits.filter(|_| response.status().is_success());
    Some((response.version(), offer))
}
