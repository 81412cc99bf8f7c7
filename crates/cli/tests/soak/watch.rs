//! What a process holds during the soak: memory, descriptors and tasks, read from `/proc` and from the runtime.

use std::time::Duration;

use tokio::runtime::Handle;

use crate::Outcome;

/// How much the median of the last readings may exceed that of the first. An allocator returns memory in no order, so a
/// process that leaks nothing wanders by some MiB even with one arena. A leak of 100 bytes an operation shows within
/// 84,000 operations, which takes a quarter of an hour.
const MEMORY_BYTES: f64 = 8.0 * 1024.0 * 1024.0;
/// Or this share of the first, if that is more.
const MEMORY_SHARE: f64 = 0.15;
/// Pools, caches and windows fill during this time.
const WARM_UP: Duration = Duration::from_secs(60);
/// A median of fewer readings says nothing.
const LEAST_READINGS: usize = 6;

/// What a process holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Reading {
    memory: u64,
    descriptors: usize,
    /// Of this process alone.
    tasks: Option<usize>,
}

/// A watched process and its readings.
pub(crate) struct Watched {
    pub(crate) name: &'static str,
    id: u32,
    runtime: Option<Handle>,
    start: Reading,
    /// Descriptors that it may keep beyond those of the start.
    kept: usize,
    /// With the time since the beginning.
    readings: Vec<(Duration, Reading)>,
}

impl Watched {
    /// Takes the first reading. `runtime` is that of this process.
    pub(crate) fn new(name: &'static str, id: u32, runtime: Option<Handle>, kept: usize) -> Outcome<Self> {
        let start = read(id, runtime.as_ref())?;
        Ok(Self {
            name,
            id,
            runtime,
            start,
            kept,
            readings: Vec::new(),
        })
    }

    pub(crate) fn sample(&mut self, at: Duration) -> Outcome<Reading> {
        let reading = read(self.id, self.runtime.as_ref())?;
        self.readings.push((at, reading));
        Ok(reading)
    }

    /// Fails while it holds more than at the start.
    pub(crate) fn returned(&self) -> Outcome {
        let now = read(self.id, self.runtime.as_ref())?;
        if now.descriptors > self.start.descriptors + self.kept || now.tasks > self.start.tasks {
            return Err(format!("{} holds {now}, and held {} at the start", self.name, self.start).into());
        }
        Ok(())
    }

    /// Says in words how its memory went, and fails when it grew.
    pub(crate) fn memory_is_flat(&self) -> Outcome<String> {
        let warm = self.readings.iter().filter(|(at, _)| *at >= WARM_UP);
        let warm: Vec<f64> = warm.map(|(_, reading)| reading.memory as f64).collect();
        if warm.len() < LEAST_READINGS {
            return Ok(format!("{}: too short a soak to judge its memory", self.name));
        }
        let third = warm.len() / 3;
        let (first, last) = (median(&warm[..third]), median(&warm[warm.len() - third..]));
        let mib = |bytes: f64| bytes / f64::from(1 << 20);
        let text = format!(
            "{}: median {:.1} MiB in the first third after the first minute, {:.1} MiB in the last",
            self.name,
            mib(first),
            mib(last)
        );
        match last - first > MEMORY_BYTES.max(first * MEMORY_SHARE) {
            true => Err(format!("memory grew: {text}").into()),
            false => Ok(text),
        }
    }
}

fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn read(id: u32, runtime: Option<&Handle>) -> Outcome<Reading> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .ok_or("the process has ended")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(Reading {
        memory: kib << 10,
        descriptors: std::fs::read_dir(format!("/proc/{id}/fd"))?.count(),
        tasks: runtime.map(|runtime| runtime.metrics().num_alive_tasks()),
    })
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
        let mut here = Watched::new("this", std::process::id(), None, 0).expect("this process runs");
        let reading = |number| Reading {
            memory: mib(number) << 20,
            ..here.start
        };
        here.readings = (0..40)
            .map(|number| (Duration::from_secs(30 * number), reading(number)))
            .collect();
        here
    }

    #[test]
    fn memory_that_wanders_is_flat_and_memory_that_grows_is_not() {
        assert!(watched(|number| 40 + number % 5).memory_is_flat().is_ok());
        assert!(watched(|number| 40 + number).memory_is_flat().is_err());
        // Growth in the first minute does not count.
        assert!(
            watched(|number| if number < 2 { 10 } else { 60 })
                .memory_is_flat()
                .is_ok()
        );
    }

    #[test]
    fn a_descriptor_that_is_kept_is_reported() {
        let mut here = watched(|_| 1);
        here.start.descriptors = 0;
        assert!(
            here.returned()
                .is_err_and(|error| error.to_string().contains("descriptors"))
        );
        here.kept = 1_000_000;
        assert!(here.returned().is_ok());
    }
}
