//! The files of the trees that a run uploads, found by a thread of its own while others are sent.
//!
//! A folder is read entry by entry, with one descriptor for the whole walk, and the thread waits while its batches do. So a tree of
//! any size costs the memory of the folders that are still to be read. Links to files are followed; links to folders are not, so
//! that no loop of them is.

use std::ffi::OsString;
use std::fs::{self, FileType};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc;

use crate::exit::{Exit, Failure};
use crate::figures::grouped;

use super::encoded;
use super::existing::Listing;

/// The files of a batch, at most.
const BATCH: usize = 64;
/// The batches that wait.
const BATCHES: usize = 16;

/// Some files of a folder.
pub(super) struct Batch {
    pub(super) folder: Arc<Folder>,
    pub(super) names: Vec<OsString>,
    /// What could not be read.
    pub(super) failures: Vec<Failure>,
}

/// A folder of the tree, and its place on the server.
pub(super) struct Folder {
    pub(super) path: PathBuf,
    /// Encoded, relative to the URL of the run; empty, or with a slash at its end.
    pub(super) place: String,
    /// What the server has there.
    pub(super) listing: Listing,
}

impl Folder {
    fn new(path: PathBuf, place: String) -> Arc<Self> {
        Arc::new(Self {
            path,
            place,
            listing: Listing::default(),
        })
    }
}

/// What of the trees is not sent, and is no failure.
#[derive(Default)]
pub(super) struct LeftOut {
    pub(super) hidden: AtomicU64,
    pub(super) linked_folders: AtomicU64,
    pub(super) empty_folders: AtomicU64,
    /// Sockets, FIFOs and devices.
    pub(super) special: AtomicU64,
}

impl LeftOut {
    /// A sentence for each kind.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let mut note = |count: &AtomicU64, one: &str, many: &str, why: &str| {
            let count = count.load(Ordering::Relaxed);
            if count > 0 {
                let noun = if count == 1 { one } else { many };
                notes.push(format!("{} {noun} {why}", grouped(count)));
            }
        };
        note(
            &self.hidden,
            "name that begins with a dot",
            "names that begin with a dot",
            "left out; --hidden sends them",
        );
        note(
            &self.linked_folders,
            "link to a folder",
            "links to folders",
            "not followed; name a folder on the command line to send its content",
        );
        note(
            &self.empty_folders,
            "empty folder",
            "empty folders",
            "left out: PUT creates files only",
        );
        note(
            &self.special,
            "socket, FIFO or device",
            "sockets, FIFOs and devices",
            "left out",
        );
        notes
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Starts to walk. The thread ends when the receiver is dropped.
pub(super) fn walk(
    roots: Vec<PathBuf>,
    hidden: bool,
    left_out: Arc<LeftOut>,
) -> Result<mpsc::Receiver<Batch>, Failure> {
    let (sender, batches) = mpsc::channel(BATCHES);
    let mut walker = Walker {
        sender,
        hidden,
        left_out,
        waiting: Vec::new(),
    };
    std::thread::Builder::new()
        .name("tree".to_owned())
        .spawn(move || walker.walk(roots))
        .map_err(|error| Failure::new(Exit::Other, format!("cannot start a thread: {error}")))?;
    Ok(batches)
}

/// The name under which a path of the command line is stored; `None` for the content of a folder: `photos/` is its content, as in
/// rsync, and `photos` is the folder. So is `.`, which has no name.
pub(super) fn stored_name(path: &Path) -> Option<OsString> {
    let text = path.as_os_str().as_encoded_bytes();
    let is_content = [&b"/"[..], b"/.", std::path::MAIN_SEPARATOR_STR.as_bytes()]
        .iter()
        .any(|end| text.ends_with(end));
    match is_content {
        true => None,
        false => path.file_name().map(OsString::from),
    }
}

/// The place of a file in this folder.
pub(super) fn place_of(folder: &Folder, name: &std::ffi::OsStr) -> String {
    format!("{}{}", folder.place, encoded(name))
}

/// Nobody receives the batches any more.
struct Abandoned;

struct Walker {
    sender: mpsc::Sender<Batch>,
    hidden: bool,
    left_out: Arc<LeftOut>,
    waiting: Vec<Arc<Folder>>,
}

