//! The file of an upload. It has no name while it is written, and is removed when the upload fails.
//!
//! With unnamed files (`O_TMPFILE`, Linux) even a server that is killed leaves nothing behind. Elsewhere the file has a
//! temporary, hidden name until it is complete.
//!
//! A file that replaces another one keeps its permissions, and its owner if the process may set it. It has no wider ones
//! while it is written.
//!
//! Everything here blocks, and runs in the blocking jobs of `writer`. Names are single safe segments.

mod access;

use std::fs::{File, Metadata};
use std::io;
use std::sync::Arc;
#[cfg(target_os = "linux")]
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use cap_std::fs::{Dir, OpenOptions};

use self::access::Access;
use crate::aside;
use crate::conditional::END_OF_DATES;
#[cfg(target_os = "linux")]
use crate::optional::Optional;
use crate::random::random;

/// How many bytes of a name its temporary name repeats, so that it stays under 255 bytes.
const MAX_STEM_BYTES: usize = 200;

/// How many random names are tried.
const ATTEMPTS: usize = 8;

/// The part of an unfinished upload that a later request continues.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) directory: Arc<Dir>,
    pub(crate) name: String,
    /// Its length.
    pub(crate) offset: u64,
}

/// A file that is being written. Dropping it before [`PendingFile::publish`] removes it, unless it is kept.
#[derive(Debug)]
pub(crate) struct PendingFile {
    /// Where it is while it is written: on the same file system as the folder that it is for.
    directory: Arc<Dir>,
    file: File,
    /// Its temporary name, if it has one.
    temporary: Option<String>,
    is_kept: bool,
    /// It has the time that its sender gave.
    is_dated: bool,
}

/// A complete upload.
#[derive(Clone, Debug)]
pub(crate) struct Published {
    /// It replaced a file of that name.
    pub(crate) replaced: bool,
    pub(crate) metadata: Metadata,
    /// It has the time that its sender gave.
    pub(crate) is_dated: bool,
}

/// The seconds since 1970 of a file's modification, as its sender has them. The fraction stays that of this server's clock: a
/// file that is replaced by one of the same length and second has another entity tag, which is made of length and time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ModifiedSecond(i64);

impl ModifiedSecond {
    /// The seconds.
    pub(crate) fn seconds(self) -> i64 {
        self.0
    }

    /// `None` for a time that no HTTP-date has.
    pub(crate) fn from_seconds(seconds: i64) -> Option<Self> {
        (EARLIEST_SECOND..END_OF_DATES as i64)
            .contains(&seconds)
            .then_some(Self(seconds))
    }

    /// Parses decimal seconds; a fraction is dropped. `None` for what is no number, and for a time that no HTTP-date has.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|octet| octet.is_ascii_digit());
        if !digits(whole.strip_prefix('-').unwrap_or(whole)) || !digits(fraction) {
            return None;
        }
        Self::from_seconds(whole.parse().ok()?)
    }

    /// This second, with the fraction of `now`.
    fn time(self, now: SystemTime) -> Option<SystemTime> {
        let fraction = now.duration_since(UNIX_EPOCH).ok()?.subsec_nanos();
        let whole = Duration::from_secs(self.0.unsigned_abs());
        let second = match self.0 {
            0.. => UNIX_EPOCH.checked_add(whole),
            _ => UNIX_EPOCH.checked_sub(whole),
        };
        second?.checked_add(Duration::from_nanos(fraction.into()))
    }
}

/// The second of January 1900: before it, some file systems and systems have no times.
const EARLIEST_SECOND: i64 = -2_208_902_400;

impl PendingFile {
    /// A new, empty file for the name `name`.
    ///
    /// # Errors
    /// The error of the system.
    pub(crate) fn create(directory: &Arc<Dir>, name: &str) -> io::Result<PendingFile> {
        match unnamed(directory, Access::of(directory, name).permissions()) {
            Some(file) => Ok(PendingFile {
                directory: Arc::clone(directory),
                file,
                temporary: None,
                is_kept: false,
                is_dated: false,
            }),
            None => PendingFile::create_named(directory, name),
        }
    }

