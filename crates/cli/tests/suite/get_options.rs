//! The options of `get` for what is received: checksums, names, heads, conditions, decoding, files of other programs.

use std::fs;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::support::http1::{ok, range, response, rest, serve};
use crate::support::scripted::{HALF, Server, Then, V1, body, half, holds, is_left, rest as rest_of};
use crate::support::{Ended, TestResult, names, program, run};

/// Runs `get` over HTTP/1.1 in `folder`.
fn get(folder: &Path, args: &[&str]) -> TestResult<Ended> {
    run(folder, ["get", "--http1.1"].iter().chain(args))
}

fn sha256(octets: &[u8]) -> String {
    let digest = Sha256::digest(octets);
    digest.iter().map(|octet| format!("{octet:02x}")).collect()
}

#[test]
fn a_body_with_the_checksum_gets_its_name_and_another_does_not() -> TestResult {
    let content = body(1);
    let served = content.clone();
    let origin = serve(move |_, _| ok("", &served))?;
    let url = format!("{origin}/file");
    let right = format!("sha256:{}", sha256(&content));
    let folder = tempfile::tempdir()?;
    get(folder.path(), &["--checksum", &right, "-o", "out", &url])?.succeeded();
    holds(folder.path(), &content)?;
    let wrong = format!("sha256:{}", sha256(b"other"));
    for place in [&["-o", "out2"][..], &["--discard"], &["-o", "/dev/null"]] {
        let ended = get(folder.path(), &[&["--checksum", &wrong, &url], place].concat())?;
        ended.failed_with(21);
        assert!(ended.stderr.contains(&sha256(&content)), "{ended:?}");
        holds(folder.path(), &content)?;
    }
    // Standard output cannot be taken back, but the exit code tells.
    let ended = get(folder.path(), &["--checksum", &wrong, &url])?;
    assert_eq!((ended.code, ended.stdout.len()), (Some(21), content.len()));
    Ok(())
}

#[cfg(unix)]
#[test]
fn the_checksum_of_a_resumed_body_covers_the_part_of_the_earlier_run() -> TestResult {
    for seed in [1, 2] {
        let server = Server::start(move |number, asked| match asked.from("\"v1\"") {
            Some(from) => (rest_of(asked, V1, &body(seed), from), Then::Go),
            None if number == 1 => (half(asked, V1, &body(1)), Then::Close),
            None => (half(asked, V1, &body(1)), Then::Go),
        })?;
        let folder = tempfile::tempdir()?;
        let sum = format!("sha256:{}", sha256(&body(1)));
        let args = ["get", "--checksum", &sum, "-o", "out", &server.url()];
        run(folder.path(), args)?.failed_with(10);
        is_left(folder.path(), &body(1)[..HALF])?;
        let ended = run(folder.path(), args)?;
        if seed == 1 {
            ended.succeeded();
            holds(folder.path(), &body(1))?;
        } else {
            ended.failed_with(21);
            assert!(names(folder.path())?.is_empty(), "wrong bytes are left");
        }
    }
    Ok(())
}

#[test]
fn a_list_gives_names_and_checksums_and_may_begin_with_a_mark() -> TestResult {
    let origin = serve(|head, _| {
        let path = head.split(' ').nth(1).unwrap_or_default();
        ok("", path.as_bytes())
    })?;
    let folder = tempfile::tempdir()?;
    let list = format!(
        "\u{feff}{origin}/a\r\n  out=first name\r\n  checksum=sha-256={}\r\n{origin}/b\n  checksum=sha-256={}\n  \
         out=second\n\n# comment\n{origin}/c",
        sha256(b"/a"),
        sha256(b"/other")
    );
    fs::write(folder.path().join("list"), list)?;
    let ended = get(folder.path(), &["--dir", "out", "-i", "list"])?;
    ended.failed_with(21);
    assert!(ended.stderr.contains("second"), "{ended:?}");
    let out = folder.path().join("out");
    assert_eq!(names(&out)?, ["c", "first name"]);
    assert_eq!(fs::read(out.join("first name"))?, b"/a");
    Ok(())
}

