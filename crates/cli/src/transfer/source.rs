//! Where the bytes of a body come from: the response as it is, or decoded (`--compressed`).
//!
//! A decoder reads a chunk when the last one is written, so a small response that decodes to terabytes costs no memory. It
//! ends at `--max-filesize`, when the disk is full, or with Ctrl-C. What a decoder itself needs, the window above all, is
//! chosen by the server: the windows are limited, and all decoders of a run share [`Decoders`].

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use async_compression::tokio::bufread::{
    BrotliDecoder, DeflateDecoder, GzipDecoder, ZlibDecoder, ZstdDecoder,
};
use async_compression::zstd::DParameter;
use bytes::{Buf, Bytes};
use fullbore::Incoming;
use fullbore::client::Download;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, HeaderValue};
use http_body::Body;
use tokio::io::{AsyncBufRead, AsyncRead, ReadBuf};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use crate::exit::{Exit, Failure};

/// What `--compressed` asks for.
pub(crate) const ACCEPTED: HeaderValue = HeaderValue::from_static("zstd, br, gzip, deflate");

/// The size of a decoded chunk.
const CHUNK: usize = 64 << 10;

/// The largest window of zstd, as an exponent of 2: the 8 MiB of RFC 9659. zstd itself would take 128 MiB.
const ZSTD_WINDOW_LOG: u32 = 23;

/// What all decoders of a run together may need: 15 of zstd, 7 of brotli or 1,000 of gzip at once. Other bodies wait in their
/// receive windows.
const DECODERS_KIB: u32 = 128 << 10;

/// The memory that decoders share.
#[derive(Clone, Debug)]
pub(crate) struct Decoders(Arc<Semaphore>);

impl Default for Decoders {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(DECODERS_KIB as usize)))
    }
}

/// A content coding (RFC 9110 section 8.4.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Coding {
    Gzip,
    Deflate,
    Brotli,
    Zstd,
}

impl Coding {
    /// The most that a decoder needs, in KiB: the largest window, what surrounds it, and a chunk.
    fn memory_kib(self) -> u32 {
        match self {
            // A window of 32 KiB.
            Self::Gzip | Self::Deflate => 128,
            Self::Zstd => (8 << 10) + 512,
            // A window of 16 MiB (RFC 7932 section 9.1).
            Self::Brotli => (16 << 10) + 2_048,
        }
    }

    /// The coding of a response; `None` without one.
    ///
    /// # Errors
    /// Several codings, or one that was not asked for.
    pub(crate) fn of(headers: &HeaderMap, url: &str) -> Result<Option<Self>, Failure> {
        let mut codings = headers.get_all(CONTENT_ENCODING).iter();
        let (Some(coding), None) = (codings.next(), codings.next()) else {
            return match headers.contains_key(CONTENT_ENCODING) {
                true => Err(unknown(url, "several codings")),
                false => Ok(None),
            };
        };
        let text = String::from_utf8_lossy(coding.as_bytes())
            .trim()
            .to_ascii_lowercase();
        match text.as_str() {
            "gzip" | "x-gzip" => Ok(Some(Self::Gzip)),
            "deflate" => Ok(Some(Self::Deflate)),
            "br" => Ok(Some(Self::Brotli)),
            "zstd" => Ok(Some(Self::Zstd)),
            "identity" | "" => Ok(None),
            other => Err(unknown(url, &format!("the content coding {other:?}"))),
        }
    }
}

fn unknown(url: &str, what: &str) -> Failure {
    let text =
        format!("{url}: the server sent {what}, which was not asked for; try again without --compressed");
    Failure::new(Exit::Protocol, text)
}

/// A body that is received.
pub(crate) enum Source {
    Plain(Incoming),
    /// Over as many connections as make it faster.
    Spread(Download),
    Decoded(Decoded),
}

/// Why no more comes.
pub(crate) enum SourceError {
    /// The body failed.
    Body(fullbore::Error),
    /// The body is not what its content coding says.
    Coding(String),
}

impl Source {
    /// The body, decoded.
    pub(crate) fn decoded(body: Incoming, coding: Coding, decoders: &Decoders) -> Self {
        Self::Decoded(Decoded::new(body, coding, decoders))
    }

    /// How many bytes are to come, if that is known.
    pub(crate) fn length(&self) -> Option<u64> {
        match self {
            Self::Plain(body) => body.size_hint().exact(),
            Self::Spread(body) => body.size_hint().exact(),
            Self::Decoded(_) => None,
        }
    }

    /// What the stream waited for, if it is known.
    pub(crate) async fn report(&mut self) -> Option<fullbore::stats::StreamReport> {
        match self {
            Self::Plain(body) => body.report().await,
            Self::Spread(body) => body.report().await,
            Self::Decoded(_) => None,
        }
    }

    /// The connections that it came over, if it may come over several.
    pub(crate) fn spread(&self) -> Option<fullbore::client::DownloadReport> {
        match self {
            Self::Spread(body) => Some(body.download_report()),
            Self::Plain(_) | Self::Decoded(_) => None,
        }
    }

