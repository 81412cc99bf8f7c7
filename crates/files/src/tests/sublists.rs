//! The lists of sub-folders in the list of a folder: whose they are, and what they may cost.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use crate::settings::Limits;

use super::*;

const ASKED: [(&str, &str); 2] = [("accept", "application/json"), ("prefer", "sublists")];

/// Time enough for a slow machine.
const LIMITS: Limits = Limits {
    sublists_for: Duration::from_secs(3600),
    ..Limits::DEFAULT
};

fn site(limits: Limits) -> Site {
    Site::with(|_| Settings {
        listing: true,
        limits,
        ..Settings::default()
    })
}

fn names(list: &Value) -> Vec<String> {
    let entries = list["entries"].as_array().unwrap();
    let name = |entry: &Value| entry["name"].as_str().unwrap().to_owned();
    entries.iter().map(name).collect()
}

impl Site {
    /// The folders whose lists come with that of a path, in their order, and the names in each.
    async fn sublists(&self, path: &str) -> Vec<(String, Vec<String>)> {
        let answer = self.get_with(path, &ASKED).await;
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.field("preference-applied"), "sublists");
        let document: Value = serde_json::from_slice(&answer.body).unwrap();
        let lists = document["sublists"].as_array().unwrap();
        let of = |list: &Value| (list["href"].as_str().unwrap().to_owned(), names(list));
        lists.iter().map(of).collect()
    }

    /// Only the folders.
    async fn folders(&self, path: &str) -> Vec<String> {
        let lists = self.sublists(path).await;
        lists.into_iter().map(|(href, _)| href).collect()
    }
}

#[tokio::test]
async fn the_lists_of_folders_below_come_level_by_level_and_are_what_each_folder_would_list() {
    let site = site(LIMITS);
    for path in ["a b/x", "a b/deep/er/y", "a b/deep/z", "c/1", "c/0", "top"] {
        site.write(path, "x");
    }
    std::fs::create_dir(site.path("empty")).unwrap();
    let folders = ["a%20b/", "c/", "empty/", "a%20b/deep/", "a%20b/deep/er/"];
    assert_eq!(site.folders("/").await, folders);
    for path in ["/", "/a%20b/", "/?sort=name&order=desc"] {
        let answer = site.get_with(path, &ASKED).await;
        let document: Value = serde_json::from_slice(&answer.body).unwrap();
        let (base, query) = path.split_at(path.find('?').unwrap_or(path.len()));
        for list in document["sublists"].as_array().unwrap() {
            let href = list["href"].as_str().unwrap();
            let alone = site.get_with(&format!("{base}{href}{query}"), &ASKED).await;
            let alone: Value = serde_json::from_slice(&alone.body).unwrap();
            assert_eq!(list["entries"], alone["entries"], "{href}");
        }
    }
}

#[tokio::test]
async fn lists_of_folders_below_are_for_those_who_ask() {
    let site = site(LIMITS);
    site.write("a/x", "x");
    let json = site.get_with("/", &ASKED[..1]).await;
    assert!(!json.text().contains("sublists"));
    assert_eq!(
        (json.field("vary"), json.field("preference-applied")),
        ("accept, prefer", "")
    );
    let with = site.get_with("/", &ASKED).await;
    assert_ne!(json.field("etag"), with.field("etag"), "another representation");
    let known = [ASKED[0], ASKED[1], ("if-none-match", with.field("etag"))];
    assert_eq!(site.get_with("/", &known).await.status, 304);
    // A change below is a change of the response.
    site.write("a/y", "x");
    assert_eq!(site.get_with("/", &known).await.status, 200);
    let html = site.get_with("/", &ASKED[1..]).await;
    assert_eq!(
        (html.field("vary"), html.field("preference-applied")),
        ("accept", "")
    );
}

#[tokio::test]
async fn a_folder_that_would_not_be_listed_is_left_out() {
    let site = site(LIMITS);
    for path in [
        "index/index.html",
        "case/INDEX.HTML",
        ".hidden/x",
        "plain/x",
        "plain/.y",
        "folder/index.html2/x",
    ] {
        site.write(path, "x");
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::symlink;
        symlink("plain", site.path("link")).unwrap();
        symlink(".", site.path("plain/loop")).unwrap();
        symlink(&site.outside, site.path("out")).unwrap();
    }
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::ffi::OsStrExt as _;
        let name = std::ffi::OsStr::from_bytes(b"a\xffb");
        std::fs::create_dir(site.root.join(name)).unwrap();
        std::fs::write(site.root.join(name).join("x"), "x").unwrap();
    }
    let lists: BTreeMap<String, Vec<String>> = site.sublists("/").await.into_iter().collect();
    let folders: Vec<&str> = lists.keys().map(String::as_str).collect();
    assert_eq!(folders, ["folder/", "folder/index.html2/", "plain/"]);
    let plain: &[&str] = if cfg!(unix) { &["loop", "x"] } else { &["x"] };
    assert_eq!(lists["plain/"], plain);
}

#[tokio::test]
async fn all_lists_together_have_so_many_entries_and_each_is_whole() {
    let site = site(Limits {
        sublisted: 10,
        ..LIMITS
    });
    for (folder, files) in [("a", 3), ("b", 6), ("c", 2), ("d", 1)] {
        for number in 0..files {
            site.write(&format!("{folder}/{number}"), "");
        }
    }
    // 4 folders and 3 + 2 + 1 files; the list of `b` does not fit.
    assert_eq!(site.folders("/").await, ["a/", "c/", "d/"]);
    for number in 0..6 {
        site.write(&format!("{number}"), "");
    }
    assert!(site.sublists("/").await.is_empty());
    // Names that are not listed are work too: four for each entry.
    for number in 0..37 {
        site.write(&format!("d/sub/.{number}"), "");
        site.write(&format!("d/tub/.{number}"), "");
    }
    assert_eq!(site.folders("/d/").await, ["sub/"]);
}

#[tokio::test]
async fn a_slow_disk_and_scarce_memory_leave_the_lists_out() {
    let slow = site(Limits {
        sublists_for: Duration::ZERO,
        ..LIMITS
    });
    slow.write("a/x", "x");
    assert!(slow.sublists("/").await.is_empty());

    let site = site(Limits {
        all_listings_bytes: 1 << 20,
        ..LIMITS
    });
    for number in 0..600 {
        site.write(&format!("a/{number}"), "");
    }
    let mut held = Vec::new();
    for _ in 0..20 {
        let request = request(Method::GET, "/", &ASKED, Empty::new());
        held.push(site.call(request).await);
    }
    assert!(held.iter().all(|response| response.status() == 200));
    let used = site.files.shared_for_tests().pages.used();
    assert!(used < 400 << 10, "{used}");
    assert!(site.sublists("/").await.is_empty());
    drop(held);
    assert_eq!(site.folders("/").await, ["a/"]);
}
