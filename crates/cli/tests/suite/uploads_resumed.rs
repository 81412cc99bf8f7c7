//! Uploads that break off and are continued within a run (draft-ietf-httpbis-resumable-upload): each step of a client,
//! against a server that does as a script says.

use std::fs;
use std::sync::Mutex;

use serde_json::Value;

use crate::support::uploads::{
    ALL, Act, Asked, HAD, LENGTH, Server, broken, command, complete, content, folder, limited, offset,
    once_broken, put, records, say, supported,
};
use crate::support::{TestResult, ended, patiently};

#[track_caller]
fn is_continued(asked: &[Asked]) {
    let [first, head, rest] = asked else {
        panic!("{} requests", asked.len());
    };
    let content = content();
    assert_eq!(first.field("upload-complete"), Some("?1"));
    assert_eq!(first.field("upload-length"), Some("9000000"));
    assert_eq!(first.field("upload-draft-interop-version"), Some("8"));
    assert!(content.starts_with(&first.body) && first.body.len() >= HAD);
    assert_eq!((head.method.as_str(), head.path.as_str()), ("HEAD", "/upload/1"));
    assert_eq!(head.field("upload-draft-interop-version"), Some("8"));
    assert_eq!((rest.method.as_str(), rest.path.as_str()), ("PATCH", "/upload/1"));
    assert_eq!(rest.field("content-type"), Some("application/partial-upload"));
    assert_eq!(rest.field("upload-offset"), Some("3000000"));
    assert_eq!(rest.field("upload-complete"), Some("?1"));
    assert_eq!(rest.field("content-length"), Some("6000000"));
    assert!(rest.body == content[HAD..], "another rest");
}

#[test]
fn after_a_break_the_offset_is_asked_for_and_the_rest_is_appended() -> TestResult {
    for method in ["PUT", "POST"] {
        let server = Server::start(|_, asked| once_broken(asked))?;
        let folder = folder()?;
        let ended = put(folder.path(), &server.url(), &["-X", method, "-v"])?;
        ended.succeeded();
        is_continued(&server.asked());
        let text = format!("{}: resuming at 3,000,000 of 9,000,000 bytes", server.url());
        assert!(ended.stderr.contains(&text), "{ended:?}");
        assert!(ended.summary().contains("9,000,000 bytes in "), "{ended:?}");
        assert_eq!(records(folder.path())?, [""; 0]);
    }
    Ok(())
}

#[test]
fn over_http1_a_break_is_continued_too() -> TestResult {
    let server = Server::of_http1(|_, asked| once_broken(asked))?;
    let folder = folder()?;
    put(folder.path(), &server.url(), &["--http1.1"])?.succeeded();
    is_continued(&server.asked());
    Ok(())
}

#[test]
fn a_server_without_support_ignores_the_fields_and_a_small_file_has_none() -> TestResult {
    let server = Server::start(|_, _| vec![ALL, say(201)])?;
    let folder = folder()?;
    put(folder.path(), &server.url(), &[])?.succeeded();
    fs::write(folder.path().join("file"), "small")?;
    put(folder.path(), &server.url(), &[])?.succeeded();
    let asked = server.asked();
    assert!(asked[0].body == content(), "another body");
    assert_eq!(asked[0].field("upload-complete"), Some("?1"));
    assert_eq!(asked[1].body, b"small");
    for name in ["upload-complete", "upload-length", "upload-draft-interop-version"] {
        assert_eq!(asked[1].field(name), None, "{name}");
    }
    // Nothing but the method and fields of before.
    let server = Server::start(|_, _| vec![Act::Take(HAD), Act::Close])?;
    fs::write(folder.path().join("file"), content())?;
    put(folder.path(), &server.url(), &[])?.failed_with(10);
    assert_eq!(server.lines(), ["PUT /file"]);
    Ok(())
}

