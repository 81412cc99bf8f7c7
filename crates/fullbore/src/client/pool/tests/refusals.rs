//! Peers that refuse requests and allow no stream: how long a request waits, under the paused clock.

use std::collections::VecDeque;

use fullbore_proto::ErrorCode;
use http_body_util::Full;

use super::*;

/// REFUSED_STREAM (RFC 9113 section 7).
const REFUSED_STREAM: u32 = 7;

/// How long a request may wait for a stream.
const LIMIT: Duration = Duration::from_secs(1);

/// A few round trips.
const FEW: Duration = Duration::from_millis(10);

const URL: &str = "http://one.example/";

/// How a peer treats requests.
#[derive(Clone, Copy)]
struct Conduct {
    /// How many streams it allows in its first SETTINGS. After a request it allows none.
    streams: u32,
    /// Whether it refuses requests rather than answering them.
    refuses: bool,
    /// How long after a request it allows one stream.
    allows_after: Option<Duration>,
    /// How long after its beginning a connection ends.
    ends_after: Option<Duration>,
}

const REFUSES: Conduct = Conduct {
    streams: 0,
    refuses: true,
    allows_after: None,
    ends_after: None,
};

async fn allow(peer: &mut Peer<End>, streams: u32) {
    let mut setting = MAX_STREAMS.to_be_bytes().to_vec();
    setting.extend(streams.to_be_bytes());
    peer.send(frames::SETTINGS, 0, 0, &setting).await;
}

/// A time, if there is one.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

async fn serve(site: Arc<Site>, io: End, conduct: Conduct) {
    let ends = conduct.ends_after.map(|after| Instant::now() + after);
    let mut allows = None;
    let mut peer = Peer::server(io, &[(MAX_STREAMS, conduct.streams)]).await;
    loop {
        let frame = tokio::select! {
            frame = peer.next() => frame,
            () = at(ends) => return,
            () = at(allows) => {
                allows = None;
                allow(&mut peer, 1).await;
                continue;
            }
        };
        let Some(frame) = frame else { return };
        match frame.kind {
            frames::SETTINGS if frame.flags & 1 == 0 => peer.send(frames::SETTINGS, 1, 0, &[]).await,
            frames::PING if frame.flags & 1 == 0 => peer.send(frames::PING, 1, 0, &frame.payload).await,
            frames::HEADERS => {
                site.requests.fetch_add(1, Ordering::SeqCst);
                allow(&mut peer, 0).await;
                allows = conduct.allows_after.map(|after| Instant::now() + after);
                match conduct.refuses {
                    true => {
                        let code = REFUSED_STREAM.to_be_bytes();
                        peer.send(frames::RST_STREAM, 0, frame.stream, &code).await;
                    }
                    false => peer.respond(frame.stream, true, &[]).await,
                }
            }
            _ => {}
        }
    }
}

/// Ends each connection by a GOAWAY at its first request, none of which is processed.
async fn go_away(site: Arc<Site>, io: End) {
    let mut peer = Peer::server(io, &[(MAX_STREAMS, 100)]).await;
    while let Some(frame) = peer.next().await {
        match frame.kind {
            frames::SETTINGS if frame.flags & 1 == 0 => peer.send(frames::SETTINGS, 1, 0, &[]).await,
            frames::HEADERS => {
                site.requests.fetch_add(1, Ordering::SeqCst);
                let code = ErrorCode::ENHANCE_YOUR_CALM.0.to_be_bytes();
                peer.send(frames::GOAWAY, 0, 0, &[[0; 4], code].concat()).await;
            }
            _ => {}
        }
    }
}

/// A client to such peers, a millisecond away.
fn start(conduct: Conduct) -> (Arc<Site>, Client) {
    // The first requests leave before the peer's SETTINGS, with their bodies.
    let builder = Client::builder().http_versions(crate::settings::HttpVersions::Http2);
    let builder = builder.stream_wait_timeout(Some(LIMIT));
    Site::start_with(plan(MS, 0), builder, move |site, io| serve(site, io, conduct))
}

