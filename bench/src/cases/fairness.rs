//! Another program's single flow on a bottleneck that both share: how much of the link it keeps while we download, and
//! while we look whether further connections pay.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fullbore_packets::{Direction, Path as PacketPath, Settings, Tcp};

use super::{Case, MIB, Report, Section};
use crate::comparison::{Candidate, Series, compare};
use crate::context::{Context, make_file, make_hollow_file};
use crate::error::Error;
use crate::markdown::Table;
use crate::over_packets::{Client, Folder, Serving, Site, Work, digests};
use crate::process::Running;

const MEGABITS: u64 = 100;
/// The other flow has the link alone for so long: past its slow start.
const ALONE: Duration = Duration::from_secs(6);
const BYTES: u64 = 64 * MIB;
/// More than the other flow can fetch in all this time.
const LONG: u64 = 64 << 30;
const LIMIT: Duration = Duration::from_secs(120);
/// How often the octets of the other flow are read, and over how many readings its least share is taken.
const READING: Duration = Duration::from_millis(200);
const WINDOW: usize = 10;
/// What the other flow is to keep, in per cent of the link.
const ASKED: f64 = 40.0;

const CLIENTS: [Client; 3] = [Client::Get(None), Client::Get(Some(1)), Client::Aria2(8)];

/// The congestion control of both, the round trip, and the queue in bandwidth-delay products.
const PATHS: [(&str, u64, f64); 5] = [
    ("cubic", 20, 1.0),
    ("cubic", 100, 1.0),
    ("cubic", 100, 0.125),
    ("bbr", 20, 1.0),
    ("bbr", 100, 1.0),
];

/// Shares of the other flow, in per cent of the link, and our download.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Sample {
    alone: f64,
    beside: f64,
    least: f64,
    seconds: f64,
    connections: usize,
}

pub(super) fn run(cx: &Context) -> Result<Section, Error> {
    let mut report = Report::new(Case::Fairness, "Beside another program's flow");
    if report.lacks_path() {
        return report.finish(cx, &[]);
    }
    let folder = cx.folder("fairness")?;
    let names = ["body".to_owned()];
    make_file(&folder.join("body"), BYTES)?;
    make_hollow_file(&folder.join("long"), LONG)?;
    let digests = digests(cx, &folder, &names)?;
    let work = Work {
        folder: &folder,
        names: &names,
        digests: &digests,
    };
    let mut table = Table::new([
        "path",
        "beside it",
        "the other flow alone, %",
        "beside, %",
        "least over 2 s, %",
        "keeps 40 %",
        "seconds of the download",
        "its connections",
    ]);
    for path in PATHS {
        let (congestion_control, round_trip, queue) = path;
        let queue = if queue < 1.0 { "1/8" } else { "1" };
        let name = format!("{congestion_control}, {round_trip} ms, queue {queue}");
        if !cx.measures(&name) {
            continue;
        }
        let candidates = CLIENTS.map(|client| {
            let measured = move || beside(cx, &settings(path), client, work);
            match client.ours() {
                true => Candidate::ours(client.name(), measured),
                false => Candidate::peer(client.name(), measured),
            }
        });
        let all = compare(cx.options.runs, candidates.into());
        report.note_errors(&name, &all);
        all.iter().for_each(|series| table.row(row(&name, series)));
    }
    report.paragraph(&format!(
        "Over packets at {MEGABITS} Mbit/s without losses but the queue's, curl fetches a long file over one connection from \
         the same server. After {} s another program downloads {} MiB beside it. The figures of the other flow are its \
         payload in per cent of the link, where one flow alone can have 96. It is to keep {ASKED} % while `fullbore get` \
         downloads, and looks whether further connections pay.",
        ALONE.as_secs(),
        BYTES / MIB
    ));
    report.table(&table);
    report.finish(cx, &["curl", "aria2c"])
}

