//! Which version of HTTP the client speaks with whom, and what reaches a server of the other one.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use fullbore::settings::HttpVersions;
use fullbore::tls::{Roots, client_config, self_signed, server_config};
use fullbore::{Client, Config, ErrorKind};
use fullbore_testing::frames;
use fullbore_testing::peer::Peer;
use http::{Method, Request, StatusCode, Version};
use http_body_util::Full;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::raw::{BAD, OK, Raw, Site, fetch, http1};
use crate::support::{Chunks, soon};

/// A server of HTTP/2 alone.
async fn serve_http2(stream: TcpStream) {
    let app = axum::Router::new().fallback(|| async { "two" });
    let _ = fullbore::server::serve_connection(stream, app, Config::default()).await;
}

#[tokio::test]
async fn a_server_that_answers_in_http_1_is_asked_in_http_1_and_remembered() {
    let requests = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&requests);
    let site = Site::start(move |_, mut raw| {
        let counter = Arc::clone(&counter);
        async move { raw.serve(&counter).await }
    })
    .await;
    let client = Client::new();
    for _ in 0..3 {
        let response = soon(fetch(&client, &site.url)).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.version(), Version::HTTP_11);
    }
    assert_eq!(requests.load(Ordering::SeqCst), 3);
    assert_eq!(
        site.accepted(),
        2,
        "one to learn the version, one for the requests"
    );
    assert_eq!(client.connections(&site.url), 1);
}

/// Python's `http.server` answers a request of HTTP/2.0 as one of HTTP/0.9.
#[tokio::test]
async fn a_server_that_answers_the_preface_with_a_page_alone_is_asked_in_http_1() {
    let site = Site::start(|_, mut raw| async move {
        while let Some(asked) = raw.next().await {
            if asked.is_preface() {
                return raw
                    .say("<!DOCTYPE HTML>\n<html lang=\"en\"><p>Error code: 505</p></html>\n")
                    .await;
            }
            raw.say(OK).await;
        }
    })
    .await;
    let response = soon(fetch(&Client::new(), &site.url)).await.unwrap();
    assert_eq!(response.version(), Version::HTTP_11);
    assert_eq!(site.accepted(), 2);
}

/// The connection may end before the request is on it, which then says why the connection ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_of_http_2_alone_says_what_the_peer_speaks_however_soon_it_answers() {
    let site = Site::start(|_, mut raw| async move { raw.say(BAD).await }).await;
    for _ in 0..60 {
        let client = Client::builder().http_versions(HttpVersions::Http2);
        let error = soon(client.build().unwrap().get(&site.url)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotHttp2, "{error}");
    }
}

#[tokio::test]
async fn a_port_that_speaks_tls_is_named() {
    // A fatal alert (RFC 8446 section 6), as TLS answers what is none.
    let site = Site::says("\u{15}\u{3}\u{3}\u{0}\u{2}\u{2}\u{32}").await;
    let error = soon(fetch(&Client::new(), &site.url)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotHttp2, "{error}");
    assert!(
        error
            .to_string()
            .ends_with("it answered with an alert of TLS; try https://"),
        "{error}"
    );
}

#[tokio::test]
async fn a_server_that_closes_at_the_preface_is_tried_in_http_1_by_one_connection_first() {
    let (requests, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counter, peak) = (Arc::clone(&requests), Arc::clone(&most));
    let site = Site::start(move |number, mut raw| {
        let (counter, peak) = (Arc::clone(&counter), Arc::clone(&peak));
        async move {
            while let Some(asked) = raw.next().await {
                if asked.is_preface() {
                    return;
                }
                if counter.fetch_add(1, Ordering::SeqCst) == 0 {
                    peak.store(number + 1, Ordering::SeqCst);
                }
                raw.say(OK).await;
            }
        }
    })
    .await;
    let client = Client::new();
    let mut tasks = JoinSet::new();
    for _ in 0..100 {
        let (client, url) = (client.clone(), site.url.clone());
        tasks.spawn(async move { fetch(&client, &url).await });
    }
    for result in soon(tasks.join_all()).await {
        assert_eq!(result.unwrap().version(), Version::HTTP_11);
    }
    assert_eq!(requests.load(Ordering::SeqCst), 100);
    assert_eq!(
        most.load(Ordering::SeqCst),
        2,
        "connections before the first answer"
    );
    assert!(site.accepted() <= 9, "{} connections", site.accepted());
}

