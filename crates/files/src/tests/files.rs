//! GET and HEAD of files and directories, with preconditions, and bodies that are read while the file changes.

use std::fs::File;
use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http_body_util::BodyExt as _;

use super::*;
use crate::settings::Limits;

/// Small limits, so that a few kilobytes take many chunks.
fn small_chunks() -> Site {
    Site::with(|_| Settings {
        limits: Limits {
            whole_body_bytes: 100,
            one_frame_bytes: 100,
            chunk_bytes: 1000,
            ..Limits::DEFAULT
        },
        ..Settings::default()
    })
}

#[tokio::test]
async fn a_file_is_sent_with_all_that_describes_it() {
    let site = Site::new();
    site.write("hello.txt", "hello");
    let answer = site.get("/hello.txt?query=is&not=looked#at").await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.text(), "hello");
    assert_eq!(answer.field("content-type"), "text/plain; charset=utf-8");
    assert_eq!(answer.field("content-length"), "5");
    assert_eq!(answer.field("accept-ranges"), "bytes");
    assert!(answer.field("etag").starts_with("\"5-"));
    assert!(answer.field("last-modified").ends_with(" GMT"));
    assert_eq!(
        answer.field("server"),
        concat!("fullbore/", env!("CARGO_PKG_VERSION"))
    );
    assert_eq!(answer.field("content-range"), "");
}

#[tokio::test]
async fn head_is_get_without_the_octets() {
    let site = small_chunks();
    site.write("small", pattern(50));
    site.write("large", pattern(5000));
    site.write("empty", "");
    for path in ["/small", "/large", "/empty", "/missing", "/%zz"] {
        let get = site.get(path).await;
        let head = site.ask(Method::HEAD, path, &[]).await;
        assert_eq!(head.status, get.status, "{path}");
        assert!(head.body.is_empty(), "{path}");
        for name in ["content-length", "content-type", "etag", "last-modified"] {
            assert_eq!(head.field(name), get.field(name), "{path}: {name}");
        }
        assert_eq!(get.field("content-length"), get.body.len().to_string());
    }
}

#[tokio::test]
async fn bodies_of_every_length_arrive_whole() {
    let site = small_chunks();
    for length in [0, 1, 99, 100, 101, 999, 1000, 1001, 2000, 2001, 54_321] {
        site.write("file", pattern(length));
        let answer = site.get("/file").await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.field("content-length"), length.to_string());
        assert!(answer.body == pattern(length), "{length} bytes");
    }
}

#[tokio::test]
async fn a_long_body_holds_one_chunk_beside_the_one_it_gave() {
    let site = small_chunks();
    site.write("file", pattern(40_000));
    let buffers = &site.files.shared_for_tests().buffers;
    let mut body = site
        .call(request(Method::GET, "/file", &[], Empty::new()))
        .await
        .into_body();
    let mut seen = 0;
    while let Some(frame) = body.frame().await {
        let data = frame.unwrap().into_data().unwrap();
        assert_eq!(data.len(), 1000);
        seen += data.len();
        assert_eq!(body.size_hint().exact(), Some(40_000 - seen as u64));
        // The site, the body, this chunk, the next chunk, and the job that reads it.
        assert!(Arc::strong_count(buffers) <= 5);
    }
    assert_eq!(seen, 40_000);
    assert!(body.is_end_stream());
}

#[tokio::test]
async fn a_file_that_shrinks_makes_the_body_fail() {
    let site = small_chunks();
    site.write("file", pattern(10_000));
    let mut body = site
        .call(request(Method::GET, "/file", &[], Empty::new()))
        .await
        .into_body();
    let file = File::options().write(true).open(site.path("file")).unwrap();
    file.set_len(4_500).unwrap();
    let mut seen = 0;
    let error = loop {
        match body.frame().await {
            Some(Ok(frame)) => seen += frame.into_data().unwrap().len(),
            Some(Err(error)) => break error,
            None => panic!("a short body passed for a whole one"),
        }
    };
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    assert_eq!(seen, 4_000);
    assert!(!body.is_end_stream());
    assert!(body.frame().await.is_none());
}

#[tokio::test]
async fn a_file_that_grows_is_cut_where_it_was_announced_to_end() {
    let site = small_chunks();
    site.write("file", pattern(10_000));
    let response = site.call(request(Method::GET, "/file", &[], Empty::new())).await;
    let mut file = File::options().append(true).open(site.path("file")).unwrap();
    file.write_all(&[0; 5000]).unwrap();
    let answer = Answer::read(response).await;
    assert!(answer.body == pattern(10_000));
}

