//! Whether a long upload through a window of 64 KiB decays into tiny DATA frames, as curl's did against nghttp2's
//! servers (nghttp2 issue 1722): curl's 64 KiB buffer and a window of 65,535 leave a byte over each time.

use std::path::Path;
use std::time::Duration;

use super::{Case, MIB, Report, Section};
use crate::comparison::{Candidate, compare};
use crate::context::{Context, make_file, make_hollow_file};
use crate::error::Error;
use crate::markdown::Table;
use crate::peers::{self, uploads};
use crate::program::{self, Frames, LinkOptions};

const CURL_BYTES: u64 = 1_000_000_000;
const PUT_BYTES: u64 = 256 * MIB;
const PATH: LinkOptions = LinkOptions {
    rtt_ms: 0,
    gigabit: false,
};
const LIMIT: Duration = Duration::from_secs(90);

/// Windows of `fullbore serve`: the stream's and the connection's.
const WINDOWS: [(&str, &str); 4] = [
    ("65535", "65535"),
    ("65535", "65536"),
    ("65536", "65535"),
    ("65536", "65536"),
];

pub(super) fn run(cx: &Context) -> Result<Section, Error> {
    let folder = cx.folder("tiny")?;
    let (long, short) = (folder.join("long"), folder.join("short"));
    make_hollow_file(&long, CURL_BYTES)?;
    make_hollow_file(&short, PUT_BYTES)?;
    // nghttpd answers an upload with the file of that name.
    make_file(&folder.join("upload"), 0)?;
    let mut report = Report::new(Case::Tiny, "Tiny DATA frames");
    let mut servers = Vec::new();
    for (stream, connection) in WINDOWS {
        let windows = ["--stream-window", stream, "--connection-window", connection];
        servers.push((
            format!("{stream} / {connection}"),
            program::serve(cx, &folder, &windows)?,
        ));
    }
    servers.push(("defaults".to_owned(), program::serve(cx, &folder, &[])?));
    let nghttpd = peers::nghttpd(cx, &folder, &peers::window_flags(16));
    let nghttpd = nghttpd.map_err(|error| report.warn(format!("Skipped: {error}.")));
    let behind = servers.last().map_or(0, |(_, server)| server.port);
    let others = [
        ("nginx", peers::nginx(cx, &cx.folder("tiny-nginx")?)),
        ("lighttpd", uploads::lighttpd(cx, &cx.folder("tiny-lighttpd")?)),
        (
            "haproxy before serve",
            uploads::haproxy(cx, &cx.folder("tiny-haproxy")?, behind),
        ),
    ];
    let mut takers = Vec::new();
    for (name, server) in others {
        match server {
            Ok(server) => takers.push((name, server)),
            Err(error) => report.warn(format!("Skipped: {error}.")),
        }
    }

    let (long, short) = (long.as_path(), short.as_path());
    let mut candidates = Vec::new();
    for (windows, server) in &servers {
        candidates.push(Candidate::ours(format!("curl, 1 GB > serve, {windows}"), || {
            counted(cx, server.port, CURL_BYTES, &|url| curl(cx, long, url))
        }));
    }
    if let Some((windows, server)) = servers.first() {
        candidates.push(Candidate::ours(
            format!("put, 256 MiB > serve, {windows}"),
            || counted(cx, server.port, PUT_BYTES, &|url| put(cx, short, url)),
        ));
    }
    if let Ok(server) = &nghttpd {
        candidates.push(Candidate::ours("put, 256 MiB > nghttpd, 65535 / 65535", || {
            counted(cx, server.port, PUT_BYTES, &|url| put(cx, short, url))
        }));
        candidates.push(Candidate::peer("curl, 1 GB > nghttpd, 65535 / 65535", || {
            counted(cx, server.port, CURL_BYTES, &|url| curl(cx, long, url))
        }));
    }
    for (name, server) in &takers {
        candidates.push(Candidate::ours(
            format!("put, 256 MiB > {name}, its own windows"),
            || counted(cx, server.port, PUT_BYTES, &|url| put(cx, short, url)),
        ));
    }
    let all = compare(cx.options.runs, candidates);
    report.note_errors("upload", &all);

    let mut table = Table::new([
        "upload > server, stream / connection window",
        "DATA under 100 B",
        "DATA",
        "under 100 B, %",
        "longest run",
        "bytes a frame",
    ]);
    for series in &all {
        table.row([
            series.name.clone(),
            series.cell(0, |frames| frames.small_data as f64),
            series.cell(0, |frames| frames.data as f64),
            series.cell(2, |frames| {
                100.0 * frames.small_data as f64 / frames.data.max(1) as f64
            }),
            series.cell(0, |frames| frames.longest_small_data_run as f64),
            series.cell(0, |frames| frames.data_bytes as f64 / frames.data.max(1) as f64),
        ]);
    }
    report.paragraph(
        "Uploads on one stream with no delay and no limit of rate: the DATA frames of fewer than 100 bytes (an empty \
         last one counts), all DATA frames, and the longest run of small ones. Against a window of 65,535 a \
         sender with a buffer of 65,536 has a byte left over each time; a server that refills frame by frame lets \
         that grow into nothing but tiny frames.",
    );
    report.table(&table);
    report.finish(cx, &["curl", "nghttpd", "nginx", "lighttpd", "haproxy"])
}

fn curl(cx: &Context, file: &Path, url: &str) -> Result<f64, Error> {
    peers::curl_put(cx, file, url, CURL_BYTES, LIMIT)
}

fn put(cx: &Context, file: &Path, url: &str) -> Result<f64, Error> {
    program::put(cx, file, url, LIMIT)
}

/// The frames that an upload sent to the server at `port`.
fn counted(
    cx: &Context,
    port: u16,
    bytes: u64,
    upload: &dyn Fn(&str) -> Result<f64, Error>,
) -> Result<Frames, Error> {
    let link = program::counting_link(cx, port, PATH)?;
    upload(&format!("http://127.0.0.1:{}/upload", link.port))?;
    let frames = link.counted()?.to_server;
    match frames.data_bytes == bytes {
        true => Ok(frames),
        false => {
            let why = format!("{} bytes of DATA, not {bytes}", frames.data_bytes);
            Err(Error::Output("fullbore link".to_owned(), why))
        }
    }
}
