//! The soak: random operations of the library's client, curl and h2load on the library's server and `fullbore serve`, in
//! the clear and over TLS, for as long as is asked. Every byte is checked, nothing may hang, and what the processes hold
//! is read all the while: in the end they must hold what they held at the beginning.
//!
//! `operations` and `programs` hold what is done, `pattern` and `service` the bytes and their server, `watch` the readings.
//! `main` calls `run`; `part` starts the server.

mod operations;
pub(crate) mod pattern;
mod programs;
pub(crate) mod service;
mod watch;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use fullbore::Client;
use fullbore::tls::{Roots, client_config, server_config};
use tokio::runtime::{Handle, Runtime};
use tokio::time::timeout;

use self::operations::{Ground, Operation, Target, make_files};
use self::programs::Program;
use self::watch::{Tasks, Watched};
use crate::dice::Dice;
use crate::fault::Fault;
use crate::part;
use crate::peers::{self, Keys};
use crate::process::{Lines, Running};
use crate::session::Session;

/// What one operation may take: some hundred times what any takes on an idle machine, since this one may not be.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);
/// How long what was closed may take to be gone.
const SETTLE: Duration = Duration::from_secs(30);
/// What a thread of `serve` keeps once it has sent a file by reference: a pipe, and where that is emptied.
const PIPE_DESCRIPTORS: usize = 3;
const START: Duration = Duration::from_secs(10);
/// One operation in so many is another program's: it costs as much as many of the library's.
const PROGRAM_ONCE_IN: u64 = 200;

/// How the servers are soaked.
#[derive(Args, Debug, Clone)]
pub(crate) struct Soak {
    /// For how long
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_080))]
    minutes: u32,
    /// What all choices follow from; by default one that is new each time, and printed
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// How many operations are under way at once
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    workers: u32,
    /// How often a line is printed
    #[arg(long, value_name = "SECS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3_600))]
    every: u32,
}

/// When workers stop.
#[derive(Clone, Copy)]
struct Until {
    time: Instant,
    /// Of each worker.
    operations: u64,
}

/// What the workers have done together.
#[derive(Default)]
struct Tally {
    done: Mutex<BTreeMap<String, u64>>,
    faults: Mutex<Vec<String>>,
    stop: AtomicBool,
}

impl Tally {
    fn count(&self, what: String) {
        *self
            .done
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(what)
            .or_default() += 1;
    }

    fn total(&self) -> u64 {
        self.done
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .sum()
    }

    /// One fault ends the soak: what follows from it is of no interest.
    fn fault(&self, why: String) {
        eprintln!("fullbore-bench: soak: {why}");
        self.faults
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(why);
        self.stop.store(true, Ordering::SeqCst);
    }

    fn faults(&self) -> Vec<String> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Soaks, prints a line a sample and a summary; `false` when anything was wrong.
///
/// # Errors
/// When the servers cannot be had.
pub(crate) fn run(soak: &Soak, session: &Session) -> Result<bool, Fault> {
    let seed = soak.seed.unwrap_or_else(new_seed);
    let keys = peers::keys(session)?;
    let folder = session.folder("soak")?;
    let stored = session.folder("soak/stored")?;
    make_files(&folder).map_err(|error| Fault::File(folder.clone(), error))?;
    let library = LibraryServer::start(session, &keys)?;
    let clear = serve(session, &folder, &stored, None)?;
    let secure = serve(session, &folder, &stored, Some(&keys))?;
    let runtime = runtime()?;
    let targets = vec![
        target(library.clear, false, false),
        target(library.secure, true, false),
        target(clear.2, false, true),
        target(secure.2, true, true),
    ];
    let failed = |why: String| Fault::Failed("the soak".to_owned(), why);
    let ground = ground(&keys, targets, &stored).map_err(failed)?;
    let mut watched = vec![
        Watched::new(
            "client",
            std::process::id(),
            Tasks::Here(runtime.handle().clone()),
        ),
        Watched::new("library server", library.running.id(), Tasks::At(library.tasks)),
        Watched::new("serve", clear.0.id(), Tasks::Untold).map(|serve| {
            serve.keeping(PIPE_DESCRIPTORS * thread::available_parallelism().map_or(1, usize::from))
        }),
        Watched::new("serve, TLS", secure.0.id(), Tasks::Untold),
    ]
    .into_iter()
    .collect::<Result<Vec<_>, _>>()
    .map_err(failed)?;

    println!(
        "soak: {} minutes, seed {seed}, {} workers",
        soak.minutes, soak.workers
    );
    let begun = Instant::now();
    let until = Until {
        time: begun + Duration::from_secs(60 * u64::from(soak.minutes)),
        operations: u64::MAX,
    };
    let tally = Tally::default();
    let handle = runtime.handle().clone();
    thread::scope(|threads| {
        let mut dice = Dice::new(seed);
        for _ in 0..soak.workers {
            let (dice, ground, tally, handle) = (dice.part(), &ground, &tally, handle.clone());
            threads.spawn(move || work(Some(session), ground, &handle, dice, tally, until));
        }
        let every = Duration::from_secs(u64::from(soak.every));
        let mut next = begun + every;
        while Instant::now() < until.time && !tally.stop.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(100));
            if Instant::now() >= next {
                next += every;
                sample(&mut watched, begun.elapsed(), &tally);
            }
        }
    });
    // Its pool ends with it.
    drop(ground);
    settle(&watched, &tally);
    if tally.faults().is_empty() {
        no_upload_is_left(&stored, &tally);
    }
    Ok(summary(&watched, &tally, begun.elapsed(), seed))
}

