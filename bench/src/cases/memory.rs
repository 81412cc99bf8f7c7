//! What a server keeps after 100,000 responses and as many uploads of 64 KiB, what 10,000 idle connections take, and how often
//! it allocates for a response.

use super::{Case, Report, Section};
use crate::context::Context;
use crate::error::Error;
use crate::heap::Heap;
use crate::markdown::Table;
use crate::peers::servers::{Kind, Load, Server, Testbed};
use std::time::Duration;

const KIB_64: u64 = 64 << 10;
const MIB: u64 = 1 << 20;
const MIB_16: u64 = 16 << 20;
const LIMIT: Duration = Duration::from_secs(120);
/// After so many requests the memory is looked at, and again at the end.
const MARKS: [u64; 2] = [10_000, 100_000];
const QUICK_MARKS: [u64; 2] = [1_000, 5_000];
const CONNECTIONS: u32 = 10_000;
const QUICK_CONNECTIONS: u32 = 1_000;
/// What is asked of fullbore.
const MOST_GROWTH_KIB: f64 = 1_024.0;
const MOST_IDLE_KIB: f64 = 8.0;

pub(super) fn run(cx: &Context) -> Result<Section, Error> {
    let mut report = Report::new(Case::Memory, "What a server keeps");
    let testbed = Testbed::new(cx, "memory", &[12, KIB_64, MIB, MIB_16])?;
    report.paragraph(
        "Servers of one thread. `RSS` is what the system says of the process; `live heap` is what a counting allocator says, in a \
         program of its own that runs the same server. fullbore from memory and hyper run the same handler.",
    );
    growth(&mut report, &testbed);
    idle(&mut report, &testbed);
    allocations(&mut report, &testbed);
    report.finish(cx, &["h2load", "nghttpd", "h2o", "nginx", "go"])
}

/// Memory in KiB at two moments.
struct Grown {
    rss: [f64; 2],
    /// Only where allocations are counted.
    live: Option<[f64; 2]>,
}

fn growth(report: &mut Report, testbed: &Testbed<'_>) {
    let marks = if testbed.cx.options.quick {
        QUICK_MARKS
    } else {
        MARKS
    };
    let [first, last] = marks;
    let mut table = Table::new([
        "bodies of 64 KiB",
        "transport",
        "server",
        &format!("RSS at {first}, KiB"),
        &format!("at {last}"),
        "difference",
        &format!("live heap at {first}, KiB"),
        &format!("at {last}"),
        "difference",
    ]);
    let mut any = false;
    for (way, upload) in [("responses", false), ("uploads", true)] {
        if !testbed.cx.measures(&format!("growth: {way}")) {
            continue;
        }
        any = true;
        for secure in [false, true] {
            for kind in Kind::SERVERS {
                let kind = match (kind, upload) {
                    (Kind::Go, true) => Kind::GoDiscard,
                    (kind, true) if !Kind::UPLOADS.contains(&kind) => continue,
                    (kind, _) => kind,
                };
                let transport = if secure { "TLS" } else { "cleartext" };
                let row = format!("{way}, {transport}");
                if let Some(grown) = report.record(&row, kind, grown(testbed, kind, secure, upload, marks)) {
                    judge(
                        report,
                        kind,
                        &format!("{row}: RSS grew by"),
                        difference(grown.rss),
                        MOST_GROWTH_KIB,
                    );
                    table.row(growth_row(way, transport, kind, &grown));
                }
            }
        }
    }
    if any {
        report.paragraph(&format!("## After {last} responses and uploads"));
        report.paragraph(
            "One client on one connection asks for 64 KiB, or sends as much, again and again, and the server's memory is looked at \
             while the connection stays open. Asked of fullbore: that RSS grows by no more than 1,024 KiB between the two.",
        );
        report.table(&table);
    }
}

fn grown(
    testbed: &Testbed<'_>,
    kind: Kind,
    secure: bool,
    upload: bool,
    marks: [u64; 2],
) -> Result<Grown, Error> {
    let server = testbed.start(kind, secure)?;
    let rss = server.at_marks(KIB_64, upload, marks, || Ok(rss(&server)))?;
    drop(server);
    let live = match counts(kind) {
        false => None,
        true => {
            let server = testbed.start_counted(kind, secure)?;
            Some(server.at_marks(KIB_64, upload, marks, || live(&server))?)
        }
    };
    Ok(Grown { rss, live })
}

fn growth_row(way: &str, transport: &str, kind: Kind, grown: &Grown) -> [String; 9] {
    let cell = |figure: f64| format!("{figure:.0}");
    let [rss_first, rss_last] = grown.rss;
    let heap = |figure: &dyn Fn([f64; 2]) -> f64| {
        grown
            .live
            .map_or("-".to_owned(), |live| format!("{:.1}", figure(live)))
    };
    [
        way.to_owned(),
        transport.to_owned(),
        kind.name().to_owned(),
        cell(rss_first),
        cell(rss_last),
        format!("{:+.0}", difference(grown.rss)),
        heap(&|[first, _]| first),
        heap(&|[_, last]| last),
        heap(&difference),
    ]
}

/// What a connection costs that rests, in KiB and allocations.
struct Idle {
    rss: f64,
    live: Option<f64>,
}

