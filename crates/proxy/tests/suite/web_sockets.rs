//! WebSockets over both versions, each on to either, and other upgrades of HTTP/1.1.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::extract::ws::{WebSocket, WebSocketUpgrade};
use axum::routing::any;
use bytes::Bytes;
use fullbore::ext::Protocol;
use fullbore::server::WebSockets;
use fullbore::{BoxError, Server};
use fullbore_proxy::Proxy;
use futures_util::{SinkExt, StreamExt};
use http::{Method, Request};
use http_body_util::BodyExt;
use http_body_util::channel::Channel;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::instances::absent;
use crate::support::{Front, Site, VERSIONS, boxed, client, get, head, raw_origin, soon, urls};

/// An application that echoes over WebSockets of both versions.
pub(crate) async fn echo() -> Site {
    async fn serve(mut socket: WebSocket) {
        while let Some(Ok(message)) = socket.recv().await {
            if socket.send(message).await.is_err() {
                break;
            }
        }
    }
    let socket = any(|upgrade: WebSocketUpgrade| async { upgrade.protocols(["chat"]).on_upgrade(serve) });
    let application = Router::new().route("/socket", socket);
    let builder = Server::builder().config(|config| config.set_enable_connect_protocol(true));
    let server = builder.bind("127.0.0.1:0").await.unwrap();
    let address = server.local_addr().unwrap();
    let serving = tokio::spawn(server.serve(WebSockets::new(application)));
    Site::of(address, serving.abort_handle())
}

