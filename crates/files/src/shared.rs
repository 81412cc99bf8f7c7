//! What all clones of the service share: the open folders and the limits.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::Dir;

use crate::budget::Budget;
use crate::buffers::{Buffers, Sizes};
use crate::cache::Cache;
use crate::compress::Compressing;
use crate::destination::UploadFolder;
use crate::digest;
use crate::jobs::Jobs;
use crate::reserved::Reserved;
use crate::resolve::is_hidden;
use crate::settings::{Settings, Uploads};
use crate::source::Descriptors;
use crate::store::is_one_folder;
use crate::unfinished::Unfinished;
use crate::upload_limits::UploadLimits;
use crate::watch::Watch;

/// The memory of the chunks of all responses. No chunk is longer than an eighth of what is left of it, or than the first one
/// when nothing is left.
const ALL_CHUNKS_BYTES: usize = 2 << 20;

/// How many free buffers for the longest chunk are kept: 2 MiB.
const IDLE_CHUNKS: usize = 8;

#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub(crate) root: Arc<Dir>,
    pub(crate) settings: Arc<Settings>,
    /// Whether the server takes ranges of files.
    pub(crate) hands_over_ranges: bool,
    pub(crate) buffers: Arc<Buffers>,
    pub(crate) descriptors: Arc<Descriptors>,
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) compressing: Arc<Compressing>,
    /// The memory of listings, of the names in archives, and of the answers to forms.
    pub(crate) pages: Arc<Budget>,
    /// The archives that are made at a time.
    pub(crate) archives: Arc<Budget>,
    /// The memory of the directories of zip archives.
    pub(crate) zip_directories: Arc<Budget>,
    /// What computes digests of files.
    pub(crate) digests: Arc<Jobs>,
    pub(crate) uploads: UploadTarget,
    uploaded: Uploaded,
    pub(crate) upload_limits: Arc<UploadLimits>,
    pub(crate) watch: Arc<Watch>,
}

/// Which files requests may be answered with were uploaded.
#[derive(Clone, Debug)]
enum Uploaded {
    None,
    /// Those in the folder with this path below the root.
    Below(PathBuf),
    All,
}

/// [`Uploads`], with the folder open.
#[derive(Clone, Debug)]
pub(crate) enum UploadTarget {
    Refuse,
    Discard,
    Directory(UploadFolder, Arc<Unfinished>),
}

/// A folder that [`Files`](crate::Files) cannot open: it does not exist, is not a folder, or the process may not read it.
#[derive(Debug)]
pub struct FolderError {
    path: PathBuf,
    error: io::Error,
}

impl FolderError {
    /// The folder: the root or the folder for uploads.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The error of the operating system.
    pub fn io_error(&self) -> &io::Error {
        &self.error
    }
}

impl fmt::Display for FolderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot open the folder {}", self.path.display())
    }
}

impl std::error::Error for FolderError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl Shared {
    /// Whether uploads are stored.
    pub(crate) fn takes_uploads(&self) -> bool {
        matches!(self.uploads, UploadTarget::Directory(..))
    }

    pub(crate) fn open(
        root: &Path,
        settings: Settings,
        hands_over_ranges: bool,
    ) -> Result<Arc<Shared>, FolderError> {
        let (uploads, uploaded) = UploadTarget::open(root, &settings)?;
        // Responses and uploads together hold at most `open_files`.
        let for_uploads = match uploads {
            UploadTarget::Directory(..) => settings.max_uploads,
            UploadTarget::Refuse | UploadTarget::Discard => 0,
        };
        let sizes = Sizes {
            most: settings.limits.chunk_bytes,
            first: settings.limits.first_chunk_bytes,
            all: ALL_CHUNKS_BYTES,
            whole: settings.limits.all_whole_bytes,
        };
        let jobs = Jobs::new(settings.limits.jobs_per_peer);
        Ok(Arc::new(Shared {
            root: Arc::new(open(root)?),
            hands_over_ranges,
            buffers: Buffers::new(sizes, IDLE_CHUNKS),
            descriptors: Descriptors::new(settings.open_files.saturating_sub(for_uploads)),
            jobs: Arc::clone(&jobs),
            cache: Arc::new(Cache::new(
                settings.limits.cache_bytes,
                settings.limits.cache_after,
            )),
            compressing: Compressing::new(settings.limits.compressed),
            pages: Budget::new(settings.limits.all_listings_bytes),
            archives: Budget::of_slots(settings.limits.archives),
            zip_directories: Budget::new(settings.limits.zip_directories_bytes),
            digests: digest::jobs(),
            upload_limits: UploadLimits::new(&settings, jobs),
            settings: Arc::new(settings),
            uploads,
            uploaded,
            watch: Arc::new(Watch::new()),
        }))
    }

    /// The same state with the folders that the paths name now.
    ///
    /// # Errors
    /// [`FolderError`]: the root or the folder for uploads cannot be opened.
    pub(crate) fn reopened(&self, root: &Path) -> Result<Arc<Shared>, FolderError> {
        let (uploads, uploaded) = UploadTarget::open(root, &self.settings)?;
        Ok(Arc::new(Shared {
            root: Arc::new(open(root)?),
            uploads: uploads.with_uploads_of(&self.uploads),
            uploaded,
            ..self.clone()
        }))
    }

