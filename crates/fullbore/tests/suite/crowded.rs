//! Requests at the peer's limit of streams while others are cancelled at random: none of those that nobody cancels fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fullbore::{BoxError, Client, Incoming, Server};
use http::{Request, Response};
use http_body_util::BodyExt;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::support::{Chunks, Reply, full, service, soon};

/// Requests that nobody cancels.
const INNOCENT: usize = 1_000;

/// How many are cancelled for each that is not. Together they stay below the server's limit on resets (10,000), which has tests of
/// its own.
const CANCELLED: usize = 9;

/// How many of each kind are sent at a time.
const TOGETHER: usize = 40;

/// `/hang` is never answered, `/long` never to its end; all else is answered after a moment.
async fn answer(request: Request<Incoming>) -> Result<Reply, BoxError> {
    match request.uri().path() {
        "/hang" => std::future::pending().await,
        "/long" => Ok(Response::new(Chunks::new(1 << 30, 1 << 10).boxed_unsync())),
        _ => {
            tokio::task::yield_now().await;
            Ok(Response::new(full("hello")))
        }
    }
}

/// How many of `INNOCENT` requests fail.
async fn failures(limit: u32) -> usize {
    let builder = Server::builder().max_concurrent_streams(limit);
    let server = builder.bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", server.local_addr().expect("an address"));
    let (stop, stopped) = oneshot::channel::<()>();
    let server = server.graceful_shutdown(async {
        let _ = stopped.await;
    });
    let server = tokio::spawn(server.serve(service(answer)));
    let client = Client::builder().max_connections(1).build().expect("a client");
    // The limit is known before the crowd comes.
    soon(client.get(format!("{url}/"))).await.expect("an answer");

    let left = Arc::new(AtomicUsize::new(INNOCENT));
    let cancelled = Arc::new(AtomicUsize::new(0));
    let mut guilty = JoinSet::new();
    for seed in 0..TOGETHER as u64 {
        let (client, url, left) = (client.clone(), url.clone(), Arc::clone(&left));
        let cancelled = Arc::clone(&cancelled);
        guilty.spawn(async move {
            let mut random = fastrand::Rng::with_seed(seed);
            while left.load(Ordering::SeqCst) > 0 {
                let most = CANCELLED * (INNOCENT - left.load(Ordering::SeqCst));
                let one_more = |cancelled| Some(cancelled + 1).filter(|&cancelled| cancelled <= most);
                if cancelled
                    .fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more)
                    .is_err()
                {
                    tokio::task::yield_now().await;
                    continue;
                }
                let path = ["/hang", "/long"][random.usize(..2)];
                let url = format!("{url}{path}");
                let mut response = Box::pin(client.get(&url).send());
                for _ in 0..random.u8(1..30) {
                    tokio::select! { biased; _ = &mut response => break, () = tokio::task::yield_now() => {} }
                }
            }
        });
    }
    let mut innocent = JoinSet::new();
    for _ in 0..TOGETHER {
        let (client, url, left) = (client.clone(), url.clone(), Arc::clone(&left));
        innocent.spawn(async move {
            let mut failed = 0;
            while left
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
                .is_ok()
            {
                let answer = async { client.get(&url).await?.into_body().collect().await };
                if let Err(error) = soon(answer).await {
                    println!("at a limit of {limit}: {error}");
                    failed += 1;
                }
            }
            failed
        });
    }
    let failed = soon(innocent.join_all()).await.into_iter().sum();
    soon(guilty.join_all()).await;
    drop(client);
    drop(stop);
    soon(server).await.expect("no panic").expect("a good end");
    failed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn no_innocent_request_fails_at_a_limit_of_two_streams() {
    assert_eq!(failures(2).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn no_innocent_request_fails_at_a_limit_of_twenty_streams() {
    assert_eq!(failures(20).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn no_innocent_request_fails_at_a_limit_of_a_hundred_streams() {
    assert_eq!(failures(100).await, 0);
}
