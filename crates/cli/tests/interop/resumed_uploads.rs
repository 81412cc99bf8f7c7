//! Uploads that break off and are resumed, where other programs take part.
//!
//! tusd is the reference server of resumable uploads. It speaks the drafts -01 to -05 of the protocol, over HTTP/1.1, and has no
//! folder: each upload is a POST. nginx stands before `fullbore serve`, and passes no 104 response on.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;

use crate::files::{Scratch, write_noise};
use crate::fullbore::{Server, Transport, Uploads, Version, client};
use crate::peers::{Peer, trial};
use crate::process::{DEADLINE, Daemon, Outcome, ensure, run_any, spawn_on_free_port};
use crate::servers::Foreign;

/// What is uploaded: a few seconds at the rate of the first run.
const BYTES: u64 = 24 << 20;

/// All trials of this file.
pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial(&[Peer::Tusd], "put that is killed resumes at tusd", killed),
        trial(
            &[Peer::Tusd],
            "put resumes after tusd was stopped and started again",
            restarted,
        ),
        trial(
            &[Peer::Nginx],
            "put over HTTP/1.1 through nginx that is killed resumes",
            || through_nginx(Version::Http1),
        ),
        trial(
            &[Peer::Nginx],
            "put over HTTP/2 through nginx that is killed resumes",
            || through_nginx(Version::Http2),
        ),
    ]
}

/// tusd with uploads in this folder, on this port or on a free one.
fn tusd(scratch: &Scratch, port: Option<u16>) -> Outcome<(Daemon, u16)> {
    let uploads = scratch.folder("uploads")?;
    let command = |port: u16| {
        let mut command = Peer::Tusd.command()?;
        command
            .args([
                "-enable-experimental-protocol",
                "-host",
                "127.0.0.1",
                "-port",
                &port.to_string(),
            ])
            .arg("-upload-dir")
            .arg(&uploads)
            .stdout(Stdio::null());
        Ok(command)
    };
    match port {
        None => spawn_on_free_port(command),
        Some(port) => {
            let mut daemon = Daemon::spawn(&mut command(port)?)?;
            daemon.wait_port(port)?;
            Ok((daemon, port))
        }
    }
}

/// An upload of the file to tusd.
fn put(scratch: &Scratch, port: u16) -> Outcome<Command> {
    let mut command = client("put", Transport::Cleartext)?;
    command
        .current_dir(scratch.path())
        .env("XDG_STATE_HOME", scratch.path().join("state"))
        .args([
            "--http1.1",
            "-X",
            "POST",
            "-v",
            "-H",
            "upload-draft-interop-version: 6",
            "file",
        ])
        .arg(format!("http://127.0.0.1:{port}/files/"));
    Ok(command)
}

/// Starts an upload that takes long, and returns once tusd has a part of it.
fn begin(scratch: &Scratch, port: u16) -> Outcome<std::process::Child> {
    write_noise(9, BYTES, fs::File::create(scratch.path().join("file"))?)?;
    let child = put(scratch, port)?
        .args(["--limit-rate", "4M"])
        .stderr(Stdio::null())
        .spawn()?;
    let begun = Instant::now();
    while stored(scratch)?.is_none_or(|bytes| bytes.is_empty()) {
        ensure(begun.elapsed() < DEADLINE, || "tusd stores nothing".to_owned())?;
        sleep(Duration::from_millis(20));
    }
    Ok(child)
}

/// What tusd has of the upload.
fn stored(scratch: &Scratch) -> Outcome<Option<Vec<u8>>> {
    for entry in fs::read_dir(scratch.path().join("uploads"))? {
        let path = entry?.path();
        if path.extension().is_none() {
            return Ok(Some(fs::read(path)?));
        }
    }
    Ok(None)
}

/// The same command resumes.
fn resumes(scratch: &Scratch, port: u16) -> Outcome {
    let (status, _, said) = run_any(&mut put(scratch, port)?, std::io::sink(), DEADLINE)?;
    ensure(status.success(), || format!("{status}: {said}"))?;
    ensure(said.contains("resuming at "), || format!("not resumed: {said}"))?;
    let whole = fs::read(scratch.path().join("file"))?;
    ensure(stored(scratch)?.is_some_and(|stored| stored == whole), || {
        "tusd has another file".to_owned()
    })
}

fn killed() -> Outcome {
    let scratch = Scratch::new()?;
    let (mut tusd, port) = tusd(&scratch, None)?;
    let mut first = begin(&scratch, port)?;
    first.kill()?;
    first.wait()?;
    resumes(&scratch, port)?;
    tusd.check_alive()
}

fn restarted() -> Outcome {
    let scratch = Scratch::new()?;
    let (mut daemon, port) = tusd(&scratch, None)?;
    let mut first = begin(&scratch, port)?;
    daemon.kill();
    let status = first.wait()?;
    ensure(!status.success(), || {
        "an upload to a dead server succeeded".to_owned()
    })?;
    let (mut daemon, port) = tusd(&scratch, Some(port))?;
    resumes(&scratch, port)?;
    daemon.check_alive()
}

/// The same command resumes what arrived through nginx.
fn through_nginx(version: Version) -> Outcome {
    let scratch = Scratch::new()?;
    let uploads = scratch.folder("uploads")?;
    let mut server = Server::start(Transport::Cleartext, scratch.path(), Uploads::Into(&uploads))?;
    let location = format!(
        "location /up/ {{ proxy_pass {}/; proxy_http_version 1.1; proxy_request_buffering off; }}",
        server.url
    );
    let nginx = Foreign::start_nginx_of(version, &location, scratch.path())?;
    let put = || {
        let mut command = client("put", Transport::Cleartext)?;
        command
            .current_dir(scratch.path())
            .env("XDG_STATE_HOME", scratch.path().join("state"))
            .args(["-v", "file"])
            .arg(format!("{}/up/file", nginx.origin));
        Outcome::Ok(command)
    };
    write_noise(9, BYTES, fs::File::create(scratch.path().join("file"))?)?;
    let mut first = put()?;
    let mut first = first.args(["--limit-rate", "4M"]).stderr(Stdio::null()).spawn()?;
    let records = scratch.path().join("state/fullbore/uploads");
    let begun = Instant::now();
    while part(&uploads)? < 1 << 20 || !records.exists() {
        ensure(begun.elapsed() < DEADLINE, || {
            "the server stores nothing".to_owned()
        })?;
        sleep(Duration::from_millis(20));
    }
    first.kill()?;
    first.wait()?;
    let (status, _, said) = run_any(&mut put()?, std::io::sink(), DEADLINE)?;
    ensure(status.success(), || format!("{status}: {said}"))?;
    ensure(said.contains("resuming at "), || format!("not resumed: {said}"))?;
    let (sent, stored) = (
        fs::read(scratch.path().join("file"))?,
        fs::read(uploads.join("file"))?,
    );
    ensure(sent == stored, || "the server has another file".to_owned())?;
    server.check_alive()
}

/// The bytes of the newest unfinished upload. One that was begun before its resource was named may be there too.
fn part(uploads: &Path) -> Outcome<u64> {
    let Ok(entries) = fs::read_dir(uploads.join(".fullbore-uploads")) else {
        return Ok(0);
    };
    let mut newest = None;
    for entry in entries {
        let entry = entry?;
        if entry
            .path()
            .extension()
            .is_some_and(|extension| extension == "part")
        {
            // The server may remove it meanwhile.
            if let Ok(found) = entry.metadata() {
                newest = newest.max(Some((found.created().or(found.modified())?, found.len())));
            }
        }
    }
    Ok(newest.map_or(0, |(_, length)| length))
}
