//! Bodies that are ranges of files: sent by the system over TCP, read over anything else, and the same octets either way.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fs::File;
use std::future::Future;
use std::io::{Seek, SeekFrom, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use fullbore::body::{Chunk, FileRange, OpenFile};
use fullbore::client::{SendRequest, handshake};
use fullbore::server::{serve_connection, serve_connection_local};
use fullbore::{Config, Error, ErrorKind, Incoming, Server};
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::support::{Choppy, config, get, pattern, soon, take, windows};

const LENGTH: usize = 1_000_000;

/// A file of the pattern, which goes with the handle.
struct Pattern(File);

impl Pattern {
    fn new(length: usize) -> Self {
        let mut file = tempfile();
        file.write_all(&pattern(0, length)).unwrap();
        Pattern(file)
    }

    fn open(&self) -> Arc<OpenFile> {
        OpenFile::new(self.0.try_clone().unwrap())
    }
}

/// A file that nobody else sees, since it has lost its name.
fn tempfile() -> File {
    static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let name = format!(
        "fullbore-files-{}-{}",
        std::process::id(),
        NUMBER.fetch_add(1, Ordering::Relaxed)
    );
    let path = std::env::temp_dir().join(name);
    let mut options = File::options();
    let file = options.read(true).write(true).create_new(true).open(&path);
    let mut file = file.unwrap();
    // Where an open file keeps its name, the system's temporary folder has it.
    let _ = std::fs::remove_file(&path);
    file.seek(SeekFrom::Start(0)).unwrap();
    file
}

/// A body of these chunks.
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

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }
}

/// All of the pattern: octets and ranges in turn, empty ones among them.
fn mixed(file: &Arc<OpenFile>) -> Given {
    let range =
        |start: usize, end: usize| Chunk::from(FileRange::new(Arc::clone(file), start as u64, end - start));
    let octets = |start: usize, end: usize| Chunk::from(pattern(start as u64, end - start));
    let chunks = [
        range(0, 7),
        range(7, 300_000),
        octets(300_000, 300_500),
        range(300_500, 300_500),
        octets(300_500, 340_000),
        range(340_000, 350_000),
        range(350_000, LENGTH),
    ];
    Given(chunks.into())
}

/// The client's end, over a server's end that answers with the whole pattern, mixed.
fn over<T, U>(near: T, far: U, client: Config) -> SendRequest
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    U: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let file = Pattern::new(LENGTH).open();
    let service = tower::service_fn(move |_: Request<Incoming>| {
        let body = mixed(&file);
        async move { Ok::<_, Infallible>(Response::new(body)) }
    });
    tokio::spawn(serve_connection(far, service, config()));
    let (sender, connection) = handshake(near, client);
    tokio::spawn(connection);
    sender
}

/// Asks so often at once, and holds every octet against the pattern.
async fn ask(sender: &SendRequest, times: usize) {
    let asked: Vec<_> = (0..times)
        .map(|_| {
            let response = sender.send(get("/"));
            tokio::spawn(async move { take(response.await?.into_body()).await })
        })
        .collect();
    for taken in asked {
        let taken = soon(taken).await.unwrap().unwrap();
        assert_eq!(taken.bytes, LENGTH as u64);
    }
}

#[tokio::test]
async fn ranges_are_read_where_the_transport_does_not_send_them() {
    for client in [config(), windows(65_535, 65_535), windows(20_001, 70_000)] {
        let (near, far) = tokio::io::duplex(64 << 10);
        ask(&over(near, far, client), 20).await;
    }
    // A transport that takes the list in bits.
    let (near, far) = tokio::io::duplex(64 << 10);
    ask(&over(near, Choppy::new(far, 7, 3_000), config()), 5).await;
}

#[tokio::test]
async fn a_server_sends_the_same_octets_by_reading_and_by_reference() {
    for by_reference in [false, true] {
        serve_ranges(by_reference).await;
    }
}

