//! Latency of one request at a time, with the same raw client for every server.

use super::{KIB_64, Rows, transport};
use crate::cases::Report;
use crate::markdown::Table;
use crate::peers::observe::Raw;
use crate::peers::servers::{Kind, Testbed};

const REQUESTS: u64 = 20_000;
const QUICK_REQUESTS: u64 = 2_000;
const BODIES: [(&str, u64); 2] = [("12 bytes", 12), ("64 KiB", KIB_64)];

pub(super) fn run(report: &mut Report, testbed: &Testbed<'_>) {
    let requests = if testbed.cx.options.quick {
        QUICK_REQUESTS
    } else {
        REQUESTS
    };
    let mut table = Table::new([
        "bodies",
        "transport",
        "server",
        "median, us",
        "99th of 100, us",
        "files ÷ it",
        "memory ÷ it",
    ]);
    let mut any = false;
    for (body, bytes) in BODIES {
        let name = format!("latency: {body}, 1 x 1");
        if !testbed.cx.measures(&name) {
            continue;
        }
        for secure in [false, true] {
            let rows = Rows::measure(report, testbed, &name, &Kind::SERVERS, secure, |server| {
                server.raw(bytes, requests)
            });
            for (series, ratios) in rows.with_ratios(|raw: &Raw| raw.median_micros) {
                let [files, memory] = ratios;
                table.row([
                    body.to_owned(),
                    transport(secure).to_owned(),
                    series.name.clone(),
                    series.cell(1, |raw| raw.median_micros),
                    series.cell(1, |raw| raw.p99_micros),
                    files,
                    memory,
                ]);
            }
            any = true;
        }
    }
    if any {
        report.paragraph("## Latency, 1 x 1");
        report.paragraph(&format!(
            "How long the middle one of {requests} requests took, of one client on a blocking socket that sends the next when the \
             last is answered, from the other core; ratios are of the medians."
        ));
        report.table(&table);
    }
}
