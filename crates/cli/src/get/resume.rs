//! A download in progress, and how a later response continues it.
//!
//! A download is resumed only if the server proves that the body is the same: by `If-Range` (RFC 9110 section 13.1.5) and
//! by the fields of its 206 response, which `version` checks. Otherwise it starts again. Called by `fetch`.

use fullbore::Incoming;
use http::header::{IF_RANGE, RANGE};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use http_body::Body as _;

use crate::exit::{Exit, Failure};
use crate::transfer::partial_file::PartialFile;
use crate::transfer::progress::Share;
use crate::transfer::receive::{Extent, file_job};

use super::version::Version;

/// A body of at most this many bytes is downloaded again rather than looked up on the disk. The lookup would wake a thread
/// for each of 10,000 files.
const NOT_WORTH_A_SEARCH: u64 = 64 << 10;

/// The part of a body that an earlier run has left.
pub(super) enum Found {
    Nothing,
    /// The beginning.
    Some,
    /// All of it; only the name is missing.
    All,
}

/// The part of a body that has been received.
pub(super) struct Download {
    pub(super) file: PartialFile,
    /// How many bytes of the body are in the file.
    pub(super) offset: u64,
    /// What it adds to the progress of the run.
    pub(super) share: Share,
    /// The version of the body, if it has a strong validator.
    version: Option<Version>,
    /// The server has not answered a range request with the range. No further range is requested.
    whole_only: bool,
    /// Another program has begun the file (`--continue`).
    begun: bool,
    /// Its name is that of the response, and not looked up again.
    pub(super) is_named_by_header: bool,
}

/// What a response carries.
pub(super) enum Continuation {
    /// The body from its beginning.
    Whole,
    /// The bytes that follow the received ones.
    Range(Extent),
    /// Nothing useful: the received part is discarded, and the whole is to be requested.
    Nothing,
}

impl Download {
    /// Nothing is received.
    pub(super) fn new(file: PartialFile, share: Share) -> Self {
        Self {
            file,
            offset: 0,
            share,
            version: None,
            whole_only: false,
            begun: false,
            is_named_by_header: false,
        }
    }

