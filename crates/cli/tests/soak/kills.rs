//! Transfers whose ends are killed: `fullbore get` of a list of files from `fullbore serve`, and `fullbore put` to it, while
//! SIGKILL ends one of the two at random moments. After each kill every file that has its name is whole. In the end all
//! files are there, and what arrived before a kill was not transferred again.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use fullbore_testing::pattern;
use fullbore_testing::process::{Daemon, free_port};
use fullbore_testing::random::Random;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::support::{Linked, program};
use crate::{Outcome, variable};

/// How long a transfer may go without a byte. A retry waits for seconds.
const DEADLINE: Duration = Duration::from_secs(120);
/// So slow that there is a middle in which to kill.
const LINK: [&str; 6] = ["--listen", "127.0.0.1:0", "--rate", "200Mbit", "--rtt", "1ms"];

/// A file to transfer, and what it must become.
struct File {
    name: String,
    bytes: u64,
    hash: [u8; 32],
}

/// Of 1,000 files 20 have some MiB, 100 some 100 KiB, and the others less.
fn make_files(folder: &Path, files: u64, random: &mut Random) -> Outcome<Vec<File>> {
    (0..files)
        .map(|number| {
            let bytes = match number {
                _ if number % 50 == 7 => random.between(2 << 20, 8 << 20),
                _ if number % 10 == 5 => random.between(64 << 10, 512 << 10),
                _ => random.below(32 << 10),
            };
            let name = format!("{number}.bin");
            let content = pattern::bytes(random.below(1 << 20), bytes);
            std::fs::write(folder.join(&name), &content)?;
            Ok(File {
                name,
                bytes,
                hash: Sha256::digest(&content).into(),
            })
        })
        .collect()
}

fn hash_of(file: &Path) -> Outcome<[u8; 32]> {
    Ok(Sha256::digest(std::fs::read(file)?).into())
}

/// Files that were whole when they were checked and may not change any more.
type Seen = HashMap<String, (u64, SystemTime)>;

struct Run {
    folder: TempDir,
    files: Vec<File>,
    random: Random,
    server: Daemon,
    port: u16,
    gets_killed: u64,
    servers_killed: u64,
    /// Answers 206 that the servers' logs tell of.
    resumed: u64,
}

