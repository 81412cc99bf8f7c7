//! GET and HEAD: from a request's head to a file's answer.
//!
//! All of it happens in one blocking job: the path is opened and stat'ed, the preconditions and ranges are weighed,
//! and the body is read, whole when it is small and its first chunk when it is not. Called by `service`.

use std::collections::VecDeque;
use std::fs::{File, Metadata};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, LAST_MODIFIED, LOCATION,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};

use super::conditional::{self, Validators, Verdict};
use super::file_body::{Segment, ServeBody, read_exact_at};
use super::open::{Found, OpenError, open};
use super::range::{self, Wanted};
use super::resolve::{BadPath, Target};
use super::respond;
use super::service::Shared;

/// A file that is about to be sent.
struct Opened<'a> {
    shared: &'a Shared,
    file: File,
    length: u64,
    content_type: HeaderValue,
    validators: Validators,
}

/// Answers GET or HEAD. Blocks.
pub(super) fn answer(shared: &Shared, head: &Parts) -> Response<ServeBody> {
    let target = match Target::parse(head.uri.path()) {
        Ok(target) => target,
        Err(BadPath::TooLong) => return respond::status(StatusCode::NOT_FOUND),
        Err(BadPath::Malformed) => return respond::status(StatusCode::BAD_REQUEST),
    };
    let (path, name) = if target.is_directory() {
        let index = shared.settings.index.as_str();
        (target.child(index), index)
    } else {
        (target.relative(), target.last().unwrap_or_default())
    };
    match open(&shared.root, &path) {
        Ok(Found::File(file, metadata)) => Opened::new(shared, file, &metadata, name).answer(head),
        // A directory is named with a slash, so that relative references in its index resolve within it.
        Ok(Found::Directory) if !target.is_directory() => {
            redirect(&target.directory_location(), head.uri.query())
        }
        Ok(Found::Directory) => respond::status(OpenError::NotFound.status()),
        Err(error) => respond::status(error.status()),
    }
}

impl Opened<'_> {
    fn new<'a>(shared: &'a Shared, file: File, metadata: &Metadata, name: &str) -> Opened<'a> {
        Opened {
            shared,
            file,
            length: metadata.len(),
            content_type: content_type(name),
            validators: Validators::of(metadata, SystemTime::now()),
        }
    }

    fn answer(self, head: &Parts) -> Response<ServeBody> {
        match conditional::evaluate(&head.method, &head.headers, Some(&self.validators)) {
            Verdict::Proceed => {}
            // Only what section 15.4.5 asks for: the rest is the client's already.
            Verdict::NotModified => {
                let etag = self.validators.etag();
                return respond::with(respond::bare(StatusCode::NOT_MODIFIED), ETAG, etag);
            }
            Verdict::Failed => return respond::status(StatusCode::PRECONDITION_FAILED),
        }
        // Section 14.2: ranges are GET's alone.
        if head.method == Method::HEAD {
            return self.head();
        }
        let max_ranges = self.shared.settings.max_ranges;
        let wanted = if conditional::range_applies(&head.headers, &self.validators) {
            range::wanted(&head.headers, self.length, max_ranges)
        } else {
            Wanted::Whole
        };
        let sent = match wanted {
            Wanted::Whole => self.whole(),
            Wanted::One(range) => self.one(range),
            Wanted::Many(ranges) => self.many(ranges),
            Wanted::Unsatisfiable => return unsatisfiable(self.length),
        };
        sent.unwrap_or_else(|_| respond::status(StatusCode::INTERNAL_SERVER_ERROR))
    }

    fn head(&self) -> Response<ServeBody> {
        let mut response = respond::bare(StatusCode::OK);
        let headers = response.headers_mut();
        self.describe(headers, self.length);
        headers.insert(CONTENT_TYPE, self.content_type.clone());
        response
    }

    fn whole(self) -> io::Result<Response<ServeBody>> {
        let mut response = self.head();
        let range = 0..self.length;
        *response.body_mut() = self.body(range)?;
        Ok(response)
    }

    fn one(self, range: Range<u64>) -> io::Result<Response<ServeBody>> {
        let mut response = respond::bare(StatusCode::PARTIAL_CONTENT);
        let headers = response.headers_mut();
        self.describe(headers, range.end - range.start);
        if let Ok(value) = HeaderValue::try_from(content_range(&range, self.length)) {
            headers.insert(CONTENT_RANGE, value);
        }
        headers.insert(CONTENT_TYPE, self.content_type.clone());
        *response.body_mut() = self.body(range)?;
        Ok(response)
    }

    /// RFC 9110 section 14.6.
    fn many(self, ranges: Vec<Range<u64>>) -> io::Result<Response<ServeBody>> {
        let boundary = boundary();
        let content_type = self.content_type.to_str().unwrap_or(OCTETS);
        let mut segments = VecDeque::with_capacity(ranges.len() * 2 + 1);
        let mut length = 0;
        for range in ranges {
            let part = format!(
                "\r\n--{boundary}\r\ncontent-type: {content_type}\r\ncontent-range: {}\r\n\r\n",
                content_range(&range, self.length)
            );
            length += part.len() as u64 + (range.end - range.start);
            segments.push_back(Segment::Memory(Bytes::from(part)));
            segments.push_back(Segment::File(range));
        }
        let end = format!("\r\n--{boundary}--\r\n");
        length += end.len() as u64;
        segments.push_back(Segment::Memory(Bytes::from(end)));

        let mut response = respond::bare(StatusCode::PARTIAL_CONTENT);
        let headers = response.headers_mut();
        self.describe(headers, length);
        let multipart = format!("multipart/byteranges; boundary={boundary}");
        if let Ok(value) = HeaderValue::try_from(multipart) {
            headers.insert(CONTENT_TYPE, value);
        }
        *response.body_mut() = if length <= self.shared.settings.whole_body_bytes as u64 {
            self.gather(&segments, length)?
        } else {
            ServeBody::file(self.file, segments, Arc::clone(&self.shared.buffers))?
        };
        Ok(response)
    }

    /// The fields that 200 and 206 have in common.
    fn describe(&self, headers: &mut HeaderMap, content_length: u64) {
        headers.reserve(8);
        headers.insert(CONTENT_LENGTH, HeaderValue::from(content_length));
        headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        if let Some(etag) = self.validators.etag() {
            headers.insert(ETAG, etag);
        }
        if let Some(modified) = self.validators.last_modified() {
            headers.insert(LAST_MODIFIED, modified);
        }
    }

    /// One range as a body: read here when it is small.
    fn body(self, range: Range<u64>) -> io::Result<ServeBody> {
        let length = range.end - range.start;
        let segments = VecDeque::from([Segment::File(range)]);
        if length <= self.shared.settings.whole_body_bytes as u64 {
            self.gather(&segments, length)
        } else {
            ServeBody::file(self.file, segments, Arc::clone(&self.shared.buffers))
        }
    }

    /// A body of few octets, read whole into memory of its own size.
    fn gather(&self, segments: &VecDeque<Segment>, length: u64) -> io::Result<ServeBody> {
        let mut octets = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
        for segment in segments {
            match segment {
                Segment::Memory(bytes) => octets.extend_from_slice(bytes),
                Segment::File(range) => {
                    let start = octets.len();
                    let more = usize::try_from(range.end - range.start).unwrap_or(0);
                    octets.resize(start + more, 0);
                    let space = octets.get_mut(start..).unwrap_or_default();
                    read_exact_at(&self.file, space, range.start)?;
                }
            }
        }
        Ok(ServeBody::full(Bytes::from(octets)))
    }
}

