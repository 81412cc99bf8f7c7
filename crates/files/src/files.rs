//! GET and HEAD: from a request's head to a response.
//!
//! The service opens the path, evaluates the preconditions and ranges, and reads the body: a small one whole, of a larger
//! one the first chunk. It first tries this without blocking, on the connection's task: from the cache, or as far as the
//! kernel has directory entries and pages in memory. A request that would wait for a disk goes to a blocking job. Called
//! by `service`.

use std::collections::VecDeque;
use std::fs::{File, Metadata};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, LAST_MODIFIED,
    LOCATION, VARY,
};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};

use crate::accept;
use crate::archive::Format;
use crate::buffers::Buffer;
use crate::compress::is_compressible;
use crate::conditional::{self, Verdict};
use crate::disk::{Blocking, FileSystem, file_system_of};
use crate::encoding::{Accepted, Encoding, Siblings, is_encoded};
use crate::file_body::{FileResponse, ReadContext, ResponseBody, Segment};
use crate::head::Head;
use crate::identity::Identity;
use crate::listing;
use crate::open::{Found, OpenError, open, open_nonblocking};
use crate::peer::Peer;
use crate::random::random;
use crate::range::{self, Wanted};
use crate::representation::{Chosen, OCTETS, Representation};
use crate::reserved::is_route;
use crate::resolve::{BadPath, Target};
use crate::respond;
use crate::settings::INDEX;
use crate::shared::Shared;
use crate::source::{Located, Source};
use crate::unfinished::is_private;

/// The longest query that a redirect repeats, in bytes: as much as every server is to take (RFC 9110 section 4.1).
const QUERY_BYTES: usize = 8_000;

/// The smallest file that is compressed: less fits one packet anyway.
const COMPRESS_FROM_BYTES: u64 = 1_024;

/// A file that is about to be sent.
struct Opened<'a> {
    shared: &'a Shared,
    blocking: Blocking,
    peer: Option<Peer>,
    content: Content,
    representation: &'a Representation,
    /// Under which the cache keeps it.
    key: &'a str,
    /// The file itself, if this is a sibling of it.
    plain: Option<Located>,
}

/// Where its bytes are.
enum Content {
    /// On disk, with what is needed to cache or reopen the file, and whether its fields are cached.
    File(File, FileSystem, Option<Located>, bool),
    Memory(Bytes),
}

/// A file that was found, and its path below the root.
struct FoundFile {
    path: String,
    file: File,
    metadata: Metadata,
}

/// What a request is answered with: who asks for it, and whether it may block.
#[derive(Clone, Copy)]
struct Asked<'a> {
    shared: &'a Shared,
    head: Head<'a>,
    peer: Option<Peer>,
    blocking: Blocking,
}

/// Answers GET or HEAD without blocking; `None` when that is not possible.
pub(crate) fn answer_nonblocking(
    shared: &Shared,
    head: Head<'_>,
    peer: Option<Peer>,
) -> Option<FileResponse> {
    let asked = Asked {
        shared,
        head,
        peer,
        blocking: Blocking::Forbidden,
    };
    if let Some(answered) = asked.answer_cached(head.uri.path()) {
        return unless_blocked(answered);
    }
    if !Blocking::CAN_BE_AVOIDED || shared.watch.is_due() {
        return None;
    }
    unless_blocked(asked.answer())
}

/// A response with the fields of a whole file.
fn whole_with(representation: &Representation, body: ResponseBody) -> FileResponse {
    let mut response = Response::new(body);
    *response.headers_mut() = representation.whole();
    Box::new(response)
}

fn unless_blocked(answered: io::Result<FileResponse>) -> Option<FileResponse> {
    match answered {
        Ok(response) => Some(response),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
        Err(_) => Some(respond::status(StatusCode::INTERNAL_SERVER_ERROR)),
    }
}

/// Answers GET or HEAD. Blocks.
pub(crate) fn answer(shared: &Shared, head: Head<'_>, peer: Option<Peer>) -> FileResponse {
    let asked = Asked {
        shared,
        head,
        peer,
        blocking: Blocking::Allowed,
    };
    let answered = asked.answer();
    answered.unwrap_or_else(|_| respond::status(StatusCode::INTERNAL_SERVER_ERROR))
}

/// Under which the cache keeps a sibling. No path of a request has a NUL.
fn encoded_key(key: &str, encoding: Encoding) -> String {
    format!("{key}\0{}", encoding.suffix())
}

