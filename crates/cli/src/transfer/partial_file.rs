//! A file that gets its name when it is complete. Everything here runs on blocking threads.
//!
//! A partial file that is dropped before `finish` is removed, whatever the reason: a failure or a lost task. A file with a
//! version key has a temporary name that a later run can find, if this run is killed or interrupted, or calls
//! [`PartialFile::leave`]. It is locked while it is written.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IsTerminal, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use tempfile::TempPath;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::checksum::{Checksum, Digest};
use crate::exit::Failure;
use crate::run::Leftovers;

use super::part_names::PartNames;
use super::private::{self, Identity, Permissions};
use super::target::Target;

/// Slices in one batch write; Linux takes no more than 1,024.
const MOST_SLICES: usize = 1_024;
/// How many bytes of the name its temporary name repeats, so that it fits 255 bytes.
const NAME_IN_TEMPORARY: usize = 100;

/// A target, and the part of it that is written.
pub(crate) struct PartialFile {
    target: Target,
    shared: Shared,
    /// Identifies this version of this body.
    version_key: Option<Vec<u8>>,
    /// The temporary name is derived from the version key.
    findable: bool,
    open: Option<(File, Option<OwnedSemaphorePermit>)>,
    temporary: Option<(TempPath, Identity)>,
    began: bool,
    /// Of what was written.
    digest: Option<Box<Digest>>,
}

/// What the partial files of a run share.
#[derive(Clone)]
pub(crate) struct Shared {
    /// The permits to keep a file open between two writes.
    pub(crate) files: Arc<Semaphore>,
    /// The temporary names that a later run finds.
    pub(crate) names: Arc<PartNames>,
    /// Whether files that a later run finds outlive this run.
    pub(crate) leftovers: Arc<Leftovers>,
}

impl PartialFile {
    /// Opens nothing yet.
    pub(crate) fn new(target: Target, shared: Shared) -> Self {
        Self {
            target,
            shared,
            version_key: None,
            findable: false,
            open: None,
            temporary: None,
            began: false,
            digest: None,
        }
    }

    /// The body must have this checksum.
    pub(crate) fn expect(&mut self, checksum: Checksum) {
        self.digest = Some(Box::new(Digest::new(checksum)));
    }

    /// Whether nobody looks at what is written.
    pub(crate) fn discards(&self) -> bool {
        matches!(self.target, Target::Discard) && self.digest.is_none()
    }

    /// Whether somebody may read what is written before the body ends: on a terminal, or behind a pipe.
    pub(crate) fn is_read_at_once(&self) -> bool {
        matches!(self.target, Target::Stdout { .. } | Target::Device(_))
    }

    /// Whether another program has begun the file.
    pub(crate) fn is_begun_elsewhere(&self) -> bool {
        matches!(self.target, Target::Continued(_))
    }

    /// Derives the temporary name from this key, so that a later run finds the file for the same version of the same body.
    pub(crate) fn set_version_key(&mut self, key: Vec<u8>) {
        self.version_key = Some(key);
    }

    /// Takes over the file that an earlier run of this user has left for this version. Returns its length; `None` when there
    /// is no file, another run is writing it, or another user may have written it.
    pub(crate) fn find(&mut self, key: Vec<u8>) -> Option<u64> {
        self.version_key = Some(key);
        let Target::File { path, .. } = &self.target else {
            return None;
        };
        let permit = Arc::clone(&self.shared.files).try_acquire_owned().ok()?;
        let found = self.findable_name(path)?;
        if private::is_shared(&folder(path)) {
            return None;
        }
        let file = private::open(&found).ok()?;
        if !private::lock(&file, &found) {
            return None;
        }
        let bytes = file.metadata().ok()?.len();
        let identity = Identity::of(&file).ok()?;
        if let Some(digest) = &mut self.digest {
            digest.read(&file).ok()?;
        }
        self.temporary = Some((TempPath::try_from_path(found).ok()?, identity));
        self.findable = true;
        self.open = Some((file, Some(permit)));
        self.began = bytes > 0;
        Some(bytes)
    }

