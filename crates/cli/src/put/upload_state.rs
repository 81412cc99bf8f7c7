//! What a later run needs to resume an upload: a record for each upload that the server lets continue, in the user's state
//! folder.
//!
//! The URL of an upload resource is a capability: who knows it can append to the upload. So the folder and the records belong
//! to the user alone. A record is named by a hash of the request's method and URL and the file's absolute path, and locked while a run
//! uses it: two runs never append to one resource.

use std::fs::{File, Metadata};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

use crate::checksum::digits;
use crate::run::Leftovers;
use crate::transfer::private;
use crate::transfer::state_folder::{self, StateLock};

/// How long a record is kept. Servers remove uploads that nobody continues, many after a day or a week.
const LONGEST_AGE: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// A record is read up to this length. It has one URL, and servers accept none that is longer than 8 KiB.
const MOST_BYTES: u64 = 64 << 10;
/// How many old records a run looks for. The next run finds the others.
const MOST_SWEPT: usize = 1_000;

/// What tells one version of a file from another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileVersion {
    length: u64,
    /// The time of modification, in nanoseconds since 1970, as text: JSON has no integers of this length.
    modified: Option<String>,
    /// The time of the last change of the inode, in the same form. A program may set the time of modification back, but not this one.
    #[serde(default)]
    changed: Option<String>,
    inode: Option<u64>,
    device: Option<u64>,
}

impl FileVersion {
    pub(super) fn of(found: &Metadata) -> Self {
        let nanoseconds = |time: SystemTime| match time.duration_since(UNIX_EPOCH) {
            Ok(after) => after.as_nanos().to_string(),
            Err(before) => format!("-{}", before.duration().as_nanos()),
        };
        #[cfg(unix)]
        let (inode, device, changed) = {
            use std::os::unix::fs::MetadataExt as _;
            let changed = i128::from(found.ctime()) * 1_000_000_000 + i128::from(found.ctime_nsec());
            (Some(found.ino()), Some(found.dev()), Some(changed.to_string()))
        };
        #[cfg(not(unix))]
        let (inode, device, changed) = (None, None, None);
        Self {
            length: found.len(),
            modified: found.modified().ok().map(nanoseconds),
            changed,
            inode,
            device,
        }
    }

    /// Whether this is the same file with the same time, and at least as long. A body has the length that the file had when
    /// it was opened.
    pub(super) fn may_have_grown_from(&self, earlier: &Self) -> bool {
        let longer = self.length >= earlier.length;
        longer && self.modified == earlier.modified
    }
}

/// An upload that can be resumed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// The URL of the upload resource.
    pub(super) resource: String,
    /// The file that is uploaded.
    pub(super) file: FileVersion,
    /// Seconds since 1970.
    created: u64,
    /// The server may remove the resource then; seconds since 1970.
    expires: Option<u64>,
    /// The rest is sent in parts.
    #[serde(default)]
    pub(super) in_parts: bool,
}

impl Record {
    /// `lifetime` is what the server says of the resource (`max-age`).
    pub(super) fn new(resource: String, file: FileVersion, lifetime: Option<Duration>) -> Self {
        let created = now();
        Self {
            resource,
            file,
            created,
            expires: lifetime.map(|lifetime| created.saturating_add(lifetime.as_secs())),
            in_parts: false,
        }
    }

    pub(super) fn in_parts(self, in_parts: bool) -> Self {
        Self { in_parts, ..self }
    }

    fn is_expired(&self, now: u64) -> bool {
        let is_old = now.saturating_sub(self.created) > LONGEST_AGE.as_secs();
        is_old || self.expires.is_some_and(|expires| expires <= now)
    }
}

/// The place of the record of one upload. It is locked from its first use on, as long as this exists.
pub(super) struct UploadState {
    folder: PathBuf,
    path: PathBuf,
    leftovers: Arc<Leftovers>,
    is_counted: bool,
    lock: Option<StateLock>,
}

