//! Uploads that a later run continues, and those of many files.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::uploads::{
    ALL, Act, Asked, HAD, LENGTH, Server, broken, command, content, folder, limited, once_broken, put,
    records, say, supported,
};
use crate::support::{TestResult, ended};

/// Runs until the upload has broken off and cannot go on, and leaves a record.
fn leave_a_record(folder: &Path, server: &Server) -> TestResult {
    let ended = put(folder, &server.url(), &[])?;
    assert!(ended.stderr.contains("the same command resumes"), "{ended:?}");
    assert_eq!(records(folder)?.len(), 1, "{ended:?}");
    Ok(())
}

/// A server that breaks off and does not come back within the first run; afterwards it does as `then` says.
fn down(then: impl Fn(&Asked) -> Vec<Act> + Send + Sync + 'static) -> TestResult<Server> {
    Server::start(move |number, asked| match number {
        1 => broken(),
        2 => vec![say(503)],
        _ => then(asked),
    })
}

#[test]
fn a_later_run_resumes_what_an_earlier_one_has_left_and_then_forgets_it() -> TestResult {
    use std::os::unix::fs::PermissionsExt as _;
    let server = down(once_broken)?;
    let folder = folder()?;
    leave_a_record(folder.path(), &server)?;
    let uploads = folder.path().join("state/fullbore/uploads");
    let record = uploads.join(&records(folder.path())?[0]);
    assert_eq!(fs::metadata(&record)?.permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(&uploads)?.permissions().mode() & 0o777, 0o700);
    // By another name of the same path.
    let mut again = command(folder.path());
    let ended = ended(again.args(["put", "./file", &server.url(), "--json", "-o", "answer"]))?;
    ended.succeeded();
    assert_eq!(server.lines()[2..], ["HEAD /upload/1", "PATCH /upload/1"]);
    assert!(server.asked()[3].body == content()[HAD..], "another rest");
    let document: Value = serde_json::from_slice(&ended.stdout)?;
    assert_eq!(
        (&document["resumed"], &document["sent"]),
        (&3_000_000.into(), &6_000_000.into())
    );
    assert_eq!(document["status"], 201);
    assert_eq!(records(folder.path())?, [""; 0]);
    Ok(())
}

/// The JSON document of a run that resumes what an earlier one has left.
pub(crate) fn document_of_a_later_run() -> TestResult<Value> {
    let server = down(once_broken)?;
    let folder = folder()?;
    leave_a_record(folder.path(), &server)?;
    let ended = put(folder.path(), &server.url(), &["--json", "-o", "answer"])?;
    ended.succeeded();
    Ok(serde_json::from_slice(&ended.stdout)?)
}

#[test]
fn another_url_or_method_does_not_resume() -> TestResult {
    for (path, method) in [("other", "PUT"), ("file", "POST")] {
        let server = down(|_| vec![ALL, say(201)])?;
        let folder = folder()?;
        leave_a_record(folder.path(), &server)?;
        let url = format!("{}/{path}", server.origin());
        put(folder.path(), &url, &["-X", method])?.succeeded();
        assert_eq!(server.asked()[2].method, method);
        assert_eq!(records(folder.path())?.len(), 1);
    }
    Ok(())
}

#[test]
fn a_later_run_begins_anew_when_the_resource_is_gone() -> TestResult {
    for method in ["PUT", "POST"] {
        let server = Server::start(|number, asked| match (number, asked.method.as_str()) {
            (1, _) => broken(),
            (2, _) => vec![say(503)],
            (_, "HEAD") => vec![say(404)],
            _ => vec![ALL, say(201)],
        })?;
        let folder = folder()?;
        put(folder.path(), &server.url(), &["-X", method])?;
        put(folder.path(), &server.url(), &["-X", method])?.succeeded();
        let asked = server.asked();
        assert_eq!((asked.len(), asked[3].method.as_str()), (4, method));
        assert!(asked[3].body == content(), "another body");
        assert_eq!(records(folder.path())?, [""; 0]);
    }
    Ok(())
}

#[test]
fn a_later_run_without_the_right_credentials_does_not_forget_the_resource() -> TestResult {
    let server = down(|asked| match asked.field("authorization") {
        None => vec![say(401)],
        Some(_) => once_broken(asked),
    })?;
    let folder = folder()?;
    leave_a_record(folder.path(), &server)?;
    put(folder.path(), &server.url(), &[])?.failed_with(14);
    put(folder.path(), &server.url(), &["-u", "a:b"])?.succeeded();
    let lines = ["HEAD /upload/1", "HEAD /upload/1", "PATCH /upload/1"];
    assert_eq!(server.lines()[2..], lines);
    Ok(())
}

