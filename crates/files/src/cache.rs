//! The cache of recently requested files: their header fields, and the content of small ones.
//!
//! An entry describes one state of a file, identified by device, inode, length, mtime and ctime. An entry with content is
//! compared with the file system before use, at most once a millisecond, so a batch of requests for one file pays for one
//! `stat`. A larger file is opened for each request and compared then. No descriptor is cached, so a removed file does
//! not stay on the disk. A file that changed just now is not cached: another change within the same tick of the file
//! system's clock would not be visible. The cache is limited in bytes. Called by `files`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use cap_std::fs::Dir;
use quick_cache::Weighter;
use quick_cache::sync::Cache as Entries;

use crate::identity::Identity;
use crate::representation::Representation;

/// How long an entry is used without a comparison with the file system.
const VALID_FOR: Duration = Duration::from_millis(1);

/// The approximate memory of an entry beyond its content.
const ENTRY_BYTES: usize = 512;

/// The assumed average size of a file, for the initial size of the table.
const TYPICAL_BYTES: usize = 16 << 10;

/// The entries, by the path of the request.
#[derive(Debug)]
pub(crate) struct Cache {
    entries: Entries<Box<str>, Arc<Cached>, ByBytes>,
    origin: Instant,
    /// How long a file must have been unchanged.
    unchanged_for: Duration,
}

/// One file in one state.
#[derive(Debug)]
pub(crate) struct Cached {
    pub(crate) representation: Representation,
    /// The content of a small file.
    pub(crate) body: Option<Bytes>,
    /// The path below the root.
    pub(crate) path: Arc<str>,
    pub(crate) identity: Identity,
    /// When it was last compared: nanoseconds since the cache's origin.
    checked: AtomicU64,
}

#[derive(Clone, Debug)]
struct ByBytes;

impl Weighter<Box<str>, Arc<Cached>> for ByBytes {
    fn weight(&self, key: &Box<str>, entry: &Arc<Cached>) -> u64 {
        let body = entry.body.as_ref().map_or(0, Bytes::len);
        (key.len() + entry.path.len() + body + ENTRY_BYTES) as u64
    }
}

impl Cache {
    /// A cache of at most `bytes`, with its bookkeeping.
    pub(crate) fn new(bytes: usize, unchanged_for: Duration) -> Cache {
        Cache {
            entries: Entries::with_weighter(bytes / TYPICAL_BYTES, bytes as u64, ByBytes),
            origin: Instant::now(),
            unchanged_for,
        }
    }

    /// The entry for the path of a request. An entry with content is up to date.
    pub(crate) fn get(&self, root: &Dir, request_path: &str) -> Option<Arc<Cached>> {
        let cached = self.entries.get(request_path)?;
        if cached.body.is_none() {
            return Some(cached);
        }
        let now = self.now();
        let checked = cached.checked.load(Ordering::Relaxed);
        if now.saturating_sub(checked) < VALID_FOR.as_nanos() as u64 {
            return Some(cached);
        }
        if Identity::now_of(root, &cached.path) != Some(cached.identity) {
            self.forget(request_path);
            return None;
        }
        cached.checked.store(now, Ordering::Relaxed);
        Some(cached)
    }

    /// Whether a file in this state may be cached. The state must be older than the read.
    pub(crate) fn would_keep(&self, identity: &Identity) -> bool {
        identity.is_unchanged_for(SystemTime::now(), self.unchanged_for)
    }

    /// Drops an outdated entry.
    pub(crate) fn forget(&self, request_path: &str) {
        self.entries.remove(request_path);
    }

    /// Caches the fields of a file, and its content if it was read whole.
    pub(crate) fn keep(
        &self,
        request_path: &str,
        path: Arc<str>,
        identity: Identity,
        representation: Representation,
        body: Option<Bytes>,
    ) {
        let cached = Cached {
            representation,
            body,
            path,
            identity,
            checked: AtomicU64::new(self.now()),
        };
        self.entries.insert(request_path.into(), Arc::new(cached));
    }

    fn now(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// The memory of all entries.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        self.entries.weight()
    }

    /// The number of entries.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}
