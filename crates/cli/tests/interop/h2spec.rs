//! h2spec, the conformance suite: every case, with and without the strict ones, against `fullbore serve` and `fullbore proxy`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use libtest_mimic::Trial;

use crate::files::Scratch;
use crate::fullbore::{Server, Transport, Uploads};
use crate::peers::{Peer, trial};
use crate::process::{Outcome, ensure, run_any};
use crate::proxied_pages;

/// A case that waits for what never comes takes its whole time-out, and there are about 150.
const LIMIT: Duration = Duration::from_secs(1_800);

/// How long a case waits. Its default of 2 s fails cases on a machine that is busy.
const CASE_SECONDS: &str = "10";

/// All trials of this file.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for transport in Transport::BOTH {
        for strict in [false, true] {
            let cases = if strict {
                "every case, the strict ones too"
            } else {
                "every case"
            };
            trials.push(trial(
                &[Peer::H2spec],
                format!("h2spec: {cases}, over {transport}"),
                move || conformance(transport, strict),
            ));
        }
    }
    for versions in ["HTTP/1.1", "HTTP/2"] {
        trials.push(trial(
            &[Peer::H2spec],
            format!("h2spec: every case, the strict ones too, through fullbore proxy to {versions}"),
            move || through_proxy(versions == "HTTP/2"),
        ));
    }
    trials
}

/// A folder with a page, beside the report.
fn site() -> Outcome<(Scratch, PathBuf)> {
    let scratch = Scratch::new()?;
    let root = scratch.folder("root")?;
    // Cases about flow control need a body of some bytes.
    fs::write(root.join("page.txt"), "0123456789abcdef".repeat(64))?;
    Ok((scratch, root))
}

/// The front of a proxy whose origin speaks one version.
fn through_proxy(http2: bool) -> Outcome {
    let (scratch, root) = site()?;
    let mut origin = Server::start(Transport::Cleartext, &root, Uploads::Discard)?;
    let scheme = if http2 { "h2c" } else { "http" };
    let (mut proxy, url) = proxied_pages::proxy(&format!("{scheme}://127.0.0.1:{}", origin.port()?), &[])?;
    let port = url.rsplit(':').next().unwrap_or_default();
    run(scratch.path(), port, Transport::Tls, true)?;
    proxy.check_alive()?;
    origin.check_alive()
}

fn conformance(transport: Transport, strict: bool) -> Outcome {
    let (scratch, root) = site()?;
    // On a port of both versions a wrong preface is a malformed request of HTTP/1.1, which is answered as such.
    let versions: &[&str] = match transport {
        Transport::Cleartext => &["--http2"],
        Transport::Tls => &[],
    };
    let mut server = Server::start_with(transport, &root, Uploads::Discard, versions)?;
    run(scratch.path(), &server.port()?.to_string(), transport, strict)?;
    server.check_alive()
}

/// Runs the suite against a port of this machine.
fn run(folder: &Path, port: &str, transport: Transport, strict: bool) -> Outcome {
    let report = folder.join("report.xml");
    let mut command = Peer::H2spec.command()?;
    command.args([
        "--host",
        "127.0.0.1",
        "--path",
        "/page.txt",
        "--timeout",
        CASE_SECONDS,
    ]);
    command.args(["--port", port]).arg("--junit-report").arg(&report);
    if transport == Transport::Tls {
        command.args(["--tls", "--insecure"]);
    }
    if strict {
        command.arg("--strict");
    }
    // It ends with 1 when cases failed; the report names them.
    let (status, printed, stderr) = run_any(&mut command, Vec::new(), LIMIT)?;
    let printed = String::from_utf8_lossy(&printed);
    let report = fs::read_to_string(&report)
        .map_err(|error| format!("h2spec: no report: {error}\n{printed}\n{stderr}"))?;
    let results = Results::of(&report);
    ensure(results.failed.is_empty(), || {
        format!(
            "{} of {} cases failed:\n{}",
            results.failed.len(),
            results.cases,
            results.failed.join("\n")
        )
    })?;
    // 146 cases, one of them strict: fewer mean that it gave up.
    ensure(
        status.success() && results.cases >= 140 && results.skipped == 0,
        || {
            format!(
                "h2spec: {status}, {} cases, {} skipped\n{printed}\n{stderr}",
                results.cases, results.skipped
            )
        },
    )
}

/// What the JUnit report says.
#[derive(Default)]
struct Results {
    cases: usize,
    skipped: usize,
    /// Each as "PACKAGE: what the case demands".
    failed: Vec<String>,
}

impl Results {
    /// Reads the elements `testcase`, each of which holds a `failure`, `error` or `skipped` when it did not pass.
    fn of(report: &str) -> Results {
        let mut results = Results::default();
        for case in report.split("<testcase ").skip(1) {
            let body = case.split("</testcase>").next().unwrap_or(case);
            results.cases += 1;
            if body.contains("<failure") || body.contains("<error") {
                results.failed.push(format!(
                    "{}: {}",
                    attribute(body, "package"),
                    attribute(body, "classname")
                ));
            } else if body.contains("<skipped") {
                results.skipped += 1;
            }
        }
        results
    }
}

fn attribute<'a>(element: &'a str, name: &str) -> &'a str {
    element
        .split_once(&format!("{name}=\""))
        .and_then(|(_, rest)| rest.split_once('"'))
        .map_or("", |(value, _)| value)
}
