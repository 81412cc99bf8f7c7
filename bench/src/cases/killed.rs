//! Downloads that are killed with SIGKILL at random moments, over packets with losses: each goes on where it was, and the
//! file is right in the end.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use fullbore_packets::{Direction, Settings, Tcp};
use fullbore_testing::random::Random;
use serde_json::Value;

use super::{Case, MIB, Report, Section};
use crate::context::{Context, make_file};
use crate::error::Error;
use crate::markdown::Table;
use crate::over_packets::{Client, Folder, Serving, Site, Work, digests};
use crate::process::{Lines, Running};
use crate::program;

/// Kills over each path.
const KILLS: u32 = 100;
const BYTES: u64 = 32 * MIB;
/// A process is killed at a moment between its start and this.
const LONGEST: Duration = Duration::from_millis(2_500);
/// How long a download that is not killed may take.
const LIMIT: Duration = Duration::from_secs(180);
const MEGABITS: u64 = 100;
const SEED: u64 = 9;

/// The congestion control, the share of packets lost, and whether there is TLS.
const PATHS: [(&str, f64, bool); 2] = [("cubic", 0.001, false), ("bbr", 0.01, true)];

/// What was seen over one path.
#[derive(Debug, Default)]
struct Tally {
    kills: u32,
    /// Kills that left a beginning of the file.
    with_part: u32,
    /// Processes after those kills that kept what was there.
    resumed: u32,
    downloads: u32,
    /// Downloads whose file was right.
    right: u32,
}

pub(super) fn run(cx: &Context) -> Result<Section, Error> {
    let mut report = Report::new(Case::Killed, "Downloads that are killed");
    if report.lacks_path() {
        return report.finish(cx, &[]);
    }
    let folder = cx.folder("killed")?;
    let names = ["body".to_owned()];
    make_file(&folder.join("body"), BYTES)?;
    let digests = digests(cx, &folder, &names)?;
    let work = Work {
        folder: &folder,
        names: &names,
        digests: &digests,
    };
    let mut table = Table::new([
        "path",
        "killed",
        "of them with a part",
        "resumed",
        "downloads",
        "right",
    ]);
    for path in PATHS {
        let (congestion_control, loss, secure) = path;
        let security = if secure { "TLS" } else { "cleartext" };
        let name = format!("{congestion_control}, {} % lost, {security}", loss * 100.0);
        if !cx.measures(&name) {
            continue;
        }
        let tally = killed(cx, path, work)?;
        if tally.right < tally.downloads || tally.resumed < tally.with_part {
            report.ok = false;
            report.warn(format!("{name}: {tally:?}"));
        }
        let counts = [
            tally.kills,
            tally.with_part,
            tally.resumed,
            tally.downloads,
            tally.right,
        ];
        table.row([name].into_iter().chain(counts.map(|count| count.to_string())));
    }
    report.paragraph(&format!(
        "`fullbore get -o FILE` of {} MiB at {MEGABITS} Mbit/s and 20 ms is killed with SIGKILL at a moment drawn from 0 to \
         {:.1} s, and started again, until the file is there. `with a part` are the kills that left a beginning of the file, \
         `resumed` the processes after them that kept all of it, `right` the files whose SHA-256 is that of the \
         server's.",
        BYTES / MIB,
        LONGEST.as_secs_f64()
    ));
    report.table(&table);
    report.finish(cx, &[])
}

fn killed(
    cx: &Context,
    (congestion_control, loss, secure): (&str, f64, bool),
    work: Work,
) -> Result<Tally, Error> {
    let direction = Direction {
        delay: Duration::from_millis(10),
        rate: Some(MEGABITS * 1_000_000),
        loss,
        ..Direction::default()
    };
    let tcp = Tcp {
        congestion_control: congestion_control.to_owned(),
        ..Tcp::default()
    };
    let serving = Serving {
        folder: work.folder,
        uploads: None,
        secure,
    };
    let site = Site::open(cx, &Settings::new(direction, tcp), serving)?;
    let kills = if cx.options.quick { KILLS / 10 } else { KILLS };
    let (mut tally, mut random) = (Tally::default(), Random::new(SEED));
    while tally.kills < kills {
        cx.limit(LIMIT)?;
        let folder = Folder(cx.folder("moved")?);
        download(cx, &site, work, &folder.0, kills, &mut tally, &mut random)?;
        tally.downloads += 1;
        tally.right += u32::from(digests(cx, &folder.0, work.names)? == work.digests);
    }
    Ok(tally)
}

/// One file, whose download is killed again and again until it is there, or until there were as many kills as asked.
fn download(
    cx: &Context,
    site: &Site,
    work: Work,
    folder: &Path,
    kills: u32,
    tally: &mut Tally,
    random: &mut Random,
) -> Result<(), Error> {
    let mut part = 0;
    loop {
        let mut command = site.command(cx, Client::Get(None), work, folder)?;
        command.arg("--json");
        if tally.kills >= kills {
            let output = site.run(cx, &mut command, LIMIT)?;
            tally.resumed += u32::from(part > 0 && resumed(&output.stdout)? >= part);
            return Ok(());
        }
        let end = site.path().client();
        let (running, lines) = end.enter(|| Running::with_lines(&cx.reaper, &mut command))?;
        thread::sleep(Duration::from_millis(random.below(LONGEST.as_millis() as u64)));
        drop(running);
        if folder.join("body").exists() {
            // It was done; the report may be cut off by the kill.
            let kept = resumed(&all(&lines)).is_ok_and(|resumed| resumed >= part);
            tally.resumed += u32::from(part > 0 && kept);
            return Ok(());
        }
        tally.kills += 1;
        let left = part_size(folder)?;
        tally.resumed += u32::from(part > 0 && left >= part);
        tally.with_part += u32::from(left > 0);
        part = left;
    }
}

fn all(lines: &Lines) -> String {
    std::iter::from_fn(|| lines.next(Duration::from_secs(1))).collect()
}

/// The octets that the download did not fetch again.
fn resumed(json: &str) -> Result<u64, Error> {
    let document = program::json("fullbore get", json)?;
    let resumed = document.pointer("/totals/resumed").and_then(Value::as_u64);
    resumed.ok_or_else(|| Error::Output("fullbore get".to_owned(), "no `totals.resumed`".to_owned()))
}

/// Octets of the unfinished file.
fn part_size(folder: &Path) -> Result<u64, Error> {
    let to_error = |error| Error::File(folder.to_owned(), error);
    let mut size = 0;
    for entry in fs::read_dir(folder).map_err(to_error)? {
        size += entry.and_then(|entry| entry.metadata()).map_err(to_error)?.len();
    }
    Ok(size)
}