async fn serve_ranges(by_reference: bool) {
    let builder = Server::builder().sending_files(by_reference);
    let server = builder.bind("127.0.0.1:0").await.unwrap();
    let address = server.local_addr().unwrap();
    let file = Pattern::new(LENGTH).open();
    let serving = tokio::spawn(server.serve(tower::service_fn(move |_: Request<Incoming>| {
        let body = mixed(&file);
        async move { Ok::<_, Infallible>(Response::new(body)) }
    })));
    // Wide windows, and ones that end in the middle of whatever is sent; and a client that reads in bits.
    for client in [config(), windows(65_535, 65_535), windows(20_001, 70_000)] {
        let (sender, connection) = handshake(TcpStream::connect(address).await.unwrap(), client);
        let connection = tokio::spawn(connection);
        ask(&sender, 20).await;
        drop(sender);
        soon(connection).await.unwrap().unwrap();
    }
    let choppy = Choppy::new(TcpStream::connect(address).await.unwrap(), 7, 3_000);
    let (sender, connection) = handshake(choppy, config());
    tokio::spawn(connection);
    ask(&sender, 5).await;
    serving.abort();
}

/// Whether the file has been let go of.
struct Told(Arc<AtomicBool>);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_file_is_closed_when_its_last_range_has_left() {
    let server = Server::bind("127.0.0.1:0").await.unwrap();
    let address = server.local_addr().unwrap();
    let closed = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&closed);
    let serving = tokio::spawn(server.serve(tower::service_fn(move |_: Request<Incoming>| {
        let file = Pattern::new(LENGTH).0;
        let range = FileRange::new(OpenFile::keeping(file, Told(Arc::clone(&told))), 0, LENGTH);
        async move { Ok::<_, Infallible>(Response::new(Given([range.into()].into()))) }
    })));
    let (sender, connection) = handshake(
        TcpStream::connect(address).await.unwrap(),
        windows(30_000, 65_535),
    );
    tokio::spawn(connection);
    let mut body = soon(sender.send(get("/"))).await.unwrap().into_body();
    let first = soon(body.frame()).await.unwrap().unwrap().into_data().unwrap();
    assert!(!closed.load(Ordering::SeqCst), "most of it waits for the window");
    let mut seen = first.len();
    while let Some(frame) = soon(body.frame()).await {
        seen += frame.unwrap().into_data().unwrap().len();
    }
    assert_eq!(seen, LENGTH);
    // The end of the body has come, so that the last range has left.
    while !closed.load(Ordering::SeqCst) {
        tokio::task::yield_now().await;
    }
    serving.abort();
}

/// A body that breaks off since its file was emptied when some of it had come: how it ends.
async fn shortened(sender: SendRequest, file: &Pattern) -> Error {
    let mut body = soon(sender.send(get("/"))).await.unwrap().into_body();
    let mut seen = 0;
    loop {
        match soon(body.frame()).await {
            None => panic!("a short body passed for a whole one"),
            Some(Err(error)) => {
                assert!(seen < LENGTH as u64);
                return error;
            }
            Some(Ok(frame)) => {
                let data = frame.into_data().unwrap();
                assert!(
                    data == pattern(seen, data.len()),
                    "wrong octets from offset {seen}"
                );
                seen += data.len() as u64;
                file.0.set_len(0).unwrap();
            }
        }
    }
}

/// A service that answers with the whole of the file.
macro_rules! all_of {
    ($file:expr) => {{
        let open = $file.open();
        tower::service_fn(move |_: Request<Incoming>| {
            let range = FileRange::new(Arc::clone(&open), 0, LENGTH);
            async move { Ok::<_, Infallible>(Response::new(Given([range.into()].into()))) }
        })
    }};
}

/// The two ends of a TCP connection.
#[cfg(target_os = "linux")]
async fn tcp() -> (TcpStream, TcpStream) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (near, listener.accept().await.unwrap().0)
}

/// Empties the file while it is served to `near` with windows of so many bytes, and holds both ends against how that is to end.
async fn ends_the_connection<T, S>(near: T, window: u32, serving: S, file: &Pattern)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Future<Output = Result<(), Error>>,
{
    let (sender, connection) = handshake(near, windows(window, window));
    tokio::spawn(connection);
    let ends = async { tokio::join!(serving, shortened(sender, file)) };
    let (serving, error) = soon(ends).await;
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    let error = serving.unwrap_err();
    let cause = std::error::Error::source(&error).expect("a cause").to_string();
    assert!(cause.contains("became shorter"), "{error}: {cause}");
}

