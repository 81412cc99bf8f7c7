//! Killed in the middle: `fullbore get` of a list of files over `fullbore serve`, and `fullbore put` to it, while one of the
//! two is killed again and again (SIGKILL) at a random moment of the transfer, and started again. After each kill no file
//! may stand under its name that is not whole; in the end all are there, and what had come before a kill did not come
//! twice. `main` calls `run`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use clap::Args;
use sha2::{Digest, Sha256};

use crate::dice::Dice;
use crate::fault::Fault;
use crate::fullbore::port;
use crate::process::{Lines, Running};
use crate::session::Session;
use crate::soak::pattern;

const START: Duration = Duration::from_secs(10);
/// How long a transfer may go without a byte. A retry waits for seconds.
const DEADLINE: Duration = Duration::from_secs(120);
/// How often the folder is looked at.
const LOOK: Duration = Duration::from_millis(2);
/// So slow that there is a middle to kill somebody in.
const RATE: &str = "200Mbit";

/// Who is killed, and how often.
#[derive(Args, Debug, Clone)]
pub(crate) struct Kills {
    /// How often one of the two is killed while `get` downloads; half as often again while `put` uploads
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    times: u32,
    /// How many files the list has
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    files: u32,
    /// What all choices follow from
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
}

type Hash = [u8; 32];

/// A file that is transferred: what it must become.
struct Wanted {
    name: String,
    bytes: u64,
    hash: Hash,
}

/// What was counted on the way.
#[derive(Default)]
struct Counts {
    gets_killed: u32,
    serves_killed: u32,
    puts_killed: u32,
    serves_killed_uploading: u32,
    /// Runs of `get` from an empty folder: a new one begins where the list was done before all kills were.
    rounds: u32,
    gets: u32,
    /// Those that ended by themselves with a failure.
    gets_failed: u32,
    checked: u64,
    /// Answers of the server to requests for a rest, and the bytes of those that its log told of.
    rests: u64,
    bytes_of_rests: u64,
    /// Bytes that lay in parts when somebody had been killed.
    bytes_in_parts: u64,
}

/// Kills and checks; prints what came of it. `false` when a file was not what it should be.
///
/// # Errors
/// When a program cannot be had, hangs, or fails where it should not.
pub(crate) fn run(kills: &Kills, session: &Session) -> Result<bool, Fault> {
    let mut dice = Dice::new(kills.seed);
    let source = session.folder("kills/source")?;
    let wanted = make_files(&source, kills.files, &mut dice)?;
    let total: u64 = wanted.iter().map(|file| file.bytes).sum();
    let mut yard = Yard {
        session,
        server: Some(Server::start(session, &source, 0)?),
        source,
        uploads: session.folder("kills/source/uploads")?,
        wanted,
        dice,
        counts: Counts::default(),
        faults: Vec::new(),
    };
    println!(
        "kills: {} kills in the download of {} files of {:.1} MiB together, seed {}",
        kills.times,
        kills.files,
        total as f64 / f64::from(1 << 20),
        kills.seed
    );
    let link = yard.link()?;
    let out = yard.downloads(kills.times, link.2, total)?;
    yard.uploads(kills.times / 2, link.2)?;
    let left = left_over(&out)?;
    let left_uploads = left_over(&yard.uploads)?;
    // The last lines of the log.
    yard.read_log();
    Ok(yard.summary(left, left_uploads))
}

/// 1,000 files are 20 of some MiB, 100 of some 100 KiB, and small ones.
fn make_files(folder: &Path, files: u32, dice: &mut Dice) -> Result<Vec<Wanted>, Fault> {
    (0..files)
        .map(|number| {
            let bytes = match number {
                _ if number % 50 == 7 => dice.between(2 << 20, 8 << 20),
                _ if number % 10 == 5 => dice.between(64 << 10, 512 << 10),
                _ => dice.below(32 << 10),
            };
            let name = format!("{number}.bin");
            let content = pattern::bytes(dice.below(1 << 20), bytes);
            let file = folder.join(&name);
            std::fs::write(&file, &content).map_err(|error| Fault::File(file, error))?;
            Ok(Wanted {
                name,
                bytes,
                hash: Sha256::digest(&content).into(),
            })
        })
        .collect()
}

