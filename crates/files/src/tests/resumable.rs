//! Resumable uploads, without the responses with 104: the server that sends them is tested with the program.

use std::time::SystemTime;

use crate::LogUser;

use super::uploads::{Gated, until};
use super::*;

pub(super) const MORE: (&str, &str) = ("upload-complete", "?0");
pub(super) const LAST: (&str, &str) = ("upload-complete", "?1");
pub(super) const PARTIAL: (&str, &str) = ("content-type", "application/partial-upload");
pub(super) const FOLDER: &str = ".fullbore-uploads";

pub(super) fn site() -> Site {
    Site::with(taking_uploads)
}

impl Site {
    /// Begins an upload to `path`, and returns its resource.
    pub(super) async fn created(&self, path: &str, text: &'static str) -> String {
        let created = self.send(Method::PUT, path, &[MORE], Script::text(text)).await;
        assert_eq!(created.status, 201, "{}", created.text());
        assert_eq!(created.field("upload-complete"), "?0");
        let location = created.field("location");
        let folder = path.rsplit_once('/').unwrap().0;
        format!("{folder}/{}", location.strip_prefix("./").unwrap())
    }

    pub(super) async fn append(&self, resource: &str, offset: u64, is_last: bool, body: Script) -> Answer {
        let offset = offset.to_string();
        let complete = if is_last { LAST } else { MORE };
        let fields = [PARTIAL, complete, ("upload-offset", &offset)];
        self.send(Method::PATCH, resource, &fields, body).await
    }

    /// The fields of the response to HEAD: offset, completeness and length.
    pub(super) async fn state(&self, resource: &str) -> Option<(String, String, String)> {
        let told = self.ask(Method::HEAD, resource, &[]).await;
        if told.status == 404 {
            return None;
        }
        assert_eq!(told.status, 204);
        assert_eq!(told.field("cache-control"), "no-store");
        assert!(
            told.field("upload-limit")
                .starts_with("max-size=17179869184, max-age=")
        );
        let field = |name| told.field(name).to_owned();
        Some((
            field("upload-offset"),
            field("upload-complete"),
            field("upload-length"),
        ))
    }

    /// What is kept of unfinished uploads.
    pub(super) fn kept(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.path(FOLDER)).into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    pub(super) fn part(&self) -> PathBuf {
        let is_part = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "part");
        self.kept().into_iter().find(is_part).unwrap()
    }

    /// The same folder under a server that has just been started.
    pub(super) fn restarted(&self) -> Files {
        Files::open(&self.root, taking_uploads(&self.root)).unwrap()
    }
}

pub(super) fn state(offset: &str, complete: &str, length: &str) -> Option<(String, String, String)> {
    Some((offset.to_owned(), complete.to_owned(), length.to_owned()))
}

pub(super) fn read(path: PathBuf) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[tokio::test]
async fn an_upload_in_parts_is_a_file_when_the_last_one_has_come() {
    let site = site();
    let resource = site.created("/sub/a%20b", "one ").await;
    assert!(resource.starts_with("/sub/a%20b?upload-resource="), "{resource}");
    assert_eq!(site.state(&resource).await, state("4", "?0", ""));
    let appended = site.append(&resource, 4, false, Script::text("two ")).await;
    assert_eq!(
        (appended.status.as_u16(), appended.field("upload-complete")),
        (204, "?0")
    );
    assert_eq!(appended.field("upload-offset"), "8");
    assert!(!site.path("sub").exists());
    let stored = site.append(&resource, 8, true, Script::text("three")).await;
    assert_eq!(
        (stored.status.as_u16(), stored.field("upload-complete")),
        (201, "?1")
    );
    assert_eq!(stored.field("location"), "./a%20b");
    assert_eq!(stored.text(), "13\n");
    assert_eq!(read(site.path("sub/a b")), "one two three");
    assert_eq!(site.state(&resource).await, state("13", "?1", "13"));
    // Its record stays for a client that did not receive the response.
    assert_eq!(site.kept().len(), 1);
}

