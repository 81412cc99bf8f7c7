//! Bodies of requests and responses: chunks, 100 (Continue), lengths that are wrong, files.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fs::File;
use std::io::Write;
use std::pin::Pin;
use std::task::{Context, Poll};

use fullbore::ErrorKind;
use fullbore::body::{Chunk, FileRange, OpenFile};
use fullbore::tls::{self, Roots};
use http_body::{Body, Frame};
use http_body_util::StreamBody;

use super::*;

#[tokio::test]
async fn a_chunked_body_is_received_with_its_trailers() {
    let chunks = "5\r\nhello\r\n6;name=value\r\n world\r\n0\r\nX: y\r\nZ: w\r\n\r\n";
    let said = Raw::new()
        .ask(post("/", "Transfer-Encoding: chunked\r\n", chunks))
        .await;
    assert!(said.ends_with("11 and 2"), "{said}");
}

#[tokio::test]
async fn an_upload_is_received_whole() {
    for length in [1, 10_000, 1 << 20] {
        let said = Raw::new().ask(upload(length)).await;
        assert!(said.ends_with(&format!("{length} and 0")), "{said}");
    }
}

#[tokio::test]
async fn an_upload_comes_in_long_chunks() {
    const LENGTH: usize = 1 << 20;
    let (mut near, far) = tokio::io::duplex(256 << 10);
    let service = service(|request: Request<Incoming>| async {
        let mut body = request.into_body();
        let (mut chunks, mut octets) = (0, 0);
        while let Some(frame) = body.frame().await {
            chunks += 1;
            octets += frame?.into_data().unwrap_or_default().len();
        }
        Ok::<_, Error>(Response::new(full(format!("{octets} in {chunks}"))))
    });
    tokio::spawn(serve_connection_auto(far, service, Config::default()));
    near.write_all(&upload(LENGTH)).await.expect("it is taken");
    near.shutdown().await.expect("our half ends");
    let mut said = String::new();
    soon(near.read_to_string(&mut said)).await.expect("an end");
    let (_, body) = said.split_once("\r\n\r\n").expect("a head");
    let (octets, chunks) = body.split_once(" in ").expect("two figures");
    assert_eq!(octets.parse(), Ok(LENGTH));
    // 64 KiB each, but for the first ones, for which hyper has shorter buffers.
    assert!(
        chunks.parse::<usize>().is_ok_and(|chunks| chunks < 200),
        "{chunks} chunks"
    );
}

#[tokio::test]
async fn broken_chunks_end_the_body_with_an_error() {
    for chunks in [
        "x\r\nhello\r\n0\r\n\r\n",
        "5\r\nhelloo\r\n0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "5 5\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "fffffffffffffffff\r\nhello\r\n0\r\n\r\n",
        "\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello\r\n0\r\nX: a\0b\r\n\r\n",
        "5\r\nhello\r\n",
        "5\r\nhel",
        "5",
        "",
    ] {
        let raw = Raw::new();
        let seen = Arc::clone(&raw.seen);
        let said = raw.ask(post("/", "Transfer-Encoding: chunked\r\n", chunks)).await;
        assert_eq!(statuses(&said), [400], "{chunks:?}: {said}");
        assert_eq!(seen.failed.load(Ordering::SeqCst), 1, "{chunks:?}");
        assert!(said.contains("connection: close\r\n"), "{said}");
    }
}

#[tokio::test]
async fn no_request_is_read_behind_a_trailer_section() {
    // Where a bare LF ends a line, others find another request, and hyper may find trailers.
    for (end, status) in [
        ("0\r\n\n", 400),
        ("0\r\nX: y\n\n", 200),
        ("0\r\nX: y\nZ: w\r\n\r\n", 400),
        ("0\r\nX: y\r\n\r\n", 200),
    ] {
        let raw = Raw::new();
        let seen = Arc::clone(&raw.seen);
        let body = format!("5\r\nhello\r\n{end}");
        let first = post("/", "Transfer-Encoding: chunked\r\n", &body);
        let said = raw.ask([first, get("/empty"), get("/empty")].concat()).await;
        assert_eq!(
            (statuses(&said), seen.begun()),
            (vec![status], 1),
            "{end:?}: {said}"
        );
        assert!(said.contains("connection: close\r\n"), "{end:?}: {said}");
    }
    let whole = post("/", "Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n");
    let said = Raw::new().ask([whole, get("/empty")].concat()).await;
    assert_eq!(statuses(&said), [200, 204], "{said}");
}

