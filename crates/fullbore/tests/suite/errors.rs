//! What can go wrong, and the kind of error that says so.

use std::sync::Arc;
use std::time::Duration;

use fullbore::client::handshake;
use fullbore::settings::{HttpVersions, Refill};
use fullbore::tls::{Roots, client_config, self_signed, server_config};
use fullbore::{BoxError, Client, ErrorCode, ErrorKind, Incoming, Server};
use http::{HeaderValue, Request, Response, header};
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::{
    Chunks, Peer, config, empty, frames, full, get, pair, pattern, post, service, soon, take,
};

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    (listener, url)
}

#[tokio::test]
async fn a_server_of_http_1_is_not_http2() {
    let client = Client::builder()
        .http_versions(HttpVersions::Http2)
        .build()
        .unwrap();
    let answers = [
        "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1",
        "",
    ];
    for answer in answers {
        let (listener, url) = listen().await;
        let serving = tokio::spawn(async move {
            let (mut io, _) = listener.accept().await.unwrap();
            let mut request = [0; 24];
            io.read_exact(&mut request).await.unwrap();
            io.write_all(answer.as_bytes()).await.unwrap();
        });
        let error = soon(client.get(&url)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotHttp2, "{answer:?}: {error}");
        soon(serving).await.unwrap();
    }
}

#[tokio::test]
async fn a_client_of_http_1_is_told_that_this_is_not_its_protocol() {
    let (near, mut far) = tokio::io::duplex(64 << 10);
    let service = service(|_| async { Ok::<_, BoxError>(Response::new(empty())) });
    let server = tokio::spawn(fullbore::server::serve_connection(near, service, config()));
    far.write_all(b"GET / HTTP/1.1\r\nhost: test.example\r\n\r\n")
        .await
        .unwrap();
    let mut answer = Vec::new();
    soon(far.read_to_end(&mut answer)).await.unwrap();
    assert!(
        answer.windows(8).any(|octets| octets == b"HTTP/1.1"),
        "GOAWAY says why"
    );
    drop(far);
    let error = soon(server).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotHttp2, "{error}");
}

#[tokio::test]
async fn a_closed_port_cannot_be_connected_to() {
    let nobody = fullbore_testing::nobody::Nobody::bind();
    let url = format!("http://{nobody}/");
    let error = soon(Client::new().get(&url)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connect, "{error}");
}

#[tokio::test]
async fn a_name_that_is_none_does_not_resolve() {
    let client = Client::new();
    let error = soon(client.get("http://no-such-host.invalid/"))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Resolve, "{error}");
}

#[tokio::test]
async fn urls_that_are_not_ours_are_invalid() {
    let client = Client::new();
    for url in [
        "",
        "/path",
        "ftp://test.example/",
        "http://",
        "https:///path",
        "ht tp://x",
        "test.example",
    ] {
        let error = soon(client.get(url)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidUrl, "{url:?}: {error}");
    }
}

#[tokio::test]
async fn a_peer_that_never_answers_the_handshake_is_a_timeout() {
    let (_listener, url) = listen().await;
    let client = Client::builder()
        .connect_timeout(Duration::from_millis(50))
        .tls_config(Arc::new(client_config(Roots::InsecureAcceptAny).unwrap()))
        .build()
        .unwrap();
    let error = soon(client.get(url.replace("http:", "https:")))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
}

/// A TLS server whose ALPN is this, and whom it may be trusted by.
async fn tls_server(alpn: &[&[u8]]) -> (String, Vec<u8>) {
    let made = self_signed(&["localhost"]).unwrap();
    let mut tls = server_config(made.cert_pem.as_bytes(), made.key_pem.as_bytes()).unwrap();
    tls.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    let builder = Server::builder().tls_config(Arc::new(tls));
    let server = builder.bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}/", server.local_addr().unwrap().port());
    let service = service(|_| async { Ok::<_, BoxError>(Response::new(full("hello"))) });
    tokio::spawn(server.serve(service));
    (url, made.cert_pem.into_bytes())
}