    /// The same with a temporary name.
    fn create_named(directory: &Arc<Dir>, name: &str) -> io::Result<PendingFile> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        Access::of(directory, name).limit(&mut options);
        let (temporary, file) =
            with_temporary_name(name, |temporary| directory.open_with(temporary, &options))?;
        Ok(PendingFile {
            directory: Arc::clone(directory),
            file: file.into_std(),
            temporary: Some(temporary),
            is_kept: false,
            is_dated: false,
        })
    }

    /// Creates an empty part for the file `name` of the folder `into`, with no wider permissions than an existing file has. Only the
    /// server itself may always read and write it: each request opens it again.
    ///
    /// It is created in the folder of its file and then moved: a file has the group and the access control list that its folder
    /// gives to new files, and keeps them.
    ///
    /// # Errors
    /// The error of the system.
    pub(crate) fn create_kept(directory: &Dir, part: &str, into: &Dir, name: &str) -> io::Result<()> {
        let access = Access::of(into, name).of_owner_at_least();
        if let Some(file) = unnamed(into, access.permissions()) {
            return link_unnamed(&file, directory, part);
        }
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        access.limit(&mut options);
        let (temporary, _) = with_temporary_name(name, |temporary| into.open_with(temporary, &options))?;
        into.rename(&temporary, directory, part).inspect_err(|_| {
            let _ = into.remove_file(&temporary);
        })
    }

    /// Whether another process writes the part now. This process must not.
    ///
    /// # Errors
    /// The error of the system.
    pub(crate) fn is_locked(directory: &Dir, part: &str) -> io::Result<bool> {
        let file = directory.open_with(part, OpenOptions::new().append(true))?;
        match lock(&file.into_std()) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
            locked => locked.map(|()| false),
        }
    }

    /// The file of an earlier request, to append to.
    ///
    /// # Errors
    /// That of the system. `WouldBlock`: another process writes it. `NotFound`: it is complete or removed. `InvalidData`: it has
    /// another length.
    pub(crate) fn resume(kept: &Kept) -> io::Result<PendingFile> {
        let file = kept
            .directory
            .open_with(&kept.name, OpenOptions::new().append(true))?;
        PendingFile::resume_open(kept, file)
    }

    fn resume_open(kept: &Kept, file: cap_std::fs::File) -> io::Result<PendingFile> {
        let opened = file.metadata()?;
        let file = file.into_std();
        lock(&file)?;
        // Another process may have completed the upload before it was locked. Then this is the file that it has published.
        if !is_one_file(&opened, &kept.directory.symlink_metadata(&kept.name)?) {
            return Err(io::ErrorKind::NotFound.into());
        }
        if file.metadata()?.len() != kept.offset {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(PendingFile {
            directory: Arc::clone(&kept.directory),
            file,
            temporary: Some(kept.name.clone()),
            is_kept: true,
            is_dated: false,
        })
    }

    /// The file itself, to ask its file system.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Appends `batch` with as few system calls as possible.
    ///
    /// # Errors
    /// The error of the system. The upload has then failed.
    pub(crate) fn write(&mut self, batch: &[Bytes]) -> io::Result<()> {
        aside::write_all(&mut self.file, batch)
    }

    /// Sets the time of its modification. Returns whether the file system has it.
    pub(crate) fn set_modified(&mut self, second: ModifiedSecond) -> bool {
        let time = second.time(SystemTime::now());
        self.is_dated = time.is_some_and(|time| self.file.set_modified(time).is_ok());
        self.is_dated
    }

    /// Gives the file its name in the folder `into`; with `replace`, in place of an existing file.
    ///
    /// # Errors
    /// `AlreadyExists`: the name is taken, and `replace` is not set. `IsADirectory`: a folder has the name.
    pub(crate) fn publish(mut self, into: &Dir, name: &str, replace: bool) -> io::Result<Published> {
        if replace {
            Access::of(into, name).give_to(&self.file)?;
        }
        let metadata = self.file.metadata()?;
        if self.temporary.is_none() {
            match link_unnamed(&self.file, into, name) {
                Ok(()) => {
                    return Ok(self.published(false, metadata));
                }
                // Only a rename replaces a file, and a rename needs a name. The temporary name exists between two calls.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && replace => {
                    let link = |temporary: &str| link_unnamed(&self.file, &self.directory, temporary);
                    self.temporary = Some(with_temporary_name(name, link)?.0);
                }
                Err(error) => return Err(error),
            }
        }
        let temporary = self.temporary.as_deref().unwrap_or_default();
        let replaced = aside::rename(&self.directory, temporary, into, name, replace)?;
        self.temporary = None;
        Ok(self.published(replaced, metadata))
    }

    /// `before` is what was known before the file had its name. The name has changed the time of the inode, which is a part of the
    /// entity tag of a file that claims to be older than HTTP.
    fn published(&self, replaced: bool, before: Metadata) -> Published {
        Published {
            replaced,
            metadata: self.file.metadata().unwrap_or(before),
            is_dated: false,
        }
    }
}

