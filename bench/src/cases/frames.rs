//! How many WINDOW_UPDATE frames each receiver sends for a MiB, counted by `fullbore link` as they pass.

use std::time::Duration;

use super::{Case, MIB, Report, Section};
use crate::comparison::{Candidate, compare};
use crate::context::{Context, make_file};
use crate::error::Error;
use crate::markdown::Table;
use crate::peers;
use crate::program::{self, Counted, Frames, LinkOptions};

const BYTES: u64 = 64 * MIB;
const PATH: LinkOptions = LinkOptions {
    rtt_ms: 20,
    gigabit: true,
};
const LIMIT: Duration = Duration::from_secs(60);

/// The frames of one transfer: DATA one way, WINDOW_UPDATE the other.
struct Transfer {
    data: Frames,
    credit: Frames,
}

pub(super) fn run(cx: &Context) -> Result<Section, Error> {
    let folder = cx.folder("frames")?;
    let file = folder.join("body");
    make_file(&file, BYTES)?;
    // nghttpd answers an upload with the file of that name.
    make_file(&folder.join("upload"), 0)?;
    let mut report = Report::new(Case::Frames, "WINDOW_UPDATE frames");
    let serve = program::serve(cx, &folder, &[])?;
    let nghttpd = peers::nghttpd(cx, &folder, &peers::window_flags(24));
    let nghttpd = nghttpd.map_err(|error| report.warn(format!("Skipped: {error}.")));

    let through = |port: u16, name: &str, transfer: &dyn Fn(&str) -> Result<f64, Error>| {
        let link = program::counting_link(cx, port, PATH)?;
        transfer(&format!("http://127.0.0.1:{}/{name}", link.port))?;
        link.counted()
    };
    let download = |transfer: &dyn Fn(&str) -> Result<f64, Error>| {
        whole(through(serve.port, "body", transfer)?, |both| Transfer {
            data: both.to_client,
            credit: both.to_server,
        })
    };
    let upload = |port: u16, transfer: &dyn Fn(&str) -> Result<f64, Error>| {
        whole(through(port, "upload", transfer)?, |both| Transfer {
            data: both.to_server,
            credit: both.to_client,
        })
    };
    let nghttp = |bits: Option<u32>| {
        let flags = bits.map(peers::window_flags);
        download(&|url| peers::nghttp(cx, url, flags.as_ref().map_or(&[], |flags| flags), LIMIT))
    };
    let mut candidates = vec![
        Candidate::ours("fullbore get", || {
            download(&|url| program::get(cx, url, BYTES, &[], LIMIT))
        }),
        Candidate::peer("curl", || download(&|url| peers::curl_get(cx, url, BYTES, LIMIT))),
        Candidate::peer("nghttp, 16 MiB", || nghttp(Some(24))),
        Candidate::peer("nghttp, 1 GiB", || nghttp(Some(30))),
        Candidate::ours("fullbore serve < fullbore put", || {
            upload(serve.port, &|url| program::put(cx, &file, url, LIMIT))
        }),
        Candidate::ours("fullbore serve < curl", || {
            upload(serve.port, &|url| peers::curl_put(cx, &file, url, BYTES, LIMIT))
        }),
    ];
    if let Ok(server) = &nghttpd {
        candidates.push(Candidate::peer("nghttpd, 16 MiB < curl", || {
            upload(server.port, &|url| peers::curl_put(cx, &file, url, BYTES, LIMIT))
        }));
    }
    let all = compare(cx.options.runs, candidates);
    report.note_errors("64 MiB", &all);

    let mut table = Table::new([
        "receiver",
        "stream, a MiB",
        "connection, a MiB",
        "together, a MiB",
        "DATA frames",
        "DATA frames for each WINDOW_UPDATE",
    ]);
    let mib =
        |count: u64, transfer: &Transfer| count as f64 * MIB as f64 / transfer.data.data_bytes.max(1) as f64;
    let together = |credit: &Frames| credit.stream_window_updates + credit.connection_window_updates;
    for series in &all {
        table.row([
            series.name.clone(),
            series.cell(2, |one| mib(one.credit.stream_window_updates, one)),
            series.cell(2, |one| mib(one.credit.connection_window_updates, one)),
            series.cell(2, |one| mib(together(&one.credit), one)),
            series.cell(0, |one| one.data.data as f64),
            series.cell(0, |one| {
                one.data.data as f64 / together(&one.credit).max(1) as f64
            }),
        ]);
    }
    report.paragraph(
        "64 MiB on one stream over 20 ms at 1 Gbit/s: how many WINDOW_UPDATE frames the receiver sent for each MiB \
         it received, the one that opens the connection's window among them.",
    );
    report.table(&table);
    report.note("fullbore and curl at their defaults; nghttp and nghttpd with `-w24 -W24` (16 MiB) or `-w30 -W30` (1 GiB), as their default of 65,535 bytes would be another case.");
    report.note("The link counts frames and not their order, so whether one came after the last DATA is for the engine's tests to tell.");
    report.finish(cx, &["curl", "nghttp", "nghttpd"])
}

/// The transfer, if all its bytes passed.
fn whole(both: Counted, side: impl Fn(Counted) -> Transfer) -> Result<Transfer, Error> {
    let transfer = side(both);
    match transfer.data.data_bytes {
        BYTES => Ok(transfer),
        other => Err(Error::Output(
            "fullbore link".to_owned(),
            format!("{other} bytes of DATA, not {BYTES}"),
        )),
    }
}
