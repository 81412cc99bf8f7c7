//! Streams of an axum application that last: WebSockets, by the upgrade of HTTP/1.1 and by the extended CONNECT of HTTP/2
//! (RFC 8441), and server-sent events.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::Router;
use axum::extract::State;
use axum::extract::ws::{Message as Received, WebSocketUpgrade};
use axum::response::sse::{Event, Sse};
use axum::routing::{any, get};
use bytes::{Bytes, BytesMut};
use fullbore::ext::Protocol;
use fullbore::server::{WebSocketLimit, WebSockets};
use fullbore::{BoxError, Client, Error, Incoming, Server};
use http::{Method, Request, Response, StatusCode, header};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, Notify, mpsc};
use tokio::task::JoinHandle;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use crate::support::{Peer, frames, full, service, soon};

/// Sends each message back, and says when a WebSocket has ended.
fn echo(ended: Arc<Notify>) -> Router {
    let handler = |upgrade: WebSocketUpgrade| async move {
        upgrade.on_upgrade(move |mut socket| async move {
            while let Some(Ok(message)) = socket.recv().await {
                let answered = match message {
                    Received::Text(_) | Received::Binary(_) => socket.send(message).await,
                    _ => Ok(()),
                };
                if answered.is_err() {
                    break;
                }
            }
            ended.notify_one();
        })
    };
    Router::new()
        .route("/ws", any(handler))
        .route("/", get(|| async { "hello" }))
}

/// A server, its address, and its task.
async fn serve(app: Router) -> (String, JoinHandle<Result<(), Error>>) {
    let builder = Server::builder().config(|config| config.set_enable_connect_protocol(true));
    let server = builder.bind("127.0.0.1:0").await.expect("a port");
    let address = server.local_addr().expect("an address").to_string();
    (address, tokio::spawn(server.serve(WebSockets::new(app))))
}

/// Sends messages of all kinds and sizes, and takes them back.
async fn converse<T>(socket: &mut WebSocketStream<T>)
where
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let messages = [
        Message::text("hello"),
        Message::text(""),
        Message::binary(vec![7; 1_000_000]),
        Message::text("w".repeat(70_000)),
    ];
    for message in messages {
        send(socket, message.clone()).await.expect("the message leaves");
        assert_eq!(next(socket).await, Some(message));
    }
}

async fn send<T>(socket: &mut WebSocketStream<T>, message: Message) -> Result<(), BoxError>
where
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    use futures_util::SinkExt;
    Ok(soon(socket.send(message)).await?)
}

async fn next<T>(socket: &mut WebSocketStream<T>) -> Option<Message>
where
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    use futures_util::StreamExt;
    soon(socket.next()).await?.ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_web_socket_is_opened_by_an_upgrade_of_http_1_1() {
    let ended = Arc::new(Notify::new());
    let (address, serving) = serve(echo(Arc::clone(&ended))).await;
    let stream = TcpStream::connect(&address).await.unwrap();
    let opened = tokio_tungstenite::client_async(format!("ws://{address}/ws"), stream);
    let (mut socket, response) = soon(opened).await.expect("a WebSocket");
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    converse(&mut socket).await;
    soon(socket.close(None)).await.expect("it closes");
    soon(ended.notified()).await;
    serving.abort();
}

/// What is written to the other end of a pipe, as a request body.
struct Piped(ReadHalf<DuplexStream>);

impl Body for Piped {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        let mut read = BytesMut::with_capacity(16 << 10);
        let count = ready!(tokio_util::io::poll_read_buf(
            Pin::new(&mut self.0),
            cx,
            &mut read
        ))?;
        Poll::Ready((count > 0).then(|| Ok(Frame::data(read.freeze()))))
    }
}

/// A WebSocket by extended CONNECT, which is joined to the two bodies by a pipe.
async fn extended_connect(client: &Client, address: &str) -> WebSocketStream<DuplexStream> {
    // The server's SETTINGS have to allow it.
    let response = soon(client.get(format!("http://{address}/")))
        .await
        .expect("a response");
    assert_eq!(text(response.into_body()).await, "hello");
    let (near, far) = tokio::io::duplex(64 << 10);
    let (reader, mut writer) = tokio::io::split(far);
    let request = Request::builder()
        .method(Method::CONNECT)
        .uri(format!("http://{address}/ws"))
        .extension(Protocol::from_static("websocket"))
        .header(header::SEC_WEBSOCKET_VERSION, "13")
        .body(Piped(reader))
        .unwrap();
    let response = soon(client.request(request)).await.expect("a response");
    assert_eq!(response.status(), StatusCode::OK);
    let mut body = response.into_body();
    tokio::spawn(async move {
        while let Some(Ok(frame)) = body.frame().await {
            let data = frame.into_data().expect("data");
            if writer.write_all(&data).await.is_err() {
                return;
            }
        }
        let _ = writer.shutdown().await;
    });
    WebSocketStream::from_raw_socket(near, Role::Client, None).await
}

