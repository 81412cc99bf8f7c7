//! Urgent responses of 9 bytes beside bulk ones on the same connection, over paths of several rates and round trips.

use std::path::Path;
use std::time::Duration;

use super::{Case, Report, Section, head};
use crate::comparison::{Candidate, Series, compare, ratio_of};
use crate::context::{Context, make_hollow_file};
use crate::error::Error;
use crate::markdown::Table;
use crate::peers::servers::{Kind, Testbed};
use crate::process::{self, Running};
use crate::program::{self, Narrow};
use crate::worker;

/// Mbit/s and milliseconds.
const RATES: [u32; 5] = [2, 5, 20, 100, 1_000];
const ROUND_TRIPS: [u32; 3] = [10, 50, 200];
const QUICK_RATES: [u32; 3] = [2, 20, 100];
const QUICK_ROUND_TRIPS: [u32; 1] = [50];

const BULK: u64 = 1 << 30;
const REQUESTS: u32 = 30;
const LIMIT: Duration = Duration::from_secs(120);

/// The peers, each in one thread.
const PEERS: [Kind; 5] = [Kind::Nginx, Kind::H2o, Kind::Nghttpd, Kind::Hyper, Kind::Go];

/// What an urgent response may wait for besides its round trip and what the path itself holds: this long, and two DATA frames.
const WAIT: f64 = 0.03;
const FRAMES: f64 = 2.0 * 16_384.0;

/// How `fullbore serve` is told to leave to the kernel what waits unsent.
const UNLIMITED: [&str; 2] = ["--tcp-unsent", "0"];

