//! Ten thousand files of 10 KB with one `fullbore get`, on one connection: from `fullbore serve` and from nghttpd.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libtest_mimic::Trial;

use crate::files::{Scratch, workshop, write_noise};
use crate::fullbore::{self, Server, Transport, Uploads, Version};
use crate::peers::{Peer, trial};
use crate::process::{DEADLINE, Fault, Outcome, ensure, run_into};
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
    ]
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

    let site = site()?;
    for index in 0..FILES {
        let name = name(index);
        let got = fs::read(folder.join(&name)).map_err(|error| format!("{name} did not arrive: {error}"))?;
        ensure(got == fs::read(site.join(&name))?, || {
            format!("{name} arrived, but is another ({} bytes)", got.len())
        })?;
    }
    let count = fs::read_dir(&folder)?.count();
    ensure(count == FILES, || format!("{count} files for {FILES}"))?;
    ensure(relay.connections() == 1, || {
        format!("{} connections for one origin", relay.connections())
    })
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
