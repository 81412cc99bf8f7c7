//! `fullbore get`: downloads many URLs with bounded memory and open files.
//!
//! | module | subject |
//! |---|---|
//! | `list` | the URLs of a run, with names and checksums |
//! | `walk` | the files below a folder of a server, by its lists |
//! | `index`, `json_list`, `entries` | what a list names |
//! | `outputs`, `names` | where their bodies go |
//! | `conditions` | conditional requests |
//! | `heads` | printed heads of responses |
//! | `fetch` | one download: requests, redirects, attempts |
//! | `unreachable` | origins that cannot be reached |
//! | `resume`, `version`, `likeness` | continuing a download |
//! | `report` | the results |

mod conditions;
mod entries;
mod fetch;
mod heads;
mod index;
mod json_list;
mod likeness;
mod list;
mod names;
mod outputs;
mod report;
mod resume;
mod unreachable;
mod walk;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use http::header::{IF_RANGE, RANGE};
use tokio::task::{JoinError, JoinSet};

use crate::args::{GetArgs, HeaderLine};
use crate::exit::{Exit, Failure};
use crate::key_log;
use crate::run::{self, Leftovers};
use crate::transfer::client;
use crate::transfer::gate::Gate;
use crate::transfer::lists::Lists;
use crate::transfer::output::Format;
use crate::transfer::progress::Progress;
use crate::transfer::rate_limit::RateLimit;
use crate::transfer::receive::Disk;
use crate::transfer::redirects::Redirects;
use crate::transfer::request_fields::RequestFields;
use crate::transfer::retry::Pauses;
use crate::transfer::waits::{Direction, Set, Waits};
use crate::volume::Volume;

use conditions::Conditions;
use fetch::{Fetcher, Heads};
use list::UrlList;
use outputs::Outputs;
use report::{Outcome, Report};
use unreachable::Unreachable;
use walk::Walk;

/// The connections to an origin, without `--connections`.
const MOST_CONNECTIONS: u32 = 8;