#[test]
fn a_response_names_its_file_and_replaces_none() -> TestResult {
    let origin = serve(|head, _| {
        let name = match head.split(' ').nth(1) {
            Some("/a") => "content-disposition: attachment; filename=\"../real name.txt\"\r\n",
            Some("/b") => "content-disposition: attachment; filename=.profile\r\n",
            _ => "",
        };
        ok(name, b"new")
    })?;
    let urls = ["a", "b", "c"].map(|name| format!("{origin}/{name}"));
    let folder = tempfile::tempdir()?;
    let args = ["-JO", &urls[0], &urls[1], &urls[2]];
    get(folder.path(), &args)?.succeeded();
    assert_eq!(names(folder.path())?, ["_profile", "c", "real name.txt"]);
    fs::write(folder.path().join("real name.txt"), "old")?;
    let again = get(folder.path(), &["-JO", &urls[0]])?;
    again.failed_with(15);
    // With -J, it would be refused.
    assert!(!again.stderr.contains("--force"), "{again:?}");
    assert_eq!(fs::read(folder.path().join("real name.txt"))?, b"old");
    get(folder.path(), &["-JO", "--skip-existing", &urls[0]])?.succeeded();
    assert_eq!(fs::read(folder.path().join("real name.txt"))?, b"old");
    assert_eq!(get(folder.path(), &["-JO", "--force", &urls[0]])?.code, Some(2));
    assert_eq!(get(folder.path(), &["-J", &urls[0]])?.code, Some(2));
    Ok(())
}

/// A server that closes the connection after half of the body, and sends the rest when it is asked for.
fn breaks_off() -> TestResult<Server> {
    Server::start(|_, asked| match asked.from("\"v1\"") {
        Some(from) => (rest_of(asked, V1, &body(1), from), Then::Go),
        None => (half(asked, V1, &body(1)), Then::Close),
    })
}

#[test]
fn no_head_is_printed_within_a_body_that_is_resumed() -> TestResult {
    let server = breaks_off()?;
    let folder = tempfile::tempdir()?;
    let args = ["get", "--http2", "--include", "--retry", "1", &server.url()];
    let ended = run(folder.path(), args)?;
    ended.succeeded();
    assert!(server.asked() > 1, "nothing broke off");
    let end = ended.stdout.windows(2).position(|octets| octets == b"\n\n");
    let end = end.ok_or("no head")? + 2;
    assert!(ended.stdout.starts_with(b"HTTP/2 200"), "another head");
    assert!(ended.stdout[end..] == body(1), "another body");
    Ok(())
}

#[test]
fn heads_are_printed_alone_or_in_front_of_the_body() -> TestResult {
    let origin = serve(|head, _| match head.starts_with("HEAD ") {
        true => b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\nx-kind: head\r\n\r\n".to_vec(),
        false => ok("x-kind: get\r\n", b"body"),
    })?;
    let url = format!("{origin}/file");
    let folder = tempfile::tempdir()?;
    let alone = get(folder.path(), &["-I", &url])?;
    alone.succeeded();
    let text = String::from_utf8(alone.stdout)?;
    assert!(
        text.starts_with("HTTP/1.1 200 OK\n") && text.ends_with("\n\n"),
        "{text}"
    );
    assert!(text.contains("x-kind: head\n"), "{text}");
    let several = get(folder.path(), &["--head", &url, &url])?;
    several.succeeded();
    assert_eq!(String::from_utf8(several.stdout)?.matches("200 OK").count(), 2);
    let included = get(folder.path(), &["--include", &url])?;
    included.succeeded();
    let text = String::from_utf8(included.stdout)?;
    assert!(
        text.contains("x-kind: get\n") && text.ends_with("\n\nbody"),
        "{text}"
    );
    assert_eq!(get(folder.path(), &["-I", "-o", "out", &url])?.code, Some(2));
    assert!(names(folder.path())?.is_empty());
    Ok(())
}