fn client(roots: Roots) -> Client {
    let tls = Arc::new(client_config(roots).unwrap());
    Client::builder().tls_config(tls).build().unwrap()
}

#[tokio::test]
async fn a_certificate_that_does_not_verify_is_refused() {
    let (url, _) = tls_server(&[b"h2"]).await;
    let other = self_signed(&["localhost"]).unwrap().cert_pem.into_bytes();
    let error = soon(client(Roots::Pem(other)).get(&url)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Certificate, "{error}");
    assert!(error.to_string().contains("localhost"), "{error}");
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused() {
    let (url, pem) = tls_server(&[b"h2"]).await;
    let client = client(Roots::Pem(pem));
    let error = soon(client.get(url.replace("localhost", "127.0.0.1")))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Certificate, "{error}");
    assert_eq!(soon(client.get(&url)).await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_tls_server_without_h2_is_not_http2() {
    for alpn in [&[b"http/1.1".as_slice()][..], &[]] {
        let (url, pem) = tls_server(alpn).await;
        let tls = Arc::new(client_config(Roots::Pem(pem)).unwrap());
        let client = Client::builder()
            .tls_config(tls)
            .http_versions(HttpVersions::Http2);
        let error = soon(client.build().unwrap().get(&url)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotHttp2, "{alpn:?}: {error}");
    }
}

#[tokio::test]
async fn a_cleartext_server_fails_the_tls_handshake() {
    let (listener, url) = listen().await;
    tokio::spawn(async move {
        let (mut io, _) = listener.accept().await.unwrap();
        io.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        io.read_to_end(&mut Vec::new()).await.ok();
    });
    let url = url.replace("http:", "https:");
    let error = soon(client(Roots::InsecureAcceptAny).get(&url))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Tls, "{error}");
}

#[test]
fn texts_that_are_no_certificates_are_refused() {
    for roots in [Roots::Pem(Vec::new()), Roots::Pem(b"no PEM".to_vec())] {
        assert_eq!(client_config(roots).unwrap_err().kind(), ErrorKind::Config);
    }
    let made = self_signed(&["localhost"]).unwrap();
    let other = self_signed(&["localhost"]).unwrap();
    for (certificate, key) in [
        ("", made.key_pem.as_str()),
        (made.cert_pem.as_str(), ""),
        (made.cert_pem.as_str(), other.key_pem.as_str()),
    ] {
        let error = server_config(certificate.as_bytes(), key.as_bytes()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    }
}

/// A client, and a raw server that has read the request on stream 1.
async fn requested() -> (
    tokio::task::JoinHandle<Result<Response<Incoming>, fullbore::Error>>,
    Peer<tokio::io::DuplexStream>,
    tokio::task::JoinHandle<Result<(), fullbore::Error>>,
) {
    let (near, far) = tokio::io::duplex(64 << 10);
    let (client, connection) = handshake(near, config());
    let connection = tokio::spawn(connection);
    let mut raw = soon(Peer::server(far, &[])).await;
    let response = tokio::spawn(client.send(get("/")));
    assert_eq!(soon(raw.expect(frames::HEADERS)).await.stream, 1);
    (response, raw, connection)
}

#[tokio::test]
async fn a_peer_that_closes_before_the_response_has_closed() {
    let (response, raw, connection) = requested().await;
    drop(raw);
    assert_eq!(
        soon(response).await.unwrap().unwrap_err().kind(),
        ErrorKind::Closed
    );
    assert_eq!(
        soon(connection).await.unwrap().unwrap_err().kind(),
        ErrorKind::Closed
    );
}

#[tokio::test]
async fn a_peer_that_closes_mid_body_leaves_what_it_sent_and_an_error() {
    let (response, mut raw, _connection) = requested().await;
    raw.respond(1, false, &[]).await;
    raw.send(frames::DATA, 0, 1, &pattern(0, 10_000)).await;
    drop(raw);
    let mut body = soon(response).await.unwrap().unwrap().into_body();
    let mut seen = 0;
    let error = loop {
        match soon(body.frame()).await.expect("it is not whole") {
            Ok(frame) => seen += frame.into_data().unwrap().len(),
            Err(error) => break error,
        }
    };
    assert_eq!((seen, error.kind()), (10_000, ErrorKind::Closed), "{error}");
}

#[tokio::test]
async fn a_response_that_came_whole_before_the_peer_closed_is_good() {
    let (response, mut raw, connection) = requested().await;
    raw.respond(1, false, &[]).await;
    raw.send(frames::DATA, 1, 1, &pattern(0, 10_000)).await;
    drop(raw);
    let response = soon(response).await.unwrap().unwrap();
    assert_eq!(soon(take(response.into_body())).await.unwrap().bytes, 10_000);
    soon(connection).await.unwrap().unwrap();
}

#[tokio::test]
async fn an_answer_is_read_although_the_peer_closed_and_the_upload_cannot_go_on() {
    let (near, far) = tokio::io::duplex(64 << 10);
    let (client, connection) = handshake(near, config());
    tokio::spawn(connection);
    let mut raw = soon(Peer::server(far, &[])).await;
    let response = tokio::spawn(client.send(post("/", Chunks::new(10_000_000, 10_000))));
    soon(raw.expect(frames::DATA)).await;
    raw.respond(1, false, &[]).await;
    // More than one read brings.
    for (at, end) in [(0, false), (15_000, false), (30_000, false), (45_000, true)] {
        raw.send(frames::DATA, u8::from(end), 1, &pattern(at, 15_000))
            .await;
    }
    drop(raw);
    let response = soon(response).await.unwrap().expect("the response came");
    assert_eq!(
        soon(take(response.into_body()))
            .await
            .expect("it was whole")
            .bytes,
        60_000
    );
}

#[tokio::test]
async fn a_body_that_is_not_as_long_as_it_said_is_an_error() {
    for (octets, first_end) in [(9, true), (11, false)] {
        let (response, mut raw, _connection) = requested().await;
        raw.respond(1, false, &[("content-length", "10")]).await;
        let response = soon(response).await.unwrap().unwrap();
        raw.send(frames::DATA, u8::from(first_end), 1, &pattern(0, octets))
            .await;
        let error = soon(take(response.into_body())).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BodyLength, "{error}");
        let reset = soon(raw.expect(frames::RST_STREAM)).await;
        assert_eq!((reset.stream, reset.code()), (1, ErrorCode::PROTOCOL_ERROR.0));
    }
}

#[tokio::test]
async fn a_request_body_that_is_not_as_long_as_it_said_is_an_error() {
    for (octets, end) in [(9, true), (11, false)] {
        let (near, far) = tokio::io::duplex(64 << 10);
        let (seen, errors) = std::sync::mpsc::channel();
        let service = service(move |request: Request<Incoming>| {
            let seen = seen.clone();
            async move {
                let error = take(request.into_body()).await.expect_err("the length is wrong");
                seen.send(error.kind()).ok();
                Err::<Response<Chunks>, BoxError>(error.into())
            }
        });
        tokio::spawn(fullbore::server::serve_connection(near, service, config()));
        let mut raw = soon(Peer::client(far, &[])).await;
        raw.request(1, false, &[("content-length", "10")]).await;
        raw.send(frames::DATA, u8::from(end), 1, &pattern(0, octets))
            .await;
        let reset = soon(raw.expect(frames::RST_STREAM)).await;
        assert_eq!((reset.stream, reset.code()), (1, ErrorCode::PROTOCOL_ERROR.0));
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        assert_eq!(errors.try_recv(), Ok(ErrorKind::BodyLength));
    }
}

/// Of so many, some fail while the driver looks at what they have left: it must not tell of the reset instead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_body_that_fails_is_the_error_whenever_the_driver_sees_it() {
    let server = Server::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", server.local_addr().unwrap());
    let service = service(|request: Request<Incoming>| async {
        let _ = request.into_body().collect().await;
        Ok::<_, BoxError>(Response::new(empty()))
    });
    let serving = tokio::spawn(server.serve(service));
    let client = Client::new();
    for round in 0..2_000_u64 {
        let body = Chunks::new(1 << (round % 18), 1 << 10).failing();
        let request = Request::put(&url).body(body).unwrap();
        let error = soon(client.request(request)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Body, "round {round}: {error}");
    }
    serving.abort();
}

