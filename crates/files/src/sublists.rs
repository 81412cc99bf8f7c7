//! The lists of the folders below a listed one, which a client asks for with `prefer: sublists` (RFC 7240).
//!
//! A client that reads a tree over a long path would otherwise wait a round trip for each level. The lists come in the order of
//! levels, each whole or not at all, until they have so many entries together. What they would tell is what GET of each folder
//! would list: a folder with an index is left out, and so is a link to a folder, since links may form a loop. Called by `listing`,
//! in blocking jobs.

use std::collections::VecDeque;
use std::time::Instant;

use http::{HeaderMap, HeaderName};

use crate::accept::elements;
use crate::entry::{ENTRY_BYTES, Entry, Order};
use crate::open::open_folder;
use crate::output::Output;
use crate::resolve::Target;
use crate::settings::INDEX;
use crate::shared::Shared;

/// The field of a request that asks for them.
static PREFER: HeaderName = HeaderName::from_static("prefer");

/// The preference, and the name of the lists in a document.
pub(crate) const SUBLISTS: &str = "sublists";

/// How many names are read for each entry that is listed at most: some are hidden, or of a folder whose list does not fit.
const READ: usize = 4;

/// The list of a folder below the listed one.
pub(crate) struct Sublist {
    /// The folder, relative to the listed one.
    pub(crate) href: String,
    pub(crate) entries: Vec<Entry>,
}

/// Whether the client asks for them.
pub(crate) fn are_asked_for(headers: &HeaderMap) -> bool {
    elements(headers, PREFER.clone()).any(|preference| preference.trim().eq_ignore_ascii_case(SUBLISTS))
}

/// Reads the lists of the folders among `entries`, and below, each in this order. Stops at a limit: of entries, of time, or of the
/// memory of all lists.
pub(crate) fn read(
    shared: &Shared,
    target: &Target,
    order: Order,
    entries: &[Entry],
    output: &mut Output,
) -> Vec<Sublist> {
    // Each folder can be asked for by itself.
    if output.share.is_scarce() {
        return Vec::new();
    }
    let limits = &shared.settings.limits;
    let most = limits.sublisted;
    let mut left = Left {
        entries: most.saturating_sub(entries.len()),
        names: most.saturating_mul(READ),
        until: Instant::now() + limits.sublists_for,
    };
    let mut folders = VecDeque::new();
    let mut found = Vec::new();
    add_folders(&mut folders, target, "", entries);
    while left.is_some() {
        let Some((folder, href)) = folders.pop_front() else {
            break;
        };
        let Some(mut entries) = left.list(shared, &folder) else {
            continue;
        };
        let names: usize = entries.iter().map(|entry| entry.name.len()).sum();
        // Sorting takes two more names for each entry. A folder that waits has its path twice.
        let paths: usize = entries.iter().filter(|entry| entry.is_folder()).count() * 2 * href.len();
        output.beside += 5 * names + ENTRY_BYTES * (1 + entries.len()) + paths + href.len();
        if output.check().is_err() {
            break;
        }
        order.sort(&mut entries);
        add_folders(&mut folders, &folder, &href, &entries);
        found.push(Sublist { href, entries });
    }
    found
}

/// Adds the folders of a list that GET would list.
fn add_folders(folders: &mut VecDeque<(Target, String)>, target: &Target, within: &str, entries: &[Entry]) {
    let listed = entries.iter().filter(|entry| entry.is_folder() && !entry.is_link);
    folders.extend(listed.filter_map(|entry| {
        let href = format!("{within}{}", entry.link()?);
        Some((target.folder(&entry.name)?, href))
    }));
}

/// What the lists of a response may still take.
struct Left {
    entries: usize,
    names: usize,
    /// A disk that is slow delays the response no longer than this.
    until: Instant,
}

impl Left {
    fn is_some(&self) -> bool {
        self.names > 0 && Instant::now() < self.until
    }

    /// The list of a folder; `None` if it does not fit, or GET would not list it.
    fn list(&mut self, shared: &Shared, target: &Target) -> Option<Vec<Entry>> {
        let folder = open_folder(&shared.root, &target.relative()).ok()?;
        let mut found = Vec::new();
        for entry in folder.entries().ok()? {
            self.names = self.names.checked_sub(1)?;
            let entry = entry.ok()?;
            let name = entry.file_name();
            // A file system may ignore case.
            if name.eq_ignore_ascii_case(INDEX) {
                return None;
            }
            if name.as_encoded_bytes().starts_with(b".") && !shared.settings.hidden {
                continue;
            }
            if found.len() >= self.entries {
                return None;
            }
            found.push(entry);
        }
        let mut entries = Vec::with_capacity(found.len());
        for entry in &found {
            if Instant::now() >= self.until {
                return None;
            }
            entries.extend(Entry::of(shared, target, entry));
        }
        self.entries -= found.len();
        Some(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_preference_is_one_of_a_list() {
        for (prefer, expected) in [
            (&["sublists"][..], true),
            (&["return=minimal, Sublists"], true),
            (&["wait=5", "sublists"], true),
            (&["sublists2"], false),
            (&["x=sublists"], false),
            (&[], false),
        ] {
            let mut headers = HeaderMap::new();
            for &value in prefer {
                headers.append(PREFER.clone(), value.parse().unwrap());
            }
            assert_eq!(are_asked_for(&headers), expected, "{prefer:?}");
        }
    }
}