    /// Prepares to append to a file that another program has begun, if the file is one.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub(super) async fn find_begun(&mut self) -> Result<(), Failure> {
        // A job on a blocking thread for each of 10,000 files would make five times as many context switches.
        if !self.file.is_begun_elsewhere() {
            return Ok(());
        }
        let mut file = self.take_file();
        let (file, length) = file_job(move || {
            let length = file.find_begun()?;
            Ok((file, length))
        })
        .await?;
        self.file = file;
        if let Some(length) = length {
            self.offset = length;
            self.begun = true;
            self.version = Some(Version::of_begun_file());
        }
        Ok(())
    }

    /// Whether another program has begun the file.
    pub(super) fn is_begun(&self) -> bool {
        self.begun
    }

    /// Requests no range, and leaves nothing for a later run.
    pub(super) fn set_whole_only(&mut self) {
        self.whole_only = true;
    }

    /// The fields that request the rest; none if the download cannot be resumed.
    pub(super) fn range(&self) -> Vec<(HeaderName, HeaderValue)> {
        let version = self.version.as_ref();
        let Some(version) = version.filter(|_| self.offset > 0 && !self.whole_only) else {
            return Vec::new();
        };
        let range = HeaderValue::try_from(format!("bytes={}-", self.offset)).ok();
        let validator = version.validator().cloned();
        let range = range.map(|range| (RANGE, range));
        range
            .into_iter()
            .chain(validator.map(|validator| (IF_RANGE, validator)))
            .collect()
    }

    /// Takes the file to write the body. The caller puts it back.
    pub(super) fn take_file(&mut self) -> PartialFile {
        let nowhere = self.file.nowhere();
        std::mem::replace(&mut self.file, nowhere)
    }

    /// Looks for a part that an earlier run has left of this response's body, and takes it over.
    ///
    /// # Errors
    /// An error of this program.
    pub(super) async fn find(&mut self, url: &str, response: &Response<Incoming>) -> Result<Found, Failure> {
        if self.offset > 0 || self.whole_only {
            return Ok(Found::Nothing);
        }
        let Some(version) = version(response).filter(|version| self.is_worth_a_search(version.total()))
        else {
            return Ok(Found::Nothing);
        };
        let mut file = self.take_file();
        let key = version.key(url);
        let (file, found) = file_job(move || {
            let found = file.find(key);
            Ok((file, found))
        })
        .await?;
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

    /// Whether a part of a body of this length is looked up on the disk, or left there for a later run.
    fn is_worth_a_search(&self, total: Option<u64>) -> bool {
        !self.file.discards() && total.is_none_or(|total| total > NOT_WORTH_A_SEARCH)
    }

    /// Discards the received part; false when it cannot be taken back.
    pub(super) fn restart(&mut self) -> bool {
        let restarted = self.file.restart();
        if restarted {
            self.offset = 0;
            self.version = None;
        }
        restarted
    }

    /// Discards the received part, since the server does not continue it as requested, and requests no further range.
    ///
    /// # Errors
    /// The output cannot be taken back.
    pub(super) fn give_up(&mut self, url: &str, why: &str) -> Result<(), Failure> {
        self.whole_only = true;
        if self.restart() {
            return Ok(());
        }
        let text = format!(
            "{url}: the server sent a wrong range: {why}; this is an error of the server, and the output cannot be taken back, \
             so try again"
        );
        Err(Failure::new(Exit::Protocol, text))
    }

    /// Gives the complete file its name.
    ///
    /// # Errors
    /// The file cannot be renamed.
    pub(super) async fn finish(self) -> Result<(), Failure> {
        file_job(move || self.file.finish(&[])).await
    }

    /// Determines what this response carries: the requested range, or the body from its beginning.
    ///
    /// # Errors
    /// It does not continue the received part, and the download cannot start again.
    pub(super) fn classify(
        &mut self,
        url: &str,
        response: &Response<Incoming>,
    ) -> Result<Continuation, Failure> {
        if response.status() == StatusCode::PARTIAL_CONTENT {
            let Some(version) = self.version.as_ref().filter(|_| self.offset > 0) else {
                let text = format!(
                    "{url}: the server sent a range that was not requested; this is an error of the server"
                );
                return Err(Failure::new(Exit::Protocol, text));
            };
            return match version.fit(response.headers(), self.offset) {
                Ok(extent) => {
                    if let Some(named) = version.named_by(response.headers(), extent.total) {
                        self.version = Some(named);
                    }
                    Ok(Continuation::Range(extent))
                }
                Err(why) => self.give_up(url, why).map(|()| Continuation::Nothing),
            };
        }
        if self.begun {
            let text = format!(
                "{url}: the server sends only all of the body, and not the rest of the file; remove the file, or replace it with \
                 --force instead of --continue"
            );
            return Err(Failure::new(Exit::Exists, text));
        }
        if self.offset > 0 && !self.restart() {
            let text = format!(
                "{url}: the download was interrupted, and the server does not resume it; the output cannot be taken back, so \
                 try again"
            );
            return Err(Failure::new(Exit::Closed, text));
        }
        self.version = version(response);
        let sought = |version: &&Version| self.is_worth_a_search(version.total()) && !self.whole_only;
        if let Some(version) = self.version.as_ref().filter(sought) {
            self.file.set_version_key(version.key(url));
        }
        Ok(Continuation::Whole)
    }

    /// Leaves the received part for a later run. Returns whether a later run can resume it.
    pub(super) fn leave(self) -> bool {
        if self.begun {
            return self.file.leave();
        }
        let total = self.version.as_ref().map(Version::total);
        let sought = total.is_some_and(|total| self.is_worth_a_search(total));
        self.offset > 0 && sought && !self.whole_only && self.file.leave()
    }
}

