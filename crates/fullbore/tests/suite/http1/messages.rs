//! Requests and responses as HTTP/1.1 frames them.

use super::*;

#[tokio::test]
async fn a_request_is_answered_and_the_connection_serves_the_next() {
    let mut raw = Raw::new();
    for _ in 0..3 {
        raw.say(get("/")).await;
        let (head, body) = raw.hear(7).await;
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(
            head.contains("content-length: 7\r\n") && head.contains("\r\ndate: "),
            "{head}"
        );
        assert_eq!(body, b"0 and 0");
    }
    assert_eq!(raw.seen.begun(), 3);
    raw.served().await.expect("a clean end");
}

#[tokio::test]
async fn a_client_that_begins_with_the_preface_is_served_over_http2() {
    for pieces in [1, 3, 24] {
        let mut raw = Raw::new();
        for piece in b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".chunks(24 / pieces) {
            raw.say(piece).await;
            tokio::task::yield_now().await;
        }
        // SETTINGS, empty on both sides but for the server's values.
        raw.say([0, 0, 0, 4, 0, 0, 0, 0, 0]).await;
        let mut frame = [0; 9];
        soon(raw.io.read_exact(&mut frame)).await.expect("a frame");
        assert_eq!((frame[3], frame[4]), (4, 0), "SETTINGS");
    }
}

#[tokio::test]
async fn a_first_octet_that_no_preface_has_is_enough_for_http1() {
    for method in ["GET", "PUT", "POST", "PATCH", "PROPFIND", "OPTIONS"] {
        let mut raw = Raw::new();
        for octet in format!("{method} / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").bytes() {
            raw.say([octet]).await;
            tokio::task::yield_now().await;
        }
        assert_eq!(statuses(&raw.rest().await), [200], "{method}");
    }
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let all = [
        get("/"),
        post("/", "Content-Length: 3\r\n", "abc"),
        get("/empty"),
        get("/"),
    ]
    .concat();
    let said = Raw::new().ask(all).await;
    assert_eq!(statuses(&said), [200, 200, 204, 200], "{said}");
    let [first, second] = ["0 and 0", "3 and 0"].map(|text| said.find(text).expect("a body"));
    assert!(first < second, "{said}");
}

#[tokio::test]
async fn a_client_says_that_it_closes() {
    let mut raw = Raw::new();
    raw.say("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        .await;
    let said = raw.rest().await;
    assert!(
        said.contains("connection: close\r\n") && said.ends_with("0 and 0"),
        "{said}"
    );
    raw.served().await.expect("a clean end");
}

#[tokio::test]
async fn a_client_of_http_1_0_is_answered_and_the_connection_closed_unless_it_asks() {
    let mut raw = Raw::new();
    raw.say("GET / HTTP/1.0\r\n\r\n").await;
    let said = raw.rest().await;
    assert!(
        said.starts_with("HTTP/1.0 200 OK\r\n") && said.ends_with("0 and 0"),
        "{said}"
    );
    let mut raw = Raw::new();
    for _ in 0..2 {
        raw.say("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").await;
        let (head, _) = raw.hear(7).await;
        assert!(head.contains("connection: keep-alive\r\n"), "{head}");
    }
    let said = Raw::new().ask("GET /chunks HTTP/1.0\r\n\r\n").await;
    assert!(!said.contains("chunked") && said.ends_with(&*String::from_utf8_lossy(&pattern(0, 10))));
}

#[tokio::test]
async fn a_response_of_unknown_length_is_chunked_and_one_without_a_body_has_none() {
    let said = Raw::new().ask(get("/chunks")).await;
    assert!(
        said.contains("transfer-encoding: chunked\r\n") && said.ends_with("\r\n0\r\n\r\n"),
        "{said}"
    );
    for (request, status) in [
        ("GET /empty HTTP/1.1\r\nHost: h\r\n\r\n", 204),
        ("GET /unchanged HTTP/1.1\r\nHost: h\r\n\r\n", 304),
        ("HEAD / HTTP/1.1\r\nHost: h\r\n\r\n", 200),
    ] {
        let said = Raw::new().ask(request).await;
        assert_eq!(statuses(&said), [status]);
        assert!(said.ends_with("\r\n\r\n") && !said.contains("chunked"), "{said}");
    }
    let said = Raw::new().ask("HEAD / HTTP/1.1\r\nHost: h\r\n\r\n").await;
    assert!(said.contains("content-length: 7\r\n"), "{said}");
}

#[tokio::test]
async fn trailers_that_the_response_names_are_sent_to_a_client_that_takes_them() {
    let said = Raw::new()
        .ask("GET /trailers HTTP/1.1\r\nHost: h\r\nTE: trailers\r\n\r\n")
        .await;
    assert!(said.starts_with("HTTP/1.1 200 OK\r\n"), "{said}");
    assert!(said.ends_with("\r\n0\r\nx-sum: 5\r\n\r\n"), "{said}");
    let said = Raw::new().ask(get("/trailers")).await;
    assert!(said.ends_with("\r\n0\r\n\r\n"), "{said}");
}

#[tokio::test]
async fn a_handler_that_panics_or_fails_is_a_500_and_ends_its_connection() {
    for path in ["/panic", "/fail"] {
        let mut raw = Raw::new();
        raw.say(get(path)).await;
        let said = raw.rest().await;
        assert_eq!(statuses(&said), [500], "{said}");
        assert!(said.contains("connection: close\r\n"), "{said}");
        raw.served().await.expect("a clean end");
    }
}

#[tokio::test]
async fn a_panic_loses_nothing_of_the_responses_before_it() {
    for path in ["/panic", "/fail"] {
        let mut raw = Raw::new();
        raw.say([get("/chunks"), get("/empty"), get(path), get("/")].concat())
            .await;
        let said = raw.rest().await;
        assert_eq!(statuses(&said), [200, 204, 500], "{said}");
        assert_eq!(raw.seen.begun(), 3);
        raw.served().await.expect("a clean end");
    }
}

#[tokio::test]
async fn a_body_that_panics_ends_its_connection_with_an_error() {
    let mut raw = Raw::new();
    raw.say([get("/empty"), get("/late-panic")].concat()).await;
    let said = raw.rest().await;
    assert_eq!(statuses(&said), [204, 200], "{said}");
    assert!(!said.ends_with("0\r\n\r\n"), "not as if it were complete: {said}");
    raw.served().await.expect_err("a response without its end");
}

#[tokio::test]
async fn a_request_in_the_absolute_form_is_answered() {
    let said = Raw::new()
        .ask("GET http://example.com/empty HTTP/1.1\r\nHost: example.com\r\n\r\n")
        .await;
    assert_eq!(statuses(&said), [204]);
    let said = Raw::new().ask("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n").await;
    assert_eq!(statuses(&said), [200]);
}
