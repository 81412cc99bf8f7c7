//! The part of a body that came, and what of a later response continues it.
//!
//! A body is resumed only where the server proves that it is the same: by `If-Range` (RFC 9110 section 13.1.5) and by the
//! fields of its 206 response, which `version` checks. Otherwise it is begun anew. `fetch` asks and acts.

use fullbore::Incoming;
use http::header::{IF_RANGE, RANGE};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use http_body::Body as _;
use tokio::task::spawn_blocking;

use crate::exit::{Exit, Failure};

use crate::transfer::partial_file::PartialFile;
use crate::transfer::receive::Extent;

use super::version::Version;

/// A shorter body is asked for anew rather than looked for on the disk, in bytes: it leaves with one write, and the search
/// would cost a thread's wake-up for each of 10,000 files.
const NOT_WORTH_A_SEARCH: u64 = 64 << 10;

/// What an earlier run has left of a body.
pub(super) enum Found {
    /// Nothing that is of use.
    Nothing,
    /// Its beginning.
    Some,
    /// All of it, without its name.
    All,
}

/// As much of a body as has come.
pub(super) struct Download {
    pub(super) file: PartialFile,
    /// How many bytes of the body are in the file.
    pub(super) offset: u64,
    /// Which version of the body that is, if the server tells it from others.
    version: Option<Version>,
    /// The server has answered a request for the rest with something else: it is not asked for one again.
    whole_only: bool,
}

/// What the body of a response is.
pub(super) enum Continuation {
    /// The body from its beginning, to where it ends.
    Whole,
    /// What follows on the part.
    Rest(Extent),
    /// Nothing of use: the part is given up, and the whole is to be asked for.
    Nothing,
}

impl Download {
    /// Nothing has come.
    pub(super) fn new(file: PartialFile) -> Self {
        Self {
            file,
            offset: 0,
            version: None,
            whole_only: false,
        }
    }

    /// The fields that ask for the rest, if there is a beginning that can be resumed.
    pub(super) fn range(&self) -> Option<[(HeaderName, HeaderValue); 2]> {
        let version = self
            .version
            .as_ref()
            .filter(|_| self.offset > 0 && !self.whole_only)?;
        let range = HeaderValue::try_from(format!("bytes={}-", self.offset)).ok()?;
        Some([(RANGE, range), (IF_RANGE, version.validator().clone())])
    }

    /// The file, for its body to be written to; to be put back.
    pub(super) fn take_file(&mut self) -> PartialFile {
        let nowhere = self.file.nowhere();
        std::mem::replace(&mut self.file, nowhere)
    }

    /// Whether an earlier run has left some of the body that this response begins: it is taken over then, and the rest
    /// to be asked for, unless there is none.
    ///
    /// # Errors
    /// A fault of this program.
    pub(super) async fn find(&mut self, url: &str, response: &Response<Incoming>) -> Result<Found, Failure> {
        if self.offset > 0 || self.whole_only {
            return Ok(Found::Nothing);
        }
        let Some(version) = version(response).filter(|version| self.is_worth_a_search(version.total()))
        else {
            return Ok(Found::Nothing);
        };
        let mut file = self.take_file();
        let mark = version.mark(url);
        let found = spawn_blocking(move || {
            let found = file.find(mark);
            (file, found)
        });
        let (file, found) = found.await.map_err(|error| {
            let text = format!("{url}: a file was lost by a fault of this program: {error}");
            Failure::new(Exit::Other, text)
        })?;
        self.file = file;
        self.offset = found.unwrap_or(0);
        let total = version.total();
        self.version = Some(version);
        match total {
            _ if self.offset == 0 => Ok(Found::Nothing),
            Some(total) if total == self.offset => Ok(Found::All),
            Some(total) if total < self.offset => {
                self.restart();
                Ok(Found::Nothing)
            }
            _ => Ok(Found::Some),
        }
    }

    /// Whether a body of this length is looked for on the disk, or left there for a later run.
    fn is_worth_a_search(&self, total: Option<u64>) -> bool {
        !self.file.discards() && total.is_none_or(|total| total > NOT_WORTH_A_SEARCH)
    }

    /// Forgets what came; false when that cannot be taken back.
    pub(super) fn restart(&mut self) -> bool {
        let restarted = self.file.restart();
        if restarted {
            self.offset = 0;
            self.version = None;
        }
        restarted
    }

    /// Forgets what came, since the server does not continue it as it was asked to, and asks for no part again.
    ///
    /// # Errors
    /// What was written cannot be taken back.
    pub(super) fn give_up(&mut self, url: &str, why: &str) -> Result<(), Failure> {
        self.whole_only = true;
        if self.restart() {
            return Ok(());
        }
        let text = format!(
            "{url}: the server sent something else than the rest: {why}; the fault is the server's, and what was \
             written so far cannot be taken back, so run it again"
        );
        Err(Failure::new(Exit::Protocol, text))
    }

    /// Gives the file its name: nothing is missing.
    ///
    /// # Errors
    /// It cannot be had.
    pub(super) async fn finish(self) -> Result<(), Failure> {
        let finished = spawn_blocking(move || self.file.finish(&[])).await;
        finished.unwrap_or_else(|error| {
            let text = format!("a file was lost by a fault of this program: {error}");
            Err(Failure::new(Exit::Other, text))
        })
    }

