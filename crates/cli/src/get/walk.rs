//! `--recursive`: walks the folders of a server by their lists, and hands over what is to be downloaded.
//!
//! A folder leads to what is beneath it and nowhere else: a list or a redirect that leads out is not followed. Names become
//! files below the folder of this side, and no link there is followed either. The queue of files is bounded by the downloads
//! that take from it.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use glob::{MatchOptions, Pattern};
use http::HeaderValue;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use url::Url;

use crate::args::GetArgs;
use crate::exit::{Exit, Failure};
use crate::figures::grouped;
use crate::transfer::client::{Address, parse_url, without_credentials};
use crate::transfer::lists::LongList;
use crate::transfer::receive::file_job;
use crate::transfer::seconds;

use super::entries::{Entry, Index};
use super::fetch::{Fetcher, List};

use super::list::{FoundFolders, Item};
use super::names::segment_name;

/// How many lists are requested at once.
pub(super) const LISTS: usize = 256;

/// How many folders are walked. Without a limit, a server whose folders contain themselves would never end.
const MOST_FOLDERS: usize = 100_000;

/// The bytes of the URLs and paths of the folders that wait: a server may nest folders with long names.
const MOST_WAITING_BYTES: usize = 64 << 20;

/// How many files wait for their downloads.
const READ_AHEAD: usize = 512;

/// What to walk, and what to take of it.
pub(super) struct Walk {
    root: Address,
    /// The folder of this side.
    dir: PathBuf,
    depth: usize,
    filter: Filter,
    /// `--newer`.
    only_newer: bool,
    walked: Arc<Walked>,
}

/// How many folders are walked.
#[derive(Default)]
struct Walked(AtomicUsize);

impl Walked {
    /// Counts one more; `false` if there are too many.
    fn take(&self) -> bool {
        let more = |count| (count < MOST_FOLDERS).then_some(count + 1);
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok()
    }
}

/// `--accept` and `--reject`: patterns for paths below the folder.
#[derive(Default)]
struct Filter {
    accept: Vec<Pattern>,
    reject: Vec<Pattern>,
}

/// A folder to be walked.
struct Folder {
    address: Address,
    /// Below the folder of this side.
    path: PathBuf,
    depth: usize,
}

/// The folders that wait to be walked, however they were found.
#[derive(Default)]
struct Waiting {
    folders: VecDeque<Folder>,
    walked: Arc<Walked>,
    /// The bytes of those that wait.
    bytes: usize,
    told: bool,
}

impl Folder {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.address.url.as_str().len() + self.path.as_os_str().len()
    }
}

impl Waiting {
    /// # Errors
    /// There are too many, which is said once.
    fn add(&mut self, folder: Folder) -> Result<(), Failure> {
        let bytes = self.bytes + folder.bytes();
        if bytes <= MOST_WAITING_BYTES && self.walked.take() {
            self.bytes = bytes;
            self.folders.push_back(folder);
            return Ok(());
        }
        if std::mem::replace(&mut self.told, true) {
            return Ok(());
        }
        let text = format!(
            "{}: more than {MOST_FOLDERS} folders, or too many with long names; this one and others are left out. Download parts of \
             the folder separately",
            folder.address.url
        );
        Err(Failure::new(Exit::TooLarge, text))
    }

    fn next(&mut self) -> Option<Folder> {
        let folder = self.folders.pop_front()?;
        self.bytes -= folder.bytes();
        Some(folder)
    }
}

impl Walk {
    /// What the options ask for; `None` without `--recursive`.
    ///
    /// # Errors
    /// The options contradict each other, or the URL or a pattern is invalid.
    pub(super) fn from_args(args: &mut GetArgs) -> Result<Option<Self>, Failure> {
        if !args.recursive {
            return Ok(None);
        }
        let (url, dir) = match args.urls.as_slice() {
            [url] => (url, None),
            [url, dir] if args.dir.is_none() && !dir.contains("://") => (url, Some(PathBuf::from(dir))),
            _ => {
                return Err(Failure::usage(
                    "--recursive takes one URL and at most one folder for its files, as in: fullbore get -r URL/ DIR",
                ));
            }
        };
        let root = parse_url(url)?;
        let dir = dir.or(args.dir.take()).unwrap_or_else(|| own_folder(&root.url));
        let walk = Self {
            depth: usize::try_from(args.depth).unwrap_or(usize::MAX),
            filter: Filter {
                accept: patterns(&args.accept)?,
                reject: patterns(&args.reject)?,
            },
            only_newer: args.newer,
            walked: Arc::default(),
            root,
            dir: dir.clone(),
        };
        args.urls.truncate(1);
        args.dir = Some(dir);
        Ok(Some(walk))
    }

