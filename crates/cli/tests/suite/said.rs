//! What `get` and `put` say: errors with the text of the server, quiet and silent runs, the progress on a terminal, interrupts,
//! and the JSON documents that the guide describes.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use crate::support::http1::{ok, response, serve};
use crate::support::scripted::{HALF, SIZE, Server, Then, V1, body, half, head, holds, rest};
use crate::support::{Ended, Serving, TestResult, names, patiently, program, run, until};

#[test]
fn the_text_of_an_error_is_shown_as_one_printable_line() -> TestResult {
    let origin = serve(|head, _| match head.split(' ').nth(1) {
        Some("/html") => response(
            "404 Not Found",
            "content-type: text/html\r\n",
            b"<title>x</title><h1>No such\n page</h1>",
        ),
        Some("/binary") => response("500 Internal Server Error", "", b"\0\x01\x02"),
        Some("/long") => response("403 Forbidden", "", &[b'x'; 100_000]),
        _ => response("409 Conflict", "", b"the file\r\nexists\x1b[31m"),
    })?;
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("in"), "content")?;
    let url = |name: &str| format!("{origin}/{name}");
    for command in [&["get", "-o", "out"][..], &["put", "in"]] {
        let ended = |name: &str| -> TestResult<Ended> {
            let ended = run(folder.path(), [command, &["--http1.1", &url(name)]].concat())?;
            assert_eq!((ended.code, ended.stdout.len()), (Some(14), 0), "{ended:?}");
            Ok(ended)
        };
        let text = |name: &str| -> TestResult<String> {
            let ended = ended(name)?;
            let line = ended.stderr.lines().nth(1).unwrap_or_default();
            assert_eq!(ended.stderr.lines().count(), 2, "{ended:?}");
            Ok(line
                .strip_prefix("fullbore: the server says: ")
                .ok_or("no text")?
                .to_owned())
        };
        assert_eq!(text("text")?, "the file exists\\u{1b}[31m");
        assert_eq!(text("html")?, "No such page");
        assert_eq!(text("long")?, "x".repeat(1_024) + "…");
        ended("binary")?.failed_with(14);
    }
    let document = run(
        folder.path(),
        ["get", "--http1.1", "--json", "--discard", &url("text")],
    )?;
    let document: Value = serde_json::from_slice(&document.stdout)?;
    assert_eq!(
        document["results"][0]["error"]["body"],
        "the file exists\\u{1b}[31m"
    );
    Ok(())
}

#[test]
fn quiet_runs_print_errors_only_and_silent_runs_nothing() -> TestResult {
    let origin = serve(|head, _| match head.split(' ').nth(1) {
        Some("/gone") => response("404 Not Found", "", b""),
        _ => ok("", b"body"),
    })?;
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("in"), "content")?;
    let said = |command: &str, options: &[&str], name: &str| -> TestResult<(Option<i32>, usize)> {
        let url = format!("{origin}/{name}");
        let place = if command == "get" { "--discard" } else { "in" };
        let args = [&[command, "--http1.1", place, &url][..], options].concat();
        let ended = run(folder.path(), args)?;
        Ok((ended.code, ended.stderr.lines().count()))
    };
    for command in ["get", "put"] {
        for (options, lines) in [(&["-q"][..], 1), (&["-s"], 0), (&["-sS"], 1)] {
            assert_eq!(
                said(command, options, "file")?,
                (Some(0), 0),
                "{command} {options:?}"
            );
            assert_eq!(
                said(command, options, "gone")?,
                (Some(14), lines),
                "{command} {options:?}"
            );
        }
        assert_eq!(
            said(command, &[], "file")?,
            (Some(0), 0),
            "a summary without a terminal"
        );
        let url = format!("{origin}/file");
        let place = if command == "get" { "--discard" } else { "in" };
        let verbose = run(folder.path(), ["-v", command, "--http1.1", place, &url])?;
        assert!(verbose.summary().contains(" bytes in "), "{verbose:?}");
        assert!(
            !verbose.summary().contains("% of the time"),
            "a verdict on four bytes: {verbose:?}"
        );
    }
    // Before the first request as well.
    let ended = run(
        folder.path(),
        ["get", "-s", "--discard", "-H", "range: bytes=0-1", &origin],
    )?;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(2), ""));
    assert_eq!(run(folder.path(), ["get", "-S", &origin])?.code, Some(2));
    Ok(())
}

