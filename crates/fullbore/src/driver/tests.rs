//! Fairness between connections, the sizes of reads, and what the driver accounts for.

use std::future::poll_fn;
use std::io::IoSlice;

use bytes::Bytes;
use fullbore_proto::{Config, Stall};
use http::Request;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadBuf};
use tokio::time::timeout;

use super::read::{LISTS_BEFORE_READ, SLAB, SMALLEST_READ};
use super::*;
use crate::sender::Sender;
use crate::slices::Calls;
use crate::turns;

/// Keeps every request, and answers none.
#[derive(Default)]
pub(super) struct Keep(pub(super) Vec<(Request<Incoming>, Sender)>);

impl Accept for Keep {
    fn accept(&mut self, request: Request<Incoming>, unanswered: &mut Unanswered<'_>, _: &mut Context<'_>) {
        self.0.push((request, unanswered.sender()));
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, high, middle, low] = (payload.len() as u32).to_be_bytes();
    [
        &[high, middle, low, kind, flags][..],
        &stream.to_be_bytes(),
        payload,
    ]
    .concat()
}

#[tokio::test(start_paused = true)]
async fn others_have_their_turn_behind_each_frame_that_took_much_work() {
    const CHANGES: usize = 9;
    let (near, mut far) = tokio::io::duplex(1 << 20);
    let mut driver = Driver::server(near, Arc::new(Config::default()), Mailbox::new(), Keep::default());
    let mut octets = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    octets.extend(frame(4, 0, 0, &[]));
    octets.extend(frame(4, 1, 0, &[]));
    for index in 0..5_000 {
        octets.extend(frame(1, 0x5, 2 * index + 1, &[0x82, 0x86, 0x84, 0x41, 1, b'h']));
    }
    far.write_all(&octets).await.expect("the pipe has room");
    let _ = timeout(Duration::from_secs(1), poll_fn(|cx| driver.poll(cx))).await;
    assert_eq!(driver.accept.0.len(), 5_000);

    let mut octets = Vec::new();
    for change in 1..=CHANGES {
        octets.extend(frame(4, 0, 0, &[0, 4, 0, 0, 0, change as u8]));
    }
    octets.extend(frame(6, 0, 0, b"the last"));
    far.write_all(&octets).await.expect("the pipe has room");
    let mut turns = 0;
    let mut most = 0;
    let run = poll_fn(|cx| {
        turns += 1;
        let work = driver.connection.work();
        let poll = driver.poll(cx);
        most = most.max(driver.connection.work() - work);
        poll
    });
    let _ = timeout(Duration::from_secs(1), run).await;
    assert!(turns > CHANGES, "{turns} turns");
    assert!(most <= 5_000, "{most} streams in a turn");
    assert!(driver.input.unparsed.is_empty());
    let mut heard = vec![0; 1 << 20];
    let count = far.read(&mut heard).await.expect("there is something");
    assert!(heard[..count].ends_with(&frame(6, 1, 0, b"the last")));
}

#[tokio::test(start_paused = true)]
async fn a_transport_that_has_nothing_more_is_not_asked_again_before_it_wakes() {
    let (near, mut far) = tokio::io::duplex(1 << 20);
    let mut driver = Driver::server(
        Calls::of(near),
        Arc::new(Config::default()),
        Mailbox::new(),
        Keep::default(),
    );
    far.write_all(&beginning_with_requests(0))
        .await
        .expect("the pipe has room");
    let mut reads = Vec::new();
    for _ in 0..3 {
        let before = driver.io.reads;
        let ended = poll_fn(|cx| Poll::Ready(driver.poll(cx).is_ready())).await;
        assert!(!ended, "the connection ended");
        reads.push(driver.io.reads - before);
        far.write_all(&frame(6, 0, 0, b"a ping!!"))
            .await
            .expect("the pipe has room");
        // The answer of the read before.
        let mut heard = vec![0; 1 << 10];
        let count = far.read(&mut heard).await.expect("there is something");
        assert!(count > 0);
    }
    // One finds what is there, and one that nothing more is there.
    assert_eq!(reads, [2, 2, 2]);
}