#[test]
fn a_file_that_another_program_began_is_continued_and_only_its_length_is_trusted() -> TestResult {
    let content = body(1);
    let served = content.clone();
    let origin = serve(move |head, _| match range(head) {
        Some(from) => {
            assert!(!head.contains("if-range"), "{head}");
            rest("etag: \"1\"\r\n", &served, from)
        }
        None => ok("etag: \"1\"\r\n", &served),
    })?;
    let url = format!("{origin}/file");
    let sum = format!("sha256:{}", sha256(&content));
    for option in [&["-c"][..], &["-C", "-"]] {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("out");
        fs::write(&path, &content[..300_000])?;
        let args = [option, &["--checksum", &sum, "-o", "out", "--json", &url]].concat();
        let ended = get(folder.path(), &args)?;
        ended.succeeded();
        let document: serde_json::Value = serde_json::from_slice(&ended.stdout)?;
        assert_eq!(document["results"][0]["resumed"], 300_000);
        assert_eq!(document["results"][0]["bytes"], 1_000_000);
        holds(folder.path(), &content)?;
        // Complete already: nothing is to be done.
        let again = get(folder.path(), &args)?;
        again.succeeded();
        holds(folder.path(), &content)?;
        // Without an existing file it is a download like any other.
        fs::remove_file(&path)?;
        get(folder.path(), &args)?.succeeded();
        holds(folder.path(), &content)?;
        // Longer than the body of the server, so of another one.
        fs::write(&path, vec![7; 1_000_001])?;
        get(folder.path(), &args)?.failed_with(15);
        assert_eq!(fs::metadata(&path)?.len(), 1_000_001);
        // The checksum finds what the length does not.
        fs::write(&path, vec![7; 300_000])?;
        get(folder.path(), &args)?.failed_with(21);
    }
    Ok(())
}

#[test]
fn a_file_is_not_continued_by_a_server_without_ranges() -> TestResult {
    let origin = serve(|_, _| ok("", b"all of it"))?;
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("out"), "all")?;
    let ended = get(folder.path(), &["-c", "-o", "out", &format!("{origin}/file")])?;
    ended.failed_with(15);
    assert!(ended.stderr.contains("--force"), "{ended:?}");
    assert_eq!(fs::read(folder.path().join("out"))?, b"all");
    Ok(())
}

#[test]
fn a_body_that_did_not_change_is_not_downloaded() -> TestResult {
    let origin = serve(|head, _| match head {
        head if head.contains("if-none-match: \"1\"") => response("304 Not Modified", "etag: \"1\"\r\n", b""),
        head if head.contains("if-modified-since: ") => response("304 Not Modified", "", b""),
        _ => ok("etag: \"1\"\r\n", b"body"),
    })?;
    let url = format!("{origin}/file");
    let folder = tempfile::tempdir()?;
    let tags = [
        "--etag-compare",
        "tag",
        "--etag-save",
        "tag",
        "--force",
        "-o",
        "out",
        &url,
    ];
    get(folder.path(), &tags)?.succeeded();
    assert_eq!(names(folder.path())?, ["out", "tag"]);
    assert_eq!(fs::read(folder.path().join("tag"))?, b"\"1\"\n");
    // curl's -f is another option, which replaces nothing.
    get(folder.path(), &["-f", "-o", "out", &url])?.failed_with(15);
    for args in [&tags[..], &["-z", "out", "--force", "-o", "out", &url]] {
        fs::write(folder.path().join("out"), "mine")?;
        let ended = get(folder.path(), args)?;
        ended.succeeded();
        assert!(ended.stderr.contains("not modified"), "{ended:?}");
        assert_eq!(fs::read(folder.path().join("out"))?, b"mine");
        assert_eq!(fs::read(folder.path().join("tag"))?, b"\"1\"\n");
    }
    Ok(())
}

#[test]
fn a_time_that_is_neither_a_file_nor_a_date_is_noted() -> TestResult {
    let origin = serve(|head, _| match head.contains("if-modified-since: ") {
        true => response("304 Not Modified", "", b""),
        false => ok("", b"body"),
    })?;
    let url = format!("{origin}/file");
    let folder = tempfile::tempdir()?;
    for time in ["none", "2020-01-01"] {
        let ended = get(folder.path(), &["-z", time, &url])?;
        ended.succeeded();
        assert_eq!(ended.stdout, b"body");
        let note = format!("fullbore: --time-cond {time}: there is no such file, and it is no HTTP date");
        assert!(ended.stderr.starts_with(&note), "{ended:?}");
        assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
        for volume in ["-q", "-s"] {
            let ended = get(folder.path(), &[volume, "-z", time, &url])?;
            ended.succeeded();
            assert!(ended.stderr.is_empty(), "{volume}: {ended:?}");
        }
    }
    let ended = get(folder.path(), &["-z", "Wed, 01 Jan 2020 00:00:00 GMT", &url])?;
    ended.succeeded();
    assert!(!ended.stderr.contains("--time-cond"), "{ended:?}");
    Ok(())
}

