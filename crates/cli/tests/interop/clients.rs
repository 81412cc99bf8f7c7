//! Foreign clients of HTTP/2: how each downloads and uploads, and how it proves what it saw. Called by `serve_trials`.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::certs::certs;
use crate::files::{Hasher, Payload, Scratch};
use crate::fullbore::{Transport, Version};
use crate::peers::{Peer, go_peer, sources};
use crate::process::{DEADLINE, Outcome, ensure, run_into, run_text};

/// The clients of the suite.
pub(crate) const CLIENTS: [Peer; 7] = [
    Peer::Curl,
    Peer::Nghttp,
    Peer::H2load,
    Peer::Go,
    Peer::Node,
    Peer::Java,
    Peer::Wget2,
];

/// Whether `client` speaks HTTP/2 over `transport`. The JDK's client reaches cleartext HTTP/2 only by the upgrade that
/// RFC 9113 dropped (section 3.1), and wget2 not at all.
pub(crate) fn speaks(client: Peer, transport: Transport) -> bool {
    transport == Transport::Tls || !matches!(client, Peer::Java | Peer::Wget2)
}

/// Whether `client` can upload `payload`: h2load maps the file, and no file of 0 bytes can be mapped. wget2 leaves the body
/// out of a request over HTTP/2, which it sends as a GET.
pub(crate) fn can_upload(client: Peer, payload: &Payload) -> bool {
    client != Peer::Wget2 && (client != Peer::H2load || payload.bytes > 0)
}

/// Lets `client` fetch all `payloads` from `origin`, and fails unless each arrived whole.
pub(crate) fn download(client: Peer, transport: Transport, origin: &str, payloads: &[Payload]) -> Outcome {
    match client {
        Peer::Curl => payloads.iter().try_for_each(|payload| {
            let mut curl = curl(transport)?;
            curl.arg("--fail")
                .args(["-w", "%{stderr}%{http_version}"])
                .arg(url(origin, payload));
            let (seen, version) = run_into(&mut curl, Hasher::default(), DEADLINE)?;
            ensure(version.trim() == "2", || format!("curl spoke HTTP/{version}"))?;
            payload.check_hash(&seen, "curl")
        }),
        Peer::Nghttp => payloads.iter().try_for_each(|payload| {
            let mut nghttp = Peer::Nghttp.command()?;
            let (seen, _) = run_into(nghttp.arg(url(origin, payload)), Hasher::default(), DEADLINE)?;
            payload.check_hash(&seen, "nghttp")
        }),
        Peer::H2load => payloads
            .iter()
            .try_for_each(|payload| h2load_download(origin, payload)),
        Peer::Go | Peer::Node | Peer::Java => {
            let mut command = own_client(client, transport, "get")?;
            command.args(payloads.iter().map(|payload| url(origin, payload)));
            let report = run_text(&mut command)?;
            check_report(client, Version::Http2, &report, payloads)
        }
        Peer::Wget2 => payloads.iter().try_for_each(|payload| {
            let scratch = Scratch::new()?;
            let stored = scratch.path().join("stored");
            wget2(scratch.path(), &stored, &url(origin, payload))?;
            payload.check_file(&stored, "wget2")
        }),
        other => Err(format!("{} is no client", other.name()).into()),
    }
}

/// Lets `client` upload all `payloads` to `origin`. That they arrived is for the caller to check, at the server.
pub(crate) fn upload(client: Peer, transport: Transport, origin: &str, payloads: &[Payload]) -> Outcome {
    match client {
        Peer::Curl => payloads.iter().try_for_each(|payload| {
            let mut curl = curl(transport)?;
            curl.arg("--fail")
                .args(["-w", "%{stderr}%{http_version}"])
                .arg("-T")
                .arg(&payload.path)
                .arg(url(origin, payload));
            let (_, version) = run_into(&mut curl, std::io::sink(), DEADLINE)?;
            ensure(version.trim() == "2", || format!("curl spoke HTTP/{version}"))
        }),
        Peer::Nghttp => payloads.iter().try_for_each(|payload| {
            let mut nghttp = Peer::Nghttp.command()?;
            nghttp
                .args(["--null-out", "-H", ":method: PUT", "-d"])
                .arg(&payload.path)
                .arg(url(origin, payload));
            run_text(&mut nghttp).map(drop)
        }),
        Peer::H2load => payloads.iter().try_for_each(|payload| {
            let mut h2load = Peer::H2load.command()?;
            h2load
                .args(["-n", "1", "-c", "1", "-d"])
                .arg(&payload.path)
                .arg(url(origin, payload));
            let report = run_text(&mut h2load)?;
            ensure(
                report.contains("1 succeeded, 0 failed, 0 errored, 0 timeout"),
                || report,
            )
        }),
        Peer::Go | Peer::Node => payloads.iter().try_for_each(|payload| {
            let mut command = own_client(client, transport, "put")?;
            check_statuses(
                client,
                Version::Http2,
                &run_text(command.arg(&payload.path).arg(url(origin, payload)))?,
                1,
            )
        }),
        Peer::Java => {
            let mut command = own_client(client, transport, "put")?;
            for payload in payloads {
                command.arg(&payload.path).arg(url(origin, payload));
            }
            check_statuses(client, Version::Http2, &run_text(&mut command)?, payloads.len())
        }
        other => Err(format!("{} is no client", other.name()).into()),
    }
}

