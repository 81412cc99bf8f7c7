//! Redirects of `get` and `put`: what is followed, what is sent again, what is never saved, and who learns what.

use std::sync::{Arc, Mutex, PoisonError};

use crate::support::scripted::{Server, Then, data, head};
use crate::support::{TestResult, names, run};

/// What a server was asked: the method, the path, and the fields of the user.
type Asked = Arc<Mutex<Vec<(String, String, Vec<String>)>>>;

/// A server that redirects `/from` with this status, and answers everything else with a short body.
fn server(status: &'static str, to: Option<String>) -> TestResult<(Server, Asked)> {
    let asked = Asked::default();
    let noted = Arc::clone(&asked);
    let server = Server::of_uploads(move |_, request| {
        let field = |name: &str| request.fields.get(name).cloned();
        let path = field(":path").unwrap_or_default();
        let of_user = ["x-api-key", "authorization", "cookie", "referer"].map(field);
        noted.lock().unwrap_or_else(PoisonError::into_inner).push((
            field(":method").unwrap_or_default(),
            path.clone(),
            of_user.into_iter().flatten().collect(),
        ));
        let mut out;
        if path.starts_with("/from") {
            let mut fields = vec![(":status", status)];
            fields.extend(to.as_deref().map(|to| ("location", to)));
            out = head(request.stream, 0, &fields);
            out.extend(data(request.stream, b"moved", true));
        } else {
            out = head(request.stream, 0, &[(":status", "200")]);
            out.extend(data(request.stream, b"body", true));
        }
        (out, Then::Go)
    })?;
    Ok((server, asked))
}

fn asked(noted: &Asked) -> Vec<(String, String, Vec<String>)> {
    noted.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn methods(noted: &Asked) -> Vec<String> {
    asked(noted).into_iter().map(|request| request.0).collect()
}

fn url(server: &Server, path: &str) -> String {
    server.url().replace("/file", path)
}

#[test]
fn the_body_of_a_redirect_is_never_saved() -> TestResult {
    for status in ["300", "301", "302", "303", "304", "307", "308"] {
        let (without, _) = server(status, None)?;
        let (with, _) = server(status, Some("/there".to_owned()))?;
        let folder = tempfile::tempdir()?;
        for (server, option) in [
            (&without, "-L"),
            (&without, "--no-location"),
            (&with, "--no-location"),
        ] {
            let ended = run(folder.path(), ["get", option, "-O", &url(server, "/from")])?;
            ended.failed_with(14);
            assert!(ended.stderr.contains(status), "{ended:?}");
            assert!(names(folder.path())?.is_empty(), "{status} {option}");
        }
        if status != "300" && status != "304" {
            let ended = run(folder.path(), ["get", "--no-location", &url(&with, "/from")])?;
            assert!(
                ended.stderr.contains("/there"),
                "the Location is not named: {ended:?}"
            );
            run(folder.path(), ["get", "-O", &url(&with, "/from")])?.succeeded();
            assert_eq!(std::fs::read(folder.path().join("from"))?, b"body");
        }
    }
    Ok(())
}

#[test]
fn the_number_of_redirects_is_an_option() -> TestResult {
    let (looping, noted) = server("302", Some("/from".to_owned()))?;
    let folder = tempfile::tempdir()?;
    for (most, requests) in [("0", 1), ("3", 4)] {
        let before = asked(&noted).len();
        let ended = run(
            folder.path(),
            ["get", "--max-redirs", most, &url(&looping, "/from")],
        )?;
        ended.failed_with(14);
        assert!(ended.stderr.contains("--max-redirs"), "{ended:?}");
        assert_eq!(asked(&noted).len() - before, requests);
    }
    Ok(())
}

#[test]
fn nothing_of_the_user_goes_to_another_origin_and_all_of_it_to_the_same() -> TestResult {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("file"), "content")?;
    std::fs::write(
        folder.path().join("netrc"),
        "machine 127.0.0.1 login user password hunter2",
    )?;
    let (away, told) = server("302", None)?;
    let (near, first) = server("302", Some(url(&away, "/there")))?;
    let (same, both) = server("302", Some("/there".to_owned()))?;
    for secret in [
        &["-H", "X-Api-Key: secret"][..],
        &["-H", "Cookie: a=b"],
        &["-H", "Authorization: secret"],
        &["-u", "user:hunter2"],
        &["-b", "a=b"],
        &["-e", "http://secret.example/"],
        &["--netrc-file", "netrc"],
    ] {
        for command in [&["get"][..], &["put", "file"]] {
            let (from, to) = (asked(&first).len(), asked(&told).len());
            let address = url(&near, "/from");
            run(folder.path(), [command, &[&address], secret].concat())?.succeeded();
            assert_eq!(asked(&first)[from].2.len(), 1, "{secret:?}");
            assert_eq!(asked(&told)[to].2.len(), 0, "{secret:?} went to another origin");

            let before = asked(&both).len();
            let address = url(&same, "/from");
            run(folder.path(), [command, &[&address], secret].concat())?.succeeded();
            let seen = &asked(&both)[before..];
            assert_eq!((seen[0].2.len(), seen[1].2.len()), (1, 1), "{secret:?}");
        }
    }
    // A name and password in the URL.
    let (from, to) = (asked(&first).len(), asked(&told).len());
    let address = url(&near, "/from").replace("http://", "http://us%40er:hunter2@");
    run(folder.path(), ["get", &address])?.succeeded();
    // us@er:hunter2
    assert_eq!(asked(&first)[from].2, ["Basic dXNAZXI6aHVudGVyMg=="]);
    assert_eq!(asked(&told)[to].2.len(), 0);
    Ok(())
}

