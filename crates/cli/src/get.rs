//! `fullbore get`: many URLs, each to its place, with bounded memory and open files, and a verdict at the end.
//!
//! This file holds the run: it takes URLs from the list, keeps at most `--parallel` requests under way and hands each
//! result to the report. One request's way is in `fetch`; `retry` says whether and when it is tried again, and `resume` with
//! what; where its bytes go is in `target` and `sink`.

mod draft;
pub(crate) mod fetch;
pub(crate) mod fields;
mod list;
mod part_names;
mod private;
pub(crate) mod progress;
pub(crate) mod report;
mod resume;
pub(crate) mod retry;
pub(crate) mod sink;
pub(crate) mod target;
mod version;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use http::header::{IF_RANGE, RANGE};
use tokio::task::{JoinError, JoinSet};

use crate::args::{GetArgs, HeaderLine};
use crate::cause::{Direction, Waited};
use crate::connect;
use crate::exit::{Exit, Failure};

use fetch::{Fetcher, Redirects};
use fields::Fields;
use list::UrlList;
use progress::Progress;
use report::{Format, Outcome, Report};
use retry::Pauses;
use sink::Disk;
use target::Places;

/// Downloads everything that the arguments name. A URL that fails does not stop the others.
///
/// # Errors
/// What stops the whole run before the first request: a wrong combination of options, or a folder that cannot be made.
pub(crate) async fn run(args: GetArgs) -> Result<ExitCode, Failure> {
    refuse_ranges(&args.connection.headers)?;
    let places = Places::from_args(&args)?;
    places.prepare().await?;
    let progress = Progress::start();
    let mut report = Report::new(
        Format::choose(args.json, places.uses_stdout()),
        Arc::clone(&progress),
    );
    let client = connect::client(&args.connection, args.connections).await?;
    let fetcher = Arc::new(Fetcher {
        client: client.clone(),
        fields: Fields::new(&args.connection.headers, args.location_trusted, &args.urls),
        redirects: Redirects {
            follow: args.location || args.location_trusted || args.location_insecure,
            insecure: args.location_insecure,
        },
        retries: args.retry,
        pauses: Pauses::default(),
        max_time: args.connection.max_time.map(Duration::from_secs),
        places,
        disk: Disk::new(),
        progress: Arc::clone(&progress),
        tells_streams: args.json,
    });
    let mut list = UrlList::new(args.urls, args.list)?;
    let parallel = usize::try_from(args.parallel).unwrap_or(usize::MAX);

    let mut under_way = JoinSet::new();
    let mut more = true;
    loop {
        // What has ended is counted before more is begun, so the results that wait stay few; those that ended together
        // are printed together.
        while let Some(ended) = under_way.try_join_next() {
            report.add(outcome(ended));
        }
        report.flush();
        tokio::select! {
            biased;
            Some(ended) = under_way.join_next() => report.add(outcome(ended)),
            next = list.next(), if more && under_way.len() < parallel => match next {
                Some(Ok(url)) => {
                    fetcher.fields.next(&url);
                    let fetcher = Arc::clone(&fetcher);
                    under_way.spawn(async move { fetcher.fetch(url).await });
                }
                Some(Err(failure)) => report.add(Outcome::failed(String::new(), failure)),
                None => more = false,
            },
            else => break,
        }
    }
    let waited = Waited::of(Direction::Receiving, &client.reports().await);
    let exit = report.finish(waited);
    connect::farewell(&client).await;
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