#[tokio::test]
async fn the_first_request_may_be_empty_and_the_last_one_too() {
    let site = site();
    let resource = site.created("/a", "").await;
    assert_eq!(site.state(&resource).await, state("0", "?0", ""));
    site.append(&resource, 0, false, Script::text("all")).await;
    let stored = site.append(&resource, 3, true, Script::of([])).await;
    assert_eq!(stored.status, 201);
    assert_eq!(read(site.path("a")), "all");
    let resource = site.created("/empty", "").await;
    assert_eq!(site.append(&resource, 0, true, Script::of([])).await.status, 201);
    assert_eq!(read(site.path("empty")), "");
}

#[tokio::test]
async fn what_arrived_before_a_connection_broke_is_kept() {
    let site = site();
    let data = pattern(1_000);
    let piece = |from: usize, to: usize| Step::Data(Bytes::copy_from_slice(&data[from..to]));
    let fields = [MORE, ("upload-length", "1000")];
    let created = site
        .send(
            Method::PUT,
            "/a",
            &fields,
            Script::of([piece(0, 350), Step::Fail]),
        )
        .await;
    assert_eq!(created.status, 400);
    let record = site.kept();
    let token = record[0].file_stem().unwrap().to_str().unwrap();
    let resource = format!("/a?upload-resource={token}");
    assert_eq!(site.state(&resource).await, state("350", "?0", "1000"));
    let broken = Script::of([piece(350, 351), piece(351, 777), Step::Fail]);
    assert_eq!(site.append(&resource, 350, true, broken).await.status, 400);
    assert_eq!(site.state(&resource).await, state("777", "?0", "1000"));
    let rest = Script::of([piece(777, 1_000)]);
    assert_eq!(site.append(&resource, 777, true, rest).await.status, 201);
    assert_eq!(std::fs::read(site.path("a")).unwrap(), data);
}

#[tokio::test]
async fn an_offset_that_is_not_that_of_the_upload_is_refused_with_the_right_one() {
    let site = site();
    let resource = site.created("/a", "1234").await;
    for wrong in [0, 3, 5, u64::from(u32::MAX)] {
        let refused = site.append(&resource, wrong, true, Script::text("x")).await;
        assert_eq!(refused.status, 409);
        assert_eq!(refused.field("upload-offset"), "4");
        assert_eq!(refused.field("content-type"), "application/problem+json");
        let problem: serde_json::Value = serde_json::from_slice(&refused.body).unwrap();
        let kind = "https://iana.org/assignments/http-problem-types#mismatching-upload-offset";
        assert_eq!(problem["type"], kind);
        assert_eq!(problem["expected-offset"], 4);
        assert_eq!(problem["provided-offset"], wrong);
    }
    assert_eq!(site.state(&resource).await, state("4", "?0", ""));
}

#[tokio::test]
async fn a_request_to_append_needs_its_media_type_and_its_fields() {
    let site = site();
    let resource = site.created("/a", "1234").await;
    let offset = ("upload-offset", "4");
    for (fields, status) in [
        (&[LAST, offset][..], 415),
        (&[("content-type", "text/plain"), LAST, offset], 415),
        (&[PARTIAL, offset], 400),
        (&[PARTIAL, ("upload-complete", "1"), offset], 400),
        (&[PARTIAL, LAST], 400),
        (&[PARTIAL, LAST, ("upload-offset", "-4")], 400),
        (&[PARTIAL, LAST, ("upload-offset", "4.0")], 400),
        (&[PARTIAL, LAST, ("upload-offset", "4, 4")], 400),
        (&[PARTIAL, LAST, offset, offset], 400),
        (&[PARTIAL, LAST, ("upload-offset", "1234567890123456")], 400),
        (&[PARTIAL, LAST, offset, ("content-length", "x")], 400),
    ] {
        let refused = site
            .send(Method::PATCH, &resource, fields, Script::text("x"))
            .await;
        assert_eq!(refused.status, status, "{fields:?}");
        let accepted = (status == 415).then_some("application/partial-upload");
        assert_eq!(refused.field("accept-patch"), accepted.unwrap_or_default());
    }
    for method in [Method::GET, Method::PUT, Method::POST] {
        let refused = site.send(method, &resource, &[LAST], Script::text("x")).await;
        assert_eq!(refused.status, 405);
        assert_eq!(refused.field("allow"), "DELETE, HEAD, OPTIONS, PATCH");
    }
    // Parameters of an item are ignored.
    let fields = [PARTIAL, ("upload-complete", "?1;a=b"), ("upload-offset", "4;c")];
    let stored = site
        .send(Method::PATCH, &resource, &fields, Script::text("x"))
        .await;
    assert_eq!(stored.status, 201);
}

