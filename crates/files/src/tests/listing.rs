//! The lists of folders: what they show, to whom, and what they may cost.

use serde_json::Value;

use crate::Uploads;
use crate::settings::Limits;

use super::*;

fn settings(_: &Path) -> Settings {
    Settings {
        listing: true,
        ..Settings::default()
    }
}

const JSON: (&str, &str) = ("accept", "application/json");

impl Site {
    async fn json(&self, path: &str) -> Value {
        let answer = self.get_with(path, &[JSON]).await;
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.field("content-type"), "application/json");
        serde_json::from_slice(&answer.body).unwrap()
    }

    /// The names in a listing, in its order.
    async fn listed(&self, path: &str) -> Vec<String> {
        let document = self.json(path).await;
        let entries = document["entries"].as_array().unwrap();
        entries
            .iter()
            .map(|entry| entry["name"].as_str().unwrap().to_owned())
            .collect()
    }
}

#[tokio::test]
async fn a_folder_is_a_page_whose_links_lead_to_its_files() {
    let site = Site::with(settings);
    let names = [
        "a b",
        "c&d",
        "e?f#g",
        "100%",
        "été",
        "<b>x\"'",
        "javascript:x",
        "x\ny",
    ];
    for name in names {
        site.write(&format!("dir/{name}"), name);
        site.write(&format!("dir/folder {name}/file"), "within");
    }
    let answer = site.get("/dir/").await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.field("content-type"), "text/html; charset=utf-8");
    assert_eq!(answer.field("x-content-type-options"), "nosniff");
    assert_eq!(answer.field("vary"), "accept");
    let policy = answer.field("content-security-policy");
    assert!(
        policy.starts_with("default-src 'none'; style-src 'sha256-"),
        "{policy}"
    );
    let html = answer.text();
    assert!(html.contains("&lt;b&gt;x&quot;&#39;"), "{html}");
    assert!(
        !html.contains("<b>") && !html.contains("<script") && !html.contains("style=\""),
        "{html}"
    );
    assert!(html.contains("<title>/dir/</title>"), "{html}");
    assert!(html.contains("8 folders, 8 files, "), "{html}");

    // Relative links, so that the page works below any prefix.
    let mut links = 0;
    for rest in html.split("href=\"").skip(1) {
        let link = rest.split('"').next().unwrap();
        if link.starts_with(['?', '#', '.']) {
            continue;
        }
        assert!(
            !link.contains(['/', ':', '&', '<']) || link.ends_with('/'),
            "{link}"
        );
        let found = site.get(&format!("/dir/{link}")).await;
        assert_eq!(found.status, 200, "{link}");
        links += 1;
    }
    assert_eq!(links, 2 * names.len());
    assert!(html.contains("<a href=\"../\">Files</a>"), "{html}");
}

#[tokio::test]
async fn a_listing_is_off_by_default_and_an_index_comes_before_it() {
    let site = Site::new();
    site.write("file", "x");
    assert_eq!(site.get("/").await.status, 404);
    let site = Site::with(settings);
    site.write("dir/file", "x");
    assert!(site.get("/").await.text().contains("href=\"dir/\""));
    let redirect = site.get("/dir?sort=size").await;
    assert_eq!(redirect.status, 308);
    assert_eq!(redirect.field("location"), "./dir/?sort=size");
    assert_eq!(site.get("/none/").await.status, 404);
    assert_eq!(site.get("/dir/file/").await.status, 404);
    site.write("index.html", "the index");
    assert_eq!(site.get("/").await.text(), "the index");
    // A folder with the name of the index is none.
    site.write("dir/index.html/file", "x");
    assert_eq!(site.listed("/dir/").await, ["index.html", "file"]);
}

#[tokio::test]
async fn json_has_names_types_sizes_times_and_references() {
    let site = Site::with(settings);
    site.write("a b/x", "x");
    site.write("c.txt", "hello");
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    let file = std::fs::File::options()
        .write(true)
        .open(site.path("c.txt"))
        .unwrap();
    file.set_modified(time).unwrap();
    let document = site.json("/").await;
    assert_eq!(document["path"], "/");
    assert_eq!(document["truncated"], false);
    let [folder, file] = document["entries"].as_array().unwrap().as_slice() else {
        panic!("{document}");
    };
    assert_eq!(
        (&folder["name"], &folder["type"], &folder["size"], &folder["href"]),
        (&"a b".into(), &"folder".into(), &Value::Null, &"a%20b/".into())
    );
    let expected = serde_json::json!({
        "name": "c.txt", "type": "file", "size": 5, "modified": "2001-09-09T01:46:40Z", "href": "c.txt"
    });
    assert_eq!(*file, expected);
    assert_eq!(site.json("/a%20b/").await["path"], "/a b/");
    assert_eq!(site.listed("/?sort=size&order=desc").await, ["a b", "c.txt"]);
}

