//! For everything that can go wrong with a download: its exit code, one sentence, and nothing left in the folder.

use std::fs;
use std::process::Command;

use crate::support::frames::{self, END_STREAM};
use crate::support::peer::{self, Then};
use crate::support::{Ended, Serving, TestResult, names, program, run, until};
use fullbore_testing::nobody::Nobody;

/// Downloads `url` to `out` in an empty folder; asserts that a failure leaves the folder empty.
fn get(url: &str, more: &[&str]) -> TestResult<Ended> {
    let folder = tempfile::tempdir()?;
    let mut args = vec!["get", "-o", "out", url];
    args.extend(more);
    let ended = run(folder.path(), args)?;
    if ended.code != Some(0) {
        assert!(names(folder.path())?.is_empty(), "left over after {ended:?}");
    }
    Ok(ended)
}

fn url(address: &str) -> String {
    format!("http://{address}/file")
}

#[test]
fn a_wrong_url_exits_with_2() -> TestResult {
    for url in [
        "",
        "example/x",
        "ftp://example.org/x",
        "http://",
        "http://[::1",
        "http://h:99999/",
    ] {
        get(url, &[])?.failed_with(2);
    }
    Ok(())
}

#[test]
fn a_name_that_does_not_resolve_exits_with_5() -> TestResult {
    // RFC 6761 section 6.4: no name under .invalid ever resolves.
    get("http://name.invalid/file", &[])?.failed_with(5);
    Ok(())
}

#[test]
fn nobody_listening_exits_with_5() -> TestResult {
    let nobody = Nobody::bind();
    get(&url(&nobody.to_string()), &[])?.failed_with(5);
    Ok(())
}

#[test]
fn a_certificate_that_does_not_verify_exits_with_6_and_insecure_accepts_it() -> TestResult {
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("file"), "content")?;
    let serving = Serving::start(folder.path(), &["--self-signed"])?;
    let url = format!("{}/file", serving.origin);
    let refused = get(&url, &[])?;
    refused.failed_with(6);
    assert!(refused.stderr.contains("--cacert"), "{refused:?}");
    get(&url, &["--insecure"])?.succeeded();
    Ok(())
}

#[test]
fn a_peer_without_tls_exits_with_6() -> TestResult {
    let address = peer::says(b"HTTP/1.1 400 Bad Request\r\n\r\n")?;
    get(&format!("https://{address}/file"), &["--insecure"])?.failed_with(6);
    Ok(())
}

#[test]
fn a_peer_that_speaks_http_1_exits_with_9() -> TestResult {
    let address = peer::says(
        b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/html\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
    )?;
    get(&url(&address), &["--http2"])?.failed_with(9);
    Ok(())
}

#[test]
fn a_peer_that_speaks_rubbish_exits_with_9() -> TestResult {
    static RUBBISH: [u8; 4_096] = [0xa5; 4_096];
    get(&url(&peer::says(&RUBBISH)?), &[])?.failed_with(9);
    get(&url(&peer::says(b"SSH-2.0-OpenSSH_9.9\r\n")?), &[])?.failed_with(9);
    Ok(())
}

#[test]
fn a_peer_that_breaks_the_rules_exits_with_9() -> TestResult {
    // RFC 9113 section 6.1: DATA belongs to a stream.
    let address = peer::http2(|_| frames::data(0, 0, b"x"), Then::Wait)?;
    get(&url(&address), &[])?.failed_with(9);
    Ok(())
}

#[test]
fn a_peer_that_closes_mid_body_exits_with_10() -> TestResult {
    let known = |id| [frames::ok(id, Some(100_000)), frames::data(id, 0, &[7; 10_000])].concat();
    get(&url(&peer::http2(known, Then::Close)?), &[])?.failed_with(10);
    let unknown = |id| [frames::ok(id, None), frames::data(id, 0, &[7; 10_000])].concat();
    get(&url(&peer::http2(unknown, Then::Close)?), &[])?.failed_with(10);
    Ok(())
}

#[test]
fn a_peer_that_resets_the_stream_exits_with_10() -> TestResult {
    // INTERNAL_ERROR, RFC 9113 section 7.
    let script = |id| {
        [
            frames::ok(id, Some(100_000)),
            frames::data(id, 0, &[7; 10_000]),
            frames::reset(id, 0x2),
        ]
        .concat()
    };
    get(&url(&peer::http2(script, Then::Wait)?), &[])?.failed_with(10);
    Ok(())
}

#[test]
fn a_peer_that_requires_http1_where_it_is_not_allowed_names_the_option() -> TestResult {
    // HTTP_1_1_REQUIRED.
    let address = peer::http2(|id| frames::reset(id, 0xd), Then::Wait)?;
    let ended = get(&url(&address), &["--http2"])?;
    ended.failed_with(10);
    assert!(ended.stderr.contains("use --http1.1"), "{ended:?}");
    Ok(())
}