#[tokio::test]
async fn the_lengths_that_a_client_tells_are_one() {
    let site = site();
    let inconsistent = |answer: &Answer| {
        assert_eq!(answer.status, 400, "{}", answer.text());
        answer.text().contains("#inconsistent-upload-length")
    };
    let fields = [LAST, ("upload-length", "5"), ("content-length", "4")];
    let refused = site.send(Method::PUT, "/a", &fields, Script::text("1234")).await;
    assert!(inconsistent(&refused));
    assert!(site.kept().is_empty());

    let fields = [MORE, ("upload-length", "10"), ("content-length", "4")];
    let created = site.send(Method::PUT, "/a", &fields, Script::text("1234")).await;
    let resource = format!("/{}", created.field("location").strip_prefix("./").unwrap());
    assert_eq!(site.state(&resource).await, state("4", "?0", "10"));
    let with = |more| [PARTIAL, LAST, ("upload-offset", "4"), more];
    for other in [("upload-length", "11"), ("content-length", "5")] {
        let refused = site
            .send(Method::PATCH, &resource, &with(other), Script::text("56789"))
            .await;
        assert!(inconsistent(&refused), "{other:?}");
    }
    // It is shorter: more may come.
    let refused = site.append(&resource, 4, true, Script::text("56")).await;
    assert!(inconsistent(&refused));
    assert_eq!(site.state(&resource).await, state("6", "?0", "10"));
    // It is longer: the upload is invalid.
    let refused = site.append(&resource, 6, false, Script::text("78901")).await;
    assert!(inconsistent(&refused));
    assert_eq!(site.state(&resource).await, None);
    assert!(site.kept().is_empty());
    assert_eq!(site.names(), [FOLDER]);
}

#[tokio::test]
async fn nothing_is_appended_to_a_complete_upload() {
    let site = site();
    let resource = site.created("/a", "1234").await;
    site.append(&resource, 4, true, Script::of([])).await;
    let refused = site.append(&resource, 4, true, Script::text("5")).await;
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("#inconsistent-upload-length"));
    let fields = [PARTIAL, LAST, ("upload-offset", "4"), ("content-length", "0")];
    let refused = site.send(Method::PATCH, &resource, &fields, Script::of([])).await;
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("#completed-upload"));
    assert_eq!(read(site.path("a")), "1234");
}

#[tokio::test]
async fn an_upload_that_is_cancelled_leaves_nothing() {
    let site = site();
    let resource = site.created("/a", "1234").await;
    assert_eq!(site.kept().len(), 2);
    assert_eq!(site.ask(Method::DELETE, &resource, &[]).await.status, 204);
    assert!(site.kept().is_empty());
    assert_eq!(site.state(&resource).await, None);
    assert_eq!(
        site.append(&resource, 4, true, Script::text("x")).await.status,
        404
    );
    assert_eq!(site.ask(Method::DELETE, &resource, &[]).await.status, 404);
    assert!(!site.path("a").exists());
}

#[tokio::test]
async fn nobody_continues_the_upload_of_somebody_else_or_of_another_file() {
    let site = site();
    let of = |user: Option<&str>, method: Method, path: &str, fields: &[(&str, &str)]| {
        let mut request = request(method, path, fields, Script::text("1234"));
        if let Some(user) = user {
            request.extensions_mut().insert(LogUser(user.into()));
        }
        let files = site.files.clone();
        async move { Answer::read(files.clone().call(request).await.unwrap()).await }
    };
    let created = of(Some("ann"), Method::PUT, "/a", &[MORE]).await;
    let resource = format!("/{}", created.field("location").strip_prefix("./").unwrap());
    let append = [PARTIAL, MORE, ("upload-offset", "4")];
    for user in [None, Some("bob")] {
        for method in [Method::HEAD, Method::PATCH, Method::DELETE] {
            let answer = of(user, method, &resource, &append).await;
            assert_eq!(answer.status, 404, "{user:?}");
        }
    }
    let query = resource.strip_prefix("/a").unwrap();
    for path in ["/b", "/a/", "/", "/sub/a", "/A"] {
        let answer = of(Some("ann"), Method::PATCH, &format!("{path}{query}"), &append).await;
        assert_eq!(answer.status, 404, "{path}");
    }
    for token in ["", "..", "x", &"0".repeat(32), &"0".repeat(33), &"é".repeat(16)] {
        let path = format!("/a?upload-resource={token}");
        if let Ok(path) = path.parse::<http::Uri>() {
            let answer = of(Some("ann"), Method::PATCH, &path.to_string(), &append).await;
            assert_eq!(answer.status, 404, "{token}");
        }
    }
    assert_eq!(
        of(Some("ann"), Method::PATCH, &resource, &append).await.status,
        204
    );
}

