//! Where an upload goes: a name in a folder below the one for uploads.
//!
//! The folders of a path are made when the upload is complete, so an upload that fails leaves none. Until then its file
//! is in the nearest folder that exists, which is on the same file system. Called by `uploads`, `form` and `writer`;
//! what touches the disk blocks.

use std::io;
use std::sync::Arc;

use cap_std::fs::Dir;

use crate::open::open_folder;
use crate::peer::Peer;
use crate::reserved::Reserved;
use crate::resolve::MAX_NAME_BYTES;

/// The folder for uploads.
#[derive(Clone, Debug)]
pub(crate) struct UploadFolder {
    pub(crate) directory: Arc<Dir>,
    /// Its path below the served folder, if it is the served folder or below it, and can be requested.
    pub(crate) served_at: Option<Vec<String>>,
    /// The names that uploads may not have.
    pub(crate) reserved: Arc<Reserved>,
}

/// Where one upload goes, and its peer.
#[derive(Debug)]
pub(crate) struct Destination {
    root: Arc<Dir>,
    /// The folders below `root`, outermost first. Each may be stored.
    folders: Vec<String>,
    /// A single path segment that may be stored.
    pub(crate) name: String,
    pub(crate) peer: Option<Peer>,
    /// The names from the root to the file, if it is served.
    pub(crate) location: Vec<String>,
    pub(crate) reserved: Arc<Reserved>,
}

/// Why a path names no destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadDestination {
    /// A name on the path may not be stored.
    Name,
    /// More folders than allowed.
    TooDeep,
}

/// An existing folder.
pub(crate) struct Nearest<'a> {
    pub(crate) directory: Arc<Dir>,
    /// The folders of the path that do not exist: none if this is the folder of the upload.
    pub(crate) missing: &'a [String],
}

/// The folder of an upload, with the folders that were made for it.
pub(crate) struct Made {
    pub(crate) directory: Arc<Dir>,
    /// Each with its parent, outermost first.
    folders: Vec<(Arc<Dir>, String)>,
}

impl UploadFolder {
    /// The names of a request's path below this folder. A path that begins with the folder's own place below the served
    /// folder names the same file as in GET.
    pub(crate) fn below<'a>(&self, names: &'a [String]) -> &'a [String] {
        let served_at = self.served_at.as_deref().unwrap_or_default();
        names.strip_prefix(served_at).unwrap_or(names)
    }

    /// Whether GET finds below the path with these names what is uploaded to it.
    pub(crate) fn serves(&self, names: &[String]) -> bool {
        self.served_at.as_ref().is_some_and(|at| names.starts_with(at))
    }
}

impl Destination {
    /// The file `name` in the folder with these names, relative to the folder for uploads.
    ///
    /// # Errors
    /// [`BadDestination`].
    pub(crate) fn new(
        folder: &UploadFolder,
        folders: &[String],
        name: String,
        max_folders: usize,
        peer: Option<Peer>,
    ) -> Result<Destination, BadDestination> {
        if !folders.iter().all(|name| is_storable(name)) || !is_storable(&name) {
            return Err(BadDestination::Name);
        }
        if folders.len() > max_folders {
            return Err(BadDestination::TooDeep);
        }
        let served_at = folder.served_at.as_deref().unwrap_or_default();
        let location = served_at.iter().chain(folders).chain([&name]).cloned().collect();
        Ok(Destination {
            root: Arc::clone(&folder.directory),
            folders: folders.to_vec(),
            name,
            peer,
            location,
            reserved: Arc::clone(&folder.reserved),
        })
    }

