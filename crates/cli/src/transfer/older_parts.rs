//! Parts of older versions, which no response continues any more.
//!
//! The server has sent another version of their URL under the same name. So they are removed, and do not stay for ever.
//! Called by `partial_file` on blocking threads.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::part_names::{DIGITS, URL_DIGITS};

/// How the name of each part ends.
pub(super) const SUFFIX: &str = ".part";

/// The parts that lay in the folders of a run when it first looked. A folder is read once: reading it for each of 10,000
/// files would take time that grows with their square.
#[derive(Default)]
pub(crate) struct OlderParts {
    folders: Mutex<HashMap<PathBuf, Parts>>,
}

/// The names of the parts of each URL and file name, by what they have in common.
type Parts = HashMap<String, Vec<String>>;

impl OlderParts {
    /// The parts in a folder whose names begin so. Each is returned once. `beginning` costs nothing where no parts are.
    pub(super) fn take(&self, folder: &Path, beginning: impl FnOnce() -> Option<String>) -> Vec<PathBuf> {
        let mut folders = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
        let parts = match folders.get_mut(folder) {
            Some(parts) => parts,
            None => folders
                .entry(folder.to_owned())
                .or_insert_with(|| parts_in(folder)),
        };
        if parts.is_empty() {
            return Vec::new();
        }
        let names = beginning().and_then(|beginning| parts.remove(&beginning));
        names
            .unwrap_or_default()
            .iter()
            .map(|name| folder.join(name))
            .collect()
    }
}

fn parts_in(folder: &Path) -> Parts {
    let mut parts = Parts::new();
    let Ok(entries) = std::fs::read_dir(folder) else {
        return parts;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if let Some((name, beginning)) = name.to_str().and_then(|name| Some((name, beginning(name)?))) {
            parts
                .entry(beginning.to_owned())
                .or_default()
                .push(name.to_owned());
        }
    }
    parts
}

/// What the names of all versions of a part have in common; `None` for another name.
fn beginning(name: &str) -> Option<&str> {
    if !name.starts_with('.') || Path::new(name).extension() != Some(OsStr::new("part")) {
        return None;
    }
    let stem = name.strip_suffix(SUFFIX)?;
    let start = stem.len().checked_sub(DIGITS)?;
    let (before, digits) = (stem.get(..start)?, stem.get(start..)?);
    let is_derived = before.ends_with('.') && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_derived.then(|| stem.get(..start + URL_DIGITS)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_url_are_told_by_the_beginning_of_their_names_once()
    -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let url = "0123456789abcdef";
        let part = |name: &str, url: &str, version: char| {
            format!(
                ".{name}.{url}{}.part",
                version.to_string().repeat(DIGITS - URL_DIGITS)
            )
        };
        let mine = [part("a", url, '1'), part("a", url, '2')];
        let others = [
            part("b", url, '1'),
            part("a", "fedcba9876543210", '1'),
            part("a", url, 'x'),
            part("a", url, '1').replace(".part", ".Part"),
            format!(".a.{url}.part"),
            "a".to_owned(),
        ];
        for name in mine.iter().chain(&others) {
            std::fs::write(folder.path().join(name), "")?;
        }
        let older = OlderParts::default();
        let take = || older.take(folder.path(), || Some(format!(".a.{url}")));
        let mut taken = take();
        taken.sort();
        assert_eq!(taken, mine.map(|name| folder.path().join(name)));
        assert!(take().is_empty());
        Ok(())
    }

    #[test]
    fn a_folder_without_parts_costs_no_name() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let older = OlderParts::default();
        for _ in 0..2 {
            let taken = older.take(folder.path(), || unreachable!("nothing has this beginning"));
            assert!(taken.is_empty());
        }
        Ok(())
    }
}
