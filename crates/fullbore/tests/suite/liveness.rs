//! No wake-up is lost: bodies of every awkward size and chunk, on both kinds of runtime, with the smallest windows.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use fullbore::client::{SendRequest, handshake};
use fullbore::server::serve_connection;
use fullbore::settings::{Limit, PeerLimit, Refill};
use fullbore::{BoxError, Config, Incoming};
use http::{Request, Response};
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::support::{
    Chunks, Pair, Peer, Reply, config, frames, full, get, pair, pair_over, post, service, soon, take, windows,
};

/// `/<total>/<chunk>` is a body of that length in such chunks; a POST is answered with its body's length, or with the
/// body itself when its path is `/echo`.
async fn answer(request: Request<Incoming>) -> Result<Reply, BoxError> {
    let path = request.uri().path().to_owned();
    if path == "/echo" {
        return Ok(Response::new(
            request.into_body().map_err(BoxError::from).boxed_unsync(),
        ));
    }
    let mut parts = path.split('/').skip(1);
    if let (Some(total), Some(chunk)) = (parts.next(), parts.next()) {
        return Ok(Response::new(
            Chunks::new(total.parse()?, chunk.parse()?).boxed_unsync(),
        ));
    }
    Ok(Response::new(full(
        take(request.into_body()).await?.bytes.to_string(),
    )))
}

async fn download(client: &SendRequest, total: u64, chunk: usize) {
    let response = soon(client.send(get(&format!("/{total}/{chunk}"))))
        .await
        .expect("a response");
    let taken = soon(take(response.into_body())).await.expect("a body");
    assert_eq!(taken.bytes, total, "in chunks of {chunk}");
}

async fn upload(client: &SendRequest, total: u64, chunk: usize) {
    let response = soon(client.send(post("/", Chunks::new(total, chunk))))
        .await
        .expect("a response");
    let counted = soon(response.into_body().collect())
        .await
        .expect("a body")
        .to_bytes();
    assert_eq!(counted, total.to_string(), "in chunks of {chunk}");
}

async fn echo(client: &SendRequest, total: u64, chunk: usize) {
    let response = soon(client.send(post("/echo", Chunks::new(total, chunk))))
        .await
        .expect("a response");
    let taken = soon(take(response.into_body())).await.expect("a body");
    assert_eq!(taken.bytes, total, "in chunks of {chunk}");
}

/// Sizes around those at which buffers, reads and writes fill.
const EDGES: [u64; 5] = [64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20];

fn around(edge: u64) -> impl Iterator<Item = u64> {
    let frames = [0, 1, 9, 16_384, 16_393];
    frames
        .into_iter()
        .flat_map(move |offset| [edge - offset, edge + offset])
}

async fn every_size(pair: &Pair) {
    for edge in EDGES {
        for total in around(edge) {
            for chunk in [4 << 10, 64 << 10, 128 << 10, 256 << 10] {
                download(&pair.client, total, chunk).await;
                upload(&pair.client, total, chunk).await;
            }
        }
    }
    for total in around(64 << 10) {
        download(&pair.client, total, 1).await;
        upload(&pair.client, total, 1).await;
        echo(&pair.client, total, 1).await;
    }
}

/// Runs on a runtime of one thread and on one of three.
fn on_both<F: Future<Output = ()>>(run: impl Fn() -> F) {
    let one = tokio::runtime::Builder::new_current_thread().enable_all().build();
    one.expect("a runtime").block_on(run());
    let three = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(3)
        .enable_all()
        .build();
    three.expect("a runtime").block_on(run());
}

#[test]
fn bodies_of_every_size_come_through_a_pipe() {
    on_both(|| async {
        let pair = pair(config(), config(), answer);
        every_size(&pair).await;
        pair.end().await;
    });
}

#[test]
fn bodies_of_every_size_come_through_a_wide_pipe() {
    on_both(|| async {
        let (near, far) = tokio::io::duplex(4 << 20);
        let pair = pair_over((near, config()), (far, config()), answer);
        every_size(&pair).await;
        pair.end().await;
    });
}

#[test]
fn bodies_of_every_size_come_over_tcp() {
    on_both(|| async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (near, far) = tokio::join!(tokio::net::TcpStream::connect(address), listener.accept());
        let pair = pair_over((near.unwrap(), config()), (far.unwrap().0, config()), answer);
        every_size(&pair).await;
        pair.end().await;
    });
}