    /// The next chunk. Trailers are left out.
    pub(crate) fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, SourceError>>> {
        match self {
            Self::Plain(body) => poll_data(body, cx).map_err(SourceError::Body),
            Self::Spread(body) => poll_data(body, cx).map_err(SourceError::Body),
            Self::Decoded(decoded) => decoded.poll_chunk(cx),
        }
    }
}

fn poll_data<B>(body: &mut B, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, fullbore::Error>>>
where
    B: Body<Data = Bytes, Error = fullbore::Error> + Unpin,
{
    loop {
        let Some(frame) = ready!(Pin::new(&mut *body).poll_frame(cx)) else {
            return Poll::Ready(None);
        };
        match frame.map(|frame| frame.into_data()) {
            Ok(Ok(data)) => return Poll::Ready(Some(Ok(data))),
            Ok(Err(_)) => {}
            Err(error) => return Poll::Ready(Some(Err(error))),
        }
    }
}

/// What a decoder does not pass on about its body.
#[derive(Default)]
struct Seen {
    /// Why the body failed: a decoder passes on only an `io::Error`.
    failed: Mutex<Option<fullbore::Error>>,
    /// The body has at least one byte.
    has_data: AtomicBool,
}

/// A body that is decoded.
pub(crate) struct Decoded {
    state: DecodedState,
    coding: Coding,
    seen: Arc<Seen>,
}

enum DecodedState {
    /// Nothing has arrived, or other decoders have the memory.
    Waiting(Box<BodyReader>, PermitFuture),
    Decoding(Decoder),
    Ended,
}

/// Waits for a share of [`Decoders`].
type PermitFuture = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send>>;

impl Decoded {
    fn new(body: Incoming, coding: Coding, decoders: &Decoders) -> Self {
        let seen = Arc::default();
        let body = BodyReader {
            body,
            chunk: Bytes::new(),
            seen: Arc::clone(&seen),
        };
        let room = Arc::clone(&decoders.0).acquire_many_owned(coding.memory_kib());
        Self {
            state: DecodedState::Waiting(Box::new(body), Box::pin(room)),
            coding,
            seen,
        }
    }

    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, SourceError>>> {
        let coding = self.coding;
        loop {
            let read = match &mut self.state {
                DecodedState::Ended => return Poll::Ready(None),
                DecodedState::Waiting(body, room) => {
                    // A body of which nothing comes takes no memory from others.
                    match ready!(Pin::new(&mut **body).poll_fill_buf(cx)) {
                        Ok(octets) if coding == Coding::Brotli && has_large_window(octets) => {
                            let text = "its window is larger than the 16 MiB of RFC 7932";
                            return Poll::Ready(Some(Err(SourceError::Coding(text.to_owned()))));
                        }
                        Ok(_) => {}
                        Err(error) => return Poll::Ready(self.failed(&error)),
                    }
                    // The semaphore is never closed.
                    let room = ready!(room.as_mut().poll(cx)).ok();
                    let DecodedState::Waiting(body, _) =
                        std::mem::replace(&mut self.state, DecodedState::Ended)
                    else {
                        return Poll::Ready(None);
                    };
                    self.state = DecodedState::Decoding(Decoder::new(*body, coding, room));
                    continue;
                }
                DecodedState::Decoding(decoder) => ready!(decoder.poll_read(cx)),
            };
            return Poll::Ready(match read {
                Ok(chunk) if chunk.is_empty() => {
                    // What it needed is for others now.
                    self.state = DecodedState::Ended;
                    None
                }
                Ok(chunk) => Some(Ok(chunk)),
                Err(error) => self.failed(&error),
            });
        }
    }

    /// Why the body or its decoder failed.
    fn failed(&self, error: &io::Error) -> Option<Result<Bytes, SourceError>> {
        let failed = &self.seen.failed;
        match failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(failed) => Some(Err(SourceError::Body(failed))),
            // Servers name a coding for an empty body too, and curl and browsers accept it.
            None if !self.seen.has_data.load(Ordering::Acquire) => None,
            None => {
                let text = error.to_string();
                // libzstd's words.
                let is_large = self.coding == Coding::Zstd && text.contains("too much memory");
                Some(Err(SourceError::Coding(match is_large {
                    true => "its window is larger than the 8 MiB of RFC 9659".to_owned(),
                    false => text,
                })))
            }
        }
    }
}

/// Whether a brotli stream asks for a window beyond RFC 7932, of up to 1 GiB: the first seven bits are ones that section 9.1
/// reserves.
fn has_large_window(octets: &[u8]) -> bool {
    octets.first().is_some_and(|octet| octet & 0x7f == 0x11)
}

/// A decoder at work.
struct Decoder {
    reader: Pin<Box<dyn AsyncRead + Send>>,
    buffer: Box<[u8]>,
    _room: Option<OwnedSemaphorePermit>,
}

