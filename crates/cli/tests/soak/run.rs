//! The soak: random operations of the library's client, curl and h2load against servers on the library and `fullbore serve`,
//! cleartext and TLS. Every byte is checked, nothing may hang, and in the end no process holds more than at the start.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fullbore::tls::{Roots, client_config, self_signed, server_config};
use fullbore::{Client, Server};
use fullbore_testing::pattern;
use fullbore_testing::process::{Daemon, lock};
use fullbore_testing::random::Random;
use tokio::runtime::{Handle, Runtime};
use tokio::time::timeout;

use crate::operations::{FILES, Operation, Shared, Target};
use crate::programs::Program;
use crate::support::program;
use crate::watch::Watched;
use crate::{Outcome, service, variable};

/// The most that one operation may take: a hundred times what it takes on an idle machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);
/// How long after the end everything may take to close.
const SETTLE: Duration = Duration::from_secs(120);
/// What a thread of `serve` keeps after it has sent a file by reference: a pipe, and the sink that empties it.
const PIPE_DESCRIPTORS: usize = 3;
const WORKERS: usize = 8;
const SAMPLE_EVERY: Duration = Duration::from_secs(10);
/// One operation in so many is another program's, which costs as much as many of the library's.
const PROGRAM_ONCE_IN: u64 = 200;

/// When workers stop: at a time, or after so many operations each.
#[derive(Clone, Copy)]
struct Until {
    time: Instant,
    operations: u64,
}

/// What the workers have done together.
#[derive(Default)]
struct Tally {
    done: Mutex<BTreeMap<String, u64>>,
    errors: Mutex<Vec<String>>,
    stop: AtomicBool,
}

impl Tally {
    fn total(&self) -> u64 {
        lock(&self.done).values().sum()
    }

    /// One error ends the soak: what follows from it is of no interest.
    fn check(&self, what: &str, result: Outcome) {
        if let Err(error) = result {
            eprintln!("{what}: {error}");
            lock(&self.errors).push(format!("{what}: {error}"));
            self.stop.store(true, Ordering::SeqCst);
        }
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}

fn runtime() -> Outcome<Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?)
}

/// The tasks of the library's two servers, and on Linux the alarms of each.
const SERVER_TASKS: usize = if cfg!(target_os = "linux") { 4 } else { 2 };

/// The servers on the library, cleartext and TLS, and what operations on them share.
fn library(runtime: &Runtime, stored: &Path, pem: &fullbore::tls::SelfSigned) -> Outcome<Shared> {
    let server_tls = Arc::new(server_config(pem.cert_pem.as_bytes(), pem.key_pem.as_bytes())?);
    let client_tls = Arc::new(client_config(Roots::InsecureAcceptAny)?);
    let mut targets = Vec::new();
    for tls in [false, true] {
        let mut builder = Server::builder();
        if tls {
            builder = builder.tls_config(Arc::clone(&server_tls));
        }
        let server = runtime.block_on(builder.bind("127.0.0.1:0"))?;
        targets.push(Target {
            address: server.local_addr()?,
            tls,
            files: false,
        });
        runtime.spawn(server.serve(tower::service_fn(service::answer)));
    }
    // What the servers hold from their first poll on is there before anything is counted.
    let until = Instant::now() + SETTLE;
    while runtime.metrics().num_alive_tasks() < SERVER_TASKS {
        assert!(Instant::now() < until, "a server has not started");
        thread::sleep(Duration::from_millis(5));
    }
    let client = Client::builder().tls_config(Arc::clone(&client_tls)).build()?;
    let stored = stored.to_owned();
    Ok(Shared {
        client,
        targets,
        stored,
        client_tls,
        server_tls,
    })
}

/// `fullbore serve` of a folder, on a port of its choice.
pub(crate) fn serve(folder: &Path, options: &[&str]) -> Outcome<(Daemon, SocketAddr)> {
    let mut daemon = Daemon::spawn(
        program(folder)
            .args(["serve", ".", "--listen", "127.0.0.1:0"])
            .args(options),
    )?;
    let origin = daemon.wait_line("listening on ")?;
    let address = origin
        .rsplit('/')
        .find(|part| !part.is_empty())
        .ok_or("no address")?;
    Ok((daemon, address.parse()?))
}