#[test]
fn a_104_response_of_another_version_or_none_is_ignored() -> TestResult {
    for version in ["7", "9", ""] {
        let server = Server::start(move |_, _| {
            let mut fields = vec![("location", "/upload/1".to_owned())];
            if !version.is_empty() {
                fields.push(("upload-draft-interop-version", version.to_owned()));
            }
            vec![Act::Say(104, fields), Act::Take(HAD), Act::Close]
        })?;
        put(folder()?.path(), &server.url(), &[])?.failed_with(10);
        assert_eq!(server.lines(), ["PUT /file"], "{version}");
    }
    Ok(())
}

#[test]
fn the_user_may_choose_an_older_version_of_the_protocol() -> TestResult {
    let server = Server::start(|_, asked| match asked.method.as_str() {
        "PUT" => {
            let fields = [("location", "/upload/1"), ("upload-draft-interop-version", "6")];
            let fields = fields.map(|(name, value)| (name, value.to_owned())).to_vec();
            vec![Act::Say(104, fields), Act::Take(HAD), Act::Close]
        }
        _ => once_broken(asked),
    })?;
    let field = ["-H", "upload-draft-interop-version: 6"];
    put(folder()?.path(), &server.url(), &field)?.succeeded();
    for asked in server.asked() {
        assert_eq!(
            asked.field("upload-draft-interop-version"),
            Some("6"),
            "{}",
            asked.method
        );
    }
    Ok(())
}

#[test]
fn an_error_of_the_server_is_continued_unless_it_is_about_the_complete_upload() -> TestResult {
    for status in [503, 500, 408, 429] {
        let server = Server::start(move |_, asked| match asked.method.as_str() {
            "PUT" => vec![supported("/upload/1"), Act::Take(HAD), say(status), Act::Reset],
            _ => once_broken(asked),
        })?;
        put(folder()?.path(), &server.url(), &[])?.succeeded();
        assert_eq!(server.lines(), ["PUT /file", "HEAD /upload/1", "PATCH /upload/1"]);
    }
    let server = Server::start(|_, _| vec![supported("/upload/1"), ALL, complete(503, true)])?;
    let folder = folder()?;
    put(folder.path(), &server.url(), &[])?.failed_with(14);
    assert_eq!(server.lines(), ["PUT /file"]);
    assert_eq!(records(folder.path())?, [""; 0]);
    // The same of the rest.
    let server = Server::start(|_, asked| match asked.method.as_str() {
        "PATCH" => vec![ALL, complete(500, true)],
        _ => once_broken(asked),
    })?;
    let ended = put(folder.path(), &server.url(), &["-q"])?;
    assert_eq!(ended.code, Some(14), "{ended:?}");
    assert_eq!(server.asked().len(), 3);
    assert_eq!(records(folder.path())?, [""; 0]);
    Ok(())
}

#[test]
fn a_refusal_of_the_first_request_is_not_continued() -> TestResult {
    let server = Server::start(|_, _| vec![supported("/upload/1"), Act::Take(HAD), say(403)])?;
    let folder = folder()?;
    put(folder.path(), &server.url(), &["--retry", "3"])?.failed_with(14);
    assert_eq!(server.lines(), ["PUT /file"]);
    assert_eq!(records(folder.path())?, [""; 0]);
    Ok(())
}