#[tokio::test(start_paused = true)]
async fn others_have_their_turn_behind_64_requests() {
    let (near, mut far) = tokio::io::duplex(1 << 20);
    let mut driver = Driver::server(near, Arc::new(Config::default()), Mailbox::new(), Keep::default());
    let octets = beginning_with_requests(200);
    assert!(octets.len() <= SMALLEST_READ);
    far.write_all(&octets).await.expect("the pipe has room");
    let mut begun = Vec::new();
    let run = poll_fn(|cx| {
        let before = driver.accept.0.len();
        let poll = driver.poll(cx);
        begun.push(driver.accept.0.len() - before);
        poll
    });
    let _ = timeout(Duration::from_secs(1), run).await;
    begun.retain(|&requests| requests > 0);
    assert_eq!(begun, [63, 64, 64, 9]);
}

/// How many of 200 requests begin in each turn, when all turns together take 251 us.
async fn begun_in_turns(between: fn()) -> Vec<usize> {
    let (near, mut far) = tokio::io::duplex(1 << 20);
    let mut driver = Driver::server(near, Arc::new(Config::default()), Mailbox::new(), Keep::default());
    let octets = beginning_with_requests(200);
    far.write_all(&octets).await.expect("the pipe has room");
    let mut begun = Vec::new();
    while driver.accept.0.len() < 200 {
        let before = driver.accept.0.len();
        let poll = poll_fn(|cx| Poll::Ready(driver.poll(cx))).await;
        assert!(poll.is_pending());
        begun.push(driver.accept.0.len() - before);
        between();
        tokio::time::advance(Duration::from_micros(251)).await;
    }
    begun.retain(|&requests| requests > 0);
    begun
}

#[tokio::test(start_paused = true)]
async fn others_have_their_turn_behind_fewer_requests_when_all_turns_together_take_long() {
    let expected = [&[63, 32, 16, 8, 4, 2][..], &[1; 75]].concat();
    assert_eq!(begun_in_turns(turns::count).await, expected);
}

