//! PUT and POST: a request's body becomes a file, or is counted and dropped.
//!
//! The last segment of the path names the file, in one folder. A blocking job writes one batch while the next gathers,
//! so an upload holds at most two batches. It reads no further than that, so flow control holds the peer back. The file
//! has its name only when the body is complete. Called by `service`.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use cap_std::fs::{Dir, Metadata};
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, ETAG, LOCATION};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use tokio::task::spawn_blocking;
use tokio::time::timeout_at;

use crate::conditional::{self, Validators, Verdict};
use crate::file_body::FileResponse;
use crate::open::{Found, OpenError, open};
use crate::peer::Peer;
use crate::random::random;
use crate::resolve::{BadPath, MAX_NAME_BYTES, Target, encode};
use crate::respond;
use crate::settings::Settings;
use crate::store::Published;
use crate::upload_limits::UploadLimits;
use crate::writer::{Destination, Failure, Writer};

/// A response that ends an upload early; boxed, since it is larger than the values of success.
type Refusal = Box<FileResponse>;

/// Counts the body, and responds with the count.
pub(crate) async fn discard<B>(settings: &Settings, head: &Parts, body: B) -> FileResponse
where
    B: Body<Data = Bytes>,
{
    let outcome = async {
        let mut length = BodyLength::new(settings, &head.headers)?;
        let mut body = pin!(body);
        while let Some(frame) = next_frame(body.as_mut()).await {
            length.data(frame)?;
        }
        length.end()?;
        Ok::<u64, Refusal>(length.count)
    };
    match outcome.await {
        Ok(count) => respond::text(StatusCode::OK, &count.to_string()),
        Err(refusal) => *refusal,
    }
}

/// Stores the body. The response is 201 for a new file and 200 for a replaced one, with the count of bytes as its text.
pub(crate) async fn store<B>(
    directory: &Arc<Dir>,
    limits: &Arc<UploadLimits>,
    settings: &Settings,
    head: &Parts,
    peer: Option<Peer>,
    body: B,
) -> Result<FileResponse, Refusal>
where
    B: Body<Data = Bytes>,
{
    let destination = Arc::new(Destination {
        name: name(head)?,
        directory: Arc::clone(directory),
        peer,
    });
    if head.headers.contains_key(CONTENT_RANGE) {
        // RFC 9110 section 14.5: a part must not replace the whole.
        return Err(refuse(
            StatusCode::BAD_REQUEST,
            "uploads with content-range are not supported",
        ));
    }
    let mut length = BodyLength::new(settings, &head.headers)?;
    // POST never replaces a file. PUT does, unless the request forbids it.
    let replace = head.method == Method::PUT && !conditional::demands_absence(&head.headers);

    // Before the body is read (RFC 9110 section 10.1.1): a refused upload need not be sent.
    if limits.is_full(destination.peer) {
        return Err(busy());
    }
    {
        let (limits, destination, head) = (Arc::clone(limits), Arc::clone(&destination), head.clone());
        let announced = length.announced.unwrap_or(0);
        blocking(move || may_begin(&limits, &destination, &head, announced)).await??;
    }
    let mut writer = Writer::new(Arc::clone(limits), Arc::clone(&destination));
    if let Err(refusal) = gather(&mut writer, &mut length, &head.method, pin!(body)).await {
        writer.abandon().await;
        return Err(refusal);
    }
    match writer.publish(replace).await {
        Ok(published) => Ok(stored(&destination.name, length.count, &published)),
        Err(error) => Err(failure(&error, &head.method)),
    }
}

/// Reads the body to its end.
async fn gather<B>(
    writer: &mut Writer,
    length: &mut BodyLength,
    method: &Method,
    mut body: Pin<&mut B>,
) -> Result<(), Refusal>
where
    B: Body<Data = Bytes>,
{
    loop {
        let frame = match writer.flush_at() {
            None => next_frame(body.as_mut()).await,
            Some(at) => match timeout_at(at, next_frame(body.as_mut())).await {
                Ok(frame) => frame,
                Err(_) => {
                    writer.flush().await.map_err(|error| failure(&error, method))?;
                    continue;
                }
            },
        };
        let Some(frame) = frame else {
            return length.end();
        };
        if let Some(data) = length.data(frame)? {
            writer.push(data).await.map_err(|error| failure(&error, method))?;
        }
    }
}

/// The body failed. Its error is dropped at once, since it need not be `Send`.
struct Broken;

async fn next_frame<B: Body>(mut body: Pin<&mut B>) -> Option<Result<Frame<B::Data>, Broken>> {
    let frame = body.frame().await?;
    Some(frame.map_err(|_| Broken))
}

/// Checks the request against the existing file of that name, and against the disk. Blocks.
fn may_begin(
    limits: &UploadLimits,
    destination: &Destination,
    head: &Parts,
    announced: u64,
) -> Result<(), Refusal> {
    let Destination { directory, name, .. } = destination;
    let existing = directory.symlink_metadata(name);
    if existing.as_ref().is_ok_and(Metadata::is_dir) {
        return Err(conflict("this name is a folder"));
    }
    // The validators are those of the file that GET would serve under this name.
    let validators = match open(directory, name) {
        Ok(Found::File(_, metadata)) => Some(Validators::of(&metadata, SystemTime::now())),
        // It is not known whether there is such a file.
        Err(OpenError::Exhausted) => return Err(busy()),
        Err(OpenError::Failed) => return Err(not_stored()),
        _ => None,
    };
    if conditional::evaluate(&head.method, &head.headers, validators.as_ref()) != Verdict::Proceed {
        return Err(Box::new(respond::status(StatusCode::PRECONDITION_FAILED)));
    }
    if existing.is_ok() && head.method == Method::POST {
        return Err(conflict(NAME_TAKEN));
    }
    let checked = limits.check_new(&**directory, announced);
    checked.map_err(|error| io_failure(&error, &head.method))
}

