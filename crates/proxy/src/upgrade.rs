//! Connections that become tunnels: WebSockets over HTTP/1.1 (RFC 6455) and HTTP/2 (RFC 8441), from either to either, and other
//! upgrades of HTTP/1.1.
//!
//! | client | origin | how |
//! |---|---|---|
//! | HTTP/1.1 | HTTP/1.1 | both connections are upgraded, and joined |
//! | HTTP/1.1 | HTTP/2 | extended CONNECT; its bodies are joined to the client's connection |
//! | HTTP/2 | HTTP/1.1 | a request with `upgrade`; its connection is joined to the client's bodies |
//! | HTTP/2 | HTTP/2 | extended CONNECT is passed on like any request |

use std::convert::Infallible;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use fullbore::BoxError;
use fullbore::ext::Protocol;
use http::header::{CONNECTION, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE};
use http::{HeaderMap, Method, Request, StatusCode, Version};
use http_body::{Body, Frame, SizeHint};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use sha1::{Digest as _, Sha1};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, WriteHalf};
use tokio::sync::{oneshot, watch};

use crate::body::{Reading, Tunnel};
use crate::fields::lists;
use crate::refusal::Refusal;

/// What the key of a WebSocket is hashed with (RFC 6455 section 1.3).
const KEY_SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

pub(crate) const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");

/// What the client wants its connection, or its stream, to become.
pub(crate) enum Wish {
    Nothing,
    /// The connection of HTTP/1.1, and the protocol that it asks for.
    Upgrade(OnUpgrade, HeaderValue),
    /// The stream: a WebSocket.
    WebSocket,
    /// The stream: another protocol.
    Stream,
}

impl Wish {
    /// What a request wants. Its fields are still those of the client.
    ///
    /// # Errors
    /// CONNECT would make a tunnel to any address.
    pub(crate) fn of(request: &mut Request<()>, is_whole: bool) -> Result<Self, Refusal> {
        if *request.method() == Method::CONNECT {
            return match request.extensions().get::<Protocol>() {
                Some(protocol) if protocol.as_str() == "websocket" => Ok(Wish::WebSocket),
                Some(_) => Ok(Wish::Stream),
                None => Err(Refusal::of_request(
                    StatusCode::METHOD_NOT_ALLOWED,
                    "CONNECT is not allowed here.",
                )),
            };
        }
        let headers = request.headers();
        // Behind a body the upgrade would have to wait; no client asks for that.
        let asks =
            is_whole && request.version() == Version::HTTP_11 && lists(headers, &CONNECTION, "upgrade");
        let mut protocols = headers.get_all(UPGRADE).iter();
        let (Some(protocol), None, true) = (protocols.next(), protocols.next(), asks) else {
            return Ok(Wish::Nothing);
        };
        if !may_upgrade_to(protocol.as_bytes()) {
            return Ok(Wish::Nothing);
        }
        let protocol = protocol.clone();
        Ok(match request.extensions_mut().remove::<OnUpgrade>() {
            Some(upgrade) => Wish::Upgrade(upgrade, protocol),
            None => Wish::Nothing,
        })
    }
}

/// Whether a connection may be upgraded to it: one protocol, and none of HTTP itself. HTTP/2 has begun, or not, before the first
/// request: an origin that switched to it would see requests that nobody has checked.
fn may_upgrade_to(protocol: &[u8]) -> bool {
    let is_http = |start: &[u8]| {
        let own = protocol.trim_ascii().get(..start.len());
        own.is_some_and(|own| own.eq_ignore_ascii_case(start))
    };
    !protocol.trim_ascii().is_empty() && !protocol.contains(&b',') && !is_http(b"h2") && !is_http(b"http")
}

/// Makes the fields of a request ask for an upgrade of HTTP/1.1.
pub(crate) fn ask(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, protocol);
}

/// Makes a WebSocket of HTTP/2 one of HTTP/1.1. Returns what the origin has to accept it with.
pub(crate) fn ask_for_web_socket(request: &mut Request<()>) -> HeaderValue {
    *request.method_mut() = Method::GET;
    request.extensions_mut().remove::<Protocol>();
    let key = HeaderValue::from_str(&new_key()).unwrap_or(WEBSOCKET);
    let accept = accept(&key);
    let headers = request.headers_mut();
    headers.insert(SEC_WEBSOCKET_KEY, key);
    ask(headers, WEBSOCKET);
    accept
}

