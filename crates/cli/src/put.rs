//! `fullbore put`: one upload, with the response body on standard output or in a file.
//!
//! `upload_body` is the request body.

mod upload_body;

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fullbore::{Client, Incoming};
use http::header::{CONTENT_LENGTH, HeaderValue, LOCATION};
use http::{Request, Response};
use serde::Serialize;
use url::Url;

use crate::args::PutArgs;
use crate::exit::{Exit, Failure};
use crate::figures::rate;
use crate::run;
use crate::transfer::client::{self, check_status, shown_url};
use crate::transfer::output::{Format, json, moved};
use crate::transfer::progress::Progress;
use crate::transfer::receive::{self, Disk};
use crate::transfer::retry::{Failed, Retries};
use crate::transfer::target::Target;
use crate::transfer::waits::{Direction, Waits};

use upload_body::{Sent, UploadSource};

/// How long the peer may read nothing of the request body after its response.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Uploads the file that the arguments name.
///
/// # Errors
/// The file was not sent completely, or the response was not received completely.
pub(crate) async fn run(args: PutArgs) -> Result<ExitCode, Failure> {
    let url = client::parse_url(&args.url)?;
    let target = match &args.output {
        None => Target::Stdout { asked: false },
        Some(path) => Target::named(path, args.force).await?,
    };
    let format = Format::choose(args.json, matches!(target, Target::Stdout { .. }));
    let progress = Progress::start();
    let mut upload = Upload {
        url,
        begun: Instant::now(),
        progress: Arc::clone(&progress),
        status: None,
        received: 0,
        waited: None,
    };
    let limit = args.connection.max_time.map(Duration::from_secs);
    let run = upload.run(args, target);
    let result = match limit {
        None => run.await,
        Some(limit) => match tokio::time::timeout(limit, run).await {
            Ok(result) => result,
            Err(_) => {
                Err(Failed::too_long(upload.url.as_str(), "no complete response had arrived", limit).failure)
            }
        },
    };
    progress.clear();
    upload.report(format, result.as_ref().err());
    Ok(result.map_or_else(|failure| failure.exit.into(), |()| ExitCode::SUCCESS))
}

struct Upload {
    url: Url,
    begun: Instant,
    progress: Arc<Progress>,
    status: Option<u16>,
    received: u64,
    waited: Option<Waits>,
}

impl Upload {
    async fn run(&mut self, args: PutArgs, target: Target) -> Result<(), Failure> {
        let (body, sent) = upload_body::open(&args.file, Arc::clone(&self.progress))?;
        if let Some(length) = sent.length() {
            self.progress.expect(length);
        }
        let client = client::client(&args.connection, 1).await?;
        let response = self.send(&client, &args, body, &sent).await?;
        // The response is counted separately: the progress bar shows the upload.
        let unseen = Progress::hidden();
        receive::receive(
            self.url.as_str(),
            &mut response.into_body(),
            target,
            &Disk::new(),
            &unseen,
            &mut self.received,
        )
        .await
        .map_err(|failure| sent.fault().unwrap_or(failure))?;
        self.sent_whole(&args.file, sent).await?;
        self.waited = Waits::of(Direction::Sending, &client).await;
        client::farewell(&client).await;
        Ok(())
    }

    /// Sends the request, and repeats temporary failures if allowed, until there is a response.
    async fn send(
        &mut self,
        client: &Client,
        args: &PutArgs,
        mut body: UploadSource,
        sent: &Sent,
    ) -> Result<Response<Incoming>, Failure> {
        let mut retries = Retries::new(args.retry);
        loop {
            let head = self.head(args, sent)?;
            let (answered, again) = match body {
                UploadSource::File(file) => {
                    let request = client.request_repeatable(head.map(|()| file.clone()));
                    (request.await, Some(UploadSource::File(file)))
                }
                UploadSource::Stream(stream) => (client.request(head.map(|()| stream)).await, None),
            };
            let failed = match answered {
                Ok(response) => {
                    self.status = Some(response.status().as_u16());
                    match check_answer(&self.url, &response) {
                        Ok(()) => return Ok(response),
                        Err(failure) => Failed::by_status(failure, &response),
                    }
                }
                Err(error) => self.blame(sent, &error),
            };
            // RFC 9110 section 9.2.2: a method that is not idempotent is repeated only if the server did not process it.
            let repeatable = args.method.is_idempotent() || failed.unprocessed;
            let pause = retries.next(&failed).filter(|_| repeatable);
            match (again, pause) {
                (Some(again), Some(pause)) => {
                    body = again;
                    self.status = None;
                    tokio::time::sleep(pause).await;
                }
                _ => return Err(failed.failure),
            }
        }
    }