#[test]
fn a_response_that_is_malformed_over_http2_names_the_option_that_may_avoid_it() -> TestResult {
    let block = frames::response_block("200", &[("connection", "close")]);
    let script = move |id| frames::headers(id, frames::END_HEADERS, &block);
    let ended = get(&url(&peer::http2(script, Then::Wait)?), &[])?;
    ended.failed_with(9);
    assert!(ended.stderr.contains("--http1.1 may avoid"), "{ended:?}");
    Ok(())
}

#[test]
fn a_body_shorter_than_its_content_length_exits_with_10() -> TestResult {
    let script = |id| [frames::ok(id, Some(10)), frames::data(id, END_STREAM, b"short")].concat();
    get(&url(&peer::http2(script, Then::Wait)?), &[])?.failed_with(10);
    Ok(())
}

#[test]
fn a_body_longer_than_its_content_length_exits_with_10() -> TestResult {
    let script = |id| [frames::ok(id, Some(3)), frames::data(id, END_STREAM, b"longer")].concat();
    get(&url(&peer::http2(script, Then::Wait)?), &[])?.failed_with(10);
    Ok(())
}

#[test]
fn a_peer_that_never_completes_the_handshake_exits_with_13() -> TestResult {
    let address = peer::is_silent()?;
    let url = format!("https://{address}/file");
    get(&url, &["--insecure", "--connect-timeout", "1"])?.failed_with(13);
    Ok(())
}

#[test]
fn a_status_of_400_or_above_exits_with_14() -> TestResult {
    for code in ["400", "404", "500", "503", "599"] {
        let address = peer::http2(move |id| frames::status(id, code), Then::Wait)?;
        let ended = get(&url(&address), &[])?;
        ended.failed_with(14);
        assert!(ended.stderr.contains(code), "{ended:?}");
    }
    Ok(())
}

#[test]
fn a_target_that_exists_exits_with_15_and_force_replaces_it() -> TestResult {
    let address = answering("new")?;
    let folder = tempfile::tempdir()?;
    let target = folder.path().join("out");
    fs::write(&target, "old")?;
    run(folder.path(), ["get", "-o", "out", &url(&address)])?.failed_with(15);
    assert_eq!(fs::read(&target)?, b"old");
    run(folder.path(), ["get", "--force", "-o", "out", &url(&address)])?.succeeded();
    assert_eq!(fs::read(&target)?, b"new");
    assert_eq!(names(folder.path())?, ["out"]);
    Ok(())
}

