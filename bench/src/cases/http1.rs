//! HTTP/1.1 beside hyper-util's server of both versions, which has hyper's HTTP/1.1 too: what fullbore's checks and limits cost.
//! One server thread on one core, h2load on the other, many short measurements in turn.

use super::servers::{Shape, Trial, transport};
use super::{Case, Report, Section, series};
use crate::comparison::{Candidate, compare, ratio_of};
use crate::context::Context;
use crate::error::Error;
use crate::markdown::Table;
use crate::peers::servers::{Kind, Testbed};

const KB_10: u64 = 10_000;
const GIB: u64 = 1 << 30;
const KINDS: [Kind; 3] = [Kind::Memory, Kind::HyperAuto, Kind::HyperAutoLimited];
/// How long a measurement should take. 1 GiB takes as long as it takes.
const MEASURE_SECONDS: f64 = 0.3;

const SHAPES: [Shape; 5] = [
    Shape::http1("12 bytes, 1 connection", 12, 1, 500),
    Shape::http1("12 bytes, 32 connections", 12, 32, 2_000),
    Shape::http1("10 KB, 1 connection", KB_10, 1, 500),
    Shape::http1("10 KB, 32 connections", KB_10, 32, 1_000),
    Shape::http1("1 GiB, 1 connection", GIB, 1, 1),
];

pub(super) fn run(cx: &Context) -> Result<Section, Error> {
    let mut report = Report::new(Case::Http1, "HTTP/1.1 beside hyper-util's auto");
    let testbed = Testbed::new(cx, "http1", &[])?;
    report.paragraph(
        "One server thread on one core, h2load with HTTP/1.1 on another. The servers run the same handler, which answers from memory. \
         The processor time is the server's, with the kernel's for it, for a response; the ratio is that of the two measurements of one \
         run, so less than 1 is less time.",
    );
    let mut table = Table::new([
        "responses",
        "transport",
        "fullbore: CPU, us",
        "auto: CPU, us",
        "fullbore ÷ auto",
        "auto, limited: CPU, us",
        "fullbore ÷ it",
    ]);
    for shape in SHAPES.iter().filter(|shape| cx.measures(shape.name)) {
        for secure in [false, true] {
            let transport = transport(secure);
            let candidates = KINDS.iter().map(|&kind| {
                let mut trial = Trial::new(&testbed, kind, secure, shape.load, MEASURE_SECONDS);
                Candidate::new(kind.name(), kind.ours(), move || trial.measure())
            });
            let all = compare(cx.options.runs, candidates.collect());
            report.note_errors(&format!("{}, {transport}", shape.name), &all);
            let digits = if shape.load.bytes == GIB { 0 } else { 2 };
            let cell = |kind: Kind| {
                series(&all, kind.name())
                    .map_or("-".to_owned(), |one| one.cell(digits, |sample| sample.cpu * 1e6))
            };
            let ratio = |kind: Kind| {
                series(&all, Kind::Memory.name())
                    .zip(series(&all, kind.name()))
                    .and_then(|(own, peer)| ratio_of(own, peer, |sample| sample.cpu))
                    .map_or("-".to_owned(), |spread| spread.text(2))
            };
            table.row([
                shape.name.to_owned(),
                transport.to_owned(),
                cell(Kind::Memory),
                cell(Kind::HyperAuto),
                ratio(Kind::HyperAuto),
                cell(Kind::HyperAutoLimited),
                ratio(Kind::HyperAutoLimited),
            ]);
        }
    }
    report.table(&table);
    report.note("fullbore checks targets, hosts and the framing of each request, and limits the time of its peer; hyper-util's auto, which is hyper with its defaults, does not. `limited` has a timer, and so hyper's default limit of 30 s on the time of a head: a runtime with a timer gives the kernel a deadline whenever it waits.");
    report.note(
        "TLS is 1.3 with AES-128-GCM and an ECDSA certificate on P-256, by the same rustls configuration.",
    );
    report.finish(cx, &["h2load"])
}
