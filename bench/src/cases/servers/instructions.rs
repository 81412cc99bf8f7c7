//! Instructions of each server for a request in its own process, counted by callgrind without the kernel's. They are nearly the
//! same on a busy machine.

use super::{KIB_64, Shape};
use crate::cases::Report;
use crate::error::Error;
use crate::markdown::Table;
use crate::peers::callgrind;
use crate::peers::servers::{Kind, Load, Testbed};

pub(in crate::cases) const SHAPES: [Shape; 4] = [
    Shape::new("12 bytes, 1 x 1", 12, [1, 1], 2_000),
    Shape::new("12 bytes, 1 x 100", 12, [1, 100], 5_000),
    Shape::new("10 KB, 1 x 100", 10_000, [1, 100], 2_000),
    Shape::windowed("64 KiB, 1 x 32, windows of 16 MiB", KIB_64, [1, 32], 500, 24),
];
/// Go's runtime does not get on with valgrind, and of h2o, which ends without its leave, callgrind writes nothing.
const KINDS: [Kind; 5] = [Kind::Files, Kind::Memory, Kind::Hyper, Kind::Nghttpd, Kind::Nginx];

pub(super) fn run(report: &mut Report, testbed: &Testbed<'_>) {
    let mut table = Table::new(["bodies", "server", "instructions a request"]);
    let mut any = false;
    for shape in &SHAPES {
        let name = format!("instructions: {}", shape.name);
        if !testbed.cx.measures(&name) {
            continue;
        }
        for kind in KINDS {
            let Some(count) = report.record(
                &format!("{name}, {}", super::transport(false)),
                kind,
                measure(testbed, kind, shape.load),
            ) else {
                continue;
            };
            table.row([
                shape.name.to_owned(),
                kind.name().to_owned(),
                format!("{count:.0}"),
            ]);
            any = true;
        }
    }
    if any {
        report.paragraph("## Instructions");
        report.paragraph(
            "What each server takes for a request in its own process, in the clear, counted by callgrind; the kernel's work for it is \
             not in it. A server is slower so, and more requests wait for it at a time than without; `fullbore serve`, which looks once a \
             millisecond whether a file has changed, does that for every few requests.",
        );
        report.table(&table);
    }
}

/// Of a run with so many requests and of one with twice as many, the difference: without what a server does once.
pub(in crate::cases) fn measure(testbed: &Testbed<'_>, kind: Kind, load: Load) -> Result<f64, Error> {
    let count = |requests| {
        let file = testbed.cx.folder("callgrind")?.join("server");
        let testbed = Testbed {
            cx: testbed.cx,
            folder: testbed.folder.clone(),
            keys: testbed.keys.clone(),
            go: Err(Error::Missing("no server in Go here".to_owned())),
            under: Some(callgrind::under(&file)),
        };
        let server = testbed.start(kind, false)?;
        let loaded = server.load(Load { requests, ..load }, super::LIMIT);
        server.end();
        loaded?;
        callgrind::total(&file)
    };
    let (once, twice) = (count(load.requests)?, count(2 * load.requests)?);
    Ok(twice.saturating_sub(once) as f64 / load.requests as f64)
}
