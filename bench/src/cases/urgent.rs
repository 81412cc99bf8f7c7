//! Urgent responses of 9 bytes beside bulk ones on the same connection, over paths of several rates and round trips.

mod browser;

use std::path::Path;
use std::thread;
use std::time::Duration;

use super::{Case, Report, Section, head};
use crate::comparison::{Candidate, Series, compare, ratio_of};
use crate::context::{Context, make_hollow_file};
use crate::error::Error;
use crate::markdown::Table;
use crate::peers::servers::{Kind, Server, Testbed};
use crate::process::{self, Running};
use crate::program::{self, Narrow, Served};
use crate::route::{self, Route};
use crate::worker;

/// Mbit/s and milliseconds.
const RATES: [u32; 5] = [2, 5, 20, 100, 1_000];
const ROUND_TRIPS: [u32; 3] = [10, 50, 200];
const QUICK_RATES: [u32; 3] = [2, 20, 100];
const QUICK_ROUND_TRIPS: [u32; 1] = [50];

/// Measurements over slow paths leave the processors idle. They run at the same time, up to this sum of Mbit/s, so that the
/// whole table takes less than half an hour.
const AT_ONCE: u32 = 150;

/// A measurement over a path of more than this many Mbit/s has the machine for itself.
const ALONE: u32 = 50;

/// The speed of uploads is that at which the client takes the bodies. Below this rate, in Mbit/s, what it takes ahead is most
/// of them.
const TOLD_UP: u32 = 20;

/// The path that is measured with cubic too, in Mbit/s and milliseconds.
const CUBICS: (u32, u32) = (20, 50);

const BULK: u64 = 1 << 30;
const REQUESTS: u32 = 30;
/// Of a peer: without a limit each may take seconds.
const PEERS_REQUESTS: u32 = 10;
/// No urgent request begins later, in seconds.
const LONGEST: u32 = 18;
const LIMIT: Duration = Duration::from_secs(120);

/// The peers, each in one thread.
const PEERS: [Kind; 5] = [Kind::Nginx, Kind::H2o, Kind::Nghttpd, Kind::Hyper, Kind::Go];

/// What an urgent response may wait for besides its round trip and what the path itself holds: this long, and two DATA frames.
const WAIT: f64 = 0.03;
const FRAMES: f64 = 2.0 * 16_384.0;

/// How `fullbore serve` is told to leave to the kernel what waits unsent.
const UNLIMITED: [&str; 2] = ["--tcp-unsent", "0"];

/// A measurement: the times in seconds and how many there are, the rate in bytes a second, and the processor time of the
/// server for a byte.
struct Sample {
    median: f64,
    worst: f64,
    count: f64,
    rate: f64,
    cpu: f64,
}

/// What is measured over a path.
#[derive(Clone, Copy)]
struct Shape {
    secure: bool,
    up: bool,
    streams: u32,
}

impl Shape {
    fn name(self) -> String {
        format!(
            "{}, {} beside {}",
            if self.secure { "TLS" } else { "cleartext" },
            if self.up { "uploads" } else { "downloads" },
            self.streams
        )
    }
}

/// Which server.
#[derive(Clone, Copy)]
enum Program {
    Limited,
    Unlimited,
    Peer(Kind),
}

impl Program {
    /// Uploads measure our client, which has no peer here.
    fn all(up: bool) -> Vec<Program> {
        let peers = PEERS.map(Program::Peer);
        let peers = if up { &[] } else { peers.as_slice() };
        [&[Program::Limited, Program::Unlimited], peers].concat()
    }

    fn name(self) -> &'static str {
        match self {
            Program::Limited => "fullbore",
            Program::Unlimited => "no limit",
            Program::Peer(kind) => kind.name(),
        }
    }

    fn is_ours(self) -> bool {
        !matches!(self, Program::Peer(_))
    }

    fn requests(self) -> u32 {
        if self.is_ours() { REQUESTS } else { PEERS_REQUESTS }
    }

    fn start<'a>(self, bed: &Testbed<'a>, secure: bool) -> Result<Started<'a>, Error> {
        Ok(match self {
            Program::Peer(kind) => Started::Peer(bed.start(kind, secure)?),
            Program::Limited => Started::Ours(server(bed.cx, &bed.folder, secure, &[])?),
            Program::Unlimited => Started::Ours(server(bed.cx, &bed.folder, secure, &UNLIMITED)?),
        })
    }
}