    /// Looks what this response carries: the rest of the part, or a body from its beginning.
    ///
    /// # Errors
    /// It can be neither put behind what came nor begun anew.
    pub(super) fn take_up(
        &mut self,
        url: &str,
        response: &Response<Incoming>,
    ) -> Result<Continuation, Failure> {
        if response.status() == StatusCode::PARTIAL_CONTENT {
            let Some(version) = self.version.as_ref().filter(|_| self.offset > 0) else {
                let text = format!(
                    "{url}: the server sent a part, though it was asked for all; the fault is the server's"
                );
                return Err(Failure::new(Exit::Protocol, text));
            };
            return match version.fit(response.headers(), self.offset) {
                Ok(extent) => Ok(Continuation::Rest(extent)),
                Err(why) => self.give_up(url, why).map(|()| Continuation::Nothing),
            };
        }
        if self.offset > 0 && !self.restart() {
            let text = format!(
                "{url}: it broke off, and the server does not go on with it; what was written so far cannot be taken \
                 back, so run it again"
            );
            return Err(Failure::new(Exit::Closed, text));
        }
        self.version = version(response);
        if let Some(version) = &self.version {
            self.file.mark(version.mark(url));
        }
        Ok(Continuation::Whole)
    }

    /// Leaves what came for a later run; whether there is anything that one could resume.
    pub(super) fn leave(self) -> bool {
        let total = self.version.as_ref().map(Version::total);
        let sought = total.is_some_and(|total| self.is_worth_a_search(total));
        self.offset > 0 && sought && !self.whole_only && self.file.leave()
    }
}

/// The version of the resource that a response carries: only a 200 has the resource itself.
fn version(response: &Response<Incoming>) -> Option<Version> {
    if response.status() != StatusCode::OK {
        return None;
    }
    Version::of(response.headers(), response.body().size_hint().exact())
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use bytes::Bytes;
    use http::HeaderMap;
    use http::header::ETAG;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::transfer::part_names::PartNames;
    use crate::transfer::partial_file::Shared;
    use crate::transfer::receive::Disk;
    use crate::transfer::target::Target;

    /// Five octets of a body that is this long.
    fn begun(path: &Path, total: Option<u64>) -> Result<Download, Failure> {
        let shared = Shared {
            files: Arc::new(Semaphore::new(1)),
            names: Arc::new(PartNames::with_key([7; 32])),
        };
        let target = Target::File {
            path: path.to_owned(),
            force: false,
        };
        let mut headers = HeaderMap::new();
        headers.insert(ETAG, HeaderValue::from_static("\"v1\""));
        let mut part = Download::new(PartialFile::new(target, shared));
        part.version = Version::of(&headers, total);
        part.file.mark(vec![7]);
        part.file.append(&[Bytes::from_static(b"first")])?;
        part.offset = 5;
        Ok(part)
    }

    type Change = fn(&mut Download);
    const CHANGES: [(&str, Change); 3] = [
        ("nothing has come", |part| part.offset = 0),
        ("nobody knows the version", |part| part.version = None),
        ("the server sends no rest", |part| part.whole_only = true),
    ];

    #[cfg(unix)]
    #[test]
    fn what_came_is_left_only_where_a_later_run_would_look_for_it_and_resume_it()
    -> Result<(), Box<dyn std::error::Error>> {
        let lies = |change: Change, total| -> Result<(bool, usize), Box<dyn std::error::Error>> {
            let folder = tempfile::tempdir()?;
            let part = begun(&folder.path().join("a"), total).map_err(|failure| failure.message)?;
            let mut part = part;
            change(&mut part);
            let is_left = part.leave();
            Ok((is_left, std::fs::read_dir(folder.path())?.count()))
        };
        let unchanged: Change = |_| {};
        for total in [None, Some((64 << 10) + 1)] {
            assert_eq!(lies(unchanged, total)?, (true, 1), "{total:?}");
        }
        let one: Change = |part| part.offset = 1;
        assert_eq!(lies(one, None)?, (true, 1), "one octet is enough");
        assert_eq!(lies(unchanged, Some(64 << 10))?, (false, 0));
        for (name, change) in CHANGES {
            assert_eq!(lies(change, None)?, (false, 0), "{name}");
        }
        Ok(())
    }

    #[test]
    fn the_rest_is_asked_for_by_range_and_if_range_unless_there_is_none_to_be_had()
    -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a");
        let part = begun(&path, None).map_err(|failure| failure.message)?;
        let asked = part.range().ok_or("it asks for nothing")?;
        assert_eq!(asked[0], (RANGE, HeaderValue::from_static("bytes=5-")));
        assert_eq!(asked[1], (IF_RANGE, HeaderValue::from_static("\"v1\"")));
        drop(part);
        for (name, change) in CHANGES {
            let mut part = begun(&path, None).map_err(|failure| failure.message)?;
            change(&mut part);
            assert_eq!(part.range(), None, "{name}");
        }
        Ok(())
    }

    #[test]
    fn a_part_that_is_given_up_is_gone_and_no_rest_is_asked_for_again()
    -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let mut part = begun(&folder.path().join("a"), None).map_err(|failure| failure.message)?;
        part.give_up("http://h/a", "it begins elsewhere")
            .map_err(|failure| failure.message)?;
        assert_eq!((part.offset, part.whole_only), (0, true));
        assert!(part.version.is_none());
        assert_eq!(std::fs::read_dir(folder.path())?.count(), 0);
        Ok(())
    }

    #[test]
    fn bodies_above_64_kib_are_looked_for_and_none_that_is_discarded() {
        let disk = Disk::new();
        let part = |target| Download::new(disk.file(target));
        let file = part(Target::File {
            path: "a".into(),
            force: false,
        });
        assert!(file.is_worth_a_search(None));
        assert!(file.is_worth_a_search(Some((64 << 10) + 1)));
        assert!(!file.is_worth_a_search(Some(64 << 10)));
        let nothing = part(Target::Discard);
        assert!(!nothing.is_worth_a_search(None));
        assert!(!nothing.is_worth_a_search(Some(1 << 30)));
    }
}
