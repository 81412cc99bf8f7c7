//! How calls end that no server ends well: the status that this channel reports, and the one of tonic's own. The tables
//! of the guide say the same.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fullbore::client::Proxies;
use fullbore::settings::{KeepAlive, MemoryBudget};
use fullbore::tls::{Roots, client_config, self_signed, server_config};
use fullbore::{BoxError, ErrorCode, ErrorKind};
use fullbore_tonic::{Channel, GrpcService};
use tonic::service::Routes;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Status};

use crate::scripts::{Script, Step, serve};
use crate::sites::{Site, soon};
use crate::support::client::Client;
use crate::support::echo::Echo;

use Script::*;
use Step::*;

/// The limits on time that are waited for: to connect, of keep-alive, and of a call. A row that the guide does not have is tried
/// again with longer ones: on a busy machine the server may take longer for its part.
const LIMITS: [Duration; 3] = [
    Duration::from_millis(500),
    Duration::from_secs(3),
    Duration::from_secs(12),
];

/// After how many limits a call counts as one that does not end.
const NO_END: u32 = 8;

const GRPC: (&str, &str) = ("content-type", "application/grpc");
const HTML: (&str, &str) = ("content-type", "text/html");
const PAGE: &[u8] = b"<html><body>Sorry</body></html>";

/// The guide, whose tables are checked.
const GUIDE: &str = include_str!("../../../../docs/guide/grpc.md");

/// What a call needs besides the server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Limits {
    None,
    /// Limits the time to connect, over TLS.
    Connect,
    /// Probes a silent server.
    KeepAlive,
    /// Has a deadline.
    Deadline,
}