impl Asked<'_> {
    /// The encodings in which the request takes a sibling of a file.
    fn accepted(&self, key: &str) -> Accepted {
        match self.shared.settings.precompressed && !is_encoded(key) {
            true => Accepted::of(self.head.headers),
            false => Accepted::default(),
        }
    }

    /// Answers with the file that the cache keeps under `key`, or with the sibling of it that the request prefers. `None`
    /// when that would block, or the entry is outdated, or it is not known which siblings there are.
    fn answer_cached(&self, key: &str) -> Option<io::Result<FileResponse>> {
        let accepted = self.accepted(key);
        if accepted.is_empty() {
            return self.answer_entry(key);
        }
        let siblings = self.shared.cache.siblings(key)?;
        match accepted.best(|encoding| siblings.has(encoding)) {
            None => self.answer_entry(key),
            Some(encoding) => self.answer_entry(&encoded_key(key, encoding)),
        }
    }

    fn answer_entry(&self, key: &str) -> Option<io::Result<FileResponse>> {
        let shared = self.shared;
        let cached = shared.cache.get(&shared.root, &shared.watch, key)?;
        let content = match &cached.body {
            Some(body) => Content::Memory(body.clone()),
            None if shared.watch.is_due() => return None,
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
                    shared.cache.forget(key);
                    return None;
                }
            },
        };
        let opened = Opened {
            shared,
            blocking: Blocking::Forbidden,
            peer: self.peer,
            content,
            representation: &cached.representation,
            key,
            plain: cached.plain.clone(),
        };
        Some(opened.answer(self.head))
    }

    /// # Errors
    /// `WouldBlock` when this would block and may not; otherwise a read failed.
    fn answer(&self) -> io::Result<FileResponse> {
        let (shared, head) = (self.shared, self.head);
        let target = match Target::parse(head.uri.path()) {
            Ok(target) => target,
            Err(BadPath::TooLong) => return self.missing(None),
            Err(BadPath::Malformed) => return Ok(respond::status(StatusCode::BAD_REQUEST)),
        };
        if target.is_hidden() && !shared.settings.hidden || target.names().iter().any(|name| is_private(name))
        {
            return self.missing(None);
        }
        let (path, name) = if target.is_directory() {
            (target.child(INDEX), INDEX)
        } else {
            (target.relative(), target.last().unwrap_or_default())
        };
        match self.find(&path)? {
            Ok(Found::File(file, metadata)) => {
                let found = FoundFile { path, file, metadata };
                self.send(head.uri.path(), found, name)
            }
            // The path of a folder ends with a slash, so that relative references in its index resolve within it.
            Ok(Found::Directory) if !target.is_directory() => {
                Ok(redirect(&target.directory_reference(), head.uri.query()))
            }
            Ok(Found::Directory) | Err(OpenError::NotFound) => self.without_file(&target),
            Err(error) => Ok(respond::status(error.status())),
        }
    }

    /// # Errors
    /// `WouldBlock` when this would block and may not.
    fn find(&self, path: &str) -> io::Result<Result<Found, OpenError>> {
        match self.blocking {
            Blocking::Forbidden => {
                open_nonblocking(&self.shared.root, path).ok_or(io::ErrorKind::WouldBlock.into())
            }
            Blocking::Allowed => Ok(open(&self.shared.root, path)),
        }
    }

    /// Answers a path at which there is no file: with the list of a folder, if it is one.
    fn without_file(&self, target: &Target) -> io::Result<FileResponse> {
        if target.is_directory() && self.shared.settings.listing {
            if self.blocking == Blocking::Forbidden {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            if let Some(format) = Format::asked_for(self.head.uri.query()) {
                if let Some(archive) = listing::archive(self.shared, format, self.head, target, self.peer) {
                    return Ok(archive);
                }
            }
            if let Some(listing) = listing::answer(self.shared, self.head, target, self.peer) {
                return Ok(self.compressed_listing(listing));
            }
        }
        self.missing(Some(target))
    }

    /// A listing, compressed if that is on; as it is while too many others are.
    fn compressed_listing(&self, mut listing: FileResponse) -> FileResponse {
        let is_changed = listing.status() == StatusCode::OK;
        let is_listing = is_changed || listing.status() == StatusCode::NOT_MODIFIED;
        if !self.shared.settings.compress || !is_listing {
            return listing;
        }
        let accept_encoding = HeaderValue::from_static("accept-encoding");
        listing.headers_mut().append(VARY, accept_encoding);
        let accepted = Accepted::of(self.head.headers);
        if accepted.best(|encoding| encoding == Encoding::Gzip).is_none() {
            return listing;
        }
        if !is_changed {
            weaken(listing.headers_mut());
        } else if let Some(slot) = self.shared.compressing.admit(self.peer) {
            describe_compressed(listing.headers_mut());
            let body = std::mem::replace(listing.body_mut(), ResponseBody::empty());
            *listing.body_mut() = body.gzip(slot);
        }
        listing
    }

    /// Answers with the page of an application, with the page for errors, or with a line of text.
    fn missing(&self, target: Option<&Target>) -> io::Result<FileResponse> {
        let is_route = |target: &Target| target.last().is_none_or(is_route);
        if !self.shared.settings.spa || !target.is_some_and(is_route) {
            return self.without_page();
        }
        let mut answered = match accept::takes_html(self.head.headers) {
            true => self.application(),
            false => self.without_page(),
        }?;
        // What a cache has for one request is not for all (RFC 9110 section 12.5.5).
        answered
            .headers_mut()
            .append(VARY, HeaderValue::from_static("accept"));
        Ok(answered)
    }

    /// Answers with the index of the root.
    fn application(&self) -> io::Result<FileResponse> {
        let key = format!("/{INDEX}");
        if self.blocking == Blocking::Forbidden {
            if let Some(answered) = self.answer_cached(&key) {
                return answered;
            }
        }
        if let Ok(Found::File(file, metadata)) = self.find(INDEX)? {
            let path = INDEX.to_owned();
            return self.send(&key, FoundFile { path, file, metadata }, INDEX);
        }
        self.without_page()
    }

    /// Answers with the page for errors, or with a line of text.
    fn without_page(&self) -> io::Result<FileResponse> {
        let settings = &self.shared.settings;
        if let Some(page) = &settings.error_page {
            if let Ok(Found::File(file, metadata)) = self.find(page)? {
                let mut representation = Representation::of(&metadata, page, Chosen::Only);
                let name = page.rsplit(['/', '\\']).next().unwrap_or_default();
                self.sandbox(&mut representation, page, name);
                let file_system = file_system_of(&file, &metadata);
                let opened = Opened {
                    shared: self.shared,
                    blocking: self.blocking,
                    peer: self.peer,
                    // Never cached: the key would be that of a file.
                    content: Content::File(file, file_system, None, true),
                    representation: &representation,
                    key: "",
                    plain: None,
                };
                return opened.not_found();
            }
        }
        Ok(respond::status(StatusCode::NOT_FOUND))
    }

    /// Answers with a file, or with a sibling of it. `name` is that of the file itself.
    fn send(&self, key: &str, found: FoundFile, name: &str) -> io::Result<FileResponse> {
        let settings = &self.shared.settings;
        let sibling = self.sibling(key, &found)?;
        let encoded;
        let (found, chosen, key, plain) = match sibling {
            Some((encoding, sibling)) => {
                encoded = encoded_key(key, encoding);
                let plain = found.located();
                (sibling, Chosen::Encoded(encoding), encoded.as_str(), plain)
            }
            None if settings.precompressed && !is_encoded(name) => (found, Chosen::Plain, key, None),
            None if settings.compress => (found, Chosen::Plain, key, None),
            None => (found, Chosen::Only, key, None),
        };
        let located = found.located();
        let file_system = file_system_of(&found.file, &found.metadata);
        let mut representation = Representation::of(&found.metadata, name, chosen);
        self.sandbox(&mut representation, &found.path, name);
        let opened = Opened {
            shared: self.shared,
            blocking: self.blocking,
            peer: self.peer,
            content: Content::File(found.file, file_system, located, false),
            representation: &representation,
            key,
            plain,
        };
        opened.answer(self.head)
    }

    /// Keeps a page that somebody has uploaded from acting as one of this server.
    fn sandbox(&self, representation: &mut Representation, path: &str, name: &str) {
        if representation.may_run_scripts() && self.shared.is_upload(path, name) {
            representation.sandbox();
        }
    }

    /// The sibling of a file that the request prefers. Looks for all of them, and tells the cache, unless it knows.
    fn sibling(&self, key: &str, plain: &FoundFile) -> io::Result<Option<(Encoding, FoundFile)>> {
        let accepted = self.accepted(key);
        if accepted.is_empty() {
            return Ok(None);
        }
        if let Some(siblings) = self.shared.cache.siblings(key) {
            let best = accepted.best(|encoding| siblings.has(encoding));
            return match best {
                Some(encoding) => self.open_sibling(encoding, plain),
                None => Ok(None),
            };
        }
        let mut siblings = Siblings::default();
        let mut all = Vec::new();
        for encoding in Encoding::ALL {
            if let Some(sibling) = self.open_sibling(encoding, plain)? {
                siblings.add(encoding);
                all.push(sibling);
            }
        }
        self.shared.cache.keep_siblings(key, siblings);
        let best = accepted.best(|encoding| siblings.has(encoding));
        Ok(all.into_iter().find(|(encoding, _)| Some(*encoding) == best))
    }

    /// A sibling that is not older than its file: an older one was made of another content.
    fn open_sibling(
        &self,
        encoding: Encoding,
        plain: &FoundFile,
    ) -> io::Result<Option<(Encoding, FoundFile)>> {
        let path = format!("{}{}", plain.path, encoding.suffix());
        let Ok(Found::File(file, metadata)) = self.find(&path)? else {
            return Ok(None);
        };
        // Whole seconds: programs that copy files keep no more on every file system.
        let second = |metadata: &Metadata| {
            let since = metadata
                .modified()
                .ok()?
                .duration_since(SystemTime::UNIX_EPOCH)
                .ok()?;
            Some(since.as_secs())
        };
        let is_current = second(&metadata) >= second(&plain.metadata);
        Ok(is_current.then_some((encoding, FoundFile { path, file, metadata })))
    }
}