#[tokio::test]
async fn a_web_socket_of_http_1_reaches_origins_of_both_versions() {
    let site = echo().await;
    for url in urls(&site) {
        let front = Front::to(&url).await;
        let stream = TcpStream::connect(front.site.address).await.unwrap();
        let request = Request::get(format!("ws://{}/socket", front.site.address))
            .header("host", "h")
            .header("connection", "keep-alive, Upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
            .header("sec-websocket-protocol", "chat")
            .body(())
            .unwrap();
        let (mut socket, response) = soon(tokio_tungstenite::client_async(request, stream))
            .await
            .unwrap();
        assert_eq!(response.status(), 101);
        assert_eq!(response.headers()["sec-websocket-protocol"], "chat", "{url}");
        for text in ["one".to_owned(), "x".repeat(200_000)] {
            socket.send(Message::text(text.clone())).await.unwrap();
            let message = soon(socket.next()).await.unwrap().unwrap();
            assert_eq!(message.into_text().unwrap().as_str(), text, "{url}");
        }
        socket.close(None).await.unwrap();
        while let Some(Ok(_)) = soon(socket.next()).await {}
        drop(socket);
        soon(async {
            while front.proxy.stats()[0].requests > 0 {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_web_socket_of_http_2_reaches_origins_of_both_versions() {
    let site = echo().await;
    for url in urls(&site) {
        let front = Front::to(&url).await;
        let (mut say, body) = Channel::<Bytes, BoxError>::new(1);
        let mut request = Request::new(boxed(body));
        *request.method_mut() = Method::CONNECT;
        *request.uri_mut() = front.url("/socket").parse().unwrap();
        request
            .headers_mut()
            .insert("sec-websocket-version", "13".parse().unwrap());
        request
            .extensions_mut()
            .insert(Protocol::from_static("websocket"));
        let response = soon(client(VERSIONS[1]).request(request)).await.unwrap();
        assert_eq!(response.status(), 200, "{url}");
        assert!(!response.headers().contains_key("sec-websocket-accept"));
        let mut answers = response.into_body();
        // A masked text frame, and a close.
        say.send_data(Bytes::from_static(b"\x81\x85\0\0\0\0hello"))
            .await
            .unwrap();
        let mut heard = Vec::new();
        while heard.len() < 7 {
            let frame = soon(answers.frame()).await.unwrap().unwrap();
            heard.extend_from_slice(&frame.into_data().unwrap());
        }
        assert_eq!(heard, b"\x81\x05hello", "{url}");
        say.send_data(Bytes::from_static(b"\x88\x80\0\0\0\0"))
            .await
            .unwrap();
        drop(say);
        soon(answers.collect()).await.unwrap();
        soon(async {
            while front.proxy.stats()[0].requests > 0 {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_web_socket_whose_instance_is_absent_goes_to_another_one() {
    let site = echo().await;
    for url in urls(&site) {
        let builder = Proxy::builder().to(&absent()).to(&url);
        let front = Front::new(builder).await;
        for _ in 0..2 {
            let stream = TcpStream::connect(front.site.address).await.unwrap();
            let address = format!("ws://{}/socket", front.site.address);
            let (mut socket, _) = soon(tokio_tungstenite::client_async(address, stream))
                .await
                .unwrap();
            socket.send(Message::text("one")).await.unwrap();
            let message = soon(socket.next()).await.unwrap().unwrap();
            assert_eq!(message.into_text().unwrap().as_str(), "one");
            let request = Request::builder()
                .method(Method::CONNECT)
                .uri(front.url("/socket"))
                .header("sec-websocket-version", "13")
                .extension(Protocol::from_static("websocket"));
            let request = request.body(boxed(Channel::<Bytes, BoxError>::new(1).1)).unwrap();
            let response = soon(client(VERSIONS[1]).request(request)).await.unwrap();
            assert_eq!(response.status(), 200, "{url}");
        }
        let told = front.told();
        assert!(
            told.iter().all(|line| line.starts_with("the response broke off")),
            "{told:?}"
        );
        assert_eq!(front.proxy.stats()[0].figures.bad_gateway, 0);
        assert!(front.proxy.stats()[0].figures.repeats > 0);
    }
    let front = Front::new(Proxy::builder().to(&absent()).to(&absent())).await;
    let request = "GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    let answer = soon(
        front.raw(format!("{request}GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").as_bytes()),
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
}

#[tokio::test]
async fn a_web_socket_that_the_origin_refuses_is_refused() {
    let site = echo().await;
    for url in urls(&site) {
        let front = Front::to(&url).await;
        let request = "GET /other HTTP/1.1\r\nHost: h\r\nConnection: upgrade, close\r\nUpgrade: websocket\r\n\
                       Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        let answer = soon(front.raw(request.as_bytes())).await;
        assert!(answer.starts_with("HTTP/1.1 404 "), "{url}: {answer}");
        let mut request = get(&front.url("/other"));
        *request.method_mut() = Method::CONNECT;
        request
            .extensions_mut()
            .insert(Protocol::from_static("websocket"));
        let response = soon(client(VERSIONS[1]).request(request)).await.unwrap();
        assert_eq!(response.status(), 404, "{url}");
    }
    // An answer that a client would take for a WebSocket, and one for another key.
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\n",
    ] {
        let site = crate::support::says(answer).await;
        let front = Front::to(&urls(&site)[0]).await;
        let mut request = get(&front.url("/"));
        *request.method_mut() = Method::CONNECT;
        request
            .extensions_mut()
            .insert(Protocol::from_static("websocket"));
        let response = soon(client(VERSIONS[1]).request(request)).await.unwrap();
        assert_eq!(response.status(), 502, "{answer}");
    }
}

/// haproxy issue 1364.
#[tokio::test]
async fn a_web_socket_is_not_sent_to_an_origin_of_http_2_that_does_not_allow_it() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let application = Router::new().fallback(any(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        async { "" }
    }));
    let server = Server::bind("127.0.0.1:0").await.unwrap();
    let address = server.local_addr().unwrap();
    let serving = tokio::spawn(server.serve(application));
    let site = Site::of(address, serving.abort_handle());
    let front = Front::to(&urls(&site)[1]).await;
    // The first one waits for the SETTINGS of the origin.
    for _ in 0..2 {
        let request = "GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade, close\r\nUpgrade: websocket\r\n\
                       Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        let answer = soon(front.raw(request.as_bytes())).await;
        assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
        let told = front.told();
        assert!(told[0].contains("do not allow extended CONNECT"), "{told:?}");
    }
    let response = soon(client(VERSIONS[1]).request(get(&front.url("/"))))
        .await
        .unwrap();
    assert_eq!(
        (response.status().as_u16(), asked.load(Ordering::Relaxed)),
        (200, 1)
    );
}

#[tokio::test]
async fn other_protocols_are_upgraded_to_over_http_1_alone() {
    let site = raw_origin(|_, mut stream| async move {
        assert!(head(&mut stream).await.contains("upgrade: tcp\r\n"));
        let answer = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\nfirst";
        stream.write_all(answer).await.unwrap();
        let mut said = [0; 6];
        stream.read_exact(&mut said).await.unwrap();
        stream.write_all(&said).await.unwrap();
    })
    .await;
    let front = Front::to(&urls(&site)[0]).await;
    let request = b"POST / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\nsecond";
    let answer = soon(front.raw(request)).await;
    assert!(
        answer.starts_with("HTTP/1.1 101 ") && answer.ends_with("firstsecond"),
        "{answer}"
    );
    let front = Front::to(&urls(&site)[1]).await;
    let request = b"POST / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, close\r\nUpgrade: tcp\r\n\r\n";
    let answer = soon(front.raw(request)).await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
}

#[tokio::test]
async fn a_connection_to_the_origin_ends_with_its_web_socket_though_the_client_goes_on() {
    let (ended, mut ends) = tokio::sync::mpsc::channel(1);
    let site = raw_origin(move |_, mut stream| {
        let ended = ended.clone();
        async move {
            accept(&mut stream, "").await;
            stream.shutdown().await.unwrap();
            let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
            let _ = ended.send(()).await;
        }
    })
    .await;
    let front = Front::to(&urls(&site)[0]).await;
    let (_say, body) = Channel::<Bytes, BoxError>::new(1);
    let mut request = Request::new(boxed(body));
    *request.method_mut() = Method::CONNECT;
    *request.uri_mut() = front.url("/").parse().unwrap();
    let protocol = Protocol::from_static("websocket");
    request.extensions_mut().insert(protocol);
    let response = soon(client(VERSIONS[1]).request(request)).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(soon(response.into_body().collect()).await.unwrap().to_bytes(), "");
    // The client has not ended its half.
    soon(ends.recv()).await.expect("the connection has ended");
}

/// Accepts the WebSocket of a raw connection, with these fields besides.
async fn accept(stream: &mut TcpStream, fields: &str) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    let key = head
        .lines()
        .find_map(|line| line.strip_prefix("sec-websocket-key: "));
    let accept = derive_accept_key(key.expect("a key").as_bytes());
    let answer = format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n{fields}\
         Sec-WebSocket-Accept: {accept}\r\n\r\n"
    );
    stream.write_all(answer.as_bytes()).await.unwrap();
}

/// A length in either head is none of the tunnel, and what the origin says behind the end of the client arrives
/// (caddy#8026): from both versions, and over HTTP/2 between two proxies.
#[tokio::test]
async fn a_half_of_a_web_socket_ends_alone_and_lengths_in_its_heads_mean_nothing() {
    let site = raw_origin(|_, mut stream| async move {
        accept(&mut stream, "Content-Length: 0\r\n").await;
        let mut said = Vec::new();
        stream.read_to_end(&mut said).await.unwrap();
        said.extend(b" and the end");
        stream.write_all(&said).await.unwrap();
    })
    .await;
    let near = Front::to(&urls(&site)[0]).await;
    let far = Front::to(&urls(&near.site)[1]).await;
    for front in [&near, &far] {
        let mut stream = TcpStream::connect(front.site.address).await.unwrap();
        let request = "GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 0\r\n\
                       Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        let answer = soon(head(&mut stream)).await;
        assert!(
            answer.starts_with("http/1.1 101 ") && !answer.contains("content-length"),
            "{answer}"
        );
        stream.write_all(b"hello").await.unwrap();
        stream.shutdown().await.unwrap();
        let mut heard = String::new();
        soon(stream.read_to_string(&mut heard)).await.unwrap();
        assert_eq!(heard, "hello and the end");

        let (mut say, body) = Channel::<Bytes, BoxError>::new(1);
        let mut request = Request::new(boxed(body));
        *request.method_mut() = Method::CONNECT;
        *request.uri_mut() = front.url("/").parse().unwrap();
        let protocol = Protocol::from_static("websocket");
        request.extensions_mut().insert(protocol);
        let response = soon(client(VERSIONS[1]).request(request)).await.unwrap();
        assert_eq!(response.status(), 200);
        assert!(!response.headers().contains_key("content-length"));
        say.send_data(Bytes::from_static(b"hello")).await.unwrap();
        drop(say);
        let heard = soon(response.into_body().collect()).await.unwrap().to_bytes();
        assert_eq!(heard, "hello and the end");
    }
}
