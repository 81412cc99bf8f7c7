//! `fullbore put`: one upload, with the response body on standard output or in a file; or many files and folders.
//!
//! | module | subject |
//! |---|---|
//! | `upload_body` | a file or standard input as a request body |
//! | `many` | the uploads of many files |
//! | `tree` | the files of folders |
//! | `existing` | what the server has (`--skip-existing`) |
//! | `content` | reading small files |
//! | `gate` | how many uploads are under way |
//! | `tally` | the results of many files |

mod content;
mod existing;
mod gate;
mod many;
mod tally;
mod tree;
mod upload_body;

use std::ffi::OsStr;
use std::future::Future;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fullbore::{Client, Incoming};
use http::header::{CONTENT_LENGTH, EXPECT, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Empty;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use serde::Serialize;
use tokio::time::timeout_at;
use url::Url;

use crate::args::PutArgs;
use crate::exit::{Exit, Failure};
use crate::figures::rate;
use crate::key_log;
use crate::run::{self, Leftovers};
use crate::transfer::client::{self, Address, check_status, shown_url};
use crate::transfer::output::{Format, json, moved};
use crate::transfer::progress::{Progress, Share};
use crate::transfer::rate_limit::{Paced, RateLimit};
use crate::transfer::receive::{self, Disk};
use crate::transfer::redirects::Redirects;
use crate::transfer::request_fields::RequestFields;
use crate::transfer::retry::{Failed, Retries};
use crate::transfer::source::Source;
use crate::transfer::target::{Target, are_one_file};
use crate::transfer::transfer_coding;
use crate::transfer::waits::{Direction, Set, Waits};
use crate::volume::Volume;

use upload_body::{Sent, UploadSource};

/// How long the peer may read nothing of the request body after its response.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// The time of a file's modification, in seconds since 1970: a field of ownCloud and Nextcloud, which rclone sends too.
static MODIFIED: HeaderName = HeaderName::from_static("x-oc-mtime");

/// Uploads what the arguments name.
///
/// # Errors
/// Of one file: it was not sent completely, or the response was not received completely. Of many: what is wrong before the
/// first request.
pub(crate) async fn run(
    args: PutArgs,
    volume: Volume,
    leftovers: Arc<Leftovers>,
) -> Result<ExitCode, Failure> {
    let typed = client::with_scheme(&args.url()?);
    if many::is_asked_for(&args).await? {
        leftovers.set_nothing_kept("run the same command again with --skip-existing to send the rest");
        return many::run(&args, &typed, volume).await;
    }
    leftovers.set_nothing_kept("the upload is not complete");
    let mut address = client::parse_url(&typed)?;
    address.url = with_name(address.url, &args)?;
    let target = match &args.output {
        None => Target::Stdout { asked: false },
        Some(path) => {
            refuse_one_file(args.file(), path).await?;
            Target::named(path, args.force).await?
        }
    };
    let format = Format::choose(args.json, matches!(target, Target::Stdout { .. }));
    let progress = Progress::start(volume.prints_notes());
    let mut upload = Upload {
        address,
        format,
        reported: false,
        begun: Instant::now(),
        progress: Arc::clone(&progress),
        status: None,
        received: Share::new(&Progress::hidden()),
        volume,
        limit: TimeLimit::new(args.connection.max_time),
        note: None,
        waited: None,
    };
    let result = upload.run(args, target).await;
    progress.clear();
    let printed = upload.report(result.as_ref().err());
    match result {
        Ok(()) => printed.map(|()| ExitCode::SUCCESS),
        Err(failure) => Ok(failure.exit.into()),
    }
}

/// As in `curl -T`, a URL that ends in a slash is a folder, and the file keeps its name there. Only PUT names what it stores
/// (RFC 9110 section 9.3.4).
fn with_name(mut url: Url, args: &PutArgs) -> Result<Url, Failure> {
    if !url.path().ends_with('/') || args.method != http::Method::PUT {
        return Ok(url);
    }
    if args.file() == Path::new("-") {
        return Err(Failure::usage(format!(
            "{url}: standard input has no name; end the URL with a name instead of a slash"
        )));
    }
    if let Some(name) = args.file().file_name() {
        let path = format!("{}{}", url.path(), encoded(name));
        url.set_path(&path);
    }
    Ok(url)
}

/// What is no unreserved character (RFC 3986 section 2.3) is encoded in a segment of a path.
pub(crate) const IN_PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// A name as a segment of a path.
fn encoded(name: &OsStr) -> String {
    percent_encode(name.as_encoded_bytes(), IN_PATH).to_string()
}

/// One upload. Dropping it unreported still prints the document.
struct Upload {
    address: Address,
    format: Format,
    reported: bool,
    begun: Instant,
    progress: Arc<Progress>,
    status: Option<u16>,
    /// The response is counted separately: the progress bar shows the upload.
    received: Share,
    volume: Volume,
    limit: TimeLimit,
    /// A remark, also about a success.
    note: Option<String>,
    waited: Option<Waits>,
}

/// The response would replace the file that is sent.
async fn refuse_one_file(file: &Path, output: &Path) -> Result<(), Failure> {
    let (sent, received) = (file.to_owned(), output.to_owned());
    let are_one = receive::file_job(move || Ok(are_one_file(&sent, &received))).await?;
    match are_one {
        true => Err(Failure::usage(format!(
            "-o {}: this file is sent; save the response in another one",
            output.display()
        ))),
        false => Ok(()),
    }
}

impl Upload {
    fn note(&mut self, text: String) {
        self.note = Some(match self.note.take() {
            None => text,
            Some(earlier) => format!("{earlier}; {text}"),
        });
    }

    async fn run(&mut self, args: PutArgs, target: Target) -> Result<(), Failure> {
        let url = self.address.url.clone();
        // The source may be a FIFO that nobody writes to.
        let open = upload_body::open(args.file());
        let (body, sent) = self
            .limit
            .hold(url.as_str(), open)
            .await
            .map_err(|late| late.failure)??;
        if let Some(length) = sent.length() {
            self.progress.expect(length);
        }
        let tells = self.volume.prints_notes() && self.format != Format::JsonErr;
        let key_log = self.progress.aside(|| key_log::from_env(tells));
        let client = client::client(&args.connection, key_log, |client| {
            let client = client.max_connections(1);
            match &args.congestion_control {
                Some(name) => client.congestion_control(name),
                None => client,
            }
        })
        .await?;
        let response = self.send(&client, &args, body, &sent).await?;
        if matches!(target, Target::Stdout { .. }) {
            // The bar would stay above the response.
            self.progress.clear();
        }
        let limit = self.limit;
        let end = self.end(args.file(), target, response, sent);
        limit
            .hold(url.as_str(), end)
            .await
            .map_err(|late| late.failure)??;
        self.waited = Waits::of(Direction::Sending, &client, Set::by(&args.connection)).await;
        client::farewell(&client).await;
        Ok(())
    }

    /// Receives the response's body, and sends the rest of the request's.
    async fn end(
        &mut self,
        file: &Path,
        target: Target,
        response: Response<Incoming>,
        sent: Sent,
    ) -> Result<(), Failure> {
        transfer_coding::refuse(self.address.url.as_str(), response.headers())?;
        let disk = Disk::new(Arc::default());
        receive::receive(
            self.address.url.as_str(),
            &mut Source::Plain(response.into_body()),
            target,
            &disk,
            &mut self.received,
        )
        .await
        .map_err(|failure| sent.fault().unwrap_or(failure))?;
        self.sent_whole(file, sent).await
    }

    /// Sends the request, follows redirects, and repeats temporary failures if allowed, until there is a response.
    async fn send(
        &mut self,
        client: &Client,
        args: &PutArgs,
        body: UploadSource,
        sent: &Sent,
    ) -> Result<Response<Incoming>, Failure> {
        let fields = RequestFields::new(&args.connection, &[client::with_scheme(&args.url()?)]).await?;
        let redirects = Redirects::from_args(&args.connection);
        let mut hop = Hop {
            url: self.address.url.clone(),
            shown: self.address.url.to_string(),
            method: args.method.clone(),
            fields: fields.of(&self.address),
            body: Some(body),
            is_spent: false,
        };
        let mut followed = 0;
        loop {
            let response = self.ask(client, args, &mut hop, sent).await?;
            let found = (response.status(), response.headers());
            let next = match redirects.next(&hop.url, &hop.shown, found, followed) {
                Ok(next) => next,
                // The upload was processed, and its result is elsewhere (RFC 9110 section 15.4.4).
                Err(failure) if response.status() == StatusCode::SEE_OTHER => {
                    self.note(failure.message);
                    None
                }
                Err(failure) => return Err(failure),
            };
            let Some(next) = next else { return Ok(response) };
            followed += 1;
            hop.turn(response.status());
            fields.after_redirect(&mut hop.fields, &hop.url, &next);
            hop.shown = shown_url(next.url.as_str());
            hop.url = next.url;
            if hop.is_spent {
                let text = format!(
                    "{}: status {} redirects to {}, and standard input or a pipe cannot be sent again; use that URL",
                    self.address.url,
                    response.status().as_u16(),
                    hop.shown
                );
                return Err(Failure::new(Exit::Status, text));
            }
        }
    }

    /// Sends the request to one URL, and repeats temporary failures if allowed.
    async fn ask(
        &mut self,
        client: &Client,
        args: &PutArgs,
        hop: &mut Hop,
        sent: &Sent,
    ) -> Result<Response<Incoming>, Failure> {
        let mut retries = Retries::new(args.retry);
        let rate = args.connection.network.limit_rate.map(RateLimit::new);
        loop {
            let (limit, shown) = (self.limit, hop.shown.clone());
            let attempt = self.attempt(client, hop, sent, rate.clone());
            let failed = match limit.hold(&shown, attempt).await {
                Ok(Ok(response)) => return Ok(response),
                Ok(Err(failed)) | Err(failed) => failed,
            };
            // RFC 9110 section 9.2.2: a method that is not idempotent is repeated only if the server did not process it.
            let repeatable = (hop.method.is_idempotent() || failed.unprocessed) && !hop.is_spent;
            match retries.next(&failed).filter(|_| repeatable) {
                Some(pause) => {
                    self.status = None;
                    tokio::time::sleep(pause).await;
                    self.limit = TimeLimit::new(args.connection.max_time);
                }
                None => return Err(failed.failure),
            }
        }
    }

    /// Sends the request once. A body that can be sent again stays in `hop`, also when this is dropped.
    async fn attempt(
        &mut self,
        client: &Client,
        hop: &mut Hop,
        sent: &Sent,
        rate: Option<Arc<RateLimit>>,
    ) -> Result<Response<Incoming>, Failed> {
        let mut head = hop.head(sent).map_err(Failed::permanent)?;
        if hop.body.is_some() {
            head.extensions_mut().insert(self.progress.sent().clone());
        }
        let answered = match hop.body.take() {
            None => client.request(head.map(|()| Empty::<Bytes>::new())).await,
            Some(UploadSource::File(file)) => {
                hop.body = Some(UploadSource::File(file.clone()));
                let paced = Paced::new(file, rate);
                client.request_repeatable(head.map(|()| paced)).await
            }
            Some(UploadSource::Stream(stream)) => {
                hop.is_spent = true;
                let paced = Paced::new(stream, rate);
                client.request(head.map(|()| paced)).await
            }
        };
        let response = answered.map_err(|error| self.blame(&hop.shown, sent, &error))?;
        self.status = Some(response.status().as_u16());
        match check_status(&hop.shown, response.status()) {
            Ok(()) => Ok(response),
            Err(failure) => Err(Failed::by_status(failure, &response).with_body(response).await),
        }
    }

    /// A file that cannot be read is the cause of the failure, whatever the library reports.
    fn blame(&self, shown: &str, sent: &Sent, error: &fullbore::Error) -> Failed {
        match sent.fault() {
            Some(fault) => Failed::permanent(fault),
            None => Failed::of(shown, error),
        }
    }

    /// Waits for the end of the upload. A peer may respond before it has read the whole request, and may then refuse the rest
    /// (RFC 9113 section 8.1).
    async fn sent_whole(&mut self, file: &Path, mut sent: Sent) -> Result<(), Failure> {
        loop {
            let before = self.progress.bytes();
            let ended = async {
                sent.ended().await;
                // The library takes a part of it before that leaves.
                self.progress.sent().ended().await;
            };
            if tokio::time::timeout(READ_TIMEOUT, ended).await.is_ok() {
                break;
            }
            if self.progress.bytes() == before {
                return Err(Failure::new(
                    Exit::Timeout,
                    format!(
                        "{}: the server responded but stopped reading {}; try again",
                        self.address.url,
                        file.display()
                    ),
                ));
            }
        }
        if let Some(fault) = sent.fault() {
            return Err(fault);
        }
        if !sent.is_whole(self.progress.bytes()) {
            self.note(format!(
                "{}: the server responded with {} after {} bytes and refused the rest",
                self.address.url,
                self.status.unwrap_or_default(),
                self.progress.bytes()
            ));
        }
        Ok(())
    }

    /// Prints the result.
    ///
    /// # Errors
    /// Standard output cannot be written.
    fn report(&mut self, failure: Option<&Failure>) -> Result<(), Failure> {
        self.reported = true;
        let seconds = self.begun.elapsed().as_secs_f64();
        let sent = self.progress.bytes();
        if self.format != Format::JsonErr {
            if let Some(failure) = failure.filter(|_| self.volume.prints_errors()) {
                run::complain(failure);
            }
            if let Some(note) = self.note.as_ref().filter(|_| self.volume.prints_notes()) {
                run::complain(note);
            }
        }
        if self.format == Format::Text {
            if failure.is_some() || !self.volume.prints_summary() {
                return Ok(());
            }
            let status = self.status.map(|status| format!("; status {status}"));
            let waited = self
                .waited
                .as_ref()
                .and_then(|waited| waited.clause(sent, seconds))
                .map(|clause| format!("; {clause}"));
            let _ = writeln!(
                io::stderr(),
                "sent {}{}{}",
                moved(sent, seconds),
                status.unwrap_or_default(),
                waited.unwrap_or_default()
            );
            return Ok(());
        }
        self.print_document(failure, false)
    }

    /// Prints the document.
    ///
    /// # Errors
    /// Standard output cannot be written.
    fn print_document(&self, failure: Option<&Failure>, interrupted: bool) -> Result<(), Failure> {
        let (sent, seconds) = (self.progress.bytes(), self.begun.elapsed().as_secs_f64());
        let document = Document {
            url: self.address.url.as_str(),
            status: self.status,
            sent,
            received: self.received.bytes(),
            seconds,
            megabytes_per_second: rate(sent, seconds),
            interrupted,
            note: self.note.as_deref(),
            waited: self.waited.as_ref(),
            error: failure,
        };
        self.format.print(&format!("{}\n", json(&document)))
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if self.reported {
            return;
        }
        self.progress.clear();
        if self.format != Format::Text {
            if let Err(failure) = self.print_document(None, true) {
                if self.volume.prints_errors() {
                    run::complain(&failure);
                }
            }
        }
    }
}

/// The time of an attempt (`--max-time`).
#[derive(Clone, Copy)]
struct TimeLimit {
    length: Duration,
    /// `None` without a limit.
    until: Option<tokio::time::Instant>,
}

impl TimeLimit {
    /// From now on.
    fn new(length: Option<Duration>) -> Self {
        Self {
            length: length.unwrap_or_default(),
            until: length.map(|length| tokio::time::Instant::now() + length),
        }
    }

    /// Waits for a part of the attempt. `place` is the URL, for messages.
    ///
    /// # Errors
    /// The time of the attempt is over.
    async fn hold<T>(self, place: &str, part: impl Future<Output = T>) -> Result<T, Failed> {
        match self.until {
            None => Ok(part.await),
            Some(until) => timeout_at(until, part)
                .await
                .map_err(|_| Failed::too_long(place, "no complete response had arrived", self.length)),
        }
    }
}

/// A request on its way along redirects.
struct Hop {
    url: Url,
    /// The URL for messages: the user's is shown whole, a server's is not.
    shown: String,
    method: Method,
    fields: HeaderMap,
    /// `None` for a request without one.
    body: Option<UploadSource>,
    /// Whether the body was sent and cannot be sent again.
    is_spent: bool,
}

impl Hop {
    fn head(&self, sent: &Sent) -> Result<Request<()>, Failure> {
        let mut request = Request::builder()
            .method(self.method.clone())
            .uri(self.url.as_str())
            .body(())
            .map_err(|error| Failure::new(Exit::BadUrl, format!("{}: {error}", self.shown)))?;
        *request.headers_mut() = self.fields.clone();
        if let (Some(length), true) = (sent.length(), self.body.is_some()) {
            request
                .headers_mut()
                .insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        let second = sent
            .modified()
            .filter(|_| self.method == Method::PUT && self.body.is_some());
        if let Some(second) = second {
            let fields = request.headers_mut();
            fields.entry(&MODIFIED).or_insert(HeaderValue::from(second));
        }
        Ok(request)
    }

    /// The method after a redirect, as curl and browsers have it: 303 asks for the result of the upload, and POST becomes
    /// GET after 301 and 302 too (RFC 9110 section 15.4).
    fn turn(&mut self, status: StatusCode) {
        let to_get = match status.as_u16() {
            303 => self.method != Method::HEAD,
            301 | 302 => self.method == Method::POST,
            _ => false,
        };
        if to_get {
            self.method = Method::GET;
            self.body = None;
            self.is_spent = false;
            // They are about the upload and what it replaces, and not about its result.
            let of_upload = |name: &&HeaderName| {
                let text = name.as_str();
                text.starts_with("content-") || text.starts_with("if-") || *name == EXPECT
            };
            let names: Vec<_> = self.fields.keys().filter(of_upload).cloned().collect();
            for name in names {
                self.fields.remove(name);
            }
        }
    }
}

#[derive(Serialize)]
struct Document<'a> {
    url: &'a str,
    status: Option<u16>,
    sent: u64,
    received: u64,
    seconds: f64,
    megabytes_per_second: f64,
    interrupted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waited: Option<&'a Waits>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a Failure>,
}
