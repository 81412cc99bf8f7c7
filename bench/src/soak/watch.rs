//! What a process holds while it is soaked: memory, descriptors, tasks; and what to make of it. Reads `/proc`; `soak`
//! takes the readings.

use std::io::Read as _;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::stats::Spread;

/// How much larger than in the first readings the median of the last ones may be. An allocator hands back in no order what
/// concurrent bodies needed, so that a process that leaks nothing wanders by some MiB even with one arena; 100 octets lost
/// at each operation would pass this within 84,000 of them, which a soak does in a quarter of an hour.
const MEMORY_BYTES: f64 = 8.0 * 1024.0 * 1024.0;
/// Or so large a part of it, if that is more.
const MEMORY_PART: f64 = 0.15;
/// Before that pools, caches and windows are still filling.
pub(super) const WARM_UP: Duration = Duration::from_secs(60);
/// A median of fewer tells nothing.
const LEAST_READINGS: usize = 6;

/// What a process holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Reading {
    pub(super) memory: u64,
    pub(super) descriptors: usize,
    /// Where the process tells.
    pub(super) tasks: Option<usize>,
}

/// How to learn a process's tasks.
pub(super) enum Tasks {
    Untold,
    Here(tokio::runtime::Handle),
    /// Who is asked there answers with their number.
    At(SocketAddr),
}

/// A process that is watched, and all that was read of it.
pub(super) struct Watched {
    pub(super) name: &'static str,
    id: u32,
    tasks: Tasks,
    begun: Reading,
    /// Descriptors that it may come to keep.
    kept: usize,
    /// With the time since the beginning.
    readings: Vec<(Duration, Reading)>,
}

impl Watched {
    /// Reads it for the first time.
    pub(super) fn new(name: &'static str, id: u32, tasks: Tasks) -> Result<Self, String> {
        let mut watched = Self {
            name,
            id,
            tasks,
            begun: Reading {
                memory: 0,
                descriptors: 0,
                tasks: None,
            },
            kept: 0,
            readings: Vec::new(),
        };
        watched.begun = watched.read()?;
        Ok(watched)
    }

    /// The same of a process whose threads may come to keep so many descriptors, all told.
    pub(super) fn keeping(mut self, descriptors: usize) -> Self {
        self.kept = descriptors;
        self
    }

    /// Reads it and keeps that for the verdict.
    pub(super) fn sample(&mut self, at: Duration) -> Result<Reading, String> {
        let reading = self.read()?;
        self.readings.push((at, reading));
        Ok(reading)
    }

    fn read(&self) -> Result<Reading, String> {
        let gone = |error: std::io::Error| format!("{} is gone: {error}", self.name);
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id)).map_err(gone)?;
        let kib = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
            .ok_or_else(|| format!("{} has ended", self.name))?;
        let descriptors = std::fs::read_dir(format!("/proc/{}/fd", self.id)).map_err(gone)?;
        let tasks = match &self.tasks {
            Tasks::Untold => None,
            Tasks::Here(runtime) => Some(runtime.metrics().num_alive_tasks()),
            Tasks::At(address) => Some(ask(*address).map_err(gone)?),
        };
        Ok(Reading {
            memory: kib << 10,
            descriptors: descriptors.count(),
            tasks,
        })
    }

    /// Whether it holds again what it held at the beginning; what it holds instead if not.
    pub(super) fn returned(&self) -> Result<(), String> {
        let now = self.read()?;
        let mut kept = Vec::new();
        if now.descriptors > self.begun.descriptors + self.kept {
            kept.push(format!(
                "{} descriptors, at the beginning {}, of which its threads may keep {} more",
                now.descriptors, self.begun.descriptors, self.kept
            ));
        }
        if let (Some(now), Some(begun)) = (now.tasks, self.begun.tasks) {
            if now > begun {
                kept.push(format!("{now} tasks, at the beginning {begun}"));
            }
        }
        match kept.as_slice() {
            [] => Ok(()),
            kept => Err(format!("{} holds {}", self.name, kept.join(" and "))),
        }
    }

    /// Whether its memory is flat, in words.
    ///
    /// # Errors
    /// The same, when it has grown.
    pub(super) fn memory_is_flat(&self) -> Result<String, String> {
        let warm: Vec<f64> = self
            .readings
            .iter()
            .filter(|(at, _)| *at >= WARM_UP)
            .map(|(_, reading)| reading.memory as f64)
            .collect();
        if warm.len() < LEAST_READINGS {
            return Ok(format!("{}: too short a soak to tell of its memory", self.name));
        }
        let third = warm.len() / 3;
        let median = |part: Option<&[f64]>| part.and_then(Spread::of).map_or(0.0, |spread| spread.median);
        let first = median(warm.get(..third));
        let last = median(warm.get(warm.len() - third..));
        let most = warm.iter().copied().fold(0.0, f64::max);
        let mib = |bytes: f64| bytes / f64::from(1 << 20);
        let text = format!(
            "{}: median {:.1} MiB in the first third after the first minute, {:.1} in the last, {:.1} at the most",
            self.name,
            mib(first),
            mib(last),
            mib(most)
        );
        if last - first > MEMORY_BYTES.max(first * MEMORY_PART) {
            Err(format!("memory grew: {text}"))
        } else {
            Ok(text)
        }
    }
}

fn ask(address: SocketAddr) -> std::io::Result<usize> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut said = String::new();
    socket.read_to_string(&mut said)?;
    said.trim().parse().map_err(std::io::Error::other)
}

impl std::fmt::Display for Reading {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mib = self.memory as f64 / f64::from(1 << 20);
        write!(f, "{mib:.1} MiB, {} descriptors", self.descriptors)?;
        match self.tasks {
            Some(tasks) => write!(f, ", {tasks} tasks"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(mib: impl Fn(u64) -> u64) -> Watched {
        let here = Watched::new("this", std::process::id(), Tasks::Untold);
        let mut here = here.expect("this process is there");
        here.readings = (0..40)
            .map(|number| {
                let reading = Reading {
                    memory: mib(number) << 20,
                    ..here.begun
                };
                (Duration::from_secs(30 * number), reading)
            })
            .collect();
        here
    }

    #[test]
    fn memory_that_wanders_is_flat_and_memory_that_grows_is_not() {
        assert!(watched(|number| 40 + number % 5).memory_is_flat().is_ok());
        assert!(watched(|number| 40 + number).memory_is_flat().is_err());
        // What fills in the first minute is no growth.
        assert!(
            watched(|number| if number < 2 { 10 } else { 60 })
                .memory_is_flat()
                .is_ok()
        );
    }

    #[test]
    fn a_descriptor_that_is_kept_is_told_of() {
        let mut here = watched(|_| 1);
        here.begun.descriptors = 0;
        assert!(here.returned().is_err_and(|why| why.contains("descriptors")));
        let here = here.keeping(1_000_000);
        assert_eq!(here.returned(), Ok(()));
    }
}
