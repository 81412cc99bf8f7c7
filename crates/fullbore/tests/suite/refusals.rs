//! Origins that refuse requests, allow no stream, or stop answering: the client asks seldom, gives up in time, and says
//! what the peer said.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use fullbore::client::handshake;
use fullbore::server::serve_connection;
use fullbore::settings::KeepAlive;
use fullbore::{Client, Config, Error, ErrorCode, ErrorKind, Incoming};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::pool::raw::Raw;
use crate::support::{patiently, service};

/// A test that has not ended by then hangs; how long it takes is not what is tested.
const HANG: Duration = Duration::from_secs(120);

/// A list of URLs.
const LIST: usize = 20;

async fn in_time<T>(what: impl IntoFuture<Output = T>) -> T {
    tokio::time::timeout(HANG, what).await.expect("the test hangs")
}

/// What a server has seen.
#[derive(Default)]
struct Seen {
    connections: AtomicUsize,
    requests: AtomicUsize,
}

impl Seen {
    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    /// The next request of a connection, counted.
    async fn next_request(&self, raw: &mut Raw) -> Option<u32> {
        let stream = raw.next_request().await?;
        self.requests.fetch_add(1, Ordering::SeqCst);
        Some(stream)
    }
}

/// A server that does as `serve` says with each connection, by its number.
struct Site {
    url: String,
    seen: Arc<Seen>,
    _task: JoinSet<()>,
}

impl Site {
    async fn start<F, S>(serve: F) -> Site
    where
        F: Fn(usize, TcpStream, Arc<Seen>) -> S + Send + 'static,
        S: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let seen = Arc::new(Seen::default());
        let book = Arc::clone(&seen);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let number = book.connections.fetch_add(1, Ordering::SeqCst);
                connections.spawn(serve(number, stream, Arc::clone(&book)));
            }
        });
        Site {
            url,
            seen,
            _task: task,
        }
    }

    /// Each connection allows so many streams and ends at its first request by a GOAWAY.
    async fn going_away(streams: u32, code: ErrorCode, debug: &'static [u8]) -> Site {
        Self::start(move |_, stream, seen| async move {
            let mut raw = Raw::accept(stream, streams).await;
            if seen.next_request(&mut raw).await.is_some() {
                raw.go_away_with(0, code.0, debug).await;
            }
            while seen.next_request(&mut raw).await.is_some() {}
        })
        .await
    }

    /// Each stream is refused.
    async fn refusing(streams: u32) -> Site {
        Self::start(move |_, stream, seen| async move {
            let mut raw = Raw::accept(stream, streams).await;
            while let Some(stream) = seen.next_request(&mut raw).await {
                raw.refuse(stream).await;
            }
        })
        .await
    }
}

/// The errors of a list of requests that all fail, sent at once.
async fn errors_of_list(client: &Client, url: &str) -> Vec<Error> {
    let mut tasks = JoinSet::new();
    for _ in 0..LIST {
        let (client, url) = (client.clone(), url.to_owned());
        tasks.spawn(async move { client.get(&url).await });
    }
    let answers = in_time(tasks.join_all()).await;
    answers
        .into_iter()
        .map(|answer| answer.expect_err("nothing is answered"))
        .collect()
}

#[tokio::test]
async fn a_list_of_requests_shares_four_connections_at_a_server_that_goes_away() {
    patiently(|short| async move {
        let site = Site::going_away(100, ErrorCode::ENHANCE_YOUR_CALM, b"slow down").await;
        // A pause that ends before the refusal of the last attempt is seen lets another one go.
        let client = Client::builder().repeat_pause(short / 4).build().unwrap();
        let errors = errors_of_list(&client, &site.url).await;
        let (connections, requests) = (site.seen.connections(), site.seen.requests());
        println!("{connections} connections, {requests} requests: {}", errors[0]);
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
            assert_eq!(error.code(), Some(ErrorCode::ENHANCE_YOUR_CALM), "{error}");
            assert!(
                error.to_string().contains("ENHANCE_YOUR_CALM and \"slow down\""),
                "{error}"
            );
        }
        assert_eq!(connections, 4);
        // All of the list may have left before the first was refused, and then one at a time.
        assert!(requests <= LIST + 3, "{requests} requests");
    })
    .await;
}

