//! Resumable uploads: draft-ietf-httpbis-resumable-upload-12.
//!
//! A PUT or POST with `upload-complete` gets an upload resource, whose reference is sent ahead of the response with 104 (Upload
//! Resumption Supported). It is the path of the file with the upload's token as its query, so that routers, proxies and access
//! rules treat both alike. HEAD tells how much was received, PATCH appends, DELETE cancels. Each of them ends the request before
//! it, whose connection may be dead without the server knowing.
//!
//! A request's body is stored in a task of its own: what arrived before a connection broke is kept. Called by `service`;
//! `unfinished` has the uploads between their requests.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use fullbore::server::Informational;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderMap, LOCATION};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Response, StatusCode, Uri};
use http_body::Body;
use tokio::runtime::Handle;

use crate::body_length::{BodyLength, next_frame};
use crate::cache::Cache;
use crate::file_body::FileResponse;
use crate::log::LogUser;
use crate::origin;
use crate::peer::Peer;
use crate::refusal::{self, Refusal, bad_path, busy, failure, not_stored};
use crate::resolve::{Target, encode};
use crate::respond;
use crate::store::{Kept, ModifiedSecond};
use crate::unfinished::{Entry, Record, Token, Turn, Unfinished};
use crate::upload_limits::UploadLimits;
use crate::uploads::{self, Order, SENT_AT_ONCE, Store, may_begin};
use crate::writer::Writer;

static UPLOAD_COMPLETE: HeaderName = HeaderName::from_static("upload-complete");
static UPLOAD_OFFSET: HeaderName = HeaderName::from_static("upload-offset");
static UPLOAD_LENGTH: HeaderName = HeaderName::from_static("upload-length");
static UPLOAD_LIMIT: HeaderName = HeaderName::from_static("upload-limit");
static ACCEPT_PATCH: HeaderName = HeaderName::from_static("accept-patch");

/// The version of the draft that a client implements. Clients need it in the response with 104.
static INTEROP_VERSION: HeaderName = HeaderName::from_static("upload-draft-interop-version");

/// The first version with the media type of appended content and the fields as they are now.
const FIRST_VERSION: u64 = 6;

/// The media type of appended content.
const PARTIAL_UPLOAD: &str = "application/partial-upload";

const YES: HeaderValue = HeaderValue::from_static("?1");
const NO: HeaderValue = HeaderValue::from_static("?0");

/// The query of an upload resource, before the token.
const QUERY: &str = "upload-resource=";

/// The methods of an upload resource.
const ALLOW: &str = "DELETE, HEAD, OPTIONS, PATCH";

/// The largest integer of a structured field (RFC 9651 section 3.3.1).
const LARGEST_INTEGER: u64 = 999_999_999_999_999;

/// The client is told of its progress after so many more bytes, or this share of the upload: a request gets few such responses.
const TELL_EVERY: u64 = 16 << 20;
const TELLS: u64 = 32;

/// The preconditions of an upload that is kept, in bytes.
const MOST_PRECONDITIONS: usize = 4 << 10;

const INCONSISTENT_LENGTH: &str = "inconsistent-upload-length";
const COMPLETED: &str = "completed-upload";

/// What a request asks for that begins or continues a resumable upload.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    /// Its content ends the upload.
    is_last: bool,
    /// The length of the upload, if it has the field.
    length: Option<u64>,
}

impl Asked {
    /// `None` if the request is of no resumable upload.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Asked> {
        let is_last = match item(headers, &UPLOAD_COMPLETE)? {
            "?1" => true,
            "?0" => false,
            _ => return None,
        };
        Some(Asked {
            is_last,
            length: integer(headers, &UPLOAD_LENGTH),
        })
    }

    /// The length of the upload as far as the request says it, with what was known before.
    ///
    /// # Errors
    /// It says two lengths.
    fn length(
        self,
        offset: u64,
        announced: Option<u64>,
        known: Option<u64>,
    ) -> Result<Option<u64>, FileResponse> {
        let by_content = announced
            .filter(|_| self.is_last)
            .map(|announced| offset.saturating_add(announced));
        let mut all = [self.length, by_content, known].into_iter().flatten();
        let first = all.next();
        match all.all(|length| Some(length) == first) {
            true => Ok(first),
            false => Err(inconsistent(
                "the request and those before it tell different lengths",
            )),
        }
    }
}