#[test]
fn an_upload_to_a_folder_keeps_the_name_of_its_file() -> TestResult {
    let origin = serve(|head, _| {
        let path = head.split(' ').nth(1).unwrap_or_default();
        response("201 Created", "", path.as_bytes())
    })?;
    let folder = tempfile::tempdir()?;
    let name = "a b%20ü.iso";
    fs::create_dir(folder.path().join("d"))?;
    fs::write(folder.path().join("d").join(name), "content")?;
    let file = format!("d/{name}");
    for (url, more, path) in [
        ("/up/", &[][..], "/up/a%20b%2520%C3%BC.iso"),
        ("/up/?x=1", &[], "/up/a%20b%2520%C3%BC.iso?x=1"),
        ("", &[], "/a%20b%2520%C3%BC.iso"),
        ("/up/b", &[], "/up/b"),
        // Only PUT names what it stores.
        ("/up/", &["-X", "POST"], "/up/"),
    ] {
        let url = format!("{origin}{url}");
        let ended = run(folder.path(), [&["put", "--http1.1", &file, &url], more].concat())?;
        ended.succeeded();
        assert_eq!(String::from_utf8(ended.stdout)?, path, "{url}");
    }
    let unnamed = run(folder.path(), ["put", "-", &format!("{origin}/up/")])?;
    unnamed.failed_with(2);
    Ok(())
}