    /// Whether the file with this path below the root, and this name in a request, may have been uploaded. Follows links, all
    /// of which were just followed to open the file.
    pub(crate) fn is_upload(&self, path: &str, name: &str) -> bool {
        let UploadTarget::Directory(folder, _) = &self.uploads else {
            return false;
        };
        // Only the operator can have made it.
        if folder.reserved.is_page(name) {
            return false;
        }
        match &self.uploaded {
            Uploaded::None => false,
            Uploaded::All => true,
            Uploaded::Below(folder) => {
                let elsewhere = self
                    .root
                    .canonicalize(path)
                    .is_ok_and(|path| !path.starts_with(folder));
                !elsewhere
            }
        }
    }

    /// The value of `allow`.
    pub(crate) fn allow(&self) -> &'static str {
        match self.uploads {
            UploadTarget::Refuse => "GET, HEAD, OPTIONS",
            UploadTarget::Discard | UploadTarget::Directory(..) => "GET, HEAD, OPTIONS, POST, PUT",
        }
    }
}

impl UploadTarget {
    /// Opens the folder for uploads, if there is one, and finds out which files may have come from it.
    fn open(root: &Path, settings: &Settings) -> Result<(UploadTarget, Uploaded), FolderError> {
        let path = match &settings.uploads {
            Uploads::Refuse => return Ok((UploadTarget::Refuse, Uploaded::None)),
            Uploads::Discard => return Ok((UploadTarget::Discard, Uploaded::None)),
            Uploads::Directory(path) => path,
        };
        let uploaded = Uploaded::of(root, path);
        let folder = UploadFolder {
            directory: Arc::new(open(path)?),
            served_at: served_at(root, path, settings.hidden),
            reserved: Arc::new(match uploaded {
                Uploaded::None => Reserved::default(),
                Uploaded::Below(_) | Uploaded::All => Reserved::of(settings),
            }),
        };
        let unfinished = Unfinished::new(Arc::clone(&folder.directory), settings.max_upload_bytes);
        Ok((UploadTarget::Directory(folder, unfinished), uploaded))
    }
}

impl UploadTarget {
    /// With the unfinished uploads of `before`, if its folder is the same one: requests to one upload take turns in one place.
    fn with_uploads_of(self, before: &UploadTarget) -> UploadTarget {
        match (self, before) {
            (UploadTarget::Directory(folder, new), UploadTarget::Directory(old_folder, old)) => {
                let unfinished = match is_one_folder(&folder.directory, &old_folder.directory) {
                    true => Arc::clone(old),
                    false => new,
                };
                UploadTarget::Directory(folder, unfinished)
            }
            (target, _) => target,
        }
    }
}

fn open(path: &Path) -> Result<Dir, FolderError> {
    Dir::open_ambient_dir(path, ambient_authority()).map_err(|error| FolderError {
        path: path.to_owned(),
        error,
    })
}

impl Uploaded {
    /// One of the folders may be in the other. A folder for uploads that is hidden counts too, since a link may lead to it.
    fn of(root: &Path, uploads: &Path) -> Uploaded {
        let (Ok(root), Ok(uploads)) = (root.canonicalize(), uploads.canonicalize()) else {
            return Uploaded::All;
        };
        match uploads.strip_prefix(&root) {
            Ok(below) if below.as_os_str().is_empty() => Uploaded::All,
            Ok(below) => Uploaded::Below(below.to_owned()),
            Err(_) if root.starts_with(&uploads) => Uploaded::All,
            Err(_) => Uploaded::None,
        }
    }
}

/// The names from the root to the folder for uploads, if a request can have them as its path.
fn served_at(root: &Path, uploads: &Path, hidden: bool) -> Option<Vec<String>> {
    let (root, uploads) = (root.canonicalize().ok()?, uploads.canonicalize().ok()?);
    let below = uploads.strip_prefix(root).ok()?;
    let mut names = Vec::new();
    for name in below {
        let name = name.to_str()?;
        if name.contains('\\') {
            return None;
        }
        names.push(name.to_owned());
    }
    (hidden || !is_hidden(&names)).then_some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_the_uploads_is_found_when_it_is_served() {
        let home = tempfile::tempdir().unwrap();
        let at = |path: &str| {
            let path = home.path().join(path);
            std::fs::create_dir_all(&path).unwrap();
            path
        };
        let names = |uploads: &str, hidden| served_at(&at("root"), &at(uploads), hidden);
        assert_eq!(names("root", false), Some(vec![]));
        assert_eq!(
            names("root/./a/../a/b c", false),
            Some(vec!["a".into(), "b c".into()])
        );
        assert_eq!(names("root/.in", false), None);
        assert_eq!(names("root/.well-known", false), Some(vec![".well-known".into()]));
        assert_eq!(names("root/.in", true), Some(vec![".in".into()]));
        assert_eq!(names("rooted", false), None);
        assert_eq!(names(".", false), None);
    }

    #[test]
    fn uploads_are_reached_where_one_folder_is_in_the_other() {
        let home = tempfile::tempdir().unwrap();
        let at = |path: &str| {
            let path = home.path().join(path);
            std::fs::create_dir_all(&path).unwrap();
            path
        };
        for (uploads, expected) in [
            ("root", "All"),
            ("root/.in", "Below(\".in\")"),
            ("root/a/b", "Below(\"a/b\")"),
            (".", "All"),
            ("rooted", "None"),
        ] {
            let found = Uploaded::of(&at("root"), &at(uploads));
            assert_eq!(format!("{found:?}"), expected, "{uploads}");
        }
        let gone = home.path().join("gone");
        assert!(matches!(Uploaded::of(&at("root"), &gone), Uploaded::All));
    }
}