#[tokio::test]
async fn what_get_would_not_serve_is_not_listed() {
    for hidden in [false, true] {
        let site = Site::with(|_| Settings {
            listing: true,
            hidden,
            ..Settings::default()
        });
        site.write(".git/config", "x");
        site.write(".secret", "x");
        site.write("file", "x");
        std::fs::write(site.outside.join("outside"), "x").unwrap();
        #[cfg(unix)]
        for (name, to) in [
            ("in", "file"),
            ("out", "../outside"),
            ("dangling", "nothing"),
            ("loop", "loop"),
        ] {
            std::os::unix::fs::symlink(to, site.path(name)).unwrap();
        }
        #[cfg(target_os = "linux")]
        {
            use rustix::fs::{CWD, FileType, Mode, mknodat};
            mknodat(CWD, site.path("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        }
        let linked: &[&str] = if cfg!(unix) { &["file", "in"] } else { &["file"] };
        let dotted: &[&str] = if hidden { &[".git", ".secret"] } else { &[] };
        assert_eq!(site.listed("/").await, [dotted, linked].concat());
        let within = site.get("/.git/").await.status;
        assert_eq!(within, if hidden { 200 } else { 404 });
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_name_that_no_request_can_have_is_shown_without_a_link() {
    use std::os::unix::ffi::OsStrExt as _;
    let site = Site::with(settings);
    for name in [&b"a\xffb"[..], b"c\\d"] {
        std::fs::write(site.root.join(std::ffi::OsStr::from_bytes(name)), "x").unwrap();
    }
    let document = site.json("/").await;
    for (entry, name) in document["entries"]
        .as_array()
        .unwrap()
        .iter()
        .zip(["a\u{fffd}b", "c\\d"])
    {
        assert_eq!((&entry["name"], &entry["href"]), (&name.into(), &Value::Null));
    }
    let html = site.get("/").await;
    assert!(html.text().contains(">a\u{fffd}b</td>"), "{}", html.text());
}

#[tokio::test]
async fn head_and_conditional_requests_are_answered_as_for_files() {
    let site = Site::with(settings);
    site.write("file", "x");
    let get = site.get("/").await;
    let head = site.ask(Method::HEAD, "/", &[]).await;
    for field in [
        "content-length",
        "content-type",
        "etag",
        "content-security-policy",
    ] {
        assert_eq!(get.field(field), head.field(field), "{field}");
        assert_ne!(get.field(field), "", "{field}");
    }
    assert!(head.body.is_empty());
    let tag = get.field("etag").to_owned();
    let known = [("if-none-match", tag.as_str())];
    let same = site.get_with("/", &known).await;
    assert_eq!((same.status.as_u16(), same.field("etag")), (304, tag.as_str()));
    let json = site.get_with("/", &[known[0], JSON]).await;
    assert_eq!(json.status, 200, "another representation");
    assert_eq!(site.get_with("/", &[("if-match", "\"other\"")]).await.status, 412);
    site.write("file", "xy");
    assert_eq!(site.get_with("/", &known).await.status, 200);
}

#[tokio::test]
async fn of_a_large_folder_so_many_entries_are_listed() {
    let site = Site::with(|_| Settings {
        listing: true,
        limits: Limits {
            listed: 5,
            ..Limits::DEFAULT
        },
        ..Settings::default()
    });
    for number in 0..5 {
        site.write(&format!("{number}"), "");
    }
    assert_eq!(site.json("/").await["truncated"], false);
    assert!(!site.get("/").await.text().contains("more entries"));
    for number in 5..40 {
        site.write(&format!("{number}"), "");
        // They are looked at, and not without end.
        site.write(&format!(".{number}"), "");
    }
    let document = site.json("/").await;
    assert_eq!(document["truncated"], true);
    assert!(document["entries"].as_array().unwrap().len() <= 5);
    assert!(site.get("/").await.text().contains("more entries"));
}

#[tokio::test]
async fn json_of_a_large_folder_comes_in_pages_in_the_order_of_names() {
    let site = Site::with(|_| Settings {
        listing: true,
        limits: Limits {
            listed: 5,
            ..Limits::DEFAULT
        },
        ..Settings::default()
    });
    let mut written: Vec<String> = [
        "a&b=c", "a+b", "%41", "é", "e\u{301}", "x\ny", "#", "日", "~", "Z", "z",
    ]
    .map(str::to_owned)
    .into();
    written.extend((0..32).map(|number| format!("{number:03}")));
    for name in &written {
        site.write(name, "");
        site.write(&format!(".{name}"), "");
    }
    let (mut query, mut found, mut pages) = (String::new(), Vec::new(), 0);
    loop {
        let document = site.json(&format!("/{query}")).await;
        let entries = document["entries"].as_array().unwrap();
        assert_eq!(entries.len(), (written.len() - found.len()).min(5));
        found.extend(
            entries
                .iter()
                .map(|entry| entry["name"].as_str().unwrap().to_owned()),
        );
        pages += 1;
        let Some(next) = document["next"].as_str() else {
            assert_eq!(document["truncated"], false);
            break;
        };
        assert_eq!(document["truncated"], true);
        query = next.to_owned();
        // What is removed and added in between moves no other name.
        if pages == 2 {
            std::fs::remove_file(site.root.join("000")).unwrap();
            site.write("\u{1}", "");
        }
    }
    written.sort();
    found.sort();
    assert_eq!((found, pages), (written, 9));
    assert!(site.listed("/?after=%ff").await.is_empty());
    assert_eq!(site.listed("/?x&after=z&after=0").await, ["~", "é", "日"]);
}

#[tokio::test]
async fn the_memory_of_listings_has_a_limit_and_comes_back() {
    let site = Site::with(|_| Settings {
        listing: true,
        limits: Limits {
            all_listings_bytes: 256 << 10,
            ..Limits::DEFAULT
        },
        ..Settings::default()
    });
    for number in 0..100 {
        site.write(&format!("{number}-{}", "n".repeat(200)), "");
    }
    let mut held = Vec::new();
    let refused = loop {
        let request = request(Method::GET, "/", &[], Empty::new());
        let response = site.call(request).await;
        if response.status() != 200 {
            break response;
        }
        held.push(response);
        assert!(held.len() < 10, "there is no limit");
    };
    assert!(!held.is_empty());
    assert_eq!(refused.status(), 503);
    assert!(refused.headers().contains_key("retry-after"));
    let used = site.files.shared_for_tests().pages.used();
    assert!(used <= 256 << 10, "{used}");
    drop(held);
    assert_eq!(site.files.shared_for_tests().pages.used(), 0);
    assert_eq!(site.get("/").await.status, 200);
}

#[tokio::test]
async fn the_form_is_where_uploads_go() {
    for (uploads, forms) in [
        (None, &[][..]),
        (Some("."), &["/", "/in/", "/other/"]),
        (Some("in"), &["/in/"]),
        (Some("../elsewhere"), &[]),
    ] {
        let site = Site::with(|root| {
            for folder in ["in", "other", "../elsewhere"] {
                std::fs::create_dir(root.join(folder)).unwrap();
            }
            Settings {
                listing: true,
                uploads: uploads.map_or(Uploads::Refuse, |path| Uploads::Directory(root.join(path))),
                ..Settings::default()
            }
        });
        for path in ["/", "/in/", "/other/"] {
            let has_form = site.get(path).await.text().contains("<form method=\"post\"");
            assert_eq!(has_form, forms.contains(&path), "{uploads:?} {path}");
        }
    }
}

#[tokio::test]
async fn the_form_is_no_deeper_than_uploads_may_go() {
    let site = Site::with(|root| {
        std::fs::create_dir_all(root.join("a/b/c")).unwrap();
        Settings {
            listing: true,
            uploads: Uploads::Directory(root.to_owned()),
            limits: Limits {
                upload_folders: 2,
                ..Limits::DEFAULT
            },
            min_free_bytes: Some(0),
            ..Settings::default()
        }
    });
    for (folder, allowed) in [("/a/b/", true), ("/a/b/c/", false)] {
        let has_form = site.get(folder).await.text().contains("<form method=\"post\"");
        let body = Script::of([Step::Data(Bytes::from_static(b"new"))]);
        let stored = site.send(Method::PUT, &format!("{folder}new"), &[], body).await;
        assert_eq!((has_form, stored.status == 201), (allowed, allowed), "{folder}");
    }
}

#[tokio::test]
async fn a_folder_is_read_in_a_job_and_files_beside_it_are_not() {
    let site = Site::with(settings);
    site.write("file", "x");
    let begun = || site.files.shared_for_tests().jobs.begun();
    site.get("/").await;
    let jobs = begun();
    assert!(jobs > 0, "a folder is never read on the connection's task");
    site.get("/").await;
    assert_eq!(begun(), jobs + 1, "one for each listing");
}

#[cfg(unix)]
#[tokio::test]
async fn a_name_controls_no_terminal_and_seems_to_be_no_other() {
    let site = Site::with(|_| Settings {
        listing: true,
        ..Settings::default()
    });
    let name = "\u{9b}2J\u{202e}gpj.exe\u{7f}";
    site.write(name, "");
    let html = site.get("/").await;
    assert!(
        html.text().contains("\u{fffd}2J\u{fffd}gpj.exe\u{fffd}</a>"),
        "{}",
        html.text()
    );
    assert!(
        html.text().contains("href=\"%C2%9B2J%E2%80%AEgpj.exe%7F\""),
        "{}",
        html.text()
    );
    let json = site.get_with("/", &[("accept", "application/json")]).await;
    assert!(
        json.text().contains(r#""\u009b2J\u202egpj.exe\u007f""#),
        "{}",
        json.text()
    );
    let read: serde_json::Value = serde_json::from_str(json.text()).unwrap();
    assert_eq!(read["entries"][0]["name"], name);
}
