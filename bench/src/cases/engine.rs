//! The engine alone: requests and bytes a second, allocations, and instructions. Instructions are the same in every run, are
//! compared with those kept in `engine.tsv`, and are broken down by function for small responses.

use std::path::PathBuf;
use std::time::Duration;

use super::{Case, Report, Section};
use crate::comparison::{Candidate, compare};
use crate::context::Context;
use crate::engine::{SHAPES, Shape};
use crate::error::Error;
use crate::markdown::Table;
use crate::peers::callgrind::{self, Profile};
use crate::process;
use crate::worker;

const LIMIT: Duration = Duration::from_secs(120);
const MEASURE_SECONDS: f64 = 1.0;
const QUICK_SECONDS: f64 = 0.1;
/// What callgrind counts, and, since it counts and stops by turns, what inside it does not count.
const CLIENT: &str = "fullbore_bench::engine::Client::turn";
const SERVER: &str = "fullbore_bench::engine::Server::turn";
const OUTSIDE: &str = "fullbore_bench::engine::Outside::*";
/// How many functions a table of them shows.
const FUNCTIONS: usize = 15;
/// A change by less is none: the same source compiles to slightly different code.
const NOTABLE: f64 = 0.02;

/// What a request of one shape cost, on one end.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Cost {
    instructions: f64,
    allocations: f64,
    allocated: f64,
}

/// On both ends.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Costs {
    client: Cost,
    server: Cost,
}

pub(super) fn run(cx: &Context) -> Result<Section, Error> {
    let mut report = Report::new(Case::Engine, "The engine alone");
    let mut kept = Kept::read()?;
    report.paragraph(
        "A client and a server of `fullbore-proto` in one thread, which hand each other octets in memory: no sockets, no runtime. \
         The time is that of both ends together, with a copy of all octets between them; instructions (callgrind) and heap \
         allocations are each end's own, of its engine alone: the copy, and making the heads that are sent, are left out. The \
         difference is that of both ends' instructions to those kept in `bench/engine.tsv`.",
    );
    let mut table = Table::new([
        "bodies",
        "requests a second",
        "MB a second",
        "instructions a request, client",
        "server",
        "difference, %",
        "allocations a request, client",
        "server",
        "bytes allocated, client",
        "server",
    ]);
    let mut profiles = Vec::new();
    for shape in SHAPES.iter().filter(|shape| cx.measures(shape.name)) {
        let rate = rate(cx, shape, &mut report);
        let (costs, profile) = costs(cx, shape)?;
        let difference = kept.judge(shape.name, &costs, &mut report);
        let bytes = shape.bytes as f64 / 1e6;
        let digits = |figure: f64| if figure < 1e4 { 2 } else { 0 };
        let number = |figure: f64| format!("{figure:.*}", digits(figure));
        table.row([
            shape.name.to_owned(),
            rate.0
                .cell(if shape.bytes > 1 << 20 { 1 } else { 0 }, |rate| *rate),
            match shape.bytes {
                12 => "-".to_owned(),
                _ => rate.0.cell(0, |rate| rate * bytes),
            },
            format!("{:.0}", costs.client.instructions),
            format!("{:.0}", costs.server.instructions),
            difference,
            number(costs.client.allocations),
            number(costs.server.allocations),
            number(costs.client.allocated),
            number(costs.server.allocated),
        ]);
        kept.set(shape.name, costs);
        if shape.bytes == 12 {
            profiles.push((shape, profile));
        }
    }
    report.table(&table);
    for (shape, profile) in &profiles {
        report.paragraph(&format!("## Where they go: {}", shape.name));
        report.paragraph("Instructions a request, of both ends together: in each function itself, and with those that it calls.");
        report.table(&functions(profile, 2 * shape.requests));
    }
    if cx.options.keep {
        kept.write()?;
    }
    report.note("instructions are of the second half of a run that is twice as long as another, less the other: what comes before the first request, and with it, is in neither.");
    report.finish(cx, &["valgrind", "rustc"])
}

/// What one run of the worker printed.
struct Ran {
    seconds: f64,
    /// The client's allocations and their bytes, then the server's.
    heap: [f64; 4],
}

fn ran(cx: &Context, mut command: std::process::Command) -> Result<Ran, Error> {
    let output = process::run(&cx.reaper, &mut command, cx.limit(LIMIT)?)?;
    match output.figures().as_slice() {
        &[seconds, a, b, c, d] => Ok(Ran {
            seconds,
            heap: [a, b, c, d],
        }),
        _ => Err(Error::Output("the engine's run".to_owned(), output.stdout)),
    }
}

