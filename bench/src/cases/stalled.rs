//! One of 100 streams on a connection has a reader that never reads: how fast the other 99 are, beside it and without it.

use std::time::Duration;

use super::{Case, Draft, MIB, Section, series};
use crate::contest::{Contender, hold, times_as_fast};
use crate::fault::Fault;
use crate::fullbore::LongPath;
use crate::markdown::Table;
use crate::part;
use crate::process;
use crate::session::{Session, make_hollow_file};

const STREAMS: u64 = 99;
/// Longer than any window grows, so that the stalled stream stays open.
const LONG: u64 = 1 << 30;
const LIMIT: Duration = Duration::from_secs(60);

/// A path by name, and what each stream carries over it.
const PATHS: [(&str, Option<LongPath>, u64); 2] = [
    ("loopback", None, 16 * MIB),
    (
        "20 ms, 1 Gbit/s",
        Some(LongPath {
            rtt_ms: 20,
            gigabit: true,
        }),
        4 * MIB,
    ),
];

pub(super) fn run(session: &Session) -> Result<Section, Fault> {
    let mut draft = Draft::new(Case::Stalled, "A stream that nobody reads");
    let mut table = Table::new([
        "path",
        "99 streams, MB/s",
        "beside one that nobody reads, MB/s",
        "of that speed, %",
    ]);
    for (name, path, bytes) in PATHS {
        let folder = session.folder("stalled")?;
        make_hollow_file(&folder.join("body"), bytes)?;
        make_hollow_file(&folder.join("long"), LONG)?;
        let serve = session.fullbore.serve(session, &folder, &[])?;
        let link = path
            .map(|path| session.fullbore.link(session, serve.port, path))
            .transpose()?;
        let port = link.as_ref().map_or(serve.port, |link| link.port);
        let measure = |more: &'static [&'static str]| {
            move || {
                let mut command = part::command("stalled")?;
                command
                    .arg(format!("127.0.0.1:{port}"))
                    .args(["--streams", &STREAMS.to_string(), "--bytes", &bytes.to_string()])
                    .args(more);
                let said = process::run(&session.janitor, &mut command, session.limit(LIMIT)?)?;
                let seconds = said.stdout.trim().parse::<f64>();
                seconds.map_err(|_| Fault::Output("part stalled".to_owned(), said.stdout.clone()))
            }
        };
        let all = hold(
            session.runs,
            vec![
                Contender::ours("alone", measure(&[])),
                Contender::ours("beside", measure(&["--beside"])),
            ],
        );
        draft.note_faults(name, &all);
        let speed = |seconds: &f64| (STREAMS * bytes) as f64 / seconds / 1e6;
        let share = series(&all, "beside").zip(series(&all, "alone"));
        let share = share
            .and_then(|(beside, alone)| times_as_fast(beside, alone))
            .map_or("-".to_owned(), |spread| (spread * 100.0).text(1));
        let mut row = vec![name.to_owned()];
        row.extend(all.iter().map(|series| series.cell(0, speed)));
        row.push(share);
        table.row(row);
    }
    draft.say(
        "99 downloads from `fullbore serve` on one connection at the defaults (16 MiB each over loopback, 4 MiB each over \
         the link), and the same after one more stream was opened whose reader never reads, and which has filled its window.",
    );
    draft.table(&table);
    draft.done(session, &[])
}