#[tokio::test]
async fn a_file_that_is_replaced_is_sent_as_it_was() {
    let site = small_chunks();
    site.write("file", pattern(10_000));
    site.write("new", "new");
    let response = site.call(request(Method::GET, "/file", &[], Empty::new())).await;
    std::fs::rename(site.path("new"), site.path("file")).unwrap();
    let answer = Answer::read(response).await;
    assert!(answer.body == pattern(10_000));
    assert_eq!(site.get("/file").await.text(), "new");
}

#[tokio::test]
async fn a_body_may_be_dropped_at_any_time() {
    let site = small_chunks();
    site.write("file", pattern(10_000));
    for frames in 0..10 {
        let mut body = site
            .call(request(Method::GET, "/file", &[], Empty::new()))
            .await
            .into_body();
        for _ in 0..frames {
            assert!(body.frame().await.unwrap().is_ok());
        }
    }
    assert_eq!(site.get("/file").await.body.len(), 10_000);
}

#[tokio::test]
async fn names_are_decoded_once() {
    let site = Site::new();
    for (name, path) in [
        ("with space", "/with%20space"),
        ("été.txt", "/%C3%A9t%c3%a9.txt"),
        ("100%", "/100%25"),
        ("%2e%2e", "/%252e%252e"),
        ("a?b", "/a%3fb"),
        (".well-known/x", "/.well-known/x"),
        ("a;b=c,d", "/a;b=c,d"),
        ("deep/er/still", "/deep//er/still"),
    ] {
        site.write(name, name);
        let answer = site.get(path).await;
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.text(), name);
    }
}

#[tokio::test]
async fn a_directory_answers_with_its_index() {
    let site = Site::new();
    site.write("index.html", "root");
    site.write("sub/index.html", "sub");
    for (path, text) in [("/", "root"), ("//", "root"), ("/sub/", "sub")] {
        let answer = site.get(path).await;
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.text(), text);
        assert_eq!(answer.field("content-type"), "text/html; charset=utf-8");
    }
}

#[tokio::test]
async fn a_directory_without_a_slash_is_redirected_to_itself() {
    let site = Site::new();
    site.write("sub dir/index.html", "sub");
    for (path, location) in [
        ("/sub%20dir", "./sub%20dir/"),
        ("/sub%20dir?a=b&c", "./sub%20dir/?a=b&c"),
        // A reference that begins with two slashes would name a host.
        ("//sub%20dir", "./sub%20dir/"),
    ] {
        let answer = site.get(path).await;
        assert_eq!(answer.status, 308, "{path}");
        assert_eq!(answer.field("location"), location);
    }
}

#[tokio::test]
async fn a_directory_without_an_index_is_not_found() {
    let site = Site::new();
    site.write("sub/file", "x");
    std::fs::create_dir_all(site.path("odd/index.html")).unwrap();
    for path in ["/", "/sub/", "/odd/", "/sub/file/", "/sub/file/x", "/nothing"] {
        let answer = site.get(path).await;
        assert_eq!(answer.status, 404, "{path}");
        assert_eq!(answer.text(), "Not Found\n");
        assert_eq!(answer.field("content-type"), "text/plain; charset=utf-8");
    }
}

#[tokio::test]
async fn other_methods_are_told_what_is_allowed() {
    let refusing = Site::new();
    let taking = Site::with(|_| Settings {
        uploads: crate::Uploads::Discard,
        ..Settings::default()
    });
    let few = "GET, HEAD, OPTIONS";
    let more = "GET, HEAD, OPTIONS, POST, PUT";
    for (site, method, status, allow) in [
        (&refusing, Method::OPTIONS, 204, few),
        (&refusing, Method::PUT, 405, few),
        (&refusing, Method::POST, 405, few),
        (&refusing, Method::DELETE, 405, few),
        (&refusing, Method::TRACE, 405, few),
        (&refusing, Method::PATCH, 405, few),
        (&refusing, Method::from_bytes(b"BREW").unwrap(), 405, few),
        (&taking, Method::OPTIONS, 204, more),
        (&taking, Method::DELETE, 405, more),
    ] {
        let answer = site.ask(method.clone(), "/file", &[]).await;
        assert_eq!(answer.status, status, "{method}");
        assert_eq!(answer.field("allow"), allow, "{method}");
    }
    let answer = refusing.ask(Method::OPTIONS, "*", &[]).await;
    assert_eq!(answer.status, 204);
}

