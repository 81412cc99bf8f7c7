//! Starts programs, waits for them within a limit, and ends them by their id. Knows no program by name.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::sys::time::TimeValLike;
use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;

use crate::error::Error;

/// Servers start at once, except under valgrind.
const LONGEST_START: Duration = Duration::from_secs(20);
/// How long a program may take to end after SIGTERM.
const LAST_LINES: Duration = Duration::from_secs(10);

/// What a program printed, and how long it ran.
pub(crate) struct Output {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) wall: Duration,
    /// Its processor time, the kernel's work for it included.
    pub(crate) cpu: Duration,
}

impl Output {
    /// The figures that it printed, in order; words are passed over.
    pub(crate) fn figures(&self) -> Vec<f64> {
        let words = self.stdout.split_whitespace();
        words.filter_map(|word| word.parse().ok()).collect()
    }
}

/// Runs a program to its end.
///
/// # Errors
/// When it does not start, does not end within `limit` (it is killed then) or ends with a failure.
pub(crate) fn run(reaper: &Reaper, command: &mut Command, limit: Duration) -> Result<Output, Error> {
    let name = name_of(command);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let cpu_before = cpu_of_children();
    let started = Instant::now();
    let mut running = Running::start(reaper, command)?;
    let stdout = running
        .child
        .stdout
        .take()
        .map(|pipe| thread::spawn(move || read_all(pipe)));
    let stderr = running
        .child
        .stderr
        .take()
        .map(|pipe| thread::spawn(move || read_all(pipe)));
    let status = running.wait_until(started + limit);
    let wall = started.elapsed();
    drop(running);
    // No other child ends meanwhile: programs are measured one at a time.
    let cpu = cpu_of_children().saturating_sub(cpu_before);
    let [stdout, stderr] = [stdout, stderr].map(|reader| reader.and_then(|reader| reader.join().ok()));
    let output = Output {
        stdout: stdout.unwrap_or_default(),
        stderr: stderr.unwrap_or_default(),
        wall,
        cpu,
    };
    match status {
        None => Err(Error::Slow(name, limit)),
        Some(status) if status.success() => Ok(output),
        Some(status) => Err(Error::Failed(name, format!("{status}; {}", last_line(&output)))),
    }
}

/// What all children that were waited for had of the processors.
fn cpu_of_children() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN);
    usage.map_or(Duration::ZERO, |usage| {
        [usage.user_time(), usage.system_time()]
            .iter()
            .map(|time| Duration::from_micros(u64::try_from(time.num_microseconds()).unwrap_or(0)))
            .sum()
    })
}

/// Starts and waits for programs on one core: what `start` starts runs there to its end, this thread only meanwhile.
///
/// # Errors
/// When there is no such core for this process, and whatever `start` returns.
pub(crate) fn on_core<T>(core: usize, start: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    on_cores(&[core], start)
}

/// The same on several cores.
pub(crate) fn on_cores<T>(cores: &[usize], start: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    let this = Pid::from_raw(0);
    let to_error = |error: nix::Error| Error::Start(format!("a program on cores {cores:?}"), error.into());
    let before = sched_getaffinity(this).map_err(to_error)?;
    let mut only = CpuSet::new();
    cores
        .iter()
        .try_for_each(|&core| only.set(core))
        .map_err(to_error)?;
    sched_setaffinity(this, &only).map_err(to_error)?;
    let done = start();
    sched_setaffinity(this, &before).map_err(to_error)?;
    done
}

/// Lets this process and its children have as many sockets open as the system allows at all.
pub(crate) fn raise_open_files() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, most)| setrlimit(Resource::RLIMIT_NOFILE, most, most));
    if let Err(why) = raised {
        eprintln!("fullbore-bench: the number of open files stays as it is: {why}");
    }
}

