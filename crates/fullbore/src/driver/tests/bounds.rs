//! What one turn of a connection does at most.

use http::Response;
use http_body::Frame;
use http_body_util::StreamBody;

use super::*;
use crate::client::handshake;
use crate::sender::MANY_EMPTY;

/// A transport whose writes fail, and that has any amount to read.
struct Broken {
    unread: Bytes,
}

impl AsyncRead for Broken {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let count = self.unread.len().min(buffer.remaining());
        if count == 0 {
            return Poll::Pending;
        }
        buffer.put_slice(&self.unread.split_to(count));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Broken {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<std::io::Result<usize>> {
        Poll::Ready(Err(std::io::ErrorKind::BrokenPipe.into()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_begins_no_request_behind_a_write_that_failed() {
    let io = Broken {
        unread: beginning_with_requests(100_000).into(),
    };
    let mut driver = Driver::server(io, Arc::new(Config::default()), Mailbox::new(), Keep::default());
    let ended = timeout(Duration::from_secs(5), poll_fn(|cx| driver.poll(cx))).await;
    ended.expect("it ends").expect_err("nothing can be written");
    // Those of the read before.
    let begun = driver.accept.0.len();
    assert!(begun < 200, "{begun} requests");
}

#[tokio::test(start_paused = true)]
async fn a_client_reads_a_slab_in_a_turn_and_a_bounded_number_behind_a_write_that_failed() {
    // Frames of a type that is not known.
    let one = frame(0x77, 0, 0, &[0; 16_375]);
    let slabs = 4 * LAST_READS as usize;
    let unread = [
        &b"\0\0\0\x04\0\0\0\0\0"[..],
        &one.repeat(slabs * SLAB / one.len()),
    ]
    .concat();
    let before = unread.len();
    let io = Broken {
        unread: unread.into(),
    };
    let mailbox = Mailbox::new();
    mailbox.add_opener();
    let mut driver = Driver::client(io, Arc::new(Config::default()), mailbox, NoAccept);
    let mut most = 0;
    let run = poll_fn(|cx| {
        let left = driver.io.unread.len();
        let polled = driver.poll(cx);
        most = most.max(left - driver.io.unread.len());
        polled
    });
    let ended = timeout(Duration::from_secs(5), run).await;
    ended.expect("it ends").expect_err("nothing can be written");
    assert!(most <= 2 * SLAB, "{most} octets in a turn");
    let read = before - driver.io.unread.len();
    // A slab may be longer than what is asked for.
    assert!(
        read > SLAB && read <= 2 * (LAST_READS as usize + 1) * SLAB,
        "{read} octets"
    );
}

#[tokio::test(start_paused = true)]
async fn handles_that_refill_the_mailbox_do_not_hold_the_driver() {
    let (near, mut far) = tokio::io::duplex(1 << 20);
    let mailbox = Mailbox::new();
    let mut driver = Driver::server(
        near,
        Arc::new(Config::default()),
        Arc::clone(&mailbox),
        Keep::default(),
    );
    far.write_all(&beginning_with_requests(0))
        .await
        .expect("the pipe has room");
    let _ = timeout(Duration::from_millis(1), poll_fn(|cx| driver.poll(cx))).await;
    // As if another thread listed them as fast as they are taken off the list.
    let post = |_| {
        let cell = Cell::new(Arc::clone(&mailbox), crate::cell::CellState::default());
        cell.post();
        Arc::downgrade(&cell)
    };
    let cells: Vec<_> = (0..5_000).map(post).collect();
    let listed = || cells.iter().filter(|cell| cell.strong_count() > 0).count();
    let mut left = vec![listed()];
    while listed() > 0 {
        let ended = poll_fn(|cx| Poll::Ready(driver.poll(cx).is_ready())).await;
        assert!(!ended, "the connection ended");
        left.push(listed());
        assert!(left.len() < 100, "{left:?}");
    }
    let most = left.windows(2).map(|two| two[0] - two[1]).max();
    assert!(most.is_some_and(|most| most <= 2_048), "{left:?}");
}

#[tokio::test]
async fn a_body_of_empty_chunks_without_end_lets_other_tasks_run() {
    let (near, far) = tokio::io::duplex(64 << 10);
    let given = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let count = Arc::clone(&given);
    let service = tower::service_fn(move |_: Request<Incoming>| {
        let count = Arc::clone(&count);
        let chunks = std::iter::repeat_with(move || {
            count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Ok::<_, crate::BoxError>(Frame::data(Bytes::new()))
        });
        let body = StreamBody::new(futures_util::stream::iter(chunks));
        std::future::ready(Ok::<_, crate::BoxError>(Response::new(body)))
    });
    tokio::spawn(crate::server::serve_connection(far, service, Config::default()));
    let (sender, connection) = handshake(near, Config::default());
    tokio::spawn(connection);
    let request = Request::get("http://test/")
        .body(String::new())
        .expect("a request");
    let response = sender.send(request).await.expect("the head arrives");
    // The runtime has one thread: without turns neither the head nor this would come.
    drop(response);
    assert!(given.load(std::sync::atomic::Ordering::Relaxed) >= MANY_EMPTY);
}
