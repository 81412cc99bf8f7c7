//! A server that follows a script of faults, over transports in memory.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use fullbore::server::serve_connection;
use fullbore::{BoxError, Config};
use fullbore_testing::random::Random;
use http::header::{
    ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, DATE, ETAG, HeaderMap, HeaderValue,
    IF_RANGE, LAST_MODIFIED, RANGE, RETRY_AFTER,
};
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::{Instant, Sleep};

/// The octets of a chunk.
const CHUNK: u64 = 16_000;

const MODIFIED: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

/// The octet of a version of the content at an offset. Equal runs at different offsets are short.
pub(crate) fn octet(version: u64, offset: u64) -> u8 {
    let mixed = (offset / 251 + version).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8 ^ offset as u8
}

/// What a connection does with requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Conduct {
    Good,
    /// The transport cannot be had.
    Refused,
    Status(u16),
    /// HTTP/2 only: it goes away at once.
    GoesAway,
    Reset,
    Silent,
    /// Each response breaks off after so many bytes.
    Breaks(u64),
    /// So many times slower.
    Slow(u32),
}

/// What is wrong with ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ranges {
    Right,
    Denied,
    /// 200, whole.
    Ignored,
    /// 200, with the octets of the range.
    Slice,
    OtherBegin,
    OtherTotal,
    OtherTag,
    NoTag,
    NoContentRange,
    Multipart,
    Coded,
    /// Half of what was asked for.
    Half,
    /// Up to the end, whatever was asked for.
    ToTheEnd,
    NotSatisfiable,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tag {
    Strong,
    Weak,
    Date,
    None,
}

/// What the server does in one download.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    pub(crate) is_http1: bool,
    pub(crate) length: u64,
    pub(crate) tag: Tag,
    pub(crate) ranges: Ranges,
    /// Bytes a second of a connection.
    pub(crate) rate: u32,
    /// The first, and the further ones in turn.
    pub(crate) first: Conduct,
    pub(crate) further: Vec<Conduct>,
    /// When the content changes.
    pub(crate) changes_after: Option<Duration>,
    pub(crate) latency: Duration,
    /// Requests on more connections than this are answered with 503.
    pub(crate) limit: usize,
    pub(crate) open: Arc<AtomicUsize>,
}

/// A connection that is open.
struct Open(Arc<AtomicUsize>);

