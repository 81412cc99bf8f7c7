//! What came before a download broke off is kept until a response proves it wrong, and nothing else replaces it.

use crate::support::frames::END_STREAM;
use crate::support::scripted::{
    Asked, HALF, SIZE, Server, Then, V1, body, data, half, head, holds, is_left, rest, whole,
};
use crate::support::{TestResult, run};

type Fields = &'static [(&'static str, &'static str)];

const DATED: Fields = &[("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT")];
const V2: Fields = &[("etag", "\"v2\"")];

/// A response with these fields and octets, which says how many they are, or does not.
fn answer(asked: &Asked, fields: &[(&str, &str)], octets: &[u8], says_length: bool) -> Vec<u8> {
    let length = octets.len().to_string();
    let mut fields = fields.to_vec();
    if says_length {
        fields.push(("content-length", &length));
    }
    let mut out = head(asked.stream, 0, &fields);
    out.extend(data(asked.stream, octets, true));
    out
}

/// 200 with the second half of the body.
fn slice(asked: &Asked, version: Fields, range: &str, says_length: bool) -> Vec<u8> {
    let mut fields = vec![(":status", "200")];
    fields.extend(version);
    if !range.is_empty() {
        fields.push(("content-range", range));
    }
    answer(asked, &fields, &body(1)[HALF..], says_length)
}

#[test]
fn a_range_that_is_sent_with_status_200_is_not_taken_for_the_whole() -> TestResult {
    let range = format!("bytes {HALF}-{}/{SIZE}", SIZE - 1);
    let cases: [(Fields, Fields, bool); 6] = [
        (V1, V1, true),
        (V1, V1, false),
        (V1, V2, true),
        (V1, &[], true),
        (V1, &[], false),
        (DATED, DATED, true),
    ];
    for (first, second, says_length) in cases {
        for range in ["", &range] {
            let shown = format!("{first:?} {second:?} {says_length} {range}");
            let range = range.to_owned();
            let server = Server::start(move |number, asked| match number {
                1 => (half(asked, first, &body(1)), Then::Close),
                2 => {
                    assert!(!asked.is_whole());
                    (slice(asked, second, &range, says_length), Then::Go)
                }
                _ => {
                    assert!(asked.is_whole());
                    (whole(asked, first, &body(1)), Then::Go)
                }
            })?;
            let folder = tempfile::tempdir()?;
            let ended = run(folder.path(), ["get", "--retry", "1", "-o", "out", &server.url()])?;
            assert_eq!(ended.code, Some(0), "{shown}: {ended:?}");
            assert_eq!(server.asked(), 3, "{shown}");
            holds(folder.path(), &body(1))?;
        }
    }
    Ok(())
}

#[cfg(unix)]
#[test]
fn a_later_run_does_not_take_it_for_the_whole_either() -> TestResult {
    let server = Server::start(|number, asked| match (number, asked.is_whole()) {
        (1, _) => (half(asked, V1, &body(1)), Then::Close),
        (_, true) => (whole(asked, V1, &body(1)), Then::Go),
        (_, false) => (slice(asked, V1, "", true), Then::Go),
    })?;
    let folder = tempfile::tempdir()?;
    run(folder.path(), ["get", "-o", "out", &server.url()])?.failed_with(10);
    run(folder.path(), ["get", "-o", "out", &server.url()])?.succeeded();
    holds(folder.path(), &body(1))
}

#[test]
fn the_whole_of_the_same_version_adds_to_what_came_and_costs_nothing_of_it() -> TestResult {
    // It breaks off before the place where the first response did.
    let server = Server::start(|number, asked| match number {
        1 => (half(asked, V1, &body(1)), Then::Close),
        2 => {
            let size = SIZE.to_string();
            let fields = [(":status", "200"), ("etag", "\"v1\""), ("content-length", &size)];
            let mut out = head(asked.stream, 0, &fields);
            out.extend(data(asked.stream, &body(1)[..HALF / 2], false));
            (out, Then::Close)
        }
        3 => {
            assert_eq!(asked.from("\"v1\""), Some(HALF));
            (half(asked, V1, &body(1)), Then::Close)
        }
        _ => {
            assert_eq!(asked.from("\"v1\""), Some(HALF));
            (whole(asked, V1, &body(1)), Then::Go)
        }
    })?;
    let folder = tempfile::tempdir()?;
    let url = server.url();
    run(folder.path(), ["get", "--retry", "3", "-o", "out", &url])?.succeeded();
    assert_eq!(server.asked(), 4);
    holds(folder.path(), &body(1))
}