impl FoundFile {
    fn located(&self) -> Option<Located> {
        let identity = Identity::of(&self.metadata)?;
        Some(Located {
            path: self.path.as_str().into(),
            identity,
        })
    }
}

impl Opened<'_> {
    fn answer(self, head: Head<'_>) -> io::Result<FileResponse> {
        let validators = &self.representation.validators;
        let compresses = self.would_compress(head);
        match conditional::evaluate(head.method, head.headers, Some(validators)) {
            Verdict::Proceed => {}
            // Section 15.4.5: the client has the other fields.
            Verdict::NotModified => {
                let etag = self.representation.etag.clone();
                let mut response = respond::with(respond::bare(StatusCode::NOT_MODIFIED), ETAG, etag);
                self.representation.vary(response.headers_mut());
                if compresses {
                    weaken(response.headers_mut());
                }
                return Ok(response);
            }
            Verdict::Failed => return Ok(respond::status(StatusCode::PRECONDITION_FAILED)),
        }
        // Section 14.2: ranges apply to GET only.
        if *head.method == Method::HEAD {
            let mut response = whole_with(self.representation, ResponseBody::empty());
            if compresses {
                describe_compressed(response.headers_mut());
            }
            return Ok(response);
        }
        let length = self.representation.length;
        let wanted = if !range::is_asked(head.headers) {
            Wanted::Whole
        } else if conditional::range_applies(head.headers, validators, SystemTime::now()) {
            range::wanted(head.headers, length)
        } else {
            Wanted::Whole
        };
        match wanted {
            Wanted::Whole if compresses => self.compressed(),
            Wanted::Whole => match &self.content {
                Content::Memory(bytes) => {
                    Ok(whole_with(self.representation, ResponseBody::full(bytes.clone())))
                }
                Content::File(..) => self.whole(),
            },
            Wanted::One(range) => self.one(range),
            Wanted::Many(ranges) => self.many(ranges),
            Wanted::Unsatisfiable => Ok(unsatisfiable(length)),
        }
    }

    /// Whether the whole file would be compressed while it is sent.
    fn would_compress(&self, head: Head<'_>) -> bool {
        let (settings, representation) = (&self.shared.settings, self.representation);
        settings.compress
            && !representation.is_encoded()
            && representation.length >= COMPRESS_FROM_BYTES
            && representation.content_type.to_str().is_ok_and(is_compressible)
            && Accepted::of(head.headers)
                .best(|encoding| encoding == Encoding::Gzip)
                .is_some()
    }

    /// The whole file, compressed while it is sent; as it is while too many others are.
    fn compressed(self) -> io::Result<FileResponse> {
        let Some(slot) = self.shared.compressing.admit(self.peer) else {
            return self.whole();
        };
        let mut response = self.whole_in(false)?;
        describe_compressed(response.headers_mut());
        let body = std::mem::replace(response.body_mut(), ResponseBody::empty());
        *response.body_mut() = body.gzip(slot);
        Ok(response)
    }

    /// The page for errors: what describes it as a file is left out.
    fn not_found(self) -> io::Result<FileResponse> {
        let mut response = self.whole()?;
        *response.status_mut() = StatusCode::NOT_FOUND;
        for name in [ETAG, LAST_MODIFIED, ACCEPT_RANGES] {
            response.headers_mut().remove(name);
        }
        Ok(response)
    }

    /// The whole file. A small file is read whole and cached unless it changed just now; of a larger file, the fields are
    /// cached.
    fn whole(self) -> io::Result<FileResponse> {
        let takes_ranges = self.shared.hands_over_ranges;
        self.whole_in(takes_ranges)
    }

    /// The whole file, in ranges of it or in bytes.
    fn whole_in(self, ranges: bool) -> io::Result<FileResponse> {
        let representation = self.representation;
        let Some((file, file_system, mut buffer)) = self.whole_buffer() else {
            self.keep(None);
            let body = self.body_in(0..representation.length, ranges)?;
            return Ok(whole_with(representation, body));
        };
        file_system.read_exact_at(file, buffer.space(), 0, self.blocking)?;
        let body = buffer.freeze();
        self.keep(Some(&body));
        Ok(whole_with(representation, ResponseBody::full(body)))
    }

    fn keep(&self, body: Option<&Bytes>) {
        let Content::File(_, _, Some(located), is_cached) = &self.content else {
            return;
        };
        let cache = &self.shared.cache;
        let is_plain_old = || {
            let plain = self.plain.as_ref();
            plain.is_none_or(|plain| cache.would_keep(&plain.identity))
        };
        if (body.is_some() || !is_cached) && cache.would_keep(&located.identity) && is_plain_old() {
            cache.keep(
                self.key,
                located.clone(),
                self.plain.clone(),
                self.representation.clone(),
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
            length <= shared.settings.limits.whole_body_bytes as u64
                && shared.cache.would_keep(&located.identity)
        };
        if length > shared.settings.limits.one_frame_bytes as u64 && !is_kept() {
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
            let ranges = self.shared.hands_over_ranges;
            self.stream(segments, ranges)?
        };
        Ok(response)
    }

    /// One range as a body. A small one is read here.
    fn body(self, range: Range<u64>) -> io::Result<ResponseBody> {
        let ranges = self.shared.hands_over_ranges;
        self.body_in(range, ranges)
    }

    fn body_in(self, range: Range<u64>, ranges: bool) -> io::Result<ResponseBody> {
        let length = range.end - range.start;
        if let Content::Memory(bytes) = &self.content {
            return Ok(ResponseBody::full(slice(bytes, &range)));
        }
        let segments = VecDeque::from([Segment::File(range)]);
        if self.is_few(length) {
            return Ok(ResponseBody::full(self.gather(&segments, length)?));
        }
        self.stream(segments, ranges)
    }

    /// Whether this many bytes are read whole before the response begins.
    fn is_few(&self, length: u64) -> bool {
        length <= self.shared.buffers.first() as u64
    }

    /// A larger body, read while it is sent, in ranges of the file or in bytes.
    fn stream(self, mut segments: VecDeque<Segment>, ranges: bool) -> io::Result<ResponseBody> {
        match self.content {
            Content::File(file, file_system, located, _) => {
                let shared = self.shared;
                let context = ReadContext {
                    source: Source::new(file, file_system, located, &shared.root, &shared.descriptors),
                    buffers: Arc::clone(&shared.buffers),
                    jobs: Arc::clone(&shared.jobs),
                    peer: self.peer,
                    hands_over_ranges: ranges,
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

/// Makes the fields of a whole file those of its compressed form, whose length is not known.
fn describe_compressed(headers: &mut HeaderMap) {
    headers.remove(CONTENT_LENGTH);
    headers.remove(ACCEPT_RANGES);
    headers.insert(CONTENT_ENCODING, Encoding::Gzip.value());
    weaken(headers);
}

/// RFC 9110 section 8.8.1: what is compressed anew need not be the same bytes each time.
fn weaken(headers: &mut HeaderMap) {
    let weak = headers.get(ETAG).and_then(|etag| etag.to_str().ok());
    if let Some(Ok(weak)) = weak.map(|etag| HeaderValue::try_from(format!("W/{etag}"))) {
        headers.insert(ETAG, weak);
    }
}

/// 416 with the length of the file (RFC 9110 section 15.5.17).
fn unsatisfiable(length: u64) -> FileResponse {
    respond::with(
        respond::status(StatusCode::RANGE_NOT_SATISFIABLE),
        CONTENT_RANGE,
        HeaderValue::try_from(format!("bytes */{length}")).ok(),
    )
}

/// With the query of the request, unless that is too long to be sent back: with HPACK a request repeats a long one for one byte.
fn redirect(location: &str, query: Option<&str>) -> FileResponse {
    if query.is_some_and(|query| query.len() > QUERY_BYTES) {
        return respond::status(StatusCode::URI_TOO_LONG);
    }
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