impl Walker {
    fn walk(&mut self, roots: Vec<PathBuf>) {
        for root in roots {
            if self.root(root).is_err() {
                return;
            }
        }
    }

    /// What the command line names. It is sent whatever its name is, and a link to a folder is followed.
    fn root(&mut self, root: PathBuf) -> Result<(), Abandoned> {
        let name = stored_name(&root);
        let found = match fs::metadata(&root) {
            Ok(found) => found,
            Err(error) => {
                let failure = Failure::from_io("read", &root, &error);
                let parent = Folder::new(PathBuf::new(), String::new());
                return self.send(parent, Vec::new(), vec![failure]);
            }
        };
        if found.is_dir() {
            let place = name.map_or_else(String::new, |name| format!("{}/", encoded(&name)));
            self.waiting.push(Folder::new(root, place));
            while let Some(folder) = self.waiting.pop() {
                self.folder(&folder)?;
            }
            return Ok(());
        }
        if !found.is_file() {
            count(&self.left_out.special);
            return Ok(());
        }
        let parent = root.parent().unwrap_or(Path::new("")).to_owned();
        let names = name.into_iter().collect();
        self.send(Folder::new(parent, String::new()), names, Vec::new())
    }

    fn folder(&mut self, folder: &Arc<Folder>) -> Result<(), Abandoned> {
        let (mut names, mut failures) = (Vec::new(), Vec::new());
        let entries = match fs::read_dir(&folder.path) {
            Ok(entries) => entries,
            Err(error) => {
                let failure = Failure::from_io("read", &folder.path, &error);
                return self.send(Arc::clone(folder), names, vec![failure]);
            }
        };
        let mut is_empty = true;
        for entry in entries {
            is_empty = false;
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    failures.push(Failure::from_io("read", &folder.path, &error));
                    break;
                }
            };
            let name = entry.file_name();
            if !self.hidden && name.as_encoded_bytes().starts_with(b".") {
                count(&self.left_out.hidden);
                continue;
            }
            match entry.file_type().and_then(|kind| kind_of(kind, &entry.path())) {
                Ok(Kind::File) => names.push(name),
                Ok(Kind::Folder) => {
                    let place = format!("{}{}/", folder.place, encoded(&name));
                    self.waiting.push(Folder::new(entry.path(), place));
                }
                Ok(Kind::LinkedFolder) => count(&self.left_out.linked_folders),
                Ok(Kind::Special) => count(&self.left_out.special),
                Err(error) => failures.push(Failure::from_io("read", &entry.path(), &error)),
            }
            if names.len() + failures.len() >= BATCH {
                let batch = (std::mem::take(&mut names), std::mem::take(&mut failures));
                self.send(Arc::clone(folder), batch.0, batch.1)?;
            }
        }
        if is_empty {
            count(&self.left_out.empty_folders);
        }
        self.send(Arc::clone(folder), names, failures)
    }

    fn send(
        &self,
        folder: Arc<Folder>,
        names: Vec<OsString>,
        failures: Vec<Failure>,
    ) -> Result<(), Abandoned> {
        if names.is_empty() && failures.is_empty() {
            return Ok(());
        }
        let batch = Batch {
            folder,
            names,
            failures,
        };
        self.sender.blocking_send(batch).map_err(|_| Abandoned)
    }
}

enum Kind {
    File,
    Folder,
    LinkedFolder,
    Special,
}

fn kind_of(kind: FileType, path: &Path) -> std::io::Result<Kind> {
    let is_link = kind.is_symlink();
    let kind = match is_link {
        true => fs::metadata(path)?.file_type(),
        false => kind,
    };
    Ok(match (kind.is_dir(), kind.is_file()) {
        (true, _) if is_link => Kind::LinkedFolder,
        (true, _) => Kind::Folder,
        (_, true) => Kind::File,
        _ => Kind::Special,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_with_a_slash_is_its_content_and_one_without_keeps_its_name() {
        for (path, name) in [
            ("photos", Some("photos")),
            ("photos/", None),
            ("photos/.", None),
            (".", None),
            ("..", None),
            ("../a", Some("a")),
            ("/", None),
            ("a/b.txt", Some("b.txt")),
            (".profile", Some(".profile")),
        ] {
            assert_eq!(stored_name(Path::new(path)), name.map(OsString::from), "{path}");
        }
    }
}
