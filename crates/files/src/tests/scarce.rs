//! What happens when many want much: memory and descriptors have bounds, and bodies are right beyond them too.

use std::time::Duration;

use super::*;
use crate::settings::Limits;

/// Holds the heads of so many responses, their bodies unread.
async fn hold(site: &Site, count: usize, path: impl Fn(usize) -> String) -> Vec<Response<ServeBody>> {
    let mut held = Vec::new();
    for number in 0..count {
        let request = request(Method::GET, &path(number), &[], Empty::<Bytes>::new());
        held.push(site.call(request).await);
    }
    held
}

#[cfg(unix)]
#[tokio::test]
async fn beyond_their_bound_files_are_opened_for_each_chunk() {
    let site = Site::with(|_| Settings {
        open_files: 3,
        ..Settings::default()
    });
    let content = pattern(700_000);
    site.write("long", &content);
    let descriptors = &site.files.shared_for_tests().descriptors;
    let held = hold(&site, 20, |_| "/long".to_owned()).await;
    assert_eq!(descriptors.held(), 3);
    for response in held {
        assert!(Answer::read(response).await.body == content);
    }
    assert_eq!(descriptors.held(), 0);
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_that_is_not_held_may_get_another_name_but_no_other_octets() {
    let site = Site::with(|_| Settings {
        open_files: 0,
        ..Settings::default()
    });
    let content = pattern(700_000);
    site.write("long", &content);
    let mut held = hold(&site, 2, |_| "/long".to_owned()).await;
    std::fs::hard_link(site.path("long"), site.path("link")).unwrap();
    assert!(Answer::read(held.remove(0)).await.body == content);

    // Another file of that name: as long, but not it.
    site.write("other", pattern(700_000));
    std::fs::rename(site.path("other"), site.path("long")).unwrap();
    let error = held.remove(0).into_body().collect().await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
}

#[cfg(unix)]
#[tokio::test]
async fn what_is_read_whole_is_bounded() {
    let site = Site::with(|_| Settings {
        limits: Limits {
            all_whole_bytes: 100_000,
            cache_after: Duration::ZERO,
            cache_bytes: 0,
            ..Limits::DEFAULT
        },
        ..Settings::default()
    });
    let content = |number: usize| pattern(30_000 + number);
    for number in 0..20 {
        site.write(&format!("f{number}"), content(number));
    }
    let buffers = &site.files.shared_for_tests().buffers;
    let held = hold(&site, 20, |number| format!("/f{number}")).await;
    let (chunks, whole) = buffers.used();
    assert_eq!(whole, 30_000 + 30_001 + 30_002);
    assert_eq!(chunks, 17 * Settings::default().limits.first_chunk_bytes);
    for (number, response) in held.into_iter().enumerate() {
        assert!(Answer::read(response).await.body == content(number), "{number}");
    }
    assert_eq!(buffers.used(), (0, 0));
}

#[tokio::test]
async fn a_file_of_one_frame_is_read_whole_though_it_was_changed_just_now() {
    let site = Site::new();
    site.write("short", pattern(10_000));
    site.write("longer", pattern(20_000));
    let buffers = &site.files.shared_for_tests().buffers;
    let held = hold(&site, 1, |_| "/short".to_owned()).await;
    assert_eq!(buffers.used(), (0, 10_000));
    drop(held);
    let held = hold(&site, 1, |_| "/longer".to_owned()).await;
    assert_eq!(buffers.used(), (Settings::default().limits.first_chunk_bytes, 0));
    drop(held);
    assert_eq!(buffers.used(), (0, 0));
}