impl Decoder {
    fn new(body: BodyReader, coding: Coding, room: Option<OwnedSemaphorePermit>) -> Self {
        let reader: Pin<Box<dyn AsyncRead + Send>> = match coding {
            Coding::Gzip => Box::pin(Members::Inside(GzipDecoder::new(body))),
            Coding::Deflate if is_raw_deflate(&body.chunk) => Box::pin(DeflateDecoder::new(body)),
            Coding::Deflate => Box::pin(ZlibDecoder::new(body)),
            Coding::Brotli => Box::pin(BrotliDecoder::new(body)),
            Coding::Zstd => {
                let largest = DParameter::window_log_max(ZSTD_WINDOW_LOG);
                let mut decoder = ZstdDecoder::with_params(body, &[largest]);
                decoder.multiple_members(true);
                Box::pin(decoder)
            }
        };
        Self {
            reader,
            buffer: vec![0; CHUNK].into_boxed_slice(),
            _room: room,
        }
    }

    /// The next chunk; empty at the end.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        let mut buffer = ReadBuf::new(&mut self.buffer);
        ready!(self.reader.as_mut().poll_read(cx, &mut buffer))?;
        Poll::Ready(Ok(Bytes::copy_from_slice(buffer.filled())))
    }
}

/// Whether a body of the coding `deflate` has no zlib header (RFC 1950 section 2.2). Some servers send such bodies (RFC 9110
/// section 8.4.1.2), and curl and browsers decode them.
fn is_raw_deflate(octets: &[u8]) -> bool {
    let is_header = |octet: u8| octet & 0x0f == 8 && octet >> 4 <= 7;
    octets.first().is_some_and(|&octet| !is_header(octet))
}

/// A gzip file: members (RFC 1952 section 2.2), and zeros behind them, which archives have as padding.
enum Members {
    Inside(GzipDecoder<BodyReader>),
    /// Whether there were zeros.
    Behind(BodyReader, bool),
    Ended,
}

impl AsyncRead for Members {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            let begin = match this {
                Self::Inside(decoder) => {
                    let before = buffer.filled().len();
                    ready!(Pin::new(decoder).poll_read(cx, buffer))?;
                    if buffer.filled().len() > before {
                        return Poll::Ready(Ok(()));
                    }
                    false
                }
                Self::Behind(body, zeros) => {
                    let octets = ready!(Pin::new(&mut *body).poll_fill_buf(cx))?;
                    let count = octets.iter().take_while(|&&octet| octet == 0).count();
                    match octets.get(count) {
                        _ if octets.is_empty() => {
                            *this = Self::Ended;
                            return Poll::Ready(Ok(()));
                        }
                        Some(_) if *zeros || count > 0 => {
                            let text = "there are other octets behind the padding";
                            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, text)));
                        }
                        Some(_) => true,
                        None => {
                            *zeros = true;
                            Pin::new(body).consume(count);
                            continue;
                        }
                    }
                }
                Self::Ended => return Poll::Ready(Ok(())),
            };
            *this = match (std::mem::replace(this, Self::Ended), begin) {
                (Self::Inside(decoder), _) => Self::Behind(decoder.into_inner(), false),
                (Self::Behind(body, _), true) => Self::Inside(GzipDecoder::new(body)),
                (other, _) => other,
            };
        }
    }
}

/// A body as a decoder reads it.
struct BodyReader {
    body: Incoming,
    chunk: Bytes,
    seen: Arc<Seen>,
}

impl AsyncBufRead for BodyReader {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        while this.chunk.is_empty() {
            match ready!(poll_data(&mut this.body, cx)) {
                None => break,
                Some(Ok(chunk)) => {
                    this.seen.has_data.fetch_or(!chunk.is_empty(), Ordering::AcqRel);
                    this.chunk = chunk;
                }
                Some(Err(error)) => {
                    *this.seen.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    return Poll::Ready(Err(io::Error::other("the body failed")));
                }
            }
        }
        Poll::Ready(Ok(&this.chunk))
    }

    fn consume(self: Pin<&mut Self>, amount: usize) {
        let chunk = &mut self.get_mut().chunk;
        chunk.advance(amount.min(chunk.len()));
    }
}

impl AsyncRead for BodyReader {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let filled = ready!(Pin::new(&mut *this).poll_fill_buf(cx))?;
        let count = filled.len().min(buffer.remaining());
        buffer.put_slice(filled.get(..count).unwrap_or_default());
        Pin::new(this).consume(count);
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coding_that_was_not_asked_for_is_an_error() {
        let coding = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(CONTENT_ENCODING, HeaderValue::from_static(value));
            }
            Coding::of(&headers, "http://h/").map_err(|failure| failure.exit)
        };
        assert_eq!(coding(&[]), Ok(None));
        assert_eq!(coding(&["identity"]), Ok(None));
        assert_eq!(coding(&["GZip"]), Ok(Some(Coding::Gzip)));
        assert_eq!(coding(&["br"]), Ok(Some(Coding::Brotli)));
        assert_eq!(coding(&["compress"]), Err(Exit::Protocol));
        assert_eq!(coding(&["gzip, br"]), Err(Exit::Protocol));
        assert_eq!(coding(&["gzip", "br"]), Err(Exit::Protocol));
    }
}