#[tokio::test]
async fn a_reset_says_its_code() {
    for code in [
        ErrorCode::INTERNAL_ERROR,
        ErrorCode::ENHANCE_YOUR_CALM,
        ErrorCode(0xbeef),
    ] {
        let (response, mut raw, _connection) = requested().await;
        raw.send(frames::RST_STREAM, 0, 1, &code.0.to_be_bytes()).await;
        let error = soon(response).await.unwrap().unwrap_err();
        assert_eq!(
            (error.kind(), error.code()),
            (ErrorKind::Reset, Some(code)),
            "{error}"
        );
    }
    let (response, mut raw, _connection) = requested().await;
    raw.send(
        frames::RST_STREAM,
        0,
        1,
        &ErrorCode::REFUSED_STREAM.0.to_be_bytes(),
    )
    .await;
    let error = soon(response).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "it may be repeated: {error}");
}

#[tokio::test]
async fn a_goaway_fails_what_it_leaves_out_and_nothing_else() {
    let (near, far) = tokio::io::duplex(64 << 10);
    let (client, connection) = handshake(near, config());
    tokio::spawn(connection);
    let mut raw = soon(Peer::server(far, &[])).await;
    let first = tokio::spawn(client.send(get("/1")));
    soon(raw.expect(frames::HEADERS)).await;
    let second = tokio::spawn(client.send(get("/2")));
    soon(raw.expect(frames::HEADERS)).await;
    raw.send(frames::GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]).await;
    let error = soon(second).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    let error = soon(client.send(get("/3"))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(!client.is_open());
    raw.respond(1, true, &[]).await;
    assert_eq!(soon(first).await.unwrap().unwrap().status(), 200);
}

