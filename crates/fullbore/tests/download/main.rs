//! Downloads over several connections: what they open, and that no fault of a server brings a wrong octet.

mod many;
mod server;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fullbore::client::{Download, DownloadReport};
use fullbore::settings::HttpVersions;
use fullbore::stats::{Cause, Direction, Role, Verdict};
use fullbore::{Client, Error, ErrorKind};
use fullbore_testing::random::Random;
use http::{Request, Uri};
use http_body_util::BodyExt;
use tokio::time::Instant;

use server::{Conduct, Ranges, Script, Tag, octet};

/// The most virtual time that a download takes here.
const HUNG: Duration = Duration::from_secs(3_600);

/// The limit on silence, as the program has one.
const SILENCE: Duration = Duration::from_secs(60);

/// What came of a download.
#[derive(Debug)]
struct Ended {
    /// Octets that are right.
    received: u64,
    error: Option<Error>,
    report: DownloadReport,
    took: Duration,
    /// The connections that the server saw.
    connections: usize,
    cause: Option<Cause>,
}

/// Downloads from a server, and compares each octet.
async fn download(script: Script, connections: Option<usize>) -> Ended {
    let begun = Instant::now();
    let opened = Arc::new(AtomicUsize::new(0));
    let (script, counter) = (Arc::new(script), Arc::clone(&opened));
    let (served, is_http1) = (Arc::clone(&script), script.is_http1);
    let connector = tower::service_fn(move |_: Uri| {
        let number = counter.fetch_add(1, Ordering::Relaxed);
        let io = server::connect(&served, number, begun);
        std::future::ready(io.ok_or(io::Error::from(io::ErrorKind::ConnectionRefused)))
    });
    let versions = match is_http1 {
        true => HttpVersions::Http1,
        false => HttpVersions::Http2,
    };
    let client = Client::builder()
        .http_versions(versions)
        .connector(connector)
        .response_timeout(Some(SILENCE))
        .body_timeout(Some(SILENCE))
        .build()
        .expect("valid");
    let request = Request::get("http://test.example/file").body(()).expect("valid");
    let response = client
        .download(request)
        .await
        .expect("the first connection answers");
    assert_eq!(response.status(), 200);
    let version = response.headers()["x-version"]
        .to_str()
        .expect("text")
        .parse()
        .expect("a number");
    let mut body: Download = response.into_body();
    if let Some(connections) = connections {
        body.set_connections(connections);
    }
    let mut ended = Ended {
        received: 0,
        error: None,
        report: DownloadReport::default(),
        took: Duration::ZERO,
        connections: 0,
        cause: None,
    };
    let all = async {
        while let Some(frame) = body.frame().await {
            let data = match frame {
                Ok(frame) => frame.into_data().expect("no trailers"),
                Err(error) => {
                    ended.error = Some(error);
                    break;
                }
            };
            for (index, found) in data.iter().enumerate() {
                let offset = ended.received + index as u64;
                assert_eq!(
                    *found,
                    octet(version, offset),
                    "a wrong octet at {offset} of {script:?}"
                );
            }
            ended.received += data.len() as u64;
        }
    };
    let in_time = tokio::time::timeout(HUNG, all).await;
    assert!(in_time.is_ok(), "hung after {} of {script:?}", ended.received);
    if ended.error.is_none() {
        assert_eq!(ended.received, script.length, "{script:?}");
    }
    ended.report = body.download_report();
    ended.took = begun.elapsed();
    let verdict = match is_http1 {
        true => client
            .http1_report()
            .and_then(|report| report.verdict(Direction::Receiving)),
        false => Verdict::of(Role::Client, Direction::Receiving, &client.reports().await),
    };
    ended.cause = verdict.map(|verdict| ended.report.refine(verdict).cause);
    ended.connections = opened.load(Ordering::Relaxed);
    ended
}

/// `FULLBORE_DOWNLOADS` sets how many there are, and `FULLBORE_SEED` where they begin.
#[tokio::test(start_paused = true)]
async fn no_script_of_faults_brings_a_wrong_octet_or_a_hang() {
    let number = |name, usual| std::env::var(name).map_or(usual, |value| value.parse().expect("a number"));
    let (count, seed) = (number("FULLBORE_DOWNLOADS", 200), number("FULLBORE_SEED", 1));
    let (mut whole, mut failed) = (0, 0);
    for seed in seed..seed + count {
        let script = Script::random(&mut Random::new(seed));
        let connections = (seed % 4 == 0).then_some(2 + (seed % 7) as usize);
        let shown = format!("seed {seed}: {script:?}");
        let must_succeed = script.must_succeed();
        let ended = download(script, connections).await;
        match &ended.error {
            None => whole += 1,
            Some(error) if must_succeed => panic!("{error} after {} of {shown}", ended.received),
            Some(_) => failed += 1,
        }
        // Over HTTP/1.1 the pool connects again after pauses while requests wait.
        assert!(
            ended.connections <= 60,
            "{} connections in {shown}",
            ended.connections
        );
    }
    println!("{whole} downloads came whole, {failed} failed behind a right beginning");
    assert!(whole > failed);
}

