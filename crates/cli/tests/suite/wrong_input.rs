//! Wrong options, lists and files of `get`, `put` and `link`: each prints one sentence that says what is wrong, where, and what
//! to type.

use std::fs;
use std::net::TcpListener;

use crate::support::http1::{ok, serve};
use crate::support::{TestResult, run};
use fullbore_testing::nobody::Nobody;

/// What no user should read: names of Rust's types and traits, and a number instead of a reason.
const NEVER: [&str; 10] = [
    "os error",
    "::",
    "Error(",
    "Err(",
    "Some(",
    "Os {",
    "ParseIntError",
    "invalid digit",
    "panicked",
    "unwrap",
];

#[test]
fn wrong_inputs_of_get_put_and_link_are_named_in_a_sentence() -> TestResult {
    let origin = serve(|_, _| ok("", b"body"))?;
    let url = format!("{origin}/file");
    let (url, folder) = (url.as_str(), tempfile::tempdir()?);
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("folder"))?;
    fs::write(path("file"), "content")?;
    fs::write(path("not-a-tag"), "no tag")?;
    fs::write(path("not-pem"), "no certificate")?;
    fs::write(path("utf16"), b"\xff\xfeh\0t\0t\0p\0")?;
    fs::write(path("binary"), b"http://\xff\xfe/\n")?;
    fs::write(path("option"), "  out=x\n")?;
    fs::write(path("unknown"), format!("{url}\n  split=5\n"))?;
    fs::write(path("path"), format!("{url}\n  out=../x\n"))?;
    fs::write(path("sum"), format!("{url}\n  checksum=sha-256=12\n"))?;
    fs::write(path("words"), format!("{url}\t{url}\n"))?;
    fs::write(path("no-scheme"), "example.org/a\n")?;
    fs::write(path("twice"), format!("{url}\n{url}\n"))?;
    let taken = TcpListener::bind("127.0.0.1:0")?;
    let taken = taken.local_addr()?.to_string();
    let nobody = Nobody::bind();
    let cases: &[(&[&str], i32, &str)] = &[
        // Numbers with units.
        (&["get", "-m", "5x", url], 2, "such as 5, 500ms, 1.5s or 2m"),
        (&["get", "--max-time", "0", url], 2, "more than 0 seconds"),
        (&["get", "--speed-time", "9999h", url], 2, "at most a year"),
        (&["get", "--connect-timeout", "soon", url], 2, "such as 5, 500ms"),
        (
            &["get", "--speed-limit", "8G", url],
            2,
            "at most 4294967295 bytes",
        ),
        (
            &["get", "--stream-window", "64Q", url],
            2,
            "such as 65535, 64K, 16M or 1G",
        ),
        (
            &["get", "--stream-window", "4G", url],
            2,
            "expected 1 to 2147483647 bytes",
        ),
        (
            &["get", "--connection-window", "1K", url],
            2,
            "expected 65535 to 2147483647 bytes",
        ),
        (&["get", "--budget", "1K", url], 2, "at least 65535 bytes"),
        (
            &["get", "--parallel", "many", url],
            2,
            "a whole number from 1 to 100000",
        ),
        (
            &["get", "--parallel", "0", url],
            2,
            "a whole number from 1 to 100000",
        ),
        (
            &["get", "--connections", "-1", url],
            2,
            "tip: to pass '-1' as a value",
        ),
        (
            &["get", "--retry", "1.5", url],
            2,
            "a whole number from 0 to 1000",
        ),
        (
            &["link", "--to", "127.0.0.1:1", "--rtt", "1 year"],
            2,
            "such as 100, 2.5ms, 300us or 1s",
        ),
        (
            &["link", "--to", "127.0.0.1:1", "--rate", "1G"],
            2,
            "such as 1Gbit, 100Mbit or 56kbit",
        ),
        (
            &["link", "--to", "127.0.0.1:1", "--buffer", "1.5B"],
            2,
            "whole bytes, such as 65535",
        ),
        // Options.
        (&["get"], 2, "required arguments were not provided"),
        (
            &["get", "--chekcsum", "x", url],
            2,
            "a similar argument exists: '--checksum'",
        ),
        (
            &["get", "--checksum", "abc", url],
            2,
            "expected TYPE:HEX, such as sha256:",
        ),
        (&["get", "--checksum", "md5:abc", url], 2, "use sha256"),
        (
            &["get", "--checksum", "sha256:abc", url],
            2,
            "64 hexadecimal digits of a sha256, found 3",
        ),
        (
            &["get", "--checksum", "crc:abc", url],
            2,
            "use sha256, sha384, sha512 or sha1",
        ),
        (
            &[
                "get",
                "--checksum",
                "sha1:da39a3ee5e6b4b0d3255bfef95601890afd80709",
                "-O",
                url,
                url,
            ],
            2,
            "checksum=TYPE=HEX below each URL",
        ),
        (&["get", "-C", "5", url], 2, "possible values: -"),
        (&["get", "-J", url], 2, "needs -O or --dir DIR"),
        (&["get", url, url], 2, "-O, --dir DIR and --discard"),
        (&["get", "-o", "x", "-O", url], 2, "cannot be used with"),
        (&["get", "-S", url], 2, "--silent"),
        (&["get", "-H", "no colon", url], 2, "expected `NAME: VALUE`"),
        (&["get", "-H", "a b: c", url], 2, "invalid field name"),
        (
            &["get", "-H", "range: bytes=0-1", url],
            2,
            "requests ranges itself",
        ),
        (
            &["get", "--etag-compare", "not-a-tag", "-o", "x", url],
            2,
            "a file that --etag-save has written",
        ),
        (
            &["get", "--etag-save", "same", "-o", "same", url],
            2,
            "save the entity tag in another one",
        ),
        (
            &["get", "--etag-save", "./same", "-o", ".//same", url],
            2,
            "save the entity tag in another one",
        ),
        (
            &["put", "--force", "-o", "./file", "file", url],
            2,
            "save the response in another one",
        ),
        (&["put", "file"], 2, "<URL>"),
        (&["put", "-X", "NO METHOD", "file", url], 2, "invalid HTTP method"),
        (
            &["put", "--congestion-control", "renown", "file", url],
            2,
            "the congestion control \"renown\" ",
        ),
        (
            &["put", "-", &format!("{origin}/up/")],
            2,
            "end the URL with a name",
        ),
        (&["completions", "csh"], 2, "possible values: bash"),
        // URLs.
        (&["get", "example/x"], 2, "begin it with https:// or http://"),
        (
            &["get", "ftp://example.org/x"],
            2,
            "the scheme is not http or https",
        ),
        (&["get", "http://h:99999/"], 2, "invalid port number"),
        (
            &["put", "file", "example"],
            2,
            "begin it with https:// or http://",
        ),
        // Lists.
        (
            &["get", "-O", "-i", "none"],
            17,
            "cannot read none: there is no such file or folder; check the path",
        ),
        (
            &["get", "-O", "-i", "folder"],
            17,
            "cannot read folder: it is a folder",
        ),
        (&["get", "-O", "-i", "utf16"], 2, "save the list as UTF-8"),
        (
            &["get", "-O", "-i", "binary"],
            2,
            "binary line 1 is not valid UTF-8",
        ),
        (
            &["get", "-O", "-i", "option"],
            2,
            "option line 1 is an option, but there is no URL above it",
        ),
        (
            &["get", "-O", "-i", "unknown"],
            2,
            "unknown line 2 has the unknown option \"split\"; out=NAME and checksum=TYPE=HEX",
        ),
        (
            &["get", "-O", "-i", "path"],
            2,
            "path line 2 has no plain file name after out=; use --dir DIR",
        ),
        (
            &["get", "-O", "-i", "sum"],
            2,
            "sum line 2 has a wrong checksum: expected the 64 hexadecimal digits",
        ),
        (&["get", "-O", "-i", "words"], 2, "write one URL on each line"),
        (
            &["get", "-O", "-i", "no-scheme"],
            2,
            "begin it with https:// or http://",
        ),
        (
            &["get", "--dir", "dir", "--http1.1", "-i", "twice"],
            15,
            "out=NAME below it in the list",
        ),
        // Files.
        (
            &["get", "-o", "file", url],
            15,
            "file exists; --force replaces it",
        ),
        (
            &["get", "-o", "folder", url],
            15,
            "folder is a folder; use --dir to save files in it",
        ),
        (
            &["get", "--http1.1", "-o", "none/x", url],
            17,
            "there is no such file or folder",
        ),
        (
            &["get", "--http1.1", "-o", "file/x", url],
            17,
            "a part of the path is a file, not a folder",
        ),
        (
            &["get", "--dir", "file", url],
            17,
            "cannot create the folder file: something else has this name",
        ),
        (
            &["get", "--cacert", "none", url],
            17,
            "cannot read none: there is no such file or folder",
        ),
        (&["get", "--cacert", "not-pem", url], 2, "--cacert not-pem"),
        (
            &["put", "none", url],
            17,
            "cannot read none: there is no such file or folder",
        ),
        (
            &["put", "folder", url],
            2,
            "end the URL with a slash to send several files or a folder",
        ),
        (&["put", "-o", "folder", "file", url], 15, "folder is a folder"),
        // Addresses.
        (
            &["link", "--to", "127.0.0.1"],
            2,
            "expected HOST:PORT, such as 127.0.0.1:8080",
        ),
        (
            &["link", "--to", "name.invalid:80"],
            5,
            "check the host name and the network",
        ),
        (
            &["link", "--to", "127.0.0.1:1", "--listen", &taken],
            5,
            "use another address with --listen",
        ),
        (
            &["get", &format!("http://{nobody}/")],
            5,
            "check the port and that the server runs",
        ),
    ];
    let mut wrong = Vec::new();
    for (args, code, part) in cases {
        let ended = run(folder.path(), *args)?;
        let said = &ended.stderr;
        let sentences = said
            .lines()
            .filter(|line| line.starts_with("fullbore: ") || line.starts_with("error: "));
        let bad = NEVER.iter().find(|never| said.contains(**never));
        if ended.code != Some(*code) || !said.contains(part) || sentences.count() != 1 || bad.is_some() {
            wrong.push(format!(
                "{args:?}: {:?} {bad:?}, expected {code} {part:?}:\n{said}",
                ended.code
            ));
        }
        assert!(ended.stdout.is_empty(), "{args:?}: {ended:?}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(cases.len() >= 60);
    Ok(())
}
