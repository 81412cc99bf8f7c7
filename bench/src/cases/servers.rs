//! Servers of one thread on one core, with the load on the other: small bodies, files of 10 KB, 64 KiB through small and large
//! windows, and 1 GiB on one stream. The figure that counts is the server's processor time, for the load program is often the
//! slower one. `uploads`, `latency`, `calls`, `records` and `instructions` measure the same servers by other means.

mod calls;
pub(super) mod instructions;
mod latency;
mod records;
mod uploads;

use std::thread;
use std::time::Duration;

use super::{Case, Report, Section, series};
use crate::comparison::{Candidate, Series, compare, ratio_of};
use crate::context::Context;
use crate::error::Error;
use crate::markdown::Table;
use crate::peers::servers::{Kind, Load, Server, Testbed};

const KIB_64: u64 = 64 << 10;
const GIB: u64 = 1 << 30;
pub(super) const LIMIT: Duration = Duration::from_secs(120);
/// How long a measurement should take, by and large.
pub(super) const MEASURE_SECONDS: f64 = 1.0;
/// Which part of that a quick one takes.
const QUICK: f64 = 0.1;
/// For what a server does when its client has gone.
pub(super) const SETTLE: Duration = Duration::from_millis(5);

/// The load and how it is told of.
pub(super) struct Shape {
    pub(super) name: &'static str,
    /// As it is for warming up: its number of requests is scaled then.
    pub(super) load: Load,
}

impl Shape {
    pub(super) const fn new(
        name: &'static str,
        bytes: u64,
        [connections, streams]: [u32; 2],
        first: u64,
    ) -> Self {
        Self::windowed(name, bytes, [connections, streams], first, 30)
    }

    pub(super) const fn windowed(
        name: &'static str,
        bytes: u64,
        [connections, streams]: [u32; 2],
        first: u64,
        window_bits: u32,
    ) -> Self {
        let load = Load {
            requests: first,
            connections,
            streams,
            window_bits,
            bytes,
            http1: false,
        };
        Self { name, load }
    }

    /// The same with HTTP/1.1.
    pub(super) const fn http1(name: &'static str, bytes: u64, connections: u32, first: u64) -> Self {
        let mut shape = Self::new(name, bytes, [connections, 1], first);
        shape.load.http1 = true;
        shape
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn load(&self) -> Load {
        self.load
    }

    /// Bodies that take long enough for their bytes, not their number, to count; they have a floor too.
    fn is_bulk(&self) -> bool {
        self.load.bytes >= KIB_64
    }
}

const SHAPES: [Shape; 11] = [
    Shape::new("12 bytes, 1 x 1", 12, [1, 1], 500),
    Shape::new("12 bytes, 1 x 100", 12, [1, 100], 2_000),
    Shape::new("12 bytes, 16 x 32", 12, [16, 32], 4_000),
    Shape::new("10 KB, 1 x 100", 10_000, [1, 100], 1_000),
    Shape::new("10 KB, 1 x 1000", 10_000, [1, 1_000], 2_000),
    Shape::windowed("64 KiB, 1 x 32, windows of 65,535 B", KIB_64, [1, 32], 200, 16),
    Shape::windowed("64 KiB, 1 x 32, windows of 16 MiB", KIB_64, [1, 32], 200, 24),
    Shape::new("1 GiB, 1 x 1", GIB, [1, 1], 1),
    Shape::http1("HTTP/1.1, 12 bytes, 32 connections", 12, 32, 2_000),
    Shape::http1("HTTP/1.1, 10 KB, 32 connections", 10_000, 32, 1_000),
    Shape::http1("HTTP/1.1, 1 GiB, 1 connection", GIB, 1, 1),
];

/// What a server did under one load.
pub(super) struct Sample {
    a_second: f64,
    /// Seconds of the server's processor time a request.
    pub(super) cpu: f64,
    peak_memory: f64,
}

pub(super) fn run(cx: &Context) -> Result<Section, Error> {
    let mut report = Report::new(Case::Servers, "Servers on one core");
    let testbed = Testbed::new(cx, "servers", &[12, 10_000, KIB_64, GIB])?;
    report.paragraph(
        "One server thread on one core and h2load on another: bodies of so many bytes over so many connections x streams \
         each, with windows of 1 GiB where no others are named. The processor time is the server's, with the kernel's for \
         it; ratios are of that time for a request, `fullbore serve` (files) and fullbore's handler from memory to each \
         server, so less than 1 is less time. A MB is 10^6 bytes of bodies. Memory is the server's peak since its start.",
    );
    for shape in SHAPES.iter().filter(|shape| cx.measures(shape.name)) {
        let mut table = Table::new([
            "server",
            "transport",
            if shape.is_bulk() {
                "MB a second"
            } else {
                "requests a second"
            },
            "CPU a request, us",
            "CPU a MB, us",
            "peak memory, MiB",
            "files ÷ it",
            "memory ÷ it",
        ]);
        for secure in [false, true] {
            measure_all(&mut report, &testbed, shape, secure, &mut table);
        }
        report.paragraph(&format!("## {}", shape.name));
        report.table(&table);
    }
    uploads::run(&mut report, &testbed);
    latency::run(&mut report, &testbed);
    calls::run(&mut report, &testbed);
    records::run(&mut report, &testbed);
    instructions::run(&mut report, &testbed);
    report.note("fullbore from memory and hyper run the same handler, on tokio's current thread where nothing else is named, and over TLS with the same rustls configuration; all others send files. hyper's second runtime is tokio's multi-thread one with one worker. Go runs with GOMAXPROCS=1 and its own limit of 250 streams; all others allow 10,000.");
    report.note(
        "TLS is 1.3 with AES-128-GCM and an ECDSA certificate on P-256; session resumption plays no part.",
    );
    report.note("`plain writes` is the floor: a program that writes as many bytes in 256 KiB writes to one socket, whose reader throws them away; `from a file`, it reads them 256 KiB at a time. hyper with `the same files` runs the service behind `fullbore serve`.");
    report.finish(
        cx,
        &["h2load", "nghttpd", "h2o", "nginx", "go", "strace", "valgrind"],
    )
}

pub(super) fn transport(secure: bool) -> &'static str {
    if secure { "TLS" } else { "cleartext" }
}

