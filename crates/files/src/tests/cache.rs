//! Small files in memory: what is kept, and that nothing stale is ever sent.

use std::time::Duration;

use http::StatusCode;

use crate::settings::Limits;

use super::{Answer, Settings, Site, pattern};

/// A site that keeps a file at once, however young it is.
fn site(cache_bytes: usize) -> Site {
    Site::with(|_| Settings {
        limits: Limits {
            cache_bytes,
            cache_after: Duration::ZERO,
            ..Limits::DEFAULT
        },
        ..Settings::default()
    })
}

/// Longer than an entry is believed without a look.
async fn a_moment() {
    tokio::time::sleep(Duration::from_millis(5)).await;
}

/// Whether two answers have the same to say of a file, and all there is to say.
#[cfg(unix)]
fn are_described_alike(one: &Answer, other: &Answer) {
    for field in [
        "content-type",
        "content-length",
        "etag",
        "last-modified",
        "accept-ranges",
    ] {
        assert_eq!(one.field(field), other.field(field), "{field}");
        assert_ne!(one.field(field), "", "{field}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_small_file_is_kept_and_served_again_with_all_its_fields() {
    let site = site(1 << 20);
    site.write("a.txt", "hello");
    let first = site.get("/a.txt").await;
    assert_eq!(site.files.shared_for_tests().cache.len(), 1);
    a_moment().await;
    let again = site.get("/a.txt").await;
    assert_eq!(again.text(), "hello");
    are_described_alike(&first, &again);
    let part = site.get_with("/a.txt", &[("range", "bytes=1-3")]).await;
    assert_eq!((part.status, part.text()), (StatusCode::PARTIAL_CONTENT, "ell"));
    let parts = site.get_with("/a.txt", &[("range", "bytes=0-0,4-4")]).await;
    assert!(parts.text().contains("bytes 4-4/5"), "{}", parts.text());
    let none = site
        .get_with("/a.txt", &[("if-none-match", first.field("etag"))])
        .await;
    assert_eq!(none.status, StatusCode::NOT_MODIFIED);
}

#[tokio::test]
async fn a_file_that_changes_is_sent_as_it_is() {
    let site = site(1 << 20);
    // The same length each time: only the times and the inode tell.
    for content in ["first", "other", "third"] {
        site.write("a.txt", content);
        a_moment().await;
        assert_eq!(site.get("/a.txt").await.text(), content);
        a_moment().await;
        assert_eq!(site.get("/a.txt").await.text(), content);
    }
    site.write("b.txt", "moved");
    std::fs::rename(site.path("b.txt"), site.path("a.txt")).unwrap();
    a_moment().await;
    assert_eq!(site.get("/a.txt").await.text(), "moved");
    std::fs::remove_file(site.path("a.txt")).unwrap();
    a_moment().await;
    assert_eq!(site.get("/a.txt").await.status, StatusCode::NOT_FOUND);
}

#[cfg(unix)]
#[tokio::test]
async fn a_name_that_comes_to_lead_out_of_the_root_is_not_followed() {
    let site = site(1 << 20);
    site.write("a/b.txt", "inside");
    assert_eq!(site.get("/a/b.txt").await.text(), "inside");
    std::fs::create_dir(site.outside.join("a")).unwrap();
    std::fs::write(site.outside.join("a/b.txt"), "secret").unwrap();
    std::fs::remove_dir_all(site.path("a")).unwrap();
    std::os::unix::fs::symlink(site.outside.join("a"), site.path("a")).unwrap();
    a_moment().await;
    assert_eq!(site.get("/a/b.txt").await.status, StatusCode::FORBIDDEN);
}

/// Too long for its octets to be kept.
#[cfg(unix)]
#[tokio::test]
async fn of_a_long_file_what_describes_it_is_kept_and_held_against_what_is_opened() {
    let site = site(1 << 20);
    let content = pattern(200_000);
    site.write("long.html", &content);
    let first = site.get("/long.html").await;
    let shared = site.files.shared_for_tests();
    assert_eq!((shared.cache.len(), shared.descriptors.held()), (1, 0));
    assert!(shared.cache.bytes() < 2_000, "no octets are");
    let again = site.get("/long.html").await;
    assert!(first.body == content && again.body == content);
    are_described_alike(&first, &again);
    let part = site.get_with("/long.html", &[("range", "bytes=7-199998")]).await;
    assert!(part.status == StatusCode::PARTIAL_CONTENT && part.body == content[7..199_999]);

    // As long as before; at once, for no entry of this kind is believed.
    let other: Vec<u8> = content.iter().map(|octet| octet ^ 1).collect();
    site.write("other", &other);
    // Files that are written within one tick of the file system's clock have the same time.
    site.age("other", 1);
    std::fs::rename(site.path("other"), site.path("long.html")).unwrap();
    let changed = site.get("/long.html").await;
    assert!(changed.body == other);
    assert_ne!(changed.field("etag"), first.field("etag"));
    assert_eq!(site.get("/long.html").await.field("etag"), changed.field("etag"));
    // And one that is short now is kept whole.
    site.write("long.html", "short");
    assert_eq!(site.get("/long.html").await.text(), "short");
    a_moment().await;
    assert_eq!(site.get("/long.html").await.text(), "short");
    std::fs::remove_file(site.path("long.html")).unwrap();
    a_moment().await;
    assert_eq!(site.get("/long.html").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_file_that_was_changed_just_now_is_not_kept() {
    let site = Site::new();
    site.write("a.txt", "hello");
    assert_eq!(site.get("/a.txt").await.text(), "hello");
    assert_eq!(site.files.shared_for_tests().cache.len(), 0);
}

#[tokio::test]
async fn no_more_is_kept_than_allowed() {
    let site = site(256 << 10);
    for at in 0..100 {
        let name = format!("{at}");
        site.write(&name, pattern(10_000 + at));
        assert_eq!(site.get(&format!("/{name}")).await.body.len(), 10_000 + at);
        assert!(site.files.shared_for_tests().cache.bytes() <= 256 << 10);
    }
}

#[cfg(unix)]
#[tokio::test]
async fn an_entry_is_found_by_the_path_of_its_request_until_its_file_is_another() {
    let site = site(1 << 20);
    site.write("a.txt", "hello");
    site.get("/a.txt").await;
    let shared = site.files.shared_for_tests();
    let find = |path: &str| shared.cache.get(&shared.root, &shared.watch, path);
    for _ in 0..2 {
        let entry = find("/a.txt").expect("it was kept");
        assert_eq!(entry.body.as_deref(), Some(&b"hello"[..]));
        a_moment().await;
    }
    assert!(find("/b.txt").is_none());
    site.write("a.txt", "other one");
    a_moment().await;
    assert!(find("/a.txt").is_none());
    assert_eq!(shared.cache.len(), 0, "it is forgotten");
}

#[tokio::test]
async fn an_entry_counts_with_its_octets_its_two_paths_and_512_bytes() {
    let site = site(1 << 20);
    site.write("a.txt", "hello");
    site.get("/%61.txt").await;
    assert_eq!(site.files.shared_for_tests().cache.bytes(), 5 + 8 + 5 + 512);
}

#[tokio::test]
async fn with_no_room_nothing_is_kept() {
    let site = site(0);
    site.write("a.txt", "hello");
    for _ in 0..2 {
        assert_eq!(site.get("/a.txt").await.text(), "hello");
        assert_eq!(site.files.shared_for_tests().cache.len(), 0);
    }
}