#[test]
fn a_resumption_without_progress_counts_against_retry_and_one_with_progress_is_free() -> TestResult {
    // Each PATCH takes 2 MB and breaks off.
    let server = Server::start(|number, asked| match asked.method.as_str() {
        "PUT" => broken(),
        "HEAD" => vec![offset(HAD + 2_000_000 * (number / 2 - 1))],
        _ if number < 7 => vec![Act::Take(2_000_000), Act::Close],
        _ => vec![ALL, complete(201, true)],
    })?;
    put(folder()?.path(), &server.url(), &[])?.succeeded();
    assert_eq!(server.asked().len(), 7);
    for (retry, patches) in [("0", 1), ("1", 2)] {
        let server = Server::start(|_, asked| match asked.method.as_str() {
            "PUT" => broken(),
            "HEAD" => vec![offset(HAD)],
            _ => vec![Act::Take(1_000), Act::Close],
        })?;
        let folder = folder()?;
        let ended = put(folder.path(), &server.url(), &["--retry", retry])?;
        assert_eq!(ended.code, Some(10), "{ended:?}");
        let text = "broke off again at 3,000,000 of 9,000,000 bytes without progress";
        assert!(ended.stderr.contains(text), "{ended:?}");
        assert!(ended.stderr.contains("the same command resumes"), "{ended:?}");
        let lines = server.lines();
        let sent = lines.iter().filter(|line| line.starts_with("PATCH")).count();
        assert_eq!(sent, patches, "{lines:?}");
        assert_eq!(records(folder.path())?.len(), 1);
    }
    Ok(())
}

#[test]
fn a_server_that_does_not_tell_the_offset_is_asked_again_as_often_as_retry_says() -> TestResult {
    for (retry, code, heads) in [("0", 14, 1), ("2", 0, 3)] {
        let server = Server::start(|number, asked| match (asked.method.as_str(), number) {
            ("HEAD", ..=3) => vec![say(503)],
            _ => once_broken(asked),
        })?;
        let ended = put(folder()?.path(), &server.url(), &["--retry", retry])?;
        assert_eq!(ended.code, Some(code), "{ended:?}");
        let lines = server.lines();
        let asked = lines.iter().filter(|line| line.starts_with("HEAD")).count();
        assert_eq!(asked, heads, "{lines:?}");
    }
    Ok(())
}

#[test]
fn after_another_offset_the_offset_is_asked_for_again_and_once_without_progress() -> TestResult {
    let conflict = |bytes: usize| Act::Say(409, vec![("upload-offset", bytes.to_string())]);
    let server = Server::start(move |number, asked| match (asked.method.as_str(), number) {
        ("HEAD", 2) => vec![offset(1_000_000)],
        ("PATCH", 3) => vec![conflict(HAD)],
        _ => once_broken(asked),
    })?;
    put(folder()?.path(), &server.url(), &[])?.succeeded();
    let asked = server.asked();
    assert_eq!(asked.len(), 5);
    assert_eq!(asked[2].field("upload-offset"), Some("1000000"));
    assert!(asked[4].body == content()[HAD..], "another rest");
    let server = Server::start(move |_, asked| match asked.method.as_str() {
        "PATCH" => vec![conflict(HAD)],
        _ => once_broken(asked),
    })?;
    let ended = put(folder()?.path(), &server.url(), &["--retry", "9"])?;
    assert_eq!(ended.code, Some(9), "{ended:?}");
    assert_eq!(server.asked().len(), 5);
    Ok(())
}

#[test]
fn redirects_of_the_resource_are_followed_and_take_credentials_to_no_other_origin() -> TestResult {
    let elsewhere = Server::start(|_, asked| once_broken(asked))?;
    let place = format!("{}/there", elsewhere.origin());
    let server = Server::start(move |_, asked| {
        let to = |url: &str| vec![Act::Say(307, vec![("location", url.to_owned())]), Act::Reset];
        match (asked.method.as_str(), asked.path.as_str()) {
            ("HEAD", "/upload/1") => to("/upload/2"),
            ("PATCH", "/upload/2") => to(&place),
            _ => once_broken(asked),
        }
    })?;
    put(
        folder()?.path(),
        &server.url(),
        &["-H", "x-secret: 1", "-u", "a:b"],
    )?
    .succeeded();
    let lines = ["PUT /file", "HEAD /upload/1", "HEAD /upload/2", "PATCH /upload/2"];
    assert_eq!(server.lines(), lines);
    for asked in server.asked() {
        assert_eq!(asked.field("x-secret"), Some("1"), "{}", asked.method);
        assert!(asked.field("authorization").is_some());
    }
    let there = elsewhere.asked();
    assert_eq!(elsewhere.lines(), ["PATCH /there"]);
    assert_eq!(
        (there[0].field("x-secret"), there[0].field("authorization")),
        (None, None)
    );
    assert_eq!(there[0].field("upload-draft-interop-version"), Some("8"));
    assert!(there[0].body == content()[HAD..], "another rest");
    Ok(())
}