async fn text(body: Incoming) -> String {
    let bytes = soon(body.collect()).await.expect("a body").to_bytes();
    String::from_utf8(bytes.to_vec()).expect("text")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_web_socket_is_opened_by_the_extended_connect_of_http_2() {
    let ended = Arc::new(Notify::new());
    let (address, serving) = serve(echo(Arc::clone(&ended))).await;
    let client = Client::new();
    let mut first = extended_connect(&client, &address).await;
    let mut second = extended_connect(&client, &address).await;
    converse(&mut first).await;
    converse(&mut second).await;
    soon(first.close(None)).await.expect("it closes");
    soon(ended.notified()).await;
    // Other requests share their connection.
    let response = soon(client.get(format!("http://{address}/")))
        .await
        .expect("a response");
    assert_eq!(text(response.into_body()).await, "hello");
    assert_eq!(client.connections(&format!("http://{address}/")), 1);
    // A client that goes without a word ends its handler.
    drop(second);
    soon(ended.notified()).await;
    serving.abort();
}

#[tokio::test]
async fn a_handler_that_drops_its_web_socket_ends_the_stream_of_a_client_that_is_silent() {
    let handler = |upgrade: WebSocketUpgrade| async { upgrade.on_upgrade(|_| async {}) };
    let (address, serving) = serve(Router::new().route("/ws", any(handler))).await;
    let mut peer = raw_web_sockets(&address, [1].into_iter()).await;
    assert!(!soon(peer.expect(frames::HEADERS)).await.ends_stream());
    while !soon(peer.expect(frames::DATA)).await.ends_stream() {}
    let reset = soon(peer.expect(frames::RST_STREAM)).await;
    // NO_ERROR, behind a complete response.
    assert_eq!((reset.stream, reset.code()), (1, 0));
    serving.abort();
}

/// A raw client that has opened a WebSocket on each of these streams.
async fn raw_web_sockets(address: &str, streams: impl Iterator<Item = u32>) -> Peer<TcpStream> {
    let stream = TcpStream::connect(address).await.unwrap();
    let mut peer = Peer::client(stream, &[]).await;
    let block = frames::block(&[
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "http"),
        (":authority", address),
        (":path", "/ws"),
        ("sec-websocket-version", "13"),
    ]);
    for stream in streams {
        peer.write(&frames::headers(stream, frames::END_HEADERS, &block))
            .await;
    }
    peer
}

/// A server whose handler passes on what it reads of a WebSocket, to the end or an error.
async fn serve_reader() -> (
    mpsc::UnboundedReceiver<Result<Vec<u8>, std::io::ErrorKind>>,
    String,
    JoinHandle<Result<(), Error>>,
) {
    let (tell, told) = mpsc::unbounded_channel();
    let handler = move |mut request: axum::extract::Request| {
        let tell = tell.clone();
        async move {
            let upgrade = hyper::upgrade::on(&mut request);
            tokio::spawn(async move {
                let upgraded = upgrade.await.expect("an upgrade");
                let mut read = Vec::new();
                let mut io = hyper_util::rt::TokioIo::new(upgraded);
                let ended = io.read_to_end(&mut read).await;
                tell.send(ended.map(|_| read).map_err(|error| error.kind())).ok();
            });
            StatusCode::OK
        }
    };
    let (address, serving) = serve(Router::new().route("/ws", any(handler))).await;
    (told, address, serving)
}

#[tokio::test]
async fn a_reset_of_a_web_socket_is_an_error_for_its_handler_and_no_end() {
    let (mut told, address, serving) = serve_reader().await;
    for ending in ["reset", "close", "end"] {
        let mut peer = raw_web_sockets(&address, [1].into_iter()).await;
        soon(peer.expect(frames::HEADERS)).await;
        let end = u8::from(ending == "end");
        peer.write(&frames::data(1, end, b"hello")).await;
        match ending {
            "reset" => peer.write(&frames::reset(1, 8)).await,
            "close" => drop(peer),
            _ => {
                let heard = soon(told.recv()).await.expect("it has ended");
                assert_eq!(heard, Ok(b"hello".to_vec()));
                continue;
            }
        }
        let heard = soon(told.recv()).await.expect("it has ended");
        assert_eq!(heard, Err(std::io::ErrorKind::ConnectionReset), "{ending}");
    }
    serving.abort();
}

#[tokio::test]
async fn a_handler_that_answers_with_success_and_takes_no_upgrade_sends_its_body() {
    let builder = Server::builder().config(|config| config.set_enable_connect_protocol(true));
    let server = builder.bind("127.0.0.1:0").await.expect("a port");
    let address = server.local_addr().expect("an address").to_string();
    // axum leaves the body of such an answer out.
    let handler = service(|_| async { Ok::<_, Infallible>(Response::new(full("no WebSocket here"))) });
    let serving = tokio::spawn(server.serve(WebSockets::new(handler)));
    let mut peer = raw_web_sockets(&address, [1].into_iter()).await;
    soon(peer.expect(frames::HEADERS)).await;
    let mut body = Vec::new();
    loop {
        let data = soon(peer.expect(frames::DATA)).await;
        body.extend_from_slice(&data.payload);
        if data.ends_stream() {
            break;
        }
    }
    assert_eq!(body, b"no WebSocket here");
    serving.abort();
}