#[tokio::test]
async fn a_request_of_somebody_else_does_not_end_the_one_in_progress() {
    let site = site();
    let of = |user: &'static str, mut request: Request<Script>| {
        request.extensions_mut().insert(LogUser(user.into()));
        let mut files = site.files.clone();
        async move { Answer::read(files.call(request).await.unwrap()).await }
    };
    let created = of("ann", request(Method::PUT, "/a", &[MORE], Script::text("12"))).await;
    let resource = format!("/{}", created.field("location").strip_prefix("./").unwrap());
    let fields = [PARTIAL, LAST, ("upload-offset", "2")];
    let (body, go_on) = Gated::new(Script::of([
        Step::Data(Bytes::from("3")),
        Step::Stall,
        Step::Data(Bytes::from("4")),
    ]));
    let mut append = request(Method::PATCH, &resource, &fields, body);
    append.extensions_mut().insert(LogUser("ann".into()));
    let mut files = site.files.clone();
    let append = tokio::spawn(files.call(append));
    until(|| site.entry(&resource).is_in_progress()).await;
    for method in [Method::HEAD, Method::PATCH, Method::DELETE] {
        let answer = of("bob", request(method, &resource, &fields, Script::text("x"))).await;
        assert_eq!(answer.status, 404);
    }
    let path = resource.replace("/a?", "/b?");
    let answer = of("ann", request(Method::HEAD, &path, &[], Script::of([]))).await;
    assert_eq!(answer.status, 404);
    go_on.send(()).unwrap();
    assert_eq!(append.await.unwrap().unwrap().status(), 201);
    assert_eq!(read(site.path("a")), "1234");
}

#[cfg(unix)]
#[tokio::test]
async fn an_upload_that_another_process_receives_is_locked() {
    let mut site = site();
    let resource = site.created("/a", "12").await;
    let other = site.restarted();
    let fields = [PARTIAL, MORE, ("upload-offset", "2")];
    let stalled = Script::of([Step::Data(Bytes::from("34")), Step::Stall]);
    let mut files = site.files.clone();
    let dead = tokio::spawn(files.call(request(Method::PATCH, &resource, &fields, stalled)));
    while std::fs::read(site.part()).unwrap().len() < 4 {
        tokio::task::yield_now().await;
    }
    let first = std::mem::replace(&mut site.files, other);
    let refused = site.append(&resource, 4, true, Script::text("56")).await;
    assert_eq!(refused.status, 423, "{}", refused.text());
    assert_eq!(site.state(&resource).await, state("4", "?0", ""));
    // The request ends as soon as its own process is asked.
    let other = std::mem::replace(&mut site.files, first);
    assert_eq!(site.state(&resource).await, state("4", "?0", ""));
    assert_eq!(dead.await.unwrap().unwrap().status(), 409);
    site.files = other;
    let stored = site.append(&resource, 4, true, Script::text("56")).await;
    assert_eq!(stored.status, 201, "{}", stored.text());
    assert_eq!(read(site.path("a")), "123456");
}

