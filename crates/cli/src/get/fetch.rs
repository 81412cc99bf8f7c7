//! One URL from its line to its place: the request, redirects, the status, the body.
//!
//! `get::run` spawns `Fetcher::fetch` once a URL. Everything shared by the requests of a run stands in `Fetcher`.

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

/// As many redirects as RFC 9110 section 15.4 leaves to the client's judgement; ten is not yet a loop.
const MOST_REDIRECTS: usize = 10;
/// A range that ends before the whole is no failure if it brings as many bytes: the rest is asked for at once.
const WORTH_A_REQUEST: u64 = 64 << 10;

/// 416: the range begins behind the end (RFC 9110 section 15.5.17).
const NOTHING_THERE: u16 = 416;

/// A try that failed, and what came before it did.
type Tried = (Failed, Option<Download>);

/// A failure after which nothing is to be kept.
fn lasting(failure: Failure) -> Tried {
    (Failed::lasting(failure), None)
}

/// What the requests of a run share.
pub(crate) struct Fetcher {
    pub(crate) client: Client,
    pub(crate) fields: RequestFields,
    pub(crate) redirects: Redirects,
    /// How often what failed in passing is tried again.
    pub(crate) retries: u32,
    pub(crate) pauses: Pauses,
    /// How long a try may take.
    pub(crate) max_time: Option<Duration>,
    pub(crate) outputs: Outputs,
    pub(crate) disk: Disk,
    pub(crate) progress: Arc<Progress>,
    /// Whether each outcome says what its stream waited for.
    pub(crate) tells_streams: bool,
}

/// What is done about redirects.
#[derive(Clone, Copy)]
pub(crate) struct Redirects {
    /// `-L`.
    pub(crate) follow: bool,
    /// From https to http too.
    pub(crate) insecure: bool,
}

