//! Clients of one thread on one core, with the server on the other core, and 100,000 small requests on one connection from
//! many tasks on two threads. The figure that counts is the client's processor time.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::{Case, Report, Section, series};
use crate::comparison::{Candidate, Series, compare, ratio_of};
use crate::context::Context;
use crate::error::Error;
use crate::markdown::Table;
use crate::peers::servers::{Kind, Server, Testbed};
use crate::peers::{self, window_flags};
use crate::process;
use crate::worker;

const KIB_64: u64 = 64 << 10;
const GIB: u64 = 1 << 30;
const LIMIT: Duration = Duration::from_secs(120);
const CIPHER: &str = "TLS_AES_128_GCM_SHA256";

#[derive(Debug, Clone, Copy, PartialEq)]
enum Program {
    Fullbore,
    FullboreConnection,
    Hyper,
    Reqwest,
    H2load,
    Curl,
    Nghttp,
}

impl Program {
    const ALL: [Program; 7] = [
        Program::Fullbore,
        Program::FullboreConnection,
        Program::Hyper,
        Program::Reqwest,
        Program::H2load,
        Program::Curl,
        Program::Nghttp,
    ];
    const LIBRARIES: [Program; 4] = [
        Program::Fullbore,
        Program::FullboreConnection,
        Program::Hyper,
        Program::Reqwest,
    ];

