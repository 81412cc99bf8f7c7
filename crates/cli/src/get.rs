//! `fullbore get`: many URLs, each to its place, with bounded memory and open files, and a verdict at the end.
//!
//! This file holds the run: it takes URLs from the list, keeps at most `--parallel` requests under way and hands each
//! result to the report. One request's way is in `fetch`; `retry` says whether and when it is tried again, and `resume` with
//! what; where its bytes go is in `target` and `sink`.

mod fetch;
mod list;
mod outputs;
mod report;
mod request_fields;
mod resume;
mod version;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use http::header::{IF_RANGE, RANGE};
use tokio::task::{JoinError, JoinSet};

use crate::args::{GetArgs, HeaderLine};
use crate::exit::{Exit, Failure};
use crate::transfer::client;
use crate::transfer::output::Format;
use crate::transfer::progress::Progress;
use crate::transfer::receive::Disk;
use crate::transfer::retry::Pauses;
use crate::transfer::waits::{Direction, Waits};

use fetch::{Fetcher, Redirects};
use list::UrlList;
use outputs::Outputs;
use report::{Outcome, Report};
use request_fields::RequestFields;

/// Downloads everything that the arguments name. A URL that fails does not stop the others.
///
/// # Errors
/// What stops the whole run before the first request: a wrong combination of options, or a folder that cannot be made.
pub(crate) async fn run(args: GetArgs) -> Result<ExitCode, Failure> {
    refuse_ranges(&args.connection.headers)?;
    let outputs = Outputs::from_args(&args)?;
    outputs.prepare().await?;
    let progress = Progress::start();
    let mut report = Report::new(
        Format::choose(args.json, outputs.uses_stdout()),
        Arc::clone(&progress),
    );
    let client = client::client(&args.connection, args.connections).await?;
    let fetcher = Arc::new(Fetcher {
        client: client.clone(),
        fields: RequestFields::new(&args.connection.headers, args.location_trusted, &args.urls),
        redirects: Redirects {
            follow: args.location || args.location_trusted || args.location_insecure,
            insecure: args.location_insecure,
        },
        retries: args.retry,
        pauses: Pauses::default(),
        max_time: args.connection.max_time.map(Duration::from_secs),
        outputs,
        disk: Disk::new(),
        progress: Arc::clone(&progress),
        tells_streams: args.json,
    });
    let mut list = UrlList::new(args.urls, args.list)?;
    let parallel = usize::try_from(args.parallel).unwrap_or(usize::MAX);

    let mut in_progress = JoinSet::new();
    let mut more = true;
    loop {
        // What has ended is counted before more is begun, so the results that wait stay few; those that ended together
        // are printed together.
        while let Some(ended) = in_progress.try_join_next() {
            report.add(outcome(ended));
        }
        report.flush();
        tokio::select! {
            biased;
            Some(ended) = in_progress.join_next() => report.add(outcome(ended)),
            next = list.next(), if more && in_progress.len() < parallel => match next {
                Some(Ok(url)) => {
                    fetcher.fields.next(&url);
                    let fetcher = Arc::clone(&fetcher);
                    in_progress.spawn(async move { fetcher.fetch(url).await });
                }
                Some(Err(failure)) => report.add(Outcome::failed(String::new(), failure)),
                None => more = false,
            },
            else => break,
        }
    }
    let waited = Waits::of(Direction::Receiving, &client.reports().await);
    let exit = report.finish(waited);
    client::farewell(&client).await;
    Ok(exit)
}

/// A range of the user's own would be taken for one of ours, and a part for the whole.
fn refuse_ranges(lines: &[HeaderLine]) -> Result<(), Failure> {
    match lines
        .iter()
        .find(|line| line.name == RANGE || line.name == IF_RANGE)
    {
        Some(line) => Err(Failure::usage(format!(
            "-H {}: `get` downloads whole files, and asks for ranges by itself to resume them",
            line.name
        ))),
        None => Ok(()),
    }
}

/// What became of a URL, even if its task did not live to say so.
fn outcome(ended: Result<Outcome, JoinError>) -> Outcome {
    ended.unwrap_or_else(|error| {
        let text = format!("a download stopped by a fault of this program: {error}");
        Outcome::failed(String::new(), Failure::new(Exit::Other, text))
    })
}