#[tokio::test]
async fn a_peer_that_speaks_neither_version_is_asked_once_in_each() {
    let site = Site::start(|_, mut raw| async move { drop(raw.next().await) }).await;
    let client = Client::new();
    for attempt in 1..=2 {
        let error = soon(fetch(&client, &site.url)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotHttp2);
        assert!(error.to_string().contains("HTTP/1.1 too"), "{error}");
        assert_eq!(site.accepted(), 2 * attempt);
    }
}

#[tokio::test]
async fn a_peer_that_answers_in_something_else_is_asked_once_in_each_version() {
    let site = Site::says("SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n").await;
    let error = soon(fetch(&Client::new(), &site.url)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotHttp2, "{error}");
    assert_eq!(site.accepted(), 2);
}

#[tokio::test]
async fn no_octet_of_a_body_reaches_a_server_before_it_has_proved_to_speak_http_2() {
    // The body is itself a request, which a lenient server could take for one.
    const BODY: &str = "\r\n\r\nDELETE /all HTTP/1.1\r\nhost: a\r\n\r\n";
    for repeatable in [true, false] {
        let seen = Arc::new(Mutex::new((Vec::new(), Vec::new())));
        let book = Arc::clone(&seen);
        let site = Site::start(move |_, mut raw| {
            let book = Arc::clone(&book);
            async move {
                let Some(asked) = raw.next().await else { return };
                if !asked.is_preface() {
                    book.lock().unwrap().1.push(asked);
                    return raw.say(OK).await;
                }
                // Slow, so that whatever the client would send has time to come.
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                raw.say(BAD).await;
                let mut rest = raw.rest().to_vec();
                let _ = raw.io.read_to_end(&mut rest).await;
                book.lock().unwrap().0 = rest;
            }
        })
        .await;
        let client = Client::new();
        let request = Request::post(&site.url);
        let response = match repeatable {
            true => {
                soon(client.request_repeatable(request.body(Full::<bytes::Bytes>::from(BODY)).unwrap())).await
            }
            false => soon(client.request(request.body(Full::<bytes::Bytes>::from(BODY)).unwrap())).await,
        };
        assert_eq!(response.unwrap().version(), Version::HTTP_11);
        super::raw::until(|| !seen.lock().unwrap().0.is_empty()).await;
        let seen = seen.lock().unwrap();
        // After the first 18 octets of the preface: its end, and frames on stream 0.
        let mut rest = seen.0.strip_prefix(b"SM\r\n\r\n").expect("the preface");
        while let [a, b, c, _, _, 0, 0, 0, 0, frames @ ..] = rest {
            rest = &frames[u32::from_be_bytes([0, *a, *b, *c]) as usize..];
        }
        assert!(rest.is_empty(), "{rest:?} is of a stream");
        assert_eq!(seen.1.len(), 1, "the request was sent once");
        assert_eq!(seen.1[0].body, BODY.as_bytes());
    }
}

#[tokio::test]
async fn a_body_that_cannot_be_repeated_is_sent_whole_after_the_version_is_learnt() {
    let site = Site::start(|_, mut raw| async move {
        while let Some(asked) = raw.next().await {
            if asked.is_preface() {
                return;
            }
            assert_eq!(asked.body.len(), 100_000);
            raw.say(OK).await;
        }
    })
    .await;
    let client = Client::new();
    let request = Request::put(&site.url)
        .body(Chunks::new(100_000, 1_000).sized())
        .unwrap();
    assert_eq!(soon(client.request(request)).await.unwrap().status(), 200);
    assert_eq!(site.accepted(), 2);
}