#[test]
fn an_upload_goes_where_the_redirect_says_with_its_method_and_body_or_as_a_get() -> TestResult {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("file"), "content")?;
    for (status, method, expected, is_sent_again) in [
        ("301", "PUT", ["PUT", "PUT"], true),
        ("302", "PUT", ["PUT", "PUT"], true),
        ("307", "PUT", ["PUT", "PUT"], true),
        ("308", "POST", ["POST", "POST"], true),
        ("307", "POST", ["POST", "POST"], true),
        ("303", "PUT", ["PUT", "GET"], false),
        ("301", "POST", ["POST", "GET"], false),
        ("302", "POST", ["POST", "GET"], false),
    ] {
        let (server, noted) = server(status, Some("/there".to_owned()))?;
        let ended = run(
            folder.path(),
            ["put", "-X", method, "file", &url(&server, "/from")],
        )?;
        ended.succeeded();
        assert_eq!(ended.stdout, b"body");
        assert_eq!(methods(&noted), expected, "{status}");
        if is_sent_again {
            assert_eq!(server.body(), b"content", "{status}");
        }
    }
    Ok(())
}

#[test]
fn fields_about_an_upload_are_not_sent_with_the_request_for_its_result() -> TestResult {
    let origin = crate::support::http1::serve(|head, _| match head {
        head if head.contains(" /from ") => {
            crate::support::http1::response("303 See Other", "location: /there\r\n", b"")
        }
        head => crate::support::http1::ok("", head.as_bytes()),
    })?;
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("file"), "content")?;
    let address = format!("{origin}/from");
    let mut args = vec!["put", "--http1.1", "file", &address, "-H", "x-mine: 1"];
    for field in [
        "content-type: text/plain",
        "content-encoding: gzip",
        "content-language: en",
        "if-none-match: *",
    ] {
        args.extend(["-H", field]);
    }
    let ended = run(folder.path(), args)?;
    ended.succeeded();
    let asked = String::from_utf8(ended.stdout)?;
    assert!(
        asked.starts_with("GET /there ") && asked.contains("x-mine: 1"),
        "{asked}"
    );
    assert!(!asked.contains("content-") && !asked.contains("if-"), "{asked}");
    Ok(())
}

#[test]
fn an_upload_that_cannot_be_sent_again_or_must_not_be_fails_with_the_url() -> TestResult {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("file"), "content")?;
    let (server, noted) = server("307", Some("/there".to_owned()))?;
    let address = url(&server, "/from");
    let from_pipe = run(folder.path(), ["put", "-", &address])?;
    from_pipe.failed_with(14);
    assert!(from_pipe.stderr.contains("/there"), "{from_pipe:?}");
    let not_followed = run(folder.path(), ["put", "--no-location", "file", &address])?;
    not_followed.failed_with(14);
    assert!(not_followed.stderr.contains("/there"), "{not_followed:?}");
    assert_eq!(methods(&noted), ["PUT", "PUT"]);
    Ok(())
}

#[test]
fn a_note_about_an_upload_is_no_error_and_stays_out_of_the_document() -> TestResult {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("file"), "content")?;
    let (server, _) = server("303", Some("/there".to_owned()))?;
    let address = url(&server, "/from");
    let put = |options: &[&str]| -> TestResult<String> {
        let args = [&["put", "--no-location", "file", &address], options].concat();
        let ended = run(folder.path(), args)?;
        ended.succeeded();
        Ok(ended.stderr)
    };
    assert!(put(&[])?.contains("/there"));
    assert_eq!(put(&["-q"])?, "");
    assert_eq!(put(&["-s"])?, "");
    let ended = run(
        folder.path(),
        ["put", "--no-location", "--json", "file", &address],
    )?;
    ended.succeeded();
    let document: serde_json::Value = serde_json::from_slice(&ended.stdout)?;
    let note = document["note"].as_str().unwrap_or_default();
    assert!(note.contains("/there"), "{document}");
    Ok(())
}

#[test]
fn a_redirect_that_has_a_name_and_password_is_followed_with_these() -> TestResult {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("file"), "content")?;
    let (away, told) = server("307", None)?;
    let named = url(&away, "/there").replace("http://", "http://us%40er:hunter2@");
    let (near, _) = server("307", Some(named))?;
    for command in [&["get"][..], &["put", "file"]] {
        let before = asked(&told).len();
        let address = url(&near, "/from");
        let ended = run(
            folder.path(),
            [command, &[&address, "-u", "mine:secret", "-v"]].concat(),
        )?;
        ended.succeeded();
        assert!(!ended.stderr.contains("hunter2"), "{ended:?}");
        // us@er:hunter2
        assert_eq!(asked(&told)[before].2, ["Basic dXNAZXI6aHVudGVyMg=="]);
    }
    Ok(())
}
