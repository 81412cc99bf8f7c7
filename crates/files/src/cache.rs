//! The cache of recently requested files: their header fields, and the content of small ones.
//!
//! An entry describes one state of a file, identified by device, inode, length, mtime and ctime. An entry with content is
//! compared with the file system before use, at most once a millisecond and after each upload, so a batch of requests for
//! one file pays for one `stat`. A larger file is opened for each request and compared then. No descriptor is cached, so
//! a removed file does not stay on the disk. A file that changed just now is not cached: another change within the same
//! tick of the file system's clock would not be visible. The cache is limited in bytes. Called by `files`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use cap_std::fs::Dir;
use foldhash::quality::RandomState;
use quick_cache::Weighter;
use quick_cache::sync::DefaultLifecycle;

use crate::encoding::Siblings;
use crate::identity::Identity;
use crate::representation::Representation;
use crate::source::Located;
use crate::watch::Watch;

/// How long an entry is used without a comparison with the file system.
const VALID_FOR: Duration = Duration::from_millis(1);

/// How long it is taken for known which siblings a file has. One that appears is used after this time at the latest; one
/// that is removed or changed is noticed as any file is.
const SIBLINGS_VALID_FOR: Duration = Duration::from_secs(1);

/// The share of the cache's memory for what is known of siblings.
const SIBLINGS_SHARE: usize = 16;

/// The approximate memory of what is known of a file's siblings, beyond its path.
const SIBLINGS_BYTES: usize = 96;

/// The approximate memory of an entry beyond its content.
const ENTRY_BYTES: usize = 512;

/// The assumed average size of a file, for the initial size of the table.
const TYPICAL_BYTES: usize = 16 << 10;

/// The hasher of the standard library takes five times as long. Only paths that lead to a file are ever kept.
type Entries<V> = quick_cache::sync::Cache<Box<str>, V, ByBytes, RandomState>;

/// The entries, by the path of the request.
#[derive(Debug)]
pub(crate) struct Cache {
    entries: Entries<Arc<Cached>>,
    /// By the path of the request; empty unless siblings are served.
    siblings: Entries<KnownSiblings>,
    origin: Instant,
    /// When an upload last changed a file: nanoseconds since the origin. What was compared before is compared again.
    uploaded: AtomicU64,
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
    /// The file itself, if this is a sibling of it: it must not have changed either.
    pub(crate) plain: Option<Located>,
    /// When it was last compared: nanoseconds since the cache's origin.
    checked: AtomicU64,
}

/// The siblings that a file had at a time: nanoseconds since the cache's origin.
#[derive(Clone, Copy, Debug)]
struct KnownSiblings {
    siblings: Siblings,
    at: u64,
}

#[derive(Clone, Debug)]
struct ByBytes;

impl Weighter<Box<str>, KnownSiblings> for ByBytes {
    fn weight(&self, key: &Box<str>, _: &KnownSiblings) -> u64 {
        (key.len() + SIBLINGS_BYTES) as u64
    }
}

impl Weighter<Box<str>, Arc<Cached>> for ByBytes {
    fn weight(&self, key: &Box<str>, entry: &Arc<Cached>) -> u64 {
        let body = entry.body.as_ref().map_or(0, Bytes::len);
        let plain = entry.plain.as_ref().map_or(0, |plain| plain.path.len());
        (key.len() + entry.path.len() + plain + body + ENTRY_BYTES) as u64
    }
}

fn entries<V: Clone>(bytes: usize) -> Entries<V>
where
    ByBytes: Weighter<Box<str>, V>,
{
    let (hasher, lifecycle) = (RandomState::default(), DefaultLifecycle::default());
    Entries::with(bytes / TYPICAL_BYTES, bytes as u64, ByBytes, hasher, lifecycle)
}

impl Cache {
    /// A cache of at most `bytes`, with its bookkeeping.
    pub(crate) fn new(bytes: usize, unchanged_for: Duration) -> Cache {
        let for_siblings = bytes / SIBLINGS_SHARE;
        Cache {
            siblings: entries(for_siblings),
            entries: entries(bytes),
            origin: Instant::now(),
            uploaded: AtomicU64::new(0),
            unchanged_for,
        }
    }

    /// The entry for the path of a request. An entry with content is up to date. `None` too when it has to be compared and
    /// the root may be another one.
    pub(crate) fn get(&self, root: &Dir, watch: &Watch, request_path: &str) -> Option<Arc<Cached>> {
        let cached = self.entries.get(request_path)?;
        if cached.body.is_none() && cached.plain.is_none() {
            return Some(cached);
        }
        let now = self.now();
        let checked = cached.checked.load(Ordering::Relaxed);
        let is_recent = now.saturating_sub(checked) < VALID_FOR.as_nanos() as u64;
        if is_recent && checked >= self.uploaded.load(Ordering::Relaxed) {
            return Some(cached);
        }
        if watch.is_due() {
            return None;
        }
        let is_same = |path: &str, identity| Identity::now_of(root, path) == Some(identity);
        let plain = cached.plain.as_ref();
        if !plain.is_none_or(|plain| is_same(&plain.path, plain.identity))
            || (cached.body.is_some() && !is_same(&cached.path, cached.identity))
        {
            self.forget(request_path);
            return None;
        }
        cached.checked.store(now, Ordering::Relaxed);
        Some(cached)
    }

    /// An upload has its name: whoever is told so is to get it by the next request.
    pub(crate) fn note_upload(&self) {
        self.uploaded.fetch_max(self.now(), Ordering::Relaxed);
    }

    /// Whether a file in this state may be cached. The state must be older than the read.
    pub(crate) fn would_keep(&self, identity: &Identity) -> bool {
        identity.is_unchanged_for(SystemTime::now(), self.unchanged_for)
    }

    /// Drops an outdated entry.
    pub(crate) fn forget(&self, request_path: &str) {
        self.entries.remove(request_path);
    }

    /// Caches the fields of a file, and its content if it was read whole. A sibling comes with the file itself.
    pub(crate) fn keep(
        &self,
        request_path: &str,
        file: Located,
        plain: Option<Located>,
        representation: Representation,
        body: Option<Bytes>,
    ) {
        let cached = Cached {
            representation,
            body,
            path: file.path,
            identity: file.identity,
            plain,
            // Not since it was read: an upload may have come between.
            checked: AtomicU64::new(0),
        };
        self.entries.insert(request_path.into(), Arc::new(cached));
    }

    /// The siblings of the file with this path, if they were looked for just now.
    pub(crate) fn siblings(&self, request_path: &str) -> Option<Siblings> {
        let known = self.siblings.get(request_path)?;
        let age = self.now().saturating_sub(known.at);
        (age < SIBLINGS_VALID_FOR.as_nanos() as u64).then_some(known.siblings)
    }

    /// Remembers which siblings the file with this path has.
    pub(crate) fn keep_siblings(&self, request_path: &str, siblings: Siblings) {
        let at = self.now();
        self.siblings
            .insert(request_path.into(), KnownSiblings { siblings, at });
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
