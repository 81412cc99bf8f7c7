//! Foreign clients of HTTP/1.1: how each downloads and uploads, and how it proves what it saw. Called by `serve_trials`.

use std::path::Path;
use std::process::Command;

use crate::certs::certs;
use crate::clients::{check_report, check_statuses, h2load_counts, script};
use crate::files::{Hasher, Payload, Scratch, workshop};
use crate::fullbore::{Transport, Version};
use crate::peers::{Peer, sources};
use crate::process::{DEADLINE, Outcome, ensure, run_into, run_text};

/// The clients of the suite.
pub(crate) const CLIENTS: [Peer; 8] = [
    Peer::Curl,
    Peer::Wget,
    Peer::Wget2,
    Peer::Aria2,
    Peer::Node,
    Peer::H2load,
    Peer::Ab,
    Peer::Wrk,
];

/// Whether `client` can upload `payload`: aria2 and wrk upload nothing, and neither h2load nor ab a file of 0 bytes. Over
/// TLS, wget2 1.99 sends one record of a body and waits for ever.
pub(crate) fn can_upload(client: Peer, transport: Transport, payload: &Payload) -> bool {
    match client {
        Peer::Aria2 | Peer::Wrk => false,
        Peer::Wget2 => transport == Transport::Cleartext,
        Peer::H2load | Peer::Ab => payload.bytes > 0,
        _ => true,
    }
}

/// Whether `client` can move 256 MiB: wrk keeps each body in memory for its script, and ab counts bytes in 32 bits and keeps
/// what it sends in memory.
pub(crate) fn moves_a_big_file(client: Peer) -> bool {
    !matches!(client, Peer::Wrk | Peer::Ab)
}

/// Lets `client` fetch all `payloads` from `origin`, and fails unless each arrived whole.
pub(crate) fn download(client: Peer, transport: Transport, origin: &str, payloads: &[Payload]) -> Outcome {
    if client == Peer::Node {
        let mut command = node(transport, "get")?;
        command.args(payloads.iter().map(|payload| url(origin, payload)));
        return check_report(client, Version::Http1, &run_text(&mut command)?, payloads);
    }
    payloads
        .iter()
        .try_for_each(|payload| download_one(client, transport, &url(origin, payload), payload))
}

fn download_one(client: Peer, transport: Transport, url: &str, payload: &Payload) -> Outcome {
    match client {
        Peer::Curl => {
            let (seen, version) = run_into(curl(transport)?.arg(url), Hasher::default(), DEADLINE)?;
            ensure(version.trim() == "1.1", || format!("curl spoke HTTP/{version}"))?;
            payload.check_hash(&seen, "curl")
        }
        Peer::Wget | Peer::Wget2 => {
            let mut command = wget(client, transport)?;
            let (seen, _) = run_into(command.arg(url), Hasher::default(), DEADLINE)?;
            payload.check_hash(&seen, client.name())
        }
        // In four ranges on four connections, where the file is large enough.
        Peer::Aria2 => {
            let scratch = Scratch::new()?;
            let mut command = client.command()?;
            command.args([
                "--no-conf",
                "--quiet",
                "--out=stored",
                "-x4",
                "-s4",
                "-k1M",
                "--max-tries=1",
            ]);
            command.arg("--dir").arg(scratch.path());
            if transport == Transport::Tls {
                command.arg("--ca-certificate").arg(&certs()?.authority);
            }
            run_text(command.arg(url))?;
            payload.check_file(&scratch.path().join("stored"), "aria2")
        }
        Peer::H2load => {
            let requests = if payload.bytes > 1 << 24 { 1 } else { 60 };
            let connections = if requests == 1 { 1 } else { 2 };
            let mut command = client.command()?;
            h2load_counts(command.arg("--h1"), requests, connections, 1, url, payload)
        }
        // HTTP/1.0 with keep-alive.
        Peer::Ab => {
            let mut command = client.command()?;
            let report = run_text(command.args(["-q", "-k", "-n", "60", "-c", "2"]).arg(url))?;
            let whole = [
                "Complete requests: 60".to_owned(),
                "Failed requests: 0".to_owned(),
                "Keep-Alive requests: 60".to_owned(),
                format!("HTML transferred: {} bytes", 60 * payload.bytes),
            ];
            has_lines(&report, &whole)
        }
        // For a second, or longer if the machine is so busy that no answer came.
        Peer::Wrk => {
            for duration in ["1s", "10s", "60s"] {
                let mut command = client.command()?;
                command.args(["-t", "2", "-c", "4", "--timeout", "600s", "-d", duration, "-s"]);
                command.arg(sources().join("wrk/check.lua"));
                let report = run_text(command.arg(url).env("SIZE", payload.bytes.to_string()))?;
                let line = report.lines().find(|line| line.starts_with("answers="));
                let line = line.unwrap_or_default();
                ensure(line.ends_with(" wrong=0 errors=0"), || format!("wrk: {report}"))?;
                if !line.starts_with("answers=0 ") {
                    return Ok(());
                }
            }
            Err("wrk: no answer".into())
        }
        other => Err(format!("{} is no client", other.name()).into()),
    }
}

