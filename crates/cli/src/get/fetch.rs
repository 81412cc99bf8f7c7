//! The download of one URL: requests, redirects, the status, the body.
//!
//! `get::run` spawns `Fetcher::fetch` for each URL. `Fetcher` has what the requests of a run share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use fullbore::client::range::whole_length;
use fullbore::{Client, Incoming};
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, ETAG, IF_MODIFIED_SINCE, LAST_MODIFIED,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Empty;
use tokio::time::{Instant, timeout_at};
use url::Url;

use crate::exit::{Exit, Failure};
use crate::transfer::client::{Address, parse_url, shown_url, without_credentials};
use crate::transfer::gate::{Gate, PATIENCE};
use crate::transfer::lists::{Lists, LongList};
use crate::transfer::partial_file::KEPT;
use crate::transfer::progress::{Progress, Share};
use crate::transfer::receive::{self, Bounds, Disk, ReceiveError, Received, file_job};
use crate::transfer::redirects::Redirects;
use crate::transfer::request_fields::RequestFields;
use crate::transfer::retry::{Failed, Pauses, Retries};
use crate::transfer::source::{self, Coding, Source};
use crate::transfer::status::{Asked, check_status};
use crate::transfer::target::Target;
use crate::transfer::transfer_coding;
use crate::transfer::waits::StreamWaits;

use super::conditions::Conditions;
use super::entries::Index;
use super::heads::print_head;
use super::index;
use super::list::Item;
use super::outputs::Outputs;
use super::report::Outcome;
use super::resume::{Answer, Continuation, Download, Found};
use super::unreachable::Unreachable;

/// A range that ends early is no failure if it has this many bytes: the rest is requested at once.
const WORTH_A_REQUEST: u64 = 64 << 10;

/// The longest pause before a list is requested again that a busy server has refused, whatever it asks for.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The forms of lists that can be read.
const LIST_TYPES: HeaderValue = HeaderValue::from_static("application/json, text/html;q=0.9");

/// Asks `serve` for the lists of sub-folders in the same response, and says that they are there (RFC 7240).
const PREFER: HeaderName = HeaderName::from_static("prefer");
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");
const SUBLISTS: HeaderValue = HeaderValue::from_static("sublists");

/// 416: the range begins after the end (RFC 9110 section 15.5.17).
const RANGE_NOT_SATISFIABLE: u16 = 416;

/// A failed attempt, and what it received.
type Attempt = (Failed, Option<Download>);

/// A failure after which nothing is kept.
fn permanent(failure: Failure) -> Attempt {
    (Failed::permanent(failure), None)
}

/// Whether the response says that there is nothing to download; the outcome says so then.
fn is_not_modified(answer: &Answer, outcome: &mut Outcome) -> bool {
    if answer.response.status() != StatusCode::NOT_MODIFIED {
        return false;
    }
    outcome.file = None;
    outcome.tag = None;
    outcome.is_unchanged = true;
    outcome.note = Some(format!(
        "{}: not modified, so nothing was downloaded",
        outcome.url
    ));
    true
}

/// Whether a redirect only adds the slash that makes a folder of a URL.
fn is_with_slash(from: &Url, to: &Url) -> bool {
    let path = to.path().strip_suffix('/');
    to.origin() == from.origin() && path == Some(from.path()) && to.query().is_none()
}

/// When a body was modified, as its server says.
fn last_modified(headers: &HeaderMap) -> Option<SystemTime> {
    let text = headers.get(LAST_MODIFIED)?.to_str().ok()?;
    httpdate::parse_http_date(text).ok()
}

/// Gives a file its name that has all of the body.
async fn finish(download: Download, outcome: &mut Outcome) -> Result<Option<Download>, Attempt> {
    outcome.bytes = download.offset;
    download.finish().await.map(|()| None).map_err(permanent)
}

/// What a request asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// What the download lacks.
    Rest,
    Whole,
}

