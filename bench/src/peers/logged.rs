//! Loads of h2load that log every request: what a server spent on one, and how long the middle one and the slowest of a hundred
//! took. Reads h2load's log; the case `growth` calls it.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::servers::{Load, Server, h2load};
use super::{h2loads_lines, unexpected};
use crate::error::Error;

/// How many fields h2load sends by itself: four pseudo-header fields and `user-agent`.
pub(crate) const OWN_FIELDS: u32 = 5;

/// More than a connection makes before it is looked at.
const ENDLESS: u64 = 1_000_000;
/// Until all connections are open. A connection that does not fit the backlog tries again after a second, and after two more.
const OPEN: Duration = Duration::from_secs(30);
/// After which all connections have made requests.
const SETTLE: Duration = Duration::from_secs(1);
/// For what a server does when its client has gone.
const GONE: Duration = Duration::from_millis(5);

/// How requests follow each other on each connection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Pace {
    /// The next is sent when one is answered.
    AtOnce,
    /// One a second.
    EachSecond,
}

/// What a server did under a load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Logged {
    pub(crate) responses: u64,
    pub(crate) seconds: f64,
    /// Of its processor time.
    pub(crate) cpu: Duration,
    pub(crate) median_micros: f64,
    pub(crate) p99_micros: f64,
}

impl Server<'_> {
    /// Loads it to the end of the load, with header lists of so many fields.
    pub(crate) fn load_logged(&self, load: Load, fields: u32, limit: Duration) -> Result<Logged, Error> {
        let log = self.log()?;
        let mut command = h2load(load, &self.url(load.bytes));
        log_to(&mut command, &log);
        for number in OWN_FIELDS..fields {
            command.args(["-H", &field(number)]);
        }
        let before = self.cpu()?;
        let output = self.run_beside(&mut command, limit)?;
        thread::sleep(GONE);
        let cpu = self.cpu()?.saturating_sub(before);
        let seconds = h2loads_lines(&output.stdout, load.requests)?;
        logged(&log, 0..u64::MAX, seconds, cpu)
    }

    /// Opens all connections of a load, and looks at it for so long once each has made requests. How many requests the load asks
    /// for plays no part.
    pub(crate) fn watch(&self, load: Load, pace: Pace, window: Duration) -> Result<Logged, Error> {
        let log = self.log()?;
        let connections = u64::from(load.connections);
        let requests = ENDLESS * connections;
        let mut command = h2load(Load { requests, ..load }, &self.url(load.bytes));
        log_to(&mut command, &log);
        if pace == Pace::EachSecond {
            command.arg("--rps=1").args(ramp(load.connections));
        }
        let limit = self.cx.limit(OPEN)?;
        let open_before = self.running.open_files();
        let are_open = || self.running.open_files() >= open_before + connections;
        let (client, _lines) = self.talk_beside(&mut command)?;
        let until = Instant::now() + limit;
        while !are_open() {
            if Instant::now() > until {
                return Err(Error::Slow(format!("opening {connections} connections"), limit));
            }
            thread::sleep(Duration::from_millis(20));
        }
        thread::sleep(SETTLE);
        let (from, begun, before) = (micros_now(), Instant::now(), self.cpu()?);
        thread::sleep(window);
        let cpu = self.cpu()?.saturating_sub(before);
        let (until, seconds) = (micros_now(), begun.elapsed().as_secs_f64());
        let stayed = are_open();
        drop(client);
        match stayed {
            true => logged(&log, from..until, seconds, cpu),
            false => Err(Error::Failed(
                "the load".to_owned(),
                "connections were closed".to_owned(),
            )),
        }
    }

    /// An empty file for a log.
    fn log(&self) -> Result<PathBuf, Error> {
        let log = self.cx.folder("h2load")?.join("log");
        fs::write(&log, "").map_err(|error| Error::File(log.clone(), error))?;
        Ok(log)
    }
}

fn log_to(command: &mut Command, log: &Path) {
    let mut option = std::ffi::OsString::from("--log-file=");
    option.push(log);
    command.arg(option);
}

/// One of the fields that are the same in each request. 195 of them stay below hyper's limit of 16 KiB.
fn field(number: u32) -> String {
    format!("x-field-{number:03}: the value {number:06}")
}

/// Opens so many connections evenly in about a second, so that requests once a second are even too.
fn ramp(connections: u32) -> [String; 2] {
    let [at_once, period_ms] = match connections {
        0..=1_000 => [1, 1_000 / connections.max(1)],
        _ => [connections / 1_000, 1],
    };
    [
        format!("--rate={at_once}"),
        format!("--rate-period={period_ms}ms"),
    ]
}

fn micros_now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_micros()).unwrap_or(u64::MAX))
}

fn logged(log: &Path, during: Range<u64>, seconds: f64, cpu: Duration) -> Result<Logged, Error> {
    let text = fs::read_to_string(log).map_err(|error| Error::File(log.to_owned(), error))?;
    let mut all = micros(&text, during)?;
    all.sort_unstable();
    let at = |percent: usize| all.get((all.len() * percent / 100).min(all.len().saturating_sub(1)));
    match (at(50), at(99)) {
        (Some(&median), Some(&p99)) => Ok(Logged {
            responses: all.len() as u64,
            seconds,
            cpu,
            median_micros: median as f64,
            p99_micros: p99 as f64,
        }),
        _ => Err(unexpected("h2load", "no request in its log")),
    }
}

/// Of the lines `START STATUS MICROS` those that ended meanwhile; the start is in microseconds since 1970.
fn micros(log: &str, during: Range<u64>) -> Result<Vec<u64>, Error> {
    let mut all = Vec::new();
    for line in log.lines() {
        let mut words = line.split('\t').map(str::parse::<u64>);
        match (words.next(), words.next(), words.next()) {
            (Some(Ok(start)), Some(Ok(200)), Some(Ok(took))) => {
                if during.contains(&start.saturating_add(took)) {
                    all.push(took);
                }
            }
            _ => return Err(unexpected("h2load's log", line)),
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_count_when_they_end_meanwhile_and_none_may_fail() {
        let log = "100\t200\t5\n190\t200\t20\n200\t200\t7\n299\t200\t1\n";
        assert_eq!(micros(log, 200..300).ok(), Some(vec![20, 7]));
        assert!(micros("100\t503\t5\n", 200..300).is_err());
        assert!(micros("100\t-1\t5\n", 0..300).is_err());
    }

    #[test]
    fn connections_open_within_a_second() {
        assert_eq!(ramp(1), ["--rate=1", "--rate-period=1000ms"]);
        assert_eq!(ramp(100), ["--rate=1", "--rate-period=10ms"]);
        assert_eq!(ramp(10_000), ["--rate=10", "--rate-period=1ms"]);
    }
}
