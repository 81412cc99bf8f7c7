//! Programs of axum, tonic and reqwest with the published `h2` and with `crates/h2`: processor time, latency, instructions,
//! memory, and a long path. Each pair is measured in turn.

use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use super::servers::{LIMIT, MEASURE_SECONDS, SETTLE, Sample, Shape, Trial, instructions, transport};
use super::{Case, RATE, Report, Section};
use crate::comparison::{Candidate, compare, ratio_of};
use crate::context::{Context, make_file};
use crate::error::Error;
use crate::markdown::Table;
use crate::peers;
use crate::peers::h2::H2;
use crate::peers::observe::Raw;
use crate::peers::servers::{Kind, Load, Server, Testbed};
use crate::process;
use crate::program::{self, LinkOptions};

const KIB_64: u64 = 64 << 10;
const MIB_64: u64 = 64 << 20;
const GIB: u64 = 1 << 30;
/// Of tokio's multi-thread runtime, on both cores.
const WORKERS: usize = 2;
/// Connections whose memory is looked at.
const IDLE: u32 = 2_000;
const WAITING: u32 = 100;
const PACKAGES: [&str; 5] = ["axum", "hyper", "reqwest", "tokio", "tonic"];

/// A load of a server of axum, and the most of the published crate's processor time that is asked of the other: on the
/// current thread, on two workers, and over TLS.
struct Row {
    shape: Shape,
    asked: [Option<&'static str>; 3],
}

const fn row(shape: Shape, asked: [Option<&'static str>; 3]) -> Row {
    Row { shape, asked }
}

const ROWS: [Row; 6] = [
    row(Shape::new("12 bytes, 1 x 1", 12, [1, 1], 500), [None; 3]),
    row(
        Shape::new("12 bytes, 1 x 100", 12, [1, 100], 2_000),
        [Some("0.75"), Some("0.65"), Some("0.9")],
    ),
    row(Shape::new("12 bytes, 16 x 32", 12, [16, 32], 4_000), [None; 3]),
    row(
        Shape::new("10 KB, 1 x 100", 10_000, [1, 100], 1_000),
        [Some("0.6"), None, Some("0.9")],
    ),
    row(
        Shape::windowed("64 KiB, 1 x 32, windows of 16 MiB", KIB_64, [1, 32], 200, 24),
        [Some("0.65"), None, Some("0.9")],
    ),
    row(
        Shape::new("1 GiB down, 1 x 1", GIB, [1, 1], 1),
        [Some("0.65"), None, Some("0.9")],
    ),
];

/// A load of a server of tonic.
struct Call {
    name: &'static str,
    method: &'static str,
    message: &'static str,
    load: Load,
}

const fn call(
    name: &'static str,
    method: &'static str,
    message: &'static str,
    streams: u32,
    requests: u64,
) -> Call {
    let load = Load {
        requests,
        connections: 1,
        streams,
        window_bits: 30,
        bytes: 0,
        http1: false,
    };
    Call {
        name,
        method,
        message,
        load,
    }
}

/// 100 octets.
const HUNDRED: &str =
    "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789";

const CALLS: [Call; 2] = [
    call("unary, 100 B, 1 x 100", "Unary", HUNDRED, 100, 50_000),
    call("streams of 64 messages of 1 MiB, 1 x 4", "Stream", "64", 4, 40),
];

pub(super) fn run(cx: &Context) -> Result<Section, Error> {
    let mut report = Report::new(Case::H2, "The crate `h2` in place of the published one");
    let testbed = Testbed {
        cx,
        folder: cx.folder("h2")?,
        keys: peers::keys(cx)?,
        go: Err(Error::Missing("no server in Go here".to_owned())),
        under: None,
    };
    report.paragraph(
        "The same programs on axum, tonic and reqwest, at their defaults but for TCP_NODELAY, built with the published `h2` and with \
         `crates/h2`. A ratio is of what the second took to what the first took in the same run, so less than 1 is less; `asked` is \
         what is asked of it. Processor time is the whole process's, with the kernel's for it.",
    );
    servers(&mut report, &testbed);
    calls(&mut report, &testbed)?;
    clients(&mut report, &testbed)?;
    latency(&mut report, &testbed);
    memory(&mut report, &testbed);
    paths(&mut report, &testbed)?;
    instructions(&mut report, &testbed);
    report.note(format!(
        "With {}; of the published crate {}.",
        H2::Published.versions(&PACKAGES),
        H2::Published.versions(&["h2"])
    ));
    report.finish(cx, &["h2load", "valgrind"])
}

/// A table whose rows compare a figure of both.
struct Pairs<'a> {
    testbed: &'a Testbed<'a>,
    table: Table,
    any: bool,
}

/// What is measured of one of the two, again and again.
type Measure<'a, T> = Box<dyn FnMut() -> Result<T, Error> + 'a>;

impl<'a> Pairs<'a> {
    fn new(testbed: &'a Testbed<'a>, own: &[&str], figure: &str) -> Self {
        let own = own.iter().map(|&name| name.to_owned());
        let both = H2::BOTH.map(|h2| format!("{}: {figure}", h2.name()));
        let last = ["ratio", "asked"].map(str::to_owned);
        Self {
            testbed,
            table: Table::new(own.chain(both).chain(last)),
            any: false,
        }
    }

