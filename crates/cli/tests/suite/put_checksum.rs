//! `put --skip-existing --checksum`: files of the same size and another time are compared by their contents.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::support::uploads::{ALL, Act, Server, say};
use crate::support::{Ended, Serving, TestResult, run};

fn write(folder: &Path, name: &str, content: &[u8], age: u64) -> TestResult {
    fs::write(folder.join(name), content)?;
    let time = SystemTime::now() - Duration::from_secs(age);
    File::options()
        .append(true)
        .open(folder.join(name))?
        .set_modified(time)?;
    Ok(())
}

fn put(home: &Path, url: &str, options: &[&str]) -> TestResult<Ended> {
    let all = [&["put", "--skip-existing"], options, &["./", url]].concat();
    run(home, all)
}

#[test]
fn of_the_same_size_and_another_time_only_another_content_is_sent() -> TestResult {
    let (root, home) = (tempfile::tempdir()?, tempfile::tempdir()?);
    // Above what is read whole before it is sent.
    let large = vec![7; 300_000];
    for (name, content) in [
        ("small", &b"small"[..]),
        ("large", &large),
        ("empty", b""),
        ("other", b"there"),
    ] {
        write(root.path(), name, content, 2_000)?;
    }
    for (name, content) in [
        ("small", &b"small"[..]),
        ("large", &large),
        ("empty", b""),
        ("other", b"other"),
    ] {
        write(home.path(), name, content, 1_000)?;
    }
    for options in [&[][..], &["--no-listing"]] {
        write(root.path(), "other", b"there", 2_000)?;
        let options = [&["--plaintext", "--uploads", ".", "--overwrite"], options].concat();
        let serving = Serving::start(root.path(), &options)?;
        let url = format!("{}/", serving.origin);
        let ended = put(home.path(), &url, &["--checksum", "--json"])?;
        ended.succeeded();
        let document: serde_json::Value = serde_json::from_slice(&ended.stdout)?;
        assert_eq!(document["totals"]["sent"], 1, "{document}");
        assert_eq!(document["totals"]["same"], 3, "{document}");
        assert_eq!(fs::read(root.path().join("other"))?, b"other");
        // The files of the server keep their times.
        let age = fs::metadata(root.path().join("small"))?.modified()?.elapsed()?;
        assert!(age > Duration::from_secs(1_500), "{age:?}");
    }
    Ok(())
}

#[test]
fn a_server_without_digests_is_sent_the_files_and_a_note_says_so() -> TestResult {
    let home = tempfile::tempdir()?;
    write(home.path(), "a", b"same", 1_000)?;
    let server = Server::start(|_, asked| match asked.method.as_str() {
        "HEAD" => {
            let fields = vec![
                ("content-length", "4".to_owned()),
                ("last-modified", "Sat, 28 Nov 2015 15:00:00 GMT".to_owned()),
                // Of a content that nobody else can compute.
                ("etag", "\"4-1\"".to_owned()),
            ];
            vec![Act::Say(200, fields)]
        }
        "PUT" => vec![ALL, say(204)],
        _ => vec![say(404)],
    })?;
    let url = format!("{}/", server.origin());
    let ended = put(home.path(), &url, &["--checksum"])?;
    ended.succeeded();
    assert!(ended.stderr.contains("tells no SHA-256"), "{ended:?}");
    let asked = server.asked();
    let sent = asked.last().ok_or("nothing was asked")?;
    assert_eq!(
        (sent.method.as_str(), sent.body.as_slice()),
        ("PUT", &b"same"[..])
    );
    let wants = asked
        .iter()
        .filter(|asked| asked.field("want-repr-digest").is_some());
    assert_eq!(wants.count(), 1);
    Ok(())
}

#[test]
fn checksum_is_about_existing_files() -> TestResult {
    let home = tempfile::tempdir()?;
    let ended = run(home.path(), ["put", "--checksum", "a", "http://127.0.0.1:1/"])?;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("--skip-existing"), "{ended:?}");
    Ok(())
}