    /// The names from the folder for uploads to the file.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.folders.iter().chain([&self.name]).map(String::as_str)
    }

    /// The folder of the upload, or the nearest one above it that exists.
    ///
    /// # Errors
    /// The error of the system: `NotADirectory` for a file on the path, `PermissionDenied` for a link that leads out.
    pub(crate) fn nearest(&self) -> io::Result<Nearest<'_>> {
        let mut count = self.folders.len();
        loop {
            match self.open(count) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && count > 0 => count -= 1,
                Err(error) => return Err(error),
                Ok(directory) => {
                    let missing = self.folders.get(count..).unwrap_or_default();
                    return Ok(Nearest { directory, missing });
                }
            }
        }
    }

    /// The folder of the upload; makes it, and those above it, where they do not exist.
    ///
    /// # Errors
    /// The error of the system. The folders that were made are removed again.
    pub(crate) fn make(&self) -> io::Result<Made> {
        let mut made = Made::found(Arc::clone(&self.root));
        match self.open(self.folders.len()) {
            Ok(directory) => {
                made.directory = directory;
                return Ok(made);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        for (at, name) in self.folders.iter().enumerate() {
            if let Err(error) = self.make_one(&mut made, at, name) {
                made.undo();
                return Err(error);
            }
        }
        Ok(made)
    }

    fn make_one(&self, made: &mut Made, at: usize, name: &str) -> io::Result<()> {
        match made.directory.create_dir(name) {
            Ok(()) => made.folders.push((Arc::clone(&made.directory), name.to_owned())),
            // If it is no folder, the next call says so.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        made.directory = self.open(at + 1)?;
        Ok(())
    }

    /// Opens the folder of the first `count` names.
    fn open(&self, count: usize) -> io::Result<Arc<Dir>> {
        match self.folders.get(..count) {
            None | Some([]) => Ok(Arc::clone(&self.root)),
            Some(names) => open_folder(&self.root, &names.join("/")).map(Arc::new),
        }
    }
}

impl Made {
    /// A folder that exists.
    pub(crate) fn found(directory: Arc<Dir>) -> Made {
        Made {
            directory,
            folders: Vec::new(),
        }
    }

    /// Removes the folders that were made, unless somebody has put something into them.
    pub(crate) fn undo(self) {
        for (parent, name) in self.folders.into_iter().rev() {
            if parent.remove_dir(name).is_err() {
                return;
            }
        }
    }
}

/// Whether an upload may have this name: one segment, printable, and not hidden. Hidden names belong to unfinished uploads
/// and to the settings of other programs.
pub(crate) fn is_storable(name: &str) -> bool {
    let windows =
        cfg!(windows) && (name.contains(['<', '>', '"', '|', '?', '*', ':']) || name.ends_with(['.', ' ']));
    !name.is_empty()
        && name.len() <= MAX_NAME_BYTES
        && !name.starts_with('.')
        && !name.contains(['/', '\\'])
        && !name.contains(char::is_control)
        && !windows
}

#[cfg(test)]
mod tests {
    use cap_std::ambient_authority;

    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn uploads(path: &std::path::Path) -> UploadFolder {
        UploadFolder {
            directory: Arc::new(Dir::open_ambient_dir(path, ambient_authority()).unwrap()),
            served_at: None,
            reserved: Arc::default(),
        }
    }

    #[test]
    fn names_that_may_be_stored() {
        let longest = "n".repeat(255);
        for name in ["a", "a.txt", "a b", "été", "a..b", "~a", "-", "a.part", &longest] {
            assert!(is_storable(name), "{name}");
        }
        let too_long = "n".repeat(256);
        for name in [
            "",
            ".",
            "..",
            ".a",
            ".a.0123.part",
            "a/b",
            "a\\b",
            "a\0",
            "a\n",
            "\u{1b}[2J",
            "a\u{7f}",
            "a\u{85}",
            &too_long,
        ] {
            assert!(!is_storable(name), "{name:?}");
        }
    }

    #[test]
    fn a_path_below_the_place_of_the_folder_is_that_of_get_and_any_other_begins_in_the_folder() {
        let home = tempfile::tempdir().unwrap();
        let mut folder = uploads(home.path());
        for (served_at, path, below, serves) in [
            (None, &["a", "b"][..], &["a", "b"][..], false),
            (Some(&[][..]), &["a", "b"], &["a", "b"], true),
            (Some(&["a"]), &["a", "b"], &["b"], true),
            (Some(&["a"]), &["a"], &[], true),
            (Some(&["a"]), &["b", "a"], &["b", "a"], false),
            (Some(&["a", "b"]), &["a"], &["a"], false),
        ] {
            folder.served_at = served_at.map(names);
            assert_eq!(folder.below(&names(path)), names(below), "{path:?}");
            assert_eq!(folder.serves(&names(path)), serves, "{path:?}");
        }
    }

    #[test]
    fn folders_are_made_once_and_only_those_that_were_made_are_undone() {
        let home = tempfile::tempdir().unwrap();
        let folder = uploads(home.path());
        let at = |folders: &[&str]| {
            Destination::new(&folder, &names(folders), "file".to_owned(), 3, None).unwrap()
        };
        let exists = |path: &str| home.path().join(path).is_dir();
        let missing = |folders: &[&str]| at(folders).nearest().unwrap().missing.to_vec();
        assert_eq!(missing(&["a", "b"]), names(&["a", "b"]));
        assert_eq!(missing(&[]), names(&[]));
        assert!(!exists("a"));

        let one = at(&["a"]).make().unwrap();
        assert_eq!(one.folders.len(), 1);
        assert_eq!(missing(&["a", "b"]), names(&["b"]));
        let three = at(&["a", "b", "c"]).make().unwrap();
        assert!(exists("a/b/c"));
        three.undo();
        assert!(exists("a") && !exists("a/b"));
        let again = at(&["a", "b"]).make().unwrap();
        std::fs::write(home.path().join("a/b/theirs"), "").unwrap();
        again.undo();
        assert!(exists("a/b"), "somebody else's file is in it");

        std::fs::write(home.path().join("a/file"), "").unwrap();
        for made in [
            at(&["a", "file"]).make().err(),
            at(&["a", "file", "c"]).make().err(),
            at(&["a", "file", "c"]).nearest().err(),
        ] {
            assert_eq!(made.unwrap().kind(), io::ErrorKind::NotADirectory);
        }
    }

    #[test]
    fn a_path_has_so_many_folders_at_most_and_no_name_that_may_not_be_stored() {
        let home = tempfile::tempdir().unwrap();
        let folder = uploads(home.path());
        let new = |folders: &[&str], name: &str| {
            Destination::new(&folder, &names(folders), name.to_owned(), 2, None)
                .map(|destination| destination.location)
        };
        assert_eq!(new(&["a", "b c"], "d"), Ok(names(&["a", "b c", "d"])));
        assert_eq!(new(&["a", "b", "c"], "d"), Err(BadDestination::TooDeep));
        assert_eq!(new(&["a", ".b"], "d"), Err(BadDestination::Name));
        assert_eq!(new(&[".."], "d"), Err(BadDestination::Name));
        assert_eq!(new(&["a"], ".d"), Err(BadDestination::Name));
    }

    #[cfg(unix)]
    #[test]
    fn a_link_is_followed_below_the_folder_and_never_out_of_it() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().join("root");
        std::fs::create_dir_all(root.join("real")).unwrap();
        std::fs::create_dir(home.path().join("outside")).unwrap();
        for (name, to) in [("in", "real"), ("out", "../outside"), ("gone", "nowhere")] {
            std::os::unix::fs::symlink(to, root.join(name)).unwrap();
        }
        let folder = uploads(&root);
        let at = |folders: &[&str]| {
            Destination::new(&folder, &names(folders), "file".to_owned(), 3, None).unwrap()
        };
        at(&["in", "new"]).make().unwrap();
        assert!(root.join("real/new").is_dir());
        for folders in [&["out"][..], &["out", "new"]] {
            let kind = at(folders).make().err().unwrap().kind();
            assert_eq!(kind, io::ErrorKind::PermissionDenied, "{folders:?}");
            assert_eq!(at(folders).nearest().err().unwrap().kind(), kind, "{folders:?}");
        }
        assert!(at(&["gone", "new"]).make().is_err());
        assert!(!root.join("nowhere").exists());
        assert_eq!(std::fs::read_dir(home.path().join("outside")).unwrap().count(), 0);
    }
}