#[tokio::test(start_paused = true)]
async fn connections_that_have_a_limit_each_are_used_up_to_eight() {
    for is_http1 in [false, true] {
        let script = Script {
            is_http1,
            length: 12_000_000,
            ..Script::good()
        };
        let ended = download(script.clone(), None).await;
        assert!(ended.error.is_none(), "{ended:?}");
        assert_eq!(ended.report.most_connections, 8, "{ended:?}");
        let limit = ended.cause.map(|cause| cause.name());
        assert_eq!(limit, Some("connection_limit"), "{ended:?}");
        let alone = download(script, Some(1)).await;
        assert_ne!(alone.cause.map(|cause| cause.name()), Some("connection_limit"));
        assert_eq!((alone.report.most_connections, alone.connections), (1, 1));
        assert!(ended.took * 3 < alone.took, "{ended:?} {alone:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_has_become_slow_does_not_hold_up_the_end() {
    let even = Script {
        length: 12_000_000,
        ..Script::good()
    };
    // One of the further connections has a twentieth of the rate.
    let uneven = Script {
        further: vec![Conduct::Good, Conduct::Good, Conduct::Slow(20)],
        ..even.clone()
    };
    let even = download(even, Some(4)).await;
    let uneven = download(uneven, Some(4)).await;
    assert!(even.error.is_none() && uneven.error.is_none(), "{uneven:?}");
    // Three connections take a third longer than four. 256 KiB at a twentieth of the rate would take 17 s.
    assert!(uneven.took < 2 * even.took, "{even:?} {uneven:?}");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_would_be_complete_soon_stays_on_its_connection() {
    let script = Script {
        length: 1_200_000,
        rate: 3_000_000,
        ..Script::good()
    };
    let ended = download(script, None).await;
    assert_eq!(
        (ended.report.most_connections, ended.connections),
        (1, 1),
        "{ended:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn without_a_strong_validator_or_ranges_there_is_one_connection() {
    for (tag, ranges) in [
        (Tag::None, Ranges::Right),
        (Tag::Weak, Ranges::Right),
        (Tag::Strong, Ranges::Denied),
    ] {
        let ended = download(
            Script {
                tag,
                ranges,
                ..Script::good()
            },
            None,
        )
        .await;
        assert!(ended.error.is_none());
        assert_eq!(
            (ended.report.most_connections, ended.connections),
            (1, 1),
            "{tag:?} {ranges:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_sends_no_right_range_is_asked_for_one_once() {
    for ranges in [
        Ranges::Ignored,
        Ranges::Slice,
        Ranges::OtherBegin,
        Ranges::OtherTotal,
        Ranges::OtherTag,
        Ranges::NoTag,
        Ranges::NoContentRange,
        Ranges::Multipart,
        Ranges::Coded,
        Ranges::NotSatisfiable,
    ] {
        let ended = download(
            Script {
                ranges,
                ..Script::good()
            },
            None,
        )
        .await;
        assert!(ended.error.is_none(), "{ranges:?}: {ended:?}");
        assert_eq!(ended.connections, 2, "{ranges:?}: {ended:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_further_connection_that_fails_is_not_tried_again() {
    for conduct in [
        Conduct::Refused,
        Conduct::Status(503),
        Conduct::Status(429),
        Conduct::Reset,
        Conduct::Breaks(5_000),
        Conduct::Silent,
    ] {
        for limit in 0..3 {
            let mut further = vec![Conduct::Good; limit];
            further.extend([conduct; 40]);
            let script = Script {
                further,
                length: 6_000_000,
                ..Script::good()
            };
            let ended = download(script, None).await;
            assert!(ended.error.is_none(), "{conduct:?} behind {limit}: {ended:?}");
            assert!(ended.connections <= 9, "{conduct:?} behind {limit}: {ended:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_allows_few_connections_gives_the_whole_over_these() {
    for is_http1 in [false, true] {
        for limit in 1..=3 {
            let script = Script {
                is_http1,
                limit,
                length: 6_000_000,
                ..Script::good()
            };
            let ended = download(script, None).await;
            assert!(ended.error.is_none(), "{limit}: {ended:?}");
            assert!(ended.report.connections <= limit, "{limit}: {ended:?}");
            assert!(ended.report.most_connections <= limit, "{limit}: {ended:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn content_that_changes_ends_the_body_with_a_right_beginning() {
    let script = Script {
        changes_after: Some(Duration::from_secs(3)),
        length: 20_000_000,
        ..Script::good()
    };
    let ended = download(script, None).await;
    let error = ended.error.as_ref().expect("the old content is gone");
    assert_eq!(error.kind(), ErrorKind::Closed);
    assert!(error.to_string().contains("no range of the same body"), "{error}");
    assert!(ended.received > 500_000, "{ended:?}");
}