/// What uploads are resumed with.
#[derive(Clone, Copy)]
pub(crate) struct Means<'a> {
    pub(crate) store: Store<'a>,
    pub(crate) unfinished: &'a Arc<Unfinished>,
    pub(crate) peer: Option<Peer>,
}

/// Whether a query is that of an upload resource.
pub fn is_upload_resource(query: &str) -> bool {
    query.starts_with(QUERY)
}

/// The token of an upload resource; `None` for other targets. It may be anything.
pub(crate) fn token(uri: &Uri) -> Option<&str> {
    uri.query()?.strip_prefix(QUERY)
}

/// Adds to the response to OPTIONS that uploads can be resumed (section 4.1.4).
pub(crate) fn offered(response: FileResponse, largest: u64) -> FileResponse {
    let response = respond::with(
        response,
        ACCEPT_PATCH.clone(),
        Some(HeaderValue::from_static(PARTIAL_UPLOAD)),
    );
    respond::with(response, UPLOAD_LIMIT.clone(), limit(largest, None))
}

/// Stores the content of the first request of an upload. The upload can be resumed if that is of use, and if there are not too many.
pub(crate) async fn create<B>(means: Means<'_>, head: &Parts, asked: Asked, body: B) -> FileResponse
where
    B: Body<Data = Bytes> + Send + 'static,
{
    // Of the request whose handler is being polled now.
    let interim = Informational::current();
    let created = begin(means, head, asked, interim).await;
    match created {
        Ok(Created::Resumable(transfer)) => transfer.run(body).await,
        Ok(Created::Plain(order, length)) => {
            let stored = uploads::store_order(means.store, &head.headers, order, length, body).await;
            stored.unwrap_or_else(Refusal::into_response)
        }
        Err(response) => response,
    }
}

enum Created {
    Resumable(Box<Transfer>),
    Plain(Order, BodyLength),
}

async fn begin(
    means: Means<'_>,
    head: &Parts,
    asked: Asked,
    interim: Option<Informational>,
) -> Result<Created, FileResponse> {
    let (store, largest) = (means.store, means.store.settings.max_upload_bytes);
    let order = Order::of(store, head, means.peer).map_err(Refusal::into_response)?;
    let content = BodyLength::new(largest, &head.headers).map_err(|refusal| too_large(refusal, largest))?;
    let length = asked.length(0, content.announced, None)?;
    if length.is_some_and(|length| length > largest) {
        return Err(too_large(crate::body_length::too_large(largest), largest));
    }
    let version = integer(&head.headers, &INTEROP_VERSION);
    let is_known = version.is_none_or(|version| version >= FIRST_VERSION);
    let is_small = content.announced.is_some_and(|bytes| bytes <= SENT_AT_ONCE);
    // A client that receives no reference has nothing to resume with.
    let is_of_use = !asked.is_last || (interim.is_some() && is_known && !is_small);
    let preconditions = match is_of_use {
        true => preconditions(&head.headers),
        false => None,
    };
    let Some(preconditions) = preconditions else {
        return match asked.is_last {
            true => Ok(Created::Plain(order, content)),
            // What is a part must not be stored as the whole.
            false => Err(respond::text(
                StatusCode::BAD_REQUEST,
                &format!(
                    "the preconditions of an upload in parts are ASCII and have at most {MOST_PRECONDITIONS} bytes; send the whole in one \
                     request, or fewer entity tags"
                ),
            )),
        };
    };
    if store.limits.is_full(means.peer) {
        return Err(busy().into_response());
    }
    let mut record = Record::new(
        order.destination.names().map(str::to_owned).collect(),
        head.method.to_string(),
        length,
    );
    record.preconditions = preconditions;
    record.modified = order.modified.map(ModifiedSecond::seconds);
    record.owner = owner(head);
    record.address = means.peer.map(Peer::address);
    let check = order.check();
    let (limits, unfinished) = (Arc::clone(store.limits), Arc::clone(means.unfinished));
    let (to, replace) = (Arc::clone(&order.destination), order.replace);
    let bytes = length.or(content.announced).unwrap_or_default();
    let began = means.job(move || {
        may_begin(&limits, &to, bytes, replace, check)?;
        let nearest = to.nearest().map_err(|error| refusal::io_failure(&error))?;
        // An upload that cannot be kept is stored as any other.
        let entry = unfinished.begin(record, &nearest.directory, &to.name);
        let entry = entry.unwrap_or_default();
        let kept = entry.as_ref().map(|entry| unfinished.part(&entry.token));
        Ok::<_, Refusal>(entry.zip(kept.and_then(Result::ok)))
    });
    let Some((entry, kept)) = began.await?.map_err(Refusal::into_response)? else {
        return match asked.is_last {
            true => Ok(Created::Plain(order, content)),
            false => Err(respond::text(
                StatusCode::SERVICE_UNAVAILABLE,
                "the server cannot keep this upload in parts now; send the whole in one request, or try again later",
            )),
        };
    };
    let location = location(&order, &entry.token);
    if let Some(interim) = &interim {
        let mut response = interim_response();
        let headers = response.headers_mut();
        headers.insert(LOCATION, location.clone());
        headers.extend(limit(largest, Some(&entry)).map(|limit| (UPLOAD_LIMIT.clone(), limit)));
        if let Some(version) = version {
            headers.insert(INTEROP_VERSION.clone(), HeaderValue::from(version));
        }
        // It fails for no status of this range.
        let _ = interim.send(response);
    }
    let turn = entry.turn().await;
    Ok(Created::Resumable(Box::new(Transfer {
        storage: means.storage(),
        order,
        entry,
        turn,
        kept,
        content,
        is_last: asked.is_last,
        interim,
        created: Some(location),
    })))
}

/// Answers a request to an upload resource.
pub(crate) async fn answer<B>(means: Means<'_>, head: &Parts, token: &str, body: B) -> FileResponse
where
    B: Body<Data = Bytes> + Send + 'static,
{
    let interim = Informational::current();
    let answered = match head.method {
        Method::HEAD => tell(means, head, token).await,
        Method::DELETE => cancel(means, head, token).await,
        Method::PATCH => match resume(means, head, token, interim).await {
            Ok(transfer) => Ok(transfer.run(body).await),
            Err(response) => Err(response),
        },
        Method::OPTIONS => Ok(offered(
            respond::options(ALLOW),
            means.store.settings.max_upload_bytes,
        )),
        _ => Ok(respond::method_not_allowed(ALLOW)),
    };
    answered.unwrap_or_else(|response| response)
}

/// HEAD: how much was received (section 4.3).
async fn tell(means: Means<'_>, head: &Parts, token: &str) -> Result<FileResponse, FileResponse> {
    let (_, entry, turn) = means.find(head, token).await?;
    let record = &turn.held.record;
    let offset = match record.complete {
        Some(length) => length,
        None => {
            let (unfinished, token) = (Arc::clone(means.unfinished), entry.token.clone());
            let told = means.job(move || unfinished.offset(&token)).await?;
            told.map_err(|error| lost(&error))?
        }
    };
    let response = respond::bare(StatusCode::NO_CONTENT);
    let is_complete = if record.complete.is_some() { YES } else { NO };
    let largest = means.store.settings.max_upload_bytes;
    let mut response = respond::with(response, UPLOAD_LIMIT.clone(), limit(largest, Some(&entry)));
    let headers = response.headers_mut();
    headers.insert(UPLOAD_OFFSET.clone(), HeaderValue::from(offset));
    headers.insert(UPLOAD_COMPLETE.clone(), is_complete);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let length = record.length.or(record.complete);
    Ok(respond::with(
        response,
        UPLOAD_LENGTH.clone(),
        length.map(HeaderValue::from),
    ))
}

/// DELETE (section 4.5).
async fn cancel(means: Means<'_>, head: &Parts, token: &str) -> Result<FileResponse, FileResponse> {
    let (_, entry, mut turn) = means.find(head, token).await?;
    let unfinished = Arc::clone(means.unfinished);
    // Both or neither, if the handler is dropped now.
    let removed = means.job(move || {
        turn.held.is_gone = true;
        unfinished.remove(&entry);
    });
    removed.await?;
    Ok(respond::bare(StatusCode::NO_CONTENT))
}

/// PATCH: what appends to the upload (section 4.4).
async fn resume(
    means: Means<'_>,
    head: &Parts,
    token: &str,
    interim: Option<Informational>,
) -> Result<Box<Transfer>, FileResponse> {
    if !origin::media_type(head).eq_ignore_ascii_case(PARTIAL_UPLOAD.as_bytes()) {
        let response = respond::text(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "what is appended to an upload has the content-type application/partial-upload",
        );
        let accepted = HeaderValue::from_static(PARTIAL_UPLOAD);
        return Err(respond::with(response, ACCEPT_PATCH.clone(), Some(accepted)));
    }
    let bad = |line| respond::text(StatusCode::BAD_REQUEST, line);
    let asked =
        Asked::of(&head.headers).ok_or_else(|| bad("upload-complete is missing, or neither ?0 nor ?1"))?;
    let stated = integer(&head.headers, &UPLOAD_OFFSET)
        .ok_or_else(|| bad("upload-offset is missing, or no number of bytes"))?;
    let (store, largest) = (means.store, means.store.settings.max_upload_bytes);
    let content = BodyLength::new(largest, &head.headers).map_err(|refusal| too_large(refusal, largest))?;
    let (target, entry, mut turn) = means.find(head, token).await?;
    if turn.held.record.complete.is_some() {
        return Err(match content.announced {
            Some(0) => problem(StatusCode::BAD_REQUEST, COMPLETED, "the upload is complete", ""),
            _ => inconsistent("the upload is complete: nothing can be appended"),
        });
    }
    let (unfinished, named) = (Arc::clone(means.unfinished), entry.token.clone());
    let kept = means.job(move || unfinished.part(&named)).await?;
    let kept = kept.map_err(|error| lost(&error))?;
    if stated != kept.offset {
        return Err(mismatch(kept.offset, stated));
    }
    let length = asked.length(stated, content.announced, turn.held.record.length)?;
    if length.is_some_and(|length| length < stated) {
        return Err(inconsistent("the upload already has more bytes than this length"));
    }
    if length.is_some_and(|length| length > largest) {
        return Err(too_large(crate::body_length::too_large(largest), largest));
    }
    if length != turn.held.record.length {
        turn.held.record.length = length;
        let (unfinished, named) = (Arc::clone(means.unfinished), entry.token.clone());
        let record = turn.held.record.clone();
        let saved = means.job(move || unfinished.save(&named, &record)).await?;
        saved.map_err(|error| refusal::io_failure(&error).into_response())?;
    }
    let order = order_of(store, target, &turn.held.record, means.peer)?;
    Ok(Box::new(Transfer {
        storage: means.storage(),
        order,
        entry,
        turn,
        kept,
        content,
        is_last: asked.is_last,
        interim,
        created: None,
    }))
}

impl Means<'_> {
    /// The upload of this token and path, and the turn of this request.
    ///
    /// # Errors
    /// There is none that this user may continue.
    async fn find(&self, head: &Parts, token: &str) -> Result<(Target, Arc<Entry>, Turn), FileResponse> {
        let target = Target::parse(head.uri.path()).map_err(|error| bad_path(error).into_response())?;
        let token = Token::parse(token).ok_or_else(unknown)?;
        let unfinished = Arc::clone(self.unfinished);
        // Requests take turns as they arrive: the job of a later one may be done before that of an earlier one.
        let known = unfinished.known(&token);
        let turn = match &known {
            Some(known) => Some(known.turn().await),
            None => None,
        };
        let held = known.clone();
        let found = self.job(move || unfinished.find(&token, held.as_ref())).await?;
        let entry = found.ok_or_else(unknown)?;
        let is_known = known.is_some_and(|known| Arc::ptr_eq(&known, &entry));
        let turn = match turn.filter(|_| is_known) {
            Some(turn) => turn,
            None => entry.turn().await,
        };
        let record = &turn.held.record;
        let is_of_this = record.owner == owner(head)
            && record.names == self.store.folder.below(target.names())
            && !target.is_directory();
        match is_of_this && !turn.held.is_gone {
            true => Ok((target, entry, turn)),
            false => Err(unknown()),
        }
    }

    /// The same for a task of its own.
    fn storage(&self) -> Storage {
        Storage {
            cache: Arc::clone(self.store.cache),
            limits: Arc::clone(self.store.limits),
            unfinished: Arc::clone(self.unfinished),
            peer: self.peer,
            largest: self.store.settings.max_upload_bytes,
        }
    }

    /// Runs a job that blocks.
    async fn job<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, FileResponse> {
        let job = self
            .store
            .limits
            .jobs()
            .begin(&Handle::current(), self.peer, work);
        job.await.map_err(|_| not_stored().into_response())
    }
}

/// What stores the content of a request.
struct Storage {
    cache: Arc<Cache>,
    limits: Arc<UploadLimits>,
    unfinished: Arc<Unfinished>,
    peer: Option<Peer>,
    /// The largest upload, in bytes.
    largest: u64,
}

/// The content of one request on its way to the part of its upload.
struct Transfer {
    storage: Storage,
    order: Order,
    entry: Arc<Entry>,
    turn: Turn,
    kept: Kept,
    content: BodyLength,
    /// The upload ends with this content.
    is_last: bool,
    interim: Option<Informational>,
    /// The reference to the upload resource, if this request created it.
    created: Option<HeaderValue>,
}

/// Why a request's content was not received to its end.
enum Cut {
    /// Another request continues the upload.
    Taken,
    Refused(Refusal),
    /// The upload is longer than its client said, or than is allowed.
    TooLong,
}

impl Transfer {
    /// Stores the content in a task of its own, which goes on when the handler of the request is dropped.
    async fn run<B>(self: Box<Self>, body: B) -> FileResponse
    where
        B: Body<Data = Bytes> + Send + 'static,
    {
        let task = tokio::spawn(async move {
            let mut body = Box::pin(body);
            let response = self.store(body.as_mut()).await;
            // Dropping the body before there is a response would reset the stream.
            (response, Held(body))
        });
        match task.await {
            Ok((response, _)) => response,
            Err(_) => not_stored().into_response(),
        }
    }

    async fn store<B>(mut self, body: Pin<&mut B>) -> FileResponse
    where
        B: Body<Data = Bytes>,
    {
        let (limits, to) = (
            Arc::clone(&self.storage.limits),
            Arc::clone(&self.order.destination),
        );
        let mut writer = Writer::resuming(limits, to, self.kept.clone());
        writer.set_modified(
            self.turn
                .held
                .record
                .modified
                .and_then(ModifiedSecond::from_seconds),
        );
        let received = self.receive(&mut writer, body).await;
        self.entry.touch();
        let cut = match received {
            Ok(()) if self.is_last => return self.publish(writer).await,
            Ok(()) => match writer.keep().await {
                Ok(_) => return self.accepted(),
                Err(error) => return failure(&error).into_response(),
            },
            Err(cut) => cut,
        };
        // What cannot be written now was not received.
        let _ = writer.keep().await;
        match cut {
            Cut::Taken => respond::text(StatusCode::CONFLICT, "another request continues this upload"),
            Cut::Refused(refusal) => refusal.into_response(),
            Cut::TooLong => {
                self.remove().await;
                match self.turn.held.record.length {
                    Some(_) => inconsistent("the upload is longer than its length; it was removed"),
                    None => too_large(
                        crate::body_length::too_large(self.storage.largest),
                        self.storage.largest,
                    ),
                }
            }
        }
    }

    async fn receive<B>(&mut self, writer: &mut Writer, mut body: Pin<&mut B>) -> Result<(), Cut>
    where
        B: Body<Data = Bytes>,
    {
        let failed = |error| Cut::Refused(failure(&error));
        let length = self.turn.held.record.length;
        let most = length.unwrap_or(self.storage.largest);
        let step = TELL_EVERY.max(length.unwrap_or_default() / TELLS);
        let mut tell_at = self.kept.offset.saturating_add(step);
        loop {
            let next = unless(self.turn.taken(), next_frame(body.as_mut()));
            let Some(arrived) = writer.wait(next).await.map_err(failed)? else {
                return Err(Cut::Taken);
            };
            let Some(frame) = arrived else { break };
            // One request may take longer than an upload is kept without any.
            self.entry.touch();
            let data = self.content.data(frame).map_err(|refusal| match refusal.status {
                StatusCode::PAYLOAD_TOO_LARGE => Cut::TooLong,
                _ => Cut::Refused(refusal),
            })?;
            if self.kept.offset.saturating_add(self.content.count) > most {
                return Err(Cut::TooLong);
            }
            if let Some(data) = data {
                writer.push(data).await.map_err(failed)?;
            }
            let offset = self.kept.offset + writer.written();
            if let Some(interim) = self.interim.as_ref().filter(|_| offset >= tell_at) {
                tell_at = offset.saturating_add(step);
                let mut response = interim_response();
                response
                    .headers_mut()
                    .insert(UPLOAD_OFFSET.clone(), HeaderValue::from(offset));
                let _ = interim.send(response);
            }
        }
        self.content.end().map_err(Cut::Refused)
    }

    /// The content was appended, and there is more to come.
    fn accepted(self) -> FileResponse {
        let mut response = match &self.created {
            Some(_) => respond::bare(StatusCode::CREATED),
            None => respond::bare(StatusCode::NO_CONTENT),
        };
        let offset = self.kept.offset.saturating_add(self.content.count);
        let headers = response.headers_mut();
        headers.insert(UPLOAD_COMPLETE.clone(), NO);
        headers.insert(UPLOAD_OFFSET.clone(), HeaderValue::from(offset));
        let response = respond::with(response, LOCATION, self.created);
        respond::with(
            response,
            UPLOAD_LIMIT.clone(),
            limit(self.storage.largest, Some(&self.entry)),
        )
    }

    /// The upload has all its bytes.
    async fn publish(mut self, writer: Writer) -> FileResponse {
        let length = self.kept.offset.saturating_add(self.content.count);
        if self.turn.held.record.length.is_some_and(|known| known != length) {
            let _ = writer.keep().await;
            return inconsistent("the upload is shorter than its length");
        }
        let (published, ends) = match self.order.publish(&self.storage.cache, writer, length).await {
            Ok(response) => {
                self.turn.held.record.complete = Some(length);
                let record = self.turn.held.record.clone();
                let (unfinished, entry) = (Arc::clone(&self.storage.unfinished), Arc::clone(&self.entry));
                self.job(move || unfinished.complete(&entry, &record)).await;
                (response, true)
            }
            // The same would come of another attempt.
            Err(refusal) if refusal.status.is_client_error() => {
                self.remove().await;
                (refusal.into_response(), true)
            }
            Err(refusal) => (refusal.into_response(), false),
        };
        respond::with(published, UPLOAD_COMPLETE.clone(), ends.then_some(YES))
    }

    async fn remove(&mut self) {
        self.turn.held.is_gone = true;
        let (unfinished, entry) = (Arc::clone(&self.storage.unfinished), Arc::clone(&self.entry));
        self.job(move || unfinished.remove(&entry)).await;
    }

    async fn job(&self, work: impl FnOnce() + Send + 'static) {
        let job = self
            .storage
            .limits
            .jobs()
            .begin(&Handle::current(), self.storage.peer, work);
        // The entry expires if it fails.
        let _ = job.await;
    }
}

/// A body that is only dropped.
struct Held<B>(#[allow(dead_code, reason = "it is held until the response is there")] Pin<Box<B>>);

/// What `next` yields, unless `end` is ready before.
async fn unless<T>(end: impl Future<Output = ()>, next: impl Future<Output = T>) -> Option<T> {
    let (mut end, mut next) = (pin!(end), pin!(next));
    poll_fn(|cx| match end.as_mut().poll(cx) {
        Poll::Ready(()) => Poll::Ready(None),
        Poll::Pending => next.as_mut().poll(cx).map(Some),
    })
    .await
}

/// The order of the request that began an upload.
fn order_of(
    store: Store<'_>,
    target: Target,
    record: &Record,
    peer: Option<Peer>,
) -> Result<Order, FileResponse> {
    let mut headers = HeaderMap::new();
    for (name, value) in &record.preconditions {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            headers.append(name, value);
        }
    }
    let method = Method::try_from(record.method.as_str()).unwrap_or(Method::PUT);
    let (name, folders) = record.names.split_last().ok_or_else(unknown)?;
    Order::again(store, target, (folders, name), (method, headers), peer).map_err(Refusal::into_response)
}

/// The fields of a request with its preconditions; `None` if they are too long to be kept, or no text.
fn preconditions(headers: &HeaderMap) -> Option<Vec<(String, String)>> {
    let mut bytes = 0;
    let conditional = headers
        .iter()
        .filter(|(name, _)| name.as_str().starts_with("if-"));
    let kept: Option<Vec<_>> = conditional
        .map(|(name, value)| {
            bytes += name.as_str().len() + value.len();
            Some((name.to_string(), value.to_str().ok()?.to_owned()))
        })
        .collect();
    kept.filter(|_| bytes <= MOST_PRECONDITIONS)
}

/// The user who sent a request, if its server knows one.
fn owner(head: &Parts) -> Option<String> {
    head.extensions.get().map(|LogUser(user)| user.to_string())
}

/// The upload resource, relative to the path of the request, which a router may have shortened.
fn location(order: &Order, token: &Token) -> HeaderValue {
    let reference = format!("./{}?{QUERY}{}", encode(&order.destination.name), token.as_str());
    // All of it is ASCII without control characters.
    HeaderValue::try_from(reference).unwrap_or(NO)
}

fn interim_response() -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(104).unwrap_or(StatusCode::PROCESSING);
    response
}