/// The guide's table of connections and responses, row by row.
const ENDINGS: &[(&str, Script, Limits)] = &[
    (
        "the server closes each connection at once",
        CloseAtOnce,
        Limits::None,
    ),
    ("the server answers in HTTP/1.1", Http1, Limits::None),
    ("connecting takes too long (in TLS)", Silence, Limits::Connect),
    (
        "the connection is closed before the response",
        Steps(&[Close]),
        Limits::None,
    ),
    (
        "the connection is reset before the response",
        Steps(&[Abort]),
        Limits::None,
    ),
    (
        "the connection is closed in the response",
        Steps(&[Head, Half, Close]),
        Limits::None,
    ),
    (
        "the connection is reset in the response",
        Steps(&[Head, Half, Abort]),
        Limits::None,
    ),
    (
        "the server does not answer PING (keep-alive)",
        Steps(&[Sleep]),
        Limits::KeepAlive,
    ),
    ("the server violates HTTP/2", Steps(&[Violate]), Limits::None),
    (
        "GOAWAY (NO_ERROR) that leaves the call out",
        Steps(&[GoAway(0, 0), Close]),
        Limits::None,
    ),
    (
        "GOAWAY (ENHANCE_YOUR_CALM) that leaves the call out",
        Steps(&[GoAway(0, 0xb), Close]),
        Limits::None,
    ),
    (
        "GOAWAY (NO_ERROR) that covers the call, then the response",
        Steps(&[GoAway(1, 0), Head, Message, Trailers(&[("grpc-status", "0")])]),
        Limits::None,
    ),
    (
        "GOAWAY (NO_ERROR) that covers the call, then the end",
        Steps(&[GoAway(1, 0), Close]),
        Limits::None,
    ),
    (
        "GOAWAY (INTERNAL_ERROR) that covers the call, then the end",
        Steps(&[GoAway(1, 2), Close]),
        Limits::None,
    ),
    (
        "GOAWAY (ENHANCE_YOUR_CALM) that covers the call, then the end",
        Steps(&[GoAway(1, 0xb), Close]),
        Limits::None,
    ),
    (
        "the deadline passes before the response",
        Steps(&[]),
        Limits::Deadline,
    ),
    (
        "the deadline passes in the response",
        Steps(&[Head, Half]),
        Limits::Deadline,
    ),
    (
        "a response without trailers",
        Steps(&[Head, Message, Body(b"")]),
        Limits::None,
    ),
    (
        "trailers without `grpc-status`",
        Steps(&[Head, Message, Trailers(&[("x-other", "1")])]),
        Limits::None,
    ),
    (
        "a head alone, without `grpc-status`",
        Steps(&[HeadOf("200", &[GRPC], true)]),
        Limits::None,
    ),
    (
        "`grpc-status` is no number",
        Steps(&[HeadOf("200", &[GRPC, ("grpc-status", "x")], true)]),
        Limits::None,
    ),
    (
        "`grpc-status-details-bin` is not base64",
        Steps(&[HeadOf(
            "200",
            &[GRPC, ("grpc-status", "5"), ("grpc-status-details-bin", "!")],
            true,
        )]),
        Limits::None,
    ),
    (
        "`grpc-message` is not UTF-8",
        Steps(&[HeadOf(
            "200",
            &[GRPC, ("grpc-status", "5"), ("grpc-message", "%FF")],
            true,
        )]),
        Limits::None,
    ),
    (
        "half a message, then good trailers",
        Steps(&[Head, Half, Trailers(&[("grpc-status", "0")])]),
        Limits::None,
    ),
    (
        "no message, then good trailers",
        Steps(&[Head, Trailers(&[("grpc-status", "0")])]),
        Limits::None,
    ),
    (
        "200 with a page (`text/html`)",
        Steps(&[HeadOf("200", &[HTML], false), Body(PAGE)]),
        Limits::None,
    ),
    (
        "200 with another type (`application/grpc-web`)",
        Steps(&[
            HeadOf("200", &[("content-type", "application/grpc-web")], false),
            Body(PAGE),
        ]),
        Limits::None,
    ),
    (
        "301 with a page",
        Steps(&[HeadOf("301", &[HTML, ("location", "/")], false), Body(PAGE)]),
        Limits::None,
    ),
    (
        "400 with a page",
        Steps(&[HeadOf("400", &[HTML], false), Body(PAGE)]),
        Limits::None,
    ),
    (
        "401 with a page",
        Steps(&[HeadOf("401", &[HTML], false), Body(PAGE)]),
        Limits::None,
    ),
    (
        "403 with a page",
        Steps(&[HeadOf("403", &[HTML], false), Body(PAGE)]),
        Limits::None,
    ),
    (
        "404 with a page",
        Steps(&[HeadOf("404", &[HTML], false), Body(PAGE)]),
        Limits::None,
    ),
    (
        "429 with a page",
        Steps(&[HeadOf("429", &[HTML], false), Body(PAGE)]),
        Limits::None,
    ),
    (
        "500 with a page",
        Steps(&[HeadOf("500", &[HTML], false), Body(PAGE)]),
        Limits::None,
    ),
    (
        "502 with a page",
        Steps(&[HeadOf("502", &[HTML], false), Body(PAGE)]),
        Limits::None,
    ),
    (
        "503 with a page",
        Steps(&[HeadOf("503", &[HTML], false), Body(PAGE)]),
        Limits::None,
    ),
    (
        "504 with a page",
        Steps(&[HeadOf("504", &[HTML], false), Body(PAGE)]),
        Limits::None,
    ),
    (
        "400 without a body",
        Steps(&[HeadOf("400", &[], true)]),
        Limits::None,
    ),
    (
        "401 without a body",
        Steps(&[HeadOf("401", &[], true)]),
        Limits::None,
    ),
    (
        "403 without a body",
        Steps(&[HeadOf("403", &[], true)]),
        Limits::None,
    ),
    (
        "404 without a body",
        Steps(&[HeadOf("404", &[], true)]),
        Limits::None,
    ),
    (
        "429 without a body",
        Steps(&[HeadOf("429", &[], true)]),
        Limits::None,
    ),
    (
        "500 without a body",
        Steps(&[HeadOf("500", &[], true)]),
        Limits::None,
    ),
    (
        "502 without a body",
        Steps(&[HeadOf("502", &[], true)]),
        Limits::None,
    ),
    (
        "503 without a body",
        Steps(&[HeadOf("503", &[], true)]),
        Limits::None,
    ),
    (
        "504 without a body",
        Steps(&[HeadOf("504", &[], true)]),
        Limits::None,
    ),
    (
        "503 with `grpc-status` 8",
        Steps(&[HeadOf("503", &[GRPC, ("grpc-status", "8")], true)]),
        Limits::None,
    ),
];

