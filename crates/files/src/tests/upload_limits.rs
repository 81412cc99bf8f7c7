//! What uploads may take: slots, memory and the disk have bounds, and what is beyond them is told so.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::settings::Limits;
use crate::upload_limits::{Space, UploadLimits};
use crate::{PeerAddr, Uploads};

use super::uploads::{Gated, until};
use super::*;

fn site(change: impl FnOnce(&mut Settings)) -> Site {
    Site::with(|root| {
        let mut settings = Settings {
            uploads: Uploads::Directory(root.to_owned()),
            overwrite: true,
            limits: Limits {
                flush_after: Duration::ZERO,
                ..Limits::DEFAULT
            },
            min_free_bytes: Some(0),
            ..Settings::default()
        };
        change(&mut settings);
        settings
    })
}

type Upload = JoinHandle<Result<Response<ServeBody>, Infallible>>;

impl Site {
    fn limits(&self) -> Arc<UploadLimits> {
        Arc::clone(&self.files.shared_for_tests().upload_limits)
    }

    /// An upload in a task of its own.
    fn begin(&self, path: &str, body: impl Body<Data = Bytes> + Send + 'static) -> Upload {
        let mut files = self.files.clone();
        tokio::spawn(files.call(request(Method::PUT, path, &[], body)))
    }
}

/// Ends an upload whose peer is gone.
async fn abort(upload: Upload) {
    upload.abort();
    assert!(upload.await.unwrap_err().is_cancelled());
}

#[tokio::test]
async fn an_upload_of_which_nothing_has_come_takes_no_slot_and_no_descriptor() {
    let site = site(|_| ());
    let mut uploads = Vec::new();
    let mut releases = Vec::new();
    for number in 0..20 {
        let (body, release) = Gated::new(Script::of([Step::Stall]));
        let stalled = Arc::clone(&body.stalled);
        uploads.push(site.begin(&format!("/{number}"), body));
        releases.push(release);
        until(|| stalled.load(Ordering::Relaxed)).await;
    }
    assert_eq!((site.limits().in_progress(), site.in_progress()), (0, 0));
    for upload in uploads {
        assert!(!upload.is_finished());
        abort(upload).await;
    }
}

#[tokio::test]
async fn one_upload_more_than_may_be_is_told_to_come_back_later() {
    let site = site(|settings| settings.max_uploads = 2);
    let stalled = || Script::of([Step::Data(Bytes::from("x")), Step::Stall]);
    let first = site.begin("/1", stalled());
    let second = site.begin("/2", stalled());
    until(|| site.in_progress() == 2).await;
    assert!(site.limits().is_full(None));
    for method in [Method::PUT, Method::POST] {
        // Nothing of its body is needed to say so.
        let body = Script::of([Step::Stall]);
        let answer = site.send(method, "/3", &[], body).await;
        assert_eq!(answer.status, 503);
        assert_eq!(answer.field("retry-after"), "5");
        assert_eq!(
            answer.text(),
            "too many uploads are in progress; try again later\n"
        );
    }
    abort(first).await;
    until(|| site.limits().in_progress() == 1).await;
    let answer = site.send(Method::PUT, "/3", &[], Script::text("text")).await;
    assert_eq!(answer.status, 201);
    abort(second).await;
    until(|| site.limits().in_progress() == 0).await;
    assert_eq!(site.in_progress(), 0);
    assert_eq!(site.names(), ["3"]);
}

#[tokio::test]
async fn an_address_that_has_half_of_the_slots_is_told_so_and_others_upload() {
    let site = site(|settings| settings.max_uploads = 4);
    let from = |address: &str, path: &str, body: Script| {
        let mut request = request(Method::PUT, path, &[], body);
        let peer = PeerAddr(format!("{address}:1").parse().unwrap());
        request.extensions_mut().insert(peer);
        tokio::spawn(site.files.clone().call(request))
    };
    let held: Vec<Upload> = (0..2)
        .map(|number| {
            let body = Script::of([Step::Data(Bytes::from("x")), Step::Stall]);
            from("192.0.2.1", &format!("/{number}"), body)
        })
        .collect();
    until(|| site.limits().in_progress() == 2).await;
    let Ok(response) = from("192.0.2.1", "/more", Script::text("text")).await.unwrap();
    assert_eq!(response.status(), 503);
    assert!(response.headers().contains_key("retry-after"));
    let Ok(response) = from("192.0.2.2", "/other", Script::text("text")).await.unwrap();
    assert_eq!(response.status(), 201);
    for upload in held {
        abort(upload).await;
    }
    until(|| site.limits().in_progress() == 0).await;
    assert_eq!(site.names(), ["other"]);
}