/// Makes a WebSocket of HTTP/1.1 one of HTTP/2. Returns what the client is to be accepted with.
///
/// # Errors
/// It is none.
pub(crate) fn connect_web_socket(
    request: &mut Request<()>,
    protocol: &HeaderValue,
) -> Result<HeaderValue, Refusal> {
    let is_web_socket = protocol.as_bytes().eq_ignore_ascii_case(b"websocket");
    let key = request.headers_mut().remove(SEC_WEBSOCKET_KEY);
    let (true, &Method::GET, Some(key)) = (is_web_socket, request.method(), key) else {
        return Err(Refusal::of_request(
            StatusCode::BAD_REQUEST,
            "Only a WebSocket can be upgraded here.",
        ));
    };
    *request.method_mut() = Method::CONNECT;
    let protocol = Protocol::from_static("websocket");
    request.extensions_mut().insert(protocol);
    Ok(accept(&key))
}

/// The fields of an answer that accepts a WebSocket over HTTP/1.1.
pub(crate) fn accepted(headers: &mut HeaderMap, accept: HeaderValue) {
    headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    ask(headers, WEBSOCKET);
}

/// The field by which HTTP/1.1 accepts a WebSocket, which HTTP/2 does not have.
pub(crate) const ACCEPT: HeaderName = SEC_WEBSOCKET_ACCEPT;

/// The answer to a key (RFC 6455 section 4.2.2).
fn accept(key: &HeaderValue) -> HeaderValue {
    let hash = Sha1::new().chain_update(key.as_bytes()).chain_update(KEY_SUFFIX);
    HeaderValue::from_str(&STANDARD.encode(hash.finalize())).unwrap_or(WEBSOCKET)
}

/// A key of 16 octets, which differs from others and is no secret: it shows that the origin has read this request.
fn new_key() -> String {
    let random = || RandomState::new().build_hasher().finish().to_ne_bytes();
    STANDARD.encode([random(), random()].concat())
}

/// How long a side of a tunnel may take nothing of what is there for it. Then both ends are closed: whether the other side is
/// still there is not known while nothing is read from it. A tunnel without data waits for nothing.
const TAKES_NOTHING: Duration = Duration::from_secs(60);

/// How long one half of a tunnel may be silent once the other has ended. A client that has closed its connection cannot be
/// told from one that still reads, and an origin that ignores its end would keep both connections for ever.
const SILENT_HALF: Duration = Duration::from_secs(60);

/// A half of a tunnel. It is open until this is dropped.
pub(crate) type Half = watch::Sender<()>;

/// The other half of a tunnel.
pub(crate) struct Other(watch::Receiver<()>);

impl Other {
    pub(crate) fn half() -> (Half, Self) {
        let (half, other) = watch::channel(());
        (half, Self(other))
    }

    /// Waits until the other half has ended, and [`SILENT_HALF`] from then or from now on.
    async fn is_over(&mut self) {
        while self.0.changed().await.is_ok() {}
        tokio::time::sleep(SILENT_HALF).await;
    }
}

/// Joins two connections until both have ended, one takes nothing for [`TAKES_NOTHING`], or one has ended and the other is
/// silent for [`SILENT_HALF`].
pub(crate) async fn join(client: OnUpgrade, origin: OnUpgrade) {
    let (Ok(client), Ok(origin)) = (client.await, origin.await) else {
        return;
    };
    let _ = join_streams(TokioIo::new(client), TokioIo::new(origin)).await;
}

async fn join_streams<C, O>(client: C, origin: O) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite + Unpin,
    O: AsyncRead + AsyncWrite + Unpin,
{
    let (from_client, to_client) = tokio::io::split(client);
    let (from_origin, to_origin) = tokio::io::split(origin);
    let ((up, of_up), (down, of_down)) = (Other::half(), Other::half());
    let up = carry(from_client, to_origin, up, of_down);
    let down = carry(from_origin, to_client, down, of_up);
    tokio::try_join!(up, down).map(drop)
}

/// Carries what one side sends to the other, and its end.
async fn carry<R, W>(from: R, mut to: W, half: Half, mut other: Other) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut reading = Reading::new(from);
    loop {
        let frame = tokio::select! {
            biased;
            frame = std::future::poll_fn(|cx| reading.poll_frame(cx)) => frame,
            () = other.is_over() => return Err(io::ErrorKind::TimedOut.into()),
        };
        let Some(frame) = frame else {
            break;
        };
        if let Ok(data) = frame.map_err(io::Error::other)?.into_data() {
            write_whole(&mut to, &data).await?;
        }
    }
    // Before the end is passed on: a peer that reads nothing delays that.
    drop(half);
    shut_down(&mut to).await
}