impl UploadState {
    /// The place for this request (its method and URL) and this file; `None` if the user has no state folder. Nothing is
    /// created.
    pub(super) fn of(request: &str, file: &Path, leftovers: &Arc<Leftovers>) -> Option<Self> {
        let folder = state_folder::of_user()?.join("uploads");
        Self::within(folder, request, file, leftovers)
    }

    fn within(folder: PathBuf, request: &str, file: &Path, leftovers: &Arc<Leftovers>) -> Option<Self> {
        let file = std::path::absolute(file).ok()?;
        let mut context = Context::new(&SHA256);
        context.update(request.as_bytes());
        // A URL has no such octet.
        context.update(&[0]);
        context.update(file.as_os_str().as_encoded_bytes());
        let path = folder.join(format!("{}.json", digits(context.finish().as_ref())));
        Some(Self {
            folder,
            path,
            leftovers: Arc::clone(leftovers),
            is_counted: false,
            lock: None,
        })
    }

    /// Whether this run has the record. Another one that sends the same file to the same URL would append to the same resource.
    fn is_locked(&mut self) -> bool {
        if self.lock.is_none() {
            self.lock = StateLock::new(&self.folder, &self.path).ok();
        }
        self.lock.is_some()
    }

    /// The record of an earlier run. One that has expired, or that is none, is removed. Blocks.
    pub(super) fn load(&mut self) -> Option<Record> {
        if !self.path.exists() || !self.is_locked() {
            return None;
        }
        let found = read(&self.path).filter(|record| !record.is_expired(now()));
        match &found {
            Some(_) => self.count(),
            None => self.remove(),
        }
        found
    }

    /// Keeps a record for a later run. An error is no failure of the upload: it can be resumed within this run. Blocks, but
    /// waits for no disk.
    pub(super) fn save(&mut self, record: &Record) {
        if !self.is_locked() {
            return;
        }
        let write = || {
            state_folder::create(&self.folder)?;
            // The file is the user's alone from the start.
            let mut temporary = tempfile::NamedTempFile::new_in(&self.folder)?;
            temporary.write_all(&serde_json::to_vec(record)?)?;
            temporary.persist(&self.path)?;
            io::Result::Ok(())
        };
        if write().is_ok() {
            self.count();
        }
        sweep(&self.folder);
    }

    /// The upload is complete, or cannot be resumed. Blocks.
    pub(super) fn remove(&mut self) {
        if self.lock.is_none() {
            return;
        }
        let _ = std::fs::remove_file(&self.path);
        if self.is_counted {
            self.is_counted = false;
            self.leftovers.forget_upload();
        }
    }

    fn count(&mut self) {
        if !self.is_counted {
            self.is_counted = true;
            self.leftovers.keep_upload();
        }
    }

    /// Whether a later run would find a record.
    pub(super) fn is_kept(&self) -> bool {
        self.is_counted
    }
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}

