//! Requests and responses as they are meant to be, over a pipe and over TCP.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use fullbore::client::handshake;
use fullbore::server::{PeerAddr, serve_connection, serve_connection_local};
use fullbore::{BoxError, Client, ErrorKind, Incoming, Server};
use http::{HeaderMap, Method, Request, Response, StatusCode, Version, header};
use http_body::{Body, Frame};
use http_body_util::channel::Channel;
use http_body_util::{BodyExt, StreamBody};

use crate::support::{
    Chunks, Pair, Peer, Reply, config, empty, frames, full, get, pair, pair_over, pattern, post, refused,
    service, soon, take,
};

async fn answer(request: Request<Incoming>) -> Result<Reply, BoxError> {
    let response = Response::builder();
    Ok(match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/hello") => response.body(full("hello"))?,
        (_, "/pattern") => Response::new(Chunks::new(700_000, 9_999).boxed_unsync()),
        (_, "/sized") => Response::new(Chunks::new(700_000, 9_999).sized().boxed_unsync()),
        (_, "/empty") => Response::new(empty()),
        (_, "/void") => response.status(StatusCode::NO_CONTENT).body(full("never sent"))?,
        (_, "/same") => response
            .status(StatusCode::NOT_MODIFIED)
            .body(full("never sent"))?,
        (_, "/unchanged") => response
            .status(StatusCode::NOT_MODIFIED)
            .header(header::CONTENT_LENGTH, 12)
            .body(empty())?,
        (_, "/trailers") => {
            let body = Chunks::new(50_000, 5_000).with_trailer("x-sum", "42");
            Response::new(body.boxed_unsync())
        }
        (_, "/only-trailers") => {
            let body = Chunks::new(0, 1).with_trailer("x-sum", "0");
            Response::new(body.boxed_unsync())
        }
        (_, "/echo") => {
            let length = request.headers().get(header::CONTENT_LENGTH).cloned();
            let mut response = Response::new(request.into_body().map_err(BoxError::from).boxed_unsync());
            if let Some(length) = length {
                response.headers_mut().insert("x-length", length);
            }
            response
        }
        (_, "/headers") => {
            let mut response = Response::new(empty());
            for (name, value) in request.headers() {
                if name.as_str().starts_with("x-") {
                    response.headers_mut().append(name, value.clone());
                }
            }
            response
        }
        _ => return refused(),
    })
}

fn simple_pair() -> Pair {
    pair(config(), config(), answer)
}

/// The response's head and its body as octets.
async fn fetch<B>(pair: &Pair, request: Request<B>) -> (http::response::Parts, Bytes, Option<HeaderMap>)
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let response = soon(pair.client.send(request)).await.expect("a response");
    let (head, body) = response.into_parts();
    let body = soon(body.collect()).await.expect("a body");
    let trailers = body.trailers().cloned();
    (head, body.to_bytes(), trailers)
}