    fn name(self) -> &'static str {
        match self {
            Program::Fullbore => "fullbore, Client",
            Program::FullboreConnection => "fullbore, one connection",
            Program::Hyper => "hyper",
            Program::Reqwest => "reqwest",
            Program::H2load => "h2load",
            Program::Curl => "curl",
            Program::Nghttp => "nghttp",
        }
    }

    fn ours(self) -> bool {
        matches!(self, Program::Fullbore | Program::FullboreConnection)
    }

    /// Whether it can do that: reqwest is built without TLS here; curl's second request on a connection in the clear fails, and
    /// nghttp has all its requests under way at once.
    fn can(self, load: Load) -> bool {
        match self {
            Program::Reqwest => !load.secure,
            Program::Curl => load.requests == 1 || load.secure,
            Program::Nghttp => load.bytes == GIB,
            _ => true,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Load {
    bytes: u64,
    at_once: u64,
    requests: u64,
    secure: bool,
    workers: u64,
}

struct Shape {
    name: &'static str,
    bytes: u64,
    at_once: u64,
    requests: u64,
}

const fn shape(name: &'static str, bytes: u64, at_once: u64, requests: u64) -> Shape {
    Shape {
        name,
        bytes,
        at_once,
        requests,
    }
}

const SHAPES: [Shape; 7] = [
    shape("12 bytes, 1 at once", 12, 1, 30_000),
    shape("12 bytes, 100 at once", 12, 100, 200_000),
    shape("10 KB, 1 at once", 10_000, 1, 20_000),
    shape("10 KB, 100 at once", 10_000, 100, 50_000),
    shape("64 KiB, 1 at once", KIB_64, 1, 10_000),
    shape("64 KiB, 100 at once", KIB_64, 100, 20_000),
    shape("1 GiB, 1 at once", GIB, 1, 1),
];

/// Of the contention on one connection.
const TASKS: [u64; 3] = [1, 8, 64];
const SMALL_REQUESTS: u64 = 100_000;

/// What one client took for one load.
struct Sample {
    seconds: f64,
    cpu: f64,
}

pub(super) fn run(cx: &Context) -> Result<Section, Error> {
    let mut report = Report::new(Case::Clients, "Clients on one core");
    let testbed = Testbed {
        cx,
        folder: cx.folder("clients")?,
        keys: peers::keys(cx)?,
        go: Err(Error::Missing("no server in Go here".to_owned())),
        under: None,
    };
    report.paragraph(
        "Clients that throw away what they receive, each on one connection, one thread and one core, from fullbore's handler in \
         memory on the other: the same server for all. The processor time is the client's whole process, with the kernel's for it; \
         ratios are of that time, of fullbore's `Client` and of its handle of one connection to each client, so less than 1 is \
         less time.",
    );
    for shape in SHAPES.iter().filter(|shape| cx.measures(shape.name)) {
        let mut table = Table::new([
            "client",
            "transport",
            if shape.bytes >= KIB_64 {
                "MB a second"
            } else {
                "requests a second"
            },
            "CPU a request, us",
            "CPU a MB, us",
            "Client ÷ it",
            "connection ÷ it",
        ]);
        for secure in [false, true] {
            let load = Load {
                bytes: shape.bytes,
                at_once: shape.at_once,
                requests: scaled(cx, shape.requests, shape.at_once),
                secure,
                workers: 1,
            };
            let all = measure_all(&mut report, &testbed, shape.name, &Program::ALL, load);
            for one in &all {
                table.row(row(load, one, &all));
            }
        }
        report.paragraph(&format!("## {}", shape.name));
        report.table(&table);
    }
    contention(&mut report, &testbed);
    report.note("hyper and reqwest have windows of 16 MiB, h2load and nghttp of 1 GiB, curl and fullbore their defaults.");
    report.note(format!("TLS is 1.3 with {CIPHER}, but nghttp, which cannot be told, has AES-256. reqwest is built without TLS here. curl is measured over TLS where requests share a connection: the second on one in the clear ends with its exit code 16 (curl 7.88), from nghttpd too."));
    report.finish(cx, &["h2load", "curl", "nghttp"])
}

fn contention(report: &mut Report, testbed: &Testbed<'_>) {
    let name = "contention: 12 bytes";
    if !testbed.cx.measures(name) {
        return;
    }
    let mut table = Table::new([
        "tasks",
        "client",
        "requests a second",
        "CPU a request, us",
        "Client ÷ it",
        "connection ÷ it",
    ]);
    for tasks in TASKS {
        let load = Load {
            bytes: 12,
            at_once: tasks,
            requests: scaled(testbed.cx, SMALL_REQUESTS, tasks),
            secure: false,
            workers: 2,
        };
        let all = measure_all(
            report,
            testbed,
            &format!("{name}, {tasks} tasks"),
            &Program::LIBRARIES,
            load,
        );
        for one in &all {
            let [client, _, rate, cpu, _, of_client, of_connection] = row(load, one, &all);
            table.row([tasks.to_string(), client, rate, cpu, of_client, of_connection]);
        }
    }
    report.paragraph("## Many tasks on one connection");
    report.paragraph(
        "Requests for 12 bytes on one cleartext connection, from so many tasks on tokio's multi-thread runtime with two workers, \
         each task one request after another; the server shares one of the two cores.",
    );
    report.table(&table);
}

/// In a quick run a tenth, but one for each at once.
fn scaled(cx: &Context, requests: u64, at_once: u64) -> u64 {
    if cx.options.quick {
        (requests / 10).max(at_once)
    } else {
        requests
    }
}

fn measure_all(
    report: &mut Report,
    testbed: &Testbed<'_>,
    name: &str,
    programs: &[Program],
    load: Load,
) -> Vec<Series<Sample>> {
    let able = programs.iter().copied().filter(|program| program.can(load));
    let candidates = able.map(|program| {
        let mut server = None;
        let measure = move || {
            // One for each client, so that none meets another's leavings.
            let started = match server.take() {
                Some(started) => started,
                None => testbed.start(Kind::Memory, load.secure)?,
            };
            let sample = sample(testbed.cx, &started, program, load)?;
            server = Some(started);
            Ok(sample)
        };
        Candidate::new(program.name(), program.ours(), measure)
    });
    let all = compare(testbed.cx.options.runs, candidates.collect());
    let tried = all
        .iter()
        .filter(|series| !matches!(series.error, Some(Error::Missing(_))));
    let transport = if load.secure { "TLS" } else { "cleartext" };
    report.note_errors(&format!("{name}, {transport}"), tried);
    all
}

fn sample(cx: &Context, server: &Server<'_>, program: Program, load: Load) -> Result<Sample, Error> {
    let mut command = command(cx, server, program, load)?;
    let output = match load.workers {
        1 => server.run_beside(&mut command, LIMIT)?,
        _ => process::run(&cx.reaper, &mut command, cx.limit(LIMIT)?)?,
    };
    let seconds = match program {
        Program::Fullbore | Program::FullboreConnection | Program::Hyper | Program::Reqwest => output
            .stdout
            .trim()
            .parse()
            .map_err(|_| Error::Output(program.name().to_owned(), output.stdout.clone()))?,
        Program::H2load => peers::h2loads_lines(&output.stdout, load.requests)?,
        // They tell no total of many: the whole process, as its processor time is.
        Program::Curl | Program::Nghttp => output.wall.as_secs_f64(),
    };
    Ok(Sample {
        seconds,
        cpu: output.cpu.as_secs_f64(),
    })
}

fn command(cx: &Context, server: &Server<'_>, program: Program, load: Load) -> Result<Command, Error> {
    let url = server.url(load.bytes);
    let library = |name: &str| {
        let mut command = worker::command("client")?;
        command.args([name, &url]);
        command.args(["--bytes", &load.bytes.to_string()]);
        command.args(["--requests", &load.requests.to_string()]);
        command.args(["--at-once", &load.at_once.to_string()]);
        command.args(["--workers", &load.workers.to_string()]);
        Ok(command)
    };
    match program {
        Program::Fullbore => library("fullbore"),
        Program::FullboreConnection => library("fullbore-connection"),
        Program::Hyper => library("hyper"),
        Program::Reqwest => library("reqwest"),
        Program::H2load => {
            let mut command = Command::new("h2load");
            command.args([
                format!("-n{}", load.requests),
                "-c1".to_owned(),
                format!("-m{}", load.at_once),
            ]);
            command.args(window_flags(30));
            command.args([&format!("--tls13-ciphers={CIPHER}"), "--groups=P-256", &url]);
            Ok(command)
        }
        Program::Curl => {
            let list = cx.folder("clients")?.join("curl");
            write_list(&list, &url, load.requests)?;
            let mut command = Command::new("curl");
            command.args(["--silent", "--show-error", "--fail", "--no-progress-meter"]);
            command.args(["--insecure", "--tls13-ciphers", CIPHER]);
            command.arg(if load.secure {
                "--http2"
            } else {
                "--http2-prior-knowledge"
            });
            if load.at_once > 1 {
                command.args(["--parallel", "--parallel-max", &load.at_once.to_string()]);
            }
            command.arg("--config").arg(list);
            Ok(command)
        }
        Program::Nghttp => {
            let mut command = Command::new("nghttp");
            command.arg("--null-out").args(window_flags(30)).arg(url);
            Ok(command)
        }
    }
}

fn write_list(list: &Path, url: &str, requests: u64) -> Result<(), Error> {
    let write = |list: &Path| {
        let mut file = std::io::BufWriter::new(File::create(list)?);
        for _ in 0..requests {
            writeln!(file, "url = \"{url}\"\noutput = \"/dev/null\"")?;
        }
        file.flush()
    };
    write(list).map_err(|error| Error::File(list.to_owned(), error))
}

fn row(load: Load, one: &Series<Sample>, all: &[Series<Sample>]) -> [String; 7] {
    let requests = load.requests as f64;
    let megabytes = load.bytes as f64 / 1e6;
    let ratio = |own: Program| {
        series(all, own.name())
            .filter(|own| own.name != one.name)
            .and_then(|own| ratio_of(own, one, |sample| sample.cpu))
            .map_or("-".to_owned(), |spread| spread.text(2))
    };
    let bulk = load.bytes >= KIB_64;
    let rate = match (&one.error, bulk) {
        (Some(Error::Missing(_)), _) => "not installed".to_owned(),
        (_, true) => one.cell(0, |sample| requests * megabytes / sample.seconds),
        (_, false) => one.cell(0, |sample| requests / sample.seconds),
    };
    let cell = |digits, figure: &dyn Fn(&Sample) -> f64| {
        one.spread(figure)
            .map_or("-".to_owned(), |spread| spread.text(digits))
    };
    [
        one.name.clone(),
        if load.secure { "TLS" } else { "cleartext" }.to_owned(),
        rate,
        cell(if bulk { 0 } else { 2 }, &|sample| sample.cpu * 1e6 / requests),
        match load.bytes {
            12 => "-".to_owned(),
            _ => cell(0, &|sample| sample.cpu * 1e6 / (requests * megabytes)),
        },
        ratio(Program::Fullbore),
        ratio(Program::FullboreConnection),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_asked_for_nothing_that_they_cannot_do() {
        let load = Load {
            bytes: 12,
            at_once: 100,
            requests: 100,
            secure: false,
            workers: 1,
        };
        let able = |load| {
            let all = Program::ALL.into_iter().filter(|program| program.can(load));
            all.collect::<Vec<_>>()
        };
        assert!(!able(load).contains(&Program::Curl) && !able(load).contains(&Program::Nghttp));
        let secure = Load { secure: true, ..load };
        assert!(able(secure).contains(&Program::Curl) && !able(secure).contains(&Program::Reqwest));
        let long = Load {
            bytes: GIB,
            at_once: 1,
            requests: 1,
            ..load
        };
        assert_eq!(able(long), Program::ALL);
    }
}
