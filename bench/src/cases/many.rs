//! 10,000 files of 10 KB over a long path and one connection, as the curl mailing list asked for.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Case, Draft, RATE, Section};
use crate::contest::{Contender, hold, times_as_fast};
use crate::fault::Fault;
use crate::fullbore::LongPath;
use crate::markdown::Table;
use crate::peers;
use crate::session::{Session, make_file};

const FILES: u32 = 10_000;
const FILE_BYTES: u64 = 10_000;
const BYTES: u64 = FILES as u64 * FILE_BYTES;
const PATH: LongPath = LongPath {
    rtt_ms: 100,
    gigabit: true,
};
const LIMIT: Duration = Duration::from_secs(60);
/// The most that curl took before 8.16; a greater number falls back to its default of 50.
const CURL_AT_ONCE: u32 = 300;

pub(super) fn run(session: &Session) -> Result<Section, Fault> {
    let folder = session.folder("many")?;
    for number in 0..FILES {
        make_file(&folder.join(format!("f{number}")), FILE_BYTES)?;
    }
    let mut draft = Draft::new(Case::Many, "Many small files over a long path");
    let serve = session
        .fullbore
        .serve(session, &folder, &["--max-streams", "10000"])?;
    let nghttpd = peers::nghttpd(session, &folder, &["-m10000".to_owned()]);
    let nghttpd = nghttpd.map_err(|fault| draft.complain(format!("Skipped: {fault}.")));
    let tls = session
        .fullbore
        .serve_tls(session, &folder, &["--max-streams", "10000"])?;
    let servers = [
        ("fullbore serve", "http", Some(serve.port)),
        ("nghttpd", "http", nghttpd.as_ref().ok().map(|one| one.port)),
        ("fullbore serve, TLS", "https", Some(tls.port)),
    ];

    let limit = f64::from(PATH.rtt_ms) / 1000.0 + BYTES as f64 / RATE;
    let mut table = Table::new([
        "server",
        "client",
        "seconds",
        "% of the limit",
        "get is so many times as fast",
    ]);
    for (server, scheme, port) in servers {
        let Some(port) = port else { continue };
        let link = session.fullbore.link(session, port, PATH)?;
        let lists = session.folder("many-lists")?;
        let list = write(lists.join("list"), &|number, text| {
            let _ = writeln!(text, "{scheme}://127.0.0.1:{}/f{number}", link.port);
        })?;
        let config = write(lists.join("config"), &|number, text| {
            let _ = writeln!(
                text,
                "url = \"{scheme}://127.0.0.1:{}/f{number}\"\noutput = \"/dev/null\"",
                link.port
            );
        })?;
        let mut all = contenders(session, &list);
        if scheme == "https" {
            all.push(Contender::peer("curl", || {
                peers::curl_many(session, &config, CURL_AT_ONCE, LIMIT)
            }));
        }
        let all = hold(session.runs, all);
        draft.note_faults(server, &all);
        for series in &all {
            let ratio = all.first().filter(|own| own.name != series.name);
            table.row([
                server.to_owned(),
                series.name.clone(),
                series.cell(2, |seconds| *seconds),
                series.cell(1, |seconds| 100.0 * limit / seconds),
                ratio
                    .and_then(|own| times_as_fast(own, series))
                    .map_or("-".to_owned(), |spread| spread.text(2)),
            ]);
        }
    }
    draft.say(&format!(
        "10,000 files of 10,000 bytes over one connection, 100 ms and 1 Gbit/s, from servers that allow 10,000 streams \
         at once. The limit is one round trip and the bodies at the link's rate: {limit:.2} s."
    ));
    draft.table(&table);
    draft.note("`fullbore get -i list --discard` at its defaults; `h2load -n10000 -c1 -m10000 -w30 -W30 -i list`; `curl --parallel --parallel-max 300`, 300 being the most that curl before 8.16 takes.");
    draft.note("curl is measured over TLS only: on one cleartext connection curl 7.88.1 ended all transfers but the first with `Error in the HTTP2 framing layer` (exit code 16), from fullbore serve, and failed with the same code from nghttpd.");
    draft.note("The clocks are fullbore's `totals.seconds`, h2load's `finished in` and, as curl tells no total, curl's whole process. Over TLS the handshake is in all three, and in the limit it is not.");
    draft.done(session, &["h2load", "curl", "nghttpd"])
}

fn contenders<'a>(session: &'a Session, list: &'a Path) -> Vec<Contender<'a, f64>> {
    vec![
        Contender::ours("fullbore get", || {
            session.fullbore.get_list(session, list, BYTES, LIMIT)
        }),
        Contender::peer("h2load", || peers::h2load(session, list, FILES, LIMIT)),
    ]
}

/// A file with a line or more for each of the files to fetch.
fn write(file: PathBuf, line: &dyn Fn(u32, &mut String)) -> Result<PathBuf, Fault> {
    let mut text = String::new();
    (0..FILES).for_each(|number| line(number, &mut text));
    std::fs::write(&file, text).map_err(|error| Fault::File(file.clone(), error))?;
    Ok(file)
}