#[tokio::test]
async fn a_list_of_requests_shares_three_repeats_at_a_server_that_refuses_each_stream() {
    patiently(|short| async move {
        let site = Site::refusing(100).await;
        // A pause that ends before the refusal of the last attempt is seen lets another one go.
        let client = Client::builder().repeat_pause(short / 4).build().unwrap();
        let errors = errors_of_list(&client, &site.url).await;
        let (connections, requests) = (site.seen.connections(), site.seen.requests());
        println!("{connections} connections, {requests} requests: {}", errors[0]);
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
            assert_eq!(error.code(), Some(ErrorCode::REFUSED_STREAM), "{error}");
        }
        assert_eq!(connections, 1);
        assert!(requests <= LIST + 3, "{requests} requests");
    })
    .await;
}

#[tokio::test]
async fn requests_with_bodies_that_cannot_be_repeated_wait_for_the_pause_as_well() {
    let site = Site::refusing(1).await;
    let client = Client::builder()
        .max_repeats(1)
        .repeat_pause(Duration::from_secs(100_000))
        .build()
        .unwrap();
    let post = || {
        let body = Full::new(Bytes::from_static(b"body"));
        client.request(Request::post(&site.url).body(body).unwrap())
    };
    let error = in_time(post()).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::REFUSED_STREAM));
    // The pause is 10 s at most, and 5 at least.
    let second = tokio::time::timeout(Duration::from_millis(200), post()).await;
    assert!(second.is_err(), "it did not wait: {second:?}");
    assert_eq!(site.seen.requests(), 1);
}

#[tokio::test]
async fn debug_data_is_cut_and_reaches_no_terminal_as_it_came() {
    static DEBUG: [u8; 2_000] = [0x1b; 2_000];
    let site = Site::going_away(100, ErrorCode(0xbad), &DEBUG).await;
    let client = Client::builder().max_repeats(0).build().unwrap();
    let error = in_time(client.get(&site.url)).await.unwrap_err();
    let text = error.to_string();
    assert_eq!(error.code(), Some(ErrorCode(0xbad)));
    assert_eq!(text.matches("\\x1b").count(), 256, "{text}");
    assert!(text.chars().all(|symbol| !symbol.is_control()), "{text:?}");
    assert_eq!(site.seen.connections(), 1);
}