#[tokio::test]
async fn a_server_that_changes_its_version_between_connections_is_followed_both_ways() {
    // HTTP/1.1, then HTTP/2, then HTTP/1.1.
    let era = Arc::new(AtomicUsize::new(0));
    let now = Arc::clone(&era);
    let site = Site::start(move |_, mut raw| {
        let now = Arc::clone(&now);
        async move {
            if now.load(Ordering::SeqCst) == 1 {
                let connection = tokio::spawn(serve_http2(raw.io));
                super::raw::until(|| now.load(Ordering::SeqCst) != 1).await;
                return connection.abort();
            }
            let Some(asked) = raw.next().await else { return };
            match asked.is_preface() {
                true => raw.say(BAD).await,
                false => {
                    raw.say("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 3\r\n\r\none")
                        .await
                }
            }
        }
    })
    .await;
    let client = Client::new();
    for (now, version) in [(0, Version::HTTP_11), (1, Version::HTTP_2), (2, Version::HTTP_11)] {
        era.store(now, Ordering::SeqCst);
        super::raw::until(|| client.connections(&site.url) == 0).await;
        for body in [false, true] {
            let request = Request::put(&site.url);
            let response = match body {
                true => soon(client.request(request.body(Full::<bytes::Bytes>::from("body")).unwrap())).await,
                false => soon(client.request(request.body(String::new()).unwrap())).await,
            };
            assert_eq!(response.unwrap().version(), version, "era {now}, body: {body}");
        }
    }
}

#[tokio::test]
async fn one_version_alone_is_spoken_on_request() {
    let site = Site::says(BAD).await;
    let client = Client::builder()
        .http_versions(HttpVersions::Http2)
        .build()
        .unwrap();
    let error = soon(fetch(&client, &site.url)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotHttp2);
    assert_eq!(site.accepted(), 1);

    let site = Site::start(|_, raw| serve_http2(raw.io)).await;
    let error = soon(fetch(&http1().build().unwrap(), &site.url))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
    assert!(error.to_string().contains("HTTP/2"), "{error}");
}

/// A TLS server whose ALPN is that of each connection, in order of preference, which answers in the version that was selected.
async fn tls_site(alpn: &'static [&'static str]) -> (Site, Vec<u8>) {
    tls_site_with(alpn, |stream| async {
        let app = axum::Router::new().fallback(|| async { "two" });
        let _ = fullbore::server::serve_connection(stream, app, Config::default()).await;
    })
    .await
}

/// As [`tls_site`], with connections of HTTP/2 served as `http2` says.
async fn tls_site_with<F, S>(alpn: &'static [&'static str], http2: F) -> (Site, Vec<u8>)
where
    F: Fn(TlsStream<TcpStream>) -> S + Copy + Send + Sync + 'static,
    S: Future<Output = ()> + Send,
{
    let made = self_signed(&["localhost"]).unwrap();
    let (cert, key) = (made.cert_pem.clone(), made.key_pem);
    let mut site = Site::start(move |number, raw| {
        let mut config = server_config(cert.as_bytes(), key.as_bytes()).unwrap();
        let protocols = alpn[number.min(alpn.len() - 1)].split_whitespace();
        config.alpn_protocols = protocols.map(|protocol| protocol.as_bytes().to_vec()).collect();
        async move {
            let Ok(stream) = TlsAcceptor::from(Arc::new(config)).accept(raw.io).await else {
                return;
            };
            if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                return http2(stream).await;
            }
            let mut raw = Raw::new(stream);
            while raw.next().await.is_some() {
                raw.say("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 3\r\n\r\none")
                    .await;
            }
        }
    })
    .await;
    site.url = site
        .url
        .replace("http:", "https:")
        .replace("127.0.0.1", "localhost");
    (site, made.cert_pem.into_bytes())
}

fn trusting(pem: Vec<u8>, versions: HttpVersions) -> Client {
    let tls = Arc::new(client_config(Roots::Pem(pem)).unwrap());
    Client::builder()
        .tls_config(tls)
        .http_versions(versions)
        .build()
        .unwrap()
}

