//! What the tests of the program share: running it, and peers that misbehave in scripted ways.
//!
//! Each test file takes what it needs.
#![allow(dead_code)]

pub(crate) mod frames;
pub(crate) mod http1;
pub(crate) mod peer;
pub(crate) mod scripted;
#[cfg(target_os = "linux")]
pub(crate) mod terminal;
pub(crate) mod uploads;

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) type TestResult<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// Nothing that a test waits for takes so long, on a busy machine either.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Waits for something that another process or thread does.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> TestResult<bool>) -> TestResult {
    let begun = Instant::now();
    while !done()? {
        if begun.elapsed() > PATIENCE {
            return Err(format!("never: {what}").into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Tries with limits on time of a second, and with longer ones if that fails: on a busy machine the other side may take longer
/// than a short limit for its part.
pub(crate) fn patiently(trial: impl Fn(u32) -> TestResult) -> TestResult {
    for seconds in [1, 6] {
        let tried = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| trial(seconds)));
        if matches!(tried, Ok(Ok(()))) {
            return Ok(());
        }
    }
    trial(30)
}

/// Another cause was named than the one that was staged.
#[derive(Debug)]
pub(crate) struct OtherCause(pub(crate) String);

impl std::fmt::Display for OtherCause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OtherCause {}

/// Tries again, for a while, after [`OtherCause`]: a transfer on a busy machine waits for the machine, and rightly says so.
pub(crate) fn measured(trial: impl Fn() -> TestResult) -> TestResult {
    let begun = Instant::now();
    loop {
        match trial() {
            Err(error) if error.is::<OtherCause>() && begun.elapsed() < PATIENCE => {}
            ended => return ended,
        }
    }
}

/// How one run of the program ended.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl std::fmt::Debug for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A body of a megabyte would bury the rest.
        let shown = &self.stdout[..self.stdout.len().min(400)];
        f.debug_struct("Ended")
            .field("code", &self.code)
            .field("stdout_length", &self.stdout.len())
            .field("stdout", &String::from_utf8_lossy(shown))
            .field("stderr", &self.stderr)
            .finish()
    }
}

impl Ended {
    /// Asserts the exit code, and that standard error holds one sentence and nothing else, but for what the server says.
    #[track_caller]
    pub(crate) fn failed_with(&self, code: i32) {
        assert_eq!(self.code, Some(code), "{self:?}");
        let of_server = |line: &&str| line.starts_with("fullbore: the server says: ");
        let lines: Vec<&str> = self.stderr.lines().filter(|line| !of_server(line)).collect();
        assert!(
            matches!(lines.as_slice(), [line] if line.starts_with("fullbore: ") && line.len() > 30),
            "not one sentence: {self:?}"
        );
    }

    /// The closing line, which `-v` prints without a terminal too.
    pub(crate) fn summary(&self) -> &str {
        let is_summary = |line: &&str| line.contains(" bytes in ") && line.contains(" MB/s");
        self.stderr.lines().find(is_summary).unwrap_or_default()
    }

    #[track_caller]
    pub(crate) fn succeeded(&self) {
        assert_eq!(self.code, Some(0), "{self:?}");
    }
}

/// The program, to be run in `folder`. It keeps its state in the build's folder, and not in the user's, and obeys no variable
/// of the one who runs the tests.
pub(crate) fn program(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fullbore"));
    command
        .current_dir(folder)
        .stdin(Stdio::null())
        .env("XDG_STATE_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/state"))
        .env_remove("RUST_LOG")
        .env_remove("SSLKEYLOGFILE");
    without_proxies(&mut command);
    command
}

/// Takes the proxies of this machine out of a program's environment.
pub(crate) fn without_proxies(command: &mut Command) {
    for name in ["http_proxy", "https_proxy", "all_proxy", "no_proxy"] {
        command.env_remove(name).env_remove(name.to_uppercase());
    }
}

/// Runs the program in `folder` to its end.
pub(crate) fn run<A: AsRef<OsStr>>(folder: &Path, args: impl IntoIterator<Item = A>) -> TestResult<Ended> {
    ended(program(folder).args(args))
}