#[test]
fn a_file_that_changed_since_is_sent_anew_and_the_old_resource_is_deleted() -> TestResult {
    let server = down(|asked| match asked.method.as_str() {
        "DELETE" => vec![say(204)],
        _ => vec![ALL, say(201)],
    })?;
    let folder = folder()?;
    leave_a_record(folder.path(), &server)?;
    let mut changed = content();
    changed[0] ^= 1;
    fs::write(folder.path().join("file"), &changed)?;
    put(folder.path(), &server.url(), &["-u", "a:b"])?.succeeded();
    let asked = server.asked();
    assert_eq!(server.lines()[2..], ["DELETE /upload/1", "PUT /file"]);
    assert!(asked[2].field("authorization").is_some());
    assert!(asked[3].body == changed, "another body");
    Ok(())
}

#[test]
fn a_resource_whose_lifetime_is_over_is_not_asked_for() -> TestResult {
    let server = Server::start(|number, _| match number {
        1 => vec![limited("/upload/1", "max-age=0"), Act::Take(HAD), Act::Close],
        2 => vec![say(503)],
        _ => vec![ALL, say(201)],
    })?;
    let folder = folder()?;
    leave_a_record(folder.path(), &server)?;
    put(folder.path(), &server.url(), &[])?.succeeded();
    assert_eq!(server.lines()[2..], ["PUT /file"]);
    Ok(())
}

#[test]
fn an_interrupt_says_that_the_same_command_resumes_and_it_does() -> TestResult {
    use std::process::Stdio;

    use crate::support::{Signal, signal, until};

    for (stop, code) in [(Signal::Interrupt, Some(130)), (Signal::Kill, None)] {
        let server = Server::start(|number, asked| match number {
            1 => vec![supported("/upload/1"), ALL],
            _ => once_broken(asked),
        })?;
        let folder = folder()?;
        let mut first = command(folder.path());
        // It would take a minute.
        first.args(["put", "file", &server.url(), "--limit-rate", "150k"]);
        let child = first.stderr(Stdio::piped()).spawn()?;
        until("a record", || Ok(!records(folder.path())?.is_empty()))?;
        signal(&child, stop)?;
        let output = child.wait_with_output()?;
        let text = String::from_utf8(output.stderr)?;
        assert_eq!(output.status.code(), code, "{text}");
        if code.is_some() {
            let sentence =
                "the server keeps the part that it has received: run the same command again to resume";
            assert!(text.contains(sentence), "{text}");
        }
        put(folder.path(), &server.url(), &[])?.succeeded();
        assert_eq!(server.lines(), ["PUT /file", "HEAD /upload/1", "PATCH /upload/1"]);
        assert!(server.asked()[2].body == content()[HAD..], "another rest");
    }
    Ok(())
}

#[test]
fn the_large_files_of_many_are_continued_within_a_run_and_by_a_later_one() -> TestResult {
    let folder = folder()?;
    fs::write(folder.path().join("small"), "small")?;
    let of_many = |server: &Server, options: &[&str]| {
        let url = format!("{}/up/", server.origin());
        let mut command = command(folder.path());
        ended(
            command
                .args(["put", "file", "small", &url, "--json"])
                .args(options),
        )
    };
    let answer = |asked: &Asked| match asked.path.as_str() {
        "/up/small" => vec![ALL, say(201)],
        // The small file has the same connection.
        "/up/file" => vec![supported("/upload/1"), Act::Take(HAD), Act::Reset],
        _ => once_broken(asked),
    };
    let server = Server::start(move |_, asked| answer(asked))?;
    let ended = of_many(&server, &[])?;
    ended.succeeded();
    let mut lines = server.lines();
    lines.retain(|line| line != "PUT /up/small");
    assert_eq!(lines, ["PUT /up/file", "HEAD /upload/1", "PATCH /upload/1"]);
    let document: Value = serde_json::from_slice(&ended.stdout)?;
    assert_eq!(document["totals"]["bytes"], LENGTH + 5, "{document}");
    assert_eq!(records(folder.path())?, [""; 0]);
    let tries = std::sync::atomic::AtomicUsize::new(0);
    let server = Server::start(move |_, asked| match asked.method.as_str() {
        "HEAD" if tries.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0 => vec![say(503)],
        _ => answer(asked),
    })?;
    let ended = of_many(&server, &[])?;
    assert_eq!(ended.code, Some(14), "{ended:?}");
    assert_eq!(records(folder.path())?.len(), 1);
    let ended = of_many(&server, &[])?;
    ended.succeeded();
    let document: Value = serde_json::from_slice(&ended.stdout)?;
    assert_eq!(document["totals"]["bytes"], LENGTH - HAD + 5, "{document}");
    assert_eq!(records(folder.path())?, [""; 0]);
    Ok(())
}
