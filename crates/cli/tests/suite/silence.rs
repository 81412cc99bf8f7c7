//! Servers that say nothing, or too little: what is waited for, how long, and with what words it ends.

use std::time::Duration;

use crate::support::frames::{self, END_STREAM};
use crate::support::peer::{self, Then as After};
use crate::support::scripted::{HALF, Server, Then, V1, body, half, holds, rest};
use crate::support::{TestResult, names, patiently, run};
use fullbore_testing::peer::BlockingPeer;

fn url(address: &str) -> String {
    format!("http://{address}/file")
}

#[test]
fn a_server_that_sends_no_head_exits_with_13() -> TestResult {
    let address = peer::http2(|_| Vec::new(), After::Wait)?;
    let folder = tempfile::tempdir()?;
    patiently(|seconds| {
        let limit = seconds.to_string();
        let ended = run(folder.path(), ["get", "--speed-time", &limit, &url(&address)])?;
        ended.failed_with(13);
        assert!(
            ended.stderr.contains("timed out waiting for the response"),
            "{ended:?}"
        );
        assert!(ended.stderr.contains("--speed-time"), "{ended:?}");
        Ok(())
    })
}

#[test]
fn a_server_that_stops_in_the_body_exits_with_13_and_retry_resumes() -> TestResult {
    let server = Server::start(|_, asked| match asked.from("\"v1\"") {
        None => (half(asked, V1, &body(1)), Then::Go),
        Some(from) => (rest(asked, V1, &body(1), from), Then::Go),
    })?;
    patiently(|seconds| {
        let folder = tempfile::tempdir()?;
        let get = |more: &[&str]| {
            let (limit, url) = (seconds.to_string(), server.url());
            let args = [&["get", "--speed-time", &limit, "-o", "out", &url][..], more].concat();
            run(folder.path(), args)
        };
        let ended = get(&[])?;
        ended.failed_with(13);
        assert!(ended.stderr.contains("timed out waiting for DATA"), "{ended:?}");
        for name in names(folder.path())? {
            std::fs::remove_file(folder.path().join(name))?;
        }
        get(&["--retry", "1"])?.succeeded();
        holds(folder.path(), &body(1))
    })
}

#[test]
fn a_server_that_allows_no_stream_exits_with_13() -> TestResult {
    // With the first answer it lowers SETTINGS_MAX_CONCURRENT_STREAMS (0x3) to 0.
    let none = frames::frame(frames::SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 0]);
    let script = move |id| [none.clone(), frames::status(id, "200")].concat();
    let url = url(&peer::http2(script, After::Wait)?);
    let folder = tempfile::tempdir()?;
    patiently(|seconds| {
        let limit = seconds.to_string();
        let one_by_one = [
            "get",
            "--discard",
            "--parallel",
            "1",
            "--speed-time",
            &limit,
            &url,
            &url,
        ];
        let ended = run(folder.path(), one_by_one)?;
        assert_eq!(ended.code, Some(13), "{ended:?}");
        assert!(
            ended.stderr.contains("SETTINGS_MAX_CONCURRENT_STREAMS"),
            "{ended:?}"
        );
        Ok(())
    })
}

#[test]
fn a_body_slower_than_the_limit_exits_with_13_and_one_that_is_not_limited_goes_on() -> TestResult {
    patiently(|seconds| {
        let address = peer::listen(move |stream| {
            let mut peer = BlockingPeer::server(stream)?;
            peer.expect(frames::HEADERS)?;
            peer.send(&frames::ok(1, None))?;
            for _ in 0..150 {
                peer.send(&frames::data(1, 0, b"x"))?;
                std::thread::sleep(seconds * Duration::from_millis(20));
            }
            peer.send(&frames::data(1, END_STREAM, b""))?;
            std::io::copy(peer.0, &mut std::io::sink()).map(|_| ())
        })?;
        let folder = tempfile::tempdir()?;
        let get = |rate| {
            let (limit, url) = (seconds.to_string(), url(&address));
            run(
                folder.path(),
                ["get", "--speed-time", &limit, "--speed-limit", rate, &url],
            )
        };
        get("100000")?.failed_with(13);
        let ended = get("0")?;
        ended.succeeded();
        assert_eq!(ended.stdout.len(), 150);
        Ok(())
    })
}

#[test]
fn a_try_that_takes_longer_than_max_time_exits_with_13_and_what_came_is_resumed() -> TestResult {
    patiently(a_try_that_takes_longer_than)
}

fn a_try_that_takes_longer_than(seconds: u32) -> TestResult {
    let silent = peer::http2(|_| Vec::new(), After::Wait)?;
    let folder = tempfile::tempdir()?;
    let limit = seconds.to_string();
    let patient = ["get", "--speed-time", "0", "--max-time", &limit, "-o", "out"];
    let url = url(&silent);
    let ended = run(folder.path(), [&patient[..], &[&url]].concat())?;
    ended.failed_with(13);
    assert!(
        ended.stderr.contains("no response had arrived") && ended.stderr.contains("--max-time"),
        "{ended:?}"
    );

    let server = Server::start(|_, asked| match asked.from("\"v1\"") {
        None => (half(asked, V1, &body(1)), Then::Go),
        Some(from) => {
            assert_eq!(from, HALF);
            (rest(asked, V1, &body(1), from), Then::Go)
        }
    })?;
    let url = server.url();
    let ended = run(folder.path(), [&patient[..], &["--retry", "1", &url]].concat())?;
    ended.succeeded();
    assert_eq!(server.asked(), 2);
    holds(folder.path(), &body(1))?;

    std::fs::write(folder.path().join("file"), "content")?;
    let url = format!("http://{silent}/up");
    let args = ["put", "--speed-time", "0", "--max-time", &limit, "file", &url];
    run(folder.path(), args)?.failed_with(13);
    Ok(())
}

#[test]
fn a_server_that_takes_nothing_of_an_upload_exits_with_13() -> TestResult {
    // It never opens its window of 65,535 bytes again.
    let address = peer::http2(|_| Vec::new(), After::Wait)?;
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("file"), vec![7; 1 << 20])?;
    run(
        folder.path(),
        ["put", "--speed-time", "1", "file", &url(&address)],
    )?
    .failed_with(13);
    Ok(())
}

#[test]
fn a_server_that_refuses_with_an_error_is_asked_a_few_times_and_its_words_are_shown() -> TestResult {
    let server = Server::start(|_, _| {
        let mut payload = vec![0; 4];
        payload.extend(11_u32.to_be_bytes());
        payload.extend(b"slow down");
        (frames::frame(frames::GOAWAY, 0, 0, &payload), Then::Go)
    })?;
    let folder = tempfile::tempdir()?;
    let ended = run(folder.path(), ["get", "-o", "out", &server.url()])?;
    ended.failed_with(10);
    assert!(
        ended.stderr.contains("ENHANCE_YOUR_CALM") && ended.stderr.contains("slow down"),
        "{ended:?}"
    );
    // It was 80 times in a tenth of a second.
    assert!(server.asked() <= 4, "{} requests", server.asked());
    Ok(())
}
