//! PUT and POST: a request's body becomes a file, or is counted and dropped.
//!
//! The path of the request is that of the file below the folder for uploads. A blocking job writes one batch while the
//! next gathers, so an upload holds at most two batches. It reads no further than that, so flow control holds the peer
//! back. The file has its name only when the body is complete. Called by `service`; `form` stores the files of forms.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use cap_std::fs::{Dir, Metadata};
use http::header::{CONTENT_RANGE, ETAG, EXPECT, LOCATION};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use http_body::Body;
use tokio::runtime::Handle;

use crate::body_length::{BodyLength, next_frame};
use crate::budget::Budget;
use crate::cache::Cache;
use crate::conditional::{self, Validators, Verdict};
use crate::destination::{Destination, UploadFolder};
use crate::file_body::FileResponse;
use crate::open::{Found, OpenError, open};
use crate::origin;
use crate::peer::Peer;
use crate::random::random;
use crate::refusal::{
    Refusal, bad_destination, bad_path, busy, failure, io_failure, is_a_folder, name_reserved, name_taken,
    not_stored, precondition_failed, refuse,
};
use crate::resolve::Target;
use crate::respond;
use crate::settings::Settings;
use crate::store::{ModifiedSecond, Published};
use crate::upload_limits::UploadLimits;
use crate::writer::{Demand, Failure, Writer};

/// The time of a file's modification in its sender's folder, in seconds since 1970: a field of ownCloud and Nextcloud, which
/// rclone sends too. The response says `accepted`.
static MODIFIED: HeaderName = HeaderName::from_static("x-oc-mtime");

/// The body of a request without `Expect` is on its way with its head if it has no more bytes than this: nothing is saved by a check
/// before, which costs a job of its own. It is the least that RFC 9113 lets a client send ahead (section 6.9.2).
pub(crate) const SENT_AT_ONCE: u64 = 65_535;

/// When an upload is checked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// So that what will be refused need not be sent (RFC 9110 section 10.1.1).
    BeforeItsBytes,
    /// In the job that writes the first of them.
    WithItsBytes,
}

/// What uploads are stored with.
#[derive(Clone, Copy)]
pub(crate) struct Store<'a> {
    pub(crate) folder: &'a UploadFolder,
    pub(crate) limits: &'a Arc<UploadLimits>,
    pub(crate) cache: &'a Arc<Cache>,
    pub(crate) settings: &'a Settings,
    /// The memory of the pages that answer forms.
    pub(crate) pages: &'a Arc<Budget>,
}

/// Counts the body, and responds with the count.
pub(crate) async fn discard<B>(settings: &Settings, head: &Parts, body: B) -> FileResponse
where
    B: Body<Data = Bytes>,
{
    let outcome = async {
        let mut length = BodyLength::new(settings.max_upload_bytes, &head.headers)?;
        let mut body = pin!(body);
        while let Some(frame) = next_frame(body.as_mut()).await {
            length.data(frame)?;
        }
        length.end()?;
        Ok::<u64, Refusal>(length.count)
    };
    match outcome.await {
        Ok(count) => respond::text(StatusCode::OK, &count.to_string()),
        Err(refusal) => refusal.into_response(),
    }
}

/// Stores the body. The response is 201 for a new file and 200 for a replaced one, with the count of bytes as its text.
pub(crate) async fn store<B>(
    store: Store<'_>,
    head: &Parts,
    peer: Option<Peer>,
    body: B,
) -> Result<FileResponse, Refusal>
where
    B: Body<Data = Bytes>,
{
    let order = Order::of(store, head, peer)?;
    let length = BodyLength::new(store.settings.max_upload_bytes, &head.headers)?;
    store_order(store, &head.headers, order, length, body).await
}

/// Stores the body as ordered.
///
/// # Errors
/// It was not stored.
pub(crate) async fn store_order<B>(
    store: Store<'_>,
    headers: &HeaderMap,
    order: Order,
    mut length: BodyLength,
    body: B,
) -> Result<FileResponse, Refusal>
where
    B: Body<Data = Bytes>,
{
    let announced = length.announced;
    let is_small = announced.is_some_and(|bytes| bytes <= SENT_AT_ONCE) && !headers.contains_key(EXPECT);
    let when = if is_small {
        When::WithItsBytes
    } else {
        When::BeforeItsBytes
    };
    let check = order.check();
    let begun = begin(
        store,
        &order.destination,
        announced.unwrap_or(0),
        order.replace,
        when,
        check,
    );
    let mut writer = begun.await?;
    writer.set_modified(order.modified);
    if let Err(refusal) = gather(&mut writer, &mut length, pin!(body)).await {
        writer.abandon().await;
        return Err(refusal);
    }
    order.publish(store.cache, writer, length.count).await
}

/// What a PUT or POST asks for.
pub(crate) struct Order {
    target: Target,
    pub(crate) destination: Arc<Destination>,
    pub(crate) modified: Option<ModifiedSecond>,
    /// Whether an existing file is replaced.
    pub(crate) replace: bool,
    /// The method, and the fields of which preconditions are.
    pub(crate) preconditions: Arc<(Method, HeaderMap)>,
}

