//! What HTTP/1.1 forbids, and what smuggles a request past a proxy: an answer that says so, and the end of the connection.

use super::*;

/// The server refuses this with a status and reads nothing behind it.
async fn refused(text: &str) -> u16 {
    let mut raw = Raw::new();
    raw.say(text).await;
    raw.say(get("/")).await;
    let said = raw.rest().await;
    assert_eq!(raw.seen.begun(), 0, "{text:?} reached a handler");
    let [status] = statuses(&said)[..] else {
        panic!("{text:?} was answered by {said:?}");
    };
    assert!(!said.contains("HTTP/1.1 200"), "{text:?}");
    status
}

#[tokio::test]
async fn lengths_that_contradict_each_other() {
    for fields in [
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 5, 6\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: -5\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length: 99999999999999999999\r\n",
        "Content-Length: \r\n",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "content-length:0\r\ntransfer-encoding:chunked\r\n",
        "Transfer-Encoding: gzip\r\n",
        "Transfer-Encoding: chunked, gzip\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding:\x0bchunked\r\n",
        " Transfer-Encoding: chunked\r\n",
        "X: y\r\n Transfer-Encoding: chunked\r\n",
        "Content-Length : 5\r\n",
    ] {
        let request = post("/", fields, "5\r\nhello\r\n0\r\n\r\n");
        assert_eq!(refused(&request).await, 400, "{fields:?}");
    }
}

#[tokio::test]
async fn a_transfer_coding_that_is_not_implemented() {
    for coding in ["gzip, chunked", "identity, chunked", "deflate,chunked"] {
        let request = post("/", &format!("Transfer-Encoding: {coding}\r\n"), "0\r\n\r\n");
        assert_eq!(refused(&request).await, 501, "{coding}");
    }
    let old = "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    assert_eq!(refused(old).await, 400);
}

#[tokio::test]
async fn heads_that_are_no_heads() {
    for head in [
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: user@a\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n",
        "GET a HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET * HTTP/1.1\r\nHost: a\r\n\r\n",
        "CONNECT / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1 \r\nHost: a\r\n\r\n",
        "GET / HTTP/2.0\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.2\r\nHost: a\r\n\r\n",
        "GET /\x7f HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX y: z\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n: z\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nnothing\r\n\r\n",
        "(GET) / HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        assert_eq!(refused(head).await, 400, "{head:?}");
    }
}

#[tokio::test]
async fn a_peer_that_speaks_neither_version() {
    for said in [
        "\x16\x03\x01\x02\x00\x01\x00\x01\x7c\x03\x03",
        "SSH-2.0-x\r\n",
        "\0\0\0\0",
    ] {
        assert_eq!(refused(said).await, 400, "{said:?}");
    }
    let mut raw = Raw::new();
    raw.say("PRI * HTTP/1.1\r\n\r\n").await;
    assert!(!raw.rest().await.starts_with("HTTP/1.1"));
    assert!(raw.served().await.is_err());
}

#[tokio::test]
async fn a_head_that_is_too_large() {
    let mut config = Config::default();
    config.set_max_header_list_size(10_000);
    let long = format!("GET / HTTP/1.1\r\nHost: h\r\nX: {}\r\n\r\n", "x".repeat(10_000));
    let mut raw = Raw::with(config);
    raw.say(long).await;
    assert_eq!(statuses(&raw.rest().await), [431]);
    assert_eq!(raw.seen.begun(), 0);
    let many = |count| format!("GET / HTTP/1.1\r\nHost: h\r\n{}\r\n", "X: y\r\n".repeat(count));
    let mut config = Config::default();
    assert_eq!(statuses(&Raw::with(config.clone()).ask(many(90)).await), [200]);
    assert_eq!(statuses(&Raw::with(config.clone()).ask(many(110)).await), [431]);
    config.set_max_header_fields(20);
    assert_eq!(statuses(&Raw::with(config.clone()).ask(many(19)).await), [200]);
    assert_eq!(statuses(&Raw::with(config).ask(many(20)).await), [431]);
    let uri = format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "x".repeat(70_000));
    let mut config = Config::default();
    config.set_max_header_list_size(100_000);
    let mut raw = Raw::with(config);
    raw.say(uri).await;
    assert_eq!(statuses(&raw.rest().await), [414]);
}

#[tokio::test]
async fn a_head_that_comes_in_pieces_behind_other_requests_is_checked() {
    let chunked = post("/", "Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n0\r\n\r\n");
    let both = post("/", "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", "");
    let (first, second) = both.split_at(40);
    let mut raw = Raw::new();
    // More of them than is kept of what was read.
    for request in [
        get("/"),
        chunked.clone(),
        get(&format!("/{}", "x".repeat(20_000))),
        chunked,
    ] {
        raw.say(request).await;
        let (head, _) = raw.hear(7).await;
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    }
    raw.say(first).await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    raw.say(second).await;
    assert_eq!(statuses(&raw.rest().await), [400]);
    assert_eq!(raw.seen.begun(), 4);
}

#[tokio::test]
async fn a_smuggled_request_behind_another_reaches_no_handler() {
    let smuggling = post(
        "/",
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        "0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n",
    );
    for first in [get("/"), post("/", "Content-Length: 3\r\n", "abc")] {
        let raw = Raw::new();
        let seen = Arc::clone(&raw.seen);
        let said = raw.ask([first, smuggling.clone()].concat()).await;
        assert_eq!(statuses(&said), [200, 400], "{said}");
        assert_eq!(seen.begun(), 1);
    }
}
