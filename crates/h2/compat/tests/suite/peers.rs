//! A server of hyper on `crates/h2`, and pingora's proxy before it, in cleartext and over TLS, beside curl, nghttp, h2load and the
//! client of Go's `net/http`. A test whose peer is missing says so and passes, or fails when `FULLBORE_PEERS=required`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use fullbore_testing::process::{DEADLINE, Outcome, run_into, run_text};
use tokio::task::JoinHandle;

use crate::pingora;
use crate::support::{hyper_server, pattern};
use crate::tls::{SERVER, Tls};

/// The servers that a peer speaks with.
struct Servers {
    /// `http://` or `https://`, and the authority.
    urls: Vec<String>,
    /// The certificate of those over TLS.
    certificate: PathBuf,
    tasks: Vec<JoinHandle<()>>,
}

impl Servers {
    /// `name` is that of the test.
    async fn start(name: &str) -> Self {
        let tls = Tls::new();
        let (hyper, hyper_task) = hyper_server().await;
        let (proxy, proxy_task) = pingora::proxy(hyper).await;
        let (secure_hyper, secure_hyper_task) = tls.hyper_server().await;
        let (secure_proxy, secure_proxy_task) = pingora::proxy_over_tls(secure_hyper, &tls.server).await;
        let secure = |address: SocketAddr| format!("https://{SERVER}:{}", address.port());
        let certificate = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.pem"));
        std::fs::write(&certificate, &tls.pem).unwrap();
        Servers {
            urls: vec![
                format!("http://{hyper}"),
                format!("http://{proxy}"),
                secure(secure_hyper),
                secure(secure_proxy),
            ],
            certificate,
            tasks: vec![hyper_task, proxy_task, secure_hyper_task, secure_proxy_task],
        }
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        let _ = std::fs::remove_file(&self.certificate);
    }
}

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

/// The standard output of a program, while the servers run beside it.
async fn output(mut command: Command) -> Vec<u8> {
    let run = move || run_into(&mut command, Vec::new(), DEADLINE);
    let done: Outcome<(Vec<u8>, String)> = tokio::task::spawn_blocking(run).await.unwrap();
    done.unwrap().0
}

/// A file with the bytes of a body.
fn file(name: &str, length: usize) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, pattern(length)).unwrap();
    path
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curl_downloads_and_uploads() {
    if !has("curl", "--version") {
        return;
    }
    let servers = Servers::start("curl").await;
    let curl = || {
        let mut curl = Command::new("curl");
        curl.args(["--http2-prior-knowledge", "--fail", "--silent", "--show-error"]);
        curl.arg("--cacert").arg(&servers.certificate);
        curl
    };
    for url in &servers.urls {
        for length in [0, 1, 65_536, 5_000_000] {
            let mut get = curl();
            get.arg(format!("{url}/{length}"));
            assert!(output(get).await == pattern(length), "{url} {length}");
            let sent = file(&format!("curl-{length}"), length);
            let mut post = curl();
            post.arg("--data-binary").arg(format!("@{}", sent.display()));
            post.arg(url);
            assert!(output(post).await == pattern(length), "{url} {length}");
            std::fs::remove_file(sent).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nghttp_downloads_and_uploads() {
    if !has("nghttp", "--version") {
        return;
    }
    let servers = Servers::start("nghttp").await;
    for url in &servers.urls {
        for length in [0, 1, 65_536, 5_000_000] {
            let mut get = Command::new("nghttp");
            get.arg(format!("{url}/{length}"));
            assert!(output(get).await == pattern(length), "{url} {length}");
            let sent = file(&format!("nghttp-{length}"), length);
            let mut post = Command::new("nghttp");
            post.arg("--data").arg(&sent).arg(format!("{url}/"));
            assert!(output(post).await == pattern(length), "{url} {length}");
            std::fs::remove_file(sent).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h2load_has_all_its_answers() {
    if !has("h2load", "--version") {
        return;
    }
    let servers = Servers::start("h2load").await;
    for url in &servers.urls {
        for (streams, length) in [("1", 0), ("100", 12), ("100", 10_000), ("10", 1_000_000)] {
            let mut load = Command::new("h2load");
            load.args([
                "--requests=200",
                "--clients=2",
                "--max-concurrent-streams",
                streams,
            ]);
            load.arg(format!("{url}/{length}"));
            let told = String::from_utf8(output(load).await).unwrap();
            let expected = "200 total, 200 started, 200 done, 200 succeeded, 0 failed, 0 errored, 0 timeout";
            assert!(told.contains(expected), "{url} {told}");
        }
    }
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
    let servers = Servers::start("go").await;
    for url in &servers.urls {
        let mut peer = Command::new(&built);
        peer.arg(url).arg(&servers.certificate);
        assert_eq!(output(peer).await, b"done\n", "{url}");
    }
}
