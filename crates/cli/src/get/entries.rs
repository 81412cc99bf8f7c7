//! The entries of a folder's list: what of its links and names is directly beneath the folder, and can be a file here.
//!
//! `json_list` and `index` read lists and hand over what they name.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use url::Url;

use crate::transfer::seconds;

use super::names::of_octets;

/// The entries of a list that are taken. A list of 16 MiB has fewer, unless its names are shorter than usual ones.
pub(super) const MOST_ENTRIES: usize = 150_000;

/// The characters of a refused name that are shown.
pub(super) const SHOWN: usize = 200;

/// A name in a URL: what is unreserved stays as it is (RFC 3986 section 2.3).
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// A file or folder of a list.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The name as a segment of a URL's path.
    segment: String,
    pub(super) name: OsString,
    pub(super) is_folder: bool,
    /// Bytes.
    pub(super) size: Option<u64>,
    /// Whole seconds since 1970.
    pub(super) modified: Option<i64>,
}

impl Entry {
    /// Its URL, in this folder.
    pub(super) fn url(&self, folder: &Url) -> Url {
        let mut url = folder.clone();
        url.set_query(None);
        let slash = if self.is_folder { "/" } else { "" };
        url.set_path(&format!("{}{}{slash}", folder.path(), self.segment));
        url
    }
}

/// A list.
#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) entries: Vec<Entry>,
    /// How many names no file here can have, or no URL can have.
    pub(super) refused: u64,
    /// The first of them, as the list shows it.
    pub(super) first_refused: Option<String>,
    /// The server says that there are more.
    pub(super) is_partial: bool,
    /// Where they are, relative to the folder.
    pub(super) next: Option<String>,
    /// There are more entries than are taken.
    pub(super) is_cut: bool,
    /// The lists of folders below that came with this one, by their paths relative to it. Whether there are such folders is not
    /// known from them.
    pub(super) sublists: HashMap<PathBuf, Index>,
}

/// Collects the entries of a list.
pub(super) struct Collector<'a> {
    folder: &'a Url,
    pub(super) index: Index,
    /// The names, and whether they are folders.
    seen: HashMap<OsString, bool>,
    /// A name is what its entry says. Some pages have links to folders with and without a slash.
    pub(super) tells_kinds: bool,
    /// The list has octets that are no UTF-8, and U+FFFD in their place.
    pub(super) is_lossy: bool,
    /// How many entries are taken, with those of the lists that come with this one.
    most: usize,
}

impl<'a> Collector<'a> {
    pub(super) fn new(folder: &'a Url) -> Self {
        Self {
            folder,
            index: Index::default(),
            seen: HashMap::new(),
            tells_kinds: false,
            is_lossy: false,
            most: MOST_ENTRIES,
        }
    }

    /// Reads the list of a folder below, of which this is a reference, and keeps it if it is whole. `read` adds its entries.
    ///
    /// # Errors
    /// `read` failed.
    pub(super) fn add_sublist<E>(
        &mut self,
        reference: &str,
        read: impl FnOnce(&mut Collector<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let found = self.folder.join(reference).ok();
        let folder = found.filter(|url| url.query().is_none() && url.origin() == self.folder.origin());
        // The list itself takes memory, too.
        let room = self.most.saturating_sub(self.index.entries.len() + 1);
        let path = folder.as_ref().and_then(|url| self.path_below(url));
        let path = path.filter(|path| room > 0 && !self.index.sublists.contains_key(path));
        // Entries that are not kept are read all the same.
        let mut below = Collector {
            tells_kinds: self.tells_kinds,
            is_lossy: self.is_lossy,
            most: if path.is_some() { room } else { 0 },
            ..Collector::new(folder.as_ref().unwrap_or(self.folder))
        };
        read(&mut below)?;
        let index = below.index;
        if let Some(path) = path.filter(|_| !index.is_cut) {
            self.most = self.most.saturating_sub(index.entries.len() + 1);
            self.index.sublists.insert(path, index);
        }
        Ok(())
    }

    /// The path of a folder below, relative to this one.
    fn path_below(&self, url: &Url) -> Option<PathBuf> {
        let rest = beneath(self.folder.path(), url.path())?.strip_suffix('/')?;
        let name = |segment| file_name(percent_decode_str(segment).collect());
        rest.split('/').map(name).collect()
    }

    /// Adds what a link of the list names.
    pub(super) fn add_link(&mut self, link: &str, facts: Facts) {
        self.add(self.folder.join(link), facts);
    }

    /// Adds a name. It is no reference: it may begin with a slash or a scheme.
    pub(super) fn add_name(&mut self, name: &str, facts: Facts) {
        if self.is_lossy && name.contains('\u{fffd}') {
            return self.refuse(name);
        }
        self.add(
            self.folder.join(&utf8_percent_encode(name, SEGMENT).to_string()),
            facts,
        );
    }

    pub(super) fn refuse(&mut self, name: &str) {
        self.index.refused += 1;
        let shown = || name.chars().take(SHOWN).collect();
        self.index.first_refused.get_or_insert_with(shown);
    }

    /// Adds what a URL names, if it is an entry of the folder.
    pub(super) fn add(&mut self, link: Result<Url, url::ParseError>, facts: Facts) {
        let Ok(url) = link else { return };
        if url.query().is_some() || url.origin() != self.folder.origin() {
            return;
        }
        let Some(rest) = beneath(self.folder.path(), url.path()) else {
            return;
        };
        let segment = rest.strip_suffix('/').unwrap_or(rest);
        if segment.is_empty() || segment.contains('/') {
            return;
        }
        let octets: Vec<u8> = percent_decode_str(segment).collect();
        let Some(name) = file_name(octets) else {
            return self.refuse(segment);
        };
        if self.index.entries.len() >= self.most {
            self.index.is_cut = true;
            return;
        }
        let is_folder = facts.is_folder || rest.ends_with('/');
        match self.seen.get(&name) {
            None => {
                self.seen.insert(name.clone(), is_folder);
                self.index.entries.push(Entry {
                    segment: with_whole_escapes(segment),
                    name,
                    is_folder,
                    size: facts.size.filter(|_| !is_folder),
                    modified: facts.modified,
                });
            }
            // A store of objects may have both, and a folder here cannot.
            Some(was_folder) if self.tells_kinds && *was_folder != is_folder => self.refuse(segment),
            Some(_) => {}
        }
    }
}

/// A segment whose percent signs begin escapes: servers refuse others (RFC 3986 section 2.4).
fn with_whole_escapes(segment: &str) -> String {
    let mut parts = segment.split('%');
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.as_bytes().get(..2);
        let is_escape = digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        whole.push_str(if is_escape { "%" } else { "%25" });
        whole.push_str(part);
    }
    whole
}

