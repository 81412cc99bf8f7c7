//! A server of hyper on `crates/h2` beside curl, nghttp, h2load and the client of Go's `net/http`. A test whose peer is missing
//! says so and passes, or fails when `FULLBORE_PEERS=required`.

mod support;

use std::path::Path;
use std::process::Command;

use fullbore_testing::process::{DEADLINE, Outcome, run_into, run_text};

use support::{hyper_server, pattern};

/// Whether this program can be started.
fn has(program: &str, version: &str) -> bool {
    let found = run_text(Command::new(program).arg(version));
    let required = std::env::var_os("FULLBORE_PEERS").is_some_and(|value| value == "required");
    match &found {
        Err(fault) if required => panic!("needs {program}: {fault}"),
        Err(fault) => eprintln!("skipped: needs {program}: {fault}"),
        Ok(_) => {}
    }
    found.is_ok()
}

/// The standard output of a program, while the server runs beside it.
async fn output(mut command: Command) -> Vec<u8> {
    let run = move || run_into(&mut command, Vec::new(), DEADLINE);
    let done: Outcome<(Vec<u8>, String)> = tokio::task::spawn_blocking(run).await.unwrap();
    done.unwrap().0
}

/// A file with the bytes of a body.
fn file(name: &str, length: usize) -> std::path::PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, pattern(length)).unwrap();
    path
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curl_downloads_and_uploads() {
    if !has("curl", "--version") {
        return;
    }
    let (address, server) = hyper_server().await;
    let curl = || {
        let mut curl = Command::new("curl");
        curl.args(["--http2-prior-knowledge", "--fail", "--silent", "--show-error"]);
        curl
    };
    for length in [0, 1, 65_536, 5_000_000] {
        let mut get = curl();
        get.arg(format!("http://{address}/{length}"));
        assert!(output(get).await == pattern(length), "{length}");
        let sent = file(&format!("curl-{length}"), length);
        let mut post = curl();
        post.arg("--data-binary").arg(format!("@{}", sent.display()));
        post.arg(format!("http://{address}/"));
        assert!(output(post).await == pattern(length), "{length}");
        std::fs::remove_file(sent).unwrap();
    }
    server.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nghttp_downloads_and_uploads() {
    if !has("nghttp", "--version") {
        return;
    }
    let (address, server) = hyper_server().await;
    for length in [0, 1, 65_536, 5_000_000] {
        let mut get = Command::new("nghttp");
        get.arg(format!("http://{address}/{length}"));
        assert!(output(get).await == pattern(length), "{length}");
        let sent = file(&format!("nghttp-{length}"), length);
        let mut post = Command::new("nghttp");
        post.arg("--data").arg(&sent).arg(format!("http://{address}/"));
        assert!(output(post).await == pattern(length), "{length}");
        std::fs::remove_file(sent).unwrap();
    }
    server.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h2load_has_all_its_answers() {
    if !has("h2load", "--version") {
        return;
    }
    let (address, server) = hyper_server().await;
    for (streams, length) in [("1", 0), ("100", 12), ("100", 10_000), ("10", 1_000_000)] {
        let mut load = Command::new("h2load");
        load.args([
            "--requests=200",
            "--clients=2",
            "--max-concurrent-streams",
            streams,
        ]);
        load.arg(format!("http://{address}/{length}"));
        let told = String::from_utf8(output(load).await).unwrap();
        let expected = "200 total, 200 started, 200 done, 200 succeeded, 0 failed, 0 errored, 0 timeout";
        assert!(told.contains(expected), "{told}");
    }
    server.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_of_go_downloads_and_uploads() {
    if !has("go", "version") {
        return;
    }
    let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-peer");
    let mut build = Command::new("go");
    build
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/go"))
        .args(["build", "-buildvcs=false", "-o"])
        .arg(&built)
        .arg(".")
        // A Go that is too old must say so, not fetch another one.
        .env("GOTOOLCHAIN", "local");
    output(build).await;
    let (address, server) = hyper_server().await;
    let mut peer = Command::new(built);
    peer.arg(address.to_string());
    assert_eq!(output(peer).await, b"done\n");
    server.abort();
}