/// What the requests of a run share.
pub(crate) struct Fetcher {
    pub(crate) client: Client,
    /// How many connections a body comes over; `None` for as many as make it faster.
    pub(crate) connections: Option<usize>,
    pub(crate) fields: RequestFields,
    pub(crate) redirects: Redirects,
    pub(crate) unreachable: Unreachable,
    /// How often temporary failures are repeated.
    pub(crate) retries: u32,
    pub(crate) pauses: Pauses,
    /// The limit for each attempt.
    pub(crate) max_time: Option<Duration>,
    pub(crate) outputs: Outputs,
    pub(crate) disk: Disk,
    pub(crate) progress: Arc<Progress>,
    /// Whether each outcome has a report of its stream.
    pub(crate) reports_streams: bool,
    pub(crate) heads: Heads,
    pub(crate) conditions: Conditions,
    /// `--compressed`.
    pub(crate) decodes: bool,
    /// Whether files get the time of their bodies.
    pub(crate) keeps_times: bool,
    /// The files that a walk has found unchanged.
    pub(crate) same: AtomicU64,
    pub(crate) lists: Lists,
    pub(crate) list_gate: Gate,
    /// The lists that were received.
    pub(crate) listed: AtomicU64,
    /// The names that lists had and that were not told. The first list with such names is told, with the first of them.
    pub(crate) refused_names: AtomicU64,
    pub(crate) told_of_names: AtomicBool,
    /// A file that exists was told.
    pub(crate) told_of_existing: AtomicBool,
}

/// Whether the heads of responses are printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Heads {
    No,
    /// `--head`: nothing but the heads is requested.
    Only,
    /// `--include`: in front of the body.
    Also,
}

/// The list of a folder.
pub(super) struct List {
    /// Its URL: redirects may add a slash.
    pub(super) folder: Url,
    pub(super) index: Index,
    /// Held as long as the entries.
    pub(super) right: LongList,
}

impl Fetcher {
    /// Downloads one URL. A failure is part of the outcome.
    pub(crate) async fn fetch(&self, item: Item) -> Outcome {
        let begun = std::time::Instant::now();
        let mut outcome = Outcome::new(without_credentials(&item.url));
        let fetched = match parse_url(&item.url) {
            Ok(url) => self.try_fetch(url, &item, &mut outcome).await,
            Err(failure) => Err(failure),
        };
        if outcome.is_folder {
            return outcome;
        }
        if let Err(failure) = fetched {
            outcome.file = None;
            outcome.repeated |=
                failure.is_existing_file() && self.told_of_existing.swap(true, Ordering::Relaxed);
            outcome.failure = Some(failure);
        }
        if outcome.is_unchanged && item.place.is_some() {
            self.same.fetch_add(1, Ordering::Relaxed);
            outcome.note = None;
        }
        if let Some(note) = self.conditions.note() {
            outcome.note = Some(match outcome.note.take() {
                None => note.to_owned(),
                Some(other) => format!("{note}; {other}"),
            });
        }
        outcome.seconds = begun.elapsed().as_secs_f64();
        outcome
    }

