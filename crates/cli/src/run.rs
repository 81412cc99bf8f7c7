//! How a command runs: its tokio runtime, signals, and an end that leaves no incomplete file.
//!
//! `main` calls `to_end`. `serve` handles signals itself, for its graceful shutdown.

use std::fmt::{self, Display};
use std::future::Future;
use std::io::Write;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fullbore_files::{LogLimits, LogWriter};
use tokio::runtime::{Builder, Runtime};

use crate::exit::{Exit, Failure};
use crate::text;

/// Threads of `get` and `put`. One connection has one driver on one thread. With a second thread, 10,000 small files take
/// longer (`fullbore-bench many`).
pub(crate) const CLIENT_WORKERS: usize = 1;

/// Threads of the demo, which is client and server.
pub(crate) const DEMO_WORKERS: usize = 2;

/// Threads that write files. More would not make a disk faster, and each may hold a file open.
const DISK_THREADS: usize = 16;

/// How long a write in progress may delay the end of the program.
pub(crate) const LAST_WRITES: Duration = Duration::from_secs(5);

/// What an interrupt leaves for a later run. The incomplete files of a run look here when they are dropped.
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    interrupted: AtomicBool,
    kept: AtomicU64,
    how_to_resume: OnceLock<&'static str>,
    /// What is said when no file was kept.
    nothing_kept: OnceLock<&'static str>,
    /// Uploads that the server lets a later run continue.
    uploads: AtomicU64,
}

impl Leftovers {
    /// What the user does to resume, as a command to the user.
    pub(crate) fn set_how_to_resume(&self, text: &'static str) {
        // A run says so once.
        let _ = self.how_to_resume.set(text);
    }

    /// What becomes of an incomplete transfer that leaves no file.
    pub(crate) fn set_nothing_kept(&self, text: &'static str) {
        // A run says so once.
        let _ = self.nothing_kept.set(text);
    }

    /// Whether incomplete files that a later run can resume are to be kept.
    pub(crate) fn are_kept(&self) -> bool {
        self.interrupted.load(Ordering::Acquire)
    }

    /// A file was kept.
    pub(crate) fn count(&self) {
        self.kept.fetch_add(1, Ordering::AcqRel);
    }

    /// A later run can continue one more upload.
    pub(crate) fn keep_upload(&self) {
        self.uploads.fetch_add(1, Ordering::AcqRel);
    }

    /// An upload that was counted is complete, or cannot be continued.
    pub(crate) fn forget_upload(&self) {
        self.uploads.fetch_sub(1, Ordering::AcqRel);
    }

    /// From now on, incomplete files are kept.
    pub(crate) fn interrupt(&self) {
        self.interrupted.store(true, Ordering::Release);
    }

    fn sentence(&self, signal: StopSignal) -> String {
        let kept = self.kept.load(Ordering::Acquire);
        let what = match (kept, self.uploads.load(Ordering::Acquire)) {
            (0, 1) => "the server keeps the part that it has received".to_owned(),
            (0, files @ 2..) => format!("the server keeps the parts of {files} files that it has received"),
            (0, 0) => {
                return match self.nothing_kept.get() {
                    Some(text) => format!("interrupted by {signal}; {text}"),
                    None => format!("interrupted by {signal}"),
                };
            }
            (1, _) => "the received part is kept".to_owned(),
            (files, _) => format!("the received parts of {files} files are kept"),
        };
        let how = self.how_to_resume.get().unwrap_or(&"run the same command again");
        format!("interrupted by {signal}; {what}: {how} to resume")
    }
}

/// Runs `command` until it returns, or until Ctrl-C or SIGTERM. Dropping the command removes its temporary files, except those
/// in `leftovers`. The runtime is shut down before this returns, so no thread can write another one.
pub(crate) fn to_end(
    workers: usize,
    leftovers: &Leftovers,
    command: impl Future<Output = Result<ExitCode, Failure>>,
) -> Result<ExitCode, Failure> {
    let runtime = runtime(workers, DISK_THREADS)?;
    let ended = runtime.block_on(async {
        let mut interrupt = Interrupt::listen()?;
        let signal = async {
            let signal = interrupt.next().await;
            // Before the command is dropped, and its files with it.
            leftovers.interrupt();
            signal
        };
        tokio::select! {
            ended = command => ended.map(Ok),
            signal = signal => Ok(Err(signal)),
        }
    });
    runtime.shutdown_timeout(LAST_WRITES);
    // Writes in progress have ended, so the count of kept files is final.
    ended?.map_err(|signal| Failure::new(signal.exit(), leftovers.sentence(signal)))
}