fn hash_of(file: &Path) -> Result<Hash, Fault> {
    let content = std::fs::read(file).map_err(|error| Fault::File(file.to_owned(), error))?;
    Ok(Sha256::digest(&content).into())
}

/// A `fullbore serve` with its log.
struct Server<'a> {
    running: Running<'a>,
    lines: Lines,
    port: u16,
}

impl<'a> Server<'a> {
    fn start(session: &'a Session, folder: &Path, at: u16) -> Result<Self, Fault> {
        let mut command = session.fullbore.command("serve");
        command
            .arg(folder)
            .args(["--plaintext", "--log", "--listen"])
            .arg(format!("127.0.0.1:{at}"))
            .arg("--uploads")
            .arg(folder.join("uploads"));
        let (running, lines) = Running::talking(&session.janitor, &mut command)?;
        let port = port(&lines.after("listening on ", START)?)?;
        Ok(Self { running, lines, port })
    }
}

/// Everything that a run has.
struct Yard<'a> {
    session: &'a Session,
    /// None only while it is started again.
    server: Option<Server<'a>>,
    source: PathBuf,
    uploads: PathBuf,
    wanted: Vec<Wanted>,
    dice: Dice,
    counts: Counts,
    faults: Vec<String>,
}

/// Files that were whole when they were looked at, and have to stay as they were.
type Seen = HashMap<String, (u64, SystemTime)>;

impl<'a> Yard<'a> {
    fn link(&self) -> Result<(Running<'a>, Lines, u16), Fault> {
        let at = self.server.as_ref().map_or(0, |server| server.port);
        let mut command = self.session.fullbore.command("link");
        command.args(["--listen", "127.0.0.1:0", "--rate", RATE, "--rtt", "1ms", "--to"]);
        command.arg(format!("127.0.0.1:{at}"));
        let (running, lines) = Running::talking(&self.session.janitor, &mut command)?;
        let port = port(&lines.after("listening on ", START)?)?;
        Ok((running, lines, port))
    }

    /// Kills the server, and starts it again at the same port.
    fn restart_server(&mut self) -> Result<(), Fault> {
        self.read_log();
        let Some(server) = self.server.take() else {
            return Ok(());
        };
        let port = server.port;
        drop(server.running);
        // What it still wrote.
        count_rests(&server.lines, &mut self.counts);
        self.server = Some(Server::start(self.session, &self.source, port)?);
        Ok(())
    }

    fn read_log(&mut self) {
        if let Some(server) = &self.server {
            count_rests(&server.lines, &mut self.counts);
        }
    }

    /// Downloads the list through the link until so many have been killed and all is there; the folder of the last round.
    fn downloads(&mut self, times: u32, port: u16, total: u64) -> Result<PathBuf, Fault> {
        let list = self.session.folder("kills")?.join("list");
        let urls: String = self
            .wanted
            .iter()
            .map(|file| format!("http://127.0.0.1:{port}/{}\n", file.name))
            .collect();
        std::fs::write(&list, urls).map_err(|error| Fault::File(list.clone(), error))?;
        let mean = total / u64::from(times.max(1));
        let mut left = times;
        loop {
            self.counts.rounds += 1;
            let out = self
                .session
                .folder(&format!("kills/out-{}", self.counts.rounds))?;
            let mut seen = Seen::new();
            while !self.one_get(&list, &out, &mut seen, &mut left, mean)? {}
            self.all_is_there(&out)?;
            if left == 0 || !self.faults.is_empty() {
                return Ok(out);
            }
        }
    }

    /// One run of `get`, under which the server is killed, and then it; whether it ended well.
    fn one_get(
        &mut self,
        list: &Path,
        out: &Path,
        seen: &mut Seen,
        left: &mut u32,
        mean: u64,
    ) -> Result<bool, Fault> {
        let mut command = self.session.fullbore.command("get");
        command
            .args(["--skip-existing", "--retry", "10", "--dir"])
            .arg(out);
        command.arg("-i").arg(list);
        let mut get = Running::quiet(&self.session.janitor, &mut command)?;
        self.counts.gets += 1;
        let status = loop {
            if *left == 0 {
                break moved(&mut get, out, u64::MAX)?;
            }
            if let Some(status) = moved(&mut get, out, self.dice.below(2 * mean + 1))? {
                break Some(status);
            }
            *left -= 1;
            if self.counts.serves_killed > self.counts.gets_killed {
                drop(get);
                self.counts.gets_killed += 1;
                self.after_a_kill(out, seen)?;
                return Ok(false);
            }
            self.restart_server()?;
            self.counts.serves_killed += 1;
            self.after_a_kill(out, seen)?;
        };
        let well = status.is_some_and(|status| status.success());
        self.counts.gets_failed += u32::from(!well);
        Ok(well)
    }