fn idle(report: &mut Report, testbed: &Testbed<'_>) {
    if !testbed.cx.measures("idle") {
        return;
    }
    let connections = if testbed.cx.options.quick {
        QUICK_CONNECTIONS
    } else {
        CONNECTIONS
    };
    let mut table = Table::new(["server", "RSS a connection, KiB", "live heap a connection, KiB"]);
    for kind in Kind::SERVERS {
        let Some(idle) = report.record("idle", kind, rested(testbed, kind, connections)) else {
            continue;
        };
        judge(report, kind, "an idle connection takes", idle.rss, MOST_IDLE_KIB);
        table.row([
            kind.name().to_owned(),
            format!("{:.2}", idle.rss),
            idle.live.map_or("-".to_owned(), |live| format!("{live:.2}")),
        ]);
    }
    report.paragraph(&format!("## {connections} idle connections"));
    report.paragraph(
        "Cleartext connections that made one request of 12 bytes each and then rested for three seconds: what the server's memory grew \
         by, for each. The kernel's own is not in it. Asked of fullbore: no more than 8 KiB.",
    );
    report.table(&table);
}

fn rested(testbed: &Testbed<'_>, kind: Kind, connections: u32) -> Result<Idle, Error> {
    let each = |before: f64, after: f64| (after - before) / f64::from(connections);
    let server = testbed.start(kind, false)?;
    // One connection comes before, so that what a server does once is not counted.
    server.raw(12, 10)?;
    let before = rss(&server);
    let after = server.with_idle(connections, || Ok(rss(&server)))?;
    drop(server);
    let counted = match counts(kind) {
        false => None,
        true => {
            let server = testbed.start_counted(kind, false)?;
            server.raw(12, 10)?;
            let before = live(&server)?;
            let after = server.with_idle(connections, || live(&server))?;
            Some(each(before, after))
        }
    };
    Ok(Idle {
        rss: each(before, after),
        live: counted,
    })
}

fn allocations(report: &mut Report, testbed: &Testbed<'_>) {
    if !testbed.cx.measures("allocations") {
        return;
    }
    let mut table = Table::new([
        "bodies",
        "transport",
        "server",
        "allocations a response",
        "bytes allocated a response",
    ]);
    for (name, bytes, requests) in [
        ("12 bytes", 12, 10_000),
        ("64 KiB", KIB_64, 4_000),
        ("1 MiB", MIB, 400),
        ("16 MiB", MIB_16, 50),
    ] {
        for secure in [false, true] {
            let transport = if secure { "TLS" } else { "cleartext" };
            for kind in [Kind::Files, Kind::Memory, Kind::Hyper] {
                let allocated = allocated(testbed, kind, secure, bytes, requests);
                if let Some(heap) = report.record(&format!("allocations, {name}"), kind, allocated) {
                    table.row([
                        name.to_owned(),
                        transport.to_owned(),
                        kind.name().to_owned(),
                        format!("{:.2}", heap.allocations as f64 / requests as f64),
                        format!("{:.0}", heap.bytes as f64 / requests as f64),
                    ]);
                }
            }
        }
    }
    report.paragraph("## Allocations");
    report.paragraph(
        "What each server allocates for a response, with the runtime and TLS under it, 32 at once on one connection. Files up \
         to 64 KiB are answered from memory that is kept, longer ones are opened; rustls allocates for each record.",
    );
    report.table(&table);
}

/// What a load allocates that is twice as long, less what the shorter one does: the connection's own is in both.
fn allocated(
    testbed: &Testbed<'_>,
    kind: Kind,
    secure: bool,
    bytes: u64,
    requests: u64,
) -> Result<Heap, Error> {
    let server = testbed.start_counted(kind, secure)?;
    let load = Load {
        requests,
        connections: 1,
        streams: 32,
        window_bits: 30,
        bytes,
        http1: false,
    };
    let twice = Load {
        requests: 2 * requests,
        ..load
    };
    server.load(load, LIMIT)?;
    let before = server.heap()?;
    server.load(load, LIMIT)?;
    let between = server.heap()?;
    server.load(twice, LIMIT)?;
    let after = server.heap()?;
    let (once, twice) = (between - before, after - between);
    Ok(Heap {
        allocations: twice.allocations.saturating_sub(once.allocations),
        bytes: twice.bytes.saturating_sub(once.bytes),
        live: twice.live - once.live,
    })
}

/// Whether the bench has this server on the allocator that counts.
fn counts(kind: Kind) -> bool {
    matches!(kind, Kind::Files | Kind::Memory | Kind::Hyper)
}

fn rss(server: &Server<'_>) -> f64 {
    server.memory().unwrap_or(0) as f64 / 1024.0
}

fn live(server: &Server<'_>) -> Result<f64, Error> {
    Ok(server.heap()?.live as f64 / 1024.0)
}

fn difference([first, last]: [f64; 2]) -> f64 {
    last - first
}

/// Says when fullbore does not do what is asked of it.
fn judge(report: &mut Report, kind: Kind, what: &str, figure: f64, most: f64) {
    if kind.ours() && figure > most {
        report.warn(format!(
            "{}: {what} {figure:.1} KiB, more than {most:.0} KiB.",
            kind.name()
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fullbore_is_held_to_what_is_asked_of_it() {
        for (kind, figure, notes) in [
            (Kind::Files, 8.0, 0),
            (Kind::Files, 8.5, 1),
            (Kind::Hyper, 80.0, 0),
        ] {
            let mut report = Report::new(Case::Memory, "");
            judge(
                &mut report,
                kind,
                "an idle connection takes",
                figure,
                MOST_IDLE_KIB,
            );
            assert_eq!(report.notes.len(), notes, "{figure}");
        }
    }
}