#[tokio::test]
async fn a_file_that_becomes_shorter_ends_its_connection_when_it_is_read() {
    let (near, far) = tokio::io::duplex(64 << 10);
    let file = Pattern::new(LENGTH);
    let serving = serve_connection(far, all_of!(file), config());
    ends_the_connection(near, 65_535, serving, &file).await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_file_that_becomes_shorter_ends_the_connection_when_the_system_sends_it() {
    let (near, far) = tcp().await;
    let file = Pattern::new(LENGTH);
    let serving = serve_connection(far, all_of!(file), config()).sending_files();
    ends_the_connection(near, 65_535, serving, &file).await;
    // Lists that are long enough to be sent by reference; what has been sent of the file when it is emptied is a window.
    let (near, far) = tcp().await;
    let file = Pattern::new(LENGTH);
    let serving = serve_connection(far, all_of!(file), config()).sending_files();
    ends_the_connection(near, 800_000, serving, &file).await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn handlers_that_live_in_their_connection_have_files_sent_by_the_system() {
    let (near, far) = tcp().await;
    let file = Pattern::new(LENGTH);
    let open = file.open();
    let service = tower::service_fn(move |_: Request<Incoming>| {
        let range = FileRange::new(Arc::clone(&open), 0, LENGTH);
        let body = std::rc::Rc::new(Given([range.into()].into()));
        async move {
            tokio::task::yield_now().await;
            Ok::<_, Infallible>(Response::new(std::rc::Rc::into_inner(body).expect("one owner")))
        }
    });
    let serving = serve_connection_local(far, service, config()).sending_files();
    ends_the_connection(near, 65_535, serving, &file).await;
}

/// What a client sees of a response whose file is cut short when its first octets have come: the octets, and whether the
/// stream ended.
async fn cut_short(address: std::net::SocketAddr, file: &Pattern, length: u64) -> (Vec<u8>, bool) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const DATA: u8 = 0;
    const END_STREAM: u8 = 1;
    let mut stream = TcpStream::connect(address).await.unwrap();
    // A stream window and a connection window of 1 MiB, and a request.
    let opening: &[&[u8]] = &[
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x04\x00\x10\x00\x00",
        b"\x00\x00\x04\x08\x00\x00\x00\x00\x00\x00\x10\x00\x00",
        b"\x00\x00\x06\x01\x05\x00\x00\x00\x01\x82\x86\x84\x41\x01x",
    ];
    stream.write_all(&opening.concat()).await.unwrap();
    let mut some = vec![0; 60_000];
    while soon(stream.peek(&mut some)).await.unwrap() < some.len() {
        tokio::task::yield_now().await;
    }
    file.0.set_len(length).unwrap();
    let mut seen = Vec::new();
    loop {
        let mut head = [0; 9];
        if soon(stream.read_exact(&mut head)).await.is_err() {
            return (seen, false);
        }
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        if head[3] != DATA {
            soon(stream.read_exact(&mut payload)).await.unwrap();
            continue;
        }
        while !payload.is_empty() {
            match soon(stream.read(&mut payload)).await {
                Ok(count @ 1..) => {
                    seen.extend_from_slice(&payload[..count]);
                    payload.drain(..count);
                }
                _ => return (seen, false),
            }
        }
        if head[4] & END_STREAM != 0 {
            return (seen, true);
        }
    }
}

#[tokio::test]
async fn octets_that_were_never_in_a_file_are_not_sent_when_it_is_cut_short() {
    let file = Pattern::new(LENGTH);
    let server = Server::bind("127.0.0.1:0").await.unwrap();
    let address = server.local_addr().unwrap();
    let serving = tokio::spawn(server.serve(all_of!(file)));
    let (seen, ended) = cut_short(address, &file, 30_001).await;
    let expected = pattern(0, seen.len());
    let wrong = seen.iter().zip(&expected).filter(|(is, was)| is != was).count();
    assert_eq!(wrong, 0, "of {} octets, ended {ended}", seen.len());
    assert!(
        !ended || seen.len() == LENGTH,
        "a short body passed for a whole one"
    );
    serving.abort();
}
