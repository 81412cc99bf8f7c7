//! 10,000 files of 10 KB over a long path, from servers that allow 10,000 streams at once and from servers that allow 100.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Case, RATE, Report, Section};
use crate::comparison::{Candidate, compare, speedup};
use crate::context::{Context, make_file};
use crate::error::Error;
use crate::markdown::Table;
use crate::peers::{self, PeerServer};
use crate::program::{self, Served};
use crate::route::{self, Route};

const FILES: u32 = 10_000;
const FILE_BYTES: u64 = 10_000;
const BYTES: u64 = FILES as u64 * FILE_BYTES;
const RTT_MS: u32 = 100;
const LIMIT: Duration = Duration::from_secs(60);
/// The most that curl took before 8.16; a greater number falls back to its default of 50.
const CURL_AT_ONCE: u32 = 300;

/// Which server.
#[derive(Clone, Copy, PartialEq)]
enum Server {
    Serve,
    Nghttpd,
}

/// A server, and what is asked of it.
struct Row {
    server: Server,
    /// How many streams it allows at once.
    streams: u32,
    secure: bool,
}

/// A server under way.
enum Started<'a> {
    Ours(Served<'a>),
    Peer(PeerServer<'a>),
}

impl Started<'_> {
    fn port(&self) -> u16 {
        match self {
            Started::Ours(served) => served.port,
            Started::Peer(server) => server.port,
        }
    }
}

impl Row {
    fn name(&self) -> String {
        let name = match self.server {
            Server::Serve => "fullbore serve",
            Server::Nghttpd => "nghttpd",
        };
        format!("{name}{}", if self.secure { ", TLS" } else { "" })
    }

    fn start<'a>(&self, cx: &'a Context, folder: &Path) -> Result<Started<'a>, Error> {
        let streams = self.streams.to_string();
        let ours = ["--max-streams", &streams];
        let peers = [format!("-m{streams}")];
        Ok(match (self.server, self.secure) {
            (Server::Serve, false) => Started::Ours(program::serve(cx, folder, &ours)?),
            (Server::Serve, true) => Started::Ours(program::serve_tls(cx, folder, &ours)?),
            (Server::Nghttpd, false) => Started::Peer(peers::nghttpd(cx, folder, &peers)?),
            (Server::Nghttpd, true) => Started::Peer(peers::nghttpd_tls(cx, folder, &peers)?),
        })
    }
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
    let rows = [
        row(Server::Serve, 10_000, false),
        row(Server::Nghttpd, 10_000, false),
        row(Server::Serve, 10_000, true),
        row(Server::Nghttpd, 100, false),
        row(Server::Nghttpd, 100, true),
    ];
    let limit = f64::from(RTT_MS) / 1000.0 + BYTES as f64 / RATE;
    let mut table = Table::new([
        "server",
        "streams it allows",
        "client",
        "seconds",
        "% of the limit",
        "get is so many times as fast",
    ]);
    for row in rows {
        let route = Route::gigabit(cx, RTT_MS, route::CUBIC)?;
        let server = match route.serve(|| row.start(cx, &folder)) {
            Ok(server) => server,
            Err(error @ Error::Missing(_)) => {
                report.warn(format!("Skipped: {error}."));
                continue;
            }
            Err(error) => return Err(error),
        };
        let hop = route.to(server.port())?;
        let lists = lists(cx, &row, hop.port)?;
        let all = route.ask(|| compare(cx.options.runs, candidates(cx, &row, &lists)));
        report.note_errors(&format!("{}, {} streams", row.name(), row.streams), &all);
        for series in &all {
            let ratio = all.first().filter(|own| own.name != series.name);
            table.row([
                row.name(),
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
        "{}. 10,000 files of 10,000 bytes over 100 ms and 1 Gbit/s, from servers that allow 10,000 streams at once on a \
         connection, and from ones that allow 100. The limit is one round trip and the bodies at the link's rate: {limit:.2} s. \
         100 streams of 10,000 bytes a round trip are 10 MB/s on one connection whatever its windows, so that 100 \
         round trips, 10 s, pass; `fullbore get` opens up to eight connections then, as the others do only when told to. Over packets, slow start takes a share of the limit's time that nobody has: a \
         connection begins with ten packets a round trip.",
        route::described(route::CUBIC)
    ));
    report.table(&table);
    report.note("`fullbore get -i list --discard` at its defaults; `h2load -n10000 -c1 -m10000 -w30 -W30 -i list` (`-m100` where the server allows 100); `curl --parallel --parallel-max 300`, 300 being the most that curl before 8.16 takes.");
    report.note("curl is measured over TLS only: on one cleartext connection curl 7.88.1 ended all transfers but the first with `Error in the HTTP2 framing layer` (exit code 16), from fullbore serve, and failed with the same code from nghttpd.");
    report.note("The clocks are fullbore's `totals.seconds`, h2load's `finished in` and, as curl tells no total, curl's whole process. Over TLS the handshake is in all three, and in the limit it is not.");
    report.finish(cx, &["h2load", "curl", "nghttpd"])
}

fn row(server: Server, streams: u32, secure: bool) -> Row {
    Row {
        server,
        streams,
        secure,
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