#[test]
fn small_exchanges_come_through_thousands_of_times() {
    on_both(|| async {
        let pair = pair(config(), config(), answer);
        for round in 0..4_000u64 {
            echo(&pair.client, round % 40, 1 + round as usize % 7).await;
            if round % 4 == 0 {
                // Both ends have gone to sleep.
                tokio::task::yield_now().await;
            }
        }
        pair.end().await;
    });
}

#[test]
fn exchanges_of_many_tasks_come_through_together() {
    on_both(|| async {
        let pair = pair(windows(70_000, 200_000), windows(70_000, 200_000), answer);
        let tasks: Vec<_> = (0..16u64)
            .map(|seed| {
                let client = pair.client.clone();
                tokio::spawn(async move {
                    let mut random = fastrand::Rng::with_seed(seed);
                    for _ in 0..40 {
                        let (total, chunk) = (random.u64(..600_000), random.usize(1_000..300_000));
                        match random.u8(..3) {
                            0 => download(&client, total, chunk).await,
                            1 => upload(&client, total, chunk).await,
                            _ => echo(&client, total, chunk).await,
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("no panic");
        }
        pair.end().await;
    });
}

fn refills() -> [Refill; 5] {
    [
        Refill::Fraction { divisor: 1 },
        Refill::Fraction { divisor: 4 },
        Refill::Remaining(0),
        Refill::Remaining(100),
        Refill::Remaining(160_000),
    ]
}

fn settings(stream: u32, refill: Refill) -> Config {
    let mut settings = windows(stream, 65_535);
    settings.set_stream_refill(refill);
    settings.set_connection_refill(refill);
    settings
}

#[test]
fn a_window_of_one_octet_moves_bodies() {
    on_both(|| async {
        for refill in refills() {
            let pair = pair(settings(1, refill), settings(1, refill), answer);
            download(&pair.client, 3_000, 1_000).await;
            upload(&pair.client, 3_000, 1_000).await;
            echo(&pair.client, 1_000, 7).await;
            pair.end().await;
        }
    });
}

#[test]
fn a_window_of_a_hundred_octets_moves_bodies() {
    on_both(|| async {
        for refill in refills() {
            let pair = pair(settings(100, refill), settings(100, refill), answer);
            for total in [99, 100, 101, 30_000] {
                download(&pair.client, total, 1_000).await;
                upload(&pair.client, total, 1_000).await;
                echo(&pair.client, total, 33).await;
            }
            pair.end().await;
        }
    });
}

#[test]
fn the_smallest_connection_window_moves_many_bodies_at_once() {
    on_both(|| async {
        for refill in refills() {
            let pair = pair(settings(65_535, refill), settings(65_535, refill), answer);
            let tasks: Vec<_> = (0..6u64)
                .map(|index| {
                    let client = pair.client.clone();
                    tokio::spawn(async move {
                        download(&client, 300_000 + index, 20_000).await;
                        upload(&client, 300_000 + index, 20_000).await;
                        echo(&client, 300_000 + index, 20_000).await;
                    })
                })
                .collect();
            for task in tasks {
                task.await.expect("no panic");
            }
            pair.end().await;
        }
    });
}

#[tokio::test(start_paused = true)]
async fn answers_to_ping_that_wait_for_room_are_followed_by_more_reading() {
    let (input, mut to_client) = tokio::io::simplex(64 << 10);
    let (mut from_client, output) = tokio::io::simplex(9_000);
    let mut config = Config::default();
    config.set_limit(PeerLimit::Pings, Limit::new(u32::MAX, u32::MAX));
    let (_sender, connection) = handshake(tokio::io::join(input, output), config);
    tokio::spawn(connection);
    let far = tokio::io::join(&mut from_client, &mut to_client);
    soon(Peer::server(far, &[])).await;
    // What comes before the first answer.
    let mut octets = vec![0; 16 << 10];
    while let Ok(Ok(_)) = timeout(Duration::from_millis(50), from_client.read(&mut octets)).await {}
    // More answers than there is room for; then, while they wait, more than one read takes. These have to be read once the
    // answers have left, and nothing else says so.
    let ping = [&[0, 0, 8, 6, 0, 0, 0, 0, 0][..], &[7; 8]].concat();
    for pings in [560, 1_500] {
        soon(to_client.write_all(&ping.repeat(pings)))
            .await
            .expect("there is room");
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
    }
    let mut left = 2_060 * ping.len();
    while left > 0 {
        // The clock stands while anybody has something to do: a timer that happens to wake the client would be too late.
        let read = timeout(Duration::from_millis(1), from_client.read(&mut octets)).await;
        left -= read.expect("the client stopped reading").expect("answers");
    }
}

#[tokio::test]
async fn a_peer_that_has_more_ready_keeps_nobody_waiting_who_waits_for_another_socket() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    for octets_of_a_frame in [1, 16_384] {
        let (near, far) = tokio::join!(tokio::net::TcpStream::connect(address), listener.accept());
        let (mut near, (mut far, _)) = (near.unwrap(), far.unwrap());
        let turns = Arc::new(AtomicUsize::new(0));
        let heard = tokio::spawn({
            let turns = Arc::clone(&turns);
            async move {
                far.read_u8().await.unwrap();
                turns.load(Ordering::Relaxed)
            }
        });
        tokio::task::yield_now().await;

        // An upload that nobody takes, all of it there already: many reads, each of which is followed by the next.
        let (peer, io) = tokio::io::duplex(4 << 20);
        let mut peer = Peer::client(peer, &[]).await;
        peer.request(1, false, &[]).await;
        for _ in 0..(3 << 20) / (octets_of_a_frame + 9) {
            peer.send(frames::DATA, 0, 1, &vec![0; octets_of_a_frame]).await;
        }
        let service = service(|_| std::future::pending::<Result<Reply, BoxError>>());
        let mut connection = Box::pin(serve_connection(io, service, Config::default()));
        near.write_all(b"!").await.unwrap();
        let serving = tokio::spawn(std::future::poll_fn({
            let turns = Arc::clone(&turns);
            move |cx| {
                turns.fetch_add(1, Ordering::Relaxed);
                connection.as_mut().poll(cx)
            }
        }));
        let before = soon(heard).await.unwrap();
        assert!(before <= 1, "{before} turns before another socket was looked at");
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
        let all = turns.load(Ordering::Relaxed);
        assert!(all > 8, "{all} turns are too few to tell");
        serving.abort();
    }
}

/// How often a task was woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn a_connection_yields_to_several_readers_but_not_to_one_who_has_all() {
    let (near, mut far) = tokio::io::duplex(64 << 10);
    let (sender, connection) = handshake(near, Config::default());
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut cx = Context::from_waker(&waker);
    let mut connection = pin!(connection);
    // SETTINGS and the acknowledgement of the client's; it acknowledges them in its turn.
    far.write_all(b"\0\0\0\x04\0\0\0\0\0\0\0\0\x04\x01\0\0\0\0")
        .await
        .unwrap();
    let mut responses: Vec<_> = (0..4).map(|_| Box::pin(sender.send(get("/")))).collect();
    for _ in 0..3 {
        assert!(connection.as_mut().poll(&mut cx).is_pending());
        for response in &mut responses {
            assert!(response.as_mut().poll(&mut cx).is_pending());
        }
    }
    // Heads with the status 200 for each, the last of which does not end its response.
    for (streams, end, yields) in [(&[1][..], 5, 0), (&[3, 5], 5, 1), (&[7], 4, 1)] {
        for stream in streams {
            far.write_all(&[0, 0, 1, 1, end, 0, 0, 0, *stream, 0x88])
                .await
                .unwrap();
        }
        // The transport has woken it until now, and the readers are yet to be.
        let before = woken.0.swap(0, Ordering::Relaxed);
        assert!(before > 0, "nothing came for {streams:?}");
        assert!(connection.as_mut().poll(&mut cx).is_pending());
        let times = woken.0.swap(0, Ordering::Relaxed);
        assert_eq!(
            times,
            streams.len() + yields,
            "readers and yields for {streams:?}"
        );
        for response in responses.drain(..streams.len()) {
            let mut response = response;
            let Poll::Ready(answered) = response.as_mut().poll(&mut cx) else {
                panic!("no response on one of {streams:?}");
            };
            answered.unwrap();
        }
        assert!(connection.as_mut().poll(&mut cx).is_pending());
    }
}
