//! What a connection writes at once: the first 32 KiB of a message for one who waits, and batches whole.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use http::Response;
use http_body_util::BodyExt;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

use crate::support::{Pair, config, full, get, pair_over, soon};

const LONG: usize = 64 << 10;

/// Keeps the lengths of all writes.
struct Noted(DuplexStream, Arc<Mutex<Vec<usize>>>);

impl AsyncRead for Noted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Noted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.0).poll_write(cx, data);
        if let Poll::Ready(Ok(count)) = written {
            self.1.lock().unwrap().push(count);
        }
        written
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let all: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        self.poll_write(cx, &all)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// A pair over a pipe that holds all there is, and what its server writes; the settings have been exchanged.
async fn noted() -> (Pair, Arc<Mutex<Vec<usize>>>) {
    let (near, far) = tokio::io::duplex(1 << 20);
    let writes = Arc::<Mutex<Vec<usize>>>::default();
    let far = Noted(far, Arc::clone(&writes));
    let pair = pair_over((near, config()), (far, config()), |request| async move {
        Ok(match request.uri().path() {
            "/long" => Response::new(full(vec![7; LONG])),
            _ => Response::new(full("short")),
        })
    });
    let first = soon(pair.client.send(get("/short"))).await.unwrap();
    assert_eq!(
        soon(first.into_body().collect()).await.unwrap().to_bytes(),
        "short"
    );
    settle().await;
    writes.lock().unwrap().clear();
    (pair, writes)
}

async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn one_who_waits_is_written_32_kib_before_the_rest() {
    let (pair, writes) = noted().await;
    for _ in 0..3 {
        let response = soon(pair.client.send(get("/long"))).await.unwrap();
        let body = soon(response.into_body().collect()).await.unwrap().to_bytes();
        assert!(body.len() == LONG && body.iter().all(|&octet| octet == 7));
        settle().await;
        let written = std::mem::take(&mut *writes.lock().unwrap());
        let [first, rest] = written[..] else {
            panic!("{written:?}");
        };
        assert_eq!(first, 32 << 10);
        assert!(rest > LONG - first, "{rest}");
    }
    pair.end().await;
}

#[tokio::test]
async fn short_messages_and_batches_leave_in_one_write() {
    let (pair, writes) = noted().await;
    let response = soon(pair.client.send(get("/short"))).await.unwrap();
    assert_eq!(
        soon(response.into_body().collect()).await.unwrap().to_bytes(),
        "short"
    );
    settle().await;
    assert_eq!(std::mem::take(&mut *writes.lock().unwrap()).len(), 1);

    let asked: Vec<_> = (0..4)
        .map(|_| tokio::spawn(pair.client.send(get("/long"))))
        .collect();
    for response in asked {
        let response = soon(response).await.unwrap().unwrap();
        let body = soon(response.into_body().collect()).await.unwrap().to_bytes();
        assert_eq!(body.len(), LONG);
    }
    settle().await;
    let written = std::mem::take(&mut *writes.lock().unwrap());
    assert!(
        written.len() == 1 && written[0] > 4 * LONG,
        "all four at once: {written:?}"
    );
    pair.end().await;
}