    fn after_a_kill(&mut self, out: &Path, seen: &mut Seen) -> Result<(), Fault> {
        for (name, bytes) in entries(out)? {
            if name.ends_with(".part") {
                self.counts.bytes_in_parts += bytes;
            }
        }
        self.check(out, seen)
    }

    /// Every file that has its name is whole, and what was whole before was not touched.
    fn check(&mut self, out: &Path, seen: &mut Seen) -> Result<(), Fault> {
        for wanted in &self.wanted {
            let file = out.join(&wanted.name);
            let Ok(metadata) = std::fs::metadata(&file) else {
                continue;
            };
            let now = (
                metadata.len(),
                metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH),
            );
            match seen.get(&wanted.name) {
                Some(before) if *before == now => continue,
                Some(_) => self.faults.push(format!("{} was written again", wanted.name)),
                None => {}
            }
            self.counts.checked += 1;
            if metadata.len() != wanted.bytes || hash_of(&file)? != wanted.hash {
                let why = format!(
                    "{} has its name and {} of {} bytes, or others",
                    wanted.name,
                    metadata.len(),
                    wanted.bytes
                );
                self.faults.push(why);
            }
            seen.insert(wanted.name.clone(), now);
        }
        Ok(())
    }

    /// The SHA-256 of every file, once more.
    fn all_is_there(&mut self, out: &Path) -> Result<(), Fault> {
        self.check(out, &mut Seen::new())?;
        let missing = self.wanted.iter().filter(|file| !out.join(&file.name).is_file());
        let missing = missing.count();
        if missing > 0 {
            self.faults
                .push(format!("`get` ended well, and {missing} files are missing"));
        }
        Ok(())
    }

    /// Uploads large files through the link, one after the other, each of them twice: once killed, and once whole.
    fn uploads(&mut self, times: u32, port: u16) -> Result<(), Fault> {
        let large: Vec<usize> = (0..self.wanted.len())
            .filter(|&at| self.wanted.get(at).is_some_and(|file| file.bytes > 1 << 20))
            .collect();
        for number in 0..times {
            let Some(&at) = self.dice.one_of(&large) else {
                return Ok(());
            };
            let Some(Wanted { name, bytes, hash }) = self.wanted.get(at) else {
                return Ok(());
            };
            let (name, bytes, hash) = (name.clone(), *bytes, *hash);
            let there = self.uploads.join(format!("{number}-{name}"));
            let url = format!("http://127.0.0.1:{port}/{number}-{name}");
            let put = |yard: &Self| {
                let mut command = yard.session.fullbore.command("put");
                command.arg(yard.source.join(&name)).arg(&url);
                Running::quiet(&yard.session.janitor, &mut command)
            };
            let mut putting = put(self)?;
            let folder = self.uploads.clone();
            let ended = moved(&mut putting, &folder, self.dice.below(bytes))?;
            if number % 2 == 0 {
                drop(putting);
                self.counts.puts_killed += 1;
            } else {
                self.restart_server()?;
                self.counts.serves_killed_uploading += 1;
                moved(&mut putting, &folder, u64::MAX)?;
            }
            let whole = there.is_file();
            if whole && hash_of(&there)? != hash {
                self.faults.push(format!(
                    "the upload of {number}-{name} has its name, and is a part"
                ));
            }
            if ended.is_some_and(|status| status.success()) && !whole {
                self.faults.push(format!(
                    "the upload of {number}-{name} ended well, and is not there"
                ));
            }
            let status = moved(&mut put(self)?, &folder, u64::MAX)?;
            if !status.is_some_and(|status| status.success()) || hash_of(&there)? != hash {
                self.faults
                    .push(format!("the second upload of {number}-{name} failed"));
            }
            self.counts.checked += 1;
        }
        Ok(())
    }

    fn summary(&self, left: Vec<String>, left_uploads: Vec<String>) -> bool {
        let counts = &self.counts;
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        println!(
            "downloads: {} gets and {} servers killed in {} rounds; {} runs of `get`, {} of which ended with a failure",
            counts.gets_killed, counts.serves_killed, counts.rounds, counts.gets, counts.gets_failed
        );
        println!(
            "resumed: {} answers 206, {:.1} MiB of rests; {:.1} MiB lay in parts, all moments after kills taken together",
            counts.rests,
            mib(counts.bytes_of_rests),
            mib(counts.bytes_in_parts)
        );
        println!(
            "uploads: {} puts and {} servers killed",
            counts.puts_killed, counts.serves_killed_uploading
        );
        println!(
            "left over: {} parts of downloads, {} of uploads",
            left.len(),
            left_uploads.len()
        );
        for name in left {
            println!("  {name}");
        }
        let resumed = counts.rests > 0;
        if !resumed {
            println!("no download was resumed");
        }
        for fault in &self.faults {
            println!("FAULT: {fault}");
        }
        println!(
            "kills: {} kills, {} files checked by size and SHA-256, {}",
            counts.gets_killed + counts.serves_killed + counts.puts_killed + counts.serves_killed_uploading,
            counts.checked,
            match self.faults.len() {
                0 => "no part under a name; all files are right in the end".to_owned(),
                faults => format!("{faults} faults"),
            }
        );
        self.faults.is_empty() && resumed
    }
}

