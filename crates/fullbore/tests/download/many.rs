//! Many requests to one origin, over paths whose link and connections have rates, on a paused clock.

use std::convert::Infallible;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use fullbore::server::serve_connection;
use fullbore::{Client, Config};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::Full;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

const MS: Duration = Duration::from_millis(1);

/// The path to a server, and what it serves.
#[derive(Clone)]
struct Path {
    /// Bytes a second that all connections have together.
    link: f64,
    /// Bytes a second that each connection has at most.
    each: f64,
    /// Of each direction.
    delay: Duration,
    /// What the server needs for an answer.
    latency: Duration,
    body_bytes: usize,
    streams: u32,
    /// Connections beyond so many answer 503.
    limit: usize,
}

impl Path {
    fn good() -> Self {
        Path {
            link: 12.5e6,
            each: f64::INFINITY,
            delay: 50 * MS,
            latency: Duration::ZERO,
            body_bytes: 10_000,
            streams: 10_000,
            limit: usize::MAX,
        }
    }
}

/// What came of the requests.
#[derive(Debug)]
struct Ended {
    took: Duration,
    /// Connections that were opened, and those that are open at the end.
    opened: usize,
    open: usize,
}

/// Sends so many requests at once, and reads their bodies.
async fn get_all(path: &Path, requests: usize, spreads: bool) -> Ended {
    let opened = Arc::new(AtomicUsize::new(0));
    let (counter, path, link) = (
        Arc::clone(&opened),
        path.clone(),
        Arc::new(Mutex::new(Instant::now())),
    );
    let body_bytes = path.body_bytes;
    let connector = tower::service_fn(move |_: Uri| {
        let number = counter.fetch_add(1, Ordering::Relaxed);
        let (path, link) = (path.clone(), Arc::clone(&link));
        async move {
            sleep(2 * path.delay).await;
            Ok::<_, io::Error>(connect(&path, &link, number))
        }
    });
    let client = Client::builder()
        .connector(connector)
        .spread_requests(spreads)
        .build()
        .expect("valid");
    let begun = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..requests {
        let client = client.clone();
        tasks.spawn(async move {
            let response = client.get("http://many.example/").await.expect("a response");
            assert_eq!(response.status(), 200);
            assert_eq!(response.bytes().await.expect("a body").len(), body_bytes);
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("a whole body");
    }
    Ended {
        took: begun.elapsed(),
        opened: opened.load(Ordering::Relaxed),
        open: client.connections("http://many.example/"),
    }
}

/// A transport to a server at the other end of the path.
fn connect(path: &Path, link: &Arc<Mutex<Instant>>, number: usize) -> DuplexStream {
    let (near, path_near) = tokio::io::duplex(64 << 10);
    let (path_far, far) = tokio::io::duplex(64 << 10);
    let (near_read, near_write) = tokio::io::split(path_near);
    let (far_read, far_write) = tokio::io::split(path_far);
    let unlimited = Arc::new(Mutex::new(Instant::now()));
    tokio::spawn(carry(
        near_read,
        far_write,
        path.delay,
        (f64::INFINITY, f64::INFINITY),
        unlimited,
    ));
    tokio::spawn(carry(
        far_read,
        near_write,
        path.delay,
        (path.each, path.link),
        Arc::clone(link),
    ));
    let body = Bytes::from(vec![7; path.body_bytes]);
    let (latency, is_crowded) = (path.latency, number >= path.limit);
    let service = tower::service_fn(move |_: Request<fullbore::Incoming>| {
        let body = body.clone();
        async move {
            sleep(latency).await;
            let mut response = Response::new(Full::new(body));
            if is_crowded {
                response = Response::new(Full::default());
                *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            }
            Ok::<_, Infallible>(response)
        }
    });
    let mut config = Config::default();
    config.set_max_concurrent_streams(path.streams);
    tokio::spawn(async move {
        let _ = serve_connection(far, service, config).await;
    });
    near
}

/// Carries octets in one direction, no faster than the connection and the link.
async fn carry(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin + Send + 'static,
    delay: Duration,
    (each, rate): (f64, f64),
    link: Arc<Mutex<Instant>>,
) {
    let (under_way, mut arriving) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    tokio::spawn(async move {
        while let Some((at, octets)) = arriving.recv().await {
            sleep_until(at).await;
            if to.write_all(&octets).await.is_err() {
                return;
            }
        }
        let _ = to.shutdown().await;
    });
    let mut buffer = vec![0; 4_096];
    let mut free = Instant::now();
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let now = Instant::now();
        free = free.max(now) + Duration::from_secs_f64(count as f64 / each);
        {
            let mut link = link.lock().unwrap_or_else(PoisonError::into_inner);
            *link = free.max(*link) + Duration::from_secs_f64(count as f64 / rate);
            free = *link;
        }
        // The clock counts in milliseconds.
        if free > now + 2 * MS {
            sleep_until(free).await;
        }
        if under_way.send((free + delay, buffer[..count].to_vec())).is_err() {
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn requests_spread_over_connections_that_have_a_limit_each() {
    let path = Path {
        each: 0.8e6,
        ..Path::good()
    };
    let alone = get_all(&path, 1_000, false).await;
    assert_eq!((alone.opened, alone.open), (1, 1), "{alone:?}");
    let spread = get_all(&path, 1_000, true).await;
    assert_eq!(spread.opened, 8, "{spread:?}");
    assert!(spread.took * 5 / 2 < alone.took, "{spread:?} {alone:?}");
}

#[tokio::test(start_paused = true)]
async fn a_link_that_one_connection_fills_costs_nothing_and_has_two_at_the_end_at_most() {
    for (link, requests) in [(12.5e6, 3_000), (125e6, 10_000)] {
        let path = Path { link, ..Path::good() };
        let alone = get_all(&path, requests, false).await;
        let spread = get_all(&path, requests, true).await;
        assert!(spread.open <= 2 && spread.opened <= 2, "{spread:?}");
        assert!(
            spread.took < alone.took * 103 / 100 + 10 * MS,
            "{spread:?} {alone:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn requests_wait_for_no_slow_server_and_no_tiny_bodies_one_after_the_other() {
    for (latency, body_bytes) in [(1_000 * MS, 1_000), (Duration::ZERO, 10)] {
        let path = Path {
            latency,
            body_bytes,
            ..Path::good()
        };
        let alone = get_all(&path, 5_000, false).await;
        let spread = get_all(&path, 5_000, true).await;
        assert!(
            spread.took < alone.took + latency + 200 * MS,
            "{spread:?} {alone:?}"
        );
        assert_eq!(spread.opened, 1, "{spread:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_turns_further_connections_away_answers_each_request_all_the_same() {
    for limit in 1..=3 {
        let path = Path {
            each: 0.8e6,
            limit,
            ..Path::good()
        };
        let spread = get_all(&path, 600, true).await;
        assert!(spread.open <= limit, "{spread:?}");
        assert!(spread.opened <= 9, "{spread:?}");
    }
}
