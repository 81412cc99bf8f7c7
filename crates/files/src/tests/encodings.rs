//! Files in encodings: siblings that lie beside them, and compression while they are sent.

use std::fs::File;
use std::io::Read as _;
use std::time::Duration;

use super::*;
use crate::settings::Limits;

const ALL: (&str, &str) = ("accept-encoding", "gzip, deflate, br, zstd");

fn precompressed(_: &Path) -> Settings {
    Settings {
        precompressed: true,
        limits: Limits {
            cache_after: Duration::ZERO,
            ..Limits::DEFAULT
        },
        ..Settings::default()
    }
}

fn compressing(_: &Path) -> Settings {
    Settings {
        compress: true,
        limits: Limits {
            cache_after: Duration::ZERO,
            ..Limits::DEFAULT
        },
        ..Settings::default()
    }
}

/// Longer than an entry is believed without a look.
async fn a_moment() {
    tokio::time::sleep(Duration::from_millis(5)).await;
}

#[tokio::test]
async fn the_sibling_that_the_client_prefers_is_sent_with_fields_of_its_own() {
    for length in [100, 300_000] {
        let site = Site::with(precompressed);
        site.write("a.js", pattern(length));
        for (suffix, byte) in [("br", b'b'), ("zst", b'z'), ("gz", b'g')] {
            site.write(&format!("a.js.{suffix}"), vec![byte; length / 2]);
        }
        let mut tags = Vec::new();
        for (accept, coding, byte) in [
            ("gzip, deflate, br, zstd", "br", b'b'),
            ("zstd;q=0.9, br;q=0.8", "zstd", b'z'),
            ("gzip", "gzip", b'g'),
            ("identity;q=1, gzip;q=0.5", "", 0),
            ("deflate", "", 0),
        ] {
            let fields = [("accept-encoding", accept)];
            // From the disk, then from the cache.
            for _ in 0..2 {
                let answer = site.get_with("/a.js", &fields).await;
                assert_eq!(answer.status, 200);
                assert_eq!(answer.field("content-encoding"), coding, "{accept}");
                assert_eq!(answer.field("content-type"), "text/javascript; charset=utf-8");
                assert_eq!(answer.field("vary"), "accept-encoding");
                assert_eq!(answer.field("accept-ranges"), "bytes");
                let expected = match coding {
                    "" => pattern(length),
                    _ => vec![byte; length / 2],
                };
                assert!(answer.body == expected, "{accept}");
                tags.push(answer.field("etag").to_owned());

                let head = site.ask(Method::HEAD, "/a.js", &fields).await;
                for field in [
                    "content-encoding",
                    "content-length",
                    "etag",
                    "vary",
                    "last-modified",
                ] {
                    assert_eq!(head.field(field), answer.field(field), "{accept} {field}");
                }
                let part = site.get_with("/a.js", &[fields[0], ("range", "bytes=3-5")]).await;
                assert_eq!(part.status, 206);
                assert_eq!(
                    part.field("content-range"),
                    format!("bytes 3-5/{}", expected.len())
                );
                assert_eq!(part.field("content-encoding"), coding);
                assert!(part.body == expected[3..6]);
                let tag = answer.field("etag");
                let same = site.get_with("/a.js", &[fields[0], ("if-none-match", tag)]).await;
                assert_eq!(same.status, 304);
                assert_eq!(same.field("vary"), "accept-encoding");
            }
        }
        tags.sort();
        tags.dedup();
        assert_eq!(tags.len(), 4, "a strong tag for each representation: {tags:?}");
        // A sibling is a file too, and has none itself.
        let answer = site.get_with("/a.js.gz", &[ALL]).await;
        assert_eq!((answer.field("content-encoding"), answer.field("vary")), ("", ""));
        assert_eq!(answer.field("content-type"), "application/gzip");
    }
}

#[tokio::test]
async fn siblings_are_not_used_unless_asked_for() {
    let site = Site::new();
    site.write("a.js", "plain");
    site.write("a.js.br", "br");
    let answer = site.get_with("/a.js", &[ALL]).await;
    assert_eq!(answer.text(), "plain");
    assert_eq!(answer.field("vary"), "");
}

#[tokio::test]
async fn a_sibling_alone_is_no_file_and_an_older_one_is_not_sent() {
    let site = Site::with(precompressed);
    site.write("alone.br", "br");
    assert_eq!(site.get_with("/alone", &[ALL]).await.status, 404);
    site.write("a.js", "plain");
    site.write("a.js.br", "br");
    site.age("a.js.br", 100);
    assert_eq!(site.get_with("/a.js", &[ALL]).await.text(), "plain");
    site.write("index.html", "plain");
    site.write("index.html.gz", "gz");
    assert_eq!(site.get_with("/", &[ALL]).await.text(), "gz");
}