impl Drop for PendingFile {
    fn drop(&mut self) {
        if let Some(temporary) = self.temporary.as_ref().filter(|_| !self.is_kept) {
            // Nothing more can be done if this fails.
            let _ = self.directory.remove_file(temporary);
        }
        if self.is_kept && self.is_dated && self.temporary.is_some() {
            // It was not published. A part's own time says when it expires.
            let _ = self.file.set_modified(SystemTime::now());
        }
    }
}

/// Locks a file until it is closed. A server that is replaced by a new process may still write what it received.
#[cfg(unix)]
fn lock(file: &File) -> io::Result<()> {
    use rustix::fs::{FlockOperation, flock};
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(rustix::io::Errno::WOULDBLOCK) => Err(io::ErrorKind::WouldBlock.into()),
        // Some network file systems have no locks.
        _ => Ok(()),
    }
}

#[cfg(not(unix))]
fn lock(_: &File) -> io::Result<()> {
    Ok(())
}

#[cfg(unix)]
fn is_one_file(one: &cap_std::fs::Metadata, other: &cap_std::fs::Metadata) -> bool {
    use cap_std::fs::MetadataExt as _;
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Whether both are the same folder.
#[cfg(unix)]
pub(crate) fn is_one_folder(one: &Dir, other: &Dir) -> bool {
    match (one.dir_metadata(), other.dir_metadata()) {
        (Ok(one), Ok(other)) => is_one_file(&one, &other),
        _ => false,
    }
}

#[cfg(not(unix))]
pub(crate) fn is_one_folder(_: &Dir, _: &Dir) -> bool {
    false
}

#[cfg(not(unix))]
fn is_one_file(_: &cap_std::fs::Metadata, _: &cap_std::fs::Metadata) -> bool {
    true
}

/// Calls `make` with temporary names for `name` until one is free. Returns the name and the result.
fn with_temporary_name<T>(
    name: &str,
    mut make: impl FnMut(&str) -> io::Result<T>,
) -> io::Result<(String, T)> {
    let stem = stem(name);
    let mut last = io::ErrorKind::AlreadyExists.into();
    for _ in 0..ATTEMPTS {
        let temporary = format!(".{stem}.{:016x}.part", random());
        match make(&temporary) {
            Ok(made) => return Ok((temporary, made)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

/// `O_TMPFILE`.
#[cfg(target_os = "linux")]
static NAMELESS: Optional = Optional::new();

/// `linkat`, which names an unnamed file. It is tried before an upload relies on it.
#[cfg(target_os = "linux")]
static LINK: Optional = Optional::new();
#[cfg(target_os = "linux")]
static LINK_IS_TRIED: AtomicBool = AtomicBool::new(false);

/// A new unnamed file in this directory; `None` where the file system does not support it, or `linkat` or `/proc`, which
/// give it a name, are not available.
#[cfg(target_os = "linux")]
fn unnamed(directory: &Dir, permissions: u32) -> Option<File> {
    use rustix::fs::access;
    if NAMELESS.is_denied() || LINK.is_denied() {
        return None;
    }
    if !LINK_IS_TRIED.load(Ordering::Relaxed) {
        let tried = nameless(directory, permissions)?;
        match with_temporary_name("link", |temporary| link_unnamed(&tried, directory, temporary)) {
            Ok((temporary, ())) => directory.remove_file(temporary).ok()?,
            Err(error) => {
                rustix::io::Errno::from_io_error(&error).map(|error| LINK.denies(error));
                return None;
            }
        }
        LINK_IS_TRIED.store(true, Ordering::Relaxed);
    }
    let file = nameless(directory, permissions)?;
    access(descriptor(&file), rustix::fs::Access::EXISTS).ok()?;
    Some(file)
}

#[cfg(target_os = "linux")]
fn nameless(directory: &Dir, permissions: u32) -> Option<File> {
    use rustix::fs::{Mode, OFlags, openat};
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    match openat(directory, ".", flags, Mode::from_raw_mode(permissions)) {
        Ok(file) => Some(File::from(file)),
        // Another file system may support it.
        Err(rustix::io::Errno::OPNOTSUPP) => None,
        Err(error) => {
            NAMELESS.denies(error);
            None
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn unnamed(_: &Dir, _: u32) -> Option<File> {
    None
}

/// Gives an unnamed file this name, unless it is taken.
#[cfg(target_os = "linux")]
fn link_unnamed(file: &File, directory: &Dir, name: &str) -> io::Result<()> {
    use rustix::fs::{AtFlags, CWD, linkat};
    // Linking the descriptor itself (`AT_EMPTY_PATH`) takes a privilege on most systems.
    linkat(CWD, descriptor(file), directory, name, AtFlags::SYMLINK_FOLLOW)?;
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn link_unnamed(_: &File, _: &Dir, _: &str) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// A path of an open file that needs no name.
#[cfg(target_os = "linux")]
fn descriptor(file: &File) -> String {
    use std::os::fd::AsRawFd as _;
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// The start of a name, cut between characters.
fn stem(name: &str) -> &str {
    let mut end = name.len().min(MAX_STEM_BYTES);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use cap_std::ambient_authority;

    use super::*;

    #[test]
    fn a_second_is_a_number_that_a_date_of_http_can_have() {
        for (text, second) in [
            ("0", Some(0)),
            ("-1", Some(-1)),
            ("1700000000", Some(1_700_000_000)),
            ("1700000000.75", Some(1_700_000_000)),
            ("253402300799", Some(253_402_300_799)),
            ("253402300800", None),
            ("-2208902401", None),
            ("99999999999999999999", None),
            ("", None),
            ("-", None),
            ("+1", None),
            ("1.", None),
            ("1e9", None),
            ("0x10", None),
            (" 1", None),
            ("Sun, 06 Nov 1994 08:49:37 GMT", None),
        ] {
            assert_eq!(ModifiedSecond::parse(text), second.map(ModifiedSecond), "{text}");
        }
        let now = UNIX_EPOCH + Duration::new(7, 250);
        let of = |second| ModifiedSecond(second).time(now);
        assert_eq!(of(5), Some(UNIX_EPOCH + Duration::new(5, 250)));
        assert_eq!(
            of(-5),
            Some(UNIX_EPOCH - Duration::from_secs(5) + Duration::from_nanos(250))
        );
    }

    #[test]
    fn a_part_that_cannot_be_published_has_its_own_time_again() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        std::fs::write(path("part"), "one").unwrap();
        std::fs::write(path("taken"), "").unwrap();
        let kept = Kept {
            directory: directory(root.path()),
            name: "part".to_owned(),
            offset: 3,
        };
        let second = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let whole = second..second + Duration::from_secs(1);
        let publish = |name: &str| {
            let mut file = PendingFile::resume(&kept).unwrap();
            assert!(file.set_modified(ModifiedSecond(1_000_000_000)));
            file.publish(&kept.directory, name, false).is_ok()
        };
        let modified = |name: &str| std::fs::metadata(path(name)).unwrap().modified().unwrap();
        assert!(!publish("taken"));
        assert!(!whole.contains(&modified("part")));
        assert!(publish("free"));
        assert!(whole.contains(&modified("free")));
    }

    #[cfg(unix)]
    #[test]
    fn a_part_that_was_published_before_it_was_locked_is_not_appended_to() {
        let root = tempfile::tempdir().unwrap();
        let kept = Kept {
            directory: directory(root.path()),
            name: "part".to_owned(),
            offset: 3,
        };
        let open = || {
            let mut options = OpenOptions::new();
            kept.directory.open_with("part", options.append(true)).unwrap()
        };
        let path = |name: &str| root.path().join(name);
        std::fs::write(path("part"), "one").unwrap();
        assert!(PendingFile::resume_open(&kept, open()).is_ok());
        let published = open();
        std::fs::rename(path("part"), path("published")).unwrap();
        let refused = PendingFile::resume_open(&kept, published).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::NotFound);
        std::fs::write(path("part"), "two").unwrap();
        let other = open();
        std::fs::rename(path("published"), path("part")).unwrap();
        assert!(PendingFile::resume_open(&kept, other).is_err());
    }

    fn directory(path: &Path) -> Arc<Dir> {
        Arc::new(Dir::open_ambient_dir(path, ambient_authority()).unwrap())
    }

    fn names(path: &Path) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    type Create = fn(&Arc<Dir>, &str) -> io::Result<PendingFile>;

    /// Both ways to make a part; where the system knows but one, that twice.
    const WAYS: [Create; 2] = [PendingFile::create, PendingFile::create_named];

    #[cfg(target_os = "linux")]
    #[test]
    fn a_part_without_a_name_is_nowhere_until_it_is_whole() {
        let root = tempfile::tempdir().unwrap();
        let dir = directory(root.path());
        if unnamed(&dir, 0o600).is_none() {
            return eprintln!("skipped: {} knows no files without names", root.path().display());
        }
        for content in ["one", "another"] {
            let before = names(root.path());
            let mut part = PendingFile::create(&dir, "a").unwrap();
            part.write(&[Bytes::from(content)]).unwrap();
            assert_eq!(names(root.path()), before);
            let published = part.publish(&dir, "a", true).unwrap();
            assert_eq!(published.replaced, !before.is_empty());
            assert_eq!(names(root.path()), ["a"]);
            assert_eq!(std::fs::read_to_string(root.path().join("a")).unwrap(), content);
        }
    }

    #[test]
    fn a_named_part_is_hidden_and_goes_when_dropped() {
        let root = tempfile::tempdir().unwrap();
        let mut part = PendingFile::create_named(&directory(root.path()), "a.txt").unwrap();
        part.write(&[Bytes::new(), Bytes::from("x"), Bytes::new()])
            .unwrap();
        part.write(&[]).unwrap();
        part.write(&[Bytes::new()]).unwrap();
        let names_now = names(root.path());
        assert_eq!(names_now.len(), 1);
        assert!(names_now[0].starts_with(".a.txt."), "{names_now:?}");
        assert!(names_now[0].ends_with(".part"), "{names_now:?}");
        drop(part);
        assert_eq!(names(root.path()), Vec::<String>::new());
    }

    #[test]
    fn publishing_replaces_only_when_told() {
        for create in WAYS {
            let root = tempfile::tempdir().unwrap();
            let dir = directory(root.path());
            let write = |content: &'static str, replace| {
                let mut part = create(&dir, "a").unwrap();
                part.write(&[Bytes::from(content)]).unwrap();
                part.publish(&dir, "a", replace)
            };
            let read = || std::fs::read_to_string(root.path().join("a")).unwrap();

            assert!(!write("one", false).unwrap().replaced);
            assert_eq!(read(), "one");
            assert_eq!(
                write("two", false).unwrap_err().kind(),
                io::ErrorKind::AlreadyExists
            );
            assert_eq!(read(), "one");
            let published = write("three", true).unwrap();
            assert!(published.replaced);
            assert_eq!(published.metadata.len(), 5);
            assert_eq!(read(), "three");
            assert_eq!(names(root.path()), ["a"]);
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_is_replaced_keeps_its_permissions_and_they_are_no_wider_before() {
        use std::os::unix::fs::PermissionsExt as _;
        for create in WAYS {
            for mode in [0o600, 0o640, 0o755, 0o444, 0o4711] {
                let root = tempfile::tempdir().unwrap();
                let dir = directory(root.path());
                let path = root.path().join("a");
                std::fs::write(&path, "old").unwrap();
                let mode_of = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
                std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
                let mut part = create(&dir, "a").unwrap();
                let early = part.file().metadata().unwrap().permissions().mode() & 0o777;
                assert_eq!(early & !mode, 0, "{early:o} before {mode:o}");
                part.write(&[Bytes::from("new")]).unwrap();
                part.publish(&dir, "a", true).unwrap();
                assert_eq!(mode_of(&path), mode & 0o777, "{mode:o}");
                assert_eq!(std::fs::read(&path).unwrap(), b"new");
                // A new file has those of the umask, whatever was there.
                create(&dir, "b").unwrap().publish(&dir, "b", true).unwrap();
                std::fs::write(root.path().join("c"), "").unwrap();
                assert_eq!(mode_of(&root.path().join("b")), mode_of(&root.path().join("c")));
            }
        }
    }

    #[test]
    fn a_part_in_one_folder_gets_its_name_in_another() {
        for create in WAYS {
            let root = tempfile::tempdir().unwrap();
            let dir = directory(root.path());
            dir.create_dir("sub").unwrap();
            let sub = dir.open_dir("sub").unwrap();
            for (content, replace) in [("one", false), ("two", true)] {
                let mut part = create(&dir, "a").unwrap();
                part.write(&[Bytes::from(content)]).unwrap();
                part.publish(&sub, "a", replace).unwrap();
                assert_eq!(
                    std::fs::read_to_string(root.path().join("sub/a")).unwrap(),
                    content
                );
                assert_eq!(names(root.path()), ["sub"]);
            }
        }
    }

    #[test]
    fn a_part_that_has_its_name_removes_no_file_that_takes_its_temporary_name() {
        let root = tempfile::tempdir().unwrap();
        let dir = directory(root.path());
        let part = PendingFile::create_named(&dir, "a").unwrap();
        let temporary = names(root.path()).remove(0);
        part.publish(&dir, "a", false).unwrap();
        std::fs::write(root.path().join(&temporary), "of somebody else").unwrap();
        assert_eq!(names(root.path()), [temporary.as_str(), "a"]);
    }

    #[test]
    fn a_directory_is_never_replaced() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("a")).unwrap();
        let dir = directory(root.path());
        for create in WAYS {
            let publish = |replace| {
                create(&dir, "a")
                    .unwrap()
                    .publish(&dir, "a", replace)
                    .unwrap_err()
            };
            assert_eq!(publish(true).kind(), io::ErrorKind::IsADirectory);
            assert_eq!(publish(false).kind(), io::ErrorKind::AlreadyExists);
        }
        assert_eq!(names(root.path()), ["a"]);
    }

    #[test]
    fn a_temporary_name_is_tried_eight_times_when_it_is_taken_and_once_when_something_else_fails() {
        for (kind, tries) in [
            (io::ErrorKind::AlreadyExists, 8),
            (io::ErrorKind::PermissionDenied, 1),
        ] {
            let mut tried = std::collections::HashSet::new();
            let made = with_temporary_name("a", |name| {
                tried.insert(name.to_owned());
                Err::<(), _>(kind.into())
            });
            assert_eq!(made.unwrap_err().kind(), kind);
            assert_eq!(tried.len(), tries, "{tried:?}");
        }
        let mut left = 3;
        let made = with_temporary_name("a", |_| {
            left -= 1;
            match left {
                0 => Ok("made"),
                _ => Err(io::ErrorKind::AlreadyExists.into()),
            }
        });
        assert_eq!(made.unwrap().1, "made");
    }

    #[test]
    fn a_temporary_name_repeats_200_bytes_of_the_name() {
        assert_eq!(stem(&"a".repeat(255)).len(), 200);
        assert_eq!(stem(&"a".repeat(200)).len(), 200);
        // Two bytes each, from an odd place on.
        assert_eq!(stem(&format!("a{}", "é".repeat(127))).len(), 199);
        assert_eq!(stem("a"), "a");
    }

    #[test]
    fn a_long_name_has_a_temporary_name_that_fits() {
        for create in WAYS {
            let root = tempfile::tempdir().unwrap();
            let name = "é".repeat(127);
            // The second has to replace the first, by a temporary name whatever it had before.
            for _ in 0..2 {
                let dir = directory(root.path());
                let part = create(&dir, &name).unwrap();
                part.publish(&dir, &name, true).unwrap();
            }
            assert_eq!(names(root.path()), [name]);
        }
    }
}
