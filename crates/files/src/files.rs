//! GET and HEAD: from a request's head to a file's answer.
//!
//! The path is opened and stat'ed, the preconditions and ranges are weighed, and the body is read, whole when it is small
//! and its first chunk when it is not. First all of that is tried at once, within the connection's turn: from the cache,
//! or as far as the system has the directory and the octets in memory. Only what would have to wait for a disk goes to a
//! blocking job. Called by `service`.

use std::collections::VecDeque;
use std::fs::File;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
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
use crate::disk::{Patience, Volume, volume_of};
use crate::file_body::{Means, Segment, ServeBody};
use crate::identity::Identity;
use crate::jobs::Peer;
use crate::open::{Found, OpenError, open, open_at_once};
use crate::range::{self, Wanted};
use crate::representation::{OCTETS, Representation};
use crate::resolve::{BadPath, Target};
use crate::respond;
use crate::service::Shared;
use crate::source::{Place, Source};

/// A file that is about to be sent.
struct Opened<'a> {
    shared: &'a Shared,
    patience: Patience,
    peer: Option<Peer>,
    content: Content,
    representation: &'a Representation,
}

/// Where its octets are.
enum Content {
    /// On disk, with what is needed to keep them when they are few, or to find them again.
    File(File, Volume, Option<Place>, Described),
    Memory(Bytes),
}

/// Whether the cache has what describes a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Described {
    Kept,
    Anew,
}

/// Answers GET or HEAD without waiting for anything; `None` when that is not possible.
pub(crate) fn answer_at_once(
    shared: &Shared,
    head: &Parts,
    peer: Option<Peer>,
) -> Option<Response<ServeBody>> {
    if let Some(cached) = shared.cache.get(&shared.root, head.uri.path()) {
        if let Some(answered) = answer_cached(shared, &cached, head, peer) {
            return at_once(answered);
        }
    }
    if !Patience::AT_ONCE_IS_POSSIBLE {
        return None;
    }
    at_once(try_answer(shared, head, peer, Patience::AtOnce))
}

fn at_once(answered: io::Result<Response<ServeBody>>) -> Option<Response<ServeBody>> {
    match answered {
        Ok(response) => Some(response),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
        Err(_) => Some(respond::status(StatusCode::INTERNAL_SERVER_ERROR)),
    }
}

/// Answers GET or HEAD. Blocks.
pub(crate) fn answer(shared: &Shared, head: &Parts, peer: Option<Peer>) -> Response<ServeBody> {
    let answered = try_answer(shared, head, peer, Patience::Wait);
    answered.unwrap_or_else(|_| respond::status(StatusCode::INTERNAL_SERVER_ERROR))
}

/// Answers from an entry of the cache; `None` when that is not possible, or not right any more.
fn answer_cached(
    shared: &Shared,
    cached: &Cached,
    head: &Parts,
    peer: Option<Peer>,
) -> Option<io::Result<Response<ServeBody>>> {
    let content = match &cached.body {
        Some(body) => Content::Memory(body.clone()),
        None => match open_at_once(&shared.root, &cached.path)? {
            Ok(Found::File(file, metadata)) if Identity::of(&metadata) == Some(cached.identity) => {
                let place = Place {
                    path: Arc::clone(&cached.path),
                    identity: cached.identity,
                };
                let volume = volume_of(&file, &metadata);
                Content::File(file, volume, Some(place), Described::Kept)
            }
            _ => {
                shared.cache.forget(head.uri.path());
                return None;
            }
        },
    };
    let opened = Opened {
        shared,
        patience: Patience::AtOnce,
        peer,
        content,
        representation: &cached.representation,
    };
    Some(opened.answer(head))
}

/// # Errors
/// `WouldBlock` when there is no patience for what it takes; otherwise a read failed.
fn try_answer(
    shared: &Shared,
    head: &Parts,
    peer: Option<Peer>,
    patience: Patience,
) -> io::Result<Response<ServeBody>> {
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
    let found = match patience {
        Patience::AtOnce => open_at_once(&shared.root, &path).ok_or(io::ErrorKind::WouldBlock)?,
        Patience::Wait => open(&shared.root, &path),
    };
    match found {
        Ok(Found::File(file, metadata)) => {
            let volume = volume_of(&file, &metadata);
            let place = Identity::of(&metadata).map(|identity| Place {
                path: path.into(),
                identity,
            });
            let opened = Opened {
                shared,
                patience,
                peer,
                content: Content::File(file, volume, place, Described::Anew),
                representation: &Representation::of(&metadata, name),
            };
            opened.answer(head)
        }
        // A directory is named with a slash, so that relative references in its index resolve within it.
        Ok(Found::Directory) if !target.is_directory() => {
            Ok(redirect(&target.directory_location(), head.uri.query()))
        }
        Ok(Found::Directory) => Ok(respond::status(OpenError::NotFound.status())),
        Err(error) => Ok(respond::status(error.status())),
    }
}