#[tokio::test]
async fn after_a_power_failure_the_upload_continues_from_what_the_disk_has() {
    let mut site = site();
    let resource = site.created("/a", "12").await;
    let appended = site.append(&resource, 2, false, Script::text("345")).await;
    assert_eq!(appended.field("upload-offset"), "5");
    let part = std::fs::File::options().write(true).open(site.part()).unwrap();
    part.set_len(3).unwrap();
    site.files = site.restarted();
    assert_eq!(site.state(&resource).await, state("3", "?0", ""));
    let refused = site.append(&resource, 5, true, Script::text("6")).await;
    assert_eq!(
        (refused.status.as_u16(), refused.field("upload-offset")),
        (409, "3")
    );
    let stored = site.append(&resource, 3, true, Script::text("456")).await;
    assert_eq!(stored.status, 201, "{}", stored.text());
    assert_eq!(read(site.path("a")), "123456");
}

#[tokio::test]
async fn a_request_ends_the_one_before_it_and_what_that_received_counts() {
    let site = site();
    let resource = site.created("/a", "12").await;
    let dead = Script::of([Step::Data(Bytes::from("34")), Step::Stall]);
    let fields = [PARTIAL, LAST, ("upload-offset", "2")];
    let mut files = site.files.clone();
    let dead = tokio::spawn(files.call(request(Method::PATCH, &resource, &fields, dead)));
    while std::fs::read(site.part()).unwrap().len() < 4 {
        tokio::task::yield_now().await;
    }
    assert_eq!(site.state(&resource).await, state("4", "?0", ""));
    assert_eq!(dead.await.unwrap().unwrap().status(), 409);
    let stored = site.append(&resource, 4, true, Script::text("56")).await;
    assert_eq!(stored.status, 201);
    assert_eq!(read(site.path("a")), "123456");
}

#[tokio::test]
async fn of_many_requests_at_once_each_byte_is_stored_once() {
    let site = site();
    let data = pattern(20_000);
    let resource = site.created("/a", "").await;
    // Each asks for the offset and sends the rest, while the others do the same.
    let tasks = (0..20).map(|number| {
        let (files, resource, data) = (site.files.clone(), resource.clone(), data.clone());
        tokio::spawn(async move {
            let call = |request| {
                let mut files = files.clone();
                async move { Answer::read(files.call(request).await.unwrap()).await }
            };
            let head = request(Method::HEAD, &resource, &[], Script::of([]));
            let told = call(head).await;
            let offset: usize = told.field("upload-offset").parse().unwrap_or(data.len());
            let rest = data[offset..].chunks(97 + number);
            let steps = rest.map(|piece| Step::Data(Bytes::copy_from_slice(piece)));
            let offset = offset.to_string();
            let fields = [PARTIAL, LAST, ("upload-offset", &offset)];
            let append = request(Method::PATCH, &resource, &fields, Script::of(steps));
            call(append).await.status.as_u16()
        })
    });
    let mut statuses = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        statuses.push(task.await.unwrap());
    }
    assert!(statuses.contains(&201), "{statuses:?}");
    assert_eq!(std::fs::read(site.path("a")).unwrap(), data);
}

#[tokio::test]
async fn an_upload_outlives_its_server() {
    let mut site = site();
    let resource = site.created("/a", "12").await;
    let complete = site.created("/b", "12").await;
    site.append(&complete, 2, true, Script::of([])).await;
    site.files = site.restarted();
    assert_eq!(site.state(&resource).await, state("2", "?0", ""));
    assert_eq!(site.state(&complete).await, state("2", "?1", "2"));
    let stored = site.append(&resource, 2, true, Script::text("34")).await;
    assert_eq!(stored.status, 201);
    assert_eq!(read(site.path("a")), "1234");
}

#[cfg(unix)]
#[tokio::test]
async fn a_server_that_was_killed_once_the_file_had_its_name_has_completed_the_upload() {
    let mut site = site();
    let fields = [MORE, ("upload-length", "2")];
    let created = site.send(Method::PUT, "/a", &fields, Script::text("12")).await;
    let resource = format!("/{}", created.field("location").strip_prefix("./").unwrap());
    std::fs::rename(site.part(), site.path("a")).unwrap();
    site.files = site.restarted();
    assert_eq!(site.state(&resource).await, state("2", "?1", "2"));
    // Another file of that name and length is not the upload.
    site.write("other", "34");
    std::fs::rename(site.path("other"), site.path("a")).unwrap();
    site.files = site.restarted();
    assert_eq!(site.state(&resource).await, None);
}

