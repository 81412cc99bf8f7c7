//! One upload resource and the requests to it. Called by `resumable`.

use fullbore::Incoming;
use http::header::{HeaderMap, LOCATION};
use http::{Method, Request, Response};
use url::Url;

use crate::exit::{Exit, Failure};
use crate::transfer::client::{Address, shown_url};

use super::resource::{self, Limits};
use super::upload_run::Run;

/// The parts of an upload through what may be a proxy that passes on complete requests only, as nginx does unless told
/// otherwise: what an interrupted part had sent is lost. 128 MiB take 11 s at 100 Mbit/s. The pause between two parts is one
/// round trip: at 1 Gbit/s over 100 ms, 9 % of the time.
const PART: u64 = 128 << 20;

/// An upload resource.
#[derive(Clone)]
pub(super) struct Resource {
    pub(super) url: Url,
    pub(super) shown: String,
    pub(super) fields: HeaderMap,
    pub(super) limits: Limits,
    /// Of an earlier run.
    pub(super) is_found: bool,
    /// What the server has, if the response that named the resource said it. Otherwise HEAD asks for it.
    pub(super) received: Option<u64>,
    /// No 104 response named it: a proxy may hold requests back until they are complete.
    pub(super) in_parts: bool,
}

impl Resource {
    /// The resource that a response from `from`, asked with `fields`, has named. Credentials go to its origin as after a
    /// redirect.
    pub(super) fn new(run: Run<'_>, from: &Url, fields: &HeaderMap, named: &Address, limits: Limits) -> Self {
        let mut fields = resource::fields_of_resource(fields);
        let own = fields.clone();
        run.request_fields.after_redirect(&mut fields, from, named);
        resource::keep_version(&mut fields, &own);
        Self {
            url: named.url.clone(),
            shown: shown_url(named.url.as_str()),
            fields,
            limits,
            is_found: false,
            received: None,
            in_parts: false,
        }
    }

    /// A request to the resource.
    pub(super) fn request<B>(&self, method: Method, more: HeaderMap, body: B) -> Result<Request<B>, Failure> {
        let built = Request::builder()
            .method(method)
            .uri(self.url.as_str())
            .body(body);
        let mut request =
            built.map_err(|error| Failure::new(Exit::BadUrl, format!("{}: {error}", self.shown)))?;
        *request.headers_mut() = self.fields.clone();
        request.headers_mut().extend(more);
        Ok(request)
    }

    /// Follows a redirect that keeps the method. Returns whether there was one.
    pub(super) fn turn(
        &mut self,
        run: Run<'_>,
        response: &Response<Incoming>,
        followed: &mut u32,
    ) -> Result<bool, Failure> {
        let is_redirect = matches!(response.status().as_u16(), 307 | 308);
        if !is_redirect || !response.headers().contains_key(LOCATION) {
            return Ok(false);
        }
        let found = (response.status(), response.headers());
        let next = run.redirects.next(&self.url, &self.shown, found, *followed)?;
        let Some(next) = next else { return Ok(false) };
        *followed += 1;
        let own = self.fields.clone();
        run.request_fields
            .after_redirect(&mut self.fields, &self.url, &next);
        resource::keep_version(&mut self.fields, &own);
        self.shown = shown_url(next.url.as_str());
        self.url = next.url;
        Ok(true)
    }

    /// The part to send next of `rest` bytes, as [`Limits::part`].
    pub(super) fn part(&self, rest: u64) -> Option<(u64, bool)> {
        let mut limits = self.limits;
        if self.in_parts {
            let own = PART.max(limits.min_append.unwrap_or(0));
            limits.max_append = Some(limits.max_append.map_or(own, |most| most.min(own)));
        }
        limits.part(rest)
    }
}
