//! A page in Chromium through `fullbore proxy`, over HTTP/2 with TLS, in front of Node and of a Python application: 300 images,
//! a sound in a video element that is sought, an upload whose progress is seen, and a WebSocket. A script of the page does it
//! all, and the application prints its report.

use std::process::Command;

use libtest_mimic::Trial;

use crate::browser::chromium;
use crate::certs::certs;
use crate::files::Scratch;
use crate::fullbore;
use crate::peers::{Peer, python_with_packages, sources, trial};
use crate::process::{Daemon, Outcome, ensure, spawn_on_free_port};

/// All trials of this file.
pub(crate) fn trials() -> Vec<Trial> {
    let of = |peer: Peer| {
        let name = format!("Chromium uses a page of {} through fullbore proxy", peer.name());
        trial(&[Peer::Chromium, peer], name, move || page(peer))
    };
    vec![of(Peer::Node), of(Peer::Uvicorn)]
}

/// Starts the application. Returns its URL besides.
pub(crate) fn application(peer: Peer) -> Outcome<(Daemon, String)> {
    if peer == Peer::Uvicorn {
        let (daemon, port) = spawn_on_free_port(|port| Ok(uvicorn(&["--port", &port.to_string()])))?;
        return Ok((daemon, format!("http://127.0.0.1:{port}")));
    }
    let mut command = Peer::Node.command()?;
    let mut daemon = Daemon::spawn(command.arg(sources().join("node/application.mjs")))?;
    let url = daemon.wait_line("listening on ")?;
    Ok((daemon, url.trim().to_owned()))
}

/// The Python application, with these options of uvicorn.
pub(crate) fn uvicorn(options: &[&str]) -> Command {
    let mut python = python_with_packages();
    python.args(["-u", "-B", "-m", "uvicorn", "application:app", "--no-access-log"]);
    python
        .args(options)
        .arg("--app-dir")
        .arg(sources().join("python"));
    python
}

/// A proxy with the certificate of the suite.
pub(crate) fn proxy(origin: &str, more: &[&str]) -> Outcome<(Daemon, String)> {
    let certs = certs()?;
    let mut command = Command::new(fullbore::program());
    command
        .args(["proxy", origin, "--listen", "127.0.0.1:0"])
        .args(more);
    command
        .arg("--cert")
        .arg(&certs.chain)
        .arg("--key")
        .arg(&certs.key);
    let mut daemon = Daemon::spawn(&mut command)?;
    let url = daemon.wait_line("listening on ")?;
    Ok((daemon, url.trim().trim_end_matches('/').to_owned()))
}

fn page(peer: Peer) -> Outcome {
    let scratch = Scratch::new()?;
    let (mut application, origin) = application(peer)?;
    let (mut proxy, url) = proxy(&origin, &[])?;
    let mut command = chromium(&scratch)?;
    command.args([
        "--autoplay-policy=no-user-gesture-required",
        "--remote-debugging-port=0",
    ]);
    let _browser = Daemon::spawn(command.arg(format!("{url}/")))?;
    let report = application.wait_line("report ")?;
    for expected in [
        "300 images",
        "sought 500 of 600",
        "uploaded 4194304, progress true",
        "heard one two three, clean true",
        "over h2",
    ] {
        ensure(report.contains(expected), || {
            format!("not {expected:?}, but {report}")
        })?;
    }
    // The seek has asked for another part than the first.
    let ranges = application.take_lines();
    let is_later = |line: &String| {
        let first = line
            .strip_prefix("range ")
            .and_then(|first| first.trim().parse::<u64>().ok());
        first.is_some_and(|first| first > 1_000_000)
    };
    ensure(ranges.iter().any(is_later), || {
        format!("no later range: {ranges:?}")
    })?;
    proxy.check_alive()
}
