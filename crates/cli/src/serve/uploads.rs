//! PUT and POST: a request's body becomes a file, or is counted and forgotten.
//!
//! The file is named by the last segment of the path alone, in one directory. What arrives is gathered into batches
//! that a blocking job writes while the next gathers, so an upload holds two batches at most, and reads no further
//! than that: flow control then holds its peer back. The name appears when the body is whole. Called by `service`.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use cap_std::fs::{Dir, Metadata};
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, ETAG, LOCATION};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use tokio::task::{JoinHandle, spawn_blocking};

use super::Settings;
use super::conditional::{self, Validators, Verdict};
use super::file_body::ServeBody;
use super::files::random;
use super::open::{Found, open};
use super::resolve::{BadPath, MAX_NAME_BYTES, Target, encode};
use super::respond;
use super::store::{Part, Published};

/// How many pieces a batch has at most, so that a peer that sends single octets does not fill memory with their
/// bookkeeping; as many as one vectored write takes on Linux.
const MAX_BATCH_SLICES: usize = 1024;

/// An answer that ends an upload before its time; boxed, as it is large beside what goes well.
type Refusal = Box<Response<ServeBody>>;

/// Counts the body, and answers with the count.
pub(super) async fn discard<B>(settings: &Settings, head: &Parts, body: B) -> Response<ServeBody>
where
    B: Body<Data = Bytes>,
{
    let outcome = async {
        let mut tally = Tally::new(settings, &head.headers)?;
        let mut body = pin!(body);
        while let Some(frame) = next_frame(body.as_mut()).await {
            tally.data(frame)?;
        }
        tally.end()
    };
    match outcome.await {
        Ok(count) => respond::text(StatusCode::OK, &count.to_string()),
        Err(refusal) => *refusal,
    }
}

/// Stores the body: 201 for a new file, 200 for one that replaced another, with the count of bytes as the text.
pub(super) async fn receive<B>(
    directory: &Arc<Dir>,
    settings: &Settings,
    head: &Parts,
    body: B,
) -> Response<ServeBody>
where
    B: Body<Data = Bytes>,
{
    let stored = store(directory, settings, head, body).await;
    stored.unwrap_or_else(|refusal| *refusal)
}

async fn store<B>(
    directory: &Arc<Dir>,
    settings: &Settings,
    head: &Parts,
    body: B,
) -> Result<Response<ServeBody>, Refusal>
where
    B: Body<Data = Bytes>,
{
    let name = Arc::new(name(head)?);
    if head.headers.contains_key(CONTENT_RANGE) {
        // RFC 9110 section 14.5: a part must not pass for the whole.
        return Err(refuse(
            StatusCode::BAD_REQUEST,
            "content-range is not taken on an upload",
        ));
    }
    let mut tally = Tally::new(settings, &head.headers)?;
    // POST never replaces; PUT does, unless it is asked not to.
    let replace = head.method == Method::PUT && !conditional::demands_absence(&head.headers);

    let part = {
        let (directory, name, head) = (Arc::clone(directory), Arc::clone(&name), head.clone());
        blocking(move || begin(&directory, &name, &head)).await??
    };
    let mut writer = Writer::new(part, settings.upload_batch_bytes);
    let mut body = pin!(body);
    let received = async {
        while let Some(frame) = next_frame(body.as_mut()).await {
            if let Some(data) = tally.data(frame)? {
                writer.push(data).await?;
            }
        }
        tally.end()
    };
    let count = match received.await {
        Ok(count) => count,
        Err(refusal) => {
            writer.abandon().await;
            return Err(refusal);
        }
    };
    let part = writer.finish().await?;
    let published = {
        let name = Arc::clone(&name);
        blocking(move || part.publish(&name, replace)).await?
    };
    match published {
        Ok(published) => Ok(stored(&name, count, &published)),
        Err(error) => Err(io_failure(&error, &head.method)),
    }
}

/// The body failed. Why is for the transport to tell: its error is let go at once, since it need not be `Send`.
struct Broken;

async fn next_frame<B: Body>(mut body: Pin<&mut B>) -> Option<Result<Frame<B::Data>, Broken>> {
    let frame = body.frame().await?;
    Some(frame.map_err(|_| Broken))
}

/// Weighs the request against the file that has the name now, and opens the temporary one. Blocks.
fn begin(directory: &Arc<Dir>, name: &str, head: &Parts) -> Result<Part, Refusal> {
    let existing = directory.symlink_metadata(name);
    if existing.as_ref().is_ok_and(Metadata::is_dir) {
        return Err(conflict("a directory has this name"));
    }
    // The validators are of the file that GET would find under this name.
    let validators = match open(directory, name) {
        Ok(Found::File(_, metadata)) => Some(Validators::of(&metadata, SystemTime::now())),
        _ => None,
    };
    if conditional::evaluate(&head.method, &head.headers, validators.as_ref()) != Verdict::Proceed {
        return Err(Box::new(respond::status(StatusCode::PRECONDITION_FAILED)));
    }
    if existing.is_ok() && head.method == Method::POST {
        return Err(conflict("a file has this name; PUT replaces it"));
    }
    Part::create(directory, name).map_err(|error| io_failure(&error, &head.method))
}