#[tokio::test]
async fn an_upload_whose_part_is_removed_is_unknown() {
    let site = site();
    let resource = site.created("/a", "12").await;
    std::fs::remove_dir_all(site.path(FOLDER)).unwrap();
    assert_eq!(site.state(&resource).await, None);
    let resource = site.created("/a", "12").await;
    assert_eq!(
        site.append(&resource, 2, true, Script::text("3")).await.status,
        201
    );
}

#[tokio::test]
async fn a_part_that_somebody_changed_is_not_continued_at_another_place() {
    let site = site();
    let resource = site.created("/a", "1234").await;
    std::fs::write(site.part(), "12").unwrap();
    assert_eq!(
        site.append(&resource, 4, true, Script::text("5")).await.status,
        409
    );
    assert_eq!(site.state(&resource).await, state("2", "?0", ""));
}

#[tokio::test]
async fn what_the_first_request_demands_holds_for_the_last_one() {
    let site = Site::with(|root| Settings {
        overwrite: true,
        ..taking_uploads(root)
    });
    site.write("a", "old");
    let etag = site.get("/a").await.field("etag").to_owned();
    let matches = ("if-match", etag.as_str());
    let site = &site;
    let begin = |more| async move {
        let fields = [MORE, more];
        site.send(Method::PUT, "/a", &fields, Script::text("1")).await
    };
    let created = begin(matches).await;
    let resource = format!("/{}", created.field("location").strip_prefix("./").unwrap());
    site.write("a", "changed by somebody");
    let refused = site.append(&resource, 1, true, Script::text("2")).await;
    assert_eq!(
        (refused.status.as_u16(), refused.field("upload-complete")),
        (412, "?1")
    );
    assert_eq!(site.state(&resource).await, None);
    assert!(site.kept().is_empty());
    assert_eq!(begin(matches).await.status, 412);
    assert_eq!(begin(("if-none-match", "*")).await.status, 412);
    assert_eq!(read(site.path("a")), "changed by somebody");

    let resource = site.created("/a", "1").await;
    assert_eq!(
        site.append(&resource, 1, true, Script::text("2")).await.status,
        200
    );
    assert_eq!(read(site.path("a")), "12");
}

#[tokio::test]
async fn a_file_that_came_meanwhile_is_kept_unless_uploads_replace_files() {
    let site = site();
    let resource = site.created("/a", "1").await;
    site.write("a", "theirs");
    let refused = site.append(&resource, 1, true, Script::text("2")).await;
    assert_eq!(
        (refused.status.as_u16(), refused.field("upload-complete")),
        (409, "?1")
    );
    assert_eq!(read(site.path("a")), "theirs");
    assert!(site.kept().is_empty());
}

#[tokio::test]
async fn a_file_gets_the_time_of_its_sender() {
    let site = site();
    let fields = [MORE, ("x-oc-mtime", "1000000000")];
    let created = site.send(Method::PUT, "/a", &fields, Script::text("1")).await;
    let resource = format!("/{}", created.field("location").strip_prefix("./").unwrap());
    let stored = site.append(&resource, 1, true, Script::text("2")).await;
    assert_eq!(stored.field("x-oc-mtime"), "accepted");
    let modified = std::fs::metadata(site.path("a")).unwrap().modified().unwrap();
    let second = modified.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    assert_eq!(second, 1_000_000_000);
}

#[tokio::test]
async fn a_post_without_a_name_keeps_the_name_that_it_was_given() {
    let site = site();
    let fields = [MORE, ("content-type", "application/octet-stream")];
    let created = site.send(Method::POST, "/", &fields, Script::text("12")).await;
    let resource = format!("/{}", created.field("location").strip_prefix("./").unwrap());
    let stored = site.append(&resource, 2, true, Script::text("3")).await;
    assert_eq!(stored.status, 201);
    let name = stored.field("location").strip_prefix("./").unwrap();
    assert!(resource.starts_with(&format!("/{name}?")));
    assert_eq!(read(site.path(name)), "123");
}

