//! 2,000 connections under a memory budget of 64 MiB, most of them with bytes that nobody reads: the memory of the process that
//! has the budget, as a server and as a client, and whether the readers among them finish.

use std::process::Command;
use std::time::{Duration, Instant};

use super::{Case, MIB, Report, Section};
use crate::comparison::{Candidate, compare};
use crate::context::{Context, make_hollow_file};
use crate::error::Error;
use crate::markdown::Table;
use crate::process::{Lines, Running};
use crate::program::{self, port};
use crate::worker;

const BUDGET: u64 = 64 * MIB;
/// Connections whose streams nobody reads, streams of each, and further connections with one stream that is read: half of
/// them are under way before, half come afterwards.
const UNREAD: u64 = 1_900;
const STREAMS: u64 = 4;
const READERS: u64 = 100;
const CONNECTIONS: f64 = (UNREAD + READERS) as f64;
const BODY: u64 = 4 * MIB;
const LONG_BODY: u64 = 32 * MIB;
const LIMIT: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_millis(20);

/// What one process came to, in bytes.
struct Sample {
    at_start: u64,
    idle: u64,
    highest: u64,
    readers: f64,
    let_in: f64,
    seconds: f64,
    refused: f64,
    /// Why the last of the readers that failed did.
    why: String,
}

pub(super) fn run(cx: &Context) -> Result<Section, Error> {
    let folder = cx.folder("budget")?;
    make_hollow_file(&folder.join("body"), BODY)?;
    make_hollow_file(&folder.join("long"), LONG_BODY)?;
    make_hollow_file(&folder.join("idle"), 0)?;
    let mut report = Report::new(Case::Budget, "2,000 connections under a memory budget of 64 MiB");
    let candidates = vec![
        Candidate::ours("server", || server(cx)),
        Candidate::ours("client", || client(cx)),
    ];
    let all = compare(cx.options.runs, candidates);
    report.note_errors("budget", &all);

    let mut table = Table::new([
        "process",
        "at the start, MiB",
        "2,000 idle connections, MiB",
        "an idle connection, KiB",
        "highest, MiB",
        "highest less idle, MiB",
        "% of the budget",
        "50 readers under way: finished",
        "50 readers later: let in, and finished",
        "in seconds",
        "streams refused",
    ]);
    let mib = |bytes: u64| bytes as f64 / MIB as f64;
    for series in &all {
        table.row([
            series.name.clone(),
            series.cell(1, |one| mib(one.at_start)),
            series.cell(1, |one| mib(one.idle)),
            series.cell(1, |one| {
                one.idle.saturating_sub(one.at_start) as f64 / 1024.0 / CONNECTIONS
            }),
            series.cell(1, |one| mib(one.highest)),
            series.cell(1, |one| mib(one.highest.saturating_sub(one.idle))),
            series.cell(0, |one| {
                100.0 * one.highest.saturating_sub(one.idle) as f64 / BUDGET as f64
            }),
            series.cell(0, |one| one.readers),
            series.cell(0, |one| one.let_in),
            series.cell(2, |one| one.seconds),
            series.cell(0, |one| one.refused),
        ]);
        let last = series.samples.iter().flatten().last();
        let failed = |sample: &&Sample| sample.readers + sample.let_in < READERS as f64;
        if let Some(sample) = last.filter(failed) {
            report.note(format!("{}: why a reader failed: {}.", series.name, sample.why));
        }
    }
    report.paragraph(
        "Resident memory of one process with one memory budget of 64 MiB. Server: 50 connections upload 32 MiB each to \
         handlers that read; while they do, 1,900 connections upload without an end on four streams each to handlers that \
         never read; after five seconds 50 others upload 1 MiB each to handlers that do. Client: 50 connections of one \
         process fetch 32 MiB each from `fullbore serve` and read them; while they do, 1,900 ask for four bodies of 4 MiB \
         each and never read them; then 50 others ask for one each and read it. Every connection has had one request \
         before. What comes when everything is promised is refused: REFUSED_STREAM, and nothing else breaks.",
    );
    report.table(&table);
    report.note("The budget bounds credit outstanding and bytes buffered; what else a connection and its streams take is the process's own, and is told by the idle connections.");
    report.finish(cx, &[])
}

fn crowd(name: &str, server: u16) -> Result<Command, Error> {
    let mut command = worker::command(name)?;
    command.arg(format!("127.0.0.1:{server}")).args([
        format!("--connections={UNREAD}"),
        format!("--streams={STREAMS}"),
        format!("--readers={READERS}"),
    ]);
    Ok(command)
}

fn server(cx: &Context) -> Result<Sample, Error> {
    let mut command = worker::command("budget-server")?;
    command.args(["--budget", &BUDGET.to_string()]);
    let (server, lines) = Running::with_lines(&cx.reaper, &mut command)?;
    let port = port(&lines.after("listening on ", LIMIT)?)?;
    let (_crowd, lines) = Running::with_lines(&cx.reaper, &mut crowd("budget-uploads", port)?)?;
    watch(cx, &server, &lines)
}

fn client(cx: &Context) -> Result<Sample, Error> {
    let served = program::serve(cx, &cx.folder("budget")?, &[])?;
    let mut command = crowd("budget-downloads", served.port)?;
    command.args(["--budget", &BUDGET.to_string()]);
    let (crowd, lines) = Running::with_lines(&cx.reaper, &mut command)?;
    watch(cx, &crowd, &lines)
}

/// Follows the lines of the crowd and the memory of `process` until the readers are done.
fn watch(cx: &Context, process: &Running<'_>, lines: &Lines) -> Result<Sample, Error> {
    let until = Instant::now() + cx.limit(LIMIT)?;
    let mut sample = Sample {
        at_start: 0,
        idle: 0,
        highest: 0,
        readers: 0.0,
        let_in: 0.0,
        seconds: 0.0,
        refused: 0.0,
        why: String::new(),
    };
    let mut stage = String::new();
    while Instant::now() < until {
        let memory = process.memory().unwrap_or(0);
        match stage.as_str() {
            "start" => sample.at_start = memory,
            "idle" => sample.idle = memory,
            "flooding" => sample.highest = sample.highest.max(memory),
            _ => {}
        }
        let Some(line) = lines.next(LOOK) else { continue };
        let words: Vec<&str> = line.splitn(6, ' ').collect();
        match words.as_slice() {
            ["readers", readers, let_in, seconds, refused, why] => {
                let figure = |text: &str| text.parse().unwrap_or(0.0);
                sample.readers = figure(readers);
                sample.let_in = figure(let_in);
                sample.seconds = figure(seconds);
                sample.refused = figure(refused);
                sample.why = (*why).to_owned();
                return Ok(sample);
            }
            ["failed:", ..] => return Err(Error::Failed("the crowd".to_owned(), line)),
            _ => stage = line,
        }
    }
    Err(Error::Slow(format!("the crowd, after `{stage}`,"), LIMIT))
}
