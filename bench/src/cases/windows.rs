//! Fixed windows over six round trips: how much of `window / RTT` is reached.

use std::time::Duration;

use super::{Case, MIB, RATE, ROUND_TRIPS, Report, Section};
use crate::comparison::{Candidate, compare};
use crate::context::{Context, make_hollow_file};
use crate::error::Error;
use crate::markdown::Table;
use crate::peers;
use crate::program::{self, LinkOptions};
use crate::simulate;

/// Each window by name, in bytes, and as the power of two that nghttp takes (which is a byte less).
const WINDOWS: [(&str, u64, u32); 3] = [
    ("65,535 B", 65_535, 16),
    ("4 MiB", 4 * MIB, 22),
    ("16 MiB", 16 * MIB, 24),
];
/// A transfer takes about so long, if it is not of the fewest windows.
const SECONDS: f64 = 1.5;
/// Where the window is the limit, whatever credit was missing shows as one more round trip at the end: of eight that would
/// be 11 %, of 32 it is 3 %.
const FEWEST_WINDOWS: u64 = 32;
const LIMIT: Duration = Duration::from_secs(30);

pub(super) fn run(cx: &Context) -> Result<Section, Error> {
    let folder = cx.folder("windows")?;
    let file = folder.join("body");
    let mut report = Report::new(Case::Windows, "Fixed windows over a long path");
    let serve = program::serve(cx, &folder, &[])?;
    let mut table = Table::new([
        "window",
        "round trip",
        "window ÷ RTT, MB/s",
        "limit, MB/s",
        "MB sent",
        "limit, s",
        "get, s",
        "simulated, %",
        "get, %",
        "nghttp, %",
    ]);
    for (name, window, bits) in WINDOWS {
        for rtt_ms in ROUND_TRIPS {
            let rtt = f64::from(rtt_ms) / 1000.0;
            let bytes = bytes_for(window, rtt);
            make_hollow_file(&file, bytes)?;
            let link = program::link(
                cx,
                serve.port,
                LinkOptions {
                    rtt_ms,
                    gigabit: true,
                },
            )?;
            let url = format!("http://127.0.0.1:{}/body", link.port);
            let text = window.to_string();
            let windows = ["--stream-window", &text, "--connection-window", &text];
            let all = compare(
                cx.options.runs,
                vec![
                    Candidate::ours("get", || program::get(cx, &url, bytes, &windows, LIMIT)),
                    Candidate::peer("nghttp", || {
                        peers::nghttp(cx, &url, &peers::window_flags(bits), LIMIT)
                    }),
                ],
            );
            report.note_errors(&format!("{name} at {rtt_ms} ms"), &all);
            let limit = seconds_for(window, rtt, bytes);
            let speed = window as f64 / rtt;
            let mut row = vec![
                name.to_owned(),
                format!("{rtt_ms} ms"),
                format!("{:.2}", speed / 1e6),
                format!("{:.2}", speed.min(RATE) / 1e6),
                format!("{:.1}", bytes as f64 / 1e6),
                format!("{limit:.3}"),
            ];
            row.extend(
                all.iter()
                    .take(1)
                    .map(|series| series.cell(3, |seconds| *seconds)),
            );
            row.push(simulated(window, rtt_ms, bytes).map_or_else(
                || {
                    report.warn(format!("{name} at {rtt_ms} ms: the simulation came to no end."));
                    "failed".to_owned()
                },
                |seconds| format!("{:.1}", 100.0 * limit / seconds),
            ));
            row.extend(
                all.iter()
                    .map(|series| series.cell(1, |seconds| 100.0 * limit / seconds)),
            );
            table.row(row);
        }
    }
    report.paragraph(
        "A download from `fullbore serve` at 1 Gbit/s with a window that does not move, the same for the stream and \
         for the connection. The limit is the lesser of the link's rate and window ÷ RTT. `limit, s` is the time of \
         the whole transfer if all credit returned at once: RTT + bytes ÷ rate where the link is the limit, else a \
         round trip for each window of bytes and the last window at the link's rate. The last columns are in per cent \
         of that limit's speed; `simulated` is the engine alone, client and server, over the same path on a virtual clock. A receiver that returns credit in pieces of q bytes can reach window ÷ (RTT + q ÷ rate) \
         at the most.",
    );
    report.table(&table);
    report.note("nghttp has windows of 2^16-1, 2^22-1 and 2^24-1 bytes (`-w`, `-W`) and refills them when half is used up; fullbore when a thirty-second is (2,048 bytes at least), once it knows that the path waits for the window. Each program's own clock: nghttp's `responseEnd`, fullbore's `seconds`.");
    report.note("Over 1 ms, 65,535 bytes cross the link in half the round trip. What is missing there is what four processes on two cores take to be woken and to get a core, some 0.15 ms for each round trip: of the simulation, which has none of it, nearly nothing is. The link delivers in packets of a fiftieth of a round trip; as long as it was a fifth, it took ten of a hundred more by itself.");
    report.finish(cx, &["nghttp"])
}

/// The seconds of the same transfer through the engine alone.
fn simulated(window: u64, rtt_ms: u32, bytes: u64) -> Option<f64> {
    let rtt = Duration::from_millis(rtt_ms.into());
    simulate::download(u32::try_from(window).ok()?, rtt, RATE, bytes)
}

/// Whole windows that take about `SECONDS`.
fn bytes_for(window: u64, rtt: f64) -> u64 {
    let on_link = window as f64 / RATE;
    let fewest = if on_link < rtt { FEWEST_WINDOWS } else { 1 };
    window * fewest.max((SECONDS / rtt.max(on_link)) as u64)
}

/// The least time for whole windows of bytes.
fn seconds_for(window: u64, rtt: f64, bytes: u64) -> f64 {
    if window as f64 / RATE >= rtt {
        return rtt + bytes as f64 / RATE;
    }
    // The first byte of a window leaves when the credit of the window before it is back: a round trip later.
    bytes.div_ceil(window) as f64 * rtt + window as f64 / RATE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_window_costs_a_round_trip_for_each() {
        let seconds = seconds_for(65_535, 0.1, 10 * 65_535);
        assert!((seconds - (1.0 + 65_535.0 / RATE)).abs() < 1e-9, "{seconds}");
    }

    #[test]
    fn a_wide_window_leaves_the_link_as_the_limit() {
        let seconds = seconds_for(16 * MIB, 0.1, 64 * MIB);
        assert!(
            (seconds - (0.1 + 64.0 * MIB as f64 / RATE)).abs() < 1e-9,
            "{seconds}"
        );
    }

    #[test]
    fn a_transfer_is_whole_windows_and_never_too_few() {
        assert_eq!(bytes_for(16 * MIB, 0.23), 32 * 16 * MIB);
        assert_eq!(bytes_for(16 * MIB, 0.02), 11 * 16 * MIB);
        assert_eq!(bytes_for(65_535, 0.001), 1_500 * 65_535);
    }
}
