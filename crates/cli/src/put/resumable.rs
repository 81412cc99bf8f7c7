//! One upload that the server may let continue: it asks for an upload resource, and after a break appends the rest to it.
//! Called by `put` and by `many`.
//!
//! | after | the next step |
//! |---|---|
//! | a server over HTTP/1.1 that says that it takes such uploads | an empty request creates the resource; PATCH the whole, in parts |
//! | no 104 for a while over HTTP/2 | the same, if the server says so; otherwise the request goes on |
//! | a break of the first request, without a resource | the same, if the server says so; otherwise the caller repeats the request, or fails |
//! | a break with a resource | HEAD the resource |
//! | HEAD with an offset | PATCH the rest, in parts if the server limits them |
//! | a break of HEAD or PATCH | HEAD again, after a pause |
//! | PATCH with status 409 | HEAD again; twice without progress is a failure |
//! | status 404, 410 or another permanent refusal of the resource | forget it; the caller begins anew or fails |
//! | another length, or a changed file | DELETE the resource |
//!
//! A resumption is free after progress. Otherwise it counts against `--retry`.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fullbore::Incoming;
use http::header::{CONTENT_LENGTH, HeaderMap, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::Empty;
use url::Url;

use crate::exit::{Exit, Failure};
use crate::figures::grouped;
use crate::run::{self, Leftovers};
use crate::transfer::client::Address;
use crate::transfer::rate_limit::Paced;
use crate::transfer::receive::file_job;
use crate::transfer::retry::{Failed, Retries};
use crate::transfer::status::{Asked, check_status};

use super::counted::Counted;
use super::named::{First, Resource, is_of_whole};
use super::resource::{self, Limits, Listener};
use super::time_limit::TimeLimit;
use super::upload_body::FileBody;
use super::upload_run::Run;
use super::upload_state::{Record, UploadState};
use super::withdrawn::Withdrawn;

/// What the server must have received since the last resumption, so that the next one is free. A server that breaks off after
/// a few bytes each time is not asked again without end.
const PROGRESS: u64 = 1 << 20;
/// How long the request that removes a resource may take. The server removes it anyway when it expires.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);
/// What is added to a failure after which the same command resumes.
const KEPT: &str = "; the server keeps what it has received, and the same command resumes";

/// What is said of [`End::Lost`].
pub(super) const LOST: &str =
    "the server has the whole file; its response was lost when the connection broke off";

/// How an upload with a resource ended.
pub(super) enum End {
    /// The response to the upload.
    Answered(Response<Incoming>),
    /// The server has all of it. Its response was lost.
    Lost,
    /// The resource exists no more.
    Gone(Failed),
    Failed(Failed),
}

/// Why the first request was given up.
pub(super) enum Stopped {
    Library(fullbore::Error),
    /// If it can continue, the server takes parts only.
    Failed(Failed),
}

/// One upload.
pub(super) struct Resumption {
    /// The URL of the request, for messages.
    shown: String,
    length: u64,
    resource: Mutex<Option<Resource>>,
    state: Arc<Mutex<Option<UploadState>>>,
    /// How many bytes an earlier run has sent.
    resumed: Mutex<u64>,
    is_complete: AtomicBool,
}

/// The end of one HEAD and of what follows it.
enum Round {
    End(End),
    Broken(Failed),
    /// The server has not told its offset.
    Unknown(Failed),
    /// The server has another offset.
    Conflict,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Resumption {
    /// An upload of this body to this URL, which an earlier run may have begun. `file` is the path, if it has one.
    pub(super) async fn new(
        run: Run<'_>,
        method: &Method,
        address: &Address,
        fields: &HeaderMap,
        file: Option<&Path>,
        body: &FileBody,
        leftovers: &Arc<Leftovers>,
    ) -> Self {
        let new = Self {
            shown: address.url.to_string(),
            length: body.length(),
            resource: Mutex::default(),
            state: Arc::default(),
            resumed: Mutex::new(0),
            is_complete: AtomicBool::new(false),
        };
        let Some(file) = file.map(Path::to_owned) else {
            return new;
        };
        let (request, leftovers) = (format!("{method} {}", address.url), Arc::clone(leftovers));
        let found = file_job(move || {
            let mut state = UploadState::of(&request, &file, &leftovers);
            let record = state.as_mut().and_then(UploadState::load);
            Ok((state, record))
        });
        let (state, record) = found.await.unwrap_or_default();
        *locked(&new.state) = state;
        let Some(record) = record else { return new };
        let location = HeaderValue::from_str(&record.resource).ok();
        let named = location.and_then(|location| run.redirects.named(&address.url, &location));
        let Some(named) = named else {
            new.forget().await;
            return new;
        };
        let resource = Resource::new(run, &address.url, fields, &named, Limits::default());
        if record.file != *body.version() {
            // The resource has another version of the file.
            new.cancel(run, &resource).await;
            return new;
        }
        *locked(&new.resource) = Some(Resource {
            is_found: true,
            in_parts: record.in_parts,
            ..resource
        });
        new
    }

    /// Whether there is a resource to continue.
    pub(super) fn has_resource(&self) -> bool {
        locked(&self.resource).is_some()
    }

    /// Whether the server has said that it has the whole upload. A body that it stopped reading before does not matter then.
    pub(super) fn is_complete(&self) -> bool {
        self.is_complete.load(Ordering::Relaxed)
    }

    /// How many bytes of the file an earlier run has sent.
    pub(super) fn resumed(&self) -> u64 {
        *locked(&self.resumed)
    }

    /// Sends the request that creates the upload.
    ///
    /// # Errors
    /// There is no response, or the request was given up.
    pub(super) async fn create<B>(
        &self,
        run: Run<'_>,
        url: &Url,
        mut request: Request<B>,
        body: &FileBody,
    ) -> Result<Response<Incoming>, Stopped>
    where
        B: Body<Data = bytes::Bytes> + Clone + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        // What an earlier attempt was given belongs to another request.
        *locked(&self.resource) = None;
        *locked(&self.resumed) = 0;
        let (method, fields) = (request.method().clone(), request.headers().clone());
        let first = First {
            url,
            method: &method,
            fields: &fields,
        };
        let offer = run.offers.at_first(run.client, url, &fields).await;
        if let Some(limits) = offer.map_err(Stopped::Library)? {
            match self.create_empty(run, first, limits, body).await {
                Ok(begun) => return Err(Stopped::Failed(begun)),
                Err(Some(answer)) => return Ok(answer),
                Err(None) => {}
            }
        }
        let listener = Listener::of(&mut request);
        let mut answered = Box::pin(run.client.request_repeatable(request));
        let mut unnamed = Box::pin(run.offers.without_104(run.client, url, &fields));
        let mut is_in_doubt = true;
        let (resource, refused) = loop {
            let answered = tokio::select! {
                biased;
                () = listener.news() => None,
                answered = &mut answered => Some(answered),
                offer = &mut unnamed, if is_in_doubt && !self.has_resource() => {
                    is_in_doubt = false;
                    if let Some(limits) = offer.filter(|_| listener.named().is_none()) {
                        if let Ok(begun) = self.create_empty(run, first, limits, body).await {
                            return Err(Stopped::Failed(begun));
                        }
                    }
                    continue;
                }
            };
            let taken = self.take_named(run, url, &fields, &listener, body).await;
            match (answered, taken) {
                (None, Ok(())) => {}
                (None, Err(refused)) => break refused,
                (Some(Err(error)), _) => {
                    let begun = self.begin_again(run, first, body, &error).await;
                    return Err(begun.map_or(Stopped::Library(error), Stopped::Failed));
                }
                (Some(Ok(response)), _) => {
                    self.judge(&response).await;
                    break match self.limits_without_resource(&response) {
                        None => return Ok(response),
                        Some(limits) => match self.create_part(run, first, limits, body, false).await {
                            Ok(resource) => (resource, self.too_long(limits)),
                            Err(_) => return Ok(response),
                        },
                    };
                }
            }
        };
        // The resource is asked for nothing while a request to it is under way.
        drop(answered);
        if !self.may_continue(&refused) {
            self.cancel(run, &resource).await;
        }
        Err(Stopped::Failed(refused))
    }

    /// Takes over the resource that the server has named.
    ///
    /// # Errors
    /// The resource, and why the request is not to be finished.
    async fn take_named(
        &self,
        run: Run<'_>,
        url: &Url,
        fields: &HeaderMap,
        listener: &Listener,
        body: &FileBody,
    ) -> Result<(), (Resource, Failed)> {
        let Some(found) = listener.named() else {
            return Ok(());
        };
        let Some(named) = run.redirects.named(url, &found.location) else {
            return Ok(());
        };
        let resource = Resource::new(run, url, fields, &named, found.limits);
        if found.is_contradicted {
            let text = format!(
                "{}: the server named two upload resources for one request; this is an error of the server",
                self.shown
            );
            let failed = Failed::permanent(Failure::new(Exit::Protocol, text));
            return Err((resource, failed));
        }
        if self.has_resource() {
            return Ok(());
        }
        if let Err(failure) = self.check_size(&resource) {
            return Err((resource, Failed::permanent(failure)));
        }
        *locked(&self.resource) = Some(resource.clone());
        self.keep(&resource, body).await;
        match resource.limits.max_append {
            Some(most) if most < self.length => {
                let failed = self.too_long(resource.limits);
                Err((resource, failed))
            }
            _ => Ok(()),
        }
    }

    /// The failure of a request that is longer than the limits allow.
    fn too_long(&self, limits: Limits) -> Failed {
        let text = format!(
            "{}: the server takes at most {} bytes in one request",
            self.shown,
            grouped(limits.max_append.unwrap_or(0))
        );
        // The status that this server would answer with.
        Failed::permanent(Failure::new(Exit::Status, text)).with_status(413)
    }

    /// The limits of a server that refused the length of the first request before it named a resource.
    fn limits_without_resource(&self, response: &Response<Incoming>) -> Option<Limits> {
        let limits = Limits::of(response.headers())?;
        let takes_parts = limits.max_append.is_some_and(|most| most < self.length);
        let takes_whole = limits.max_size.is_none_or(|most| most >= self.length);
        let is_refused = response.status() == StatusCode::PAYLOAD_TOO_LARGE && !self.has_resource();
        (is_refused && takes_parts && takes_whole).then_some(limits)
    }

    /// Creates the resource with an empty request. Returns why the first request is over: nothing of the file was sent.
    ///
    /// # Errors
    /// The response that the whole file would get too; `None` if the server takes it in one request only.
    async fn create_empty(
        &self,
        run: Run<'_>,
        first: First<'_>,
        limits: Limits,
        body: &FileBody,
    ) -> Result<Failed, Option<Response<Incoming>>> {
        if limits.max_size.is_some_and(|most| most < self.length) {
            // The server answers the whole file with a message of its own.
            return Err(None);
        }
        match self.create_part(run, first, limits, body, true).await {
            Ok(_) => {
                let text = format!("{}: the upload was created, and nothing was sent", self.shown);
                Ok(Failed::permanent(Failure::new(Exit::Closed, text)))
            }
            Err(answer) => Err(answer.filter(|answer| is_of_whole(answer.status()))),
        }
    }

    /// After a break of the first request before the server had named a resource, creates one with an empty request. `None` if
    /// the server does not take such uploads, or if it may have processed a request that must not be repeated.
    async fn begin_again(
        &self,
        run: Run<'_>,
        first: First<'_>,
        body: &FileBody,
        error: &fullbore::Error,
    ) -> Option<Failed> {
        let failed = Failed::of(&self.shown, error);
        let is_break = failed.transient && !failed.unprocessed && !self.has_resource();
        if !is_break || !first.method.is_idempotent() || body.fault().is_some() {
            return None;
        }
        tokio::time::sleep(Retries::new(1).next(&failed)?).await;
        let limits = run
            .offers
            .after_break(run.client, first.url, first.fields)
            .await?;
        let begun = self.create_empty(run, first, limits, body).await;
        if run.tells && begun.is_ok() {
            let text = format!(
                "{}: the upload broke off before the server had named it; sending it again from the start",
                self.shown
            );
            run.progress.aside(|| run::complain(&text));
        }
        begun.ok()
    }

    /// Creates the resource as [`Resource::create`], and keeps it.
    async fn create_part(
        &self,
        run: Run<'_>,
        first: First<'_>,
        limits: Limits,
        body: &FileBody,
        in_parts: bool,
    ) -> Result<Resource, Option<Response<Incoming>>> {
        let resource = Resource::create(run, first, limits, body, in_parts).await?;
        *locked(&self.resource) = Some(resource.clone());
        self.keep(&resource, body).await;
        Ok(resource)
    }

    /// A file that is larger than the server accepts is not sent.
    fn check_size(&self, resource: &Resource) -> Result<(), Failure> {
        match resource.limits.max_size {
            Some(most) if most < self.length => {
                let text = format!(
                    "{}: the file has {} bytes, and the server accepts {} at most (max-size); nothing can be resumed",
                    self.shown,
                    grouped(self.length),
                    grouped(most)
                );
                Err(Failure::new(Exit::Status, text))
            }
            _ => Ok(()),
        }
    }

    /// What the final response to the first request says of the resource. Only an error of the server that is not about the
    /// complete upload, or a status that asks to repeat the request, leaves something to continue.
    async fn judge(&self, response: &Response<Incoming>) {
        if let (Some(limits), Some(resource)) = (Limits::of(response.headers()), &mut *locked(&self.resource))
        {
            resource.limits = limits;
        }
        let status = response.status();
        let is_complete = resource::completeness(response.headers()) == Some(true);
        let asks_to_repeat = matches!(status.as_u16(), 408 | 429);
        let may_continue = (status.is_server_error() || asks_to_repeat) && !is_complete;
        if !may_continue && !status.is_success() && !self.may_divide(response) {
            self.forget().await;
        }
    }

    /// Whether the server refused the length of one request, and takes parts.
    fn may_divide(&self, response: &Response<Incoming>) -> bool {
        let most = locked(&self.resource)
            .as_ref()
            .and_then(|resource| resource.limits.max_append);
        response.status() == StatusCode::PAYLOAD_TOO_LARGE && most.is_some_and(|most| most < self.length)
    }

    /// Whether the upload can continue after this failure of the first request.
    pub(super) fn may_continue(&self, failed: &Failed) -> bool {
        let is_refused_length = failed.status == Some(413);
        let resource = locked(&self.resource);
        resource.as_ref().is_some_and(|resource| {
            // It was created without the file.
            let is_new = resource.in_parts;
            failed.transient || is_refused_length || is_new
        })
    }

    /// Continues until the server has the file. `cause` is the break before.
    pub(super) async fn finish(
        &self,
        run: Run<'_>,
        limit: &mut TimeLimit,
        body: &FileBody,
        mut cause: Option<Failed>,
    ) -> End {
        let mut is_known = true;
        let mut left = run.retries;
        let mut pauses = Retries::new(u32::MAX);
        // What the server had at the last resumption.
        let mut last = None;
        // What it had when it last refused its own offset.
        let mut conflict = None;
        loop {
            if let Some(failed) = cause.take().filter(|failed| failed.transient) {
                // Neither `--max-time` nor a server that does not tell its offset is progress.
                let counts = failed.is_late || !is_known;
                let allowed = !counts || left > 0;
                left = left.saturating_sub(u32::from(counts));
                match pauses.next(&failed).filter(|_| allowed) {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => return End::Failed(self.with_advice(failed)),
                }
            }
            let Some(resource) = locked(&self.resource).clone() else {
                return End::Failed(Failed::permanent(Failure::new(Exit::Other, self.shown.clone())));
            };
            *limit = TimeLimit::new(run.max_time);
            let round = self.round(run, resource, body, &mut last, &mut left, &mut pauses);
            let round = limit.hold(&self.shown, round).await.unwrap_or_else(Round::Broken);
            match round {
                Round::End(end) => {
                    if let (End::Answered(_), Err(failure)) = (&end, body.check()) {
                        // What was sent last may be of another version than what was sent first.
                        self.forget().await;
                        return End::Failed(Failed::permanent(failure));
                    }
                    if matches!(end, End::Lost) && run.tells && !run.is_single {
                        let text = format!("{}: {LOST}", self.shown);
                        run.progress.aside(|| run::complain(&text));
                    }
                    if matches!(&end, End::Answered(response) if response.status().is_redirection()) {
                        // The file may have to be sent elsewhere, as another upload.
                        self.forget().await;
                    }
                    let is_complete = matches!(end, End::Answered(_) | End::Lost);
                    self.is_complete.store(is_complete, Ordering::Relaxed);
                    return end;
                }
                Round::Broken(failed) if failed.transient => {
                    (cause, is_known) = (Some(failed), true);
                }
                Round::Unknown(failed) if failed.transient => (cause, is_known) = (Some(failed), false),
                Round::Broken(failed) | Round::Unknown(failed) => {
                    return End::Failed(self.with_advice(failed));
                }
                // The next HEAD is free.
                Round::Conflict if conflict.is_none_or(|offset| last >= Some(offset + PROGRESS)) => {
                    conflict = last.take();
                }
                Round::Conflict => {
                    let text = format!(
                        "{}: the server gives one offset of the upload and refuses it; this is an error of the server",
                        self.shown
                    );
                    return End::Failed(
                        self.with_advice(Failed::permanent(Failure::new(Exit::Protocol, text))),
                    );
                }
            }
        }
    }

    /// Asks for the offset, and sends the rest.
    async fn round(
        &self,
        run: Run<'_>,
        mut resource: Resource,
        body: &FileBody,
        last: &mut Option<u64>,
        left: &mut u32,
        pauses: &mut Retries,
    ) -> Round {
        if let Some(offset) = resource.received.take() {
            *last = Some(offset);
            *locked(&self.resource) = Some(resource.clone());
            return self.append(run, resource, body, offset).await;
        }
        let head = match self.ask_offset(run, &mut resource).await {
            Ok(response) => response,
            Err(round) => return round,
        };
        let fields = head.headers();
        if let Some(limits) = Limits::of(fields) {
            resource.limits = limits;
        }
        let is_complete = resource::completeness(fields) == Some(true);
        let has_length = resource::length(fields).is_none_or(|length| length == self.length);
        let Some(offset) = resource::offset(fields) else {
            let text = "the upload resource has no upload-offset; this is an error of the server";
            return self.gone(text).await;
        };
        if is_complete && has_length && offset == self.length {
            self.count_resumed(&resource, offset);
            if run.is_single {
                run.progress.continue_upload(offset);
            }
            return Round::End(End::Lost);
        }
        if offset > self.length || !has_length {
            self.cancel(run, &resource).await;
            return self
                .gone("the server has an upload of another length there")
                .await;
        }
        if is_complete {
            return self
                .gone("the server has completed an upload of another length")
                .await;
        }
        if let Err(failure) = body.check() {
            self.cancel(run, &resource).await;
            return Round::End(End::Failed(Failed::permanent(failure)));
        }
        if let Err(failure) = self.check_size(&resource) {
            self.cancel(run, &resource).await;
            return Round::End(End::Failed(Failed::permanent(failure)));
        }
        let progressed =
            last.is_none_or(|last| offset >= last.saturating_add(PROGRESS.min(self.length - last)));
        match progressed {
            true => *pauses = Retries::new(u32::MAX),
            false if *left == 0 => {
                let text = format!(
                    "{}: the upload broke off again at {} of {} bytes without progress; --retry allows more attempts",
                    self.shown,
                    grouped(offset),
                    grouped(self.length)
                );
                return Round::Broken(Failed::permanent(Failure::new(Exit::Closed, text)));
            }
            false => *left -= 1,
        }
        *last = Some(last.map_or(offset, |last| last.max(offset)));
        self.count_resumed(&resource, offset);
        if run.tells && offset > 0 {
            let text = format!(
                "{}: resuming at {} of {} bytes",
                self.shown,
                grouped(offset),
                grouped(self.length)
            );
            run.progress.aside(|| run::complain(&text));
        }
        *locked(&self.resource) = Some(Resource {
            is_found: false,
            ..resource.clone()
        });
        if resource.limits.max_age.is_some() {
            // It is counted from this response on.
            self.keep(&resource, body).await;
        }
        self.append(run, resource, body, offset).await
    }

    fn count_resumed(&self, resource: &Resource, offset: u64) {
        if resource.is_found {
            *locked(&self.resumed) = offset;
        }
    }

    /// HEAD (section "Offset Retrieval").
    async fn ask_offset(&self, run: Run<'_>, resource: &mut Resource) -> Result<Response<Incoming>, Round> {
        let mut followed = 0;
        loop {
            let request = resource.request(Method::HEAD, HeaderMap::new(), Empty::<bytes::Bytes>::new());
            let request = request.map_err(|failure| Round::Unknown(Failed::permanent(failure)))?;
            let answered = run.client.request_repeatable(request).await;
            let response = answered.map_err(|error| Round::Unknown(Failed::of(&self.shown, &error)))?;
            if response.status().is_success() {
                return Ok(response);
            }
            if !resource
                .turn(run, &response, &mut followed)
                .map_err(|failure| Round::Unknown(Failed::permanent(failure)))?
            {
                return Err(match self.refused(&resource.fields, response).await {
                    Round::Broken(failed) => Round::Unknown(failed),
                    other => other,
                });
            }
        }
    }

    /// PATCH (section "Upload Append").
    async fn append(&self, run: Run<'_>, mut resource: Resource, body: &FileBody, mut offset: u64) -> Round {
        let mut followed = 0;
        let mut is_divided = false;
        loop {
            let Some((length, completes)) = resource.part(self.length - offset) else {
                self.cancel(run, &resource).await;
                let text = format!(
                    "{}: the server's limits allow no part of the upload (max-append-size is 0, or below min-append-size); this \
                     is an error of the server",
                    self.shown
                );
                return Round::End(End::Failed(Failed::permanent(Failure::new(Exit::Protocol, text))));
            };
            let part = body.part(offset..offset + length);
            let mut fields = HeaderMap::new();
            resource::append(&mut fields, offset, completes);
            fields.insert(CONTENT_LENGTH, HeaderValue::from(length));
            let counted = Counted::new(part, (!run.is_single).then_some(run.progress));
            let (content, withdrawal) = Withdrawn::new(Paced::new(counted, run.rate.cloned()));
            let request = resource.request(Method::PATCH, fields, content);
            let mut request = match request {
                Ok(request) => request,
                Err(failure) => return Round::Broken(Failed::permanent(failure)),
            };
            if run.is_single {
                run.progress.continue_upload(offset);
                request.extensions_mut().insert(run.progress.sent());
            }
            let response = match run.client.request_repeatable(request).await {
                Ok(response) => response,
                Err(error) => {
                    return Round::Broken(match body.fault() {
                        Some(fault) => Failed::permanent(fault),
                        None => Failed::of(&self.shown, &error),
                    });
                }
            };
            let status = response.status();
            let limits = Limits::of(response.headers());
            let is_smaller = |limits: &Limits| limits.max_append.is_some_and(|most| most < length);
            let completeness = resource::completeness(response.headers());
            if completeness.unwrap_or(status.is_success() && completes) {
                return Round::End(End::Answered(response));
            }
            withdrawal.end(status.is_success() && !completes).await;
            if status.is_success() && completes {
                return Round::Conflict;
            }
            if status.is_success() {
                offset += length;
                resource.limits = limits.unwrap_or(resource.limits);
                continue;
            }
            match (status.as_u16(), limits) {
                (409, _) if resource::offset(response.headers()).is_some() => return Round::Conflict,
                (413, Some(limits)) if is_smaller(&limits) && !is_divided => {
                    is_divided = true;
                    resource.limits = limits;
                    continue;
                }
                _ => {}
            }
            match resource.turn(run, &response, &mut followed) {
                Ok(true) => {}
                Ok(false) => return self.refused(&resource.fields, response).await,
                Err(failure) => return Round::Broken(Failed::permanent(failure)),
            }
        }
    }

    /// A status of the resource that is neither success nor a redirect.
    async fn refused(&self, fields: &HeaderMap, response: Response<Incoming>) -> Round {
        let status = response.status();
        let failure = match check_status(&self.shown, &response, Asked::upload(fields)) {
            Err(failure) => failure,
            Ok(()) => Failure::new(
                Exit::Status,
                format!(
                    "{}: the upload resource answers with status {}; this is an error of the server",
                    self.shown,
                    status.as_u16()
                ),
            ),
        };
        let mut failed = Failed::by_status(failure, &response).with_body(response).await;
        // Locked: an earlier request has not ended for the server.
        failed.transient |= status == StatusCode::LOCKED;
        // With other credentials, a later run resumes.
        let is_unauthorized = matches!(status.as_u16(), 401 | 407);
        if failed.transient || status.is_server_error() || is_unauthorized {
            return Round::Broken(failed);
        }
        self.forget().await;
        // The whole can be sent again.
        failed.transient = true;
        Round::End(End::Gone(failed))
    }

    async fn gone(&self, why: &str) -> Round {
        self.forget().await;
        let text = format!("{}: the upload cannot be resumed: {why}", self.shown);
        Round::End(End::Gone(Failed::temporary(Failure::new(Exit::Protocol, text))))
    }

    fn with_advice(&self, mut failed: Failed) -> Failed {
        let is_kept = locked(&self.state).as_ref().is_some_and(UploadState::is_kept);
        if is_kept {
            failed.failure.message.push_str(KEPT);
        }
        failed
    }

    /// Keeps the resource for a later run.
    async fn keep(&self, resource: &Resource, body: &FileBody) {
        let record = Record::new(
            resource.url.to_string(),
            body.version().clone(),
            resource.limits.max_age,
        );
        let record = record.in_parts(resource.in_parts);
        self.with_state(move |state| state.save(&record)).await;
    }

    /// The upload is complete, or its resource exists no more.
    pub(super) async fn forget(&self) {
        *locked(&self.resource) = None;
        self.with_state(UploadState::remove).await;
    }

    async fn with_state(&self, job: impl FnOnce(&mut UploadState) + Send + 'static) {
        let state = Arc::clone(&self.state);
        let done = file_job(move || {
            if let Some(state) = &mut *locked(&state) {
                job(state);
            }
            Ok(())
        });
        // A record that cannot be written is no failure of the upload.
        let _ = done.await;
    }

    /// DELETE (section "Upload Cancellation").
    async fn cancel(&self, run: Run<'_>, resource: &Resource) {
        self.forget().await;
        let request = resource.request(Method::DELETE, HeaderMap::new(), Empty::<bytes::Bytes>::new());
        if let Ok(request) = request {
            let _ = tokio::time::timeout(CANCEL_TIMEOUT, run.client.request(request)).await;
        }
    }
}