    async fn try_fetch(&self, address: Address, item: &Item, outcome: &mut Outcome) -> Result<(), Failure> {
        let url = &address.url;
        let target = match &item.place {
            Some(place) => self.outputs.below(place, item.is_free, item.replaces).await?,
            None => self.outputs.target(url, item.name.as_deref()).await?,
        };
        let Some(target) = target else {
            return Ok(());
        };
        // The response may name another one.
        if !self.outputs.names_by_header() {
            self.conditions.refuse_one_file(target.path()).await?;
        }
        let mut retries = Retries::new(self.retries);
        let mut download = self.download(target, item, outcome);
        download.find_begun().await?;
        outcome.resumed = download.offset;
        outcome.bytes = download.offset;
        loop {
            if let Some(until) = self.pauses.until(url) {
                tokio::time::sleep_until(until).await;
            }
            let begun = Instant::now();
            let (broken, left) = match self.attempt(&address, download, item, outcome).await {
                Ok(None) => break,
                Ok(Some(short)) => {
                    download = short;
                    continue;
                }
                Err(failed) => failed,
            };
            let Some(wait) = retries.next(&broken) else {
                outcome.repeated = self.is_known(&broken);
                let mut failure = broken.failure;
                // The advice of a permanent failure about a file of another program is not to run the same again.
                let is_told = broken.transient || !left.as_ref().is_some_and(Download::is_begun);
                let is_left = match left {
                    Some(left) => left.leave().await,
                    None => false,
                };
                if is_left && is_told {
                    failure.message.push_str(KEPT);
                }
                return Err(failure);
            };
            let Some(left) = left else {
                return Err(broken.failure);
            };
            download = left;
            let until = self.pauses.after(url, &broken, begun, Instant::now(), wait);
            tokio::time::sleep_until(until).await;
        }
        if let Some(tag) = outcome.tag.take() {
            self.conditions.save(tag, outcome.file.clone()).await?;
        }
        Ok(())
    }

    /// Whether a failure was said of another URL: that its origin cannot be reached.
    fn is_known(&self, broken: &Failed) -> bool {
        match &broken.unreachable {
            None => false,
            Some((origin, name)) => !self.unreachable.note(origin.clone(), name, &broken.failure),
        }
    }

    /// An empty download to this target, and its path in the outcome.
    fn download(&self, target: Target, item: &Item, outcome: &mut Outcome) -> Download {
        outcome.file = target.path().map(ToOwned::to_owned);
        let mut file = self.disk.file(target);
        if let Some(checksum) = &item.checksum {
            file.expect(checksum.clone());
        }
        let mut download = Download::new(file, Share::new(&self.progress));
        download.since = item.since.clone();
        download.folders = item.folders.clone();
        if self.decodes {
            // A range is a part of the encoded body.
            download.set_whole_only();
        }
        download
    }

    /// One attempt: requests what is missing, and receives it. Returns an incomplete download, to be continued at once or
    /// with the failure.
    async fn attempt(
        &self,
        address: &Address,
        mut download: Download,
        item: &Item,
        outcome: &mut Outcome,
    ) -> Result<Option<Download>, Attempt> {
        let deadline = self.max_time.map(|limit| Instant::now() + limit);
        let mut answer = match self.ask(address, &download, deadline, outcome).await {
            Ok(answer) => answer,
            // The file that another program has begun is complete.
            Err(_) if download.is_begun() && outcome.whole == Some(download.offset) => {
                outcome.note = Some(format!("{}: the file is complete already", outcome.url));
                return finish(download, outcome).await;
            }
            Err(_) if download.is_begun() && outcome.whole.is_some_and(|whole| whole < download.offset) => {
                let text = format!(
                    "{}: the file has {} bytes, more than the {} of the server, so it is not the beginning of this body; remove \
                     it, or replace it with --force instead of --continue",
                    outcome.url,
                    download.offset,
                    outcome.whole.unwrap_or_default()
                );
                return Err(permanent(Failure::new(Exit::Exists, text)));
            }
            Err(failed) => return Err((failed, Some(download))),
        };
        if is_not_modified(&answer, outcome) {
            return Ok(None);
        }
        outcome.tag = Some(answer.response.headers().get(ETAG).cloned());
        if self.heads == Heads::Only {
            return Ok(None);
        }
        if self.outputs.names_by_header() && item.name.is_none() && !download.is_named_by_header {
            let headers = answer.response.headers();
            let target = self.outputs.target_by_header(&address.url, headers).await;
            let Some(target) = target.map_err(permanent)? else {
                outcome.file = None;
                outcome.tag = None;
                return Ok(None);
            };
            self.conditions
                .refuse_one_file(target.path())
                .await
                .map_err(permanent)?;
            download = self.download(target, item, outcome);
            download.is_named_by_header = true;
        }
        if self.keeps_times {
            download.file.set_time(last_modified(answer.response.headers()));
        }
        match download.find(&outcome.url, &answer).await.map_err(permanent)? {
            Found::Nothing => {}
            Found::All => {
                outcome.resumed = download.offset;
                return finish(download, outcome).await;
            }
            Found::Some => {
                // An earlier run has received a part: request the rest instead.
                drop(answer);
                outcome.resumed = download.offset;
                answer = match self.ask(address, &download, deadline, outcome).await {
                    Ok(answer) => answer,
                    Err(failed) => return Err((failed, Some(download))),
                };
                if is_not_modified(&answer, outcome) {
                    return Ok(None);
                }
            }
        }
        let mut classified = download.classify(&outcome.url, &answer);
        if matches!(classified, Ok(Continuation::Nothing)) {
            drop(answer);
            answer = match self
                .response(address, &download, Wanted::Whole, deadline, outcome)
                .await
            {
                Ok(answer) => answer,
                Err(failed) => return Err((failed, Some(download))),
            };
            if is_not_modified(&answer, outcome) {
                return Ok(None);
            }
            classified = download.classify(&outcome.url, &answer);
        }
        let (extent, known) = match classified {
            Ok(Continuation::Rest { extent, known }) => (extent, known),
            Ok(Continuation::Whole | Continuation::Nothing) => (None, 0),
            Ok(Continuation::All) => return finish(download, outcome).await,
            Err(failure) => return Err((Failed::permanent(failure), Some(download))),
        };
        if !answer.of_rest {
            // It may be of another version than the responses before it.
            outcome.tag = Some(answer.response.headers().get(ETAG).cloned());
        }
        let bounds = Bounds {
            extent,
            known,
            deadline,
        };
        self.receive(download, answer, bounds, outcome).await
    }