/// A request as a task: how it ended, and after how long.
fn request(client: &Client) -> JoinHandle<(Result<(), Error>, Duration)> {
    let client = client.clone();
    tokio::spawn(async move {
        let begun = Instant::now();
        let ended = tokio::time::timeout(Duration::from_secs(200), client.get(URL)).await;
        let answer = ended.unwrap_or_else(|_| panic!("it waits for ever"));
        (answer.map(drop), begun.elapsed())
    })
}

/// Asserts that a request ended since the server allowed no stream, and when: at the limit, or `later` at most.
fn timed_out((answer, took): (Result<(), Error>, Duration), later: Duration) {
    let error = answer.expect_err("no stream is allowed");
    println!("{took:?}: {error}");
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(
        error.to_string().contains("SETTINGS_MAX_CONCURRENT_STREAMS is 0"),
        "{error}"
    );
    assert!(
        (LIMIT..=LIMIT + later).contains(&took),
        "it waited {took:?}: {error}"
    );
}

/// Asserts that there were three pauses between these times, each twice as long as the one before.
fn assert_three_pauses(times: &[Instant]) {
    let pauses: Vec<Duration> = times.windows(2).map(|two| two[1] - two[0]).collect();
    assert_eq!(pauses.len(), 3);
    for (pause, longest) in pauses.into_iter().zip([100 * MS, 200 * MS, 400 * MS]) {
        assert!(
            (longest / 2..=longest + FEW).contains(&pause),
            "{pause:?} of {longest:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_refused_waits_no_longer_than_the_limit_for_a_stream() {
    let (site, client) = start(REFUSES);
    timed_out(request(&client).await.expect("no panic"), FEW);
    assert_eq!(site.requests.load(Ordering::SeqCst), 1);
    assert_eq!((site.dials(), stats(&client).waiting), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn requests_that_were_refused_together_wait_no_longer_than_the_limit_for_a_stream() {
    let (site, client) = start(REFUSES);
    let requests: Vec<_> = (0..20).map(|_| request(&client)).collect();
    for request in requests {
        timed_out(request.await.expect("no panic"), FEW);
    }
    assert_eq!((site.dials(), stats(&client).waiting), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_with_a_body_waits_no_longer_than_the_limit_for_a_stream() {
    let (site, client) = start(REFUSES);
    let begun = Instant::now();
    let body = Full::new(Bytes::from_static(b"body"));
    let request = Request::post(URL).body(body).expect("a request");
    let limit = Duration::from_secs(200);
    let ended = tokio::time::timeout(limit, client.request_repeatable(request)).await;
    timed_out((ended.expect("an end").map(drop), begun.elapsed()), FEW);
    assert_eq!(site.requests.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn further_connections_on_which_no_stream_is_allowed_do_not_prolong_the_wait() {
    let (site, client) = start(Conduct {
        ends_after: Some(400 * MS),
        ..REFUSES
    });
    timed_out(request(&client).await.expect("no panic"), FEW);
    assert_eq!(site.requests.load(Ordering::SeqCst), 1);
    assert_eq!(site.dials(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_and_allows_one_stream_and_none_by_turns_does_not_prolong_the_wait() {
    let (site, client) = start(Conduct {
        allows_after: Some(450 * MS),
        ..REFUSES
    });
    // The pause before the third repeat, 400 ms at most, may be under way by then.
    timed_out(request(&client).await.expect("no panic"), 400 * MS);
    assert_eq!(site.requests.load(Ordering::SeqCst), 3);
    assert_eq!(site.dials(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_and_allows_one_stream_and_none_by_turns_serves_the_whole_queue() {
    let (site, client) = start(Conduct {
        streams: 1,
        refuses: false,
        allows_after: Some(450 * MS),
        ends_after: None,
    });
    // From then on the limit is known.
    request(&client).await.expect("no panic").0.expect("an answer");
    let requests: Vec<_> = (0..10).map(|_| request(&client)).collect();
    for request in requests {
        let (answer, took) = request.await.expect("no panic");
        answer.unwrap_or_else(|error| panic!("after {took:?}: {error}"));
    }
    assert_eq!((site.requests.load(Ordering::SeqCst), site.dials()), (11, 1));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_comes_later_has_the_whole_limit() {
    let (site, client) = start(REFUSES);
    let mut requests = Vec::new();
    for _ in 0..4 {
        requests.push(request(&client));
        tokio::time::sleep(300 * MS).await;
    }
    for request in requests {
        let (answer, took) = request.await.expect("no panic");
        let error = answer.expect_err("no stream is allowed");
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        // Requests that end soon after each other are looked for together.
        assert!((LIMIT..LIMIT + LIMIT / 8).contains(&took), "{took:?}");
    }
    assert_eq!(site.dials(), 1);
}

#[tokio::test(start_paused = true)]
async fn requests_one_after_the_other_share_four_attempts_and_one_more_after_each_pause() {
    let (site, client) = Site::start_with(plan(MS, 100), Client::builder(), go_away);
    let attempts = || (site.dials(), site.requests.load(Ordering::SeqCst));
    let fail_twenty = async || {
        for _ in 0..20 {
            let error = client.get(URL).await.expect_err("nothing is answered");
            assert_eq!(error.code(), Some(ErrorCode::ENHANCE_YOUR_CALM), "{error}");
        }
    };
    fail_twenty().await;
    assert_eq!(attempts(), (4, 4));
    // The pause after the fourth refusal is 800 ms at most.
    sleep(800 * MS).await;
    fail_twenty().await;
    assert_eq!(attempts(), (5, 5));
    // Ten seconds after the last pause it is forgotten.
    sleep(12_000 * MS).await;
    fail_twenty().await;
    assert_eq!(attempts(), (9, 9));
}

/// Answers requests without a body one by one, each just after a request with a body was refused. Notes when these came.
async fn refuse_bodies(io: End, refused: Arc<Mutex<Vec<Instant>>>) {
    let mut peer = Peer::server(io, &[(MAX_STREAMS, 100)]).await;
    let mut held = VecDeque::new();
    while let Some(frame) = peer.next().await {
        match frame.kind {
            frames::SETTINGS if frame.flags & 1 == 0 => peer.send(frames::SETTINGS, 1, 0, &[]).await,
            frames::HEADERS if frame.flags & 1 == 1 => held.push_back(frame.stream),
            frames::HEADERS => {
                refused.lock().expect("no panic").push(Instant::now());
                let code = REFUSED_STREAM.to_be_bytes();
                peer.send(frames::RST_STREAM, 0, frame.stream, &code).await;
                sleep(5 * MS).await;
                if let Some(stream) = held.pop_front() {
                    peer.respond(stream, true, &[]).await;
                }
            }
            _ => {}
        }
    }
}

/// Sends a request with a body to such a server, beside `others` that are answered. Returns when it was refused.
async fn refused_beside(others: usize) -> Vec<Instant> {
    let refused = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&refused);
    let builder = Client::builder().http_versions(crate::settings::HttpVersions::Http2);
    let (_, client) = Site::start_with(plan(MS, 0), builder, move |_, io| {
        refuse_bodies(io, Arc::clone(&noted))
    });
    let answered = begin(&client, others).await;
    let body = Full::new(Bytes::from_static(b"body"));
    let request = Request::post(URL).body(body).expect("a request");
    let error = client
        .request_repeatable(request)
        .await
        .expect_err("it is refused");
    assert!(error.is_refused(), "{error}");
    for request in answered.into_iter().take(others.min(32)) {
        request.await.expect("it was answered");
    }
    let refused = refused.lock().expect("no panic");
    refused.clone()
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_fails_after_three_repeats_in_which_the_origin_answered_nothing() {
    // The first four refusals are each followed by an answer.
    let refused = refused_beside(4).await;
    let pauses: Vec<Duration> = refused.windows(2).map(|two| two[1] - two[0]).collect();
    let longest = [100, 200, 400, 800, 1_600, 3_200, 6_400];
    assert_eq!(pauses.len(), longest.len(), "{pauses:?}");
    for (pause, longest) in pauses.into_iter().zip(longest) {
        let longest = longest * MS;
        assert!(
            (longest / 2..=longest + FEW).contains(&pause),
            "{pause:?} of {longest:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_always_refused_fails_although_the_origin_answers_others_for_ever() {
    assert_eq!(refused_beside(90).await.len(), 33);
}

/// A server that ends each connection after so many requests, as nginx does: GOAWAY without an error, then the answers.
/// What was sent behind is not read.
async fn end_after(site: Arc<Site>, io: End, streams: u32, requests: usize) {
    let mut peer = Peer::server(io, &[(MAX_STREAMS, streams)]).await;
    let mut taken = Vec::new();
    while let Some(frame) = peer.next().await {
        match frame.kind {
            frames::SETTINGS if frame.flags & 1 == 0 => peer.send(frames::SETTINGS, 1, 0, &[]).await,
            frames::PING if frame.flags & 1 == 0 => peer.send(frames::PING, 1, 0, &frame.payload).await,
            frames::HEADERS => {
                site.requests.fetch_add(1, Ordering::SeqCst);
                taken.push(frame.stream);
                if taken.len() == requests {
                    let last = frame.stream.to_be_bytes();
                    peer.send(frames::GOAWAY, 0, 0, &[last, [0; 4]].concat()).await;
                }
                peer.respond(frame.stream, true, &[]).await;
                if taken.len() == requests {
                    // The client closes first.
                    peer.rest().await;
                    return;
                }
            }
            _ => {}
        }
    }
}

#[tokio::test(start_paused = true)]
async fn all_requests_are_answered_by_a_server_that_ends_each_connection_after_a_few() {
    for (requests, streams) in [(1, 128), (20, 128), (100, 128), (1_000, 128), (20, 1_000)] {
        for delay in [Duration::ZERO, MS * 50] {
            let serve = move |site, io| end_after(site, io, streams, requests);
            let (site, client) = Site::start_with(plan(delay, 0), Client::builder(), serve);
            let begun = Instant::now();
            let count = requests.max(20) * 20;
            all(begin(&client, count).await).await;
            println!(
                "{requests} of {streams} streams, {delay:?}: {count} in {:?}, {} connections",
                begun.elapsed(),
                site.dials()
            );
            assert_eq!(stats(&client).waiting, 0);
        }
    }
}

/// A server that works on so many requests of a connection at a time, 40 ms each, and refuses the others although it
/// allows 100.
async fn work_on(site: Arc<Site>, io: End, most: usize) {
    let mut peer = Peer::server(io, &[(MAX_STREAMS, 100)]).await;
    let mut work = VecDeque::new();
    loop {
        let frame = tokio::select! {
            frame = peer.next() => frame,
            () = at(work.front().map(|(until, _)| *until)) => {
                let (_, stream) = work.pop_front().expect("it is there");
                peer.respond(stream, true, &[]).await;
                continue;
            }
        };
        let Some(frame) = frame else { return };
        match frame.kind {
            frames::SETTINGS if frame.flags & 1 == 0 => peer.send(frames::SETTINGS, 1, 0, &[]).await,
            frames::PING if frame.flags & 1 == 0 => peer.send(frames::PING, 1, 0, &frame.payload).await,
            frames::HEADERS => {
                site.requests.fetch_add(1, Ordering::SeqCst);
                match work.len() < most {
                    true => work.push_back((Instant::now() + 40 * MS, frame.stream)),
                    false => {
                        let code = REFUSED_STREAM.to_be_bytes();
                        peer.send(frames::RST_STREAM, 0, frame.stream, &code).await;
                    }
                }
            }
            _ => {}
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_above_a_limit_of_its_own_gets_as_many_requests_at_once_as_it_takes() {
    let rounds = 200;
    for most in [1_usize, 3, 50, 90] {
        for delay in [Duration::ZERO, MS * 50] {
            let serve = move |site, io| work_on(site, io, most);
            let (site, client) = Site::start_with(plan(delay, 0), Client::builder(), serve);
            let begun = Instant::now();
            let count = most * rounds;
            all(begin(&client, count).await).await;
            let round = 40 * MS + delay * 2;
            let (took, sent) = (begun.elapsed(), site.requests.load(Ordering::SeqCst));
            let best = round * u32::try_from(rounds).expect("a few");
            println!("{most}, {delay:?}: {took:?} of {best:?}, {sent} for {count}");
            // Each of the first hundred, and then one at times.
            assert!(took < best * 3 / 2, "{took:?} of {best:?}");
            assert!(sent - count < 100 + count / 2, "{sent} for {count}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_is_sent_beside_long_ones_when_the_server_takes_more_than_it_did() {
    // One request is refused beside two that are never answered.
    let (site, client) = Site::start_with(plan(MS, 0), Client::builder(), |site, io| async move {
        let mut peer = Peer::server(io, &[(MAX_STREAMS, 100)]).await;
        while let Some(frame) = peer.next().await {
            match frame.kind {
                frames::SETTINGS if frame.flags & 1 == 0 => peer.send(frames::SETTINGS, 1, 0, &[]).await,
                frames::HEADERS => match site.requests.fetch_add(1, Ordering::SeqCst) {
                    0 | 1 => {}
                    2 => {
                        let code = REFUSED_STREAM.to_be_bytes();
                        peer.send(frames::RST_STREAM, 0, frame.stream, &code).await;
                    }
                    _ => peer.respond(frame.stream, true, &[]).await,
                },
                _ => {}
            }
        }
    });
    let long: Vec<_> = (0..2).map(|_| request(&client)).collect();
    update().await;
    for _ in 0..10 {
        let (answer, took) = request(&client).await.expect("no panic");
        answer.expect("an answer");
        assert!(took < 300 * MS, "{took:?}");
    }
    assert_eq!(site.requests.load(Ordering::SeqCst), 13);
    long.iter().for_each(JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn the_oldest_request_is_repeated_first() {
    // Each connection takes one request.
    let serve = |site, io| end_after(site, io, 100, 1);
    let (_, client) = Site::start_with(plan(MS, 0), Client::builder().max_connections(1), serve);
    let ended = Arc::new(Mutex::new(Vec::new()));
    let mut requests = Vec::new();
    for number in 0..30 {
        let (client, ended) = (client.clone(), Arc::clone(&ended));
        requests.push(tokio::spawn(async move {
            client.get(URL).await.expect("an answer");
            ended.lock().expect("no panic").push(number);
        }));
    }
    all(requests).await;
    let ended = ended.lock().expect("no panic");
    assert!(ended.is_sorted(), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn uploads_that_cannot_be_repeated_wait_for_the_settings_and_a_stream_that_these_allow() {
    let builder = Client::builder().http_versions(crate::settings::HttpVersions::Http2);
    // More than so many are refused.
    let (site, client) = Site::start_with(plan(MS * 50, 0), builder, |site, io| async move {
        let mut peer = Peer::server(io, &[(MAX_STREAMS, 3)]).await;
        let mut open = 0;
        while let Some(frame) = peer.next().await {
            match frame.kind {
                frames::SETTINGS if frame.flags & 1 == 0 => peer.send(frames::SETTINGS, 1, 0, &[]).await,
                frames::HEADERS if open == 3 => {
                    let code = REFUSED_STREAM.to_be_bytes();
                    peer.send(frames::RST_STREAM, 0, frame.stream, &code).await;
                }
                frames::HEADERS => {
                    open += 1;
                    site.requests.fetch_add(1, Ordering::SeqCst);
                }
                frames::DATA if frame.flags & 1 == 1 => {
                    open -= 1;
                    peer.respond(frame.stream, true, &[]).await;
                }
                _ => {}
            }
        }
    });
    let uploads: Vec<_> = (0..20)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move {
                let body = Full::new(Bytes::from_static(b"body"));
                let request = Request::post(URL).body(body).expect("a request");
                client.request(request).await.map(drop)
            })
        })
        .collect();
    for upload in uploads {
        upload.await.expect("no panic").expect("an answer");
    }
    assert_eq!((site.requests.load(Ordering::SeqCst), site.dials()), (20, 1));
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_do_not_fail_while_another_one_is_under_way() {
    let builder = Client::builder().http_versions(crate::settings::HttpVersions::Http2);
    let builder = builder.max_repeats(1);
    // The first request is answered at the end, the second and the third are refused.
    let (site, client) = Site::start_with(plan(MS, 0), builder, |site, io| async move {
        let mut peer = Peer::server(io, &[(MAX_STREAMS, 100)]).await;
        loop {
            let frame = tokio::select! {
                frame = peer.next() => frame,
                () = site.release.notified() => {
                    peer.respond(1, true, &[]).await;
                    continue;
                }
            };
            let Some(frame) = frame else { return };
            match frame.kind {
                frames::SETTINGS if frame.flags & 1 == 0 => peer.send(frames::SETTINGS, 1, 0, &[]).await,
                frames::HEADERS => match site.requests.fetch_add(1, Ordering::SeqCst) {
                    0 => {}
                    1 | 2 => {
                        let code = REFUSED_STREAM.to_be_bytes();
                        peer.send(frames::RST_STREAM, 0, frame.stream, &code).await;
                    }
                    _ => peer.respond(frame.stream, true, &[]).await,
                },
                _ => {}
            }
        }
    });
    let first = request(&client);
    update().await;
    let given_up = request(&client);
    sleep(FEW).await;
    given_up.abort();
    let waiting: Vec<_> = (0..3).map(|_| request(&client)).collect();
    update().await;
    assert_eq!((stats(&client).waiting, stats(&client).in_flight), (3, 1));
    for request in waiting {
        request.await.expect("no panic").0.expect("an answer");
    }
    site.release.notify_one();
    first.await.expect("no panic").0.expect("an answer");
    // One of the three was sent twice.
    assert_eq!((site.requests.load(Ordering::SeqCst), site.dials()), (6, 1));
}

#[tokio::test(start_paused = true)]
async fn one_task_looks_after_the_queue_however_many_requests_wait_in_it() {
    let (site, client) = start(REFUSES);
    // The first one leaves before the server has said that it allows no stream.
    let first = request(&client);
    sleep(FEW).await;
    assert_eq!(site.requests.load(Ordering::SeqCst), 1);
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let one = request(&client);
    update().await;
    let before = tasks();
    let others: Vec<_> = (0..100).map(|_| request(&client)).collect();
    update().await;
    assert_eq!(tasks() - before, 100);
    for request in others.into_iter().chain([first, one]) {
        request
            .await
            .expect("no panic")
            .0
            .expect_err("no stream is allowed");
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_connection_waits_when_the_server_throws_out_a_further_one() {
    // The first connection answers. Each further one is ended at its first request.
    let (site, client) = Site::start_with(plan(50 * MS, 2), Client::builder(), |site, io| async move {
        match site.dials() {
            1 => site.serve(io, 2).await,
            _ => go_away(site, io).await,
        }
    });
    keep_busy(&client, 3, 40_000 * MS).await;
    let dials = site.dials.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let pauses: Vec<Duration> = dials[1..].windows(2).map(|two| two[1] - two[0]).collect();
    // Its SETTINGS, and the responses of the first connection, do not end the pauses.
    let least = [1, 2, 4, 8, 16].map(Duration::from_secs);
    assert_eq!(pauses.len(), least.len(), "{pauses:?}");
    assert!(
        pauses.iter().zip(least).all(|(pause, least)| *pause >= least),
        "{pauses:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn connections_that_end_without_a_response_are_replaced_after_pauses_that_grow() {
    let builder = Client::builder().http_versions(crate::settings::HttpVersions::Http2);
    // Each connection takes one request, and closes without an answer.
    let (site, client) = Site::start_with(plan(MS, 0), builder, |_, io| async move {
        let mut peer = Peer::server(io, &[(MAX_STREAMS, 1)]).await;
        while let Some(frame) = peer.next().await {
            match frame.kind {
                frames::SETTINGS if frame.flags & 1 == 0 => peer.send(frames::SETTINGS, 1, 0, &[]).await,
                frames::HEADERS => return,
                _ => {}
            }
        }
    });
    for _ in 0..4 {
        let error = client.get(URL).await.expect_err("nothing is answered");
        // It may have been processed, so that it is not sent again.
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    }
    let dials = site.dials.lock().expect("no panic");
    assert_three_pauses(&dials);
}
