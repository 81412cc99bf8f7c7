//! GET and HEAD: from a request's head to a response.
//!
//! The service opens the path, evaluates the preconditions and ranges, and reads the body: a small one whole, of a larger
//! one the first chunk. It first tries this without blocking, on the connection's task: from the cache, or as far as the
//! kernel has directory entries and pages in memory. A request that would wait for a disk goes to a blocking job. Called
//! by `service`.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_RANGE, CONTENT_TYPE, ETAG, LOCATION};
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};

use crate::buffers::Buffer;
use crate::cache::Cached;
use crate::conditional::{self, Verdict};
use crate::disk::{Blocking, FileSystem, file_system_of};
use crate::file_body::{FileResponse, ReadContext, ResponseBody, Segment};
use crate::identity::Identity;
use crate::open::{Found, OpenError, open, open_nonblocking};
use crate::peer::Peer;
use crate::random::random;
use crate::range::{self, Wanted};
use crate::representation::{OCTETS, Representation};
use crate::resolve::{BadPath, Target};
use crate::respond;
use crate::shared::Shared;
use crate::source::{Located, Source};

/// A file that is about to be sent.
struct Opened<'a> {
    shared: &'a Shared,
    blocking: Blocking,
    peer: Option<Peer>,
    content: Content,
    representation: &'a Representation,
}

/// Where its bytes are.
enum Content {
    /// On disk, with what is needed to cache or reopen the file, and whether its fields are cached.
    File(File, FileSystem, Option<Located>, bool),
    Memory(Bytes),
}

/// Answers GET or HEAD without blocking; `None` when that is not possible.
pub(crate) fn answer_nonblocking(shared: &Shared, head: &Parts, peer: Option<Peer>) -> Option<FileResponse> {
    if let Some(cached) = shared.cache.get(&shared.root, head.uri.path()) {
        if let Some(answered) = answer_cached(shared, &cached, head, peer) {
            return unless_blocked(answered);
        }
    }
    if !Blocking::CAN_BE_AVOIDED {
        return None;
    }
    unless_blocked(try_answer(shared, head, peer, Blocking::Forbidden))
}

fn unless_blocked(answered: io::Result<FileResponse>) -> Option<FileResponse> {
    match answered {
        Ok(response) => Some(response),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
        Err(_) => Some(respond::status(StatusCode::INTERNAL_SERVER_ERROR)),
    }
}

/// Answers GET or HEAD. Blocks.
pub(crate) fn answer(shared: &Shared, head: &Parts, peer: Option<Peer>) -> FileResponse {
    let answered = try_answer(shared, head, peer, Blocking::Allowed);
    answered.unwrap_or_else(|_| respond::status(StatusCode::INTERNAL_SERVER_ERROR))
}

/// Answers from an entry of the cache; `None` when that would block, or the entry is outdated.
fn answer_cached(
    shared: &Shared,
    cached: &Cached,
    head: &Parts,
    peer: Option<Peer>,
) -> Option<io::Result<FileResponse>> {
    let content = match &cached.body {
        Some(body) => Content::Memory(body.clone()),
        None => match open_nonblocking(&shared.root, &cached.path)? {
            Ok(Found::File(file, metadata)) if Identity::of(&metadata) == Some(cached.identity) => {
                let located = Located {
                    path: Arc::clone(&cached.path),
                    identity: cached.identity,
                };
                let file_system = file_system_of(&file, &metadata);
                Content::File(file, file_system, Some(located), true)
            }
            _ => {
                shared.cache.forget(head.uri.path());
                return None;
            }
        },
    };
    let opened = Opened {
        shared,
        blocking: Blocking::Forbidden,
        peer,
        content,
        representation: &cached.representation,
    };
    Some(opened.answer(head))
}

/// # Errors
/// `WouldBlock` when this would block and may not; otherwise a read failed.
fn try_answer(
    shared: &Shared,
    head: &Parts,
    peer: Option<Peer>,
    blocking: Blocking,
) -> io::Result<FileResponse> {
    let target = match Target::parse(head.uri.path()) {
        Ok(target) => target,
        Err(BadPath::TooLong) => return Ok(respond::status(StatusCode::NOT_FOUND)),
        Err(BadPath::Malformed) => return Ok(respond::status(StatusCode::BAD_REQUEST)),
    };
    if target.is_hidden() && !shared.settings.hidden {
        return Ok(respond::status(StatusCode::NOT_FOUND));
    }
    let (path, name) = if target.is_directory() {
        let index = shared.settings.index.as_str();
        (target.child(index), index)
    } else {
        (target.relative(), target.last().unwrap_or_default())
    };
    let found = match blocking {
        Blocking::Forbidden => open_nonblocking(&shared.root, &path).ok_or(io::ErrorKind::WouldBlock)?,
        Blocking::Allowed => open(&shared.root, &path),
    };
    match found {
        Ok(Found::File(file, metadata)) => {
            let file_system = file_system_of(&file, &metadata);
            let located = Identity::of(&metadata).map(|identity| Located {
                path: path.into(),
                identity,
            });
            let opened = Opened {
                shared,
                blocking,
                peer,
                content: Content::File(file, file_system, located, false),
                representation: &Representation::of(&metadata, name),
            };
            opened.answer(head)
        }
        // The path of a folder ends with a slash, so that relative references in its index resolve within it.
        Ok(Found::Directory) if !target.is_directory() => {
            Ok(redirect(&target.directory_location(), head.uri.query()))
        }
        Ok(Found::Directory) => Ok(respond::status(OpenError::NotFound.status())),
        Err(error) => Ok(respond::status(error.status())),
    }
}