#[tokio::test]
async fn a_connection_whose_response_had_begun_closes_behind_a_trailer_section() {
    let mut raw = Raw::new();
    raw.say(post("/echo", "Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n"))
        .await;
    raw.hear(10).await;
    raw.say("0\r\nX: y\r\n\r\n".to_owned() + &get("/empty")).await;
    let rest = raw.rest().await;
    assert!(!rest.contains(" 204 "), "{rest}");
    assert_eq!(raw.seen.begun(), 1);
}

#[tokio::test]
async fn a_body_that_is_shorter_than_said_is_an_error() {
    let said = Raw::new().ask(post("/", "Content-Length: 10\r\n", "hello")).await;
    assert_eq!(statuses(&said), [400], "{said}");
    assert!(said.ends_with("the message was not complete"), "{said}");
}

#[tokio::test]
async fn what_follows_a_body_is_the_next_request() {
    let all = [
        post("/", "Content-Length: 5\r\n", "hello"),
        "GET".to_owned(),
        get("/"),
    ]
    .concat();
    let said = Raw::new().ask(all).await;
    // `GETGET` is a method of its own.
    assert_eq!(statuses(&said), [200, 200], "{said}");
    let all = [
        post("/", "Content-Length: 5\r\n", "hello"),
        "more\r\n".to_owned(),
        get("/"),
    ]
    .concat();
    assert_eq!(statuses(&Raw::new().ask(all).await), [200, 400]);
}

#[tokio::test]
async fn continue_is_sent_when_the_handler_reads() {
    let mut raw = Raw::new();
    raw.say(post("/", "Content-Length: 5\r\nExpect: 100-continue\r\n", ""))
        .await;
    let (head, _) = raw.hear(0).await;
    assert_eq!(head, "HTTP/1.1 100 Continue\r\n\r\n");
    raw.say("hello").await;
    let (head, body) = raw.hear(7).await;
    assert!(
        head.starts_with("HTTP/1.1 200 OK\r\n") && body == b"5 and 0",
        "{head}"
    );
    raw.say(get("/")).await;
    assert_eq!(raw.hear(7).await.1, b"0 and 0");
}

#[tokio::test]
async fn continue_is_not_sent_when_the_handler_answers_without_reading() {
    for fields in ["Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n"] {
        let mut raw = Raw::new();
        raw.say(post("/refuse", &format!("{fields}Expect: 100-continue\r\n"), ""))
            .await;
        let said = raw.rest().await;
        assert_eq!(statuses(&said), [413], "{said}");
        assert!(
            said.contains("connection: close\r\n") && said.ends_with("no"),
            "{said}"
        );
        raw.served().await.expect("a clean end");
    }
}

#[tokio::test]
async fn a_long_upload_that_is_refused_can_read_the_response() {
    let mut raw = Raw::new();
    raw.say(post("/refuse", "Content-Length: 3000000\r\n", "")).await;
    // The client sends on, as one that does not look at the response.
    let (mut reader, mut writer) = tokio::io::split(raw.io);
    let sent = tokio::spawn(async move { writer.write_all(&vec![b'x'; 3_000_000]).await });
    let mut said = String::new();
    soon(reader.read_to_string(&mut said)).await.expect("an end");
    assert_eq!(statuses(&said), [413], "{said}");
    assert!(said.contains("connection: close\r\n"), "{said}");
    soon(sent).await.expect("no panic").expect("it was read");
}

#[tokio::test]
async fn a_short_body_that_nobody_reads_leaves_the_connection_in_use() {
    let mut raw = Raw::new();
    raw.say(post("/refuse", "Content-Length: 5\r\n", "hello")).await;
    raw.hear(2).await;
    raw.say(get("/")).await;
    assert_eq!(raw.hear(7).await.1, b"0 and 0");
}