/// One figure of every server, taken in turn, once a run.
struct Rows<T> {
    all: Vec<Series<T>>,
}

impl<T> Rows<T> {
    fn measure(
        report: &mut Report,
        testbed: &Testbed<'_>,
        name: &str,
        kinds: &[Kind],
        secure: bool,
        take: impl Fn(&Server<'_>) -> Result<T, Error> + Copy,
    ) -> Self {
        let candidates = kinds.iter().map(|&kind| {
            let mut started = None;
            let measure = move || {
                let server = match started.take() {
                    Some(server) => server,
                    None => testbed.start(kind, secure)?,
                };
                let taken = take(&server)?;
                started = Some(server);
                Ok(taken)
            };
            Candidate::new(kind.name(), kind.ours(), measure)
        });
        let all = compare(testbed.cx.options.runs, candidates.collect());
        let tried = all
            .iter()
            .filter(|series| !matches!(series.error, Some(Error::Missing(_))));
        report.note_errors(&format!("{name}, {}", transport(secure)), tried);
        Self { all }
    }

    /// Each series, and how many times its figure those of fullbore's two servers are.
    fn with_ratios(
        &self,
        figure: impl Fn(&T) -> f64 + Copy,
    ) -> impl Iterator<Item = (&Series<T>, [String; 2])> {
        self.all.iter().map(move |one| {
            let ratios = [Kind::Files, Kind::Memory].map(|own| {
                series(&self.all, own.name())
                    .filter(|own| own.name != one.name)
                    .and_then(|own| ratio_of(own, one, figure))
                    .map_or("-".to_owned(), |spread| spread.text(2))
            });
            (one, ratios)
        })
    }
}

fn measure_all(report: &mut Report, testbed: &Testbed<'_>, shape: &Shape, secure: bool, table: &mut Table) {
    let transport = transport(secure);
    let mut kinds = match shape.load.http1 {
        true => Kind::HTTP1.to_vec(),
        false => Kind::SERVERS.to_vec(),
    };
    if shape.is_bulk() && !shape.load.http1 {
        kinds.push(Kind::HyperFiles);
        if !secure {
            kinds.extend([Kind::Floor, Kind::FloorFile(shape.load.bytes)]);
            // Shorter files are sent from the cache.
            if shape.load.bytes == GIB {
                kinds.push(Kind::Sendfile);
            }
        }
    }
    let candidates = kinds.iter().map(|&kind| {
        let mut trial = Trial::new(testbed, kind, secure, shape.load, MEASURE_SECONDS);
        Candidate::new(kind.name(), kind.ours(), move || trial.measure())
    });
    let all = compare(testbed.cx.options.runs, candidates.collect());
    // Of those that are not installed the rows say so, and the line of versions.
    let tried = all
        .iter()
        .filter(|series| !matches!(series.error, Some(Error::Missing(_))));
    report.note_errors(&format!("{}, {transport}", shape.name), tried);
    for series in &all {
        table.row(row(shape, transport, series, &all));
    }
}

fn row(shape: &Shape, transport: &str, one: &Series<Sample>, all: &[Series<Sample>]) -> [String; 8] {
    let megabytes = shape.load.bytes as f64 / 1e6;
    let ratio = |own: Kind| {
        series(all, own.name())
            .filter(|own| own.name != one.name)
            .and_then(|own| ratio_of(own, one, |sample| sample.cpu))
            .map_or("-".to_owned(), |spread| spread.text(2))
    };
    let rate = match (&one.error, shape.is_bulk()) {
        (Some(Error::Missing(_)), _) => "not installed".to_owned(),
        (_, true) => one.cell(0, |sample| sample.a_second * megabytes),
        (_, false) => one.cell(0, |sample| sample.a_second),
    };
    let cell = |digits, figure: &dyn Fn(&Sample) -> f64| {
        one.spread(figure)
            .map_or("-".to_owned(), |spread| spread.text(digits))
    };
    [
        one.name.clone(),
        transport.to_owned(),
        rate,
        cell(if shape.is_bulk() { 0 } else { 2 }, &|sample| sample.cpu * 1e6),
        // Of bodies of 12 bytes it would tell nothing.
        match shape.load.bytes {
            12 => "-".to_owned(),
            _ => cell(0, &|sample| sample.cpu * 1e6 / megabytes),
        },
        cell(1, &|sample| sample.peak_memory),
        ratio(Kind::Files),
        ratio(Kind::Memory),
    ]
}

/// One server under one load, which starts when it is measured first and then stays.
pub(super) struct Trial<'a> {
    testbed: &'a Testbed<'a>,
    kind: Kind,
    secure: bool,
    load: Load,
    /// How long a measurement should take.
    seconds: f64,
    server: Option<Server<'a>>,
}