impl Order {
    /// The order of a request, checked without the disk.
    ///
    /// # Errors
    /// The request cannot be stored.
    pub(crate) fn of(store: Store<'_>, head: &Parts, peer: Option<Peer>) -> Result<Order, Refusal> {
        if origin::is_forged(head) {
            return Err(refuse(
                StatusCode::FORBIDDEN,
                &format!(
                    "a page of another site sent this POST; it may send PUT, if this server allows that (CORS): {}",
                    origin::explanation(head)
                ),
            ));
        }
        let target = Target::parse(head.uri.path()).map_err(bad_path)?;
        let destination = destination(store, &target, &head.method, peer)?;
        if head.headers.contains_key(CONTENT_RANGE) {
            // RFC 9110 section 14.5: a part must not replace the whole.
            return Err(refuse(
                StatusCode::BAD_REQUEST,
                "uploads with content-range are not supported",
            ));
        }
        let demands_absence = conditional::demands_absence(&head.headers);
        Ok(Order {
            target,
            destination: Arc::new(destination),
            modified: modified(head)?,
            replace: store.settings.overwrite && head.method == Method::PUT && !demands_absence,
            preconditions: Arc::new((head.method.clone(), head.headers.clone())),
        })
    }

    /// The order of a request that came before: for this name in these folders.
    ///
    /// # Errors
    /// The server no longer stores such names.
    pub(crate) fn again(
        store: Store<'_>,
        target: Target,
        (folders, name): (&[String], &str),
        preconditions: (Method, HeaderMap),
        peer: Option<Peer>,
    ) -> Result<Order, Refusal> {
        let most = store.settings.limits.upload_folders;
        let destination = Destination::new(store.folder, folders, name.to_owned(), most, peer);
        let destination = destination.map_err(|error| bad_destination(error, most))?;
        let (method, headers) = &preconditions;
        let demands_absence = conditional::demands_absence(headers);
        Ok(Order {
            target,
            destination: Arc::new(destination),
            modified: None,
            replace: store.settings.overwrite && *method == Method::PUT && !demands_absence,
            preconditions: Arc::new(preconditions),
        })
    }

    /// Whether the existing file is in the state that the request demands.
    pub(crate) fn check(&self) -> impl FnOnce(Option<&Validators>) -> Result<(), Refusal> + Send + use<> {
        let preconditions = Arc::clone(&self.preconditions);
        move |existing| holds(&preconditions, existing).map_err(|error| failure(&error))
    }

    /// Gives the whole upload its name. `count` is its length.
    ///
    /// # Errors
    /// As of [`Writer::publish`].
    pub(crate) async fn publish(
        &self,
        cache: &Cache,
        writer: Writer,
        count: u64,
    ) -> Result<FileResponse, Refusal> {
        let preconditions = Arc::clone(&self.preconditions);
        let headers = &self.preconditions.1;
        // Another request may have replaced the file while the body arrived: the lost update of RFC 9110 section 13.1.1.
        let demand = conditional::is_conditional(headers).then(|| -> Demand {
            Box::new(move |directory, name| holds(&preconditions, existing(directory, name)?.as_ref()))
        });
        match writer.publish(self.replace, demand).await {
            Ok(published) => {
                cache.note_upload();
                Ok(stored(&self.target, &self.destination, count, &published))
            }
            // Another request took the name while the body arrived.
            Err(Failure::Io(error))
                if error.kind() == io::ErrorKind::AlreadyExists && conditional::demands_absence(headers) =>
            {
                Err(precondition_failed())
            }
            Err(error) => Err(failure(&error)),
        }
    }
}

fn holds((method, headers): &(Method, HeaderMap), existing: Option<&Validators>) -> Result<(), Failure> {
    match conditional::evaluate(method, headers, existing) {
        Verdict::Proceed => Ok(()),
        _ => Err(Failure::Changed),
    }
}

/// The time that a PUT gives its file. What no file can have is refused before the body is sent.
fn modified(head: &Parts) -> Result<Option<ModifiedSecond>, Refusal> {
    let Some(value) = head.headers.get(&MODIFIED).filter(|_| head.method == Method::PUT) else {
        return Ok(None);
    };
    let second = value.to_str().ok().and_then(ModifiedSecond::parse);
    let wrong = || {
        refuse(
            StatusCode::BAD_REQUEST,
            "x-oc-mtime is not a number of seconds since 1970, between the years 1900 and 9999",
        )
    };
    second.map(Some).ok_or_else(wrong)
}

