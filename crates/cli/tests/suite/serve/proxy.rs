//! `fullbore proxy`: what it shares with `serve`, and its own options.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use super::around::{basic, entry};
use super::{Site, ask_over_tcp, status, values};
use crate::support::{TestResult, http1, run};

/// An application that answers with the head and the body of each request.
fn application() -> TestResult<String> {
    let origin = http1::serve(|head, body| {
        let seen = [head.as_bytes(), b"\n", body].concat();
        http1::ok("x-app: yes\r\n", &seen)
    })?;
    Ok(origin)
}

fn proxy(args: &[&str]) -> TestResult<(tempfile::TempDir, Site, String)> {
    let folder = tempfile::tempdir()?;
    let mut site = Site::proxy(folder.path(), args)?;
    let origin = site.after("listening on ")?;
    Ok((folder, site, origin))
}

/// The next line on standard error.
fn told(site: &mut Site) -> TestResult<String> {
    let stderr = site.child.stderr.take().ok_or("no output")?;
    Ok(BufReader::new(stderr).lines().next().ok_or("it says nothing")??)
}

#[test]
fn requests_of_both_versions_reach_the_application_and_the_log() -> TestResult {
    let application = application()?;
    let (folder, mut site, origin) = proxy(&[&application, "--log", "--header", "x-front: yes"])?;
    let response = ask_over_tcp(&origin, "GET /a/../b?c", "x-forwarded-for: 192.0.2.1\r\n")?;
    assert_eq!(status(&response), "200", "{response}");
    assert_eq!(values(&response, "x-app"), ["yes"]);
    assert_eq!(values(&response, "x-front"), ["yes"]);
    let seen = response.to_ascii_lowercase();
    for line in [
        "get /a/../b?c http/1.1",
        "host: localhost",
        "x-forwarded-for: 127.0.0.1",
    ] {
        assert!(seen.contains(line), "{line}: {response}");
    }
    let line = site.line()?;
    assert!(line.contains(" GET \"/a/../b?c\" 200 "), "{line}");
    assert!(line.contains(" origin="), "{line}");
    let ended = run(folder.path(), ["get", "--http2", &format!("{origin}/two")])?;
    ended.succeeded();
    let body = String::from_utf8(ended.stdout)?.to_ascii_lowercase();
    assert!(
        body.starts_with("get /two http/1.1") && body.contains("via: 2 fullbore"),
        "{body}"
    );
    Ok(())
}

/// Takes one request and waits before it reads the body.
fn slow_reader() -> TestResult<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        let (stream, _) = listener.accept()?;
        let mut reader = BufReader::new(&stream);
        // `put` asks first whether an upload can be resumed (OPTIONS).
        for has_body in [false, true] {
            let mut length = 0;
            loop {
                let mut line = String::new();
                reader.read_line(&mut line)?;
                let line = line.trim_end().to_ascii_lowercase();
                if let Some(value) = line.strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap_or(0);
                }
                if line.is_empty() {
                    break;
                }
            }
            if has_body {
                thread::sleep(Duration::from_millis(1_500));
                std::io::copy(&mut reader.by_ref().take(length), &mut std::io::sink())?;
            }
            (&stream).write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")?;
        }
        std::io::Result::Ok(())
    });
    Ok(format!("http://{address}"))
}