#[tokio::test]
async fn an_upload_that_waited_while_the_last_slot_went_is_told_so_with_its_first_octets() {
    let site = site(|settings| settings.max_uploads = 1);
    for rest in [vec![], vec![Step::Data(Bytes::from("late"))]] {
        let (late, release) = Gated::new(Script::of([Step::Stall].into_iter().chain(rest)));
        let stalled = Arc::clone(&late.stalled);
        let late = site.begin("/late", late);
        until(|| stalled.load(Ordering::Relaxed)).await;
        let other = site.begin("/other", Script::of([Step::Data(Bytes::from("x")), Step::Stall]));
        until(|| site.limits().is_full(None)).await;
        release.send(()).unwrap();
        let Ok(response) = late.await.unwrap();
        assert_eq!(response.status(), 503);
        abort(other).await;
        until(|| site.limits().in_progress() == 0).await;
        assert_eq!(site.names(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn slots_come_back_however_an_upload_ends() {
    let site = site(|settings| {
        settings.max_uploads = 1;
        settings.max_upload_bytes = 1000;
    });
    let data = |bytes: usize| Step::Data(Bytes::from(vec![0; bytes]));
    for (steps, status) in [
        (vec![data(10)], 201),
        (vec![data(10)], 200),
        (vec![data(10), Step::Fail], 400),
        (vec![data(600), data(600)], 413),
        (vec![], 200),
    ] {
        let answer = site.send(Method::PUT, "/a", &[], Script::of(steps)).await;
        assert_eq!(answer.status, status);
        assert_eq!(site.limits().in_progress(), 0);
        assert_eq!(site.in_progress(), 0);
    }
}

#[tokio::test]
async fn uploads_and_responses_hold_no_more_files_than_there_may_be_open() {
    let site = site(|settings| {
        settings.open_files = 5;
        settings.max_uploads = 2;
    });
    site.write("long", pattern(700_000));
    let mut held = Vec::new();
    for _ in 0..10 {
        let request = request(Method::GET, "/long", &[], Empty::<Bytes>::new());
        held.push(site.call(request).await);
    }
    assert_eq!(site.files.shared_for_tests().descriptors.held(), 3);
}

const MIB: u64 = 1 << 20;

fn disk(free: u64) -> Option<Space> {
    Some(Space {
        free,
        total: 1000 * MIB,
        free_inodes: 0,
        inodes: 0,
    })
}

#[tokio::test]
async fn an_upload_that_would_take_the_disk_below_what_stays_free_is_507_at_once() {
    let site = site(|settings| settings.min_free_bytes = None);
    *site.limits().simulated.lock().unwrap() = disk(51 * MIB);
    let announced = (MIB + 1).to_string();
    let fields = [("content-length", announced.as_str())];
    // Nothing of its body is needed to say so.
    let answer = site
        .send(Method::PUT, "/a", &fields, Script::of([Step::Stall]))
        .await;
    assert_eq!(answer.status, 507);
    assert_eq!(
        answer.text(),
        "the server has not enough disk space for the upload\n"
    );
    assert_eq!(
        site.send(Method::PUT, "/a", &[], Script::text("text"))
            .await
            .status,
        201
    );
    *site.limits().simulated.lock().unwrap() = disk(50 * MIB - 1);
    let answer = site.send(Method::PUT, "/b", &[], Script::of([Step::Stall])).await;
    assert_eq!(answer.status, 507);
    assert_eq!(site.names(), ["a"]);
}

#[tokio::test]
async fn a_disk_that_fills_meanwhile_ends_an_upload_with_507_and_nothing_is_left() {
    let site = site(|settings| {
        settings.min_free_bytes = Some(10 * MIB);
        settings.limits.batch_bytes = 100;
    });
    let limits = site.limits();
    *limits.simulated.lock().unwrap() = disk(20 * MIB);
    let data = || Step::Data(Bytes::from(vec![0; 100]));
    let (body, release) = Gated::new(Script::of([data(), Step::Stall, data(), data(), Step::Stall]));
    let upload = site.begin("/a", body);
    until(|| site.in_progress() == 1).await;
    *limits.simulated.lock().unwrap() = disk(10 * MIB + 99);
    release.send(()).unwrap();
    let Ok(response) = upload.await.unwrap();
    assert_eq!(response.status(), 507);
    assert_eq!((limits.in_progress(), site.in_progress()), (0, 0));
    assert_eq!(site.names(), Vec::<String>::new());
}

#[test]
fn an_upload_that_has_come_whole_is_stored_though_its_peer_is_gone() {
    // With one thread for files, a job that waits holds up the write that the end of the body finds under way.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build()
        .unwrap();
    runtime.block_on(async {
        let site = site(|settings| settings.limits.batch_bytes = 100);
        let content = Step::Data(Bytes::from(vec![7; 150]));
        let (body, release) = Gated::new(Script::of([Step::Stall, content]));
        let stalled = Arc::clone(&body.stalled);
        let mut files = site.files.clone();
        let mut upload = files.call(request(Method::PUT, "/a", &[], body));
        let mut poll = || {
            let mut cx = Context::from_waker(std::task::Waker::noop());
            Pin::new(&mut upload).poll(&mut cx).is_pending()
        };
        while !stalled.load(Ordering::Relaxed) {
            assert!(poll());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let (go_on, waits) = std::sync::mpsc::channel::<()>();
        let job = tokio::task::spawn_blocking(move || waits.recv());
        release.send(()).unwrap();
        // The body comes to its end now; its peer goes away before the answer.
        assert!(poll());
        drop(upload);
        go_on.send(()).unwrap();
        job.await.unwrap().unwrap();
        until(|| site.limits().in_progress() == 0).await;
        assert_eq!(site.names(), ["a"]);
        assert_eq!(std::fs::read(site.path("a")).unwrap(), [7; 150]);
    });
}