#[tokio::test]
async fn a_response_that_a_going_peer_breaks_off_fails_with_its_words() {
    let site = Site::start(|_, stream, _| async move {
        let mut raw = Raw::accept(stream, 100).await;
        let stream = raw.next_request().await.unwrap();
        raw.begin_answer(stream, b"half").await;
        raw.go_away_with(stream, ErrorCode::INTERNAL_ERROR.0, b"out of disk")
            .await;
    })
    .await;
    let client = Client::new();
    let response = in_time(client.get(&site.url)).await.unwrap();
    let error = in_time(response.into_body().collect()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    assert_eq!(error.code(), Some(ErrorCode::INTERNAL_ERROR));
    assert!(error.to_string().contains("out of disk"), "{error}");
}

/// Answers with the body of the request.
async fn echo(request: Request<Incoming>) -> Result<Response<Incoming>, Error> {
    Ok(Response::new(request.into_body()))
}

#[tokio::test]
async fn an_upload_whose_body_can_be_had_again_is_repeated_after_a_goaway_without_error() {
    let site = Site::start(|number, stream, seen| async move {
        if number > 0 {
            let _ = serve_connection(stream, service(echo), Config::default()).await;
            return;
        }
        let mut raw = Raw::accept(stream, 100).await;
        seen.next_request(&mut raw).await;
        raw.go_away(0).await;
        raw.drain().await;
    })
    .await;
    let client = Client::new();
    // Longer than the window of a connection is at first, so that half of it has left when it is refused.
    let content = Bytes::from(vec![b'u'; 200_000]);
    let put = Request::put(&site.url).body(Full::new(content.clone())).unwrap();
    let response = in_time(client.request_repeatable(put)).await.unwrap();
    let echoed = in_time(response.into_body().collect()).await.unwrap();
    assert_eq!(echoed.to_bytes(), content);
    assert_eq!(site.seen.connections(), 2);
}

#[tokio::test]
async fn an_origin_that_answers_again_has_all_of_its_queue_served() {
    let site = Site::start(|_, stream, seen| async move {
        let mut raw = Raw::accept(stream, 100).await;
        while let Some(stream) = seen.next_request(&mut raw).await {
            // Two in a row are refused, and later others now and then.
            match seen.requests() {
                1 | 2 => raw.refuse(stream).await,
                number if number % 7 == 0 => raw.refuse(stream).await,
                _ => raw.answer(stream).await,
            }
        }
    })
    .await;
    let client = Client::builder()
        .repeat_pause(Duration::from_millis(4))
        .build()
        .unwrap();
    let mut tasks = JoinSet::new();
    for _ in 0..200 {
        let (client, url) = (client.clone(), site.url.clone());
        tasks.spawn(async move { client.get(&url).await.map(drop) });
    }
    let answers = in_time(tasks.join_all()).await;
    let failed = answers.iter().filter(|answer| answer.is_err()).count();
    assert_eq!(failed, 0, "{:?}", answers.iter().find(|answer| answer.is_err()));
    assert_eq!(client.stats()[0].waiting, 0);
}

#[tokio::test]
async fn a_server_that_allows_no_stream_is_not_waited_for_for_ever() {
    patiently(|short| async move {
        let site = Site::start(|_, stream, seen| async move {
            let mut raw = Raw::accept(stream, 0).await;
            while seen.next_request(&mut raw).await.is_some() {}
        })
        .await;
        // The second time it is known before the first request leaves.
        let client = Client::builder()
            .stream_wait_timeout(Some(short))
            .response_timeout(Some(short))
            .build()
            .unwrap();
        for _ in 0..2 {
            for error in errors_of_list(&client, &site.url).await {
                assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
            }
            assert_eq!(client.stats()[0].waiting, 0);
        }
    })
    .await;
}

#[tokio::test]
async fn a_server_that_stops_before_the_head_or_in_the_body_is_not_waited_for_for_ever() {
    patiently(|short| async move {
        let site = Site::start(|_, stream, seen| async move {
            let mut raw = Raw::accept(stream, 100).await;
            while let Some(stream) = seen.next_request(&mut raw).await {
                match seen.requests() {
                    1 => {}
                    2 => raw.begin_answer(stream, b"half").await,
                    _ => raw.answer(stream).await,
                }
            }
        })
        .await;
        let client = Client::builder()
            .response_timeout(Some(short))
            .body_timeout(Some(short))
            .build()
            .unwrap();
        let error = in_time(client.get(&site.url)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        let response = in_time(client.get(&site.url)).await.unwrap();
        let error = in_time(response.into_body().collect()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        in_time(client.get(&site.url))
            .await
            .expect("the connection goes on");
        assert_eq!(site.seen.connections(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_peer_that_is_gone_is_noticed() {
    patiently(|short| async move {
        let site = Site::start(|_, stream, _| async move {
            let mut raw = Raw::accept(stream, 100).await;
            let stream = raw.next_request().await.unwrap();
            raw.begin_answer(stream, b"half").await;
            // It reads no more, so that it answers no PING.
            std::future::pending::<()>().await;
        })
        .await;
        let client = Client::builder()
            .config(|config| config.set_keep_alive_timeout(short))
            .keep_alive(KeepAlive::WithStreams(short))
            .build()
            .unwrap();
        let response = in_time(client.get(&site.url)).await.unwrap();
        let error = in_time(response.into_body().collect()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    })
    .await;
}

#[tokio::test]
async fn a_request_that_waits_for_a_stream_when_the_connection_ends_may_be_repeated() {
    let (near, far) = tokio::io::duplex(64 << 10);
    let (sender, connection) = handshake(near, Config::default());
    tokio::spawn(connection);
    let mut raw = crate::support::Peer::server(far, &[(3, 1)]).await;
    // Once its own SETTINGS are acknowledged the client knows the limit.
    in_time(raw.expect(crate::support::frames::SETTINGS)).await;
    in_time(raw.expect(crate::support::frames::SETTINGS)).await;
    let first = tokio::spawn(sender.send(crate::support::get("/")));
    in_time(raw.expect(crate::support::frames::HEADERS)).await;
    let second = tokio::spawn(sender.send(crate::support::get("/")));
    while in_time(sender.report()).await.unwrap().waiting_streams == 0 {
        tokio::task::yield_now().await;
    }
    drop(raw);
    let error = in_time(first).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    let error = in_time(second).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
}
