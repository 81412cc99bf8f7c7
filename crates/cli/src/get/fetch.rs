//! The download of one URL: requests, redirects, the status, the body.
//!
//! `get::run` spawns `Fetcher::fetch` for each URL. `Fetcher` has what the requests of a run share.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fullbore::{Client, Incoming};
use http::header::LOCATION;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response};
use http_body_util::Empty;
use tokio::time::{Instant, timeout_at};
use url::Url;

use crate::exit::{Exit, Failure};
use crate::transfer::client::{check_status, parse_url, shown_url, without_credentials};
use crate::transfer::progress::Progress;
use crate::transfer::receive::{self, Bounds, Disk, ReceiveError, Received};
use crate::transfer::retry::{Failed, Pauses, Retries};
use crate::transfer::waits::StreamWaits;

use super::outputs::Outputs;
use super::report::Outcome;
use super::request_fields::RequestFields;
use super::resume::{Continuation, Download, Found};

/// RFC 9110 section 15.4 leaves the number to the client.
const MOST_REDIRECTS: usize = 10;
/// A range that ends early is no failure if it has this many bytes: the rest is requested at once.
const WORTH_A_REQUEST: u64 = 64 << 10;

/// 416: the range begins after the end (RFC 9110 section 15.5.17).
const RANGE_NOT_SATISFIABLE: u16 = 416;

/// A failed attempt, and what it received.
type Attempt = (Failed, Option<Download>);

/// A failure after which nothing is kept.
fn permanent(failure: Failure) -> Attempt {
    (Failed::permanent(failure), None)
}

/// What the requests of a run share.
pub(crate) struct Fetcher {
    pub(crate) client: Client,
    pub(crate) fields: RequestFields,
    /// Whether redirects are followed (`-L`), and also those from https to http.
    pub(crate) follows_redirects: bool,
    pub(crate) follows_insecure_redirects: bool,
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
}

impl Fetcher {
    /// Downloads one URL. A failure is part of the outcome.
    pub(crate) async fn fetch(&self, text: String) -> Outcome {
        let begun = std::time::Instant::now();
        let mut outcome = Outcome::new(without_credentials(&text));
        let fetched = match parse_url(&text) {
            Ok(url) => self.try_fetch(url, &mut outcome).await,
            Err(failure) => Err(failure),
        };
        if let Err(failure) = fetched {
            outcome.file = None;
            outcome.failure = Some(failure);
        }
        outcome.seconds = begun.elapsed().as_secs_f64();
        outcome
    }

    async fn try_fetch(&self, url: Url, outcome: &mut Outcome) -> Result<(), Failure> {
        let Some(target) = self.outputs.target(&url).await? else {
            return Ok(());
        };
        let place = target.path().map(ToOwned::to_owned);
        let mut retries = Retries::new(self.retries);
        let mut download = Download::new(self.disk.file(target));
        loop {
            if let (true, Some(until)) = (self.retries > 0, self.pauses.until(&url)) {
                tokio::time::sleep_until(until).await;
            }
            let begun = Instant::now();
            let (broken, left) = match self.attempt(url.clone(), download, outcome).await {
                Ok(None) => break,
                Ok(Some(short)) => {
                    download = short;
                    continue;
                }
                Err(failed) => failed,
            };
            let Some(wait) = retries.next(&broken) else {
                let mut failure = broken.failure;
                if broken.transient && left.is_some_and(Download::leave) {
                    failure
                        .message
                        .push_str("; the received part is kept, and the next run resumes it");
                }
                return Err(failure);
            };
            let Some(left) = left else {
                return Err(broken.failure);
            };
            download = left;
            let until = self.pauses.after(&url, &broken, begun, Instant::now(), wait);
            tokio::time::sleep_until(until).await;
        }
        outcome.file = place;
        Ok(())
    }

    /// One attempt: requests what is missing, and receives it. Returns an incomplete download, to be continued at once or
    /// with the failure.
    async fn attempt(
        &self,
        url: Url,
        mut download: Download,
        outcome: &mut Outcome,
    ) -> Result<Option<Download>, Attempt> {
        let deadline = self.max_time.map(|limit| Instant::now() + limit);
        let mut response = match self.ask(&url, &mut download, deadline, outcome).await {
            Ok(response) => response,
            Err(failed) => return Err((failed, Some(download))),
        };
        match download.find(&outcome.url, &response).await.map_err(permanent)? {
            Found::Nothing => {}
            Found::All => {
                outcome.bytes = download.offset;
                return download.finish().await.map(|()| None).map_err(permanent);
            }
            Found::Some => {
                // An earlier run has received a part: request the rest instead.
                drop(response);
                response = match self.ask(&url, &mut download, deadline, outcome).await {
                    Ok(response) => response,
                    Err(failed) => return Err((failed, Some(download))),
                };
            }
        }
        let mut continuation = download.classify(&outcome.url, &response).map_err(permanent)?;
        if let Continuation::Nothing = continuation {
            drop(response);
            response = match self.response(url, None, deadline, outcome).await {
                Ok(response) => response,
                Err(failed) => return Err((failed, Some(download))),
            };
            continuation = download.classify(&outcome.url, &response).map_err(permanent)?;
        }
        let extent = match continuation {
            Continuation::Range(extent) => Some(extent),
            Continuation::Whole | Continuation::Nothing => None,
        };
        self.receive(download, response, Bounds { extent, deadline }, outcome)
            .await
    }

