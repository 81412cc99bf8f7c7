//! What all cases of one run share: its options, the program under test, the temporary folder, the reaper of processes,
//! and the time that is left.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use fullbore_testing::random::Random;

use crate::environment::Environment;
use crate::error::Error;
use crate::process::Reaper;

/// What every case takes.
#[derive(Args)]
pub(crate) struct Options {
    /// Number of times to measure each program, in turn with the others
    #[arg(long, value_name = "N", default_value_t = 5, global = true, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) runs: u32,
    /// Write the section of each case to this folder, as CASE.md and CASE.tsv
    #[arg(long, value_name = "FOLDER", num_args = 0..=1, default_missing_value = "bench/results", global = true)]
    pub(crate) write: Option<PathBuf>,
    /// Start no measurement after this many minutes, and end the one under way
    #[arg(long, value_name = "MINUTES", default_value_t = 60, global = true, value_parser = clap::value_parser!(u32).range(1..=1440))]
    at_most: u32,
    /// Measure for a tenth of the time: figures to look at, not to publish
    #[arg(long, global = true)]
    pub(crate) quick: bool,
    /// Measure only shapes whose name contains this text
    #[arg(long, value_name = "TEXT", global = true)]
    pub(crate) shape: Option<String>,
    /// Keep the counts of `engine` for later runs to compare with
    #[arg(long, global = true)]
    pub(crate) keep: bool,
    /// Stay in this network namespace
    #[arg(long, global = true)]
    pub(crate) here: bool,
}

/// One run of the program.
pub(crate) struct Context {
    pub(crate) options: Options,
    pub(crate) reaper: Reaper,
    /// The release binary under test.
    pub(crate) program: PathBuf,
    /// The machine and its network, in words.
    pub(crate) machine: String,
    folder: PathBuf,
    until: Instant,
}

impl Context {
    /// Makes the folder and looks for the program under test: `FULLBORE_BIN`, or `target/release/fullbore`.
    pub(crate) fn open(environment: &Environment, options: Options) -> Result<Self, Error> {
        let named = std::env::var_os("FULLBORE_BIN").map(PathBuf::from);
        let program = named.unwrap_or_else(|| PathBuf::from("target/release/fullbore"));
        let program = program.canonicalize().map_err(|_| {
            let hint = "(cargo build --release -p fullbore-cli, or set FULLBORE_BIN)";
            Error::Missing(format!("{} {hint}", program.display()))
        })?;
        let folder = std::env::temp_dir().join(format!("fullbore-bench-{}", std::process::id()));
        fs::create_dir(&folder).map_err(|error| Error::File(folder.clone(), error))?;
        Ok(Self {
            reaper: Reaper::start(&folder)?,
            program,
            machine: environment.text(),
            folder,
            until: Instant::now() + Duration::from_secs(60 * u64::from(options.at_most)),
            options,
        })
    }

    /// Whether a shape of that name is to be measured.
    pub(crate) fn measures(&self, name: &str) -> bool {
        let shape = self.options.shape.as_ref();
        shape.is_none_or(|text| name.contains(text.as_str()))
    }

    /// How long a program may run that should take no longer than `own`.
    ///
    /// # Errors
    /// `Over` when no time is left for the whole run.
    pub(crate) fn limit(&self, own: Duration) -> Result<Duration, Error> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            Err(Error::Over)
        } else {
            Ok(own.min(left))
        }
    }

    /// A new folder inside the run's own, which goes with it.
    pub(crate) fn folder(&self, name: &str) -> Result<PathBuf, Error> {
        let folder = self.folder.join(name);
        fs::create_dir_all(&folder).map_err(|error| Error::File(folder.clone(), error))?;
        Ok(folder)
    }

    /// A port that was free a moment ago, for servers that cannot choose one and tell.
    pub(crate) fn free_port(&self) -> Result<u16, Error> {
        let bound = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
        bound
            .map(|address| address.port())
            .map_err(|error| Error::Start("a socket".to_owned(), error))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // The reaper removes what is left.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Makes a file of so many bytes that do not repeat.
pub(crate) fn make_file(file: &Path, bytes: u64) -> Result<(), Error> {
    let to_error = |error| Error::File(file.to_owned(), error);
    let mut out = BufWriter::with_capacity(1 << 16, File::create(file).map_err(to_error)?);
    let mut random = Random::new(bytes);
    let mut left = bytes;
    while left > 0 {
        let chunk = random.bytes(left.min(1 << 16) as usize);
        out.write_all(&chunk).map_err(to_error)?;
        left -= chunk.len() as u64;
    }
    out.flush().map_err(to_error)
}

/// Makes a file of so many zeros that takes no room on the disk; for long uploads that nobody stores.
pub(crate) fn make_hollow_file(file: &Path, bytes: u64) -> Result<(), Error> {
    let made = File::create(file).and_then(|made| made.set_len(bytes));
    made.map_err(|error| Error::File(file.to_owned(), error))
}