#[tokio::test]
async fn alpn_decides_over_tls_and_no_answer_means_http_1() {
    for (alpn, versions, version) in [
        (&["h2 http/1.1"], HttpVersions::Both, Version::HTTP_2),
        (&["http/1.1"], HttpVersions::Both, Version::HTTP_11),
        (&[""], HttpVersions::Both, Version::HTTP_11),
        (&["http/1.1 h2"], HttpVersions::Http2, Version::HTTP_2),
        (&["h2 http/1.1"], HttpVersions::Http1, Version::HTTP_11),
    ] {
        let (site, pem) = tls_site(alpn).await;
        let client = trusting(pem, versions);
        let response = soon(fetch(&client, &site.url)).await.unwrap();
        assert_eq!(response.version(), version, "{alpn:?}");
        assert_eq!(site.accepted(), 1);
    }
}

#[tokio::test]
async fn alpn_without_a_version_of_ours_is_an_error_of_the_handshake() {
    for (alpn, versions) in [
        (&["spdy/3"], HttpVersions::Both),
        (&["http/1.1"], HttpVersions::Http2),
        (&["h2"], HttpVersions::Http1),
        (&[""], HttpVersions::Http2),
    ] {
        let (site, pem) = tls_site(alpn).await;
        let error = soon(fetch(&trusting(pem, versions), &site.url))
            .await
            .unwrap_err();
        assert_eq!(
            error.kind(),
            ErrorKind::NotHttp2,
            "{alpn:?} {versions:?}: {error}"
        );
        assert!(error.to_string().contains("ALPN"), "{error}");
    }
}

#[tokio::test]
async fn each_connection_over_tls_learns_the_version_anew() {
    let (site, pem) = tls_site(&["http/1.1", "h2"]).await;
    let client = trusting(pem, HttpVersions::Both);
    for version in [Version::HTTP_11, Version::HTTP_2, Version::HTTP_2] {
        assert_eq!(soon(fetch(&client, &site.url)).await.unwrap().version(), version);
        super::raw::until(|| client.connections(&site.url) == usize::from(version == Version::HTTP_2)).await;
    }
    assert_eq!(site.accepted(), 2);
}

/// Servers that ask for a certificate or for NTLM in the middle of a connection need HTTP/1.1 for it.
#[tokio::test]
async fn a_server_that_requires_http_1_for_a_request_is_offered_nothing_else_from_then_on() {
    let (site, pem) = tls_site_with(&["h2 http/1.1"], |stream| async {
        let mut peer = Peer::server(stream, &[]).await;
        while let Some(frame) = peer.next().await {
            if frame.kind == frames::HEADERS {
                // HTTP_1_1_REQUIRED.
                peer.send(frames::RST_STREAM, 0, frame.stream, &[0, 0, 0, 0xd])
                    .await;
            }
        }
    })
    .await;
    let client = trusting(pem, HttpVersions::Both);
    for accepted in [2, 3] {
        let response = soon(fetch(&client, &site.url)).await.unwrap();
        assert_eq!(
            (response.version(), response.status()),
            (Version::HTTP_11, StatusCode::OK)
        );
        assert_eq!(site.accepted(), accepted);
        super::raw::until(|| client.connections(&site.url) == 0).await;
    }
}

#[tokio::test]
async fn a_server_that_listens_again_in_another_version_is_found() {
    // The port is that of a server of HTTP/2, which ends; one of HTTP/1.1 takes its place.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let client = Client::new();
    let first = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let serving = tokio::spawn(serve_http2(stream));
        (listener, serving)
    });
    assert_eq!(
        soon(fetch(&client, &url)).await.unwrap().version(),
        Version::HTTP_2
    );
    let (listener, serving) = first.await.unwrap();
    serving.abort();
    super::raw::until(|| client.connections(&url) == 0).await;
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            Raw::new(stream).serve(&AtomicUsize::new(0)).await;
        }
    });
    let mut request = Request::new(String::new());
    *request.uri_mut() = url.parse().unwrap();
    *request.method_mut() = Method::DELETE;
    let response = soon(client.request(request)).await.unwrap();
    assert_eq!(
        (response.status(), response.version()),
        (StatusCode::OK, Version::HTTP_11)
    );
}