/// Says that nothing follows. TLS sends an alert for that, which the socket may have no room for.
///
/// # Errors
/// It is not taken for [`TAKES_NOTHING`].
async fn shut_down<W: AsyncWrite + Unpin>(to: &mut W) -> io::Result<()> {
    match tokio::time::timeout(TAKES_NOTHING, to.shutdown()).await {
        Ok(ended) => ended,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Writes all of `data`.
///
/// # Errors
/// Nothing of it is taken for [`TAKES_NOTHING`].
async fn write_whole<W: AsyncWrite + Unpin>(to: &mut W, mut data: &[u8]) -> io::Result<()> {
    while !data.is_empty() {
        match tokio::time::timeout(TAKES_NOTHING, to.write(data)).await {
            Ok(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => data = &data[count?..],
            Err(_) => return Err(io::ErrorKind::TimedOut.into()),
        }
    }
    // TLS keeps what it has taken until then.
    match tokio::time::timeout(TAKES_NOTHING, to.flush()).await {
        Ok(flushed) => flushed,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// How long the origin gets what the client still sends once the response has ended. Then its connection is closed.
const LAST_OCTETS: Duration = Duration::from_secs(5);

/// As [`pass`], but no longer than a response that is gone when `response` is, and a while.
pub(crate) async fn pass_beside<B>(
    body: Pin<Box<B>>,
    tunnel: WriteHalf<TokioIo<Upgraded>>,
    response: oneshot::Receiver<Infallible>,
) where
    B: Body<Data = Bytes>,
{
    let is_over = async {
        let _ = response.await;
        tokio::time::sleep(LAST_OCTETS).await;
    };
    // The end of the other half is that of the response.
    let (_open, other) = Other::half();
    tokio::select! {
        () = pass(body, tunnel, other) => {}
        () = is_over => {}
    }
}

/// Writes a body to a connection that was upgraded, until it has ended, or the other half has and it is silent for
/// [`SILENT_HALF`].
pub(crate) async fn pass<B, W>(mut body: Pin<Box<B>>, mut tunnel: W, mut other: Other)
where
    B: Body<Data = Bytes>,
    W: AsyncWrite + Unpin,
{
    loop {
        let data = tokio::select! {
            biased;
            frame = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)) => match frame {
                Some(Ok(frame)) => frame.into_data(),
                // What was cut off does not end well. Without this half, the other one ends the connection.
                Some(Err(_)) => return,
                None => break,
            },
            () = other.is_over() => return,
        };
        if let Ok(data) = data {
            if write_whole(&mut tunnel, &data).await.is_err() {
                return;
            }
        }
    }
    let _ = shut_down(&mut tunnel).await;
}

/// What a client sends over HTTP/1.1 once its connection is upgraded. Without an upgrade there is nothing.
pub(crate) struct LateBody {
    tunnel: Option<oneshot::Receiver<Tunnel>>,
    reading: Option<Reading>,
    half: Option<Half>,
}

impl LateBody {
    /// The body, what gives it its connection, and its half of the tunnel for the other one.
    pub(crate) fn new() -> (oneshot::Sender<Tunnel>, Self, Other) {
        let (sender, receiver) = oneshot::channel();
        let (half, other) = Other::half();
        let body = Self {
            tunnel: Some(receiver),
            reading: None,
            half: Some(half),
        };
        (sender, body, other)
    }
}

impl Body for LateBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(tunnel) = &mut self.tunnel {
            let tunnel = ready!(Pin::new(tunnel).poll(cx));
            self.tunnel = None;
            self.reading = tunnel.ok().map(Reading::new);
        }
        let frame = match &mut self.reading {
            Some(reading) => ready!(reading.poll_frame(cx)),
            None => None,
        };
        if !matches!(frame, Some(Ok(_))) {
            self.half = None;
        }
        Poll::Ready(frame)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_upgraded_to_one_protocol_and_none_of_http() {
        for (protocol, may) in [
            ("websocket", true),
            ("TCP", true),
            ("h2c", false),
            (" H2C", false),
            ("websocket, h2c", false),
            (",h2c", false),
            ("HTTP/2.0", false),
            ("", false),
            (" ", false),
        ] {
            assert_eq!(may_upgrade_to(protocol.as_bytes()), may, "{protocol}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_side_of_a_tunnel_that_takes_nothing_ends_it_and_a_slow_one_does_not() {
        use tokio::io::AsyncReadExt as _;

        let (mut writer, mut reader) = tokio::io::duplex(4);
        let slow = tokio::spawn(async move {
            let mut octets = [0; 4];
            for _ in 0..3 {
                tokio::time::sleep(TAKES_NOTHING - Duration::from_secs(1)).await;
                reader.read_exact(&mut octets).await.expect("octets");
            }
            reader
        });
        write_whole(&mut writer, &[7; 12]).await.expect("it is slow");
        let reader = slow.await.expect("it reads");
        let begun = tokio::time::Instant::now();
        let error = write_whole(&mut writer, &[7; 12])
            .await
            .expect_err("nobody reads");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed().as_secs(), TAKES_NOTHING.as_secs());
        drop(reader);
    }

    #[tokio::test(start_paused = true)]
    async fn a_half_of_a_tunnel_whose_other_half_has_ended_is_not_silent_for_ever() {
        use tokio::io::AsyncReadExt as _;

        for client_ends in [true, false] {
            let (one, other) = (tokio::io::duplex(64), tokio::io::duplex(64));
            let joined = tokio::spawn(join_streams(one.1, other.1));
            let (mut ends, mut stays) = match client_ends {
                true => (one.0, other.0),
                false => (other.0, one.0),
            };
            // A tunnel without data waits for nothing.
            tokio::time::sleep(100 * SILENT_HALF).await;
            ends.write_all(b"bye").await.expect("it is open");
            ends.shutdown().await.expect("it is open");
            let mut last = Vec::new();
            stays.read_to_end(&mut last).await.expect("an end");
            assert_eq!(last, b"bye");
            // What comes behind the end of the other half is passed on, as long as something comes.
            let mut octets = [0; 4];
            for _ in 0..3 {
                tokio::time::sleep(SILENT_HALF - Duration::from_secs(1)).await;
                stays.write_all(b"late").await.expect("it is open");
                ends.read_exact(&mut octets).await.expect("octets");
            }
            let begun = tokio::time::Instant::now();
            let error = joined.await.expect("no panic").expect_err("it is silent");
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            assert_eq!(begun.elapsed().as_secs(), SILENT_HALF.as_secs());
        }
    }

    /// A connection whose peer has ended, and takes nothing more.
    struct Stuck;

    impl AsyncRead for Stuck {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &mut tokio::io::ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Stuck {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Pending
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_tunnel_whose_end_is_not_taken_is_closed() {
        // The origin ends without a word.
        let (near, _) = tokio::io::duplex(64);
        let hour = Duration::from_secs(3_600);
        let joined = tokio::time::timeout(hour, join_streams(Stuck, near)).await;
        let error = joined.expect("it is closed").expect_err("the end is not taken");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_of_a_tunnel_whose_client_has_ended_is_not_silent_for_ever() {
        use http_body_util::channel::Channel;

        let (mut say, body) = Channel::<Bytes, BoxError>::new(1);
        let (writer, _reader) = tokio::io::duplex(64);
        let (half, other) = Other::half();
        let passing = tokio::spawn(pass(Box::pin(body), writer, other));
        tokio::time::sleep(100 * SILENT_HALF).await;
        drop(half);
        tokio::time::sleep(SILENT_HALF - Duration::from_secs(1)).await;
        say.send_data(Bytes::from_static(b"late"))
            .await
            .expect("it is read");
        let begun = tokio::time::Instant::now();
        passing.await.expect("no panic");
        assert_eq!(begun.elapsed().as_secs(), SILENT_HALF.as_secs());
        assert!(say.send_data(Bytes::new()).await.is_err());
    }

    #[test]
    fn a_key_is_answered_as_the_standard_says() {
        // RFC 6455 section 1.3.
        let key = HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ==");
        assert_eq!(accept(&key), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        let (one, other) = (new_key(), new_key());
        assert_ne!(one, other);
        assert_eq!(STANDARD.decode(one).map(|key| key.len()), Ok(16));
    }

    #[test]
    fn a_request_wishes_what_its_version_can_have() {
        let wish = |version, method: &str, fields: &[(&str, &str)]| {
            let mut request = Request::builder().version(version).method(method);
            for (name, value) in fields {
                request = request.header(*name, *value);
            }
            let mut request = request.uri("http://h/").body(()).expect("a request");
            match Wish::of(&mut request, true) {
                Ok(Wish::Nothing) => "nothing",
                Ok(_) => "something",
                Err(refusal) => refusal.status.canonical_reason().expect("a reason"),
            }
        };
        let upgrade = [("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")];
        // There is no connection behind these.
        assert_eq!(wish(Version::HTTP_11, "GET", &upgrade), "nothing");
        assert_eq!(wish(Version::HTTP_10, "GET", &upgrade), "nothing");
        assert_eq!(wish(Version::HTTP_2, "GET", &upgrade), "nothing");
        assert_eq!(wish(Version::HTTP_2, "CONNECT", &[]), "Method Not Allowed");
        let h2c = [
            ("connection", "upgrade, http2-settings"),
            ("upgrade", "H2C, websocket"),
        ];
        assert_eq!(wish(Version::HTTP_11, "GET", &h2c), "nothing");
    }
}