fn arguments(
    mut command: std::process::Command,
    shape: &Shape,
    warm_up: u64,
    requests: u64,
) -> std::process::Command {
    command.arg(shape.name);
    command.args(["--warm-up", &warm_up.to_string()]);
    command.args(["--requests", &requests.to_string()]);
    command
}

/// Requests a second, by the wall.
struct Rate(crate::comparison::Series<f64>);

fn rate(cx: &Context, shape: &Shape, report: &mut Report) -> Rate {
    let wanted = if cx.options.quick {
        QUICK_SECONDS
    } else {
        MEASURE_SECONDS
    };
    let mut requests = shape.requests;
    let mut scaled = false;
    let measure = || {
        let run = |requests| {
            ran(
                cx,
                arguments(worker::command("engine")?, shape, shape.at_once, requests),
            )
        };
        if !std::mem::replace(&mut scaled, true) {
            let seconds = run(requests)?.seconds;
            requests = ((requests as f64 * wanted / seconds) as u64).max(shape.at_once);
        }
        Ok(requests as f64 / run(requests)?.seconds)
    };
    let all = compare(cx.options.runs, vec![Candidate::ours("engine", measure)]);
    report.note_errors(shape.name, &all);
    // `compare` gives a series for each candidate.
    Rate(
        all.into_iter()
            .next()
            .unwrap_or_else(|| crate::comparison::Series {
                name: "engine".to_owned(),
                ours: true,
                samples: Vec::new(),
                error: None,
            }),
    )
}

/// What is counted, and the profile of the longer run.
fn costs(cx: &Context, shape: &Shape) -> Result<(Costs, Profile), Error> {
    let requests = shape.requests as f64;
    let counted = ran(
        cx,
        arguments(worker::counted("engine")?, shape, shape.requests, shape.requests),
    )?;
    let profile = |requests| {
        let command = arguments(worker::command("engine")?, shape, 0, requests);
        callgrind::run(cx, &command, &[CLIENT, SERVER, OUTSIDE])
    };
    let (once, twice) = (profile(shape.requests)?, profile(2 * shape.requests)?);
    let instructions = |function| twice.of(function).saturating_sub(once.of(function)) as f64 / requests;
    let [client_allocations, client_bytes, server_allocations, server_bytes] = counted.heap;
    let costs = Costs {
        client: Cost {
            instructions: instructions(CLIENT),
            allocations: client_allocations / requests,
            allocated: client_bytes / requests,
        },
        server: Cost {
            instructions: instructions(SERVER),
            allocations: server_allocations / requests,
            allocated: server_bytes / requests,
        },
    };
    if costs.client.instructions == 0.0 || costs.server.instructions == 0.0 {
        return Err(Error::Output(
            "callgrind".to_owned(),
            "no instructions in the engine's turns".to_owned(),
        ));
    }
    Ok((costs, twice))
}

/// The functions that take most, each half of the table on its own.
fn functions(profile: &Profile, requests: u64) -> Table {
    let mut table = Table::new([
        "function",
        "itself",
        "function, with what it calls",
        "with what it calls",
    ]);
    let sorted = |all: &std::collections::BTreeMap<String, u64>| {
        let mut all: Vec<(String, u64)> = all.iter().map(|(name, count)| (name.clone(), *count)).collect();
        all.sort_by(|one, other| other.1.cmp(&one.1).then(one.0.cmp(&other.0)));
        all
    };
    let own = sorted(&profile.own);
    let engine = sorted(&profile.with_calls);
    let engine = engine
        .iter()
        .filter(|(name, _)| name.contains("fullbore_proto") || name.starts_with("http::"));
    let cell = |count: u64| format!("{:.0}", count as f64 / requests as f64);
    for ((name, count), (caller, all)) in own.iter().zip(engine).take(FUNCTIONS) {
        table.row([short(name), cell(*count), short(caller), cell(*all)]);
    }
    table
}

/// `fullbore_proto::connection::send::<impl fullbore_proto::connection::Connection>::open` says `Connection` once.
fn short(name: &str) -> String {
    let name = name.replace("<impl fullbore_proto::connection::Connection>::", "");
    format!("`{}`", name.replace("fullbore_proto::", ""))
}

/// What requests cost when it was last kept, by the names of their shapes.
struct Kept {
    file: PathBuf,
    rows: Vec<(String, Costs)>,
}

const KEPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/engine.tsv");
const HEAD: &str = "# What a request costs in the engine alone: instructions under callgrind, allocations, bytes allocated; the client's, then\n\
    # the server's. `fullbore-bench engine` holds its counts against these; with --keep it writes them.\n";

impl Kept {
    fn read() -> Result<Self, Error> {
        let file = PathBuf::from(KEPT);
        let rows = match std::fs::read_to_string(&file) {
            Ok(text) => rows(&text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(Error::File(file, error)),
        };
        Ok(Self { file, rows })
    }

    /// The difference of the instructions as a cell; says, and makes the run fail, when they or the allocations grew.
    fn judge(&self, name: &str, now: &Costs, report: &mut Report) -> String {
        let Some((_, then)) = self.rows.iter().find(|(kept, _)| kept == name) else {
            return "-".to_owned();
        };
        let change = |figure: &dyn Fn(&Cost) -> f64| {
            let sum = |costs: &Costs| figure(&costs.client) + figure(&costs.server);
            // What was nothing and is something has grown past any per cent.
            sum(now) / sum(then).max(f64::MIN_POSITIVE) - 1.0
        };
        let instructions = change(&|cost| cost.instructions);
        let allocations = change(&|cost| cost.allocations);
        for (what, change) in [("instructions", instructions), ("allocations", allocations)] {
            if change > NOTABLE {
                report.ok = false;
                report.warn(format!(
                    "{name}: {:.1} % more {what} than were kept.",
                    change * 100.0
                ));
            }
        }
        format!("{:+.1}", instructions * 100.0)
    }

    fn set(&mut self, name: &str, costs: Costs) {
        match self.rows.iter_mut().find(|(kept, _)| kept == name) {
            Some((_, kept)) => *kept = costs,
            None => self.rows.push((name.to_owned(), costs)),
        }
    }

    fn write(&self) -> Result<(), Error> {
        std::fs::write(&self.file, text(&self.rows)).map_err(|error| Error::File(self.file.clone(), error))
    }
}

fn rows(text: &str) -> Vec<(String, Costs)> {
    let row = |line: &str| {
        let (name, figures) = line.split_once('\t')?;
        let figures: Vec<f64> = figures.split('\t').filter_map(|word| word.parse().ok()).collect();
        let cost = |of: &[f64]| match of {
            &[instructions, allocations, allocated] => Some(Cost {
                instructions,
                allocations,
                allocated,
            }),
            _ => None,
        };
        let costs = Costs {
            client: cost(figures.get(..3)?)?,
            server: cost(figures.get(3..)?)?,
        };
        Some((name.to_owned(), costs))
    };
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(row)
        .collect()
}

fn text(rows: &[(String, Costs)]) -> String {
    let mut text = HEAD.to_owned();
    for (name, Costs { client, server }) in rows {
        text.push_str(name);
        for cost in [client, server] {
            let Cost {
                instructions,
                allocations,
                allocated,
            } = cost;
            text.push_str(&format!("\t{instructions:.1}\t{allocations:.3}\t{allocated:.1}"));
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(instructions: f64, allocations: f64) -> Costs {
        let cost = Cost {
            instructions,
            allocations,
            allocated: 64.0,
        };
        Costs {
            client: cost,
            server: cost,
        }
    }

    fn kept(then: Costs) -> Kept {
        Kept {
            file: PathBuf::new(),
            rows: vec![("one".to_owned(), then)],
        }
    }

    #[test]
    fn what_is_kept_is_read_again() {
        let all = vec![
            ("12 bytes, 1 at once".to_owned(), costs(9_000.5, 3.25)),
            ("other".to_owned(), costs(1.0, 0.0)),
        ];
        assert_eq!(rows(&text(&all)), all);
    }

    #[test]
    fn more_by_two_per_cent_is_said_and_less_is_not() {
        for (now, ok) in [
            (costs(101.0, 2.0), true),
            (costs(103.0, 2.0), false),
            (costs(100.0, 2.1), false),
        ] {
            let mut report = Report::new(Case::Engine, "");
            kept(costs(100.0, 2.0)).judge("one", &now, &mut report);
            assert_eq!(report.ok, ok, "{now:?}");
            assert_eq!(report.notes.is_empty(), ok, "{now:?}");
        }
    }

    #[test]
    fn an_allocation_where_there_was_none_is_said() {
        let mut report = Report::new(Case::Engine, "");
        kept(costs(100.0, 0.0)).judge("one", &costs(100.0, 0.5), &mut report);
        assert!(!report.ok);
    }
}
