//! 10,000 files of 10 KB over a long path, from servers that allow 10,000 streams at once and from servers that allow 100.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Case, RATE, Report, Section};
use crate::comparison::{Candidate, compare, speedup};
use crate::context::{Context, make_file};
use crate::error::Error;
use crate::markdown::Table;
use crate::peers;
use crate::program::{self, LinkOptions};

const FILES: u32 = 10_000;
const FILE_BYTES: u64 = 10_000;
const BYTES: u64 = FILES as u64 * FILE_BYTES;
const PATH: LinkOptions = LinkOptions {
    rtt_ms: 100,
    gigabit: true,
};
const LIMIT: Duration = Duration::from_secs(60);
/// The most that curl took before 8.16; a greater number falls back to its default of 50.
const CURL_AT_ONCE: u32 = 300;

/// A server, and what is asked of it.
struct Row {
    server: &'static str,
    /// How many streams it allows at once.
    streams: u32,
    secure: bool,
    /// None where it does not run.
    port: Option<u16>,
}

/// The files that name the URLs: one a line, and as curl takes them.
struct Lists {
    urls: PathBuf,
    config: PathBuf,
}

pub(super) fn run(cx: &Context) -> Result<Section, Error> {
    let folder = cx.folder("many")?;
    for number in 0..FILES {
        make_file(&folder.join(format!("f{number}")), FILE_BYTES)?;
    }
    let mut report = Report::new(Case::Many, "Many small files over a long path");
    let all_at_once = ["--max-streams", "10000"];
    let serve = program::serve(cx, &folder, &all_at_once)?;
    let serve_tls = program::serve_tls(cx, &folder, &all_at_once)?;
    let mut skipped = |error: Error| report.warn(format!("Skipped: {error}."));
    let nghttpd = peers::nghttpd(cx, &folder, &["-m10000".to_owned()]).map_err(&mut skipped);
    let hundred = ["-m100".to_owned()];
    let nghttpd_100 = peers::nghttpd(cx, &folder, &hundred).map_err(&mut skipped);
    let nghttpd_100_tls = peers::nghttpd_tls(cx, &folder, &hundred).map_err(&mut skipped);
    let rows = [
        row("fullbore serve", 10_000, false, Some(serve.port)),
        row(
            "nghttpd",
            10_000,
            false,
            nghttpd.as_ref().ok().map(|one| one.port),
        ),
        row("fullbore serve, TLS", 10_000, true, Some(serve_tls.port)),
        row(
            "nghttpd",
            100,
            false,
            nghttpd_100.as_ref().ok().map(|one| one.port),
        ),
        row(
            "nghttpd, TLS",
            100,
            true,
            nghttpd_100_tls.as_ref().ok().map(|one| one.port),
        ),
    ];

    let limit = f64::from(PATH.rtt_ms) / 1000.0 + BYTES as f64 / RATE;
    let mut table = Table::new([
        "server",
        "streams it allows",
        "client",
        "seconds",
        "% of the limit",
        "get is so many times as fast",
    ]);
    for row in rows {
        let Some(port) = row.port else { continue };
        let link = program::link(cx, port, PATH)?;
        let lists = lists(cx, &row, link.port)?;
        let all = compare(cx.options.runs, candidates(cx, &row, &lists));
        report.note_errors(&format!("{}, {} streams", row.server, row.streams), &all);
        for series in &all {
            let ratio = all.first().filter(|own| own.name != series.name);
            table.row([
                row.server.to_owned(),
                row.streams.to_string(),
                series.name.clone(),
                series.cell(2, |seconds| *seconds),
                series.cell(1, |seconds| 100.0 * limit / seconds),
                ratio
                    .and_then(|own| speedup(own, series))
                    .map_or("-".to_owned(), |spread| spread.text(2)),
            ]);
        }
    }
    report.paragraph(&format!(
        "10,000 files of 10,000 bytes over 100 ms and 1 Gbit/s, from servers that allow 10,000 streams at once on a \
         connection, and from ones that allow 100. The limit is one round trip and the bodies at the link's rate: {limit:.2} s. \
         100 streams of 10,000 bytes a round trip are 10 MB/s on one connection whatever its windows, so that 100 \
         round trips, 10 s, pass; `fullbore get` opens up to eight connections then, as the others do only when told to."
    ));
    report.table(&table);
    report.note("`fullbore get -i list --discard` at its defaults; `h2load -n10000 -c1 -m10000 -w30 -W30 -i list` (`-m100` where the server allows 100); `curl --parallel --parallel-max 300`, 300 being the most that curl before 8.16 takes.");
    report.note("curl is measured over TLS only: on one cleartext connection curl 7.88.1 ended all transfers but the first with `Error in the HTTP2 framing layer` (exit code 16), from fullbore serve, and failed with the same code from nghttpd.");
    report.note("The clocks are fullbore's `totals.seconds`, h2load's `finished in` and, as curl tells no total, curl's whole process. Over TLS the handshake is in all three, and in the limit it is not.");
    report.finish(cx, &["h2load", "curl", "nghttpd"])
}

fn row(server: &'static str, streams: u32, secure: bool, port: Option<u16>) -> Row {
    Row {
        server,
        streams,
        secure,
        port,
    }
}

fn candidates<'a>(cx: &'a Context, row: &Row, lists: &'a Lists) -> Vec<Candidate<'a, f64>> {
    let get = |more: &'static [&'static str]| move || program::get_list(cx, &lists.urls, BYTES, more, LIMIT);
    let mut candidates = vec![Candidate::ours("fullbore get", get(&[]))];
    if row.streams < FILES {
        let one = Candidate::ours("fullbore get --connections 1", get(&["--connections", "1"]));
        candidates.push(one);
    }
    let at_once = row.streams;
    candidates.push(Candidate::peer("h2load", move || {
        peers::h2load(cx, &lists.urls, FILES, at_once, LIMIT)
    }));
    if row.secure {
        candidates.push(Candidate::peer("curl", || {
            peers::curl_many(cx, &lists.config, CURL_AT_ONCE, LIMIT)
        }));
    }
    candidates
}

/// The files with the URLs of a server behind the link at `port`.
fn lists(cx: &Context, row: &Row, port: u16) -> Result<Lists, Error> {
    let folder = cx.folder("many-lists")?;
    let scheme = if row.secure { "https" } else { "http" };
    let urls = write(&folder.join("list"), &|number, text| {
        let _ = writeln!(text, "{scheme}://127.0.0.1:{port}/f{number}");
    })?;
    let config = write(&folder.join("config"), &|number, text| {
        let _ = writeln!(
            text,
            "url = \"{scheme}://127.0.0.1:{port}/f{number}\"\noutput = \"/dev/null\""
        );
    })?;
    Ok(Lists { urls, config })
}

/// A file with a line or more for each of the files to fetch.
fn write(file: &Path, line: &dyn Fn(u32, &mut String)) -> Result<PathBuf, Error> {
    let mut text = String::new();
    (0..FILES).for_each(|number| line(number, &mut text));
    std::fs::write(file, text).map_err(|error| Error::File(file.to_owned(), error))?;
    Ok(file.to_owned())
}