/// A record that only this user can have written.
fn read(path: &Path) -> Option<Record> {
    let file: File = private::open_without(path, 0o077).ok()?;
    let mut text = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Removes what is so old that no run would use it.
fn sweep(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten().take(MOST_SWEPT) {
        let age = entry.metadata().and_then(|found| found.modified());
        let age = age.ok().and_then(|modified| modified.elapsed().ok());
        let path = entry.path();
        let is_record = path.extension().is_some_and(|extension| extension == "json");
        if is_record && age.is_some_and(|age| age > LONGEST_AGE) {
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    type TestResult = Result<(), Box<dyn std::error::Error>>;

    fn state(folder: &Path, url: &str) -> Option<UploadState> {
        UploadState::within(folder.join("uploads"), url, Path::new("file"), &Arc::default())
    }

    fn record(lifetime: Option<Duration>) -> io::Result<Record> {
        let file = tempfile::NamedTempFile::new()?;
        let version = FileVersion::of(&file.as_file().metadata()?);
        Ok(Record::new("https://a/upload/1".to_owned(), version, lifetime))
    }

    #[test]
    fn a_record_is_found_again_by_the_url_and_the_path_and_belongs_to_the_user_alone() -> TestResult {
        let folder = tempfile::tempdir()?;
        let mut first = state(folder.path(), "https://a/").ok_or("no state")?;
        assert_eq!(first.load(), None);
        assert!(!first.folder.exists(), "nothing is created before it is needed");
        let record = record(None)?;
        first.save(&record);
        assert!(first.is_kept());
        let mode = |path: &Path| std::fs::metadata(path).map(|found| found.permissions().mode() & 0o777);
        assert_eq!(mode(&first.path)?, 0o600);
        assert_eq!(mode(&first.folder)?, 0o700);
        let mut meanwhile = state(folder.path(), "https://a/").ok_or("no state")?;
        assert_eq!(meanwhile.load(), None, "another run has it");
        meanwhile.save(&record);
        meanwhile.remove();
        assert!(!meanwhile.is_kept() && first.path.exists());
        drop((first, meanwhile));
        let mut other = state(folder.path(), "https://a/?b").ok_or("no state")?;
        assert_eq!(other.load(), None);
        let mut again = state(folder.path(), "https://a/").ok_or("no state")?;
        assert_eq!(again.load(), Some(record));
        again.remove();
        assert!(!again.is_kept());
        assert_eq!(again.load(), None);
        Ok(())
    }

    #[test]
    fn a_record_that_has_expired_or_that_others_can_read_or_that_is_none_is_removed() -> TestResult {
        let folder = tempfile::tempdir()?;
        let mut state = state(folder.path(), "https://a/").ok_or("no state")?;
        state.save(&record(Some(Duration::ZERO))?);
        assert_eq!(state.load(), None);
        assert!(!state.path.exists() && !state.is_kept());
        state.save(&record(Some(Duration::from_secs(60)))?);
        std::fs::set_permissions(&state.path, std::fs::Permissions::from_mode(0o644))?;
        assert_eq!(state.load(), None);
        assert!(!state.path.exists());
        let old = Record {
            created: now() - LONGEST_AGE.as_secs() - 1,
            ..record(None)?
        };
        state.save(&old);
        assert_eq!(state.load(), None);
        state.save(&record(None)?);
        std::fs::write(&state.path, "{}")?;
        assert_eq!(state.load(), None);
        Ok(())
    }

    #[test]
    fn old_records_of_other_uploads_are_swept() -> TestResult {
        let folder = tempfile::tempdir()?;
        let mut first = state(folder.path(), "https://a/").ok_or("no state")?;
        first.save(&record(None)?);
        let file = File::options().append(true).open(&first.path)?;
        file.set_modified(SystemTime::now() - LONGEST_AGE - Duration::from_secs(9))?;
        let mut other = state(folder.path(), "https://b/").ok_or("no state")?;
        other.save(&record(None)?);
        assert!(!first.path.exists() && other.path.exists());
        Ok(())
    }

    #[test]
    fn a_file_that_was_written_or_replaced_is_another_version() -> TestResult {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("file");
        let version = || std::fs::metadata(&path).map(|found| FileVersion::of(&found));
        std::fs::write(&path, "abc")?;
        let first = version()?;
        assert_eq!(first, version()?);
        let json = serde_json::to_string(&first)?;
        assert_eq!(serde_json::from_str::<FileVersion>(&json)?, first);
        let modified = std::fs::metadata(&path)?.modified()?;
        std::fs::rename(&path, folder.path().join("old"))?;
        std::fs::write(&path, "xyz")?;
        File::options().append(true).open(&path)?.set_modified(modified)?;
        assert_ne!(first, version()?, "another inode");
        // Written again in place, with the length and the time of before.
        let first = version()?;
        File::options()
            .write(true)
            .open(&path)
            .and_then(|mut file| file.write_all(b"uvw").and_then(|()| file.set_modified(modified)))?;
        assert_ne!(first, version()?, "another content");
        Ok(())
    }
}
