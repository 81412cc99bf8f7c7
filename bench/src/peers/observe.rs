//! A server seen from outside: its system calls under strace, its TLS records through a relay, and its latency and an upload
//! with the raw client.

use std::io::Read;
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use super::servers::{Load, Server};
use super::unexpected;
use crate::error::Error;
use crate::heap::Heap;
use crate::process::Running;
use crate::program::port;
use crate::worker;

const START: Duration = Duration::from_secs(10);
/// Under strace a call takes some hundred times as long.
const LIMIT: Duration = Duration::from_secs(120);
/// Very many requests, or connections, one after another.
const LONG: Duration = Duration::from_secs(300);
/// After which a connection that is not used has given back what it can.
const REST: Duration = Duration::from_secs(3);

/// How many system calls of each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Calls {
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) waits: u64,
    pub(crate) others: u64,
}

impl Calls {
    pub(crate) fn all(&self) -> u64 {
        self.reads + self.writes + self.waits + self.others
    }
}

/// What a server sent over TLS.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Records {
    pub(crate) records: u64,
    /// In them, with HTTP/2's own.
    pub(crate) bytes: u64,
}

/// What the raw client's requests took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Raw {
    pub(crate) seconds: f64,
    pub(crate) median_micros: f64,
    pub(crate) p99_micros: f64,
}

impl Server<'_> {
    /// The system calls of the server under a load, the connection's among them.
    pub(crate) fn calls(&self, load: Load) -> Result<Calls, Error> {
        let file = self.cx.folder("strace")?.join(self.port.to_string());
        let mut command = Command::new("strace");
        command.args(["-f", "-c", "-o"]).arg(&file);
        command.args(["-p", &self.running.id().to_string()]);
        let (strace, _lines) = Running::with_lines(&self.cx.reaper, &mut command)?;
        self.until_traced()?;
        let loaded = self.load(load, LIMIT);
        strace.terminate();
        loaded?;
        let text = std::fs::read_to_string(&file).map_err(|error| Error::File(file.clone(), error))?;
        calls(&text)
    }

    /// Waits until strace stands behind all threads.
    fn until_traced(&self) -> Result<(), Error> {
        let tasks = format!("/proc/{}/task", self.running.id());
        let until = Instant::now() + START;
        while Instant::now() < until {
            let threads = std::fs::read_dir(&tasks)
                .into_iter()
                .flatten()
                .flatten()
                .map(|thread| std::fs::read_to_string(thread.path().join("status")).unwrap_or_default());
            let mut untraced = threads.filter(|status| status.lines().any(|line| line == "TracerPid:\t0"));
            if untraced.next().is_none() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(Error::Slow("strace".to_owned(), START))
    }

    /// The TLS records in which it answers a load on one connection.
    pub(crate) fn records(&self, load: Load) -> Result<Records, Error> {
        let mut command = worker::command("records")?;
        command.arg(format!("127.0.0.1:{}", self.port));
        let (_relay, lines) = Running::with_lines(&self.cx.reaper, &mut command)?;
        let port = port(&lines.after("listening on ", START)?)?;
        self.load_through(port, load, LIMIT)?;
        let line = lines.after("records ", START)?;
        let figures: Vec<u64> = line
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();
        match figures.as_slice() {
            &[records, bytes] => Ok(Records { records, bytes }),
            _ => Err(unexpected("the relay", &line)),
        }
    }

    /// Opens so many connections with 100 requests each that wait, and calls `look` after a while.
    pub(crate) fn with_waiting<T>(
        &self,
        connections: u32,
        look: impl Fn() -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut command = Command::new("h2load");
        command.args([format!("-n{}", 100 * connections), format!("-c{connections}")]);
        command.args(["-m100", &format!("http://127.0.0.1:{}/wait", self.port)]);
        let (_client, _lines) = self.talk_beside(&mut command)?;
        std::thread::sleep(REST);
        look()
    }

    /// What it has allocated, if it runs on the allocator that counts.
    pub(crate) fn heap(&self) -> Result<Heap, Error> {
        let to_error = |error| Error::Start("the server's count of its heap".to_owned(), error);
        let mut socket = TcpStream::connect(("127.0.0.1", self.heap_port)).map_err(to_error)?;
        let mut line = String::new();
        socket.read_to_string(&mut line).map_err(to_error)?;
        let mut figures = line.split_whitespace();
        match (figures.next(), figures.next(), figures.next()) {
            (Some(allocations), Some(bytes), Some(live)) => Ok(Heap {
                allocations: allocations.parse().unwrap_or(0),
                bytes: bytes.parse().unwrap_or(0),
                live: live.parse().unwrap_or(0),
            }),
            _ => Err(unexpected("the server's count of its heap", &line)),
        }
    }

    /// What `look` sees of it after so many requests of one client on one connection, while that stays open. With
    /// `upload` each sends as many bytes as it would get otherwise.
    pub(crate) fn at_marks<T>(
        &self,
        bytes: u64,
        upload: bool,
        marks: [u64; 2],
        look: impl Fn() -> Result<T, Error>,
    ) -> Result<[T; 2], Error> {
        let mut command = worker::command("raw")?;
        command.arg(format!("127.0.0.1:{}", self.port));
        command.arg(format!("--path=/{bytes}"));
        let [first, last] = marks;
        command.args(["--requests", &last.to_string()]);
        command.args(["--marks", &format!("{first},{last}")]);
        if upload {
            command.args(["--upload", &bytes.to_string()]);
        }
        if self.secure {
            command.arg("--secure");
        }
        let limit = self.cx.limit(LONG)?;
        let (_client, lines) = self.talk_beside(&mut command)?;
        lines.after("mark ", limit)?;
        let seen = look()?;
        lines.after("mark ", limit)?;
        Ok([seen, look()?])
    }

    /// Opens so many connections, makes a request on each, and calls `look` once they have rested.
    pub(crate) fn with_idle<T>(
        &self,
        connections: u32,
        look: impl Fn() -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut command = worker::command("idle")?;
        command.arg(format!("127.0.0.1:{}", self.port));
        command.args(["--connections", &connections.to_string()]);
        let limit = self.cx.limit(LONG)?;
        let (_client, lines) = self.talk_beside(&mut command)?;
        lines.after("idle ", limit)?;
        std::thread::sleep(REST);
        look()
    }

    /// Requests of the raw client one after another, for a body of so many bytes.
    pub(crate) fn raw(&self, bytes: u64, requests: u64) -> Result<Raw, Error> {
        self.raw_with(bytes, &["--requests".to_owned(), requests.to_string()])
    }

    /// An upload of the raw client.
    pub(crate) fn upload(&self, bytes: u64) -> Result<Raw, Error> {
        self.raw_with(
            12,
            &[
                "--requests=1".to_owned(),
                "--upload".to_owned(),
                bytes.to_string(),
            ],
        )
    }

    fn raw_with(&self, path: u64, more: &[String]) -> Result<Raw, Error> {
        let mut command = worker::command("raw")?;
        command.arg(format!("127.0.0.1:{}", self.port));
        command.arg(format!("--path=/{path}")).args(more);
        if self.secure {
            command.arg("--secure");
        }
        let output = self.run_beside(&mut command, LIMIT)?;
        match output.figures().as_slice() {
            &[seconds, median_micros, p99_micros] => Ok(Raw {
                seconds,
                median_micros,
                p99_micros,
            }),
            _ => Err(unexpected("the raw client", &output.stdout)),
        }
    }
}

