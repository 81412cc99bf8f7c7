//! The published cases, one file each, and what their sections have in common: tables, notes of what failed, the machine, the
//! versions, and the command that measures the section again.

mod attacks;
mod causes;
mod clients;
mod engine;
mod fairness;
pub(crate) mod growth;
mod h2;
mod http1;
mod killed;
mod many;
mod memory;
mod packets;
mod paths;
mod proxies;
mod responses;
mod servers;
mod trees;
mod urgent;

use clap::Subcommand;

use crate::comparison::Series;
use crate::context::Context;
use crate::error::Error;
use crate::markdown::Table;
use crate::peers;
use crate::peers::servers::Kind;
use crate::program;

const MIB: u64 = 1 << 20;

/// The round trips of Mint's table, in milliseconds.
const ROUND_TRIPS: [u32; 6] = [1, 20, 70, 100, 130, 230];

/// The link's rate, in bytes a second.
const RATE: f64 = 125e6;

/// One of the cases; each is a subcommand.
#[derive(Subcommand, Debug, Clone, Copy, PartialEq)]
pub(crate) enum Case {
    /// One stream of 64 MiB at 1 Gbit/s over six round trips, down and up
    Paths,
    /// 10,000 files of 10 KB over 100 ms, from servers that allow 10,000 streams and 100
    Many,
    /// A folder of 10,000 files over 100 ms, down and up, without loss and with it, beside wget2, rclone, aria2 and curl
    Trees,
    /// 64 KiB responses one after another, beside clients in Java and reqwest
    Responses,
    /// Clients of one thread on one core beside hyper, reqwest, curl, nghttp and h2load; and many tasks on one connection
    Clients,
    /// What 100,000 responses, as many uploads, and 10,000 idle connections leave in a server's memory
    Memory,
    /// The engine alone, without sockets: what a request costs in time, allocations and instructions
    Engine,
    /// Servers of one thread on one core under h2load, beside hyper, Go, nghttpd, h2o and nginx
    Servers,
    /// HTTP/1.1 servers of one thread on one core under h2load, beside hyper-util's server of both versions
    Http1,
    /// What nineteen attacks cost a server, and who else is using it
    Attacks,
    /// 1 to 10,000 connections and streams, responses of up to 1 GiB and up to 200 header fields, beside hyper, nghttpd, h2o and nginx
    Growth,
    /// Programs of axum, tonic and reqwest with the published crate `h2` and with `crates/h2` in its place
    H2,
    /// Transfers over packets with loss, long round trips, stock buffers and policers, beside curl and aria2
    Packets,
    /// What `get` and `put` name as the limit of a transfer, for causes that are staged over packets
    Causes,
    /// How much of a link another program's flow keeps beside a download over packets
    Fairness,
    /// Downloads over packets with losses, killed at random moments and resumed
    Killed,
    /// Reverse proxies in front of an origin of HTTP/1.1, beside nginx, haproxy, nghttpx, caddy, Apache, h2o and envoy
    Proxies,
    /// Urgent responses beside bulk ones on the same connection, over 2 Mbit/s to 1 Gbit/s and loopback
    Urgent,
}

impl Case {
    pub(crate) const ALL: [Case; 18] = [
        Case::Paths,
        Case::Many,
        Case::Trees,
        Case::Responses,
        Case::Engine,
        Case::Servers,
        Case::Http1,
        Case::Growth,
        Case::Clients,
        Case::Memory,
        Case::Attacks,
        Case::Urgent,
        Case::Proxies,
        Case::Packets,
        Case::Causes,
        Case::Fairness,
        Case::Killed,
        Case::H2,
    ];

    /// Its name on the command line and in the markers of its section.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Case::Packets => "packets",
            Case::Causes => "causes",
            Case::Fairness => "fairness",
            Case::Killed => "killed",
            Case::Paths => "paths",
            Case::Proxies => "proxies",
            Case::Growth => "growth",
            Case::H2 => "h2",
            Case::Many => "many",
            Case::Trees => "trees",
            Case::Responses => "responses",
            Case::Engine => "engine",
            Case::Clients => "clients",
            Case::Memory => "memory",
            Case::Servers => "servers",
            Case::Http1 => "http1",
            Case::Attacks => "attacks",
            Case::Urgent => "urgent",
        }
    }
}

/// A case as measured.
pub(crate) struct Section {
    pub(crate) text: String,
    /// Whether no measurement of fullbore itself failed.
    pub(crate) ok: bool,
}