    /// Requests what is missing. A range that is not in the body (416) says nothing about the received part: the whole is
    /// requested.
    async fn ask(
        &self,
        address: &Address,
        download: &Download,
        deadline: Option<Instant>,
        outcome: &mut Outcome,
    ) -> Result<Answer, Failed> {
        match self
            .response(address, download, Wanted::Rest, deadline, outcome)
            .await
        {
            Err(_)
                if download.offset > 0
                    && outcome.status == Some(RANGE_NOT_SATISFIABLE)
                    && !download.is_begun() =>
            {
                self.response(address, download, Wanted::Whole, deadline, outcome)
                    .await
            }
            asked => asked,
        }
    }

    /// Receives a body and appends it to the download.
    async fn receive(
        &self,
        mut download: Download,
        Answer {
            request, response, ..
        }: Answer,
        bounds: Bounds,
        outcome: &mut Outcome,
    ) -> Result<Option<Download>, Attempt> {
        let before = download.offset;
        if before == 0 {
            outcome.resumed = 0;
        }
        let file = download.take_file();
        let coding = match self.decodes {
            true => Coding::of(response.headers(), &outcome.url).map_err(permanent)?,
            false => None,
        };
        let mut body = match coding {
            Some(coding) => Source::decoded(response.into_body(), coding, self.disk.decoders()),
            None => Source::Spread(self.spread(request, response)),
        };
        let share = &mut download.share;
        share.set_bytes(before);
        let waited = self.reports_streams.then_some(&mut outcome.waited);
        let received = receive::receive_into(file, &mut body, &self.disk, share, bounds, waited).await;
        outcome.bytes = share.bytes();
        if let Some(spread) = body.spread() {
            outcome.over(&spread);
        }
        if self.reports_streams && outcome.waited.is_none() {
            outcome.waited = body.report().await.map(|report| StreamWaits::receiving(&report));
        }
        let (failed, file) = match received {
            Ok(Received::Whole) => return Ok(None),
            Err(ReceiveError::Target(failure)) => return Err(permanent(failure)),
            Err(ReceiveError::Coding(error)) => {
                let text = format!(
                    "{}: the body cannot be decoded: {error}; try again without --compressed",
                    outcome.url
                );
                return Err(permanent(Failure::new(Exit::Protocol, text)));
            }
            Err(ReceiveError::TooLarge(most)) => {
                let text = format!(
                    "{}: the body is larger than the {most} bytes of --max-filesize; allow more, or ask for another file",
                    outcome.url
                );
                return Err(permanent(Failure::new(Exit::TooLarge, text)));
            }
            Err(ReceiveError::Body(error, file)) => (Failed::of(&outcome.url, &error), file),
            Err(ReceiveError::Late(file)) => {
                let limit = self.max_time.unwrap_or_default();
                let failed = Failed::too_long(&outcome.url, "the body was not complete", limit);
                (failed, file)
            }
            Err(ReceiveError::Length(file)) => {
                download.file = file;
                let (why, what) = match bounds.known {
                    0 => (
                        "its length differs from its Content-Range",
                        "a range whose length differs from its Content-Range",
                    ),
                    _ => (
                        "the same version has two lengths",
                        "a body whose length differs from that of the same version before",
                    ),
                };
                download
                    .take_back(&outcome.url, before, why)
                    .await
                    .map_err(permanent)?;
                outcome.bytes = before;
                let text = format!(
                    "{}: the server sent {what}; this is an error of the server",
                    outcome.url
                );
                return Err((
                    Failed::temporary(Failure::new(Exit::BodyLength, text)),
                    Some(download),
                ));
            }
            Ok(Received::Short(file)) => {
                if outcome.bytes - before >= WORTH_A_REQUEST {
                    download.file = file;
                    download.offset = outcome.bytes;
                    return Ok(Some(download));
                }
                let text = format!(
                    "{}: the server sent only {} bytes of the requested range; this is an error of the server",
                    outcome.url,
                    outcome.bytes - before
                );
                (Failed::temporary(Failure::new(Exit::BodyLength, text)), file)
            }
        };
        download.file = file;
        download.offset = outcome.bytes;
        Err((failed, Some(download)))
    }

