//! `fullbore serve` over HTTP/1.1, to clients that speak in raw octets.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;

use crate::support::{PATIENCE, Serving, Signal, TestResult, names, patiently, signal, until};

/// The octets of the file that is served.
fn content() -> Vec<u8> {
    (0..300_000_u32).map(|at| (at ^ (at >> 7)) as u8).collect()
}

fn connect(serving: &Serving) -> TestResult<TcpStream> {
    let address = serving.origin.strip_prefix("http://").ok_or("no address")?;
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// A response.
#[derive(Debug)]
struct Said {
    status: u16,
    head: String,
    body: Vec<u8>,
}

/// Reads the head of a response.
fn head(stream: &mut TcpStream) -> TestResult<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut octet = [0];
        stream.read_exact(&mut octet)?;
        head.push(octet[0]);
    }
    Ok(String::from_utf8(head)?)
}

/// Reads a response to the end of the connection.
fn read(stream: &mut TcpStream) -> TestResult<Said> {
    let head = head(stream)?;
    let mut body = Vec::new();
    stream.read_to_end(&mut body)?;
    let status = head.get(9..12).ok_or("no status")?.parse()?;
    Ok(Said { status, head, body })
}

/// What a server says to a request, with the fields in `fields`, on a connection of its own.
fn ask(serving: &Serving, line: &str, fields: &str, body: &[u8]) -> TestResult<Said> {
    let mut stream = connect(serving)?;
    let head = format!("{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}\r\n");
    stream.write_all(&[head.as_bytes(), body].concat())?;
    read(&mut stream)
}

fn with_file(root: &Path, args: &[&str]) -> TestResult<Serving> {
    std::fs::write(root.join("file"), content())?;
    std::fs::create_dir_all(root.join("incoming"))?;
    Serving::start(root, &[&["--plaintext"], args].concat())
}

#[test]
fn files_and_their_ranges_are_served() -> TestResult {
    let root = tempfile::tempdir()?;
    let serving = with_file(root.path(), &[])?;
    let all = content();
    let said = ask(&serving, "GET /file", "", b"")?;
    assert!(said.status == 200 && said.body == all, "{}", said.head);
    assert!(said.head.contains("content-length: 300000\r\n"), "{}", said.head);
    let said = ask(&serving, "HEAD /file", "", b"")?;
    assert!(said.head.contains("content-length: 300000\r\n") && said.body.is_empty());
    for (range, expected) in [
        ("bytes=0-0", &all[..1]),
        ("bytes=1000-200999", &all[1_000..201_000]),
        ("bytes=-5", &all[299_995..]),
        ("bytes=299990-", &all[299_990..]),
    ] {
        let said = ask(&serving, "GET /file", &format!("Range: {range}\r\n"), b"")?;
        assert!(
            said.status == 206 && said.body == expected,
            "{range}: {}",
            said.head
        );
    }
    let said = ask(&serving, "GET /file", "Range: bytes=0-1,5-6\r\n", b"")?;
    assert!(
        said.status == 206 && said.head.contains("multipart/byteranges"),
        "{}",
        said.head
    );
    assert_eq!(
        ask(&serving, "GET /file", "Range: bytes=300000-\r\n", b"")?.status,
        416
    );
    assert_eq!(ask(&serving, "GET /none", "", b"")?.status, 404);
    assert_eq!(ask(&serving, "GET /../file", "", b"")?.status, 400);
    assert_eq!(ask(&serving, "OPTIONS *", "", b"")?.status, 204);
    Ok(())
}

#[test]
fn conditional_requests_are_evaluated() -> TestResult {
    let root = tempfile::tempdir()?;
    let serving = with_file(root.path(), &[])?;
    let said = ask(&serving, "GET /file", "", b"")?;
    let etag = said.head.lines().find_map(|line| line.strip_prefix("etag: "));
    let etag = etag.ok_or("no etag")?;
    let said = ask(&serving, "GET /file", &format!("If-None-Match: {etag}\r\n"), b"")?;
    assert!(said.status == 304 && said.body.is_empty(), "{}", said.head);
    let said = ask(&serving, "GET /file", "If-Match: \"another\"\r\n", b"")?;
    assert_eq!(said.status, 412);
    let fields = format!("If-Range: {etag}\r\nRange: bytes=0-9\r\n");
    assert_eq!(ask(&serving, "GET /file", &fields, b"")?.body, content()[..10]);
    Ok(())
}