impl Fetcher {
    /// Downloads one URL. What goes wrong is part of the outcome.
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
        let mut part = Download::new(self.disk.file(target));
        loop {
            if let (true, Some(until)) = (self.retries > 0, self.pauses.until(&url)) {
                tokio::time::sleep_until(until).await;
            }
            let begun = Instant::now();
            let (broken, left) = match self.attempt(url.clone(), part, outcome).await {
                Ok(None) => break,
                Ok(Some(short)) => {
                    part = short;
                    continue;
                }
                Err(failed) => failed,
            };
            let Some(wait) = retries.next(&broken) else {
                let mut failure = broken.failure;
                if broken.transient && left.is_some_and(Download::leave) {
                    failure
                        .message
                        .push_str("; what came is kept, and the next run goes on from there");
                }
                return Err(failure);
            };
            let Some(left) = left else {
                return Err(broken.failure);
            };
            part = left;
            let until = self.pauses.after(&url, &broken, begun, Instant::now(), wait);
            tokio::time::sleep_until(until).await;
        }
        outcome.file = place;
        Ok(())
    }

    /// One try: the request, for what the part lacks, and the body. A part that is still short is handed back, to be
    /// asked for again at once, or with the failure.
    async fn attempt(
        &self,
        url: Url,
        mut part: Download,
        outcome: &mut Outcome,
    ) -> Result<Option<Download>, Tried> {
        let deadline = self.max_time.map(|limit| Instant::now() + limit);
        let mut response = match self.ask(&url, &mut part, deadline, outcome).await {
            Ok(response) => response,
            Err(failed) => return Err((failed, Some(part))),
        };
        match part.find(&outcome.url, &response).await.map_err(lasting)? {
            Found::Nothing => {}
            Found::All => {
                outcome.bytes = part.offset;
                return part.finish().await.map(|()| None).map_err(lasting);
            }
            Found::Some => {
                // An earlier run has some of it: the rest is asked for instead.
                drop(response);
                response = match self.ask(&url, &mut part, deadline, outcome).await {
                    Ok(response) => response,
                    Err(failed) => return Err((failed, Some(part))),
                };
            }
        }
        let mut taken = part.take_up(&outcome.url, &response).map_err(lasting)?;
        if let Continuation::Nothing = taken {
            drop(response);
            response = match self.response(url, None, deadline, outcome).await {
                Ok(response) => response,
                Err(failed) => return Err((failed, Some(part))),
            };
            taken = part.take_up(&outcome.url, &response).map_err(lasting)?;
        }
        let extent = match taken {
            Continuation::Rest(extent) => Some(extent),
            Continuation::Whole | Continuation::Nothing => None,
        };
        self.receive(part, response, Bounds { extent, deadline }, outcome)
            .await
    }

    /// Asks for what the part lacks. If there is nothing behind what came, that is no beginning of this version, and the
    /// whole is asked for.
    async fn ask(
        &self,
        url: &Url,
        part: &mut Download,
        deadline: Option<Instant>,
        outcome: &mut Outcome,
    ) -> Result<Response<Incoming>, Failed> {
        match self.response(url.clone(), part.range(), deadline, outcome).await {
            Err(_) if part.offset > 0 && outcome.status == Some(NOTHING_THERE) && part.restart() => {
                self.response(url.clone(), None, deadline, outcome).await
            }
            asked => asked,
        }
    }

    /// Receives a body into the part.
    async fn receive(
        &self,
        mut part: Download,
        response: Response<Incoming>,
        bounds: Bounds,
        outcome: &mut Outcome,
    ) -> Result<Option<Download>, Tried> {
        let before = part.offset;
        outcome.bytes = before;
        let file = part.take_file();
        let (disk, progress) = (&self.disk, &self.progress);
        let mut body = response.into_body();
        let received =
            receive::receive_into(file, &mut body, disk, progress, &mut outcome.bytes, bounds).await;
        if self.tells_streams {
            outcome.waited = body.report().await.map(|report| StreamWaits::receiving(&report));
        }
        let (failed, file) = match received {
            Ok(Received::Whole) => return Ok(None),
            Err(ReceiveError::Target(failure)) => return Err(lasting(failure)),
            Err(ReceiveError::Body(error, file)) => (Failed::of(&outcome.url, &error), file),
            Err(ReceiveError::Late(file)) => {
                let limit = self.max_time.unwrap_or_default();
                let failed = Failed::too_long(&outcome.url, "the body had not come to its end", limit);
                (failed, file)
            }
            Err(ReceiveError::Length(file)) => {
                part.file = file;
                part.give_up(&outcome.url, "it is not as long as its Content-Range")
                    .map_err(lasting)?;
                outcome.bytes = 0;
                let text = format!(
                    "{}: the server sent a part that is not as long as its Content-Range; the fault is the server's",
                    outcome.url
                );
                return Err((Failed::passing(Failure::new(Exit::BodyLength, text)), Some(part)));
            }
            Ok(Received::Short(file)) => {
                if outcome.bytes - before >= WORTH_A_REQUEST {
                    part.file = file;
                    part.offset = outcome.bytes;
                    return Ok(Some(part));
                }
                let text = format!(
                    "{}: the server sends only {} bytes of the rest at a time; the fault is the server's",
                    outcome.url,
                    outcome.bytes - before
                );
                (Failed::passing(Failure::new(Exit::BodyLength, text)), file)
            }
        };
        part.file = file;
        part.offset = outcome.bytes;
        Err((failed, Some(part)))
    }

    /// The response whose body is wanted: past the redirects, with a status below 400.
    async fn response(
        &self,
        mut url: Url,
        range: Option<[(HeaderName, HeaderValue); 2]>,
        deadline: Option<Instant>,
        outcome: &mut Outcome,
    ) -> Result<Response<Incoming>, Failed> {
        let mut fields = self.fields.of(&url);
        outcome.note = outcome.note.take().or_else(|| self.fields.note(&url));
        // A URL of the user's is shown whole, one of a server's is not.
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
            let Some(next) = redirect(&url, name, &response).map_err(Failed::lasting)? else {
                return Ok(response);
            };
            let shown = shown_url(next.as_str());
            if !self.redirects.follow {
                outcome.note = Some(format!(
                    "{name}: status {} points to {shown}; -L follows it",
                    status.as_u16()
                ));
                return Ok(response);
            }
            if url.scheme() == "https" && next.scheme() == "http" && !self.redirects.insecure {
                return Err(Failed::lasting(Failure::new(
                    Exit::BadUrl,
                    format!(
                        "{name}: the server redirects to {shown} without TLS, where anybody on the path may read and \
                         change what is sent; --location-insecure follows it all the same"
                    ),
                )));
            }
            self.fields.after_redirect(&mut fields, &url, &next);
            url = next;
            redirected = Some(shown);
        }
        Err(Failed::lasting(Failure::new(
            Exit::Status,
            format!(
                "{}: more than {MOST_REDIRECTS} redirects; the server sends clients in a circle",
                outcome.url
            ),
        )))
    }

    /// Sends a GET to a URL that is shown by this name. The client repeats what the peer refuses unprocessed, after pauses that all requests to the origin
    /// share.
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
            .map_err(|error| Failed::lasting(Failure::new(Exit::BadUrl, format!("{name}: {error}"))))?;
        *request.headers_mut() = headers;
        let answer = self.client.request(request);
        let answered = match deadline {
            None => answer.await,
            Some(at) => timeout_at(at, answer).await.map_err(|_| {
                let limit = self.max_time.unwrap_or_default();
                Failed::too_long(name, "the response had not begun", limit)
            })?,
        };
        answered.map_err(|error| Failed::of(name, &error))
    }
}

/// Where a redirect leads; `None` for any other response, or for one that does not say. `name` is how the URL is shown.
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
        let text = format!("{name}: the server's redirect to \"{shown}\" is wrong: {why}");
        Failure::new(Exit::BadUrl, text)
    };
    let next = url.join(&text).map_err(|error| wrong(&error.to_string()))?;
    parse_url(next.as_str())
        .map(Some)
        .map_err(|failure| wrong(&failure.message))
}