fn stored(name: &str, count: u64, published: &Published) -> Response<ServeBody> {
    let etag = Validators::of(&published.metadata, SystemTime::now()).etag();
    let (status, location) = if published.replaced {
        (StatusCode::OK, None)
    } else {
        let location = HeaderValue::try_from(format!("/{}", encode(name)));
        (StatusCode::CREATED, location.ok())
    };
    let response = respond::text(status, &count.to_string());
    respond::with(respond::with(response, ETAG, etag), LOCATION, location)
}

/// The name that a request asks for. A POST to a path that ends with a slash gets a new one.
fn name(head: &Parts) -> Result<String, Refusal> {
    let target = match Target::parse(head.uri.path()) {
        Ok(target) => target,
        Err(BadPath::TooLong) => return Err(refuse(StatusCode::BAD_REQUEST, "name too long")),
        Err(BadPath::Malformed) => return Err(refuse(StatusCode::BAD_REQUEST, "malformed path")),
    };
    match target.last() {
        Some(name) if !target.is_directory() => {
            if is_storable(name) {
                Ok(name.to_owned())
            } else {
                Err(refuse(StatusCode::BAD_REQUEST, "name not allowed"))
            }
        }
        _ if head.method == Method::POST => Ok(generated_name()),
        _ => Err(refuse(StatusCode::BAD_REQUEST, "a name is needed")),
    }
}

/// Whether a file of this name may be made: one segment, printable, and not hidden, since hidden names are those of
/// uploads under way, and of settings that other programs read.
fn is_storable(name: &str) -> bool {
    let windows =
        cfg!(windows) && (name.contains(['<', '>', '"', '|', '?', '*']) || name.ends_with(['.', ' ']));
    !name.is_empty()
        && name.len() <= MAX_NAME_BYTES
        && !name.starts_with('.')
        && !name.contains(['/', '\\'])
        && !name.contains(char::is_control)
        && !windows
}

fn generated_name() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let seconds = now.map_or(0, |now| now.as_secs());
    format!("upload-{seconds}-{:016x}", random())
}

/// The count of an upload, held against what was announced and what is allowed.
struct Tally {
    count: u64,
    announced: Option<u64>,
    limit: u64,
}

impl Tally {
    fn new(settings: &Settings, headers: &HeaderMap) -> Result<Tally, Refusal> {
        let announced = announced_length(headers)
            .map_err(|()| refuse(StatusCode::BAD_REQUEST, "malformed content-length"))?;
        let limit = settings.max_upload_bytes;
        if announced.is_some_and(|announced| announced > limit) {
            return Err(too_large(limit));
        }
        Ok(Tally {
            count: 0,
            announced,
            limit,
        })
    }

    /// Counts a frame, and gives its data; none for trailers.
    fn data(&mut self, frame: Result<Frame<Bytes>, Broken>) -> Result<Option<Bytes>, Refusal> {
        let frame = frame.map_err(|Broken| refuse(StatusCode::BAD_REQUEST, "the upload broke off"))?;
        let Ok(data) = frame.into_data() else {
            return Ok(None);
        };
        self.count = self.count.saturating_add(data.len() as u64);
        if self.count > self.limit {
            return Err(too_large(self.limit));
        }
        if self.announced.is_some_and(|announced| self.count > announced) {
            return Err(length_mismatch());
        }
        Ok(Some(data))
    }

    fn end(self) -> Result<u64, Refusal> {
        if self.announced.is_some_and(|announced| self.count != announced) {
            return Err(length_mismatch());
        }
        Ok(self.count)
    }
}

/// `content-length`, which may be repeated only with one and the same value (RFC 9110 section 8.6).
fn announced_length(headers: &HeaderMap) -> Result<Option<u64>, ()> {
    let mut announced = None;
    for value in headers.get_all(CONTENT_LENGTH) {
        let digits = value.to_str().map_err(|_| ())?;
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(());
        }
        let length: u64 = digits.parse().map_err(|_| ())?;
        if announced.is_some_and(|announced| announced != length) {
            return Err(());
        }
        announced = Some(length);
    }
    Ok(announced)
}

/// Gathers what arrives, and has it written: one batch at the disk, the next one gathering.
struct Writer {
    state: WriterState,
    batch: Vec<Bytes>,
    batch_bytes: usize,
    full: usize,
}

enum WriterState {
    Ready(Part),
    Writing(JoinHandle<io::Result<Part>>),
    /// While one becomes the other; and for good when a write failed.
    Broken,
}

impl Writer {
    fn new(part: Part, full: usize) -> Writer {
        Writer {
            state: WriterState::Ready(part),
            batch: Vec::new(),
            batch_bytes: 0,
            full,
        }
    }

    async fn push(&mut self, data: Bytes) -> Result<(), Refusal> {
        self.batch_bytes += data.len();
        if !data.is_empty() {
            self.batch.push(data);
        }
        if self.batch_bytes >= self.full || self.batch.len() >= MAX_BATCH_SLICES {
            self.write().await?;
        }
        Ok(())
    }

