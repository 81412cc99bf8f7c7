//! A download in progress, and how a later response continues it.
//!
//! A download is resumed only if the server proves that the body is the same: by `If-Range` (RFC 9110 section 13.1.5) and
//! by the fields of its 206 response, which `version` checks. Otherwise it starts again. Called by `fetch`.

use fullbore::Incoming;
use fullbore::client::range::{Extent, Seen, Version};
use http::header::{CONTENT_RANGE, IF_RANGE, RANGE};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body::Body as _;
use url::Url;

use crate::exit::{Exit, Failure};
use crate::transfer::client::shown_url;
use crate::transfer::partial_file::{PartialFile, Role};
use crate::transfer::parts::PartKey;
use crate::transfer::progress::Share;
use crate::transfer::receive::file_job;

use super::likeness::Likeness;
use super::list::FoundFolders;

/// A body of at most this many bytes is downloaded again rather than looked up on the disk: the lookup would wake a thread
/// for each of 10,000 files, and the record beside a part costs as much as receiving 100 KB.
const NOT_WORTH_A_SEARCH: u64 = 512 << 10;

/// The part of a body that an earlier run has left.
pub(super) enum Found {
    Nothing,
    /// The beginning.
    Some,
    /// All of it; only the name is missing.
    All,
}

/// The part of a body that has been received. It is kept until a response proves that it is no beginning of the body: not
/// until a request fails.
pub(super) struct Download {
    pub(super) file: PartialFile,
    /// How many bytes of the body are in the file.
    pub(super) offset: u64,
    /// What it adds to the progress of the run.
    pub(super) share: Share,
    /// The version of the body, if it has a strong validator.
    version: Option<Version>,
    /// What the response of the body looked like.
    likeness: Option<Likeness>,
    /// The file has other octets than the body (`--compressed`): no range is requested, and nothing is left for a later run.
    whole_only: bool,
    /// How the server has answered a range request, if not with the range. No further range is requested.
    wrong_range: Option<&'static str>,
    /// Another program has begun the file (`--continue`).
    begun: bool,
    /// Only a body that was modified after this is wanted.
    pub(super) since: Option<HeaderValue>,
    /// Where it goes if it turns out to be a folder.
    pub(super) folders: Option<FoundFolders>,
    /// Its name is that of the response, and not looked up again.
    pub(super) is_named_by_header: bool,
}

/// A response with a status below 300, and what it answers.
pub(super) struct Answer {
    /// What it answers.
    pub(super) request: Request<()>,
    pub(super) response: Response<Incoming>,
    /// Where it came from, behind all redirects.
    pub(super) url: Url,
    pub(super) redirected: bool,
    /// Only the rest was requested.
    pub(super) of_rest: bool,
}

