//! Digests of files, for clients that ask whether they have them already.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

use super::*;

const WANT: (&str, &str) = ("want-repr-digest", "sha-256=10");

fn digest_of(content: &[u8]) -> String {
    format!("sha-256=:{}:", STANDARD.encode(Sha256::digest(content)))
}

#[tokio::test]
async fn head_tells_the_digest_of_a_file_that_is_asked_for() {
    let site = Site::with(|root| Settings {
        precompressed: true,
        ..taking_uploads(root)
    });
    // Around a piece, and around what is read at once.
    for length in [0, 1, 65_536, 65_537, 1 << 20, (3 << 20) + 1] {
        let content = pattern(length);
        site.write("dir/a b", &content);
        let told = site.ask(Method::HEAD, "/dir/a%20b", &[WANT]).await;
        assert_eq!(
            (told.status.as_u16(), told.field("repr-digest")),
            (200, &*digest_of(&content))
        );
        assert_eq!(told.field("content-length"), length.to_string());
    }
    site.write("dir/index.html", "index");
    let told = site.ask(Method::HEAD, "/dir/", &[WANT]).await;
    assert_eq!(told.field("repr-digest"), digest_of(b"index"));

    // Of nothing else: not asked for, not the file itself, or no file.
    let range = ("range", "bytes=0-1");
    let tag = told.field("etag").to_owned();
    let unchanged = ("if-none-match", &*tag);
    site.write("dir/index.html.gz", "coded");
    for (path, fields) in [
        ("/dir/a%20b", &[][..]),
        ("/dir/a%20b", &[("want-repr-digest", "sha-512=10")]),
        ("/dir/a%20b", &[("want-repr-digest", "sha-256=0")]),
        ("/dir/", &[WANT, unchanged]),
        ("/dir/index.html", &[WANT, ("accept-encoding", "gzip")]),
        ("/dir", &[WANT]),
        ("/none", &[WANT]),
    ] {
        let told = site.ask(Method::HEAD, path, fields).await;
        assert_eq!(told.field("repr-digest"), "", "{path} {fields:?}");
    }
    let whole = site.ask(Method::HEAD, "/dir/a%20b", &[WANT, range]).await;
    assert_eq!(whole.field("repr-digest"), digest_of(&pattern((3 << 20) + 1)));
    let got = site.get_with("/dir/a%20b", &[WANT]).await;
    assert_eq!(got.field("repr-digest"), "");

    // A server that takes no uploads reads no file for a head.
    let closed = Site::new();
    closed.write("a", "1");
    let told = closed.ask(Method::HEAD, "/a", &[WANT]).await;
    assert_eq!((told.status.as_u16(), told.field("repr-digest")), (200, ""));
}

#[tokio::test]
async fn one_address_computes_one_digest_at_a_time_and_a_request_that_is_given_up_ends() {
    let site = Site::with(taking_uploads);
    let file = std::fs::File::create(site.path("large")).unwrap();
    file.set_len(1 << 40).unwrap();
    site.write("small", "1");
    let ask = |path: &str, address: &str| {
        let mut request = request(Method::HEAD, path, &[WANT], Empty::<Bytes>::new());
        let address = crate::PeerAddr(address.parse().unwrap());
        request.extensions_mut().insert(address);
        let mut files = site.files.clone();
        async move { files.call(request).await.unwrap() }
    };
    // A TiB would take minutes.
    let held = tokio::spawn(ask("/large", "192.0.2.1:1"));
    let other = ask("/small", "192.0.2.2:1").await;
    assert_eq!(other.headers()["repr-digest"], digest_of(b"1"));
    let own = ask("/small", "192.0.2.1:1").await;
    assert_eq!(own.headers()["repr-digest"], digest_of(b"1"));
    assert!(!held.is_finished());
    held.abort();
    assert!(held.await.unwrap_err().is_cancelled());
    let jobs = &site.files.shared_for_tests().digests;
    let ended = jobs.begun();
    for _ in 0..20 {
        ask("/small", "192.0.2.3:1").await;
    }
    assert!(jobs.begun() <= ended + 21, "the digest goes on");
}

#[tokio::test]
async fn a_file_that_changes_while_it_is_read_has_no_digest() {
    let site = Site::with(taking_uploads);
    let large = std::fs::File::create(site.path("a")).unwrap();
    large.set_len(1 << 40).unwrap();
    let mut files = site.files.clone();
    let asked = request(Method::HEAD, "/a", &[WANT], Empty::<Bytes>::new());
    let told = tokio::spawn(async move { files.call(asked).await.unwrap() });
    let jobs = &site.files.shared_for_tests().digests;
    while jobs.begun() == 0 {
        tokio::task::yield_now().await;
    }
    site.write("a", "another");
    let told = told.await.unwrap();
    assert_eq!(told.status(), 200);
    assert!(!told.headers().contains_key("repr-digest"));
}
