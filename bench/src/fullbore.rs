//! The program under test: how its commands are called and what they print. Every case calls it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::fault::Fault;
use crate::process::{self, Lines, Running, Said};
use crate::session::Session;

/// How long `serve` and `link` may take until they say where they listen.
const START: Duration = Duration::from_secs(10);

/// The release binary.
pub(crate) struct Fullbore {
    program: PathBuf,
}

/// How far away the server is, and at which rate: one Gbit/s, or as fast as this machine can.
#[derive(Clone, Copy)]
pub(crate) struct LongPath {
    pub(crate) rtt_ms: u32,
    pub(crate) gigabit: bool,
}

/// A server, or a link to one, until it is dropped.
pub(crate) struct Served<'a> {
    _running: Running<'a>,
    _lines: Lines,
    pub(crate) port: u16,
}

/// A link that counts the frames of the one connection made through it.
pub(crate) struct CountingLink<'a> {
    running: Running<'a>,
    lines: Lines,
    pub(crate) port: u16,
}

/// The frames of one direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Frames {
    pub(crate) data: u64,
    pub(crate) data_bytes: u64,
    /// DATA frames of fewer than 100 bytes, the last of a stream among them.
    pub(crate) small_data: u64,
    pub(crate) longest_small_data_run: u64,
    pub(crate) stream_window_updates: u64,
    pub(crate) connection_window_updates: u64,
}

/// Both directions of a connection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Counted {
    pub(crate) to_server: Frames,
    pub(crate) to_client: Frames,
}

impl Fullbore {
    /// `FULLBORE_BIN`, or `target/release/fullbore` from here.
    pub(crate) fn find() -> Result<Self, Fault> {
        let named = std::env::var_os("FULLBORE_BIN").map(PathBuf::from);
        let program = named.unwrap_or_else(|| PathBuf::from("target/release/fullbore"));
        let there = program.canonicalize().map_err(|_| {
            let hint = "(cargo build --release -p fullbore-cli, or set FULLBORE_BIN)";
            Fault::Missing(format!("{} {hint}", program.display()))
        });
        Ok(Self { program: there? })
    }

    /// One of its commands, without arguments.
    pub(crate) fn command(&self, subcommand: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(subcommand);
        command
    }

    /// Its name and version.
    pub(crate) fn version(&self, session: &Session) -> Result<String, Fault> {
        let said = process::run(&session.janitor, &mut self.command("--version"), START)?;
        Ok(said.stdout.trim().to_owned())
    }

    /// Serves a folder in the clear and throws uploads away.
    pub(crate) fn serve<'a>(
        &self,
        session: &'a Session,
        folder: &Path,
        more: &[&str],
    ) -> Result<Served<'a>, Fault> {
        self.start_serve(session, folder, "--plaintext", more)
    }

    /// The same over TLS, with a certificate that nobody trusts.
    pub(crate) fn serve_tls<'a>(
        &self,
        session: &'a Session,
        folder: &Path,
        more: &[&str],
    ) -> Result<Served<'a>, Fault> {
        self.start_serve(session, folder, "--self-signed", more)
    }

    fn start_serve<'a>(
        &self,
        session: &'a Session,
        folder: &Path,
        security: &str,
        more: &[&str],
    ) -> Result<Served<'a>, Fault> {
        let mut command = self.command("serve");
        command
            .arg(folder)
            .args([security, "--listen", "127.0.0.1:0", "--uploads", "discard"])
            .args(more);
        let (running, lines) = Running::talking(&session.janitor, &mut command)?;
        let port = port(&lines.after("listening on ", START)?)?;
        Ok(Served {
            _running: running,
            _lines: lines,
            port,
        })
    }

    /// A link to that port.
    pub(crate) fn link<'a>(
        &self,
        session: &'a Session,
        to: u16,
        path: LongPath,
    ) -> Result<Served<'a>, Fault> {
        let (running, lines, port) = self.start_link(session, to, path, &[])?;
        Ok(Served {
            _running: running,
            _lines: lines,
            port,
        })
    }

    /// A link to that port which counts frames.
    pub(crate) fn counting_link<'a>(
        &self,
        session: &'a Session,
        to: u16,
        path: LongPath,
    ) -> Result<CountingLink<'a>, Fault> {
        let (running, lines, port) = self.start_link(session, to, path, &["--count-frames", "--json"])?;
        Ok(CountingLink { running, lines, port })
    }

    fn start_link<'a>(
        &self,
        session: &'a Session,
        to: u16,
        path: LongPath,
        more: &[&str],
    ) -> Result<(Running<'a>, Lines, u16), Fault> {
        let (to, rtt) = (format!("127.0.0.1:{to}"), format!("{}ms", path.rtt_ms));
        let mut command = self.command("link");
        command
            .args(["--listen", "127.0.0.1:0", "--to", &to, "--rtt", &rtt])
            .args(more);
        if path.gigabit {
            command.args(["--rate", "1Gbit"]);
        }
        let (running, lines) = Running::talking(&session.janitor, &mut command)?;
        let port = port(&lines.after("listening on ", START)?)?;
        Ok((running, lines, port))
    }

    /// Downloads one URL of so many bytes, keeps nothing, and tells the seconds.
    pub(crate) fn get(
        &self,
        session: &Session,
        url: &str,
        bytes: u64,
        more: &[&str],
        limit: Duration,
    ) -> Result<f64, Fault> {
        let mut command = self.command("get");
        command.args(["--discard", "--json"]).args(more).arg(url);
        got(
            &process::run(&session.janitor, &mut command, session.limit(limit)?)?,
            bytes,
        )
    }

    /// Downloads the URLs of a list, of so many bytes together, and accepts any certificate.
    pub(crate) fn get_list(
        &self,
        session: &Session,
        list: &Path,
        bytes: u64,
        more: &[&str],
        limit: Duration,
    ) -> Result<f64, Fault> {
        let mut command = self.command("get");
        command
            .args(["--discard", "--json", "--insecure"])
            .args(more)
            .arg("--input")
            .arg(list);
        got(
            &process::run(&session.janitor, &mut command, session.limit(limit)?)?,
            bytes,
        )
    }

    /// Uploads a file and tells the seconds.
    pub(crate) fn put(
        &self,
        session: &Session,
        file: &Path,
        url: &str,
        limit: Duration,
    ) -> Result<f64, Fault> {
        let mut command = self.command("put");
        command.arg("--json").arg(file).arg(url);
        let said = process::run(&session.janitor, &mut command, session.limit(limit)?)?;
        let line = said
            .stderr
            .lines()
            .find(|line| line.starts_with('{'))
            .unwrap_or("");
        let document = json("fullbore put", line)?;
        number(&document, "/seconds").ok_or_else(|| unexpected("fullbore put", "no `seconds`"))
    }
}