/// One operation after the other until the end, or until one failed.
fn work(
    root: Option<&Path>,
    shared: &Shared,
    runtime: &Handle,
    mut random: Random,
    tally: &Tally,
    until: Until,
) {
    for _ in 0..until.operations {
        if Instant::now() >= until.time || tally.stopped() {
            return;
        }
        let (name, done) = match root.filter(|_| random.once_in(PROGRAM_ONCE_IN)) {
            Some(root) => {
                let program = Program::draw(&mut random);
                (
                    format!("{program:?}"),
                    program.run(root, shared, runtime, &mut random),
                )
            }
            None => {
                let operation = Operation::draw(&mut random);
                let doing = async { timeout(DEADLINE, operation.run(shared, &mut random)).await };
                let hangs = |_| Err(format!("hangs for {} s", DEADLINE.as_secs()).into());
                (
                    format!("{operation:?}"),
                    runtime.block_on(doing).unwrap_or_else(hangs),
                )
            }
        };
        match done {
            Ok(()) => *lock(&tally.done).entry(name).or_default() += 1,
            Err(error) => return tally.check(&name, Err(error)),
        }
    }
}

/// Waits until every process holds no more than at the start.
fn settle(watched: &[Watched], tally: &Tally) {
    let until = Instant::now() + SETTLE;
    for one in watched {
        while one.returned().is_err() && Instant::now() < until {
            thread::sleep(Duration::from_millis(50));
        }
        tally.check("after the end", one.returned());
    }
}

/// Stored uploads were removed, and abandoned ones are gone under every name, except those that arrived whole before they
/// were given up.
fn no_upload_is_left(stored: &Path) -> Outcome {
    for entry in std::fs::read_dir(stored)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        arrived_whole(&name, &stored.join(&name)).map_err(|error| format!("upload {name}: {error}"))?;
    }
    Ok(())
}

fn arrived_whole(name: &str, file: &Path) -> Outcome {
    let numbers = name.strip_prefix("whole-").and_then(|rest| rest.split_once('-'));
    let (salt, length) = numbers.ok_or("it should not be there")?;
    let (salt, length) = (salt.parse()?, length.parse()?);
    match std::fs::read(file)? == pattern::bytes(salt, length) {
        true => Ok(()),
        false => Err("it is cut or wrong".into()),
    }
}

