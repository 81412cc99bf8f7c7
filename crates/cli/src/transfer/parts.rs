//! Parts: what runs have received of files that are not complete, for later runs to resume.
//!
//! A part of `NAME` is beside it as `NAME.part`. Its record, `NAME.part.json`, says of which version of which URL it is. If
//! another process or program has that name, or another URL's part, the part is `NAME.2.part` or `NAME.3.part`.
//!
//! The process that has locked a part may write it and its record. A run that is killed may leave a record without its part. So
//! a record also says when its part was created: a later file with that name is another program's.
//!
//! Everything here runs on blocking threads. Called by `partial_file`.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use fullbore::client::range::Version;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use crate::checksum::digits;

use super::private::{self, Identity, Lock, OwnPath, Permissions};
use super::state_folder::{self, StateLock};

/// How the name of each part ends.
pub(super) const SUFFIX: &str = ".part";
/// How the name of its record ends.
const RECORD_SUFFIX: &str = ".part.json";
const RECORD: &str = ".json";
/// What stands between the name of the file and [`SUFFIX`], in the order in which names are tried.
const TRIED: [&str; 3] = ["", ".2", ".3"];
/// How many bytes of the file's name a part's name repeats, so that it fits 255 bytes with all that is behind it.
const NAME_IN_PART: usize = 200;
/// The most that is read of a record.
const RECORD_BYTES: u64 = 64 << 10;
/// In version 0.1, the name of a part was a dot, so many bytes of the file's name, a dot, and so many hexadecimal digits.
const HIDDEN_NAME: usize = 100;
const HIDDEN_DIGITS: usize = 48;

/// What a part is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartKey {
    pub(crate) url: String,
    /// Identifies the version of the body.
    pub(crate) version: Vec<u8>,
}

impl PartKey {
    /// The part of this version of a URL's body.
    pub(crate) fn of(url: &str, version: &Version) -> Self {
        Self {
            url: url.to_owned(),
            version: version.key(),
        }
    }
}

/// The record of a part.
#[derive(Default, Serialize, Deserialize)]
struct Record {
    /// For the user: without the query, which may be a secret.
    url: String,
    url_sha256: String,
    version_sha256: String,
    /// When the part was created, in nanoseconds since 1970, where the file system knows it.
    created: Option<u64>,
    /// The start of the machine in which the part is written; `None` once all of its bytes are on the disk. Nobody knows which
    /// bytes outlast a power failure.
    written_in: Option<String>,
    /// How many bytes these are. What is behind them was appended by another program.
    length: Option<u64>,
}

impl Record {
    fn of(key: &PartKey, part: &File, written_in: Option<&str>) -> Self {
        let sha256 = |bytes: &[u8]| digits(digest(&SHA256, bytes).as_ref());
        let public = key.url.split(['?', '#']).next().unwrap_or_default();
        Self {
            url: public.to_owned(),
            url_sha256: sha256(key.url.as_bytes()),
            version_sha256: sha256(&key.version),
            created: created(part),
            written_in: written_in.map(ToOwned::to_owned),
            length: None,
        }
    }

    /// Reads the record of this open part; `None` if there is none, or only that of an earlier file with this name.
    fn read(name: &Path, part: &File) -> Option<Self> {
        Self::load(&record_name(name)).filter(|record| record.created == created(part))
    }

    fn load(path: &Path) -> Option<Self> {
        let mut text = String::new();
        let file = private::open(path).ok()?;
        file.take(RECORD_BYTES).read_to_string(&mut text).ok()?;
        serde_json::Deserializer::from_str(&text).into_iter().next()?.ok()
    }