impl Opened<'_> {
    fn answer(self, head: &Parts) -> io::Result<Response<ServeBody>> {
        let validators = &self.representation.validators;
        match conditional::evaluate(&head.method, &head.headers, Some(validators)) {
            Verdict::Proceed => {}
            // Only what section 15.4.5 asks for: the rest is the client's already.
            Verdict::NotModified => {
                let etag = self.representation.etag.clone();
                return Ok(respond::with(respond::bare(StatusCode::NOT_MODIFIED), ETAG, etag));
            }
            Verdict::Failed => return Ok(respond::status(StatusCode::PRECONDITION_FAILED)),
        }
        // Section 14.2: ranges are GET's alone.
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

    fn head(&self) -> Response<ServeBody> {
        let mut response = Response::new(ServeBody::empty());
        *response.headers_mut() = self.representation.whole();
        response
    }

    /// The whole file; a small one is read whole. It is kept for the next who asks for this path unless it was changed just
    /// now, of a long one what describes it.
    fn whole(self, request_path: &str) -> io::Result<Response<ServeBody>> {
        let mut response = self.head();
        let Some((file, volume, mut buffer)) = self.whole_buffer() else {
            self.keep(request_path, None);
            let length = self.representation.length;
            *response.body_mut() = self.body(0..length)?;
            return Ok(response);
        };
        volume.read_exact_at(file, buffer.space(), 0, self.patience)?;
        let body = buffer.freeze();
        self.keep(request_path, Some(&body));
        *response.body_mut() = ServeBody::full(body);
        Ok(response)
    }

    fn keep(&self, request_path: &str, body: Option<&Bytes>) {
        let Content::File(_, _, Some(place), described) = &self.content else {
            return;
        };
        let is_news = body.is_some() || *described == Described::Anew;
        let cache = &self.shared.cache;
        if is_news && cache.would_keep(&place.identity) {
            let representation = self.representation.clone();
            let path = Arc::clone(&place.path);
            cache.keep(request_path, path, place.identity, representation, body.cloned());
        }
    }

    /// The file and a buffer for all of it, when it is one to be read whole.
    fn whole_buffer(&self) -> Option<(&File, Volume, Buffer)> {
        let (shared, length) = (self.shared, self.representation.length);
        let Content::File(file, volume, Some(place), _) = &self.content else {
            return None;
        };
        // What fits one frame would not fit one in pieces; what is longer is read so for the sake of the next only.
        let is_kept =
            || length <= shared.settings.whole_body_bytes as u64 && shared.cache.would_keep(&place.identity);
        if length > shared.settings.one_frame_bytes as u64 && !is_kept() {
            return None;
        }
        let buffer = shared.buffers.take_whole(usize::try_from(length).ok()?)?;
        Some((file, *volume, buffer))
    }

    fn one(self, range: Range<u64>) -> io::Result<Response<ServeBody>> {
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
    fn many(self, ranges: Vec<Range<u64>>) -> io::Result<Response<ServeBody>> {
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
            ServeBody::full(self.gather(&segments, length)?)
        } else {
            self.stream(segments)?
        };
        Ok(response)
    }

    /// One range as a body: read here when it is small.
    fn body(self, range: Range<u64>) -> io::Result<ServeBody> {
        let length = range.end - range.start;
        if let Content::Memory(bytes) = &self.content {
            return Ok(ServeBody::full(slice(bytes, &range)));
        }
        let segments = VecDeque::from([Segment::File(range)]);
        if self.is_few(length) {
            return Ok(ServeBody::full(self.gather(&segments, length)?));
        }
        self.stream(segments)
    }

    /// Whether so many octets are read whole, before any of them leaves.
    fn is_few(&self, length: u64) -> bool {
        length <= self.shared.buffers.first() as u64
    }

    /// A body of many octets, read as they leave.
    fn stream(self, mut segments: VecDeque<Segment>) -> io::Result<ServeBody> {
        match self.content {
            Content::File(file, volume, place, _) => {
                let Shared {
                    root,
                    buffers,
                    descriptors,
                    jobs,
                    settings,
                    ..
                } = self.shared;
                let means = Means {
                    source: Source::new(file, volume, place, root, descriptors),
                    buffers: Arc::clone(buffers),
                    jobs: Arc::clone(jobs),
                    peer: self.peer,
                    hands_over_ranges: settings.sends_files,
                };
                ServeBody::file(means, segments, self.patience)
            }
            Content::Memory(bytes) => {
                for segment in &mut segments {
                    if let Segment::File(range) = segment {
                        *segment = Segment::Memory(slice(&bytes, range));
                    }
                }
                Ok(ServeBody::memory(segments))
            }
        }
    }

    /// Few octets, read whole into memory of their own size.
    fn gather(&self, segments: &VecDeque<Segment>, length: u64) -> io::Result<Bytes> {
        let length = usize::try_from(length).map_err(io::Error::other)?;
        let mut buffer = self.shared.buffers.take_exactly(length);
        let mut space = buffer.space();
        for segment in segments {
            let length = usize::try_from(segment.len()).map_err(io::Error::other)?;
            // The segments are as long together as the buffer is.
            let (now, rest) = space.split_at_mut(length.min(space.len()));
            match (segment, &self.content) {
                (Segment::Memory(bytes), _) => fill(now, bytes)?,
                (Segment::File(range), Content::Memory(bytes)) => fill(now, &slice(bytes, range))?,
                (Segment::File(range), Content::File(file, volume, ..)) => {
                    volume.read_exact_at(file, now, range.start, self.patience)?;
                }
            }
            space = rest;
        }
        Ok(buffer.freeze())
    }
}

/// # Errors
/// There are not as many octets as there is space.
fn fill(space: &mut [u8], octets: &[u8]) -> io::Result<()> {
    if space.len() != octets.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    space.copy_from_slice(octets);
    Ok(())
}

/// A range of octets that are here.
fn slice(bytes: &Bytes, range: &Range<u64>) -> Bytes {
    let within = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
    bytes.slice(within(range.start)..within(range.end).max(within(range.start)))
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
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundaries_differ() {
        assert_ne!(boundary(), boundary());
    }
}
