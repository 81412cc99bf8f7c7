//! POST of multipart/form-data: what browsers and `curl -F` send, and what others might.

use crate::Uploads;
use crate::settings::Limits;

use super::uploads::until;
use super::*;

const BROWSER: (&str, &str) = ("accept", "text/html,application/xhtml+xml,*/*;q=0.8");

fn settings(root: &Path) -> Settings {
    Settings {
        uploads: Uploads::Directory(root.to_owned()),
        limits: Limits {
            batch_bytes: 100,
            ..Limits::DEFAULT
        },
        min_free_bytes: Some(0),
        ..Settings::default()
    }
}

/// A form with these files: name and content.
fn form(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, content) in files {
        body.extend(
            format!(
                "--edge\r\ncontent-disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\
                 content-type: application/octet-stream\r\n\r\n"
            )
            .bytes(),
        );
        body.extend(*content);
        body.extend(b"\r\n");
    }
    body.extend(b"--edge--\r\n");
    body
}

impl Site {
    /// Sends a form in frames of this many bytes.
    async fn submit(&self, path: &str, fields: &[(&str, &str)], body: &[u8], frame: usize) -> Answer {
        let steps = body
            .chunks(frame.max(1))
            .map(|piece| Step::Data(Bytes::copy_from_slice(piece)));
        let fields = [&[("content-type", "multipart/form-data; boundary=edge")], fields].concat();
        self.send(Method::POST, path, &fields, Script::of(steps)).await
    }
}

#[tokio::test]
async fn a_part_of_a_form_is_refused_and_never_stored_as_the_whole() {
    let site = Site::with(settings);
    let body = form(&[("a", b"one")]);
    let refused = site.submit("/", &[("upload-complete", "?0")], &body, 100).await;
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert!(
        refused.text().contains("upload-complete: ?0"),
        "{}",
        refused.text()
    );
    assert!(site.names().is_empty());
    let stored = site.submit("/", &[("upload-complete", "?1")], &body, 100).await;
    assert_eq!(stored.status, 201, "{}", stored.text());
    assert_eq!(site.names(), ["a"]);
}

#[tokio::test]
async fn the_files_of_a_form_are_stored_in_the_folder_of_its_path() {
    let site = Site::with(settings);
    let long = pattern(5_000);
    for (at, frame) in [1, 7, 100, 100_000].into_iter().enumerate() {
        let files: [(&str, &[u8]); 3] = [("a b.txt", b"one"), ("empty", b""), ("sub/long", &long)];
        let path = format!("/folder/{at}/");
        let answer = site.submit(&path, &[], &form(&files), frame).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
        assert_eq!(
            answer.text(),
            "a b.txt: 3 bytes stored\nempty: 0 bytes stored\nsub/long: 5000 bytes stored\n"
        );
        for (name, content) in files {
            let stored = std::fs::read(site.path(&format!("folder/{at}/{name}"))).unwrap();
            assert!(stored == content, "{name} in frames of {frame}");
        }
    }
    // A path without its slash is the same folder.
    let answer = site.submit("/folder", &[], &form(&[("x", b"1")]), 9).await;
    assert_eq!(answer.status, 201);
    assert!(site.path("folder/x").exists());
}

#[tokio::test]
async fn a_browser_goes_back_to_the_listing_or_gets_a_page() {
    for listing in [true, false] {
        let site = Site::with(|root| Settings {
            listing,
            ..settings(root)
        });
        for (path, back) in [("/", "./"), ("/a%20b/", "./"), ("/a%20b", "./a%20b/")] {
            let body = form(&[(&format!("{}-{listing}", path.len()), b"one")]);
            let answer = site.submit(path, &[BROWSER], &body, 50).await;
            if listing {
                assert_eq!(answer.status, 303);
                assert_eq!(answer.field("location"), back, "{path}");
            } else {
                assert_eq!(answer.status, 201);
                assert_eq!(answer.field("content-type"), "text/html; charset=utf-8");
                assert!(
                    answer.text().contains(&format!("href=\"{back}\"")),
                    "{}",
                    answer.text()
                );
            }
        }
    }
}

