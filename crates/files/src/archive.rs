//! A folder as a tar archive, which is made while it is sent.
//!
//! Pieces are made in blocking jobs, so that a peer waits for its share like every other, and a body that nobody reads holds
//! one piece and one open file. What GET would not serve is left out, and so are links to folders, which may lead in circles.
//! A body whose files change under way ends with an error: an archive is whole or nothing. Called by `listing`.

use std::fs::File;
use std::io::{self, Read as _};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::SystemTime;

use bytes::Bytes;
use cap_std::fs::Dir;
use tar::{Builder, EntryType, Header};
use tokio::runtime::Handle;

use crate::budget::{Budget, Share};
use crate::jobs::{Job, Jobs};
use crate::open::{Found, open, open_folder};
use crate::peer::Peer;
use crate::resolve::Target;
use crate::unfinished::is_private;

/// How many bytes a job makes.
const PIECE_BYTES: usize = 256 << 10;

/// Folders within folders. More are a mistake, or a way to make the server hold their names.
const DEEPEST: usize = 64;

/// The approximate memory of a name beyond its letters.
const NAME_BYTES: usize = 32;

/// A tar archive is a sequence of blocks of so many bytes, and ends with two of zeros.
const BLOCK: usize = 512;

/// Whether the query asks for an archive.
pub(crate) fn is_asked_for(query: Option<&str>) -> bool {
    query.is_some_and(|query| query.split('&').any(|pair| pair == "archive=tar"))
}

/// What archives are made of, and with.
pub(crate) struct Means<'a> {
    pub(crate) root: &'a Arc<Dir>,
    /// Whether names that begin with a dot are served.
    pub(crate) hidden: bool,
    pub(crate) slots: &'a Arc<Budget>,
    /// The memory of names.
    pub(crate) names: &'a Arc<Budget>,
    pub(crate) jobs: &'a Arc<Jobs>,
}

/// Why there is no archive.
pub(crate) enum Refused {
    NotFound,
    /// Others are being made, or the memory of names is used up.
    Busy,
}

/// The body.
#[derive(Debug)]
pub(crate) struct Tar {
    state: State,
    jobs: Arc<Jobs>,
    peer: Option<Peer>,
    runtime: Handle,
}

#[derive(Debug)]
enum State {
    Idle(Box<Walk>),
    Running(Job<io::Result<Piece>>),
    Ended,
}

/// What a job leaves: the walk unless it has ended, and what can be sent.
type Piece = (Option<Box<Walk>>, Bytes);

/// Where in the folder the archive is.
#[derive(Debug)]
struct Walk {
    root: Arc<Dir>,
    hidden: bool,
    /// The innermost one last.
    folders: Vec<Folder>,
    /// What is being sent, and how much of it is left.
    file: Option<(File, u64)>,
    /// The memory of the names.
    names: Share,
    output: Vec<u8>,
    _slot: Share,
}

#[derive(Debug)]
struct Folder {
    /// In front of its names: below the root, and in the archive.
    path: String,
    member: String,
    /// In reverse.
    names: Vec<String>,
    bytes: usize,
}

impl Tar {
    /// The archive of a folder, whose names begin with `name`. Blocks; needs the context of a runtime.
    ///
    /// # Errors
    /// There is no such folder, or no room for another archive.
    pub(crate) fn of(
        means: &Means<'_>,
        target: &Target,
        name: &str,
        peer: Option<Peer>,
    ) -> Result<Self, Refused> {
        let path = target.relative();
        let folder = open_folder(means.root, &path).map_err(|_| Refused::NotFound)?;
        let mut walk = Walk {
            root: Arc::clone(means.root),
            hidden: means.hidden,
            folders: Vec::new(),
            file: None,
            names: means.names.share(peer),
            output: Vec::new(),
            _slot: means.slots.slot(peer).ok_or(Refused::Busy)?,
        };
        let prefix = if path == "." {
            String::new()
        } else {
            format!("{path}/")
        };
        walk.enter(&folder, prefix, format!("{name}/"))
            .map_err(|_| Refused::Busy)?;
        Ok(Self {
            state: State::Idle(Box::new(walk)),
            jobs: Arc::clone(means.jobs),
            peer,
            runtime: Handle::current(),
        })
    }

    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        loop {
            match &mut self.state {
                State::Ended => return Poll::Ready(None),
                State::Idle(_) => {
                    let State::Idle(walk) = std::mem::replace(&mut self.state, State::Ended) else {
                        continue;
                    };
                    self.state = State::Running(self.jobs.begin(&self.runtime, self.peer, || walk.piece()));
                }
                State::Running(job) => {
                    let done = ready!(Pin::new(job).poll(cx)).and_then(|piece| piece);
                    self.state = State::Ended;
                    return Poll::Ready(Some(done.map(|(walk, piece)| {
                        self.state = walk.map_or(State::Ended, State::Idle);
                        piece
                    })));
                }
            }
        }
    }
}

