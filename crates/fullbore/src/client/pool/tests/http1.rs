//! HTTP/1.1 under the paused clock: the limits on time, and how long connections stay.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

const BUSY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

fn http1() -> ClientBuilder {
    Client::builder().http_versions(HttpVersions::Http1)
}

/// Reads a head; false at the end.
async fn head(io: &mut End) -> bool {
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n") {
        match io.read_u8().await {
            Ok(octet) => read.push(octet),
            Err(_) => return false,
        }
    }
    true
}

/// Answers each request at once.
pub(super) async fn answer(site: Arc<Site>, mut io: End) {
    site.open.fetch_add(1, Ordering::SeqCst);
    while head(&mut io).await {
        site.requests.fetch_add(1, Ordering::SeqCst);
        let _ = io.write_all(OK).await;
    }
    site.open.fetch_sub(1, Ordering::SeqCst);
}

/// A server that serves one connection after the other, each until it is closed.
async fn serve_one_by_one(site: Arc<Site>, io: End, turn: Arc<tokio::sync::Mutex<()>>) {
    let _turn = turn.lock().await;
    answer(site, io).await;
}

#[tokio::test(start_paused = true)]
async fn idle_connections_make_way_at_a_server_that_serves_one_after_the_other() {
    let turn = Arc::new(tokio::sync::Mutex::new(()));
    let serve = move |site, io| serve_one_by_one(site, io, Arc::clone(&turn));
    let (site, client) = Site::start_with(plan(MS, 0), http1(), serve);
    let begun = Instant::now();
    all(begin(&client, 20).await).await;
    assert_eq!(site.requests.load(Ordering::SeqCst), 20);
    assert!(begun.elapsed() < MS * 2_500, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn no_request_starves_at_a_server_that_serves_one_connection_after_the_other() {
    let turn = Arc::new(tokio::sync::Mutex::new(()));
    let serve = move |site, io| serve_one_by_one(site, io, Arc::clone(&turn));
    let (_, client) = Site::start_with(plan(MS * 5, 0), http1(), serve);
    let busy = client.clone();
    let busy = tokio::spawn(async move { keep_busy(&busy, 10, MS * 60_000).await });
    sleep(MS * 10).await;
    let begun = Instant::now();
    all(begin(&client, 1).await).await;
    // Each of the connections before it has its turn.
    assert!(begun.elapsed() < MS * 20_000, "{:?}", begun.elapsed());
    busy.await.expect("no panic");
}

#[tokio::test(start_paused = true)]
async fn connections_beyond_those_that_a_server_takes_cost_no_request() {
    for says in [&b""[..], BUSY] {
        let serve = move |site: Arc<Site>, mut io: End| async move {
            if site.open.load(Ordering::SeqCst) < 2 {
                return answer_slowly(site, io).await;
            }
            // A server that answers goes on to do so.
            while head(&mut io).await && !says.is_empty() {
                let _ = io.write_all(says).await;
            }
        };
        let (site, client) = Site::start_with(plan(MS, 0), http1(), serve);
        all(begin(&client, 50).await).await;
        assert_eq!(site.requests.load(Ordering::SeqCst), 50);
        // Eight, and none for a second.
        assert!(site.dials() <= 8, "{}", site.dials());
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_turns_every_request_away_is_heard() {
    let (_, client) = Site::start_with(plan(MS, 0), http1(), |_, mut io| async move {
        while head(&mut io).await {
            let _ = io.write_all(BUSY).await;
        }
    });
    let requests: Vec<_> = (0..20)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.get("http://one.example/").await })
        })
        .collect();
    for request in requests {
        let response = request.await.expect("no panic").expect("an answer");
        assert_eq!(response.status(), 503);
    }
}

/// As [`answer`], 10 ms later.
async fn answer_slowly(site: Arc<Site>, mut io: End) {
    site.open.fetch_add(1, Ordering::SeqCst);
    while head(&mut io).await {
        site.requests.fetch_add(1, Ordering::SeqCst);
        sleep(MS * 10).await;
        let _ = io.write_all(OK).await;
    }
    site.open.fetch_sub(1, Ordering::SeqCst);
}

