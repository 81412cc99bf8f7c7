//! Random requests at once, every body checked, with exchanges that either side breaks off: nothing is lost, mixed or left over,
//! and each failure has its cause.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fullbore::{BoxError, Incoming};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::support::{Front, Reply, VERSIONS, body, boxed, client, origin, post, soon, urls};

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Whole,
    /// The client gives up.
    Dropped,
    /// The origin fails before its answer, or in the middle of it.
    Fails,
    BreaksOff,
}

async fn answer(request: Request<Incoming>) -> Result<Reply, BoxError> {
    let fate = request.uri().path().to_owned();
    let body = request.into_body().collect().await?.to_bytes();
    match fate.as_str() {
        "/Fails" => Err("it fails".into()),
        "/BreaksOff" => {
            let half = body.slice(..body.len() / 2);
            let frames = [Ok(Frame::data(half)), Err("it breaks off")];
            Ok(Response::new(boxed(StreamBody::new(futures_util::stream::iter(
                frames,
            )))))
        }
        _ => {
            let pieces: Vec<_> = body.chunks(40_000).map(Bytes::copy_from_slice).collect();
            let frames = pieces
                .into_iter()
                .map(|piece| Ok::<_, BoxError>(Frame::data(piece)));
            Ok(Response::new(boxed(StreamBody::new(futures_util::stream::iter(
                frames,
            )))))
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_octet_is_lost_or_mixed_whatever_breaks_off() {
    let seed = fastrand::u64(..);
    let site = origin(answer).await;
    for (url, version) in urls(&site)
        .into_iter()
        .flat_map(|url| VERSIONS.map(|version| (url.clone(), version)))
    {
        let mut random = fastrand::Rng::with_seed(seed);
        let front = Arc::new(Front::to(&url).await);
        let client = client(version);
        let turns = Arc::new(Semaphore::new(24));
        let mut asking = JoinSet::new();
        for number in 0..240 {
            let most = 2 << random.usize(1..19);
            let bytes = random.usize(2..most);
            let fate = match random.usize(..8) {
                0 => Fate::Dropped,
                1 => Fate::Fails,
                2 => Fate::BreaksOff,
                _ => Fate::Whole,
            };
            let pause = Duration::from_micros(random.u64(..3_000));
            let (front, client, turns) = (Arc::clone(&front), client.clone(), Arc::clone(&turns));
            asking.spawn(async move {
                let _turn = turns.acquire().await.expect("a turn");
                let sent = body(number, bytes);
                let request = post(&front.url(&format!("/{fate:?}")), sent.clone());
                let exchange = async {
                    let response = client.request(request).await?;
                    let status = response.status().as_u16();
                    let body = response.into_body().collect().await?.to_bytes();
                    Ok::<_, fullbore::Error>((status, body))
                };
                if fate == Fate::Dropped {
                    let _ = tokio::time::timeout(pause, exchange).await;
                    return;
                }
                let ended = soon(exchange).await;
                match (fate, ended) {
                    (Fate::Whole, Ok((200, received))) => {
                        assert!(received == sent, "{number} of seed {seed}")
                    }
                    // Over HTTP/1.1 an origin that fails says 500, and over HTTP/2 it resets the stream; perhaps so early that
                    // nobody has seen the head of its answer.
                    (Fate::Fails, Ok((500 | 502, _))) | (Fate::BreaksOff, Ok((502, _)) | Err(_)) => {}
                    (_, ended) => panic!("{number} of seed {seed}, {version:?} {bytes} {fate:?}: {ended:?}"),
                }
            });
        }
        let mut failed = Vec::new();
        while let Some(asked) = asking.join_next().await {
            failed.extend(asked.err());
        }
        assert!(failed.is_empty(), "{failed:?}; {:?}", front.told());
        drop(client);
        soon(async {
            // Over HTTP/1.1 a client that has gone may be noticed late: see `ends`.
            while !version.has_http1() && front.proxy.stats()[0].requests > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }
}