impl Walk {
    /// Makes the next piece.
    fn piece(mut self: Box<Self>) -> io::Result<Piece> {
        while self.output.len() < PIECE_BYTES {
            if let Some((file, left)) = self.file.take() {
                self.read(file, left)?;
            } else if let Some((path, member)) = self.next() {
                self.add(path, member)?;
            } else {
                self.output.resize(self.output.len() + 2 * BLOCK, 0);
                return Ok((None, std::mem::take(&mut self.output).into()));
            }
        }
        let piece = std::mem::take(&mut self.output).into();
        Ok((Some(self), piece))
    }

    /// The next entry: below the root, and in the archive.
    fn next(&mut self) -> Option<(String, String)> {
        while let Some(folder) = self.folders.last_mut() {
            if let Some(name) = folder.names.pop() {
                return Some((
                    format!("{}{name}", folder.path),
                    format!("{}{name}", folder.member),
                ));
            }
            self.folders.pop();
            self.names
                .shrink(self.folders.iter().map(|folder| folder.bytes).sum());
        }
        None
    }

    fn add(&mut self, path: String, member: String) -> io::Result<()> {
        // What was removed in between, or may not be looked at, would be missing in the list too.
        let Ok(metadata) = self.root.symlink_metadata(&path) else {
            return Ok(());
        };
        if metadata.is_dir() {
            let Ok(folder) = open_folder(&self.root, &path) else {
                return Ok(());
            };
            let modified = metadata.modified().ok().map(cap_std::time::SystemTime::into_std);
            let member = format!("{member}/");
            self.head(&member, EntryType::Directory, 0, modified)?;
            return self.enter(&folder, format!("{path}/"), member);
        }
        // A pipe without a writer would keep the job waiting. What a link leads to is looked at when it is open.
        if !metadata.is_file() && !metadata.is_symlink() {
            return Ok(());
        }
        if let Ok(Found::File(file, metadata)) = open(&self.root, &path) {
            self.head(
                &member,
                EntryType::Regular,
                metadata.len(),
                metadata.modified().ok(),
            )?;
            self.file = Some((file, metadata.len()));
        }
        Ok(())
    }

    /// Goes on with the entries of this folder.
    fn enter(&mut self, folder: &Dir, path: String, member: String) -> io::Result<()> {
        if self.folders.len() >= DEEPEST {
            return Err(io::Error::other("folders are nested too deeply for an archive"));
        }
        let held: usize = self.folders.iter().map(|folder| folder.bytes).sum();
        let (mut names, mut bytes) = (Vec::new(), path.len() + member.len());
        for entry in folder.entries()? {
            let Ok(name) = entry?.file_name().into_string() else {
                continue;
            };
            let is_left_out = name.starts_with('.') && (!self.hidden || is_private(&name));
            if is_left_out || name.contains('\\') {
                continue;
            }
            bytes += name.len() + NAME_BYTES;
            if !self.names.reach(held + bytes) {
                return Err(io::Error::other("the memory of lists and archives is used up"));
            }
            names.push(name);
        }
        names.sort_unstable_by(|a, b| b.cmp(a));
        self.folders.push(Folder {
            path,
            member,
            names,
            bytes,
        });
        Ok(())
    }

    /// Adds the header of an entry.
    fn head(
        &mut self,
        member: &str,
        kind: EntryType,
        size: u64,
        modified: Option<SystemTime>,
    ) -> io::Result<()> {
        let since = modified.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(size);
        header.set_mtime(since.unwrap_or_default().as_secs());
        header.set_mode(if kind.is_dir() { 0o755 } else { 0o644 });
        // The builder ends an archive when it is dropped. This one goes on, so what it made is taken away before.
        let mut builder = Builder::new(std::mem::take(&mut self.output));
        let added = builder.append_data(&mut header, member, io::empty());
        self.output = std::mem::take(builder.get_mut());
        added
    }

    /// Adds as much of a file as the piece takes.
    fn read(&mut self, mut file: File, left: u64) -> io::Result<()> {
        let room = PIECE_BYTES - self.output.len();
        let take = usize::try_from(left).unwrap_or(usize::MAX).min(room);
        let begin = self.output.len();
        self.output.resize(begin + take, 0);
        // The header has told its length.
        file.read_exact(&mut self.output[begin..])?;
        match left - take as u64 {
            0 => {
                // A multiple of a block: every header is one, and so was each file before.
                let whole = self.output.len().next_multiple_of(BLOCK);
                self.output.resize(whole, 0);
            }
            left => self.file = Some((file, left)),
        }
        Ok(())
    }
}
