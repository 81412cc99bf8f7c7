//! Uploads that fail: which are sent again, and with what.

use std::fs;
use std::io::Write as _;
use std::process::Stdio;

use crate::support::frames::{self, END_STREAM};
use crate::support::scripted::{Asked, Server, Then, head};
use crate::support::{TestResult, program, run};

/// Three times as much fits into the window that a connection begins with.
const CONTENT: &[u8] = &[7; 20_000];

fn status(asked: &Asked, code: &str) -> Vec<u8> {
    head(
        asked.stream,
        END_STREAM,
        &[(":status", code), ("retry-after", "0")],
    )
}

/// A folder with a file to upload.
fn folder() -> TestResult<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("file"), CONTENT)?;
    Ok(folder)
}

#[test]
fn an_upload_that_a_server_going_away_did_not_process_is_sent_again() -> TestResult {
    for method in ["PUT", "POST"] {
        let server = Server::of_uploads(|number, asked| match number {
            1 => (frames::go_away(0, 0), Then::Go),
            _ => (status(asked, "201"), Then::Go),
        })?;
        let folder = folder()?;
        let args = [
            "put",
            "-X",
            method,
            "file",
            &server.url(),
            "--json",
            "-o",
            "answer",
        ];
        let ended = run(folder.path(), args)?;
        ended.succeeded();
        assert_eq!(server.asked(), 2);
        assert!(server.body() == CONTENT, "another body");
        let document: serde_json::Value = serde_json::from_slice(&ended.stdout)?;
        assert_eq!(document["sent"], CONTENT.len());
    }
    Ok(())
}

#[test]
fn with_retry_a_put_is_sent_again_and_a_post_that_may_have_been_processed_is_not() -> TestResult {
    for (method, tries, code) in [("PUT", 3, 0), ("POST", 1, 14)] {
        let server = Server::of_uploads(|number, asked| match number {
            1 | 2 => (status(asked, "503"), Then::Go),
            _ => (status(asked, "201"), Then::Go),
        })?;
        let folder = folder()?;
        let args = ["put", "-X", method, "--retry", "2", "file", &server.url()];
        let ended = run(folder.path(), args)?;
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert_eq!(server.asked(), tries, "{method}");
        assert!(server.body() == CONTENT, "another body");
    }
    for (method, tries, code) in [("PUT", 2, 0), ("POST", 1, 10)] {
        let server = Server::of_uploads(|number, asked| match number {
            1 => (Vec::new(), Then::Close),
            _ => (status(asked, "201"), Then::Go),
        })?;
        let folder = folder()?;
        let args = ["put", "-X", method, "--retry", "1", "file", &server.url()];
        let ended = run(folder.path(), args)?;
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert_eq!(server.asked(), tries, "{method}");
    }
    Ok(())
}

#[test]
fn max_time_limits_each_attempt_and_not_all_of_them_together() -> TestResult {
    for (method, code) in [("PUT", 0), ("POST", 13)] {
        let server = Server::of_uploads(|number, asked| match number {
            1 => (Vec::new(), Then::Go),
            _ => (status(asked, "201"), Then::Go),
        })?;
        let folder = folder()?;
        let args = ["put", "-X", method, "--max-time", "1", "--retry", "9", "file"];
        let ended = run(folder.path(), args.into_iter().chain([&*server.url()]))?;
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert!(server.body() == CONTENT, "another body");
        assert_eq!(server.asked() > 1, method == "PUT");
    }
    Ok(())
}

#[test]
fn a_status_that_does_not_pass_and_a_try_that_was_not_asked_for_are_not_repeated() -> TestResult {
    for (code, retry) in [("403", "5"), ("503", "0")] {
        let server = Server::of_uploads(move |_, asked| (status(asked, code), Then::Go))?;
        let folder = folder()?;
        run(folder.path(), ["put", "--retry", retry, "file", &server.url()])?.failed_with(14);
        assert_eq!(server.asked(), 1);
    }
    Ok(())
}

#[test]
fn what_was_read_from_a_pipe_is_not_sent_again() -> TestResult {
    let server = Server::of_uploads(|_, asked| (status(asked, "503"), Then::Go))?;
    let folder = folder()?;
    let mut child = program(folder.path())
        .args(["put", "--retry", "5", "-", &server.url()])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    // A pipe takes that much at once.
    child.stdin.take().ok_or("no pipe")?.write_all(CONTENT)?;
    let ended = child.wait_with_output()?;
    assert_eq!(ended.status.code(), Some(14), "{ended:?}");
    assert_eq!(server.asked(), 1);
    Ok(())
}

#[cfg(unix)]
#[test]
fn standard_input_that_is_a_file_is_sent_with_its_length_from_where_it_stands_and_again() -> TestResult {
    use std::io::{Seek, SeekFrom};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use crate::support::{ended, http1};

    let folder = folder()?;
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let origin = http1::serve(move |head, body| {
        let is_right = head.contains("content-length: 19995\r\n") && body == &CONTENT[5..];
        match (is_right, counter.fetch_add(1, Ordering::SeqCst)) {
            (false, _) => http1::response("411 Length Required", "", b""),
            (true, 0) => http1::response("503 Busy", "retry-after: 0\r\n", b""),
            (true, _) => http1::response("201 Created", "", b""),
        }
    })?;
    let mut file = fs::File::open(folder.path().join("file"))?;
    file.seek(SeekFrom::Start(5))?;
    let mut command = program(folder.path());
    let url = format!("{origin}/stored");
    let command = command.args(["put", "--http1.1", "--retry", "1", "-", &url]);
    // It shares its offset with this one.
    ended(command.stdin(file.try_clone()?))?.succeeded();
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    assert_eq!(file.stream_position()?, CONTENT.len() as u64, "it was read");
    Ok(())
}
