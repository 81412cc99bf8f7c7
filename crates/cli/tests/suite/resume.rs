//! Downloads that break off: what is tried again, what is gone on with, and what a run that was killed leaves behind.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::support::frames::END_STREAM;
use crate::support::scripted::{
    HALF, SIZE, Server, Then, V1, body, data, half, head, holds, is_left, rest, whole,
};
use crate::support::{TestResult, names, program, run, until};

#[test]
fn a_download_that_breaks_off_goes_on_where_it_was() -> TestResult {
    for version in [V1, &[("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT")]] {
        let server = Server::start(move |number, asked| match number {
            1 => (half(asked, version, &body(1)), Then::Close),
            _ => {
                let from = asked.from(version[0].1).unwrap_or_default();
                assert_eq!(from, HALF);
                (rest(asked, version, &body(1), from), Then::Go)
            }
        })?;
        server.completes(2, &body(1))?;
    }
    Ok(())
}

#[test]
fn a_body_that_was_changed_meanwhile_is_had_from_its_beginning() -> TestResult {
    let server = Server::start(|number, asked| match number {
        1 => (half(asked, V1, &body(1)), Then::Close),
        2 => {
            assert_eq!(asked.from("\"v1\""), Some(HALF));
            (whole(asked, &[("etag", "\"v2\"")], &body(2)), Then::Go)
        }
        _ => {
            // What answers a request for a range may be a range, so the whole is asked for.
            assert!(asked.is_whole());
            (whole(asked, &[("etag", "\"v2\"")], &body(2)), Then::Go)
        }
    })?;
    server.completes(3, &body(2))
}

#[test]
fn without_proof_of_the_version_a_body_is_had_from_its_beginning() -> TestResult {
    for version in [&[][..], &[("etag", "W/\"v1\"")]] {
        let server = Server::start(move |number, asked| {
            assert!(asked.is_whole(), "a range of what nobody knows");
            match number {
                1 => (half(asked, version, &body(1)), Then::Close),
                _ => (whole(asked, version, &body(2)), Then::Go),
            }
        })?;
        server.completes(2, &body(2))?;
    }
    Ok(())
}

#[test]
fn another_part_than_was_asked_for_is_never_put_behind_what_came() -> TestResult {
    let server = Server::start(|number, asked| match number {
        1 => (half(asked, V1, &body(1)), Then::Close),
        _ => (rest(asked, V1, &body(1), HALF + 1), Then::Go),
    })?;
    let folder = tempfile::tempdir()?;
    run(folder.path(), ["get", "--retry", "3", "-o", "out", &server.url()])?.failed_with(9);
    // The whole was asked for then, and is no part.
    assert_eq!(server.asked(), 3);
    is_left(folder.path(), &body(1)[..HALF])
}

#[test]
fn the_saved_entity_tag_is_that_of_the_body_that_was_stored() -> TestResult {
    let server = Server::start(|number, asked| match number {
        1 => (half(asked, V1, &body(1)), Then::Close),
        2 => (rest(asked, &[("etag", "\"v2\"")], &body(2), HALF), Then::Go),
        _ => (whole(asked, V1, &body(1)), Then::Go),
    })?;
    let folder = tempfile::tempdir()?;
    let args = ["get", "--retry", "1", "--etag-save", "tag", "-o", "out"];
    run(folder.path(), args.into_iter().chain([&*server.url()]))?.succeeded();
    assert_eq!(server.asked(), 3);
    assert_eq!(std::fs::read_to_string(folder.path().join("tag"))?, "\"v1\"\n");
    assert!(
        std::fs::read(folder.path().join("out"))? == body(1),
        "wrong bytes"
    );
    Ok(())
}