/// The version of the body of a 200 response.
fn version(response: &Response<Incoming>) -> Option<Version> {
    if response.status() != StatusCode::OK {
        return None;
    }
    Version::of(response.headers(), response.body().size_hint().exact())
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::path::Path;
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};

    use bytes::Bytes;
    use http::HeaderMap;
    use http::header::ETAG;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::transfer::part_names::PartNames;
    use crate::transfer::partial_file::Shared;
    use crate::transfer::progress::Progress;
    use crate::transfer::receive::Disk;
    use crate::transfer::target::Target;

    /// Five octets of a body that is this long.
    fn begun(path: &Path, total: Option<u64>) -> Result<Download, Failure> {
        let shared = Shared {
            files: Arc::new(Semaphore::new(1)),
            names: Arc::new(PartNames::with_key([7; 32])),
            leftovers: Arc::default(),
        };
        let target = Target::File {
            path: path.to_owned(),
            force: false,
        };
        let mut headers = HeaderMap::new();
        headers.insert(ETAG, HeaderValue::from_static("\"v1\""));
        let mut download = Download::new(PartialFile::new(target, shared), Share::new(&Progress::hidden()));
        download.version = Version::of(&headers, total);
        download.file.set_version_key(vec![7]);
        download.file.append(&[Bytes::from_static(b"first")])?;
        download.offset = 5;
        Ok(download)
    }

    type Change = fn(&mut Download);
    const CHANGES: [(&str, Change); 3] = [
        ("nothing has come", |download| download.offset = 0),
        ("nobody knows the version", |download| download.version = None),
        ("the server sends no rest", Download::set_whole_only),
    ];

    #[cfg(unix)]
    #[test]
    fn what_came_is_left_only_where_a_later_run_would_look_for_it_and_resume_it()
    -> Result<(), Box<dyn std::error::Error>> {
        let lies = |change: Change, total| -> Result<(bool, usize), Box<dyn std::error::Error>> {
            let folder = tempfile::tempdir()?;
            let mut download = begun(&folder.path().join("a"), total).map_err(|failure| failure.message)?;
            change(&mut download);
            let is_left = download.leave();
            Ok((is_left, std::fs::read_dir(folder.path())?.count()))
        };
        let unchanged: Change = |_| {};
        for total in [None, Some((64 << 10) + 1)] {
            assert_eq!(lies(unchanged, total)?, (true, 1), "{total:?}");
        }
        let one: Change = |download| download.offset = 1;
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
        let download = begun(&path, None).map_err(|failure| failure.message)?;
        let asked = download.range();
        assert_eq!(asked[0], (RANGE, HeaderValue::from_static("bytes=5-")));
        assert_eq!(asked[1], (IF_RANGE, HeaderValue::from_static("\"v1\"")));
        drop(download);
        for (name, change) in CHANGES {
            let mut download = begun(&path, None).map_err(|failure| failure.message)?;
            change(&mut download);
            assert!(download.range().is_empty(), "{name}");
        }
        Ok(())
    }

    #[test]
    fn a_part_that_is_given_up_is_gone_and_no_rest_is_asked_for_again()
    -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let mut download = begun(&folder.path().join("a"), None).map_err(|failure| failure.message)?;
        download
            .give_up("http://h/a", "it begins at another position")
            .map_err(|failure| failure.message)?;
        assert_eq!((download.offset, download.whole_only), (0, true));
        assert!(download.version.is_none());
        assert_eq!(std::fs::read_dir(folder.path())?.count(), 0);
        Ok(())
    }

    #[test]
    fn bodies_above_64_kib_are_looked_for_and_none_that_is_discarded() {
        let disk = Disk::new(Arc::default());
        let download = |target| Download::new(disk.file(target), Share::new(&Progress::hidden()));
        let file = download(Target::File {
            path: "a".into(),
            force: false,
        });
        assert!(file.is_worth_a_search(None));
        assert!(file.is_worth_a_search(Some((64 << 10) + 1)));
        assert!(!file.is_worth_a_search(Some(64 << 10)));
        let nothing = download(Target::Discard);
        assert!(!nothing.is_worth_a_search(None));
        assert!(!nothing.is_worth_a_search(Some(1 << 30)));
    }

    #[test]
    fn a_file_that_nobody_has_begun_costs_no_job() {
        let disk = Disk::new(Arc::default());
        for target in [
            Target::Discard,
            Target::File {
                path: "a".into(),
                force: false,
            },
        ] {
            let mut download = Download::new(disk.file(target), Share::new(&Progress::hidden()));
            // A job would need a runtime, and a second poll.
            let found = pin!(download.find_begun()).poll(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(found, Poll::Ready(Ok(()))));
            assert_eq!((download.offset, download.begun), (0, false));
        }
    }
}
