//! Where the bodies of a run go: one rule for all of its URLs.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use http::HeaderMap;
use url::Url;

use crate::args::GetArgs;
use crate::exit::{Exit, Failure};
use crate::transfer::target::{Target, is_stdout};

use super::names::{file_name, header_name, segment_name};

/// The rule by which the URLs of a run get their targets.
pub(crate) struct Outputs {
    rule: Rule,
    force: bool,
    skip_existing: bool,
    /// Another program has begun existing files (`--continue`).
    continues: bool,
    /// Responses name their files (`-J`).
    by_header: bool,
    /// Files are in the folders of their URLs.
    has_folders: bool,
    taken: TakenNames,
}

enum Rule {
    Discard,
    Stdout,
    Named(PathBuf),
    Folder(PathBuf),
}

impl Outputs {
    /// Chooses the rule. Several bodies for one file are an error.
    pub(crate) fn from_args(args: &GetArgs) -> Result<Self, Failure> {
        let one = args.urls.len() == 1 && args.list.is_none();
        let heads = args.head || args.include;
        if heads && (args.remote_header_name || args.continues()) {
            return Err(Failure::usage(
                "--head and --include write to standard output; leave out --remote-header-name and --continue",
            ));
        }
        let in_folder = args.remote_name || args.dir.is_some();
        if args.remote_header_name && !in_folder {
            return Err(Failure::usage("--remote-header-name needs -O or --dir DIR"));
        }
        if args.remote_header_name && args.force {
            return Err(Failure::usage(
                "--remote-header-name lets the server choose the name, so --force could replace any file of the folder; leave one of \
                 them out, or name the file with -o FILE",
            ));
        }
        if args.force_directories && !in_folder {
            return Err(Failure::usage("--force-directories needs -O or --dir DIR"));
        }
        let rule = if args.discard {
            Rule::Discard
        } else if let Some(dir) = &args.dir {
            Rule::Folder(dir.clone())
        } else if args.remote_name {
            Rule::Folder(PathBuf::from("."))
        } else if !one && !args.head {
            return Err(Failure::usage(
                "several URLs need one of -O, --dir DIR and --discard",
            ));
        } else {
            args.output.clone().map_or(Rule::Stdout, Rule::Named)
        };
        Ok(Self {
            rule,
            force: args.force,
            skip_existing: args.skip_existing,
            continues: args.continues(),
            by_header: args.remote_header_name,
            has_folders: args.force_directories,
            taken: TakenNames::default(),
        })
    }

    /// Creates the folder for the files.
    pub(crate) async fn prepare(&self) -> Result<(), Failure> {
        match &self.rule {
            Rule::Folder(dir) => tokio::fs::create_dir_all(dir)
                .await
                .map_err(|error| Failure::from_io("create the folder", dir, &error)),
            _ => Ok(()),
        }
    }

    pub(crate) fn uses_stdout(&self) -> bool {
        match &self.rule {
            Rule::Stdout => true,
            Rule::Named(path) => is_stdout(path),
            Rule::Discard | Rule::Folder(_) => false,
        }
    }