/// The limits of an upload, or of all (section 4.1.4).
fn limit(largest: u64, entry: Option<&Entry>) -> Option<HeaderValue> {
    let mut limits = format!("max-size={}", largest.min(LARGEST_INTEGER));
    if let Some(age) = entry.and_then(Entry::remaining) {
        limits += &format!(", max-age={}", age.as_secs());
    }
    HeaderValue::try_from(limits).ok()
}

/// The value of a structured item without its parameters. A field that is repeated is no item.
fn item<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().filter(|_| values.next().is_none())?;
    let text = value.to_str().ok()?;
    Some(text.split(';').next().unwrap_or_default().trim_matches(' '))
}

/// A non-negative integer of a structured field.
fn integer(headers: &HeaderMap, name: &HeaderName) -> Option<u64> {
    let digits = item(headers, name)?;
    let is_integer = (1..=15).contains(&digits.len()) && digits.bytes().all(|octet| octet.is_ascii_digit());
    is_integer.then(|| digits.parse().ok())?
}

fn unknown() -> FileResponse {
    respond::text(
        StatusCode::NOT_FOUND,
        "there is no such upload: it is complete, cancelled, or too old; send the whole again",
    )
}

/// The response when the part cannot be read.
fn lost(error: &io::Error) -> FileResponse {
    match error.kind() {
        io::ErrorKind::NotFound => unknown(),
        _ => refusal::io_failure(error).into_response(),
    }
}

