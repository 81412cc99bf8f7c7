//! Autobahn's test suite for WebSockets through `fullbore proxy`: its fuzzing client in front, its own server behind, which
//! passes every case without a proxy.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::files::Scratch;
use crate::fullbore;
use crate::peers::{Peer, autobahn, trial};
use crate::process::{Daemon, Outcome, ensure, run_any, spawn_on_free_port};

/// Framing, pings, reserved bits, opcodes, fragments, UTF-8, closes, limits, and other things. Without a proxy they take 30 s.
const SECTIONS: [&str; 9] = ["1.*", "2.*", "3.*", "4.*", "5.*", "6.*", "7.*", "9.*", "10.*"];
/// Compression: the shorter messages of one setting in each direction. The 216 cases of all settings take half an hour.
const COMPRESSED: [&str; 2] = ["12.1", "13.1"];
const COMPRESSED_CASES: usize = 6;

/// 301 of the sections, of which three only inform, and 12 of compression.
const CASES: usize = 313;
const INFORMING: usize = 3;

const LIMIT: Duration = Duration::from_secs(1_800);

/// All trials of this file.
pub(crate) fn trials() -> Vec<Trial> {
    let of = |way: &str, streams: usize| {
        trial(
            &[Peer::Autobahn],
            format!("Autobahn's suite passes through {way}"),
            move || conformance(streams),
        )
    };
    vec![
        of("fullbore proxy over HTTP/1.1", 0),
        // The first makes a stream of the connection, the second passes a stream on, the third makes a connection of it.
        of("three of fullbore proxy, with streams of HTTP/2 between them", 2),
    ]
}

/// Runs the suite through one proxy, and as many more as there are streams of HTTP/2 on the way.
fn conformance(streams: usize) -> Outcome {
    let scratch = Scratch::new()?;
    let (_server, port) = spawn_on_free_port(|port| {
        let mut command = autobahn();
        command.args(["--mode", "testeeserver", "--webport", "0", "--wsuri"]);
        command.arg(format!("ws://127.0.0.1:{port}"));
        Ok(command)
    })?;
    // The server wants its own address in `host`.
    let host = format!("127.0.0.1:{port}");
    let mut proxies = vec![proxy(&format!("http://{host}"), &["--origin-host", &host])?];
    for _ in 0..streams {
        let (_, next) = &proxies[proxies.len() - 1];
        proxies.push(proxy(&format!("h2c://{next}"), &[])?);
    }
    let (_, front) = &proxies[proxies.len() - 1];

    let compressed = COMPRESSED
        .iter()
        .flat_map(|section| (1..=COMPRESSED_CASES).map(move |case| format!("{section}.{case}")));
    let cases: Vec<String> = SECTIONS
        .map(str::to_owned)
        .into_iter()
        .chain(compressed)
        .collect();
    let results = Results::of(scratch.path(), front, &cases)?;
    ensure(results.cases == CASES && results.informing == INFORMING, || {
        format!(
            "{} of {CASES} cases ran, and {} of {INFORMING} informed",
            results.cases, results.informing
        )
    })?;
    // Some cases depend on what arrives first, or have a limit in seconds, which a busy machine passes.
    let again = match results.others.as_slice() {
        [] => results,
        others => {
            let names: Vec<String> = others.iter().map(|(name, _)| name.clone()).collect();
            Results::of(scratch.path(), front, &names)?
        }
    };
    ensure(again.others.is_empty(), || {
        let lines = again.others.iter().map(|(name, why)| format!("{name}: {why}"));
        lines.collect::<Vec<_>>().join("\n")
    })?;
    for (proxy, _) in &mut proxies {
        proxy.check_alive()?;
    }
    Ok(())
}

/// A proxy in front of an origin, and its address.
fn proxy(origin: &str, options: &[&str]) -> Outcome<(Daemon, String)> {
    let mut command = Command::new(fullbore::program());
    command.args(["proxy", origin, "--plaintext", "--listen", "127.0.0.1:0"]);
    let mut daemon = Daemon::spawn(command.args(options))?;
    let url = daemon.wait_line("listening on ")?;
    let address = url.trim().trim_start_matches("http://").trim_end_matches('/');
    Ok((daemon, address.to_owned()))
}

/// What the suite reports.
struct Results {
    cases: usize,
    /// Cases of which the standard demands nothing.
    informing: usize,
    /// Cases that did not pass, each with why.
    others: Vec<(String, String)>,
}

impl Results {
    /// Runs these cases against an address.
    fn of(folder: &Path, address: &str, cases: &[String]) -> Outcome<Self> {
        let (reports, settings) = (folder.join("reports"), folder.join("settings.json"));
        let server = json!({ "agent": "proxy", "url": format!("ws://{address}") });
        let text = json!({ "outdir": reports, "servers": [server], "cases": cases, "exclude-cases": [],
                           "exclude-agent-cases": {} });
        fs::write(&settings, text.to_string())?;
        let mut command = autobahn();
        command.args(["--mode", "fuzzingclient", "--spec"]).arg(&settings);
        let (status, said, errors) = run_any(&mut command, Vec::new(), LIMIT)?;
        let said = String::from_utf8_lossy(&said);
        let ran = format!("wstest: {status}\n{said}\n{errors}");
        ensure(status.success(), || ran.clone())?;
        let index =
            fs::read_to_string(reports.join("index.json")).map_err(|error| format!("{error}: {ran}"))?;
        let index: Value = serde_json::from_str(&index).map_err(|error| format!("{error}: {index}"))?;
        let mut results = Self {
            cases: 0,
            informing: 0,
            others: Vec::new(),
        };
        for (name, case) in index["proxy"].as_object().into_iter().flatten() {
            results.cases += 1;
            match [&case["behavior"], &case["behaviorClose"]].map(Value::as_str) {
                [Some("OK"), Some("OK")] => {}
                [Some("INFORMATIONAL"), Some("INFORMATIONAL")] => results.informing += 1,
                _ => results.others.push((name.clone(), case.to_string())),
            }
        }
        Ok(results)
    }
}