impl Open {
    /// Opens a connection. It is crowded if there are as many as allowed already.
    fn new(script: &Script, conduct: Conduct) -> (Self, Conduct) {
        let before = script.open.fetch_add(1, Ordering::Relaxed);
        let conduct = match before >= script.limit {
            true => Conduct::Status(503),
            false => conduct,
        };
        (Open(Arc::clone(&script.open)), conduct)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Script {
    pub(crate) fn good() -> Self {
        Script {
            is_http1: false,
            length: 3_000_000,
            tag: Tag::Strong,
            ranges: Ranges::Right,
            rate: 300_000,
            first: Conduct::Good,
            further: vec![Conduct::Good],
            changes_after: None,
            latency: Duration::from_millis(20),
            limit: usize::MAX,
            open: Arc::default(),
        }
    }

    pub(crate) fn random(random: &mut Random) -> Self {
        use Ranges::*;
        let pick = |random: &mut Random, all: &[Ranges]| all[random.below(all.len() as u64) as usize];
        let ranges = match random.once_in(2) {
            true => Right,
            false => pick(
                random,
                &[
                    Denied,
                    Ignored,
                    Slice,
                    OtherBegin,
                    OtherTotal,
                    OtherTag,
                    NoTag,
                    NoContentRange,
                    Multipart,
                    Coded,
                    Half,
                    ToTheEnd,
                    NotSatisfiable,
                ],
            ),
        };
        let is_http1 = random.once_in(3);
        let conduct = |random: &mut Random| match random.below(12) {
            0 => Conduct::Refused,
            1 => Conduct::Status([503, 429, 403, 404, 500][random.below(5) as usize]),
            2 if !is_http1 => Conduct::GoesAway,
            3 => Conduct::Reset,
            4 => Conduct::Silent,
            5 => Conduct::Breaks(random.magnitude(20)),
            6 => Conduct::Slow(1 + random.below(30) as u32),
            _ => Conduct::Good,
        };
        Script {
            is_http1,
            length: 1_100_000 + random.below(1_500_000),
            tag: match random.below(12) {
                0 => Tag::Weak,
                1 => Tag::None,
                2 | 3 => Tag::Date,
                _ => Tag::Strong,
            },
            ranges,
            rate: 100_000 + random.below(300_000) as u32,
            first: match random.below(8) {
                0 => Conduct::Breaks(100_000 + random.below(1_000_000)),
                _ => Conduct::Good,
            },
            further: (0..8).map(|_| conduct(random)).collect(),
            changes_after: random
                .once_in(8)
                .then(|| Duration::from_millis(random.below(8_000))),
            latency: Duration::from_millis(random.below(100)),
            limit: match random.below(6) {
                0 => 1 + random.below(4) as usize,
                _ => usize::MAX,
            },
            open: Arc::default(),
        }
    }

    /// Whether the whole has to come: nothing fails on the first connection, and the content stays. Over HTTP/1.1 that
    /// connection ends once ranges were found to be right, so that others have to be good too.
    pub(crate) fn must_succeed(&self) -> bool {
        let gives_ranges = matches!(self.ranges, Ranges::Right | Ranges::Half | Ranges::ToTheEnd);
        let all_are_good = self
            .further
            .iter()
            .all(|conduct| matches!(conduct, Conduct::Good | Conduct::Slow(_)));
        let goes_on = !self.is_http1 || !gives_ranges || all_are_good;
        self.first == Conduct::Good && self.changes_after.is_none() && goes_on
    }

    fn conduct(&self, connection: usize) -> Conduct {
        match connection.checked_sub(1) {
            None => self.first,
            Some(further) => self.further[further % self.further.len()],
        }
    }
}

/// Serves one connection. `None` if it cannot be had.
pub(crate) fn connect(script: &Arc<Script>, connection: usize, begun: Instant) -> Option<DuplexStream> {
    let conduct = script.conduct(connection);
    if conduct == Conduct::Refused {
        return None;
    }
    let (near, far) = tokio::io::duplex(64 << 10);
    let script = Arc::clone(script);
    match script.is_http1 {
        true => tokio::spawn(serve_http1(far, script, conduct, begun)),
        false => tokio::spawn(serve_http2(far, script, conduct, begun)),
    };
    Some(near)
}

async fn serve_http2(io: DuplexStream, script: Arc<Script>, conduct: Conduct, begun: Instant) {
    let (_open, conduct) = Open::new(&script, conduct);
    let service = tower::service_fn(move |request: Request<fullbore::Incoming>| {
        let script = Arc::clone(&script);
        async move {
            tokio::time::sleep(script.latency).await;
            if conduct == Conduct::Silent {
                std::future::pending::<()>().await;
            }
            Ok::<_, Infallible>(answer(&script, conduct, request.headers(), begun))
        }
    });
    let connection = serve_connection(io, service, Config::default());
    if conduct == Conduct::GoesAway {
        connection.graceful_shutdown();
    }
    let _ = connection.await;
}

/// As much of HTTP/1.1 as the client asks for.
async fn serve_http1(mut io: DuplexStream, script: Arc<Script>, conduct: Conduct, begun: Instant) {
    let (_open, conduct) = Open::new(&script, conduct);
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match io.read_u8().await {
                Ok(octet) => head.push(octet),
                Err(_) => return,
            }
        }
        let mut fields = HeaderMap::new();
        for line in String::from_utf8_lossy(&head).lines().skip(1) {
            if let Some((name, value)) = line.split_once(": ") {
                let name: http::HeaderName = name.parse().expect("the client sends valid fields");
                fields.append(name, HeaderValue::from_str(value).expect("the same"));
            }
        }
        tokio::time::sleep(script.latency).await;
        if conduct == Conduct::Silent {
            std::future::pending::<()>().await;
        }
        let (head, mut body) = answer(&script, conduct, &fields, begun).into_parts();
        let mut text = format!("HTTP/1.1 {}\r\n", head.status);
        for (name, value) in &head.headers {
            text += &format!("{name}: {}\r\n", value.to_str().expect("text"));
        }
        if io.write_all((text + "\r\n").as_bytes()).await.is_err() {
            return;
        }
        loop {
            match std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
                None => break,
                Some(Ok(frame)) => {
                    let data = frame.into_data().expect("no trailers");
                    if io.write_all(&data).await.is_err() {
                        return;
                    }
                }
                Some(Err(_)) => return,
            }
        }
    }
}