#[test]
#[ignore = "runs for FULLBORE_SOAK_MINUTES, and needs curl and h2load"]
fn random_operations_lose_no_byte_and_leave_nothing_behind() -> Outcome {
    let minutes = variable("FULLBORE_SOAK_MINUTES", 3);
    let now = std::time::UNIX_EPOCH.elapsed()?;
    let seed = variable("FULLBORE_SEED", now.as_nanos() as u64);
    // With an arena for each thread, memory takes hours to become flat.
    assert_eq!(
        std::env::var("MALLOC_ARENA_MAX").as_deref(),
        Ok("1"),
        "set MALLOC_ARENA_MAX=1"
    );
    let root = tempfile::tempdir()?;
    // The file servers offer what they store.
    let stored = root.path().join("stored");
    std::fs::create_dir(&stored)?;
    for length in FILES {
        std::fs::write(root.path().join(length.to_string()), pattern::bytes(0, length))?;
    }
    let pem = self_signed(&["localhost", "127.0.0.1"])?;
    let keys = tempfile::tempdir()?;
    let [cert, key] = ["cert.pem", "key.pem"].map(|name| keys.path().join(name).display().to_string());
    std::fs::write(&cert, &pem.cert_pem)?;
    std::fs::write(&key, &pem.key_pem)?;
    let uploads = stored.display().to_string();
    let clear = serve(root.path(), &["--plaintext", "--uploads", &uploads])?;
    let secure = serve(
        root.path(),
        &["--cert", &cert, "--key", &key, "--uploads", &uploads],
    )?;

    let runtime = runtime()?;
    let mut shared = library(&runtime, &stored, &pem)?;
    for (tls, (_, address)) in [(false, &clear), (true, &secure)] {
        shared.targets.push(Target {
            address: *address,
            tls,
            files: true,
        });
    }
    let pipes = PIPE_DESCRIPTORS * thread::available_parallelism().map_or(1, usize::from);
    let mut watched = [
        Watched::new(
            "client and library",
            std::process::id(),
            Some(runtime.handle().clone()),
            0,
        )?,
        Watched::new("serve", clear.0.id(), None, pipes)?,
        Watched::new("serve, TLS", secure.0.id(), None, 0)?,
    ];
    println!("soak: {minutes} minutes, FULLBORE_SEED={seed}");
    let start = Instant::now();
    let until = Until {
        time: start + Duration::from_secs(60 * minutes),
        operations: u64::MAX,
    };
    let tally = Tally::default();
    thread::scope(|threads| {
        let mut random = Random::new(seed);
        for _ in 0..WORKERS {
            let (random, shared, tally) = (random.fork(), &shared, &tally);
            threads.spawn(|| work(Some(root.path()), shared, runtime.handle(), random, tally, until));
        }
        let mut next = start + SAMPLE_EVERY;
        while Instant::now() < until.time && !tally.stopped() {
            thread::sleep(Duration::from_millis(100));
            if Instant::now() < next {
                continue;
            }
            next += SAMPLE_EVERY;
            print!(
                "{:>6.0} s: {} operations",
                start.elapsed().as_secs_f64(),
                tally.total()
            );
            for one in &mut watched {
                match one.sample(start.elapsed()) {
                    Ok(reading) => print!("; {} {reading}", one.name),
                    Err(error) => tally.check(one.name, Err(error)),
                }
            }
            println!();
        }
    });
    // Its pool ends with it.
    drop(shared);
    settle(&watched, &tally);
    if !tally.stopped() {
        tally.check("the end", no_upload_is_left(&stored));
    }
    for one in &watched {
        match one.memory_is_flat() {
            Ok(text) => println!("{text}"),
            Err(error) => tally.check(one.name, Err(error)),
        }
    }
    println!("{} operations: {:?}", tally.total(), lock(&tally.done));
    assert_eq!(*lock(&tally.errors), Vec::<String>::new(), "FULLBORE_SEED={seed}");
    Ok(())
}

#[test]
fn a_short_soak_of_the_library_finds_nothing_and_keeps_no_task() -> Outcome {
    let runtime = runtime()?;
    let pem = self_signed(&["localhost", "127.0.0.1"])?;
    let shared = library(&runtime, &std::env::temp_dir(), &pem)?;
    let tally = Tally::default();
    let until = Until {
        time: Instant::now() + Duration::from_secs(600),
        operations: 40,
    };
    thread::scope(|threads| {
        let mut random = Random::new(7);
        for _ in 0..4 {
            let (random, shared, tally) = (random.fork(), &shared, &tally);
            threads.spawn(|| work(None, shared, runtime.handle(), random, tally, until));
        }
    });
    assert_eq!(*lock(&tally.errors), Vec::<String>::new());
    assert_eq!(tally.total(), 160);
    drop(shared);
    let until = Instant::now() + SETTLE;
    while runtime.metrics().num_alive_tasks() > SERVER_TASKS {
        assert!(Instant::now() < until, "a task lives on");
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

#[test]
fn an_upload_that_is_cut_or_should_not_be_there_is_found() -> Outcome {
    let folder = tempfile::tempdir()?;
    let write = |name: &str, length| {
        let file = folder.path().join(name);
        std::fs::write(&file, pattern::bytes(5, length))?;
        arrived_whole(name, &file)
    };
    assert!(write("whole-5-1000", 1_000).is_ok());
    assert!(write("whole-5-1001", 1_000).is_err());
    assert!(write(".whole-5-1000.0123.part", 1_000).is_err());
    Ok(())
}
