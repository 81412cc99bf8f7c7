//! What all cases of one run share: the place, the folder of files to send, the janitor, and the time that is left.
//! `main` opens it, every case gets it.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::fault::Fault;
use crate::fullbore::Fullbore;
use crate::place::Place;
use crate::process::Janitor;

/// One run of the program.
pub(crate) struct Session {
    pub(crate) runs: u32,
    /// Whether measurements are to be short rather than good.
    pub(crate) quick: bool,
    /// What the names of the shapes that are measured have in them.
    pub(crate) shape: Option<String>,
    /// Whether counts are kept for later runs.
    pub(crate) keep: bool,
    pub(crate) janitor: Janitor,
    pub(crate) fullbore: Fullbore,
    machine: String,
    folder: PathBuf,
    until: Instant,
}

impl Session {
    /// Makes the folder and looks for the program under test.
    pub(crate) fn open(place: Place, runs: u32, quick: bool, at_most: Duration) -> Result<Self, Fault> {
        let machine = place.text();
        let fullbore = Fullbore::find()?;
        let folder = std::env::temp_dir().join(format!("fullbore-bench-{}", std::process::id()));
        fs::create_dir(&folder).map_err(|error| Fault::File(folder.clone(), error))?;
        let janitor = Janitor::hire(&folder)?;
        Ok(Self {
            runs,
            quick,
            shape: None,
            keep: false,
            janitor,
            fullbore,
            machine,
            folder,
            until: Instant::now() + at_most,
        })
    }

    /// Whether a shape of that name is to be measured.
    pub(crate) fn measures(&self, name: &str) -> bool {
        self.shape
            .as_ref()
            .is_none_or(|text| name.contains(text.as_str()))
    }

    /// The machine and its network, in words.
    pub(crate) fn machine(&self) -> &str {
        &self.machine
    }

    /// How long a program may run that should take no longer than `own`.
    ///
    /// # Errors
    /// `Over` when no time is left for the whole run.
    pub(crate) fn limit(&self, own: Duration) -> Result<Duration, Fault> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            Err(Fault::Over)
        } else {
            Ok(own.min(left))
        }
    }

    /// A new folder inside the run's own, which goes with it.
    pub(crate) fn folder(&self, name: &str) -> Result<PathBuf, Fault> {
        let folder = self.folder.join(name);
        fs::create_dir_all(&folder).map_err(|error| Fault::File(folder.clone(), error))?;
        Ok(folder)
    }

    /// A port that was free a moment ago, for servers that cannot choose one and tell.
    pub(crate) fn free_port(&self) -> Result<u16, Fault> {
        let bound = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
        bound
            .map(|address| address.port())
            .map_err(|error| Fault::Start("a socket".to_owned(), error))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // What is left in it now, the janitor removes.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Makes a file of so many bytes that do not repeat.
pub(crate) fn make_file(file: &Path, bytes: u64) -> Result<(), Fault> {
    let fault = |error| Fault::File(file.to_owned(), error);
    let mut out = BufWriter::with_capacity(1 << 16, File::create(file).map_err(fault)?);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ bytes;
    let mut left = bytes;
    while left > 0 {
        // xorshift64: any bytes will do that nobody can shorten.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let chunk = state.to_le_bytes();
        let length = left.min(chunk.len() as u64);
        out.write_all(chunk.get(..length as usize).unwrap_or(&chunk))
            .map_err(fault)?;
        left -= length;
    }
    out.flush().map_err(fault)
}

/// Makes a file of so many zeros that takes no room on the disk; for long uploads that nobody stores.
pub(crate) fn make_hollow_file(file: &Path, bytes: u64) -> Result<(), Fault> {
    let made = File::create(file).and_then(|made| made.set_len(bytes));
    made.map_err(|error| Fault::File(file.to_owned(), error))
}