fn answer(script: &Script, conduct: Conduct, request: &HeaderMap, begun: Instant) -> Response<Paced> {
    let version = match script.changes_after {
        Some(after) if begun.elapsed() >= after => 1,
        _ => 0,
    };
    let mut paced = Paced {
        version,
        at: 0,
        end: script.length,
        pause: Duration::from_secs_f64(CHUNK as f64 / f64::from(script.rate)),
        breaks_at: u64::MAX,
        sleep: Box::pin(tokio::time::sleep(Duration::ZERO)),
    };
    let mut response = Response::new(());
    let tag = format!("\"{version}\"");
    let mut fields = HeaderMap::new();
    let mut set = |name: http::HeaderName, value: &str| {
        fields.insert(name, HeaderValue::from_str(value).expect("valid"));
    };
    if let Conduct::Status(status) = conduct {
        *response.status_mut() = StatusCode::from_u16(status).expect("valid");
        paced.end = 0;
        set(CONTENT_LENGTH, "0");
        if status == 429 {
            set(RETRY_AFTER, "100");
        }
        *response.headers_mut() = fields;
        return response.map(|()| paced);
    }
    let range = request.get(RANGE).map(|range| {
        let range = range
            .to_str()
            .expect("text")
            .strip_prefix("bytes=")
            .expect("bytes");
        let (first, last) = range.split_once('-').expect("a range");
        (
            first.parse::<u64>().expect("a number"),
            last.parse::<u64>().expect("a number") + 1,
        )
    });
    let holds = match script.tag {
        Tag::Date => request.get(IF_RANGE).is_some_and(|date| date == MODIFIED) && version == 0,
        _ => request.get(IF_RANGE).is_some_and(|sent| *sent == *tag),
    };
    match script.tag {
        Tag::Strong => set(ETAG, &tag),
        Tag::Weak => set(ETAG, &format!("W/{tag}")),
        Tag::Date if version == 0 => set(LAST_MODIFIED, MODIFIED),
        Tag::Date => set(LAST_MODIFIED, "Mon, 07 Nov 1994 08:49:37 GMT"),
        Tag::None => {}
    }
    set(DATE, "Sun, 06 Nov 2022 08:49:37 GMT");
    set("x-version".parse().expect("valid"), &version.to_string());
    if let Some((begin, end)) = range.filter(|_| holds) {
        (paced.at, paced.end) = (begin, end.min(script.length));
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        let mut total = script.length;
        match script.ranges {
            Ranges::Denied | Ranges::Ignored => {
                (paced.at, paced.end) = (0, script.length);
                *response.status_mut() = StatusCode::OK;
            }
            Ranges::Slice => *response.status_mut() = StatusCode::OK,
            Ranges::OtherBegin => paced.at = begin / 2,
            Ranges::OtherTotal => total += 7,
            Ranges::OtherTag => set(ETAG, "\"other\""),
            Ranges::Half => paced.end = begin + (paced.end - begin).div_ceil(2),
            Ranges::ToTheEnd => paced.end = script.length,
            Ranges::Coded => set(CONTENT_ENCODING, "gzip"),
            Ranges::Multipart => set(http::header::CONTENT_TYPE, "multipart/byteranges; boundary=x"),
            Ranges::NotSatisfiable => {
                *response.status_mut() = StatusCode::RANGE_NOT_SATISFIABLE;
                paced.end = paced.at;
            }
            Ranges::Right | Ranges::NoTag | Ranges::NoContentRange => {}
        }
        if response.status() == StatusCode::PARTIAL_CONTENT && script.ranges != Ranges::NoContentRange {
            set(
                CONTENT_RANGE,
                &format!("bytes {}-{}/{total}", paced.at, paced.end - 1),
            );
        }
        if script.ranges == Ranges::NoTag {
            fields.remove(ETAG);
        }
    }
    let mut set = |name: http::HeaderName, value: &str| {
        fields.insert(name, HeaderValue::from_str(value).expect("valid"));
    };
    if script.ranges == Ranges::Denied {
        set(ACCEPT_RANGES, "none");
    }
    set(CONTENT_LENGTH, &(paced.end - paced.at).to_string());
    match conduct {
        Conduct::Reset => paced.breaks_at = paced.at,
        Conduct::Breaks(after) => paced.breaks_at = paced.at + after,
        Conduct::Slow(times) => paced.pause *= times,
        _ => {}
    }
    *response.headers_mut() = fields;
    response.map(|()| paced)
}

/// A body that comes at a rate, and may break off.
struct Paced {
    version: u64,
    at: u64,
    end: u64,
    pause: Duration,
    breaks_at: u64,
    sleep: Pin<Box<Sleep>>,
}

impl Body for Paced {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.at >= self.breaks_at {
            return Poll::Ready(Some(Err("it breaks off".into())));
        }
        if self.at >= self.end {
            return Poll::Ready(None);
        }
        std::task::ready!(self.sleep.as_mut().poll(cx));
        let (at, until) = (self.at, self.end.min(self.at + CHUNK).min(self.breaks_at));
        let chunk: Bytes = (at..until).map(|offset| octet(self.version, offset)).collect();
        self.at = until;
        let next = Instant::now() + self.pause;
        self.sleep.as_mut().reset(next);
        Poll::Ready(Some(Ok(Frame::data(chunk))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.end - self.at)
    }
}
