//! What a first command of `serve` does: without options, for the network, with one file, with a password for uploads alone.

use std::fs;

use super::around::{basic, entry};
use super::{Site, ask_over_tcp, status, values};
use crate::support::{Signal, TestResult, program, run, signal};

fn folder() -> TestResult<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("a b.txt"), "hello")?;
    fs::write(folder.path().join("other.txt"), "no")?;
    Ok(folder)
}

const HERE: [&str; 2] = ["--listen", "127.0.0.1:0"];

#[test]
fn on_this_machine_a_folder_is_served_in_cleartext_without_an_option() -> TestResult {
    let folder = folder()?;
    let mut site = Site::start(folder.path(), &HERE)?;
    let origin = site.after("listening on ")?;
    assert!(origin.starts_with("http://127.0.0.1:"), "{origin}");
    let list = ask_over_tcp(&origin, "GET /", "")?;
    assert!(list.contains("a%20b.txt") && list.contains("other.txt"), "{list}");
    Ok(())
}

#[test]
fn the_network_gets_in_with_lan_and_is_told_what_cleartext_means() -> TestResult {
    use std::io::Read as _;
    let folder = folder()?;
    // Another program may take the port in between.
    for _ in 0..5 {
        let free = std::net::TcpListener::bind("0.0.0.0:0")?.local_addr()?.port();
        let mut site = Site::start(folder.path(), &["--lan", "-p", &free.to_string()])?;
        let Ok(origin) = site.after("listening on ") else {
            continue;
        };
        let all = [format!("http://[::]:{free}"), format!("http://0.0.0.0:{free}")];
        assert!(all.contains(&origin), "{origin}");
        let here = format!("http://127.0.0.1:{free}");
        assert_eq!(status(&ask_over_tcp(&here, "GET /other.txt", "")?), "200");
        // It ends when it has said everything.
        signal(&site.child, Signal::Terminate)?;
        site.child.wait()?;
        let mut said = String::new();
        if let Some(mut stderr) = site.child.stderr.take() {
            stderr.read_to_string(&mut said)?;
        }
        let note = "note: without TLS, anybody on the path can read and change the data";
        assert_eq!(said.matches(note).count(), 1, "{said}");
        // A code is for a terminal.
        assert!(!said.contains('█'), "{said}");
        return Ok(());
    }
    Err("no port was free".into())
}

#[test]
fn one_file_is_served_alone_under_its_name_and_the_root_leads_to_it() -> TestResult {
    let folder = folder()?;
    let mut site = Site::start(folder.path(), &[&HERE[..], &["a b.txt"]].concat())?;
    let origin = site.after("listening on ")?;
    let root = ask_over_tcp(&origin, "GET /", "")?;
    assert_eq!(status(&root), "307");
    assert_eq!(values(&root, "location"), ["/a%20b%2Etxt".replace("%2E", ".")]);
    for path in ["/a%20b.txt", "/a%20%62.txt"] {
        assert!(ask_over_tcp(&origin, &format!("GET {path}"), "")?.ends_with("\r\n\r\nhello"));
    }
    for path in [
        "/other.txt",
        "/a%20b.txt/",
        "/./a%20b.txt",
        "/x/../other.txt",
        "//other.txt",
    ] {
        let response = ask_over_tcp(&origin, &format!("GET {path}"), "")?;
        assert_eq!(status(&response), "404", "{path}: {response}");
    }
    let ended = run(folder.path(), ["get", &format!("{origin}/")])?;
    ended.succeeded();
    assert_eq!(ended.stdout, b"hello");
    Ok(())
}

#[test]
fn uploads_need_the_password_of_a_writer_and_reading_that_of_a_reader_if_there_are_any() -> TestResult {
    let (ann, bob) = (entry("ann", "reads")?, entry("bob", "writes")?);
    let folder = folder()?;
    fs::write(folder.path().join("users"), format!("# readers\n\n{ann}\n"))?;
    let (ann, bob_sends) = (basic("ann", "reads"), basic("bob", "writes"));
    let put = |origin: &str, name: &str, fields: &str| -> TestResult<String> {
        let fields = format!("content-length: 0\r\n{fields}");
        let response = ask_over_tcp(origin, &format!("PUT /{name}"), &fields)?;
        Ok(status(&response).to_owned())
    };
    let get = |origin: &str, fields: &str| -> TestResult<String> {
        Ok(status(&ask_over_tcp(origin, "GET /other.txt", fields)?).to_owned())
    };

    let open = [&HERE[..], &["--uploads", ".", "--auth-write", &bob]].concat();
    let mut site = Site::start(folder.path(), &open)?;
    let origin = site.after("listening on ")?;
    assert_eq!(get(&origin, "")?, "200");
    assert_eq!(get(&origin, &basic("bob", "wrong"))?, "401");
    assert_eq!(put(&origin, "one", "")?, "401");
    assert_eq!(put(&origin, "one", &bob_sends)?, "201");
    drop(site);

    let both = [&open[..], &["--auth-file", "users"]].concat();
    let mut site = Site::start(folder.path(), &both)?;
    let origin = site.after("listening on ")?;
    assert_eq!(get(&origin, "")?, "401");
    assert_eq!(get(&origin, &ann)?, "200");
    // The second time the password is known.
    for name in ["two", "three"] {
        assert_eq!(put(&origin, name, &ann)?, "403");
    }
    assert_eq!(put(&origin, "two", &bob_sends)?, "201");
    assert_eq!(get(&origin, &bob_sends)?, "200");
    drop(site);

    let listed = fs::read_to_string(folder.path().join("users"))?;
    let ann = listed.lines().last().unwrap_or_default();
    let twice = [&both[..], &["--auth-write", ann]].concat();
    let ended = program(folder.path()).arg("serve").args(twice).output()?;
    assert_eq!(ended.status.code(), Some(2));
    assert!(String::from_utf8(ended.stderr)?.contains("named twice"));
    Ok(())
}
