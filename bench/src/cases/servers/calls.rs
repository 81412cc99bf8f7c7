//! System calls of each server for a request and for a MB, counted by strace in a short run of its own.

use super::{GIB, KIB_64, Shape};
use crate::cases::Report;
use crate::error::Error;
use crate::markdown::Table;
use crate::peers::observe::Calls;
use crate::peers::servers::{Kind, Testbed};

const SHAPES: [Shape; 6] = [
    Shape::new("12 bytes, 1 x 1", 12, [1, 1], 1_000),
    Shape::new("12 bytes, 1 x 100", 12, [1, 100], 10_000),
    Shape::new("10 KB, 1 x 100", 10_000, [1, 100], 4_000),
    Shape::windowed("64 KiB, 1 x 32, windows of 65,535 B", KIB_64, [1, 32], 1_000, 16),
    Shape::windowed("64 KiB, 1 x 32, windows of 16 MiB", KIB_64, [1, 32], 1_000, 24),
    Shape::new("1 GiB, 1 x 1", GIB, [1, 1], 1),
];

pub(super) fn run(report: &mut Report, testbed: &Testbed<'_>) {
    let mut table = Table::new([
        "bodies",
        "transport",
        "server",
        "reads a request",
        "writes",
        "waits",
        "others",
        "all",
        "all a MB",
    ]);
    let mut any = false;
    for shape in &SHAPES {
        let name = format!("calls: {}", shape.name);
        if !testbed.cx.measures(&name) {
            continue;
        }
        for secure in [false, true] {
            for kind in Kind::SERVERS {
                let calls = measure(testbed, kind, secure, shape);
                let Some(calls) =
                    report.record(&format!("{name}, {}", super::transport(secure)), kind, calls)
                else {
                    continue;
                };
                table.row(row(shape, kind, secure, calls));
                any = true;
            }
        }
    }
    if any {
        report.paragraph("## System calls");
        report.paragraph(
            "Calls a request, those for the connection and its handshake among them: `read`, `recv` and their kin, `write`, `send`, \
             `sendfile`, `splice` and theirs, waits for the sockets, and others, which are above all those for files, \
             the `vmsplice` that fills the pipe of a `splice` among them. strace slows a server down, so that more requests \
             wait for it at a time than without.",
        );
        report.table(&table);
    }
}

fn measure(testbed: &Testbed<'_>, kind: Kind, secure: bool, shape: &Shape) -> Result<Calls, Error> {
    let server = testbed.start(kind, secure)?;
    // What a server does once is no part of a request.
    server.load(shape.load, super::LIMIT)?;
    server.calls(shape.load)
}

fn row(shape: &Shape, kind: Kind, secure: bool, calls: Calls) -> [String; 9] {
    let requests = shape.load.requests as f64;
    let digits = if shape.load.bytes == GIB { 0 } else { 2 };
    let cell = |count: u64| format!("{:.digits$}", count as f64 / requests);
    let megabytes = requests * shape.load.bytes as f64 / 1e6;
    [
        shape.name.to_owned(),
        super::transport(secure).to_owned(),
        kind.name().to_owned(),
        cell(calls.reads),
        cell(calls.writes),
        cell(calls.waits),
        cell(calls.others),
        cell(calls.all()),
        match shape.load.bytes {
            12 => "-".to_owned(),
            _ => format!("{:.2}", calls.all() as f64 / megabytes),
        },
    ]
}