#[tokio::test]
async fn what_is_received_is_sent_back_as_it_comes() {
    let mut raw = Raw::new();
    raw.say(post("/echo", "Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n"))
        .await;
    let (_, body) = raw.hear(10).await;
    assert_eq!(body, b"5\r\nhello\r\n");
    raw.say("2\r\nhi\r\n0\r\n\r\n").await;
    let mut rest = [0; 12];
    soon(raw.io.read_exact(&mut rest)).await.expect("the rest");
    assert_eq!(&rest, b"2\r\nhi\r\n0\r\n\r\n");
}

/// A body of these chunks, with a `content-length` or without.
struct Given(VecDeque<Chunk>);

impl Body for Given {
    type Data = Chunk;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Chunk>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|chunk| Ok(Frame::data(chunk))))
    }
}

/// What a server says whose response has these chunks and this `content-length`.
async fn said_of(
    chunks: impl Fn() -> Vec<Chunk> + Send + Sync + 'static,
    length: Option<u64>,
) -> (Vec<u8>, Result<(), Error>) {
    let (mut near, far) = tokio::io::duplex(64 << 10);
    let chunks = Arc::new(chunks);
    let service = service(move |_: Request<Incoming>| {
        let body = Given(chunks().into());
        async move {
            let mut response = Response::new(body);
            if let Some(length) = length {
                response.headers_mut().insert("content-length", length.into());
            }
            Ok::<_, Infallible>(response)
        }
    });
    let served = tokio::spawn(serve_connection_auto(far, service, Config::default()));
    let request = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    near.write_all(request.as_bytes())
        .await
        .expect("the pipe has room");
    let mut said = Vec::new();
    soon(near.read_to_end(&mut said)).await.expect("an end");
    drop(near);
    (said, soon(served).await.expect("no panic"))
}

fn file(length: usize) -> (File, Arc<OpenFile>) {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("fullbore-http1-{}-{number}", std::process::id()));
    let mut options = File::options();
    let mut file = options
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .expect("a new file");
    let _ = std::fs::remove_file(&path);
    file.write_all(&pattern(0, length)).expect("room on the disk");
    let open = OpenFile::new(file.try_clone().expect("a descriptor"));
    (file, open)
}

#[tokio::test]
async fn ranges_of_files_are_sent_between_octets() {
    const LENGTH: usize = 1_000_000;
    let (_kept, open) = file(LENGTH);
    let chunks = move || {
        let range = |start: usize, end: usize| {
            Chunk::from(FileRange::new(Arc::clone(&open), start as u64, end - start))
        };
        vec![
            range(0, 7),
            range(7, 7),
            range(7, 600_000),
            Chunk::from(pattern(600_000, 10_000)),
            range(610_000, LENGTH),
        ]
    };
    let (said, served) = said_of(chunks, Some(LENGTH as u64)).await;
    served.expect("a clean end");
    assert!(said.ends_with(&pattern(0, LENGTH)), "{} octets", said.len());
}

/// How many chunks the server takes of a body without an end, while the peer reads nothing.
async fn taken(chunk: impl Fn() -> Chunk + Clone + Send + Sync + 'static, config: Config) -> usize {
    let (mut near, far) = tokio::io::duplex(64 << 10);
    let taken = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&taken);
    let service = service(move |_: Request<Incoming>| {
        let (count, chunk) = (Arc::clone(&count), chunk.clone());
        let chunks = std::iter::repeat_with(move || {
            count.fetch_add(1, Ordering::SeqCst);
            Ok::<_, Infallible>(Frame::data(chunk()))
        });
        let body = StreamBody::new(futures_util::stream::iter(chunks));
        async { Ok::<_, Infallible>(Response::new(body)) }
    });
    let _served = tokio::spawn(serve_connection_auto(far, service, config));
    near.write_all(get("/").as_bytes())
        .await
        .expect("the pipe has room");
    // The clock is paused: it goes on when no task has anything to do.
    tokio::time::sleep(Duration::from_secs(1)).await;
    taken.load(Ordering::SeqCst)
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_reads_nothing_holds_a_send_buffer_and_one_piece_of_files() {
    const CHUNK: usize = 12_000;
    let octets = || Chunk::from(pattern(0, CHUNK));
    // The pipe takes five and a half. hyper queues 16 at most.
    for (send_buffer, expected) in [(64 << 10, 5..=11), (Config::default().send_buffer(), 16..=22)] {
        let mut config = Config::default();
        config.set_send_buffer(send_buffer);
        let taken = taken(octets, config).await;
        assert!(expected.contains(&taken), "{taken} of {send_buffer}");
    }
    let (_kept, open) = file(CHUNK);
    let range = move || Chunk::from(FileRange::new(Arc::clone(&open), 0, CHUNK));
    let taken = taken(range, Config::default()).await;
    assert!((5..=7).contains(&taken), "{taken} ranges");
}

