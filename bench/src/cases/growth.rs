//! How the cost of a request grows with connections, with streams of one connection, with the length of responses and with the
//! number of header fields. Servers of one thread on one core, h2load on the other. `plot::growth` draws the tables.

use std::time::Duration;

use super::servers::{LIMIT, scaled};
use super::{Case, Report, Section, series};
use crate::comparison::{Candidate, Series, compare, ratio_of};
use crate::context::Context;
use crate::error::Error;
use crate::markdown::Table;
use crate::peers::logged::{Logged, OWN_FIELDS, Pace};
use crate::peers::servers::{Kind, Load, Server, Testbed};

const KINDS: [Kind; 5] = [Kind::Files, Kind::Hyper, Kind::Nghttpd, Kind::H2o, Kind::Nginx];
const CONNECTIONS: [u32; 5] = [1, 10, 100, 1_000, 10_000];
const STREAMS: [u32; 9] = [1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000];
const FIELDS: [u32; 6] = [5, 10, 25, 50, 100, 200];
/// Names, and lengths.
const SIZES: [(&str, u64); 12] = [
    ("0", 0),
    ("1 KiB", 1 << 10),
    ("4 KiB", 4 << 10),
    ("16 KiB", 16 << 10),
    ("64 KiB", 64 << 10),
    ("256 KiB", 256 << 10),
    ("1 MiB", 1 << 20),
    ("4 MiB", 4 << 20),
    ("16 MiB", 16 << 20),
    ("64 MiB", 64 << 20),
    ("256 MiB", 256 << 20),
    ("1 GiB", 1 << 30),
];
const SMALL: u64 = 12;
const KB_10: u64 = 10_000;
/// Responses that take milliseconds.
const LONG: u64 = 1 << 20;

/// How long all connections are looked at.
const WINDOW: Duration = Duration::from_millis(1_500);
/// The same when each makes one request a second.
const PACED_WINDOW: Duration = Duration::from_secs(3);
/// How long a load should take that is looked at as a whole.
const WHOLE_SECONDS: f64 = 0.5;
const QUICK: u32 = 5;

/// The name of a column of every table.
pub(crate) const CPU: &str = "CPU a request, us";
pub(crate) const MEDIAN: &str = "p50, us";
pub(crate) const P99: &str = "p99, us";
pub(crate) const MEMORY: &str = "peak memory, MiB";

/// One table, and one curve for each server.
pub(crate) struct Growth {
    pub(crate) heading: &'static str,
    /// What grows.
    pub(crate) column: &'static str,
    about: &'static str,
    points: fn() -> Vec<Point>,
}

pub(crate) const ALL: [Growth; 5] = [
    Growth {
        heading: "Connections, all at once",
        column: "connections",
        about: "Files of 10 KB. One request is under way on each connection, and the next is sent when the response has arrived.",
        points: || {
            CONNECTIONS
                .map(|count| Point::connections(count, Pace::AtOnce))
                .to_vec()
        },
    },
    Growth {
        heading: "Connections, a request a second each",
        column: "connections",
        about: "Files of 10 KB. Each connection makes one request a second, and no two make them at the same time.",
        points: || {
            CONNECTIONS
                .map(|count| Point::connections(count, Pace::EachSecond))
                .to_vec()
        },
    },
    Growth {
        heading: "Streams of one connection",
        column: "streams",
        about: "Files of 12 bytes, so many at once on one connection.",
        points: || {
            STREAMS
                .map(|count| Point::whole(count.to_string(), SMALL, count, OWN_FIELDS))
                .to_vec()
        },
    },
    Growth {
        heading: "Sizes of responses",
        column: "size",
        about: "One file after another on one connection.",
        points: || {
            SIZES
                .map(|(name, bytes)| Point::whole(name.to_owned(), bytes, 1, OWN_FIELDS))
                .to_vec()
        },
    },
    Growth {
        heading: "Header fields of requests",
        column: "fields",
        about: "Files of 12 bytes, 10 at once on one connection. Each request has so many fields, which never change; the pseudo-header \
                fields count. All but h2load's own have a name of 11 octets and a value of 16. Beyond some 70 fields they do not fit the \
                4,096 octets that a dynamic table has by default (RFC 7541): h2load's encoder then sends each of them as a literal in \
                each request, which is the step in every curve.",
        points: || {
            FIELDS
                .map(|count| Point::whole(count.to_string(), SMALL, 10, count))
                .to_vec()
        },
    },
];