fn read_all(mut pipe: impl Read) -> String {
    let mut bytes = Vec::new();
    // What was read before an error is still worth showing.
    let _ = pipe.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn last_line(output: &Output) -> String {
    let text = if output.stderr.trim().is_empty() {
        &output.stdout
    } else {
        &output.stderr
    };
    let line = text
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .unwrap_or("it printed nothing");
    line.trim().chars().take(300).collect()
}

fn name_of(command: &Command) -> String {
    Path::new(command.get_program())
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// A program that runs beside this one until it is dropped: then it is killed, by its id, and waited for.
pub(crate) struct Running<'a> {
    name: String,
    child: Child,
    reaper: &'a Reaper,
}

impl<'a> Running<'a> {
    fn start(reaper: &'a Reaper, command: &mut Command) -> Result<Self, Error> {
        let name = name_of(command);
        let child = command.spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Error::Missing(name.clone()),
            _ => Error::Start(name.clone(), error),
        })?;
        reaper.add(child.id());
        Ok(Self { name, child, reaper })
    }

    /// Starts a server that says nothing; it must take connections at `port` of 127.0.0.1 within `LONGEST_START`.
    pub(crate) fn listening(reaper: &'a Reaper, command: &mut Command, port: u16) -> Result<Self, Error> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut running = Self::start(reaper, command)?;
        let until = Instant::now() + LONGEST_START;
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            if let Ok(Some(status)) = running.child.try_wait() {
                return Err(Error::Failed(running.name.clone(), status.to_string()));
            }
            if Instant::now() > until {
                return Err(Error::Slow(running.name.clone(), LONGEST_START));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(running)
    }

    /// Starts a program whose standard output is read line by line.
    pub(crate) fn with_lines(reaper: &'a Reaper, command: &mut Command) -> Result<(Self, Lines), Error> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut running = Self::start(reaper, command)?;
        let (to, lines) = channel();
        if let Some(pipe) = running.child.stdout.take() {
            thread::spawn(move || {
                for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                    if to.send(line).is_err() {
                        return;
                    }
                }
            });
        }
        let name = running.name.clone();
        Ok((running, Lines { name, lines }))
    }

    /// What it has had of the processors since it began, to the nanosecond: all its threads, their own work and the
    /// kernel's for them. Not its children's.
    pub(crate) fn cpu(&self) -> Result<Duration, Error> {
        let id = i32::try_from(self.child.id()).unwrap_or(0);
        let now = clock_getcpuclockid(Pid::from_raw(id)).and_then(|clock| clock.now());
        now.map(Duration::from)
            .map_err(|error| Error::Failed(self.name.clone(), format!("its processor time: {error}")))
    }

    /// The process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// How many files and sockets it has open.
    pub(crate) fn open_files(&self) -> u64 {
        let open = std::fs::read_dir(format!("/proc/{}/fd", self.child.id()));
        open.map_or(0, |open| open.count() as u64)
    }

    /// How many bytes of memory it has now (`VmRSS`), while it runs.
    pub(crate) fn memory(&self) -> Option<u64> {
        self.memory_field("VmRSS:")
    }

    /// How many it had at the most (`VmHWM`), while it runs.
    pub(crate) fn peak_memory(&self) -> Option<u64> {
        self.memory_field("VmHWM:")
    }

    fn memory_field(&self, name: &str) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
        Some(kib << 10)
    }

    /// Asks the program to end (SIGTERM) and waits a moment; its last lines can be read then.
    pub(crate) fn terminate(mut self) {
        let id = i32::try_from(self.child.id()).unwrap_or(0);
        if kill(Pid::from_raw(id), Signal::SIGTERM).is_ok() {
            self.wait_until(Instant::now() + LAST_LINES);
        }
    }

    /// How it ended; `None` if it has not.
    fn wait_until(&mut self, deadline: Instant) -> Option<ExitStatus> {
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(1)),
                Ok(None) | Err(_) => return None,
            }
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // Of a child that was waited for, std knows that its id may be another's by now, and sends nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.reaper.remove(self.child.id());
    }
}

/// The lines that a running program prints.
pub(crate) struct Lines {
    name: String,
    lines: Receiver<String>,
}