/// A measurement: the times in seconds, the rate in bytes a second, and the processor time of the server for a byte.
struct Sample {
    median: f64,
    worst: f64,
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

pub(super) fn run(cx: &Context) -> Result<Section, Error> {
    let mut report = Report::new(Case::Urgent, "Urgent beside bulk on one connection");
    let bed = Testbed::new(cx, "urgent", &[9])?;
    make_hollow_file(&bed.folder.join(BULK.to_string()), BULK)?;
    report.paragraph(&format!(
        "{REQUESTS} urgent requests (`priority: u=0`) for 9 bytes, one after the other and fewer where they take longer than \
         20 s, while bulk (`u=7, i`) moves on the same connection through `fullbore link`: the time of an urgent request, \
         median and worst, in ms. The path itself holds 4 ms of its rate in the link (at least 16 KiB) and twice as much in the \
         link's socket (at least 64 KiB), which nobody can schedule. `limit` is a round trip, what the path holds, 30 ms and 32 KiB at the \
         rate. `no limit` is fullbore with `--tcp-unsent 0`. `bulk` is the speed of the bulk by default, in per cent of that \
         without a limit."
    ));
    let (rates, round_trips) = match cx.options.quick {
        true => (&QUICK_RATES[..], &QUICK_ROUND_TRIPS[..]),
        false => (&RATES[..], &ROUND_TRIPS[..]),
    };
    let shapes = [
        (false, false, 1),
        (false, false, 10),
        (true, false, 1),
        (true, false, 10),
        (false, true, 1),
        (true, true, 1),
    ];
    for (secure, up, streams) in shapes {
        let shape = Shape { secure, up, streams };
        if !cx.measures(&shape.name()) {
            continue;
        }
        let mut table = None;
        for &rate in rates {
            for &rtt_ms in round_trips {
                let path = Narrow::new(rtt_ms, rate);
                measure(&bed, shape, path, &mut table, &mut report);
            }
        }
        report.paragraph(&format!("{}.", shape.name()));
        table.iter().for_each(|table| report.table(table));
    }
    if cx.measures("loopback") {
        loopback(&bed, &mut report)?;
    }
    report.finish(cx, &["nginx", "h2o", "nghttpd", "go"])
}

/// A row of the table of a shape.
fn measure(bed: &Testbed<'_>, shape: Shape, path: Narrow, table: &mut Option<Table>, report: &mut Report) {
    let cx = bed.cx;
    let mut candidates = Vec::new();
    for (name, unlimited) in [("fullbore", false), ("no limit", true)] {
        candidates.push(Candidate::ours(name, move || {
            let more: &[&str] = if unlimited { &UNLIMITED } else { &[] };
            let serve = server(cx, &bed.folder, shape.secure, more)?;
            through(cx, serve.port, &serve.running, shape, unlimited, path)
        }));
    }
    if !shape.up {
        for kind in PEERS {
            candidates.push(Candidate::peer(kind.name(), move || {
                let server = bed.start(kind, shape.secure)?;
                through(cx, server.port(), server.process(), shape, false, path)
            }));
        }
    }
    let all = compare(cx.options.runs, candidates);
    let name = format!("{} Mbit/s, {} ms", path.megabits, path.rtt_ms);
    report.note_errors(&format!("{}: {name}", shape.name()), &all);
    let limit = f64::from(path.rtt_ms) / 1e3 + path.queue() / path.bytes() + WAIT + FRAMES / path.bytes();
    let table = table.get_or_insert_with(|| {
        Table::new(
            head(&["path", "limit, ms"], &all)
                .into_iter()
                .chain(["bulk, %".to_owned()]),
        )
    });
    let mut row = vec![name, format!("{:.0}", limit * 1e3)];
    row.extend(all.iter().map(times));
    row.push(match all.as_slice() {
        [limited, unlimited, ..] => ratio_of(limited, unlimited, |sample| sample.rate)
            .map_or("-".to_owned(), |spread| (spread * 100.0).text(1)),
        _ => "-".to_owned(),
    });
    table.row(row);
}

/// The median of the medians, and the worst of all.
fn times(series: &Series<Sample>) -> String {
    let (median, worst) = (
        series.spread(|sample| sample.median * 1e3),
        series.spread(|sample| sample.worst * 1e3),
    );
    match (median, worst) {
        (Some(median), Some(worst)) => format!("{:.0}, {:.0}", median.median, worst.max),
        _ => "failed".to_owned(),
    }
}

/// Measures through a link of its own.
fn through(
    cx: &Context,
    port: u16,
    server: &Running<'_>,
    shape: Shape,
    unlimited: bool,
    path: Narrow,
) -> Result<Sample, Error> {
    let link = program::narrow_link(cx, port, path)?;
    // What a server holds without a limit has left by then, or most of it.
    let fill = 1_500 + 6 * path.rtt_ms;
    ask(
        cx,
        link.port,
        server,
        shape,
        unlimited,
        fill,
        40 + path.rtt_ms / 4,
    )
}

fn ask(
    cx: &Context,
    port: u16,
    server: &Running<'_>,
    shape: Shape,
    unlimited: bool,
    fill_ms: u32,
    pause_ms: u32,
) -> Result<Sample, Error> {
    let scheme = if shape.secure { "https" } else { "http" };
    let mut command = worker::command("urgent")?;
    command.arg(format!("{scheme}://127.0.0.1:{port}"));
    command.args([
        "--bulk",
        &BULK.to_string(),
        "--streams",
        &shape.streams.to_string(),
    ]);
    command.args(["--requests", &REQUESTS.to_string()]);
    command.args([
        "--fill-ms",
        &fill_ms.to_string(),
        "--pause-ms",
        &pause_ms.to_string(),
    ]);
    if shape.up {
        command.arg("--up");
    }
    if unlimited {
        command.arg("--unlimited");
    }
    let before = server.cpu()?;
    let output = process::run(&cx.reaper, &mut command, cx.limit(LIMIT)?)?;
    let cpu = server.cpu()?.saturating_sub(before).as_secs_f64();
    let figures = output.figures();
    let [median, worst, rate, bytes] = figures.as_slice() else {
        return Err(Error::Output("worker urgent".to_owned(), output.stdout));
    };
    Ok(Sample {
        median: *median,
        worst: *worst,
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
        let candidate = |name: &str, unlimited: bool| {
            Candidate::ours(name, move || {
                let more: &[&str] = if unlimited { &UNLIMITED } else { &[] };
                let serve = server(cx, &bed.folder, secure, more)?;
                ask(cx, serve.port, &serve.running, shape, unlimited, 500, 40)
            })
        };
        let all = compare(
            cx.options.runs,
            vec![candidate("default", false), candidate("no limit", true)],
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
