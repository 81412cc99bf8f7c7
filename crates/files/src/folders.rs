//! The folders by their paths: found again when a path has come to name another folder.
//!
//! A deployment changes the link to the current release, or removes the folder and makes it again. The open folder would
//! then be the old one for as long as the server runs. So the paths are compared with the open folders once a second, in
//! a blocking job of a request. Responses and uploads in progress keep the folder in which they began. Called by
//! `service`; `files` and `cache` ask whether a look is due.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use tokio::task::spawn_blocking;

use crate::settings::{Settings, Uploads};
use crate::shared::{FolderError, Shared, UploadTarget};

/// The shared state, with the folders that the paths name.
#[derive(Debug)]
pub(crate) struct Folders {
    root: PathBuf,
    current: RwLock<Arc<Shared>>,
    /// Its counters are those of all that follow.
    #[cfg(test)]
    pub(crate) first: Arc<Shared>,
}

impl Folders {
    /// # Errors
    /// [`FolderError`]: the root or the folder for uploads cannot be opened.
    pub(crate) fn open(
        root: PathBuf,
        mut settings: Settings,
        hands_over_ranges: bool,
    ) -> Result<Arc<Folders>, FolderError> {
        let root = absolute(root);
        if let Uploads::Directory(path) = &mut settings.uploads {
            *path = absolute(std::mem::take(path));
        }
        let shared = Shared::open(&root, settings, hands_over_ranges)?;
        Ok(Arc::new(Folders {
            root,
            #[cfg(test)]
            first: Arc::clone(&shared),
            current: RwLock::new(shared),
        }))
    }

    /// The folders as they were found last.
    pub(crate) fn current(&self) -> RwLockReadGuard<'_, Arc<Shared>> {
        // No code panics while it holds the lock.
        self.current.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The folders that the paths name now. Blocks.
    pub(crate) fn find(&self) -> Arc<Shared> {
        let current = Arc::clone(&self.current());
        if !current.watch.takes_turn() || !self.has_moved(&current) {
            return current;
        }
        // A path may name nothing between two releases.
        let Ok(found) = current.reopened(&self.root) else {
            return current;
        };
        // What the cache knows was compared in the old folder.
        found.cache.note_upload();
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&found);
        found
    }

    /// The same without blocking the caller's thread.
    pub(crate) async fn find_in_job(self: &Arc<Folders>) -> Arc<Shared> {
        if self.current().watch.is_due() {
            let this = Arc::clone(self);
            if let Ok(found) = spawn_blocking(move || this.find()).await {
                return found;
            }
        }
        Arc::clone(&self.current())
    }

    /// Whether one of the paths names another folder than the one that is open.
    #[cfg(unix)]
    fn has_moved(&self, current: &Shared) -> bool {
        use cap_std::fs::{Dir, MetadataExt as _};
        use std::os::unix::fs::MetadataExt as _;
        let is_another = |path: &PathBuf, open: &Dir| match (std::fs::metadata(path), open.dir_metadata()) {
            (Ok(named), Ok(open)) => (named.dev(), named.ino()) != (open.dev(), open.ino()),
            _ => false,
        };
        let uploads = match (&current.uploads, &current.settings.uploads) {
            (UploadTarget::Directory(open, _), Uploads::Directory(path)) => is_another(path, &open.directory),
            _ => false,
        };
        uploads || is_another(&self.root, &current.root)
    }

    #[cfg(not(unix))]
    fn has_moved(&self, _: &Shared) -> bool {
        false
    }
}

/// The path from the root of the file system, so that a current folder that is removed and made again is found.
fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}