#[test]
fn the_whole_goes_on_with_what_went_to_standard_output() -> TestResult {
    for says_length in [true, false] {
        let server = Server::start(move |number, asked| match number {
            1 => (half(asked, V1, &body(1)), Then::Close),
            2 => (slice(asked, V1, "", true), Then::Go),
            _ => {
                assert!(asked.is_whole());
                let fields = [(":status", "200"), ("etag", "\"v1\"")];
                (answer(asked, &fields, &body(1), says_length), Then::Go)
            }
        })?;
        let folder = tempfile::tempdir()?;
        let args = ["get", "--retry", "1", "--include", &server.url()];
        let ended = run(folder.path(), args)?;
        ended.succeeded();
        let end = ended.stdout.windows(2).position(|octets| octets == b"\n\n");
        let end = end.ok_or("no head")? + 2;
        assert!(
            ended.stdout[end..] == body(1),
            "{} octets",
            ended.stdout.len() - end
        );
    }
    Ok(())
}

#[test]
fn a_version_of_two_lengths_is_had_from_its_beginning() -> TestResult {
    // Longer, and shorter than what came.
    for length in [SIZE - 1, HALF - 1] {
        let server = Server::start(move |number, asked| match number {
            1 => (half(asked, V1, &body(1)), Then::Close),
            _ => {
                let fields = [(":status", "200"), ("etag", "\"v1\"")];
                (answer(asked, &fields, &body(2)[..length], true), Then::Go)
            }
        })?;
        server.completes(3, &body(2)[..length])?;
    }
    Ok(())
}

#[test]
fn a_whole_that_ends_elsewhere_than_the_same_version_is_no_end() -> TestResult {
    // Without content-length. The first ends before the new octets, the second behind the first of them.
    for length in [HALF - 1, HALF + 1, SIZE + 1] {
        let server = Server::start(move |number, asked| match number {
            1 => (half(asked, V1, &body(1)), Then::Close),
            2 => (head(asked.stream, END_STREAM, &[(":status", "416")]), Then::Go),
            _ => {
                let fields = [(":status", "200"), ("etag", "\"v1\"")];
                let octets = [body(1), body(2)].concat();
                (answer(asked, &fields, &octets[..length], false), Then::Go)
            }
        })?;
        let folder = tempfile::tempdir()?;
        let ended = run(folder.path(), ["get", "--retry", "1", "-o", "out", &server.url()])?;
        ended.failed_with(10);
        is_left(folder.path(), &body(1)[..HALF])?;
    }
    Ok(())
}

#[test]
fn a_response_that_says_nothing_about_the_body_costs_nothing_of_it() -> TestResult {
    let cases: [(i32, Fields); 9] = [
        (14, &[(":status", "401")]),
        (14, &[(":status", "403")]),
        (14, &[(":status", "404")]),
        (14, &[(":status", "410")]),
        (14, &[(":status", "304")]),
        (14, &[(":status", "416"), ("content-range", "bytes */9")]),
        (14, &[(":status", "302"), ("location", "/file")]),
        (9, &[(":status", "302"), ("location", "ftp://a/")]),
        (9, &[(":status", "206"), ("etag", "\"v2\"")]),
    ];
    for (exit, fields) in cases {
        let server = Server::start(move |number, asked| match number {
            1 => (half(asked, V1, &body(1)), Then::Close),
            _ => (head(asked.stream, END_STREAM, fields), Then::Go),
        })?;
        let folder = tempfile::tempdir()?;
        let ended = run(folder.path(), ["get", "--retry", "1", "-o", "out", &server.url()])?;
        ended.failed_with(exit);
        is_left(folder.path(), &body(1)[..HALF])?;
        let is_told = ended.stderr.contains("the next run resumes it");
        assert_eq!(is_told, cfg!(unix), "{ended:?}");
    }
    Ok(())
}

#[test]
fn a_range_with_too_many_octets_is_taken_back_and_no_more() -> TestResult {
    let server = Server::start(|number, asked| match number {
        1 => (half(asked, V1, &body(1)), Then::Close),
        2 => {
            let range = format!("bytes {HALF}-{}/{SIZE}", SIZE - 1);
            let fields = [(":status", "206"), ("etag", "\"v1\""), ("content-range", &range)];
            (answer(asked, &fields, &body(2)[..HALF + 1], false), Then::Go)
        }
        _ => {
            assert!(asked.is_whole());
            (whole(asked, V1, &body(1)), Then::Go)
        }
    })?;
    let folder = tempfile::tempdir()?;
    let digest = ring::digest::digest(&ring::digest::SHA256, &body(1));
    let digest: String = digest
        .as_ref()
        .iter()
        .map(|octet| format!("{octet:02x}"))
        .collect();
    let checksum = format!("sha256:{digest}");
    let args = ["get", "--retry", "2", "--checksum", &checksum, "-o", "out"];
    run(folder.path(), args.into_iter().chain([&*server.url()]))?.succeeded();
    assert_eq!(server.asked(), 3);
    holds(folder.path(), &body(1))
}

