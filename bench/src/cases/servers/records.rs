//! TLS records of each server's responses, counted by a relay between it and h2load.

use super::{GIB, KIB_64, Shape};
use crate::cases::Report;
use crate::error::Error;
use crate::markdown::Table;
use crate::peers::observe::Records;
use crate::peers::servers::{Kind, Load, Testbed};

const SHAPES: [Shape; 5] = [
    Shape::new("12 bytes, 1 x 1", 12, [1, 1], 200),
    Shape::new("12 bytes, 1 x 100", 12, [1, 100], 2_000),
    Shape::new("10 KB, 1 x 100", 10_000, [1, 100], 1_000),
    Shape::windowed("64 KiB, 1 x 32, windows of 16 MiB", KIB_64, [1, 32], 400, 24),
    Shape::new("1 GiB, 1 x 1", GIB, [1, 1], 1),
];

pub(super) fn run(report: &mut Report, testbed: &Testbed<'_>) {
    let mut table = Table::new([
        "bodies",
        "server",
        "records a response",
        "records a MB",
        "bytes a record",
    ]);
    let mut any = false;
    for shape in &SHAPES {
        let name = format!("records: {}", shape.name);
        if !testbed.cx.measures(&name) {
            continue;
        }
        for kind in Kind::SERVERS {
            let records = measure(testbed, kind, shape.load);
            let Some(records) = report.record(&format!("{name}, {}", super::transport(true)), kind, records)
            else {
                continue;
            };
            table.row(row(shape, kind, records));
            any = true;
        }
    }
    if any {
        report.paragraph("## TLS records");
        report.paragraph(
            "Records of application data that the server sends, the handshake's left out, and the bytes of HTTP/2 in each: \
             16,384 at the most. A MB of bodies of that length makes 61.04 records, with the heads of frames 61.07 at the least.",
        );
        report.table(&table);
    }
}

/// The difference of two loads, one twice the other: without the handshake's.
fn measure(testbed: &Testbed<'_>, kind: Kind, load: Load) -> Result<Records, Error> {
    let server = testbed.start(kind, true)?;
    let once = server.records(load)?;
    let twice = server.records(Load {
        requests: 2 * load.requests,
        ..load
    })?;
    Ok(Records {
        records: twice.records.saturating_sub(once.records),
        bytes: twice.bytes.saturating_sub(once.bytes),
    })
}

fn row(shape: &Shape, kind: Kind, records: Records) -> [String; 5] {
    let count = records.records as f64;
    let requests = shape.load.requests as f64;
    let megabytes = requests * shape.load.bytes as f64 / 1e6;
    let digits = if shape.load.bytes == GIB { 0 } else { 2 };
    [
        shape.name.to_owned(),
        kind.name().to_owned(),
        format!("{:.digits$}", count / requests),
        match shape.load.bytes {
            12 => "-".to_owned(),
            _ => format!("{:.2}", count / megabytes),
        },
        format!("{:.0}", records.bytes as f64 / count.max(1.0)),
    ]
}