fn got(said: &Said, bytes: u64) -> Result<f64, Fault> {
    let document = json("fullbore get", &said.stdout)?;
    match document.pointer("/totals/bytes").and_then(Value::as_u64) {
        Some(received) if received == bytes => {}
        received => {
            return Err(unexpected(
                "fullbore get",
                &format!("{received:?} bytes, not {bytes}"),
            ));
        }
    }
    number(&document, "/totals/seconds").ok_or_else(|| unexpected("fullbore get", "no `totals.seconds`"))
}

impl CountingLink<'_> {
    /// The frames of the connection, which is over or is ended with the link.
    pub(crate) fn counted(self) -> Result<Counted, Fault> {
        let Self { running, lines, .. } = self;
        let mut line = lines.next(Duration::from_secs(1));
        running.ask_to_end();
        if line.is_none() {
            line = lines.next(Duration::from_secs(1));
        }
        counted(&line.ok_or_else(|| unexpected("fullbore link", "no line for the connection"))?)
    }
}

fn counted(line: &str) -> Result<Counted, Fault> {
    let document = json("fullbore link", line)?;
    Ok(Counted {
        to_server: frames(&document, "to_server")?,
        to_client: frames(&document, "to_client")?,
    })
}

fn frames(document: &Value, direction: &str) -> Result<Frames, Fault> {
    let count = |name: &str| {
        let found = document
            .pointer(&format!("/{direction}/frames/{name}"))
            .and_then(Value::as_u64);
        found.ok_or_else(|| unexpected("fullbore link", &format!("no `{direction}.frames.{name}`")))
    };
    Ok(Frames {
        data: count("data")?,
        data_bytes: count("data_bytes")?,
        small_data: count("small_data")?,
        longest_small_data_run: count("longest_small_data_run")?,
        stream_window_updates: count("stream_window_update")?,
        connection_window_updates: count("connection_window_update")?,
    })
}

fn json(program: &str, text: &str) -> Result<Value, Fault> {
    serde_json::from_str(text).map_err(|error| unexpected(program, &format!("not JSON: {error}")))
}

fn number(document: &Value, pointer: &str) -> Option<f64> {
    document.pointer(pointer).and_then(Value::as_f64)
}

/// The port of an address or a URL.
pub(crate) fn port(address: &str) -> Result<u16, Fault> {
    let port = address
        .rsplit(':')
        .next()
        .and_then(|port| port.trim_end_matches('/').parse().ok());
    port.ok_or_else(|| unexpected("fullbore", &format!("`{address}` is no address with a port")))
}

fn unexpected(program: &str, why: &str) -> Fault {
    Fault::Output(program.to_owned(), why.to_owned())
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

    #[test]
    fn the_links_line_is_read_and_a_gap_in_it_named() {
        let side = r#"{"frames":{"data":9,"data_bytes":8,"small_data":7,"longest_small_data_run":6,
            "stream_window_update":5,"connection_window_update":4}}"#;
        let line = format!(r#"{{"to_server":{side},"to_client":{side}}}"#);
        let both = counted(&line).expect("the line is whole");
        assert_eq!(both.to_server, both.to_client);
        assert_eq!(
            (both.to_client.data, both.to_client.connection_window_updates),
            (9, 4)
        );
        match counted(&line.replace("small_data\":7", "other\":7")) {
            Err(fault) => assert!(
                fault.to_string().contains("to_server.frames.small_data"),
                "{fault}"
            ),
            Ok(_) => panic!("a count is missing"),
        }
    }
}