    /// Opens the file that another program has begun, and returns its length; `None` for any other target.
    ///
    /// # Errors
    /// The file cannot be opened or read.
    pub(crate) fn find_begun(&mut self) -> Result<Option<u64>, Failure> {
        let Target::Continued(path) = &self.target else {
            return Ok(None);
        };
        let path = path.clone();
        let opened = self.open_begun(&path);
        let (file, length) = opened.map_err(|error| Failure::from_io("continue", &path, &error))?;
        self.open = Some((file, None));
        self.began = true;
        Ok(Some(length))
    }

    /// Discards what was written, to start again. Not possible once something was written to standard output or a device.
    pub(crate) fn restart(&mut self) -> bool {
        // The bytes of another program stay.
        if matches!(self.target, Target::Continued(_)) {
            return false;
        }
        self.open = None;
        self.temporary = None;
        self.findable = false;
        self.version_key = None;
        if let Some(digest) = &mut self.digest {
            digest.restart();
        }
        matches!(self.target, Target::File { .. }) || !self.began
    }

    /// Takes back what is behind the first `length` bytes. Returns whether that is possible: not on standard output, on a
    /// device, or in the file of another program.
    ///
    /// # Errors
    /// The file cannot be changed or read.
    pub(crate) fn cut(&mut self, length: u64) -> Result<bool, Failure> {
        if !matches!(self.target, Target::File { .. }) || self.temporary.is_none() {
            return Ok(matches!(self.target, Target::Discard) && self.digest.is_none());
        }
        let (mut file, permit) = match self.open.take() {
            Some(open) => open,
            None => (self.open()?, None),
        };
        let cut = file.set_len(length).and_then(|()| match &mut self.digest {
            Some(digest) => digest.read(&file),
            None => file.seek(SeekFrom::End(0)).map(drop),
        });
        cut.map_err(|error| Failure::from_io("write", self.shown(), &error))?;
        self.open = permit.map(|permit| (file, Some(permit)));
        Ok(true)
    }

    /// Leaves the file for a later run to resume. Returns whether a later run can find it.
    pub(crate) fn leave(mut self) -> bool {
        if matches!(self.target, Target::Continued(_)) {
            return true;
        }
        if !self.findable {
            return false;
        }
        self.temporary
            .take()
            .is_some_and(|(temporary, _)| temporary.keep().is_ok())
    }

    /// A placeholder that stores nothing.
    pub(crate) fn nowhere(&self) -> Self {
        Self::new(Target::Discard, self.shared.clone())
    }

    /// Writes the chunks at the end, and opens the file first if need be.
    pub(crate) fn append(&mut self, chunks: &[Bytes]) -> Result<(), Failure> {
        if matches!(self.target, Target::Discard) {
            self.hash(chunks);
            return Ok(());
        }
        let (file, permit) = self.write(chunks)?;
        if permit.is_some() || self.temporary.is_none() {
            self.open = Some((file, permit));
        }
        Ok(())
    }

    /// Writes the chunks at the end; the file, still open.
    fn write(&mut self, chunks: &[Bytes]) -> Result<(File, Option<OwnedSemaphorePermit>), Failure> {
        self.refuse_binary_on_terminal(chunks)?;
        let (mut file, permit) = match self.open.take() {
            Some(open) => open,
            None => {
                let permit = Arc::clone(&self.shared.files).try_acquire_owned().ok();
                // A file that is closed between two writes loses its lock, so a later run must not find it.
                match self.create_findable(permit.is_some()) {
                    Some(file) => (file, permit),
                    None => (self.open()?, permit),
                }
            }
        };
        self.began = true;
        write_all(&mut file, chunks).map_err(|error| Failure::from_io("write", self.shown(), &error))?;
        self.hash(chunks);
        Ok((file, permit))
    }

    fn hash(&mut self, chunks: &[Bytes]) {
        if let Some(digest) = &mut self.digest {
            chunks.iter().for_each(|chunk| digest.update(chunk));
        }
    }

    fn verify(&self) -> Result<(), Failure> {
        match &self.digest {
            Some(digest) => digest.verify(self.shown()),
            None => Ok(()),
        }
    }