/// What of a path is beneath a folder. A server may escape other characters of the folder's name than the user did.
fn beneath<'a>(folder: &str, path: &'a str) -> Option<&'a str> {
    path.strip_prefix(folder).or_else(|| {
        let (end, _) = path.match_indices('/').nth(folder.matches('/').count() - 1)?;
        let (above, rest) = path.split_at(end + 1);
        percent_decode_str(above)
            .eq(percent_decode_str(folder))
            .then_some(rest)
    })
}

/// What a list says of an entry beside its name.
#[derive(Default)]
pub(super) struct Facts {
    pub(super) is_folder: bool,
    pub(super) size: Option<u64>,
    pub(super) modified: Option<i64>,
}

impl Facts {
    /// The time is one of RFC 3339 or an HTTP date.
    pub(super) fn new(is_folder: bool, size: Option<u64>, time: Option<&str>) -> Self {
        Self {
            is_folder,
            size,
            modified: time.and_then(|time| seconds::of_rfc3339(time).or_else(|| seconds::of_http_date(time))),
        }
    }
}

/// A name as it is, or `None` when no file of this system can have it.
fn file_name(octets: Vec<u8>) -> Option<OsString> {
    let is_dots = matches!(octets.as_slice(), b"." | b"..");
    let is_wrong = |octet: &u8| match octet {
        b'/' | 0 => true,
        b'\\' | b'<' | b'>' | b':' | b'"' | b'|' | b'?' | b'*' | 1..=31 => cfg!(windows),
        _ => false,
    };
    if is_dots || octets.len() > 255 || octets.iter().any(is_wrong) {
        return None;
    }
    if cfg!(windows) && (is_device(&octets) || octets.ends_with(b".") || octets.ends_with(b" ")) {
        return None;
    }
    let is_text = std::str::from_utf8(&octets).is_ok();
    (is_text || cfg!(all(unix, not(target_vendor = "apple")))).then(|| of_octets(octets))
}

/// Names that Windows takes for devices, whatever their suffix.
fn is_device(name: &[u8]) -> bool {
    let stem = name.split(|octet| *octet == b'.').next().unwrap_or_default();
    let stem = String::from_utf8_lossy(stem).to_ascii_uppercase();
    let numbered = |prefix: &str| {
        let number = stem.strip_prefix(prefix);
        number.is_some_and(|number| number.len() == 1 && number.bytes().all(|digit| digit.is_ascii_digit()))
    };
    matches!(stem.as_str(), "CON" | "PRN" | "AUX" | "NUL") || numbered("COM") || numbered("LPT")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_beneath_a_folder_however_that_is_escaped() {
        for (folder, path, rest) in [
            ("/", "/x", Some("x")),
            ("/a%2Fb/", "/a/b/x", None),
            ("/a/", "/%61/x", Some("x")),
            ("/a/b/", "/x", None),
        ] {
            assert_eq!(beneath(folder, path), rest, "{folder} {path}");
        }
    }

    #[test]
    fn a_percent_sign_that_begins_no_escape_is_escaped() {
        for (segment, whole) in [
            ("100%", "100%25"),
            ("a%20b%zz%4", "a%20b%25zz%254"),
            ("%%41", "%25%41"),
            ("plain", "plain"),
        ] {
            assert_eq!(with_whole_escapes(segment), whole, "{segment}");
        }
    }

    #[test]
    fn names_of_devices_are_those_of_windows() {
        for name in ["CON", "nul.txt", "Com1", "lpt9.tar.gz"] {
            assert!(is_device(name.as_bytes()), "{name}");
        }
        for name in ["CONS", "com", "COM10", "lpt", "a.con"] {
            assert!(!is_device(name.as_bytes()), "{name}");
        }
    }
}