    /// The body of a response, over as many connections as make it faster.
    fn spread(&self, request: Request<()>, response: Response<Incoming>) -> fullbore::client::Download {
        let mut body = self.client.spread(request, response).into_body();
        if let Some(connections) = self.connections {
            body.set_connections(connections);
        }
        body
    }

    /// The final response: after redirects, with a status below 300.
    async fn response(
        &self,
        address: &Address,
        download: &Download,
        wanted: Wanted,
        deadline: Option<Instant>,
        outcome: &mut Outcome,
    ) -> Result<Answer, Failed> {
        let range = match wanted {
            Wanted::Rest => download.range(),
            Wanted::Whole => Vec::new(),
        };
        let mut url = address.url.clone();
        let mut fields = self.fields.of(address);
        outcome.note = outcome.note.take().or_else(|| self.fields.note(&url));
        // The user's URL is shown whole, a server's is not.
        let mut redirected = None::<String>;
        let mut followed = 0;
        loop {
            let mut headers = fields.clone();
            match range.is_empty() {
                true => {
                    headers.extend(self.conditions.fields().iter().cloned());
                    headers.extend(download.since.clone().map(|since| (IF_MODIFIED_SINCE, since)));
                }
                false => headers.extend(range.iter().cloned()),
            }
            if self.decodes {
                headers.entry(ACCEPT_ENCODING).or_insert(source::ACCEPTED);
            }
            let name = redirected.as_deref().unwrap_or(url.as_str());
            let (request, response) = self.request(&url, name, headers, deadline).await?;
            let status = response.status();
            outcome.status = Some(status.as_u16());
            // Later it would stand within the body.
            if self.heads != Heads::No && download.offset == 0 {
                print_head(&response).await.map_err(Failed::permanent)?;
            }
            // A request for a range has no such condition.
            let is_conditional = !self.conditions.fields().is_empty() || download.since.is_some();
            if status == StatusCode::NOT_MODIFIED && range.is_empty() && is_conditional {
                return Ok(Answer {
                    request,
                    response,
                    url,
                    redirected: followed > 0,
                    of_rest: false,
                });
            }
            if status.as_u16() == RANGE_NOT_SATISFIABLE {
                outcome.whole = whole_length(response.headers());
            }
            if let Err(failure) = check_status(name, &response, Asked::download(request.headers())) {
                return Err(Failed::by_status(failure, &response).with_body(response).await);
            }
            let found = (status, response.headers());
            let next = self.redirects.next(&url, name, found, followed);
            let Some(next) = next.map_err(Failed::permanent)? else {
                if self.heads != Heads::Only {
                    transfer_coding::refuse(name, response.headers()).map_err(Failed::permanent)?;
                }
                return Ok(Answer {
                    request,
                    response,
                    url,
                    redirected: followed > 0,
                    of_rest: !range.is_empty(),
                });
            };
            // Some servers list folders without the slash that they redirect to.
            if let Some(folders) = download
                .folders
                .as_ref()
                .filter(|_| is_with_slash(&url, &next.url))
            {
                outcome.is_folder = true;
                folders.add(Address {
                    url: next.url,
                    login: address.login.clone(),
                });
                let text = format!("{name}: this is a folder");
                return Err(Failed::permanent(Failure::new(Exit::Status, text)));
            }
            followed += 1;
            self.fields.after_redirect(&mut fields, &url, &next);
            redirected = Some(shown_url(next.url.as_str()));
            url = next.url;
        }
    }

