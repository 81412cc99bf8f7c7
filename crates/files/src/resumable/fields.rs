//! The fields of resumable uploads, and the responses that consist of them. Called by `resumable` and `transfer`.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Response, StatusCode};

use crate::file_body::FileResponse;
use crate::log::LogUser;
use crate::refusal::{self, Refusal};
use crate::resolve::encode;
use crate::respond;
use crate::unfinished::Token;
use crate::upload_reference::QUERY;
use crate::uploads::Order;

pub(super) static UPLOAD_COMPLETE: HeaderName = HeaderName::from_static("upload-complete");
pub(super) static UPLOAD_OFFSET: HeaderName = HeaderName::from_static("upload-offset");
pub(super) static UPLOAD_LENGTH: HeaderName = HeaderName::from_static("upload-length");
pub(super) static UPLOAD_LIMIT: HeaderName = HeaderName::from_static("upload-limit");
pub(super) static ACCEPT_PATCH: HeaderName = HeaderName::from_static("accept-patch");

/// The version of the draft that a client implements. Clients need it in the response with 104.
pub(super) static INTEROP_VERSION: HeaderName = HeaderName::from_static("upload-draft-interop-version");

/// The first version with the media type of appended content and the fields as they are now.
pub(super) const FIRST_VERSION: u64 = 6;

/// The media type of appended content.
pub(super) const PARTIAL_UPLOAD: &str = "application/partial-upload";

pub(super) const YES: HeaderValue = HeaderValue::from_static("?1");
pub(super) const NO: HeaderValue = HeaderValue::from_static("?0");

/// The largest integer of a structured field (RFC 9651 section 3.3.1).
const LARGEST_INTEGER: u64 = 999_999_999_999_999;

/// The preconditions of an upload that is kept, in bytes.
pub(super) const MOST_PRECONDITIONS: usize = 4 << 10;

const INCONSISTENT_LENGTH: &str = "inconsistent-upload-length";
pub(super) const COMPLETED: &str = "completed-upload";

/// What a request asks for that begins or continues a resumable upload.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    /// Its content ends the upload.
    pub(crate) is_last: bool,
    /// The length of the upload, if it has the field.
    pub(super) length: Option<u64>,
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
    pub(super) fn length(
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

/// Adds to the response to OPTIONS that uploads can be resumed (section 4.1.4).
pub(crate) fn offered(response: FileResponse, largest: u64) -> FileResponse {
    let response = respond::with(
        response,
        ACCEPT_PATCH.clone(),
        Some(HeaderValue::from_static(PARTIAL_UPLOAD)),
    );
    respond::with(response, UPLOAD_LIMIT.clone(), limit(largest, None))
}

/// The fields of a request with its preconditions; `None` if they are too long to be kept, or no text.
pub(super) fn preconditions(headers: &HeaderMap) -> Option<Vec<(String, String)>> {
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
pub(super) fn owner(head: &Parts) -> Option<String> {
    head.extensions.get().map(|LogUser(user)| user.to_string())
}

/// The upload resource, relative to the path of the request, which a router may have shortened.
pub(super) fn location(order: &Order, token: &Token) -> HeaderValue {
    let reference = format!("./{}?{QUERY}{}", encode(&order.destination.name), token.as_str());
    // All of it is ASCII without control characters.
    HeaderValue::try_from(reference).unwrap_or(NO)
}

pub(super) fn interim_response() -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(104).unwrap_or(StatusCode::PROCESSING);
    response
}

/// The limits of an upload, or of all (section 4.1.4).
pub(super) fn limit(largest: u64, age: Option<Duration>) -> Option<HeaderValue> {
    let mut limits = format!("max-size={}", largest.min(LARGEST_INTEGER));
    if let Some(age) = age {
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
pub(super) fn integer(headers: &HeaderMap, name: &HeaderName) -> Option<u64> {
    let digits = item(headers, name)?;
    let is_integer = (1..=15).contains(&digits.len()) && digits.bytes().all(|octet| octet.is_ascii_digit());
    is_integer.then(|| digits.parse().ok())?
}

/// The response to a part of a form. Its files are known when all of it is there.
pub(crate) fn form_in_parts() -> FileResponse {
    respond::text(
        StatusCode::BAD_REQUEST,
        "a form is stored when all of it is there, so it cannot be sent in parts (upload-complete: ?0): send the whole in one request",
    )
}

pub(super) fn unknown() -> FileResponse {
    respond::text(
        StatusCode::NOT_FOUND,
        "there is no such upload: it is complete, cancelled, or too old; send the whole again",
    )
}

/// The response when the part cannot be read.
pub(super) fn lost(error: &io::Error) -> FileResponse {
    match error.kind() {
        io::ErrorKind::NotFound => unknown(),
        _ => refusal::io_failure(error).into_response(),
    }
}

pub(super) fn too_large(refusal: Refusal, largest: u64) -> FileResponse {
    let limit = (refusal.status == StatusCode::PAYLOAD_TOO_LARGE).then(|| limit(largest, None));
    respond::with(refusal.into_response(), UPLOAD_LIMIT.clone(), limit.flatten())
}

pub(super) fn inconsistent(detail: &str) -> FileResponse {
    problem(StatusCode::BAD_REQUEST, INCONSISTENT_LENGTH, detail, "")
}

pub(super) fn mismatch(offset: u64, stated: u64) -> FileResponse {
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
pub(super) fn problem(status: StatusCode, kind: &str, detail: &str, members: &str) -> FileResponse {
    let text = format!(
        "{{\"type\":\"https://iana.org/assignments/http-problem-types#{kind}\",\"title\":\"{detail}\"{members}}}\n"
    );
    let mut response = respond::plain(status, Bytes::from(text));
    let media_type = HeaderValue::from_static("application/problem+json");
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    response
}
