//! The program under test: `fullbore serve`, `get` and `put`, as a user starts them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::certs::certs;
use crate::files::{Payload, workshop};
use crate::process::{DEADLINE, Daemon, Fault, Outcome, ensure, run_into};

/// The version of HTTP that a trial speaks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    Http1,
    Http2,
}

/// What carries HTTP.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    /// TCP. HTTP/2 begins with prior knowledge (RFC 9113, section 3.3).
    Cleartext,
    /// TLS, with ALPN (section 3.2).
    Tls,
}

impl Transport {
    pub(crate) const BOTH: [Transport; 2] = [Transport::Cleartext, Transport::Tls];
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::Cleartext => "cleartext",
            Transport::Tls => "TLS",
        })
    }
}

/// What `fullbore serve` does with uploads.
#[derive(Clone, Copy)]
pub(crate) enum Uploads<'a> {
    None,
    Discard,
    Into(&'a Path),
}

/// The most memory that `fullbore serve` may ever have held, whatever the size of the files: 256 MiB pass through it in 64 MiB.
const SERVER_MEMORY: u64 = 64 << 20;

/// What it may hold besides of an upload that comes faster than the disk takes it: the window of one connection.
pub(crate) const UPLOAD_WINDOW: u64 = 64 << 20;

/// A running `fullbore serve`.
pub(crate) struct Server {
    pub(crate) daemon: Daemon,
    /// Its origin, without a slash at the end.
    pub(crate) url: String,
}

impl Server {
    /// Starts it on a port of its own choice.
    pub(crate) fn start(transport: Transport, root: &Path, uploads: Uploads<'_>) -> Outcome<Server> {
        Self::start_with(transport, root, uploads, &[])
    }

    /// As [`Self::start`], with further arguments.
    pub(crate) fn start_with(
        transport: Transport,
        root: &Path,
        uploads: Uploads<'_>,
        arguments: &[&str],
    ) -> Outcome<Server> {
        let mut command = Command::new(program());
        command.arg("serve").arg(root).args(["--listen", "127.0.0.1:0"]);
        command.args(arguments);
        match transport {
            Transport::Cleartext => command.arg("--plaintext"),
            Transport::Tls => {
                let certs = certs()?;
                command
                    .arg("--cert")
                    .arg(&certs.chain)
                    .arg("--key")
                    .arg(&certs.key)
            }
        };
        match uploads {
            Uploads::None => {}
            Uploads::Discard => drop(command.args(["--uploads", "discard"])),
            Uploads::Into(folder) => drop(command.arg("--uploads").arg(folder)),
        }
        let mut daemon = Daemon::spawn(&mut command)?;
        let url = daemon
            .wait_line("listening on ")?
            .trim()
            .trim_end_matches('/')
            .to_owned();
        Ok(Server { daemon, url })
    }

    /// The port it listens on.
    pub(crate) fn port(&self) -> Outcome<u16> {
        let digits = self.url.rsplit(':').next().unwrap_or_default();
        digits
            .parse()
            .map_err(|_| format!("no port in {}", self.url).into())
    }

    /// A client's fault, with what the server had to say about it.
    pub(crate) fn blame(&self, fault: &Fault) -> Fault {
        format!("{fault}\nfullbore serve said:\n{}", self.daemon.stderr_tail()).into()
    }

    /// Fails when it ended by itself.
    pub(crate) fn check_alive(&mut self) -> Outcome {
        self.daemon.check_alive()
    }

    /// Fails when it ever held more than [`SERVER_MEMORY`] and, besides, `windows` bytes.
    pub(crate) fn check_memory(&self, windows: u64) -> Outcome {
        let Some(peak) = self.daemon.peak_rss_bytes() else {
            return Ok(());
        };
        ensure(peak < SERVER_MEMORY + windows, || {
            format!("fullbore serve held {} KiB of memory at its peak", peak / 1024)
        })
    }
}

/// `fullbore get` of every one of `payloads` at `origin` into `folder`, all at once on one connection, and the check of
/// what arrived.
pub(crate) fn get(transport: Transport, origin: &str, payloads: &[Payload], folder: &Path) -> Outcome {
    let mut command = client("get", transport)?;
    command.arg("--dir").arg(folder);
    command.args(
        payloads
            .iter()
            .map(|payload| format!("{origin}/{}", payload.name)),
    );
    run_into(&mut command, std::io::sink(), DEADLINE)?;
    for payload in payloads {
        payload.check_file(&folder.join(&payload.name), "fullbore get")?;
    }
    Ok(())
}

/// `fullbore put` of `payload` to `origin`. What the server answered goes to `answer`.
pub(crate) fn put<W>(transport: Transport, origin: &str, payload: &Payload, answer: W) -> Outcome<W>
where
    W: std::io::Write + Send + 'static,
{
    let mut command = client("put", transport)?;
    command
        .arg(&payload.path)
        .arg(format!("{origin}/{}", payload.name));
    run_into(&mut command, answer, DEADLINE).map(|(answer, _)| answer)
}

/// The program with a subcommand of the client, set to trust the suite's authority.
pub(crate) fn client(subcommand: &str, transport: Transport) -> Outcome<Command> {
    let mut command = Command::new(program());
    command.arg(subcommand);
    command.env("XDG_STATE_HOME", workshop().join("state"));
    // The proxies of this machine are not meant.
    for name in ["http_proxy", "https_proxy", "all_proxy", "no_proxy"] {
        command.env_remove(name).env_remove(name.to_uppercase());
    }
    if transport == Transport::Tls {
        command.arg("--cacert").arg(&certs()?.authority);
    }
    Ok(command)
}

/// The program that cargo built, or another one (an optimised build, say) that `FULLBORE_BIN` names.
pub(crate) fn program() -> PathBuf {
    std::env::var_os("FULLBORE_BIN")
        .map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_fullbore")), PathBuf::from)
}
