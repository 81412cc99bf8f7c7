//! One stream of 64 MiB at 1 Gbit/s over six round trips, down and up, each program as a share of what TCP does alone.

use std::path::Path;
use std::time::Duration;

use super::{Case, MIB, ROUND_TRIPS, Report, Section, head, series};
use crate::comparison::{Candidate, Series, compare, speedup};
use crate::context::{Context, make_file};
use crate::error::Error;
use crate::markdown::Table;
use crate::peers;
use crate::peers::go::Go;
use crate::process;
use crate::program;
use crate::route::{self, Route};
use crate::worker;

const BYTES: u64 = 64 * MIB;
const LIMIT: Duration = Duration::from_secs(30);

/// The candidates that a ratio is told of: fullbore's first, then the peer's.
const RATIOS_DOWN: [(&str, &str); 2] = [
    ("get < serve", "curl < serve"),
    ("get < nghttpd", "curl < nghttpd"),
];
const RATIOS_UP: [(&str, &str); 2] = [("put > serve", "curl > serve"), ("put > nginx", "curl > nginx")];

/// The candidate that the others are a share of.
const LIMIT_OF_ALL: &str = "TCP alone";

/// Where the servers listen; nginx only where it runs.
struct Ports {
    alone: u16,
    serve: u16,
    nghttpd: Option<u16>,
    nginx: Option<u16>,
}

pub(super) fn run(cx: &Context) -> Result<Section, Error> {
    let folder = cx.folder("paths")?;
    let file = folder.join("body");
    make_file(&file, BYTES)?;
    let mut report = Report::new(Case::Paths, "One stream over a long path");
    let nginx_folder = cx.folder("paths-nginx")?;
    let go = Go::build(cx).map_err(|error| report.warn(format!("Skipped: Go's client: {error}.")));

    let (mut down, mut up) = (None, None);
    for rtt_ms in ROUND_TRIPS {
        let name = format!("{rtt_ms} ms");
        if !cx.measures(&name) {
            continue;
        }
        let route = Route::gigabit(cx, rtt_ms, route::CUBIC)?;
        let mut skipped = |error: Error| report.warn(format!("{name}: skipped: {error}."));
        let (alone, serve) = route.serve(|| {
            let alone = program::listening(cx, &mut worker::command("floor-writer")?)?;
            Ok::<_, Error>((alone, program::serve(cx, &folder, &[])?))
        })?;
        let nghttpd = route
            .serve(|| peers::nghttpd(cx, &folder, &[]))
            .map_err(&mut skipped)
            .ok();
        let nginx = route
            .serve(|| peers::nginx(cx, &nginx_folder))
            .map_err(&mut skipped)
            .ok();
        let hop = |port: u16| route.to(port);
        let (to_alone, to_serve) = (hop(alone.port)?, hop(serve.port)?);
        let to_nghttpd = nghttpd.as_ref().map(|server| hop(server.port)).transpose()?;
        let to_nginx = nginx.as_ref().map(|server| hop(server.port)).transpose()?;
        let ports = Ports {
            alone: to_alone.port,
            serve: to_serve.port,
            nghttpd: to_nghttpd.as_ref().map(|hop| hop.port),
            nginx: to_nginx.as_ref().map(|hop| hop.port),
        };

        let downloads = route.ask(|| compare(cx.options.runs, downloads(cx, &ports)));
        report.note_errors(&format!("{name} down"), &downloads);
        add_row(&mut down, &name, &downloads, &RATIOS_DOWN);

        let uploads = route.ask(|| compare(cx.options.runs, uploads(cx, &ports, &file, go.as_ref().ok())));
        report.note_errors(&format!("{name} up"), &uploads);
        add_row(&mut up, &name, &uploads, &RATIOS_UP);
    }

    report.paragraph(&format!(
        "{}. 64 MiB on one stream at 1 Gbit/s, in per cent of the limit's speed. The limit is TCP alone: a program that \
         connects, and a server that writes as many octets to the socket, over the same path. Over packets, that is mostly \
         slow start where the round trip is long. `get < serve` is `fullbore get` from `fullbore serve`. The last columns \
         tell how many times as fast as curl fullbore was.",
        route::described(route::CUBIC)
    ));
    down.iter().for_each(|table| report.table(table));
    report.paragraph(
        "Uploads, in per cent of TCP alone in that direction. A client may send 65,535 bytes before it knows the server's \
         windows. `fullbore serve` takes HTTP/1.1 on the same port, so it sends its windows when it has the client's \
         preface, and they arrive a round trip after the connection was opened. All clients are told that the server \
         speaks HTTP/2 (`put --http2`): otherwise `put` sends a body in cleartext only when the server has said so, a \
         round trip later. `open` are uploads on a connection that is open already, by the library and by Go's client: \
         there is no handshake in their time, so that they can be faster than the limit.",
    );
    up.iter().for_each(|table| report.table(table));
    report.note("Each program's own clock: curl's `time_total`, nghttp's `responseEnd`, fullbore's `seconds`; of Go's client, net/http at its defaults, the whole process. nghttp has windows of 2^30-1 (`-w30 -W30`); all others their defaults.");
    report.finish(cx, &["curl", "nghttp", "nghttpd", "nginx", "go"])
}

fn downloads<'a>(cx: &'a Context, ports: &Ports) -> Vec<Candidate<'a, f64>> {
    let mut candidates = vec![alone(cx, ports.alone, &[])];
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
    let mut candidates = vec![alone(cx, ports.alone, &["--up"])];
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

/// The same octets without HTTP.
fn alone<'a>(cx: &'a Context, port: u16, more: &'static [&'static str]) -> Candidate<'a, f64> {
    Candidate::peer(LIMIT_OF_ALL, move || {
        let mut command = worker::command("floor-reader")?;
        command
            .args([format!("127.0.0.1:{port}"), BYTES.to_string()])
            .args(more);
        let output = process::run(&cx.reaper, &mut command, cx.limit(LIMIT)?)?;
        let line = output.stdout.trim();
        line.parse()
            .map_err(|_| Error::Output("fullbore-bench worker floor-reader".to_owned(), line.to_owned()))
    })
}

/// Adds a row, and makes the table for the first.
fn add_row(table: &mut Option<Table>, name: &str, all: &[Series<f64>], ratios: &[(&str, &str)]) {
    let [limit, programs @ ..] = all else { return };
    let known: Vec<_> = ratios
        .iter()
        .filter_map(|(ours, peer)| Some((series(all, ours)?, series(all, peer)?)))
        .collect();
    let table = table.get_or_insert_with(|| {
        let ratio_heads = known.iter().map(|(ours, _)| format!("{} ÷ curl", ours.name));
        Table::new(
            head(&["round trip", "limit, s"], programs)
                .into_iter()
                .chain(ratio_heads),
        )
    });
    let mut row = vec![name.to_owned(), limit.cell(3, |seconds| *seconds)];
    row.extend(programs.iter().map(|program| {
        let share = speedup(program, limit).map(|share| share * 100.0);
        share.map_or("failed".to_owned(), |share| share.text(1))
    }));
    row.extend(
        known
            .iter()
            .map(|(ours, peer)| speedup(ours, peer).map_or("-".to_owned(), |spread| spread.text(2))),
    );
    table.row(row);
}
