//! PUT and POST: what is stored, what is refused, and that nothing is left of what did not succeed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::Uploads;
use crate::settings::Limits;

use super::*;

/// A site that serves what it takes, in batches small enough for many.
fn site() -> Site {
    site_with(true)
}

fn site_with(overwrite: bool) -> Site {
    Site::with(|root| Settings {
        overwrite,
        ..taking_uploads(root)
    })
}

fn discarding() -> Site {
    Site::with(|_| Settings {
        uploads: Uploads::Discard,
        ..Settings::default()
    })
}

impl Site {
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        fields: &[(&str, &str)],
        body: Script,
    ) -> Answer {
        Answer::read(self.call(request(method, path, fields, body)).await).await
    }

    pub(super) async fn put(&self, path: &str, text: &'static str) -> Answer {
        self.send(Method::PUT, path, &[], Script::text(text)).await
    }

    pub(super) async fn post(&self, path: &str, text: &'static str) -> Answer {
        self.send(Method::POST, path, &[], Script::text(text)).await
    }

    fn content(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// How many files are being written: those of temporary names, and those that are open and have none.
    pub(super) fn in_progress(&self) -> usize {
        let named = self.names().iter().filter(|name| name.ends_with(".part")).count();
        let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
        let open = open.filter_map(|descriptor| std::fs::read_link(descriptor.path()).ok());
        let unnamed = open.filter(|path| {
            let deleted = path.to_str().is_some_and(|path| path.ends_with(" (deleted)"));
            deleted && path.starts_with(&self.root)
        });
        named + unnamed.count()
    }
}

