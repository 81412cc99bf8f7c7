//! `fullbore put`: one upload, with the response body on standard output or in a file; or many files and folders.
//!
//! | module | subject |
//! |---|---|
//! | `upload_body` | a file or standard input as a request body |
//! | `resumable` | an upload that is continued after a break |
//! | `resource`, `structured` | upload resources; the fields that describe them |
//! | `named` | one upload resource, and the requests to it |
//! | `offer` | which servers say that uploads can be resumed |
//! | `upload_state` | what a later run needs to continue an upload |
//! | `many` | the uploads of many files |
//! | `tree` | the files of folders |
//! | `existing` | what the server has (`--skip-existing`) |
//! | `digests` | whether the server has a content (`--checksum`) |
//! | `content` | reading small files |
//! | `hop`, `time_limit` | one request of an upload; how long an attempt may take |
//! | `gate` | how many uploads are under way |
//! | `upload_run` | what all uploads of a run share |
//! | `answer` | the response's body in the JSON document |
//! | `counted` | what the progress of many files shows of a body |
//! | `withdrawn` | the content of a request that the server refuses before its end |
//! | `tally` | the results of many files |

mod answer;
mod content;
mod counted;
mod digests;
mod existing;
mod gate;
mod hop;
mod many;
mod named;
mod offer;
mod resource;
mod resumable;
mod structured;
mod tally;
mod time_limit;
mod tree;
mod upload_body;
mod upload_run;
mod upload_state;
mod withdrawn;

use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fullbore::{Client, Incoming};
use http::header::CONTENT_LENGTH;
use http::{Response, StatusCode};
use http_body_util::Empty;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use serde::Serialize;
use url::Url;

use crate::args::PutArgs;
use crate::exit::{Exit, Failure};
use crate::figures::{grouped, rate};
use crate::key_log;
use crate::run::{self, Leftovers};
use crate::transfer::client::{self, Address, shown_url};
use crate::transfer::output::{Format, json, moved};
use crate::transfer::progress::{Progress, Share};
use crate::transfer::rate_limit::{Paced, RateLimit};
use crate::transfer::receive::{self, Disk};
use crate::transfer::redirects::Redirects;
use crate::transfer::request_fields::RequestFields;
use crate::transfer::retry::{Failed, Retries};
use crate::transfer::source::Source;
use crate::transfer::status::{Asked, check_status, is_ours};
use crate::transfer::target::{Target, are_one_file};
use crate::transfer::transfer_coding;
use crate::transfer::waits::{Direction, Set, Waits};
use crate::volume::Volume;

use hop::Hop;
use offer::Offers;
use resumable::{End, LOST, Resumption, Stopped};
use time_limit::TimeLimit;
use upload_body::{FileBody, Sent, UploadSource};
use upload_run::Run;

/// How long the peer may read nothing of the request body after its response.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// A number of bytes has so many digits at most, and a line feed.
const COUNT_BYTES: u64 = 21;

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
        leftovers.set_how_to_resume("run the same command again with --skip-existing");
        return many::run(&args, &typed, volume, &leftovers).await;
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
    // Without `-o` the document has the body.
    let format = Format::choose(args.json, matches!(target, Target::Stdout { asked: true }));
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
        leftovers,
        resumption: None,
        body: None,
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
    leftovers: Arc<Leftovers>,
    /// Of a file that a later request can continue.
    resumption: Option<Arc<Resumption>>,
    /// The response's body, in the document.
    body: Option<String>,
}

