//! What the soak does with other programs: curl and h2load against its servers, and a `fullbore serve` that is told to end
//! under load. `soak` draws them; each blocks the worker that runs it.

use std::process::Command;
use std::time::{Duration, Instant};

use fullbore::Client;
use http_body_util::BodyExt;
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::DEADLINE;
use super::operations::{Ground, Target};
use super::pattern::{Check, bytes};
use crate::dice::Dice;
use crate::fault::Fault;
use crate::fullbore::port;
use crate::process::{self, Running};
use crate::session::Session;

/// The kinds of operations with other programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Program {
    /// curl downloads.
    Curl,
    /// curl uploads.
    CurlUpload,
    /// curl is slow, and gives up midway.
    CurlGivesUp,
    /// h2load, over several connections.
    H2load,
    /// `fullbore serve` of its own, which SIGTERM drains.
    DrainedServe,
}

const ALL: [Program; 5] = [
    Program::Curl,
    Program::CurlUpload,
    Program::CurlGivesUp,
    Program::H2load,
    Program::DrainedServe,
];

impl Program {
    pub(super) fn draw(dice: &mut Dice) -> Self {
        dice.one_of(&ALL).copied().unwrap_or(Program::Curl)
    }

    /// Does it once.
    ///
    /// # Errors
    /// What was not as it should be.
    pub(super) fn run(
        self,
        session: &Session,
        ground: &Ground,
        runtime: &Handle,
        dice: &mut Dice,
    ) -> Result<(), String> {
        let Some(target) = dice.one_of(&ground.targets).cloned() else {
            return Ok(());
        };
        match self {
            Program::Curl => curl(session, &target, dice),
            Program::CurlUpload => curl_upload(session, ground, &target, dice),
            Program::CurlGivesUp => curl_gives_up(session, &target, dice),
            Program::H2load => h2load(session, &target, dice),
            Program::DrainedServe => drained_serve(session, ground, runtime, dice),
        }
    }
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn curl_command() -> Command {
    let mut command = Command::new("curl");
    command.args(["-sS", "-k", "--http2-prior-knowledge", "--fail"]);
    command
}

fn curl(session: &Session, target: &Target, dice: &mut Dice) -> Result<(), String> {
    let (url, salt, length) = target.source(dice);
    let folder = session.folder("curl").map_err(words)?;
    let file = folder.join(format!("{:016x}", dice.next()));
    let mut command = curl_command();
    command.arg("-o").arg(&file).arg(&url);
    process::run(&session.janitor, &mut command, DEADLINE).map_err(words)?;
    // An empty body makes no file.
    let came = std::fs::read(&file).unwrap_or_default();
    let _ = std::fs::remove_file(&file);
    let mut check = Check::new(salt);
    check.update(&came).map_err(|why| format!("curl, {url}: {why}"))?;
    if check.count() == length {
        Ok(())
    } else {
        Err(format!("curl, {url}: {} of {length} bytes came", check.count()))
    }
}

fn curl_upload(session: &Session, ground: &Ground, target: &Target, dice: &mut Dice) -> Result<(), String> {
    let (salt, length) = (dice.below(1 << 20), dice.size(20));
    let folder = session.folder("curl").map_err(words)?;
    let name = format!("{:016x}", dice.next());
    let file = folder.join(&name);
    std::fs::write(&file, bytes(salt, length)).map_err(words)?;
    let path = if target.files {
        name.clone()
    } else {
        format!("check/{salt}")
    };
    let mut command = curl_command();
    command.arg("-T").arg(&file).arg(target.url(&path));
    let said = process::run(&session.janitor, &mut command, DEADLINE);
    let _ = std::fs::remove_file(&file);
    let said = said.map_err(words)?.stdout;
    if !target.files {
        return match said.trim() == length.to_string() {
            true => Ok(()),
            false => Err(format!(
                "curl's upload of {length} bytes was answered with: {said}"
            )),
        };
    }
    let there = ground.stored.join(name);
    let stored = std::fs::read(&there).map_err(words)?;
    std::fs::remove_file(&there).map_err(words)?;
    if stored == bytes(salt, length) {
        Ok(())
    } else {
        Err(format!("curl's upload of {length} bytes was stored wrong"))
    }
}

fn curl_gives_up(session: &Session, target: &Target, dice: &mut Dice) -> Result<(), String> {
    let (url, ..) = target.source(dice);
    let rate = format!("{}k", dice.between(50, 1_000));
    let seconds = format!("0.{}", dice.between(1, 9));
    let mut command = curl_command();
    command.args([
        "-o",
        "/dev/null",
        "--limit-rate",
        &rate,
        "--max-time",
        &seconds,
        &url,
    ]);
    match process::run(&session.janitor, &mut command, DEADLINE) {
        Ok(_) => Ok(()),
        // 28: its time was over.
        Err(Fault::Failed(_, why)) if why.contains("exit status: 28") => Ok(()),
        Err(fault) => Err(fault.to_string()),
    }
}

fn h2load(session: &Session, target: &Target, dice: &mut Dice) -> Result<(), String> {
    let (url, ..) = target.source(dice);
    let requests = dice.between(10, 100);
    let mut command = Command::new("h2load");
    command
        .arg(format!("-n{requests}"))
        .arg(format!("-c{}", dice.between(1, 8)))
        .arg(format!("-m{}", dice.between(1, 20)))
        .arg(&url);
    let said = process::run(&session.janitor, &mut command, DEADLINE).map_err(words)?;
    let all = format!("{requests} succeeded, 0 failed, 0 errored, 0 timeout");
    if said.stdout.contains(&all) {
        return Ok(());
    }
    let told = said.stdout.lines().find(|line| line.starts_with("requests:"));
    Err(format!(
        "h2load, {url}: {}",
        told.unwrap_or("it told of no requests")
    ))
}

/// Whatever had its head when SIGTERM came has to come to its end, and the process too.
fn drained_serve(
    session: &Session,
    ground: &Ground,
    runtime: &Handle,
    dice: &mut Dice,
) -> Result<(), String> {
    let secure = dice.once_in(2);
    let folder = session.folder("soak").map_err(words)?;
    let mut command = session.fullbore.command("serve");
    command
        .arg(folder)
        .args(["--listen", "127.0.0.1:0"])
        .arg(if secure { "--self-signed" } else { "--plaintext" });
    let (running, lines) = Running::talking(&session.janitor, &mut command).map_err(words)?;
    let port = lines.after("listening on ", DEADLINE).map_err(words)?;
    let target = Target {
        address: ([127, 0, 0, 1], self::port(&port).map_err(words)?).into(),
        secure,
        files: true,
    };
    let wanted: Vec<_> = (0..dice.between(1, 10)).map(|_| target.source(dice)).collect();
    let builder = Client::builder().tls_config(std::sync::Arc::clone(&ground.trusting));
    let begun = Instant::now();
    let drained = async {
        let client = builder.build().map_err(words)?;
        let mut bodies = Vec::new();
        for (url, salt, length) in &wanted {
            bodies.push((client.get(url).await.map_err(words)?.into_body(), *salt, *length));
        }
        running.terminate().map_err(words)?;
        for (mut body, salt, length) in bodies {
            let mut check = Check::new(salt);
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|error| format!("while it was drained: {error}"))?;
                check.update(frame.data_ref().map_or(&[][..], |data| data))?;
            }
            if check.count() != length {
                return Err(format!(
                    "while it was drained {} of {length} bytes came",
                    check.count()
                ));
            }
        }
        client.shutdown().await;
        Ok::<_, String>(())
    };
    let done = runtime.block_on(async { timeout(DEADLINE, drained).await });
    done.map_err(|_| "a drained server's responses hang".to_owned())??;
    let left = DEADLINE
        .saturating_sub(begun.elapsed())
        .max(Duration::from_secs(1));
    match running.ended(left) {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(format!("a drained `fullbore serve` ended with {status}")),
        None => Err("a drained `fullbore serve` does not end".to_owned()),
    }
}