#[test]
fn a_body_that_changes_back_meanwhile_is_not_stored_as_an_empty_file() -> TestResult {
    // The third request has the condition again, which the server now meets.
    let server = Server::start(|number, asked| match number {
        1 => (half(asked, V1, &body(1)), Then::Close),
        2 => (rest(asked, &[("etag", "\"v2\"")], &body(2), HALF), Then::Go),
        _ => {
            assert_eq!(
                asked.fields.get("if-none-match").map(String::as_str),
                Some("\"v0\"")
            );
            (head(asked.stream, END_STREAM, &[(":status", "304")]), Then::Go)
        }
    })?;
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("tag"), "\"v0\"\n")?;
    let args = ["get", "--retry", "1", "--etag-compare", "tag", "-o", "out"];
    let ended = run(folder.path(), args.into_iter().chain([&*server.url()]))?;
    ended.succeeded();
    assert!(ended.stderr.contains("not modified"), "{ended:?}");
    assert_eq!(names(folder.path())?, ["tag"]);
    Ok(())
}

#[test]
fn a_range_that_is_answered_as_not_modified_is_a_failure() -> TestResult {
    let server = Server::start(|number, asked| match number {
        1 => (half(asked, V1, &body(1)), Then::Close),
        _ => (head(asked.stream, END_STREAM, &[(":status", "304")]), Then::Go),
    })?;
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("tag"), "\"v0\"\n")?;
    let args = ["get", "--retry", "1", "--etag-compare", "tag", "-o", "out"];
    run(folder.path(), args.into_iter().chain([&*server.url()]))?.failed_with(14);
    std::fs::remove_file(folder.path().join("tag"))?;
    is_left(folder.path(), &body(1)[..HALF])
}

#[test]
fn what_went_to_standard_output_is_gone_on_with_or_given_up() -> TestResult {
    let server = Server::start(|number, asked| match number {
        1 => (half(asked, V1, &body(1)), Then::Close),
        _ => (
            rest(asked, V1, &body(1), asked.from("\"v1\"").unwrap_or_default()),
            Then::Go,
        ),
    })?;
    let folder = tempfile::tempdir()?;
    let ended = run(folder.path(), ["get", "--retry", "1", &server.url()])?;
    ended.succeeded();
    assert!(ended.stdout == body(1), "wrong bytes");

    let server = Server::start(|number, asked| match number {
        1 => (half(asked, &[], &body(1)), Then::Close),
        _ => (whole(asked, &[], &body(1)), Then::Go),
    })?;
    let ended = run(folder.path(), ["get", "--retry", "1", &server.url()])?;
    ended.failed_with(10);
    assert!(ended.stdout == body(1)[..HALF], "it was begun anew in the middle");
    Ok(())
}

#[test]
fn a_status_that_passes_is_tried_again_when_the_server_says_and_no_other() -> TestResult {
    let server = Server::start(|number, asked| match number {
        1 | 2 => {
            let fields = [(":status", "503"), ("retry-after", "0")];
            (head(asked.stream, END_STREAM, &fields), Then::Go)
        }
        _ => (whole(asked, V1, &body(1)), Then::Go),
    })?;
    let folder = tempfile::tempdir()?;
    run(folder.path(), ["get", "--retry", "2", "-o", "out", &server.url()])?.succeeded();
    assert_eq!(server.asked(), 3);
    holds(folder.path(), &body(1))?;

    let server = Server::start(|_, asked| (head(asked.stream, END_STREAM, &[(":status", "404")]), Then::Go))?;
    run(
        folder.path(),
        ["get", "--retry", "9", "-o", "other", &server.url()],
    )?
    .failed_with(14);
    assert_eq!(server.asked(), 1);
    Ok(())
}

#[test]
fn tries_come_to_an_end() -> TestResult {
    let server = Server::start(|_, asked| {
        let fields = [(":status", "429"), ("retry-after", "0")];
        (head(asked.stream, END_STREAM, &fields), Then::Go)
    })?;
    let folder = tempfile::tempdir()?;
    run(folder.path(), ["get", "--retry", "3", "-o", "out", &server.url()])?.failed_with(14);
    assert_eq!(server.asked(), 4);
    assert!(names(folder.path())?.is_empty());
    Ok(())
}