    /// Requests what is missing. On 416 the received part is of another version, and the whole is requested.
    async fn ask(
        &self,
        url: &Url,
        download: &mut Download,
        deadline: Option<Instant>,
        outcome: &mut Outcome,
    ) -> Result<Response<Incoming>, Failed> {
        match self
            .response(url.clone(), download.range(), deadline, outcome)
            .await
        {
            Err(_)
                if download.offset > 0
                    && outcome.status == Some(RANGE_NOT_SATISFIABLE)
                    && download.restart() =>
            {
                self.response(url.clone(), None, deadline, outcome).await
            }
            asked => asked,
        }
    }

    /// Receives a body and appends it to the download.
    async fn receive(
        &self,
        mut download: Download,
        response: Response<Incoming>,
        bounds: Bounds,
        outcome: &mut Outcome,
    ) -> Result<Option<Download>, Attempt> {
        let before = download.offset;
        outcome.bytes = before;
        let file = download.take_file();
        let (disk, progress) = (&self.disk, &self.progress);
        let mut body = response.into_body();
        let received =
            receive::receive_into(file, &mut body, disk, progress, &mut outcome.bytes, bounds).await;
        if self.reports_streams {
            outcome.waited = body.report().await.map(|report| StreamWaits::receiving(&report));
        }
        let (failed, file) = match received {
            Ok(Received::Whole) => return Ok(None),
            Err(ReceiveError::Target(failure)) => return Err(permanent(failure)),
            Err(ReceiveError::Body(error, file)) => (Failed::of(&outcome.url, &error), file),
            Err(ReceiveError::Late(file)) => {
                let limit = self.max_time.unwrap_or_default();
                let failed = Failed::too_long(&outcome.url, "the body was not complete", limit);
                (failed, file)
            }
            Err(ReceiveError::Length(file)) => {
                download.file = file;
                download
                    .give_up(&outcome.url, "its length differs from its Content-Range")
                    .map_err(permanent)?;
                outcome.bytes = 0;
                let text = format!(
                    "{}: the server sent a range whose length differs from its Content-Range; this is an error of the server",
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

    /// The final response: after redirects, with a status below 400.
    async fn response(
        &self,
        mut url: Url,
        range: Option<[(HeaderName, HeaderValue); 2]>,
        deadline: Option<Instant>,
        outcome: &mut Outcome,
    ) -> Result<Response<Incoming>, Failed> {
        let mut fields = self.fields.of(&url);
        outcome.note = outcome.note.take().or_else(|| self.fields.note(&url));
        // The user's URL is shown whole, a server's is not.
        let mut redirected = None::<String>;
        for _ in 0..=MOST_REDIRECTS {
            let mut headers = fields.clone();
            headers.extend(range.iter().flatten().cloned());
            let name = redirected.as_deref().unwrap_or(url.as_str());
            let response = self.request(&url, name, headers, deadline).await?;
            let status = response.status();
            outcome.status = Some(status.as_u16());
            if let Err(failure) = check_status(name, status) {
                return Err(Failed::by_status(failure, &response));
            }
            let Some(next) = redirect(&url, name, &response).map_err(Failed::permanent)? else {
                return Ok(response);
            };
            let shown = shown_url(next.as_str());
            if !self.follows_redirects {
                outcome.note = Some(format!(
                    "{name}: status {} redirects to {shown}; use -L to follow it",
                    status.as_u16()
                ));
                return Ok(response);
            }
            if url.scheme() == "https" && next.scheme() == "http" && !self.follows_insecure_redirects {
                return Err(Failed::permanent(Failure::new(
                    Exit::BadUrl,
                    format!(
                        "{name}: the server redirects to {shown} without TLS, where anybody on the path can read and \
                         change the data; use --location-insecure to follow it"
                    ),
                )));
            }
            self.fields.after_redirect(&mut fields, &url, &next);
            url = next;
            redirected = Some(shown);
        }
        Err(Failed::permanent(Failure::new(
            Exit::Status,
            format!(
                "{}: more than {MOST_REDIRECTS} redirects; the server may have a redirect loop",
                outcome.url
            ),
        )))
    }

    /// Sends a GET; `name` is the URL for messages. The client itself repeats requests that the peer refused without
    /// processing them.
    async fn request(
        &self,
        url: &Url,
        name: &str,
        headers: HeaderMap,
        deadline: Option<Instant>,
    ) -> Result<Response<Incoming>, Failed> {
        let mut request = http::Request::builder()
            .method(Method::GET)
            .uri(url.as_str())
            .body(Empty::<Bytes>::new())
            .map_err(|error| Failed::permanent(Failure::new(Exit::BadUrl, format!("{name}: {error}"))))?;
        *request.headers_mut() = headers;
        let answer = self.client.request(request);
        let answered = match deadline {
            None => answer.await,
            Some(at) => timeout_at(at, answer).await.map_err(|_| {
                let limit = self.max_time.unwrap_or_default();
                Failed::too_long(name, "no response had arrived", limit)
            })?,
        };
        answered.map_err(|error| Failed::of(name, &error))
    }
}

/// The target of a redirect; `None` for any other response, or without `location`. `name` is the URL for messages.
fn redirect(url: &Url, name: &str, response: &Response<Incoming>) -> Result<Option<Url>, Failure> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let Some(location) = response.headers().get(LOCATION) else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(location.as_bytes());
    let wrong = |why: &str| {
        let shown = shown_url(&text);
        let text = format!("{name}: the server redirects to the invalid URL \"{shown}\": {why}");
        Failure::new(Exit::BadUrl, text)
    };
    let next = url.join(&text).map_err(|error| wrong(&error.to_string()))?;
    parse_url(next.as_str())
        .map(Some)
        .map_err(|failure| wrong(&failure.message))
}