/// Downloads everything that the arguments name. A URL that fails does not stop the others.
///
/// # Errors
/// Errors before the first request: a wrong combination of options, or a folder that cannot be created.
pub(crate) async fn run(
    mut args: GetArgs,
    volume: Volume,
    leftovers: Arc<Leftovers>,
) -> Result<ExitCode, Failure> {
    refuse_ranges(&args.connection.headers)?;
    if let Some(url) = args.urls.first_mut().filter(|_| args.recursive) {
        *url = client::with_scheme(url);
    }
    let walk = Walk::from_args(&mut args)?;
    for url in &mut args.urls {
        *url = client::with_scheme(url);
    }
    let outputs = Outputs::from_args(&args)?;
    refuse_many(&args)?;
    let conditions = Conditions::from_args(&args).await?;
    outputs.prepare().await?;
    if walk.is_some() {
        leftovers.set_how_to_resume("run the same command again with --newer");
    } else if args.urls.len() != 1 || args.list.is_some() {
        leftovers.set_how_to_resume("run the same command again with --skip-existing");
    }
    leftovers.set_nothing_kept(outputs.fate_of_incomplete());
    // A bar would stay between the lines of a body.
    let body_on_terminal = outputs.uses_stdout() && io::stdout().is_terminal();
    let progress = Progress::start(volume.prints_notes() && !body_on_terminal);
    let format = Format::choose(args.json, outputs.uses_stdout());
    let tells = volume.prints_notes() && format != Format::JsonErr;
    let key_log = progress.aside(|| key_log::from_env(tells));
    let mut report = Report::new(format, volume, Arc::clone(&progress));
    if walk.is_some() {
        report.set_recursive();
    }
    let client = client::client(&args.connection, key_log, |client| {
        let client = client.max_connections(args.connections.unwrap_or(MOST_CONNECTIONS));
        client.spread_requests(args.connections_of_a_body() != Some(1))
    })
    .await?;
    let set = Set::by(&args.connection);
    let fetcher = Arc::new(Fetcher {
        client: client.clone(),
        connections: args.connections_of_a_body(),
        fields: RequestFields::new(&args.connection, &args.urls).await?,
        redirects: Redirects::from_args(&args.connection),
        unreachable: Unreachable::default(),
        retries: args.retry,
        pauses: Pauses::default(),
        max_time: args.connection.max_time,
        outputs,
        disk: Disk::new(leftovers)
            .at_rate(args.connection.network.limit_rate.map(RateLimit::new))
            .with_most(args.max_filesize),
        progress: Arc::clone(&progress),
        reports_streams: args.json,
        heads: match (args.head, args.include) {
            (true, _) => Heads::Only,
            (_, true) => Heads::Also,
            _ => Heads::No,
        },
        conditions,
        decodes: args.compressed,
        keeps_times: args.remote_time || args.recursive,
        same: AtomicU64::default(),
        lists: Lists::new(),
        list_gate: Gate::new(walk::LISTS),
        listed: AtomicU64::default(),
        refused_names: AtomicU64::default(),
        told_of_names: AtomicBool::new(false),
        told_of_existing: AtomicBool::new(false),
    });
    let mut list = match walk {
        Some(walk) => UrlList::of_walk(walk.start(Arc::clone(&fetcher))),
        None => UrlList::new(args.urls, args.checksum, args.list)?,
    };
    let parallel = usize::try_from(args.parallel).unwrap_or(usize::MAX);

    let mut in_progress = JoinSet::new();
    let mut more = true;
    loop {
        // Report ended downloads before starting more, so few results wait. Results that arrive together are printed
        // together.
        while let Some(ended) = in_progress.try_join_next() {
            add(&mut report, ended);
        }
        report.flush();
        tokio::select! {
            biased;
            Some(ended) = in_progress.join_next() => add(&mut report, ended),
            next = list.next(), if more && in_progress.len() < parallel => match next {
                Some(Ok(item)) => {
                    progress.file();
                    fetcher.fields.next(&item.url);
                    let fetcher = Arc::clone(&fetcher);
                    in_progress.spawn(async move { fetcher.fetch(item).await });
                }
                Some(Err(failure)) => report.add(Outcome::failed(String::new(), failure)),
                None => more = false,
            },
            else => break,
        }
    }
    report.leave_unchanged(fetcher.same.load(Ordering::Relaxed));
    report.leave_out(fetcher.refused_names.load(Ordering::Relaxed));
    if fetcher.listed.load(Ordering::Relaxed) == 1 && report.is_empty() && volume.prints_notes() {
        let text =
            "nothing was downloaded: the list of the folder names no files beneath it that are asked for";
        progress.aside(|| run::complain(&text));
    }
    let set = set.with_further(report.further());
    let waited = Waits::of(Direction::Receiving, &client, set).await;
    // The closing line stands below the log.
    report.set_ended();
    client::farewell(&client).await;
    Ok(report.finish(waited))
}

/// Options that are about one body.
fn refuse_many(args: &GetArgs) -> Result<(), Failure> {
    if args.urls.len() == 1 && args.list.is_none() {
        return Ok(());
    }
    if args.checksum.is_some() {
        return Err(Failure::usage(
            "--checksum is for one URL; in a list of -i, write an indented line checksum=TYPE=HEX below each URL",
        ));
    }
    if args.time_cond.is_some() || args.etag_save.is_some() || args.etag_compare.is_some() {
        return Err(Failure::usage(
            "--time-cond, --etag-save and --etag-compare are for one URL; run the command once for each URL",
        ));
    }
    Ok(())
}

/// A range of the user would be taken for one of ours, and its body for the whole.
fn refuse_ranges(lines: &[HeaderLine]) -> Result<(), Failure> {
    match lines
        .iter()
        .find(|line| line.name == RANGE || line.name == IF_RANGE)
    {
        Some(line) => Err(Failure::usage(format!(
            "-H {}: `get` downloads whole files, and requests ranges itself to resume them",
            line.name
        ))),
        None => Ok(()),
    }
}

/// Reports the result of a task, even if it panicked. A folder has none of its own.
fn add(report: &mut Report, ended: Result<Outcome, JoinError>) {
    let outcome = ended.unwrap_or_else(|error| {
        let text = format!("a download failed by an error of fullbore: {error}");
        Outcome::failed(String::new(), Failure::new(Exit::Other, text))
    });
    if !outcome.is_folder {
        report.add(outcome);
    }
}