/// The path that a reference leads to from that of the request (RFC 3986 section 5.2).
fn resolved(path: &str, reference: &str) -> String {
    let path = path.split('?').next().unwrap();
    let mut names: Vec<&str> = path.split('/').collect();
    names.pop();
    for name in reference.split('/') {
        match name {
            "." => {}
            ".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    names.join("/")
}

#[tokio::test]
async fn put_creates_and_then_replaces() {
    let site = site();
    let first = site.put("/a%20b.txt", "one").await;
    assert_eq!(first.status, 201);
    assert_eq!(first.field("location"), "./a%20b.txt");
    assert_eq!(first.text(), "3\n");
    assert_eq!(site.content("a b.txt"), "one");

    let second = site.put("/a%20b.txt", "second").await;
    assert_eq!(second.status, 200);
    assert_eq!(second.field("location"), "");
    assert_eq!(second.text(), "6\n");
    assert_eq!(site.content("a b.txt"), "second");
    assert_eq!(site.names(), ["a b.txt"]);

    let read = site.get("/a%20b.txt").await;
    assert_eq!(read.text(), "second");
    assert_eq!(read.field("etag"), second.field("etag"));
    assert!(!read.field("etag").is_empty());
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_that_is_replaced_keeps_its_permissions() {
    use std::os::unix::fs::PermissionsExt as _;
    let site = site();
    site.write("private", "old");
    std::fs::set_permissions(site.path("private"), std::fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(site.put("/private", "new").await.status, 200);
    let mode = std::fs::metadata(site.path("private"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(site.content("private"), "new");
}

#[tokio::test]
async fn what_was_stored_is_what_the_next_get_sends() {
    let site = Site::with(|root| Settings {
        uploads: Uploads::Directory(root.to_owned()),
        min_free_bytes: Some(0),
        overwrite: true,
        limits: Limits {
            cache_after: Duration::ZERO,
            ..Limits::DEFAULT
        },
        ..Settings::default()
    });
    for text in ["one", "two"].repeat(20) {
        assert!(site.put("/a", text).await.status.is_success());
        // The second one is from the cache, which has just compared it.
        assert_eq!(site.get("/a").await.text(), text);
        assert_eq!(site.get("/a").await.text(), text);
    }
}

#[tokio::test]
async fn post_creates_and_never_replaces() {
    let site = site();
    assert_eq!(site.post("/a", "one").await.status, 201);
    assert_eq!(site.post("/a", "two").await.status, 409);
    assert_eq!(site.content("a"), "one");
    assert_eq!(site.names(), ["a"]);
}

#[tokio::test]
async fn a_post_that_a_page_of_another_site_sends_unasked_is_refused() {
    let site = site();
    let foreign = ("sec-fetch-site", "cross-site");
    // A form of this type has any content, a script among it.
    for fields in [&[foreign, ("content-type", "text/plain")][..], &[foreign]] {
        for path in ["/", "/a"] {
            let answer = site.send(Method::POST, path, fields, Script::text("text")).await;
            assert_eq!(answer.status, 403, "{path} {fields:?}");
        }
    }
    assert!(site.names().is_empty());
    // Browsers ask before they send these.
    let fields = [foreign, ("content-type", "image/png")];
    let answer = site.send(Method::POST, "/a", &fields, Script::text("text")).await;
    assert_eq!(answer.status, 201);
    let answer = site
        .send(Method::PUT, "/b", &[foreign], Script::text("text"))
        .await;
    assert_eq!(answer.status, 201);
}

#[tokio::test]
async fn post_to_a_slash_makes_up_a_name() {
    let site = site();
    for path in ["/", "/", "/sub/"] {
        let answer = site.post(path, "text").await;
        assert_eq!(answer.status, 201);
        let location = answer.field("location");
        assert!(location.starts_with("./upload-"), "{location}");
        assert_eq!(site.get(&resolved(path, location)).await.text(), "text");
    }
    assert_eq!(site.names().len(), 3);
    for path in ["/", "/sub/", "/new/"] {
        let answer = site.put(path, "text").await;
        assert_eq!(answer.status, 400, "{path}");
        assert_eq!(
            answer.text(),
            "the path ends with a slash: add the name that the file is to have\n"
        );
    }
    assert_eq!(site.names().len(), 3);
}

#[tokio::test]
async fn uploads_keep_the_folders_of_their_path() {
    let site = site_with(false);
    for (path, content) in [
        ("/a/x.txt?b=c", "one"),
        ("/b/x.txt", "two"),
        ("/a/b%20c/x.txt", "three"),
    ] {
        let answer = site.put(path, content).await;
        assert_eq!(answer.status, 201, "{path}");
        assert_eq!(answer.field("location"), "./x.txt");
        let location = resolved(path, answer.field("location"));
        assert_eq!(site.get(&location).await.text(), content);
    }
    assert_eq!(site.content("a/x.txt"), "one");
    assert_eq!(site.content("b/x.txt"), "two");
    assert_eq!(site.content("a/b c/x.txt"), "three");
    assert_eq!(site.names(), ["a", "b"]);
}

#[tokio::test]
async fn a_folder_below_the_served_one_is_named_as_in_get() {
    let site = Site::with(|root| {
        std::fs::create_dir(root.join("in")).unwrap();
        Settings {
            uploads: Uploads::Directory(root.join("in")),
            min_free_bytes: Some(0),
            ..Settings::default()
        }
    });
    for (path, location) in [("/in/a/x", "./x"), ("/b/x", "../in/b/x"), ("/c", "./in/c")] {
        let answer = site.put(path, "text").await;
        assert_eq!(answer.status, 201, "{path}");
        assert_eq!(answer.field("location"), location);
        assert_eq!(site.get(&resolved(path, location)).await.text(), "text");
    }
    for path in ["/in", "/in/"] {
        assert!(site.put(path, "text").await.status.is_client_error(), "{path}");
    }
    assert_eq!(site.names(), ["in"]);
}

#[tokio::test]
async fn an_existing_file_is_kept_unless_the_server_overwrites() {
    let site = site_with(false);
    assert_eq!(site.put("/a/x", "one").await.status, 201);
    let body = Script::of([Step::Stall]);
    // The response does not wait for the body.
    let answer = site.send(Method::PUT, "/a/x", &[], body).await;
    assert_eq!(answer.status, 409);
    assert_eq!(
        answer.text(),
        "a file of this name exists; it is kept: use another name\n"
    );
    let etag = site.get("/a/x").await.field("etag").to_owned();
    let answer = site
        .send(Method::PUT, "/a/x", &[("if-match", &etag)], Script::text("two"))
        .await;
    assert_eq!(answer.status, 409, "even of one who knows it");
    assert_eq!(site.content("a/x"), "one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_uploads_of_one_name_at_once_exactly_one_is_stored() {
    let site = site_with(false);
    let uploads: Vec<_> = (0..8_u8)
        .map(|number| {
            let (body, release) = Gated::new(Script::of([
                Step::Data(Bytes::from(vec![number; 500])),
                Step::Stall,
            ]));
            let mut files = site.files.clone();
            let upload = tokio::spawn(files.call(request(Method::PUT, "/new/a", &[], body)));
            (number, upload, release)
        })
        .collect();
    until(|| site.in_progress() == 8).await;
    assert!(!site.path("new").exists(), "a folder comes with its first file");
    let mut waiting = Vec::new();
    for (number, upload, release) in uploads {
        release.send(()).unwrap();
        waiting.push((number, upload));
    }
    let mut winners = Vec::new();
    for (number, upload) in waiting {
        let Ok(response) = upload.await.unwrap();
        match response.status().as_u16() {
            201 => winners.push(number),
            status => assert_eq!(status, 409),
        }
    }
    let [winner] = winners[..] else {
        panic!("{winners:?} have won");
    };
    assert_eq!(std::fs::read(site.path("new/a")).unwrap(), vec![winner; 500]);
}

#[tokio::test]
async fn the_folders_of_a_path_are_few_and_stay_below_the_one_for_uploads() {
    let site = site();
    let deepest = format!("{}/x", "/d".repeat(16));
    assert_eq!(site.put(&deepest, "text").await.status, 201);
    let answer = site.put(&format!("/d{deepest}"), "text").await;
    assert_eq!(answer.status, 400);
    assert_eq!(answer.text(), "the path has more than 16 folders\n");

    site.write("file", "text");
    let answer = site.put("/file/x", "text").await;
    assert_eq!(answer.status, 409);
    assert_eq!(answer.text(), "a part of this path is a file, not a folder\n");
    #[cfg(unix)]
    {
        std::fs::create_dir(site.outside.join("secret")).unwrap();
        std::os::unix::fs::symlink("../secret", site.path("out")).unwrap();
        for path in ["/out/x", "/out/new/x"] {
            assert_eq!(site.put(path, "text").await.status, 403, "{path}");
        }
        assert_eq!(std::fs::read_dir(site.outside.join("secret")).unwrap().count(), 0);
    }
}

#[tokio::test]
async fn an_upload_that_breaks_off_leaves_no_folder() {
    let site = site();
    let body = Script::of([Step::Data(Bytes::from(vec![0; 500])), Step::Fail]);
    let answer = site.send(Method::PUT, "/new/folder/x", &[], body).await;
    assert_eq!(answer.status, 400);
    assert_eq!(site.names(), Vec::<String>::new());
}

#[tokio::test]
async fn a_name_that_is_no_name_is_refused() {
    let site = site();
    let long = format!("/{}", "n".repeat(256));
    for path in [
        "/..",
        "/.",
        "/../a",
        "/sub/../a",
        "/%2e%2e",
        "/..%2fa",
        "/a%2fb",
        "/%2fa",
        "/a%5cb",
        "/a%00",
        "/a%0a",
        "/a%0d%0ab",
        "/%1b[2J",
        "/a%7f",
        "/%c2%85",
        "/.hidden",
        "/.a.0123456789abcdef.part",
        "/.git/config",
        "/a/.b/c",
        "/a%0a/b",
        "/%ff",
        "/%",
        "/a%zz",
        &long,
    ] {
        let answer = site.put(path, "text").await;
        assert_eq!(answer.status, 400, "{path}");
        assert_eq!(site.post(path, "text").await.status, 400, "{path}");
        assert_eq!(answer.field("content-type"), "text/plain; charset=utf-8");
    }
    assert_eq!(site.names(), Vec::<String>::new());
    let entries = std::fs::read_dir(&site.outside).unwrap().count();
    assert_eq!(entries, 1, "only the root lies outside");
}

#[tokio::test]
async fn uploads_of_every_length_and_framing_arrive_whole() {
    let site = site();
    for length in [0, 1, 99, 100, 101, 5000, 300_000] {
        let content = pattern(length);
        for frame in [1.max(length / 2000), 33, 100, 1000] {
            let pieces = content.chunks(frame);
            let steps = pieces.map(|piece| Step::Data(Bytes::copy_from_slice(piece)));
            let body = Script::of(steps.chain([Step::Data(Bytes::new()), Step::Trailers]));
            let announced = length.to_string();
            let fields = [("content-length", announced.as_str())];
            let answer = site.send(Method::PUT, "/file", &fields, body).await;
            assert!(answer.status.is_success(), "{}", answer.status);
            assert_eq!(answer.text(), format!("{length}\n"));
            assert!(std::fs::read(site.path("file")).unwrap() == content);
        }
    }
    assert_eq!(site.names(), ["file"]);
}

#[tokio::test]
async fn an_upload_that_breaks_off_leaves_nothing() {
    let site = site();
    site.write("old", "old");
    let steps = |pieces: usize| {
        let data = (0..pieces).map(|_| Step::Data(Bytes::from(vec![0; 60])));
        Script::of(data.chain([Step::Fail]))
    };
    for pieces in 0..8 {
        for (method, path) in [
            (Method::PUT, "/new"),
            (Method::POST, "/new"),
            (Method::PUT, "/old"),
        ] {
            let answer = site.send(method, path, &[], steps(pieces)).await;
            assert_eq!(answer.status, 400);
            assert_eq!(answer.text(), "the upload ended before it was complete\n");
            assert_eq!(site.names(), ["old"]);
            assert_eq!(site.content("old"), "old");
        }
    }
}

#[tokio::test]
async fn an_upload_that_is_dropped_leaves_nothing() {
    let site = site();
    for pieces in 1..6 {
        let data = (0..pieces).map(|_| Step::Data(Bytes::from(vec![0; 60])));
        let body = Script::of(data.chain([Step::Stall]));
        let mut files = site.files.clone();
        let upload = tokio::spawn(files.call(request(Method::PUT, "/new", &[], body)));
        until(|| site.in_progress() == 1).await;
        assert!(site.names().iter().all(|name| name.ends_with(".part")));
        upload.abort();
        assert!(upload.await.unwrap_err().is_cancelled());
        // A write under way ends before its file goes.
        until(|| site.in_progress() == 0).await;
        assert_eq!(site.names(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn an_upload_dropped_before_it_began_leaves_nothing() {
    let site = site();
    for _ in 0..20 {
        let mut files = site.files.clone();
        let body = Script::of([Step::Stall]);
        let mut upload = files.call(request(Method::PUT, "/new", &[], body));
        // Polled once: the job that makes the file is on its way.
        let polled = std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut upload).poll(cx))).await;
        assert!(polled.is_pending());
        drop(upload);
    }
    // Jobs are done in no stated order; one that comes after them all tells that they are.
    until(|| site.names().is_empty()).await;
    assert_eq!(site.put("/new", "text").await.status, 201);
    until(|| site.names() == ["new"]).await;
}

#[tokio::test]
async fn the_length_must_be_the_one_announced() {
    for site in [site(), discarding()] {
        for (announced, status) in [
            ("4", 200),
            ("0", 400),
            ("3", 400),
            ("5", 400),
            ("x", 400),
            ("-1", 400),
            ("99999999999999999999999", 400),
        ] {
            let fields = [("content-length", announced)];
            let body = Script::text("text");
            let answer = site.send(Method::PUT, "/file", &fields, body).await;
            let found = match answer.status.as_u16() {
                201 => 200,
                other => other,
            };
            assert_eq!(found, status, "{announced}");
        }
        assert!(site.names().len() <= 1);
    }
}

#[tokio::test]
async fn an_upload_over_the_limit_is_refused() {
    for uploads in [true, false] {
        let site = Site::with(|root| Settings {
            uploads: if uploads {
                Uploads::Directory(root.to_owned())
            } else {
                Uploads::Discard
            },
            max_upload_bytes: 4,
            ..Settings::default()
        });
        let announced = [("content-length", "5")];
        let script = || Script::text("12345");
        let early = site.send(Method::PUT, "/a", &announced, script()).await;
        assert_eq!(early.status, 413);
        assert_eq!(site.send(Method::PUT, "/a", &[], script()).await.status, 413);
        assert_eq!(site.names(), Vec::<String>::new());
        assert!(site.put("/a", "1234").await.status.is_success());
    }
}

#[tokio::test]
async fn a_part_is_not_taken_for_the_whole() {
    let site = site();
    let fields = [("content-range", "bytes 0-3/10")];
    let body = Script::text("text");
    let answer = site.send(Method::PUT, "/a", &fields, body).await;
    assert_eq!(answer.status, 400);
    assert_eq!(site.names(), Vec::<String>::new());
}

#[tokio::test]
async fn preconditions_guard_a_replacement() {
    let site = site();
    let put = |fields: &'static [(&'static str, &'static str)]| {
        site.send(Method::PUT, "/a", fields, Script::text("text"))
    };
    assert_eq!(put(&[("if-match", "*")]).await.status, 412);
    assert_eq!(put(&[("if-none-match", "*")]).await.status, 201);
    assert_eq!(put(&[("if-none-match", "*")]).await.status, 412);
    assert_eq!(put(&[("if-match", "\"other\"")]).await.status, 412);
    assert_eq!(put(&[("if-match", "*")]).await.status, 200);

    let etag = site.get("/a").await.field("etag").to_owned();
    let fields = [("if-match", etag.as_str())];
    let send = || site.send(Method::PUT, "/a", &fields, Script::text("newer"));
    assert_eq!(send().await.status, 200);
    assert_eq!(send().await.status, 412, "the tag is another now");
    assert_eq!(site.names(), ["a"]);
}

#[tokio::test]
async fn a_name_taken_meanwhile_is_not_replaced_by_who_must_not() {
    let site = site();
    for (method, fields, status) in [
        (Method::POST, &[][..], 409),
        (Method::PUT, &[("if-none-match", "*")][..], 412),
    ] {
        let body = Script::of([Step::Data(Bytes::from("mine")), Step::Stall]);
        // A body that stalls until the other file is there, then ends.
        let (body, release) = Gated::new(body);
        let mut files = site.files.clone();
        let upload = tokio::spawn(files.call(request(method, "/a", fields, body)));
        until(|| site.in_progress() == 1).await;
        site.write("a", "theirs");
        release.send(()).unwrap();
        let Ok(response) = upload.await.unwrap();
        assert_eq!(response.status(), status);
        assert_eq!(site.content("a"), "theirs");
        assert_eq!(site.names(), ["a"]);
        std::fs::remove_file(site.path("a")).unwrap();
    }
}

#[tokio::test]
async fn a_file_replaced_meanwhile_is_not_replaced_by_who_demands_the_one_before() {
    let site = site();
    assert_eq!(site.put("/a", "first").await.status, 201);
    let etag = site.get("/a").await.field("etag").to_owned();
    let fields = [("if-match", etag.as_str())];
    let body = Script::of([Step::Data(Bytes::from("mine")), Step::Stall]);
    let (body, release) = Gated::new(body);
    let mut files = site.files.clone();
    let upload = tokio::spawn(files.call(request(Method::PUT, "/a", &fields, body)));
    until(|| site.in_progress() == 1).await;
    let theirs = site
        .send(Method::PUT, "/a", &fields, Script::text("theirs"))
        .await;
    assert_eq!(theirs.status, 200);
    release.send(()).unwrap();
    let Ok(response) = upload.await.unwrap();
    assert_eq!(response.status(), 412);
    assert_eq!(site.content("a"), "theirs");
    assert_eq!(site.names(), ["a"]);
}

#[tokio::test]
async fn of_uploads_at_once_that_demand_the_same_file_one_replaces_it() {
    let site = site();
    assert_eq!(site.put("/a", "first").await.status, 201);
    let etag = site.get("/a").await.field("etag").to_owned();
    let uploads: Vec<_> = (0..20)
        .map(|_| {
            let mut files = site.files.clone();
            let fields = [("if-match", etag.as_str())];
            tokio::spawn(files.call(request(Method::PUT, "/a", &fields, Script::text("next"))))
        })
        .collect();
    let mut stored = 0;
    for upload in uploads {
        let Ok(response) = upload.await.unwrap();
        match response.status().as_u16() {
            200 => stored += 1,
            status => assert_eq!(status, 412),
        }
    }
    assert_eq!(stored, 1);
    assert_eq!(site.names(), ["a"]);
}

#[tokio::test]
async fn what_has_the_name_but_is_no_file_does_no_harm() {
    let site = site();
    std::fs::create_dir(site.path("dir")).unwrap();
    assert_eq!(site.put("/dir", "text").await.status, 409);
    assert_eq!(site.post("/dir", "text").await.status, 409);
    assert_eq!(site.names(), ["dir"]);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn links_and_pipes_are_replaced_and_never_written_through() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    let site = site();
    let target = site.outside.join("target");
    std::fs::write(&target, "untouched").unwrap();
    for name in ["absolute", "relative", "dangling"] {
        let to = match name {
            "absolute" => target.clone(),
            "relative" => "../target".into(),
            _ => "../made".into(),
        };
        std::os::unix::fs::symlink(to, site.path(name)).unwrap();
    }
    let mode = Mode::RUSR | Mode::WUSR;
    mknodat(CWD, site.path("fifo"), FileType::Fifo, mode, 0).unwrap();
    for name in ["absolute", "relative", "dangling", "fifo"] {
        let path = format!("/{name}");
        assert_eq!(site.post(&path, "text").await.status, 409, "{name}");
        assert_eq!(site.put(&path, "text").await.status, 200, "{name}");
        assert!(site.path(name).symlink_metadata().unwrap().is_file());
    }
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "untouched");
    assert!(!site.outside.join("made").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_uploads_at_once_one_whole_file_remains() {
    let site = site();
    let uploads: Vec<_> = (0..8_u8)
        .map(|i| {
            let piece = Bytes::from(vec![i; 50]);
            let body = Script::of((0..40).map(|_| Step::Data(piece.clone())));
            let mut files = site.files.clone();
            tokio::spawn(files.call(request(Method::PUT, "/a", &[], body)))
        })
        .collect();
    for upload in uploads {
        let Ok(response) = upload.await.unwrap();
        assert!(response.status().is_success());
    }
    assert_eq!(site.names(), ["a"]);
    let content = std::fs::read(site.path("a")).unwrap();
    assert_eq!(content.len(), 2000);
    assert!(content.iter().all(|octet| *octet == content[0]));
}

#[cfg(unix)]
#[tokio::test]
async fn a_directory_that_is_gone_is_an_error_of_ours() {
    let site = site();
    std::fs::remove_dir(&site.root).unwrap();
    let answer = site.put("/a", "text").await;
    assert_eq!(answer.status, 500);
    assert_eq!(answer.text(), "the upload could not be stored\n");
}

#[tokio::test]
async fn discarded_uploads_are_counted() {
    let site = discarding();
    for method in [Method::PUT, Method::POST] {
        let pieces = (0..1000).map(|_| Step::Data(Bytes::from(vec![0; 1234])));
        let body = Script::of(pieces.chain([Step::Trailers]));
        let answer = site.send(method, "/any/../thing", &[], body).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.text(), "1234000\n");
        assert_eq!(answer.field("content-length"), "8");
    }
    let empty = site.send(Method::POST, "/", &[], Script::of([])).await;
    assert_eq!(empty.text(), "0\n");
    let broken = Script::of([Step::Data(Bytes::from("x")), Step::Fail]);
    let answer = site.send(Method::POST, "/", &[], broken).await;
    assert_eq!(answer.status, 400);
    assert_eq!(site.names(), Vec::<String>::new());
}

/// A body whose stall ends when it is told; what stands behind it comes then.
pub(super) struct Gated {
    body: Script,
    gate: tokio::sync::oneshot::Receiver<()>,
    /// Whether its reader has come to the stall.
    pub(super) stalled: Arc<AtomicBool>,
}

impl Gated {
    pub(super) fn new(body: Script) -> (Gated, tokio::sync::oneshot::Sender<()>) {
        let (release, gate) = tokio::sync::oneshot::channel();
        let stalled = Arc::default();
        (Gated { body, gate, stalled }, release)
    }
}

impl Body for Gated {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if let ready @ Poll::Ready(_) = Pin::new(&mut self.body).poll_frame(cx) {
            return ready;
        }
        self.stalled.store(true, Ordering::Relaxed);
        if Pin::new(&mut self.gate).poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.body.0.pop_front();
        Pin::new(&mut self.body).poll_frame(cx)
    }
}

/// Waits for what a blocking job does in its own time. Gives up, and fails, after a while no run should need.
pub(super) async fn until(condition: impl Fn() -> bool) {
    for _ in 0..12_000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it never came true");
}

#[tokio::test]
async fn a_list_of_tags_that_is_too_long_to_be_read_lets_an_upload_replace_nothing() {
    let site = site();
    site.write("a", "old");
    let etag = site.get("/a").await.field("etag").to_owned();
    let tags = format!("{}{etag}", "\"other\", ".repeat(1_000));
    for name in ["if-match", "if-none-match"] {
        let answer = site
            .send(Method::PUT, "/a", &[(name, &tags)], Script::text("new"))
            .await;
        assert_eq!(answer.status, 412, "{name}");
    }
    assert_eq!(site.content("a"), "old");
}

#[tokio::test]
async fn a_file_has_the_second_that_its_sender_gives_and_another_tag_for_each_upload() {
    use std::time::{SystemTime, UNIX_EPOCH};
    let site = site();
    let field = |answer: &Answer, name: &str| -> Option<String> {
        let value = answer.headers.get(name)?;
        value.to_str().ok().map(str::to_owned)
    };
    let modified = |name: &str| std::fs::metadata(site.path(name)).unwrap().modified().unwrap();
    let put = |second: &'static str, text: &'static str| {
        let fields = [("x-oc-mtime", second)];
        let site = &site;
        async move { site.send(Method::PUT, "/a/b", &fields, Script::text(text)).await }
    };
    let (mut tags, mut times) = (Vec::new(), Vec::new());
    // Before 1980 and long after now, too.
    for second in [1_000_000_000_u64, 1_000_000_000, 60, 4_102_444_800] {
        let text = Box::leak(second.to_string().into_boxed_str());
        let answer = put(text, "same").await;
        assert_eq!(field(&answer, "x-oc-mtime").as_deref(), Some("accepted"));
        let time = modified("a/b").duration_since(UNIX_EPOCH).unwrap();
        assert_eq!(time.as_secs(), second);
        times.push(time);
        tags.push(field(&answer, "etag").unwrap());
        let served = site.get("/a/b").await;
        assert_eq!(field(&served, "etag").as_ref(), tags.last());
        assert_eq!(field(&served, "last-modified").is_some(), second != 60);
    }
    tags.sort();
    tags.dedup();
    assert_eq!(tags.len(), 4, "{times:?}");
    // A wrong time stores nothing.
    let before = modified("a/b");
    for wrong in ["", "soon", "1e9", "99999999999999999999"] {
        let answer = put(wrong, "other").await;
        assert_eq!(answer.status, 400, "{wrong}");
    }
    assert_eq!((modified("a/b"), site.content("a/b").as_str()), (before, "same"));
    // Without the field, and for POST, it is the time of the upload.
    let long_ago = [
        ("x-oc-mtime", "1000000000"),
        ("content-type", "application/octet-stream"),
    ];
    let posted = site
        .send(Method::POST, "/a/c", &long_ago, Script::text("c"))
        .await;
    assert_eq!(
        (posted.status.as_u16(), field(&posted, "x-oc-mtime")),
        (201, None)
    );
    assert_eq!(field(&site.put("/a/b", "new").await, "x-oc-mtime"), None);
    for name in ["a/b", "a/c"] {
        assert!(
            SystemTime::now()
                .duration_since(modified(name))
                .is_ok_and(|age| age.as_secs() < 60)
        );
    }
}