/// A server under way.
enum Started<'a> {
    Ours(Served<'a>),
    Peer(Server<'a>),
}

impl Started<'_> {
    fn port(&self) -> u16 {
        match self {
            Started::Ours(served) => served.port,
            Started::Peer(server) => server.port(),
        }
    }

    fn process(&self) -> &Running<'_> {
        match self {
            Started::Ours(served) => &served.running,
            Started::Peer(server) => server.process(),
        }
    }
}

/// A path, and the congestion control of the kernels at its ends.
#[derive(Clone, Copy)]
struct Way {
    path: Narrow,
    congestion_control: &'static str,
}

/// A measurement to be taken.
#[derive(Clone, Copy)]
struct Job {
    shape: Shape,
    way: Way,
    program: Program,
}

pub(super) fn run(cx: &Context) -> Result<Section, Error> {
    let mut report = Report::new(Case::Urgent, "Urgent beside bulk on one connection");
    let bed = Testbed::new(cx, "urgent", &[9])?;
    make_hollow_file(&bed.folder.join(BULK.to_string()), BULK)?;
    report.paragraph(&format!(
        "{REQUESTS} urgent requests (`priority: u=0`) for 9 bytes, one after the other, while bulk (`u=7, i`) moves on the same \
         connection: the time of an urgent request, median and worst, in ms. {}. Peers have {PEERS_REQUESTS} requests, and no \
         request begins after {LONGEST} s: `of N` says how many there were if fewer. `bound` is a round trip, 30 ms and 32 KiB \
         at the rate. `path` is the time that what waits in the path itself at the most takes, which nobody can schedule: a \
         sender with bbr leaves its queue nearly empty, and one with cubic fills it. \
         `no limit` is fullbore with `--tcp-unsent 0`. `bulk` is the speed of the bulk by default, in per cent of that without \
         a limit. Uploads are those of fullbore's client to `fullbore serve`; there, the limit is the client's, and the speed \
         is not told below {TOLD_UP} Mbit/s: the client takes some MB of the bodies ahead. Paths of up to {ALONE} Mbit/s are \
         measured at the same time, up to {AT_ONCE} Mbit/s together.",
        route::described("bbr, or cubic where it says so")
    ));
    for up in [false, true] {
        for secure in [false, true] {
            for streams in [1, 10] {
                measure(&bed, Shape { secure, up, streams }, &mut report);
            }
        }
    }
    if cx.measures("loopback") {
        loopback(&bed, &mut report)?;
    }
    if cx.measures("browser") {
        browser::measure(&bed, &mut report)?;
    }
    report.finish(cx, &["nginx", "h2o", "nghttpd", "go"])
}

/// The table of a shape.
fn measure(bed: &Testbed<'_>, shape: Shape, report: &mut Report) {
    let cx = bed.cx;
    let (rates, round_trips) = match cx.options.quick {
        true => (&QUICK_RATES[..], &QUICK_ROUND_TRIPS[..]),
        false => (&RATES[..], &ROUND_TRIPS[..]),
    };
    let paths = rates
        .iter()
        .flat_map(|&rate| round_trips.iter().map(move |&rtt_ms| Narrow::new(rtt_ms, rate)));
    let ways = paths.flat_map(|path| {
        let cubic = (path.megabits == CUBICS.0 && path.rtt_ms == CUBICS.1 && route::has_packets().is_ok())
            .then_some(route::CUBIC);
        [Some(route::BBR), cubic]
            .into_iter()
            .flatten()
            .map(move |congestion_control| Way {
                path,
                congestion_control,
            })
    });
    let ways: Vec<Way> = ways
        .filter(|way| cx.measures(&format!("{}, {}", shape.name(), way.name())))
        .collect();
    if ways.is_empty() {
        return;
    }
    let programs = Program::all(shape.up);
    let jobs: Vec<Job> = ways
        .iter()
        .flat_map(|&way| programs.iter().map(move |&program| Job { shape, way, program }))
        .collect();
    let mut taken = vec_of(jobs.len());
    for _ in 0..cx.options.runs {
        let mut from = 0;
        while from < jobs.len() {
            let batch = batch_length(&jobs[from..]);
            let samples = at_once(bed, &jobs[from..from + batch]);
            for (taken, sample) in taken[from..].iter_mut().zip(samples) {
                taken.push(sample);
            }
            from += batch;
        }
    }
    let mut table = None;
    let mut taken = taken.into_iter();
    for way in ways {
        let all: Vec<Series<Sample>> = programs
            .iter()
            .zip(taken.by_ref())
            .map(|(program, taken)| series_of(*program, taken))
            .collect();
        row(shape, way, &all, &mut table, report);
    }
    report.paragraph(&format!("{}.", shape.name()));
    table.iter().for_each(|table| report.table(table));
}