    /// Writes the last chunks, checks the checksum and gives the file its name.
    pub(crate) fn finish(mut self, chunks: &[Bytes]) -> Result<(), Failure> {
        // An empty body creates an empty file, but does not open standard output or a device.
        if chunks.is_empty() && !matches!(self.target, Target::File { .. })
            || matches!(self.target, Target::Discard)
        {
            self.hash(chunks);
            return self.verify();
        }
        // The file stays open and locked until it has its name.
        let (file, _permit) = self.write(chunks)?;
        if let Err(failure) = self.verify() {
            // No later run continues wrong bytes.
            self.findable = false;
            return Err(failure);
        }
        match (&self.target, self.temporary.take()) {
            (Target::File { path, force }, Some((temporary, _))) => {
                private::publish(&file, temporary, path, *force)
            }
            _ => Ok(()),
        }
    }

    /// A new file under the name derived from the version key, if there is a key and the name is free.
    fn create_findable(&mut self, stays_open: bool) -> Option<File> {
        if !stays_open || self.temporary.is_some() {
            return None;
        }
        let Target::File { path, force } = &self.target else {
            return None;
        };
        let name = self.findable_name(path)?;
        let file = private::create(&name, Permissions::of(path, *force)).ok()?;
        let identity = Identity::of(&file).ok()?;
        if !private::lock(&file, &name) {
            return None;
        }
        self.temporary = Some((TempPath::try_from_path(name).ok()?, identity));
        self.findable = true;
        Some(file)
    }

    /// The temporary name that a later run finds.
    fn findable_name(&self, path: &Path) -> Option<PathBuf> {
        let name = self.shared.names.name(self.version_key.as_deref()?)?;
        Some(folder(path).join(format!("{}{name}.part", prefix(path))))
    }

    fn open(&mut self) -> Result<File, Failure> {
        let opened = match (&self.target, &self.temporary) {
            (Target::Discard, _) => Err(io::ErrorKind::Unsupported.into()),
            // `find_begun` opens it, and it stays open.
            (Target::Continued(_), _) => Err(io::ErrorKind::Unsupported.into()),
            (Target::Stdout { .. }, _) => stdout(),
            (Target::Device(path), _) => open_device(path),
            (Target::File { .. }, Some((temporary, identity))) => reopen(temporary, *identity),
            (Target::File { path, force }, None) => self.create_beside(&path.clone(), *force),
        };
        opened.map_err(|error| Failure::from_io("create", self.shown(), &error))
    }

    fn open_begun(&mut self, path: &Path) -> io::Result<(File, u64)> {
        let file = OpenOptions::new().read(true).append(true).open(path)?;
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(io::Error::other("another process has replaced it"));
        }
        if let Some(digest) = &mut self.digest {
            digest.read(&file)?;
        }
        Ok((file, found.len()))
    }

    /// A new file in the same folder, so that a rename never copies.
    fn create_beside(&mut self, path: &Path, force: bool) -> io::Result<File> {
        let permissions = Permissions::of(path, force);
        let created = private::create_unnamed(&folder(path), &prefix(path), ".part", permissions)?;
        let (file, temporary) = created.into_parts();
        self.temporary = Some((temporary, Identity::of(&file)?));
        Ok(file)
    }

    /// As in curl, binary data goes to a terminal only on request.
    fn refuse_binary_on_terminal(&self, chunks: &[Bytes]) -> Result<(), Failure> {
        let unasked = matches!(self.target, Target::Stdout { asked: false });
        if unasked
            && !self.began
            && chunks.iter().any(|chunk| chunk.contains(&0))
            && io::stdout().is_terminal()
        {
            return Err(Failure::usage(
                "the body is binary and is not printed on a terminal; save it with -o FILE, or print it with -o -",
            ));
        }
        Ok(())
    }

    fn shown(&self) -> &Path {
        let nowhere = match self.target {
            Target::Discard => "the discarded body",
            _ => "standard output",
        };
        self.target.path().unwrap_or(Path::new(nowhere))
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        if !self.began || !self.shared.leftovers.are_kept() {
            return;
        }
        let temporary = self.temporary.take().filter(|_| self.findable);
        let kept = temporary.is_some_and(|(temporary, _)| temporary.keep().is_ok());
        if kept || matches!(self.target, Target::Continued(_)) {
            self.shared.leftovers.count();
        }
    }
}