    /// Walks, in a task of its own. The files come from the receiver.
    pub(super) fn start(self, fetcher: Arc<Fetcher>) -> mpsc::Receiver<Result<Item, Failure>> {
        let (sender, receiver) = mpsc::channel(READ_AHEAD);
        // A dropped receiver ends the walk.
        tokio::spawn(async move {
            let _ = self.run(&fetcher, &sender).await;
        });
        receiver
    }

    /// # Errors
    /// Nobody takes the files any more.
    async fn run(
        self,
        fetcher: &Arc<Fetcher>,
        sender: &mpsc::Sender<Result<Item, Failure>>,
    ) -> Result<(), Closed> {
        let this = Arc::new(self);
        let mut waiting = Waiting {
            walked: Arc::clone(&this.walked),
            ..Waiting::default()
        };
        let root = Folder {
            address: this.root.clone(),
            path: PathBuf::new(),
            depth: 0,
        };
        // The first of all is never too many.
        let _ = waiting.add(root);
        let mut asked = JoinSet::new();
        let (back, mut returned) = mpsc::unbounded_channel::<(Address, FoundFolders)>();
        let mut back = Some(back);
        loop {
            while asked.len() < LISTS {
                let Some(folder) = waiting.next() else {
                    break;
                };
                let (fetcher, this) = (Arc::clone(fetcher), Arc::clone(&this));
                asked.spawn(async move { this.visit(&fetcher, folder).await });
            }
            let visited = tokio::select! {
                Some(visited) = asked.join_next() => visited,
                // While folders are walked there is a sender here too.
                found = returned.recv() => {
                    let Some((address, of)) = found else { return Ok(()) };
                    if of.depth <= this.depth && !this.filter.rejects_folder(&of.path) {
                        let folder = Folder { address, path: of.path, depth: of.depth };
                        if let Err(failure) = waiting.add(folder) {
                            send(sender, Err(failure)).await?;
                        }
                    }
                    back = Some(of.sender);
                    continue;
                }
            };
            let panicked = |error| {
                Failure::new(
                    Exit::Other,
                    format!("a list failed by an error of fullbore: {error}"),
                )
            };
            match visited.map_err(panicked).and_then(|visited| visited) {
                Err(failure) => send(sender, Err(failure)).await?,
                Ok(all) => {
                    for visited in all {
                        for failure in visited.failures {
                            send(sender, Err(failure)).await?;
                        }
                        for found in visited.found {
                            let mut item = visited.folder.item(found);
                            item.folders =
                                back.clone()
                                    .zip(item.place.clone())
                                    .map(|(sender, path)| FoundFolders {
                                        path,
                                        depth: visited.folder.depth + 1,
                                        sender,
                                    });
                            send(sender, Ok(item)).await?;
                        }
                        let below = visited.below.iter().map(|entry| visited.folder.below(entry));
                        for folder in visited.next.into_iter().chain(below) {
                            if let Err(failure) = waiting.add(folder) {
                                send(sender, Err(failure)).await?;
                            }
                        }
                    }
                }
            }
            if asked.is_empty() && waiting.folders.is_empty() {
                back = None;
            }
        }
    }

    /// Reads the list of a folder, and looks at what is there of it. The lists of folders below may come with it.
    async fn visit(self: &Arc<Self>, fetcher: &Fetcher, mut folder: Folder) -> Result<Vec<Visited>, Failure> {
        let List {
            folder: url,
            index,
            right,
        } = fetcher.list(&folder.address, folder.depth < self.depth).await?;
        folder.address.url = url;
        let this = Arc::clone(self);
        let mut all = file_job(move || Ok(this.look_at_all(folder, index))).await?;
        for found in &mut all {
            fetcher.same.fetch_add(found.same, Ordering::Relaxed);
            if let Some((refused, failure)) = found.refused.take() {
                match fetcher.told_of_names.swap(true, Ordering::Relaxed) {
                    false => found.failures.push(failure),
                    true => drop(fetcher.refused_names.fetch_add(refused, Ordering::Relaxed)),
                }
            }
        }
        // It is dropped behind the entries of the others.
        if let Some(last) = all.last_mut() {
            last.right = right;
        }
        Ok(all)
    }

