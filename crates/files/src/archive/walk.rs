//! What is in an archive of a folder: its entries one after the other, each with an open file. Called by `tar` and `zip`.
//!
//! What GET would not serve is left out, and so are links to folders, which may lead in circles.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use cap_std::fs::Dir;

use super::{Means, Refused};
use crate::budget::Share;
use crate::open::{Found, open, open_folder};
use crate::peer::Peer;
use crate::resolve::Target;
use crate::unfinished::is_private;

/// Folders within folders. More are a mistake, or a way to make the server hold their names.
const DEEPEST: usize = 64;

/// The approximate memory of a name beyond its letters.
const NAME_BYTES: usize = 32;

/// Where in the folder the archive is.
#[derive(Debug)]
pub(super) struct Walk {
    root: Arc<Dir>,
    hidden: bool,
    /// The innermost one last.
    folders: Vec<Folder>,
    /// The memory of the names.
    names: Share,
    _slot: Share,
}

#[derive(Debug)]
struct Folder {
    /// In front of its names: below the root, and in the archive.
    path: String,
    member: String,
    /// In reverse.
    names: Vec<String>,
    bytes: usize,
}

/// A file or a folder of the archive.
#[derive(Debug)]
pub(super) struct Entry {
    /// Its name in the archive. That of a folder ends with a slash.
    pub(super) member: String,
    pub(super) modified: Option<SystemTime>,
    /// The open file and its length; `None` for a folder.
    pub(super) file: Option<(File, u64)>,
}

impl Walk {
    /// A walk through a folder, whose names begin with `name`. Blocks.
    ///
    /// # Errors
    /// There is no such folder, or no room for another archive.
    pub(super) fn of(
        means: &Means<'_>,
        target: &Target,
        name: &str,
        peer: Option<Peer>,
    ) -> Result<Self, Refused> {
        let path = target.relative();
        let folder = open_folder(means.root, &path).map_err(|_| Refused::NotFound)?;
        let mut walk = Walk {
            root: Arc::clone(means.root),
            hidden: means.hidden,
            folders: Vec::new(),
            names: means.names.share(peer),
            _slot: means.slots.slot(peer).ok_or(Refused::Busy)?,
        };
        let prefix = if path == "." {
            String::new()
        } else {
            format!("{path}/")
        };
        walk.enter(&folder, prefix, format!("{name}/"))
            .map_err(|_| Refused::Busy)?;
        Ok(walk)
    }

    /// The next entry; `None` at the end. Blocks.
    ///
    /// # Errors
    /// The memory of names is used up, folders are nested too deeply, or a folder cannot be read.
    pub(super) fn next(&mut self) -> io::Result<Option<Entry>> {
        while let Some((path, member)) = self.next_name() {
            if let Some(entry) = self.look(path, member)? {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// The next name: below the root, and in the archive.
    fn next_name(&mut self) -> Option<(String, String)> {
        while let Some(folder) = self.folders.last_mut() {
            if let Some(name) = folder.names.pop() {
                return Some((
                    format!("{}{name}", folder.path),
                    format!("{}{name}", folder.member),
                ));
            }
            self.folders.pop();
            self.names
                .shrink(self.folders.iter().map(|folder| folder.bytes).sum());
        }
        None
    }

    /// The entry of a name; `None` for what is left out.
    fn look(&mut self, path: String, member: String) -> io::Result<Option<Entry>> {
        // What was removed in between, or may not be looked at, would be missing in the list too.
        let Ok(metadata) = self.root.symlink_metadata(&path) else {
            return Ok(None);
        };
        if metadata.is_dir() {
            let Ok(folder) = open_folder(&self.root, &path) else {
                return Ok(None);
            };
            let member = format!("{member}/");
            self.enter(&folder, format!("{path}/"), member.clone())?;
            return Ok(Some(Entry {
                member,
                modified: metadata.modified().ok().map(cap_std::time::SystemTime::into_std),
                file: None,
            }));
        }
        // A pipe without a writer would keep the job waiting. What a link leads to is looked at when it is open.
        if !metadata.is_file() && !metadata.is_symlink() {
            return Ok(None);
        }
        let Ok(Found::File(file, metadata)) = open(&self.root, &path) else {
            return Ok(None);
        };
        Ok(Some(Entry {
            member,
            modified: metadata.modified().ok(),
            file: Some((file, metadata.len())),
        }))
    }

    /// Goes on with the entries of this folder.
    fn enter(&mut self, folder: &Dir, path: String, member: String) -> io::Result<()> {
        if self.folders.len() >= DEEPEST {
            return Err(io::Error::other("folders are nested too deeply for an archive"));
        }
        let held: usize = self.folders.iter().map(|folder| folder.bytes).sum();
        let (mut names, mut bytes) = (Vec::new(), path.len() + member.len());
        for entry in folder.entries()? {
            let Ok(name) = entry?.file_name().into_string() else {
                continue;
            };
            let is_left_out = name.starts_with('.') && (!self.hidden || is_private(&name));
            if is_left_out || name.contains('\\') {
                continue;
            }
            bytes += name.len() + NAME_BYTES;
            if !self.names.reach(held + bytes) {
                return Err(io::Error::other("the memory of lists and archives is used up"));
            }
            names.push(name);
        }
        names.sort_unstable_by(|a, b| b.cmp(a));
        self.folders.push(Folder {
            path,
            member,
            names,
            bytes,
        });
        Ok(())
    }
}
