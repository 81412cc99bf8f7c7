//! Child processes: servers that run until they are dropped, and programs that run to their end. Nothing outlives its
//! owner: a [`Daemon`] is killed by its id when dropped, and a program that passes its deadline is killed and reported.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long anything may take before it counts as hung. It is no measure of speed: a machine that others use too may take many
/// times the half minute of the slowest trials.
pub const DEADLINE: Duration = Duration::from_secs(600);

const POLL: Duration = Duration::from_millis(5);
const STDERR_LINES_KEPT: usize = 40;

/// Why a trial failed, in words.
#[derive(Debug, Clone)]
pub struct Fault(String);

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Fault {}

impl From<String> for Fault {
    fn from(text: String) -> Self {
        Fault(text)
    }
}

impl From<&str> for Fault {
    fn from(text: &str) -> Self {
        Fault(text.to_owned())
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Fault(error.to_string())
    }
}

/// What every step of a trial returns.
pub type Outcome<T = ()> = Result<T, Fault>;

/// Fails with `message` unless `condition` holds.
pub fn ensure(condition: bool, message: impl FnOnce() -> String) -> Outcome {
    if condition { Ok(()) } else { Err(Fault(message())) }
}

/// Starts `command` with its output captured. Returns its name too.
fn start(command: &mut Command) -> Outcome<(String, Child)> {
    let name = program(command);
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| Fault(format!("cannot start {name}: {error}")))?;
    Ok((name, child))
}

/// A server in the background, killed when dropped.
pub struct Daemon {
    name: String,
    child: Child,
    stdout: Arc<Lines>,
    stderr: Arc<Mutex<VecDeque<String>>>,
}

impl Daemon {
    /// Starts `command` with its output captured.
    pub fn spawn(command: &mut Command) -> Outcome<Daemon> {
        let (name, mut child) = start(command)?;
        let stdout = Arc::new(Lines::default());
        if let Some(pipe) = child.stdout.take() {
            let lines = Arc::clone(&stdout);
            thread::spawn(move || lines.read_from(pipe));
        }
        let stderr = Arc::new(Mutex::new(VecDeque::new()));
        if let Some(pipe) = child.stderr.take() {
            let kept = Arc::clone(&stderr);
            thread::spawn(move || keep_tail(pipe, &kept));
        }
        Ok(Daemon {
            name,
            child,
            stdout,
            stderr,
        })
    }