impl<'a> Trial<'a> {
    pub(super) fn new(testbed: &'a Testbed<'a>, kind: Kind, secure: bool, load: Load, seconds: f64) -> Self {
        Trial {
            testbed,
            kind,
            secure,
            load,
            seconds,
            server: None,
        }
    }

    pub(super) fn measure(&mut self) -> Result<Sample, Error> {
        let server = match self.server.take() {
            Some(server) => server,
            None => {
                let server = self.testbed.start(self.kind, self.secure)?;
                let seconds = server.load(self.load, LIMIT)?;
                let wanted = match self.testbed.cx.options.quick {
                    true => self.seconds * QUICK,
                    false => self.seconds,
                };
                self.load.requests = scaled(self.load, wanted / seconds);
                thread::sleep(SETTLE);
                server
            }
        };
        let before = server.cpu()?;
        let seconds = server.load(self.load, LIMIT)?;
        thread::sleep(SETTLE);
        let cpu = server.cpu()?.saturating_sub(before);
        let requests = self.load.requests as f64;
        let sample = Sample {
            a_second: requests / seconds,
            cpu: cpu.as_secs_f64() / requests,
            peak_memory: server.peak_memory().unwrap_or(0) as f64 / f64::from(1 << 20),
        };
        self.server = Some(server);
        Ok(sample)
    }
}

/// So many times the requests, but at least one on each stream.
pub(super) fn scaled(load: Load, times: f64) -> u64 {
    let least = u64::from(load.connections) * u64::from(load.streams);
    ((load.requests as f64 * times) as u64).max(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_scaled_and_never_leaves_a_stream_without_a_request() {
        let [.., long] = &SHAPES;
        assert_eq!(scaled(long.load, 0.1), 1);
        let load = Load {
            requests: 2_000,
            connections: 16,
            streams: 32,
            ..long.load
        };
        assert_eq!(scaled(load, 2.5), 5_000);
        assert_eq!(scaled(load, 0.01), 512);
    }
}