fn new_seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(1, |since| since.as_nanos() as u64)
}

fn runtime() -> Result<Runtime, Fault> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Fault::Start("a runtime".to_owned(), error))
}

fn target(address: SocketAddr, secure: bool, files: bool) -> Target {
    Target {
        address,
        secure,
        files,
    }
}

fn ground(keys: &Keys, targets: Vec<Target>, stored: &Path) -> Result<Ground, String> {
    let read = |file: &Path| std::fs::read(file).map_err(|error| error.to_string());
    let trusting = client_config(Roots::InsecureAcceptAny).map_err(|error| error.to_string())?;
    let trusting = Arc::new(trusting);
    let keys = server_config(&read(&keys.cert)?, &read(&keys.key)?).map_err(|error| error.to_string())?;
    let client = Client::builder().tls_config(Arc::clone(&trusting)).build();
    Ok(Ground {
        client: client.map_err(|error| error.to_string())?,
        targets,
        stored: stored.to_owned(),
        trusting,
        keys: Arc::new(keys),
    })
}

/// The server on the library, in a process of its own.
struct LibraryServer<'a> {
    running: Running<'a>,
    _lines: Lines,
    clear: SocketAddr,
    secure: SocketAddr,
    tasks: SocketAddr,
}

impl<'a> LibraryServer<'a> {
    fn start(session: &'a Session, keys: &Keys) -> Result<Self, Fault> {
        let mut command = part::command("soak-server")?;
        command.arg("--cert").arg(&keys.cert).arg("--key").arg(&keys.key);
        let (running, lines) = Running::talking(&session.janitor, &mut command)?;
        let address = |prefix: &str| {
            let said = lines.after(prefix, START)?;
            said.parse::<SocketAddr>()
                .map_err(|_| Fault::Output("the soak's server".to_owned(), said))
        };
        let (clear, secure, tasks) = (
            address("clear on ")?,
            address("secure on ")?,
            address("tasks on ")?,
        );
        Ok(Self {
            running,
            clear,
            secure,
            tasks,
            _lines: lines,
        })
    }
}

/// `fullbore serve` of that folder, which stores uploads in another.
fn serve<'a>(
    session: &'a Session,
    folder: &Path,
    stored: &Path,
    keys: Option<&Keys>,
) -> Result<(Running<'a>, Lines, SocketAddr), Fault> {
    let mut command = session.fullbore.command("serve");
    command
        .arg(folder)
        .args(["--listen", "127.0.0.1:0"])
        .arg("--uploads")
        .arg(stored);
    match keys {
        Some(keys) => command.arg("--cert").arg(&keys.cert).arg("--key").arg(&keys.key),
        None => command.arg("--plaintext"),
    };
    let (running, lines) = Running::talking(&session.janitor, &mut command)?;
    let port = crate::fullbore::port(&lines.after("listening on ", START)?)?;
    Ok((running, lines, ([127, 0, 0, 1], port).into()))
}

/// One operation after the other until the end, or until one failed.
fn work(
    session: Option<&Session>,
    ground: &Ground,
    runtime: &Handle,
    mut dice: Dice,
    tally: &Tally,
    until: Until,
) {
    for _ in 0..until.operations {
        if Instant::now() >= until.time || tally.stop.load(Ordering::SeqCst) {
            return;
        }
        let (name, done) = match session.filter(|_| dice.once_in(PROGRAM_ONCE_IN)) {
            Some(session) => {
                let program = Program::draw(&mut dice);
                (
                    format!("{program:?}"),
                    program.run(session, ground, runtime, &mut dice),
                )
            }
            None => {
                let operation = Operation::draw(&mut dice);
                let doing = async { timeout(DEADLINE, operation.run(ground, &mut dice)).await };
                let done = runtime.block_on(doing);
                let done = done.unwrap_or_else(|_| Err(format!("hangs for {} s", DEADLINE.as_secs())));
                (format!("{operation:?}"), done)
            }
        };
        match done {
            Ok(()) => tally.count(name),
            Err(why) => return tally.fault(format!("{name}: {why}")),
        }
    }
}

fn sample(watched: &mut [Watched], at: Duration, tally: &Tally) {
    let mut line = format!("{:>6.0} s: {} operations", at.as_secs_f64(), tally.total());
    for one in watched {
        match one.sample(at) {
            Ok(reading) => line.push_str(&format!("; {} {reading}", one.name)),
            Err(why) => return tally.fault(why),
        }
    }
    println!("{line}");
}