impl Run {
    fn start(files: u64, seed: u64) -> Outcome<Self> {
        let mut random = Random::new(seed);
        let folder = tempfile::tempdir()?;
        std::fs::create_dir_all(folder.path().join("source/uploads"))?;
        let files = make_files(&folder.path().join("source"), files, &mut random)?;
        // A port that nobody is given while the server is down.
        let port = free_port()?;
        let server = serve(folder.path(), port)?;
        let (gets_killed, servers_killed, resumed) = (0, 0, 0);
        Ok(Self {
            folder,
            files,
            random,
            server,
            port,
            gets_killed,
            servers_killed,
            resumed,
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Kills the server and starts another on the same port.
    fn restart_server(&mut self) -> Outcome {
        self.server.kill();
        self.count_resumed();
        self.server = serve(self.folder.path(), self.port)?;
        Ok(())
    }

    fn count_resumed(&mut self) {
        let log = self.server.take_lines();
        self.resumed += log.iter().filter(|line| is_resumption(line)).count() as u64;
    }

    /// Downloads the list through the link, into a new folder whenever all is there, until so many were killed.
    fn download(&mut self, kills: u64, origin: &str) -> Outcome<PathBuf> {
        let list = self.path("list");
        let urls: String = self
            .files
            .iter()
            .map(|file| format!("{origin}/{}\n", file.name))
            .collect();
        std::fs::write(&list, urls)?;
        let total: u64 = self.files.iter().map(|file| file.bytes).sum();
        let mean = total / kills.max(1);
        let mut left = kills;
        for round in 0.. {
            let out = self.path(&format!("out-{round}"));
            std::fs::create_dir(&out)?;
            let mut seen = Seen::new();
            while !self.one_get(&list, &out, &mut seen, &mut left, mean)? {}
            self.check(&out, &mut Seen::new())?;
            let missing = self
                .files
                .iter()
                .filter(|file| !out.join(&file.name).is_file())
                .count();
            assert_eq!(missing, 0, "`get` succeeded, and {missing} files are missing");
            if left == 0 {
                return Ok(out);
            }
        }
        unreachable!("the loop has no end")
    }

    /// One run of `get`, during which the server is killed, and then `get`; whether it succeeded.
    fn one_get(
        &mut self,
        list: &Path,
        out: &Path,
        seen: &mut Seen,
        left: &mut u64,
        mean: u64,
    ) -> Outcome<bool> {
        let mut command = program(self.folder.path());
        command
            .args(["get", "--skip-existing", "--retry", "10", "--dir"])
            .arg(out);
        let mut get = Daemon::spawn(command.arg("-i").arg(list))?;
        loop {
            let enough = if *left == 0 {
                u64::MAX
            } else {
                self.random.below(2 * mean + 1)
            };
            if let Some(status) = progress(&mut get, out, enough)? {
                return Ok(status.success());
            }
            *left -= 1;
            if self.servers_killed > self.gets_killed {
                drop(get);
                self.gets_killed += 1;
                self.check(out, seen)?;
                return Ok(false);
            }
            self.restart_server()?;
            self.servers_killed += 1;
            self.check(out, seen)?;
        }
    }

    /// Every file that has its name is whole, and what was whole before was not touched.
    fn check(&self, out: &Path, seen: &mut Seen) -> Outcome {
        for file in &self.files {
            let path = out.join(&file.name);
            let Ok(metadata) = std::fs::metadata(&path) else {
                continue;
            };
            let now = (metadata.len(), metadata.modified()?);
            match seen.insert(file.name.clone(), now) {
                Some(before) => assert_eq!(before, now, "{} was written again", file.name),
                None => assert!(
                    metadata.len() == file.bytes && hash_of(&path)? == file.hash,
                    "{} has its name and {} of {} bytes, or other bytes",
                    file.name,
                    metadata.len(),
                    file.bytes
                ),
            }
        }
        Ok(())
    }

    /// Uploads large files through the link, each of them twice: once with one end killed, and once whole.
    fn upload(&mut self, kills: u64, origin: &str) -> Outcome {
        let uploads = self.path("source/uploads");
        let large: Vec<usize> = (0..self.files.len())
            .filter(|&at| self.files[at].bytes > 1 << 20)
            .collect();
        for number in 0..kills {
            let File { name, bytes, hash } =
                &self.files[*self.random.choose(&large).ok_or("no large file")?];
            let (hash, bytes, source) = (*hash, *bytes, self.path("source").join(name));
            let url = format!("{origin}/{number}-{name}");
            let stored = uploads.join(format!("{number}-{name}"));
            let folder = self.folder.path().to_owned();
            let put = || Daemon::spawn(program(&folder).arg("put").arg(&source).arg(&url));
            let mut first = put()?;
            let enough = self.random.below(bytes);
            let ended = progress(&mut first, &uploads, enough)?;
            if number % 2 == 0 {
                drop(first);
            } else {
                self.restart_server()?;
                progress(&mut first, &uploads, u64::MAX)?;
            }
            let whole = stored.is_file();
            assert!(
                !whole || hash_of(&stored)? == hash,
                "{url} has its name and is a part"
            );
            assert!(
                whole || !ended.is_some_and(|status| status.success()),
                "{url} succeeded and is not there"
            );
            let status = progress(&mut put()?, &uploads, u64::MAX)?;
            assert!(
                status.is_some_and(|status| status.success()),
                "the second upload of {url} failed"
            );
            assert!(hash_of(&stored)? == hash, "the second upload of {url} is wrong");
        }
        Ok(())
    }
}

fn serve(folder: &Path, port: u16) -> Outcome<Daemon> {
    let mut command = program(folder);
    command.args([
        "serve",
        "source",
        "--plaintext",
        "--log",
        "--overwrite",
        "--uploads",
        "source/uploads",
        "--listen",
    ]);
    let mut daemon = Daemon::spawn(command.arg(format!("127.0.0.1:{port}")))?;
    daemon.wait_line("listening on ")?;
    Ok(daemon)
}

/// Waits until `more` bytes were added to the folder, or the program has ended: how it did then.
fn progress(program: &mut Daemon, folder: &Path, more: u64) -> Outcome<Option<ExitStatus>> {
    let bytes = || Outcome::Ok(entries(folder)?.iter().map(|(_, bytes)| bytes).sum::<u64>());
    let start = bytes()?;
    let (mut last, mut at) = (start, Instant::now());
    loop {
        if let Some(status) = program.try_wait()? {
            return Ok(Some(status));
        }
        let now = bytes()?;
        if now.saturating_sub(start) >= more {
            return Ok(None);
        }
        if now != last {
            (last, at) = (now, Instant::now());
        }
        assert!(
            at.elapsed() < DEADLINE,
            "no byte for {DEADLINE:?}: {}",
            program.stderr_tail()
        );
        thread::sleep(Duration::from_millis(2));
    }
}

/// The files of a folder and their lengths. A file that goes meanwhile is left out.
fn entries(folder: &Path) -> Outcome<Vec<(String, u64)>> {
    let files = std::fs::read_dir(folder)?.flatten();
    let entry = |entry: std::fs::DirEntry| {
        Some((
            entry.file_name().to_string_lossy().into_owned(),
            entry.metadata().ok()?.len(),
        ))
    };
    Ok(files.filter_map(entry).collect())
}

/// Whether this line of the log is of a 206 response: `TIME PEER GET "/path" 206 BYTES ...`.
fn is_resumption(line: &str) -> bool {
    let status = line
        .split('"')
        .nth(2)
        .and_then(|rest| rest.split_whitespace().next());
    status == Some("206")
}

#[test]
#[ignore = "kills FULLBORE_KILLS processes, which takes some seconds each"]
fn kills_cut_no_file_and_lose_none() -> Outcome {
    let kills = variable("FULLBORE_KILLS", 10);
    let seed = variable("FULLBORE_SEED", 1);
    let mut run = Run::start(20 * kills.max(5), seed)?;
    let linked =
        Linked::start(&format!("http://127.0.0.1:{}", run.port), &LINK).map_err(|error| error.to_string())?;
    let out = run.download(kills, &linked.origin)?;
    run.upload(kills / 2, &linked.origin)?;
    run.count_resumed();
    println!(
        "{kills} kills in the download ({} of `get`, {} of `serve`), {} in uploads; {} responses 206; FULLBORE_SEED={seed}",
        run.gets_killed,
        run.servers_killed,
        kills / 2,
        run.resumed
    );
    assert!(run.resumed > 0, "no download was resumed");
    for folder in [out, run.path("source/uploads")] {
        let parts: Vec<_> = entries(&folder)?
            .into_iter()
            .filter(|(name, _)| name.contains(".part"))
            .collect();
        println!("parts left in {}: {parts:?}", folder.display());
    }
    Ok(())
}

#[test]
fn the_log_tells_of_resumptions() {
    let line = r#"2026-01-01T00:00:00.000Z - GET "/7.bin" 206 1234 0.512ms "fullbore/0.1.0" aborted"#;
    assert!(is_resumption(line));
    assert!(!is_resumption(&line.replace(" 206 ", " 200 ")));
    assert!(!is_resumption("listening on http://127.0.0.1:1"));
}
