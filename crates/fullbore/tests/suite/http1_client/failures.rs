//! Servers of HTTP/1.1 that break the rules: a clear error each time, and no connection that is used again.

use fullbore::{Client, ErrorKind};
use http_body_util::BodyExt;

use super::raw::{OK, Raw, Site, client, fetch, http1};
use crate::support::soon;

/// What a server says to the first request, and the error of the client.
async fn error_of(answer: &str) -> fullbore::Error {
    let site = Site::says(answer).await;
    let client = client();
    let error = soon(fetch(&client, &site.url)).await.expect_err(answer);
    super::raw::until(|| client.connections(&site.url) == 0).await;
    assert_eq!(site.accepted(), 1, "{answer:?} is not asked for again");
    error
}

#[tokio::test]
async fn a_malformed_head_is_a_protocol_error() {
    for answer in [
        "HTTP/1.1 abc\r\n\r\n",
        "HTTP/1.1 200 OK\r\na: \0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 1x\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length : 5\r\ntransfer-encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/3.0 200 OK\r\n\r\n",
        "220 mail.example ESMTP\r\n",
    ] {
        let error = error_of(answer).await;
        assert_eq!(error.kind(), ErrorKind::Protocol, "{answer:?}: {error}");
    }
}

#[tokio::test]
async fn a_folded_field_is_one_field_and_a_line_that_is_none_is_left_out() {
    for (lines, value) in [
        ("a: b\r\n folded\r\n\t more\r\n", Some("b folded more")),
        ("a:\r\n b\r\n", Some("b")),
        ("a : b\r\n", Some("b")),
        ("a?: c\r\na: b\r\n", Some("b")),
        ("no colon\r\n", None),
        ("a b: c\r\n", None),
        (": c\r\n", None),
        ("a: b\u{1}c\r\n", None),
        ("a: b\u{7f}c\r\n", None),
    ] {
        let site = Site::says(format!("HTTP/1.1 200 OK\r\n{lines}content-length : 2\r\n\r\nok")).await;
        let response = soon(fetch(&client(), &site.url)).await.expect(lines);
        let found = response
            .headers()
            .get("a")
            .map(|value| value.to_str().expect("text"));
        let found = found.map(|value| value.split_whitespace().collect::<Vec<_>>().join(" "));
        assert_eq!(found.as_deref(), value, "{lines:?}");
        assert_eq!(
            response.headers().len(),
            1 + usize::from(value.is_some()),
            "{lines:?}"
        );
        assert_eq!(response.body(), "ok", "{lines:?}");
    }
}

#[tokio::test]
async fn a_head_that_is_too_large_is_a_protocol_error() {
    let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(70_000));
    let endless = format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(1_000_000));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(257));
    for answer in [long, endless, many] {
        let error = error_of(&answer).await;
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
        // The limit is the client's own.
        assert!(error.to_string().contains("max_header_fields"), "{error}");
    }
    let site = Site::says(format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(256))).await;
    assert!(soon(fetch(&client(), &site.url)).await.is_ok());
    let site = Site::says(format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(1_500))).await;
    let most = http1().config(|config| config.set_max_header_fields(1_500));
    assert!(soon(fetch(&most.build().unwrap(), &site.url)).await.is_ok());
    let three = http1()
        .config(|config| config.set_max_header_fields(3))
        .build()
        .unwrap();
    assert_eq!(
        soon(fetch(&three, &site.url)).await.unwrap_err().kind(),
        ErrorKind::Protocol
    );
}

#[tokio::test]
async fn a_chunked_body_beyond_a_limit_of_the_client_is_not_called_a_fault_of_the_server() {
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    for (rest, is_limit) in [
        (format!("5;{}\r\nhello\r\n0\r\n\r\n", "x".repeat(100_000)), true),
        (format!("0\r\nx: {}\r\n\r\n", "y".repeat(100_000)), true),
        ("x\r\n".to_owned(), false),
    ] {
        let error = error_of(&format!("{chunked}{rest}")).await;
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
        let blames_peer = error.to_string().contains("the peer violated");
        assert_eq!(blames_peer, !is_limit, "{error}");
    }
}