#[test]
fn the_log_says_that_a_slow_upload_was_held_by_the_application() -> TestResult {
    let application = slow_reader()?;
    let (folder, mut site, origin) = proxy(&[&application, "--log", "--log-format", "json"])?;
    let file = folder.path().join("file");
    fs::write(&file, vec![7; 24 << 20])?;
    let file = file.to_str().ok_or("a path")?;
    run(folder.path(), ["put", "--http2", file, &format!("{origin}/file")])?.succeeded();
    assert!(site.line()?.contains("OPTIONS"));
    let line = site.line()?;
    assert!(line.contains(r#""cause":"this_side","origin_ms":"#), "{line}");
    assert!(line.contains(r#""held_by":"origin""#), "{line}");
    Ok(())
}

#[test]
fn an_application_that_is_absent_is_502_and_the_reason_is_on_standard_error() -> TestResult {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let absent = format!("http://{}", listener.local_addr()?);
    drop(listener);
    let (_folder, mut site, origin) = proxy(&[&absent, "--metrics", "127.0.0.1:0"])?;
    let metrics = site.after("metrics on ")?;
    let response = ask_over_tcp(&origin, "GET /", "")?;
    assert_eq!(status(&response), "502");
    let (_, body) = response.split_once("\r\n\r\n").ok_or("no body")?;
    assert_eq!(body, "The application cannot be reached.\n");
    let line = told(&mut site)?;
    assert!(
        line.starts_with(&format!("fullbore: 502: {absent}: cannot connect")),
        "{line}"
    );
    let figures = ask_over_tcp(&metrics, "GET /metrics", "")?;
    assert!(figures.contains("GET") && status(&figures) == "200", "{figures}");
    Ok(())
}

#[test]
fn another_instance_takes_over_and_the_options_of_the_application_hold() -> TestResult {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let absent = format!("http://{}", listener.local_addr()?);
    drop(listener);
    let application = application()?;
    let options = [
        "--origin-host",
        "app.internal",
        "--trusted-proxy",
        "127.0.0.1",
        "--health",
        "/up",
    ];
    let (_folder, _site, origin) = proxy(&[&[&absent as &str, "--to", &application], &options[..]].concat())?;
    for _ in 0..4 {
        let response = ask_over_tcp(&origin, "GET /", "x-forwarded-for: 192.0.2.1\r\n")?;
        let seen = response.to_ascii_lowercase();
        assert!(seen.contains("host: app.internal"), "{response}");
        assert!(
            seen.contains("x-forwarded-for: 192.0.2.1, 127.0.0.1"),
            "{response}"
        );
    }
    let response = ask_over_tcp(&origin, "GET /up", "")?;
    assert!(
        status(&response) == "200" && values(&response, "x-app").is_empty(),
        "{response}"
    );
    Ok(())
}

#[test]
fn a_dead_instance_is_told_once_and_the_metrics_show_it_beside_the_one_that_answers() -> TestResult {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let absent = format!("http://{}", listener.local_addr()?);
    drop(listener);
    let application = application()?;
    let (_folder, mut site, origin) = proxy(&[&absent, "--to", &application, "--metrics", "127.0.0.1:0"])?;
    let metrics = site.after("metrics on ")?;
    for _ in 0..12 {
        assert_eq!(status(&ask_over_tcp(&origin, "GET /", "")?), "200");
    }
    let figures = ask_over_tcp(&metrics, "GET /metrics", "")?;
    for line in [
        format!("fullbore_origin_seconds_count{{origin=\"{application}\"}} 12"),
        format!("fullbore_origin_seconds_bucket{{origin=\"{application}\",le=\"+Inf\"}} 12"),
        format!("fullbore_origin_repeats_total{{origin=\"{absent}\"}} 3"),
        format!("fullbore_origin_ejections_total{{origin=\"{absent}\"}} 1"),
        format!("fullbore_origin_failures_total{{origin=\"{absent}\",outcome=\"502\"}} 0"),
        format!("fullbore_origin_in_use{{origin=\"{absent}\"}} 0"),
        format!("fullbore_origin_in_use{{origin=\"{application}\"}} 1"),
    ] {
        assert!(
            figures.lines().any(|found| found == line),
            "{line} is not in\n{figures}"
        );
    }
    let mut stderr = site.child.stderr.take().ok_or("no output")?;
    site.child.kill()?;
    let mut said = String::new();
    stderr.read_to_string(&mut said)?;
    let lines: Vec<_> = said.lines().collect();
    let start = format!("fullbore: {absent} gets no requests until it answers: cannot connect");
    assert!(matches!(lines[..], [line] if line.starts_with(&start)), "{said}");
    Ok(())
}

#[test]
fn users_are_asked_for_and_their_passwords_stay_with_the_proxy() -> TestResult {
    let application = application()?;
    let entry = entry("u", "secret")?;
    let (_folder, _site, origin) = proxy(&[&application, "--auth", &entry])?;
    let response = ask_over_tcp(&origin, "GET /", "")?;
    assert_eq!(status(&response), "401", "{response}");
    assert!(values(&response, "x-app").is_empty());
    let response = ask_over_tcp(&origin, "GET /", &basic("u", "secret"))?;
    assert_eq!(values(&response, "x-app"), ["yes"], "{response}");
    assert!(!response.contains("authorization"), "{response}");
    Ok(())
}

#[test]
fn wrong_options_are_refused_with_what_to_type() -> TestResult {
    let folder = tempfile::tempdir()?;
    for (args, says) in [
        (&["proxy", "--plaintext"][..], "<ORIGIN>"),
        (&["proxy", "--listen", "0.0.0.0:0", "http://h"], "--plaintext"),
        (
            &["proxy", "--plaintext", "127.0.0.1:3000"],
            "http://127.0.0.1:3000",
        ),
        (&["proxy", "--plaintext", "ftp://h"], "http, h2c, https and unix"),
        (&["proxy", "--plaintext", "http://h/app"], "leave out the path"),
        (
            &["proxy", "--plaintext", "http://h", "--trusted-proxy", "h"],
            "10.0.0.0/8",
        ),
        (
            &["proxy", "--plaintext", "http://h", "--origin-host", "a b"],
            "app.internal",
        ),
        (
            &["proxy", "--plaintext", "http://h", "--uploads", "x"],
            "--uploads",
        ),
    ] {
        let ended = run(folder.path(), args)?;
        assert_eq!(ended.code, Some(2), "{args:?}");
        assert!(ended.stderr.contains(says), "{args:?}: {}", ended.stderr);
    }
    Ok(())
}