    /// The list of a folder. Redirects may add a slash to its URL, and change nothing else. `sublists`: those of folders below are
    /// of use.
    pub(super) async fn list(&self, address: &Address, sublists: bool) -> Result<List, Failure> {
        let mut retries = Retries::new(self.retries);
        let (mut patience, mut seen) = (Retries::new(PATIENCE), 0);
        loop {
            if let Some(until) = self.pauses.until(&address.url) {
                tokio::time::sleep_until(until).await;
            }
            let pass = self.list_gate.enter().await;
            let begun = Instant::now();
            let failed = match self.try_list(address, sublists).await {
                Ok(found) => {
                    pass.succeeded();
                    self.listed.fetch_add(1, Ordering::Relaxed);
                    return Ok(found);
                }
                Err(failed) => failed,
            };
            // Some servers make few lists at a time. While others succeed, it is only a matter of time.
            if failed.is_busy() {
                pass.refused();
                let listed = self.listed.load(Ordering::Relaxed);
                if listed != seen {
                    (patience, seen) = (Retries::new(PATIENCE), listed);
                }
                if let Some(wait) = patience.next(&failed).filter(|_| listed > 0) {
                    tokio::time::sleep(wait.min(LONGEST_PAUSE)).await;
                    continue;
                }
            } else {
                drop(pass);
            }
            let Some(wait) = retries.next(&failed) else {
                return Err(failed.failure);
            };
            let until = self
                .pauses
                .after(&address.url, &failed, begun, Instant::now(), wait);
            tokio::time::sleep_until(until).await;
        }
    }

