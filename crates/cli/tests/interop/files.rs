//! What is transferred: the files of every size, made once and shared by all trials, their SHA-256, and the suite's
//! temporary folder. Touches that folder only.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

use fullbore_testing::random::Random;
use sha2::{Digest, Sha256};

use crate::peers::required;
use crate::process::{Outcome, ensure, lock};

/// Both sides of each boundary that HTTP/2 has: nothing at all, one byte, the default frame size 16,384 (RFC 9113,
/// section 6.5.2), the default window 65,535 (section 6.9.2), and a body of many frames that ends in a short one.
const SIZES: [u64; 9] = [0, 1, 9, 16_383, 16_384, 16_385, 65_535, 65_536, 1_048_577];

/// Those that a run without `FULLBORE_PEERS=required` takes.
const FEWER_SIZES: [u64; 5] = [0, 1, 16_385, 65_535, 1_048_577];

/// The size at which anything that keeps a body in memory shows: twice the largest memory that is allowed.
pub(crate) const BIG_BYTES: u64 = 256 << 20;

/// A file to transfer.
#[derive(Clone)]
pub(crate) struct Payload {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
}

impl Payload {
    /// Fails unless the file at `path` is this one.
    pub(crate) fn check_file(&self, path: &Path, whose: &str) -> Outcome {
        let file = File::open(path).map_err(|error| format!("{whose}: no {}: {error}", path.display()))?;
        let mut hasher = Hasher::default();
        copy(file, &mut hasher)?;
        self.check_hash(&hasher, whose)
    }

    /// Fails unless what `hasher` saw is this file.
    pub(crate) fn check_hash(&self, hasher: &Hasher, whose: &str) -> Outcome {
        self.check(hasher.bytes, &hasher.sha256(), whose)
    }

    /// Fails unless `bytes` and `sha256` are this file's.
    pub(crate) fn check(&self, bytes: u64, sha256: &str, whose: &str) -> Outcome {
        ensure(bytes == self.bytes && sha256 == self.sha256, || {
            format!(
                "{whose}: {} is {} bytes, SHA-256 {}; got {bytes} bytes, {sha256}",
                self.name, self.bytes, self.sha256
            )
        })
    }
}

/// SHA-256 and length of what is written to it.
#[derive(Default, Clone)]
pub(crate) struct Hasher {
    digest: Sha256,
    pub(crate) bytes: u64,
}

impl Hasher {
    /// The digest in hexadecimal.
    pub(crate) fn sha256(&self) -> String {
        self.digest
            .clone()
            .finalize()
            .iter()
            .map(|octet| format!("{octet:02x}"))
            .collect()
    }
}

impl Write for Hasher {
    fn write(&mut self, chunk: &[u8]) -> io::Result<usize> {
        self.digest.update(chunk);
        self.bytes += chunk.len() as u64;
        Ok(chunk.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The folder that servers serve. It has the small files from the start, and the big one once [`big`] was called.
pub(crate) fn site() -> &'static Path {
    static SITE: OnceLock<PathBuf> = OnceLock::new();
    SITE.get_or_init(|| {
        let site = workshop().join("site");
        fs::create_dir_all(&site).expect("the temporary folder can be written");
        site
    })
}

/// The files of [`SIZES`], or of [`FEWER_SIZES`].
pub(crate) fn small() -> &'static [Payload] {
    static SMALL: OnceLock<Vec<Payload>> = OnceLock::new();
    SMALL.get_or_init(|| {
        let sizes: &[u64] = if required() { &SIZES } else { &FEWER_SIZES };
        sizes.iter().map(|&bytes| make(bytes)).collect()
    })
}

/// The file of 256 MiB. It holds no zeros and does not repeat: a block that is lost, doubled or moved changes its hash.
pub(crate) fn big() -> &'static Payload {
    static BIG: OnceLock<Payload> = OnceLock::new();
    BIG.get_or_init(|| make(BIG_BYTES))
}

/// Held while a big file moves: two at once would only take each other's processor, disk and time.
pub(crate) fn one_at_a_time() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    lock(&TURN)
}

/// A folder of one trial, removed with all it holds when dropped.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Outcome<Scratch> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let path = workshop().join(format!("trial-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        fs::create_dir_all(&path)?;
        Ok(Scratch(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// A folder in this one.
    pub(crate) fn folder(&self, name: &str) -> Outcome<PathBuf> {
        let path = self.0.join(name);
        fs::create_dir_all(&path)?;
        Ok(path)
    }

    /// A file in this folder with `text` in it.
    pub(crate) fn file(&self, name: &str, text: &str) -> Outcome<PathBuf> {
        let path = self.0.join(name);
        fs::write(&path, text)?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The folder of this run. Cargo's own place for tests' files is on a disk with room, which `/tmp` may not be.
pub(crate) fn workshop() -> &'static Path {
    static WORKSHOP: OnceLock<PathBuf> = OnceLock::new();
    WORKSHOP.get_or_init(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("interop-{}", std::process::id()));
        fs::create_dir_all(&path).expect("the temporary folder can be written");
        path
    })
}

/// Removes this run's folder, and those of earlier runs that were killed before they could.
pub(crate) fn clean_up() {
    let Ok(entries) = fs::read_dir(env!("CARGO_TARGET_TMPDIR")) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(pid) = name.strip_prefix("interop-") else {
            continue;
        };
        let own = pid == std::process::id().to_string();
        if own || (cfg!(target_os = "linux") && !Path::new("/proc").join(pid).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Writes `bytes` pseudo-random bytes (seeded by `seed`) to `sink`.
pub(crate) fn write_noise(seed: u64, bytes: u64, mut sink: impl Write) -> io::Result<()> {
    let mut random = Random::new(seed);
    let mut block = vec![0_u8; 64 * 1024];
    let mut left = bytes;
    while left > 0 {
        for word in block.chunks_exact_mut(8) {
            word.copy_from_slice(&random.next().to_le_bytes());
        }
        let count = left.min(block.len() as u64);
        sink.write_all(&block[..count as usize])?;
        left -= count;
    }
    Ok(())
}

fn make(bytes: u64) -> Payload {
    let name = format!("{bytes}.bin");
    let path = site().join(&name);
    let mut both = Both {
        file: File::create(&path).expect("the site can be written"),
        hasher: Hasher::default(),
    };
    write_noise(bytes + 1, bytes, BufWriter::new(&mut both)).expect("the disk has room");
    Payload {
        name,
        path,
        bytes,
        sha256: both.hasher.sha256(),
    }
}

struct Both {
    file: File,
    hasher: Hasher,
}

impl Write for Both {
    fn write(&mut self, chunk: &[u8]) -> io::Result<usize> {
        self.file.write_all(chunk)?;
        self.hasher.write(chunk)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn copy(mut from: impl Read, to: &mut Hasher) -> io::Result<()> {
    let mut chunk = vec![0; 256 * 1024];
    loop {
        match from.read(&mut chunk)? {
            0 => return Ok(()),
            count => to.write_all(&chunk[..count])?,
        }
    }
}