    /// Measures both in turn, and adds their row; of a figure with so many digits.
    fn measure<T>(
        &mut self,
        report: &mut Report,
        own: &[&str],
        asked: Option<&str>,
        (digits, figure): (usize, impl Fn(&T) -> f64 + Copy),
        measure: impl Fn(H2) -> Measure<'a, T>,
    ) {
        if !self.testbed.cx.measures(&own.join(", ")) {
            return;
        }
        let candidates = H2::BOTH.map(|h2| Candidate::new(h2.name(), h2 == H2::Patched, measure(h2)));
        let all = compare(self.testbed.cx.options.runs, candidates.into());
        report.note_errors(&own.join(", "), &all);
        let ratio = match all.as_slice() {
            [published, patched] => ratio_of(patched, published, figure),
            _ => None,
        };
        let mut row: Vec<String> = own.iter().map(|&name| name.to_owned()).collect();
        row.extend(all.iter().map(|series| series.cell(digits, figure)));
        row.push(ratio.map_or("-".to_owned(), |ratio| ratio.text(2)));
        row.push(asked.unwrap_or("-").to_owned());
        self.table.row(row);
        self.any = true;
    }

    fn finish(self, report: &mut Report, heading: &str, paragraph: &str) {
        if self.any {
            report.paragraph(&format!("## {heading}"));
            report.paragraph(paragraph);
            report.table(&self.table);
        }
    }
}

/// A measurement of a server, which starts when it is measured first and then stays.
fn of_server<'a, T>(
    testbed: &'a Testbed<'a>,
    kind: Kind,
    secure: bool,
    take: impl Fn(&Server<'_>) -> Result<T, Error> + 'a,
) -> Measure<'a, T> {
    let mut started = None;
    Box::new(move || {
        let server = match started.take() {
            Some(server) => server,
            None => testbed.start(kind, secure)?,
        };
        let taken = take(&server)?;
        started = Some(server);
        Ok(taken)
    })
}

fn threads(workers: usize) -> &'static str {
    match workers {
        0 => "current thread",
        _ => "2 workers",
    }
}

fn servers(report: &mut Report, testbed: &Testbed<'_>) {
    let mut pairs = Pairs::new(testbed, &["bodies", "transport", "runtime"], "CPU, us");
    for row in &ROWS {
        let shapes = [(false, 0), (false, WORKERS), (true, 0)];
        for ((secure, workers), asked) in shapes.into_iter().zip(row.asked) {
            let own = [row.shape.name(), transport(secure), threads(workers)];
            pairs.measure(
                report,
                &own,
                asked,
                (1, |sample: &Sample| sample.cpu * 1e6),
                |h2| {
                    let mut trial = Trial::new(
                        testbed,
                        Kind::Axum(h2, workers),
                        secure,
                        row.shape.load(),
                        MEASURE_SECONDS,
                    );
                    Box::new(move || trial.measure())
                },
            );
        }
    }
    for (secure, asked) in [(false, "0.6"), (true, "0.9")] {
        let own = ["1 GiB up, 1 x 1", transport(secure), threads(0)];
        let digits_and_figure = (1, |cpu: &Duration| cpu.as_secs_f64() * 1e6);
        pairs.measure(report, &own, Some(asked), digits_and_figure, |h2| {
            of_server(testbed, Kind::Axum(h2, 0), secure, |server| {
                cpu_of(server, |server| server.upload(GIB).map(drop))
            })
        });
    }
    pairs.finish(
        report,
        "axum",
        "Processor time of a server for a response under h2load, so many connections x streams, with windows of 1 GiB where no others \
         are named; for the upload that of all of it. The current thread has one core and h2load the other; two workers share both with \
         it.",
    );
}