/// Waits until so many bytes more are in the folder, or the program ended: how it did then.
///
/// # Errors
/// When nothing comes for too long.
fn moved(
    program: &mut Running<'_>,
    folder: &Path,
    more: u64,
) -> Result<Option<std::process::ExitStatus>, Fault> {
    let in_folder = || Ok::<u64, Fault>(entries(folder)?.iter().map(|(_, bytes)| bytes).sum());
    let from = in_folder()?;
    let (mut last, mut at) = (from, Instant::now());
    loop {
        if let Some(status) = program.status() {
            return Ok(Some(status));
        }
        let now = in_folder()?;
        if now.saturating_sub(from) >= more {
            return Ok(None);
        }
        if now != last {
            (last, at) = (now, Instant::now());
        }
        if at.elapsed() > DEADLINE {
            return Err(Fault::Slow("a transfer without a byte".to_owned(), DEADLINE));
        }
        thread::sleep(LOOK);
    }
}

/// The files of a folder and their lengths; what goes meanwhile is left out.
fn entries(folder: &Path) -> Result<Vec<(String, u64)>, Fault> {
    let read = std::fs::read_dir(folder).map_err(|error| Fault::File(folder.to_owned(), error))?;
    let files = read.flatten().filter_map(|entry| {
        let bytes = entry.metadata().ok()?.len();
        Some((entry.file_name().to_string_lossy().into_owned(), bytes))
    });
    Ok(files.collect())
}

/// Parts that nobody will go on with.
fn left_over(folder: &Path) -> Result<Vec<String>, Fault> {
    let parts = entries(folder)?
        .into_iter()
        .filter(|(name, _)| name.ends_with(".part"));
    Ok(parts
        .map(|(name, bytes)| format!("{name}, {bytes} bytes"))
        .collect())
}

/// Counts what the log has told of answers to requests for a rest.
fn count_rests(lines: &Lines, counts: &mut Counts) {
    while let Some(line) = lines.next(Duration::ZERO) {
        if let Some(bytes) = rest_in(&line) {
            counts.rests += 1;
            counts.bytes_of_rests += bytes;
        }
    }
}

/// The bytes of an answer 206: `TIME PEER GET "/path" 206 BYTES ...`.
fn rest_in(line: &str) -> Option<u64> {
    let mut words = line.split('"').nth(2)?.split_whitespace();
    if words.next() == Some("206") {
        words.next()?.parse().ok()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_tells_of_rests() {
        let line = r#"2026-01-01T00:00:00.000Z - GET "/7.bin" 206 1234 0.512ms "fullbore/0.1.0" aborted"#;
        assert_eq!(rest_in(line), Some(1_234));
        assert_eq!(rest_in(&line.replace(" 206 ", " 200 ")), None);
        assert_eq!(rest_in("listening on http://127.0.0.1:1"), None);
    }
}
