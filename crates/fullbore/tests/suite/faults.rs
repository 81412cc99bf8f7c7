//! Transports that cut, delay and break: every exchange is whole, or is an error; none hangs and nothing panics.

use std::sync::atomic::Ordering;

use fullbore::client::handshake;
use fullbore::server::serve_connection;
use fullbore::{BoxError, Error, Incoming};
use http::{Request, Response};
use http_body_util::BodyExt;

use crate::support::{
    Breaks, Choppy, Chunks, Reply, config, full, get, pair_over, post, service, soon, take, windows,
};

async fn answer(request: Request<Incoming>) -> Result<Reply, BoxError> {
    Ok(match request.uri().path() {
        "/echo" => Response::new(request.into_body().map_err(BoxError::from).boxed_unsync()),
        "/count" => Response::new(full(take(request.into_body()).await?.bytes.to_string())),
        _ => {
            let body = Chunks::new(40_000, 3_000).with_trailer("x-end", "reached");
            Response::new(body.boxed_unsync())
        }
    })
}

/// A few exchanges of every kind at once.
async fn exchanges(client: &fullbore::client::SendRequest, total: u64) -> Result<(), Error> {
    let echo = client.send(post(
        "/echo",
        Chunks::new(total, 700).with_trailer("x-end", "reached"),
    ));
    let count = client.send(post("/count", Chunks::new(total, 5_000)));
    let fetch = client.send(get("/"));
    let (echo, count, fetch) = (echo.await?, count.await?, fetch.await?);
    let (echo, fetch) = tokio::join!(take(echo.into_body()), take(fetch.into_body()));
    let (echo, fetch) = (echo?, fetch?);
    assert_eq!((echo.bytes, fetch.bytes), (total, 40_000));
    for trailers in [echo.trailers, fetch.trailers] {
        assert!(trailers.is_some_and(|trailers| trailers["x-end"] == "reached"));
    }
    let counted = count.into_body().collect().await?.to_bytes();
    assert_eq!(counted, total.to_string());
    Ok(())
}

#[tokio::test]
async fn pieces_and_delays_change_nothing() {
    for seed in 0..60u64 {
        let longest = [1, 2, 9, 10, 100, 1_000, 20_000][seed as usize % 7];
        let total = if longest < 10 { 20_000 } else { 60_000 };
        let (near, far) = tokio::io::duplex(1 << (4 + seed % 13));
        let near = Choppy::new(near, 2 * seed, longest);
        let far = Choppy::new(far, 2 * seed + seed % 2, longest);
        let settings = match seed % 3 {
            0 => config(),
            1 => windows(10_000, 65_535),
            _ => windows(1_000, 65_535),
        };
        let pair = pair_over((near, settings.clone()), (far, settings), answer);
        for _ in 0..2 {
            soon(exchanges(&pair.client, total))
                .await
                .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
        drop(pair.client);
        // The last octets may cross with the end of the transport: how it ends is not asked, but it does.
        let _ = soon(pair.client_task).await.expect("no panic");
        let _ = soon(pair.server_task).await.expect("no panic");
    }
}

/// Runs the exchanges over transports of which one end breaks at its operation `at`; whether it came to that.
async fn broken_at(at: usize, breaks_client: bool, pipe: usize) -> bool {
    let (near, far) = tokio::io::duplex(pipe);
    let (near, near_seen) = Breaks::new(near, if breaks_client { at } else { usize::MAX });
    let (far, far_seen) = Breaks::new(far, if breaks_client { usize::MAX } else { at });
    let settings = windows(20_000, 65_535);
    let (client, connection) = handshake(near, settings.clone());
    let client_task = tokio::spawn(connection);
    let server_task = tokio::spawn(serve_connection(far, service(answer), settings));
    let done = soon(exchanges(&client, 60_000)).await;
    drop(client);
    let ended = [
        soon(client_task).await.expect("no panic"),
        soon(server_task).await.expect("no panic"),
    ];
    let seen = if breaks_client { near_seen } else { far_seen };
    let broke = seen.load(Ordering::SeqCst) > at;
    if !broke {
        done.expect("nothing broke");
        for end in ended {
            end.expect("nothing broke");
        }
    }
    broke
}

#[tokio::test]
async fn a_transport_that_breaks_at_any_operation_of_the_client_ends_everything() {
    breaks_everywhere(true).await;
}

#[tokio::test]
async fn a_transport_that_breaks_at_any_operation_of_the_server_ends_everything() {
    breaks_everywhere(false).await;
}

async fn breaks_everywhere(client: bool) {
    for pipe in [1_000, 64 << 10] {
        let mut at = 0;
        while broken_at(at, client, pipe).await {
            at += 1;
        }
        assert!(at > 20, "it broke only {at} times");
    }
}

#[tokio::test]
async fn a_peer_that_goes_after_any_octet_ends_everything() {
    // What a client sends, as a recording of a whole exchange.
    let recording = recording().await;
    for cut in 0..recording.len() {
        let (near, far) = tokio::io::duplex(1 << 20);
        let server = tokio::spawn(serve_connection(near, service(answer), config()));
        let (mut output, mut input) = tokio::io::split(far);
        tokio::io::AsyncWriteExt::write_all(&mut input, &recording[..cut])
            .await
            .unwrap();
        tokio::io::AsyncWriteExt::shutdown(&mut input).await.unwrap();
        let mut answers = Vec::new();
        soon(tokio::io::AsyncReadExt::read_to_end(&mut output, &mut answers))
            .await
            .unwrap();
        let _ = soon(server).await.expect("no panic");
    }
}

#[tokio::test(start_paused = true)]
async fn octets_that_were_changed_on_the_way_end_in_errors_at_most() {
    let recording = recording().await;
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..3_000 {
        let mut octets = recording.clone();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..octets.len());
            octets[at] = random.u8(..);
        }
        let (near, far) = tokio::io::duplex(1 << 20);
        let server = tokio::spawn(serve_connection(near, service(answer), config()));
        let (mut output, mut input) = tokio::io::split(far);
        let reading = tokio::spawn(async move {
            let mut answers = Vec::new();
            tokio::io::AsyncReadExt::read_to_end(&mut output, &mut answers).await
        });
        let _ = tokio::io::AsyncWriteExt::write_all(&mut input, &octets).await;
        let _ = tokio::io::AsyncWriteExt::shutdown(&mut input).await;
        soon(reading).await.unwrap().unwrap();
        // A wrong pattern fails its handler alone.
        let _ = soon(server).await.expect("no panic");
    }
}

/// All that a client sends for a few exchanges.
async fn recording() -> Vec<u8> {
    let (near, mut far) = tokio::io::duplex(1 << 20);
    let (client, connection) = handshake(near, config());
    tokio::spawn(connection);
    let first = client.send(get("/"));
    let second = client.send(post(
        "/echo",
        Chunks::new(300, 100).with_trailer("x-end", "reached"),
    ));
    let mut octets = Vec::new();
    let mut quiet = 0;
    while quiet < 50 {
        tokio::select! {
            biased;
            read = tokio::io::AsyncReadExt::read_buf(&mut far, &mut octets) => assert!(read.unwrap() > 0),
            () = tokio::task::yield_now() => quiet += 1,
        }
    }
    drop((first, second));
    octets
}