#[tokio::test]
async fn an_answer_that_ends_too_early_was_closed() {
    for answer in [
        "",
        "HTTP/1.1 200 OK\r\ncontent-le",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhell",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhell",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
    ] {
        let error = error_of(answer).await;
        assert_eq!(error.kind(), ErrorKind::Closed, "{answer:?}: {error}");
    }
}

#[tokio::test]
async fn broken_chunks_are_a_protocol_error() {
    for chunks in [
        "5g\r\nhello\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "5\r\nhelloXX0\r\n\r\n",
        "ffffffffffffffffff\r\nhello",
        "\r\n",
    ] {
        let error = error_of(&format!(
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{chunks}"
        ))
        .await;
        assert_eq!(error.kind(), ErrorKind::Protocol, "{chunks:?}: {error}");
    }
}

#[tokio::test]
async fn a_body_that_is_longer_than_announced_ends_at_its_length_and_the_connection_with_it() {
    let site = Site::start(|_, mut raw| async move {
        while raw.next().await.is_some() {
            raw.say("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil").await;
        }
    })
    .await;
    let client = client();
    for connection in 1..=3 {
        let response = soon(fetch(&client, &site.url)).await.unwrap();
        assert_eq!(response.body(), "hello");
        super::raw::until(|| client.connections(&site.url) == 0).await;
        assert_eq!(site.accepted(), connection);
    }
}

#[tokio::test]
async fn informational_responses_without_end_are_an_error() {
    let site = Site::start(|_, mut raw| async move {
        raw.next().await;
        for _ in 0..1_100 {
            raw.say("HTTP/1.1 103 Early Hints\r\n\r\n").await;
        }
        raw.next().await;
    })
    .await;
    let error = soon(fetch(&client(), &site.url)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
}

#[tokio::test]
async fn a_body_that_ends_with_the_connection_is_not_complete_if_tls_was_cut_off() {
    use fullbore::tls::{Roots, client_config, self_signed, server_config};
    use std::sync::Arc;
    use tokio::io::AsyncWriteExt;

    for cut in [false, true] {
        let made = self_signed(&["localhost"]).unwrap();
        let mut tls = server_config(made.cert_pem.as_bytes(), made.key_pem.as_bytes()).unwrap();
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(tls));
        let site = Site::start(move |_, raw| {
            let acceptor = acceptor.clone();
            async move {
                let mut raw = Raw::new(acceptor.accept(raw.io).await.unwrap());
                raw.next().await;
                raw.say("HTTP/1.1 200 OK\r\n\r\nhello").await;
                match cut {
                    // Nobody said that this was all.
                    true => raw.io.get_mut().0.shutdown().await.unwrap(),
                    false => raw.io.shutdown().await.unwrap(),
                }
                raw.next().await;
            }
        })
        .await;
        let url = site
            .url
            .replace("http:", "https:")
            .replace("127.0.0.1", "localhost");
        let roots = Arc::new(client_config(Roots::Pem(made.cert_pem.into_bytes())).unwrap());
        let client = Client::builder().tls_config(roots).build().unwrap();
        let received = soon(fetch(&client, &url)).await;
        match cut {
            true => assert_eq!(received.unwrap_err().kind(), ErrorKind::Closed),
            false => assert_eq!(received.unwrap().body(), "hello"),
        }
    }
}

#[tokio::test]
async fn a_body_error_is_told_once_and_the_pool_goes_on() {
    let site = Site::start(|number, mut raw| async move {
        raw.next().await;
        match number {
            0 => raw.say("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhe").await,
            _ => raw.say(OK).await,
        }
    })
    .await;
    let client = http1().max_connections(1).build().unwrap();
    let mut body = soon(client.get(&site.url)).await.unwrap().into_body();
    let waiting = tokio::spawn({
        let (client, url) = (client.clone(), site.url.clone());
        async move { fetch(&client, &url).await }
    });
    assert_eq!(
        soon(body.frame()).await.unwrap().unwrap().into_data().unwrap(),
        "he"
    );
    let error = soon(body.frame()).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    assert_eq!(soon(waiting).await.unwrap().unwrap().status(), 200);
    assert_eq!(site.accepted(), 2);
}