#[test]
fn the_entity_tag_of_a_head_and_of_a_body_that_is_not_in_a_file_is_saved() -> TestResult {
    let server = breaks_off()?;
    let resumed = server.url();
    let origin = serve(|_, _| ok("etag: \"v1\"\r\n", b"body"))?;
    let whole = format!("{origin}/file");
    let folder = tempfile::tempdir()?;
    let tag = folder.path().join("tag");
    for args in [
        &["-I", &whole][..],
        &["--discard", &whole],
        &["--http2", "--retry", "1", "--discard", &resumed],
        &["--http2", "--retry", "1", &resumed],
    ] {
        fs::write(&tag, "\"v0\"\n")?;
        let get = ["get", "--etag-save", "tag"];
        run(folder.path(), get.iter().chain(args))?.succeeded();
        assert_eq!(fs::read(&tag)?, b"\"v1\"\n", "{args:?}");
    }
    // A body that was not saved has no tag for the file that was.
    fs::write(folder.path().join("file"), "mine")?;
    fs::write(&tag, "\"v0\"\n")?;
    let skip = ["-JO", "--skip-existing", "--etag-save", "tag", &whole];
    get(folder.path(), &skip)?.succeeded();
    assert_eq!(fs::read(&tag)?, b"\"v0\"\n");
    Ok(())
}

#[test]
fn the_entity_tag_never_replaces_the_body() -> TestResult {
    let fields = "etag: \"v1\"\r\ncontent-disposition: attachment; filename=named\r\n";
    let origin = serve(move |_, _| ok(fields, b"body"))?;
    let url = format!("{origin}/file");
    for (args, name) in [
        (&["-O", "--etag-save", "file"][..], "file"),
        (&["-O", "--etag-save", "./file"], "file"),
        (&["--dir", ".", "--etag-save", "file"], "file"),
        (&["-O", "--force", "--etag-save", "hard"], "file"),
        (&["-O", "--force", "--etag-save", "soft"], "file"),
        (&["-JO", "--etag-save", "named"], "named"),
    ] {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("file");
        if args.contains(&"--force") {
            if cfg!(not(unix)) {
                continue;
            }
            fs::write(&path, "mine")?;
            fs::hard_link(&path, folder.path().join("hard"))?;
            #[cfg(unix)]
            std::os::unix::fs::symlink("file", folder.path().join("soft"))?;
        }
        let all: Vec<&str> = args.iter().copied().chain([&*url]).collect();
        let ended = get(folder.path(), &all)?;
        ended.failed_with(2);
        assert!(
            ended.stderr.contains("save the entity tag in another one"),
            "{ended:?}"
        );
        match path.exists() {
            true => assert_eq!(fs::read(&path)?, b"mine", "{args:?}"),
            false => assert!(names(folder.path())?.is_empty(), "{args:?}"),
        }
        assert!(!folder.path().join(name).exists() || name == "file", "{args:?}");
    }
    // With -J the name of the URL is nobody's.
    let folder = tempfile::tempdir()?;
    get(folder.path(), &["-JO", "--etag-save", "file", &url])?.succeeded();
    assert_eq!(fs::read(folder.path().join("file"))?, b"\"v1\"\n");
    assert_eq!(fs::read(folder.path().join("named"))?, b"body");
    Ok(())
}

#[test]
fn a_body_with_a_transfer_coding_that_nobody_decodes_is_refused() -> TestResult {
    // Of "body", as a chunk.
    for (codings, refused) in [
        ("gzip, chunked", true),
        ("gzip\r\ntransfer-encoding: chunked", true),
        ("chunked", false),
        ("Chunked", false),
    ] {
        let origin = serve(move |_, _| {
            format!("HTTP/1.1 200 OK\r\ntransfer-encoding: {codings}\r\n\r\n4\r\nbody\r\n0\r\n\r\n")
                .into_bytes()
        })?;
        let url = format!("{origin}/file");
        let folder = tempfile::tempdir()?;
        let saved = get(folder.path(), &["-o", "out", &url])?;
        fs::write(folder.path().join("sent"), "sent")?;
        let put = ["put", "--http1.1", "-o", "answer", "sent", &url];
        let answered = run(folder.path(), put)?;
        match refused {
            true => {
                saved.failed_with(9);
                answered.failed_with(9);
                assert!(saved.stderr.contains("transfer coding"), "{saved:?}");
                assert_eq!(names(folder.path())?, ["sent"], "{codings}");
            }
            false => {
                saved.succeeded();
                answered.succeeded();
                assert_eq!(fs::read(folder.path().join("out"))?, b"body");
                assert_eq!(fs::read(folder.path().join("answer"))?, b"body");
            }
        }
    }
    Ok(())
}