#[test]
fn uploads_are_stored_when_they_are_complete() -> TestResult {
    let root = tempfile::tempdir()?;
    let serving = with_file(root.path(), &["--uploads", "incoming", "--max-upload", "1MiB"])?;
    let incoming = root.path().join("incoming");
    let all = content();
    let said = ask(&serving, "PUT /a", "Content-Length: 300000\r\n", &all)?;
    assert!(
        said.status == 201 && std::fs::read(incoming.join("a"))? == all,
        "{}",
        said.head
    );
    let chunked = "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n";
    let said = ask(
        &serving,
        "PUT /b",
        "Transfer-Encoding: chunked\r\n",
        chunked.as_bytes(),
    )?;
    assert!(said.status == 201 && std::fs::read(incoming.join("b"))? == b"hello world");
    // Less than said, in one way or the other.
    for (fields, body) in [
        ("Content-Length: 300000\r\n", &all[..100_000]),
        ("Transfer-Encoding: chunked\r\n", b"5\r\nhello\r\n"),
        ("Transfer-Encoding: chunked\r\n", b"5\r\nhello\r\nx\r\n"),
    ] {
        let mut stream = connect(&serving)?;
        let head = format!("PUT /half HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n");
        stream.write_all(&[head.as_bytes(), body].concat())?;
        stream.shutdown(Shutdown::Write)?;
        assert_eq!(read(&mut stream)?.status, 400, "{fields:?}");
    }
    assert_eq!(
        ask(&serving, "PUT /large", "Content-Length: 1048577\r\n", b"x")?.status,
        413
    );
    assert_left(&incoming, &["a", "b"])
}

