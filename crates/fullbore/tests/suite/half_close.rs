//! Clients that end their half of the transport behind their last request: what was read before is answered, and a
//! client that is gone altogether is noticed.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use fullbore::server::{serve_connection, serve_connection_local};
use fullbore::tls::{self, Roots};
use fullbore::{BoxError, Config, ErrorKind, Incoming};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::LocalSet;

use crate::support::{Peer, frames, service, soon};

/// How often each exchange is tried: what is lost in one of three is seen.
const ROUNDS: usize = 20;

/// Ends of a connection over TCP.
async fn tcp() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (far, _) = listener.accept().await.unwrap();
    near.set_nodelay(true).unwrap();
    (near, far)
}

/// Says how long the body was, after a while; `/large` follows with a body of 4 MiB.
async fn count(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, BoxError> {
    let body = request.into_body().collect().await?.to_bytes();
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(Duration::from_millis(2)).await;
    let content = match body.len() {
        1_000 => Bytes::from(vec![b'l'; 4 << 20]),
        length => Bytes::from(length.to_string()),
    };
    Ok(Response::new(Full::new(content)))
}

/// Sends an upload of so many octets, ends the client's half, and reads to the end: the octets of the response.
async fn upload_and_end<T: AsyncRead + AsyncWrite + Unpin>(io: T, length: usize) -> Vec<u8> {
    let mut raw = Peer::client(io, &[(4, 16 << 20)]).await;
    raw.send(frames::WINDOW_UPDATE, 0, 0, &(16_u32 << 20).to_be_bytes())
        .await;
    raw.request(1, false, &[]).await;
    raw.send(frames::DATA, 1, 1, &vec![b'u'; length]).await;
    raw.io.shutdown().await.expect("our half ends");
    let frames = raw.rest().await;
    let data = frames
        .iter()
        .filter(|frame| frame.kind == frames::DATA && frame.stream == 1);
    data.flat_map(|frame| frame.payload.to_vec()).collect()
}

/// How many of `ROUNDS` uploads that are followed at once by the end are answered in full.
async fn answered<T, F, S, R>(ends: impl Fn() -> F, serve: impl Fn(T) -> S, length: usize) -> usize
where
    T: AsyncRead + AsyncWrite + Unpin,
    F: Future<Output = (T, T)>,
    S: Future<Output = R>,
{
    let mut answered = 0;
    for _ in 0..ROUNDS {
        let (near, far) = ends().await;
        let (body, _) = soon(async { tokio::join!(upload_and_end(near, length), serve(far)) }).await;
        let whole = match length {
            1_000 => body.len() == 4 << 20,
            length => body == length.to_string().into_bytes(),
        };
        answered += usize::from(whole);
    }
    answered
}

#[tokio::test]
async fn an_upload_that_is_followed_by_the_end_in_memory_is_answered() {
    let ends = || async { tokio::io::duplex(64 << 10) };
    let serve = |io| serve_connection(io, service(count), Config::default());
    assert_eq!(answered(ends, serve, 10_000).await, ROUNDS);
}

#[tokio::test]
async fn an_upload_that_is_followed_by_the_end_over_tcp_is_answered() {
    let serve = |io| serve_connection(io, service(count), Config::default());
    assert_eq!(answered(tcp, serve, 10_000).await, ROUNDS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_response_behind_the_end_is_whole() {
    let serve = |io| serve_connection(io, service(count), Config::default());
    assert_eq!(answered(tcp, serve, 1_000).await, ROUNDS);
}

#[tokio::test]
async fn an_upload_that_is_followed_by_the_end_is_answered_by_handlers_that_live_in_the_connection() {
    let local = LocalSet::new();
    let serve = |io| serve_connection_local(io, tower::service_fn(count), Config::default());
    assert_eq!(local.run_until(answered(tcp, serve, 10_000)).await, ROUNDS);
}

#[tokio::test]
async fn an_upload_that_is_followed_by_close_notify_is_answered() {
    let signed = tls::self_signed(&["localhost"]).unwrap();
    let (pem, key) = (signed.cert_pem.as_bytes(), signed.key_pem.as_bytes());
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(tls::server_config(pem, key).unwrap()));
    let config = tls::client_config(Roots::Pem(pem.to_vec())).unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let mut whole = 0;
    for _ in 0..ROUNDS {
        let (near, far) = tcp().await;
        let name = "localhost".try_into().unwrap();
        let (near, far) = tokio::join!(connector.connect(name, near), acceptor.accept(far));
        let serve = serve_connection(far.unwrap(), service(count), Config::default());
        let upload = upload_and_end(near.unwrap(), 10_000);
        let (body, _) = soon(async { tokio::join!(upload, serve) }).await;
        whole += usize::from(body == b"10000");
    }
    assert_eq!(whole, ROUNDS);
}

#[tokio::test]
async fn a_request_that_the_end_cuts_short_fails_and_the_others_are_answered() {
    let failures = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&failures);
    let service = service(move |request: Request<Incoming>| {
        let seen = Arc::clone(&seen);
        async move {
            let collected = request.into_body().collect().await;
            if let Err(error) = &collected {
                assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
                seen.fetch_add(1, Ordering::SeqCst);
            }
            let length = collected?.to_bytes().len();
            tokio::time::sleep(Duration::from_millis(2)).await;
            Ok::<_, BoxError>(Response::new(Full::new(Bytes::from(length.to_string()))))
        }
    });
    let (near, far) = tcp().await;
    let server = tokio::spawn(serve_connection(far, service, Config::default()));
    let mut raw = Peer::client(near, &[]).await;
    raw.request(1, false, &[]).await;
    raw.request(3, false, &[]).await;
    raw.send(frames::DATA, 1, 3, b"whole").await;
    raw.send(frames::DATA, 0, 1, b"half").await;
    raw.io.shutdown().await.unwrap();
    let frames = soon(raw.rest()).await;
    let data: Vec<_> = frames
        .iter()
        .filter(|frame| frame.kind == frames::DATA && !frame.payload.is_empty())
        .collect();
    assert_eq!(data.len(), 1, "{frames:?}");
    assert_eq!((data[0].stream, &data[0].payload[..]), (3, &b"5"[..]));
    assert_eq!(failures.load(Ordering::SeqCst), 1);
    let error = soon(server).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
}

/// Counts a handler while it lives.
struct Alive(Arc<AtomicUsize>);

impl Alive {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Alive(Arc::clone(count))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A client asks for something that takes for ever and then does as `end` says: the server and its handler end.
async fn hangs<T, F>(near: T, far: T, config: Config, end: impl FnOnce(Peer<T>) -> F)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Future<Output = ()>,
{
    let alive = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&alive);
    let service = service(move |_: Request<Incoming>| {
        let alive = Alive::new(&count);
        async move {
            let _alive = alive;
            std::future::pending::<Result<Response<Full<Bytes>>, Infallible>>().await
        }
    });
    let server = tokio::spawn(serve_connection(far, service, config));
    let mut raw = Peer::client(near, &[]).await;
    raw.request(1, true, &[]).await;
    soon(async {
        while alive.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    end(raw).await;
    let _ = soon(server).await.expect("no panic");
    soon(async {
        while alive.load(Ordering::SeqCst) > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_client_that_is_gone_altogether_ends_its_handlers() {
    let (near, far) = tokio::io::duplex(64 << 10);
    hangs(near, far, Config::default(), |raw| async { drop(raw) }).await;
    let (near, far) = tcp().await;
    hangs(near, far, Config::default(), |raw| async { drop(raw) }).await;
}

#[tokio::test]
async fn a_client_that_waits_longer_than_the_limit_is_given_up() {
    let mut config = Config::default();
    config.set_half_close_timeout(Duration::from_millis(40));
    let (near, far) = tcp().await;
    hangs(near, far, config, |mut raw| async move {
        raw.io.shutdown().await.unwrap();
        let last = soon(raw.rest()).await.pop();
        assert!(last.is_some_and(|frame| frame.kind == frames::GOAWAY && frame.code() == 0));
    })
    .await;
}
