//! Uploads that begin with an empty request, because no 104 response names their resource: over HTTP/1.1, and where one is
//! missing. The server is asked first, and what does not offer resumable uploads gets the whole file in one request.

use crate::support::uploads::{
    ALL, Act, Asked, HAD, LENGTH, Server, command, complete, content, created, folder, offer, offset, put,
    records, say, supported,
};
use crate::support::{TestResult, ended};

/// What a server does that offers resumable uploads and sends no 104. It has nothing yet.
fn offering(asked: &Asked) -> Vec<Act> {
    match asked.method.as_str() {
        "OPTIONS" => vec![offer("max-size=100000000")],
        "HEAD" => vec![offset(HAD)],
        "PATCH" => vec![ALL, complete(201, true)],
        _ => vec![ALL, created("/upload/1")],
    }
}

#[track_caller]
fn is_empty_creation(asked: &Asked) {
    assert_eq!(asked.field("upload-complete"), Some("?0"));
    assert_eq!(asked.field("content-length"), Some("0"));
    assert_eq!(asked.field("upload-length"), Some("9000000"));
    assert_eq!(asked.body, b"");
}

#[test]
fn over_http1_an_empty_request_creates_the_upload_and_patch_sends_the_file() -> TestResult {
    for method in ["PUT", "POST"] {
        let server = Server::of_http1_with_options(|_, asked| offering(asked))?;
        let folder = folder()?;
        let ended = put(folder.path(), &server.url(), &["-X", method, "-u", "a:b"])?;
        ended.succeeded();
        let creation = format!("{method} /file");
        assert_eq!(server.lines(), ["OPTIONS /file", &creation, "PATCH /upload/1"]);
        let asked = server.asked();
        is_empty_creation(&asked[1]);
        assert_eq!(asked[2].field("upload-offset"), Some("0"));
        assert_eq!(asked[2].field("upload-complete"), Some("?1"));
        assert!(asked[2].body == content(), "another body");
        for asked in &asked {
            assert!(asked.field("authorization").is_some(), "{}", asked.method);
        }
        assert_eq!(records(folder.path())?, [""; 0]);
    }
    Ok(())
}

#[test]
fn over_http1_a_server_that_offers_nothing_gets_the_whole_file_in_one_request() -> TestResult {
    for (status, fields) in [
        (204, vec![]),
        (200, vec![("allow", "OPTIONS, PUT")]),
        (405, vec![("upload-limit", "max-size=100000000")]),
        (404, vec![]),
        (501, vec![]),
        (204, vec![("upload-limit", "max-size=?1")]),
    ] {
        let said: Vec<_> = fields
            .iter()
            .map(|&(name, value)| (name, value.to_owned()))
            .collect();
        let server = Server::of_http1_with_options(move |_, asked| match asked.method.as_str() {
            "OPTIONS" => vec![Act::Say(status, said.clone())],
            _ => vec![ALL, say(201)],
        })?;
        put(folder()?.path(), &server.url(), &[])?.succeeded();
        assert_eq!(
            server.lines(),
            ["OPTIONS /file", "PUT /file"],
            "{status} {fields:?}"
        );
        let asked = server.asked();
        assert_eq!(asked[1].field("upload-complete"), Some("?1"));
        assert!(asked[1].body == content(), "another body");
    }
    Ok(())
}

#[test]
fn a_small_file_is_sent_without_a_question() -> TestResult {
    let server = Server::of_http1_with_options(|_, _| vec![ALL, say(201)])?;
    let folder = folder()?;
    std::fs::write(folder.path().join("file"), "small")?;
    put(folder.path(), &server.url(), &[])?.succeeded();
    assert_eq!(server.lines(), ["PUT /file"]);
    Ok(())
}

#[test]
fn over_http1_what_refuses_the_empty_request_refuses_the_upload() -> TestResult {
    let server = Server::of_http1_with_options(|_, asked| match asked.method.as_str() {
        "PUT" => vec![say(409)],
        _ => offering(asked),
    })?;
    let folder = folder()?;
    let ended = put(folder.path(), &server.url(), &[])?;
    ended.failed_with(14);
    assert!(ended.stderr.contains("status 409"), "{ended:?}");
    assert_eq!(server.lines(), ["OPTIONS /file", "PUT /file"]);
    Ok(())
}

#[test]
fn over_http1_a_server_that_creates_nothing_gets_the_whole_file() -> TestResult {
    for refusal in [400, 405, 503] {
        let server = Server::of_http1_with_options(move |_, asked| {
            match (asked.method.as_str(), asked.field("upload-complete")) {
                ("PUT", Some("?0")) => vec![say(refusal)],
                ("PUT", _) => vec![ALL, say(201)],
                _ => offering(asked),
            }
        })?;
        put(folder()?.path(), &server.url(), &[])?.succeeded();
        assert_eq!(server.lines(), ["OPTIONS /file", "PUT /file", "PUT /file"]);
        assert!(server.asked()[2].body == content(), "another body");
    }
    Ok(())
}

