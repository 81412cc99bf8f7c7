//! One stream of 64 MiB at 1 Gbit/s over six round trips, down and up, each program as a share of the path's limit.

use std::path::Path;
use std::time::Duration;

use super::{Case, MIB, RATE, ROUND_TRIPS, Report, Section, head, series};
use crate::comparison::{Candidate, Series, compare, speedup};
use crate::context::{Context, make_file};
use crate::error::Error;
use crate::markdown::Table;
use crate::peers;
use crate::peers::go::Go;
use crate::process;
use crate::program::{self, LinkOptions};
use crate::worker;

const BYTES: u64 = 64 * MIB;
const LIMIT: Duration = Duration::from_secs(30);

/// The candidates that a ratio is told of: fullbore's first, then the peer's.
const RATIOS_DOWN: [(&str, &str); 2] = [
    ("get < serve", "curl < serve"),
    ("get < nghttpd", "curl < nghttpd"),
];
const RATIOS_UP: [(&str, &str); 2] = [("put > serve", "curl > serve"), ("put > nginx", "curl > nginx")];

/// Where the servers listen; nginx only where it runs.
struct Ports {
    serve: u16,
    nghttpd: Option<u16>,
    nginx: Option<u16>,
}

pub(super) fn run(cx: &Context) -> Result<Section, Error> {
    let folder = cx.folder("paths")?;
    let file = folder.join("body");
    make_file(&file, BYTES)?;
    let mut report = Report::new(Case::Paths, "One stream over a long path");
    let serve = program::serve(cx, &folder, &[])?;
    let nghttpd = peers::nghttpd(cx, &folder, &[]).map_err(|error| report.warn(format!("Skipped: {error}.")));
    let nginx_folder = cx.folder("paths-nginx")?;
    let nginx = peers::nginx(cx, &nginx_folder).map_err(|error| report.warn(format!("Skipped: {error}.")));

    let go = Go::build(cx).map_err(|error| report.warn(format!("Skipped: Go's client: {error}.")));

    let (mut down, mut up) = (None, None);
    for rtt_ms in ROUND_TRIPS {
        let path = LinkOptions {
            rtt_ms,
            gigabit: true,
        };
        let link = |port: u16| program::link(cx, port, path);
        let serve_link = link(serve.port)?;
        let nghttpd_link = nghttpd
            .as_ref()
            .ok()
            .map(|server| link(server.port))
            .transpose()?;
        let nginx_link = nginx.as_ref().ok().map(|server| link(server.port)).transpose()?;
        let ports = Ports {
            serve: serve_link.port,
            nghttpd: nghttpd_link.as_ref().map(|link| link.port),
            nginx: nginx_link.as_ref().map(|link| link.port),
        };
        let name = format!("{rtt_ms} ms");
        let rtt = f64::from(rtt_ms) / 1000.0;
        let limit = rtt + BYTES as f64 / RATE;
        let bound = 2.0 * rtt + BYTES as f64 / RATE;

        let downloads = compare(cx.options.runs, downloads(cx, &ports));
        report.note_errors(&format!("{name} down"), &downloads);
        let own = vec![name.clone(), format!("{limit:.3}")];
        add_row(
            &mut down,
            &["round trip", "limit, s"],
            own,
            &downloads,
            &RATIOS_DOWN,
            limit,
        );

        let uploads = compare(cx.options.runs, uploads(cx, &ports, &file, go.as_ref().ok()));
        report.note_errors(&format!("{name} up"), &uploads);
        let own = vec![
            name,
            format!("{limit:.3}"),
            format!("{:.1}", 100.0 * limit / bound),
        ];
        add_row(
            &mut up,
            &["round trip", "limit, s", "bound"],
            own,
            &uploads,
            &RATIOS_UP,
            limit,
        );
    }

    report.paragraph(
        "64 MiB on one stream at 1 Gbit/s, in per cent of the limit's speed; the limit is one round trip and the \
         bytes at the link's rate. `get < serve` is `fullbore get` from `fullbore serve`. The last columns tell how \
         many times as fast as curl fullbore was.",
    );
    down.iter().for_each(|table| report.table(table));
    report.paragraph(
        "Uploads. No client reaches the limit on a new connection: it may send 65,535 bytes before it knows the \
         server's windows. `fullbore serve` takes HTTP/1.1 on the same port, so it sends its windows when it has the \
         client's preface, and they arrive a round trip after the connection was opened: an upload takes two round \
         trips and the bytes at the link's rate. The column `bound` is that time's speed, in per cent of the limit's \
         too. All clients are told that the server speaks HTTP/2 (`put --http2`): otherwise `put` sends a body in \
         cleartext only when the server has said so, a round trip later. `open` are uploads on a connection that is \
         open already, by the library and by Go's client: their limit is the limit.",
    );
    up.iter().for_each(|table| report.table(table));
    report.note("Each program's own clock: curl's `time_total`, nghttp's `responseEnd`, fullbore's `seconds`; of Go's client, net/http at its defaults, the whole process. nghttp has windows of 2^30-1 (`-w30 -W30`); all others their defaults.");
    report.finish(cx, &["curl", "nghttp", "nghttpd", "nginx", "go"])
}