impl Opened<'_> {
    fn answer(self, head: &Parts) -> io::Result<FileResponse> {
        let validators = &self.representation.validators;
        match conditional::evaluate(&head.method, &head.headers, Some(validators)) {
            Verdict::Proceed => {}
            // Section 15.4.5: the client has the other fields.
            Verdict::NotModified => {
                let etag = self.representation.etag.clone();
                return Ok(respond::with(respond::bare(StatusCode::NOT_MODIFIED), ETAG, etag));
            }
            Verdict::Failed => return Ok(respond::status(StatusCode::PRECONDITION_FAILED)),
        }
        // Section 14.2: ranges apply to GET only.
        if head.method == Method::HEAD {
            return Ok(self.head());
        }
        let max_ranges = self.shared.settings.max_ranges;
        let length = self.representation.length;
        let wanted = if !range::is_asked(&head.headers) {
            Wanted::Whole
        } else if conditional::range_applies(&head.headers, validators) {
            range::wanted(&head.headers, length, max_ranges)
        } else {
            Wanted::Whole
        };
        match wanted {
            Wanted::Whole => self.whole(head.uri.path()),
            Wanted::One(range) => self.one(range),
            Wanted::Many(ranges) => self.many(ranges),
            Wanted::Unsatisfiable => Ok(unsatisfiable(length)),
        }
    }

    fn head(&self) -> FileResponse {
        let mut response = Response::new(ResponseBody::empty());
        *response.headers_mut() = self.representation.whole();
        response
    }

    /// The whole file. A small file is read whole and cached unless it changed just now; of a larger file, the fields are
    /// cached.
    fn whole(self, request_path: &str) -> io::Result<FileResponse> {
        let mut response = self.head();
        let Some((file, file_system, mut buffer)) = self.whole_buffer() else {
            self.keep(request_path, None);
            let length = self.representation.length;
            *response.body_mut() = self.body(0..length)?;
            return Ok(response);
        };
        file_system.read_exact_at(file, buffer.space(), 0, self.blocking)?;
        let body = buffer.freeze();
        self.keep(request_path, Some(&body));
        *response.body_mut() = ResponseBody::full(body);
        Ok(response)
    }

    fn keep(&self, request_path: &str, body: Option<&Bytes>) {
        let Content::File(_, _, Some(located), is_cached) = &self.content else {
            return;
        };
        let cache = &self.shared.cache;
        if (body.is_some() || !is_cached) && cache.would_keep(&located.identity) {
            let representation = self.representation.clone();
            let path = Arc::clone(&located.path);
            cache.keep(
                request_path,
                path,
                located.identity,
                representation,
                body.cloned(),
            );
        }
    }

    /// The file and a buffer for all of it, if it is to be read whole.
    fn whole_buffer(&self) -> Option<(&File, FileSystem, Buffer)> {
        let (shared, length) = (self.shared, self.representation.length);
        let Content::File(file, file_system, Some(located), _) = &self.content else {
            return None;
        };
        // A file that fits one frame is read whole to leave in one frame. A larger one is read whole to be cached.
        let is_kept = || {
            length <= shared.settings.whole_body_bytes as u64 && shared.cache.would_keep(&located.identity)
        };
        if length > shared.settings.one_frame_bytes as u64 && !is_kept() {
            return None;
        }
        let buffer = shared.buffers.take_whole(usize::try_from(length).ok()?)?;
        Some((file, *file_system, buffer))
    }

    fn one(self, range: Range<u64>) -> io::Result<FileResponse> {
        let mut response = respond::bare(StatusCode::PARTIAL_CONTENT);
        let headers = response.headers_mut();
        self.representation.describe(headers, range.end - range.start);
        if let Ok(value) = HeaderValue::try_from(content_range(&range, self.representation.length)) {
            headers.insert(CONTENT_RANGE, value);
        }
        headers.insert(CONTENT_TYPE, self.representation.content_type.clone());
        *response.body_mut() = self.body(range)?;
        Ok(response)
    }

    /// RFC 9110 section 14.6.
    fn many(self, ranges: Vec<Range<u64>>) -> io::Result<FileResponse> {
        let boundary = boundary();
        let content_type = self.representation.content_type.to_str().unwrap_or(OCTETS);
        let mut segments = VecDeque::with_capacity(ranges.len() * 2 + 1);
        let mut length = 0;
        for range in ranges {
            let part = format!(
                "\r\n--{boundary}\r\ncontent-type: {content_type}\r\ncontent-range: {}\r\n\r\n",
                content_range(&range, self.representation.length)
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
        self.representation.describe(headers, length);
        let multipart = format!("multipart/byteranges; boundary={boundary}");
        if let Ok(value) = HeaderValue::try_from(multipart) {
            headers.insert(CONTENT_TYPE, value);
        }
        *response.body_mut() = if self.is_few(length) {
            ResponseBody::full(self.gather(&segments, length)?)
        } else {
            self.stream(segments)?
        };
        Ok(response)
    }

    /// One range as a body. A small one is read here.
    fn body(self, range: Range<u64>) -> io::Result<ResponseBody> {
        let length = range.end - range.start;
        if let Content::Memory(bytes) = &self.content {
            return Ok(ResponseBody::full(slice(bytes, &range)));
        }
        let segments = VecDeque::from([Segment::File(range)]);
        if self.is_few(length) {
            return Ok(ResponseBody::full(self.gather(&segments, length)?));
        }
        self.stream(segments)
    }

    /// Whether this many bytes are read whole before the response begins.
    fn is_few(&self, length: u64) -> bool {
        length <= self.shared.buffers.first() as u64
    }

    /// A larger body, read while it is sent.
    fn stream(self, mut segments: VecDeque<Segment>) -> io::Result<ResponseBody> {
        match self.content {
            Content::File(file, file_system, located, _) => {
                let shared = self.shared;
                let context = ReadContext {
                    source: Source::new(file, file_system, located, &shared.root, &shared.descriptors),
                    buffers: Arc::clone(&shared.buffers),
                    jobs: Arc::clone(&shared.jobs),
                    peer: self.peer,
                    hands_over_ranges: shared.hands_over_ranges,
                };
                ResponseBody::file(context, segments, self.blocking)
            }
            Content::Memory(bytes) => {
                for segment in &mut segments {
                    if let Segment::File(range) = segment {
                        *segment = Segment::Memory(slice(&bytes, range));
                    }
                }
                Ok(ResponseBody::memory(segments))
            }
        }
    }

    /// A few bytes, read whole into a buffer of their length.
    fn gather(&self, segments: &VecDeque<Segment>, length: u64) -> io::Result<Bytes> {
        let length = usize::try_from(length).map_err(io::Error::other)?;
        let mut buffer = self.shared.buffers.take_exactly(length);
        let mut space = buffer.space();
        for segment in segments {
            let length = usize::try_from(segment.len()).map_err(io::Error::other)?;
            // The segments together are as long as the buffer.
            let (now, rest) = space.split_at_mut(length.min(space.len()));
            match (segment, &self.content) {
                (Segment::Memory(bytes), _) => fill(now, bytes)?,
                (Segment::File(range), Content::Memory(bytes)) => fill(now, &slice(bytes, range))?,
                (Segment::File(range), Content::File(file, file_system, ..)) => {
                    file_system.read_exact_at(file, now, range.start, self.blocking)?;
                }
            }
            space = rest;
        }
        Ok(buffer.freeze())
    }
}

/// # Errors
/// `UnexpectedEof`: the lengths differ.
fn fill(space: &mut [u8], octets: &[u8]) -> io::Result<()> {
    if space.len() != octets.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    space.copy_from_slice(octets);
    Ok(())
}

/// A range of bytes in memory.
fn slice(bytes: &Bytes, range: &Range<u64>) -> Bytes {
    let within = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
    bytes.slice(within(range.start)..within(range.end).max(within(range.start)))
}

fn content_range(range: &Range<u64>, length: u64) -> String {
    format!("bytes {}-{}/{length}", range.start, range.end - 1)
}

/// 416 with the length of the file (RFC 9110 section 15.5.17).
fn unsatisfiable(length: u64) -> FileResponse {
    respond::with(
        respond::status(StatusCode::RANGE_NOT_SATISFIABLE),
        CONTENT_RANGE,
        HeaderValue::try_from(format!("bytes */{length}")).ok(),
    )
}

fn redirect(location: &str, query: Option<&str>) -> FileResponse {
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

/// A boundary that no file can contain on purpose, since it is random.
fn boundary() -> String {
    format!("{:016x}{:016x}", random(), random())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundaries_differ() {
        assert_ne!(boundary(), boundary());
    }
}
