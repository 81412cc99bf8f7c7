//! Go's net/http: the program of the interop suite, and a server that discards uploads.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::Keys;
use crate::context::Context;
use crate::error::Error;
use crate::process::{self, Output};

/// The sources, which lie beside the interop suite.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/cli/tests/peers/go");
const BUILD: Duration = Duration::from_secs(300);

/// Of the server that throws uploads away.
const DISCARD_SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/go");

/// The programs in Go, built.
pub(crate) struct Go {
    program: PathBuf,
    discard: PathBuf,
}

impl Go {
    /// Compiles it into the run's folder.
    pub(crate) fn build(cx: &Context) -> Result<Self, Error> {
        let build = |name: &str, sources: &str| {
            let program = cx.folder("go")?.join(name);
            let mut command = Command::new("go");
            command
                .current_dir(sources)
                .args(["build", "-o"])
                .arg(&program)
                .arg(".");
            process::run(&cx.reaper, &mut command, cx.limit(BUILD)?)?;
            Ok(program)
        };
        Ok(Self {
            program: build("peer", SOURCES)?,
            discard: build("discard", DISCARD_SOURCES)?,
        })
    }

    /// The command that reads uploads on one processor and throws them away, and says where.
    pub(crate) fn discard(&self, keys: Option<&Keys>) -> Command {
        let mut command = Command::new(&self.discard);
        command.env("GOMAXPROCS", "1");
        if let Some(keys) = keys {
            command.arg("-cert").arg(&keys.cert).arg("-key").arg(&keys.key);
        }
        command
    }

    /// The command that serves a folder on one processor, and says where.
    pub(crate) fn server(&self, folder: &Path, keys: Option<&Keys>) -> Command {
        let mut command = Command::new(&self.program);
        command
            .env("GOMAXPROCS", "1")
            .args(["server", "-root"])
            .arg(folder);
        if let Some(keys) = keys {
            command.arg("-cert").arg(&keys.cert).arg("-key").arg(&keys.key);
        }
        command
    }

    /// Uploads a file; wall time of the whole process.
    pub(crate) fn put(&self, cx: &Context, file: &Path, url: &str, limit: Duration) -> Result<f64, Error> {
        let output = self.run_put(cx, &[], file, url, limit)?;
        match output.stdout.trim() {
            line if line.starts_with('2') && line.ends_with("HTTP/2.0") => Ok(output.wall.as_secs_f64()),
            line => Err(unexpected(line)),
        }
    }

    /// Uploads a file on a connection that is open already; the seconds of that request.
    pub(crate) fn put_on_open_connection(
        &self,
        cx: &Context,
        file: &Path,
        url: &str,
        limit: Duration,
    ) -> Result<f64, Error> {
        let output = self.run_put(cx, &["-again"], file, url, limit)?;
        let line = output.stdout.trim();
        let seconds = match line.split_whitespace().collect::<Vec<_>>().as_slice() {
            [status, "HTTP/2.0", seconds] if status.starts_with('2') => seconds.parse().ok(),
            _ => None,
        };
        seconds.ok_or_else(|| unexpected(line))
    }

    fn run_put(
        &self,
        cx: &Context,
        flags: &[&str],
        file: &Path,
        url: &str,
        limit: Duration,
    ) -> Result<Output, Error> {
        let mut command = Command::new(&self.program);
        command.arg("put").args(flags).arg(file).arg(url);
        process::run(&cx.reaper, &mut command, cx.limit(limit)?)
    }
}

fn unexpected(line: &str) -> Error {
    Error::Output("Go's client".to_owned(), line.to_owned())
}