/// Whether the body of a response is no more than the number of bytes that `fullbore serve` has stored.
fn is_count(response: &Response<Incoming>) -> bool {
    let fields = response.headers();
    let length = fields.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let is_short = length
        .and_then(|text| text.parse::<u64>().ok())
        .is_some_and(|length| length <= COUNT_BYTES);
    is_ours(fields) && is_short && matches!(response.status().as_u16(), 200 | 201)
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
        let Some(response) = self.send(&client, &args, body, &sent).await? else {
            self.forget().await;
            client::farewell(&client).await;
            return Ok(());
        };
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
        self.forget().await;
        self.waited = Waits::of(Direction::Sending, &client, Set::by(&args.connection)).await;
        client::farewell(&client).await;
        Ok(())
    }

    /// The upload is complete.
    async fn forget(&self) {
        if let Some(resumption) = &self.resumption {
            resumption.forget().await;
        }
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
        let target = match target {
            Target::Stdout { asked: false } if self.format != Format::Text => {
                return self.keep(file, response, sent).await;
            }
            // The count of the bytes that the closing line has too.
            Target::Stdout { asked: false } if is_count(&response) => Target::Discard,
            other => other,
        };
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

    /// The same for a body that the document has.
    async fn keep(&mut self, file: &Path, response: Response<Incoming>, sent: Sent) -> Result<(), Failure> {
        let read = answer::read(&mut response.into_body(), &mut self.received).await;
        let text = read.map_err(|error| {
            let failure = || Failure::from_library(self.address.url.as_str(), &error);
            sent.fault().unwrap_or_else(failure)
        })?;
        match text {
            Some(text) => self.body = Some(text),
            None => self.note(answer::LEFT_OUT.to_owned()),
        }
        self.sent_whole(file, sent).await
    }

    /// Sends the request, follows redirects, and repeats or continues after temporary failures if allowed, until there is a
    /// response. `None` if the server has the file and its response was lost.
    async fn send(
        &mut self,
        client: &Client,
        args: &PutArgs,
        body: UploadSource,
        sent: &Sent,
    ) -> Result<Option<Response<Incoming>>, Failure> {
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
        let rate = args.connection.network.limit_rate.map(RateLimit::new);
        let progress = Arc::clone(&self.progress);
        let offers = Offers::default();
        let run = Run {
            client,
            request_fields: &fields,
            redirects,
            offers: &offers,
            rate: rate.as_ref(),
            retries: args.retry,
            max_time: args.connection.max_time,
            progress: &progress,
            is_single: true,
            tells: self.volume.prints_notes() && self.format != Format::JsonErr,
        };
        self.resumption = self.begin(run, args, &hop).await;
        loop {
            let Some(response) = self.ask(run, &mut hop, sent).await? else {
                self.note(format!("{}: {LOST}", self.address.url));
                return Ok(None);
            };
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
            let Some(next) = next else {
                return Ok(Some(response));
            };
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

    /// The upload, if it is one that can be continued.
    async fn begin(&self, run: Run<'_>, args: &PutArgs, hop: &Hop) -> Option<Arc<Resumption>> {
        let Some(UploadSource::File(body)) = &hop.body else {
            return None;
        };
        if !resource::is_worth(&hop.method, &hop.fields, body.length()) {
            return None;
        }
        // Standard input has no path by which a later run would find it.
        let path = Some(args.file()).filter(|path| *path != Path::new("-"));
        let (address, leftovers) = (&self.address, &self.leftovers);
        let resumption = Resumption::new(run, &hop.method, address, &hop.fields, path, body, leftovers).await;
        Some(Arc::new(resumption))
    }

    /// Sends the request to one URL, and continues or repeats it after temporary failures if allowed.
    async fn ask(
        &mut self,
        run: Run<'_>,
        hop: &mut Hop,
        sent: &Sent,
    ) -> Result<Option<Response<Incoming>>, Failure> {
        let mut retries = Retries::new(run.retries);
        let mut failed = None;
        loop {
            if let Some((resumption, body)) = self.continued(hop) {
                let is_first = failed.is_none();
                let mut limit = self.limit;
                let end = resumption.finish(run, &mut limit, &body, failed.take()).await;
                self.limit = limit;
                match end {
                    End::Answered(response) => return self.check(hop, response).await.map(Some),
                    End::Lost => return Ok(None),
                    // This run has sent nothing yet.
                    End::Gone(_) if is_first => {}
                    End::Gone(gone) => self.pause(run, hop, &mut retries, gone).await?,
                    End::Failed(failed) => return Err(failed.failure),
                }
            }
            let (limit, shown) = (self.limit, hop.shown.clone());
            let attempt = self.attempt(run, hop, sent);
            let broken = match limit.hold(&shown, attempt).await {
                Ok(Ok(response)) => return Ok(Some(response)),
                Ok(Err(broken)) | Err(broken) => broken,
            };
            let resumption = self.resumption.as_ref();
            if resumption.is_some_and(|resumption| resumption.may_continue(&broken)) {
                failed = Some(broken);
                continue;
            }
            self.pause(run, hop, &mut retries, broken).await?;
        }
    }

    /// The upload to be continued, and the file.
    fn continued(&self, hop: &Hop) -> Option<(Arc<Resumption>, FileBody)> {
        let resumption = self
            .resumption
            .as_ref()
            .filter(|resumption| resumption.has_resource())?;
        match &hop.body {
            Some(UploadSource::File(body)) => Some((Arc::clone(resumption), body.clone())),
            _ => None,
        }
    }

    /// Waits before the request is repeated from its beginning.
    ///
    /// # Errors
    /// It must not be repeated.
    async fn pause(
        &mut self,
        run: Run<'_>,
        hop: &Hop,
        retries: &mut Retries,
        failed: Failed,
    ) -> Result<(), Failure> {
        // RFC 9110 section 9.2.2: a method that is not idempotent is repeated only if the server did not process it.
        let repeatable = (hop.method.is_idempotent() || failed.unprocessed) && !hop.is_spent;
        let Some(pause) = retries.next(&failed).filter(|_| repeatable) else {
            return Err(failed.failure);
        };
        self.status = None;
        tokio::time::sleep(pause).await;
        self.limit = TimeLimit::new(run.max_time);
        Ok(())
    }

    /// Sends the request once. A body that can be sent again stays in `hop`, also when this is dropped.
    async fn attempt(
        &mut self,
        run: Run<'_>,
        hop: &mut Hop,
        sent: &Sent,
    ) -> Result<Response<Incoming>, Failed> {
        let mut head = hop.head(sent).map_err(Failed::permanent)?;
        if hop.body.is_some() {
            self.progress.continue_upload(0);
            head.extensions_mut().insert(self.progress.sent());
        }
        let rate = run.rate.cloned();
        let answered = match hop.body.take() {
            None => run.client.request(head.map(|()| Empty::<Bytes>::new())).await,
            Some(UploadSource::File(file)) => {
                hop.body = Some(UploadSource::File(file.clone()));
                let asks = resource::is_worth(&hop.method, head.headers(), file.length());
                match self.resumption.as_ref().filter(|_| asks) {
                    Some(resumption) => {
                        resource::ask(head.headers_mut(), file.length());
                        let request = head.map(|()| Paced::new(file.clone(), rate));
                        match resumption.create(run, &hop.url, request, &file).await {
                            Ok(response) => Ok(response),
                            Err(Stopped::Library(error)) => Err(error),
                            Err(Stopped::Failed(failed)) => return Err(failed),
                        }
                    }
                    None => {
                        run.client
                            .request_repeatable(head.map(|()| Paced::new(file, rate)))
                            .await
                    }
                }
            }
            Some(UploadSource::Stream(stream)) => {
                hop.is_spent = true;
                run.client.request(head.map(|()| Paced::new(stream, rate))).await
            }
        };
        let response = answered.map_err(|error| self.blame(&hop.shown, sent, &error))?;
        self.status = Some(response.status().as_u16());
        match check_status(&hop.shown, &response, Asked::upload(&hop.fields)) {
            Ok(()) => Ok(response),
            Err(failure) => Err(Failed::by_status(failure, &response).with_body(response).await),
        }
    }

    /// The response to an upload that was continued.
    async fn check(
        &mut self,
        hop: &Hop,
        response: Response<Incoming>,
    ) -> Result<Response<Incoming>, Failure> {
        self.status = Some(response.status().as_u16());
        match check_status(&hop.shown, &response, Asked::upload(&hop.fields)) {
            Ok(()) => Ok(response),
            Err(failure) => {
                self.forget().await;
                let failed = Failed::by_status(failure, &response).with_body(response).await;
                Err(failed.failure)
            }
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
        if self
            .resumption
            .as_ref()
            .is_some_and(|resumption| resumption.is_complete())
        {
            return sent.fault().map_or(Ok(()), Err);
        }
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
        if !sent.is_whole(self.progress.sent().get()) {
            self.note(format!(
                "{}: the server responded with {} after {} bytes and refused the rest",
                self.address.url,
                self.status.unwrap_or_default(),
                self.progress.bytes()
            ));
        }
        Ok(())
    }

    /// How many bytes an earlier run has sent.
    fn resumed(&self) -> u64 {
        self.resumption
            .as_ref()
            .map_or(0, |resumption| resumption.resumed())
    }

    /// How many bytes of the file this run has sent.
    fn sent(&self) -> u64 {
        self.progress.bytes().saturating_sub(self.resumed())
    }

    /// Prints the result.
    ///
    /// # Errors
    /// Standard output cannot be written.
    fn report(&mut self, failure: Option<&Failure>) -> Result<(), Failure> {
        self.reported = true;
        let seconds = self.begun.elapsed().as_secs_f64();
        let sent = self.sent();
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
            let resumed = match self.resumed() {
                0 => String::new(),
                bytes => format!("; {} bytes were there already", grouped(bytes)),
            };
            let _ = writeln!(
                io::stderr(),
                "sent {}{resumed}{}{}",
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
        let (sent, seconds) = (self.sent(), self.begun.elapsed().as_secs_f64());
        let document = Document {
            url: self.address.url.as_str(),
            status: self.status,
            sent,
            resumed: self.resumed(),
            received: self.received.bytes(),
            body: self.body.as_deref().filter(|body| !body.is_empty()),
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

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde passes it")]
fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

#[derive(Serialize)]
struct Document<'a> {
    url: &'a str,
    status: Option<u16>,
    /// What this run has sent.
    sent: u64,
    /// What an earlier run has sent.
    #[serde(skip_serializing_if = "is_zero")]
    resumed: u64,
    received: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a str>,
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
