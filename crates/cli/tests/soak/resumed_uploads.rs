//! Uploads whose ends are killed: `fullbore put` of a large file to `fullbore serve --uploads`, while SIGKILL ends one of the two
//! at random moments. In the end each file is whole, and hardly anything was sent twice.

use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use fullbore_link::Link;
use fullbore_testing::pattern;
use fullbore_testing::process::{Daemon, free_port};
use fullbore_testing::random::Random;

use crate::support::program;
use crate::{Outcome, variable};

/// How long an upload may go without a byte. A retry waits for seconds.
const DEADLINE: Duration = Duration::from_secs(120);

/// What may be on its way when one end is killed: in the buffers of the client's kernel, of the link (its own and the one in
/// front of it), of the server's kernel and of the server.
const UNDER_WAY: u64 = 2 << 20;

fn serve(folder: &Path, port: u16) -> Outcome<Daemon> {
    let mut command = program(folder);
    command.args([
        "serve",
        "stored",
        "--plaintext",
        "--uploads",
        "stored",
        "--listen",
    ]);
    let mut daemon = Daemon::spawn(command.arg(format!("127.0.0.1:{port}")))?;
    daemon.wait_line("listening on ")?;
    Ok(daemon)
}

struct Upload<'a> {
    folder: &'a Path,
    link: &'a Link,
    number: u64,
}

impl Upload<'_> {
    fn put(&self) -> Outcome<Daemon> {
        let url = format!("http://{}/{}.bin", self.link.local_addr(), self.number);
        let mut command = program(self.folder);
        // What a client keeps between its runs.
        command.env("XDG_STATE_HOME", self.folder.join("state"));
        Ok(Daemon::spawn(
            command.args(["put", "--retry", "10", "source.bin"]).arg(url),
        )?)
    }

    /// Waits until the link has received so many bytes; `false` if the client has ended before.
    fn reaches(&self, client: &mut Daemon, bytes: u64) -> Outcome<bool> {
        let (mut last, mut at) = (0, Instant::now());
        loop {
            if client.try_wait()?.is_some() {
                return Ok(false);
            }
            let received = self.link.stats().to_server.received_bytes;
            if received >= bytes {
                return Ok(true);
            }
            if received != last {
                (last, at) = (received, Instant::now());
            }
            assert!(
                at.elapsed() < DEADLINE,
                "no byte for {DEADLINE:?}: {}",
                client.stderr_tail()
            );
            thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
#[ignore = "kills FULLBORE_KILLS processes, which takes a second each"]
fn an_upload_whose_ends_are_killed_sends_hardly_anything_twice() -> Outcome {
    let kills = variable("FULLBORE_KILLS", 10);
    let seed = variable("FULLBORE_SEED", 1);
    let mut random = Random::new(seed);
    let home = tempfile::tempdir()?;
    let folder = home.path();
    std::fs::create_dir(folder.join("stored"))?;
    let port = free_port()?;
    let mut server = serve(folder, port)?;
    let link = Link::builder()
        .rtt(Duration::from_millis(5))
        .rate(400_000_000)
        .buffer(256 << 10)
        .start(SocketAddr::from(([127, 0, 0, 1], port)))?;
    let (mut left, mut sizes, mut of_client, mut of_server) = (kills, 0, 0, 0);
    for number in 0.. {
        if left == 0 {
            break;
        }
        let size = random.between(9 << 20, 30 << 20);
        let content = pattern::bytes(random.below(1 << 20), size);
        std::fs::write(folder.join("source.bin"), &content)?;
        sizes += size;
        let upload = Upload {
            folder,
            link: &link,
            number,
        };
        let mut client = upload.put()?;
        loop {
            let from = link.stats().to_server.received_bytes;
            let enough = match left {
                0 => u64::MAX,
                _ => from + random.below(size),
            };
            if !upload.reaches(&mut client, enough)? {
                let status = client.wait()?;
                if status.success() {
                    break;
                }
                // It gives up, and the user types the command again.
                client = upload.put()?;
                continue;
            }
            left -= 1;
            if random.below(2) == 0 {
                of_client += 1;
                client.kill();
                let stored = folder.join(format!("stored/{number}.bin"));
                if stored.is_file() && std::fs::read(&stored)? == content {
                    // It was complete, and only the response was not received.
                    break;
                }
                assert!(!stored.exists(), "{number}.bin has its name and is a part");
                client = upload.put()?;
            } else {
                of_server += 1;
                server.kill();
                server = serve(folder, port)?;
            }
        }
        let stored = folder.join(format!("stored/{number}.bin"));
        assert!(std::fs::read(&stored)? == content, "{number}.bin is wrong");
        std::fs::remove_file(stored)?;
    }
    let sent = link.stats().to_server.received_bytes;
    let most = sizes + sizes / 20 + kills * UNDER_WAY;
    println!(
        "{of_client} clients and {of_server} servers killed; {sizes} bytes of files, {sent} sent, {} more for each kill; \
         FULLBORE_SEED={seed}",
        sent.saturating_sub(sizes) / kills.max(1)
    );
    assert!(sent <= most, "{sent} of at most {most} bytes");
    Ok(())
}
