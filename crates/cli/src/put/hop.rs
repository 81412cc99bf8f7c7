//! One request of an upload, and what becomes of it after a redirect. Called by `put`.

use http::header::{CONTENT_LENGTH, EXPECT, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, StatusCode};
use url::Url;

use crate::exit::{Exit, Failure};

use super::upload_body::{Sent, UploadSource};

/// The time of a file's modification, in seconds since 1970: a field of ownCloud and Nextcloud, which rclone sends too.
pub(super) static MODIFIED: HeaderName = HeaderName::from_static("x-oc-mtime");

/// A request on its way along redirects.
pub(super) struct Hop {
    pub(super) url: Url,
    /// The URL for messages: the user's is shown whole, a server's is not.
    pub(super) shown: String,
    pub(super) method: Method,
    pub(super) fields: HeaderMap,
    /// `None` for a request without one.
    pub(super) body: Option<UploadSource>,
    /// Whether the body was sent and cannot be sent again.
    pub(super) is_spent: bool,
}

impl Hop {
    /// The request without its body.
    ///
    /// # Errors
    /// The URL is invalid.
    pub(super) fn head(&self, sent: &Sent) -> Result<Request<()>, Failure> {
        let mut request = Request::builder()
            .method(self.method.clone())
            .uri(self.url.as_str())
            .body(())
            .map_err(|error| Failure::new(Exit::BadUrl, format!("{}: {error}", self.shown)))?;
        *request.headers_mut() = self.fields.clone();
        if let (Some(length), true) = (sent.length(), self.body.is_some()) {
            request
                .headers_mut()
                .insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        let second = sent
            .modified()
            .filter(|_| self.method == Method::PUT && self.body.is_some());
        if let Some(second) = second {
            let fields = request.headers_mut();
            fields.entry(&MODIFIED).or_insert(HeaderValue::from(second));
        }
        Ok(request)
    }

    /// The method after a redirect, as curl and browsers have it: 303 asks for the result of the upload, and POST becomes
    /// GET after 301 and 302 too (RFC 9110 section 15.4).
    pub(super) fn turn(&mut self, status: StatusCode) {
        let to_get = match status.as_u16() {
            303 => self.method != Method::HEAD,
            301 | 302 => self.method == Method::POST,
            _ => false,
        };
        if to_get {
            self.method = Method::GET;
            self.body = None;
            self.is_spent = false;
            // They are about the upload and what it replaces, and not about its result.
            let of_upload = |name: &&HeaderName| {
                let text = name.as_str();
                text.starts_with("content-") || text.starts_with("if-") || *name == EXPECT
            };
            let names: Vec<_> = self.fields.keys().filter(of_upload).cloned().collect();
            for name in names {
                self.fields.remove(name);
            }
        }
    }
}
