//! The channel and the server beside other implementations of gRPC: grpc-go and grpcio (Python), both ways, over cleartext
//! and TLS. A trial whose peer is missing is ignored, or fails when `FULLBORE_PEERS=required`; `.ci/run peers` installs them.

#[path = "suite/sites.rs"]
mod sites;
mod support;

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use fullbore::BoxError;
use fullbore::tls::{Roots, client_config, self_signed};
use fullbore_testing::process::{Daemon, Outcome, run_text};
use fullbore_tonic::Channel;
use libtest_mimic::{Arguments, Failed, Trial};
use tonic::{Code, Request};

use sites::{Site, soon};
use support::client::Client;
use support::echo::Event;
use support::kinds;

/// Another implementation.
#[derive(Clone, Copy)]
enum Peer {
    Go,
    Python,
}

impl Peer {
    fn name(self) -> &'static str {
        match self {
            Peer::Go => "grpc-go",
            Peer::Python => "grpcio",
        }
    }

    /// A command that starts it.
    fn command(self) -> Outcome<Command> {
        match self {
            Peer::Go => go_peer().map(Command::new),
            Peer::Python => {
                let mut python = python();
                python.arg("-B").arg(sources().join("python/peer.py"));
                Ok(python)
            }
        }
    }

    /// Why it cannot be used here, if so.
    fn missing(self) -> Option<String> {
        let found = match self {
            Peer::Go => go_peer().map(drop),
            Peer::Python => run_text(python().args(["-c", "import grpc"])).map(drop),
        };
        found.err().map(|fault| format!("needs {}: {fault}", self.name()))
    }
}

/// The program in Go, compiled once.
fn go_peer() -> Outcome<&'static Path> {
    static BUILT: OnceLock<Outcome<PathBuf>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join("grpc-go-peer");
        let mut command = Command::new("go");
        command
            .current_dir(sources().join("go"))
            .args(["build", "-buildvcs=false", "-o"]);
        command.arg(&built).arg(".");
        // A Go that is too old must say so, not fetch another one.
        run_text(command.env("GOTOOLCHAIN", "local"))?;
        Ok(built)
    });
    built.as_deref().map_err(Clone::clone)
}

/// Python, which also finds what `.ci/run peers` has installed.
fn python() -> Command {
    let mut python = Command::new("python3");
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/peers/python");
    let path = env::var_os("PYTHONPATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain([installed]);
    python.env("PYTHONPATH", env::join_paths(folders).unwrap_or(path));
    python
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers")
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for peer in [Peer::Go, Peer::Python] {
        let missing = peer.missing();
        for tls in [false, true] {
            let over = if tls { "TLS" } else { "cleartext" };
            let name = peer.name();
            let ours = format!("the_channel_calls_{name}_over_{over}");
            trials.push(trial(&missing, ours, move || the_channel_calls(peer, tls)));
            let theirs = format!("{name}_calls_the_server_over_{over}");
            trials.push(trial(&missing, theirs, move || it_calls_the_server(peer, tls)));
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trial(
    missing: &Option<String>,
    name: String,
    run: impl FnOnce() -> Result<(), BoxError> + Send + 'static,
) -> Trial {
    let required = env::var_os("FULLBORE_PEERS").is_some_and(|value| value == "required");
    match missing.clone() {
        None => Trial::test(name, move || run().map_err(Failed::from)),
        Some(reason) => {
            let failure = reason.clone();
            let trial = Trial::test(name, move || Err(Failed::from(failure)));
            trial.with_kind(reason).with_ignored_flag(!required)
        }
    }
}

/// The peer is the server.
fn the_channel_calls(peer: Peer, tls: bool) -> Result<(), BoxError> {
    let folder = tempfile::tempdir()?;
    let made = self_signed(&["localhost"])?;
    let mut command = peer.command()?;
    command.arg("serve");
    if tls {
        let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
        std::fs::write(&cert, &made.cert_pem)?;
        std::fs::write(&key, &made.key_pem)?;
        command.arg(cert).arg(key);
    }
    let mut server = Daemon::spawn(&mut command)?;
    let address = server.wait_line("listening on ")?.trim().to_owned();
    let origin = match tls {
        true => address.replace("127.0.0.1", "https://localhost"),
        false => format!("http://{address}"),
    };
    let config = Arc::new(client_config(Roots::Pem(made.cert_pem.into_bytes()))?);
    let builder = Channel::builder(origin.parse()?).client(|client| client.tls_config(config));
    let runtime = tokio::runtime::Runtime::new()?;
    let connected = runtime.block_on(soon(builder.connect()))?;
    let calls = async {
        kinds::all(connected.clone()).await;
        kinds::thousand(connected.clone()).await;
    };
    runtime.block_on(soon(calls));

    let mut client = Client::new(connected);
    let mut waiting = client.clone();
    let call = runtime.spawn(async move { waiting.wait(Bytes::new()).await });
    server.wait_line("waiting")?;
    call.abort();
    server.wait_line("canceled")?;
    let messages = runtime
        .block_on(soon(client.drip(Bytes::from("one"))))?
        .into_inner();
    drop(messages);
    server.wait_line("canceled")?;
    let mut request = Request::new(Bytes::new());
    request.set_timeout(Duration::from_millis(100));
    let status = runtime
        .block_on(soon(client.wait(request)))
        .expect_err("no answer");
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
    Ok(server.check_alive()?)
}

/// The peer is the client. It makes the same calls, then cancels one, and lets the deadline of another pass.
fn it_calls_the_server(peer: Peer, tls: bool) -> Result<(), BoxError> {
    let folder = tempfile::tempdir()?;
    let runtime = tokio::runtime::Runtime::new()?;
    let mut site = match tls {
        true => runtime.block_on(Site::fullbore_over_tls()),
        false => runtime.block_on(Site::fullbore()),
    };
    let mut command = peer.command()?;
    command.arg("call");
    match &site.made {
        Some(made) => {
            let cert = folder.path().join("cert.pem");
            std::fs::write(&cert, &made.cert_pem)?;
            command
                .arg(format!("localhost:{}", site.address.port()))
                .arg(cert);
        }
        None => drop(command.arg(site.address.to_string())),
    }
    run_text(&mut command)?;
    // The end of the first of those may be noticed after the beginning of the second.
    let mut ends = 0;
    let mut began = Vec::new();
    while ends < 2 {
        match runtime
            .block_on(soon(site.events.recv()))
            .ok_or("the site serves")?
        {
            Event::Began(method, _) => began.push(method),
            Event::Dropped => ends += 1,
        }
    }
    let calls = began.iter().filter(|method| *method != "Unary");
    assert_eq!(calls.collect::<Vec<_>>(), ["Drip", "Wait"]);
    Ok(())
}
