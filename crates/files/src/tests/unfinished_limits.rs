//! How many unfinished uploads there are, and for how long.

use std::time::{Duration, SystemTime};

use crate::PeerAddr;
use crate::shared::UploadTarget;

use super::resumable::{FOLDER, MORE, site, state};
use super::*;

/// The response to the first request of an upload.
struct Begun(Answer);

impl Begun {
    /// The upload resource.
    fn resource(&self) -> String {
        format!("/{}", self.0.field("location").strip_prefix("./").unwrap())
    }

    /// Has the server believe that the upload has so many bytes that it does not give way, if there is one.
    fn is_large(&self, site: &Site) {
        if self.0.status == 201 {
            site.entry(&self.resource()).has_received(1 << 20);
        }
    }
}

impl Site {
    /// Begins an upload to a path of the root from this address.
    async fn begun(&self, address: &str, path: &str, length: Option<&str>, text: &'static str) -> Begun {
        let length = length.map(|length| ("upload-length", length));
        let fields: Vec<_> = [MORE].into_iter().chain(length).collect();
        let mut request = request(Method::PUT, path, &fields, Script::text(text));
        let address = address.parse().unwrap();
        request.extensions_mut().insert(PeerAddr(address));
        Begun(Answer::read(self.call(request).await).await)
    }
}

#[tokio::test]
async fn an_address_has_so_many_unfinished_uploads_and_no_more_bytes_than_of_four_largest() {
    let site = site();
    let from = async |address: &str, path: String, length: Option<&str>| {
        let begun = site.begun(address, &path, length, "1").await;
        begun.is_large(&site);
        begun.0.status.as_u16()
    };
    let (ann, bob) = ("192.0.2.1:1", "192.0.2.2:1");
    for number in 0..64 {
        assert_eq!(from(ann, format!("/{number}"), Some("9")).await, 201);
    }
    assert_eq!(from(ann, "/64".to_owned(), Some("9")).await, 503);
    // Of an unknown length, it may come to be a largest one.
    for number in 100..104 {
        assert_eq!(from(bob, format!("/{number}"), None).await, 201);
    }
    assert_eq!(from(bob, "/104".to_owned(), Some("9")).await, 503);
}

#[tokio::test]
async fn uploads_with_the_fewest_bytes_give_way_when_there_are_too_many() {
    let site = site();
    let some = site
        .begun("198.51.100.1:1", "/some", None, "12345")
        .await
        .resource();
    let progress = {
        let stall = Script::of([Step::Stall]);
        let mut files = site.files.clone();
        tokio::spawn(files.call(request(Method::PUT, "/progress", &[MORE], stall)))
    };
    while site.kept().len() < 4 {
        tokio::task::yield_now().await;
    }
    let mut resources = Vec::new();
    for number in 0..1_022 {
        let address = format!("192.0.2.{}:1", number / 64);
        let begun = site.begun(&address, &format!("/{number}"), Some("9"), "").await;
        assert_eq!(begun.0.status, 201, "{number}");
        resources.push(begun.resource());
    }
    assert_eq!(site.kept().len(), 2 * 1_024);
    // All have no byte but `some`, and nobody has done anything for `progress`.
    site.entry(&resources[7]).age(Duration::from_secs(60));
    let begun = site.begun("203.0.113.1:1", "/new", None, "1").await;
    assert_eq!(begun.0.status, 201);
    assert_eq!(site.kept().len(), 2 * 1_024);
    assert_eq!(site.state(&resources[7]).await, None);
    assert_eq!(site.state(&some).await, state("5", "?0", ""));
    assert_eq!(site.state(&begun.resource()).await, state("1", "?0", ""));
    assert!(!progress.is_finished());

    // An address that has too many loses its own ones.
    let own = "192.0.2.0:1";
    for gone in [100, 3, 4] {
        site.entry(&resources[gone]).age(Duration::from_secs(60));
        let begun = site.begun(own, &format!("/own{gone}"), Some("9"), "1").await;
        assert_eq!(begun.0.status, 201);
        assert_eq!(site.state(&resources[gone]).await, None);
    }
    assert_eq!(site.kept().len(), 2 * 1_024);
    assert_eq!(site.state(&some).await, state("5", "?0", ""));

    // What would take long to be sent again stays.
    for (number, resource) in resources.iter().enumerate() {
        if ![3, 4, 7, 100].contains(&number) {
            site.entry(resource).has_received(1 << 20);
        }
    }
    for resource in [&some, &begun.resource()] {
        site.entry(resource).has_received(1 << 20);
    }
    let refused = loop {
        let begun = site.begun(own, "/more", Some("9"), "1").await;
        if begun.0.status != 201 {
            break begun.0;
        }
        begun.is_large(&site);
    };
    assert_eq!(refused.status, 503, "{}", refused.text());
}