#[test]
fn two_urls_of_one_name_keep_the_first_and_exit_with_15() -> TestResult {
    let address = answering("body")?;
    let folder = tempfile::tempdir()?;
    let urls = [format!("http://{address}/a/x"), format!("http://{address}/b/x")];
    let ended = run(folder.path(), ["get", "-O", &urls[0], &urls[1]])?;
    assert_eq!(ended.code, Some(15), "{ended:?}");
    assert_eq!(names(folder.path())?, ["x"]);
    assert_eq!(fs::read(folder.path().join("x"))?, b"body");
    Ok(())
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_device_exits_with_17() -> TestResult {
    let folder = tempfile::tempdir()?;
    run(
        folder.path(),
        ["get", "-o", "/dev/full", &url(&answering("body")?)],
    )?
    .failed_with(17);
    Ok(())
}

#[cfg(target_os = "linux")]
#[test]
fn a_document_that_cannot_be_printed_is_a_failure() -> TestResult {
    let url = url(&answering("body")?);
    for (args, names_after) in [
        (&["get", "--json", "-o", "got", &url][..], vec!["got"]),
        (&["get", "--json", "--discard", &url, &url], vec![]),
        (
            &["put", "--json", "-o", "got", "/etc/hostname", &url],
            vec!["got"],
        ),
    ] {
        let folder = tempfile::tempdir()?;
        let out = fs::OpenOptions::new().write(true).open("/dev/full")?;
        let output = program(folder.path()).args(args).stdout(out).output()?;
        assert_eq!(output.status.code(), Some(17), "{args:?}");
        let stderr = String::from_utf8(output.stderr)?;
        assert_eq!(stderr.matches("standard output").count(), 1, "{stderr}");
        assert_eq!(names(folder.path())?, names_after, "the body is not affected");
    }
    Ok(())
}

#[cfg(unix)]
#[test]
fn a_file_that_cannot_grow_exits_with_17_and_is_removed() -> TestResult {
    let script = |id| {
        let mut octets = frames::ok(id, None);
        for _ in 0..4 {
            octets.extend(frames::data(id, 0, &[7; 15_000]));
        }
        octets.extend(frames::data(id, END_STREAM, b""));
        octets
    };
    let folder = tempfile::tempdir()?;
    // Blocks of 512 bytes, in POSIX; of 1,024 in some shells: less than the body in both.
    let ended = crate::support::ended(
        Command::new("sh")
            .current_dir(folder.path())
            .args(["-c", "ulimit -f 8; exec \"$0\" get -o out \"$1\""])
            .arg(env!("CARGO_BIN_EXE_fullbore"))
            .arg(url(&peer::http2(script, Then::Wait)?)),
    )?;
    ended.failed_with(17);
    assert!(names(folder.path())?.is_empty());
    Ok(())
}

#[test]
fn a_folder_that_does_not_exist_exits_with_17() -> TestResult {
    let folder = tempfile::tempdir()?;
    run(
        folder.path(),
        ["get", "-o", "no/such/out", &url(&answering("body")?)],
    )?
    .failed_with(17);
    Ok(())
}

#[test]
fn a_peer_that_refuses_every_request_and_goes_away_exits_with_10() -> TestResult {
    let address = peer::http2(|_| frames::go_away(0, 0), Then::Wait)?;
    get(&url(&address), &[])?.failed_with(10);
    Ok(())
}

#[test]
fn a_failure_stops_no_other_url_and_the_first_failure_is_the_exit_code() -> TestResult {
    let good = answering("body")?;
    let bad = peer::http2(|id| frames::status(id, "404"), Then::Wait)?;
    let folder = tempfile::tempdir()?;
    let urls = [
        format!("http://{bad}/gone"),
        format!("http://{good}/a"),
        format!("http://{good}/b"),
    ];
    let ended = run(folder.path(), ["get", "-v", "-O", &urls[0], &urls[1], &urls[2]])?;
    assert_eq!(ended.code, Some(14), "{ended:?}");
    assert_eq!(names(folder.path())?, ["a", "b"]);
    assert!(
        ended.summary().contains("2 files") && ended.summary().contains("1 failed"),
        "{ended:?}"
    );
    Ok(())
}

#[test]
fn a_wrong_command_line_exits_with_2() -> TestResult {
    let folder = tempfile::tempdir()?;
    for args in [
        &["get"][..],
        &["get", "http://h/a", "http://h/b"],
        &["get", "-o", "x", "-O", "http://h/a"],
        &["get", "--stream-window", "0", "http://h/a"],
        &["get", "--connection-window", "1KiB", "http://h/a"],
        &["get", "-H", "connection: close", "http://h/a"],
        &["get", "--cacert", "x", "--insecure", "http://h/a"],
        &["put", "x"],
        &["serve", "--listen", "0.0.0.0:0"],
    ] {
        let ended = run(folder.path(), args)?;
        assert_eq!(ended.code, Some(2), "{args:?}: {ended:?}");
        assert!(!ended.stderr.is_empty());
    }
    assert!(names(folder.path())?.is_empty());
    Ok(())
}

#[cfg(unix)]
#[test]
fn an_interrupt_mid_body_exits_with_128_and_the_signal_and_removes_the_file() -> TestResult {
    for told in [
        crate::support::Signal::Terminate,
        crate::support::Signal::Interrupt,
    ] {
        let script = |id| {
            let mut octets = frames::ok(id, Some(1_000_000));
            // More than is gathered before a file is begun.
            for _ in 0..8 {
                octets.extend(frames::data(id, 0, &[7; 16_383]));
            }
            octets
        };
        let address = peer::http2(script, Then::Wait)?;
        let folder = tempfile::tempdir()?;
        let child = program(folder.path())
            .args(["get", "-o", "out", "--json", &url(&address)])
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()?;
        until("there is a half file to be removed", || {
            Ok(!names(folder.path())?.is_empty())
        })?;
        let before = names(folder.path())?;
        crate::support::signal(&child, told)?;
        let output = child.wait_with_output()?;
        assert!(
            matches!(before.as_slice(), [name] if name.starts_with(".out.") && name.ends_with(".part")),
            "{before:?}"
        );
        assert_eq!(output.status.code(), told.exit_code());
        assert!(names(folder.path())?.is_empty());
        let document: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        assert_eq!(document["totals"]["interrupted"], true);
    }
    Ok(())
}

/// A peer that answers each request with the same short body.
fn answering(body: &'static str) -> std::io::Result<String> {
    peer::http2(
        move |id| {
            [
                frames::ok(id, Some(body.len())),
                frames::data(id, END_STREAM, body.as_bytes()),
            ]
            .concat()
        },
        Then::Wait,
    )
}

/// Those of many threads that listen already end with the one that cannot.
#[test]
#[cfg(target_os = "linux")]
fn threads_that_cannot_all_listen_end_serve() -> TestResult {
    let folder = tempfile::tempdir()?;
    let ended = crate::support::ended(Command::new("sh").current_dir(folder.path()).args([
        "-c",
        "ulimit -n 64 && exec \"$0\" serve . --plaintext --threads 200 --listen 127.0.0.1:0",
        env!("CARGO_BIN_EXE_fullbore"),
    ]))?;
    assert!(ended.stdout.is_empty(), "it said that it listens: {ended:?}");
    assert!(ended.code.is_some_and(|code| code > 0), "{ended:?}");
    assert!(ended.stderr.starts_with("fullbore: "), "{ended:?}");
    Ok(())
}