    /// Decides about the entries of a list, and of those that came with it. Blocks.
    fn look_at_all(&self, folder: Folder, mut index: Index) -> Vec<Visited> {
        let mut sublists = std::mem::take(&mut index.sublists);
        let mut waiting = VecDeque::from([(PathBuf::new(), folder, index)]);
        let mut all = Vec::new();
        while let Some((path, folder, index)) = waiting.pop_front() {
            let mut visited = self.look(folder, index);
            let folder = &visited.folder;
            visited.below.retain(|entry| {
                let path = path.join(&entry.name);
                let Some(index) = sublists.remove(&path).filter(|_| self.walked.take()) else {
                    return true;
                };
                waiting.push_back((path, folder.below(entry), index));
                false
            });
            all.push(visited);
        }
        all
    }

    /// Decides about the entries. Blocks.
    fn look(&self, folder: Folder, index: Index) -> Visited {
        let next = index.next.as_deref().and_then(|next| folder.page(next));
        let shown = without_credentials(folder.address.url.as_str());
        let mut visited = Visited::of(folder);
        let folder = &visited.folder;
        if index.is_cut || index.is_partial && next.is_none() {
            let why = match index.is_cut {
                true => "the list of this folder has more entries than are read",
                false => "the server lists only a part of this folder",
            };
            let text = format!("{shown}: {why}; the rest is left out");
            visited.failures.push(Failure::new(Exit::TooLarge, text));
        }
        visited.next = next;
        if let Some(name) = index.first_refused {
            let text = match index.refused {
                1 => format!(
                    "{shown}: the list has the name {name:?}, which no file here, or no URL, can have; it is left out"
                ),
                count => format!(
                    "{shown}: the list has {} names that no file here, or no URL, can have, the first is {name:?}; they are left out",
                    grouped(count)
                ),
            };
            visited.refused = Some((index.refused, Failure::new(Exit::LocalIo, text)));
        }
        // An empty folder is one too; with patterns, a folder is there for what it has.
        let mut made = None;
        if self.filter.accept.is_empty() {
            match make(&self.dir, &folder.path) {
                Ok(is_new) => made = Some(is_new),
                Err(failure) => {
                    visited.failures.push(failure);
                    visited.next = None;
                    return visited;
                }
            }
        }
        for mut entry in index.entries {
            let path = folder.path.join(&entry.name);
            // Some servers list folders without a slash, and this one was walked before.
            if !entry.is_folder && entry.size.is_none() && is_own_folder(&self.dir.join(&path)) {
                entry.is_folder = true;
            }
            if entry.is_folder {
                if folder.depth < self.depth && !self.filter.rejects_folder(&path) {
                    visited.below.push(entry);
                }
                continue;
            }
            if !self.filter.takes(&path) {
                continue;
            }
            let is_new = match made {
                Some(is_new) => is_new,
                None => match make(&self.dir, &folder.path) {
                    Ok(is_new) => *made.insert(is_new),
                    Err(failure) => {
                        visited.failures.push(failure);
                        visited.next = None;
                        return visited;
                    }
                },
            };
            if is_new {
                visited.found.push(Found::new(entry));
                continue;
            }
            match self.found(entry, &path) {
                Ok(Some(found)) => visited.found.push(found),
                Ok(None) => visited.same += 1,
                Err(failure) => visited.failures.push(failure),
            }
        }
        visited
    }

    /// An entry that is to be downloaded; `None` when the file here is the same.
    fn found(&self, entry: Entry, path: &Path) -> Result<Option<Found>, Failure> {
        let place = self.dir.join(path);
        let found = match std::fs::symlink_metadata(&place) {
            Ok(found) if found.is_file() => Some(found),
            Ok(found) => return Err(in_the_way(&place, &found)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some(Found::new(entry))),
            Err(error) => return Err(Failure::from_io("access", &place, &error)),
        };
        let found = found.filter(|_| self.only_newer);
        let modified = found.as_ref().and_then(seconds::of_file);
        let is_same = found.as_ref().is_some_and(|found| {
            entry.size == Some(found.len()) && entry.modified.is_some() && entry.modified <= modified
        });
        if is_same {
            return Ok(None);
        }
        // A list that tells sizes and times has told that this file is another one.
        let is_told = entry.size.is_some() && entry.modified.is_some();
        // A file from before 1970 has no such date, and is asked for without a condition.
        let since = modified.and_then(|second| u64::try_from(second).ok());
        let since = since
            .filter(|_| !is_told)
            .map(|second| httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(second)));
        Ok(Some(Found {
            entry,
            is_free: false,
            replaces: found.is_some(),
            since: since.and_then(|date| HeaderValue::try_from(date).ok()),
        }))
    }
}