fn row(name: &str, series: &Series<Sample>) -> Vec<String> {
    let kept = series
        .spread(|sample| sample.beside)
        .map(|spread| spread.median >= ASKED);
    vec![
        name.to_owned(),
        series.name.clone(),
        series.cell(1, |sample| sample.alone),
        series.cell(1, |sample| sample.beside),
        series.cell(1, |sample| sample.least),
        kept.map_or("-", |kept| if kept { "yes" } else { "no" })
            .to_owned(),
        series.cell(1, |sample| sample.seconds),
        series.cell(0, |sample| sample.connections as f64),
    ]
}

fn settings((congestion_control, round_trip, queue): (&str, u64, f64)) -> Settings {
    let direction = Direction {
        delay: Duration::from_millis(round_trip / 2),
        rate: Some(MEGABITS * 1_000_000),
        ..Direction::default()
    };
    let tcp = Tcp {
        congestion_control: congestion_control.to_owned(),
        ..Tcp::default()
    };
    let mut settings = Settings::new(direction, tcp);
    let product = settings.bandwidth_delay_product(&direction);
    settings.to_client.queue = Some((product as f64 * queue) as u64);
    settings
}

/// Downloads beside a flow of curl's.
fn beside(cx: &Context, settings: &Settings, client: Client, work: Work) -> Result<Sample, Error> {
    let folder = Folder(cx.folder("moved")?);
    let serving = Serving {
        folder: work.folder,
        uploads: None,
        secure: false,
    };
    let site = Site::open(cx, settings, serving)?;
    let mut other = std::process::Command::new("curl");
    other.args(["-s", "-o", "/dev/null", &site.url("long")]);
    let end = site.path().client();
    let (_other, _lines) = end.enter(|| Running::with_lines(&cx.reaper, &mut other))?;
    thread::sleep(ALONE / 2);
    let (early, read) = (Instant::now(), others(site.path()));
    thread::sleep(ALONE / 2);
    let alone = share(others(site.path()) - read, early.elapsed());

    let mut command = site.command(cx, client, work, &folder.0)?;
    let (started, before) = (Instant::now(), others(site.path()));
    let ended = AtomicBool::new(false);
    let (path, ended) = (site.path(), &ended);
    let (done, least) = thread::scope(|scope| {
        let readings = scope.spawn(move || least(path, ended));
        let done = site.run(cx, &mut command, LIMIT);
        ended.store(true, Ordering::Relaxed);
        (done, readings.join().unwrap_or(0.0))
    });
    let seconds = done?.wall.as_secs_f64();
    let beside = share(others(site.path()) - before, started.elapsed());
    if digests(cx, &folder.0, work.names)? != work.digests {
        return Err(Error::Output(
            client.name(),
            "a file with another SHA-256".to_owned(),
        ));
    }
    Ok(Sample {
        alone,
        beside,
        least,
        seconds,
        connections: site.path().report().flows.len() - 1,
    })
}

/// Octets that the other flow, the first of the path, has received.
fn others(path: &PacketPath) -> u64 {
    path.report().flows.first().map_or(0, |flow| flow.to_client)
}

/// In per cent of the link.
fn share(octets: u64, time: Duration) -> f64 {
    100.0 * octets as f64 * 8.0 / (time.as_secs_f64() * MEGABITS as f64 * 1e6)
}

/// The least share that the other flow had over two seconds.
fn least(path: &PacketPath, ended: &AtomicBool) -> f64 {
    let mut readings = vec![(Instant::now(), others(path))];
    while !ended.load(Ordering::Relaxed) {
        thread::sleep(READING);
        readings.push((Instant::now(), others(path)));
    }
    let windows = readings.windows(WINDOW + 1).filter_map(|window| {
        let ((from, before), (to, after)) = (window.first()?, window.last()?);
        Some(share(after - before, to.duration_since(*from)))
    });
    windows.fold(100.0, f64::min)
}