/// Begins an upload, and checks it then or with its first bytes. `check` has the validators of the existing file.
pub(crate) async fn begin(
    store: Store<'_>,
    destination: &Arc<Destination>,
    announced: u64,
    replace: bool,
    when: When,
    check: impl FnOnce(Option<&Validators>) -> Result<(), Refusal> + Send + 'static,
) -> Result<Writer, Refusal> {
    if store.limits.is_full(destination.peer) {
        return Err(busy());
    }
    let limits = Arc::clone(store.limits);
    let to = Arc::clone(destination);
    let work = move || may_begin(&limits, &to, announced, replace, check);
    let mut writer = Writer::new(Arc::clone(store.limits), Arc::clone(destination));
    if when == When::WithItsBytes {
        let refused = |refusal: Refusal| Failure::Refused(refusal.status, refusal.line);
        writer.set_check(Box::new(move || work().map_err(refused)));
        return Ok(writer);
    }
    let job = store
        .limits
        .jobs()
        .begin(&Handle::current(), destination.peer, work);
    // The folder may be another one when the first bytes have arrived.
    job.await.map_err(|_| not_stored())??;
    Ok(writer)
}

/// Reads the body to its end.
async fn gather<B>(writer: &mut Writer, length: &mut BodyLength, mut body: Pin<&mut B>) -> Result<(), Refusal>
where
    B: Body<Data = Bytes>,
{
    let failed = |error: Failure| failure(&error);
    while let Some(frame) = writer.wait(next_frame(body.as_mut())).await.map_err(failed)? {
        if let Some(data) = length.data(frame)? {
            writer.push(data).await.map_err(failed)?;
        }
    }
    length.end()
}

/// Checks the upload against the existing file of that name, and against the disk. Returns its folder, if that exists. Blocks.
pub(crate) fn may_begin(
    limits: &UploadLimits,
    destination: &Destination,
    announced: u64,
    replace: bool,
    check: impl FnOnce(Option<&Validators>) -> Result<(), Refusal>,
) -> Result<Option<Arc<Dir>>, Refusal> {
    let nearest = destination.nearest().map_err(|error| io_failure(&error))?;
    let (directory, name) = (&*nearest.directory, &destination.name);
    let (mut exists, mut validators) = (false, None);
    if nearest.missing.is_empty() {
        let existing = directory.symlink_metadata(name);
        if existing.as_ref().is_ok_and(Metadata::is_dir) {
            return Err(is_a_folder());
        }
        exists = existing.is_ok();
        // Where there is nothing, there is nothing to open.
        let is_missing = existing.is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        if !is_missing {
            validators = self::existing(directory, name).map_err(|error| failure(&error))?;
        }
    }
    check(validators.as_ref())?;
    if exists && !replace {
        return Err(name_taken());
    }
    let reserved = &destination.reserved;
    let is_reserved = match nearest.missing {
        [] => reserved.has_in(directory, name),
        missing => reserved.has_folder(missing),
    };
    if is_reserved {
        return Err(name_reserved());
    }
    let checked = limits.check_new(directory, announced);
    checked.map_err(|error| io_failure(&error))?;
    Ok(nearest.missing.is_empty().then_some(nearest.directory))
}

/// The validators of the file that GET would serve under this name. Blocks.
fn existing(directory: &Dir, name: &str) -> Result<Option<Validators>, Failure> {
    match open(directory, name) {
        Ok(Found::File(_, metadata)) => Ok(Some(Validators::of(&metadata, SystemTime::now()))),
        // It is not known whether there is such a file.
        Err(OpenError::Exhausted) => Err(Failure::Busy),
        Err(OpenError::Failed) => Err(Failure::Lost),
        _ => Ok(None),
    }
}

fn stored(target: &Target, destination: &Destination, count: u64, published: &Published) -> FileResponse {
    let etag = Validators::of(&published.metadata, SystemTime::now()).etag();
    let (status, location) = if published.replaced {
        (StatusCode::OK, None)
    } else {
        let location = HeaderValue::try_from(target.reference_to(&destination.location));
        (StatusCode::CREATED, location.ok())
    };
    let response = respond::text(status, &count.to_string());
    let response = respond::with(respond::with(response, ETAG, etag), LOCATION, location);
    let accepted = published.is_dated.then(|| HeaderValue::from_static("accepted"));
    respond::with(response, MODIFIED.clone(), accepted)
}

/// Where the file goes. A POST to a path that ends with a slash gets a generated name.
fn destination(
    store: Store<'_>,
    target: &Target,
    method: &Method,
    peer: Option<Peer>,
) -> Result<Destination, Refusal> {
    let below = store.folder.below(target.names());
    let (folders, name) = match below.split_last() {
        Some((name, _)) if !target.is_directory() && store.folder.reserved.has(name) => {
            return Err(name_reserved());
        }
        Some((name, folders)) if !target.is_directory() => (folders, name.clone()),
        _ if method == Method::POST => (below, generated_name()),
        None if !target.is_directory() => return Err(is_a_folder()),
        _ => {
            return Err(refuse(
                StatusCode::BAD_REQUEST,
                "the path ends with a slash: add the name that the file is to have",
            ));
        }
    };
    let most = store.settings.limits.upload_folders;
    let destination = Destination::new(store.folder, folders, name, most, peer);
    destination.map_err(|error| bad_destination(error, most))
}

fn generated_name() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let seconds = now.map_or(0, |now| now.as_secs());
    format!("upload-{seconds}-{:016x}", random())
}