#[test]
fn a_304_that_nobody_asked_for_is_no_body() -> TestResult {
    let origin = serve(|_, _| response("304 Not Modified", "", b""))?;
    let folder = tempfile::tempdir()?;
    get(folder.path(), &["-o", "out", &format!("{origin}/file")])?.failed_with(14);
    assert!(names(folder.path())?.is_empty());
    Ok(())
}

/// "fullbore " twenty times, as gzip 1.12, zstd 1.5, brotli 1.1 and zlib 1.3 encode it.
const GZIP: &[u8] = include_bytes!("../data/encoded.gz");
const ZSTD: &[u8] = include_bytes!("../data/encoded.zst");
const BROTLI: &[u8] = include_bytes!("../data/encoded.br");
const ZLIB: &[u8] = include_bytes!("../data/encoded.zz");

#[test]
fn a_compressed_body_is_decoded_on_request_only() -> TestResult {
    let plain = "fullbore ".repeat(20);
    for (coding, octets) in [("gzip", GZIP), ("zstd", ZSTD), ("br", BROTLI), ("deflate", ZLIB)] {
        let origin = serve(move |head, _| {
            let fields = match head.contains("accept-encoding: zstd, br, gzip, deflate") {
                true => format!("content-encoding: {coding}\r\n"),
                false => String::new(),
            };
            ok(&fields, octets)
        })?;
        let url = format!("{origin}/file");
        let folder = tempfile::tempdir()?;
        let decoded = get(folder.path(), &["--compressed", &url])?;
        decoded.succeeded();
        assert_eq!(String::from_utf8(decoded.stdout)?, plain, "{coding}");
        assert_eq!(get(folder.path(), &[&url])?.stdout, octets);
    }
    Ok(())
}

#[test]
fn a_compressed_body_that_is_damaged_or_cut_leaves_no_file() -> TestResult {
    for octets in [&GZIP[..GZIP.len() - 9], b"not compressed at all"] {
        let origin = serve(move |_, _| ok("content-encoding: gzip\r\n", octets))?;
        let folder = tempfile::tempdir()?;
        let ended = get(
            folder.path(),
            &["--compressed", "-o", "out", &format!("{origin}/file")],
        )?;
        ended.failed_with(9);
        assert!(ended.stderr.contains("without --compressed"), "{ended:?}");
        assert!(names(folder.path())?.is_empty());
    }
    Ok(())
}

#[test]
fn an_empty_body_needs_no_decoding() -> TestResult {
    for coding in ["gzip", "zstd", "br", "deflate"] {
        for body in [
            "content-length: 0\r\n\r\n",
            "transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        ] {
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-encoding: {coding}\r\n{body}");
            let origin = serve(move |_, _| answer.clone().into_bytes())?;
            let folder = tempfile::tempdir()?;
            let url = format!("{origin}/file");
            get(folder.path(), &["--compressed", "-o", "out", &url])?.succeeded();
            holds(folder.path(), b"")?;
        }
    }
    Ok(())
}

#[cfg(target_os = "linux")]
#[test]
fn a_path_of_standard_output_is_standard_output() -> TestResult {
    let origin = serve(|_, _| ok("", b"body"))?;
    let folder = tempfile::tempdir()?;
    for path in ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
        let ended = get(folder.path(), &["--json", "-o", path, &origin])?;
        ended.succeeded();
        assert_eq!(ended.stdout, b"body", "{path}: the document is not in the body");
        serde_json::from_str::<serde_json::Value>(&ended.stderr)?;
        // What the file has stays, as with `>>`.
        let file = fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(folder.path().join("out"))?;
        let args = ["get", "--http1.1", "-o", path, &origin];
        assert!(program(folder.path()).args(args).stdout(file).status()?.success());
    }
    holds(folder.path(), &b"body".repeat(4))
}