#[tokio::test]
async fn a_file_that_was_cut_short_ends_the_connection_and_is_not_filled_with_zeros() {
    for length in [Some(900_000), None] {
        let (cut, open) = file(900_000);
        cut.set_len(700_000).expect("it is cut");
        let chunks = move || vec![Chunk::from(FileRange::new(Arc::clone(&open), 0, 900_000))];
        let (said, served) = said_of(chunks, length).await;
        let error = served.expect_err("the connection fails");
        assert_eq!(error.kind(), ErrorKind::Body, "{error}");
        let at = said
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .expect("a head")
            + 4;
        assert!(said.len() - at <= 700_100, "{} octets", said.len() - at);
        assert!(!said.ends_with(b"\r\n0\r\n\r\n"), "it passes for complete");
        assert!(!said[at..].windows(16).any(|octets| octets == [0; 16]));
    }
}

#[tokio::test]
async fn over_tls_a_response_that_is_not_complete_has_no_clean_end() {
    let signed = tls::self_signed(&["localhost"]).expect("a certificate");
    let (pem, key) = (signed.cert_pem.as_bytes(), signed.key_pem.as_bytes());
    let config = tls::server_config(pem, key).expect("a configuration");
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let mut config = tls::client_config(Roots::Pem(pem.to_vec())).expect("a configuration");
    config.alpn_protocols.clear();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    for (sent, whole) in [(300_000, true), (200_000, false)] {
        let (cut, open) = file(300_000);
        cut.set_len(sent).expect("it is cut");
        let service = service(move |_: Request<Incoming>| {
            let chunk = Chunk::from(FileRange::new(Arc::clone(&open), 0, 300_000));
            async { Ok::<_, Infallible>(Response::new(Given([chunk].into()))) }
        });
        let (near, far) = tokio::io::duplex(64 << 10);
        let name = "localhost".try_into().expect("a name");
        let (near, far) = tokio::join!(connector.connect(name, near), acceptor.accept(far));
        let (mut near, far) = (near.expect("a handshake"), far.expect("a handshake"));
        tokio::spawn(serve_connection_auto(far, service, Config::default()));
        let request = b"GET / HTTP/1.0\r\n\r\n";
        near.write_all(request).await.expect("the pipe has room");
        let mut said = Vec::new();
        let ended = soon(near.read_to_end(&mut said)).await;
        assert_eq!(ended.is_ok(), whole, "{ended:?} behind {} octets", said.len());
    }
}

#[tokio::test]
async fn a_response_is_neither_longer_nor_shorter_than_its_content_length() {
    for (length, sent) in [(4, 4), (6, 0)] {
        let chunks = || vec![Chunk::from("he"), Chunk::from("llo")];
        let (said, served) = said_of(chunks, Some(length)).await;
        let text = String::from_utf8_lossy(&said).into_owned();
        let error = served.expect_err("the connection fails");
        assert!(
            matches!(error.kind(), ErrorKind::Body | ErrorKind::BodyLength),
            "{error}"
        );
        let body = text.split("\r\n\r\n").nth(1).unwrap_or_default();
        assert!(
            body.len() <= 5 && body.len() as u64 <= length && sent <= length,
            "{body}"
        );
    }
}
