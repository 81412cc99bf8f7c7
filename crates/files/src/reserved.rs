//! The names that an upload may not have unless uploads may replace files.
//!
//! One rule: without [`Settings::overwrite`], an upload changes the answer of no path that has one. A file that exists is
//! kept (`store`). This module has the names that answer for another path than their own:
//!
//! | name | answers for | with |
//! |---|---|---|
//! | that of the index | its folder, in place of the list or the application | `listing`, `spa` |
//! | that of the error page | every path without a file | `error_page` |
//! | one without a dot | a route of the application; a new folder does so with `listing` | `spa` |
//! | a sibling of a file; a file that has a sibling | that file; itself, with the content of the sibling | `precompressed` |
//!
//! Names are compared without regard to case, since file systems may do so. Called by `uploads`, `form`, `writer`, and by
//! `files`: what no upload can be called is the operator's.

use cap_std::fs::Dir;

use crate::encoding::{Encoding, is_encoded};
use crate::settings::{INDEX, Settings};

/// The names that uploads may not have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reserved {
    /// In lower case.
    names: Vec<String>,
    /// Names without a dot are routes of an application.
    routes: bool,
    /// So are folders.
    folders: bool,
    /// Files have siblings.
    siblings: bool,
}

impl Reserved {
    /// The names for uploads that requests may be answered with.
    pub(crate) fn of(settings: &Settings) -> Reserved {
        if settings.overwrite {
            return Reserved::default();
        }
        let index = (settings.listing || settings.spa).then_some(INDEX);
        let error_page = settings.error_page.as_deref();
        let error_page = error_page.and_then(|path| path.rsplit(['/', '\\']).next());
        let names = index.into_iter().chain(error_page);
        Reserved {
            names: names.map(str::to_lowercase).collect(),
            routes: settings.spa,
            folders: settings.spa && settings.listing,
            siblings: settings.precompressed,
        }
    }

    /// Whether a file of this name answers for other paths, in whichever folder it is.
    pub(crate) fn is_page(&self, name: &str) -> bool {
        !self.names.is_empty() && self.names.contains(&name.to_lowercase())
    }

    /// Whether a file of this name may not be stored in any folder.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.is_page(name) || (self.routes && is_route(name))
    }

    /// Whether one of these folders may not be made.
    pub(crate) fn has_folder(&self, names: &[String]) -> bool {
        self.folders && names.iter().any(|name| is_route(name))
    }

    /// Whether names depend on the other files of the folder.
    pub(crate) fn depends_on_folder(&self) -> bool {
        self.siblings
    }

    /// Whether a file of this name would be a sibling of one in this folder, or one in it would be a sibling of it. Blocks.
    pub(crate) fn has_in(&self, folder: &Dir, name: &str) -> bool {
        if !self.siblings {
            return false;
        }
        let exists = |name: &str| folder.symlink_metadata(name).is_ok();
        let lower = name.to_ascii_lowercase();
        let ends = |encoding: &Encoding| lower.ends_with(encoding.suffix());
        match Encoding::ALL.iter().find(|encoding| ends(encoding)) {
            Some(encoding) => {
                // The suffix is ASCII, so this is between two characters.
                let plain = name.get(..name.len() - encoding.suffix().len());
                plain.is_some_and(|plain| !plain.is_empty() && !is_encoded(plain) && exists(plain))
            }
            None => Encoding::ALL
                .iter()
                .any(|encoding| exists(&format!("{name}{}", encoding.suffix()))),
        }
    }
}

/// Whether a path with this last name is one that an application in the browser may have made.
pub(crate) fn is_route(name: &str) -> bool {
    !name.contains('.')
}

#[cfg(test)]
mod tests {
    use cap_std::ambient_authority;

    use super::*;

    fn reserved(change: impl FnOnce(&mut Settings)) -> Reserved {
        let mut settings = Settings::default();
        change(&mut settings);
        Reserved::of(&settings)
    }

    #[test]
    fn a_name_is_reserved_where_a_setting_gives_it_a_meaning_for_other_paths() {
        let none = reserved(|_| {});
        let listing = reserved(|settings| settings.listing = true);
        let spa = reserved(|settings| settings.spa = true);
        let page = reserved(|settings| settings.error_page = Some("errors/404.html".to_owned()));
        let all = reserved(|settings| {
            settings.overwrite = true;
            settings.listing = true;
            settings.spa = true;
            settings.error_page = Some("404.html".to_owned());
        });
        for (name, expected) in [
            ("index.html", [false, true, true, false]),
            ("Index.HTML", [false, true, true, false]),
            ("404.html", [false, false, false, true]),
            ("404.HTML", [false, false, false, true]),
            ("login", [false, false, true, false]),
            ("a.txt", [false; 4]),
        ] {
            let found = [&none, &listing, &spa, &page].map(|reserved| reserved.has(name));
            assert_eq!(found, expected, "{name}");
            assert!(!all.has(name), "{name}: uploads may replace files");
        }
        let both = reserved(|settings| (settings.spa, settings.listing) = (true, true));
        let names = |name: &str| [name.to_owned()];
        assert!(both.has_folder(&names("login")) && !both.has_folder(&names("v1.0")));
        assert!(!spa.has_folder(&names("login")) && !listing.has_folder(&names("login")));
    }

    #[test]
    fn a_file_and_its_sibling_are_told_by_what_the_folder_has() {
        let home = tempfile::tempdir().unwrap();
        for name in ["a.js", "b.js.gz", "c.gz", "d.BR"] {
            std::fs::write(home.path().join(name), "").unwrap();
        }
        let folder = Dir::open_ambient_dir(home.path(), ambient_authority()).unwrap();
        let with = reserved(|settings| settings.precompressed = true);
        let without = reserved(|_| {});
        let longest = "n".repeat(255);
        for (name, expected) in [
            ("a.js.gz", true),
            ("a.js.GZ", true),
            ("a.js.br", true),
            ("a.js.zst", true),
            ("b.js", true),
            ("c", true),
            ("c.gz.br", false),
            ("e.gz", false),
            ("a.js.gz.gz", false),
            (".gz", false),
            ("é.gz", false),
            ("other.js", false),
            (longest.as_str(), false),
        ] {
            assert_eq!(with.has_in(&folder, name), expected, "{name}");
            assert!(!without.has_in(&folder, name), "{name}");
        }
    }
}