    fn head(&self, args: &PutArgs, sent: &Sent) -> Result<Request<()>, Failure> {
        let mut request = Request::builder()
            .method(args.method.clone())
            .uri(self.url.as_str())
            .body(())
            .map_err(|error| Failure::new(Exit::BadUrl, format!("{}: {error}", self.url)))?;
        let fields = request.headers_mut();
        *fields = client::request_headers(&args.connection.headers);
        if let Some(length) = sent.length() {
            fields.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        Ok(request)
    }

    /// A file that cannot be read is the cause of the failure, whatever the library reports.
    fn blame(&self, sent: &Sent, error: &fullbore::Error) -> Failed {
        match sent.fault() {
            Some(fault) => Failed::permanent(fault),
            None => Failed::of(self.url.as_str(), error),
        }
    }

    /// Waits for the end of the upload. A peer may respond before it has read the whole request, and may then refuse the rest
    /// (RFC 9113 section 8.1).
    async fn sent_whole(&self, file: &Path, mut sent: Sent) -> Result<(), Failure> {
        loop {
            let before = self.progress.bytes();
            if tokio::time::timeout(READ_TIMEOUT, sent.ended()).await.is_ok() {
                break;
            }
            if self.progress.bytes() == before {
                return Err(Failure::new(
                    Exit::Timeout,
                    format!(
                        "{}: the server responded but stopped reading {}; try again",
                        self.url,
                        file.display()
                    ),
                ));
            }
        }
        if let Some(fault) = sent.fault() {
            return Err(fault);
        }
        if sent.length().is_some_and(|length| self.progress.bytes() < length) {
            run::complain(&format!(
                "{}: the server responded with {} after {} bytes and refused the rest",
                self.url,
                self.status.unwrap_or_default(),
                self.progress.bytes()
            ));
        }
        Ok(())
    }

    fn report(&self, format: Format, failure: Option<&Failure>) {
        let seconds = self.begun.elapsed().as_secs_f64();
        let sent = self.progress.bytes();
        if let (Some(failure), true) = (failure, format != Format::JsonErr) {
            run::complain(failure);
        }
        if format == Format::Text {
            if failure.is_some() {
                return;
            }
            let status = self.status.map(|status| format!("; status {status}"));
            let waited = self
                .waited
                .as_ref()
                .map(|waited| format!("; {}", waited.clause()));
            let _ = writeln!(
                io::stderr(),
                "sent {}{}{}",
                moved(sent, seconds),
                status.unwrap_or_default(),
                waited.unwrap_or_default()
            );
            return;
        }
        let document = Document {
            url: self.url.as_str(),
            status: self.status,
            sent,
            received: self.received,
            seconds,
            megabytes_per_second: rate(sent, seconds),
            waited: self.waited.as_ref(),
            error: failure,
        };
        let text = json(&document);
        let _ = match format {
            Format::JsonOut => writeln!(io::stdout(), "{text}"),
            Format::JsonErr | Format::Text => writeln!(io::stderr(), "{text}"),
        };
    }
}

/// A status of 400 or above is a failure, and so is a redirect without an effect (RFC 9110 sections 15.4.8 and 15.4.9).
/// `put` follows no redirect, since the body and its fields are for this origin.
fn check_answer(url: &Url, response: &Response<Incoming>) -> Result<(), Failure> {
    let status = response.status();
    check_status(url.as_str(), status)?;
    let Some(location) = response.headers().get(LOCATION) else {
        return Ok(());
    };
    let to = shown_url(&String::from_utf8_lossy(location.as_bytes()));
    match status.as_u16() {
        307 | 308 => Err(Failure::new(
            Exit::Status,
            format!(
                "{url}: status {} redirects to \"{to}\", and nothing was stored; put follows no redirect, so use that URL",
                status.as_u16()
            ),
        )),
        301..=303 => {
            run::complain(&format!(
                "{url}: status {} redirects to \"{to}\"",
                status.as_u16()
            ));
            Ok(())
        }
        _ => Ok(()),
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
    #[serde(skip_serializing_if = "Option::is_none")]
    waited: Option<&'a Waits>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a Failure>,
}