#[tokio::test]
async fn content_that_ends_the_upload_is_stored_as_any_other_when_the_client_cannot_learn_of_the_resource() {
    let site = site();
    let stored = site.send(Method::PUT, "/a", &[LAST], Script::text("12")).await;
    assert_eq!(stored.status, 201);
    assert_eq!(read(site.path("a")), "12");
    assert_eq!(site.names(), ["a"]);
    // A value that is none is ignored.
    let fields = [("upload-complete", "yes")];
    let stored = site.send(Method::PUT, "/b", &fields, Script::text("12")).await;
    assert_eq!(stored.status, 201);
}

#[tokio::test]
async fn an_upload_is_bounded_as_a_whole() {
    let site = Site::with(|root| Settings {
        max_upload_bytes: 10,
        ..taking_uploads(root)
    });
    let begin = |fields| site.send(Method::PUT, "/a", fields, Script::text("1234567"));
    for fields in [
        &[MORE, ("upload-length", "11")][..],
        &[LAST, ("content-length", "11")],
    ] {
        let refused = begin(fields).await;
        assert_eq!(
            (refused.status.as_u16(), refused.field("upload-limit")),
            (413, "max-size=10")
        );
    }
    let created = begin(&[MORE]).await;
    let resource = format!("/{}", created.field("location").strip_prefix("./").unwrap());
    let refused = site.append(&resource, 7, true, Script::text("8901")).await;
    assert_eq!(
        (refused.status.as_u16(), refused.field("upload-limit")),
        (413, "max-size=10")
    );
    assert!(site.kept().is_empty());
}

#[tokio::test]
async fn unfinished_uploads_are_served_to_nobody() {
    let site = Site::with(|root| Settings {
        hidden: true,
        listing: true,
        ..taking_uploads(root)
    });
    site.created("/a", "secret").await;
    site.write(".visible", "");
    for path in [
        "/.fullbore-uploads/".to_owned(),
        "/.FULLBORE-uploads/".to_owned(),
        "/%2Efullbore-uploads".to_owned(),
        format!("/{FOLDER}/{}", site.part().file_name().unwrap().to_str().unwrap()),
    ] {
        assert_eq!(site.get(&path).await.status, 404, "{path}");
    }
    let list = site.get("/").await;
    assert!(list.text().contains(".visible") && !list.text().contains("fullbore-uploads"));
    let archive = site.get("/?archive=tar").await;
    let octets = String::from_utf8_lossy(&archive.body);
    assert!(octets.contains(".visible") && !octets.contains("secret"));
}

#[cfg(unix)]
#[tokio::test]
async fn others_cannot_read_unfinished_uploads() {
    use std::os::unix::fs::PermissionsExt as _;
    let site = site();
    site.created("/a", "secret").await;
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&site.path(FOLDER)), 0o700);
}

#[tokio::test]
async fn options_tell_that_uploads_can_be_resumed() {
    let site = site();
    let told = site.ask(Method::OPTIONS, "/a", &[]).await;
    assert_eq!(told.field("accept-patch"), "application/partial-upload");
    assert_eq!(told.field("upload-limit"), "max-size=17179869184");
    let without = Site::new();
    let told = without.ask(Method::OPTIONS, "/a", &[]).await;
    assert_eq!(told.field("accept-patch"), "");
    without.write("a", "text");
    let read = without.get("/a?upload-resource=x").await;
    assert_eq!(read.text(), "text", "a query means nothing there");
}

#[tokio::test]
async fn a_disk_that_is_full_keeps_what_it_took() {
    let site = Site::with(|root| Settings {
        min_free_bytes: Some(1_000),
        ..taking_uploads(root)
    });
    let limits = &site.files.shared_for_tests().upload_limits;
    let free = |free| {
        *limits.simulated.lock().unwrap() = Some(crate::upload_limits::Space {
            free,
            total: 1 << 40,
            free_inodes: 0,
            inodes: 0,
        });
    };
    free(1 << 30);
    let resource = site.created("/a", "1234").await;
    free(1_000);
    assert_eq!(
        site.append(&resource, 4, true, Script::text("5")).await.status,
        507
    );
    assert_eq!(site.state(&resource).await, state("4", "?0", ""));
    free(1 << 30);
    assert_eq!(
        site.append(&resource, 4, true, Script::text("5")).await.status,
        201
    );
    assert_eq!(read(site.path("a")), "12345");
}
