//! `--metrics`.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use fullbore_testing::frames;

use super::{Site, ask_over_tcp, status, values};
use crate::support::{PATIENCE, TestResult, run, until};

/// The value of a metric with its labels.
fn value(text: &str, metric: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.split(' ').next() == Some(metric))?;
    line.split(' ').nth(1)?.parse().ok()
}

#[test]
fn the_figures_are_on_an_address_of_their_own_and_count_what_was_served() -> TestResult {
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("a.txt"), "hello")?;
    let listen = [
        "--plaintext",
        "--listen",
        "127.0.0.1:0",
        "--metrics",
        "127.0.0.1:0",
        "--threads",
        "2",
    ];
    let mut site = Site::start(folder.path(), &listen)?;
    let origin = site.after("listening on ")?;
    let figures = site.after("metrics on ")?;
    assert_eq!(status(&ask_over_tcp(&origin, "GET /metrics", "")?), "404");
    for _ in 0..3 {
        assert_eq!(status(&ask_over_tcp(&origin, "GET /a.txt", "")?), "200");
    }
    run(Path::new("."), ["get", "--http2", &format!("{origin}/a.txt")])?.succeeded();
    let mut text = String::new();
    // A connection is counted once it has ended, and gives its place back after that.
    until("both versions are counted", || {
        text = ask_over_tcp(&figures, "GET /metrics", "")?;
        let ended = |version: &str| {
            value(
                &text,
                &format!("fullbore_connections_ended_total{{version=\"{version}\",reason=\"closed\"}}"),
            )
        };
        let open = value(&text, "fullbore_connections");
        Ok(ended("1.1") == Some(4.0) && ended("2") == Some(1.0) && open == Some(0.0))
    })?;
    assert_eq!(
        values(&text, "content-type"),
        ["text/plain; version=0.0.4; charset=utf-8"]
    );
    for (metric, expected) in [
        ("fullbore_requests_total{method=\"GET\",status=\"2xx\"}", 4.0),
        ("fullbore_requests_total{method=\"GET\",status=\"4xx\"}", 1.0),
        ("fullbore_version_requests_total{version=\"2\"}", 1.0),
        ("fullbore_version_requests_total{version=\"1.1\"}", 4.0),
    ] {
        assert_eq!(value(&text, metric), Some(expected), "{metric} in\n{text}");
    }
    for metric in [
        "fullbore_response_body_bytes_total",
        "fullbore_received_bytes_total",
        "fullbore_sent_bytes_total",
        "fullbore_memory_budget_bytes",
    ] {
        assert!(value(&text, metric) > Some(19.0), "{metric} in\n{text}");
    }
    assert!(
        value(
            &text,
            "fullbore_stalled_seconds_total{direction=\"sending\",cause=\"socket\"}"
        )
        .is_some()
    );
    for metric in [
        "fullbore_limited_connections_total{cause=\"loss\"}",
        "fullbore_tcp_limited_seconds_total{by=\"sender\"}",
    ] {
        // A connection that sent so little is not counted.
        assert_eq!(value(&text, metric), Some(0.0), "{metric} in\n{text}");
    }
    assert_eq!(status(&ask_over_tcp(&figures, "GET /healthz", "")?), "200");
    assert_eq!(status(&ask_over_tcp(&figures, "GET /a.txt", "")?), "404");
    Ok(())
}

#[test]
fn what_ended_a_connection_of_a_hostile_peer_is_counted_by_its_reason() -> TestResult {
    let folder = tempfile::tempdir()?;
    let listen = [
        "--plaintext",
        "--listen",
        "127.0.0.1:0",
        "--metrics",
        "127.0.0.1:0",
    ];
    let mut site = Site::start(folder.path(), &listen)?;
    let origin = site.after("listening on ")?;
    let figures = site.after("metrics on ")?;
    let address = origin.strip_prefix("http://").ok_or("no origin in cleartext")?;
    // Far more PINGs than a connection may send in a second, and DATA on stream 0.
    let pings = frames::ping(0, b"ping5678").repeat(5_000);
    for (octets, reason) in [(pings, "limit"), (frames::data(0, 0, b"1"), "protocol")] {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        // The server may close the connection before it has read everything.
        let _ = stream.write_all(&[frames::PREFACE, &frames::settings(&[]), &octets].concat());
        let _ = stream.read_to_end(&mut Vec::new());
        let metric = format!("fullbore_connections_ended_total{{version=\"2\",reason=\"{reason}\"}}");
        until(reason, || {
            let text = ask_over_tcp(&figures, "GET /metrics", "")?;
            Ok(value(&text, &metric) == Some(1.0))
        })?;
    }
    Ok(())
}
