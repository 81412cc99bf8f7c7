//! Many connections with one request each under way: the processor time of a response, when each finds the memory of its
//! connection cold. Servers of one thread on one core, h2load on the other.

use super::{Case, Report, Section, series};
use crate::comparison::{Candidate, Series, compare, ratio_of};
use crate::context::Context;
use crate::error::Error;
use crate::markdown::Table;
use crate::peers::servers::{Kind, Load, Server, Testbed};

const BYTES: [u64; 2] = [9, 10_000];
const CONNECTIONS: [u32; 3] = [100, 1_000, 8_000];
const KINDS: [Kind; 5] = [Kind::Files, Kind::Hyper, Kind::Nghttpd, Kind::H2o, Kind::Nginx];

/// How long a measurement takes, after the warm-up.
const SECONDS: u32 = 2;

/// What a server did under one load.
struct Sample {
    a_second: f64,
    /// Seconds of the server's processor time a response.
    cpu: f64,
    peak_memory: f64,
}

pub(super) fn run(cx: &Context) -> Result<Section, Error> {
    let mut report = Report::new(Case::Connections, "Many connections, one request each");
    let testbed = Testbed::new(cx, "connections", &BYTES)?;
    report.paragraph(
        "One server thread on one core and h2load on another, which has one request under way on each connection and sends \
         the next when the response has arrived. The figures are taken once all connections are open: their handshakes are \
         not in them. The processor time is the server's, with the kernel's for it; the ratio is of that time, `fullbore \
         serve` to each server, so less than 1 is less time. Memory is the server's peak since its start. All but hyper send \
         files.",
    );
    for bytes in BYTES {
        for connections in CONNECTIONS {
            for secure in [false, true] {
                measure(&mut report, &testbed, bytes, connections, secure);
            }
        }
    }
    report.note(
        "TLS is 1.3 with AES-128-GCM and an ECDSA certificate on P-256. hyper answers from memory, on tokio's current thread.",
    );
    report.finish(cx, &["h2load", "nghttpd", "h2o", "nginx"])
}

fn measure(report: &mut Report, testbed: &Testbed<'_>, bytes: u64, connections: u32, secure: bool) {
    let transport = if secure { "TLS" } else { "cleartext" };
    let name = format!("{bytes} bytes, {connections} connections, {transport}");
    if !testbed.cx.measures(&name) {
        return;
    }
    let load = Load {
        requests: 0,
        connections,
        streams: 1,
        window_bits: 30,
        bytes,
        http1: false,
    };
    let candidates = KINDS.iter().map(|&kind| {
        Candidate::new(kind.name(), kind.ours(), move || {
            // Each begins with a new process: thousands of closed connections leave traces in its memory.
            take(&testbed.start(kind, secure)?, load)
        })
    });
    let all = compare(testbed.cx.options.runs, candidates.collect());
    let is_missing = |series: &&Series<Sample>| matches!(series.error, Some(Error::Missing(_)));
    report.note_errors(&name, all.iter().filter(|series| !is_missing(series)));
    let mut table = Table::new([
        "server",
        "responses a second",
        "CPU a response, us",
        "peak memory, MiB",
        "fullbore ÷ it",
    ]);
    for one in &all {
        let ratio = series(&all, Kind::Files.name())
            .filter(|own| own.name != one.name)
            .and_then(|own| ratio_of(own, one, |sample| sample.cpu));
        table.row([
            one.name.clone(),
            match is_missing(&one) {
                true => "not installed".to_owned(),
                false => one.cell(0, |sample| sample.a_second),
            },
            one.cell(1, |sample| sample.cpu * 1e6),
            one.cell(1, |sample| sample.peak_memory),
            ratio.map_or("-".to_owned(), |spread| spread.text(2)),
        ]);
    }
    report.paragraph(&format!("## {name}"));
    report.table(&table);
}

fn take(server: &Server<'_>, load: Load) -> Result<Sample, Error> {
    let steady = server.load_steadily(load, warm_up(load.connections), SECONDS)?;
    Ok(Sample {
        a_second: steady.responses as f64 / steady.seconds,
        cpu: steady.cpu.as_secs_f64() / steady.responses as f64,
        peak_memory: server.peak_memory().unwrap_or(0) as f64 / f64::from(1 << 20),
    })
}

/// Long enough for so many handshakes, in seconds. A connection that does not fit the backlog tries again after a second, and
/// after two more.
fn warm_up(connections: u32) -> u32 {
    3 + connections / 1_600
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_warm_up_grows_with_the_handshakes() {
        assert_eq!(CONNECTIONS.map(warm_up), [3, 3, 8]);
    }
}