#[tokio::test]
async fn a_file_that_exists_is_kept_and_the_others_are_stored() {
    for overwrite in [false, true] {
        let site = Site::with(|root| Settings {
            overwrite,
            ..settings(root)
        });
        site.write("b", "old");
        let files: [(&str, &[u8]); 4] = [("a", b"1"), ("b", b"new"), (".hidden", b"2"), ("<c>", b"3")];
        let answer = site.submit("/", &[BROWSER], &form(&files), 30).await;
        let page = answer.text();
        assert!(page.contains("<li>a: 1 bytes stored</li>"), "{page}");
        assert!(page.contains("<li>&lt;c&gt;: 1 bytes stored</li>"), "{page}");
        assert!(
            page.contains("<li>.hidden: a name in this path is not allowed"),
            "{page}"
        );
        assert!(
            answer
                .field("content-security-policy")
                .starts_with("default-src 'none';")
        );
        assert_eq!(answer.field("x-content-type-options"), "nosniff");
        match overwrite {
            true => assert_eq!(answer.status, 400),
            false => assert_eq!(answer.status, 409),
        }
        let kept = std::fs::read_to_string(site.path("b")).unwrap();
        assert_eq!(kept, if overwrite { "new" } else { "old" });
        assert_eq!(site.names(), ["<c>", "a", "b"]);
    }
}

#[tokio::test]
async fn a_form_that_is_malformed_or_breaks_off_leaves_no_part() {
    let site = Site::with(settings);
    let whole = form(&[("a", &[7; 500])]);
    let long_head = format!("--edge\r\nx: {}", "y".repeat(20_000));
    for body in [
        &whole[..whole.len() - 20],
        &whole[..300],
        &whole[..40],
        b"",
        b"--edge",
        b"--other\r\n\r\n\r\n--other--\r\n",
        b"no form at all",
        b"--edge\r\n\r\n",
        b"--edge\r\ncontent-disposition: form-data\r\n\r\nx\r\n--edge--\r\n",
        long_head.as_bytes(),
        &[b'-'; 50_000],
    ] {
        for frame in [3, 1_000] {
            let answer = site.submit("/", &[], body, frame).await;
            assert_eq!(answer.status, 400, "{:?}", String::from_utf8_lossy(body));
            assert!(!answer.text().is_empty());
        }
    }
    let fields = [("content-type", "multipart/form-data")];
    let answer = site.send(Method::POST, "/", &fields, Script::text("x")).await;
    assert_eq!(answer.status, 400, "no boundary");
    let steps = [Step::Data(Bytes::copy_from_slice(&whole[..400])), Step::Fail];
    let fields = [("content-type", "multipart/form-data; boundary=edge")];
    let answer = site.send(Method::POST, "/", &fields, Script::of(steps)).await;
    assert_eq!(answer.status, 400);
    assert_eq!(site.names(), Vec::<String>::new());
}

#[tokio::test]
async fn a_form_has_limits_on_its_bytes_and_its_parts() {
    let site = Site::with(|root| Settings {
        max_upload_bytes: 1_000,
        limits: Limits {
            form_parts: 3,
            ..Limits::DEFAULT
        },
        ..settings(root)
    });
    let answer = site.submit("/", &[], &form(&[("a", &[7; 1_000])]), 100).await;
    assert_eq!(answer.status, 413, "{}", answer.text());
    let announced = [("content-length", "1001")];
    let answer = site.submit("/", &announced, &form(&[]), 100).await;
    assert_eq!(answer.status, 413);
    assert_eq!(site.names(), Vec::<String>::new());
    let files: [(&str, &[u8]); 4] = [("a", b""), ("b", b""), ("c", b""), ("d", b"")];
    let answer = site.submit("/", &[], &form(&files), 100).await;
    assert_eq!(answer.status, 413);
    assert!(
        answer.text().ends_with("the form has more than 3 parts\n"),
        "{}",
        answer.text()
    );
    assert_eq!(site.names(), ["a", "b", "c"]);
}