/// Says this when it reads the preface of HTTP/2, and answers in HTTP/1.1.
async fn answer_http1(site: Arc<Site>, mut io: End, to_preface: &'static [u8]) {
    let mut first = [0; 3];
    if io.read_exact(&mut first).await.is_err() {
        return;
    }
    if first == *b"PRI" {
        let _ = io.write_all(to_preface).await;
        let _ = io.read_to_end(&mut Vec::new()).await;
        return;
    }
    answer(site, io).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_the_preface_with_silence_or_nonsense_is_tried_in_http1() {
    for (said, within) in [(&b""[..], 3_100), (b"what is this supposed to be", 100)] {
        let serve = move |site, io| answer_http1(site, io, said);
        let (site, client) = Site::start_with(plan(MS, 0), Client::builder(), serve);
        let begun = Instant::now();
        all(begin(&client, 20).await).await;
        assert!(begun.elapsed() < MS * within, "{:?}", begun.elapsed());
        assert_eq!(site.requests.load(Ordering::SeqCst), 20);
        // From then on it is known.
        let begun = Instant::now();
        all(begin(&client, 1).await).await;
        assert!(begun.elapsed() < MS * 10, "{:?}", begun.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_silent_server_may_still_process_is_not_sent_twice() {
    let serve = |site, io| answer_http1(site, io, b"");
    let (site, client) = Site::start_with(plan(MS, 0), Client::builder(), serve);
    let error = client
        .post("http://one.example/")
        .await
        .expect_err("it is silent");
    assert_eq!(error.kind(), ErrorKind::NotHttp2, "{error}");
    // A body waits for SETTINGS, so that nothing of this request was sent.
    let answered = client
        .post("http://one.example/")
        .body(RequestBody::wrap("body".to_owned()))
        .await;
    assert_eq!(answered.expect("an answer").status(), 200);
    assert_eq!(site.requests.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_speaks_neither_version_is_named_after_one_attempt_of_each() {
    let (site, client) = Site::start_with(plan(MS, 0), Client::builder(), |_, mut io| async move {
        let _ = io
            .write_all(
                b"220 mail.example ESMTP
",
            )
            .await;
        let _ = io.read_to_end(&mut Vec::new()).await;
    });
    let error = client.get("http://one.example/").await.expect_err("no HTTP");
    assert_eq!(error.kind(), ErrorKind::NotHttp2, "{error}");
    assert!(error.to_string().contains("HTTP/1.1"), "{error}");
    assert_eq!(site.dials(), 2);
}

/// Says this to the first request, and nothing more.
fn saying(builder: ClientBuilder, pieces: Vec<(Duration, &'static [u8])>) -> Client {
    let (_, client) = Site::start_with(plan(Duration::ZERO, 0), builder, move |_, mut io| {
        let pieces = pieces.clone();
        async move {
            head(&mut io).await;
            for (pause, piece) in pieces {
                sleep(pause).await;
                let _ = io.write_all(piece).await;
            }
            let _ = io.read_to_end(&mut Vec::new()).await;
        }
    });
    client
}

/// The error of a GET, and when it came.
async fn failure(client: &Client) -> (Error, Duration) {
    let begun = Instant::now();
    let error = async {
        let mut body = client.get("http://one.example/").await?.into_body();
        loop {
            match std::future::poll_fn(|cx| std::pin::Pin::new(&mut body).poll_frame(cx)).await {
                Some(frame) => drop(frame?),
                None => return Ok::<_, Error>(()),
            }
        }
    };
    let error = error.await.expect_err("the exchange is late");
    (error, begun.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_respond_is_a_timeout() {
    let client = saying(http1().response_timeout(Some(MS * 5_000)), Vec::new());
    let (error, after) = failure(&client).await;
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(after >= MS * 5_000 && after < MS * 5_100, "{after:?}");
    assert_eq!(client.connections("http://one.example/"), 0);
}

#[tokio::test(start_paused = true)]
async fn without_a_limit_a_response_may_take_an_hour() {
    let client = saying(http1(), vec![(Duration::from_secs(3_600), OK)]);
    client.get("http://one.example/").await.expect("a response");
}

#[tokio::test(start_paused = true)]
async fn a_head_that_is_not_complete_in_time_is_a_timeout() {
    let (second, limit) = (MS * 1_000, MS * 10_000);
    let slow = vec![(second, &b"H"[..]); 20];
    let client = saying(http1().header_timeout(limit), slow);
    let (error, after) = failure(&client).await;
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    // From the first octet.
    assert!(after >= limit + second && after < limit + second * 2, "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn an_informational_response_begins_the_limit_of_the_head_anew() {
    const HINTS: &[u8] = b"HTTP/1.1 103 Early Hints\r\n\r\n";
    let minute = Duration::from_secs(60);
    let slow = vec![(MS, HINTS), (minute, HINTS), (minute, HINTS), (minute, OK)];
    let client = saying(http1(), slow);
    client.get("http://one.example/").await.expect("a response");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_pauses_or_is_too_slow_is_a_timeout() {
    const BEGIN: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n";
    let pauses = vec![(Duration::ZERO, BEGIN), (MS * 1_000, b"x")];
    let client = saying(http1().body_timeout(Some(MS * 7_000)), pauses);
    let (error, after) = failure(&client).await;
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(after >= MS * 8_000 && after < MS * 8_100, "{after:?}");

    let mut slow = vec![(MS * 1_000, &b"x"[..]); 100];
    slow[0] = (Duration::ZERO, BEGIN);
    let client = saying(http1().body_timeout(Some(MS * 7_000)).body_rate(10), slow);
    let (error, after) = failure(&client).await;
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(after >= MS * 7_000 && after < MS * 8_100, "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_is_slow_is_no_timeout() {
    let whole = &b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"[..];
    let client = saying(
        http1().body_timeout(Some(MS * 7_000)),
        vec![(Duration::ZERO, whole)],
    );
    let mut body = client
        .get("http://one.example/")
        .await
        .expect("a response")
        .into_body();
    sleep(Duration::from_secs(3_600)).await;
    let frame = std::future::poll_fn(|cx| std::pin::Pin::new(&mut body).poll_frame(cx)).await;
    assert_eq!(
        frame
            .expect("a frame")
            .expect("no error")
            .into_data()
            .expect("data"),
        "hello"
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_reads_nothing_is_a_timeout() {
    let dial: Dial = Arc::new(|| {
        Box::pin(async {
            let full = Script {
                capacity: 1_000,
                ..Script::ideal()
            };
            let (near, far) = link(full, full);
            tokio::spawn(async move {
                sleep(Duration::from_secs(10_000)).await;
                drop(far);
            });
            Ok(Box::new(near) as Box<dyn Transport>)
        })
    });
    let client = client_by(dial, http1().send_timeout(Some(MS * 9_000)));
    let begun = Instant::now();
    let mut request = Request::new("x".repeat(10_000));
    *request.uri_mut() = "http://one.example/".parse().expect("a URL");
    let error = client.request(request).await.expect_err("nothing is read");
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(begun.elapsed() >= MS * 9_000 && begun.elapsed() < MS * 9_100);
}

#[tokio::test(start_paused = true)]
async fn idle_connections_close_after_their_time_the_last_one_too() {
    let (site, client) = Site::start_with(plan(MS, 0), http1(), answer);
    all(begin(&client, 8).await).await;
    update().await;
    assert_eq!((site.dials(), site.requests.load(Ordering::SeqCst)), (8, 8));
    assert_eq!(stats(&client).connections, 6);
    // One is used in between.
    sleep(Duration::from_secs(20)).await;
    client.get("http://one.example/").await.expect("a response");
    sleep(Duration::from_secs(15)).await;
    assert_eq!(
        (stats(&client).connections, site.open.load(Ordering::SeqCst)),
        (1, 1)
    );
    sleep(Duration::from_secs(16)).await;
    assert_eq!(
        (stats(&client).connections, site.open.load(Ordering::SeqCst)),
        (0, 0)
    );
    assert_eq!(site.dials(), 8);
}

#[tokio::test(start_paused = true)]
async fn the_first_connection_is_alone_until_the_version_is_known() {
    let slow = Plan {
        opening: MS * 100,
        ..plan(MS, 0)
    };
    let (site, client) = Site::start_with(slow, Client::builder(), |site, mut io| async move {
        // The preface.
        let mut first = [0; 3];
        if io.read_exact(&mut first).await.is_ok() && &first == b"PRI" {
            let _ = io.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
            return;
        }
        answer(site, io).await;
    });
    let requests = begin(&client, 20).await;
    sleep(MS * 101).await;
    assert_eq!(site.dials(), 1);
    all(requests).await;
    assert_eq!(site.dials(), 9);
    assert_eq!(site.requests.load(Ordering::SeqCst), 20);
}

#[tokio::test(start_paused = true)]
async fn an_origin_that_closes_at_the_preface_gets_further_connections_once_it_has_answered_in_http1() {
    let slow = Plan {
        opening: MS * 100,
        ..plan(MS, 0)
    };
    let (site, client) = Site::start_with(slow, Client::builder(), |site, mut io| async move {
        let mut first = [0; 3];
        if io.read_exact(&mut first).await.is_ok() && &first != b"PRI" {
            answer(site, io).await;
        }
    });
    let requests = begin(&client, 20).await;
    sleep(MS * 101).await;
    assert_eq!(site.dials(), 1);
    sleep(MS * 100).await;
    assert_eq!(site.dials(), 2);
    all(requests).await;
    // The first one carries all of them while seven others are opened.
    let stats = stats(&client);
    assert_eq!((site.dials(), stats.connections, stats.opening), (9, 1, 7));
    assert_eq!(site.requests.load(Ordering::SeqCst), 20);
}

#[tokio::test(start_paused = true)]
async fn connections_that_cannot_be_opened_are_few_and_fail_those_who_wait_together() {
    let (site, client) = Site::start_with(plan(MS, 0), http1(), answer);
    client.get("http://one.example/").await.expect("a response");
    sleep(Duration::from_secs(60)).await;
    site.refuses.store(true, Ordering::SeqCst);
    let waiting: Vec<_> = (0..50)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.get("http://one.example/").await })
        })
        .collect();
    for request in waiting {
        let error = request.await.expect("no panic").expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Connect);
    }
    assert!(site.dials() <= 1 + 8, "{} attempts", site.dials());
    assert_eq!((stats(&client).waiting, stats(&client).opening), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_request_leaves_through_a_transport_that_keeps_what_is_not_flushed() {
    let dial: Dial = Arc::new(|| {
        Box::pin(async {
            let (near, far) = link(Script::ideal(), Script::ideal());
            tokio::spawn(answer(Arc::new(Site::default()), far));
            Ok(Box::new(tokio::io::BufWriter::new(near)) as Box<dyn Transport>)
        })
    });
    let client = client_by(dial, http1());
    for _ in 0..2 {
        let response = tokio::time::timeout(MS * 1_000, client.get("http://one.example/")).await;
        response.expect("the request has left").expect("a response");
    }
    assert_eq!(stats(&client).connections, 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_not_sent_goes_before_those_that_came_later() {
    let order = Arc::new(Mutex::new(String::new()));
    let noted = Arc::clone(&order);
    let builder = http1().max_connections(1);
    // The first connection closes behind its first response, and does not say so.
    let (site, client) = Site::start_with(plan(Duration::ZERO, 0), builder, move |site, mut io| {
        let noted = Arc::clone(&noted);
        async move {
            loop {
                let mut read = Vec::new();
                while !read.ends_with(b"\r\n\r\n") {
                    match io.read_u8().await {
                        Ok(octet) => read.push(octet),
                        Err(_) => return,
                    }
                }
                let path = *read
                    .iter()
                    .skip_while(|octet| **octet != b'/')
                    .nth(1)
                    .expect("a path");
                noted.lock().expect("no panic").push(char::from(path));
                if read.starts_with(b"POST") {
                    let _ = io.read_exact(&mut [0; 4]).await;
                }
                let _ = io.write_all(OK).await;
                if site.dials() == 1 {
                    return site.release.notified().await;
                }
            }
        }
    });
    client.get("http://one.example/0").await.expect("a response");
    // The connection's task has not heard of the end when the next request takes it.
    site.release.notify_one();
    let send = |path: &'static str| {
        let client = client.clone();
        tokio::spawn(async move {
            let url = format!("http://one.example/{path}");
            let body = http_body_util::Full::new(Bytes::from_static(b"body"));
            client
                .post(&url)
                .body(RequestBody::wrap(body))
                .await
                .expect("a response");
        })
    };
    let requests = vec![send("1"), send("2"), send("3")];
    all(requests).await;
    assert_eq!(
        (order.lock().expect("no panic").as_str(), site.dials()),
        ("0123", 2)
    );
}

/// The last octet of the next request's path; none at the end.
async fn path(io: &mut End) -> Option<u8> {
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n") {
        read.push(io.read_u8().await.ok()?);
    }
    let end = read.windows(6).position(|octets| octets == b" HTTP/")?;
    read.get(end - 1).copied()
}

#[tokio::test(start_paused = true)]
async fn idle_connections_are_closed_when_the_server_has_closed_one_and_busy_ones_are_not() {
    // A request for "c" closes its connection, the first time. One for "h" is answered when it is released.
    let (site, client) = Site::start_with(plan(MS, 0), http1(), |site, mut io| async move {
        site.open.fetch_add(1, Ordering::SeqCst);
        while let Some(path) = path(&mut io).await {
            site.requests.fetch_add(1, Ordering::SeqCst);
            match path {
                b'c' if !site.held.swap(true, Ordering::SeqCst) => break,
                b'h' => site.release.notified().await,
                _ => {}
            }
            let _ = io.write_all(OK).await;
        }
        site.open.fetch_sub(1, Ordering::SeqCst);
    });
    let get = |path: &'static str| {
        let client = client.clone();
        tokio::spawn(async move {
            let url = format!("http://one.example/{path}");
            client.get(&url).await.expect("a response");
        })
    };
    all((0..3).map(|_| get("x")).collect()).await;
    let held = get("h");
    update().await;
    assert_eq!((stats(&client).connections, stats(&client).in_flight), (3, 1));
    get("c").await.expect("it is sent again");
    update().await;
    sleep(MS * 10).await;
    // The busy one, and a new one.
    assert_eq!(
        (stats(&client).connections, site.open.load(Ordering::SeqCst)),
        (2, 2)
    );
    assert_eq!(site.dials(), 4);
    site.release.notify_one();
    held.await.expect("no panic");
    assert_eq!((site.dials(), site.requests.load(Ordering::SeqCst)), (4, 6));
    let report = client.http1_report().expect("connections were opened");
    assert_eq!(report.connections, 4);
}

#[tokio::test(start_paused = true)]
async fn an_origin_that_spoke_http2_and_closes_at_the_preface_is_looked_at_anew() {
    // It speaks HTTP/2 on its first connection, and HTTP/1.1 on all others.
    let (site, client) = Site::start_with(plan(MS, 0), Client::builder(), |site, mut io| async move {
        if site.dials() == 1 {
            tokio::select! {
                () = Arc::clone(&site).serve(io, 10) => {}
                () = site.release.notified() => {}
            }
            return;
        }
        let mut first = [0; 3];
        if io.read_exact(&mut first).await.is_ok() && &first != b"PRI" {
            answer(site, io).await;
        }
    });
    client.get("http://one.example/").await.expect("a response");
    site.release.notify_one();
    sleep(MS * 10).await;
    assert_eq!(stats(&client).connections, 0);
    client
        .get("http://one.example/")
        .await
        .expect_err("it spoke HTTP/2 before");
    assert_eq!(site.dials(), 2);
    client.get("http://one.example/").await.expect("in HTTP/1.1");
    assert_eq!(site.dials(), 4);
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_was_answered_and_does_not_go_on_frees_its_connection() {
    const REFUSED: &[u8] =
        b"HTTP/1.1 413 Content Too Large\r\nconnection: close\r\ncontent-length: 3\r\n\r\nbig";
    const KEPT: &[u8] = b"HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno";
    const ANSWERED: &[u8] = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok";
    const KEPT_OPEN: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    // Whether the server closes, or reads no more. The last answer keeps the connection open, over a transport whose writes
    // fail when they are flushed.
    for (answer, breaks, buffer) in [
        (REFUSED, true, 0),
        (REFUSED, false, 0),
        (KEPT, false, 0),
        (ANSWERED, true, 0),
        (KEPT_OPEN, true, 200_000),
    ] {
        let dial: Dial = Arc::new(move || {
            Box::pin(async move {
                let mut script = Script::ideal();
                match breaks {
                    true => script.breaks_after = Some(10_000),
                    false => script.capacity = 10_000,
                }
                let (near, mut far) = link(script, Script::ideal());
                tokio::spawn(async move {
                    head(&mut far).await;
                    let _ = far.write_all(answer).await;
                    std::future::pending::<()>().await;
                });
                let near = tokio::io::BufWriter::with_capacity(buffer, near);
                Ok(Box::new(near) as Box<dyn Transport>)
            })
        });
        let client = client_by(dial, http1().max_connections(1));
        let begun = Instant::now();
        for _ in 0..3 {
            // It is handed over at once.
            let body = http_body_util::Full::<Bytes>::from(vec![0; 100_000]);
            let sent = tokio::time::timeout(
                MS * 10_000,
                client.post("http://one.example/").body(RequestBody::wrap(body)),
            );
            let response = sent.await.expect("a connection is free").expect("a response");
            assert_eq!(response.status().as_str().as_bytes(), &answer[9..12]);
            let mut body = response.into_body();
            while let Some(frame) =
                std::future::poll_fn(|cx| std::pin::Pin::new(&mut body).poll_frame(cx)).await
            {
                frame.expect("the body arrives");
            }
        }
        assert_eq!(begun.elapsed(), Duration::ZERO, "{answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_the_response_begins_when_the_announced_length_was_sent() {
    let client = saying(http1().response_timeout(Some(MS * 1_000)), Vec::new());
    // hyper does not ask for the end of such a body.
    let request = Request::post("http://one.example/")
        .header("content-length", 4)
        .body(Unsized(Some(Bytes::from_static(b"body"))))
        .expect("a request");
    let sent = tokio::time::timeout(MS * 10_000, client.request(request));
    let error = sent.await.expect("an end").expect_err("no response");
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
}

#[tokio::test(start_paused = true)]
async fn whoever_has_a_connection_that_was_upgraded_learns_of_a_failed_write_at_once() {
    const SWITCHED: &[u8] =
        b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";
    let dial: Dial = Arc::new(|| {
        Box::pin(async {
            let breaks = Script {
                breaks_after: Some(10_000),
                ..Script::ideal()
            };
            let (near, mut far) = link(breaks, Script::ideal());
            tokio::spawn(async move {
                head(&mut far).await;
                let _ = far.write_all(SWITCHED).await;
                let _ = far.read_to_end(&mut Vec::new()).await;
            });
            Ok(Box::new(near) as Box<dyn Transport>)
        })
    });
    let client = client_by(dial, http1());
    let request = Request::get("http://one.example/")
        .header("connection", "upgrade")
        .header("upgrade", "echo")
        .body(String::new())
        .expect("a request");
    let response = client.request(request).await.expect("a response");
    assert_eq!(response.status(), 101);
    let upgraded = hyper::upgrade::on(response).await.expect("the connection");
    let mut io = hyper_util::rt::TokioIo::new(upgraded);
    let begun = Instant::now();
    let mut written = 0;
    let writes = async {
        while io.write_all(&[7; 1_000]).await.is_ok() {
            written += 1;
        }
    };
    let failed = tokio::time::timeout(MS * 10_000, writes).await;
    failed.expect("the writer is told");
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert!((1..10).contains(&written), "{written}");
}

/// A body of one frame that does not say how long it is.
pub(super) struct Unsized(pub(super) Option<Bytes>);

impl Body for Unsized {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Error>>> {
        let frame = self.0.take().map(|data| Ok(http_body::Frame::data(data)));
        std::task::Poll::Ready(frame)
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_an_octet_shorter_or_longer_than_announced_fails_on_this_side() {
    let (_, client) = Site::start_with(plan(MS, 0), http1(), answer);
    for (announced, fits) in [(3, false), (4, true), (5, false)] {
        let request = Request::post("http://one.example/")
            .header("content-length", announced)
            .body(Unsized(Some(Bytes::from_static(b"body"))))
            .expect("a request");
        let ended = tokio::time::timeout(MS * 1_000, client.request(request)).await;
        match ended.expect("an end") {
            Ok(_) => assert!(fits, "{announced} octets were announced"),
            Err(error) => {
                assert!(!fits, "{error}");
                assert!(!error.is_closed(), "{error}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_time_for_a_response_begins_when_its_request_is_sent() {
    let builder = http1().max_connections(1).response_timeout(Some(MS * 5_000));
    let (_, client) = Site::start_with(plan(MS, 0), builder, answer_slowly);
    let first = begin(&client, 1).await;
    // It waits for the connection, which is free, and not idle for too long, when the caller asks again.
    let mut second = std::pin::pin!(client.get("http://one.example/").into_future());
    let asked_once = std::future::poll_fn(|cx| std::task::Poll::Ready(second.as_mut().poll(cx).is_pending()));
    assert!(asked_once.await);
    all(first).await;
    sleep(MS * 10_000).await;
    assert_eq!(second.await.expect("an answer").status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_has_served_keeps_its_limits_on_time() {
    // How long the server takes for each answer, and the client until it asks again. The last request gets none.
    const ROUNDS: [(u32, u32); 6] = [
        (0, 0),
        (4_900, 0),
        (0, 4_900),
        (10, 8_000),
        (4_900, 8_900),
        (0, 1),
    ];
    for limit in [MS * 5_000, MS * 20_000] {
        let builder = http1()
            .pool_idle_timeout(MS * 9_000)
            .response_timeout(Some(limit));
        let (site, client) = Site::start_with(plan(Duration::ZERO, 0), builder, |_, mut io| async move {
            for (pause, _) in ROUNDS {
                head(&mut io).await;
                sleep(MS * pause).await;
                let _ = io.write_all(OK).await;
            }
            let _ = io.read_to_end(&mut Vec::new()).await;
        });
        for (_, pause) in ROUNDS {
            let answered = client.get("http://one.example/").await;
            assert_eq!(answered.expect("an answer").status(), 200);
            sleep(MS * pause).await;
        }
        let begun = Instant::now();
        let error = client.get("http://one.example/").await.expect_err("silence");
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        let after = begun.elapsed();
        assert!(after >= limit && after < limit + MS * 100, "{after:?}");
        assert_eq!(site.dials(), 1, "no pause was longer than the idle timeout");
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_has_served_closes_when_it_was_idle_for_its_time() {
    let builder = http1()
        .pool_idle_timeout(MS * 9_000)
        .response_timeout(Some(MS * 2_000));
    let (site, client) = Site::start_with(plan(Duration::ZERO, 0), builder, answer);
    for _ in 0..3 {
        all(begin(&client, 1).await).await;
        sleep(MS * 1_000).await;
    }
    sleep(MS * 7_900).await;
    assert_eq!((stats(&client).connections, site.dials()), (1, 1));
    sleep(MS * 200).await;
    assert_eq!((stats(&client).connections, site.dials()), (0, 1));
}