/// Raises the soft limit of file descriptors to the hard limit. Returns the limit, if it is known.
pub(crate) fn raise_descriptor_limit() -> Option<u64> {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, setrlimit};
        let limit = descriptor_limit()?;
        let raised = Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        };
        match setrlimit(Resource::Nofile, raised) {
            Ok(()) => limit.maximum,
            Err(_) => limit.current,
        }
    }
    #[cfg(not(unix))]
    None
}

/// Has Linux make room for so many descriptors at once, or for 65,536.
///
/// Otherwise their table doubles whenever it is full, and the thread that opens a file waits each time until no other one reads
/// the old table: `serve` stood still six times, for 5 to 24 ms, while its descriptors grew from 256 to 8,192 (`fullbore-bench
/// attacks --shape "10,000 requests"`).
pub(crate) fn make_room_for_descriptors(limit: u64) {
    #[cfg(target_os = "linux")]
    {
        let last = i32::try_from(limit.min(1 << 16)).map_or(0, |limit| limit - 1);
        // Without the room, it is made later.
        drop(rustix::io::fcntl_dupfd_cloexec(std::io::stderr(), last));
    }
    #[cfg(not(target_os = "linux"))]
    let _ = limit;
}

/// The current limit.
#[cfg(unix)]
fn descriptor_limit() -> Option<rustix::process::Rlimit> {
    use rustix::process::{Resource, Rlimit, getrlimit};
    if cfg!(target_os = "linux") {
        // rustix assumes that `getrlimit` never fails, but sandboxes deny it.
        let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
        let line = limits
            .lines()
            .find_map(|line| line.strip_prefix("Max open files"))?;
        let mut figures = line.split_whitespace().map(|figure| figure.parse().ok());
        return Some(Rlimit {
            current: figures.next()?,
            maximum: figures.next()?,
        });
    }
    Some(getrlimit(Resource::Nofile))
}

/// A runtime on the calling thread, with at most `disk_threads` for files.
pub(crate) fn lone_runtime(disk_threads: usize) -> Result<Runtime, Failure> {
    build(Builder::new_current_thread(), disk_threads)
}

/// A runtime with `workers` threads for the network, and at most `disk_threads` for files.
pub(crate) fn runtime(workers: usize, disk_threads: usize) -> Result<Runtime, Failure> {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(workers);
    build(builder, disk_threads)
}

fn build(mut builder: Builder, disk_threads: usize) -> Result<Runtime, Failure> {
    let built = builder.max_blocking_threads(disk_threads).enable_all().build();
    built.map_err(|error| Failure::new(Exit::Other, format!("cannot create a tokio runtime: {error}")))
}

/// The most that waits for standard error of `serve`, in bytes.
const SAID_BYTES: usize = 1 << 20;

/// Writes what `serve` prints on standard error.
static SAID: OnceLock<LogWriter> = OnceLock::new();

/// From now on, lines on standard error pass through a thread. Nobody may be reading them, and a server must not wait: with
/// `-vv` it would stand still after a few hundred requests, when the pipe is full. Without a thread they do not.
pub(crate) fn never_wait_for_stderr() -> Option<&'static LogWriter> {
    let limits = LogLimits {
        waiting_bytes: SAID_BYTES,
        ..LogLimits::default()
    };
    if let Ok(writer) = LogWriter::new(std::io::stderr(), limits) {
        let _ = SAID.set(writer);
    }
    SAID.get()
}

/// Waits for the last lines that the thread writes.
pub(crate) fn finish_stderr() {
    if let Some(writer) = SAID.get() {
        writer.finish();
    }
}

