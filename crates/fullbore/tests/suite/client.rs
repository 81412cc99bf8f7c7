//! What a pooled client is told beside limits: methods, default header fields, and a connector of the caller's.

use std::io;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::routing::any;
use bytes::Bytes;
use fullbore::client::Body;
use fullbore::settings::TcpBuffers;
use fullbore::tls::{Roots, client_config, self_signed, server_config};
use fullbore::{Client, ClientBuilder, Error, ErrorKind, Incoming, Server};
use http::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use http::{Method, Request, Response, Uri};
use http_body_util::BodyExt;
use tokio::io::DuplexStream;
use tokio::net::TcpStream;

use crate::support::{Chunks, soon};

/// Answers with the method, the URI, the header fields and the body of the request.
fn echo() -> Router {
    Router::new().fallback(any(
        |method: Method, uri: Uri, headers: HeaderMap, body: Bytes| async move {
            let mut text = format!("{method} {uri}\n");
            for (name, value) in &headers {
                text += &format!("{name}: {}\n", value.to_str().unwrap());
            }
            text + &String::from_utf8_lossy(&body)
        },
    ))
}

/// Serves on a pipe instead of a socket.
fn pipe() -> DuplexStream {
    let (near, far) = tokio::io::duplex(64 << 10);
    tokio::spawn(fullbore::server::serve_connection(
        far,
        echo(),
        fullbore::Config::default(),
    ));
    near
}

/// A client that asks for no content coding.
fn plain() -> ClientBuilder {
    Client::builder().decompression(false)
}

/// A client whose connector notes the URLs that it gets.
fn client() -> (Client, Arc<Mutex<Vec<Uri>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&asked);
    let connector = tower::service_fn(move |uri| {
        noted.lock().unwrap().push(uri);
        std::future::ready(Ok::<_, io::Error>(pipe()))
    });
    (plain().connector(connector).build().unwrap(), asked)
}

async fn text(response: Result<impl Into<Response<Incoming>>, Error>) -> String {
    let body = response.expect("a response").into().into_body();
    let bytes = soon(body.collect()).await.expect("a body").to_bytes();
    String::from_utf8(bytes.to_vec()).expect("text")
}

#[tokio::test]
async fn post_and_put_send_bodies_of_known_and_unknown_length() {
    let (client, _) = client();
    let whole = text(soon(client.post("http://test.example/a").body("whole")).await).await;
    assert_eq!(whole, "POST http://test.example/a\ncontent-length: 5\nwhole");
    let bytes = Bytes::from("bytes");
    let whole = text(soon(client.put("http://test.example/b").body(bytes)).await).await;
    assert_eq!(whole, "PUT http://test.example/b\ncontent-length: 5\nbytes");
    let whole = text(soon(client.put("http://test.example/c")).await).await;
    assert_eq!(whole, "PUT http://test.example/c\ncontent-length: 0\n");
    let streamed = soon(
        client
            .post("http://test.example/d")
            .body(Body::wrap(Chunks::new(70_000, 1_000))),
    )
    .await;
    let bytes = soon(streamed.expect("a response").into_body().collect()).await;
    let streamed = bytes.expect("a body").to_bytes();
    assert!(streamed.starts_with(b"POST http://test.example/d\n"));
    assert!(streamed.len() > 70_000);
    let error = client.post("no URL").await.expect_err("no URL");
    assert_eq!(error.kind(), ErrorKind::InvalidUrl);
}

#[tokio::test]
async fn default_header_fields_are_in_every_request_that_has_none_of_their_name() {
    let list = HeaderName::from_static("x-list");
    let mut defaults = HeaderMap::new();
    defaults.insert(USER_AGENT, HeaderValue::from_static("probe/1"));
    defaults.append(&list, HeaderValue::from_static("one"));
    defaults.append(&list, HeaderValue::from_static("two"));
    let connector = tower::service_fn(|_: Uri| std::future::ready(Ok::<_, io::Error>(pipe())));
    let builder = plain().default_headers(defaults).connector(connector);
    let client = builder.build().unwrap();
    let plain = "GET http://test.example/\nuser-agent: probe/1\nx-list: one\nx-list: two\n";
    assert_eq!(text(soon(client.get("http://test.example/")).await).await, plain);
    let own = || {
        let request = Request::get("http://test.example/")
            .header(USER_AGENT, "mine")
            .header(&list, "three");
        request.header(ACCEPT, "*/*").body(String::new()).unwrap()
    };
    let kept = "GET http://test.example/\nuser-agent: mine\nx-list: three\naccept: */*\n";
    assert_eq!(text(soon(client.request(own())).await).await, kept);
    assert_eq!(text(soon(client.request_repeatable(own())).await).await, kept);
}