/// One load of a table.
#[derive(Clone)]
struct Point {
    name: String,
    load: Load,
    fields: u32,
    /// Of connections that stay open; otherwise the load is looked at as a whole.
    pace: Option<Pace>,
}

impl Point {
    fn connections(connections: u32, pace: Pace) -> Self {
        let point = Self::whole(connections.to_string(), KB_10, 1, OWN_FIELDS);
        Self {
            load: Load {
                connections,
                ..point.load
            },
            pace: Some(pace),
            ..point
        }
    }

    fn whole(name: String, bytes: u64, streams: u32, fields: u32) -> Self {
        // For warming up: its number of requests is scaled then.
        let requests = (SIZES[8].1 / bytes.max(1))
            .clamp(1, 1_000)
            .max(u64::from(streams));
        let load = Load {
            requests,
            connections: 1,
            streams,
            window_bits: 30,
            bytes,
            http1: false,
        };
        Self {
            name,
            load,
            fields,
            pace: None,
        }
    }
}

/// What a server did under one load.
struct Sample {
    logged: Logged,
    peak_memory: f64,
    /// Bytes that its peak has risen by since its start.
    grown: f64,
}

impl Sample {
    fn cpu(&self) -> f64 {
        self.logged.cpu.as_secs_f64() / self.logged.responses as f64
    }
}

pub(super) fn run(cx: &Context) -> Result<Section, Error> {
    let mut report = Report::new(Case::Growth, "Cost as work grows");
    let mut lengths = vec![SMALL, KB_10];
    lengths.extend(SIZES.map(|(_, bytes)| bytes));
    let testbed = Testbed::new(cx, "growth", &lengths)?;
    report.paragraph(
        "One server thread on one core and h2load on another, in the clear, with windows of 1 GiB. The processor time is the \
         server's, with the kernel's for it; the ratio is of that time, `fullbore serve` to each server, so less than 1 is less \
         time. p50 and p99 are of all requests of a run, from h2load's log: half of them, and 99 of 100, took no longer. Memory is \
         the server's peak since its start; `a connection` is what it has risen by since then, for each. All but hyper send files.",
    );
    for growth in &ALL {
        table(&mut report, &testbed, growth);
    }
    report.note("The connections are open before their requests are counted: handshakes are in their memory, but not in their time.");
    report.note("With all at once, latency is that of a full queue: a request waits for those of all other connections that are under way, in the server and in h2load. The time from a response to h2load's next request is not in it.");
    report.note("h2o 2.2 tells clients that it takes 100 streams, whatever it is configured to take, so beyond 100 its curve is that of 100. nginx sends the file of 1 GiB by sendfile and all others by read, as it does best; the others read.");
    report.note("hyper answers from memory, on tokio's current thread, and copies no file.");
    report.finish(cx, &["h2load", "nghttpd", "h2o", "nginx"])
}

fn table(report: &mut Report, testbed: &Testbed<'_>, growth: &Growth) {
    let points: Vec<Point> = (growth.points)()
        .into_iter()
        .filter(|point| {
            testbed
                .cx
                .measures(&format!("{}: {}", growth.heading, point.name))
        })
        .collect();
    let Some(first) = points.first() else { return };
    let mut head = vec![
        growth.column,
        "server",
        "responses a second",
        CPU,
        MEDIAN,
        P99,
        MEMORY,
    ];
    if first.pace.is_some() {
        head.push("a connection, KiB");
    }
    head.push("fullbore ÷ it");
    let mut table = Table::new(head);
    for point in &points {
        let candidates = KINDS.iter().map(|&kind| {
            let mut trial = Trial::new(testbed, kind, point);
            Candidate::new(kind.name(), kind.ours(), move || trial.measure())
        });
        let all = compare(testbed.cx.options.runs, candidates.collect());
        let tried = all
            .iter()
            .filter(|series| !matches!(series.error, Some(Error::Missing(_))));
        report.note_errors(&format!("{}: {}", growth.heading, point.name), tried);
        for one in &all {
            table.row(row(point, one, &all));
        }
    }
    report.paragraph(&format!("## {}", growth.heading));
    report.paragraph(growth.about);
    report.table(&table);
}

