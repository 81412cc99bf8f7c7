//! Processor time of a server that reads an upload of 1 GiB and discards it.

use std::thread;

use super::{GIB, Rows, SETTLE, transport};
use crate::cases::Report;
use crate::markdown::Table;
use crate::peers::servers::{Kind, Testbed};

const NAME: &str = "1 GiB up";

/// One upload, as the server's processor time and the client's clock saw it.
struct Sample {
    seconds: f64,
    cpu: f64,
}

pub(super) fn run(report: &mut Report, testbed: &Testbed<'_>) {
    if !testbed.cx.measures(NAME) {
        return;
    }
    let megabytes = GIB as f64 / 1e6;
    let mut table = Table::new([
        "server",
        "transport",
        "MB a second",
        "CPU a MB, us",
        "files ÷ it",
        "memory ÷ it",
    ]);
    for secure in [false, true] {
        let rows = Rows::measure(report, testbed, NAME, &Kind::UPLOADS, secure, |server| {
            let before = server.cpu()?;
            let raw = server.upload(GIB)?;
            thread::sleep(SETTLE);
            Ok(Sample {
                seconds: raw.seconds,
                cpu: server.cpu()?.saturating_sub(before).as_secs_f64(),
            })
        });
        for (series, [files, memory]) in rows.with_ratios(|sample| sample.cpu) {
            table.row([
                series.name.clone(),
                transport(secure).to_owned(),
                series.cell(0, |sample| megabytes / sample.seconds),
                series.cell(0, |sample| sample.cpu * 1e6 / megabytes),
                files,
                memory,
            ]);
        }
    }
    report.paragraph(&format!("## {NAME}"));
    report.paragraph(
        "One PUT of 1 GiB, which the server reads and throws away: `fullbore serve --uploads discard`, and handlers that read a \
         body to its end. The client is the bench's own on a blocking socket, which writes 256 KiB at a time where the \
         windows let it; h2load would be the slower end. Windows are 16 MiB in hyper and nghttpd, 4 MiB, its largest, in Go. \
         nginx and h2o have no way to throw a body away: they store it, or pass it on.",
    );
    report.table(&table);
}
