//! What attacks cost a server: how their connections end, its memory, its processor time beside the attacker's, and the
//! latency of another client meanwhile.

use std::thread;
use std::time::Duration;

use super::{Case, Report, Section};
use crate::comparison::{Candidate, Series, compare};
use crate::context::{Context, make_file};
use crate::error::Error;
use crate::markdown::Table;
use crate::peers::{self, Keys};
use crate::process::{self, Running};
use crate::program::{self, port};
use crate::worker::{self, Attack, Attacked};

const SERVERS_CORE: usize = 0;
const LOADS_CORE: usize = 1;
const START: Duration = Duration::from_secs(10);
const LIMIT: Duration = Duration::from_secs(60);
/// How long a turn of an attack takes.
const ATTACK_MS: u64 = 500;
/// How many turns each number of connections has, and the other client alone. The noise of a shared machine changes within seconds:
/// a p99 of a single turn depends on it more than on the attack.
const TIMES: usize = 4;
/// The attack has begun before the bystander does, and goes on when it has ended.
const MARGIN: Duration = Duration::from_millis(100);
/// What was asked of every row.
const MOST_MIB: f64 = 4.0;
const MOST_CPU: f64 = 1.0;
const MOST_LATENCY: f64 = 2.0;
/// Attackers' connections, and how many times its own p99 alone another client's may be beside them.
const CONNECTIONS: [(usize, f64); 3] = [(1, 2.0), (4, 2.0), (16, 4.0)];
/// Less processor time than this, of either, is too little to compare, in seconds a second.
const LEAST_CPU: f64 = 0.04;
/// Those that are measured over TLS too.
const SECURE: [Attack; 6] = [
    Attack::RapidReset,
    Attack::Continuation,
    Attack::HeaderBomb,
    Attack::Pings,
    Attack::UnreadBodies,
    Attack::ClosedWindows,
];

/// An attack as it went.
struct Sample {
    attacked: Attacked,
    growth: f64,
    /// Without what it takes to serve the client alone.
    server_cpu: f64,
    alone: Latency,
    beside: Latency,
    /// Beside attackers with each of [`CONNECTIONS`].
    beside_many: [Latency; CONNECTIONS.len()],
}

/// What the other client had to wait, in microseconds.
#[derive(Debug, Clone, Copy, Default)]
struct Latency {
    median: f64,
    p99: f64,
}

impl Latency {
    /// Of so many microseconds each.
    fn of(mut micros: Vec<u64>) -> Self {
        micros.sort_unstable();
        let percentile = |percent: usize| {
            let micros = micros.get(micros.len() * percent / 100);
            micros.copied().unwrap_or_default() as f64
        };
        Latency {
            median: percentile(50),
            p99: percentile(99),
        }
    }
}

impl Sample {
    fn thrown_out(&self) -> f64 {
        self.attacked.thrown_out as f64 / self.attacked.seconds
    }

    fn attacker_cpu(&self) -> f64 {
        self.attacked.cpu.as_secs_f64() / self.attacked.seconds
    }

    /// The other client's p99 beside the attackers at that index of [`CONNECTIONS`], divided by its p99 alone.
    fn p99_ratio(&self, index: usize) -> f64 {
        self.beside_many
            .get(index)
            .map_or(0.0, |beside| beside.p99 / self.alone.p99)
    }

    /// None where both had next to nothing.
    fn cpu_ratio(&self) -> Option<f64> {
        let own = self.attacker_cpu();
        (self.server_cpu > LEAST_CPU || own > LEAST_CPU).then(|| self.server_cpu / own)
    }
}

