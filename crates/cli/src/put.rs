//! `fullbore put`: one upload, with the answer's body on standard output or in a file.
//!
//! The body that is sent is `upload_body`; the one that comes back takes the same way as a download's.

mod upload_body;

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::{CONTENT_LENGTH, HeaderValue};
use serde::Serialize;
use url::Url;

use crate::args::PutArgs;
use crate::cause::{Direction, Waited};
use crate::connect;
use crate::exit::{Exit, Failure};
use crate::get::fetch::check_status;
use crate::get::progress::Progress;
use crate::get::report::{Format, moved, rate};
use crate::get::sink::{self, Disk};
use crate::get::target::Target;
use crate::run;

use upload_body::{Sent, UploadBody};

/// After the answer, how long the peer may take in nothing of what is still to be sent.
const MOST_SILENCE: Duration = Duration::from_secs(30);

/// Uploads the file that the arguments name.
///
/// # Errors
/// Anything that kept the file from being sent whole, or its answer from being received whole.
pub(crate) async fn run(args: PutArgs) -> Result<ExitCode, Failure> {
    let url = connect::parse_url(&args.url)?;
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
    let result = upload.run(args, target).await;
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
    waited: Option<Waited>,
}

impl Upload {
    async fn run(&mut self, args: PutArgs, target: Target) -> Result<(), Failure> {
        let (body, sent) = UploadBody::open(&args.file, Arc::clone(&self.progress))?;
        let client = connect::client(&args.connection, 1).await?;
        let mut request = http::Request::builder()
            .method(args.method)
            .uri(self.url.as_str())
            .body(())
            .map_err(|error| Failure::new(Exit::BadUrl, format!("{}: {error}", self.url)))?;
        *request.headers_mut() = connect::request_headers(&args.connection.headers);
        if let Some(length) = sent.length() {
            self.progress.expect(length);
            request
                .headers_mut()
                .insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        let response = client
            .request(request.map(|()| body))
            .await
            .map_err(|error| self.blame(&sent, &error))?;
        self.status = Some(response.status().as_u16());
        check_status(self.url.as_str(), response.status())?;
        // What is received is counted apart: the line on the terminal tells how far the upload is.
        let unseen = Progress::hidden();
        sink::receive(
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
        self.waited = Waited::of(Direction::Sending, &client.reports().await);
        connect::farewell(&client).await;
        Ok(())
    }

    /// If the file could not be read, that is why the request failed, whatever the library made of it.
    fn blame(&self, sent: &Sent, error: &fullbore::Error) -> Failure {
        sent.fault()
            .unwrap_or_else(|| Failure::from_library(self.url.as_str(), error))
    }

    /// Waits for the end of the upload: a peer may answer before it has taken in the whole request (RFC 9113 section
    /// 8.1), and may then ask for no more of it.
    async fn sent_whole(&self, file: &Path, mut sent: Sent) -> Result<(), Failure> {
        loop {
            let before = self.progress.bytes();
            if tokio::time::timeout(MOST_SILENCE, sent.ended()).await.is_ok() {
                break;
            }
            if self.progress.bytes() == before {
                return Err(Failure::new(
                    Exit::Timeout,
                    format!(
                        "{}: the server answered but takes in no more of {}; run it again",
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
                "{}: the server answered {} after {} bytes and asked for no more",
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
            error: failure.map(Into::into),
        };
        // A struct of plain fields always serializes.
        let text = serde_json::to_string(&document).unwrap_or_default();
        let _ = match format {
            Format::JsonOut => writeln!(io::stdout(), "{text}"),
            Format::JsonErr | Format::Text => writeln!(io::stderr(), "{text}"),
        };
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
    waited: Option<&'a Waited>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<crate::get::report::Wrong<'a>>,
}