#[tokio::test]
async fn a_form_holds_no_more_than_it_writes() {
    let site = Site::with(settings);
    let whole = form(&[("a", b"")]);
    let head = &whole[..whole.len() - "\r\n--edge--\r\n".len()];
    let steps = [
        Step::Data(Bytes::copy_from_slice(head)),
        Step::Data(Bytes::from(vec![7; 5_000])),
        Step::Stall,
    ];
    let fields = [("content-type", "multipart/form-data; boundary=edge")];
    let mut files = site.files.clone();
    let upload = tokio::spawn(files.call(request(Method::POST, "/", &fields, Script::of(steps))));
    // What has come is on its way to the disk while the rest is waited for.
    until(|| site.in_progress() == 1).await;
    upload.abort();
    assert!(upload.await.unwrap_err().is_cancelled());
    until(|| site.in_progress() == 0).await;
    assert_eq!(site.names(), Vec::<String>::new());
}

#[tokio::test]
async fn other_controls_of_a_form_are_ignored_and_one_without_a_file_is_told() {
    let site = Site::with(settings);
    let text = b"--edge\r\ncontent-disposition: form-data; name=\"note\"\r\n\r\nhello\r\n".to_vec();
    let answer = site
        .submit("/", &[], &[text.clone(), form(&[("a", b"1")])].concat(), 20)
        .await;
    assert_eq!(answer.status, 201);
    let answer = site
        .submit("/", &[], &[text, form(&[("", b"")])].concat(), 20)
        .await;
    assert_eq!(answer.status, 400);
    assert_eq!(answer.text(), "the form has no file\n");
    assert_eq!(site.names(), ["a"]);
}

#[tokio::test]
async fn a_form_on_a_page_of_another_site_is_refused() {
    let site = Site::with(settings);
    let fields = [("origin", "https://evil.example"), ("host", "127.0.0.1:8080")];
    let answer = site.submit("/", &fields, &form(&[("a", b"1")]), 100).await;
    assert_eq!(answer.status, 403);
    assert_eq!(site.names(), Vec::<String>::new());
}

#[tokio::test]
async fn a_file_of_a_form_with_a_name_that_answers_for_other_paths_is_skipped() {
    let site = Site::with(|root| Settings {
        listing: true,
        precompressed: true,
        ..settings(root)
    });
    site.write("app.js", "operator");
    let files: [(&str, &[u8]); 4] = [
        ("index.html", b"1"),
        ("app.js.gz", b"2"),
        ("b/Index.html", b"3"),
        ("c", b"4"),
    ];
    let answer = site.submit("/", &[], &form(&files), 30).await;
    assert_eq!(answer.status, 409, "{}", answer.text());
    assert_eq!(
        answer.text().matches("use another name").count(),
        3,
        "{}",
        answer.text()
    );
    assert_eq!(site.names(), ["app.js", "c"]);
}

#[tokio::test]
async fn the_answer_to_a_form_is_short_whatever_its_names_are_and_is_counted() {
    let site = Site::with(settings);
    let names: Vec<String> = (0..300)
        .map(|at| format!("{at}{}", "<'&".repeat(2_000)))
        .collect();
    let files: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &b""[..])).collect();
    let used = || site.files.shared_for_tests().pages.used();
    for (fields, most) in [(&[BROWSER][..], 20_000), (&[], 13_000)] {
        let answer = site.submit("/", fields, &form(&files), 50_000).await;
        assert_eq!(answer.status, 400);
        assert!(answer.body.len() < most, "{}", answer.body.len());
        let text = answer.text();
        assert!(text.contains(" more: 0 stored, "), "{text}");
        drop(answer);
        assert_eq!(used(), 0);
    }
}

#[tokio::test]
async fn a_form_beyond_the_memory_of_pages_is_answered_with_503() {
    let site = Site::with(|root| Settings {
        limits: Limits {
            all_listings_bytes: 48 * 1024,
            ..Limits::DEFAULT
        },
        ..settings(root)
    });
    let fields = [("content-type", "multipart/form-data; boundary=edge")];
    let mut files = site.files.clone();
    let stalled = files.call(request(Method::POST, "/", &fields, Script::of([Step::Stall])));
    let stalled = tokio::spawn(stalled);
    until(|| site.files.shared_for_tests().pages.used() > 0).await;
    let answer = site.submit("/", &[], &form(&[("a", b"1")]), 100).await;
    assert_eq!(answer.status, 503);
    assert_eq!(answer.field("retry-after"), "5");
    stalled.abort();
    assert!(stalled.await.unwrap_err().is_cancelled());
    let answer = site.submit("/", &[], &form(&[("a", b"1")]), 100).await;
    assert_eq!(answer.status, 201);
}
