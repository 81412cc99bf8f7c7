//! 99 downloads on one connection, alone and beside a stream that nobody reads.

use std::time::Duration;

use super::{Case, MIB, Report, Section, series};
use crate::comparison::{Candidate, compare, speedup};
use crate::context::{Context, make_hollow_file};
use crate::error::Error;
use crate::markdown::Table;
use crate::process;
use crate::program::{self, LinkOptions};
use crate::worker;

const STREAMS: u64 = 99;
/// Longer than any window grows, so that the stalled stream stays open.
const LONG: u64 = 1 << 30;
const LIMIT: Duration = Duration::from_secs(60);

/// A path by name, and what each stream carries over it.
const PATHS: [(&str, Option<LinkOptions>, u64); 2] = [
    ("loopback", None, 16 * MIB),
    (
        "20 ms, 1 Gbit/s",
        Some(LinkOptions {
            rtt_ms: 20,
            gigabit: true,
        }),
        4 * MIB,
    ),
];

pub(super) fn run(cx: &Context) -> Result<Section, Error> {
    let mut report = Report::new(Case::Stalled, "A stream that nobody reads");
    let mut table = Table::new([
        "path",
        "99 streams, MB/s",
        "beside one that nobody reads, MB/s",
        "of that speed, %",
    ]);
    for (name, path, bytes) in PATHS {
        let folder = cx.folder("stalled")?;
        make_hollow_file(&folder.join("body"), bytes)?;
        make_hollow_file(&folder.join("long"), LONG)?;
        let serve = program::serve(cx, &folder, &[])?;
        let link = path.map(|path| program::link(cx, serve.port, path)).transpose()?;
        let port = link.as_ref().map_or(serve.port, |link| link.port);
        let measure = |more: &'static [&'static str]| {
            move || {
                let mut command = worker::command("stalled")?;
                command
                    .arg(format!("127.0.0.1:{port}"))
                    .args(["--streams", &STREAMS.to_string(), "--bytes", &bytes.to_string()])
                    .args(more);
                let output = process::run(&cx.reaper, &mut command, cx.limit(LIMIT)?)?;
                let seconds = output.stdout.trim().parse::<f64>();
                seconds.map_err(|_| Error::Output("worker stalled".to_owned(), output.stdout.clone()))
            }
        };
        let all = compare(
            cx.options.runs,
            vec![
                Candidate::ours("alone", measure(&[])),
                Candidate::ours("beside", measure(&["--beside"])),
            ],
        );
        report.note_errors(name, &all);
        let speed = |seconds: &f64| (STREAMS * bytes) as f64 / seconds / 1e6;
        let share = series(&all, "beside").zip(series(&all, "alone"));
        let share = share
            .and_then(|(beside, alone)| speedup(beside, alone))
            .map_or("-".to_owned(), |spread| (spread * 100.0).text(1));
        let mut row = vec![name.to_owned()];
        row.extend(all.iter().map(|series| series.cell(0, speed)));
        row.push(share);
        table.row(row);
    }
    report.paragraph(
        "99 downloads from `fullbore serve` on one connection at the defaults (16 MiB each over loopback, 4 MiB each over \
         the link), and the same after one more stream was opened whose reader never reads, and which has filled its window.",
    );
    report.table(&table);
    report.finish(cx, &[])
}
