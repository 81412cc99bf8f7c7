//! What handles leave for the driver, and what the driver keeps of it.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use fullbore_proto::Config;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::timeout;

use super::*;
use crate::cell::Mailbox;
use crate::driver::NoAccept;
use crate::driver::tests::Keep;

/// The driver of a server that has received the preface and SETTINGS, and the client's end of the transport.
async fn server(settings: &[u8]) -> (Driver<DuplexStream, Keep>, DuplexStream) {
    server_with(Config::default(), settings).await
}

async fn server_with(config: Config, settings: &[u8]) -> (Driver<DuplexStream, Keep>, DuplexStream) {
    let (near, mut far) = tokio::io::duplex(1 << 20);
    let mut driver = Driver::server(near, Arc::new(config), Mailbox::new(), Keep::default());
    let octets = [
        &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..],
        &[0, 0, settings.len() as u8, 4, 0, 0, 0, 0, 0],
        settings,
        b"\0\0\0\x04\x01\0\0\0\0",
    ];
    far.write_all(&octets.concat()).await.expect("the pipe has room");
    run(&mut driver).await;
    (driver, far)
}

/// Runs the driver until it waits.
async fn run<A: Accept>(driver: &mut Driver<DuplexStream, A>) {
    let ended = timeout(Duration::from_millis(1), poll_fn(|cx| driver.poll(cx))).await;
    assert!(ended.is_err(), "the connection ended: {ended:?}");
}

/// Requests without a body on these streams.
async fn request(far: &mut DuplexStream, streams: impl Iterator<Item = u32>) {
    let mut octets = Vec::new();
    for stream in streams {
        octets.extend(b"\0\0\x06\x01\x05");
        octets.extend(stream.to_be_bytes());
        octets.extend(b"\x82\x86\x84\x41\x01a");
    }
    far.write_all(&octets).await.expect("the pipe has room");
}

fn numbers(count: u32) -> impl Iterator<Item = u32> {
    (0..count).map(|n| 2 * n + 1)
}

/// SETTINGS_INITIAL_WINDOW_SIZE of 0 (RFC 9113 section 6.5.2).
const NO_WINDOW: &[u8] = &[0, 4, 0, 0, 0, 0];

#[tokio::test(start_paused = true)]
async fn cells_of_streams_that_are_over_serve_again_and_100_at_most_are_kept() {
    let (mut driver, mut far) = server(&[]).await;
    request(&mut far, numbers(1)).await;
    run(&mut driver).await;
    let first = driver.cells.values().next().map(Arc::as_ptr);
    driver.accept.0.clear();
    run(&mut driver).await;
    assert_eq!(spare::count(), 1);
    request(&mut far, numbers(2).skip(1)).await;
    run(&mut driver).await;
    assert_eq!(driver.cells.values().next().map(Arc::as_ptr), first);
    assert_eq!(spare::count(), 0);

    request(&mut far, numbers(150).skip(2)).await;
    run(&mut driver).await;
    assert_eq!(driver.accept.0.len(), 149);
    driver.accept.0.clear();
    run(&mut driver).await;
    assert_eq!(spare::count(), 100);
    assert!(driver.cells.is_empty());
}

#[test]
fn a_client_keeps_no_cells() {
    let (near, _far) = tokio::io::duplex(1);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    let _inside = runtime.enter();
    let mailbox = Mailbox::new();
    let driver = Driver::client(near, Arc::new(Config::default()), Arc::clone(&mailbox), NoAccept);
    driver.keep_spare(Cell::new(mailbox, CellState::default()));
    assert_eq!(spare::count(), 0);
}

#[test]
fn a_cell_that_serves_again_keeps_lists_with_room_for_16_and_no_longer_ones() {
    for (room, kept) in [(16, 16), (17, 0)] {
        let mut cell = Cell::new(Mailbox::new(), CellState::default());
        {
            let mut state = cell.lock();
            state.inbound.chunks = VecDeque::with_capacity(room);
            state.outbound.commands = VecDeque::with_capacity(room);
        }
        assert!(cell.clear());
        let state = cell.lock();
        assert_eq!(state.inbound.chunks.capacity(), kept);
        assert_eq!(state.outbound.commands.capacity(), kept);
    }
}