/// Standard output without the line buffer that the standard library puts around it.
fn stdout() -> io::Result<File> {
    #[cfg(unix)]
    {
        use std::os::fd::AsFd;
        Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
    }
    #[cfg(windows)]
    {
        use std::os::windows::io::AsHandle;
        Ok(File::from(io::stdout().as_handle().try_clone_to_owned()?))
    }
}

/// Opens a device. A regular file that has replaced it meanwhile is not overwritten.
fn open_device(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().write(true).open(path)?;
    if file.metadata()?.is_file() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    Ok(file)
}

/// Reopens the partial file, and no other file.
fn reopen(path: &Path, identity: Identity) -> io::Result<File> {
    let file = private::open(path)?;
    if Identity::of(&file)? != identity {
        return Err(io::Error::other(
            "another process has replaced it while it was being written",
        ));
    }
    Ok(file)
}

fn folder(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// The beginning of all temporary names of a file.
fn prefix(path: &Path) -> String {
    let name: String = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    let mut end = name.len().min(NAME_IN_TEMPORARY);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    format!(".{}.", name.get(..end).unwrap_or_default())
}

/// All chunks, in as few batch writes as the system takes.
fn write_all(file: &mut File, chunks: &[Bytes]) -> io::Result<()> {
    for group in chunks.chunks(MOST_SLICES) {
        let mut slices: Vec<IoSlice<'_>> = group.iter().map(|chunk| IoSlice::new(chunk)).collect();
        let mut left = slices.as_mut_slice();
        while !left.is_empty() {
            match file.write_vectored(left) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => IoSlice::advance_slices(&mut left, written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    type Result = std::result::Result<(), Box<dyn std::error::Error>>;

    fn file(path: &Path, force: bool, files: usize) -> PartialFile {
        let target = Target::File {
            path: path.to_owned(),
            force,
        };
        let shared = Shared {
            files: Arc::new(Semaphore::new(files)),
            names: Arc::new(PartNames::with_key([7; 32])),
            leftovers: Arc::default(),
        };
        PartialFile::new(target, shared)
    }

    fn names(folder: &Path) -> io::Result<Vec<String>> {
        fs::read_dir(folder)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect()
    }

    #[test]
    fn a_file_has_its_name_only_once_it_is_complete() -> Result {
        for files in [0, 1] {
            let folder = tempfile::tempdir()?;
            let path = folder.path().join("a.bin");
            let mut file = file(&path, false, files);
            file.append(&[Bytes::from_static(b"one "), Bytes::from_static(b"two ")])?;
            let while_written = names(folder.path())?;
            assert_eq!(while_written.len(), 1);
            assert!(while_written[0].starts_with(".a.bin.") && while_written[0].ends_with(".part"));
            assert_eq!(file.open.is_some(), files == 1);
            file.append(&[Bytes::from_static(b"three ")])?;
            file.finish(&[Bytes::from_static(b"four")])?;
            assert_eq!(fs::read(&path)?, b"one two three four");
            assert_eq!(names(folder.path())?, ["a.bin"]);
        }
        Ok(())
    }

    #[test]
    fn a_dropped_draft_leaves_nothing() -> Result {
        let folder = tempfile::tempdir()?;
        let mut file = file(&folder.path().join("a"), false, 1);
        file.append(&[Bytes::from_static(b"half")])?;
        drop(file);
        assert!(names(folder.path())?.is_empty());
        Ok(())
    }

    #[test]
    fn what_is_cut_off_is_written_anew_and_counts_in_no_checksum() -> Result {
        for files in [0, 1] {
            let folder = tempfile::tempdir()?;
            let path = folder.path().join("a");
            let mut file = file(&path, false, files);
            let digest = ring::digest::digest(&ring::digest::SHA256, b"one two");
            let digits: String = digest
                .as_ref()
                .iter()
                .map(|octet| format!("{octet:02x}"))
                .collect();
            file.expect(format!("sha256:{digits}").parse()?);
            file.append(&[Bytes::from_static(b"one three")])?;
            assert!(file.cut(4)?);
            file.finish(&[Bytes::from_static(b"two")])?;
            assert_eq!(fs::read(&path)?, b"one two", "{files}");
            let mut file = self::file(&path, true, files);
            file.append(&[Bytes::from_static(b"one three")])?;
            assert!(file.cut(4)?);
            file.finish(&[Bytes::from_static(b"two")])?;
            assert_eq!(fs::read(&path)?, b"one two", "{files}, without a checksum");
        }
        Ok(())
    }

    #[cfg(unix)]
    #[test]
    fn what_was_left_is_found_by_its_mark_alone_and_by_one_at_a_time() -> Result {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a");
        let mut first = file(&path, false, 1);
        first.set_version_key(vec![7]);
        first.append(&[Bytes::from_static(b"half ")])?;
        assert_eq!(file(&path, false, 1).find(vec![7]), None, "it is being written");
        assert!(first.leave());
        assert_eq!(file(&path, false, 1).find(vec![8]), None, "another version");
        assert_eq!(file(&path, false, 0).find(vec![7]), None, "no file may stay open");
        let mut second = file(&path, false, 1);
        assert_eq!(second.find(vec![7]), Some(5));
        assert_eq!(
            file(&path, false, 1).find(vec![7]),
            None,
            "it is being written again"
        );
        second.append(&[Bytes::from_static(b"and ")])?;
        assert!(second.leave(), "it is interrupted again");
        let mut third = file(&path, false, 1);
        assert_eq!(third.find(vec![7]), Some(9));
        third.finish(&[Bytes::from_static(b"half")])?;
        assert_eq!(fs::read(&path)?, b"half and half");
        assert_eq!(names(folder.path())?, ["a"]);
        Ok(())
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_somebody_replaces_while_it_is_written_never_gets_the_name() -> Result {
        // One that stays open, and one that is opened for each write.
        for files in [1, 0] {
            for by_link in [false, true] {
                let folder = tempfile::tempdir()?;
                let elsewhere = tempfile::tempdir()?;
                let path = folder.path().join("a");
                let other = elsewhere.path().join("other");
                fs::write(&other, b"of mine")?;
                let mut file = file(&path, true, files);
                file.append(&[Bytes::from_static(b"half ")])?;
                let temporary = folder.path().join(&names(folder.path())?[0]);
                fs::remove_file(&temporary)?;
                if by_link {
                    std::os::unix::fs::symlink(&other, &temporary)?;
                } else {
                    // The inode may be the same again: that others can write to it gives it away then.
                    use std::os::unix::fs::PermissionsExt;
                    fs::write(&temporary, b"foreign")?;
                    fs::set_permissions(&temporary, fs::Permissions::from_mode(0o666))?;
                }
                let failure = file.finish(&[Bytes::from_static(b"and half")]);
                let failure = failure.err().ok_or("it was published")?;
                assert_eq!(failure.exit, crate::exit::Exit::LocalIo);
                assert!(!path.exists());
                assert_eq!(fs::read(&other)?, b"of mine");
            }
        }
        Ok(())
    }

    #[cfg(unix)]
    #[test]
    fn what_takes_the_place_of_a_device_is_not_overwritten() -> Result {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a");
        fs::write(&path, b"of mine")?;
        let file = file(&path, false, 1);
        let file = PartialFile::new(Target::Device(path.clone()), file.shared.clone());
        assert!(file.finish(&[Bytes::from_static(b"new")]).is_err());
        assert_eq!(fs::read(&path)?, b"of mine");
        Ok(())
    }

    #[cfg(unix)]
    #[test]
    fn what_has_another_checksum_is_not_left_for_a_later_run_even_by_an_interrupt() -> Result {
        let folder = tempfile::tempdir()?;
        let mut file = file(&folder.path().join("a"), false, 1);
        file.shared.leftovers.interrupt();
        file.set_version_key(vec![7]);
        file.expect(format!("sha256:{}", "0".repeat(64)).parse()?);
        file.append(&[Bytes::from_static(b"wrong")])?;
        assert!(file.finish(&[]).is_err());
        assert!(names(folder.path())?.is_empty());
        Ok(())
    }

    #[test]
    fn a_draft_that_is_begun_anew_forgets_what_it_had() -> Result {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a");
        let mut file = file(&path, false, 1);
        file.set_version_key(vec![7]);
        file.append(&[Bytes::from_static(b"old")])?;
        assert!(file.restart());
        assert!(names(folder.path())?.is_empty());
        file.finish(&[Bytes::from_static(b"new")])?;
        assert_eq!(fs::read(&path)?, b"new");

        let mut file = self::file(&folder.path().join("b"), false, 1);
        file.set_version_key(vec![7]);
        file.append(&[Bytes::from_static(b"old")])?;
        assert!(file.restart());
        file.append(&[Bytes::from_static(b"new")])?;
        assert!(!file.leave(), "it has no version key any more");
        assert_eq!(names(folder.path())?, ["a"]);
        Ok(())
    }

    #[cfg(unix)]
    #[test]
    fn what_went_to_a_device_cannot_be_taken_back() -> Result {
        let device = || {
            let file = file(Path::new("a"), false, 1);
            PartialFile::new(Target::Device("/dev/null".into()), file.shared.clone())
        };
        assert!(device().restart(), "nothing went there");
        let mut begun = device();
        begun.append(&[Bytes::from_static(b"some")])?;
        assert!(!begun.restart());
        // Nor is there anything that a later run would find.
        let mut begun = device();
        begun.set_version_key(vec![7]);
        begun.append(&[Bytes::from_static(b"some")])?;
        assert!(!begun.leave());
        Ok(())
    }

    #[test]
    fn a_temporary_name_begins_with_100_bytes_of_the_name_in_the_same_folder() {
        for (path, expected_folder, expected_length) in [
            ("a".to_owned(), ".", 3),
            ("d/a".to_owned(), "d", 3),
            ("/a".to_owned(), "/", 3),
            (format!("d/{}", "a".repeat(100)), "d", 102),
            (format!("d/{}", "a".repeat(101)), "d", 102),
            // Two bytes each, from an odd place on.
            (format!("d/a{}", "ä".repeat(100)), "d", 101),
        ] {
            let path = Path::new(&path);
            assert_eq!(folder(path), Path::new(expected_folder), "{path:?}");
            let prefix = prefix(path);
            assert_eq!(prefix.len(), expected_length, "{path:?}");
            assert!(prefix.starts_with(".a") && prefix.ends_with('.'), "{prefix}");
        }
    }

    #[test]
    fn a_name_taken_meanwhile_is_not_overwritten_without_force() -> Result {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a");
        let mut late = file(&path, false, 1);
        late.append(&[Bytes::from_static(b"mine")])?;
        fs::write(&path, b"theirs")?;
        let failure = late.finish(&[]).err().ok_or("it was overwritten")?;
        assert_eq!(failure.exit, crate::exit::Exit::Exists);
        assert_eq!(fs::read(&path)?, b"theirs");
        file(&path, true, 1).finish(&[Bytes::from_static(b"mine")])?;
        assert_eq!(fs::read(&path)?, b"mine");
        assert_eq!(names(folder.path())?, ["a"]);
        Ok(())
    }

    #[test]
    fn an_empty_body_is_an_empty_file() -> Result {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a");
        file(&path, false, 1).finish(&[])?;
        assert_eq!(fs::read(&path)?, b"");
        Ok(())
    }

    #[test]
    fn more_chunks_than_one_gathered_write_takes_are_all_written() -> Result {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a");
        let chunks: Vec<Bytes> = (0..5_000_u32)
            .map(|n| Bytes::copy_from_slice(&n.to_be_bytes()))
            .collect();
        file(&path, false, 1).finish(&chunks)?;
        assert_eq!(fs::read(&path)?, chunks.concat());
        Ok(())
    }

    #[cfg(unix)]
    #[test]
    fn a_complete_file_has_the_permissions_of_any_new_file() -> Result {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a");
        file(&path, false, 1).finish(&[])?;
        let other = folder.path().join("b");
        fs::write(&other, b"")?;
        assert_eq!(
            fs::metadata(&path)?.permissions().mode(),
            fs::metadata(&other)?.permissions().mode()
        );
        Ok(())
    }
}
