//! What the soak does with other programs: curl and h2load against its servers, and a `fullbore serve` that SIGTERM ends
//! under load. Each blocks the worker that runs it.

use std::path::Path;
use std::process::Command;

use fullbore_testing::pattern;
use fullbore_testing::process::{run_any, run_text};
use fullbore_testing::random::Random;
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::Outcome;
use crate::body::check_all;
use crate::operations::{Shared, Target, salt};
use crate::run::{DEADLINE, serve};

/// The kinds of operations with other programs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Program {
    Curl,
    CurlUpload,
    /// curl reads slowly and gives up midway.
    CurlGivesUp,
    /// h2load over several connections.
    H2load,
    /// A `fullbore serve` that drains after SIGTERM.
    DrainedServe,
}

use Program::*;

const ALL: [Program; 5] = [Curl, CurlUpload, CurlGivesUp, H2load, DrainedServe];

impl Program {
    pub(crate) fn draw(random: &mut Random) -> Self {
        random.choose(&ALL).copied().unwrap_or(Curl)
    }

    /// Does it once.
    ///
    /// # Errors
    /// What was not as it should be.
    pub(crate) fn run(self, root: &Path, shared: &Shared, runtime: &Handle, random: &mut Random) -> Outcome {
        let target = random.choose(&shared.targets).ok_or("no server")?;
        match self {
            Curl => curl(target, random),
            CurlUpload => curl_upload(shared, target, random),
            CurlGivesUp => curl_gives_up(target, random),
            H2load => h2load(target, random),
            DrainedServe => runtime.block_on(drained_serve(root, shared, random)),
        }
    }
}

fn curl_command() -> Command {
    let mut command = Command::new("curl");
    command.args(["-sS", "-k", "--http2-prior-knowledge", "--fail"]);
    command
}

fn curl(target: &Target, random: &mut Random) -> Outcome {
    let (url, salt, length) = target.source(random);
    let (status, body, stderr) = run_any(curl_command().arg(&url), Vec::new(), DEADLINE)?;
    let mut check = pattern::Check::new(salt);
    check.update(&body)?;
    match status.success() && check.count() == length {
        true => Ok(()),
        false => Err(format!(
            "curl, {url}: {status}, {} of {length} bytes; {stderr}",
            check.count()
        )
        .into()),
    }
}

fn curl_upload(shared: &Shared, target: &Target, random: &mut Random) -> Outcome {
    let (salt, length) = (salt(random), random.magnitude(20));
    let name = format!("{:016x}", random.next());
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), pattern::bytes(salt, length))?;
    let path = if target.files {
        name.clone()
    } else {
        format!("check/{salt}")
    };
    let said = run_text(curl_command().arg("-T").arg(file.path()).arg(target.url(&path)))?;
    let arrived = if target.files {
        let stored = shared.stored.join(name);
        let content = std::fs::read(&stored)?;
        std::fs::remove_file(&stored)?;
        content == pattern::bytes(salt, length)
    } else {
        said.trim() == length.to_string()
    };
    match arrived {
        true => Ok(()),
        false => Err(format!("curl's upload of {length} bytes did not arrive: {said}").into()),
    }
}

fn curl_gives_up(target: &Target, random: &mut Random) -> Outcome {
    let (url, ..) = target.source(random);
    let mut command = curl_command();
    command.args(["--limit-rate", &format!("{}k", random.between(50, 1_000))]);
    command.args(["--max-time", &format!("0.{}", random.between(1, 9)), &url]);
    let (status, _, stderr) = run_any(&mut command, std::io::sink(), DEADLINE)?;
    match status.code() {
        // 28: --max-time was over.
        Some(0 | 28) => Ok(()),
        _ => Err(format!("curl, {url}: {status}; {stderr}").into()),
    }
}

fn h2load(target: &Target, random: &mut Random) -> Outcome {
    let (url, ..) = target.source(random);
    let requests = random.between(10, 100);
    let mut command = Command::new("h2load");
    command.args([format!("-n{requests}"), format!("-c{}", random.between(1, 8))]);
    command.args([format!("-m{}", random.between(1, 20)), url.clone()]);
    let said = run_text(&mut command)?;
    match said.contains(&format!("{requests} succeeded, 0 failed, 0 errored, 0 timeout")) {
        true => Ok(()),
        false => Err(format!("h2load, {url}: {said}").into()),
    }
}

/// Every response that began before SIGTERM must come to its end, and so must the process.
async fn drained_serve(root: &Path, shared: &Shared, random: &mut Random) -> Outcome {
    let tls = random.once_in(2);
    let security: &[&str] = if tls { &["--self-signed"] } else { &["--plaintext"] };
    let (mut daemon, address) = serve(root, security)?;
    let target = Target {
        address,
        tls,
        files: true,
    };
    let client = shared.new_client()?;
    let drained = async {
        let mut bodies = Vec::new();
        for _ in 0..random.between(1, 10) {
            let (url, salt, length) = target.source(random);
            bodies.push((client.get(&url).await?.into_body(), salt, length));
        }
        daemon.terminate()?;
        for (body, salt, length) in bodies {
            check_all(body, salt, length, None).await?;
        }
        client.shutdown().await;
        Outcome::Ok(())
    };
    timeout(DEADLINE, drained)
        .await
        .map_err(|_| "the responses of a drained server hang")??;
    let status = daemon.wait()?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("a drained `fullbore serve` ended with {status}").into()),
    }
}
