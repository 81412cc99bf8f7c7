//! Whether a long upload through a window of 64 KiB decays into tiny DATA frames, as curl's did against nghttp2's
//! servers (nghttp2 issue 1722): curl's 64 KiB buffer and a window of 65,535 leave a byte over each time.

use std::path::Path;
use std::time::Duration;

use super::{Case, Draft, MIB, Section};
use crate::contest::{Contender, hold};
use crate::fault::Fault;
use crate::fullbore::{Frames, LongPath};
use crate::markdown::Table;
use crate::peers::{self, uploads};
use crate::session::{Session, make_file, make_hollow_file};

const CURL_BYTES: u64 = 1_000_000_000;
const PUT_BYTES: u64 = 256 * MIB;
const PATH: LongPath = LongPath {
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

pub(super) fn run(session: &Session) -> Result<Section, Fault> {
    let folder = session.folder("tiny")?;
    let (long, short) = (folder.join("long"), folder.join("short"));
    make_hollow_file(&long, CURL_BYTES)?;
    make_hollow_file(&short, PUT_BYTES)?;
    // nghttpd answers an upload with the file of that name.
    make_file(&folder.join("upload"), 0)?;
    let mut draft = Draft::new(Case::Tiny, "Tiny DATA frames");
    let mut servers = Vec::new();
    for (stream, connection) in WINDOWS {
        let windows = ["--stream-window", stream, "--connection-window", connection];
        servers.push((
            format!("{stream} / {connection}"),
            session.fullbore.serve(session, &folder, &windows)?,
        ));
    }
    servers.push((
        "defaults".to_owned(),
        session.fullbore.serve(session, &folder, &[])?,
    ));
    let nghttpd = peers::nghttpd(session, &folder, &peers::window_flags(16));
    let nghttpd = nghttpd.map_err(|fault| draft.complain(format!("Skipped: {fault}.")));
    let behind = servers.last().map_or(0, |(_, server)| server.port);
    let others = [
        ("nginx", peers::nginx(session, &session.folder("tiny-nginx")?)),
        (
            "lighttpd",
            uploads::lighttpd(session, &session.folder("tiny-lighttpd")?),
        ),
        (
            "haproxy before serve",
            uploads::haproxy(session, &session.folder("tiny-haproxy")?, behind),
        ),
    ];
    let mut takers = Vec::new();
    for (name, server) in others {
        match server {
            Ok(server) => takers.push((name, server)),
            Err(fault) => draft.complain(format!("Skipped: {fault}.")),
        }
    }

    let (long, short) = (long.as_path(), short.as_path());
    let mut contenders = Vec::new();
    for (windows, server) in &servers {
        contenders.push(Contender::ours(format!("curl, 1 GB > serve, {windows}"), || {
            counted(session, server.port, CURL_BYTES, &|url| curl(session, long, url))
        }));
    }
    if let Some((windows, server)) = servers.first() {
        contenders.push(Contender::ours(
            format!("put, 256 MiB > serve, {windows}"),
            || counted(session, server.port, PUT_BYTES, &|url| put(session, short, url)),
        ));
    }
    if let Ok(server) = &nghttpd {
        contenders.push(Contender::ours("put, 256 MiB > nghttpd, 65535 / 65535", || {
            counted(session, server.port, PUT_BYTES, &|url| put(session, short, url))
        }));
        contenders.push(Contender::peer("curl, 1 GB > nghttpd, 65535 / 65535", || {
            counted(session, server.port, CURL_BYTES, &|url| curl(session, long, url))
        }));
    }
    for (name, server) in &takers {
        contenders.push(Contender::ours(
            format!("put, 256 MiB > {name}, its own windows"),
            || counted(session, server.port, PUT_BYTES, &|url| put(session, short, url)),
        ));
    }
    let all = hold(session.runs, contenders);
    draft.note_faults("upload", &all);

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
    draft.say(
        "Uploads on one stream with no delay and no limit of rate: the DATA frames of fewer than 100 bytes (an empty \
         last one counts), all DATA frames, and the longest run of small ones. Against a window of 65,535 a \
         sender with a buffer of 65,536 has a byte left over each time; a server that refills frame by frame lets \
         that grow into nothing but tiny frames.",
    );
    draft.table(&table);
    draft.done(session, &["curl", "nghttpd", "nginx", "lighttpd", "haproxy"])
}

fn curl(session: &Session, file: &Path, url: &str) -> Result<f64, Fault> {
    peers::curl_put(session, file, url, CURL_BYTES, LIMIT)
}

fn put(session: &Session, file: &Path, url: &str) -> Result<f64, Fault> {
    session.fullbore.put(session, file, url, LIMIT)
}

/// The frames that an upload sent to the server at `port`.
fn counted(
    session: &Session,
    port: u16,
    bytes: u64,
    upload: &dyn Fn(&str) -> Result<f64, Fault>,
) -> Result<Frames, Fault> {
    let link = session.fullbore.counting_link(session, port, PATH)?;
    upload(&format!("http://127.0.0.1:{}/upload", link.port))?;
    let frames = link.counted()?.to_server;
    match frames.data_bytes == bytes {
        true => Ok(frames),
        false => {
            let why = format!("{} bytes of DATA, not {bytes}", frames.data_bytes);
            Err(Fault::Output("fullbore link".to_owned(), why))
        }
    }
}