#[test]
fn an_upload_waits_for_continue_and_one_that_is_refused_is_not_sent() -> TestResult {
    let root = tempfile::tempdir()?;
    let serving = with_file(root.path(), &["--uploads", "incoming", "--max-upload", "1KiB"])?;
    let begin = |length: usize| -> TestResult<TcpStream> {
        let mut stream = connect(&serving)?;
        let head = format!(
            "PUT /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\nExpect: 100-continue\r\n\r\n"
        );
        stream.write_all(head.as_bytes())?;
        Ok(stream)
    };
    let mut stream = begin(5)?;
    assert_eq!(head(&mut stream)?, "HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"hello")?;
    assert!(head(&mut stream)?.starts_with("HTTP/1.1 201 "));
    let said = read(&mut begin(5_000)?)?;
    assert!(
        said.status == 413 && said.head.contains("connection: close\r\n"),
        "{}",
        said.head
    );
    assert_left(&root.path().join("incoming"), &["a"])
}

#[test]
fn more_uploads_than_are_allowed_are_answered_with_503() -> TestResult {
    let root = tempfile::tempdir()?;
    let serving = with_file(root.path(), &["--uploads", "incoming", "--parallel-uploads", "2"])?;
    // One address has half of them. An upload takes its slot with its first bytes: if the other one has it just then, the first
    // is refused and begins again.
    let begin = || -> TestResult<TcpStream> {
        let mut first = connect(&serving)?;
        first.write_all(b"PUT /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nhello")?;
        Ok(first)
    };
    let other = || ask(&serving, "PUT /b", "Content-Length: 1\r\n", b"x");
    let (mut first, mut said) = (begin()?, other()?);
    let mut attempt = 0;
    until("an upload is refused", || {
        attempt += 1;
        if attempt % 100 == 0 {
            first = begin()?;
        }
        said = other()?;
        Ok(said.status == 503)
    })?;
    assert!(
        said.status == 503 && said.head.contains("retry-after: "),
        "{}",
        said.head
    );
    first.write_all(b"hello")?;
    assert!(head(&mut first)?.starts_with("HTTP/1.1 201 "));
    Ok(())
}

/// A job removes what an upload had stored. It may run after the response, and after the connection has ended.
fn assert_left(folder: &Path, files: &[&str]) -> TestResult {
    until(&format!("{files:?} are left"), || Ok(names(folder)? == files))
}

#[test]
fn slow_heads_and_bodies_are_answered_with_408() -> TestResult {
    patiently(|seconds| {
        let root = tempfile::tempdir()?;
        let limit = seconds.to_string();
        let limits = ["--client-header-timeout", &limit, "--client-body-timeout", &limit];
        let serving = with_file(root.path(), &[&["--uploads", "incoming"], &limits[..]].concat())?;
        for begun in [
            "GET /file HT",
            "PUT /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nhello",
        ] {
            let mut stream = connect(&serving)?;
            stream.write_all(begun.as_bytes())?;
            assert_eq!(read(&mut stream)?.status, 408, "{begun:?}");
        }
        assert_left(&root.path().join("incoming"), &[])
    })
}

#[test]
fn either_version_can_be_chosen_alone() -> TestResult {
    let root = tempfile::tempdir()?;
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let serving = with_file(root.path(), &["--http1.1"])?;
    assert_eq!(ask(&serving, "GET /file", "", b"")?.status, 200);
    let mut stream = connect(&serving)?;
    stream.write_all(preface)?;
    let mut said = Vec::new();
    stream.read_to_end(&mut said)?;
    assert!(said.is_empty() || said.starts_with(b"HTTP/1.1 400"), "{said:?}");
    let serving = with_file(root.path(), &["--http2"])?;
    let mut stream = connect(&serving)?;
    stream.write_all(b"GET /file HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut said = Vec::new();
    stream.read_to_end(&mut said)?;
    assert!(!said.starts_with(b"HTTP/1.1"), "{said:?}");
    Ok(())
}

#[test]
fn the_access_log_has_a_line_for_each_request() -> TestResult {
    let root = tempfile::tempdir()?;
    std::fs::write(root.path().join("file"), content())?;
    let mut serving = Serving::start(root.path(), &["--plaintext", "--log"])?;
    assert_eq!(ask(&serving, "GET /file", "User-Agent: x\r\n", b"")?.status, 200);
    let line = serving.line()?;
    assert!(
        line.contains(" GET \"/file\" 200 300000 ") && line.ends_with(" \"x\""),
        "{line}"
    );
    // A download that is broken off.
    let mut stream = connect(&serving)?;
    stream.write_all(b"PUT /file HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc")?;
    head(&mut stream)?;
    let line = serving.line()?;
    assert!(line.contains(" PUT \"/file\" 405 "), "{line}");
    Ok(())
}

#[cfg(unix)]
#[test]
fn a_drain_closes_idle_connections_and_completes_uploads() -> TestResult {
    let root = tempfile::tempdir()?;
    let mut serving = with_file(root.path(), &["--uploads", "incoming"])?;
    let mut idle = connect(&serving)?;
    idle.write_all(b"HEAD /file HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    head(&mut idle)?;
    let mut uploading = connect(&serving)?;
    uploading.write_all(
        b"PUT /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n",
    )?;
    head(&mut uploading)?;
    uploading.write_all(b"hello")?;
    signal(&serving.child, Signal::Terminate)?;
    let mut rest = Vec::new();
    idle.read_to_end(&mut rest)?;
    assert!(rest.is_empty());
    uploading.write_all(b"hello")?;
    let said = read(&mut uploading)?;
    assert!(
        said.status == 201 && said.head.contains("connection: close\r\n"),
        "{}",
        said.head
    );
    assert!(serving.child.wait()?.success());
    assert_eq!(std::fs::read(root.path().join("incoming/a"))?, b"hellohello");
    Ok(())
}