/// Answers with half of the body as long as nobody asks for the rest; closes the first connection after it, or none.
fn by_halves(then: Then) -> TestResult<Server> {
    let close = then == Then::Close;
    Server::start(move |number, asked| match asked.from("\"v1\"") {
        Some(from) => (rest(asked, V1, &body(1), from), Then::Go),
        None if close && number == 1 => (half(asked, V1, &body(1)), Then::Close),
        None => (half(asked, V1, &body(1)), Then::Go),
    })
}

#[cfg(unix)]
#[test]
fn the_next_run_goes_on_where_one_broke_off() -> TestResult {
    let server = by_halves(Then::Close)?;
    let folder = tempfile::tempdir()?;
    let ended = run(folder.path(), ["get", "-o", "out", &server.url()])?;
    ended.failed_with(10);
    assert!(ended.stderr.contains("the next run resumes it"), "{ended:?}");
    is_left(folder.path(), &body(1)[..HALF])?;
    let ended = run(folder.path(), ["get", "--json", "-o", "out", &server.url()])?;
    ended.succeeded();
    let document: serde_json::Value = serde_json::from_slice(&ended.stdout)?;
    assert_eq!(document["results"][0]["resumed"], HALF, "{document}");
    // It asked for all first, to see the version, and then for the rest.
    assert_eq!(server.asked(), 3);
    holds(folder.path(), &body(1))
}

#[cfg(unix)]
#[test]
fn the_next_run_goes_on_where_one_was_killed() -> TestResult {
    let server = by_halves(Then::Go)?;
    let folder = tempfile::tempdir()?;
    let mut child = program(folder.path())
        .args(["get", "-o", "out", &server.url()])
        .stderr(Stdio::null())
        .spawn()?;
    until("something is written", || {
        let part = std::fs::metadata(folder.path().join("out.part"));
        Ok(part.is_ok_and(|part| part.len() > 0))
    })?;
    child.kill()?;
    child.wait()?;
    assert!(!names(folder.path())?.contains(&"out".to_owned()));
    run(folder.path(), ["get", "-o", "out", &server.url()])?.succeeded();
    holds(folder.path(), &body(1))
}

#[cfg(unix)]
#[test]
fn two_runs_for_one_file_that_are_killed_leave_a_part_each_and_the_next_run_needs_one() -> TestResult {
    let server = by_halves(Then::Go)?;
    let folder = tempfile::tempdir()?;
    let get = || {
        let mut get = program(folder.path());
        get.args(["get", "-o", "out", &server.url()]);
        get
    };
    let mut runs = Vec::new();
    for part in ["out.part", "out.2.part"] {
        runs.push(get().stderr(Stdio::null()).spawn()?);
        until("the half is written", || {
            let part = std::fs::metadata(folder.path().join(part));
            Ok(part.is_ok_and(|part| part.len() == HALF as u64))
        })?;
    }
    for mut run in runs {
        run.kill()?;
        run.wait()?;
    }
    crate::support::ended(&mut get())?.succeeded();
    assert_eq!(server.asked(), 4, "the rest was asked for");
    holds(folder.path(), &body(1))
}

#[test]
fn a_body_that_lacks_nothing_but_its_end_is_had_again() -> TestResult {
    let server = Server::start(|number, asked| match number {
        1 => {
            // All of it, of a length that was not said, and no END_STREAM.
            let mut out = head(asked.stream, 0, &[(":status", "200"), ("etag", "\"v1\"")]);
            out.extend(data(asked.stream, &body(1), false));
            (out, Then::Close)
        }
        2 => {
            assert_eq!(asked.from("\"v1\""), Some(SIZE));
            (head(asked.stream, END_STREAM, &[(":status", "416")]), Then::Go)
        }
        _ => {
            assert!(asked.is_whole());
            (whole(asked, V1, &body(1)), Then::Go)
        }
    })?;
    server.completes(3, &body(1))
}