pub(super) fn run(cx: &Context) -> Result<Section, Error> {
    let mut report = Report::new(Case::Attacks, "Attacks");
    let folder = cx.folder("attacks")?;
    for bytes in [12, 4 << 20] {
        make_file(&folder.join(bytes.to_string()), bytes)?;
    }
    let keys = peers::keys(cx)?;
    report.paragraph(
        "`fullbore serve` with one thread on one core. On the other core an attacker over raw sockets writes as fast as it can and \
         connects again at once when the server ends its connection; beside it another client asks for 12 bytes each 2 ms. \
         Attackers that the server never ends have 8 connections of 50 streams. Memory is what the server's peak adds to what \
         it had before; its processor time is what the attack adds to what it takes to serve the other client alone. Latencies \
         are the other client's medians in microseconds, alone and beside the attack. The last columns divide its p99 \
         beside attackers with 1, 4 and 16 connections by its p99 alone. All four are measured in turns of half a second, four \
         times, and each p99 is that of all its turns together. The attacker runs only while nobody else wants its core \
         (SCHED_IDLE), since a real one takes no processor time of the other client's machine. Attacks over 10,000 streams have opened them \
         when the measurement begins, send as many frames at once as their buckets hold (limits.md), and then as many as \
         these regain. What it costs to open the streams is a row of its own.",
    );
    let mut table = Table::new([
        "attack",
        "transport",
        "ends with",
        "thrown out a second",
        "memory, MiB",
        "server CPU, %",
        "attacker CPU, %",
        "server ÷ attacker",
        "latency alone",
        "latency beside",
        "beside ÷ alone",
        "p99 alone",
        "p99 by 1 ÷ alone",
        "by 4",
        "by 16",
    ]);
    for attack in Attack::ALL {
        for secure in [false, true] {
            if secure && !SECURE.contains(&attack) {
                continue;
            }
            let transport = if secure { "TLS" } else { "cleartext" };
            if !cx.measures(&format!("{}, {transport}", attack.name())) {
                continue;
            }
            let trial = Trial {
                cx,
                folder: &folder,
                keys: secure.then_some(&keys),
                attack,
            };
            let all = compare(
                cx.options.runs,
                vec![Candidate::ours(attack.name(), || trial.measure())],
            );
            let name = format!("{}, {transport}", attack.name());
            report.note_errors(&name, &all);
            for series in &all {
                table.row(row(transport, series));
                for beyond in beyond(series) {
                    report.note(format!("Beyond what is asked: {name}: {beyond}."));
                }
            }
        }
    }
    report.table(&table);
    report.note(format!(
        "Asked of every row: memory below {MOST_MIB} MiB, processor time at most the attacker's, median latency at most \
         twice that without it; p99 at most twice beside 1 and 4 connections, and four times beside 16. Ratios of next to \
         nothing are left out."
    ));
    report.finish(cx, &[])
}

fn row(transport: &str, series: &Series<Sample>) -> Vec<String> {
    let ends: std::collections::BTreeSet<String> = series
        .samples
        .iter()
        .flatten()
        .flat_map(|sample| sample.attacked.ends.iter())
        // Whoever is thrown out again and again has one connection open when its time is over.
        .filter(|(end, _)| end.as_str() != "open" || thrown_out_never(series))
        .map(|(end, _)| end.clone())
        .collect();
    let ends: Vec<String> = ends.into_iter().collect();
    vec![
        series.name.clone(),
        transport.to_owned(),
        ends.join(", "),
        series.cell(0, Sample::thrown_out),
        series.cell(1, |sample| sample.growth),
        series.cell(0, |sample| sample.server_cpu * 100.0),
        series.cell(0, |sample| sample.attacker_cpu() * 100.0),
        match ratios(series) {
            Some(spread) => spread.text(2),
            None => "-".to_owned(),
        },
        series.cell(0, |sample| sample.alone.median),
        series.cell(0, |sample| sample.beside.median),
        series.cell(1, |sample| sample.beside.median / sample.alone.median),
        series.cell(0, |sample| sample.alone.p99),
        series.cell(1, |sample| sample.p99_ratio(0)),
        series.cell(1, |sample| sample.p99_ratio(1)),
        series.cell(1, |sample| sample.p99_ratio(2)),
    ]
}

fn thrown_out_never(series: &Series<Sample>) -> bool {
    series
        .samples
        .iter()
        .flatten()
        .all(|sample| sample.attacked.thrown_out == 0)
}

fn ratios(series: &Series<Sample>) -> Option<crate::stats::Spread> {
    let ratios: Vec<f64> = series
        .samples
        .iter()
        .flatten()
        .filter_map(Sample::cpu_ratio)
        .collect();
    crate::stats::Spread::of(&ratios)
}

/// What of the medians is more than was asked.
fn beyond(series: &Series<Sample>) -> Vec<String> {
    let mut beyond = Vec::new();
    let mut judge = |what: &str, median: Option<f64>, most: f64| {
        if let Some(median) = median.filter(|median| *median > most) {
            beyond.push(format!("{what} {median:.2}, not {most}"));
        }
    };
    let median = |figure: &dyn Fn(&Sample) -> f64| series.spread(figure).map(|spread| spread.median);
    judge("MiB", median(&|sample| sample.growth), MOST_MIB);
    judge(
        "server ÷ attacker",
        ratios(series).map(|spread| spread.median),
        MOST_CPU,
    );
    judge(
        "beside ÷ alone",
        median(&|sample| sample.beside.median / sample.alone.median),
        MOST_LATENCY,
    );
    for (index, (connections, most)) in CONNECTIONS.into_iter().enumerate() {
        judge(
            &format!("p99 by {connections} ÷ alone"),
            median(&|sample| sample.p99_ratio(index)),
            most,
        );
    }
    beyond
}