#[test]
fn a_refusal_of_the_rest_before_its_end_ends_its_content() -> TestResult {
    // The server goes on to read, and so knows what was sent.
    for refusal in [
        Act::Say(409, vec![("upload-offset", HAD.to_string())]),
        say(503),
        complete(201, false),
    ] {
        let refusal = Mutex::new(Some(refusal));
        let server = Server::start(move |_, asked| match asked.method.as_str() {
            "PATCH" => match refusal.lock().ok().and_then(|mut refusal| refusal.take()) {
                Some(refusal) => vec![refusal, ALL],
                None => once_broken(asked),
            },
            _ => once_broken(asked),
        })?;
        put(
            folder()?.path(),
            &server.url(),
            &["--limit-rate", "16M", "--retry", "1"],
        )?
        .succeeded();
        let lines = [
            "PUT /file",
            "HEAD /upload/1",
            "PATCH /upload/1",
            "HEAD /upload/1",
            "PATCH /upload/1",
        ];
        assert_eq!(server.lines(), lines);
        let asked = server.asked();
        assert!(asked[2].body.len() < LENGTH - HAD, "the whole rest was sent");
        assert!(asked[4].body == content()[HAD..], "another rest");
    }
    Ok(())
}

#[test]
fn a_redirect_after_the_last_byte_is_followed_for_one_file_and_for_many() -> TestResult {
    for many in [false, true] {
        for (status, is_sent_again) in [(307, true), (303, false)] {
            let server = Server::start(move |_, asked| match asked.path.as_str() {
                "/there" => vec![ALL, say(201)],
                _ if asked.method == "PATCH" => {
                    let fields = vec![
                        ("upload-complete", "?1".to_owned()),
                        ("location", "/there".to_owned()),
                    ];
                    vec![ALL, Act::Say(status, fields)]
                }
                _ => once_broken(asked),
            })?;
            let folder = folder()?;
            let mut command = command(folder.path());
            match many {
                true => command.args(["put", "file", "--skip-existing", &format!("{}/", server.origin())]),
                false => command.args(["put", "file", &server.url()]),
            };
            ended(&mut command)?.succeeded();
            let mut lines = server.lines();
            lines.retain(|line| !line.starts_with("GET /") || line == "GET /there");
            let last = match (is_sent_again, many) {
                (true, _) => Some("PUT /there"),
                (false, false) => Some("GET /there"),
                (false, true) => None,
            };
            let expected = ["PUT /file", "HEAD /upload/1", "PATCH /upload/1"];
            let expected: Vec<_> = expected.into_iter().chain(last).collect();
            let at = lines.len().saturating_sub(expected.len());
            assert_eq!(lines[at..], expected, "{status} {many}");
            if is_sent_again {
                let sent = server.asked().pop().ok_or("nothing was asked")?;
                assert!(sent.body == content(), "another body");
            }
            assert_eq!(records(folder.path())?, [""; 0]);
        }
    }
    Ok(())
}

#[test]
fn a_resource_of_another_origin_gets_no_credentials() -> TestResult {
    let elsewhere = Server::start(|_, asked| once_broken(asked))?;
    let place = format!("{}/upload/9", elsewhere.origin());
    let server = Server::start(move |_, _| vec![supported(&place), Act::Take(HAD), Act::Close])?;
    put(folder()?.path(), &server.url(), &["-u", "a:b"])?.succeeded();
    assert_eq!(elsewhere.lines(), ["HEAD /upload/9", "PATCH /upload/9"]);
    for asked in elsewhere.asked() {
        assert_eq!(asked.field("authorization"), None);
    }
    Ok(())
}