/// RST_STREAM with each code that RFC 9113 names: before the response, and in it.
const RESETS: [(&[Step], &[Step]); 14] = [
    (&[Reset(0x0)], &[Head, Half, Reset(0x0)]),
    (&[Reset(0x1)], &[Head, Half, Reset(0x1)]),
    (&[Reset(0x2)], &[Head, Half, Reset(0x2)]),
    (&[Reset(0x3)], &[Head, Half, Reset(0x3)]),
    (&[Reset(0x4)], &[Head, Half, Reset(0x4)]),
    (&[Reset(0x5)], &[Head, Half, Reset(0x5)]),
    (&[Reset(0x6)], &[Head, Half, Reset(0x6)]),
    (&[Reset(0x7)], &[Head, Half, Reset(0x7)]),
    (&[Reset(0x8)], &[Head, Half, Reset(0x8)]),
    (&[Reset(0x9)], &[Head, Half, Reset(0x9)]),
    (&[Reset(0xa)], &[Head, Half, Reset(0xa)]),
    (&[Reset(0xb)], &[Head, Half, Reset(0xb)]),
    (&[Reset(0xc)], &[Head, Half, Reset(0xc)]),
    (&[Reset(0xd)], &[Head, Half, Reset(0xd)]),
];

#[tokio::test(flavor = "multi_thread")]
async fn calls_end_with_the_statuses_that_the_guide_lists() {
    let heading = "## When there is no status";
    let listed = listed(heading);
    let row = |name: &str, (ours, theirs): (String, String)| format!("| {name} | {ours} | {theirs} |");
    let mut rows = Vec::new();
    for (name, ends) in no_connections().await {
        rows.push(row(name, ends));
    }
    for (name, script, limits) in ENDINGS {
        let mut last = String::new();
        for limit in LIMITS {
            let origin = origin(*script, *limits).await;
            last = row(name, both(&origin, *limits, limit, None).await);
            if listed.get(rows.len()).is_some_and(|line| is_row(&last, line)) {
                break;
            }
        }
        rows.push(last);
    }
    check(heading, &rows);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_are_reset_end_with_the_statuses_that_the_guide_lists() {
    let mut rows = Vec::new();
    for (code, (before, within)) in (0..).zip(RESETS) {
        let before = origin(Steps(before), Limits::None).await;
        let within = origin(Steps(within), Limits::None).await;
        let (ours, theirs) = both(&before, Limits::None, LIMITS[2], None).await;
        let (ours_within, theirs_within) = both(&within, Limits::None, LIMITS[2], None).await;
        let name = ErrorCode(code);
        rows.push(format!(
            "| {name} | {ours} | {ours_within} | {theirs} | {theirs_within} |"
        ));
    }
    check("## When the server resets a call", &rows);
}

/// tonic's own channel knows no proxies, so the table has no row of it.
#[tokio::test]
async fn a_call_whose_proxy_refuses_the_connection_is_unavailable() {
    let proxy = serve(Http1).await;
    let proxies = Proxies::all(&format!("http://{proxy}")).expect("a proxy");
    let builder = Channel::from_static("https://grpc.example").client(|client| client.proxies(proxies));
    let mut client = Client::new(builder.connect_lazy().expect("a channel"));
    let call = client.unary(Request::new(Bytes::from_static(b"message")));
    let status = soon(call).await.expect_err("no connection");
    let source = status.source().and_then(|source| source.downcast_ref());
    assert_eq!(
        source.map(fullbore::Error::kind),
        Some(ErrorKind::Proxy),
        "{status}"
    );
    assert_eq!(status.code(), Code::Unavailable);
}

/// The rows of what prevents a connection.
async fn no_connections() -> Vec<(&'static str, (String, String))> {
    let nobody = fullbore_testing::nobody::Nobody::bind();
    let closed = format!("http://{nobody}");
    let plaintext = serve(Http1).await;
    let plaintext = format!("https://localhost:{}", plaintext.port());
    let (trusted, pem) = tls_site(&[b"h2"]).await;
    let (without_h2, its_pem) = tls_site(&[]).await;
    let other = self_signed(&["localhost"]).expect("a certificate").cert_pem;
    let none = Limits::None;
    vec![
        (
            "the name does not resolve",
            both("http://no-such-host.invalid", none, LIMITS[2], None).await,
        ),
        (
            "the connection is refused",
            both(&closed, none, LIMITS[2], None).await,
        ),
        (
            "the server speaks no TLS",
            both(&plaintext, none, LIMITS[2], Some(&other)).await,
        ),
        (
            "the certificate is not trusted",
            both(&trusted, none, LIMITS[2], Some(&other)).await,
        ),
        (
            "the certificate has another name",
            both(
                &trusted.replace("localhost", "127.0.0.1"),
                none,
                LIMITS[2],
                Some(&pem),
            )
            .await,
        ),
        (
            "the server selects no `h2` (ALPN)",
            both(&without_h2, none, LIMITS[2], Some(&its_pem)).await,
        ),
    ]
}

/// A server over TLS with this ALPN, and its certificate.
async fn tls_site(alpn: &[&[u8]]) -> (String, String) {
    let made = self_signed(&["localhost"]).expect("a certificate");
    let tls = server_config(made.cert_pem.as_bytes(), made.key_pem.as_bytes());
    let mut tls = tls.expect("a configuration");
    tls.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    let builder = fullbore::Server::builder().tls_config(Arc::new(tls));
    let server = builder.bind("127.0.0.1:0").await.expect("a port");
    let port = server.local_addr().expect("an address").port();
    let service = tower::service_fn(|_| async { Ok::<_, BoxError>(http::Response::new(String::new())) });
    tokio::spawn(server.serve(service));
    (format!("https://localhost:{port}"), made.cert_pem)
}

async fn origin(script: Script, limits: Limits) -> String {
    let address = serve(script).await;
    match limits {
        Limits::Connect => format!("https://localhost:{}", address.port()),
        _ => format!("http://{address}"),
    }
}

/// The status of a call on each channel.
async fn both(origin: &str, limits: Limits, limit: Duration, authority: Option<&str>) -> (String, String) {
    let made = || self_signed(&["localhost"]).expect("a certificate").cert_pem;
    let authority = authority.map_or_else(made, str::to_owned);
    let request = || {
        let mut request = Request::new(Bytes::from_static(b"message"));
        if limits == Limits::Deadline {
            request.set_timeout(limit);
        }
        request
    };

    let tls = client_config(Roots::Pem(authority.clone().into_bytes())).expect("a configuration");
    let builder = Channel::builder(origin.parse().expect("a URL")).client(|client| {
        let client = client
            .tls_config(Arc::new(tls))
            .repeat_pause(Duration::from_millis(1));
        match limits {
            Limits::Connect => client.connect_timeout(limit),
            Limits::KeepAlive => client
                .keep_alive(KeepAlive::WithStreams(limit))
                .config(|config| config.set_keep_alive_timeout(limit)),
            Limits::None | Limits::Deadline => client,
        }
    });
    let mut client = Client::new(builder.connect_lazy().expect("a channel"));
    let request_of_ours = request();
    let ours = tokio::spawn(async move { client.unary(request_of_ours).await.map(drop) });

    let mut endpoint = Endpoint::from_shared(origin.to_owned()).expect("a URL");
    if origin.starts_with("https:") {
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authority));
        endpoint = endpoint.tls_config(tls).expect("a configuration");
    }
    endpoint = match limits {
        Limits::Connect => endpoint.connect_timeout(limit),
        Limits::KeepAlive => endpoint
            .http2_keep_alive_interval(limit)
            .keep_alive_timeout(limit),
        Limits::None | Limits::Deadline => endpoint,
    };
    let mut client = Client::new(endpoint.connect_lazy());
    let request = request();
    let theirs = tokio::spawn(async move {
        let call = client.unary(request);
        tokio::time::timeout(limit * NO_END, call)
            .await
            .map(|answer| answer.map(drop))
    });

    let ours = soon(ours).await.expect("our channel does not panic");
    let theirs = match soon(theirs).await {
        Ok(Ok(ended)) => name(ended),
        Ok(Err(_)) => "does not end".to_owned(),
        Err(_) => "panics".to_owned(),
    };
    (name(ours), theirs)
}