#[cfg(unix)]
#[test]
fn a_run_that_finds_all_of_the_body_gives_it_its_name_and_receives_nothing() -> TestResult {
    let server = Server::start(|number, asked| {
        let size = SIZE.to_string();
        let fields = [(":status", "200"), ("etag", "\"v1\""), ("content-length", &size)];
        let mut out = head(asked.stream, 0, &fields);
        match number {
            // All of it, and no END_STREAM.
            1 => {
                out.extend(data(asked.stream, &body(1), false));
                (out, Then::Close)
            }
            _ => (out, Then::Go),
        }
    })?;
    let folder = tempfile::tempdir()?;
    run(folder.path(), ["get", "-o", "out", &server.url()])?.failed_with(10);
    let ended = run(folder.path(), ["get", "--json", "-o", "out", &server.url()])?;
    ended.succeeded();
    let document: serde_json::Value = serde_json::from_slice(&ended.stdout)?;
    for field in ["bytes", "resumed"] {
        assert_eq!(document["results"][0][field], SIZE, "{field} in {document}");
    }
    assert_eq!(server.asked(), 2);
    holds(folder.path(), &body(1))
}

/// `fullbore serve` on a port that nobody else is given.
#[cfg(unix)]
fn serve_at(folder: &Path, port: u16) -> TestResult<std::process::Child> {
    use std::io::{BufRead, BufReader};
    let mut child = program(folder)
        .args(["serve", "--plaintext", "--listen"])
        .arg(format!("127.0.0.1:{port}"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    assert_eq!(line.trim(), format!("listening on http://127.0.0.1:{port}"));
    Ok(child)
}

#[cfg(unix)]
#[test]
fn whoever_is_killed_in_the_middle_nothing_is_lost_and_no_name_stands_for_a_part() -> TestResult {
    const FILES: usize = 60;
    let source = tempfile::tempdir()?;
    let folder = tempfile::tempdir()?;
    for number in 0..FILES {
        std::fs::write(source.path().join(format!("{number}.bin")), body(number as u32))?;
    }
    let port = fullbore_testing::process::free_port()?;
    let mut server = serve_at(source.path(), port)?;
    let urls: String = (0..FILES)
        .map(|number| format!("http://127.0.0.1:{port}/{number}.bin\n"))
        .collect();
    std::fs::write(source.path().join("urls"), urls)?;
    let list = source.path().join("urls");
    let get = || {
        let mut get = program(folder.path());
        get.args(["get", "--dir", "out", "--skip-existing", "--parallel", "6", "-i"])
            .arg(&list);
        get
    };
    let out = folder.path().join("out");
    // Every file that has its name, whole or the test fails; how many they are.
    let complete = || -> TestResult<usize> {
        let mut count = 0;
        for name in names(&out).unwrap_or_default() {
            if let Some(number) = name.strip_suffix(".bin") {
                assert!(
                    std::fs::read(out.join(&name))? == body(number.parse()?),
                    "{name} is a part"
                );
                count += 1;
            }
        }
        Ok(count)
    };
    for round in 1..=10 {
        let mut child = get().stderr(Stdio::null()).spawn()?;
        while names(&out).unwrap_or_default().len() < round * 5 && child.try_wait()?.is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        if round % 3 == 0 {
            server.kill()?;
            server.wait()?;
            child.wait()?;
            server = serve_at(source.path(), port)?;
        } else {
            child.kill()?;
            child.wait()?;
        }
        complete()?;
    }
    let ended = crate::support::ended(&mut get());
    server.kill()?;
    server.wait()?;
    ended?.succeeded();
    assert_eq!(complete()?, FILES);
    assert_eq!(names(&out)?.len(), FILES, "parts are left");
    Ok(())
}