fn url(origin: &str, payload: &Payload) -> String {
    format!("{origin}/{}", payload.name)
}

fn curl(transport: Transport) -> Outcome<Command> {
    let mut curl = Peer::Curl.command()?;
    curl.args(["--silent", "--show-error"]);
    match transport {
        Transport::Cleartext => drop(curl.arg("--http2-prior-knowledge")),
        Transport::Tls => drop(curl.arg("--http2").arg("--cacert").arg(&certs()?.authority)),
    }
    Ok(curl)
}

/// wget2 with what it receives in a file. It says only in its log which protocol was selected.
fn wget2(folder: &Path, output: &Path, url: &str) -> Outcome {
    let log = folder.join("log");
    let mut command = Peer::Wget2.command()?;
    command.env("HOME", folder);
    command.args(["--no-config", "--debug", "--http2", "--tries=1"]);
    command.arg("--output-file").arg(&log);
    command.arg("--output-document").arg(output);
    command.arg("--ca-certificate").arg(&certs()?.authority);
    run_text(command.arg(url))?;
    let log = fs::read(&log)?;
    let said = String::from_utf8_lossy(&log);
    ensure(said.contains("Server accepted protocol 'h2'"), || {
        format!("wget2 did not speak HTTP/2:\n{said}")
    })
}

/// h2load throws bodies away, so its own counts stand for the hash: many requests on two connections, or one for a big file.
fn h2load_download(origin: &str, payload: &Payload) -> Outcome {
    let (requests, connections, streams) = if payload.bytes > 1 << 24 {
        (1, 1, 1)
    } else {
        (60, 2, 10)
    };
    let mut command = Peer::H2load.command()?;
    h2load_counts(
        &mut command,
        requests,
        connections,
        streams,
        &url(origin, payload),
        payload,
    )
}

/// Runs h2load for so many requests, and fails unless it has counted every byte of them.
pub(crate) fn h2load_counts(
    command: &mut Command,
    requests: u64,
    connections: u32,
    streams: u32,
    url: &str,
    payload: &Payload,
) -> Outcome {
    command.args([
        "-n",
        &requests.to_string(),
        "-c",
        &connections.to_string(),
        "-m",
        &streams.to_string(),
    ]);
    let report = run_text(command.arg(url))?;
    ensure(
        report.contains(&format!("{requests} succeeded, 0 failed, 0 errored, 0 timeout")),
        || report.clone(),
    )?;
    // "traffic: 1.00GB (1074135096) total, 49B (49) headers (space savings 0.00%), 1.00GB (1073741824) data"
    let data = report
        .lines()
        .find(|line| line.starts_with("traffic:"))
        .and_then(|line| line.strip_suffix(") data"))
        .and_then(|line| line.rsplit('(').next())
        .and_then(|digits| digits.parse::<u64>().ok());
    ensure(data == Some(requests * payload.bytes), || {
        format!(
            "h2load: {requests} times {} bytes, but it counted {data:?}\n{report}",
            payload.bytes
        )
    })
}

/// The suite's own programs in Go, JavaScript and Java.
fn own_client(client: Peer, transport: Transport, verb: &str) -> Outcome<Command> {
    let mut command = match client {
        Peer::Go => Command::new(go_peer()?),
        Peer::Node => script(client, Path::new("node/client.mjs"))?,
        _ => script(client, Path::new("java/Peer.java"))?,
    };
    command.arg(verb);
    if transport == Transport::Tls {
        match client {
            Peer::Go => drop(command.arg("-cacert")),
            Peer::Node => drop(command.arg("--cacert")),
            _ => {}
        }
        command.arg(&certs()?.authority);
    }
    Ok(command)
}

pub(crate) fn script(peer: Peer, path: &Path) -> Outcome<Command> {
    let mut command = peer.command()?;
    command.arg(sources().join(path));
    Ok(command)
}

/// Each line of a download: `STATUS PROTOCOL BYTES SHA256`.
pub(crate) fn check_report(client: Peer, version: Version, report: &str, payloads: &[Payload]) -> Outcome {
    check_statuses(client, version, report, payloads.len())?;
    for (line, payload) in report.lines().zip(payloads) {
        let mut words = line.split_whitespace().skip(2);
        let bytes = words
            .next()
            .and_then(|word| word.parse().ok())
            .unwrap_or(u64::MAX);
        payload.check(bytes, words.next().unwrap_or_default(), client.name())?;
    }
    Ok(())
}

/// Each line starts with a status of success and a name of the version: Go and Node write `HTTP/2.0`, Java `HTTP_2`.
pub(crate) fn check_statuses(client: Peer, version: Version, report: &str, count: usize) -> Outcome {
    let names = match version {
        Version::Http1 => ["HTTP/1.1", "HTTP_1_1"],
        Version::Http2 => ["HTTP/2.0", "HTTP_2"],
    };
    ensure(report.lines().count() == count, || {
        format!("{}: {count} transfers, but it said\n{report}", client.name())
    })?;
    for line in report.lines() {
        let mut words = line.split_whitespace();
        let status = words.next().unwrap_or_default();
        let protocol = words.next().unwrap_or_default();
        ensure(
            matches!(status, "200" | "201" | "204") && names.contains(&protocol),
            || format!("{}: {line}", client.name()),
        )?;
    }
    Ok(())
}