fn stored(name: &str, count: u64, published: &Published) -> FileResponse {
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

/// The name for the file. A POST to a path that ends with a slash gets a generated one.
fn name(head: &Parts) -> Result<String, Refusal> {
    let target = match Target::parse(head.uri.path()) {
        Ok(target) => target,
        Err(BadPath::TooLong) => return Err(refuse(StatusCode::BAD_REQUEST, "the name is too long")),
        Err(BadPath::Malformed) => return Err(refuse(StatusCode::BAD_REQUEST, "the path is malformed")),
    };
    match target.last() {
        Some(name) if !target.is_directory() => {
            if is_storable(name) {
                Ok(name.to_owned())
            } else {
                Err(refuse(
                    StatusCode::BAD_REQUEST,
                    "this name is not allowed: it begins with a dot, or has a separator or control character",
                ))
            }
        }
        _ if head.method == Method::POST => Ok(generated_name()),
        _ => Err(refuse(
            StatusCode::BAD_REQUEST,
            "PUT needs a path that ends with a file name",
        )),
    }
}

/// Whether an upload may have this name: one segment, printable, and not hidden. Hidden names belong to unfinished uploads
/// and to the settings of other programs.
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

/// The count of received bytes, checked against `content-length` and the limit.
struct BodyLength {
    count: u64,
    announced: Option<u64>,
    limit: u64,
}

impl BodyLength {
    fn new(settings: &Settings, headers: &HeaderMap) -> Result<BodyLength, Refusal> {
        let announced = announced_length(headers)
            .map_err(|()| refuse(StatusCode::BAD_REQUEST, "the content-length is malformed"))?;
        let limit = settings.max_upload_bytes;
        if announced.is_some_and(|announced| announced > limit) {
            return Err(too_large(limit));
        }
        Ok(BodyLength {
            count: 0,
            announced,
            limit,
        })
    }

    /// Counts a frame, and returns its data; `None` for trailers.
    fn data(&mut self, frame: Result<Frame<Bytes>, Broken>) -> Result<Option<Bytes>, Refusal> {
        let frame = frame
            .map_err(|Broken| refuse(StatusCode::BAD_REQUEST, "the upload ended before it was complete"))?;
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

    fn end(&self) -> Result<(), Refusal> {
        match self.announced {
            Some(announced) if self.count != announced => Err(length_mismatch()),
            _ => Ok(()),
        }
    }
}

/// `content-length`, which may be repeated with the same value only (RFC 9110 section 8.6).
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

/// Runs a job on a blocking thread.
async fn blocking<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> Result<T, Refusal> {
    spawn_blocking(job).await.map_err(|_| not_stored())
}

fn failure(failure: &Failure, method: &Method) -> Refusal {
    match failure {
        Failure::Busy => busy(),
        Failure::Io(error) => io_failure(error, method),
        Failure::Lost => not_stored(),
    }
}

/// The response for an error of the file system.
fn io_failure(error: &io::Error, method: &Method) -> Refusal {
    match error.kind() {
        io::ErrorKind::StorageFull
        | io::ErrorKind::QuotaExceeded
        | io::ErrorKind::FileTooLarge
        | io::ErrorKind::WriteZero => refuse(
            StatusCode::INSUFFICIENT_STORAGE,
            "the server has not enough disk space for the upload",
        ),
        // Another request took the name while the body arrived.
        io::ErrorKind::AlreadyExists if method == Method::POST => conflict(NAME_TAKEN),
        io::ErrorKind::AlreadyExists => Box::new(respond::status(StatusCode::PRECONDITION_FAILED)),
        io::ErrorKind::IsADirectory => conflict("this name is a folder"),
        _ if is_short_of_descriptors(error) => busy(),
        _ => not_stored(),
    }
}

/// Whether the process or the system has no descriptor left.
#[cfg(unix)]
fn is_short_of_descriptors(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

#[cfg(not(unix))]
fn is_short_of_descriptors(_: &io::Error) -> bool {
    false
}

fn busy() -> Refusal {
    refuse(
        StatusCode::SERVICE_UNAVAILABLE,
        "too many uploads are in progress; try again later",
    )
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
        &format!("the upload is larger than the limit of {limit} bytes"),
    )
}

fn length_mismatch() -> Refusal {
    refuse(
        StatusCode::BAD_REQUEST,
        "the upload's length differs from its content-length",
    )
}

const NAME_TAKEN: &str = "a file of this name exists; PUT replaces it";

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

    #[cfg(unix)]
    #[test]
    fn a_disk_that_is_full_is_507_and_a_lack_of_descriptors_is_503() {
        use rustix::io::Errno;
        for (errno, expected) in [
            (Errno::NOSPC, 507),
            (Errno::DQUOT, 507),
            (Errno::FBIG, 507),
            (Errno::MFILE, 503),
            (Errno::NFILE, 503),
            (Errno::IO, 500),
        ] {
            let response = io_failure(&errno.into(), &Method::PUT);
            assert_eq!(response.status().as_u16(), expected, "{errno:?}");
            assert_eq!(response.headers().contains_key("retry-after"), expected == 503);
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