#[tokio::test]
async fn web_sockets_beyond_the_limit_are_refused_until_others_have_ended() {
    let limit = WebSocketLimit::new(8);
    let builder = Server::builder().config(|config| config.set_enable_connect_protocol(true));
    let server = builder.bind("127.0.0.1:0").await.expect("a port");
    let address = server.local_addr().expect("an address").to_string();
    let app = WebSockets::new(echo(Arc::default())).limit(limit.clone());
    let serving = tokio::spawn(server.serve(app));
    let streams = (0..6).map(|index| 2 * index + 1);
    let mut peer = raw_web_sockets(&address, streams).await;
    let mut refused = Vec::new();
    for _ in 0..6 {
        let head = soon(peer.expect(frames::HEADERS)).await;
        if head.ends_stream() {
            refused.push(head.stream);
        }
    }
    refused.sort_unstable();
    // The only address has half of them.
    assert_eq!((refused, limit.open()), (vec![9, 11], 4));
    drop(peer);
    soon(async {
        while limit.open() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    serving.abort();
}

#[tokio::test]
async fn a_handler_that_refuses_a_web_socket_answers_as_it_would_to_any_request() {
    let (address, serving) = serve(echo(Arc::default())).await;
    let client = Client::new();
    let response = soon(client.get(format!("http://{address}/")))
        .await
        .expect("a response");
    assert_eq!(text(response.into_body()).await, "hello");
    for (path, version, status) in [
        ("/ws", "12", StatusCode::BAD_REQUEST),
        ("/nowhere", "13", StatusCode::NOT_FOUND),
    ] {
        let request = Request::builder()
            .method(Method::CONNECT)
            .uri(format!("http://{address}{path}"))
            .extension(Protocol::from_static("websocket"))
            .header(header::SEC_WEBSOCKET_VERSION, version)
            .body(String::new())
            .unwrap();
        let response = soon(client.request(request)).await.expect("a response");
        assert_eq!(response.status(), status, "{path}");
    }
    serving.abort();
}

type Events = Arc<Mutex<mpsc::UnboundedReceiver<&'static str>>>;

/// Sends each event as it is told.
async fn events(
    State(events): State<Events>,
) -> Sse<impl futures_util::Stream<Item = Result<Event, Infallible>>> {
    Sse::new(futures_util::stream::unfold(events, |events| async {
        let next = events.lock().await.recv().await?;
        Some((Ok(Event::default().data(next)), events))
    }))
}

/// A server that sends the events that it is told.
async fn serve_events() -> (
    mpsc::UnboundedSender<&'static str>,
    String,
    JoinHandle<Result<(), Error>>,
) {
    let (tell, told) = mpsc::unbounded_channel();
    let app = Router::new().route("/events", get(events));
    let (address, serving) = serve(app.with_state(Arc::new(Mutex::new(told)))).await;
    (tell, address, serving)
}

#[tokio::test]
async fn server_sent_events_arrive_one_by_one_over_http_2() {
    let (tell, address, serving) = serve_events().await;
    let client = Client::new();
    let response = soon(client.get(format!("http://{address}/events"))).await;
    let response = response.expect("a response");
    assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream");
    let mut body = response.into_body();
    for event in ["one", "two"] {
        tell.send(event).unwrap();
        let frame = soon(body.frame()).await.expect("a frame").expect("no error");
        assert_eq!(frame.into_data().expect("data"), format!("data: {event}\n\n"));
    }
    serving.abort();
}

#[tokio::test]
async fn server_sent_events_arrive_one_by_one_over_http_1_1() {
    let (tell, address, serving) = serve_events().await;
    let mut stream = TcpStream::connect(&address).await.unwrap();
    let request = b"GET /events HTTP/1.1\r\nhost: example.com\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut read = String::new();
    for event in ["one", "two"] {
        tell.send(event).unwrap();
        let expected = format!("data: {event}\n\n");
        while !read.contains(&expected) {
            let mut piece = [0; 1_000];
            let count = soon(stream.read(&mut piece)).await.expect("it reads");
            assert!(count > 0, "it ended after {read}");
            read += std::str::from_utf8(&piece[..count]).expect("text");
        }
    }
    serving.abort();
}

#[tokio::test]
async fn a_server_that_allows_no_extended_connect_is_named_in_the_error() {
    let server = Server::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/ws", server.local_addr().expect("an address"));
    let serving = tokio::spawn(server.serve(echo(Arc::default())));
    let client = Client::new();
    // The first request waits for the server's SETTINGS.
    for _ in 0..2 {
        let mut request = Request::connect(&url).body(full("")).expect("a request");
        request
            .extensions_mut()
            .insert(Protocol::from_static("websocket"));
        let error = soon(client.request(request)).await.expect_err("no WebSocket");
        assert_eq!(error.kind(), fullbore::ErrorKind::Protocol, "{error}");
        assert_eq!(error.code(), None, "the server has done nothing wrong");
        assert!(
            error.to_string().contains("do not allow extended CONNECT"),
            "{error}"
        );
    }
    serving.abort();
}
