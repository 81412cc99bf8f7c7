//! Many tasks on many threads use one connection at once: every exchange that is not given up ends as it should.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use h2::{Ping, Reason, client, server};
use http::Response;
use tokio::io::duplex;

use crate::support::{pattern, post, read, soon};

const TASKS: usize = 16;
const EXCHANGES: usize = 60;

/// A number that differs from exchange to exchange.
fn dice(task: usize, exchange: usize) -> usize {
    (task * 7_919 + exchange * 104_729).wrapping_mul(0x9e37_79b9) >> 7
}

async fn serve(transport: tokio::io::DuplexStream) {
    let mut builder = server::Builder::new();
    builder.max_concurrent_streams(10).max_send_buffer_size(20_000);
    let mut served = builder.handshake::<_, Bytes>(transport).await.unwrap();
    while let Some(accepted) = served.accept().await {
        let (request, mut respond) = accepted.unwrap();
        tokio::spawn(async move {
            let mut body = request.into_body();
            let Ok(mut sender) = respond.send_response(Response::new(()), false) else {
                return;
            };
            // Sends back what comes, as the windows allow.
            while let Some(Ok(chunk)) = body.data().await {
                let _ = body.flow_control().release_capacity(chunk.len());
                if sender.send_data(chunk, false).is_err() {
                    return;
                }
            }
            let _ = sender.send_data(Bytes::new(), true);
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_tasks_share_a_connection() {
    let (near, far) = duplex(30_000);
    let server = tokio::spawn(serve(far));
    let mut builder = client::Builder::new();
    // The limit of the server, which would refuse what comes beyond it before its SETTINGS arrive.
    builder.max_send_buffer_size(10_000).initial_max_send_streams(10);
    let (requests, mut connection) = builder.handshake::<_, Bytes>(near).await.unwrap();
    let mut pings = connection.ping_pong().unwrap();
    let connection = tokio::spawn(connection);
    let pinging = tokio::spawn(async move {
        while pings.ping(Ping::opaque()).await.is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    });
    let complete = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for task in 0..TASKS {
        let mut requests = requests.clone();
        let complete = Arc::clone(&complete);
        tasks.push(tokio::spawn(async move {
            for exchange in 0..EXCHANGES {
                let dice = dice(task, exchange);
                requests = requests.ready().await.unwrap();
                let (response, mut sender) = requests.send_request(post("/"), false).unwrap();
                match dice % 8 {
                    // Given up at once, or in the middle.
                    0 => continue,
                    1 => sender.send_reset(Reason::CANCEL),
                    2 => {
                        let _ = sender.send_data(vec![7; 50_000].into(), false);
                        drop(sender);
                        drop(response.await);
                    }
                    _ => {
                        let sent = Bytes::from(pattern(dice % 40_000));
                        let mut rest = sent.clone();
                        let sending = tokio::spawn(async move {
                            while !rest.is_empty() {
                                sender.reserve_capacity(rest.len());
                                let capacity = std::future::poll_fn(|cx| sender.poll_capacity(cx)).await;
                                let capacity = capacity.unwrap().unwrap();
                                sender.send_data(rest.split_to(capacity), false).unwrap();
                            }
                            sender.send_data(Bytes::new(), true).unwrap();
                        });
                        let mut body = response.await.unwrap().into_body();
                        let (received, _) = read(&mut body).await.unwrap();
                        assert!(received == sent, "{task}.{exchange}");
                        sending.await.unwrap();
                        complete.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        }));
    }
    for task in tasks {
        soon(task).await.unwrap();
    }
    drop(requests);
    soon(connection).await.unwrap().unwrap();
    soon(pinging).await.unwrap();
    soon(server).await.unwrap();
    assert!(complete.load(Ordering::Relaxed) > TASKS * EXCHANGES / 2);
}