fn downloads<'a>(cx: &'a Context, ports: &Ports) -> Vec<Candidate<'a, f64>> {
    let mut candidates = Vec::new();
    for (server, port) in [("serve", Some(ports.serve)), ("nghttpd", ports.nghttpd)] {
        let Some(port) = port else { continue };
        let url = format!("http://127.0.0.1:{port}/body");
        let urls = [url.clone(), url.clone(), url];
        let [ours, curls, nghttps] = urls;
        candidates.push(Candidate::ours(format!("get < {server}"), move || {
            program::get(cx, &ours, BYTES, &[], LIMIT)
        }));
        candidates.push(Candidate::peer(format!("curl < {server}"), move || {
            peers::curl_get(cx, &curls, BYTES, LIMIT)
        }));
        candidates.push(Candidate::peer(format!("nghttp < {server}"), move || {
            peers::nghttp(cx, &nghttps, &peers::window_flags(30), LIMIT)
        }));
    }
    candidates
}

fn uploads<'a>(
    cx: &'a Context,
    ports: &Ports,
    file: &'a Path,
    go: Option<&'a Go>,
) -> Vec<Candidate<'a, f64>> {
    let mut candidates = Vec::new();
    for (server, port) in [("serve", Some(ports.serve)), ("nginx", ports.nginx)] {
        let Some(port) = port else { continue };
        let url = format!("http://127.0.0.1:{port}/upload");
        let (curls, gos) = (url.clone(), url.clone());
        candidates.push(Candidate::ours(format!("put > {server}"), move || {
            program::put(cx, file, &url, LIMIT)
        }));
        candidates.push(Candidate::peer(format!("curl > {server}"), move || {
            peers::curl_put(cx, file, &curls, BYTES, LIMIT)
        }));
        if let Some(go) = go {
            candidates.push(Candidate::peer(format!("Go > {server}"), move || {
                go.put(cx, file, &gos, LIMIT)
            }));
        }
    }
    let url = format!("http://127.0.0.1:{}/upload", ports.serve);
    let gos = url.clone();
    candidates.push(Candidate::ours("fullbore > serve, open", move || {
        upload_on_open_connection(cx, &url, LIMIT)
    }));
    if let Some(go) = go {
        candidates.push(Candidate::peer("Go > serve, open", move || {
            go.put_on_open_connection(cx, file, &gos, LIMIT)
        }));
    }
    candidates
}

/// An upload by the library on a connection that is open already; the seconds of that request.
fn upload_on_open_connection(cx: &Context, url: &str, limit: Duration) -> Result<f64, Error> {
    let mut command = worker::command("upload")?;
    command.args([url, "--bytes", &BYTES.to_string()]);
    let output = process::run(&cx.reaper, &mut command, cx.limit(limit)?)?;
    let line = output.stdout.trim();
    line.parse()
        .map_err(|_| Error::Output("fullbore-bench worker upload".to_owned(), line.to_owned()))
}

/// Adds a row, and makes the table for the first.
fn add_row(
    table: &mut Option<Table>,
    own_head: &[&str],
    own: Vec<String>,
    all: &[Series<f64>],
    ratios: &[(&str, &str)],
    limit: f64,
) {
    let known: Vec<_> = ratios
        .iter()
        .filter_map(|(ours, peer)| Some((series(all, ours)?, series(all, peer)?)))
        .collect();
    let table = table.get_or_insert_with(|| {
        let ratio_heads = known.iter().map(|(ours, _)| format!("{} ÷ curl", ours.name));
        Table::new(head(own_head, all).into_iter().chain(ratio_heads))
    });
    let mut row = own;
    row.extend(
        all.iter()
            .map(|series| series.cell(1, |seconds| 100.0 * limit / seconds)),
    );
    row.extend(
        known
            .iter()
            .map(|(ours, peer)| speedup(ours, peer).map_or("-".to_owned(), |spread| spread.text(2))),
    );
    table.row(row);
}
