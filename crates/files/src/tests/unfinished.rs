//! What is kept of resumable uploads when something goes wrong: requests that cannot be kept, files that disappear, and time.

use std::time::Duration;

use tokio::sync::mpsc;

use crate::settings::Limits;
use crate::shared::UploadTarget;
use crate::unfinished::{Entry, Token};
use crate::{LogUser, PeerAddr};

use super::resumable::{FOLDER, LAST, MORE, PARTIAL, read, site, state};
use super::*;

/// Content that arrives as the test sends it.
struct Sent(mpsc::UnboundedReceiver<&'static str>);

impl Body for Sent {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let text = std::task::ready!(self.0.poll_recv(cx));
        Poll::Ready(text.map(|text| Ok(Frame::data(Bytes::from(text)))))
    }
}

impl Site {
    pub(super) fn entry(&self, resource: &str) -> std::sync::Arc<Entry> {
        let UploadTarget::Directory(_, unfinished) = &self.files.shared_for_tests().uploads else {
            panic!("there are no uploads");
        };
        let token = Token::parse(resource.rsplit_once('=').unwrap().1).unwrap();
        unfinished.find(&token, None).unwrap()
    }

    /// Waits until so many bytes are in the part.
    async fn received(&self, bytes: u64) {
        while std::fs::metadata(self.part()).unwrap().len() < bytes {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn a_part_of_an_upload_whose_preconditions_cannot_be_kept_is_never_stored_as_the_whole() {
    let site = Site::with(|root| Settings {
        overwrite: true,
        ..taking_uploads(root)
    });
    site.write("a", "old");
    let long = format!("\"{}\"", "x".repeat(5_000));
    for value in [long.as_str(), "\"\u{e9}\""] {
        for path in ["/a", "/new"] {
            let fields = [MORE, ("if-none-match", value)];
            let refused = site.send(Method::PUT, path, &fields, Script::text("1")).await;
            assert_eq!(refused.status, 400, "{}", refused.text());
        }
        assert_eq!(read(site.path("a")), "old");
        assert!(!site.path("new").exists());
        // The whole is stored as any other file.
        let fields = [LAST, ("if-none-match", value)];
        let stored = site.send(Method::PUT, "/whole", &fields, Script::text("1")).await;
        assert!(stored.status.is_success(), "{}", stored.text());
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_that_nobody_may_write_is_replaced_in_parts_too() {
    use std::os::unix::fs::PermissionsExt as _;
    let site = Site::with(|root| Settings {
        overwrite: true,
        ..taking_uploads(root)
    });
    site.write("a", "old");
    std::fs::set_permissions(site.path("a"), std::fs::Permissions::from_mode(0o440)).unwrap();
    let resource = site.created("/a", "1").await;
    let mode = |path: PathBuf| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    // The server opens it again for each request.
    assert_eq!(mode(site.part()) & 0o600, 0o600);
    assert_eq!(mode(site.part()) & 0o007, 0);
    let stored = site.append(&resource, 1, true, Script::text("2")).await;
    assert_eq!(stored.status, 200);
    assert_eq!(read(site.path("a")), "12");
    assert_eq!(mode(site.path("a")), 0o440);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_part_has_the_group_that_the_folder_of_its_file_gives() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
    let site = site();
    let team = site.path("team");
    std::fs::create_dir(&team).unwrap();
    let own = std::fs::metadata(&team).unwrap().gid();
    // Only a privileged process may.
    if chown(&team, None, Some(own + 1)).is_err() {
        return;
    }
    std::fs::set_permissions(&team, std::fs::Permissions::from_mode(0o2775)).unwrap();
    let group = |path: PathBuf| std::fs::metadata(path).unwrap().gid();
    let resource = site.created("/team/a", "1").await;
    assert_eq!(group(site.part()), own + 1);
    assert_eq!(
        site.append(&resource, 1, true, Script::text("2")).await.status,
        201
    );
    assert_eq!(group(site.path("team/a")), own + 1);
    assert_eq!(site.names(), [FOLDER, "team"]);
    let resource = site.created("/b", "1").await;
    site.append(&resource, 1, true, Script::text("2")).await;
    assert_eq!(group(site.path("b")), own);
}

#[tokio::test]
async fn an_upload_does_not_expire_while_its_bytes_arrive() {
    let site = site();
    let resource = site.created("/a", "1").await;
    let (send, sent) = mpsc::unbounded_channel();
    let fields = [PARTIAL, LAST, ("upload-offset", "1")];
    let mut files = site.files.clone();
    let append = tokio::spawn(files.call(request(Method::PATCH, &resource, &fields, Sent(sent))));
    send.send("2").unwrap();
    site.received(2).await;
    site.entry(&resource).age(Duration::from_secs(25 * 3_600));
    send.send("3").unwrap();
    site.received(3).await;
    assert_eq!(site.state(&resource).await, state("3", "?0", ""));
    assert_eq!(append.await.unwrap().unwrap().status(), 409);
}

#[cfg(unix)]
#[tokio::test]
async fn requests_to_one_upload_take_turns_when_the_served_folder_was_found_again() {
    let home = tempfile::tempdir().unwrap();
    let uploads = home.path().join("uploads");
    std::fs::create_dir(&uploads).unwrap();
    let mut site = site();
    site.files = Files::open(&site.root, taking_uploads(&uploads)).unwrap();
    let created = site.send(Method::PUT, "/a", &[MORE], Script::text("12")).await;
    let resource = format!("/{}", created.field("location").strip_prefix("./").unwrap());
    let dead = Script::of([Step::Data(Bytes::from("34")), Step::Stall]);
    let fields = [PARTIAL, LAST, ("upload-offset", "2")];
    let mut files = site.files.clone();
    let dead = tokio::spawn(files.call(request(Method::PATCH, &resource, &fields, dead)));
    let token = resource.rsplit_once('=').unwrap().1;
    let part = uploads.join(FOLDER).join(format!("{token}.part"));
    while std::fs::metadata(&part).unwrap().len() < 4 {
        tokio::task::yield_now().await;
    }
    std::fs::rename(&site.root, site.outside.join("before")).unwrap();
    std::fs::create_dir(&site.root).unwrap();
    site.files.shared_for_tests().watch.hurry();
    assert_eq!(site.state(&resource).await, state("4", "?0", ""));
    let stored = site.append(&resource, 4, true, Script::text("56")).await;
    assert_eq!(stored.status, 201, "{}", stored.text());
    assert_eq!(dead.await.unwrap().unwrap().status(), 409);
    assert_eq!(read(uploads.join("a")), "123456");
}

#[tokio::test]
async fn an_upload_whose_record_cannot_be_written_leaves_nothing() {
    let site = site();
    let mut request = request(Method::PUT, "/a", &[MORE], Script::text("1"));
    // Longer than a record may be.
    request
        .extensions_mut()
        .insert(LogUser("x".repeat(70_000).into()));
    assert_eq!(site.call(request).await.status(), 503);
    assert!(site.kept().is_empty());
}

#[tokio::test]
async fn a_first_request_that_is_too_long_is_told_the_limit() {
    let site = Site::with(|root| Settings {
        max_upload_bytes: 10,
        ..taking_uploads(root)
    });
    let refused = site
        .send(Method::PUT, "/a", &[MORE], Script::text("12345678901"))
        .await;
    assert_eq!(
        (refused.status.as_u16(), refused.field("upload-limit")),
        (413, "max-size=10")
    );
    assert!(site.kept().is_empty());
}

#[tokio::test]
async fn an_upload_whose_cancellation_is_dropped_before_it_began_goes_on() {
    let site = Site::with(|root| {
        let settings = taking_uploads(root);
        Settings {
            limits: Limits {
                jobs_per_peer: 1,
                ..settings.limits
            },
            ..settings
        }
    });
    let address = PeerAddr("192.0.2.1:1".parse().unwrap());
    let resource = site.created("/a", "12").await;
    let jobs = &site.files.shared_for_tests().jobs;
    let peer = Some(crate::peer::Peer::at(address.0.ip()));
    let block = || {
        let (gate, closed) = std::sync::mpsc::channel::<()>();
        let work = move || closed.recv().is_err();
        (gate, jobs.begin(&tokio::runtime::Handle::current(), peer, work))
    };
    // The job that finds the upload waits for the first gate, and the one that removes it for the second.
    let (first_gate, first) = block();
    let mut cancel = request(Method::DELETE, &resource, &[], Script::of([]));
    cancel.extensions_mut().insert(address);
    let mut cancel = Box::pin(site.call(cancel));
    let mut poll = async || {
        tokio::task::yield_now().await;
        let pending = std::future::poll_fn(|cx| Poll::Ready(cancel.as_mut().poll(cx).is_pending())).await;
        assert!(pending, "the job that removes the upload has no thread");
    };
    let begun = jobs.begun();
    for _ in 0..10 {
        poll().await;
    }
    let (second_gate, second) = block();
    for _ in 0..10 {
        poll().await;
    }
    drop(first_gate);
    assert!(first.await.unwrap());
    while jobs.begun() < begun + 2 {
        poll().await;
    }
    for _ in 0..100 {
        poll().await;
    }
    drop(cancel);
    drop(second_gate);
    assert!(second.await.unwrap());
    assert_eq!(site.state(&resource).await, state("2", "?0", ""));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_part_is_never_kept_on_another_mount_than_that_of_its_file() {
    use std::process::Command;
    const INSIDE: &str = "FULLBORE_TEST_MAY_MOUNT";
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).env(INSIDE, "1").output();
        output.is_ok_and(|output| output.status.success())
    };
    if std::env::var_os(INSIDE).is_none() {
        // The test once more, in a namespace with mounts of its own. Not every system has them.
        let name = "tests::unfinished::a_part_is_never_kept_on_another_mount_than_that_of_its_file";
        let program = std::env::current_exe().unwrap();
        let again = [
            &["--map-root-user", "--mount"],
            &[program.to_str().unwrap(), "--exact", name][..],
        ]
        .concat();
        assert!(run("unshare", &again) || !run("unshare", &["--map-root-user", "--mount", "true"]));
        return;
    }
    let site = site();
    let other = site.outside.join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::create_dir(site.path("sub")).unwrap();
    let at = site.path("sub");
    if !run(
        "mount",
        &["--bind", other.to_str().unwrap(), at.to_str().unwrap()],
    ) {
        return;
    }
    // It would have to be renamed to the other mount.
    let refused = site.send(Method::PUT, "/sub/a", &[MORE], Script::text("1")).await;
    assert_eq!(refused.status, 503);
    assert!(site.kept().is_empty());
    let stored = site.send(Method::PUT, "/sub/a", &[LAST], Script::text("1")).await;
    assert_eq!(stored.status, 201);
    let resource = site.created("/a", "1").await;
    assert_eq!(site.append(&resource, 1, true, Script::of([])).await.status, 201);
    assert!(run("umount", &[at.to_str().unwrap()]));
}

#[cfg(unix)]
#[tokio::test]
async fn a_server_that_was_killed_finds_the_file_of_an_upload_whose_length_came_late() {
    let mut site = site();
    let resource = site.created("/a", "12").await;
    // It tells the length, and breaks off.
    let fields = [PARTIAL, MORE, ("upload-offset", "2"), ("upload-length", "3")];
    let told = site
        .send(Method::PATCH, &resource, &fields, Script::text("3"))
        .await;
    assert_eq!(told.status, 204);
    std::fs::rename(site.part(), site.path("a")).unwrap();
    site.files = Files::open(&site.root, taking_uploads(&site.root)).unwrap();
    assert_eq!(site.state(&resource).await, state("3", "?1", "3"));
}

#[cfg(unix)]
#[tokio::test]
async fn an_upload_to_a_folder_that_the_server_may_not_write_to_is_refused_with_its_first_bytes() {
    use std::os::unix::fs::PermissionsExt as _;
    let site = site();
    std::fs::create_dir(site.path("sub")).unwrap();
    let permit = |mode| std::fs::set_permissions(site.path("sub"), std::fs::Permissions::from_mode(mode));
    permit(0o500).unwrap();
    let may_write = std::fs::write(site.path("sub/probe"), "").is_ok();
    let refused = site.send(Method::PUT, "/sub/a", &[MORE], Script::text("1")).await;
    // Root may write everywhere.
    assert_eq!(refused.status, if may_write { 201 } else { 503 });
    let stored = site.send(Method::PUT, "/sub/a", &[LAST], Script::text("1")).await;
    assert_eq!(stored.status, if may_write { 201 } else { 403 });
    permit(0o700).unwrap();
}

#[cfg(unix)]
#[tokio::test]
async fn all_parts_that_are_being_received_share_one_descriptor_of_their_folder() {
    let site = site();
    let UploadTarget::Directory(_, unfinished) = &site.files.shared_for_tests().uploads else {
        panic!("there are no uploads");
    };
    let part = |resource: &str| unfinished.part(&site.entry(resource).token).unwrap().directory;
    let one = part(&site.created("/a", "1").await);
    assert!(std::sync::Arc::ptr_eq(
        &one,
        &part(&site.created("/b", "1").await)
    ));
    // Another folder has taken its name.
    std::fs::rename(site.path(FOLDER), site.path("removed")).unwrap();
    let other = part(&site.created("/c", "1").await);
    assert!(!std::sync::Arc::ptr_eq(&one, &other));
}

#[tokio::test]
async fn a_handler_that_is_dropped_at_any_point_loses_and_repeats_no_byte() {
    let site = site();
    let data = "1234567890";
    for polls in 0..60 {
        let path = format!("/{polls}");
        let resource = site.created(&path, "12").await;
        for method in [Method::PATCH, Method::HEAD, Method::PATCH] {
            let (told, _, _) = site.state(&resource).await.unwrap();
            let offset: usize = told.parse().unwrap();
            let steps = data[offset..]
                .bytes()
                .take(3)
                .map(|byte| Step::Data(vec![byte].into()));
            let fields = [PARTIAL, MORE, ("upload-offset", told.as_str())];
            let request = request(method, &resource, &fields, Script::of(steps));
            let mut dropped = Box::pin(site.call(request));
            for _ in 0..polls {
                tokio::task::yield_now().await;
                let is_ready = std::future::poll_fn(|cx| Poll::Ready(dropped.as_mut().poll(cx).is_ready()));
                if is_ready.await {
                    break;
                }
            }
        }
        let (told, complete, _) = site.state(&resource).await.unwrap();
        assert_eq!(complete, "?0");
        let offset: usize = told.parse().unwrap();
        let rest = Script::of([Step::Data(data[offset..].into())]);
        let stored = site.append(&resource, offset as u64, true, rest).await;
        assert_eq!(stored.status, 201, "{}", stored.text());
        assert_eq!(read(site.path(&path[1..])), data, "{polls}");
    }
}

#[tokio::test]
async fn a_length_below_the_offset_is_refused_and_not_remembered() {
    let site = site();
    let resource = site.created("/a", "1234").await;
    let fields = [PARTIAL, LAST, ("upload-offset", "4"), ("upload-length", "3")];
    let refused = site.send(Method::PATCH, &resource, &fields, Script::of([])).await;
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("#inconsistent-upload-length"));
    assert_eq!(site.state(&resource).await, state("4", "?0", ""));
    assert_eq!(site.append(&resource, 4, true, Script::of([])).await.status, 201);
}

#[tokio::test]
async fn a_request_that_arrived_first_changes_nothing_after_the_offset_was_told() {
    let site = Site::with(|root| {
        let settings = taking_uploads(root);
        let limits = Limits {
            jobs_per_peer: 1,
            ..settings.limits
        };
        Settings { limits, ..settings }
    });
    let resource = site.created("/a", "12").await;
    // The jobs of the first request have to wait.
    let address = PeerAddr("192.0.2.1:1".parse().unwrap());
    let peer = Some(crate::peer::Peer::at(address.0.ip()));
    let (gate, closed) = std::sync::mpsc::channel::<()>();
    let jobs = &site.files.shared_for_tests().jobs;
    let blocker = jobs.begin(&tokio::runtime::Handle::current(), peer, move || {
        closed.recv().is_err()
    });
    let fields = [PARTIAL, MORE, ("upload-offset", "2")];
    let mut append = request(Method::PATCH, &resource, &fields, Script::text("34"));
    append.extensions_mut().insert(address);
    let append = tokio::spawn(site.files.clone().call(append));
    tokio::task::yield_now().await;
    let head = request(Method::HEAD, &resource, &[], Script::of([]));
    let head = tokio::spawn(site.files.clone().call(head));
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    drop(gate);
    assert!(blocker.await.unwrap());
    let told = head.await.unwrap().unwrap().headers()["upload-offset"].clone();
    append.await.unwrap().unwrap();
    let (offset, _, _) = site.state(&resource).await.unwrap();
    assert_eq!(told, offset);
}
