//! Resumable uploads: draft-ietf-httpbis-resumable-upload-12.
//!
//! A PUT or POST with `upload-complete` gets an upload resource, whose reference is sent ahead of the response with 104 (Upload
//! Resumption Supported). It is the path of the file with the upload's token as its query, so that routers, proxies and access
//! rules treat both alike. HEAD tells how much was received, PATCH appends, DELETE cancels. Each of them ends the request before
//! it, whose connection may be dead without the server knowing.
//!
//! A request's body is stored in a task of its own: what arrived before a connection broke is kept. Called by `service`;
//! `unfinished` has the uploads between their requests; `fields` says what their fields mean, and `transfer` stores content.

mod fields;
mod transfer;

use std::sync::Arc;

use bytes::Bytes;
use fullbore::server::Informational;
use http::header::{CACHE_CONTROL, HeaderMap, LOCATION};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use http_body::Body;
use tokio::runtime::Handle;

use self::fields::{
    ACCEPT_PATCH, COMPLETED, FIRST_VERSION, INTEROP_VERSION, MOST_PRECONDITIONS, NO, PARTIAL_UPLOAD,
    UPLOAD_COMPLETE, UPLOAD_LENGTH, UPLOAD_LIMIT, UPLOAD_OFFSET, YES, inconsistent, integer,
    interim_response, limit, location, lost, mismatch, owner, preconditions, problem, too_large, unknown,
};
pub(crate) use self::fields::{Asked, form_in_parts, offered};
use self::transfer::{Storage, Transfer};
use crate::body_length::BodyLength;
use crate::file_body::FileResponse;
use crate::origin;
use crate::peer::Peer;
use crate::refusal::{self, Refusal, bad_path, busy, not_stored};
use crate::resolve::Target;
use crate::respond;
use crate::store::ModifiedSecond;
use crate::unfinished::{Entry, Record, Token, Turn, Unfinished};
use crate::uploads::{self, Order, SENT_AT_ONCE, Store, may_begin};

/// The methods of an upload resource.
const ALLOW: &str = "DELETE, HEAD, OPTIONS, PATCH";

/// What uploads are resumed with.
#[derive(Clone, Copy)]
pub(crate) struct Means<'a> {
    pub(crate) store: Store<'a>,
    pub(crate) unfinished: &'a Arc<Unfinished>,
    pub(crate) peer: Option<Peer>,
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
        headers.extend(limit(largest, entry.remaining()).map(|limit| (UPLOAD_LIMIT.clone(), limit)));
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
    let mut response = respond::with(response, UPLOAD_LIMIT.clone(), limit(largest, entry.remaining()));
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
        let (owner, names) = (owner(head), self.store.folder.below(target.names()));
        // Otherwise a request of somebody else would end the one in progress.
        let is_of_this = |entry: &Entry| !target.is_directory() && entry.is_of(owner.as_deref(), names);
        // Requests take turns as they arrive: the job of a later one may be done before that of an earlier one.
        let known = unfinished.known(&token);
        if known.as_ref().is_some_and(|known| !is_of_this(known)) {
            return Err(unknown());
        }
        let turn = match &known {
            Some(known) => Some(known.turn().await),
            None => None,
        };
        let held = known.clone();
        let found = self.job(move || unfinished.find(&token, held.as_ref())).await?;
        let entry = found.filter(|entry| is_of_this(entry)).ok_or_else(unknown)?;
        let is_known = known.is_some_and(|known| Arc::ptr_eq(&known, &entry));
        let turn = match turn.filter(|_| is_known) {
            Some(turn) => turn,
            None => entry.turn().await,
        };
        match turn.held.is_gone {
            true => Err(unknown()),
            false => Ok((target, entry, turn)),
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
