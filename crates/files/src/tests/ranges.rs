//! Range requests against files: single parts, many parts, and refusals.

use std::fs::File;
use std::time::{Duration, SystemTime};

use super::*;
use crate::settings::Limits;

/// Both ways to a body: read whole by the opening job, and read in chunks.
fn sites() -> [Site; 2] {
    let chunked = Settings {
        limits: Limits {
            whole_body_bytes: 0,
            one_frame_bytes: 100,
            chunk_bytes: 100,
            ..Limits::DEFAULT
        },
        ..Settings::default()
    };
    [Site::new(), Site::with(|_| chunked)]
}

#[tokio::test]
async fn one_range_is_sent_as_it_is() {
    for site in sites() {
        let content = pattern(1000);
        site.write("file.txt", &content);
        for (range, from, to) in [
            ("bytes=0-0", 0, 1),
            ("bytes=0-499", 0, 500),
            ("bytes=333-", 333, 1000),
            ("bytes=-1", 999, 1000),
            ("bytes=-5000", 0, 1000),
            ("bytes=999-99999999999999999999999", 999, 1000),
            ("bytes=5000-,1-2", 1, 3),
        ] {
            let answer = site.get_with("/file.txt", &[("range", range)]).await;
            assert_eq!(answer.status, 206, "{range}");
            assert!(answer.body == content[from..to], "{range}");
            assert_eq!(
                answer.field("content-range"),
                format!("bytes {from}-{}/1000", to - 1)
            );
            assert_eq!(answer.field("content-length"), (to - from).to_string());
            assert_eq!(answer.field("content-type"), "text/plain; charset=utf-8");
            assert_eq!(answer.field("accept-ranges"), "bytes");
            assert!(!answer.field("etag").is_empty());
        }
    }
}

#[tokio::test]
async fn a_range_that_means_nothing_is_ignored() {
    let site = Site::new();
    site.write("file", pattern(1000));
    for range in ["bytes=5-4", "lines=1-2", "bytes=x", ""] {
        let answer = site.get_with("/file", &[("range", range)]).await;
        assert_eq!(answer.status, 200, "{range}");
        assert_eq!(answer.body.len(), 1000);
        assert_eq!(answer.field("content-range"), "");
    }
    let twice = [("range", "bytes=0-1"), ("range", "bytes=2-3")];
    assert_eq!(site.get_with("/file", &twice).await.status, 200);
}

#[tokio::test]
async fn head_has_no_ranges() {
    let site = Site::new();
    site.write("file", pattern(1000));
    let range = [("range", "bytes=0-1")];
    let answer = site.ask(Method::HEAD, "/file", &range).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.field("content-length"), "1000");
}

#[tokio::test]
async fn a_range_beyond_the_file_is_told_the_length() {
    let site = Site::new();
    site.write("file", pattern(1000));
    site.write("empty", "");
    let many = (0..17).map(|i| format!("{i}-{i}")).collect::<Vec<_>>().join(",");
    for (path, range, length) in [
        ("/file", "bytes=1000-", 1000),
        ("/file", "bytes=-0", 1000),
        ("/file", "bytes=0-,0-,0-", 1000),
        ("/file", &format!("bytes={many}"), 1000),
        ("/empty", "bytes=0-", 0),
    ] {
        let answer = site.get_with(path, &[("range", range)]).await;
        assert_eq!(answer.status, 416, "{path} {range}");
        assert_eq!(
            answer.field("content-range"),
            format!("bytes */{length}"),
            "{range}"
        );
        assert_eq!(answer.text(), "Range Not Satisfiable\n");
    }
}

#[tokio::test]
async fn a_suffix_of_an_empty_file_is_the_empty_file() {
    let site = Site::new();
    site.write("empty", "");
    let answer = site.get_with("/empty", &[("range", "bytes=-5")]).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.field("content-length"), "0");
}

#[tokio::test]
async fn many_ranges_are_parts_of_a_multipart_body() {
    for site in sites() {
        let content = pattern(1000);
        site.write("file.png", &content);
        let ranges = [(900, 1000), (0, 1), (100, 450)];
        let range = [("range", "bytes=-100, 0-0,100-449")];
        let answer = site.get_with("/file.png", &range).await;
        assert_eq!(answer.status, 206);
        assert_eq!(answer.field("content-range"), "");
        assert_eq!(answer.field("content-length"), answer.body.len().to_string());
        let boundary = answer
            .field("content-type")
            .strip_prefix("multipart/byteranges; boundary=")
            .unwrap();
        let mut expected = Vec::new();
        for (from, to) in ranges {
            let head = format!(
                "\r\n--{boundary}\r\ncontent-type: image/png\r\ncontent-range: bytes {from}-{}/1000\r\n\r\n",
                to - 1
            );
            expected.extend_from_slice(head.as_bytes());
            expected.extend_from_slice(&content[from..to]);
        }
        expected.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
        assert!(answer.body == expected);
    }
}