    /// What becomes of bodies that are interrupted and cannot be resumed.
    pub(crate) fn fate_of_incomplete(&self) -> &'static str {
        match &self.rule {
            _ if self.uses_stdout() => "standard output has what had arrived",
            Rule::Discard => "the download is not complete",
            _ => "incomplete files that cannot be resumed are removed",
        }
    }

    /// The target for the body of a URL, with the name that the list gives it; `None` when the file exists and is to be
    /// skipped.
    ///
    /// # Errors
    /// The file exists, or another URL of this run has the same file name.
    pub(crate) async fn target(&self, url: &Url, name: Option<&str>) -> Result<Option<Target>, Failure> {
        match &self.rule {
            Rule::Discard => Ok(Some(Target::Discard)),
            Rule::Stdout => Ok(Some(Target::Stdout { asked: false })),
            Rule::Named(path) if self.is_there(path).await => Ok(None),
            Rule::Named(path) => self.named(path).await.map(Some),
            Rule::Folder(dir) if self.by_header && name.is_none() => Ok(Some(Target::File {
                path: dir.join(file_name(url)),
                force: false,
            })),
            Rule::Folder(dir) if self.has_folders && name.is_none() => {
                let place = place(url);
                let folder = dir.join(place.parent().unwrap_or(Path::new("")));
                tokio::fs::create_dir_all(&folder)
                    .await
                    .map_err(|error| Failure::from_io("create the folder", &folder, &error))?;
                self.in_folder(dir, place.as_os_str(), url).await
            }
            Rule::Folder(dir) => {
                let name = name.map_or_else(|| file_name(url), OsString::from);
                self.in_folder(dir, &name, url).await
            }
        }
    }

    /// The target at a path below the folder; `None` as for [`Self::target`]. `replaces`: the file there is out of date. `is_free`:
    /// nothing was there when the list was read. A file that is there by now is found when the body is complete.
    ///
    /// # Errors
    /// As [`Self::target`].
    pub(crate) async fn below(
        &self,
        place: &Path,
        is_free: bool,
        replaces: bool,
    ) -> Result<Option<Target>, Failure> {
        let Rule::Folder(dir) = &self.rule else {
            return Ok(Some(Target::Discard));
        };
        // Two names may be one file there.
        let ignores_case = cfg!(any(windows, target_vendor = "apple"));
        if ignores_case && !self.taken.is_free(&place.to_string_lossy().to_lowercase()) {
            let text = format!(
                "another name of this run differs from {} only in its case, and is one file here; download it separately with -o",
                place.display()
            );
            return Err(Failure::new(Exit::Exists, text));
        }
        let path = dir.join(place);
        // To look once more would be a job on a blocking thread for each file.
        if is_free {
            let force = self.force;
            return Ok(Some(Target::File { path, force }));
        }
        if !replaces && self.is_there(&path).await {
            return Ok(None);
        }
        match Target::named(&path, self.force || replaces).await {
            Err(failure) if failure.is_existing_file() => Err(Failure::exists_in_tree(&path)),
            Err(failure) => Err(failure),
            Ok(Target::Device(path)) => Err(Failure::exists(&path)),
            Ok(target) => Ok(Some(target)),
        }
    }

    /// Replaces the target by the one that the response names, or else the URL; `None` as for [`Self::target`].
    ///
    /// # Errors
    /// As [`Self::target`].
    pub(crate) async fn target_by_header(
        &self,
        url: &Url,
        headers: &HeaderMap,
    ) -> Result<Option<Target>, Failure> {
        let name = header_name(headers).unwrap_or_else(|| file_name(url));
        match &self.rule {
            Rule::Folder(dir) => self.in_folder(dir, &name, url).await,
            _ => self.target(url, None).await,
        }
    }

    /// Whether responses name the files of URLs without a name in the list.
    pub(crate) fn names_by_header(&self) -> bool {
        self.by_header
    }

    async fn in_folder(&self, dir: &Path, name: &OsStr, url: &Url) -> Result<Option<Target>, Failure> {
        if let Err(earlier) = self.taken.take(name, url) {
            return Err(Failure::new(
                Exit::Exists,
                format!(
                    "{url} has the file name {} of {}; keep the folders of the URLs with --force-directories, give this one another \
                     name with an indented line out=NAME below it in the list, or download it separately with -o FILE",
                    Path::new(name).display(),
                    earlier.as_deref().unwrap_or("an earlier URL of this run")
                ),
            ));
        }
        let path = dir.join(name);
        if self.is_there(&path).await {
            return Ok(None);
        }
        if self.by_header && tokio::fs::symlink_metadata(&path).await.is_ok() {
            let text = format!(
                "{} exists, and --remote-header-name replaces no file; move it away, or give another name with -o FILE",
                path.display()
            );
            return Err(Failure::new(Exit::Exists, text));
        }
        match self.named(&path).await? {
            // The user did not name this device.
            Target::Device(path) => Err(Failure::exists(&path)),
            target => Ok(Some(target)),
        }
    }

    /// The target of this path. An existing file with bytes is continued with `--continue`.
    async fn named(&self, path: &Path) -> Result<Target, Failure> {
        let target = Target::named(path, self.force || self.continues).await?;
        let Target::File { path, .. } = target else {
            return Ok(target);
        };
        let length = tokio::fs::metadata(&path).await.map(|found| found.len()).ok();
        Ok(match length.filter(|_| self.continues) {
            Some(1..) => Target::Continued(path),
            // Nothing is lost when an empty file is replaced.
            empty => Target::File {
                path,
                force: self.force || empty.is_some(),
            },
        })
    }

    /// Whether an existing file is to be skipped. A file that has its name is complete.
    async fn is_there(&self, path: &Path) -> bool {
        self.skip_existing && tokio::fs::metadata(path).await.is_ok_and(|found| found.is_file())
    }
}

/// The path of a file below the folders of its host, its port and its path. Nothing of a URL leads out of them.
fn place(url: &Url) -> PathBuf {
    // An address of IPv6 has brackets and colons.
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let host = match url.port() {
        None => host.to_owned(),
        Some(port) => format!("{host}+{port}"),
    };
    let mut place: PathBuf = segment_name(&host).unwrap_or_else(|| "_".into()).into();
    let folders = url.path().rsplit_once('/').map_or("", |(folders, _)| folders);
    place.extend(folders.split('/').filter_map(segment_name));
    place.push(file_name(url));
    place
}

/// When two URLs have the same file name, the message names both. So many URLs are kept for it, of at most so many bytes each.
const NAMED_URLS: usize = 10_000;
const NAMED_URL_BYTES: usize = 500;

