//! A response of 200,000 DATA frames of one byte each: what a client answers to it, and what it costs the client.

use std::process::Command;
use std::time::Duration;

use super::{Case, Report, Section, series};
use crate::comparison::{Candidate, Series, compare};
use crate::context::Context;
use crate::error::Error;
use crate::markdown::Table;
use crate::process::{self, Lines, Running};
use crate::program::{self, port};
use crate::stats::Spread;
use crate::worker::{self, Flooded};

const FRAMES: u64 = 200_000;
const LIMIT: Duration = Duration::from_secs(60);
/// The server gives a client up after a while, and tells what it counted then.
const TOLD: Duration = Duration::from_secs(30);
const WINDOW_UPDATE_BYTES: f64 = 13.0;
const PER: f64 = 16_384.0;

/// A program and what it is called in the table.
const CLIENTS: [&str; 4] = ["fullbore get", "nghttp", "curl", "reqwest"];

/// A response that came to its end.
struct Whole {
    flooded: Flooded,
    cpu: Duration,
}

/// What came of one response: whole, or what the client printed when it ended it.
type Sample = Result<Whole, String>;

/// The flooding server, until it is dropped.
struct Server<'a> {
    _running: Running<'a>,
    lines: Lines,
    port: u16,
}

pub(super) fn run(cx: &Context) -> Result<Section, Error> {
    let mut report = Report::new(Case::Flood, "A flood of one-byte DATA frames");
    let mut table = Table::new([
        "writes of the server",
        "client",
        "came to its end",
        "WINDOW_UPDATE",
        "their bytes for each 16 KiB received",
        "after the last DATA",
        "client's CPU, ms",
        "÷ nghttp",
    ]);
    let mut refusals = Vec::new();
    for (writes, flags) in [("one a frame", ["--each"].as_slice()), ("all at once", &[])] {
        let server = serve(cx, flags)?;
        let candidates = CLIENTS.map(|name| {
            let server = &server;
            let measure = move || measure(cx, server, name);
            Candidate::new(name, name.starts_with("fullbore"), measure)
        });
        let all = compare(cx.options.runs, candidates.into());
        report.note_errors(writes, &all);
        let nghttp = series(&all, "nghttp");
        for series in &all {
            let spread = |digits, figure: &dyn Fn(&Whole) -> f64| {
                let figures: Vec<f64> = whole(series).map(figure).collect();
                Spread::of(&figures).map_or("-".to_owned(), |spread| spread.text(digits))
            };
            table.row([
                writes.to_owned(),
                series.name.clone(),
                came_to_its_end(series),
                spread(0, &|one| one.flooded.window_updates as f64),
                spread(1, &|one| {
                    WINDOW_UPDATE_BYTES * one.flooded.window_updates as f64 * PER / FRAMES as f64
                }),
                spread(0, &|one| one.flooded.after_the_last as f64),
                spread(0, &|one| one.cpu.as_secs_f64() * 1e3),
                nghttp
                    .and_then(|peer| ratio(series, peer))
                    .map_or("-".to_owned(), |spread| spread.text(2)),
            ]);
            let refused = series.samples.iter().flatten().find_map(|one| one.as_ref().err());
            refusals.extend(refused.map(|why| format!("{writes}: {} ended it: {why}.", series.name)));
        }
    }
    report.paragraph(
        "One response of 200,000 DATA frames of one byte, as the client's windows allow, from a server that writes each \
         frame by itself (TCP_NODELAY) or as many as the windows allow at once: how many WINDOW_UPDATE frames the client \
         sent from its preface on, what they came to for each 16 KiB of bodies, how many of them followed on the last \
         DATA frame (which the server keeps back until a PING behind the one before was answered and 50 ms are over), and the \
         client's own processor time with the kernel's for it. Figures are of the responses that came to their end.",
    );
    report.table(&table);
    refusals.into_iter().for_each(|refusal| report.note(refusal));
    report.note("`fullbore get --discard`, `nghttp --null-out`, `curl --http2-prior-knowledge -o /dev/null` and reqwest 0.12 with its defaults; processor time of the whole process from its start.");
    report.finish(cx, &["curl", "nghttp"])
}

/// The responses that came to their end.
fn whole(series: &Series<Sample>) -> impl Iterator<Item = &Whole> {
    series.samples.iter().flatten().flatten()
}

fn came_to_its_end(series: &Series<Sample>) -> String {
    let all = series.samples.iter().flatten().count();
    match whole(series).count() {
        0 => "no".to_owned(),
        ended if ended == all => "yes".to_owned(),
        ended => format!("{ended} of {all}"),
    }
}

/// How many times the processor time of a peer, in the runs in which both came to the end.
fn ratio(own: &Series<Sample>, peer: &Series<Sample>) -> Option<Spread> {
    let pairs = own.samples.iter().zip(&peer.samples);
    let ratios: Vec<f64> = pairs
        .filter_map(|(own, peer)| {
            let (own, peer) = (own.as_ref()?.as_ref().ok()?, peer.as_ref()?.as_ref().ok()?);
            Some(own.cpu.as_secs_f64() / peer.cpu.as_secs_f64())
        })
        .collect();
    Spread::of(&ratios)
}

fn serve<'a>(cx: &'a Context, flags: &[&str]) -> Result<Server<'a>, Error> {
    let mut command = worker::command("flood")?;
    command.args(["--frames", &FRAMES.to_string()]).args(flags);
    let (running, lines) = Running::with_lines(&cx.reaper, &mut command)?;
    let port = port(&lines.after("listening on ", LIMIT)?)?;
    Ok(Server {
        _running: running,
        lines,
        port,
    })
}

fn measure(cx: &Context, server: &Server<'_>, client: &str) -> Result<Sample, Error> {
    let mut command = command(cx, client)?;
    command.arg(format!("http://127.0.0.1:{}/", server.port));
    let output = process::run(&cx.reaper, &mut command, cx.limit(LIMIT)?);
    let unexpected = |why: &str| Error::Output("the flooding server".to_owned(), why.to_owned());
    let line = server.lines.next(TOLD).ok_or_else(|| unexpected("nothing"))?;
    let flooded = Flooded::parse(&line).ok_or_else(|| unexpected(&line))?;
    let refusal = match output {
        Ok(output) if flooded.sent == FRAMES => {
            return Ok(Ok(Whole {
                flooded,
                cpu: output.cpu,
            }));
        }
        Ok(_) => format!("it took {} frames and printed nothing", flooded.sent),
        Err(Error::Failed(_, why)) => why,
        Err(error) => return Err(error),
    };
    match client.starts_with("fullbore") {
        true => Err(Error::Failed(client.to_owned(), refusal)),
        false => Ok(Err(refusal)),
    }
}

fn command(cx: &Context, client: &str) -> Result<Command, Error> {
    Ok(match client {
        "nghttp" => {
            let mut command = Command::new("nghttp");
            command.arg("--null-out");
            command
        }
        "curl" => {
            let mut command = Command::new("curl");
            command.args([
                "--silent",
                "--show-error",
                "--http2-prior-knowledge",
                "-o",
                "/dev/null",
            ]);
            command
        }
        "reqwest" => worker::command("fetch")?,
        _ => {
            let mut command = program::command(cx, "get");
            command.arg("--discard");
            command
        }
    })
}
