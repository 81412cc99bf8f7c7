//! How the commands of the program under test are called, and what they print.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::context::Context;
use crate::error::Error;
use crate::process::{self, Lines, Running};

/// How long `serve` and `link` may take until they say where they listen.
const START: Duration = Duration::from_secs(10);

/// How far away the server is, and at which rate: one Gbit/s, or as fast as this machine can.
#[derive(Clone, Copy)]
pub(crate) struct LinkOptions {
    pub(crate) rtt_ms: u32,
    pub(crate) gigabit: bool,
}

/// A path whose own queue is short, so that what is ahead of an urgent response waits in the sender.
#[derive(Clone, Copy)]
pub(crate) struct Narrow {
    pub(crate) rtt_ms: u32,
    pub(crate) megabits: u32,
}

/// What the socket of such a link holds at least, and what the link itself does.
const NARROW_SOCKET: u32 = 64 << 10;
const NARROW_BUFFER: u32 = 16 << 10;

impl Narrow {
    pub(crate) fn new(rtt_ms: u32, megabits: u32) -> Self {
        Narrow { rtt_ms, megabits }
    }

    /// Bytes a second.
    pub(crate) fn bytes(self) -> f64 {
        f64::from(self.megabits) * 125_000.0
    }

    /// What the link itself holds: 4 ms of its rate, within which its thread runs again.
    fn buffer(self) -> u32 {
        (self.megabits * 500).max(NARROW_BUFFER)
    }

    /// The most bytes that wait in the path itself.
    pub(crate) fn queue(self) -> f64 {
        f64::from(self.buffer() + NARROW_SOCKET.max(2 * self.buffer()))
    }
}

/// A process that listens on a port of 127.0.0.1, until it is dropped.
pub(crate) struct Served<'a> {
    pub(crate) running: Running<'a>,
    /// Whoever writes to a pipe that nobody reads ends.
    _lines: Lines,
    pub(crate) port: u16,
}

/// One of its commands, without arguments.
pub(crate) fn command(cx: &Context, subcommand: &str) -> Command {
    let mut command = Command::new(&cx.program);
    command.arg(subcommand);
    command
}

/// Its name and version.
pub(crate) fn version(cx: &Context) -> Result<String, Error> {
    let output = process::run(&cx.reaper, &mut command(cx, "--version"), START)?;
    Ok(output.stdout.trim().to_owned())
}

/// Starts a command that prints where it listens.
pub(crate) fn listening<'a>(cx: &'a Context, command: &mut Command) -> Result<Served<'a>, Error> {
    let (running, lines) = Running::with_lines(&cx.reaper, command)?;
    let port = port(&lines.after("listening on ", START)?)?;
    Ok(Served {
        running,
        _lines: lines,
        port,
    })
}

/// Serves a folder over cleartext and discards uploads.
pub(crate) fn serve<'a>(cx: &'a Context, folder: &Path, more: &[&str]) -> Result<Served<'a>, Error> {
    start_serve(cx, folder, "--plaintext", more)
}

/// Serves a folder on any port of an address.
pub(crate) fn serve_at<'a>(
    cx: &'a Context,
    folder: &Path,
    address: IpAddr,
    secure: bool,
    more: &[&str],
) -> Result<Served<'a>, Error> {
    let security = if secure { "--self-signed" } else { "--plaintext" };
    let mut command = command(cx, "serve");
    command.arg(folder).args([security, "--listen"]);
    command.arg(SocketAddr::new(address, 0).to_string());
    listening(cx, command.args(more))
}

/// The same over TLS, with a self-signed certificate.
pub(crate) fn serve_tls<'a>(cx: &'a Context, folder: &Path, more: &[&str]) -> Result<Served<'a>, Error> {
    start_serve(cx, folder, "--self-signed", more)
}

fn start_serve<'a>(
    cx: &'a Context,
    folder: &Path,
    security: &str,
    more: &[&str],
) -> Result<Served<'a>, Error> {
    let mut command = command(cx, "serve");
    command
        .arg(folder)
        .args([security, "--listen", "127.0.0.1:0", "--uploads", "discard"]);
    listening(cx, command.args(more))
}