    async fn try_list(&self, address: &Address, sublists: bool) -> Result<List, Failed> {
        let deadline = self.max_time.map(|limit| Instant::now() + limit);
        let (mut url, mut followed) = (address.url.clone(), 0);
        let response = loop {
            let mut headers = self.fields.of(address);
            headers.entry(ACCEPT).or_insert(LIST_TYPES);
            if sublists {
                headers.entry(PREFER).or_insert(SUBLISTS);
            }
            let name = url.to_string();
            let (request, response) = self.request(&url, &name, headers, deadline).await?;
            let asked = Asked::download(request.headers());
            if let Err(failure) = check_status(&name, &response, asked) {
                return Err(Failed::by_status(failure, &response).with_body(response).await);
            }
            let found = (response.status(), response.headers());
            let next = self.redirects.next(&url, &name, found, followed);
            let Some(next) = next.map_err(Failed::permanent)? else {
                break response;
            };
            followed += 1;
            if !is_with_slash(&url, &next.url) {
                let text = format!(
                    "{name}: the folder redirects to {}, and --recursive stays beneath the URL that was typed; use that URL",
                    shown_url(next.url.as_str())
                );
                return Err(Failed::permanent(Failure::new(Exit::Status, text)));
            }
            url = next.url;
        };
        let wrong = |why: &str| Failed::permanent(Failure::new(Exit::Status, format!("{url}: {why}")));
        if !url.path().ends_with('/') {
            return Err(wrong(
                "this is no folder; end its URL with a slash, or leave out --recursive for one file",
            ));
        }
        let kind = response
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok());
        let kind = kind.unwrap_or_default().to_owned();
        let has_sublists = response.headers().get(PREFERENCE_APPLIED) == Some(&SUBLISTS);
        // It would be taken for a list of nothing.
        if let Some(coding) = response
            .headers()
            .get(CONTENT_ENCODING)
            .filter(|coding| *coding != "identity")
        {
            return Err(wrong(&format!(
                "the server sends the list of this folder encoded ({coding:?}), which was not asked for"
            )));
        }
        let mut right = None;
        let body = self.lists.gather(response.into_body(), &mut right);
        let body = match deadline {
            None => body.await,
            Some(at) => timeout_at(at, body).await.map_err(|_| {
                let limit = self.max_time.unwrap_or_default();
                Failed::too_long(url.as_str(), "the list of the folder was not complete", limit)
            })?,
        };
        let body = body.map_err(|error| Failed::of(url.as_str(), &error))?;
        let body =
            body.ok_or_else(|| wrong("the list of the folder is longer than 16 MiB, and is not read"))?;
        let (folder, index) = file_job(move || {
            let index = index::read(&url, &kind, has_sublists, &body);
            Ok((url, index))
        })
        .await
        .map_err(Failed::permanent)?;
        let Some(index) = index else {
            let text = format!(
                "{folder}: the server sends no list of this folder (JSON or HTML) that can be read; give the URLs of its files with -i"
            );
            return Err(Failed::permanent(Failure::new(Exit::Status, text)));
        };
        Ok(List { folder, index, right })
    }

    /// Sends a GET; `name` is the URL for messages. The client itself repeats requests that the peer refused without
    /// processing them.
    async fn request(
        &self,
        url: &Url,
        name: &str,
        headers: HeaderMap,
        deadline: Option<Instant>,
    ) -> Result<(Request<()>, Response<Incoming>), Failed> {
        if let Some(failure) = self.unreachable.failure(url, name) {
            return Err(Failed::permanent(failure).with_unreachable(url, name));
        }
        let mut request = Request::builder()
            .method(match self.heads {
                Heads::Only => Method::HEAD,
                Heads::No | Heads::Also => Method::GET,
            })
            .uri(url.as_str())
            .body(())
            .map_err(|error| Failed::permanent(Failure::new(Exit::BadUrl, format!("{name}: {error}"))))?;
        *request.headers_mut() = headers;
        let answer = self
            .client
            .request(request.clone().map(|()| Empty::<Bytes>::new()));
        let answered = match deadline {
            None => answer.await,
            Some(at) => timeout_at(at, answer).await.map_err(|_| {
                let limit = self.max_time.unwrap_or_default();
                Failed::too_long(name, "no response had arrived", limit)
            })?,
        };
        let answered = answered.map_err(|error| {
            let failed = Failed::of(name, &error);
            match error.is_connect() {
                true => failed.with_unreachable(url, name),
                false => failed,
            }
        })?;
        Ok((request, answered))
    }
}
