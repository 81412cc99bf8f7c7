//! Many URLs of a server that cannot be reached: one sentence, a count, and few attempts.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{TestResult, peer, program, run};
use fullbore_testing::nobody::Nobody;

const URLS: usize = 50_000;

fn list(folder: &std::path::Path, origin: &str) -> TestResult {
    let mut text = String::new();
    for number in 0..URLS {
        writeln!(text, "{origin}/{number}")?;
    }
    Ok(std::fs::write(folder.join("list"), text)?)
}

#[test]
fn fifty_thousand_urls_of_a_dead_server_print_one_sentence_and_a_count() -> TestResult {
    let folder = tempfile::tempdir()?;
    let nobody = Nobody::bind();
    list(folder.path(), &format!("http://{nobody}"))?;
    let ended = run(folder.path(), ["get", "-i", "list", "--dir", "out"])?;
    assert_eq!(ended.code, Some(5), "{ended:?}");
    let said: Vec<&str> = ended
        .stderr
        .lines()
        .filter(|line| line.starts_with("fullbore: "))
        .collect();
    assert_eq!(said.len(), 2, "{:?}", &said[..said.len().min(5)]);
    assert!(said[0].contains("cannot connect"), "{said:?}");
    assert!(said[1].contains("49,999 more URLs"), "{said:?}");
    assert!(ended.stderr.lines().count() <= 3);
    Ok(())
}

#[test]
fn a_server_that_ends_every_connection_before_tls_is_asked_a_few_times_for_all_urls() -> TestResult {
    let count = Arc::new(AtomicUsize::new(0));
    let attempts = Arc::clone(&count);
    let address = peer::listen(move |_| {
        attempts.fetch_add(1, Ordering::Relaxed);
        Ok(())
    })?;
    let folder = tempfile::tempdir()?;
    list(folder.path(), &format!("https://{address}"))?;
    let output = program(folder.path())
        .args(["get", "-i", "list", "--dir", "out", "--json"])
        .output()?;
    assert_eq!(output.status.code(), Some(6));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!(document["totals"]["failures"], URLS);
    let last = &document["results"][URLS - 1];
    let (url, message) = (last["url"].as_str(), last["error"]["message"].as_str());
    assert!(
        url.zip(message)
            .is_some_and(|(url, message)| message.starts_with(url)),
        "{last}"
    );
    let attempts = count.load(Ordering::Relaxed);
    assert!((1..=20).contains(&attempts), "{attempts} connections");
    Ok(())
}

#[test]
fn urls_of_other_origins_are_downloaded_all_the_same() -> TestResult {
    let folder = tempfile::tempdir()?;
    let dead = Nobody::bind();
    std::fs::write(folder.path().join("file"), "content")?;
    let serving = crate::support::Serving::start(folder.path(), &[".", "--plaintext"])?;
    let urls = [
        format!("http://{dead}/a"),
        format!("http://{dead}/b"),
        format!("{}/file", serving.origin),
    ];
    let args = [
        "get",
        "--dir",
        "out",
        "--parallel",
        "1",
        &urls[0],
        &urls[1],
        &urls[2],
    ];
    let ended = run(folder.path(), args)?;
    assert_eq!(ended.code, Some(5), "{ended:?}");
    assert_eq!(std::fs::read(folder.path().join("out/file"))?, b"content");
    assert!(ended.stderr.contains("1 more URL"), "{ended:?}");
    Ok(())
}