#[tokio::test]
async fn a_peer_that_breaks_the_protocol_is_told_and_every_stream_fails() {
    let (response, mut raw, connection) = requested().await;
    raw.send(frames::WINDOW_UPDATE, 0, 0, &[0; 4]).await;
    let goaway = soon(raw.expect(frames::GOAWAY)).await;
    assert_eq!(goaway.code(), ErrorCode::PROTOCOL_ERROR.0);
    for error in [
        soon(response).await.unwrap().err(),
        soon(connection).await.unwrap().err(),
    ] {
        let error = error.expect("an error");
        assert_eq!(
            (error.kind(), error.code()),
            (ErrorKind::Protocol, Some(ErrorCode::PROTOCOL_ERROR))
        );
    }
}

#[tokio::test]
async fn a_message_that_http2_forbids_is_not_sent() {
    let pair = pair(config(), config(), |_| async { Ok(Response::new(full("hello"))) });
    let mut request = get("/");
    request
        .headers_mut()
        .insert(header::CONTENT_LENGTH, "one".parse().unwrap());
    let error = soon(pair.client.send(request)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidMessage, "{error}");
    assert_eq!(soon(pair.client.send(get("/"))).await.unwrap().status(), 200);
    pair.end().await;
}

#[tokio::test]
async fn a_request_that_waits_as_the_peer_lowers_its_limit_is_checked_again() {
    let (near, far) = tokio::io::duplex(64 << 10);
    let (sender, connection) = handshake(near, config());
    let connection = tokio::spawn(connection);
    // SETTINGS_MAX_CONCURRENT_STREAMS.
    let mut raw = soon(Peer::server(far, &[(3, 1)])).await;
    let send = |path, field: String| {
        let mut request = get(path);
        let value = HeaderValue::from_str(&field).unwrap();
        request.headers_mut().insert("x-field", value);
        tokio::spawn(sender.clone().send(request))
    };
    let first = send("/1", String::new());
    soon(raw.expect(frames::HEADERS)).await;
    let large = send("/2", "x".repeat(1_000));
    let small = send("/3", String::new());
    tokio::task::yield_now().await;
    // SETTINGS_MAX_HEADER_LIST_SIZE.
    raw.write(&frames::settings(&[(6, 400)])).await;
    raw.respond(1, true, &[]).await;
    assert_eq!(soon(first).await.unwrap().unwrap().status(), 200);
    let error = soon(large).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidMessage, "{error}");
    let opened = soon(raw.expect(frames::HEADERS)).await;
    raw.respond(opened.stream, true, &[]).await;
    assert_eq!(soon(small).await.unwrap().unwrap().status(), 200);
    connection.abort();
}