    /// Writes the record under its name, and returns the file. Another file of that name stays. The record of a part that
    /// `has_bytes` is never empty in between, since a kill would lose them: what is behind the new one is cut off afterwards,
    /// and not read before. That of a new part is a new file: the run that completed the part before may be about to remove its
    /// own.
    fn write(&self, path: &Path, has_bytes: bool) -> io::Result<File> {
        let content = serde_json::to_vec(self)?;
        let mut options = private::options();
        options.append(false).write(true);
        let mut is_new = true;
        let mut file = match options.create_new(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && Self::load(path).is_some() => {
                if !has_bytes {
                    std::fs::remove_file(path)?;
                }
                is_new = !has_bytes;
                options.create_new(is_new).open(path)?
            }
            opened => opened?,
        };
        let written = file
            .write_all(&content)
            .and_then(|()| file.set_len(content.len() as u64));
        if written.is_err() && is_new {
            // On a full disk it would be a record of nothing.
            let _ = std::fs::remove_file(path);
        }
        written.map(|()| file)
    }
}

/// A file while it is written, under another name. Dropping it removes the file.
pub(super) struct Temporary {
    pub(super) path: OwnPath,
    /// If it is a part.
    pub(super) claim: Option<Box<Claim>>,
}

/// The record of a part that this process has locked, and the lock where the file system has none. Dropped behind the part.
pub(super) struct Claim {
    record: PathBuf,
    identity: Identity,
    is_kept: bool,
    _lock: Option<StateLock>,
}

impl Claim {
    /// Leaves the part for a later run. If its bytes can be stored on the disk, it outlasts a power failure.
    pub(super) fn keep(mut self, key: &PartKey, part: Option<&File>) {
        self.is_kept = true;
        let stored = part.filter(|part| part.sync_all().is_ok());
        let length = stored.and_then(|part| Some(part.metadata().ok()?.len()));
        if let Some(part) = stored.filter(|_| self.identity.has_name(&self.record)) {
            let mut record = Record::of(key, part, None);
            record.length = length;
            // The record that is there says less.
            let _ = record
                .write(&self.record, true)
                .and_then(|record| record.sync_all());
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.is_kept && self.identity.has_name(&self.record) {
            // Without its part, it is replaced by the next one.
            let _ = std::fs::remove_file(&self.record);
        }
    }
}

/// What the parts of a run share.
pub(crate) struct Parts {
    /// This start of the machine; empty where that is unknown.
    pub(super) boot: String,
    /// The user's folder, for locks on parts whose file systems have none.
    pub(super) state: Option<PathBuf>,
    /// [`private::lock`], if no test has another one.
    pub(super) lock: fn(&File, &Path) -> Lock,
    /// The parts that lay in each folder when the run first looked. Reading a folder for each of 10,000 files would take time
    /// that grows with their square.
    seen: Mutex<HashMap<PathBuf, BTreeSet<String>>>,
}

impl Parts {
    /// Those of the current user.
    pub(crate) fn of_user() -> Self {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Self {
            boot: boot.trim().to_owned(),
            state: state_folder::of_user(),
            lock: private::lock,
            seen: Mutex::default(),
        }
    }

    /// Takes over the part of this version that a run of this user was killed in, or has left; `None` if another run is writing
    /// it, or another user may have written it.
    pub(super) fn find(&self, path: &Path, key: &PartKey) -> Option<(File, Temporary)> {
        self.seen(path).into_iter().find_map(|name| {
            let (file, lock) = self.open(&name)?;
            let record = Record::read(&name, &file)?;
            let is_whole = || match record.length {
                Some(length) => {
                    file.metadata().is_ok_and(|found| found.len() >= length) && file.set_len(length).is_ok()
                }
                None => true,
            };
            match self.is_current(&record) && is_version(&record, key) && is_whole() {
                true => self.claim(file, name, key, lock),
                false => None,
            }
        })
    }

