//! The log that `-v` and RUST_LOG write to standard error.

use std::path::Path;

use crate::support::{Serving, TestResult, program};

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
