//! Files that were asked for lately: the fields that describe them, ready to be sent, and the octets of small ones.
//!
//! An entry is of one state of a file, told by device, inode, length and both times. One with octets is held against the file
//! system whenever it is used, once a millisecond at most, so that a batch of requests for one file pays for one `stat`; a
//! longer file is opened each time, and whoever opens it holds it against the entry: no descriptor is kept, so that what
//! has been removed does not keep its place on the disk. A file that was changed just now is not kept at all: another change
//! within the same tick of the file system's clock would not show. Bounded by the bytes that it holds. Called by `files`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use cap_std::fs::Dir;
use quick_cache::Weighter;
use quick_cache::sync::Cache as Entries;

use crate::identity::Identity;
use crate::representation::Representation;

/// How long an entry is believed without a look at the file system.
const BELIEVED: Duration = Duration::from_millis(1);

/// What an entry costs beyond its octets, roughly.
const ENTRY_BYTES: usize = 512;

/// How large a file is thought to be on average, for the first size of the table.
const TYPICAL_BYTES: usize = 16 << 10;

/// The store, by the path of the request.
#[derive(Debug)]
pub(crate) struct Cache {
    entries: Entries<Box<str>, Arc<Cached>, ByBytes>,
    origin: Instant,
    /// How long a file has to have been left alone.
    left_alone: Duration,
}

/// One file as it was read.
#[derive(Debug)]
pub(crate) struct Cached {
    pub(crate) representation: Representation,
    /// All of it, if it is small.
    pub(crate) body: Option<Bytes>,
    /// The path below the root.
    pub(crate) path: Arc<str>,
    pub(crate) identity: Identity,
    /// When it was last seen to be so: nanoseconds since the cache's origin.
    seen: AtomicU64,
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
    /// A store of `bytes` at most, all that belongs to an entry included.
    pub(crate) fn new(bytes: usize, left_alone: Duration) -> Cache {
        Cache {
            entries: Entries::with_weighter(bytes / TYPICAL_BYTES, bytes as u64, ByBytes),
            origin: Instant::now(),
            left_alone,
        }
    }

    /// The file that answers for the path of a request, if it is here and, when its octets are, still as it was.
    pub(crate) fn get(&self, root: &Dir, request_path: &str) -> Option<Arc<Cached>> {
        let cached = self.entries.get(request_path)?;
        if cached.body.is_none() {
            return Some(cached);
        }
        let now = self.now();
        let seen = cached.seen.load(Ordering::Relaxed);
        if now.saturating_sub(seen) < BELIEVED.as_nanos() as u64 {
            return Some(cached);
        }
        if Identity::now_of(root, &cached.path) != Some(cached.identity) {
            self.forget(request_path);
            return None;
        }
        cached.seen.store(now, Ordering::Relaxed);
        Some(cached)
    }

    /// Whether a file in this state may be kept, as it was stat'ed before it is read.
    pub(crate) fn would_keep(&self, identity: &Identity) -> bool {
        identity.was_left_alone(SystemTime::now(), self.left_alone)
    }

    /// Drops an entry that is not right any more.
    pub(crate) fn forget(&self, request_path: &str) {
        self.entries.remove(request_path);
    }

    /// Keeps what was read of a file, or what describes it.
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
            seen: AtomicU64::new(self.now()),
        };
        self.entries.insert(request_path.into(), Arc::new(cached));
    }

    fn now(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// How many bytes are held, all that belongs to entries included.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        self.entries.weight()
    }

    /// How many entries are held.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}
