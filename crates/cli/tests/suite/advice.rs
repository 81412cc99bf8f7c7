//! What the program says to do next, where a first command does not do what its user expects.

use std::fs;

use serde_json::Value;

use crate::support::{Ended, Serving, TestResult, program, run};

/// A folder to serve with `a` and `b`, and an empty one to work in.
fn folders() -> TestResult<(tempfile::TempDir, tempfile::TempDir)> {
    let (root, work) = (tempfile::tempdir()?, tempfile::tempdir()?);
    for name in ["a", "b"] {
        fs::write(root.path().join(name), name)?;
    }
    fs::create_dir(root.path().join("incoming"))?;
    Ok((root, work))
}

#[track_caller]
fn fails_and_says(ended: &Ended, code: i32, parts: &[&str]) {
    ended.failed_with(code);
    for part in parts {
        assert!(ended.stderr.contains(part), "{part:?} is not in {ended:?}");
    }
}

#[test]
fn a_second_put_of_a_name_says_how_to_replace_or_leave_out_the_file() -> TestResult {
    let (root, work) = folders()?;
    let serving = Serving::start(root.path(), &["--uploads", "incoming"])?;
    fs::write(work.path().join("file"), "1")?;
    let url = format!("{}/file", serving.origin);
    run(work.path(), ["put", "file", &url])?.succeeded();
    let again = run(work.path(), ["put", "file", &url])?;
    fails_and_says(
        &again,
        14,
        &["status 409", "another name", "--skip-existing", "--overwrite"],
    );
    Ok(())
}

#[test]
fn a_put_to_a_server_without_uploads_says_how_to_start_it() -> TestResult {
    let (root, work) = folders()?;
    let serving = Serving::start(root.path(), &[])?;
    fs::write(work.path().join("file"), "1")?;
    for method in ["PUT", "POST"] {
        let ended = run(
            work.path(),
            ["put", "-X", method, "file", &format!("{}/x", serving.origin)],
        )?;
        fails_and_says(
            &ended,
            14,
            &["takes no uploads", "`fullbore serve --uploads DIR`"],
        );
    }
    Ok(())
}

#[test]
fn status_401_says_whether_credentials_were_sent() -> TestResult {
    let (root, work) = folders()?;
    let mut hash = program(root.path());
    hash.args(["hash-password", "alice"])
        .stdin(std::process::Stdio::piped());
    let mut child = hash.stdout(std::process::Stdio::piped()).spawn()?;
    std::io::Write::write_all(&mut child.stdin.take().ok_or("no input")?, b"secret\n")?;
    let line = String::from_utf8(child.wait_with_output()?.stdout)?;
    let serving = Serving::start(root.path(), &["--auth", line.trim()])?;
    let url = format!("{}/a", serving.origin);
    let without = run(work.path(), ["get", &url])?;
    fails_and_says(&without, 14, &["status 401", "add -u USER:PASSWORD"]);
    let wrong = run(work.path(), ["get", "-u", "alice:wrong", &url])?;
    fails_and_says(
        &wrong,
        14,
        &["status 401", "the server did not accept the user or password"],
    );
    run(work.path(), ["get", "-u", "alice:secret", &url])?.succeeded();
    Ok(())
}

#[test]
fn the_files_of_a_folder_that_are_there_are_left_to_a_mirror() -> TestResult {
    let (root, work) = folders()?;
    let serving = Serving::start(root.path(), &[])?;
    let url = format!("{}/", serving.origin);
    run(work.path(), ["get", "-r", &url])?.succeeded();
    let again = run(work.path(), ["get", "-r", &url])?;
    assert_eq!(again.code, Some(15), "{again:?}");
    for part in [
        "exists; -N downloads what is new or has changed, --skip-existing what is missing, --force all",
        "1 more URL failed in the same way: their files exist; -N downloads what is new or has changed",
    ] {
        assert!(again.stderr.contains(part), "{part:?} is not in {again:?}");
    }
    run(work.path(), ["get", "-rN", &url])?.succeeded();
    Ok(())
}