/// Gateways pass messages of HTTP/1.1 on.
#[tokio::test]
async fn fields_that_speak_of_one_connection_are_left_out() {
    const FIELDS: [(&str, &str); 6] = [
        ("connection", "keep-alive, x-end"),
        ("keep-alive", "timeout=5"),
        ("transfer-encoding", "chunked"),
        ("te", "gzip"),
        ("upgrade", "h2c"),
        ("x-end", "2"),
    ];
    let answer = |request: Request<Incoming>| async move {
        let names: Vec<&str> = request.headers().keys().map(|name| name.as_str()).collect();
        let mut response = Response::builder().header("x-names", names.join(" "));
        for (name, value) in FIELDS {
            response = response.header(name, value);
        }
        Ok(response.body(full("hello"))?)
    };
    let pair = pair(config(), config(), answer);
    let mut request = get("/");
    for (name, value) in FIELDS {
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    let response = soon(pair.client.send(request)).await.unwrap();
    assert_eq!(response.headers()["x-names"], "x-end");
    let mut upgrade = get("/");
    for (name, value) in [("connection", "upgrade"), ("upgrade", "websocket")] {
        upgrade.headers_mut().insert(name, value.parse().unwrap());
    }
    let error = soon(pair.client.send(upgrade)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidMessage, "{error}");
    let mut names: Vec<&str> = response.headers().keys().map(|name| name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["content-length", "date", "x-end", "x-names"]);
    let body = soon(response.into_body().collect()).await.unwrap();
    assert_eq!(body.to_bytes(), "hello");
    pair.end().await;
}

#[tokio::test]
async fn a_get_is_answered_with_length_and_date() {
    let pair = simple_pair();
    let (head, body, trailers) = fetch(&pair, get("/hello")).await;
    assert_eq!((head.status, head.version), (StatusCode::OK, Version::HTTP_2));
    assert_eq!(head.headers[header::CONTENT_LENGTH], "5");
    assert!(head.headers[header::DATE].to_str().unwrap().ends_with(" GMT"));
    assert_eq!((body.as_ref(), trailers), (b"hello".as_slice(), None));
    pair.end().await;
}

#[tokio::test]
async fn a_body_of_unknown_length_has_no_content_length_and_one_of_known_length_has() {
    let pair = simple_pair();
    for (path, length) in [("/pattern", None), ("/sized", Some("700000"))] {
        let response = soon(pair.client.send(get(path))).await.unwrap();
        let declared = response.headers().get(header::CONTENT_LENGTH);
        assert_eq!(declared.map(|value| value.to_str().unwrap()), length);
        assert_eq!(
            response.body().size_hint().exact(),
            length.map(|text| text.parse().unwrap())
        );
        assert_eq!(soon(take(response.into_body())).await.unwrap().bytes, 700_000);
    }
    pair.end().await;
}

#[tokio::test]
async fn head_gives_the_head_of_get_and_no_body() {
    let pair = simple_pair();
    let mut request = get("/hello");
    *request.method_mut() = Method::HEAD;
    let response = soon(pair.client.send(request)).await.unwrap();
    assert_eq!(response.headers()[header::CONTENT_LENGTH], "5");
    assert!(response.body().is_end_stream());
    assert_eq!(soon(response.into_body().collect()).await.unwrap().to_bytes(), "");
    pair.end().await;
}

#[tokio::test]
async fn statuses_without_a_body_have_none() {
    let pair = simple_pair();
    for (path, status) in [
        ("/void", StatusCode::NO_CONTENT),
        ("/same", StatusCode::NOT_MODIFIED),
    ] {
        for method in [Method::GET, Method::HEAD] {
            let mut request = get(path);
            *request.method_mut() = method;
            let (head, body, _) = fetch(&pair, request).await;
            assert_eq!((head.status, body.len()), (status, 0));
            assert_eq!(head.headers.get(header::CONTENT_LENGTH), None);
        }
    }
    let (head, body) = soon(pair.client.send(get("/unchanged")))
        .await
        .unwrap()
        .into_parts();
    assert_eq!(head.headers[header::CONTENT_LENGTH], "12");
    assert_eq!(body.size_hint().exact(), Some(0));
    drop(body);
    let (head, body, _) = fetch(&pair, get("/empty")).await;
    assert_eq!((head.status, body.len()), (StatusCode::OK, 0));
    assert_eq!(head.headers[header::CONTENT_LENGTH], "0");
    pair.end().await;
}

#[tokio::test]
async fn empty_bodies_come_back_empty() {
    let pair = simple_pair();
    let (head, body, _) = fetch(&pair, post("/echo", empty())).await;
    assert_eq!(
        (&head.headers["x-length"], body.len()),
        (&"0".parse().unwrap(), 0)
    );
    let (head, body, _) = fetch(&pair, post("/echo", Chunks::new(0, 1))).await;
    assert_eq!((head.headers.get("x-length"), body.len()), (None, 0));
    pair.end().await;
}

#[tokio::test]
async fn a_body_streams_both_ways_at_once() {
    let pair = simple_pair();
    let (mut sender, body) = Channel::<Bytes, BoxError>::new(1);
    let response = soon(pair.client.send(post("/echo", body))).await.unwrap();
    let mut body = response.into_body();
    for round in 0..100u64 {
        // The next chunk leaves only when the one before it has come back.
        let chunk = pattern(round * 1_000, 1_000);
        soon(sender.send_data(chunk.clone())).await.unwrap();
        let mut back = Vec::new();
        while back.len() < chunk.len() {
            back.extend_from_slice(&soon(body.frame()).await.unwrap().unwrap().into_data().unwrap());
        }
        assert_eq!(back, chunk);
    }
    drop(sender);
    assert!(soon(body.frame()).await.is_none());
    drop(body);
    pair.end().await;
}

#[tokio::test]
async fn trailers_travel_both_ways() {
    let pair = simple_pair();
    for path in ["/trailers", "/only-trailers"] {
        let response = soon(pair.client.send(get(path))).await.unwrap();
        let taken = soon(take(response.into_body())).await.unwrap();
        assert!(
            taken
                .trailers
                .is_some_and(|trailers| trailers.contains_key("x-sum")),
            "{path}"
        );
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("x-end", "reached".parse().unwrap());
    let frames = [
        Frame::data(Bytes::from_static(b"some ")),
        Frame::data(Bytes::new()),
        Frame::data(Bytes::from_static(b"data")),
        Frame::trailers(trailers.clone()),
    ];
    let frames = frames.map(Ok::<_, Infallible>);
    let body = StreamBody::new(futures_util::stream::iter(frames));
    let (_, body, back) = fetch(&pair, post("/echo", body)).await;
    assert_eq!((body, back), (Bytes::from_static(b"some data"), Some(trailers)));
    pair.end().await;
}

#[tokio::test]
async fn large_header_fields_arrive_whole() {
    let pair = simple_pair();
    let mut request = get("/headers");
    for (name, length) in [("x-a", 1), ("x-b", 20_000), ("x-c", 30_000), ("x-d", 127)] {
        request
            .headers_mut()
            .insert(name, "~".repeat(length).parse().unwrap());
    }
    let sent = request.headers().clone();
    let (head, _, _) = fetch(&pair, request).await;
    for (name, value) in &sent {
        assert_eq!(head.headers.get(name), Some(value), "{name}");
    }
    pair.end().await;
}

#[tokio::test]
async fn more_header_fields_than_are_allowed_are_answered_with_431() {
    let pair = simple_pair();
    let mut request = get("/headers");
    request
        .headers_mut()
        .insert("x-large", "~".repeat(70_000).parse().unwrap());
    let (head, _, _) = fetch(&pair, request).await;
    assert_eq!(head.status, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    assert_eq!(fetch(&pair, get("/hello")).await.1, "hello");
    pair.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_requests_of_eight_tasks_share_one_connection() {
    many_requests(&simple_pair()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_over_the_servers_limit_wait_their_turn() {
    for limit in [1, 7, 100] {
        let mut server = config();
        server.set_max_concurrent_streams(limit);
        let pair = pair(config(), server, answer);
        // Before the server has said what it allows, a client dares 100 (RFC 9113 section 6.5.2).
        fetch(&pair, get("/hello")).await;
        many_requests(&pair).await;
    }
}

async fn many_requests(pair: &Pair) {
    let tasks: Vec<_> = (0..8u64)
        .map(|task| {
            let client = pair.client.clone();
            tokio::spawn(async move {
                let responses: Vec<_> = (0..125u64)
                    .map(|index| {
                        let total = task * 1_000 + index * 7;
                        (total, client.send(post("/echo", Chunks::new(total, 500))))
                    })
                    .collect();
                for (total, response) in responses {
                    let response = soon(response).await.expect("a response");
                    assert_eq!(
                        soon(take(response.into_body())).await.expect("a body").bytes,
                        total
                    );
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_after_the_other_never_passes_a_limit_of_one() {
    let mut server = config();
    server.set_max_concurrent_streams(1);
    let pair = pair(config(), server, answer);
    for round in 0..3_000u64 {
        let body = Chunks::new(round % 50, 10);
        let response = soon(pair.client.send(post("/echo", body)))
            .await
            .expect("a response");
        assert_eq!(
            soon(take(response.into_body())).await.expect("a body").bytes,
            round % 50
        );
    }
    pair.end().await;
}

#[tokio::test]
async fn a_tunnel_carries_octets_both_ways() {
    let pair = pair(config(), config(), |request| async {
        assert_eq!(request.method(), Method::CONNECT);
        assert_eq!(request.uri().authority().unwrap(), "db.example:5432");
        let body = request.into_body().map_err(BoxError::from).boxed_unsync();
        Ok(Response::new(body))
    });
    let (mut sender, body) = Channel::<Bytes, BoxError>::new(1);
    let request = Request::connect("db.example:5432").body(body).unwrap();
    let response = soon(pair.client.send(request)).await.unwrap();
    assert_eq!(response.headers().get(header::CONTENT_LENGTH), None);
    let mut tunnel = response.into_body();
    for word in ["first", "second", "third"] {
        soon(sender.send_data(Bytes::from(word))).await.unwrap();
        assert_eq!(
            soon(tunnel.frame()).await.unwrap().unwrap().into_data().unwrap(),
            word
        );
    }
    drop(sender);
    assert!(soon(tunnel.frame()).await.is_none());
    drop(tunnel);
    pair.end().await;
}

#[tokio::test]
async fn a_tunnel_that_is_refused_has_an_ordinary_response() {
    let pair = pair(config(), config(), |_| refused_with("not here"));
    let request = Request::connect("db.example:5432").body(empty()).unwrap();
    let (head, body, _) = fetch(&pair, request).await;
    assert_eq!(
        (head.status, body.as_ref()),
        (StatusCode::FORBIDDEN, b"not here".as_slice())
    );
    assert_eq!(head.headers[header::CONTENT_LENGTH], "8");
    pair.end().await;
}

async fn refused_with(text: &'static str) -> Result<Reply, BoxError> {
    Ok(Response::builder()
        .status(StatusCode::FORBIDDEN)
        .body(full(text))?)
}

/// The first octets of a header block that begins with a status, literal or of the static table.
fn is_status(block: &[u8], status: &str) -> bool {
    match status {
        "200" => block.first() == Some(&0x88),
        _ => block.windows(3).any(|octets| octets == status.as_bytes()) || !block.starts_with(&[0x88]),
    }
}

#[tokio::test]
async fn a_client_that_expects_100_continue_is_told_when_the_body_is_wanted() {
    let (near, far) = tokio::io::duplex(64 << 10);
    tokio::spawn(fullbore::server::serve_connection(
        near,
        service(answer),
        config(),
    ));
    let mut raw = soon(Peer::client(far, &[])).await;
    raw.request(1, false, &[("expect", "100-continue")]).await;
    // The path is `/`: nobody reads the body, and nothing but the final head comes.
    let head = soon(raw.expect(frames::HEADERS)).await;
    assert_eq!(head.stream, 1);
    let block = b"\x83\x86\x04\x05/echo\x01\x04test\x00\x06expect\x0c100-continue";
    raw.send(frames::HEADERS, 4, 3, block).await;
    let heads = [
        soon(raw.expect(frames::HEADERS)).await,
        soon(raw.expect(frames::HEADERS)).await,
    ];
    assert!(
        !is_status(&heads[0].payload, "200") || !is_status(&heads[1].payload, "200"),
        "{heads:?}"
    );
    assert!(heads.iter().all(|head| head.stream == 3 && !head.ends_stream()));
    raw.send(frames::DATA, 1, 3, b"at last").await;
    let data = soon(raw.expect(frames::DATA)).await;
    assert_eq!((data.stream, data.payload.as_ref()), (3, b"at last".as_slice()));
}

#[tokio::test]
async fn a_client_passes_over_informational_responses() {
    let (near, far) = tokio::io::duplex(64 << 10);
    let (client, connection) = handshake(near, config());
    tokio::spawn(connection);
    let mut raw = soon(Peer::server(far, &[])).await;
    let response = tokio::spawn(client.send(get("/")));
    let stream = soon(raw.expect(frames::HEADERS)).await.stream;
    for status in [b"103", b"100"] {
        raw.send(
            frames::HEADERS,
            4,
            stream,
            &[b"\x08\x03".as_slice(), status].concat(),
        )
        .await;
    }
    raw.respond(stream, true, &[("x-final", "yes")]).await;
    let response = soon(response).await.unwrap().unwrap();
    assert_eq!(
        (response.status(), &response.headers()["x-final"]),
        (StatusCode::OK, &"yes".parse().unwrap())
    );
}

#[tokio::test]
async fn exchanges_are_the_same_over_tcp() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (near, far) = tokio::join!(tokio::net::TcpStream::connect(address), listener.accept());
    let pair = pair_over((near.unwrap(), config()), (far.unwrap().0, config()), answer);
    let (_, body, _) = fetch(&pair, get("/hello")).await;
    assert_eq!(body, "hello");
    for total in [0, 1, 65_535, 65_536, 3_000_000] {
        let response = soon(pair.client.send(post("/echo", Chunks::new(total, 100_000))))
            .await
            .unwrap();
        assert_eq!(soon(take(response.into_body())).await.unwrap().bytes, total);
    }
    pair.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooled_client_makes_one_connection_for_a_crowd() {
    let builder = Server::builder().peer_addresses(true);
    let server = builder.bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", server.local_addr().unwrap());
    let serving = tokio::spawn(server.serve(service(|request: Request<Incoming>| {
        let handed_over_by = PeerAddr::current();
        async move {
            let peer = request.extensions().get::<PeerAddr>().copied();
            if handed_over_by != peer || PeerAddr::current().is_some() {
                return Err("the peer is known while its request is handed over, and then no more".into());
            }
            let port = peer.ok_or("no address")?.0.port();
            Ok::<_, BoxError>(Response::new(full(port.to_string())))
        }
    })));
    let client = Client::new();
    let tasks: Vec<_> = (0..50)
        .map(|_| {
            let (client, url) = (client.clone(), url.clone());
            tokio::spawn(async move { client.get(&url).await?.into_body().collect().await })
        })
        .collect();
    let mut ports = std::collections::HashSet::new();
    for task in tasks {
        ports.insert(soon(task).await.unwrap().unwrap().to_bytes());
    }
    assert_eq!(ports.len(), 1, "{ports:?}");
    serving.abort();
}

/// A service that has to be asked twice whether it is ready, each clone of it.
#[derive(Clone, Default)]
struct Hesitant {
    asked: usize,
}

impl tower::Service<Request<Incoming>> for Hesitant {
    type Response = Reply;
    type Error = BoxError;
    type Future = std::future::Ready<Result<Reply, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.asked += 1;
        if self.asked < 2 {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Incoming>) -> Self::Future {
        std::future::ready(match self.asked {
            2 => Ok(Response::new(full("ready"))),
            _ => refused(),
        })
    }
}

#[tokio::test]
async fn a_service_is_called_only_when_it_is_ready() {
    for local in [false, true] {
        let (near, far) = tokio::io::duplex(64 << 10);
        let (sender, client) = handshake(near, config());
        let ask = async move {
            for _ in 0..3 {
                let response = soon(sender.send(get("/"))).await.unwrap();
                assert_eq!(response.status(), StatusCode::OK, "local: {local}");
                let body = soon(response.into_body().collect()).await.unwrap();
                assert_eq!(body.to_bytes(), "ready");
            }
        };
        let serve = async {
            match local {
                false => serve_connection(far, Hesitant::default(), config()).await,
                true => serve_connection_local(far, Hesitant::default(), config()).await,
            }
        };
        let ((), client, server) = tokio::join!(ask, client, serve);
        client.and(server).unwrap();
    }
}

#[tokio::test]
async fn informational_responses_reach_the_callback_of_their_request() {
    let (near, far) = tokio::io::duplex(64 << 10);
    let (client, connection) = handshake(near, config());
    tokio::spawn(connection);
    let mut raw = soon(Peer::server(far, &[])).await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut request = get("/");
    fullbore::client::on_informational(&mut request, {
        let seen = Arc::clone(&seen);
        move |response| {
            seen.lock().unwrap().push(response.status().as_u16());
            panic!("a panic of the callback ends in the callback");
        }
    });
    let first = tokio::spawn(client.send(request));
    soon(raw.expect(frames::HEADERS)).await;
    let second = tokio::spawn(client.send(get("/")));
    soon(raw.expect(frames::HEADERS)).await;
    // :status 100 and 103, as literals with an indexed name.
    for (stream, head) in [(1, b"\x08\x03100"), (3, b"\x08\x03103"), (1, b"\x08\x03103")] {
        raw.send(frames::HEADERS, 4, stream, head).await;
    }
    raw.respond(1, true, &[]).await;
    raw.respond(3, true, &[]).await;
    for response in [first, second] {
        assert_eq!(soon(response).await.unwrap().unwrap().status(), 200);
    }
    assert_eq!(*seen.lock().unwrap(), [100, 103]);
}