#[tokio::test]
async fn ranges_that_come_to_one_are_no_multipart() {
    let site = Site::new();
    site.write("file", pattern(1000));
    for (range, content_range) in [
        ("bytes=0-9,5-19", "bytes 0-19/1000"),
        ("bytes=0-9,2000-", "bytes 0-9/1000"),
    ] {
        let answer = site.get_with("/file", &[("range", range)]).await;
        assert_eq!(answer.status, 206);
        assert_eq!(answer.field("content-range"), content_range);
    }
}

#[tokio::test]
async fn if_range_decides_between_the_part_and_the_whole() {
    let site = Site::new();
    site.write("file", pattern(1000));
    // A date of this minute is no strong validator.
    let first = site.get("/file").await;
    let fields = [("range", "bytes=0-9"), ("if-range", first.field("last-modified"))];
    assert_eq!(site.get_with("/file", &fields).await.status, 200);
    let file = File::options().write(true).open(site.path("file")).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(3_600))
        .unwrap();
    let first = site.get("/file").await;
    let (etag, modified) = (first.field("etag"), first.field("last-modified"));
    for (condition, status) in [
        (etag, 206),
        (modified, 206),
        (&format!("W/{etag}"), 200),
        ("\"other\"", 200),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 200),
        ("Sun, 06 Nov 2094 08:49:37 GMT", 200),
        ("rubbish", 200),
    ] {
        let fields = [("range", "bytes=0-9"), ("if-range", condition)];
        assert_eq!(
            site.get_with("/file", &fields).await.status,
            status,
            "{condition}"
        );
    }
    // An unsatisfiable range counts only if it counts at all.
    let fields = [("range", "bytes=5000-"), ("if-range", "\"other\"")];
    assert_eq!(site.get_with("/file", &fields).await.status, 200);
}

#[tokio::test]
async fn preconditions_come_before_ranges() {
    let site = Site::new();
    site.write("file", pattern(1000));
    let first = site.get("/file").await;
    let etag = first.field("etag");
    for (name, value, range, status) in [
        ("if-none-match", etag, "bytes=0-9", 304),
        ("if-none-match", etag, "bytes=5000-", 304),
        ("if-match", "\"other\"", "bytes=0-9", 412),
        ("if-match", etag, "bytes=0-9", 206),
        ("if-match", etag, "bytes=5000-", 416),
    ] {
        let fields = [(name, value), ("range", range)];
        assert_eq!(
            site.get_with("/file", &fields).await.status,
            status,
            "{name} {range}"
        );
    }
}

#[tokio::test]
async fn a_part_of_a_file_that_shrank_fails_as_well() {
    let [_, site] = sites();
    site.write("file", pattern(1000));
    let fields = [("range", "bytes=0-9,500-999")];
    let mut body = site
        .call(request(Method::GET, "/file", &fields, Empty::new()))
        .await
        .into_body();
    let file = std::fs::File::options()
        .write(true)
        .open(site.path("file"))
        .unwrap();
    file.set_len(600).unwrap();
    let mut failed = false;
    while let Some(frame) = body.frame().await {
        failed |= frame.is_err();
    }
    assert!(failed);
}

#[tokio::test]
async fn bodies_that_nobody_reads_hold_little() {
    let site = Site::new();
    let content = pattern(300_000);
    site.write("long", &content);
    let buffers = &site.files.shared_for_tests().buffers;
    let mut held = Vec::new();
    let fields = [
        vec![],
        vec![("range", "bytes=7-60006")],
        vec![("range", "bytes=0-9999,20000-49999")],
    ];
    for fields in fields.iter().cycle().take(300) {
        let request = request(Method::GET, "/long", fields, Empty::<Bytes>::new());
        held.push(site.call(request).await);
    }
    let first_chunk_bytes = Limits::DEFAULT.first_chunk_bytes;
    // Bodies of several ranges begin with what is said of the first.
    assert_eq!(buffers.used(), (200 * first_chunk_bytes, 0));
    // Short chunks or long, the bodies are what was asked for.
    let many = Answer::read(held.remove(299)).await;
    assert_eq!(many.field("content-length"), many.body.len().to_string());
    let range = Answer::read(held.remove(298)).await;
    assert!(range.body == content[7..60_007]);
    let whole = Answer::read(held.remove(297)).await;
    assert!(whole.body == content);
    held.clear();
    assert_eq!(buffers.used(), (0, 0));
}
