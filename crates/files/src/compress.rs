//! gzip of a body while it is sent. How many are compressed at a time has a limit, since each takes memory. Called by
//! `files` and `file_body`.

use std::io::{self, Write as _};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body::Body;

/// 0 to 9. From 4 on each level costs a half more time for a few percent less data.
const LEVEL: u32 = 4;

/// How many bytes are compressed before others have their turn, if they come to nothing that can be sent: some 5 ms.
const BYTES_PER_TURN: usize = 512 * 1024;

/// The limit on bodies that are compressed at a time.
#[derive(Debug)]
pub(crate) struct Compressing {
    most: usize,
    now: AtomicUsize,
}

/// One of them. Dropping it frees the slot.
#[derive(Debug)]
pub(crate) struct Slot(Arc<Compressing>);

/// A body, compressed.
#[derive(Debug)]
pub(crate) struct Gzip<B> {
    body: B,
    /// `None` after the end.
    encoder: Option<GzEncoder<Vec<u8>>>,
    _slot: Slot,
}

impl Compressing {
    pub(crate) fn new(most: usize) -> Arc<Compressing> {
        Arc::new(Compressing {
            most,
            now: AtomicUsize::new(0),
        })
    }

    /// `None` when all slots are taken.
    pub(crate) fn admit(self: &Arc<Self>) -> Option<Slot> {
        let slot = Slot(Arc::clone(self));
        (self.now.fetch_add(1, Ordering::Relaxed) < self.most).then_some(slot)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<B> Gzip<B>
where
    B: Body<Error = io::Error> + Unpin,
{
    pub(crate) fn new(body: B, slot: Slot) -> Gzip<B> {
        Gzip {
            body,
            encoder: Some(GzEncoder::new(Vec::new(), Compression::new(LEVEL))),
            _slot: slot,
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.encoder.is_none()
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let mut taken = 0;
        while self.encoder.is_some() {
            match std::task::ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                None => {
                    let Some(encoder) = self.encoder.take() else { break };
                    return Poll::Ready(Some(encoder.finish().map(Bytes::from)));
                }
                Some(Err(error)) => {
                    self.encoder = None;
                    return Poll::Ready(Some(Err(error)));
                }
                Some(Ok(frame)) => {
                    let Ok(mut data) = frame.into_data() else { continue };
                    taken += data.remaining();
                    let written = self.write(&mut data);
                    match written {
                        Ok(bytes) if bytes.is_empty() => {}
                        written => return Poll::Ready(Some(written)),
                    }
                }
            }
            if taken >= BYTES_PER_TURN {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        Poll::Ready(None)
    }

    /// Compresses `data`. Returns what can be sent, which may be nothing yet.
    fn write(&mut self, data: &mut impl Buf) -> io::Result<Bytes> {
        let Some(encoder) = &mut self.encoder else {
            return Ok(Bytes::new());
        };
        while data.has_remaining() {
            let piece = data.chunk();
            encoder.write_all(piece)?;
            let length = piece.len();
            data.advance(length);
        }
        Ok(std::mem::take(encoder.get_mut()).into())
    }
}

/// Whether files of this media type become much shorter.
pub(crate) fn is_compressible(content_type: &str) -> bool {
    const OTHERS: [&str; 8] = [
        "application/javascript",
        "application/json",
        "application/wasm",
        "application/x-javascript",
        "application/x-sh",
        "application/xml",
        "image/bmp",
        "image/svg+xml",
    ];
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    essence.starts_with("text/")
        || essence.ends_with("+json")
        || essence.ends_with("+xml")
        || OTHERS.contains(&essence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_compressible_and_media_are_not() {
        for (content_type, expected) in [
            ("text/html; charset=utf-8", true),
            ("application/json", true),
            ("application/ld+json", true),
            ("image/svg+xml", true),
            ("application/wasm", true),
            ("application/octet-stream", false),
            ("image/png", false),
            ("video/mp4", false),
            ("application/gzip", false),
        ] {
            assert_eq!(is_compressible(content_type), expected, "{content_type}");
        }
    }

    #[test]
    fn so_many_are_compressed_at_a_time() {
        let compressing = Compressing::new(2);
        let held = [compressing.admit().unwrap(), compressing.admit().unwrap()];
        assert!(compressing.admit().is_none());
        drop(held);
        assert!(compressing.admit().is_some());
        assert_eq!(compressing.now.load(Ordering::Relaxed), 0);
    }
}