/// The name of a status in the tables of gRPC.
fn name(ended: Result<(), Status>) -> String {
    let code = ended.map_or_else(|status| status.code(), |()| Code::Ok);
    let mut name = String::new();
    for letter in format!("{code:?}").chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

/// The cells of a row that are not empty.
fn cells(row: &str) -> impl Iterator<Item = &str> {
    row.split('|').map(str::trim).filter(|cell| !cell.is_empty())
}

/// The rows of a table of the guide.
fn listed(heading: &str) -> Vec<&'static str> {
    let section = GUIDE.split(heading).nth(1).expect("the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with('|'));
    rows.skip(2).collect()
}

/// Compares a row with one of the guide, which may have a further cell. A cell of the guide may name two codes, where tonic's
/// depends on which of its tasks is faster.
fn is_row(row: &str, line: &str) -> bool {
    let mut listed = cells(line);
    cells(row).all(|cell| {
        listed
            .next()
            .is_some_and(|codes| codes.split(" or ").any(|code| code == cell))
    })
}

fn check(heading: &str, rows: &[String]) {
    let listed = listed(heading);
    let same = rows.len() == listed.len() && rows.iter().zip(&listed).all(|(row, line)| is_row(row, line));
    let rows = rows.join("\n");
    assert!(same, "{heading}: the guide has other rows than these:\n{rows}\n");
}

#[tokio::test]
async fn limits_of_the_client_and_its_shutdown_have_statuses_of_their_own() {
    let mut site = Site::fullbore().await;
    let origin = || site.origin().parse().expect("a URL");
    let none = MemoryBudget::new(1);
    let builder = Channel::builder(origin()).client(|client| client.memory_budget(none));
    let mut client = Client::new(builder.connect_lazy().expect("a channel"));
    let status = soon(client.unary(Bytes::new())).await.expect_err("no memory");
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");

    let builder = Channel::builder(origin()).client(|client| client.request_timeout(Some(LIMITS[0])));
    let mut client = Client::new(builder.connect_lazy().expect("a channel"));
    let status = soon(client.wait(Bytes::new())).await.expect_err("no answer");
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");

    let mut request = Request::new(Bytes::new());
    // HTTP/2 has no such field (RFC 9113 section 8.2.2).
    let field = "websocket".parse().expect("a value");
    request.metadata_mut().insert("upgrade", field);
    let mut client = Client::new(site.channel());
    let status = soon(client.unary(request)).await.expect_err("not sent");
    assert_eq!(status.code(), Code::Internal, "{status:?}");
    site.began("Wait").await;
}

#[tokio::test]
async fn a_call_that_waits_for_a_stream_is_canceled_when_its_client_shuts_down() {
    let server = fullbore::Server::builder().max_concurrent_streams(1);
    let server = server.bind("127.0.0.1:0").await.expect("a port");
    let origin = format!("http://{}", server.local_addr().expect("an address"));
    let (echo, _events) = Echo::new();
    tokio::spawn(server.serve(GrpcService::new(Routes::new(echo))));
    let builder = Channel::builder(origin.parse().expect("a URL"));
    let builder = builder.client(|client| client.max_connections(1));
    let channel = soon(builder.connect()).await.expect("a channel");
    let mut client = Client::new(channel.clone());
    // The server's limit has to be known.
    soon(client.unary(Bytes::new())).await.expect("an answer");
    let messages = soon(client.drip(Bytes::from("one"))).await.expect("a head");
    let call = tokio::spawn(async move { client.unary(Bytes::new()).await });
    while channel.client().stats().iter().all(|origin| origin.waiting == 0) {
        tokio::task::yield_now().await;
    }
    let shut = channel.clone();
    let shutting = tokio::spawn(async move { shut.client().shutdown().await });
    let status = soon(call).await.expect("no panic").expect_err("canceled");
    assert_eq!(status.code(), Code::Cancelled, "{status:?}");
    drop(messages);
    soon(shutting).await.expect("no panic");
}