#[tokio::test(start_paused = true)]
async fn a_connection_whose_turns_are_the_only_ones_begins_as_many_as_before() {
    assert_eq!(begun_in_turns(|| {}).await, [63, 64, 64, 9]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_the_end_of_a_turn_cuts_off_from_its_reset_does_not_begin() {
    let (near, _far) = tokio::io::duplex(1 << 20);
    let mut driver = Driver::server(near, Arc::new(Config::default()), Mailbox::new(), Keep::default());
    let mut octets = beginning_with_requests(0);
    for index in 0..900 {
        octets.extend(frame(1, 0x5, 2 * index + 1, &[0x82, 0x86, 0x84]));
        octets.extend(frame(3, 0, 2 * index + 1, &[0, 0, 0, 8]));
        // Of one step rather than two, so that turns end at any place between these frames.
        if index % 3 == 0 {
            octets.extend(frame(0xee, 0, 0, &[]));
        }
    }
    driver.begin_with(octets.into());
    for _ in 0..2_000 {
        let poll = poll_fn(|cx| Poll::Ready(driver.poll(cx))).await;
        assert!(poll.is_pending());
        turns::count();
        tokio::time::advance(Duration::from_micros(251)).await;
    }
    assert!(driver.input.unparsed.is_empty());
    assert_eq!(driver.accept.0.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_reset_takes_back_a_request_that_waits_while_fewer_begin() {
    let (near, mut far) = tokio::io::duplex(1 << 20);
    let mut driver = Driver::server(near, Arc::new(Config::default()), Mailbox::new(), Keep::default());
    // All are in one read; with each turn fewer begin, since another connection has turns too.
    let mut octets = beginning_with_requests(160);
    octets.extend((120..160).flat_map(|index| frame(3, 0, 2 * index + 1, &[0, 0, 0, 8])));
    octets.extend(frame(6, 0, 0, b"the last"));
    assert!(octets.len() <= SMALLEST_READ);
    far.write_all(&octets).await.expect("the pipe has room");
    for _ in 0..500 {
        let poll = poll_fn(|cx| Poll::Ready(driver.poll(cx))).await;
        assert!(poll.is_pending());
        turns::count();
        tokio::time::advance(Duration::from_micros(251)).await;
    }
    // 125 have begun in turns of 63, 32, 16, 8, 4 and 2; then one begins in each turn, while four are parsed. The other 27 are
    // reset before that.
    assert_eq!(driver.accept.0.len(), 125 + 8);
}

#[tokio::test(start_paused = true)]
async fn others_have_their_turn_behind_256_streams_of_a_connection_that_has_ended() {
    let (near, mut far) = tokio::io::duplex(1 << 20);
    let mut driver = Driver::server(near, Arc::new(Config::default()), Mailbox::new(), Keep::default());
    let mut octets = beginning_with_requests(600);
    // The increment overflows the window: the connection fails.
    octets.extend(frame(8, 0, 0, &0x7fff_ffff_u32.to_be_bytes()));
    far.write_all(&octets).await.expect("the pipe has room");
    let mut untold = Vec::new();
    let run = poll_fn(|cx| {
        let poll = driver.poll(cx);
        if let Stage::Closing(closing) = &driver.stage {
            untold.push(closing.untold.len());
        }
        poll
    });
    let ended = timeout(Duration::from_secs(5), run).await;
    assert!(ended.expect("it ends").is_err());
    assert_eq!(untold.first_chunk(), Some(&[344, 88, 0]), "{untold:?}");
    assert_eq!(driver.accept.0.len(), 600);
    for (_, sender) in &driver.accept.0 {
        let told = poll_fn(|cx| Poll::Ready(sender.poll_failed(cx))).await;
        assert!(told.is_ready());
    }
}

#[tokio::test(start_paused = true)]
async fn others_have_their_turn_behind_1024_streams_that_are_freed() {
    let (near, mut far) = tokio::io::duplex(1 << 20);
    let mut driver = Driver::server(near, Arc::new(Config::default()), Mailbox::new(), Keep::default());
    let mut octets = beginning_with_requests(2_500);
    octets.extend(frame(8, 0, 0, &0x7fff_ffff_u32.to_be_bytes()));
    far.write_all(&octets).await.expect("the pipe has room");
    let mut freed = Vec::new();
    let run = poll_fn(|cx| {
        let poll = driver.poll(cx);
        if matches!(&driver.stage, Stage::Closing(closing) if closing.untold.is_empty()) {
            freed.push(driver.connection.free_streams(0));
        }
        poll
    });
    assert!(timeout(Duration::from_secs(5), run).await.is_ok());
    let expected = [false, false, false];
    assert_eq!(freed.first_chunk(), Some(&expected), "{freed:?}");
    assert!(driver.connection.free_streams(0));
}

/// What a client sends first, and then so many requests.
fn beginning_with_requests(count: u32) -> Vec<u8> {
    let request = |index| frame(1, 0x5, 2 * index + 1, &[0x82, 0x86, 0x84, 0x41, 1, b'h']);
    let requests = (0..count).flat_map(request);
    BEGINNING.iter().copied().chain(requests).collect()
}

const BEGINNING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\0\x04\x01\0\0\0\0";

#[tokio::test(start_paused = true)]
async fn reads_grow_when_they_come_back_full_and_are_small_again_behind_many_frames() {
    let (near, mut far) = tokio::io::duplex(1 << 20);
    let mut driver = Driver::server(near, Arc::new(Config::default()), Mailbox::new(), Keep::default());
    assert_eq!(driver.input.size, SMALLEST_READ);
    let mut run = async |octets: &[u8]| {
        far.write_all(octets).await.expect("the pipe has room");
        let _ = timeout(Duration::from_millis(1), poll_fn(|cx| driver.poll(cx))).await;
        driver.input.size
    };
    // Frames of a type that is not known.
    let short = frame(0x77, 0, 0, &[]);
    let long = frame(0x77, 0, 0, &[0; 16_384]);
    assert_eq!(run(BEGINNING).await, SMALLEST_READ);
    assert_eq!(run(&short.repeat(254)).await, SMALLEST_READ);
    assert_eq!(run(&long.repeat(40)).await, SLAB);
    assert_eq!(run(&short.repeat(256)).await, SLAB);
    assert_eq!(run(&short.repeat(257)).await, SMALLEST_READ);
}

/// A transport that logs reads and writes, and takes everything.
#[derive(Default)]
pub(super) struct Noting {
    pub(super) input: Bytes,
    /// The error with which it ends behind the input.
    end: Option<std::io::ErrorKind>,
    /// Whether it holds back what was written.
    holds: bool,
    /// How often the TCP connection below was looked for.
    asked: std::cell::Cell<usize>,
    calls: String,
    pub(super) shut: usize,
}

impl AsyncRead for Noting {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        if self.input.is_empty() {
            return match self.end {
                Some(end) => Poll::Ready(Err(end.into())),
                None => Poll::Pending,
            };
        }
        let count = self.input.len().min(buffer.remaining());
        buffer.put_slice(&self.input.split_to(count));
        self.calls.push('r');
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Noting {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        octets: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.calls.push('w');
        Poll::Ready(Ok(octets.len()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        self.calls.push('w');
        Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match self.holds {
            true => Poll::Pending,
            false => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.shut += 1;
        Poll::Ready(Ok(()))
    }
}

/// Answers each request at once.
struct Answer;

impl Accept for Answer {
    fn accept(&mut self, _: Request<Incoming>, unanswered: &mut Unanswered<'_>, _: &mut Context<'_>) {
        let mut sender = unanswered.sender();
        sender.send_response(http::Response::new(()), false);
        sender.send_data(Bytes::from_static(&[0; 48 << 10]), true);
    }
}

#[tokio::test(start_paused = true)]
async fn four_lists_leave_behind_a_read_of_many_frames_before_the_next() {
    let mut octets = beginning_with_windows_and_requests(7 * 64);
    let requests = octets.len();
    octets.extend(frame(0x77, 0, 0, &[]).repeat(20_000));
    let io = Noting {
        input: octets.into(),
        ..Noting::default()
    };
    let mut driver = Driver::server(io, Arc::new(Config::default()), Mailbox::new(), Answer);
    assert!(requests <= SMALLEST_READ);
    let run = poll_fn(|cx| {
        driver.io.calls.push(' ');
        driver.poll(cx)
    });
    let _ = timeout(Duration::from_millis(1), run).await;
    let calls = &driver.io.calls;
    assert!(driver.io.input.is_empty(), "{calls}");
    let lists: Vec<usize> = calls.split(['r', ' ']).map(str::len).collect();
    let four = LISTS_BEFORE_READ as usize;
    assert!(
        lists.iter().filter(|&&lists| lists == four).count() >= 7,
        "{calls}"
    );
    // The rest of a read may hold no request. The turn that parses it adds a list.
    assert!(lists.iter().all(|&lists| lists <= four + 1), "{calls}");
}

#[tokio::test(start_paused = true)]
async fn the_time_for_which_the_transport_takes_nothing_is_accounted_for() {
    let (near, mut far) = tokio::io::duplex(4 << 10);
    let mut driver = Driver::server(near, Arc::new(Config::default()), Mailbox::new(), Answer);
    let mut octets = BEGINNING.to_vec();
    octets.extend(frame(1, 0x5, 1, &[0x82, 0x86, 0x84, 0x41, 1, b'h']));
    far.write_all(&octets).await.expect("the pipe has room");
    let _ = timeout(Duration::from_secs(5), poll_fn(|cx| driver.poll(cx))).await;
    let spent = |driver: &Driver<_, _>| {
        let report = driver.connection.report(driver.now());
        report.sending.spent(Stall::Socket)
    };
    assert_eq!(spent(&driver), Duration::from_secs(5));
    // Nothing waits once the peer has read all of it.
    let read = async {
        let mut heard = vec![0; 64 << 10];
        loop {
            assert_ne!(far.read(&mut heard).await.expect("it is open"), 0);
        }
    };
    let run = async { tokio::join!(poll_fn(|cx| driver.poll(cx)), read) };
    assert!(timeout(Duration::from_secs(5), run).await.is_err());
    assert_eq!(spent(&driver), Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_takes_nothing_is_given_up_at_the_limit_and_one_that_has_taken_all_is_not() {
    for takes in [false, true] {
        let (near, mut far) = tokio::io::duplex(4 << 10);
        let mut config = Config::default();
        config.set_send_timeout(Some(Duration::from_secs(8)));
        let mut driver = Driver::server(near, Arc::new(config), Mailbox::new(), Answer);
        far.write_all(&beginning_with_requests(1))
            .await
            .expect("the pipe has room");
        let begun = Instant::now();
        let take = async {
            let mut heard = vec![0; 64 << 10];
            if takes {
                loop {
                    assert_ne!(far.read(&mut heard).await.expect("it is open"), 0);
                }
            }
            std::future::pending::<()>().await;
        };
        let run = async {
            tokio::select! {
                ended = poll_fn(|cx| driver.poll(cx)) => ended,
                () = take => Ok(()),
            }
        };
        let ended = timeout(Duration::from_secs(30), run).await;
        assert_eq!(ended.is_err(), takes, "{ended:?}");
        if let Ok(ended) = ended {
            assert!(ended.expect_err("nothing was taken").is_timeout());
            assert!(
                (8..=12).contains(&begun.elapsed().as_secs()),
                "{:?}",
                begun.elapsed()
            );
        }
    }
}

/// The windows of a client that takes much at once, behind what it sends first, and so many requests.
fn beginning_with_windows_and_requests(count: u32) -> Vec<u8> {
    let mut octets = BEGINNING.to_vec();
    octets.extend(frame(8, 0, 0, &(1_u32 << 30).to_be_bytes()));
    octets.extend_from_slice(&beginning_with_requests(count)[BEGINNING.len()..]);
    octets
}

#[cfg(target_os = "linux")]
#[tokio::test(start_paused = true)]
async fn the_kernel_is_asked_for_room_behind_the_first_128_kib_only() {
    let mut octets = Bytes::from(beginning_with_windows_and_requests(4));
    let mut driver = Driver::server(
        Noting::default(),
        Arc::new(Config::default()),
        Mailbox::new(),
        Answer,
    );
    let look = |io: &Noting| {
        io.asked.set(io.asked.get() + 1);
        None
    };
    driver.limit_unsent(look, Duration::from_millis(10));
    let request = frame(1, 0x5, 1, &[0x82, 0x86, 0x84, 0x41, 1, b'h']).len();
    let mut asked = Vec::new();
    for left in [3, 2, 1, 0] {
        driver.io.input = octets.split_to(octets.len() - left * request);
        let _ = timeout(Duration::from_millis(1), poll_fn(|cx| driver.poll(cx))).await;
        asked.push(driver.io.asked.get());
    }
    // There is no TCP below, so that it is asked once. A list of 16 KiB precedes that.
    assert_eq!(asked, [0, 0, 1, 1], "{}", driver.io.calls);
}

#[cfg(target_os = "linux")]
#[tokio::test(start_paused = true)]
async fn a_peer_that_takes_nothing_of_what_is_sealed_is_given_up_at_the_limit() {
    let io = Noting {
        input: beginning_with_windows_and_requests(4).into(),
        holds: true,
        ..Noting::default()
    };
    let mut config = Config::default();
    config.set_send_timeout(Some(Duration::from_secs(8)));
    let mut driver = Driver::server(io, Arc::new(config), Mailbox::new(), Answer);
    driver.limit_unsent(|_| None, Duration::from_millis(10));
    let ended = timeout(Duration::from_secs(30), poll_fn(|cx| driver.poll(cx))).await;
    let error = ended.expect("it ends").expect_err("nothing was taken");
    assert!(error.is_timeout(), "{error}");
    let report = driver.connection.report(driver.now());
    assert!(report.sending.spent(Stall::Socket) >= Duration::from_secs(8));
    assert!(
        driver.connection.wants_transmit(),
        "the rest stays in the schedule"
    );
}

/// What TLS says of a peer that ends its half without close_notify.
const UNSEALED_END: Option<std::io::ErrorKind> = Some(std::io::ErrorKind::UnexpectedEof);

#[tokio::test(start_paused = true)]
async fn a_server_answers_what_came_before_an_end_without_close_notify() {
    let request = frame(1, 0x5, 1, &[0x82, 0x86, 0x84, 0x41, 1, b'h']);
    for requests in [&[][..], &request] {
        let io = Noting {
            input: [BEGINNING, requests].concat().into(),
            end: UNSEALED_END,
            ..Noting::default()
        };
        let mut driver = Driver::server(io, Arc::new(Config::default()), Mailbox::new(), Answer);
        let ended = timeout(Duration::from_secs(5), poll_fn(|cx| driver.poll(cx))).await;
        ended.expect("it ends").expect("it ends well");
        assert!(driver.io.calls.contains('w'));
        let sent = driver
            .connection
            .stats()
            .sent_frames
            .of(fullbore_proto::FrameType::HEADERS);
        assert_eq!(sent, u64::from(!requests.is_empty()));
    }
}

#[tokio::test(start_paused = true)]
async fn an_end_without_close_notify_is_an_error_for_a_client() {
    // SETTINGS, and the acknowledgement of the client's.
    let io = Noting {
        input: Bytes::from_static(b"\0\0\0\x04\0\0\0\0\0\0\0\0\x04\x01\0\0\0\0"),
        end: UNSEALED_END,
        ..Noting::default()
    };
    let mailbox = Mailbox::new();
    mailbox.add_opener();
    let mut driver = Driver::client(io, Arc::new(Config::default()), mailbox, NoAccept);
    let ended = timeout(Duration::from_secs(5), poll_fn(|cx| driver.poll(cx))).await;
    let error = ended.expect("it ends").expect_err("anybody could have ended it");
    assert!(error.is_closed(), "{error}");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_kept_of_what_comes_behind_an_error() {
    let mut octets = BEGINNING.to_vec();
    // The increment overflows the window.
    octets.extend(frame(8, 0, 0, &0x7fff_ffff_u32.to_be_bytes()));
    octets.extend(frame(6, 0, 0, b"too late").repeat(10));
    let io = Noting {
        input: octets.into(),
        ..Noting::default()
    };
    let mut driver = Driver::server(io, Arc::new(Config::default()), Mailbox::new(), NoAccept);
    let read = poll_fn(|cx| Poll::Ready(driver.poll_read(cx))).await;
    assert!(matches!(read, Poll::Ready(Ok(Read::Some))));
    assert!(driver.connection.error().is_some());
    assert!(driver.input.unparsed.is_empty());
    assert_eq!(driver.input.slab.capacity(), 0, "it serves the next connection");
}

#[tokio::test(start_paused = true)]
async fn a_long_message_leaves_in_two_writes_only_on_a_transport_that_holds_nothing_back() {
    for (holds, writes) in [(false, 2), (true, 1)] {
        let io = Noting {
            input: Bytes::from_static(BEGINNING),
            holds,
            ..Noting::default()
        };
        let mut driver = Driver::server(io, Arc::new(Config::default()), Mailbox::new(), Answer);
        let _ = timeout(Duration::from_millis(1), poll_fn(|cx| driver.poll(cx))).await;
        driver.io.calls.clear();
        driver.io.input = frame(1, 0x5, 1, &[0x82, 0x86, 0x84, 0x41, 1, b'h']).into();
        let _ = timeout(Duration::from_millis(1), poll_fn(|cx| driver.poll(cx))).await;
        let calls = &driver.io.calls;
        assert_eq!(calls.matches('w').count(), writes, "{calls}");
    }
}

#[tokio::test(start_paused = true)]
async fn streams_that_a_dropped_connection_has_not_told_learn_of_its_end() {
    let (near, mut far) = tokio::io::duplex(1 << 20);
    let mut driver = Driver::server(near, Arc::new(Config::default()), Mailbox::new(), Keep::default());
    let mut octets = beginning_with_requests(600);
    octets.extend(frame(8, 0, 0, &0x7fff_ffff_u32.to_be_bytes()));
    far.write_all(&octets).await.expect("the pipe has room");
    let run = poll_fn(|cx| match (driver.poll(cx), &driver.stage) {
        (Poll::Pending, Stage::Closing(closing)) if !closing.untold.is_empty() => Poll::Ready(()),
        _ => Poll::Pending,
    });
    timeout(Duration::from_secs(5), run).await.expect("it closes");
    let kept = std::mem::take(&mut driver.accept);
    drop(driver);
    assert_eq!(kept.0.len(), 600);
    for (_, sender) in &kept.0 {
        let told = poll_fn(|cx| Poll::Ready(sender.poll_failed(cx))).await;
        assert!(told.is_ready());
    }
}

#[tokio::test]
async fn an_answer_that_arrived_before_a_write_failed_is_read_though_the_runtime_has_not_noticed_it() {
    use std::io::{Read, Write};

    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let io = tokio::net::TcpStream::connect(address).await.expect("connects");
    let (mut server, _) = listener.accept().expect("a client");
    let (sender, connection) = crate::client::handshake(io, Config::default());
    let connection = tokio::spawn(connection);
    let get = || Request::get("http://one.example/").body(String::new());
    let first = sender.send(get().expect("a request"));
    // The driver writes, and finds nothing to read.
    tokio::time::sleep(Duration::from_millis(20)).await;
    // The server answers, and closes with a part of the request unread: the system resets the connection. Meanwhile this thread
    // polls no socket.
    std::thread::spawn(move || {
        server.read_exact(&mut [0; 24]).expect("a preface");
        let answer = [frame(4, 0, 0, &[]), frame(1, 0x5, 1, &[0x88])].concat();
        server.write_all(&answer).expect("it leaves");
        drop(server);
        std::thread::sleep(Duration::from_millis(20));
    })
    .join()
    .expect("no panic");
    // The next request wakes the driver, and its write fails.
    let second = sender.send(get().expect("a request"));
    let response = timeout(Duration::from_secs(60), first).await.expect("it ends");
    assert_eq!(response.expect("an answer").status(), 200);
    second.await.expect_err("the connection is gone");
    let _ = connection.await.expect("no panic");
}

mod bounds;