/// What came of an attack on some connections.
#[derive(Default)]
struct Beside {
    attacked: Attacked,
    /// What the other client had to wait each time meanwhile, in microseconds.
    waits: Vec<u64>,
    /// The server's, with what it took to serve the other client.
    cpu: Duration,
    /// By which the server's memory grew, in bytes.
    growth: u64,
}

impl Beside {
    /// Adds what came of the same attack later.
    fn add(&mut self, later: Self) {
        self.attacked.add(later.attacked);
        self.waits.extend(later.waits);
        self.cpu += later.cpu;
        // Of the first turn: the peak of a later one may be that of more connections.
        if self.growth == 0 {
            self.growth = later.growth;
        }
    }
}

/// One attack on a server of its own.
struct Trial<'a> {
    cx: &'a Context,
    folder: &'a std::path::Path,
    keys: Option<&'a Keys>,
    attack: Attack,
}

impl Trial<'_> {
    fn measure(&self) -> Result<Sample, Error> {
        let (server, _lines, port) = process::on_core(SERVERS_CORE, || self.serve())?;
        let times = if self.cx.options.quick { 1 } else { TIMES };
        let usual = self.attack.connections();
        // The usual number is first, so that the peak of its memory is its own.
        let others = CONNECTIONS.map(|(connections, _)| connections).into_iter();
        let others = others.filter(|&connections| connections != usual);
        let numbers: Vec<usize> = std::iter::once(usual).chain(others).collect();
        let (mut alone, mut bystanders) = (Vec::new(), Duration::ZERO);
        let mut besides: Vec<Beside> = numbers.iter().map(|_| Beside::default()).collect();
        for _ in 0..times {
            let begun = server.cpu()?;
            alone.extend(self.bystander(port)?);
            bystanders += server.cpu()?.saturating_sub(begun);
            for (&connections, beside) in numbers.iter().zip(&mut besides) {
                beside.add(self.beside(&server, port, connections)?);
            }
        }
        let latencies: Vec<Latency> = besides
            .iter_mut()
            .map(|beside| Latency::of(std::mem::take(&mut beside.waits)))
            .collect();
        let beside_many = CONNECTIONS.map(|(connections, _)| {
            let mut measured = numbers.iter().zip(&latencies);
            let found = measured.find(|(number, _)| **number == connections);
            found.map_or_else(Latency::default, |(_, latency)| *latency)
        });
        let beside = besides.into_iter().next().unwrap_or_default();
        let latency = latencies.into_iter().next().unwrap_or_default();
        Ok(Sample {
            server_cpu: beside.cpu.saturating_sub(bystanders).as_secs_f64() / beside.attacked.seconds,
            growth: beside.growth as f64 / f64::from(1 << 20),
            alone: Latency::of(alone),
            beside: latency,
            beside_many,
            attacked: beside.attacked,
        })
    }

    /// An attack on that many connections at once, from when it has opened what it needs.
    fn beside(&self, server: &Running<'_>, port: u16, connections: usize) -> Result<Beside, Error> {
        let mut attacker = worker::command("attacker")?;
        let span = ATTACK_MS + 2 * MARGIN.as_millis() as u64;
        attacker
            .arg(self.attack.word())
            .arg(format!("127.0.0.1:{port}"))
            .args(["--for-ms", &span.to_string()])
            .args(["--connections", &connections.to_string()]);
        if self.keys.is_some() {
            attacker.arg("--tls");
        }
        let (mut memory, mut cpu) = (server.memory().unwrap_or(0), server.cpu()?);
        let (attacker, lines) =
            process::on_core(LOADS_CORE, || Running::with_lines(&self.cx.reaper, &mut attacker))?;
        if !self.attack.opening().is_zero() {
            thread::sleep(self.attack.opening());
            (memory, cpu) = (server.memory().unwrap_or(0), server.cpu()?);
        }
        thread::sleep(MARGIN);
        let waits = self.bystander(port)?;
        let line = lines.next(LIMIT).unwrap_or_default();
        let cpu = server.cpu()?.saturating_sub(cpu);
        drop(attacker);
        let attacked =
            Attacked::parse(&line).ok_or_else(|| Error::Output("the attacker".to_owned(), line))?;
        Ok(Beside {
            attacked,
            waits,
            cpu,
            growth: server.peak_memory().unwrap_or(0).saturating_sub(memory),
        })
    }

    fn serve(&self) -> Result<(Running<'_>, process::Lines, u16), Error> {
        let mut command = program::command(self.cx, "serve");
        command
            .arg(self.folder)
            .args(["--listen", "127.0.0.1:0", "--threads", "1"])
            .args(["--uploads", "discard"]);
        match self.keys {
            Some(keys) => command.arg("--cert").arg(&keys.cert).arg("--key").arg(&keys.key),
            None => command.arg("--plaintext"),
        };
        if self.attack == Attack::StreamsOverTheLimit {
            command.args(["--max-streams", &worker::STREAM_LIMIT.to_string()]);
        }
        let (running, lines) = Running::with_lines(&self.cx.reaper, &mut command)?;
        let port = port(&lines.after("listening on ", START)?)?;
        Ok((running, lines, port))
    }

    /// What another client has to wait, each time in microseconds.
    fn bystander(&self, port: u16) -> Result<Vec<u64>, Error> {
        let scheme = if self.keys.is_some() { "https" } else { "http" };
        let mut command = worker::command("bystander")?;
        command.arg(format!("{scheme}://127.0.0.1:{port}/12"));
        command.args(["--for-ms", &ATTACK_MS.to_string()]);
        let limit = self.cx.limit(LIMIT)?;
        let output = process::on_core(LOADS_CORE, || process::run(&self.cx.reaper, &mut command, limit))?;
        let waits = output.stdout.split_whitespace().map(|wait| wait.parse().ok());
        let waits = waits
            .collect::<Option<Vec<u64>>>()
            .filter(|waits| !waits.is_empty());
        waits.ok_or_else(|| Error::Output("the bystander".to_owned(), output.stdout))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn series(server_cpu: f64, growth: f64, beside: f64, p99_by_16: f64) -> Series<Sample> {
        let sample = Sample {
            attacked: Attacked {
                thrown_out: 10,
                ends: BTreeMap::from([("ENHANCE_YOUR_CALM".to_owned(), 10), ("open".to_owned(), 1)]),
                cpu: Duration::from_millis(500),
                seconds: 1.0,
            },
            growth,
            server_cpu,
            alone: Latency {
                median: 100.0,
                p99: 150.0,
            },
            beside: Latency {
                median: beside,
                p99: 300.0,
            },
            beside_many: [150.0, 300.0, p99_by_16].map(|p99| Latency { median: beside, p99 }),
        };
        Series {
            name: "PING".to_owned(),
            ours: true,
            samples: vec![Some(sample)],
            error: None,
        }
    }

    #[test]
    fn what_is_beyond_what_was_asked_is_said() {
        assert_eq!(beyond(&series(0.5, 3.9, 200.0, 600.0)), Vec::<String>::new());
        assert_eq!(
            beyond(&series(0.6, 5.0, 250.0, 750.0)),
            [
                "MiB 5.00, not 4",
                "server ÷ attacker 1.20, not 1",
                "beside ÷ alone 2.50, not 2",
                "p99 by 16 ÷ alone 5.00, not 4"
            ]
        );
    }

    #[test]
    fn a_row_names_the_code_and_not_the_last_connection() {
        let row = row("TLS", &series(0.5, 1.0, 100.0, 300.0));
        assert_eq!(
            row,
            [
                "PING",
                "TLS",
                "ENHANCE_YOUR_CALM",
                "10",
                "1.0",
                "50",
                "50",
                "1.00",
                "100",
                "100",
                "1.0",
                "150",
                "1.0",
                "2.0",
                "2.0"
            ]
        );
    }

    #[test]
    fn what_came_of_an_attack_at_several_times_is_added_up() {
        let beside = |waits: &[u64], growth| Beside {
            attacked: Attacked {
                thrown_out: 1,
                ends: BTreeMap::from([("open".to_owned(), 1)]),
                cpu: Duration::from_millis(5),
                seconds: 0.5,
            },
            waits: waits.to_vec(),
            cpu: Duration::from_millis(2),
            growth,
        };
        let mut all = Beside::default();
        all.add(beside(&[3, 1], 20));
        all.add(beside(&[2], 10));
        assert_eq!((all.attacked.thrown_out, all.attacked.seconds), (2, 1.0));
        assert_eq!(all.attacked.ends, BTreeMap::from([("open".to_owned(), 2)]));
        assert_eq!(
            (all.attacked.cpu, all.cpu),
            (Duration::from_millis(10), Duration::from_millis(4))
        );
        assert_eq!(all.growth, 20);
        let latency = Latency::of(all.waits);
        assert_eq!((latency.median, latency.p99), (2.0, 3.0));
    }
}