#[test]
fn a_resource_that_is_gone_is_forgotten_and_only_what_may_be_repeated_begins_anew() -> TestResult {
    for (method, retry, code) in [("PUT", "1", 0), ("PUT", "0", 14), ("POST", "1", 14)] {
        for status in [404, 410, 400] {
            let server = Server::start(move |number, asked| match (asked.method.as_str(), number) {
                ("HEAD", _) => vec![say(status)],
                (_, 1) => broken(),
                _ => vec![ALL, say(201)],
            })?;
            let folder = folder()?;
            let ended = put(folder.path(), &server.url(), &["-X", method, "--retry", retry])?;
            assert_eq!(ended.code, Some(code), "{method} {retry} {status} {ended:?}");
            let asked = server.asked();
            assert_eq!(asked.len(), if code == 0 { 3 } else { 2 });
            if code == 0 {
                assert!(asked[2].body == content(), "another body");
            }
            assert_eq!(records(folder.path())?, [""; 0]);
        }
    }
    Ok(())
}

#[test]
fn a_file_that_changes_between_two_requests_of_a_run_is_not_mixed() -> TestResult {
    let folder = folder()?;
    let path = folder.path().join("file");
    let server = Server::start(move |_, asked| match asked.method.as_str() {
        "HEAD" => {
            let mut changed = content();
            changed[LENGTH - 1] ^= 1;
            // Opened before, so it is the same file.
            let written = fs::write(&path, changed);
            assert!(written.is_ok());
            vec![offset(HAD)]
        }
        "DELETE" => vec![say(204)],
        _ => broken(),
    })?;
    put(folder.path(), &server.url(), &["--retry", "2"])?.failed_with(17);
    assert_eq!(
        server.lines(),
        ["PUT /file", "HEAD /upload/1", "DELETE /upload/1"]
    );
    assert_eq!(records(folder.path())?, [""; 0]);
    Ok(())
}

#[test]
fn an_offset_or_a_length_that_is_not_of_the_file_deletes_the_resource() -> TestResult {
    for (had, length) in [(LENGTH + 1, LENGTH), (HAD, LENGTH + 1)] {
        let server = Server::start(move |number, asked| match (asked.method.as_str(), number) {
            ("PUT", 1) => broken(),
            ("HEAD", _) => {
                let fields = [("upload-offset", had), ("upload-length", length)];
                vec![Act::Say(
                    204,
                    fields.map(|(name, value)| (name, value.to_string())).to_vec(),
                )]
            }
            ("DELETE", _) => vec![say(204)],
            _ => vec![ALL, say(201)],
        })?;
        put(folder()?.path(), &server.url(), &["--retry", "1"])?.succeeded();
        assert_eq!(
            server.lines(),
            ["PUT /file", "HEAD /upload/1", "DELETE /upload/1", "PUT /file"]
        );
        assert!(server.asked()[3].body == content(), "another body");
    }
    Ok(())
}

#[test]
fn a_response_that_was_lost_is_told_by_the_resource() -> TestResult {
    for (complete, code, requests) in [(true, 0, 2), (false, 0, 3)] {
        let server = Server::start(move |_, asked| match asked.method.as_str() {
            "PUT" => vec![supported("/upload/1"), ALL, Act::Close],
            "HEAD" => {
                let complete = if complete { "?1" } else { "?0" };
                let fields = vec![
                    ("upload-offset", LENGTH.to_string()),
                    ("upload-complete", complete.to_owned()),
                ];
                vec![Act::Say(200, fields)]
            }
            _ => vec![ALL, self::complete(201, true)],
        })?;
        let folder = folder()?;
        let ended = put(folder.path(), &server.url(), &["--json", "-o", "answer"])?;
        assert_eq!(ended.code, Some(code), "{ended:?}");
        let asked = server.asked();
        assert_eq!(asked.len(), requests);
        let document: Value = serde_json::from_slice(&ended.stdout)?;
        assert_eq!(document["sent"], LENGTH);
        if complete {
            let note = document["note"].as_str().unwrap_or_default();
            assert!(
                note.contains("the server has the whole file; its response was lost"),
                "{note}"
            );
        } else {
            // All bytes are there, but the upload is not complete without a request that says so.
            assert_eq!(asked[2].field("upload-offset"), Some("9000000"));
            assert_eq!(asked[2].field("content-length"), Some("0"));
        }
        assert_eq!(records(folder.path())?, [""; 0]);
    }
    Ok(())
}