#[cfg(unix)]
#[tokio::test]
async fn siblings_that_come_change_and_go_are_noticed() {
    let site = Site::with(precompressed);
    site.write("a.js", "plain");
    site.age("a.js", 100);
    assert_eq!(site.get_with("/a.js", &[ALL]).await.text(), "plain");
    site.write("a.js.br", "one");
    for _ in 0..500 {
        if site.get_with("/a.js", &[ALL]).await.text() == "one" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(site.get_with("/a.js", &[ALL]).await.text(), "one");
    // What is not sent any more is known at once.
    site.write("a.js.br", "other");
    a_moment().await;
    assert_eq!(site.get_with("/a.js", &[ALL]).await.text(), "other");
    site.age("a.js.br", 200);
    a_moment().await;
    assert_eq!(
        site.get_with("/a.js", &[ALL]).await.text(),
        "plain",
        "it is older now"
    );
    site.age("a.js.br", 50);
    until_sent(&site, "other").await;
    site.write("a.js", "newer");
    a_moment().await;
    assert_eq!(
        site.get_with("/a.js", &[ALL]).await.text(),
        "newer",
        "the sibling is of the file before"
    );
    site.age("a.js", 100);
    until_sent(&site, "other").await;
    std::fs::remove_file(site.path("a.js.br")).unwrap();
    a_moment().await;
    assert_eq!(site.get_with("/a.js", &[ALL]).await.text(), "newer");
}

/// Asks until the siblings are looked for again.
async fn until_sent(site: &Site, text: &str) {
    for _ in 0..500 {
        if site.get_with("/a.js", &[ALL]).await.text() == text {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{text} is never sent");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn siblings_are_found_without_a_job_for_each_request() {
    let site = Site::with(precompressed);
    site.write("none.js", "plain");
    site.write("some.js", "plain");
    site.write("some.js.gz", "gz");
    site.write("long.js", pattern(200_000));
    site.write("long.js.br", pattern(100_000));
    for _ in 0..100 {
        for (path, bytes) in [("/none.js", 5), ("/some.js", 2), ("/long.js", 100_000)] {
            assert_eq!(site.get_with(path, &[ALL]).await.body.len(), bytes, "{path}");
        }
    }
    // Some file systems remember no names that are not there; there it is one job each second.
    let jobs = site.files.shared_for_tests().jobs.begun();
    assert!(jobs <= 30, "{jobs} jobs for 300 requests");
}

fn unpacked(answer: &Answer) -> Vec<u8> {
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(&answer.body[..])
        .read_to_end(&mut plain)
        .unwrap();
    plain
}

#[tokio::test]
async fn a_compressible_file_is_compressed_while_it_is_sent() {
    let site = Site::with(compressing);
    for length in [1_024, 50_000, 5_000_000] {
        site.write("a.txt", pattern(length));
        a_moment().await;
        for _ in 0..2 {
            let answer = site.get_with("/a.txt", &[ALL]).await;
            assert_eq!(answer.field("content-encoding"), "gzip", "{length}");
            assert_eq!(answer.field("vary"), "accept-encoding");
            assert_eq!(
                (answer.field("content-length"), answer.field("accept-ranges")),
                ("", "")
            );
            assert!(
                answer.field("etag").starts_with("W/\""),
                "{}",
                answer.field("etag")
            );
            assert!(answer.body.len() < length);
            assert!(unpacked(&answer) == pattern(length));
            let tag = answer.field("etag").to_owned();
            let same = site.get_with("/a.txt", &[ALL, ("if-none-match", &tag)]).await;
            assert_eq!((same.status.as_u16(), same.field("etag")), (304, tag.as_str()));
            let head = site.ask(Method::HEAD, "/a.txt", &[ALL]).await;
            for field in [
                "content-encoding",
                "content-length",
                "etag",
                "vary",
                "content-type",
            ] {
                assert_eq!(head.field(field), answer.field(field), "{field}");
            }
        }
        let part = site.get_with("/a.txt", &[ALL, ("range", "bytes=1-9")]).await;
        assert_eq!((part.status.as_u16(), part.field("content-encoding")), (206, ""));
        assert!(part.body == pattern(length)[1..10]);
        let plain = site.get("/a.txt").await;
        assert_eq!(
            (plain.field("content-encoding"), plain.field("vary")),
            ("", "accept-encoding")
        );
        assert!(plain.body == pattern(length));
    }
}

#[tokio::test]
async fn what_would_not_become_shorter_is_sent_as_it_is() {
    let site = Site::with(|root| Settings {
        precompressed: true,
        ..compressing(root)
    });
    site.write("short.txt", pattern(1_023));
    site.write("a.png", pattern(50_000));
    site.write("a.bin", pattern(50_000));
    site.write("b.txt", pattern(50_000));
    site.write("b.txt.br", "a sibling");
    for (path, coding) in [
        ("/short.txt", ""),
        ("/a.png", ""),
        ("/a.bin", ""),
        ("/b.txt", "br"),
    ] {
        let answer = site.get_with(path, &[ALL]).await;
        assert_eq!(answer.field("content-encoding"), coding, "{path}");
        assert_ne!(answer.field("content-length"), "", "{path}");
    }
    let off = Site::new();
    off.write("b.txt", pattern(50_000));
    assert_eq!(off.get_with("/b.txt", &[ALL]).await.field("content-encoding"), "");
}

#[tokio::test]
async fn so_many_responses_are_compressed_at_a_time_and_others_are_sent_as_they_are() {
    let site = Site::with(|root| Settings {
        limits: Limits {
            compressed: 1,
            ..Limits::DEFAULT
        },
        ..compressing(root)
    });
    site.write("a.txt", pattern(500_000));
    let ask = || site.call(request(Method::GET, "/a.txt", &[ALL], Empty::new()));
    let held = ask().await;
    assert_eq!(held.headers()["content-encoding"], "gzip");
    let other = Answer::read(ask().await).await;
    assert_eq!(
        (other.field("content-encoding"), other.field("content-length")),
        ("", "500000")
    );
    drop(held);
    assert_eq!(ask().await.headers()["content-encoding"], "gzip");
}

#[tokio::test]
async fn a_file_that_becomes_shorter_while_it_is_compressed_is_an_error() {
    let site = Site::with(compressing);
    site.write("a.txt", pattern(5_000_000));
    let response = site
        .call(request(Method::GET, "/a.txt", &[ALL], Empty::new()))
        .await;
    File::options()
        .write(true)
        .open(site.path("a.txt"))
        .unwrap()
        .set_len(10)
        .unwrap();
    assert!(response.into_body().collect().await.is_err());
}

#[tokio::test]
async fn ranges_of_files_are_not_handed_over_when_they_are_compressed() {
    let site =
        Site::over(|root| Files::<fullbore::body::Chunk>::open_with_ranges(root, compressing(root)).unwrap());
    std::fs::write(site.path("a.txt"), pattern(5_000_000)).unwrap();
    let response = site
        .call(request(Method::GET, "/a.txt", &[ALL], Empty::<Bytes>::new()))
        .await;
    let answer = Answer::read(response).await;
    assert!(unpacked(&answer) == pattern(5_000_000));
}

#[tokio::test]
async fn a_listing_is_compressed_as_a_file_is() {
    let site = Site::with(|root| Settings {
        listing: true,
        ..compressing(root)
    });
    site.write("a.txt", "x");
    let plain = site.get("/").await;
    assert_eq!(plain.field("content-encoding"), "");
    let vary = |answer: &Answer| answer.headers.get_all("vary").iter().cloned().collect::<Vec<_>>();
    assert_eq!(vary(&plain), ["accept", "accept-encoding"]);
    let answer = site.get_with("/", &[ALL]).await;
    assert_eq!(answer.field("content-encoding"), "gzip");
    assert_eq!(vary(&answer), ["accept", "accept-encoding"]);
    assert!(unpacked(&answer) == plain.body);
    assert!(answer.body.len() < plain.body.len());
    let tag = answer.field("etag").to_owned();
    assert_eq!(tag, format!("W/{}", plain.field("etag")));
    let same = site.get_with("/", &[ALL, ("if-none-match", &tag)]).await;
    assert_eq!((same.status.as_u16(), same.field("etag")), (304, tag.as_str()));
    assert_eq!(vary(&same), ["accept", "accept-encoding"]);
}

#[tokio::test]
async fn a_sibling_is_not_compressed_again() {
    let site = Site::with(|root| Settings {
        compress: true,
        ..precompressed(root)
    });
    site.write("a.js", pattern(300_000));
    let sibling = vec![b'b'; 100_000];
    site.write("a.js.br", &sibling);
    let answer = site.get_with("/a.js", &[ALL]).await;
    assert_eq!(answer.field("content-encoding"), "br");
    assert!(answer.body == sibling);
    // A client that does not take the sibling is sent the file, compressed.
    let answer = site.get_with("/a.js", &[("accept-encoding", "gzip")]).await;
    assert_eq!(answer.field("content-encoding"), "gzip");
}