fn vec_of<T>(length: usize) -> Vec<Vec<T>> {
    (0..length).map(|_| Vec::new()).collect()
}

fn path_name(path: Narrow) -> String {
    format!("{} Mbit/s, {} ms", path.megabits, path.rtt_ms)
}

impl Way {
    fn name(self) -> String {
        let name = path_name(self.path);
        match self.congestion_control {
            route::BBR => name,
            other => format!("{name}, {other}"),
        }
    }
}

/// How many of the first jobs run at the same time.
fn batch_length(jobs: &[Job]) -> usize {
    let mut sum = 0;
    let fits = jobs.iter().take_while(|job| {
        sum += job.way.path.megabits;
        job.way.path.megabits <= ALONE && sum <= AT_ONCE
    });
    fits.count().max(1)
}

/// Takes measurements at the same time.
fn at_once(bed: &Testbed<'_>, jobs: &[Job]) -> Vec<Result<Sample, Error>> {
    let cx = bed.cx;
    // One after the other: ports that were free a moment ago may be given out again.
    let started: Vec<_> = jobs
        .iter()
        .map(|job| {
            let route = Route::narrow(cx, job.way.path, job.way.congestion_control)?;
            let server = route.serve(|| job.program.start(bed, job.shape.secure))?;
            let hop = route.to(server.port())?;
            Ok((route, server, hop))
        })
        .collect();
    thread::scope(|scope| {
        let threads: Vec<_> = started
            .into_iter()
            .zip(jobs)
            .map(|(started, &job)| {
                scope.spawn(move || {
                    // The server ends before its path.
                    let (route, server, hop) = started?;
                    // What a server holds without a limit has left by then, or most of it.
                    let fill = 1_500 + 6 * job.way.path.rtt_ms;
                    let pause = 40 + job.way.path.rtt_ms / 4;
                    let times = [fill, pause];
                    route.ask(|| ask(cx, hop.port, server.process(), job.shape, job.program, times))
                })
            })
            .collect();
        let panicked = |_| {
            Err(Error::Failed(
                "a measurement".to_owned(),
                "it panicked".to_owned(),
            ))
        };
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(panicked))
            .collect()
    })
}

fn series_of(program: Program, taken: Vec<Result<Sample, Error>>) -> Series<Sample> {
    let mut series = Series {
        name: program.name().to_owned(),
        ours: program.is_ours(),
        samples: Vec::new(),
        error: None,
    };
    for sample in taken {
        let sample = sample.map_err(|error| series.error = Some(error));
        series.samples.push(sample.ok());
    }
    series
}

fn row(shape: Shape, way: Way, all: &[Series<Sample>], table: &mut Option<Table>, report: &mut Report) {
    let (name, path) = (way.name(), way.path);
    report.note_errors(&format!("{}: {name}", shape.name()), all);
    let bound = f64::from(path.rtt_ms) / 1e3 + WAIT + FRAMES / path.bytes();
    let table = table.get_or_insert_with(|| {
        Table::new(
            head(&["rate, round trip", "bound, ms", "path, ms"], all)
                .into_iter()
                .chain(["bulk, %".to_owned()]),
        )
    });
    let mut row = vec![
        name,
        format!("{:.0}", bound * 1e3),
        format!("{:.0}", route::queue(path) / path.bytes() * 1e3),
    ];
    row.extend(all.iter().map(times));
    row.push(match all {
        _ if shape.up && path.megabits < TOLD_UP => "-".to_owned(),
        [limited, unlimited, ..] => ratio_of(limited, unlimited, |sample| sample.rate)
            .map_or("-".to_owned(), |spread| (spread * 100.0).text(1)),
        _ => "-".to_owned(),
    });
    table.row(row);
}

/// The median of the medians, and the worst of all.
fn times(series: &Series<Sample>) -> String {
    let spreads = (
        series.spread(|sample| sample.median * 1e3),
        series.spread(|sample| sample.worst * 1e3),
        series.spread(|sample| sample.count),
    );
    let (Some(median), Some(worst), Some(count)) = spreads else {
        return "failed".to_owned();
    };
    let asked = if series.ours { REQUESTS } else { PEERS_REQUESTS };
    let few = match count.min < f64::from(asked) {
        true => format!(" of {}", count.min),
        false => String::new(),
    };
    format!("{:.0}, {:.0}{few}", median.median, worst.max)
}