#[cfg(unix)]
#[test]
fn an_interrupt_keeps_the_part_and_the_same_command_resumes_it() -> TestResult {
    use crate::support::{Signal, signal};
    for told in [Signal::Interrupt, Signal::Terminate] {
        let server = Server::start(|_, asked| match asked.from("\"v1\"") {
            Some(from) => {
                assert!(from > 0);
                (rest(asked, V1, &body(1), from), Then::Go)
            }
            None => (half(asked, V1, &body(1)), Then::Go),
        })?;
        let folder = tempfile::tempdir()?;
        let args = ["get", "-o", "out", &server.url()];
        let child = program(folder.path())
            .args(args)
            .stderr(std::process::Stdio::piped())
            .spawn()?;
        until("something is written", || {
            let part = fs::metadata(folder.path().join("out.part"));
            Ok(part.is_ok_and(|part| part.len() > 0))
        })?;
        signal(&child, told)?;
        let output = child.wait_with_output()?;
        assert_eq!(output.status.code(), told.exit_code());
        let said = String::from_utf8(output.stderr)?;
        assert!(
            said.contains("the received part is kept: run the same command again to resume"),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(!names(folder.path())?.contains(&"out".to_owned()));
        let asked = server.asked();
        run(folder.path(), args)?.succeeded();
        assert_eq!(server.asked() - asked, 2, "it did not ask for the rest");
        holds(folder.path(), &body(1))?;
    }
    Ok(())
}

/// 206 with a quarter of the body, which breaks off.
fn quarter(stream: u32, from: usize) -> Vec<u8> {
    let range = format!("bytes {from}-{}/{SIZE}", SIZE - 1);
    let length = (SIZE - from).to_string();
    let fields = [
        (":status", "206"),
        ("content-length", length.as_str()),
        ("content-range", range.as_str()),
        ("etag", "\"v1\""),
    ];
    let mut out = head(stream, 0, &fields);
    out.extend(crate::support::scripted::data(
        stream,
        &body(1)[from..from + SIZE / 4],
        false,
    ));
    out
}

#[cfg(target_os = "linux")]
#[test]
fn the_total_of_the_bar_is_the_length_of_the_body_after_each_resume() -> TestResult {
    let server = Server::start(|number, asked| match number {
        1 => (half(asked, V1, &body(1)), Then::Close),
        2 => (quarter(asked.stream, HALF), Then::Close),
        _ => (rest(asked, V1, &body(1), HALF + SIZE / 4), Then::Go),
    })?;
    let folder = tempfile::tempdir()?;
    let mut command = program(folder.path());
    command.args(["get", "--retry", "2", "-o", "out", &server.url()]);
    let (status, screen) = crate::support::terminal::on_terminal(command, false)?;
    assert!(status.success(), "{screen}");
    assert_eq!(server.asked(), 3);
    // "500.00 kB of 1.00 MB, "
    let totals: BTreeSet<&str> = screen
        .split(" of ")
        .skip(1)
        .filter_map(|text| text.split_once(','))
        .map(|(total, _)| total)
        .filter(|total| total.ends_with("MB"))
        .collect();
    assert_eq!(totals, BTreeSet::from(["1.00 MB"]), "{screen}");
    assert!(
        screen.contains("1,000,000 bytes in "),
        "no summary on a terminal: {screen}"
    );
    Ok(())
}

#[cfg(target_os = "linux")]
#[test]
fn no_bar_stands_between_the_lines_of_a_body_on_a_terminal() -> TestResult {
    use std::io::Write;
    let address = crate::support::peer::listen(|stream| {
        let mut some = [0; 1];
        std::io::Read::read_exact(stream, &mut some)?;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\nfirst\n")?;
        std::thread::sleep(std::time::Duration::from_millis(400));
        stream.write_all(b"second")?;
        crate::support::peer::close(stream)
    })?;
    let mut command = program(Path::new("."));
    command.args(["get", "--http1.1", &format!("http://{address}/file")]);
    let (status, screen) = crate::support::terminal::on_terminal(command, true)?;
    assert!(status.success(), "{screen}");
    assert!(screen.starts_with("first\r\nsecond"), "{screen:?}");
    assert!(!screen.contains("B/s,"), "{screen:?}");
    Ok(())
}

#[cfg(target_os = "linux")]
#[test]
fn the_bar_of_many_files_counts_them() -> TestResult {
    let expected = "5 of 6 files";
    // The last one is answered when the others have been counted.
    let counted = Arc::new(AtomicBool::new(false));
    let go = Arc::clone(&counted);
    let origin = serve(move |head, _| {
        if head.starts_with("GET /5 ") {
            let _ = until("the bar counts", || Ok(go.load(Ordering::SeqCst)));
        }
        ok("", &[7; 1_000])
    })?;
    let folder = tempfile::tempdir()?;
    let urls = (0..6).map(|number| format!("{origin}/{number}"));
    let mut command = program(folder.path());
    command.args(["get", "--http1.1", "--discard"]).args(urls);
    let (status, screen) = crate::support::terminal::on_watched_terminal(command, false, |screen| {
        if screen.contains(expected) {
            counted.store(true, Ordering::SeqCst);
        }
    })?;
    assert!(status.success(), "{screen}");
    assert!(screen.contains(expected), "{screen}");
    Ok(())
}

#[cfg(target_os = "linux")]
#[test]
fn an_interrupt_ends_the_wait_for_the_other_end_of_a_fifo() -> TestResult {
    use crate::support::{Signal, signal};
    let folder = tempfile::tempdir()?;
    let made = std::process::Command::new("mkfifo")
        .arg(folder.path().join("fifo"))
        .status()?;
    assert!(made.success());
    for args in [
        &["put", "fifo", "http://127.0.0.1:1/"][..],
        &["get", "--netrc-file", "fifo", "http://127.0.0.1:1/"],
    ] {
        let mut child = program(folder.path())
            .args(args)
            .stderr(std::process::Stdio::null())
            .spawn()?;
        let status = format!("/proc/{}/status", child.id());
        until("it handles SIGINT", || {
            let status = fs::read_to_string(&status)?;
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
            let caught = u64::from_str_radix(caught.unwrap_or_default().trim(), 16)?;
            Ok(caught & 2 != 0)
        })?;
        signal(&child, Signal::Interrupt)?;
        let ended = until("it ended", || Ok(child.try_wait()?.is_some()));
        if ended.is_err() {
            child.kill()?;
        }
        let code = child.wait()?.code();
        ended?;
        assert_eq!(code, Some(130), "{args:?}");
    }
    Ok(())
}

#[cfg(unix)]
#[test]
fn an_interrupted_upload_prints_its_document() -> TestResult {
    use crate::support::{PATIENCE, Signal, peer, signal};
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("file"), "body")?;
    for on_stdout in [true, false] {
        let (connected, connections) = std::sync::mpsc::channel();
        let address = peer::listen(move |stream| {
            let _ = connected.send(());
            std::io::copy(stream, &mut std::io::sink()).map(|_| ())
        })?;
        let url = format!("http://{address}/up");
        let place = if on_stdout { &[][..] } else { &["-o", "-"] };
        let child = program(folder.path())
            .args(["put", "--json", "-q", "file", &url])
            .args(place)
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()?;
        connections.recv_timeout(PATIENCE)?;
        signal(&child, Signal::Interrupt)?;
        let output = child.wait_with_output()?;
        assert_eq!(output.status.code(), Some(130), "{output:?}");
        let text = if on_stdout { &output.stdout } else { &output.stderr };
        let line = text.split(|octet| *octet == b'\n').next().unwrap_or_default();
        let document: Value = serde_json::from_slice(line)?;
        assert_eq!(document["interrupted"], true, "{document}");
        assert_eq!(document["url"], url.as_str());
        assert!(document["error"].is_null(), "{document}");
    }
    Ok(())
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_and_the_whole_agree_on_what_they_waited_for() -> TestResult {
    patiently(a_file_waits_for)
}

#[cfg(target_os = "linux")]
fn a_file_waits_for(seconds: u32) -> TestResult {
    let root = tempfile::tempdir()?;
    fs::write(root.path().join("file"), [7; 1_000])?;
    let serving = Serving::start(root.path(), &["--plaintext"])?;
    let fifo = root.path().join("fifo");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&fifo)
            .status()?
            .success()
    );
    let reader = std::thread::spawn(move || {
        // Writing the body takes so long, after all of it has come.
        std::thread::sleep(seconds * std::time::Duration::from_millis(800));
        fs::read(fifo)
    });
    let url = format!("{}/file", serving.origin);
    let ended = run(root.path(), ["get", "--json", "-o", "fifo", &url])?;
    ended.succeeded();
    assert_eq!(reader.join().map_err(|_| "the reader panicked")??.len(), 1_000);
    let document: Value = serde_json::from_slice(&ended.stdout)?;
    let spent = |value: &Value| value["waited"]["seconds"]["application"].as_f64().unwrap_or(-1.0);
    let (file, whole) = (spent(&document["results"][0]), spent(&document["totals"]));
    assert!(file >= 0.0 && whole >= 0.0, "{document}");
    assert!(
        (file - whole).abs() < 0.4 * f64::from(seconds),
        "{file} and {whole}"
    );
    Ok(())
}