#[tokio::test]
async fn a_connector_gets_the_url_of_the_origin_with_its_port_once_for_each_connection() {
    let (client, asked) = client();
    for url in [
        "http://test.example/a?b=c",
        "http://test.example/again",
        "http://test.example:8080/",
        "http://[::1]:8080/",
    ] {
        text(soon(client.get(url)).await).await;
    }
    let expected = [
        "http://test.example:80/",
        "http://test.example:8080/",
        "http://[::1]:8080/",
    ];
    assert_eq!(*asked.lock().unwrap(), expected);
}

#[cfg(unix)]
#[tokio::test]
async fn a_connector_opens_unix_sockets() {
    let folder = std::env::temp_dir().join(format!("fullbore-unix-{}", std::process::id()));
    // Of an earlier process of this number.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("socket");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let serving = tokio::spawn(async move {
        let (io, _) = listener.accept().await.unwrap();
        fullbore::server::serve_connection(io, echo(), fullbore::Config::default()).await
    });
    let socket = tower::service_fn(move |_: Uri| tokio::net::UnixStream::connect(path.clone()));
    let client = plain().connector(socket).build().unwrap();
    let answer = text(soon(client.get("http://app/hello")).await).await;
    assert_eq!(answer, "GET http://app/hello\n");
    soon(client.shutdown()).await;
    soon(serving).await.unwrap().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
}

#[tokio::test]
async fn tls_is_put_on_the_transport_of_a_connector_and_verifies_the_name_of_the_url() {
    let made = self_signed(&["app.example"]).unwrap();
    let tls = server_config(made.cert_pem.as_bytes(), made.key_pem.as_bytes()).unwrap();
    let builder = Server::builder().tls_config(Arc::new(tls));
    let server = builder.bind("127.0.0.1:0").await.unwrap();
    let address = server.local_addr().unwrap();
    let serving = tokio::spawn(server.serve(echo()));
    // Every name has the server's address.
    let resolve = tower::service_fn(move |_: Uri| async move {
        let stream = TcpStream::connect(address).await?;
        TcpBuffers::default().apply(&stream);
        assert!(stream.nodelay()?);
        io::Result::Ok(stream)
    });
    let tls = client_config(Roots::Pem(made.cert_pem.into_bytes())).unwrap();
    let builder = plain().tls_config(Arc::new(tls)).connector(resolve);
    let client = builder.build().unwrap();
    let answer = text(soon(client.get("https://app.example/secret")).await).await;
    assert_eq!(answer, "GET https://app.example/secret\n");
    let error = soon(client.get("https://other.example/"))
        .await
        .expect_err("another name");
    assert_eq!(error.kind(), ErrorKind::Certificate, "{error}");
    serving.abort();
}

#[tokio::test]
async fn an_error_of_a_connector_says_for_which_origin_and_keeps_its_kind_if_it_is_ours() {
    use std::error::Error as _;

    let fails = tower::service_fn(|_: Uri| async {
        io::Result::<DuplexStream>::Err(io::Error::other("the proxy is shut"))
    });
    let client = Client::builder().connector(fails).build().unwrap();
    let error = soon(client.get("http://test.example/"))
        .await
        .expect_err("it fails");
    assert_eq!(error.kind(), ErrorKind::Connect);
    let text = "http://test.example/: cannot connect: the connector failed for http://test.example:80/";
    assert_eq!(error.to_string(), text);
    assert_eq!(error.source().unwrap().to_string(), "the proxy is shut");
    let inner = Client::new();
    let fails = tower::service_fn(move |_: Uri| {
        let inner = inner.clone();
        async move {
            inner.get("ftp://no.example/").await?;
            Result::<DuplexStream, Error>::Ok(pipe())
        }
    });
    let client = Client::builder().connector(fails).build().unwrap();
    let error = soon(client.get("http://test.example/"))
        .await
        .expect_err("it fails");
    assert_eq!(error.kind(), ErrorKind::InvalidUrl);
}

#[tokio::test]
async fn a_client_connects_before_its_first_request() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let client = Client::new();
    soon(client.connect(&url)).await.unwrap();
    assert_eq!(client.connections(&url), 1);
    soon(client.connect(&url)).await.unwrap();
    assert_eq!(client.connections(&url), 1);
    let nobody = fullbore_testing::nobody::Nobody::bind();
    let error = soon(Client::new().connect(&format!("http://{nobody}/")))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connect, "{error}");
    let error = soon(client.connect("/path")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidUrl, "{error}");
}