#[test]
fn a_cell_that_serves_again_keeps_nothing_of_the_stream_before() {
    let mut cell = Cell::new(Mailbox::new(), CellState::default());
    {
        let mut state = cell.lock();
        state.id = Some(StreamId::FIRST_CLIENT);
        state.error = Some(Error::connection_gone());
        let inbound = &mut state.inbound;
        inbound.head = Some(Response::new(()));
        inbound.chunks.push_back(Bytes::from_static(b"read"));
        inbound.trailers = Some(HeaderMap::new());
        inbound.reader = Some(Waker::noop().clone());
        (inbound.ended, inbound.abandoned, inbound.discarded) = (true, true, true);
        (inbound.consumed, inbound.release_at) = (1, Some(1));
        let outbound = &mut state.outbound;
        outbound.request = Some((Arc::new(Request::new(())), true));
        let data = Bytes::from_static(b"sent").into();
        outbound.commands.push_back(StreamCommand::Data(data, true));
        outbound.writer = Some(Waker::noop().clone());
        (outbound.full, outbound.finished) = (true, true);
        outbound.queued = 4;
        outbound.set_share(1);
    }
    cell.hold();
    let other = Arc::clone(&cell);
    assert!(!cell.clear(), "a handle may still read from it");
    drop(other);
    assert!(cell.clear());
    let mailbox = Mailbox::new();
    let state = cell.reuse(&mailbox).expect("nobody else has it");
    assert!(state.id.is_none() && state.error.is_none());
    let inbound = &state.inbound;
    assert!(inbound.head.is_none() && inbound.trailers.is_none() && inbound.reader.is_none());
    assert!(inbound.chunks.is_empty());
    assert!(!inbound.ended && !inbound.abandoned && !inbound.discarded);
    assert_eq!((inbound.consumed, inbound.release_at), (0, None));
    let outbound = &mut state.outbound;
    assert!(outbound.request.is_none() && outbound.commands.is_empty() && outbound.writer.is_none());
    assert!(!outbound.full && !outbound.finished);
    assert_eq!(outbound.queued, 0);
    outbound.queued = 1;
    assert!(outbound.has_room(), "it has no share yet");
    cell.post();
    assert!(
        mailbox.take().is_some(),
        "it was on no list, and belongs to the other connection"
    );
}