fn row(point: &Point, one: &Series<Sample>, all: &[Series<Sample>]) -> Vec<String> {
    let ratio = series(all, Kind::Files.name())
        .filter(|own| own.name != one.name)
        .and_then(|own| ratio_of(own, one, Sample::cpu));
    let cell = |digits, figure: &dyn Fn(&Sample) -> f64| one.cell(digits, figure);
    let is_long = point.load.bytes >= LONG;
    let mut row = vec![
        point.name.clone(),
        one.name.clone(),
        match one.error {
            Some(Error::Missing(_)) => "not installed".to_owned(),
            _ => cell(usize::from(is_long), &|sample| {
                sample.logged.responses as f64 / sample.logged.seconds
            }),
        },
        cell(if is_long { 0 } else { 2 }, &|sample| sample.cpu() * 1e6),
        cell(0, &|sample| sample.logged.median_micros),
        cell(0, &|sample| sample.logged.p99_micros),
        cell(1, &|sample| sample.peak_memory / f64::from(1 << 20)),
    ];
    if point.pace.is_some() {
        let connections = f64::from(point.load.connections);
        row.push(cell(1, &|sample| sample.grown / connections / 1024.0));
    }
    row.push(ratio.map_or("-".to_owned(), |spread| spread.text(2)));
    row
}

/// One server at one point. Where connections stay open each run begins with a new process, because thousands of closed ones
/// leave traces in its memory; otherwise it starts when it is measured first and then stays.
struct Trial<'a> {
    testbed: &'a Testbed<'a>,
    kind: Kind,
    point: Point,
    server: Option<(Server<'a>, f64)>,
}

impl<'a> Trial<'a> {
    fn new(testbed: &'a Testbed<'a>, kind: Kind, point: &Point) -> Self {
        Self {
            testbed,
            kind,
            point: point.clone(),
            server: None,
        }
    }

    fn measure(&mut self) -> Result<Sample, Error> {
        let (server, at_first) = match self.server.take() {
            Some(server) => server,
            None => self.start()?,
        };
        let shorter = if self.testbed.cx.options.quick { QUICK } else { 1 };
        let Point { load, fields, .. } = self.point;
        let logged = match self.point.pace {
            None => server.load_logged(load, fields, LIMIT)?,
            Some(Pace::AtOnce) => server.watch(load, Pace::AtOnce, WINDOW / shorter)?,
            // In less than a second not all of them would make a request.
            Some(Pace::EachSecond) => server.watch(
                load,
                Pace::EachSecond,
                (PACED_WINDOW / shorter).max(Duration::from_secs(1)),
            )?,
        };
        let peak_memory = peak(&server);
        if self.point.pace.is_none() {
            self.server = Some((server, at_first));
        }
        Ok(Sample {
            logged,
            peak_memory,
            grown: (peak_memory - at_first).max(0.0),
        })
    }

    /// Starts a server, and tells its memory then. A load that is looked at as a whole is scaled by how long it takes.
    fn start(&mut self) -> Result<(Server<'a>, f64), Error> {
        let server = self.testbed.start(self.kind, false)?;
        let at_first = peak(&server);
        if self.point.pace.is_none() {
            let first = server.load_logged(self.point.load, self.point.fields, LIMIT)?;
            let wanted = match self.testbed.cx.options.quick {
                true => WHOLE_SECONDS / f64::from(QUICK),
                false => WHOLE_SECONDS,
            };
            self.point.load.requests = scaled(self.point.load, wanted / first.seconds);
        }
        Ok((server, at_first))
    }
}

fn peak(server: &Server<'_>) -> f64 {
    server.peak_memory().unwrap_or(0) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_curve_grows_from_the_least_to_the_most_that_is_published() {
        let ends = ALL.map(|growth| {
            let points = (growth.points)();
            let names = [points.first(), points.last()];
            names.map(|point| point.map_or(String::new(), |point| point.name.clone()))
        });
        let wanted = [
            ["1", "10000"],
            ["1", "10000"],
            ["1", "10000"],
            ["0", "1 GiB"],
            ["5", "200"],
        ];
        assert_eq!(ends, wanted);
    }

    #[test]
    fn the_first_load_has_a_request_for_each_stream_and_few_long_ones() {
        let requests = |bytes, streams| Point::whole(String::new(), bytes, streams, 5).load.requests;
        assert_eq!(requests(0, 1), 1_000);
        assert_eq!(requests(12, 10_000), 10_000);
        assert_eq!(requests(4 << 20, 1), 4);
        assert_eq!(requests(1 << 30, 1), 1);
    }
}