#[test]
fn a_page_to_log_in_does_not_replace_what_came() -> TestResult {
    // Behind a redirect or at once, after a version that can be resumed or one that cannot.
    for (version, redirects, kind) in [
        (V1, true, "text/html"),
        (V1, true, ""),
        (V1, false, "text/html"),
        (&[][..], true, ""),
    ] {
        let server = Server::start(move |number, asked| {
            let path = asked.fields.get(":path").map(String::as_str);
            match number {
                1 => (half(asked, version, &body(1)), Then::Close),
                _ if redirects && path == Some("/file") => {
                    let fields = [(":status", "302"), ("location", "/login?to=file")];
                    (head(asked.stream, END_STREAM, &fields), Then::Go)
                }
                _ => {
                    let mut fields = vec![(":status", "200")];
                    if !kind.is_empty() {
                        fields.push(("content-type", kind));
                    }
                    (answer(asked, &fields, b"<form>", true), Then::Go)
                }
            }
        })?;
        let folder = tempfile::tempdir()?;
        let ended = run(folder.path(), ["get", "--retry", "1", "-o", "out", &server.url()])?;
        ended.failed_with(14);
        assert!(ended.stderr.contains("perhaps a page to log in"), "{ended:?}");
        match version.is_empty() {
            true => assert!(crate::support::names(folder.path())?.is_empty()),
            false => is_left(folder.path(), &body(1)[..HALF])?,
        }
    }
    Ok(())
}

#[test]
fn another_version_on_another_mirror_is_taken() -> TestResult {
    let server = Server::start(|number, asked| {
        let path = asked.fields.get(":path").map(String::as_str);
        match (number, path) {
            (1, _) => (half(asked, V1, &body(1)), Then::Close),
            (_, Some("/file")) => {
                let fields = [(":status", "302"), ("location", "/mirror/file")];
                (head(asked.stream, END_STREAM, &fields), Then::Go)
            }
            _ => (whole(asked, V2, &body(1)), Then::Go),
        }
    })?;
    let folder = tempfile::tempdir()?;
    run(folder.path(), ["get", "--retry", "1", "-o", "out", &server.url()])?.succeeded();
    holds(folder.path(), &body(1))
}

#[cfg(unix)]
#[test]
fn the_next_run_resumes_what_a_status_interrupted() -> TestResult {
    let server = Server::start(|number, asked| match (number, asked.is_whole()) {
        (1, _) => (half(asked, V1, &body(1)), Then::Close),
        (2, _) => (head(asked.stream, END_STREAM, &[(":status", "403")]), Then::Go),
        (_, true) => (whole(asked, V1, &body(1)), Then::Go),
        (_, false) => (rest(asked, V1, &body(1), HALF), Then::Go),
    })?;
    let folder = tempfile::tempdir()?;
    run(folder.path(), ["get", "--retry", "1", "-o", "out", &server.url()])?.failed_with(14);
    run(folder.path(), ["get", "-o", "out", &server.url()])?.succeeded();
    assert_eq!(server.asked(), 4, "the rest was asked for");
    holds(folder.path(), &body(1))
}

#[cfg(unix)]
#[test]
fn what_was_stored_before_the_disk_was_full_is_kept() -> TestResult {
    let server = Server::start(|number, asked| match (number, asked.is_whole()) {
        (_, true) => (whole(asked, V1, &body(1)), Then::Go),
        (_, false) => {
            let from = asked.from("\"v1\"").unwrap_or_default();
            (rest(asked, V1, &body(1), from), Then::Go)
        }
    })?;
    let folder = tempfile::tempdir()?;
    // 512 KiB, of which `sh` counts half a KiB as one, or a whole one.
    let get = format!(
        "ulimit -f 512; exec '{}' get -o out {}",
        env!("CARGO_BIN_EXE_fullbore"),
        server.url()
    );
    let state = concat!(env!("CARGO_TARGET_TMPDIR"), "/state");
    let mut shell = std::process::Command::new("sh");
    shell
        .current_dir(folder.path())
        .args(["-c", &get])
        .env("XDG_STATE_HOME", state);
    let full = crate::support::ended(&mut shell)?;
    full.failed_with(17);
    assert!(full.stderr.contains("the next run resumes it"), "{full:?}");
    let ended = run(folder.path(), ["get", "--json", "-o", "out", &server.url()])?;
    ended.succeeded();
    let document: serde_json::Value = serde_json::from_slice(&ended.stdout)?;
    assert_ne!(document["results"][0]["resumed"], 0, "{document}");
    assert_eq!(server.asked(), 3, "the rest was asked for");
    holds(folder.path(), &body(1))
}

#[cfg(unix)]
#[test]
fn a_part_of_an_older_version_does_not_stay_for_ever() -> TestResult {
    let server = Server::start(|number, asked| match number {
        1 => (half(asked, V1, &body(1)), Then::Close),
        2 => (half(asked, V2, &body(2)), Then::Close),
        _ => (whole(asked, &[("etag", "\"v3\"")], &body(3)), Then::Go),
    })?;
    let folder = tempfile::tempdir()?;
    for part in [body(1), body(2)] {
        run(folder.path(), ["get", "-o", "out", &server.url()])?.failed_with(10);
        is_left(folder.path(), &part[..HALF])?;
    }
    run(folder.path(), ["get", "-o", "out", &server.url()])?.succeeded();
    holds(folder.path(), &body(3))
}
