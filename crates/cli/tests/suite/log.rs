//! The log that `-v` and RUST_LOG write to standard error.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

use crate::support::{PATIENCE, Serving, TestResult, program};

/// How the targets of the library begin.
const LIBRARY: &str = "fullbore::";

/// What `fullbore get` of the server's file prints on standard error, with these options and RUST_LOG.
fn log(serving: &Serving, options: &[&str], rust_log: &str) -> TestResult<String> {
    let ended = program(Path::new("."))
        .arg("get")
        .args(options)
        .arg(format!("{}/a.txt", serving.origin))
        .env("RUST_LOG", rust_log)
        .output()?;
    assert_eq!(
        ended.stdout,
        b"hello",
        "{}",
        String::from_utf8_lossy(&ended.stderr)
    );
    Ok(String::from_utf8(ended.stderr)?)
}

#[test]
fn the_log_has_what_was_asked_for_and_nothing_otherwise() -> TestResult {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("a.txt"), "hello")?;
    let serving = Serving::start(folder.path(), &["--plaintext"])?;
    let (settings, request) = ("received SETTINGS", "method=GET");
    let text = log(&serving, &[], "")?;
    assert!(!text.contains(LIBRARY), "{text}");
    let text = log(&serving, &["-v"], "")?;
    assert!(text.contains(settings) && !text.contains(request), "{text}");
    let text = log(&serving, &["-vv"], "")?;
    assert!(text.contains(settings) && text.contains(request), "{text}");
    // RUST_LOG precedes `-v`.
    let text = log(&serving, &["-v"], "fullbore::stream=trace")?;
    assert!(!text.contains(settings) && text.contains(request), "{text}");
    let text = log(&serving, &[], "warn")?;
    assert!(!text.contains(LIBRARY), "{text}");
    let text = log(&serving, &[], "fullbore=loud")?;
    assert!(text.contains("RUST_LOG is ignored"), "{text}");
    Ok(())
}

#[test]
fn a_server_whose_standard_error_nobody_reads_goes_on() -> TestResult {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("a.txt"), "hello")?;
    let mut serving = Serving::start(folder.path(), &["--plaintext", "-vv"])?;
    let address = serving.origin.strip_prefix("http://").ok_or("no origin")?;
    // Each request logs more than 64 octets, and a pipe holds 64 KiB.
    for _ in 0..20 {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let request = "GET /a.txt HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(99);
        let last = "GET /a.txt HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        stream.write_all((request + last).as_bytes())?;
        let mut answers = String::new();
        stream.read_to_string(&mut answers)?;
        assert_eq!(answers.matches("200 OK").count(), 100);
    }
    // What waited is there for whoever reads at last.
    let mut stderr = serving.child.stderr.take().ok_or("no standard error")?;
    serving.child.kill()?;
    let mut text = String::new();
    stderr.read_to_string(&mut text)?;
    assert!(text.contains(LIBRARY), "{text}");
    Ok(())
}