/// Lets `client` upload all `payloads` to `origin`. That they arrived is for the caller to check, at the server.
pub(crate) fn upload(client: Peer, transport: Transport, origin: &str, payloads: &[Payload]) -> Outcome {
    payloads
        .iter()
        .try_for_each(|payload| upload_one(client, transport, &url(origin, payload), payload))
}

fn upload_one(client: Peer, transport: Transport, url: &str, payload: &Payload) -> Outcome {
    match client {
        // It asks first, by `Expect: 100-continue`, if the file is large.
        Peer::Curl => {
            let mut command = curl(transport)?;
            let command = command.arg("-T").arg(&payload.path).arg(url);
            let (_, version) = run_into(command, std::io::sink(), DEADLINE)?;
            ensure(version.trim() == "1.1", || format!("curl spoke HTTP/{version}"))
        }
        Peer::Wget => {
            let mut command = wget(client, transport)?;
            command.args(["--method=PUT", &format!("--body-file={}", payload.path.display())]);
            run_text(command.arg(url)).map(drop)
        }
        Peer::Wget2 => {
            let mut command = wget(client, transport)?;
            command.arg(format!("--post-file={}", payload.path.display()));
            run_text(command.arg(url)).map(drop)
        }
        Peer::Node => {
            let mut command = node(transport, "put")?;
            let report = run_text(command.arg(&payload.path).arg(url))?;
            check_statuses(client, Version::Http1, &report, 1)
        }
        Peer::H2load => {
            let mut command = client.command()?;
            command
                .args(["--h1", "-n", "1", "-c", "1", "-d"])
                .arg(&payload.path);
            let report = run_text(command.arg(url))?;
            ensure(
                report.contains("1 succeeded, 0 failed, 0 errored, 0 timeout"),
                || report,
            )
        }
        Peer::Ab => {
            let mut command = client.command()?;
            command.args(["-q", "-n", "1", "-T", "application/octet-stream", "-u"]);
            let report = run_text(command.arg(&payload.path).arg(url))?;
            ensure(!report.contains("Non-2xx"), || report.clone())?;
            has_lines(
                &report,
                &["Complete requests: 1".to_owned(), "Failed requests: 0".to_owned()],
            )
        }
        other => Err(format!("{} uploads nothing", other.name()).into()),
    }
}

/// Posts every one of `payloads` as a body that curl has in memory, or in chunks as it reads it from a pipe.
pub(crate) fn post_by_curl(transport: Transport, origin: &str, payload: &Payload, chunked: bool) -> Outcome {
    let mut command = curl(transport)?;
    command
        .arg("--data-binary")
        .arg(format!("@{}", payload.path.display()));
    if chunked {
        command.args(["-H", "transfer-encoding: chunked"]);
    }
    run_text(command.arg(url(origin, payload))).map(drop)
}

fn url(origin: &str, payload: &Payload) -> String {
    format!("{origin}/{}", payload.name)
}

/// It says on standard error which version it spoke.
fn curl(transport: Transport) -> Outcome<Command> {
    let mut curl = Peer::Curl.command()?;
    curl.args(["--silent", "--show-error", "--fail", "--http1.1"]);
    curl.args(["-w", "%{stderr}%{http_version}"]);
    if transport == Transport::Tls {
        curl.arg("--cacert").arg(&certs()?.authority);
    }
    Ok(curl)
}

/// wget or wget2, with what it receives on standard output.
fn wget(client: Peer, transport: Transport) -> Outcome<Command> {
    let mut command = client.command()?;
    command.args(["--no-config", "--quiet", "--tries=1", "--output-document=-"]);
    // Both keep notes about servers there.
    command.env("HOME", workshop());
    if client == Peer::Wget2 {
        command.arg("--no-http2");
    }
    if transport == Transport::Tls {
        command.arg("--ca-certificate").arg(&certs()?.authority);
    }
    Ok(command)
}

fn node(transport: Transport, verb: &str) -> Outcome<Command> {
    let mut command = script(Peer::Node, Path::new("node/http1-client.mjs"))?;
    command.arg(verb);
    if transport == Transport::Tls {
        command.arg("--cacert").arg(&certs()?.authority);
    }
    Ok(command)
}

/// Fails unless the report has these lines. Any white space counts as one blank.
fn has_lines(report: &str, lines: &[String]) -> Outcome {
    let found: Vec<String> = report
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    lines
        .iter()
        .try_for_each(|line| ensure(found.contains(line), || format!("no line {line:?} in\n{report}")))
}