#[test]
fn a_server_that_limits_one_request_gets_parts() -> TestResult {
    let server = Server::start(|number, asked| match asked.method.as_str() {
        "PUT" => vec![
            limited("/upload/1", "max-append-size=4000000, min-append-size=1000"),
            Act::Take(1_000_000),
        ],
        "HEAD" => vec![offset(1_000_000)],
        _ if number == 4 => vec![ALL, complete(201, true)],
        _ => vec![ALL, complete(204, false)],
    })?;
    put(folder()?.path(), &server.url(), &[])?.succeeded();
    let asked = server.asked();
    let content = content();
    let parts = [(1_000_000..5_000_000, "?0"), (5_000_000..9_000_000, "?1")];
    assert_eq!(asked.len(), 2 + parts.len());
    for (part, (range, complete)) in asked[2..].iter().zip(parts) {
        assert_eq!(part.field("upload-offset"), Some(&*range.start.to_string()));
        assert_eq!(part.field("upload-complete"), Some(complete));
        assert!(part.body == content[range], "another part");
    }
    Ok(())
}

#[test]
fn a_length_that_is_refused_with_a_limit_is_sent_in_parts() -> TestResult {
    let server = Server::start(|number, asked| match (asked.method.as_str(), number) {
        ("PUT", _) => broken(),
        ("HEAD", _) => vec![offset(HAD)],
        (_, 3) => vec![
            Act::Say(413, vec![("upload-limit", "max-append-size=5000000".to_owned())]),
            Act::Reset,
        ],
        (_, 4) => vec![ALL, complete(204, false)],
        _ => vec![ALL, complete(201, true)],
    })?;
    put(folder()?.path(), &server.url(), &[])?.succeeded();
    let asked = server.asked();
    let offsets: Vec<_> = asked[2..]
        .iter()
        .map(|asked| asked.field("upload-offset"))
        .collect();
    assert_eq!(offsets, [Some("3000000"), Some("3000000"), Some("8000000")]);
    assert!(asked[3].body == content()[HAD..8_000_000], "another part");
    Ok(())
}

#[test]
fn a_server_that_refuses_the_length_before_it_names_a_resource_is_asked_for_one_with_a_part() -> TestResult {
    for (limits, least) in [
        ("max-append-size=5000000", 0),
        ("max-append-size=5000000, min-append-size=2000", 2_000),
    ] {
        let server = Server::start(move |number, asked| {
            let limits = ("upload-limit", limits.to_owned());
            match (asked.method.as_str(), number) {
                ("POST", 1) => vec![Act::Say(413, vec![limits]), Act::Reset],
                ("POST", _) => {
                    let location = ("location", "/upload/1".to_owned());
                    vec![ALL, Act::Say(201, vec![limits, location])]
                }
                ("HEAD", _) => vec![offset(least)],
                (_, 4) => vec![ALL, complete(204, false)],
                _ => vec![ALL, complete(201, true)],
            }
        })?;
        let folder = folder()?;
        put(folder.path(), &server.url(), &["-X", "POST"])?.succeeded();
        let asked = server.asked();
        assert_eq!(asked.len(), 5);
        assert_eq!(asked[1].field("upload-complete"), Some("?0"));
        assert_eq!(asked[1].field("upload-length"), Some("9000000"));
        let content = content();
        assert!(asked[1].body == content[..least], "another beginning");
        assert!(asked[3].body == content[least..least + 5_000_000], "another part");
        assert!(asked[4].body == content[least + 5_000_000..], "another end");
        assert_eq!(records(folder.path())?, [""; 0]);
    }
    let server = Server::start(|number, _| match number {
        1 => vec![
            Act::Say(413, vec![("upload-limit", "max-append-size=5".to_owned())]),
            Act::Reset,
        ],
        _ => vec![say(404)],
    })?;
    put(folder()?.path(), &server.url(), &[])?.failed_with(14);
    assert_eq!(server.lines(), ["PUT /file", "PUT /file"]);
    Ok(())
}

