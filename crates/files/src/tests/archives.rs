//! Folders as archives: what is in them, and what they may cost.

use std::collections::BTreeMap;
use std::io::Read as _;

use super::*;

fn settings(_: &Path) -> Settings {
    Settings {
        listing: true,
        ..Settings::default()
    }
}

/// The members of an archive: names, with contents of files.
fn members(archive: &[u8]) -> BTreeMap<String, Option<Vec<u8>>> {
    let mut archive = tar::Archive::new(archive);
    let mut found = BTreeMap::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
        let content = entry.header().entry_type().is_file().then(|| {
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            content
        });
        assert!(found.insert(name, content).is_none());
    }
    found
}

#[tokio::test]
async fn an_archive_has_every_file_below_the_folder_that_get_would_serve() {
    let site = Site::with(settings);
    let long = "n".repeat(200);
    // Around a block of tar, and around a piece.
    let lengths = [0, 1, 511, 512, 513, 262_143, 262_144, 600_000];
    let mut expected = BTreeMap::new();
    for length in lengths {
        let content: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
        site.write(&format!("a b/été/{length}"), &content);
        expected.insert(format!("a b/été/{length}"), Some(content));
    }
    site.write(&format!("a b/{long}/{long}/x"), "deep");
    expected.insert(format!("a b/{long}/{long}/x"), Some(b"deep".to_vec()));
    for folder in [
        "a b/été/".to_owned(),
        format!("a b/{long}/"),
        format!("a b/{long}/{long}/"),
    ] {
        expected.insert(folder, None);
    }
    site.write("a b/.hidden", "no");
    site.write("a b/.git/config", "no");
    site.write("beside", "no");
    #[cfg(unix)]
    {
        use std::os::unix::fs::symlink;
        std::fs::write(site.outside.join("secret"), "no").unwrap();
        symlink("../beside", site.path("a b/link")).unwrap();
        expected.insert("a b/link".to_owned(), Some(b"no".to_vec()));
        symlink("../../secret", site.path("a b/out")).unwrap();
        symlink(".", site.path("a b/loop")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            site.path("a b/pipe"),
            rustix::fs::FileType::Fifo,
            0o600.into(),
            0,
        )
        .unwrap();
    }
    let answer = site.get("/a%20b/?sort=size&archive=tar").await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.field("content-type"), "application/x-tar");
    assert_eq!(
        answer.field("content-disposition"),
        "attachment; filename*=UTF-8''a%20b.tar"
    );
    assert!(members(&answer.body) == expected);
    let head = site.ask(Method::HEAD, "/a%20b/?archive=tar", &[]).await;
    assert!(head.body.is_empty() && head.headers == answer.headers);

    // The page leads there; a folder that is not listed has no archive.
    assert!(
        site.get("/a%20b/")
            .await
            .text()
            .contains("<button name=\"archive\" value=\"tar\">")
    );
    assert_eq!(site.get("/none/?archive=tar").await.status, 404);
    let closed = Site::new();
    closed.write("dir/file", "x");
    assert_eq!(closed.get("/dir/?archive=tar").await.status, 404);
}

#[tokio::test]
async fn a_file_that_shrinks_under_way_ends_the_archive_with_an_error() {
    let site = Site::with(settings);
    site.write("dir/file", vec![7; 1 << 20]);
    let request = request(Method::GET, "/dir/?archive=tar", &[], Empty::new());
    let mut body = site.call(request).await.into_body();
    assert!(body.frame().await.unwrap().is_ok());
    site.write("dir/file", "short");
    let mut last = Ok(());
    while let Some(frame) = body.frame().await {
        last = frame.map(|_| ());
    }
    assert!(last.is_err());
}

#[tokio::test]
async fn so_many_archives_are_made_at_a_time_and_names_have_a_limit() {
    let site = Site::with(|root| {
        let mut settings = settings(root);
        settings.limits.archives = 1;
        settings.limits.all_listings_bytes = 16 << 10;
        settings
    });
    site.write("dir/file", vec![7; 1 << 20]);
    let ask = || request(Method::GET, "/dir/?archive=tar", &[], Empty::new());
    let held = site.call(ask()).await;
    let refused = site.get("/dir/?archive=tar").await;
    assert_eq!(
        (refused.status.as_u16(), refused.field("retry-after")),
        (503, "5")
    );
    drop(held);
    assert_eq!(members(&site.get("/dir/?archive=tar").await.body).len(), 1);
    for number in 0..600 {
        site.write(&format!("large/{number}"), "");
    }
    assert_eq!(site.get("/large/?archive=tar").await.status, 503);
    // Nothing is held of what was refused.
    assert_eq!(site.get("/dir/?archive=tar").await.status, 200);
}
