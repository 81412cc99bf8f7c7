//! One upload resource and the requests to it. Called by `resumable`.

use fullbore::Incoming;
use http::header::{HeaderMap, LOCATION};
use http::{Method, Request, Response, StatusCode};
use url::Url;

use crate::exit::{Exit, Failure};
use crate::transfer::client::{Address, shown_url};
use crate::transfer::rate_limit::Paced;

use super::resource::{self, Limits};
use super::upload_body::FileBody;
use super::upload_run::Run;

/// The parts of an upload through what may be a proxy that passes on complete requests only, as nginx does unless told
/// otherwise: what an interrupted part had sent is lost. 128 MiB take 11 s at 100 Mbit/s. The pause between two parts is one
/// round trip: at 1 Gbit/s over 100 ms, 9 % of the time.
const PART: u64 = 128 << 20;

/// The request that creates an upload, without its body.
#[derive(Clone, Copy)]
pub(super) struct First<'a> {
    pub(super) url: &'a Url,
    pub(super) method: &'a Method,
    pub(super) fields: &'a HeaderMap,
}

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

    /// Creates a resource with a part of the file, which is empty unless the server wants more (section "Careful Upload
    /// Creation").
    ///
    /// # Errors
    /// The response, if there is one, names no resource.
    pub(super) async fn create(
        run: Run<'_>,
        first: First<'_>,
        limits: Limits,
        body: &FileBody,
        in_parts: bool,
    ) -> Result<Self, Option<Response<Incoming>>> {
        let least = limits.min_append.unwrap_or(0);
        if limits.max_append.is_some_and(|most| most < least) || least > body.length() {
            return Err(None);
        }
        let part = body.part(0..least);
        let request = Request::builder().method(first.method).uri(first.url.as_str());
        let request = request.body(Paced::new(part, run.rate.cloned()));
        let mut request = request.map_err(|_| None)?;
        *request.headers_mut() = first.fields.clone();
        resource::ask_for_part(request.headers_mut(), least);
        let response = run.client.request(request).await.map_err(|_| None)?;
        let location = response
            .headers()
            .get(LOCATION)
            .filter(|_| response.status().is_success());
        let named = location.and_then(|location| run.redirects.named(first.url, location));
        let Some(named) = named else {
            return Err(Some(response));
        };
        let limits = Limits::of(response.headers()).unwrap_or(limits);
        let mut resource = Resource::new(run, first.url, first.fields, &named, limits);
        resource.received = resource::offset(response.headers());
        resource.in_parts = in_parts;
        Ok(resource)
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

/// Whether a status is about the upload as such, and not about how it began.
pub(super) fn is_of_whole(status: StatusCode) -> bool {
    status.is_redirection()
        || matches!(
            status.as_u16(),
            401 | 403 | 404 | 407 | 409 | 410 | 412 | 413 | 415 | 429 | 507
        )
}