#[tokio::test]
async fn a_head_much_larger_than_the_peer_accepts_costs_no_connection() {
    let long = || HeaderValue::from_str(&"x".repeat(300 << 10)).unwrap();
    let answer = move |request: Request<Incoming>| async move {
        let mut response = Response::new(full("hello"));
        if request.uri().path() == "/long" {
            response.headers_mut().insert("x-long", long());
        }
        Ok(response)
    };
    let pair = pair(config(), config(), answer);
    assert_eq!(soon(pair.client.send(get("/"))).await.unwrap().status(), 200);
    let mut request = get("/");
    request.headers_mut().insert("x-long", long());
    let error = soon(pair.client.send(request)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidMessage, "{error}");
    let error = soon(pair.client.send(get("/long"))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Reset, "{error}");
    assert_eq!(soon(pair.client.send(get("/"))).await.unwrap().status(), 200);
    pair.end().await;
}

#[tokio::test]
async fn windows_out_of_range_are_refused() {
    let refill = Refill::default();
    for builder in [
        Client::builder().stream_window(0),
        Client::builder().stream_window(1 << 31),
        Client::builder().connection_window(65_534),
        Client::builder().connection_window(u32::MAX),
        Client::builder().stream_window(0).stream_window(1),
    ] {
        let error = builder.refill(refill, refill).build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    }
    Client::builder()
        .stream_window(1)
        .connection_window(65_535)
        .build()
        .unwrap();
    let most = (1 << 31) - 1;
    Client::builder()
        .stream_window(most)
        .connection_window(most)
        .build()
        .unwrap();
    let server = Server::builder().connection_window(1);
    let error = server.bind("127.0.0.1:0").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
}

#[tokio::test]
async fn settings_out_of_range_are_errors_and_not_clamped() {
    for builder in [
        Client::builder().max_connections(0),
        Client::builder().pool_idle_timeout(Duration::ZERO),
        Client::builder().config(|config| config.set_max_frame_size(16_383)),
        Client::builder().config(|config| config.set_max_frame_size(1 << 24)),
        Client::builder().config(|config| {
            config.set_connection_window(fullbore::settings::WindowSize::new(65_534).unwrap())
        }),
    ] {
        let error = builder.build().unwrap_err();
        assert!(error.is_usage() && error.kind() == ErrorKind::Config, "{error}");
    }
    for builder in [
        Server::builder().max_connections(0),
        Server::builder()
            .max_connections(1)
            .connection_limits(fullbore::server::ConnectionLimits::default()),
    ] {
        let error = builder.bind("127.0.0.1:0").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    }
}

#[tokio::test]
async fn an_address_in_use_cannot_be_bound_and_says_the_error_of_the_system() {
    let server = Server::bind("127.0.0.1:0").await.unwrap();
    let address = server.local_addr().unwrap();
    let error = Server::bind(address).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Bind);
    assert_eq!(
        error.to_string(),
        format!("cannot listen on the address: {address}")
    );
    let source = std::error::Error::source(&error).and_then(|source| source.downcast_ref::<std::io::Error>());
    assert_eq!(
        source.map(std::io::Error::kind),
        Some(std::io::ErrorKind::AddrInUse)
    );
}
