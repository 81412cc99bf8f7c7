//! `fullbore get` and `fullbore put` through tinyproxy (CONNECT, and requests in cleartext) and microsocks (SOCKS5), with and
//! without credentials. HTTP/2 is inside each tunnel.

use std::process::Command;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;

use crate::files::{Scratch, site, small};
use crate::fullbore::{self, Server, Transport, Uploads};
use crate::peers::{Peer, trial};
use crate::process::{DEADLINE, Daemon, Outcome, ensure, run_any, run_into, spawn_on_free_port};

const NAME: &str = "user";
const PASSWORD: &str = "pass";

/// All trials of this file.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for transport in Transport::BOTH {
        for has_credentials in [false, true] {
            let with = if has_credentials { "with" } else { "without" };
            for (peer, scheme) in [
                (Peer::Tinyproxy, "http"),
                (Peer::Microsocks, "socks5"),
                (Peer::Microsocks, "socks5h"),
            ] {
                trials.push(trial(
                    &[peer],
                    format!(
                        "get and put through {scheme}:// ({}) {with} credentials over {transport}",
                        peer.name()
                    ),
                    move || through(peer, scheme, has_credentials, transport),
                ));
            }
        }
    }
    for peer in [Peer::Tinyproxy, Peer::Microsocks] {
        trials.push(trial(
            &[peer],
            format!(
                "{} refuses without its credentials and with wrong ones",
                peer.name()
            ),
            move || refused(peer),
        ));
    }
    trials
}

/// A proxy on a free port of 127.0.0.1.
struct Proxy {
    daemon: Daemon,
    port: u16,
    _scratch: Scratch,
}

impl Proxy {
    fn start(peer: Peer, has_credentials: bool) -> Outcome<Proxy> {
        let scratch = Scratch::new()?;
        let (daemon, port) = spawn_on_free_port(|port| match peer {
            Peer::Tinyproxy => {
                let file = scratch.path().join("tinyproxy.conf");
                let mut text =
                    format!("Port {port}\nListen 127.0.0.1\nTimeout 60\nAllow 127.0.0.1\nLogLevel Connect\n");
                if has_credentials {
                    text += &format!("BasicAuth {NAME} {PASSWORD}\n");
                }
                std::fs::write(&file, text)?;
                let mut command = peer.command()?;
                command.arg("-d").arg("-c").arg(file);
                Ok(command)
            }
            _ => {
                let mut command = peer.command()?;
                command.args(["-i", "127.0.0.1", "-p", &port.to_string()]);
                if has_credentials {
                    command.args(["-u", NAME, "-P", PASSWORD]);
                }
                Ok(command)
            }
        })?;
        Ok(Proxy {
            daemon,
            port,
            _scratch: scratch,
        })
    }

    /// What it said of its connections: tinyproxy on standard output, microsocks on standard error.
    fn log(&self) -> String {
        self.daemon.take_lines().join("\n") + &self.daemon.stderr_tail()
    }
}

/// Which way requests go: of HTTP/2, except those that an HTTP proxy forwards.
fn version(peer: Peer, transport: Transport) -> &'static str {
    match (peer, transport) {
        (Peer::Tinyproxy, Transport::Cleartext) => "--http1.1",
        _ => "--http2",
    }
}

fn through(peer: Peer, scheme: &str, has_credentials: bool, transport: Transport) -> Outcome {
    let scratch = Scratch::new()?;
    let stored = scratch.folder("stored")?;
    let server = Server::start(transport, site(), Uploads::Into(&stored))?;
    let proxy = Proxy::start(peer, has_credentials)?;
    let credentials = if has_credentials {
        format!("{NAME}:{PASSWORD}@")
    } else {
        String::new()
    };
    let url = format!("{scheme}://{credentials}127.0.0.1:{}", proxy.port);
    let fetched = scratch.folder("fetched")?;

    let mut get = fullbore::client("get", transport)?;
    get.args(["--proxy", &url, version(peer, transport), "--dir"])
        .arg(&fetched);
    get.args(
        small()
            .iter()
            .map(|payload| format!("{}/{}", server.url, payload.name)),
    );
    run_into(&mut get, std::io::sink(), DEADLINE).map_err(|fault| server.blame(&fault))?;
    for payload in small() {
        payload.check_file(&fetched.join(&payload.name), "fullbore get")?;
    }
    // The environment names it too, and a version need not be named.
    let variable = match transport {
        Transport::Cleartext => "http_proxy",
        Transport::Tls => "https_proxy",
    };
    for payload in small() {
        let mut put = fullbore::client("put", transport)?;
        put.env(variable, &url).arg(&payload.path);
        put.arg(format!("{}/{}", server.url, payload.name));
        run_into(&mut put, std::io::sink(), DEADLINE).map_err(|fault| server.blame(&fault))?;
        payload.check_file(&stored.join(&payload.name), "fullbore serve")?;
    }
    // The proxy names where it connected to.
    let target = format!("127.0.0.1:{}", server.port()?);
    let (begun, mut log) = (Instant::now(), String::new());
    loop {
        log += &proxy.log();
        if log.contains(&target) {
            return Ok(());
        }
        ensure(begun.elapsed() < DEADLINE, || {
            format!("nothing went to {target} through the proxy:\n{log}")
        })?;
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn refused(peer: Peer) -> Outcome {
    let server = Server::start(Transport::Tls, site(), Uploads::None)?;
    let proxy = Proxy::start(peer, true)?;
    let scheme = if peer == Peer::Tinyproxy {
        "http"
    } else {
        "socks5h"
    };
    for (credentials, part) in [
        ("", "needs a name and password"),
        ("user:wrong@", "did not accept the name and password"),
    ] {
        let url = format!("{scheme}://{credentials}127.0.0.1:{}", proxy.port);
        let mut get: Command = fullbore::client("get", Transport::Tls)?;
        get.args(["--discard", "--proxy", &url, &format!("{}/", server.url)]);
        let (status, _, said) = run_any(&mut get, std::io::sink(), DEADLINE)?;
        ensure(status.code() == Some(5) && said.contains(part), || {
            format!("{status}: {said}")
        })?;
        ensure(!said.contains("wrong@"), || said.clone())?;
    }
    Ok(())
}