    /// Starts to write the batch, once the one before is written.
    async fn write(&mut self) -> Result<(), Refusal> {
        let mut part = self.ready().await?;
        let batch = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        self.state = WriterState::Writing(spawn_blocking(move || {
            part.write(&batch)?;
            Ok(part)
        }));
        Ok(())
    }

    async fn finish(mut self) -> Result<Part, Refusal> {
        if !self.batch.is_empty() {
            self.write().await?;
        }
        self.ready().await
    }

    /// Removes what was written, so that it is gone before the peer hears of it.
    async fn abandon(mut self) {
        drop(self.ready().await);
    }

    async fn ready(&mut self) -> Result<Part, Refusal> {
        match std::mem::replace(&mut self.state, WriterState::Broken) {
            WriterState::Ready(part) => Ok(part),
            WriterState::Writing(job) => match job.await {
                Ok(Ok(part)) => Ok(part),
                Ok(Err(error)) => Err(io_failure(&error, &Method::PUT)),
                Err(_) => Err(not_stored()),
            },
            WriterState::Broken => Err(not_stored()),
        }
    }
}

/// Runs a job on a blocking thread.
async fn blocking<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> Result<T, Refusal> {
    spawn_blocking(job).await.map_err(|_| not_stored())
}

/// What the disk said, as an answer.
fn io_failure(error: &io::Error, method: &Method) -> Refusal {
    match error.kind() {
        io::ErrorKind::StorageFull
        | io::ErrorKind::QuotaExceeded
        | io::ErrorKind::FileTooLarge
        | io::ErrorKind::WriteZero => refuse(StatusCode::INSUFFICIENT_STORAGE, "no room for the upload"),
        // The name was taken while the body arrived.
        io::ErrorKind::AlreadyExists if method == Method::POST => {
            conflict("a file has this name; PUT replaces it")
        }
        io::ErrorKind::AlreadyExists => Box::new(respond::status(StatusCode::PRECONDITION_FAILED)),
        io::ErrorKind::IsADirectory => conflict("a directory has this name"),
        _ => not_stored(),
    }
}

fn not_stored() -> Refusal {
    refuse(
        StatusCode::INTERNAL_SERVER_ERROR,
        "the upload could not be stored",
    )
}

fn too_large(limit: u64) -> Refusal {
    refuse(
        StatusCode::PAYLOAD_TOO_LARGE,
        &format!("uploads end at {limit} bytes here"),
    )
}

fn length_mismatch() -> Refusal {
    refuse(
        StatusCode::BAD_REQUEST,
        "the upload is not as long as its content-length",
    )
}

fn conflict(line: &str) -> Refusal {
    refuse(StatusCode::CONFLICT, line)
}

fn refuse(status: StatusCode, line: &str) -> Refusal {
    Box::new(respond::text(status, line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_may_be_stored() {
        let longest = "n".repeat(255);
        for name in ["a", "a.txt", "a b", "été", "a..b", "~a", "-", "a.part", &longest] {
            assert!(is_storable(name), "{name}");
        }
        let too_long = "n".repeat(256);
        for name in [
            "",
            ".",
            "..",
            ".a",
            ".a.0123.part",
            "a/b",
            "a\\b",
            "a\0",
            "a\n",
            "\u{1b}[2J",
            "a\u{7f}",
            "a\u{85}",
            &too_long,
        ] {
            assert!(!is_storable(name), "{name:?}");
        }
    }

    #[test]
    fn what_the_disk_says_becomes_a_status() {
        use io::ErrorKind;
        for (kind, method, expected) in [
            (ErrorKind::StorageFull, Method::PUT, 507),
            (ErrorKind::QuotaExceeded, Method::PUT, 507),
            (ErrorKind::FileTooLarge, Method::PUT, 507),
            (ErrorKind::AlreadyExists, Method::POST, 409),
            (ErrorKind::AlreadyExists, Method::PUT, 412),
            (ErrorKind::IsADirectory, Method::PUT, 409),
            (ErrorKind::PermissionDenied, Method::PUT, 500),
            (ErrorKind::Other, Method::POST, 500),
        ] {
            let status = io_failure(&kind.into(), &method).status();
            assert_eq!(status.as_u16(), expected, "{kind:?}");
        }
    }

    #[test]
    fn content_length_is_digits_and_one_value() {
        let of = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(CONTENT_LENGTH, value.parse().unwrap());
            }
            announced_length(&headers)
        };
        assert_eq!(of(&[]), Ok(None));
        assert_eq!(of(&["5"]), Ok(Some(5)));
        assert_eq!(of(&["5", "5"]), Ok(Some(5)));
        for bad in [
            &["5", "6"][..],
            &["+5"],
            &["-1"],
            &[""],
            &["5, 5"],
            &["99999999999999999999"],
        ] {
            assert_eq!(of(bad), Err(()), "{bad:?}");
        }
    }
}