    /// Begins a part, in place of one that is worthless: of an older version, if the new one `supersedes` it, or from before a
    /// power failure. `None` where no later run could take it over.
    pub(super) fn create(
        &self,
        path: &Path,
        permissions: Permissions,
        key: &PartKey,
        supersedes: bool,
    ) -> Option<(File, Temporary)> {
        if private::is_shared(private::folder(path)) {
            return None;
        }
        self.remove_hidden(path);
        let is_worthless = |record: &Record| {
            !self.is_current(record) || supersedes && is_url(record, key) && !is_version(record, key)
        };
        names(path).find_map(|name| {
            let file = match private::create(&name, permissions) {
                Ok(file) => file,
                Err(_) if self.remove_if(&name, is_worthless) => private::create(&name, permissions).ok()?,
                Err(_) => return None,
            };
            match self.lock(&file, &name) {
                Ok(lock) => self.claim(file, name, key, lock),
                // Another run has taken it over.
                Err(Lock::Busy) => None,
                Err(_) => std::fs::remove_file(&name).ok().and(None),
            }
        })
    }

    /// Removes what earlier runs have left of this file's older versions, once it is complete.
    pub(super) fn remove_older(&self, path: &Path, key: &PartKey) {
        let is_older = |record: &Record| is_url(record, key);
        for name in self.seen(path) {
            self.remove_if(&name, is_older);
        }
    }

    /// The parts of this file that lay in the folder.
    fn seen(&self, path: &Path) -> Vec<PathBuf> {
        let has = |parts: &BTreeSet<String>, name: &PathBuf| parts.contains(&file_name(name));
        self.seen_of(path, |parts| {
            names(path).filter(|name| has(parts, name)).collect()
        })
    }

    /// Removes the parts that version 0.1 has left of this file, which nothing resumes.
    fn remove_hidden(&self, path: &Path) {
        let prefix = format!(".{}.", beginning(path, HIDDEN_NAME));
        let is_hidden = |name: &&String| {
            let digits = name
                .strip_prefix(&prefix)
                .and_then(|rest| rest.strip_suffix(SUFFIX));
            digits.is_some_and(|digits| {
                digits.len() == HIDDEN_DIGITS && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
            })
        };
        let hidden = self.seen_of(path, |parts| {
            let named = parts
                .range(prefix.clone()..)
                .take_while(|name| name.starts_with(&prefix));
            named
                .filter(is_hidden)
                .map(|name| path.with_file_name(name))
                .collect()
        });
        for name in hidden {
            if self.open(&name).is_some() {
                // One that stays is found by the next run.
                let _ = std::fs::remove_file(&name);
            }
        }
    }

    /// Those of the parts in the folder that `choose` returns.
    fn seen_of(&self, path: &Path, choose: impl FnOnce(&BTreeSet<String>) -> Vec<PathBuf>) -> Vec<PathBuf> {
        let folder = private::folder(path);
        let mut folders = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if !folders.contains_key(folder) {
            folders.insert(folder.to_owned(), parts_in(folder));
        }
        match folders.get(folder) {
            Some(parts) if !parts.is_empty() => choose(parts),
            _ => Vec::new(),
        }
    }

    /// Removes a part of this user that nobody writes if it has nothing, or its record is such a one. Returns whether it did.
    fn remove_if(&self, name: &Path, is_worthless: impl FnOnce(&Record) -> bool) -> bool {
        let Some((file, _lock)) = self.open(name) else {
            return false;
        };
        let is_removed = match Record::read(name, &file) {
            Some(record) => is_worthless(&record),
            // A run was killed before it had written the record, or the first byte.
            None => file.metadata().is_ok_and(|found| found.len() == 0),
        };
        // Whenever this is killed, what is left is worthless. Behind the part, the record could be another run's.
        is_removed && file.set_len(0).is_ok() && {
            remove_record(&record_name(name), true);
            std::fs::remove_file(name).is_ok()
        }
    }

    /// Opens and locks a part of this user.
    fn open(&self, name: &Path) -> Option<(File, Option<StateLock>)> {
        let file = private::open(name).ok()?;
        let lock = self.lock(&file, name).ok()?;
        Some((file, lock))
    }