#[tokio::test]
async fn an_upload_without_a_byte_expires_in_minutes() {
    let site = site();
    let (empty, some) = (site.created("/a", "").await, site.created("/b", "1").await);
    let early = site.created("/c", "").await;
    site.append(&early, 0, false, Script::text("1")).await;
    for resource in [&empty, &some, &early] {
        site.entry(resource).age(Duration::from_secs(11 * 60));
    }
    // Their parts are as new as before, which another process may have done.
    assert_eq!(site.state(&empty).await, state("0", "?0", ""));
    for part in site
        .kept()
        .iter()
        .filter(|path| path.extension().unwrap() == "part")
    {
        let file = std::fs::File::options().write(true).open(part).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(11 * 60))
            .unwrap();
    }
    site.entry(&empty).age(Duration::from_secs(11 * 60));
    assert_eq!(site.state(&empty).await, None);
    assert_eq!(site.state(&some).await, state("1", "?0", ""));
    assert_eq!(site.state(&early).await, state("1", "?0", ""));
}

#[tokio::test]
async fn uploads_expire() {
    let mut site = site();
    let resource = site.created("/a", "12").await;
    let part = std::fs::File::options().write(true).open(site.part()).unwrap();
    let hour = Duration::from_secs(3_600);
    part.set_modified(SystemTime::now() - 23 * hour).unwrap();
    site.files = site.restarted();
    let told = site.ask(Method::HEAD, &resource, &[]).await;
    let age = told.field("upload-limit").rsplit_once("max-age=").unwrap().1;
    assert!((3_500..=3_600).contains(&age.parse::<u64>().unwrap()), "{age}");
    part.set_modified(SystemTime::now() - 25 * hour).unwrap();
    site.files = site.restarted();
    assert_eq!(site.state(&resource).await, None);
    assert!(site.kept().is_empty());

    let resource = site.created("/a", "12").await;
    let part = std::fs::File::options().write(true).open(site.part()).unwrap();
    part.set_modified(SystemTime::now() - 25 * hour).unwrap();
    site.files = site.restarted();
    // The first upload looks for those of earlier servers.
    site.created("/b", "12").await;
    assert_eq!(site.kept().len(), 2);
    assert_eq!(site.state(&resource).await, None);
}

#[tokio::test]
async fn uploads_that_the_operator_removed_do_not_count() {
    let site = site();
    let begin = async |path: String| {
        let begun = site.begun("192.0.2.1:1", &path, Some("9"), "1").await;
        begun.is_large(&site);
        begun.0.status.as_u16()
    };
    for number in 0..64 {
        assert_eq!(begin(format!("/{number}")).await, 201);
    }
    assert_eq!(begin("/64".to_owned()).await, 503);
    std::fs::remove_dir_all(site.path(FOLDER)).unwrap();
    assert_eq!(begin("/64".to_owned()).await, 201);
}

#[tokio::test]
async fn what_another_process_left_is_removed_when_its_time_is_over() {
    let mut site = site();
    let mine = site.created("/a", "12").await;
    let first = site.files.clone();
    site.files = Files::open(&site.root, taking_uploads(&site.root)).unwrap();
    let theirs = site.created("/b", "12").await;
    site.files = first;
    let part = |resource: &str| {
        let token = resource.rsplit_once('=').unwrap().1;
        site.path(FOLDER).join(format!("{token}.part"))
    };
    let file = std::fs::File::options().write(true).open(part(&theirs)).unwrap();
    let day = Duration::from_secs(25 * 3_600);
    file.set_modified(std::time::SystemTime::now() - day).unwrap();
    let UploadTarget::Directory(_, unfinished) = &site.files.shared_for_tests().uploads else {
        panic!("there are no uploads");
    };
    let before = site.entry(&mine);
    unfinished.hurry();
    assert_eq!(site.state(&mine).await, state("2", "?0", ""));
    assert!(!part(&theirs).exists() && part(&mine).exists());
    // Requests still take turns.
    assert!(std::sync::Arc::ptr_eq(&before, &site.entry(&mine)));
}

#[tokio::test]
async fn what_another_process_did_to_an_upload_is_seen() {
    let mut site = site();
    let other = Files::open(&site.root, taking_uploads(&site.root)).unwrap();
    let first = site.files.clone();
    let begin = async |site: &Site, path: &'static str| {
        let begun = site.begun("192.0.2.1:1", path, None, "1").await;
        begun.is_large(site);
        begun.0
    };
    // As many uploads of an unknown length as one address may have.
    let mut resources = Vec::new();
    for path in ["/a", "/b", "/c", "/d"] {
        let location = begin(&site, path).await.field("location").to_owned();
        resources.push(format!("/{}", location.strip_prefix("./").unwrap()));
    }
    assert_eq!(begin(&site, "/e").await.status, 503);
    site.files = other;
    for resource in &resources[..2] {
        let stored = site.append(resource, 1, true, Script::text("2")).await;
        assert_eq!(stored.status, 201, "{}", stored.text());
    }
    site.append(&resources[2], 1, false, Script::text("2")).await;
    site.files = first.clone();
    // What is complete does not count, and the first process learns it from the record.
    assert_eq!(site.state(&resources[0]).await, state("2", "?1", "2"));
    assert_eq!(begin(&site, "/e").await.status, 201);
    assert_eq!(begin(&site, "/f").await.status, 201);
    assert_eq!(begin(&site, "/g").await.status, 503);
    // One that was continued elsewhere has not expired.
    site.entry(&resources[2]).age(Duration::from_secs(25 * 3_600));
    assert_eq!(site.state(&resources[2]).await, state("2", "?0", ""));
}