/// A link to that port.
pub(crate) fn link(cx: &Context, to: u16, options: LinkOptions) -> Result<Served<'_>, Error> {
    let (to, rtt) = (format!("127.0.0.1:{to}"), format!("{}ms", options.rtt_ms));
    let mut command = command(cx, "link");
    command.args(["--listen", "127.0.0.1:0", "--to", &to, "--rtt", &rtt]);
    if options.gigabit {
        // So that windows limit a transfer, and not the link.
        command.args(["--rate", "1Gbit", "--buffer", "64MiB"]);
    }
    listening(cx, &mut command)
}

/// A link to that port with a short queue of its own.
pub(crate) fn narrow_link(cx: &Context, to: u16, path: Narrow) -> Result<Served<'_>, Error> {
    let mut command = command(cx, "link");
    command.args(["--listen", "127.0.0.1:0", "--to", &format!("127.0.0.1:{to}")]);
    command.args(["--rtt", &format!("{}ms", path.rtt_ms)]);
    command.args(["--rate", &format!("{}Mbit", path.megabits)]);
    command.args(["--buffer", &path.buffer().to_string()]);
    listening(cx, &mut command)
}

/// Downloads one URL of so many bytes and returns the seconds.
pub(crate) fn get(cx: &Context, url: &str, bytes: u64, more: &[&str], limit: Duration) -> Result<f64, Error> {
    run_get(cx, command(cx, "get").args(more).arg(url), bytes, limit)
}

/// Downloads the URLs of a list, of so many bytes together, and accepts any certificate.
pub(crate) fn get_list(
    cx: &Context,
    list: &Path,
    bytes: u64,
    more: &[&str],
    limit: Duration,
) -> Result<f64, Error> {
    let mut command = command(cx, "get");
    run_get(
        cx,
        command.args(more).args(["--insecure", "--input"]).arg(list),
        bytes,
        limit,
    )
}

fn run_get(cx: &Context, command: &mut Command, bytes: u64, limit: Duration) -> Result<f64, Error> {
    command.args(["--discard", "--json"]);
    let output = process::run(&cx.reaper, command, cx.limit(limit)?)?;
    let document = json("fullbore get", &output.stdout)?;
    let received = document.pointer("/totals/bytes").and_then(Value::as_u64);
    if received != Some(bytes) {
        return Err(unexpected(
            "fullbore get",
            &format!("{received:?} bytes, not {bytes}"),
        ));
    }
    number(&document, "/totals/seconds").ok_or_else(|| unexpected("fullbore get", "no `totals.seconds`"))
}

/// Uploads a file over HTTP/2, which peers are told to speak too, and returns the seconds.
pub(crate) fn put(cx: &Context, file: &Path, url: &str, limit: Duration) -> Result<f64, Error> {
    let mut command = command(cx, "put");
    command.args(["--http2", "--json"]).arg(file).arg(url);
    let output = process::run(&cx.reaper, &mut command, cx.limit(limit)?)?;
    let line = output.stderr.lines().find(|line| line.starts_with('{'));
    let document = json("fullbore put", line.unwrap_or(""))?;
    number(&document, "/seconds").ok_or_else(|| unexpected("fullbore put", "no `seconds`"))
}

pub(crate) fn json(program: &str, text: &str) -> Result<Value, Error> {
    serde_json::from_str(text).map_err(|error| unexpected(program, &format!("not JSON: {error}")))
}

fn number(document: &Value, pointer: &str) -> Option<f64> {
    document.pointer(pointer).and_then(Value::as_f64)
}

/// The port of an address or a URL.
pub(crate) fn port(address: &str) -> Result<u16, Error> {
    let port = address
        .rsplit(':')
        .next()
        .and_then(|port| port.trim_end_matches('/').parse().ok());
    port.ok_or_else(|| unexpected("fullbore", &format!("`{address}` is no address with a port")))
}

fn unexpected(program: &str, why: &str) -> Error {
    Error::Output(program.to_owned(), why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_read_off_an_address_and_off_a_url() {
        assert_eq!(port("127.0.0.1:8080").ok(), Some(8080));
        assert_eq!(port("https://127.0.0.1:8080/").ok(), Some(8080));
        assert!(port("nowhere").is_err());
    }
}
