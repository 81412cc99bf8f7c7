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

/// The same of a zip archive.
fn zip_members(archive: &[u8]) -> BTreeMap<String, Option<Vec<u8>>> {
    let zip = rawzip::ZipArchive::from_slice(archive).unwrap();
    let mut found = BTreeMap::new();
    let mut entries = zip.entries();
    while let Some(entry) = entries.next_entry().unwrap() {
        let name = String::from_utf8(entry.file_path().as_bytes().to_owned()).unwrap();
        let content = (!entry.is_dir()).then(|| {
            let file = zip.get_entry(entry.wayfinder()).unwrap();
            // The reader compares length and checksum at the end.
            let mut content = Vec::new();
            file.verifying_reader(file.data())
                .read_to_end(&mut content)
                .unwrap();
            content
        });
        assert!(found.insert(name, content).is_none());
    }
    found
}

/// What a program prints about an archive that it reads; `None` if the machine has no such program.
fn read_by(program: &str, arguments: &[&str], archive: &[u8]) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("a.zip");
    std::fs::write(&place, archive).unwrap();
    let mut command = std::process::Command::new(program);
    let done = command.args(arguments).arg(&place).output().ok()?;
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{program}: {text}");
    Some(text)
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

    let answer = site.get("/a%20b/?archive=zip").await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.field("content-type"), "application/zip");
    assert_eq!(
        answer.field("content-disposition"),
        "attachment; filename*=UTF-8''a%20b.zip"
    );
    assert!(zip_members(&answer.body) == expected);
    let head = site.ask(Method::HEAD, "/a%20b/?archive=zip", &[]).await;
    assert!(head.body.is_empty() && head.headers == answer.headers);
    for (program, arguments) in [
        ("unzip", &["-t"][..]),
        ("python3", &["-m", "zipfile", "-t"]),
        ("bsdtar", &["-tf"]),
    ] {
        read_by(program, arguments, &answer.body);
    }

    // The page leads there; a folder that is not listed has no archive.
    assert!(
        site.get("/a%20b/")
            .await
            .text()
            .contains("<button name=\"archive\" value=\"tar\">")
    );
    assert!(
        site.get("/a%20b/")
            .await
            .text()
            .contains("<button name=\"archive\" value=\"zip\">")
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
    for path in ["/dir/?archive=tar", "/dir/?archive=zip"] {
        site.write("dir/file", vec![7; 1 << 20]);
        let request = request(Method::GET, path, &[], Empty::new());
        let mut body = site.call(request).await.into_body();
        assert!(body.frame().await.unwrap().is_ok());
        site.write("dir/file", "short");
        let mut last = Ok(());
        while let Some(frame) = body.frame().await {
            last = frame.map(|_| ());
        }
        assert!(last.is_err(), "{path}");
    }
}

#[tokio::test]
async fn a_file_that_grows_under_way_is_archived_with_the_length_that_it_had() {
    let site = Site::with(settings);
    for path in ["/dir/?archive=tar", "/dir/?archive=zip"] {
        site.write("dir/file", vec![7; 1 << 20]);
        let request = request(Method::GET, path, &[], Empty::new());
        let mut body = site.call(request).await.into_body();
        let mut archive = body.frame().await.unwrap().unwrap().into_data().unwrap().to_vec();
        site.write("dir/file", vec![7; 2 << 20]);
        archive.extend(body.collect().await.unwrap().to_bytes());
        let found = match path.ends_with("zip") {
            true => zip_members(&archive),
            false => members(&archive),
        };
        assert!(found == BTreeMap::from([("dir/file".to_owned(), Some(vec![7; 1 << 20]))]));
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_zip_archive_has_names_times_and_empty_folders_as_they_are() {
    let site = Site::with(settings);
    let names = ["C:x", "a:é", "con", "dot.", "été", "q?", "tilde~"];
    for name in names {
        site.write(&format!("dir/{name}"), name);
        let file = std::fs::File::options()
            .write(true)
            .open(site.path(&format!("dir/{name}")));
        let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_001);
        file.unwrap().set_modified(time).unwrap();
    }
    std::fs::create_dir_all(site.path("dir/empty:/é:")).unwrap();
    let archive = site.get("/dir/?archive=zip").await.body;
    let mut expected: BTreeMap<_, _> = names
        .map(|name| (format!("dir/{name}"), Some(name.as_bytes().to_vec())))
        .into();
    expected.insert("dir/empty:/".to_owned(), None);
    expected.insert("dir/empty:/é:/".to_owned(), None);
    assert!(zip_members(&archive) == expected);
    let zip = rawzip::ZipArchive::from_slice(&archive[..]).unwrap();
    let mut entries = zip.entries();
    while let Some(entry) = entries.next_entry().unwrap() {
        let mode = entry.mode().permissions();
        assert_eq!(mode, if entry.is_dir() { 0o755 } else { 0o644 });
        let has_unicode_path = entry
            .extra_fields()
            .any(|(id, data)| id == rawzip::extra_fields::ExtraFieldId::new(0x7075) && data[0] == 1);
        let name = String::from_utf8(entry.file_path().as_bytes().to_owned()).unwrap();
        assert!(
            name.is_ascii() || entry.flags().is_utf8() || has_unicode_path,
            "{name}"
        );
        if !entry.is_dir() {
            assert_eq!(
                entry.last_modified().to_string(),
                "2023-11-14T22:13:21Z",
                "{name}"
            );
        }
    }
    // Of a name that has a colon, not every version of Python reads the field with the Unicode path.
    if let Some(listed) = read_by("python3", &["-m", "zipfile", "-l"], &archive) {
        for name in ["dir/C:x", "dir/été", "dir/empty:/"] {
            assert!(listed.contains(name), "{listed}");
        }
    }
}

#[tokio::test]
async fn the_directory_of_a_zip_archive_has_a_limit() {
    let site = Site::with(|root| {
        let mut settings = settings(root);
        settings.limits.zip_directories_bytes = 16 << 10;
        settings
    });
    for number in 0..100 {
        site.write(&format!("large/{number}"), "");
    }
    for number in 0..10 {
        site.write(&format!("small/{number}"), "");
    }
    let call = async |path| {
        let asked = request(Method::GET, path, &[], Empty::new());
        let body = site.call(asked).await.into_body();
        body.collect().await.map(http_body_util::Collected::to_bytes)
    };
    let error = call("/large/?archive=zip").await.unwrap_err();
    assert!(error.to_string().contains("zip"), "{error}");
    assert_eq!(members(&call("/large/?archive=tar").await.unwrap()).len(), 100);
    // Nothing is held of what broke off.
    for _ in 0..2 {
        assert_eq!(zip_members(&call("/small/?archive=zip").await.unwrap()).len(), 10);
    }
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
    let refused = site.get("/dir/?archive=zip").await;
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