/// The rows `SHARE SECONDS MICROS CALLS [ERRORS] NAME`.
fn calls(text: &str) -> Result<Calls, Error> {
    let mut calls = Calls::default();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (Some(Ok(count)), Some(name)) = (words.get(3).map(|word| word.parse::<u64>()), words.last())
        else {
            continue;
        };
        match *name {
            "total" => continue,
            "read" | "readv" | "recvfrom" | "recvmsg" => calls.reads += count,
            "write" | "writev" | "sendto" | "sendmsg" | "sendfile" | "splice" => {
                calls.writes += count;
            }
            "epoll_wait" | "epoll_pwait" | "epoll_pwait2" | "poll" => calls.waits += count,
            _ => calls.others += count,
        }
    }
    match calls.all() {
        0 => Err(unexpected("strace", text)),
        _ => Ok(calls),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn straces_table_is_read_with_and_without_errors() {
        let text = "% time     seconds  usecs/call     calls    errors syscall\n\
            ------ ----------- ----------- --------- --------- ----------------\n \
             60.00    0.000120           1       120        20 recvfrom\n \
             30.00    0.000060           1       100           writev\n \
              9.00    0.000060           1        50           epoll_wait\n \
              1.00    0.000002           1         2           accept4\n\
            ------ ----------- ----------- --------- --------- ----------------\n\
            100.00    0.000242           1       272        20 total\n";
        let calls = calls(text).expect("it is a table");
        let wanted = Calls {
            reads: 120,
            writes: 100,
            waits: 50,
            others: 2,
        };
        assert_eq!(calls, wanted);
        assert_eq!(calls.all(), 272);
    }

    #[test]
    fn an_empty_table_is_an_error() {
        assert!(calls("").is_err());
    }
}