/// What a response carries.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Continuation {
    /// The body from its beginning. Nothing of it is in the file.
    Whole,
    /// The bytes that follow the received ones, behind the first `known` bytes, which are in the file.
    Rest { extent: Option<Extent>, known: u64 },
    /// Nothing that is not in the file: it has all of the body.
    All,
    /// Nothing certain: the whole is to be requested.
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
            likeness: None,
            whole_only: false,
            wrong_range: None,
            begun: false,
            since: None,
            folders: None,
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
        let resumable = self.offset > 0 && !self.whole_only && self.wrong_range.is_none();
        let Some(version) = version.filter(|_| resumable) else {
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
    pub(super) async fn find(&mut self, url: &str, answer: &Answer) -> Result<Found, Failure> {
        let response = &answer.response;
        if self.offset > 0 || self.whole_only {
            return Ok(Found::Nothing);
        }
        let Some(version) = version(response).filter(|version| self.is_worth_a_search(version.total()))
        else {
            return Ok(Found::Nothing);
        };
        let mut file = self.take_file();
        let key = PartKey::of(url, &version);
        let supersedes = !answer.redirected;
        let (file, found) = file_job(move || {
            let found = file.find(key, supersedes);
            Ok((file, found))
        })
        .await?;
        self.file = file;
        self.offset = found.unwrap_or(0);
        let total = version.total();
        self.version = Some(version);
        self.likeness = Some(likeness(answer));
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

    /// Takes back what a response added to the first `offset` bytes, since its length contradicts its fields. No further range
    /// is requested.
    ///
    /// # Errors
    /// The output cannot be taken back.
    pub(super) async fn take_back(
        &mut self,
        url: &str,
        offset: u64,
        why: &'static str,
    ) -> Result<(), Failure> {
        self.wrong_range = Some(why);
        let mut file = self.take_file();
        let (file, is_cut) = file_job(move || {
            let is_cut = file.cut(offset)?;
            Ok((file, is_cut))
        })
        .await?;
        self.file = file;
        if is_cut {
            self.offset = offset;
            return Ok(());
        }
        Err(self.irrevocable(url))
    }

    /// The failure of an output that has another beginning than the body.
    fn irrevocable(&self, url: &str) -> Failure {
        match self.wrong_range {
            Some(why) => Failure::new(
                Exit::Protocol,
                format!(
                    "{url}: the server sent a wrong range: {why}; this is an error of the server, and the output cannot be taken \
                     back, so try again"
                ),
            ),
            None => Failure::new(
                Exit::Closed,
                format!(
                    "{url}: the download was interrupted, and the server does not resume it; the output cannot be taken back, so \
                     try again"
                ),
            ),
        }
    }

    /// Gives the complete file its name.
    ///
    /// # Errors
    /// The file cannot be renamed.
    pub(super) async fn finish(self) -> Result<(), Failure> {
        file_job(move || self.file.finish(&[])).await
    }

    /// Determines what this response carries.
    ///
    /// # Errors
    /// It does not continue the received part, and the download cannot start again.
    pub(super) fn classify(&mut self, url: &str, answer: &Answer) -> Result<Continuation, Failure> {
        let response = &answer.response;
        let is_range = response.status() == StatusCode::PARTIAL_CONTENT;
        match (answer.of_rest, is_range) {
            (true, true) => self.classify_range(url, response.headers()),
            (true, false) => self.classify_ignored_range(url, response),
            (false, false) => self.classify_whole(url, answer),
            (false, true) => {
                let text = format!(
                    "{url}: the server sent a range that was not requested; this is an error of the server"
                );
                Err(Failure::new(Exit::Protocol, text))
            }
        }
    }

    /// The range that was requested. One that does not fit says nothing about the bytes that came before it.
    fn classify_range(&mut self, url: &str, headers: &HeaderMap) -> Result<Continuation, Failure> {
        let Some(version) = &self.version else {
            return Ok(Continuation::Nothing);
        };
        match version.fit(headers, self.offset) {
            Ok(extent) => {
                if let Some(named) = version.named_by(headers, extent.total) {
                    self.version = Some(named);
                }
                Ok(Continuation::Rest {
                    extent: Some(extent),
                    known: 0,
                })
            }
            Err(why) => {
                self.wrong_range = Some(why);
                match self.begun {
                    true => Err(self.irrevocable(url)),
                    false => Ok(Continuation::Nothing),
                }
            }
        }
    }

    /// Another response than a range, to a request for one. Some servers send the range as if it were the whole. So this is
    /// taken for the whole only if it has the same strong validator and the same length; otherwise the whole is requested.
    fn classify_ignored_range(
        &mut self,
        url: &str,
        response: &Response<Incoming>,
    ) -> Result<Continuation, Failure> {
        let version = version(response);
        let total = version.as_ref().and_then(Version::total);
        let same = version.is_some() && version == self.version;
        if let Some(total) = total.filter(|_| same && !response.headers().contains_key(CONTENT_RANGE)) {
            return Ok(self.behind_known(Some(total)));
        }
        if self.begun {
            return Err(only_all(url));
        }
        let seen = self
            .version
            .as_ref()
            .and_then(|old| old.seen_again(version.as_ref()));
        if seen.is_some() {
            self.wrong_range = Some("it is a 200 response of the same version and another length");
        }
        Ok(Continuation::Nothing)
    }

    /// The response to a request without a range: the whole.
    fn classify_whole(&mut self, url: &str, answer: &Answer) -> Result<Continuation, Failure> {
        if self.begun {
            return Err(only_all(url));
        }
        let version = version(&answer.response);
        let likeness = likeness(answer);
        if self.offset > 0 {
            let old = self.version.as_ref().filter(|_| !self.whole_only);
            match old.and_then(|old| old.seen_again(version.as_ref())) {
                Some(Seen::Same(Some(total))) if total == self.offset => return Ok(Continuation::All),
                Some(Seen::Same(total)) if total.is_none_or(|total| total > self.offset) => {
                    return Ok(self.behind_known(total));
                }
                Some(_) => self.wrong_range = Some("the same version has two lengths"),
                None => self.refuse_unlike(answer, &likeness)?,
            }
            if !self.restart() {
                return Err(self.irrevocable(url));
            }
        }
        self.version = version;
        self.likeness = Some(likeness);
        if let Some(version) = self.version.as_ref().filter(|_| !self.whole_only) {
            let role = Role {
                is_sought: self.is_worth_a_search(version.total()),
                // Behind a redirect may be a page to log in.
                supersedes: !answer.redirected,
            };
            self.file.set_key(PartKey::of(url, version), role);
        }
        Ok(Continuation::Whole)
    }

    /// The whole, of which the file has the beginning. The same strong validator stands for the same octets (RFC 9110 section
    /// 8.8.1).
    fn behind_known(&self, total: Option<u64>) -> Continuation {
        Continuation::Rest {
            extent: total.map(|total| Extent { end: total, total }),
            known: self.offset,
        }
    }

    /// What looks like another thing does not replace a body that broke off.
    fn refuse_unlike(&self, answer: &Answer, now: &Likeness) -> Result<(), Failure> {
        match &self.likeness {
            Some(begun) if !begun.fits(now) => {
                let text = format!(
                    "{}: the server now sends something else ({}) than the body that broke off ({}), perhaps a page to log in; \
                     run the command again to take what it sends then",
                    shown_url(answer.url.as_str()),
                    now.shown(),
                    begun.shown()
                );
                Err(Failure::new(Exit::Status, text))
            }
            _ => Ok(()),
        }
    }

    /// Leaves the received part for a later run. Returns whether a later run can resume it.
    pub(super) async fn leave(self) -> bool {
        if self.begun {
            return self.file.leave();
        }
        let total = self.version.as_ref().map(Version::total);
        let sought = total.is_some_and(|total| self.is_worth_a_search(total));
        if self.offset == 0 || !sought || self.whole_only {
            return false;
        }
        // It waits for the disk.
        file_job(move || Ok(self.file.leave())).await.unwrap_or(false)
    }
}

/// There is no rest of a file that another program has begun.
fn only_all(url: &str) -> Failure {
    let text = format!(
        "{url}: the server sends only all of the body, and not the rest of the file; remove the file, or replace it with \
         --force instead of --continue"
    );
    Failure::new(Exit::Exists, text)
}

fn likeness(answer: &Answer) -> Likeness {
    let response = &answer.response;
    let total = response.body().size_hint().exact();
    Likeness::of(&answer.url, answer.redirected, response.headers(), total)
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
    use http::header::ETAG;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::transfer::partial_file::Shared;
    use crate::transfer::parts::Parts;
    use crate::transfer::progress::Progress;
    use crate::transfer::receive::Disk;
    use crate::transfer::target::Target;

    /// Five octets of a body that is this long.
    fn begun(path: &Path, total: Option<u64>) -> Result<Download, Failure> {
        let shared = Shared {
            files: Arc::new(Semaphore::new(1)),
            parts: Arc::new(Parts::of_user()),
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
        let key = PartKey {
            url: "http://h/a".to_owned(),
            version: vec![7],
        };
        let role = Role {
            is_sought: true,
            supersedes: true,
        };
        download.file.set_key(key, role);
        download.file.append(&[Bytes::from_static(b"first")])?;
        download.offset = 5;
        Ok(download)
    }

    type Change = fn(&mut Download);
    const CHANGES: [(&str, Change); 3] = [
        ("nothing has come", |download| download.offset = 0),
        ("nobody knows the version", |download| download.version = None),
        ("the file has the decoded body", Download::set_whole_only),
    ];

    #[cfg(unix)]
    #[tokio::test]
    async fn what_came_is_left_only_where_a_later_run_would_look_for_it_and_resume_it()
    -> Result<(), Box<dyn std::error::Error>> {
        let unchanged: Change = |_| {};
        for total in [None, Some(NOT_WORTH_A_SEARCH + 1)] {
            assert_eq!(
                left(unchanged, total).await?,
                (true, 2),
                "{total:?}: a part and its record"
            );
        }
        let one: Change = |download| download.offset = 1;
        assert_eq!(left(one, None).await?, (true, 2), "one octet is enough");
        assert_eq!(left(unchanged, Some(NOT_WORTH_A_SEARCH)).await?, (false, 0));
        for (name, change) in CHANGES {
            assert_eq!(left(change, None).await?, (false, 0), "{name}");
        }
        Ok(())
    }

    /// Whether a download is left, and how many files are in the folder then.
    #[cfg(unix)]
    async fn left(change: Change, total: Option<u64>) -> Result<(bool, usize), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let mut download = begun(&folder.path().join("a"), total).map_err(|failure| failure.message)?;
        change(&mut download);
        let is_left = download.leave().await;
        Ok((is_left, std::fs::read_dir(folder.path())?.count()))
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
    fn bodies_above_64_kib_are_looked_for_and_none_that_is_discarded() {
        let disk = Disk::new(Arc::default());
        let download = |target| Download::new(disk.file(target), Share::new(&Progress::hidden()));
        let file = download(Target::File {
            path: "a".into(),
            force: false,
        });
        assert!(file.is_worth_a_search(None));
        assert!(file.is_worth_a_search(Some(NOT_WORTH_A_SEARCH + 1)));
        assert!(!file.is_worth_a_search(Some(NOT_WORTH_A_SEARCH)));
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