/// Prints a line on standard error. Errors are ignored. A peer may have chosen a part of it.
pub(crate) fn complain(sentence: &impl Display) {
    let sentence = sentence.to_string();
    let sentence = text::escaped(&sentence);
    match SAID.get() {
        Some(writer) => writer.line(&format!("fullbore: {sentence}\n")),
        None => {
            let _ = writeln!(std::io::stderr(), "fullbore: {sentence}");
        }
    }
}

/// A signal that stops the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StopSignal {
    Interrupt,
    #[cfg_attr(not(unix), allow(dead_code))]
    Terminate,
}

impl StopSignal {
    /// As a shell reports it: 128 and the number of the signal.
    pub(crate) fn exit(self) -> Exit {
        match self {
            StopSignal::Interrupt => Exit::Interrupted,
            StopSignal::Terminate => Exit::Terminated,
        }
    }
}

impl Display for StopSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StopSignal::Interrupt => "Ctrl-C",
            StopSignal::Terminate => "SIGTERM",
        })
    }
}

/// The signals that stop the program.
pub(crate) struct Interrupt {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    /// Handled so that a write past `ulimit -f` returns an error instead of ending the process.
    #[cfg(unix)]
    _file_size: tokio::signal::unix::Signal,
}

impl Interrupt {
    /// Replaces the default action, which ends the process at once.
    #[cfg(unix)]
    pub(crate) fn listen() -> Result<Self, Failure> {
        use tokio::signal::unix::{SignalKind, signal};
        let take = |kind| {
            signal(kind).map_err(|error| Failure::new(Exit::Other, format!("cannot handle signals: {error}")))
        };
        Ok(Self {
            terminate: take(SignalKind::terminate())?,
            interrupt: take(SignalKind::interrupt())?,
            _file_size: take(SignalKind::from_raw(libc::SIGXFSZ))?,
        })
    }

    /// Without Unix signals, `next` does all.
    #[cfg(not(unix))]
    pub(crate) fn listen() -> Result<Self, Failure> {
        Ok(Self {})
    }

    /// Waits for the next signal.
    #[cfg(unix)]
    pub(crate) async fn next(&mut self) -> StopSignal {
        tokio::select! {
            _ = self.terminate.recv() => StopSignal::Terminate,
            _ = self.interrupt.recv() => StopSignal::Interrupt,
        }
    }

    /// Waits for the next Ctrl-C.
    #[cfg(not(unix))]
    pub(crate) async fn next(&mut self) -> StopSignal {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        StopSignal::Interrupt
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_says_what_is_kept_and_how_to_resume() {
        let leftovers = Leftovers::default();
        assert!(!leftovers.are_kept());
        leftovers.interrupt();
        assert!(leftovers.are_kept());
        assert_eq!(leftovers.sentence(StopSignal::Interrupt), "interrupted by Ctrl-C");
        leftovers.set_nothing_kept("the upload is not complete");
        assert_eq!(
            leftovers.sentence(StopSignal::Terminate),
            "interrupted by SIGTERM; the upload is not complete"
        );
        leftovers.keep_upload();
        assert_eq!(
            leftovers.sentence(StopSignal::Interrupt),
            "interrupted by Ctrl-C; the server keeps the part that it has received: run the same command again to resume"
        );
        leftovers.keep_upload();
        assert_eq!(
            leftovers.sentence(StopSignal::Interrupt),
            "interrupted by Ctrl-C; the server keeps the parts of 2 files that it has received: run the same command again to \
             resume"
        );
        leftovers.forget_upload();
        leftovers.forget_upload();
        assert_eq!(
            leftovers.sentence(StopSignal::Terminate),
            "interrupted by SIGTERM; the upload is not complete"
        );
        leftovers.count();
        assert_eq!(
            leftovers.sentence(StopSignal::Interrupt),
            "interrupted by Ctrl-C; the received part is kept: run the same command again to resume"
        );
        leftovers.count();
        leftovers.set_how_to_resume("run it again with --skip-existing");
        assert_eq!(
            leftovers.sentence(StopSignal::Terminate),
            "interrupted by SIGTERM; the received parts of 2 files are kept: run it again with --skip-existing to resume"
        );
    }
}