#[test]
fn two_urls_of_one_file_name_are_both_named() -> TestResult {
    let (root, work) = folders()?;
    fs::write(root.path().join("incoming/a"), "a")?;
    let serving = Serving::start(root.path(), &[])?;
    let (first, second) = (
        format!("{}/a", serving.origin),
        format!("{}/incoming/a", serving.origin),
    );
    let ended = run(work.path(), ["get", "-O", "--parallel", "1", &first, &second])?;
    fails_and_says(
        &ended,
        15,
        &[
            &format!("{second} has the file name a of {first}"),
            "--force-directories",
        ],
    );
    Ok(())
}

#[test]
fn force_and_a_name_from_the_server_are_refused_with_the_reason() -> TestResult {
    let (_root, work) = folders()?;
    let ended = run(work.path(), ["get", "-JO", "--force", "http://127.0.0.1:1/a"])?;
    fails_and_says(&ended, 2, &["lets the server choose the name", "-o FILE"]);
    Ok(())
}

#[test]
fn the_count_of_bytes_that_serve_answers_with_is_not_printed() -> TestResult {
    let (root, work) = folders()?;
    let serving = Serving::start(root.path(), &["--uploads", "incoming"])?;
    fs::write(work.path().join("file"), "123456")?;
    let url = format!("{}/file", serving.origin);
    let ended = run(work.path(), ["put", "-v", "file", &url])?;
    ended.succeeded();
    assert_eq!(ended.stdout, b"");
    assert!(ended.summary().starts_with("sent 6 bytes in "), "{ended:?}");
    run(work.path(), ["put", "-o", "answer", "file", &format!("{url}2")])?.succeeded();
    assert_eq!(fs::read(work.path().join("answer"))?, b"6\n");
    Ok(())
}

#[test]
fn the_document_of_put_is_on_standard_output_and_has_the_answer() -> TestResult {
    let (root, work) = folders()?;
    let serving = Serving::start(root.path(), &["--uploads", "incoming"])?;
    fs::write(work.path().join("file"), "123456")?;
    let url = format!("{}/file", serving.origin);
    let ended = run(work.path(), ["put", "--json", "file", &url])?;
    ended.succeeded();
    let document: Value = serde_json::from_slice(&ended.stdout)?;
    assert_eq!(
        (&document["status"], &document["body"]),
        (&201.into(), &"6\n".into())
    );
    let ended = run(
        work.path(),
        ["put", "--json", "-o", "-", "file", &format!("{url}2")],
    )?;
    ended.succeeded();
    assert_eq!(ended.stdout, b"6\n");
    let document: Value = serde_json::from_str(&ended.stderr)?;
    assert!(
        document["body"].is_null() && document["status"] == 201,
        "{document}"
    );
    Ok(())
}

#[test]
fn the_closing_line_stands_below_the_log() -> TestResult {
    let (root, work) = folders()?;
    let serving = Serving::start(root.path(), &["--uploads", "incoming"])?;
    let url = format!("{}/a", serving.origin);
    fs::write(work.path().join("file"), "1")?;
    let (to, other) = (
        format!("{}/", serving.origin),
        format!("{}/other/", serving.origin),
    );
    for args in [
        &["get", "-v", "--discard", &url][..],
        &["put", "-v", "file", &to],
        &["put", "-v", "--skip-existing", "file", &other],
    ] {
        let ended = run(work.path(), args)?;
        ended.succeeded();
        assert!(ended.stderr.contains("GOAWAY"), "{ended:?}");
        let last = ended.stderr.lines().last().unwrap_or_default();
        assert!(last.contains(" MB/s") || last.contains("files"), "{ended:?}");
    }
    Ok(())
}

#[test]
fn the_address_of_one_file_ends_in_its_name() -> TestResult {
    let (root, _work) = folders()?;
    let mut command = program(root.path());
    command.args(["serve", "a", "--lan", "--port", "0"]);
    command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let mut child = command.spawn()?;
    let mut lines = std::io::BufReader::new(child.stderr.take().ok_or("no output")?);
    let mut said = String::new();
    // A machine without an address beside loopback is told nothing.
    while std::io::BufRead::read_line(&mut lines, &mut said)? > 0 && !said.contains("  http") {
        if said.contains("note: without TLS") {
            break;
        }
    }
    child.kill()?;
    child.wait()?;
    let urls: Vec<&str> = said.lines().filter(|line| line.starts_with("  http")).collect();
    assert!(urls.iter().all(|url| url.ends_with("/a")), "{said}");
    Ok(())
}