/// What a server has of the processors meanwhile.
fn cpu_of(
    server: &Server<'_>,
    work: impl FnOnce(&Server<'_>) -> Result<(), Error>,
) -> Result<Duration, Error> {
    let before = server.cpu()?;
    work(server)?;
    thread::sleep(SETTLE);
    Ok(server.cpu()?.saturating_sub(before))
}

fn calls(report: &mut Report, testbed: &Testbed<'_>) -> Result<(), Error> {
    let mut pairs = Pairs::new(testbed, &["calls", "runtime"], "CPU, us");
    for call in &CALLS {
        let message = message(testbed.cx, call)?;
        let requests = match testbed.cx.options.quick {
            true => call.load.requests.div_ceil(10),
            false => call.load.requests,
        };
        let load = Load {
            requests,
            ..call.load
        };
        for workers in [0, WORKERS] {
            let own = [call.name, threads(workers)];
            let figure = |cpu: &Duration| cpu.as_secs_f64() * 1e6 / requests as f64;
            pairs.measure(report, &own, Some("1"), (1, figure), |h2| {
                let message = message.clone();
                of_server(testbed, Kind::Tonic(h2, workers), false, move |server| {
                    cpu_of(server, |server| server.call(call.method, &message, load, LIMIT))
                })
            });
        }
    }
    pairs.finish(
        report,
        "tonic",
        "Processor time of a server for a call, under h2load with windows of 1 GiB. Messages are octets, without protocol buffers.",
    );
    Ok(())
}

/// A file with the message of a call, as gRPC frames it.
fn message(cx: &Context, call: &Call) -> Result<PathBuf, Error> {
    let file = cx.folder("h2")?.join(call.method);
    let mut octets = vec![0, 0, 0, 0, call.message.len() as u8];
    octets.extend_from_slice(call.message.as_bytes());
    std::fs::write(&file, octets).map_err(|error| Error::File(file.clone(), error))?;
    Ok(file)
}

fn clients(report: &mut Report, testbed: &Testbed<'_>) -> Result<(), Error> {
    let server = testbed.start(Kind::Memory, false)?;
    let mut pairs = Pairs::new(testbed, &["requests"], "CPU, ms");
    for (name, bytes, at_once, requests, asked) in [
        ("40,000 of 12 bytes, 1 at once", 12, 1, 40_000, "1"),
        ("100,000 of 12 bytes, 100 at once", 12, 100, 100_000, "1"),
        ("1 of 1 GiB", GIB, 1, 1, "0.6"),
    ] {
        let requests = match (testbed.cx.options.quick, requests) {
            (false, _) | (_, 1) => requests,
            (true, many) => many / 10,
        };
        let figure = (1, |cpu: &Duration| cpu.as_secs_f64() * 1e3);
        pairs.measure(report, &[name], Some(asked), figure, |h2| {
            let mut command = reqwest(h2, &server.url(bytes), bytes, requests, at_once);
            let server = &server;
            Box::new(move || Ok(server.run_beside(&mut command, LIMIT)?.cpu))
        });
    }
    pairs.finish(
        report,
        "reqwest",
        "Processor time of a whole client, on the current thread and one core, with one connection to fullbore's handler in memory on \
         the other.",
    );
    Ok(())
}

fn reqwest(h2: H2, url: &str, bytes: u64, requests: u64, at_once: u64) -> Command {
    let mut command = h2.command("reqwest", 0, None);
    command.arg(url).args(["--bytes", &bytes.to_string()]);
    command.args([
        "--requests",
        &requests.to_string(),
        "--at-once",
        &at_once.to_string(),
    ]);
    command
}

fn latency(report: &mut Report, testbed: &Testbed<'_>) {
    let requests = if testbed.cx.options.quick { 2_000 } else { 20_000 };
    let mut pairs = Pairs::new(testbed, &["latency", "transport", "runtime"], "median, us");
    for (secure, workers) in [(false, 0), (false, WORKERS), (true, 0)] {
        let own = ["12 bytes, one at a time", transport(secure), threads(workers)];
        pairs.measure(
            report,
            &own,
            Some("1.03"),
            (1, |raw: &Raw| raw.median_micros),
            |h2| {
                of_server(testbed, Kind::Axum(h2, workers), secure, move |server| {
                    server.raw(12, requests)
                })
            },
        );
    }
    pairs.finish(
        report,
        "Latency",
        &format!(
            "How long the middle one of {requests} requests to axum took, of a client on a blocking socket that sends the next when the \
             last is answered."
        ),
    );
}

fn memory(report: &mut Report, testbed: &Testbed<'_>) {
    let kib = |server: &Server<'_>| server.memory().unwrap_or(0) as f64 / 1024.0;
    let mut pairs = Pairs::new(testbed, &["memory"], "RSS a connection, KiB");
    let figure = (1, |kib: &f64| *kib);
    pairs.measure(report, &["idle"], Some("1"), figure, |h2| {
        Box::new(move || {
            let server = testbed.start(Kind::Axum(h2, 0), false)?;
            server.raw(12, 10)?;
            let before = kib(&server);
            let after = server.with_idle(IDLE, || Ok(kib(&server)))?;
            Ok((after - before) / f64::from(IDLE))
        })
    });
    pairs.measure(report, &["100 streams"], Some("1"), figure, |h2| {
        Box::new(move || {
            let server = testbed.start(Kind::Axum(h2, 0), false)?;
            server.raw(12, 10)?;
            let before = kib(&server);
            let after = server.with_waiting(WAITING, || Ok(kib(&server)))?;
            Ok((after - before) / f64::from(WAITING))
        })
    });
    pairs.finish(
        report,
        "Memory",
        &format!(
            "What the memory of a server of axum grows by: for each of {IDLE} connections that made a request and rested for three \
             seconds, and for each of {WAITING} with 100 requests that wait for their handlers."
        ),
    );
}

fn paths(report: &mut Report, testbed: &Testbed<'_>) -> Result<(), Error> {
    let path = LinkOptions {
        rtt_ms: 100,
        gigabit: true,
    };
    let mut pairs = Pairs::new(testbed, &["over 100 ms and 1 Gbit/s"], "% of the limit");
    let through = |h2: H2, to: u16, least: f64, client: &dyn Fn(H2, &str) -> Command| {
        let link = program::link(testbed.cx, to, path)?;
        let mut command = client(h2, &format!("http://127.0.0.1:{}", link.port));
        let output = process::run(&testbed.cx.reaper, &mut command, testbed.cx.limit(LIMIT)?)?;
        match output.figures().as_slice() {
            &[seconds] => Ok(100.0 * least / seconds),
            _ => Err(Error::Output("the client".to_owned(), output.stdout)),
        }
    };
    let percent = (1, |percent: &f64| *percent);
    let least = |bytes: u64| 0.1 + bytes as f64 / RATE;
    for (name, upload, asked) in [("64 MiB down", false, "90 %"), ("64 MiB up", true, "90 %")] {
        pairs.measure(report, &[name], Some(asked), percent, |h2| {
            of_server(testbed, Kind::Axum(h2, WORKERS), false, move |server| {
                through(h2, server.port(), least(MIB_64), &|h2, base| {
                    let bytes = if upload { 0 } else { MIB_64 };
                    let mut command = reqwest(h2, &format!("{base}/{MIB_64}"), bytes, 1, 1);
                    if upload {
                        command.args(["--upload", &MIB_64.to_string()]);
                    }
                    command
                })
            })
        });
    }
    let many = |h2: H2, base: &str| reqwest(h2, &format!("{base}/10000"), 10_000, 10_000, 10_000);
    pairs.measure(
        report,
        &["10,000 files of 10 KB, 200 streams"],
        None,
        percent,
        |h2| {
            of_server(testbed, Kind::Axum(h2, WORKERS), false, move |server| {
                through(h2, server.port(), least(100_000_000), &many)
            })
        },
    );
    make_file(&testbed.folder.join("10000"), 10_000)?;
    let server = program::serve(testbed.cx, &testbed.folder, &["--max-streams", "10000"])?;
    let port = server.port;
    pairs.measure(
        report,
        &["10,000 files of 10 KB, 10,000 streams"],
        None,
        percent,
        |h2| Box::new(move || through(h2, port, least(100_000_000), &many)),
    );
    pairs.finish(
        report,
        "A long path",
        "reqwest over `fullbore link`, with everything at its defaults: how near it comes to what the path allows, a round trip and \
         the bytes at the link's rate; less for an upload, which RFC 9113 section 6.9.2 lets begin with 65,535 bytes until the \
         server's SETTINGS have come: 86.4 %. The server is axum, built with the same `h2`; for 10,000 streams at once `fullbore \
         serve`. Here more is better, and ratios above 1.",
    );
    Ok(())
}

fn instructions(report: &mut Report, testbed: &Testbed<'_>) {
    let mut table = Table::new(["bodies", "published h2", "crates/h2", "ratio"]);
    let mut any = false;
    for shape in &instructions::SHAPES {
        let name = format!("instructions: {}", shape.name());
        if !testbed.cx.measures(&name) {
            continue;
        }
        let [published, patched] = H2::BOTH.map(|h2| {
            let kind = Kind::Axum(h2, 0);
            report.record(&name, kind, instructions::measure(testbed, kind, shape.load()))
        });
        if let (Some(published), Some(patched)) = (published, patched) {
            let ratio = format!("{:.2}", patched / published);
            let figures = [published, patched].map(|figure| format!("{figure:.0}"));
            let [published, patched] = figures;
            table.row([shape.name().to_owned(), published, patched, ratio]);
            any = true;
        }
    }
    if any {
        report.paragraph("## Instructions");
        report.paragraph(
            "What a server of axum on the current thread takes for a response in its own process, in the clear, counted by callgrind; \
             the kernel's work for it is not in it.",
        );
        report.table(&table);
    }
}
