//! Transfers over a path of packets, with the kernel's own TCP at both ends: what loss, long round trips, stock buffers and
//! limits on each flow cost a connection, and what further connections give back. `packets/grid` draws its cells by a seed.

mod grid;

use std::cell::Cell;
use std::path::PathBuf;
use std::time::Duration;

use fullbore_packets::{Direction, Policer, Settings, Tcp};

use super::{Case, MIB, Report, Section};
use crate::comparison::{Candidate, Series, compare};
use crate::context::{Context, make_file};
use crate::error::Error;
use crate::markdown::Table;
use crate::over_packets::{Client, Sample, Work, digests, transfer};

/// A transfer that takes longer is ended, and counts as so long.
const LIMIT: Duration = Duration::from_secs(120);
const FILES: u32 = 2_000;
const FILE_BYTES: u64 = 10_000;

const DOWN: &[Client] = &[Client::Get(None), Client::Curl, Client::Aria2(8)];
const MANY: &[Client] = &[Client::GetList, Client::H2load(1), Client::H2load(6)];
const UP: &[Client] = &[Client::Put, Client::CurlPut];

/// The files of a run, with their digests.
struct Files {
    folder: PathBuf,
    names: Vec<String>,
    digests: String,
}

impl Files {
    fn make(cx: &Context, folder: &str, files: u32, bytes: u64) -> Result<Self, Error> {
        let folder = cx.folder(folder)?;
        let names: Vec<String> = (0..files).map(|number| format!("f{number}")).collect();
        for (name, more) in names.iter().zip(0..) {
            // The content is drawn by the length: files of a list differ.
            make_file(&folder.join(name), bytes + more % 97)?;
        }
        let digests = digests(cx, &folder, &names)?;
        Ok(Self {
            folder,
            names,
            digests,
        })
    }

    fn work(&self) -> Work<'_> {
        Work {
            folder: &self.folder,
            names: &self.names,
            digests: &self.digests,
        }
    }
}

/// A row of the first table.
struct Row {
    path: &'static str,
    what: &'static str,
    settings: Settings,
    clients: &'static [Client],
}

pub(super) fn run(cx: &Context) -> Result<Section, Error> {
    let mut report = Report::new(Case::Packets, "Transfers over packets");
    if report.lacks_path() {
        return report.finish(cx, &[]);
    }
    report.paragraph(
        "Two network namespaces, joined by TUN devices, and a thread in between that delays, rates, queues, loses and \
         polices IP packets of at most 1,500 bytes by a seed. Both ends are the kernel's TCP with Linux's stock buffers \
         (`tcp_rmem` 4096 131072 6291456, `tcp_wmem` 4096 16384 4194304). The queue holds one bandwidth-delay product \
         unless stated; losses are in both directions. Times are those of the whole process, in seconds; a transfer of \
         more than 120 s was ended. `connections` are those that the emulator saw, and how many of them were open when \
         the last octet came. Each measurement has a path and a server of its own, and the SHA-256 of each file was \
         compared.",
    );
    let noted = Noted::default();
    rows_table(cx, &mut report, &noted)?;
    grid::tables(cx, &mut report, &noted)?;
    report.note("`fullbore serve FOLDER` at its defaults (`--plaintext`, `--self-signed`) is the server of all. `fullbore get -o`, `curl -o`, `aria2c -xN -sN -k1M --file-allocation=none`, `fullbore get -i --dir`, `h2load -m100 -i`, `fullbore put`, `curl -T`, at their defaults otherwise.");
    report.note(noted.text());
    report.finish(cx, &["curl", "aria2c", "h2load"])
}

fn rows_table(cx: &Context, report: &mut Report, noted: &Noted) -> Result<(), Error> {
    let rows: Vec<Row> = rows()
        .into_iter()
        .filter(|row| cx.measures(&format!("{}, {}", row.path, row.what)))
        .collect();
    if rows.is_empty() {
        return Ok(());
    }
    let one = Files::make(cx, "packets-64", 1, size(cx, 64 * MIB))?;
    let large = Files::make(cx, "packets-256", 1, size(cx, 256 * MIB))?;
    let many = Files::make(cx, "packets-many", FILES, FILE_BYTES)?;
    let mut table = Table::new([
        "path",
        "what",
        "client",
        "seconds",
        "connections",
        "open at the end",
    ]);
    for row in rows {
        let files = match row.what {
            "256 MiB" => &large,
            _ if row.clients == MANY => &many,
            _ => &one,
        };
        let all = measure(cx, &row.settings, false, row.clients, files);
        report.note_errors(&format!("{}, {}", row.path, row.what), &all);
        noted.all(&all);
        for series in &all {
            let mut cells = vec![row.path.to_owned(), row.what.to_owned(), series.name.clone()];
            cells.extend(figures(series));
            table.row(cells);
        }
    }
    report.table(&table);
    Ok(())
}

