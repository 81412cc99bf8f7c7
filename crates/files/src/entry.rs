//! An entry of a folder's list: what GET would serve under a name, and the order of entries. Called by `listing`, `sublists` and
//! `json_list`.

use std::cmp::Ordering;
use std::time::SystemTime;

use cap_std::fs::{DirEntry, Metadata};

use crate::conditional;
use crate::resolve::{Target, encode};
use crate::shared::Shared;
use crate::unfinished::is_private;

/// The approximate memory of an entry beyond its name.
pub(crate) const ENTRY_BYTES: usize = 160;

/// How many pairs of a query are read.
pub(crate) const QUERY_PAIRS: usize = 16;

/// A file or folder of the listing.
pub(crate) struct Entry {
    pub(crate) name: String,
    /// Whether a request can have the name: a path is UTF-8 without backslashes.
    pub(crate) has_link: bool,
    /// Bytes; `None` for a folder.
    pub(crate) size: Option<u64>,
    pub(crate) modified: Option<SystemTime>,
    /// It is a symbolic link.
    pub(crate) is_link: bool,
}

/// The order of the entries; folders come first in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) by: Column,
    pub(crate) descending: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    Name,
    Size,
    Date,
}

impl Entry {
    /// `None` for what GET would not serve: hidden names, links that lead nowhere or out of the root, devices.
    pub(crate) fn of(shared: &Shared, target: &Target, entry: &DirEntry) -> Option<Entry> {
        let name = entry.file_name();
        let text = name.to_string_lossy();
        if text.starts_with('.') && (!shared.settings.hidden || is_private(&text)) {
            return None;
        }
        let has_link = name.to_str().is_some() && !text.contains('\\');
        let mut metadata = entry.metadata().ok()?;
        let is_link = metadata.is_symlink();
        if is_link {
            metadata = followed(shared, target, name.to_str()?)?;
        }
        let size = match (metadata.is_file(), metadata.is_dir()) {
            (true, _) => Some(metadata.len()),
            (_, true) => None,
            _ => return None,
        };
        Some(Entry {
            name: text.into_owned(),
            has_link,
            size,
            modified: metadata.modified().ok().map(cap_std::time::SystemTime::into_std),
            is_link,
        })
    }

    pub(crate) fn is_folder(&self) -> bool {
        self.size.is_none()
    }

    /// The name as a relative reference.
    pub(crate) fn link(&self) -> Option<String> {
        let slash = if self.is_folder() { "/" } else { "" };
        self.has_link.then(|| format!("{}{slash}", encode(&self.name)))
    }
}

/// What a link leads to, if that is below the root.
fn followed(shared: &Shared, target: &Target, name: &str) -> Option<Metadata> {
    shared.root.metadata(target.child(name)).ok()
}

impl Order {
    /// Of the query `sort=name|size|date&order=asc|desc`. Anything else means by name.
    pub(crate) fn of(query: Option<&str>) -> Order {
        let mut order = Order {
            by: Column::Name,
            descending: false,
        };
        for pair in query.unwrap_or_default().split('&').take(QUERY_PAIRS) {
            match pair {
                "sort=size" => order.by = Column::Size,
                "sort=date" => order.by = Column::Date,
                "order=desc" => order.descending = true,
                _ => {}
            }
        }
        order
    }

    pub(crate) fn sort(self, entries: &mut [Entry]) {
        // Names in the order of their letters, whatever their case.
        entries.sort_by_cached_key(|entry| (entry.name.to_lowercase(), entry.name.clone()));
        if self.by != Column::Name {
            entries.sort_by(|a, b| match self.by {
                Column::Size => a.size.cmp(&b.size),
                Column::Date => a.modified.cmp(&b.modified),
                Column::Name => Ordering::Equal,
            });
        }
        if self.descending {
            entries.reverse();
        }
        entries.sort_by_key(|entry| !entry.is_folder());
    }
}

/// A time in UTC to the second; `None` before 1970 and after 9999.
pub(crate) fn rfc3339(time: SystemTime) -> Option<String> {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    (since.as_secs() < conditional::END_OF_DATES).then(|| humantime::format_rfc3339_seconds(time).to_string())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn entries_are_sorted_by_what_the_query_says_with_folders_first() {
        let entry = |name: &str, size, seconds| Entry {
            name: name.to_owned(),
            has_link: true,
            size,
            modified: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)),
            is_link: false,
        };
        for (query, expected) in [
            ("", "d E a B c"),
            ("sort=name", "d E a B c"),
            ("order=desc", "E d c B a"),
            ("sort=size", "d E c a B"),
            ("sort=size&order=desc", "E d B a c"),
            ("sort=date", "E d B c a"),
            ("sort=date&order=desc", "d E a c B"),
            ("sort=nonsense&&x=%ff", "d E a B c"),
        ] {
            let mut entries = vec![
                entry("c", Some(1), 20),
                entry("d", None, 5),
                entry("B", Some(3), 10),
                entry("a", Some(2), 30),
                entry("E", None, 2),
            ];
            Order::of(Some(query)).sort(&mut entries);
            let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
            assert_eq!(names.join(" "), expected, "{query}");
        }
    }

    #[test]
    fn times_that_have_no_date_are_left_out() {
        let epoch = SystemTime::UNIX_EPOCH;
        assert_eq!(rfc3339(epoch).as_deref(), Some("1970-01-01T00:00:00Z"));
        assert_eq!(rfc3339(epoch - Duration::from_secs(1)), None);
        assert_eq!(
            rfc3339(epoch + Duration::from_secs(conditional::END_OF_DATES)),
            None
        );
    }
}
