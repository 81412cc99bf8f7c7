//! A folder as an archive, which is made while it is sent.
//!
//! Pieces are made in blocking jobs, so that a peer waits for its share like every other, and a body that nobody reads holds
//! one piece and one open file. A body whose files change under way ends with an error: an archive is whole or nothing. `walk` says
//! what is in it; `tar` and `zip` are the formats. Called by `listing`.

mod tar;
mod walk;
mod zip;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use cap_std::fs::Dir;
use tokio::runtime::Handle;

use self::tar::Tar;
use self::walk::Walk;
use self::zip::Zip;
use crate::budget::Budget;
use crate::jobs::{Job, Jobs};
use crate::peer::Peer;
use crate::resolve::Target;

/// How many bytes a job makes.
const PIECE_BYTES: usize = 256 << 10;

/// The format of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Tar,
    Zip,
}

impl Format {
    /// The format that the query asks for; `None` if it asks for no archive.
    pub(crate) fn asked_for(query: Option<&str>) -> Option<Format> {
        query?.split('&').find_map(|pair| match pair {
            "archive=tar" => Some(Format::Tar),
            "archive=zip" => Some(Format::Zip),
            _ => None,
        })
    }

    /// What names of its files end with.
    pub(crate) fn extension(self) -> &'static str {
        match self {
            Format::Tar => "tar",
            Format::Zip => "zip",
        }
    }

    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Format::Tar => "application/x-tar",
            Format::Zip => "application/zip",
        }
    }
}

/// What archives are made of, and with.
pub(crate) struct Means<'a> {
    pub(crate) root: &'a Arc<Dir>,
    /// Whether names that begin with a dot are served.
    pub(crate) hidden: bool,
    pub(crate) slots: &'a Arc<Budget>,
    /// The memory of names.
    pub(crate) names: &'a Arc<Budget>,
    /// The memory of the directories of zip archives.
    pub(crate) directories: &'a Arc<Budget>,
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
pub(crate) struct Archive {
    state: State,
    jobs: Arc<Jobs>,
    peer: Option<Peer>,
    runtime: Handle,
}

#[derive(Debug)]
enum State {
    Idle(Box<Maker>),
    Running(Job<io::Result<(Option<Box<Maker>>, Bytes)>>),
    Ended,
}

/// What makes an archive piece by piece.
#[derive(Debug)]
enum Maker {
    Tar(Tar),
    Zip(Zip),
}

/// What can be sent, and whether it is the last.
type Piece = (Bytes, bool);

impl Archive {
    /// The archive of a folder, whose names begin with `name`. Blocks; needs the context of a runtime.
    ///
    /// # Errors
    /// There is no such folder, or no room for another archive.
    pub(crate) fn of(
        means: &Means<'_>,
        format: Format,
        target: &Target,
        name: &str,
        peer: Option<Peer>,
    ) -> Result<Self, Refused> {
        let walk = Walk::of(means, target, name, peer)?;
        let maker = match format {
            Format::Tar => Maker::Tar(Tar::new(walk)),
            Format::Zip => Maker::Zip(Zip::new(walk, means.directories.share(peer))),
        };
        Ok(Self {
            state: State::Idle(Box::new(maker)),
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
                    let State::Idle(maker) = std::mem::replace(&mut self.state, State::Ended) else {
                        continue;
                    };
                    self.state = State::Running(self.jobs.begin(&self.runtime, self.peer, || maker.piece()));
                }
                State::Running(job) => {
                    let done = ready!(Pin::new(job).poll(cx)).and_then(|piece| piece);
                    self.state = State::Ended;
                    return Poll::Ready(Some(done.map(|(maker, piece)| {
                        self.state = maker.map_or(State::Ended, State::Idle);
                        piece
                    })));
                }
            }
        }
    }
}

impl Maker {
    /// Makes the next piece. Returns the maker unless that was the last one.
    fn piece(mut self: Box<Self>) -> io::Result<(Option<Box<Self>>, Bytes)> {
        let (piece, is_last) = match &mut *self {
            Maker::Tar(tar) => tar.piece(),
            Maker::Zip(zip) => zip.piece(),
        }?;
        Ok(((!is_last).then_some(self), piece))
    }
}
