//! Where the bodies of a run go: one rule for all of its URLs.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use percent_encoding::percent_decode_str;
use url::Url;

use crate::args::GetArgs;
use crate::exit::{Exit, Failure};
use crate::transfer::target::Target;

/// The name of a body whose URL ends in a slash.
const INDEX: &str = "index.html";
/// The longest file name, so that its temporary name fits the 255 bytes of common file systems.
const LONGEST_NAME: usize = 200;

/// The rule by which the URLs of a run get their targets.
pub(crate) struct Outputs {
    rule: Rule,
    force: bool,
    skip_existing: bool,
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
        let rule = if args.discard {
            Rule::Discard
        } else if let Some(dir) = &args.dir {
            Rule::Folder(dir.clone())
        } else if args.remote_name {
            Rule::Folder(PathBuf::from("."))
        } else if !one {
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
            Rule::Named(path) => path == Path::new("-"),
            Rule::Discard | Rule::Folder(_) => false,
        }
    }

    /// The target for the body of a URL; `None` when the file exists and is to be skipped.
    ///
    /// # Errors
    /// The file exists, or another URL of this run has the same file name.
    pub(crate) async fn target(&self, url: &Url) -> Result<Option<Target>, Failure> {
        match &self.rule {
            Rule::Discard => Ok(Some(Target::Discard)),
            Rule::Stdout => Ok(Some(Target::Stdout { asked: false })),
            Rule::Named(path) if self.is_there(path).await => Ok(None),
            Rule::Named(path) => Target::named(path, self.force).await.map(Some),
            Rule::Folder(dir) => {
                let name = file_name(url);
                if !self.taken.take(&name) {
                    return Err(Failure::new(
                        Exit::Exists,
                        format!(
                            "an earlier URL of this run has the file name {name} too; download this one separately with -o FILE"
                        ),
                    ));
                }
                let path = dir.join(name);
                if self.is_there(&path).await {
                    return Ok(None);
                }
                match Target::named(&path, self.force).await? {
                    // The user did not name this device.
                    Target::Device(path) => Err(Failure::exists(&path)),
                    target => Ok(Some(target)),
                }
            }
        }
    }

    /// Whether an existing file is to be skipped. A file that has its name is complete.
    async fn is_there(&self, path: &Path) -> bool {
        self.skip_existing && tokio::fs::metadata(path).await.is_ok_and(|found| found.is_file())
    }
}

/// The file names of this run as 128-bit keyed hashes: 16 bytes for each URL.
#[derive(Default)]
struct TakenNames {
    keys: (RandomState, RandomState),
    hashes: Mutex<HashSet<(u64, u64)>>,
}

impl TakenNames {
    /// Takes a name; `false` if it is taken.
    fn take(&self, name: &str) -> bool {
        let hash = (self.keys.0.hash_one(name), self.keys.1.hash_one(name));
        self.hashes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(hash)
    }
}

/// The last segment of the URL's path as a file name: percent-decoded, without separators and control characters, not
/// `.` or `..`, not empty, at most 200 bytes. The query is not part of it.
pub(crate) fn file_name(url: &Url) -> String {
    let segment = url.path().rsplit('/').next().unwrap_or_default();
    let decoded = percent_decode_str(segment).decode_utf8_lossy();
    let mut name: String = decoded
        .chars()
        .map(|c| match c {
            '/' | '\\' => '_',
            '<' | '>' | ':' | '"' | '|' | '?' | '*' if cfg!(windows) => '_',
            c if c.is_control() => '_',
            c => c,
        })
        .collect();
    let mut end = name.len().min(LONGEST_NAME);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name.truncate(end);
    match name.as_str() {
        "" => INDEX.to_owned(),
        "." => "_".to_owned(),
        ".." => "__".to_owned(),
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Component;

    fn name(url: &str) -> String {
        Url::parse(url).map_or_else(|error| error.to_string(), |url| file_name(&url))
    }

    #[test]
    fn a_name_is_the_decoded_last_segment() {
        assert_eq!(name("http://h/a/b%20c.txt?x=/y#z"), "b c.txt");
        assert_eq!(name("http://h/%E6%BC%A2.png"), "漢.png");
        assert_eq!(name("http://h"), INDEX);
        assert_eq!(name("http://h/a/"), INDEX);
    }

    #[test]
    fn no_name_leaves_its_folder() {
        for segment in [
            "..",
            "%2e%2e",
            "..%2f..%2fetc%2fpasswd",
            "%2Fetc%2Fpasswd",
            "a%00b",
            "..%5cx",
            "%ff%fe",
            "%252e%252e%252f",
            ".",
            "%2e",
        ] {
            let name = name(&format!("http://h/d/{segment}"));
            let parts: Vec<_> = Path::new(&name).components().collect();
            assert!(
                matches!(parts.as_slice(), [Component::Normal(part)] if *part == name.as_str()),
                "{segment} became {name:?}"
            );
            assert!(!name.contains('\0'));
        }
    }

    #[test]
    fn a_long_name_is_cut_between_characters() {
        let even = name(&format!("http://h/{}", "%C3%A4".repeat(300)));
        assert!(even.len() == 200 && even.chars().all(|c| c == 'ä'), "{even}");
        let odd = name(&format!("http://h/a{}", "%C3%A4".repeat(300)));
        assert!(odd.len() == 199 && odd.ends_with('ä'), "{odd}");
        assert_eq!(name(&format!("http://h/{}", "a".repeat(201))), "a".repeat(200));
    }

    fn outputs(rule: Rule, skip_existing: bool) -> Outputs {
        Outputs {
            rule,
            force: false,
            skip_existing,
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
            let skipped = outputs(rule("a"), true).target(&url("a")?).await;
            assert!(matches!(skipped, Ok(None)), "{skipped:?}");
            for (name, skip_existing) in [("a", false), ("d", true), ("d", false)] {
                let refused = outputs(rule(name), skip_existing).target(&url(name)?).await;
                let exit = refused.err().map(|failure| failure.exit);
                assert_eq!(exit, Some(Exit::Exists), "{name}");
            }
            let new = outputs(rule("b"), true).target(&url("b")?).await;
            assert!(
                matches!(&new, Ok(Some(Target::File { path, force: false })) if *path == there().join("b")),
                "{new:?}"
            );
        }
        Ok(())
    }

    #[test]
    fn a_name_is_taken_once() {
        let taken = TakenNames::default();
        assert!(taken.take("a"));
        assert!(taken.take("b"));
        assert!(!taken.take("a"));
    }
}