/// Measures a case.
///
/// # Errors
/// When what every measurement needs could not be had: files, `fullbore serve`, `fullbore link`.
pub(crate) fn run(case: Case, cx: &Context) -> Result<Section, Error> {
    match case {
        Case::Packets => packets::run(cx),
        Case::Causes => causes::run(cx),
        Case::Fairness => fairness::run(cx),
        Case::Killed => killed::run(cx),
        Case::Paths => paths::run(cx),
        Case::Proxies => proxies::run(cx),
        Case::Growth => growth::run(cx),
        Case::H2 => h2::run(cx),
        Case::Many => many::run(cx),
        Case::Trees => trees::run(cx),
        Case::Engine => engine::run(cx),
        Case::Clients => clients::run(cx),
        Case::Memory => memory::run(cx),
        Case::Servers => servers::run(cx),
        Case::Http1 => http1::run(cx),
        Case::Attacks => attacks::run(cx),
        Case::Urgent => urgent::run(cx),
        Case::Responses => responses::run(cx),
    }
}

/// A section under way.
struct Report {
    case: Case,
    text: String,
    notes: Vec<String>,
    ok: bool,
}

impl Report {
    fn new(case: Case, title: &str) -> Self {
        Self {
            case,
            text: format!("# {title}\n"),
            notes: Vec::new(),
            ok: true,
        }
    }

    fn paragraph(&mut self, paragraph: &str) {
        self.text.push_str(&format!("\n{paragraph}\n"));
    }

    fn table(&mut self, table: &Table) {
        self.text.push_str(&format!("\n{}", table.text()));
    }

    fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// A note that whoever runs the program should see at once.
    fn warn(&mut self, note: String) {
        eprintln!("fullbore-bench: {note}");
        self.note(note);
    }

    /// Whether there can be no path of packets here. The reason is noted.
    fn lacks_path(&mut self) -> bool {
        let opened = fullbore_packets::Path::open(&fullbore_packets::Settings::default());
        if let Err(why) = &opened {
            self.warn(format!("Skipped: {why}."));
        }
        opened.is_err()
    }

    /// Notes which of the candidates failed, and why.
    fn note_errors<'a, T: 'a>(&mut self, row: &str, all: impl IntoIterator<Item = &'a Series<T>>) {
        for series in all {
            if let Some(error) = &series.error {
                self.ok &= !series.ours;
                self.warn(format!("{row}: {}: {error}.", series.name));
            }
        }
    }

    /// A figure that is taken once; `None` when it could not be, which a note says.
    fn record<T>(&mut self, row: &str, kind: Kind, taken: Result<T, Error>) -> Option<T> {
        let error = match taken {
            Ok(figure) => return Some(figure),
            Err(error) => error,
        };
        // The line of versions names the programs that are not installed.
        if !matches!(error, Error::Missing(_)) {
            self.ok &= !kind.ours();
            self.warn(format!("{row}: {}: {error}.", kind.name()));
        }
        None
    }

    fn finish(mut self, cx: &Context, programs: &[&str]) -> Result<Section, Error> {
        let name = self.case.name();
        let runs = cx.options.runs;
        let figures = match runs {
            1 => "of one run".to_owned(),
            _ => format!("the median of {runs} runs and (least-most); in each run all programs took turns"),
        };
        for note in std::mem::take(&mut self.notes) {
            self.text.push_str(&format!("\n- {note}"));
        }
        let quick = if cx.options.quick { " --quick" } else { "" };
        let shape = match &cx.options.shape {
            Some(shape) => format!(" --shape \"{shape}\""),
            None => String::new(),
        };
        let version = program::version(cx)?;
        let peers = match programs {
            [] => String::new(),
            programs => format!("; {}", peers::versions(cx, programs)),
        };
        self.text.push_str(&format!(
            "\n- Figures are {figures}.\
             \n- Machine: {}.\n- Programs: {version}{peers}.\
             \n- Again: `cargo build --release && cargo run --release -p fullbore-bench -- {name} --runs {runs}{quick}{shape}`\n",
            cx.machine
        ));
        Ok(Section {
            text: self.text,
            ok: self.ok,
        })
    }
}

/// The series of that name.
fn series<'a, T>(all: &'a [Series<T>], name: &str) -> Option<&'a Series<T>> {
    all.iter().find(|series| series.name == name)
}

/// The head of a table: the columns of the row itself, then a column for each candidate.
fn head<T>(own: &[&str], all: &[Series<T>]) -> Vec<String> {
    own.iter()
        .map(|&name| name.to_owned())
        .chain(all.iter().map(|series| series.name.clone()))
        .collect()
}