/// A file that is to be downloaded.
struct Found {
    entry: Entry,
    /// Nothing is there.
    is_free: bool,
    /// The one here is out of date.
    replaces: bool,
    since: Option<HeaderValue>,
}

impl Found {
    /// One of which nothing is here.
    fn new(entry: Entry) -> Self {
        Self {
            entry,
            is_free: true,
            replaces: false,
            since: None,
        }
    }
}

/// What a folder has. The URLs and paths of entries are made one by one: they repeat those of the folder.
struct Visited {
    folder: Folder,
    found: Vec<Found>,
    /// Its folders.
    below: Vec<Entry>,
    /// The same folder, from where its list goes on.
    next: Option<Folder>,
    failures: Vec<Failure>,
    /// How many names are left out, and the failure that says so.
    refused: Option<(u64, Failure)>,
    same: u64,
    right: LongList,
}

impl Visited {
    fn of(folder: Folder) -> Self {
        Self {
            folder,
            found: Vec::new(),
            below: Vec::new(),
            next: None,
            failures: Vec::new(),
            refused: None,
            same: 0,
            right: None,
        }
    }
}

impl Folder {
    /// The download of one of its files.
    fn item(
        &self,
        Found {
            entry,
            is_free,
            replaces,
            since,
        }: Found,
    ) -> Item {
        let mut url = entry.url(&self.address.url);
        if let Some(login) = &self.address.login {
            // Both succeed for a URL with a host.
            let _ = url.set_username(&login.name);
            let _ = url.set_password(login.password.as_deref());
        }
        Item {
            url: url.into(),
            place: Some(self.path.join(&entry.name)),
            is_free,
            replaces,
            since,
            ..Item::default()
        }
    }

    /// One of its folders.
    fn below(&self, entry: &Entry) -> Self {
        Self {
            address: Address {
                url: entry.url(&self.address.url),
                login: self.address.login.clone(),
            },
            path: self.path.join(&entry.name),
            depth: self.depth + 1,
        }
    }

    /// The same folder, of which a list begins elsewhere.
    fn page(&self, reference: &str) -> Option<Self> {
        let here = &self.address.url;
        let url = here.join(reference).ok()?;
        let is_page =
            url.origin() == here.origin() && url.path() == here.path() && url.query() != here.query();
        is_page.then(|| Self {
            address: Address {
                url,
                login: self.address.login.clone(),
            },
            path: self.path.clone(),
            depth: self.depth,
        })
    }
}

/// Nobody takes the files any more.
struct Closed;

async fn send(
    sender: &mpsc::Sender<Result<Item, Failure>>,
    item: Result<Item, Failure>,
) -> Result<(), Closed> {
    sender.send(item).await.map_err(|_| Closed)
}

/// The folder for the files of a URL: named after its last segment, or its host.
fn own_folder(url: &Url) -> PathBuf {
    let path = url.path().trim_end_matches('/');
    match segment_name(path.rsplit('/').next().unwrap_or_default()) {
        Some(name) => name.into(),
        None => url
            .host_str()
            .unwrap_or("files")
            .replace(['[', ']', ':'], "_")
            .into(),
    }
}

/// Whether there is a folder, and no link to one.
fn is_own_folder(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|found| found.is_dir())
}

/// Makes a folder below this one, and those above it. Returns whether the folder is new.
///
/// # Errors
/// It cannot be made, or a link or a file is in its place: what is behind a link is not ours to fill.
fn make(dir: &Path, path: &Path) -> Result<bool, Failure> {
    let mut folder = dir.to_owned();
    let mut is_new = false;
    for name in path.iter() {
        folder.push(name);
        is_new = false;
        match std::fs::create_dir(&folder) {
            Ok(()) => is_new = true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let found = std::fs::symlink_metadata(&folder);
                let found = found.map_err(|error| Failure::from_io("access", &folder, &error))?;
                if !found.is_dir() {
                    return Err(in_the_way(&folder, &found));
                }
            }
            Err(error) => return Err(Failure::from_io("create the folder", &folder, &error)),
        }
    }
    Ok(is_new)
}

fn in_the_way(path: &Path, found: &Metadata) -> Failure {
    let what = match (found.is_symlink(), found.is_dir()) {
        (true, _) => "a symbolic link, which --recursive does not follow",
        (_, true) => "a folder, and the server has a file of this name",
        _ => "no folder and no regular file",
    };
    Failure::new(
        Exit::Exists,
        format!(
            "{} is {what}; move it away, or download to another folder",
            path.display()
        ),
    )
}

