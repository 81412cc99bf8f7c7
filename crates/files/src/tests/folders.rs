//! Paths that come to name another folder while the service runs.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::Full;

use crate::settings::Limits;

use super::{Answer, Site};
use crate::{Files, Settings, Uploads};

/// Makes a folder with a small file, which the cache keeps whole, and a larger one.
fn release(path: &Path, name: &str) {
    fs::create_dir_all(path).unwrap();
    fs::write(path.join("small"), name).unwrap();
    fs::write(path.join("large"), name.repeat(300_000)).unwrap();
    fs::write(path.join(format!("only-{name}")), name).unwrap();
}

fn settings() -> Settings {
    Settings {
        listing: true,
        // Files that were made just now are cached too.
        limits: Limits {
            cache_after: std::time::Duration::ZERO,
            ..Limits::DEFAULT
        },
        ..Settings::default()
    }
}

/// A site whose root is a link to the first of two releases.
fn deployed() -> Site {
    Site::over(|root| {
        let home = root.parent().unwrap();
        release(&home.join("one"), "1");
        release(&home.join("two"), "2");
        fs::remove_dir(root).unwrap();
        symlink("one", root).unwrap();
        Files::open(root, settings()).unwrap()
    })
}

/// Changes the link at once, as deployments do.
fn link(site: &Site, to: &str) {
    let new = site.outside.join("new");
    symlink(to, &new).unwrap();
    fs::rename(new, &site.root).unwrap();
}

/// Has the next request compare the paths, as one does a second later.
fn hurry(site: &Site) {
    let shared = site.files.shared_for_tests();
    shared.watch.hurry();
    // What was compared within the last millisecond is taken without a look.
    shared.cache.note_upload();
}

async fn assert_serves(site: &Site, name: &str, other: &str) {
    for _ in 0..2 {
        assert_eq!(site.get("/small").await.body, name);
        assert_eq!(site.get("/large").await.body, name.repeat(300_000));
        assert_eq!(site.get(&format!("/only-{name}")).await.status, StatusCode::OK);
        let gone = site.get(&format!("/only-{other}")).await;
        assert_eq!(gone.status, StatusCode::NOT_FOUND);
        let list = site.get_with("/", &[("accept", "application/json")]).await;
        let list = String::from_utf8_lossy(&list.body).into_owned();
        assert!(list.contains(&format!("only-{name}")), "{list}");
    }
}

#[tokio::test]
async fn a_link_that_is_changed_leads_to_the_new_folder() {
    let site = deployed();
    assert_serves(&site, "1", "2").await;
    link(&site, "two");
    hurry(&site);
    assert_serves(&site, "2", "1").await;
    link(&site, "one");
    hurry(&site);
    assert_serves(&site, "1", "2").await;
}

#[tokio::test]
async fn the_folder_stays_as_long_as_its_path_names_none() {
    let site = deployed();
    assert_serves(&site, "1", "2").await;
    for nothing in ["nowhere", "one/small"] {
        link(&site, nothing);
        hurry(&site);
        assert_serves(&site, "1", "2").await;
    }
    link(&site, "two");
    hurry(&site);
    assert_serves(&site, "2", "1").await;
}

#[tokio::test]
async fn a_folder_that_is_made_again_is_served_and_takes_uploads() {
    let site = Site::with(|root| {
        release(root, "1");
        Settings {
            uploads: Uploads::Directory(root.to_owned()),
            ..settings()
        }
    });
    assert_serves(&site, "1", "2").await;
    fs::remove_dir_all(&site.root).unwrap();
    release(&site.root, "2");
    hurry(&site);
    let upload = Request::put("/a/new")
        .body(Full::new(Bytes::from("stored")))
        .unwrap();
    let stored = Answer::read(site.call(upload).await).await;
    assert_eq!(stored.status, StatusCode::CREATED);
    assert_eq!(fs::read_to_string(site.path("a/new")).unwrap(), "stored");
    assert_eq!(site.ask(Method::GET, "/a/new", &[]).await.body, "stored");
    assert_serves(&site, "2", "1").await;
}

#[tokio::test]
async fn one_request_compares_the_paths_and_the_next_ones_need_no_job() {
    let site = deployed();
    assert_serves(&site, "1", "2").await;
    let jobs = || site.files.shared_for_tests().jobs.begun();
    hurry(&site);
    let before = jobs();
    for _ in 0..5 {
        assert_eq!(site.get("/small").await.body, "1");
    }
    assert!(jobs() <= before + 1);
}