/// The file names of this run as 128-bit keyed hashes: 16 bytes for each URL, and the URLs of the first ones.
#[derive(Default)]
struct TakenNames {
    keys: (RandomState, RandomState),
    urls: Mutex<HashMap<NameHash, Option<Box<str>>>>,
}

type NameHash = (u64, u64);

impl TakenNames {
    /// Takes a name for a URL.
    ///
    /// # Errors
    /// It is taken, by this URL if it was kept.
    fn take(&self, name: &OsStr, url: &Url) -> Result<(), Option<Box<str>>> {
        let mut urls = self.urls.lock().unwrap_or_else(PoisonError::into_inner);
        let is_kept = urls.len() < NAMED_URLS && url.as_str().len() <= NAMED_URL_BYTES;
        match urls.entry(self.hash(name)) {
            Entry::Occupied(taken) => Err(taken.get().clone()),
            Entry::Vacant(free) => {
                free.insert(is_kept.then(|| url.as_str().into()));
                Ok(())
            }
        }
    }

    /// Takes a name without a URL; `false` if it is taken.
    fn is_free(&self, name: &str) -> bool {
        let mut urls = self.urls.lock().unwrap_or_else(PoisonError::into_inner);
        urls.insert(self.hash(OsStr::new(name)), None).is_none()
    }

    fn hash(&self, name: &OsStr) -> NameHash {
        (self.keys.0.hash_one(name), self.keys.1.hash_one(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outputs(rule: Rule, skip_existing: bool) -> Outputs {
        Outputs {
            rule,
            force: false,
            skip_existing,
            continues: false,
            by_header: false,
            has_folders: false,
            taken: TakenNames::default(),
        }
    }

    #[test]
    fn only_a_body_without_a_file_uses_standard_output() {
        for (rule, uses_stdout) in [
            (Rule::Stdout, true),
            (Rule::Named("-".into()), true),
            (Rule::Named("a".into()), false),
            (Rule::Folder("-".into()), false),
            (Rule::Discard, false),
        ] {
            assert_eq!(outputs(rule, false).uses_stdout(), uses_stdout);
        }
    }

    #[test]
    fn a_place_has_the_host_the_port_and_the_folders_of_a_url() -> Result<(), url::ParseError> {
        for (url, expected) in [
            ("http://h/a", "h/a"),
            ("https://h:8443/a/b/", "h+8443/a/b/index.html"),
            ("http://h/a//b%2fc/d?q", "h/a/b_c/d"),
            ("http://h/%2e%2e/%252e/e", "h/%2e/e"),
            ("http://[::1]:80/a", "::1/a"),
        ] {
            let expected = if cfg!(windows) {
                expected.replace(':', "_")
            } else {
                expected.to_owned()
            };
            assert_eq!(place(&Url::parse(url)?), Path::new(&expected), "{url}");
        }
        Ok(())
    }

    #[tokio::test]
    async fn a_file_that_is_there_is_left_as_it_is_or_refused() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("a"), "")?;
        std::fs::create_dir(folder.path().join("d"))?;
        let there = || folder.path().to_owned();
        let url = |name: &str| Url::parse(&format!("http://h/{name}"));
        for named in [true, false] {
            let rule = |name: &str| match named {
                true => Rule::Named(there().join(name)),
                false => Rule::Folder(there()),
            };
            let skipped = outputs(rule("a"), true).target(&url("a")?, None).await;
            assert!(matches!(skipped, Ok(None)), "{skipped:?}");
            for (name, skip_existing) in [("a", false), ("d", true), ("d", false)] {
                let refused = outputs(rule(name), skip_existing).target(&url(name)?, None).await;
                let exit = refused.err().map(|failure| failure.exit);
                assert_eq!(exit, Some(Exit::Exists), "{name}");
            }
            let new = outputs(rule("b"), true).target(&url("b")?, None).await;
            assert!(
                matches!(&new, Ok(Some(Target::File { path, force: false })) if *path == there().join("b")),
                "{new:?}"
            );
        }
        Ok(())
    }

    #[test]
    fn a_name_is_taken_once() -> Result<(), url::ParseError> {
        let taken = TakenNames::default();
        let url = |name: &str| Url::parse(&format!("http://h/{name}"));
        assert_eq!(taken.take(OsStr::new("a"), &url("1/a")?), Ok(()));
        assert_eq!(taken.take(OsStr::new("b"), &url("b")?), Ok(()));
        assert_eq!(
            taken.take(OsStr::new("a"), &url("2/a")?),
            Err(Some("http://h/1/a".into()))
        );
        let long = url(&"x".repeat(NAMED_URL_BYTES))?;
        assert_eq!(taken.take(OsStr::new("x"), &long), Ok(()));
        assert_eq!(taken.take(OsStr::new("x"), &long), Err(None));
        Ok(())
    }
}
