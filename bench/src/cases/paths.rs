//! One stream of 64 MiB at 1 Gbit/s over six round trips, down and up, each program as a share of the path's limit.

use std::path::Path;
use std::time::Duration;

use super::{Case, Draft, MIB, RATE, ROUND_TRIPS, Section, head, series};
use crate::contest::{Contender, Series, hold, times_as_fast};
use crate::fault::Fault;
use crate::fullbore::LongPath;
use crate::markdown::Table;
use crate::part;
use crate::peers;
use crate::peers::go::Go;
use crate::process;
use crate::session::{Session, make_file};

const BYTES: u64 = 64 * MIB;
const LIMIT: Duration = Duration::from_secs(30);

/// The contenders that a ratio is told of: fullbore's first, then the peer's.
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

pub(super) fn run(session: &Session) -> Result<Section, Fault> {
    let folder = session.folder("paths")?;
    let file = folder.join("body");
    make_file(&file, BYTES)?;
    let mut draft = Draft::new(Case::Paths, "One stream over a long path");
    let serve = session.fullbore.serve(session, &folder, &[])?;
    let nghttpd =
        peers::nghttpd(session, &folder, &[]).map_err(|fault| draft.complain(format!("Skipped: {fault}.")));
    let nginx_folder = session.folder("paths-nginx")?;
    let nginx =
        peers::nginx(session, &nginx_folder).map_err(|fault| draft.complain(format!("Skipped: {fault}.")));

    let go = Go::build(session).map_err(|fault| draft.complain(format!("Skipped: Go's client: {fault}.")));

    let (mut down, mut up) = (None, None);
    for rtt_ms in ROUND_TRIPS {
        let path = LongPath {
            rtt_ms,
            gigabit: true,
        };
        let link = |port: u16| session.fullbore.link(session, port, path);
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
        let bound = 1.5 * rtt + BYTES as f64 / RATE;

        let downloads = hold(session.runs, downloads(session, &ports));
        draft.note_faults(&format!("{name} down"), &downloads);
        let own = vec![name.clone(), format!("{limit:.3}")];
        add_row(
            &mut down,
            &["round trip", "limit, s"],
            own,
            &downloads,
            &RATIOS_DOWN,
            limit,
        );

        let uploads = hold(session.runs, uploads(session, &ports, &file, go.as_ref().ok()));
        draft.note_faults(&format!("{name} up"), &uploads);
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

    draft.say(
        "64 MiB on one stream at 1 Gbit/s, in per cent of the limit's speed; the limit is one round trip and the \
         bytes at the link's rate. `get < serve` is `fullbore get` from `fullbore serve`. The last columns tell how \
         many times as fast as curl fullbore was.",
    );
    down.iter().for_each(|table| draft.table(table));
    draft.say(
        "Uploads. No client reaches the limit on a new connection: it knows the server's windows only half a round \
         trip after it connected, and may send 65,535 bytes until then, so an upload takes 1.5 round trips and the \
         bytes at the link's rate (one half for the windows, one half for the bytes, one half for the answer). The \
         column `bound` is that time's speed, in per cent of the limit's too. `open` are uploads on a \
         connection that is open already, by the library and by Go's client: their limit is the limit.",
    );
    up.iter().for_each(|table| draft.table(table));
    draft.note("Each program's own clock: curl's `time_total`, nghttp's `responseEnd`, fullbore's `seconds`; of Go's client, net/http at its defaults, the whole process. nghttp has windows of 2^30-1 (`-w30 -W30`); all others their defaults.");
    draft.done(session, &["curl", "nghttp", "nghttpd", "nginx", "go"])
}

fn downloads<'a>(session: &'a Session, ports: &Ports) -> Vec<Contender<'a, f64>> {
    let mut contenders = Vec::new();
    for (server, port) in [("serve", Some(ports.serve)), ("nghttpd", ports.nghttpd)] {
        let Some(port) = port else { continue };
        let url = format!("http://127.0.0.1:{port}/body");
        let urls = [url.clone(), url.clone(), url];
        let [ours, curls, nghttps] = urls;
        contenders.push(Contender::ours(format!("get < {server}"), move || {
            session.fullbore.get(session, &ours, BYTES, &[], LIMIT)
        }));
        contenders.push(Contender::peer(format!("curl < {server}"), move || {
            peers::curl_get(session, &curls, BYTES, LIMIT)
        }));
        contenders.push(Contender::peer(format!("nghttp < {server}"), move || {
            peers::nghttp(session, &nghttps, &peers::window_flags(30), LIMIT)
        }));
    }
    contenders
}

fn uploads<'a>(
    session: &'a Session,
    ports: &Ports,
    file: &'a Path,
    go: Option<&'a Go>,
) -> Vec<Contender<'a, f64>> {
    let mut contenders = Vec::new();
    for (server, port) in [("serve", Some(ports.serve)), ("nginx", ports.nginx)] {
        let Some(port) = port else { continue };
        let url = format!("http://127.0.0.1:{port}/upload");
        let (curls, gos) = (url.clone(), url.clone());
        contenders.push(Contender::ours(format!("put > {server}"), move || {
            session.fullbore.put(session, file, &url, LIMIT)
        }));
        contenders.push(Contender::peer(format!("curl > {server}"), move || {
            peers::curl_put(session, file, &curls, BYTES, LIMIT)
        }));
        if let Some(go) = go {
            contenders.push(Contender::peer(format!("Go > {server}"), move || {
                go.put(session, file, &gos, LIMIT)
            }));
        }
    }
    let url = format!("http://127.0.0.1:{}/upload", ports.serve);
    let gos = url.clone();
    contenders.push(Contender::ours("fullbore > serve, open", move || {
        again(session, &url, LIMIT)
    }));
    if let Some(go) = go {
        contenders.push(Contender::peer("Go > serve, open", move || {
            go.put_again(session, file, &gos, LIMIT)
        }));
    }
    contenders
}

/// An upload by the library on a connection that is open already; the seconds of that request.
fn again(session: &Session, url: &str, limit: Duration) -> Result<f64, Fault> {
    let mut command = part::command("again")?;
    command.args([url, "--bytes", &BYTES.to_string()]);
    let said = process::run(&session.janitor, &mut command, session.limit(limit)?)?;
    let line = said.stdout.trim();
    line.parse()
        .map_err(|_| Fault::Output("fullbore-bench part again".to_owned(), line.to_owned()))
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
            .map(|(ours, peer)| times_as_fast(ours, peer).map_or("-".to_owned(), |spread| spread.text(2))),
    );
    table.row(row);
}