#[cfg(unix)]
#[test]
fn over_http1_an_upload_that_is_killed_is_resumed_by_the_same_command() -> TestResult {
    use std::process::Stdio;

    use crate::support::{Signal, signal, until};

    for stop in [Signal::Interrupt, Signal::Kill] {
        let server = Server::of_http1_with_options(|_, asked| offering(asked))?;
        let folder = folder()?;
        let mut first = command(folder.path());
        // It would take a minute.
        first.args(["put", "file", &server.url(), "--limit-rate", "150k"]);
        let mut child = first.stderr(Stdio::null()).spawn()?;
        until("a record", || Ok(!records(folder.path())?.is_empty()))?;
        until("the PATCH", || Ok(server.lines().len() == 3))?;
        signal(&child, stop)?;
        child.wait()?;
        let ended = put(folder.path(), &server.url(), &[])?;
        ended.succeeded();
        let lines = server.lines();
        assert_eq!(lines[3..], ["HEAD /upload/1", "PATCH /upload/1"]);
        let rest = &server.asked()[4];
        assert_eq!(rest.field("upload-offset"), Some("3000000"));
        assert!(rest.body == content()[HAD..], "another rest");
        assert!(ended.stderr.contains("resuming at 3,000,000"), "{ended:?}");
        assert_eq!(records(folder.path())?, [""; 0]);
    }
    Ok(())
}

#[test]
fn over_http1_one_question_serves_all_files_of_a_run() -> TestResult {
    let server = Server::of_http1_with_options(|_, asked| offering(asked))?;
    let folder = folder()?;
    std::fs::copy(folder.path().join("file"), folder.path().join("other"))?;
    let url = format!("{}/up/", server.origin());
    ended(command(folder.path()).args(["put", "file", "other", &url]))?.succeeded();
    let count = |method: &str| {
        let lines = server.lines();
        lines.iter().filter(|line| line.starts_with(method)).count()
    };
    assert_eq!([count("OPTIONS"), count("PUT"), count("PATCH")], [1, 2, 2]);
    Ok(())
}

#[test]
fn a_file_above_the_offered_size_gets_the_answer_of_the_server() -> TestResult {
    let server = Server::of_http1_with_options(|_, asked| match asked.method.as_str() {
        "OPTIONS" => vec![offer("max-size=1000000")],
        _ => vec![ALL, say(413)],
    })?;
    let ended = put(folder()?.path(), &server.url(), &[])?;
    ended.failed_with(14);
    assert!(ended.stderr.contains("413"), "{ended:?}");
    assert_eq!(server.lines(), ["OPTIONS /file", "PUT /file"]);
    Ok(())
}

#[test]
fn after_a_break_without_104_the_upload_begins_again_with_an_empty_request() -> TestResult {
    let server = Server::with_options(|number, asked| match number {
        2 => vec![Act::Take(HAD), Act::Close],
        _ => offering(asked),
    })?;
    let folder = folder()?;
    let ended = put(folder.path(), &server.url(), &[])?;
    ended.succeeded();
    let lines = ["OPTIONS /file", "PUT /file", "PUT /file", "PATCH /upload/1"];
    assert_eq!(server.lines(), lines);
    let asked = server.asked();
    is_empty_creation(&asked[2]);
    assert!(asked[3].body == content(), "another body");
    assert!(
        ended.stderr.contains("sending it again from the start"),
        "{ended:?}"
    );
    Ok(())
}

#[test]
fn after_a_break_without_104_post_is_not_repeated() -> TestResult {
    let server = Server::with_options(|number, asked| match number {
        2 => vec![Act::Take(HAD), Act::Close],
        _ => offering(asked),
    })?;
    put(folder()?.path(), &server.url(), &["-X", "POST"])?.failed_with(10);
    assert_eq!(server.lines(), ["OPTIONS /file", "POST /file"]);
    Ok(())
}

#[test]
fn over_http2_a_request_without_104_for_a_while_is_replaced_by_an_upload_that_resumes() -> TestResult {
    let server = Server::with_options(|number, asked| match number {
        // The body is not read before there are other requests.
        2 => vec![],
        _ => offering(asked),
    })?;
    let folder = folder()?;
    put(folder.path(), &server.url(), &["--limit-rate", "3M"])?.succeeded();
    let lines = ["OPTIONS /file", "PUT /file", "PUT /file", "PATCH /upload/1"];
    assert_eq!(server.lines(), lines);
    assert!(server.asked()[3].body == content(), "another body");
    Ok(())
}

#[test]
fn over_http2_a_request_that_was_told_its_resource_goes_on() -> TestResult {
    let server = Server::with_options(|_, asked| match asked.method.as_str() {
        "PUT" => vec![supported("/upload/1"), ALL, complete(201, true)],
        _ => offering(asked),
    })?;
    let folder = folder()?;
    // It takes three seconds.
    put(folder.path(), &server.url(), &["--limit-rate", "3M"])?.succeeded();
    assert_eq!(server.lines(), ["OPTIONS /file", "PUT /file"]);
    assert_eq!(server.asked()[1].body.len(), LENGTH);
    Ok(())
}