    /// Locks a part with this name. Where the file system has no locks, the state folder has one.
    fn lock(&self, file: &File, name: &Path) -> Result<Option<StateLock>, Lock> {
        match (self.lock)(file, name) {
            Lock::Held => Ok(None),
            Lock::Busy => Err(Lock::Busy),
            Lock::Unsupported => {
                let folder = self.state.as_deref().ok_or(Lock::Unsupported)?;
                let lock = StateLock::new(folder, name)?;
                match private::is_named(file, name) {
                    true => Ok(Some(lock)),
                    false => Err(Lock::Busy),
                }
            }
        }
    }

    /// Records that a part which this process has locked is written from now on.
    fn claim(
        &self,
        file: File,
        name: PathBuf,
        key: &PartKey,
        lock: Option<StateLock>,
    ) -> Option<(File, Temporary)> {
        let has_bytes = file.metadata().ok()?.len() > 0;
        let record = record_name(&name);
        let path = OwnPath::of(&file, name).ok()?;
        let written = Record::of(key, &file, Some(&self.boot)).write(&record, has_bytes);
        let Ok(identity) = written.and_then(|record| Identity::of(&record)) else {
            if has_bytes {
                path.keep();
            }
            return None;
        };
        let claim = Claim {
            record,
            identity,
            is_kept: false,
            _lock: lock,
        };
        let temporary = Temporary {
            path,
            claim: Some(Box::new(claim)),
        };
        Some((file, temporary))
    }

    /// Whether no power failure can have damaged the part.
    fn is_current(&self, record: &Record) -> bool {
        record.written_in.as_ref().is_none_or(|boot| *boot == self.boot)
    }
}

fn is_url(record: &Record, key: &PartKey) -> bool {
    record.url_sha256 == digits(digest(&SHA256, key.url.as_bytes()).as_ref())
}

fn is_version(record: &Record, key: &PartKey) -> bool {
    is_url(record, key) && record.version_sha256 == digits(digest(&SHA256, &key.version).as_ref())
}

/// The names that a part of this file may have.
fn names(path: &Path) -> impl Iterator<Item = PathBuf> {
    let name = beginning(path, NAME_IN_PART);
    TRIED
        .map(|number| path.with_file_name(format!("{name}{number}{SUFFIX}")))
        .into_iter()
}

fn record_name(part: &Path) -> PathBuf {
    part.with_file_name(format!("{}{RECORD}", file_name(part)))
}

/// Removes what is a record, and with `or_empty` also what a run that was killed has not written yet.
fn remove_record(path: &Path, or_empty: bool) {
    let is_empty = || std::fs::symlink_metadata(path).is_ok_and(|found| found.is_file() && found.len() == 0);
    if Record::load(path).is_some() || or_empty && is_empty() {
        let _ = std::fs::remove_file(path);
    }
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// At most so many bytes of the file's name, cut between characters.
pub(super) fn beginning(path: &Path, most: usize) -> String {
    let mut name = file_name(path);
    let mut end = name.len().min(most);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name.truncate(end);
    name
}

fn created(file: &File) -> Option<u64> {
    let created = file.metadata().ok()?.created().ok()?;
    let since = created.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    u64::try_from(since.as_nanos()).ok()
}

/// The parts in a folder. Records without a part are removed: a run was killed before it had removed them.
fn parts_in(folder: &Path) -> BTreeSet<String> {
    if private::is_shared(folder) {
        return BTreeSet::new();
    }
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let (parts, records): (BTreeSet<_>, BTreeSet<_>) = names
        .filter(|name| name.ends_with(SUFFIX) || name.ends_with(RECORD_SUFFIX))
        .partition(|name| name.ends_with(SUFFIX));
    for record in records {
        let part = record.strip_suffix(RECORD).unwrap_or_default();
        let is_alone = !parts.contains(part) && std::fs::symlink_metadata(folder.join(part)).is_err();
        if is_alone {
            remove_record(&folder.join(&record), false);
        }
    }
    parts
}