const OCTETS: &str = "application/octet-stream";

/// The media type that the name's extension stands for; text is taken to be UTF-8.
fn content_type(name: &str) -> HeaderValue {
    let Some(known) = mime_guess::from_path(name).first_raw() else {
        return HeaderValue::from_static(OCTETS);
    };
    if known.starts_with("text/") {
        HeaderValue::try_from(format!("{known}; charset=utf-8")).unwrap_or(HeaderValue::from_static(OCTETS))
    } else {
        HeaderValue::from_static(known)
    }
}

fn content_range(range: &Range<u64>, length: u64) -> String {
    format!("bytes {}-{}/{length}", range.start, range.end - 1)
}

/// 416, which tells the length (RFC 9110 section 15.5.17).
fn unsatisfiable(length: u64) -> Response<ServeBody> {
    respond::with(
        respond::status(StatusCode::RANGE_NOT_SATISFIABLE),
        CONTENT_RANGE,
        HeaderValue::try_from(format!("bytes */{length}")).ok(),
    )
}

fn redirect(location: &str, query: Option<&str>) -> Response<ServeBody> {
    let location = match query {
        Some(query) => HeaderValue::try_from(format!("{location}?{query}")),
        None => HeaderValue::try_from(location),
    };
    respond::with(
        respond::status(StatusCode::PERMANENT_REDIRECT),
        LOCATION,
        location.ok(),
    )
}

/// A boundary that a file cannot hold on purpose, since nobody knows it before.
fn boundary() -> String {
    format!("{:016x}{:016x}", random(), random())
}

/// 64 bits that a peer cannot foresee: the keys of `RandomState` are random in each process, and differ in each.
pub(super) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_said_to_be_utf_8_and_the_unknown_is_octets() {
        for (name, expected) in [
            ("a.html", "text/html; charset=utf-8"),
            ("a.TXT", "text/plain; charset=utf-8"),
            ("a.css", "text/css; charset=utf-8"),
            ("a.js", "text/javascript; charset=utf-8"),
            ("a.json", "application/json"),
            ("a.svg", "image/svg+xml"),
            ("a.png", "image/png"),
            ("a.wasm", "application/wasm"),
            ("a.tar.gz", "application/gzip"),
            ("a", OCTETS),
            ("a.no-such-thing", OCTETS),
            (".html", OCTETS),
        ] {
            assert_eq!(content_type(name), expected, "{name}");
        }
    }

    #[test]
    fn boundaries_differ() {
        assert_ne!(boundary(), boundary());
    }
}