    /// Waits for a line of standard output that starts with `prefix`, and returns what follows it.
    pub fn wait_line(&mut self, prefix: &str) -> Outcome<String> {
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Some(rest) = self.stdout.find(prefix, POLL) {
                return Ok(rest);
            }
            self.check_alive()?;
            if Instant::now() > deadline {
                return Err(Fault(format!(
                    "{} never printed {prefix:?}\n{}",
                    self.name,
                    self.stderr_tail()
                )));
            }
        }
    }

    /// Waits until `port` of 127.0.0.1 takes connections.
    pub fn wait_port(&mut self, port: u16) -> Outcome {
        let deadline = Instant::now() + DEADLINE;
        loop {
            self.check_alive()?;
            if TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).is_ok() {
                // A port that another process took meanwhile also answers; our child then dies of the clash.
                thread::sleep(POLL);
                return self.check_alive();
            }
            if Instant::now() > deadline {
                return Err(Fault(format!(
                    "{} never listened on {port}\n{}",
                    self.name,
                    self.stderr_tail()
                )));
            }
            thread::sleep(POLL);
        }
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The lines of standard output that came since this was last called.
    pub fn take_lines(&self) -> Vec<String> {
        lock(&self.stdout.seen).drain(..).collect()
    }

    /// How the process ended, if it has.
    pub fn try_wait(&mut self) -> Outcome<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Kills the process (SIGKILL) and waits for it.
    pub fn kill(&mut self) {
        // Both fail only when the process is gone already, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// The most memory that the process ever held, in bytes, or `None` where the system does not tell.
    pub fn peak_rss_bytes(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
        Some(kib * 1024)
    }

    /// Asks the process to end (SIGTERM).
    pub fn terminate(&self) -> Outcome {
        // The shell's own `kill`: the program of that name is not everywhere.
        let mut shell = Command::new("sh");
        run_text(
            shell
                .args(["-c", "kill -TERM \"$1\"", "sh"])
                .arg(self.child.id().to_string()),
        )
        .map(drop)
    }

    /// Waits for the process to end by itself.
    pub fn wait(&mut self) -> Outcome<ExitStatus> {
        wait_until(&mut self.child, DEADLINE)?.ok_or_else(|| {
            Fault(format!(
                "{} did not end when asked to\n{}",
                self.name,
                self.stderr_tail()
            ))
        })
    }

    /// The last lines that the process wrote to standard error, for a failed trial's message.
    pub fn stderr_tail(&self) -> String {
        let lines: Vec<String> = lock(&self.stderr).iter().cloned().collect();
        lines.join("\n")
    }

    /// Fails when the process ended by itself.
    pub fn check_alive(&mut self) -> Outcome {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => Err(Fault(format!(
                "{} ended early: {status}\n{}",
                self.name,
                self.stderr_tail()
            ))),
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs `command` to its end and returns its standard output; anything but success is a fault with its standard error.
pub fn run_text(command: &mut Command) -> Outcome<String> {
    let (bytes, _) = run_into(command, Vec::new(), DEADLINE)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// As [`run_text`], but hands standard output to `sink` as it comes, and also returns standard error.
pub fn run_into<W>(command: &mut Command, sink: W, limit: Duration) -> Outcome<(W, String)>
where
    W: Write + Send + 'static,
{
    let name = program(command);
    let (status, sink, stderr) = run_any(command, sink, limit)?;
    if status.success() {
        return Ok((sink, stderr));
    }
    Err(Fault(format!("{name}: {status}\n{}", tail_of(&stderr))))
}

/// As [`run_into`], but leaves it to the caller what the exit status means.
pub fn run_any<W>(command: &mut Command, sink: W, limit: Duration) -> Outcome<(ExitStatus, W, String)>
where
    W: Write + Send + 'static,
{
    let (name, mut child) = start(command)?;
    let stdout = child.stdout.take().map(|pipe| copy_in_thread(pipe, sink));
    let stderr = child.stderr.take().map(|pipe| copy_in_thread(pipe, Vec::new()));
    let ended = wait_until(&mut child, limit)?;
    if ended.is_none() {
        let _ = child.kill();
        let _ = child.wait();
    }
    let sink = join(stdout, &name)?;
    let stderr = String::from_utf8_lossy(&join(stderr, &name)?).into_owned();
    match ended {
        Some(status) => Ok((status, sink, stderr)),
        None => Err(Fault(format!(
            "{name} hung for {} s\n{}",
            limit.as_secs(),
            tail_of(&stderr)
        ))),
    }
}

/// Starts a server that cannot choose a port itself: `command` is called with a port that was free a moment before, and
/// again with another one when the server lost it to someone else.
pub fn spawn_on_free_port(mut command: impl FnMut(u16) -> Outcome<Command>) -> Outcome<(Daemon, u16)> {
    let mut last = Fault::from("no port tried");
    for _ in 0..5 {
        let port = free_port()?;
        let mut daemon = Daemon::spawn(&mut command(port)?)?;
        match daemon.wait_port(port) {
            Ok(()) => return Ok((daemon, port)),
            Err(fault) => last = fault,
        }
    }
    Err(last)
}

/// A port of 127.0.0.1 that nobody listens on, from below the range from which the kernel takes ports: nobody else is given
/// it before it is used, or between two uses.
pub fn free_port() -> Outcome<u16> {
    const FIRST: u16 = 20_000;
    const COUNT: u16 = 12_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Two runs of the suite at once start at different places.
    let offset = (std::process::id() % u32::from(COUNT)) as u16;
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
        let port = FIRST + (offset + step) % COUNT;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    Err(Fault::from("no free port"))
}

/// Lines of a process's standard output, as they come.
#[derive(Default)]
struct Lines {
    seen: Mutex<VecDeque<String>>,
    changed: Condvar,
}

impl Lines {
    fn read_from(&self, pipe: impl Read) {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            lock(&self.seen).push_back(line);
            self.changed.notify_all();
        }
    }

    /// Takes the first line with `prefix`, waiting at most `patience` for it.
    fn find(&self, prefix: &str, patience: Duration) -> Option<String> {
        let take = |lines: &mut VecDeque<String>| {
            let at = lines.iter().position(|line| line.starts_with(prefix))?;
            lines.remove(at).map(|line| line[prefix.len()..].to_owned())
        };
        let mut lines = lock(&self.seen);
        if let Some(found) = take(&mut lines) {
            return Some(found);
        }
        let (mut lines, _) = self
            .changed
            .wait_timeout(lines, patience)
            .unwrap_or_else(PoisonError::into_inner);
        take(&mut lines)
    }
}

fn keep_tail(pipe: impl Read, kept: &Mutex<VecDeque<String>>) {
    for line in BufReader::new(pipe).lines().map_while(Result::ok) {
        let mut kept = lock(kept);
        if kept.len() == STDERR_LINES_KEPT {
            kept.pop_front();
        }
        kept.push_back(line);
    }
}

fn wait_until(child: &mut Child, limit: Duration) -> Outcome<Option<ExitStatus>> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() > deadline {
            return Ok(None);
        }
        thread::sleep(POLL);
    }
}

fn copy_in_thread<R, W>(mut from: R, mut to: W) -> JoinHandle<io::Result<W>>
where
    R: Read + Send + 'static,
    W: Write + Send + 'static,
{
    thread::spawn(move || {
        // io::copy's 8 KiB would make a gigabyte 131,072 turns.
        let mut chunk = vec![0; 256 * 1024];
        loop {
            match from.read(&mut chunk)? {
                0 => return Ok(to),
                count => to.write_all(&chunk[..count])?,
            }
        }
    })
}

fn join<W>(handle: Option<JoinHandle<io::Result<W>>>, name: &str) -> Outcome<W> {
    let handle = handle.ok_or_else(|| Fault(format!("{name} has no pipe")))?;
    let result = handle
        .join()
        .map_err(|_| Fault(format!("the reader of {name} panicked")))?;
    Ok(result?)
}

fn program(command: &Command) -> String {
    let path = Path::new(command.get_program());
    path.file_name().map_or_else(
        || path.display().to_string(),
        |name| name.to_string_lossy().into_owned(),
    )
}

fn tail_of(stderr: &str) -> String {
    let lines: Vec<&str> = stderr.lines().collect();
    lines[lines.len().saturating_sub(STDERR_LINES_KEPT)..].join("\n")
}

/// A trial that panicked while it held a lock has failed already; the others go on.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