/// The paths of all members, such as `results[].error.kind`.
fn paths(value: &Value, at: &str, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                let path = if at.is_empty() {
                    name.clone()
                } else {
                    format!("{at}.{name}")
                };
                paths(member, &path, into);
            }
        }
        Value::Array(items) => items
            .iter()
            .for_each(|item| paths(item, &format!("{at}[]"), into)),
        _ => {
            into.insert(at.to_owned());
        }
    }
}

/// The first cells of the table below a heading of the guide.
fn documented(heading: &str) -> TestResult<BTreeSet<String>> {
    let guide = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/json.md"))?;
    let section = guide.split(heading).nth(1).ok_or("no such heading")?;
    let section = section.split("\n## ").next().unwrap_or_default();
    let cells = section.lines().filter_map(|line| line.strip_prefix("| `"));
    // Only Linux says something of TCP.
    let cells = cells.filter(|cell| cfg!(target_os = "linux") || !cell.contains("waited.tcp."));
    Ok(cells
        .filter_map(|line| line.split('`').next())
        .map(ToOwned::to_owned)
        .collect())
}

#[test]
fn the_guide_describes_every_member_of_the_documents_and_no_other() -> TestResult {
    let root = tempfile::tempdir()?;
    fs::write(root.path().join("file"), body(1))?;
    let serving = Serving::start(root.path(), &["--plaintext", "--uploads", "discard"])?;
    let file = format!("{}/file", serving.origin);
    let origin = serve(|head, _| match head.split(' ').nth(1) {
        Some("/gone") => response("404 Not Found", "", b"no such file"),
        Some("/result") => response("303 See Other", "location: /a\r\n", b""),
        _ => ok("etag: \"1\"\r\n", b"body"),
    })?;
    let mut got = BTreeSet::new();
    fs::write(root.path().join("begun"), &body(1)[..1_000])?;
    fs::write(root.path().join("tag"), "\"1\"")?;
    let other = serve(|_, _| response("304 Not Modified", "", b""))?;
    let (copy, all) = (tempfile::tempdir()?, format!("{}/", serving.origin));
    let copy = copy.path().display().to_string();
    run(root.path(), ["get", "-r", &all, &copy])?.succeeded();
    for args in [
        &["get", "--json", "-r", "-N", &all, &copy][..],
        &["get", "--json", "-c", "-o", "begun", &file],
        &[
            "get",
            "--json",
            "--http1.1",
            "--discard",
            &format!("{origin}/gone"),
        ],
        &["get", "--json", "--http1.1", "--discard", &format!("{origin}/a")],
        &[
            "get",
            "--json",
            "--http1.1",
            "--etag-compare",
            "tag",
            "--discard",
            &other,
        ],
    ] {
        let ended = run(root.path(), args)?;
        paths(&serde_json::from_slice(&ended.stdout)?, "", &mut got);
    }
    // The guide says that its members are those of `tcp`.
    let of_http1 = |path: &String| !path.contains("http1_1.tcp");
    got.retain(of_http1);
    assert_eq!(got, documented("## `get --json`")?);
    let mut got = BTreeSet::new();
    for args in [
        &["put", "--json", "file", &file][..],
        &[
            "put",
            "--json",
            "--http1.1",
            "--force",
            "-o",
            "answer",
            "file",
            &format!("{origin}/gone"),
        ],
        &[
            "put",
            "--json",
            "--http1.1",
            "--force",
            "-o",
            "answer",
            "file",
            &format!("{origin}/a"),
        ],
        &[
            "put",
            "--json",
            "--no-location",
            "--http1.1",
            "--force",
            "-o",
            "answer",
            "file",
            &format!("{origin}/result"),
        ],
    ] {
        let ended = run(root.path(), args)?;
        paths(&serde_json::from_slice(&ended.stdout)?, "", &mut got);
    }
    #[cfg(unix)]
    paths(&super::uploads_later::document_of_a_later_run()?, "", &mut got);
    #[cfg(not(unix))]
    got.insert("resumed".to_owned());
    got.retain(of_http1);
    assert_eq!(got, documented("## `put --json`")?);
    let mut got = BTreeSet::new();
    fs::write(root.path().join("gone"), "x")?;
    let refusing = [
        "put",
        "--json",
        "--http1.1",
        "gone",
        "none",
        &format!("{origin}/"),
    ];
    for args in [
        refusing,
        [
            "put",
            "--json",
            "--http2",
            "file",
            "none",
            &format!("{}/", serving.origin),
        ],
    ] {
        let ended = run(root.path(), args)?;
        paths(&serde_json::from_slice(&ended.stdout)?, "", &mut got);
    }
    got.retain(|path| !path.starts_with("totals.waited."));
    assert_eq!(got, documented("## `put --json` of folders")?);
    Ok(())
}
