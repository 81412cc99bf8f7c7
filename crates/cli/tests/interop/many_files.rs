//! Thousands of files of 10 KB with one `fullbore get`: on one connection from `fullbore serve` and from nghttpd, and on many
//! from nginx, which ends each after some requests.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use libtest_mimic::Trial;

use crate::files::{Scratch, workshop, write_noise};
use crate::fullbore::{self, Server, Transport, Uploads, Version};
use crate::peers::{Peer, trial};
use crate::process::{DEADLINE, Daemon, Fault, Outcome, ensure, run_into};
use crate::relay::Relay;
use crate::servers::Foreign;

const FILES: usize = 10_000;
const BYTES: u64 = 10_000;

/// All trials of this file.
pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial(
            &[],
            "get: 10,000 files of 10 KB from fullbore serve on one connection",
            || {
                let server = Server::start(Transport::Cleartext, site()?, Uploads::None)?;
                fetch_all(&server.url)
            },
        ),
        trial(
            &[Peer::Nghttpd],
            "get: 10,000 files of 10 KB from nghttpd on one connection",
            || {
                let server =
                    Foreign::start_over(Peer::Nghttpd, Version::Http2, Transport::Cleartext, site()?)?;
                fetch_all(&server.origin)
            },
        ),
        trial(
            &[Peer::Nginx],
            "get: 10,000 files of 10 KB from nginx at 100 ms, which ends each connection after 1,000 requests",
            || fetch_from_afar(1_000, FILES),
        ),
        trial(
            &[Peer::Nginx],
            "get: 2,000 files of 10 KB from nginx at 100 ms, which ends each connection after 100 requests",
            || fetch_from_afar(100, 2_000),
        ),
        trial(
            &[Peer::Nginx],
            "get: 1,000 files of 10 KB from nginx at 100 ms, which ends each connection after 20 requests",
            || fetch_from_afar(20, 1_000),
        ),
    ]
}

/// From nginx over a long path. nginx ends each connection by a GOAWAY after `requests` (`keepalive_requests`).
fn fetch_from_afar(requests: usize, files: usize) -> Outcome {
    let server = Foreign::start_nginx(&format!("keepalive_requests {requests};"), site()?)?;
    let to = server.origin.trim_start_matches("http://").to_owned();
    let mut link = Command::new(fullbore::program());
    let mut link = Daemon::spawn(link.args(["link", "--handshake", "--rtt", "100ms", "--to", &to]))?;
    let origin = format!("http://{}", link.wait_line("listening on ")?.trim());
    let scratch = Scratch::new()?;
    let list: String = (0..files)
        .map(|index| format!("{origin}/{}\n", name(index)))
        .collect();
    let list = scratch.file("list", &list)?;
    let folder = scratch.folder("downloaded")?;
    let mut command = fullbore::client("get", Transport::Cleartext)?;
    let command = command.arg("-i").arg(list).arg("--dir").arg(&folder);
    run_into(command, std::io::sink(), DEADLINE).map_err(|fault| server.blame(&fault))?;
    check(&folder, files)
}

/// Through a relay, which counts connections.
fn fetch_all(origin: &str) -> Outcome {
    let relay = Relay::to(origin)?;
    let scratch = Scratch::new()?;
    let list: String = (0..FILES)
        .map(|index| format!("{}/{}\n", relay.origin(), name(index)))
        .collect();
    let list = scratch.file("list", &list)?;
    let folder = scratch.folder("downloaded")?;
    let mut command = fullbore::client("get", Transport::Cleartext)?;
    run_into(
        // That a short path takes no more is proven on a clock that stands still (`tests/pool.rs` of the library): by this one
        // the path is long where others keep the machine busy.
        command
            .args(["--connections", "1", "-i"])
            .arg(list)
            .arg("--dir")
            .arg(&folder),
        std::io::sink(),
        DEADLINE,
    )?;

    check(&folder, FILES)?;
    ensure(relay.connections() == 1, || {
        format!("{} connections for one origin", relay.connections())
    })
}

/// Whether the folder has the first files of the site, and nothing else.
fn check(folder: &Path, files: usize) -> Outcome {
    let site = site()?;
    for index in 0..files {
        let name = name(index);
        let got = fs::read(folder.join(&name)).map_err(|error| format!("{name} did not arrive: {error}"))?;
        ensure(got == fs::read(site.join(&name))?, || {
            format!("{name} arrived, but is another ({} bytes)", got.len())
        })?;
    }
    let count = fs::read_dir(folder)?.count();
    ensure(count == files, || format!("{count} files for {files}"))
}

/// The folder of the files, no two of them alike.
fn site() -> Outcome<&'static Path> {
    static SITE: OnceLock<Outcome<PathBuf>> = OnceLock::new();
    SITE.get_or_init(|| {
        let site = workshop().join("many");
        fs::create_dir_all(&site)?;
        for index in 0..FILES {
            write_noise(index as u64 + 1, BYTES, File::create(site.join(name(index)))?)?;
        }
        Ok(site)
    })
    .as_deref()
    .map_err(Fault::clone)
}

fn name(index: usize) -> String {
    format!("file-{index:05}.bin")
}