fn too_large(refusal: Refusal, largest: u64) -> FileResponse {
    let limit = (refusal.status == StatusCode::PAYLOAD_TOO_LARGE).then(|| limit(largest, None));
    respond::with(refusal.into_response(), UPLOAD_LIMIT.clone(), limit.flatten())
}

fn inconsistent(detail: &str) -> FileResponse {
    problem(StatusCode::BAD_REQUEST, INCONSISTENT_LENGTH, detail, "")
}

fn mismatch(offset: u64, stated: u64) -> FileResponse {
    let detail = "the upload has another offset than the request";
    let members = format!(",\"expected-offset\":{offset},\"provided-offset\":{stated}");
    let response = problem(
        StatusCode::CONFLICT,
        "mismatching-upload-offset",
        detail,
        &members,
    );
    respond::with(response, UPLOAD_OFFSET.clone(), Some(HeaderValue::from(offset)))
}

/// A response with a problem of the draft (RFC 9457). `members` are further ones of the object.
fn problem(status: StatusCode, kind: &str, detail: &str, members: &str) -> FileResponse {
    let text = format!(
        "{{\"type\":\"https://iana.org/assignments/http-problem-types#{kind}\",\"title\":\"{detail}\"{members}}}\n"
    );
    let mut response = respond::plain(status, Bytes::from(text));
    let media_type = HeaderValue::from_static("application/problem+json");
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    response
}