/// A tenth of it in a quick run.
fn size(cx: &Context, bytes: u64) -> u64 {
    if cx.options.quick { bytes / 10 } else { bytes }
}

fn path(megabits: u64, round_trip: u64, loss: f64, congestion_control: &str) -> Settings {
    let direction = Direction {
        delay: Duration::from_millis(round_trip / 2),
        rate: Some(megabits * 1_000_000),
        loss,
        ..Direction::default()
    };
    let tcp = Tcp {
        congestion_control: congestion_control.to_owned(),
        ..Tcp::default()
    };
    Settings::new(direction, tcp)
}

fn rows() -> Vec<Row> {
    let row = |path, what, settings, clients| Row {
        path,
        what,
        settings,
        clients,
    };
    let lossy = path(100, 100, 0.001, "cubic");
    let mut policed = path(100, 100, 0.0, "cubic");
    policed.to_client.policer = Some(Policer::new(20_000_000));
    vec![
        row(
            "100 Mbit/s, 100 ms, no loss, cubic",
            "64 MiB",
            path(100, 100, 0.0, "cubic"),
            DOWN,
        ),
        row(
            "100 Mbit/s, 100 ms, no loss, bbr",
            "64 MiB",
            path(100, 100, 0.0, "bbr"),
            DOWN,
        ),
        row(
            "100 Mbit/s, 100 ms, 0.1 % lost, cubic",
            "64 MiB",
            lossy.clone(),
            DOWN,
        ),
        row(
            "100 Mbit/s, 100 ms, 1 % lost, cubic",
            "64 MiB",
            path(100, 100, 0.01, "cubic"),
            DOWN,
        ),
        row(
            "100 Mbit/s, 100 ms, 1 % lost, bbr",
            "64 MiB",
            path(100, 100, 0.01, "bbr"),
            DOWN,
        ),
        row(
            "100 Mbit/s, 100 ms, each flow policed to 20 Mbit/s, cubic",
            "64 MiB",
            policed,
            DOWN,
        ),
        row(
            "400 Mbit/s, 100 ms, no loss, cubic",
            "256 MiB",
            path(400, 100, 0.0, "cubic"),
            DOWN,
        ),
        row(
            "400 Mbit/s, 230 ms, no loss, cubic",
            "256 MiB",
            path(400, 230, 0.0, "cubic"),
            DOWN,
        ),
        row(
            "100 Mbit/s, 100 ms, 0.1 % lost, cubic",
            "2,000 x 10 KB",
            lossy.clone(),
            MANY,
        ),
        row("100 Mbit/s, 100 ms, 0.1 % lost, cubic", "put 64 MiB", lossy, UP),
    ]
}

/// Each client in turns. The clients of one run meet the same losses.
fn measure(
    cx: &Context,
    settings: &Settings,
    secure: bool,
    clients: &[Client],
    files: &Files,
) -> Vec<Series<Sample>> {
    let candidates = clients.iter().map(|&client| {
        let run = Cell::new(0_u64);
        let over: Cell<Option<Sample>> = Cell::new(None);
        let measured = move || {
            run.set(run.get() + 1);
            // One that was not done in time once is not waited for again.
            if let Some(sample) = over.get() {
                return Ok(sample);
            }
            let mut settings = settings.clone();
            settings.seed = run.get();
            let sample = transfer(cx, &settings, secure, client, files.work(), LIMIT)?;
            over.set(sample.over.then_some(sample));
            Ok(sample)
        };
        match client.ours() {
            true => Candidate::ours(client.name(), measured),
            false => Candidate::peer(client.name(), measured),
        }
    });
    compare(cx.options.runs, candidates.collect())
}

/// Seconds, connections, and those open at the end.
fn figures(series: &Series<Sample>) -> [String; 3] {
    [
        seconds(series),
        series.cell(0, |sample| sample.connections as f64),
        series.cell(0, |sample| sample.open as f64),
    ]
}

fn seconds(series: &Series<Sample>) -> String {
    match series.samples.iter().flatten().any(|sample| sample.over) {
        true => format!("> {}", LIMIT.as_secs()),
        false => series.cell(2, |sample| sample.seconds),
    }
}

fn median(series: Option<&Series<Sample>>) -> Option<f64> {
    Some(series?.spread(|sample| sample.seconds)?.median)
}

/// What the machine did to the paths.
#[derive(Default)]
struct Noted {
    overrun: Cell<u64>,
    latest: Cell<Duration>,
}

impl Noted {
    fn all(&self, all: &[Series<Sample>]) {
        for sample in all.iter().flat_map(|series| series.samples.iter().flatten()) {
            self.overrun.set(self.overrun.get() + sample.overrun);
            self.latest.set(self.latest.get().max(sample.latest));
        }
    }

    fn text(&self) -> String {
        format!(
            "The emulator passed packets on at most {:.1} ms after they were due; {} found no room in a device.",
            self.latest.get().as_secs_f64() * 1e3,
            self.overrun.get()
        )
    }
}