/// `*` and `?` stand for characters of one name, `**` for any number of folders.
const MATCHING: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};

/// A pattern without a slash is one for names in every folder.
fn patterns(texts: &[String]) -> Result<Vec<Pattern>, Failure> {
    let read = |text: &String| {
        let whole = match text.trim_end_matches('/').contains('/') {
            true => text.trim_start_matches('/').to_owned(),
            false => format!("**/{text}"),
        };
        Pattern::new(&whole)
            .map_err(|error| Failure::usage(format!("the pattern {text:?} is invalid: {}", error.msg)))
    };
    texts.iter().map(read).collect()
}

impl Filter {
    fn takes(&self, path: &Path) -> bool {
        let matches = |pattern: &Pattern| pattern.matches_path_with(path, MATCHING);
        (self.accept.is_empty() || self.accept.iter().any(matches)) && !self.reject.iter().any(matches)
    }

    /// Whether no file of a folder can be taken.
    fn rejects_folder(&self, path: &Path) -> bool {
        // A name that only a pattern for all names matches.
        let any = path.join(OsStr::new("\u{10ffff}"));
        self.reject.iter().any(|pattern| {
            let text = pattern.as_str().trim_end_matches('/');
            let is_it = Pattern::new(text).is_ok_and(|pattern| pattern.matches_path_with(path, MATCHING));
            is_it || text.ends_with("**") && pattern.matches_path_with(&any, MATCHING)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(accept: &[&str], reject: &[&str]) -> Filter {
        let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        Filter {
            accept: patterns(&texts(accept)).unwrap(),
            reject: patterns(&texts(reject)).unwrap(),
        }
    }

    #[test]
    fn patterns_match_names_everywhere_or_paths_from_the_folder_on() {
        let all = filter(&[], &[]);
        assert!(all.takes(Path::new("a/b.txt")) && !all.rejects_folder(Path::new("a")));
        let some = filter(&["*.txt", "docs/**"], &["old.*", "tmp/", "a/b/**"]);
        for (path, taken) in [
            ("x.txt", true),
            ("a/x.txt", true),
            ("a/x.jpg", false),
            ("docs/x.jpg", true),
            ("docs/a/x", true),
            ("a/docs/x", false),
            ("a/old.txt", false),
            ("docs/.hidden", true),
        ] {
            assert_eq!(some.takes(Path::new(path)), taken, "{path}");
        }
        for (path, rejected) in [
            ("tmp", true),
            ("a/tmp", true),
            ("a", false),
            ("a/b", true),
            ("docs", false),
        ] {
            assert_eq!(some.rejects_folder(Path::new(path)), rejected, "{path}");
        }
        assert!(patterns(&["a**b".to_owned()]).is_err());
    }

    #[test]
    fn so_many_folders_are_walked_and_that_is_said_once() {
        let walked = Arc::new(Walked(AtomicUsize::new(MOST_FOLDERS - 1)));
        let mut waiting = Waiting {
            walked,
            ..Waiting::default()
        };
        let folder = || Folder {
            address: parse_url("http://h/x/").unwrap(),
            path: PathBuf::new(),
            depth: 0,
        };
        let added: Vec<bool> = (0..3).map(|_| waiting.add(folder()).is_ok()).collect();
        assert_eq!((added, waiting.folders.len()), (vec![true, false, true], 1));
    }

    #[test]
    fn a_folder_is_named_after_its_url() {
        let named = |url: &str| own_folder(&Url::parse(url).unwrap()).display().to_string();
        for (url, name) in [
            ("http://h/a/photos%202026/", "photos 2026"),
            ("http://h/photos", "photos"),
            ("http://example.org/", "example.org"),
            ("http://[::1]:80/", "___1_"),
            ("http://h/%2e%2e%2fx/", ".._x"),
        ] {
            assert_eq!(named(url), name, "{url}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn no_link_in_the_way_is_followed() {
        let base = tempfile::tempdir().unwrap();
        let dir = base.path().join("dir");
        std::fs::create_dir_all(dir.join("a")).unwrap();
        std::os::unix::fs::symlink(base.path(), dir.join("out")).unwrap();
        assert!(make(&dir, Path::new("a/b/c")).is_ok() && dir.join("a/b/c").is_dir());
        for path in ["out", "out/x"] {
            assert!(
                make(&dir, Path::new(path)).is_err_and(|failure| failure.message.contains("symbolic link"))
            );
        }
        assert!(!base.path().join("x").exists());
    }
}