/// Runs a command to its end.
pub(crate) fn ended(command: &mut Command) -> TestResult<Ended> {
    let output = command.output()?;
    Ok(Ended {
        code: output.status.code(),
        stdout: output.stdout,
        stderr: String::from_utf8(output.stderr)?,
    })
}

/// What a program is told from outside.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Signal {
    Hangup,
    Interrupt,
    Kill,
    Terminate,
}

impl Signal {
    /// The exit code of a client that it stops: 128 and its number.
    pub(crate) fn exit_code(self) -> Option<i32> {
        match self {
            Signal::Interrupt => Some(130),
            Signal::Terminate => Some(143),
            Signal::Hangup | Signal::Kill => None,
        }
    }
}

/// Signals a child that has not been waited for, without a program for it: not every machine has `kill`.
#[cfg(unix)]
pub(crate) fn signal(child: &Child, signal: Signal) -> TestResult {
    use rustix::process::{Pid, Signal as System, kill_process};
    let signal = match signal {
        Signal::Hangup => System::HUP,
        Signal::Interrupt => System::INT,
        Signal::Kill => System::KILL,
        Signal::Terminate => System::TERM,
    };
    Ok(kill_process(Pid::from_child(child), signal)?)
}

#[cfg(not(unix))]
pub(crate) fn signal(_: &Child, signal: Signal) -> TestResult {
    Err(format!("no {signal:?} on this system").into())
}

/// The names in a folder, sorted.
pub(crate) fn names(folder: &Path) -> TestResult<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// `fullbore serve` on a free port; ended when it is dropped.
pub(crate) struct Serving {
    pub(crate) child: Child,
    pub(crate) origin: String,
    /// What it prints after the first line.
    lines: BufReader<ChildStdout>,
}

impl Serving {
    pub(crate) fn start(folder: &Path, args: &[&str]) -> TestResult<Self> {
        Self::spawn(program(folder).arg("serve").args(args))
    }

    /// The same in a process that may have only so many descriptors.
    #[cfg(unix)]
    pub(crate) fn start_within(descriptors: u32, folder: &Path, args: &[&str]) -> TestResult<Self> {
        let mut shell = Command::new("sh");
        shell
            .current_dir(folder)
            .stdin(Stdio::null())
            .args(["-c", "ulimit -n $0 && exec \"$@\"", &descriptors.to_string()])
            .args([env!("CARGO_BIN_EXE_fullbore"), "serve"])
            .args(args);
        Self::spawn(&mut shell)
    }

    pub(crate) fn spawn(command: &mut Command) -> TestResult<Self> {
        let mut child = command
            .args(["--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let mut lines = BufReader::new(child.stdout.take().ok_or("no output")?);
        lines.read_line(&mut line)?;
        let origin = line.trim().strip_prefix("listening on ").map(ToOwned::to_owned);
        match origin {
            Some(origin) => Ok(Self { child, origin, lines }),
            None => {
                let _ = child.kill();
                let _ = child.wait();
                Err(format!("serve printed {line:?}").into())
            }
        }
    }
}

impl Serving {
    /// The next line of standard output, with `--log` that of a request.
    pub(crate) fn line(&mut self) -> TestResult<String> {
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `fullbore link` in front of an origin; ended when it is dropped.
pub(crate) struct Linked {
    child: Child,
    pub(crate) origin: String,
}

impl Linked {
    pub(crate) fn start(origin: &str, options: &[&str]) -> TestResult<Self> {
        let to = origin.strip_prefix("http://").ok_or("no origin in cleartext")?;
        let mut child = program(Path::new("."))
            .args(["link", "--to", to])
            .args(options)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let address = line.trim().strip_prefix("listening on ");
        let linked = Self {
            child,
            origin: format!("http://{}", address.unwrap_or_default()),
        };
        match address {
            Some(_) => Ok(linked),
            None => Err(format!("link printed {line:?}").into()),
        }
    }
}

impl Drop for Linked {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