#[tokio::test]
async fn a_tag_that_came_back_is_not_modified() {
    let site = Site::new();
    site.write("file", "content");
    let first = site.get("/file").await;
    let etag = first.field("etag");
    let modified = first.field("last-modified");
    for (name, value) in [
        ("if-none-match", etag.to_owned()),
        ("if-none-match", format!("W/{etag}")),
        ("if-none-match", format!("\"x\", {etag}")),
        ("if-none-match", "*".to_owned()),
        ("if-modified-since", modified.to_owned()),
    ] {
        for method in [Method::GET, Method::HEAD] {
            let answer = site.ask(method, "/file", &[(name, &value)]).await;
            assert_eq!(answer.status, 304, "{name}: {value}");
            assert!(answer.body.is_empty());
            assert_eq!(answer.field("etag"), etag);
            assert_eq!(answer.field("content-length"), "");
        }
    }
}

#[tokio::test]
async fn a_condition_that_fails_is_said_to_have_failed() {
    let site = Site::new();
    site.write("file", "content");
    let old = [("if-unmodified-since", "Sun, 06 Nov 1994 08:49:37 GMT")];
    assert_eq!(site.get_with("/file", &old).await.status, 412);
    let other = [("if-match", "\"other\"")];
    assert_eq!(site.get_with("/file", &other).await.status, 412);
    // Section 13.2.1: no precondition is weighed where the answer is neither 2xx nor 412 anyway.
    assert_eq!(site.get_with("/none", &other).await.status, 404);
    assert_eq!(
        site.get_with("/none", &[("if-none-match", "*")]).await.status,
        404
    );
}

#[tokio::test]
async fn the_tag_follows_the_file() {
    let site = Site::new();
    let moment = UNIX_EPOCH + Duration::new(1_700_000_000, 5);
    let set = |content: &str, modified: SystemTime| {
        site.write("file", content);
        let file = File::options().write(true).open(site.path("file")).unwrap();
        file.set_modified(modified).unwrap();
    };
    let etag = || async { site.get("/file").await.field("etag").to_owned() };

    set("same", moment);
    let first = etag().await;
    assert_eq!(etag().await, first);
    set("longer", moment);
    let longer = etag().await;
    assert_ne!(longer, first);
    set("same", moment + Duration::from_nanos(1));
    assert_ne!(etag().await, first);
    set("same", moment);
    assert_eq!(etag().await, first);
    // A copy has the tag of its original, as on another host.
    std::fs::rename(site.path("file"), site.path("old")).unwrap();
    set("same", moment);
    assert_eq!(etag().await, first);
}

#[tokio::test]
async fn times_out_of_the_ordinary_do_no_harm() {
    let site = Site::new();
    site.write("file", "x");
    let file = File::options().write(true).open(site.path("file")).unwrap();

    file.set_modified(UNIX_EPOCH - Duration::from_secs(1_000_000))
        .unwrap();
    let answer = site.get("/file").await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.field("last-modified"), "");
    assert!(!answer.field("etag").is_empty());

    // Section 8.8.2.1: never later than the answer itself.
    file.set_modified(SystemTime::now() + Duration::from_secs(1_000_000))
        .unwrap();
    let answer = site.get("/file").await;
    let modified = httpdate::parse_http_date(answer.field("last-modified")).unwrap();
    assert!(modified <= SystemTime::now());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn what_is_no_regular_file_is_refused_at_once() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    let site = Site::new();
    let mode = Mode::RUSR | Mode::WUSR;
    mknodat(CWD, site.path("fifo"), FileType::Fifo, mode, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(site.path("socket")).unwrap();
    std::os::unix::fs::symlink("loop", site.path("loop")).unwrap();
    for path in ["/fifo", "/socket", "/loop"] {
        let answer = site.get(path).await;
        assert_eq!(answer.status, 403, "{path}");
        assert_eq!(answer.text(), "Forbidden\n");
    }
}

#[test]
fn a_root_that_is_no_directory_is_an_error() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("file");
    std::fs::write(&file, "x").unwrap();
    for root in [&file, &home.path().join("missing")] {
        assert!(Files::open(root, Settings::default()).is_err());
        let settings = Settings {
            uploads: crate::Uploads::Directory(root.clone()),
            ..Settings::default()
        };
        assert!(Files::open(home.path(), settings).is_err());
    }
}

/// Frames are cut where chunks end, and a peer that refills at half its window falls out of step with short ones: over
/// 100 ms nghttp had 70 % of what its windows allow.
#[tokio::test]
async fn chunks_begin_short_and_end_where_full_frames_do() {
    let site = Site::new();
    site.write("long", pattern(2_000_000));
    let mut body = site
        .call(request(Method::GET, "/long", &[], Empty::<Bytes>::new()))
        .await
        .into_body();
    let mut lengths = Vec::new();
    while let Some(frame) = body.frame().await {
        lengths.push(frame.unwrap().into_data().unwrap().len());
    }
    let kib = |count: usize| count << 10;
    assert_eq!(lengths[..8], [4, 4, 8, 16, 32, 64, 128, 256].map(kib));
    let mut end = 0;
    for length in &lengths[..lengths.len() - 1] {
        end += length;
        assert!(end < kib(16) || end % kib(16) == 0, "{lengths:?}");
    }
    assert_eq!(end + lengths.last().unwrap(), 2_000_000);
}