#[tokio::test(start_paused = true)]
async fn few_streams_share_all_of_the_memory_for_what_waits_and_more_of_them_half() {
    let (mut driver, mut far) = server(&[]).await;
    let mut shares = vec![driver.share()];
    for stream in 0..100 {
        request(&mut far, numbers(stream + 1).skip(stream as usize)).await;
        run(&mut driver).await;
        shares.push(driver.share());
    }
    const ALL: usize = 384 << 10;
    assert_eq!(shares[..6], [ALL, ALL, ALL / 2, ALL / 3, ALL / 4, ALL / 2 / 5]);
    assert_eq!(shares[100], 4 << 10);
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_waits_for_room_is_woken_when_half_of_its_share_is_free() {
    let (mut driver, mut far) = server(NO_WINDOW).await;
    request(&mut far, numbers(8)).await;
    run(&mut driver).await;
    const SHARE: usize = 24 << 10;
    assert_eq!(driver.share(), SHARE);
    let (_request, mut sender) = driver.accept.0.remove(0);
    sender.send_response(Response::new(()), false);
    sender.send_data(Bytes::from_static(&[0; SHARE]), false);
    run(&mut driver).await;
    let cell = driver
        .cells
        .values()
        .find(|cell| cell.lock().outbound.queued == SHARE);
    let cell = Arc::clone(cell.expect("that of the body"));
    let stream = cell.lock().id.expect("it has begun").value();
    let waits = |cell: &Cell| cell.lock().outbound.writer.is_some();
    {
        let mut state = cell.lock();
        state.outbound.full = true;
        state.outbound.writer = Some(Waker::noop().clone());
    }
    let mut woken = Vec::new();
    for octets in [4_u32 << 10, 4 << 10, 3 << 10, 2 << 10] {
        let update = [
            &b"\0\0\x04\x08\0"[..],
            &stream.to_be_bytes(),
            &octets.to_be_bytes(),
        ];
        far.write_all(&update.concat()).await.expect("the pipe has room");
        run(&mut driver).await;
        woken.push(!waits(&cell));
    }
    // 20, 16, 13 and 11 KiB are left.
    assert_eq!(woken, [false, false, false, true]);
    assert!(
        !cell.lock().outbound.full,
        "the next one waits for the stream to fail"
    );
}

#[tokio::test(start_paused = true)]
async fn nothing_is_kept_of_an_answer_that_cannot_be_sent() {
    let (mut driver, mut far) = server(&[]).await;
    request(&mut far, numbers(1)).await;
    run(&mut driver).await;
    let cell = Arc::clone(driver.cells.values().next().expect("one stream"));
    let (_request, sender) = &mut driver.accept.0[0];
    let mut early = Response::new(());
    *early.status_mut() = StatusCode::EARLY_HINTS;
    sender.send_response(early, false);
    sender.send_data(Bytes::from_static(&[0; 1_000]), false);
    sender.send_data(Bytes::from_static(&[0; 1_000]), false);
    run(&mut driver).await;
    assert!(cell.lock().outbound.commands.is_empty());
    let failed = poll_fn(|cx| Poll::Ready(driver.accept.0[0].1.poll_failed(cx))).await;
    assert!(failed.is_ready(), "its sender is told");
    let mut heard = vec![0; 1 << 10];
    let count = far.read(&mut heard).await.expect("there is something");
    // INTERNAL_ERROR.
    let reset = b"\0\0\x04\x03\0\0\0\0\x01\0\0\0\x02";
    assert!(heard[..count].ends_with(reset), "{:?}", &heard[..count]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_kept_of_a_request_that_is_given_up_before_it_begins() {
    let (near, _far) = tokio::io::duplex(1 << 20);
    let mailbox = Mailbox::new();
    let mut driver = Driver::client(near, Arc::new(Config::default()), Arc::clone(&mailbox), NoAccept);
    mailbox.add_opener();
    run(&mut driver).await;
    let mut state = CellState::default();
    let request = Request::new(());
    state.outbound.request = Some((Arc::new(request), false));
    let data = Bytes::from_static(&[0; 1_000]).into();
    state
        .outbound
        .commands
        .push_back(StreamCommand::Data(data, false));
    state.inbound.abandoned = true;
    state.outbound.full = true;
    state.outbound.writer = Some(Waker::noop().clone());
    let cell = Cell::new(mailbox, state);
    cell.post();
    run(&mut driver).await;
    let state = cell.lock();
    assert!(state.outbound.commands.is_empty() && state.outbound.writer.is_none());
    assert!(state.error.is_some() && state.id.is_none());
    assert_eq!(driver.connection.stream_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_reader_wakes_the_driver_for_an_update_of_the_window_and_not_for_each_piece() {
    let mut config = Config::default();
    config.set_adaptive(false);
    config.set_stream_window(fullbore_proto::WindowSize::new(131_072).expect("a window"));
    let (mut driver, mut far) = server_with(config, &[]).await;
    // POST.
    far.write_all(b"\0\0\x06\x01\x04\0\0\0\x01\x83\x86\x84\x41\x01a")
        .await
        .expect("the pipe has room");
    run(&mut driver).await;
    let due = |driver: &Driver<_, _>| {
        let due = driver.connection.stream_release_until_due(StreamId::FIRST_CLIENT);
        due.expect("it is open") as usize
    };
    let (request, _sender) = driver.accept.0.pop().expect("a request");
    let mut body = request.into_body();
    let mut read = async || {
        let frame = timeout(Duration::from_secs(1), body.frame()).await;
        let frame = frame.expect("it is there").expect("a frame").expect("it is good");
        frame.into_data().expect("data").len()
    };
    // The reader takes nearly all of what makes an update due, piece by piece.
    while due(&driver) > 2 * PIECE {
        far.write_all(&data(PIECE)).await.expect("the pipe has room");
        run(&mut driver).await;
        let mut taken = 0;
        while taken < PIECE {
            taken += read().await;
        }
        assert!(driver.mailbox.end_turn(), "nothing is due");
        run(&mut driver).await;
    }
    far.write_all(&data(PIECE).repeat(12))
        .await
        .expect("the pipe has room");
    run(&mut driver).await;
    assert!(due(&driver) <= 2 * PIECE);
    let mut left = Vec::new();
    for _ in 0..12 {
        read().await;
        left.push(!driver.mailbox.end_turn());
        run(&mut driver).await;
    }
    // With the update, and once more, since the next one is counted from before it left.
    let times = left.iter().filter(|left| **left).count();
    assert!((1..=2).contains(&times), "{left:?}");
}

/// As long as a chunk of its own.
const PIECE: usize = 2_048;

/// DATA on stream 1.
fn data(length: usize) -> Vec<u8> {
    let [high, low] = (length as u16).to_be_bytes();
    [&[0, high, low, 0, 0, 0, 0, 0, 1][..], &vec![0; length]].concat()
}