/// Waits until every process holds what it held at the beginning.
fn settle(watched: &[Watched], tally: &Tally) {
    let until = Instant::now() + SETTLE;
    for one in watched {
        loop {
            match one.returned() {
                Ok(()) => break,
                Err(why) if Instant::now() > until => {
                    tally.fault(format!("{} s after all was closed {why}", SETTLE.as_secs()));
                    break;
                }
                Err(_) => thread::sleep(Duration::from_millis(50)),
            }
        }
    }
}

/// What was stored was removed, and what was given up is not there, neither under its name nor under another; what came
/// whole before it could be given up is.
fn no_upload_is_left(stored: &Path, tally: &Tally) {
    let entries = match std::fs::read_dir(stored) {
        Ok(entries) => entries,
        Err(error) => return tally.fault(format!("{}: {error}", stored.display())),
    };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Err(why) = came_whole(&name, &entry.path()) {
            tally.fault(format!("in the folder of uploads, {name}: {why}"));
        }
    }
}

fn came_whole(name: &str, file: &Path) -> Result<(), String> {
    let mut words = name.split('-');
    let numbers = match words.next() {
        Some("whole") => words.map(str::parse::<u64>).collect::<Result<Vec<_>, _>>().ok(),
        _ => None,
    };
    match numbers.as_deref() {
        Some([salt, length]) => {
            let bytes = std::fs::read(file).map_err(|error| error.to_string())?;
            if bytes == pattern::bytes(*salt, *length) {
                Ok(())
            } else {
                Err(format!("{} bytes of an upload of {length}", bytes.len()))
            }
        }
        _ => Err("it should not be there".to_owned()),
    }
}

fn summary(watched: &[Watched], tally: &Tally, took: Duration, seed: u64) -> bool {
    for one in watched {
        match one.memory_is_flat() {
            Ok(text) => println!("{text}"),
            Err(why) => tally.fault(why),
        }
    }
    let faults = tally.faults();
    let done = tally.done.lock().unwrap_or_else(PoisonError::into_inner);
    let kinds: Vec<String> = done
        .iter()
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    println!("{}", kinds.join(", "));
    drop(done);
    println!(
        "soak: {} operations in {:.1} minutes, seed {seed}: {}",
        tally.total(),
        took.as_secs_f64() / 60.0,
        match faults.as_slice() {
            [] => "no fault; descriptors and tasks are what they were at the beginning, the pipes of serve's threads apart"
                .to_owned(),
            faults => format!("{} faults", faults.len()),
        }
    );
    faults.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_soak_of_the_library_finds_nothing_and_keeps_no_task() {
        let runtime = runtime().expect("a runtime");
        let made = fullbore::tls::self_signed(&["localhost", "127.0.0.1"]).expect("a certificate");
        let tls = server_config(made.cert_pem.as_bytes(), made.key_pem.as_bytes()).expect("keys");
        let tls = Arc::new(tls);
        let targets = runtime.block_on(async {
            let mut targets = Vec::new();
            for secure in [false, true] {
                let server = fullbore::Server::bind("127.0.0.1:0").await.expect("a port");
                targets.push(target(server.local_addr().expect("it listens"), secure, false));
                let server = if secure {
                    server.tls_config(Arc::clone(&tls))
                } else {
                    server
                };
                tokio::spawn(server.serve(tower::service_fn(service::answer)));
            }
            targets
        });
        let trusting = Arc::new(client_config(Roots::InsecureAcceptAny).expect("a configuration"));
        let client = Client::builder().tls_config(Arc::clone(&trusting)).build();
        let ground = Ground {
            client: client.expect("a client"),
            targets,
            stored: std::env::temp_dir(),
            trusting,
            keys: tls,
        };
        let begun = runtime.metrics().num_alive_tasks();
        let tally = Tally::default();
        let until = Until {
            time: Instant::now() + Duration::from_secs(600),
            operations: 40,
        };
        thread::scope(|threads| {
            let mut dice = Dice::new(7);
            for _ in 0..4 {
                let (dice, ground, tally, handle) = (dice.part(), &ground, &tally, runtime.handle());
                threads.spawn(move || work(None, ground, handle, dice, tally, until));
            }
        });
        assert_eq!(tally.faults(), Vec::<String>::new());
        assert_eq!(tally.total(), 160);
        drop(ground);
        let until = Instant::now() + SETTLE;
        while runtime.metrics().num_alive_tasks() > begun {
            assert!(Instant::now() < until, "a task lives on");
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn an_upload_that_is_cut_or_not_to_be_there_is_found() {
        let folder = std::env::temp_dir().join(format!("fullbore-bench-test-whole-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the folder is new");
        let write = |name: &str, length| {
            let file = folder.join(name);
            std::fs::write(&file, pattern::bytes(5, length)).expect("there is room");
            came_whole(name, &file)
        };
        assert_eq!(write("whole-5-1000", 1_000), Ok(()));
        assert!(write("whole-5-1001", 1_000).is_err());
        assert!(write(".whole-5-1000.0123.part", 1_000).is_err());
        std::fs::remove_dir_all(&folder).expect("it is this test's");
    }
}