/// Measures a program, after and between so many milliseconds.
fn ask(
    cx: &Context,
    port: u16,
    server: &Running<'_>,
    shape: Shape,
    program: Program,
    [fill_ms, pause_ms]: [u32; 2],
) -> Result<Sample, Error> {
    let scheme = if shape.secure { "https" } else { "http" };
    let mut command = worker::command("urgent")?;
    command.arg(format!("{scheme}://127.0.0.1:{port}"));
    command.args(["--bulk", &BULK.to_string()]);
    for (option, number) in [
        ("--streams", shape.streams),
        ("--requests", program.requests()),
        ("--longest", LONGEST),
        ("--fill-ms", fill_ms),
        ("--pause-ms", pause_ms),
    ] {
        command.args([option, &number.to_string()]);
    }
    if shape.up {
        command.arg("--up");
    }
    if matches!(program, Program::Unlimited) {
        command.arg("--unlimited");
    }
    let before = server.cpu()?;
    let output = process::run(&cx.reaper, &mut command, cx.limit(LIMIT)?)?;
    let cpu = server.cpu()?.saturating_sub(before).as_secs_f64();
    let figures = output.figures();
    let [median, worst, count, rate, bytes] = figures.as_slice() else {
        return Err(Error::Output("worker urgent".to_owned(), output.stdout));
    };
    Ok(Sample {
        median: *median,
        worst: *worst,
        count: *count,
        rate: *rate,
        cpu: cpu / bytes,
    })
}

/// What the limit costs where the path is as fast as the machine.
fn loopback(bed: &Testbed<'_>, report: &mut Report) -> Result<(), Error> {
    let cx = bed.cx;
    let mut table = Table::new([
        "loopback",
        "urgent, ms",
        "without a limit, ms",
        "bulk, MB/s",
        "without a limit, MB/s",
        "of that, %",
        "server's CPU a MB, % of that without",
    ]);
    for secure in [false, true] {
        let shape = Shape {
            secure,
            up: false,
            streams: 1,
        };
        let candidate = |program: Program| {
            Candidate::ours(program.name(), move || {
                let server = program.start(bed, secure)?;
                ask(cx, server.port(), server.process(), shape, program, [500, 40])
            })
        };
        let all = compare(
            cx.options.runs,
            vec![candidate(Program::Limited), candidate(Program::Unlimited)],
        );
        report.note_errors(&shape.name(), &all);
        let mut row = vec![if secure { "TLS" } else { "cleartext" }.to_owned()];
        row.extend(all.iter().map(times));
        row.extend(
            all.iter()
                .map(|series| series.cell(0, |sample| sample.rate / 1e6)),
        );
        if let [limited, unlimited] = all.as_slice() {
            let share = |figure: fn(&Sample) -> f64| {
                ratio_of(limited, unlimited, figure).map_or("-".to_owned(), |spread| (spread * 100.0).text(1))
            };
            row.push(share(|sample| sample.rate));
            row.push(share(|sample| sample.cpu));
        }
        table.row(row);
    }
    report.table(&table);
    Ok(())
}

fn server<'a>(
    cx: &'a Context,
    folder: &Path,
    secure: bool,
    more: &[&str],
) -> Result<program::Served<'a>, Error> {
    match secure {
        true => program::serve_tls(cx, folder, more),
        false => program::serve(cx, folder, more),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_paths_are_measured_at_the_same_time_and_fast_ones_alone() {
        let jobs = |rates: &[u32]| -> Vec<Job> {
            let job = |&rate: &u32| Job {
                shape: Shape {
                    secure: false,
                    up: false,
                    streams: 1,
                },
                way: Way {
                    path: Narrow::new(10, rate),
                    congestion_control: route::BBR,
                },
                program: Program::Limited,
            };
            rates.iter().map(job).collect()
        };
        assert_eq!(batch_length(&jobs(&[2, 5, 20])), 3);
        assert_eq!(batch_length(&jobs(&[50, 50, 50, 2])), 3);
        assert_eq!(batch_length(&jobs(&[20, 100])), 1);
        assert_eq!(batch_length(&jobs(&[1_000, 2])), 1);
    }
}