#[tokio::test]
async fn a_target_of_another_scheme_is_misdirected() {
    let site = Site::new();
    site.write("a", "file");
    for (target, status) in [
        ("/a", 200),
        ("http://host/a", 200),
        ("HTTPS://host/a", 200),
        ("ftp://host/a", 421),
        ("ws://host/a", 421),
        ("gopher://host/a", 421),
    ] {
        for method in [Method::GET, Method::HEAD, Method::PUT, Method::OPTIONS] {
            let answer = site.ask(method.clone(), target, &[]).await;
            assert_eq!(answer.status == 421, status == 421, "{method} {target}");
        }
        assert_eq!(site.get(target).await.status, status, "{target}");
    }
}

#[tokio::test]
async fn a_file_has_the_type_of_its_name_whatever_its_content_seems_to_be() {
    let site = Site::with(|_| Settings {
        error_page: Some("404.html".to_owned()),
        ..Settings::default()
    });
    site.write("a.txt", "<script>alert(1)</script>");
    site.write("404.html", "none");
    let range = [("range", "bytes=0-3")];
    let ranges = [("range", "bytes=0-1,5-6")];
    for (path, fields) in [
        ("/a.txt", &[][..]),
        ("/a.txt", &range),
        ("/a.txt", &ranges),
        ("/none", &[]),
    ] {
        let answer = site.get_with(path, fields).await;
        assert_eq!(
            answer.field("x-content-type-options"),
            "nosniff",
            "{path} {fields:?}"
        );
        assert_eq!(
            answer.field("content-security-policy"),
            "",
            "{path}: nobody uploads"
        );
    }
}

#[cfg(unix)]
#[tokio::test]
async fn the_tag_of_a_file_is_the_same_on_every_host_and_changes_where_its_time_says_nothing() {
    use std::time::{Duration, SystemTime};
    let since_1970 = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let (one, other) = (Site::new(), Site::new());
    let tag = async |site: &Site, content: &str, seconds| {
        // A new file each time, as programs write it that copy or unpack.
        let _ = std::fs::remove_file(site.path("a"));
        site.write("a", content);
        let file = std::fs::File::options().write(true).open(site.path("a")).unwrap();
        file.set_modified(since_1970(seconds)).unwrap();
        site.get("/a").await.field("etag").to_owned()
    };
    let first = tag(&one, "content", 1_700_000_000).await;
    assert!(first.starts_with('"'), "{first} is strong");
    assert_eq!(tag(&other, "content", 1_700_000_000).await, first);
    assert_ne!(tag(&other, "content", 1_700_000_001).await, first);
    assert_ne!(tag(&other, "contents", 1_700_000_000).await, first);
    for seconds in [0, 1, 315_532_800] {
        let before = tag(&one, "content", seconds).await;
        assert_eq!(one.get("/a").await.field("last-modified"), "");
        // Until the clock of the file system has moved.
        loop {
            let after = tag(&one, "CONTENT", seconds).await;
            if after != before {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

#[tokio::test]
async fn fields_that_are_long_are_read_to_a_limit() {
    let site = Site::new();
    site.write("a", "0123456789");
    std::fs::create_dir(site.path("folder")).unwrap();
    let etag = site.get("/a").await.field("etag").to_owned();
    let tags = |count: usize| format!("{}{etag}", "\"other\", ".repeat(count));
    assert_eq!(
        site.get_with("/a", &[("if-none-match", &tags(100))]).await.status,
        304
    );
    assert_eq!(
        site.get_with("/a", &[("if-none-match", &tags(1_000))])
            .await
            .status,
        200
    );
    assert_eq!(site.get_with("/a", &[("if-match", &tags(100))]).await.status, 200);
    assert_eq!(
        site.get_with("/a", &[("if-match", &tags(1_000))]).await.status,
        412
    );
    let ranges = format!("bytes={}0-1", " ,".repeat(30_000));
    assert_eq!(site.get_with("/a", &[("range", &ranges)]).await.status, 416);
    let long = format!("/folder?{}", "q".repeat(8_000));
    assert_eq!(
        site.get(&long).await.field("location"),
        format!("./{}/", "folder") + &long["/folder".len()..]
    );
    assert_eq!(site.get(&(long + "q")).await.status, 414);
    let slashes = format!("{}a", "/".repeat(5_000));
    assert_eq!(site.get(&slashes).await.status, 404);
}
