//! The names of a folder in pages: the first ones, in the order of their octets, after a given one.
//!
//! A folder has no order of its own that lasts, so all of its names are read for each page, and only as many are held as a page
//! has. What is in the folder all the time is on exactly one page. Called by `listing`.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::ffi::OsString;
use std::io;

use cap_std::fs::{Dir, DirEntry};
use percent_encoding::{percent_decode_str, percent_encode};

use crate::resolve::RESERVED;

/// How many names are read for each one on a page.
const READ: usize = 100;

/// The part of a query in front of the octets of a name.
const AFTER: &str = "after=";

/// Some names of a folder.
pub(crate) struct Names {
    /// In their order.
    pub(crate) entries: Vec<DirEntry>,
    /// The query of those that follow.
    pub(crate) next: Option<String>,
    /// There are more names than are read.
    pub(crate) is_cut: bool,
}

/// The name that the query says, empty without one.
pub(crate) fn after(query: Option<&str>, pairs: usize) -> Vec<u8> {
    let mut pairs = query.unwrap_or_default().split('&').take(pairs);
    let name = pairs.find_map(|pair| pair.strip_prefix(AFTER));
    percent_decode_str(name.unwrap_or_default()).collect()
}

/// Reads a folder: at most so many names after this one that are wanted. `hold` says whether there is memory for names of so
/// many bytes.
///
/// # Errors
/// The folder cannot be read; [`io::ErrorKind::OutOfMemory`] if there is no memory.
pub(crate) fn read(
    folder: &Dir,
    after: &[u8],
    most: usize,
    wanted: impl Fn(&OsString) -> bool,
    mut hold: impl FnMut(usize, usize) -> bool,
) -> io::Result<Names> {
    let (mut held, mut bytes) = (BinaryHeap::new(), 0_usize);
    let (mut has_more, mut is_cut) = (false, false);
    for (at, entry) in folder.entries()?.enumerate() {
        if at >= most.saturating_mul(READ) {
            is_cut = true;
            break;
        }
        // What cannot be looked at is not listed.
        let Ok(entry) = entry else { continue };
        let name = entry.file_name();
        if name.as_encoded_bytes() <= after || !wanted(&name) {
            continue;
        }
        bytes += name.len();
        held.push(Held { name, entry });
        if held.len() > most {
            has_more = true;
            bytes -= held.pop().map_or(0, |last| last.name.len());
        }
        if !hold(held.len(), bytes) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
    }
    let held = held.into_sorted_vec();
    let last = held.last().filter(|_| has_more);
    let next = last.map(|last| {
        format!(
            "?{AFTER}{}",
            percent_encode(last.name.as_encoded_bytes(), RESERVED)
        )
    });
    Ok(Names {
        entries: held.into_iter().map(|held| held.entry).collect(),
        next,
        is_cut,
    })
}

/// Ordered by its name.
struct Held {
    name: OsString,
    entry: DirEntry,
}

impl Held {
    fn octets(&self) -> &[u8] {
        self.name.as_encoded_bytes()
    }
}

impl Ord for Held {
    fn cmp(&self, other: &Self) -> Ordering {
        self.octets().cmp(other.octets())
    }
}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        self.octets() == other.octets()
    }
}

impl Eq for Held {}