impl Lines {
    /// The rest of the first line that begins with `prefix`.
    pub(crate) fn after(&self, prefix: &str, limit: Duration) -> Result<String, Error> {
        let until = Instant::now() + limit;
        let mut seen = VecDeque::new();
        loop {
            match self
                .lines
                .recv_timeout(until.saturating_duration_since(Instant::now()))
            {
                Ok(line) => match line.strip_prefix(prefix) {
                    Some(rest) => return Ok(rest.trim().to_owned()),
                    None => seen.push_back(line),
                },
                Err(RecvTimeoutError::Timeout) => return Err(Error::Slow(self.name.clone(), limit)),
                Err(RecvTimeoutError::Disconnected) => {
                    let last = seen.pop_back().unwrap_or_else(|| "it printed nothing".to_owned());
                    return Err(Error::Failed(
                        self.name.clone(),
                        format!("no line `{prefix}`; {last}"),
                    ));
                }
            }
        }
    }

    /// The next line, if one comes in time.
    pub(crate) fn next(&self, limit: Duration) -> Option<String> {
        self.lines.recv_timeout(limit).ok()
    }
}

/// Ends what is still running and removes the folder of a bench that was killed before it could do so itself: a shell
/// that waits for the end of its standard input, which comes with the end of this process, however it ends.
pub(crate) struct Reaper {
    child: Child,
    told: Mutex<Option<ChildStdin>>,
}

/// `$1` is the folder. A line `+ ID` names a process, a line `- ID` one that has ended.
const REAPER: &str = r#"trap '' INT TERM HUP
live=
while read -r sign id; do
  case $sign in
    +) live="$live $id" ;;
    -) rest=; for one in $live; do [ "$one" = "$id" ] || rest="$rest $one"; done; live=$rest ;;
  esac
done
for one in $live; do kill -KILL "$one" 2>/dev/null; done
rm -rf -- "$1"
"#;

impl Reaper {
    /// Starts it for this folder.
    pub(crate) fn start(folder: &Path) -> Result<Self, Error> {
        let mut command = Command::new("sh");
        command.args(["-c", REAPER, "reaper"]).arg(folder);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut child = command
            .spawn()
            .map_err(|error| Error::Start("sh".to_owned(), error))?;
        let told = Mutex::new(child.stdin.take());
        Ok(Self { child, told })
    }

    /// Ends this process too.
    pub(crate) fn add(&self, id: u32) {
        self.tell('+', id);
    }

    /// Knows that it has ended.
    pub(crate) fn remove(&self, id: u32) {
        self.tell('-', id);
    }

    fn tell(&self, sign: char, id: u32) {
        if let Ok(mut told) = self.told.lock() {
            if let Some(pipe) = told.as_mut() {
                // Without the reaper this program still ends its processes itself.
                let _ = writeln!(pipe, "{sign} {id}");
            }
        }
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        if let Ok(mut told) = self.told.lock() {
            told.take();
        }
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reaper(name: &str) -> (Reaper, std::path::PathBuf) {
        let folder = std::env::temp_dir().join(format!("fullbore-bench-test-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the folder is new");
        (Reaper::start(&folder).expect("there is a shell"), folder)
    }

    #[test]
    fn the_janitor_removes_the_folder_and_ends_what_it_knows() {
        let (hired, folder) = reaper("removes");
        let mut child = Command::new("sleep")
            .arg("600")
            .spawn()
            .expect("there is a sleep");
        hired.add(child.id());
        drop(hired);
        assert!(!folder.exists());
        assert!(!child.wait().expect("it is a child").success());
    }

    #[test]
    fn a_failure_carries_the_last_line() {
        let (hired, _folder) = reaper("words");
        let mut command = Command::new("sh");
        command.args(["-c", "echo first; echo last words >&2; exit 3"]);
        match run(&hired, &mut command, Duration::from_secs(60)) {
            Err(Error::Failed(name, why)) => {
                assert!(name == "sh" && why.contains("last words"), "{name}: {why}")
            }
            _ => panic!("exit code 3 is a failure"),
        }
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let (hired, _folder) = reaper("missing");
        let missing = run(
            &hired,
            &mut Command::new("fullbore-bench-no-such-program"),
            Duration::from_secs(60),
        );
        assert!(matches!(missing, Err(Error::Missing(name)) if name == "fullbore-bench-no-such-program"));
    }

    #[test]
    fn a_program_that_does_not_end_is_ended() {
        let (hired, _folder) = reaper("slow");
        let slow = run(
            &hired,
            Command::new("sleep").arg("600"),
            Duration::from_millis(20),
        );
        assert!(matches!(slow, Err(Error::Slow(..))));
    }
}