#[test]
fn limits_that_the_file_does_not_fit_end_the_upload_with_a_sentence() -> TestResult {
    for (limits, code, text) in [
        ("max-size=8999999", 14, "accepts 8,999,999 at most (max-size)"),
        ("max-append-size=5, min-append-size=6", 9, "allow no part"),
        ("max-append-size=0", 9, "allow no part"),
    ] {
        let server = Server::start(move |_, asked| match asked.method.as_str() {
            "PUT" => vec![limited("/upload/1", limits), Act::Take(HAD)],
            "HEAD" => vec![offset(HAD)],
            _ => vec![say(204)],
        })?;
        let folder = folder()?;
        let ended = put(folder.path(), &server.url(), &["--retry", "2"])?;
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert!(ended.stderr.contains(text), "{ended:?}");
        assert_eq!(
            server.lines().last().map(String::as_str),
            Some("DELETE /upload/1")
        );
        assert_eq!(records(folder.path())?, [""; 0]);
    }
    // A value of another type makes the whole field invalid.
    let server = Server::start(|_, asked| match asked.method.as_str() {
        "PUT" => vec![limited("/upload/1", "max-size=5, max-age=?1"), ALL, say(201)],
        _ => Vec::new(),
    })?;
    put(folder()?.path(), &server.url(), &[])?.succeeded();
    Ok(())
}

#[test]
fn a_server_that_names_two_resources_is_at_fault() -> TestResult {
    let server = Server::start(|_, asked| match asked.method.as_str() {
        "PUT" => vec![supported("/upload/1"), supported("/upload/2"), Act::Take(HAD)],
        _ => vec![say(204)],
    })?;
    let folder = folder()?;
    put(folder.path(), &server.url(), &["--retry", "2"])?.failed_with(9);
    assert_eq!(server.lines(), ["PUT /file", "DELETE /upload/1"]);
    assert_eq!(records(folder.path())?, [""; 0]);
    Ok(())
}

#[test]
fn without_a_home_an_upload_is_continued_within_the_run() -> TestResult {
    let server = Server::start(|_, asked| once_broken(asked))?;
    let folder = folder()?;
    let mut command = command(folder.path());
    command.env_remove("XDG_STATE_HOME").env_remove("HOME");
    ended(command.args(["put", "file", &server.url()]))?.succeeded();
    is_continued(&server.asked());
    Ok(())
}

#[test]
fn max_time_ends_a_run_and_counts_against_retry() -> TestResult {
    patiently(|seconds| {
        for (retry, code) in [("0", 13), ("1", 0)] {
            let server = Server::start(|_, asked| match asked.method.as_str() {
                "PUT" => vec![supported("/upload/1"), Act::Take(HAD)],
                _ => once_broken(asked),
            })?;
            let limit = (2 * seconds).to_string();
            let ended = put(
                folder()?.path(),
                &server.url(),
                &["--max-time", &limit, "--retry", retry],
            )?;
            assert_eq!(ended.code, Some(code), "{ended:?}");
            assert_eq!(server.asked().len(), if code == 0 { 3 } else { 1 });
        }
        Ok(())
    })
}
