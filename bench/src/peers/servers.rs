//! Servers of one thread on one core, and the program that loads them from the other core: h2load, or a plain reader.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::go::Go;
use super::h2::H2;
use super::{Keys, h2loads_lines, nginx_temporary_paths, window_flags};
use crate::context::{Context, make_file};
use crate::error::Error;
use crate::process::{self, Lines, Output, Running};
use crate::program::{self, port};
use crate::worker;

const SERVERS_CORE: usize = 0;
const LOADS_CORE: usize = 1;
const BOTH_CORES: [usize; 2] = [SERVERS_CORE, LOADS_CORE];
const START: Duration = Duration::from_secs(10);
/// As many streams as any load opens; nginx, h2o and nghttpd allow some 100 by themselves.
const MAX_STREAMS: &str = "10000";
/// As many connections as any load opens and more; h2o and nginx allow some 1,000 and 500 by themselves,
/// `fullbore serve` 4,096.
const MAX_CONNECTIONS: u32 = 16_000;

/// Which server.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    /// `fullbore serve`, from files.
    Files,
    /// The same with `--sendfile`.
    Sendfile,
    /// The library, from memory.
    Memory,
    Hyper,
    HyperWorker,
    Go,
    /// What reads uploads and throws them away.
    GoDiscard,
    Nghttpd,
    H2o,
    Nginx,
    /// hyper with the files behind `fullbore serve`.
    HyperFiles,
    /// hyper-util's server of both versions.
    HyperAuto,
    /// The same with hyper's limit on the time of a head.
    HyperAutoLimited,
    /// `HyperAuto` with the files behind `fullbore serve`.
    HyperAutoFiles,
    /// axum with one of the crates `h2`, on the current thread or on so many workers.
    Axum(H2, usize),
    /// tonic, likewise.
    Tonic(H2, usize),
    /// No HTTP at all.
    Floor,
    /// The same from a file of that length.
    FloorFile(u64),
}

impl Kind {
    /// Those that speak HTTP/2.
    pub(crate) const SERVERS: [Kind; 8] = [
        Kind::Files,
        Kind::Memory,
        Kind::Hyper,
        Kind::HyperWorker,
        Kind::Go,
        Kind::Nghttpd,
        Kind::H2o,
        Kind::Nginx,
    ];

    /// Those that are measured with HTTP/1.1.
    pub(crate) const HTTP1: [Kind; 7] = [
        Kind::Files,
        Kind::Memory,
        Kind::HyperAuto,
        Kind::HyperAutoFiles,
        Kind::Go,
        Kind::H2o,
        Kind::Nginx,
    ];

    /// Those that can read an upload and throw it away.
    pub(crate) const UPLOADS: [Kind; 6] = [
        Kind::Files,
        Kind::Memory,
        Kind::Hyper,
        Kind::HyperWorker,
        Kind::GoDiscard,
        Kind::Nghttpd,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Files => "fullbore serve",
            Kind::Sendfile => "fullbore serve --sendfile",
            Kind::Memory => "fullbore, from memory",
            Kind::Hyper => "hyper, current thread",
            Kind::HyperWorker => "hyper, one worker",
            Kind::Go | Kind::GoDiscard => "Go net/http",
            Kind::Nghttpd => "nghttpd",
            Kind::H2o => "h2o",
            Kind::Nginx => "nginx",
            Kind::HyperFiles => "hyper, the same files",
            Kind::HyperAuto => "hyper-util's auto",
            Kind::HyperAutoLimited => "hyper-util's auto, limited",
            Kind::HyperAutoFiles => "hyper-util's auto, the same files",
            Kind::Axum(h2, _) | Kind::Tonic(h2, _) => h2.name(),
            Kind::Floor => "plain writes",
            Kind::FloorFile(_) => "plain writes, from a file",
        }
    }

    pub(crate) fn ours(self) -> bool {
        matches!(
            self,
            Kind::Files
                | Kind::Sendfile
                | Kind::Memory
                | Kind::Axum(H2::Patched, _)
                | Kind::Tonic(H2::Patched, _)
        )
    }
}

/// What all servers are started with.
pub(crate) struct Testbed<'a> {
    pub(crate) cx: &'a Context,
    /// A file of N bytes is named N.
    pub(crate) folder: PathBuf,
    pub(crate) keys: Keys,
    pub(crate) go: Result<Go, Error>,
    /// A program, with its arguments, under which all of them run.
    pub(crate) under: Option<Command>,
}

impl<'a> Testbed<'a> {
    /// A folder of that name with a file of each of these lengths, and all that the servers need beside it.
    pub(crate) fn new(cx: &'a Context, name: &str, lengths: &[u64]) -> Result<Self, Error> {
        let folder = cx.folder(name)?;
        for length in lengths {
            make_file(&folder.join(length.to_string()), *length)?;
        }
        Ok(Self {
            cx,
            folder,
            keys: super::keys(cx)?,
            go: Go::build(cx),
            under: None,
        })
    }
}

/// A server under way, until it is dropped.
pub(crate) struct Server<'a> {
    pub(super) cx: &'a Context,
    pub(super) running: Running<'a>,
    // A server that prints must find a reader.
    _lines: Option<Lines>,
    kind: Kind,
    pub(super) secure: bool,
    base: String,
    pub(super) port: u16,
    /// Where a server on the counting allocator tells what it has allocated; 0 otherwise.
    pub(super) heap_port: u16,
}

/// What h2load is to do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) requests: u64,
    pub(crate) connections: u32,
    /// Of each connection.
    pub(crate) streams: u32,
    /// The windows, of a stream and of the connection, are of `2^bits - 1` bytes.
    pub(crate) window_bits: u32,
    /// Of each response.
    pub(crate) bytes: u64,
    /// HTTP/1.1 in place of HTTP/2. Each stream is a connection's pipelined request then.
    pub(crate) http1: bool,
}

impl<'a> Testbed<'a> {
    /// Starts a server on the servers' core, or on both if it has several workers.
    pub(crate) fn start(&self, kind: Kind, secure: bool) -> Result<Server<'a>, Error> {
        let cores = match kind {
            Kind::Axum(_, 2..) | Kind::Tonic(_, 2..) => BOTH_CORES.as_slice(),
            _ => &[SERVERS_CORE],
        };
        let (running, lines, port) =
            process::on_cores(cores, || self.running(kind, secure.then_some(&self.keys)))?;
        Ok(self.server(kind, secure, running, lines, [port, 0]))
    }

    /// Starts one of our servers on the counting allocator; `fullbore serve` as the service behind it.
    pub(crate) fn start_counted(&self, kind: Kind, secure: bool) -> Result<Server<'a>, Error> {
        let library = match kind {
            Kind::Files => "files",
            Kind::Memory => "fullbore",
            Kind::Hyper => "hyper",
            _ => {
                return Err(Error::Missing(format!(
                    "a counting allocator for {}",
                    kind.name()
                )));
            }
        };
        let mut command = worker::counted("memory")?;
        command.args([library, "--heap", "--max-streams", MAX_STREAMS, "--root"]);
        command.arg(&self.folder);
        if secure {
            command
                .arg("--cert")
                .arg(&self.keys.cert)
                .arg("--key")
                .arg(&self.keys.key);
        }
        process::on_core(SERVERS_CORE, || {
            let (running, lines) = Running::with_lines(&self.cx.reaper, &mut command)?;
            let heap = port(&lines.after("heap on ", START)?)?;
            let port = port(&lines.after("listening on ", START)?)?;
            Ok(self.server(kind, secure, running, Some(lines), [port, heap]))
        })
    }

    fn server(
        &self,
        kind: Kind,
        secure: bool,
        running: Running<'a>,
        lines: Option<Lines>,
        [port, heap_port]: [u16; 2],
    ) -> Server<'a> {
        let scheme = if secure { "https" } else { "http" };
        Server {
            cx: self.cx,
            running,
            _lines: lines,
            kind,
            secure,
            base: format!("{scheme}://127.0.0.1:{port}"),
            port,
            heap_port,
        }
    }

    fn running(&self, kind: Kind, keys: Option<&Keys>) -> Result<(Running<'a>, Option<Lines>, u16), Error> {
        match kind {
            Kind::Files | Kind::Sendfile => {
                let mut command = program::command(self.cx, "serve");
                command.arg(&self.folder).args([
                    "--listen",
                    "127.0.0.1:0",
                    "--threads",
                    "1",
                    "--max-streams",
                    MAX_STREAMS,
                    "--max-connections",
                    &MAX_CONNECTIONS.to_string(),
                    "--uploads",
                    "discard",
                ]);
                if kind == Kind::Sendfile {
                    command.arg("--sendfile");
                }
                match keys {
                    Some(keys) => command.arg("--cert").arg(&keys.cert).arg("--key").arg(&keys.key),
                    None => command.arg("--plaintext"),
                };
                self.talking(command)
            }
            Kind::Memory => self.memory("fullbore", keys),
            Kind::Hyper => self.memory("hyper", keys),
            Kind::HyperWorker => self.memory("hyper-worker", keys),
            Kind::HyperFiles => self.memory("hyper-files", keys),
            Kind::HyperAuto => self.memory("auto", keys),
            Kind::HyperAutoLimited => self.memory("auto-limited", keys),
            Kind::HyperAutoFiles => self.memory("auto-files", keys),
            Kind::Axum(h2, workers) => self.talking(h2.command("axum", workers, keys)),
            Kind::Tonic(h2, workers) => self.talking(h2.command("tonic", workers, keys)),
            Kind::Floor => self.talking(worker::command("floor-writer")?),
            Kind::FloorFile(bytes) => {
                let mut command = worker::command("floor-writer")?;
                command.arg("--file").arg(self.folder.join(bytes.to_string()));
                self.talking(command)
            }
            Kind::Go => {
                let go = self.go()?;
                self.talking(go.server(&self.folder, keys))
            }
            Kind::GoDiscard => {
                let go = self.go()?;
                self.talking(go.discard(keys))
            }
            Kind::Nghttpd => {
                let port = self.cx.free_port()?;
                let mut command = Command::new("nghttpd");
                command.args(["-a", "127.0.0.1", "-n1", "-m", MAX_STREAMS]);
                command.args(window_flags(24)).arg("-d");
                command.arg(&self.folder);
                match keys {
                    Some(keys) => command.arg(port.to_string()).arg(&keys.key).arg(&keys.cert),
                    None => command.arg("--no-tls").arg(port.to_string()),
                };
                self.silent(command, port)
            }
            Kind::H2o => {
                let port = self.cx.free_port()?;
                let file = self.config("h2o", port, &h2o_config(&self.folder, port, keys))?;
                let mut command = Command::new("h2o");
                command.arg("-c").arg(file);
                self.silent(command, port)
            }
            Kind::Nginx => {
                let port = self.cx.free_port()?;
                let own = self.cx.folder("nginx")?;
                let file = self.config("nginx", port, &nginx_config(&own, &self.folder, port, keys))?;
                let mut command = Command::new("nginx");
                command.arg("-e").arg(own.join("error.log"));
                command.arg("-c").arg(file);
                self.silent(command, port)
            }
        }
    }

    fn go(&self) -> Result<&Go, Error> {
        self.go.as_ref().map_err(|error| match error {
            Error::Missing(what) => Error::Missing(what.clone()),
            error => Error::Failed("Go's server".to_owned(), error.to_string()),
        })
    }

    fn memory(&self, library: &str, keys: Option<&Keys>) -> Result<(Running<'a>, Option<Lines>, u16), Error> {
        let mut command = worker::command("memory")?;
        command.args([library, "--max-streams", MAX_STREAMS, "--root"]);
        command.arg(&self.folder);
        if let Some(keys) = keys {
            command.arg("--cert").arg(&keys.cert).arg("--key").arg(&keys.key);
        }
        self.talking(command)
    }

    fn talking(&self, command: Command) -> Result<(Running<'a>, Option<Lines>, u16), Error> {
        let mut command = self.wrapped(command);
        let (running, lines) = Running::with_lines(&self.cx.reaper, &mut command)?;
        let port = port(&lines.after("listening on ", START)?)?;
        Ok((running, Some(lines), port))
    }

    fn silent(&self, command: Command, port: u16) -> Result<(Running<'a>, Option<Lines>, u16), Error> {
        let mut command = self.wrapped(command);
        let running = Running::listening(&self.cx.reaper, &mut command, port)?;
        Ok((running, None, port))
    }

    fn wrapped(&self, command: Command) -> Command {
        let Some(under) = &self.under else {
            return command;
        };
        let mut wrapped = Command::new(under.get_program());
        wrapped.args(under.get_args());
        wrapped.arg(command.get_program()).args(command.get_args());
        wrapped
    }

    fn config(&self, name: &str, port: u16, text: &str) -> Result<PathBuf, Error> {
        let file = self.cx.folder(name)?.join(format!("{port}.conf"));
        std::fs::write(&file, text).map_err(|error| Error::File(file.clone(), error))?;
        Ok(file)
    }
}

impl Server<'_> {
    /// Loads it from the other core, and tells the seconds that took by the load program's own clock.
    pub(crate) fn load(&self, load: Load, limit: Duration) -> Result<f64, Error> {
        let mut command = match self.kind {
            Kind::Floor | Kind::FloorFile(_) => {
                let mut command = worker::command("floor-reader")?;
                command.arg(format!("127.0.0.1:{}", self.port));
                command.arg((load.requests * load.bytes).to_string());
                command
            }
            _ => h2load(load, &format!("{}/{}", self.base, load.bytes)),
        };
        let output = self.run_beside(&mut command, limit)?;
        match self.kind {
            Kind::Floor | Kind::FloorFile(_) => output
                .stdout
                .trim()
                .parse()
                .map_err(|_| Error::Output("the plain reader".to_owned(), output.stdout)),
            _ => {
                if self.secure {
                    same_tls(&output.stdout)?;
                }
                h2loads_lines(&output.stdout, load.requests)
            }
        }
    }

    /// Loads it with calls of gRPC, whose message a file has.
    pub(crate) fn call(
        &self,
        method: &str,
        message: &Path,
        load: Load,
        limit: Duration,
    ) -> Result<(), Error> {
        let mut command = h2load(load, &format!("{}/bench.Calls/{method}", self.base));
        command.args(["-H", "content-type: application/grpc", "-H", "te: trailers", "-d"]);
        let output = self.run_beside(command.arg(message), limit)?;
        h2loads_lines(&output.stdout, load.requests).map(drop)
    }

    /// The same through something that listens at another port of this machine.
    pub(super) fn load_through(&self, port: u16, load: Load, limit: Duration) -> Result<(), Error> {
        let scheme = if self.secure { "https" } else { "http" };
        let mut command = h2load(load, &format!("{scheme}://127.0.0.1:{port}/{}", load.bytes));
        let output = self.run_beside(&mut command, limit)?;
        h2loads_lines(&output.stdout, load.requests).map(|_| ())
    }

    /// Asks it to end, and waits until it has.
    pub(crate) fn end(self) {
        self.running.terminate();
    }

    /// Where it listens.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn process(&self) -> &Running<'_> {
        &self.running
    }

    /// The URL of a body of so many bytes.
    pub(crate) fn url(&self, bytes: u64) -> String {
        format!("{}/{bytes}", self.base)
    }

    /// Runs a program on the other core.
    pub(crate) fn run_beside(&self, command: &mut Command, limit: Duration) -> Result<Output, Error> {
        let limit = self.cx.limit(limit)?;
        process::on_core(LOADS_CORE, || process::run(&self.cx.reaper, command, limit))
    }

    /// Starts a program that prints there.
    pub(super) fn talk_beside(&self, command: &mut Command) -> Result<(Running<'_>, Lines), Error> {
        process::on_core(LOADS_CORE, || Running::with_lines(&self.cx.reaper, command))
    }

    pub(crate) fn cpu(&self) -> Result<Duration, Error> {
        self.running.cpu()
    }

    pub(crate) fn memory(&self) -> Option<u64> {
        self.running.memory()
    }

    pub(crate) fn peak_memory(&self) -> Option<u64> {
        self.running.peak_memory()
    }
}

pub(crate) fn h2load(load: Load, url: &str) -> Command {
    let mut command = Command::new("h2load");
    command.arg(format!("-n{}", load.requests));
    with_load(command, load, url)
}

fn with_load(mut command: Command, load: Load, url: &str) -> Command {
    command.args([format!("-c{}", load.connections), format!("-m{}", load.streams)]);
    command.args(window_flags(load.window_bits));
    if load.http1 {
        command.arg("--h1");
    }
    // The same cipher for all, whatever a server would rather have.
    command.args(["--tls13-ciphers=TLS_AES_128_GCM_SHA256", "--groups=P-256"]);
    command.arg(url);
    command
}

/// Whether the connection had the protocol and the cipher that the section tells of.
fn same_tls(text: &str) -> Result<(), Error> {
    for wanted in ["TLS Protocol: TLSv1.3", "Cipher: TLS_AES_128_GCM_SHA256"] {
        if !text.lines().any(|line| line == wanted) {
            return Err(Error::Output("h2load".to_owned(), format!("no line `{wanted}`")));
        }
    }
    Ok(())
}

/// JSON is YAML, and quotes what stands in a path.
fn h2o_config(folder: &Path, port: u16, keys: Option<&Keys>) -> String {
    let mut listen = serde_json::json!({ "host": "127.0.0.1", "port": port });
    if let Some(keys) = keys {
        listen["ssl"] = serde_json::json!({ "certificate-file": keys.cert, "key-file": keys.key });
    }
    let streams: u32 = MAX_STREAMS.parse().unwrap_or(u32::MAX);
    serde_json::json!({
        "num-threads": 1,
        "listen": listen,
        "http2-max-concurrent-requests-per-connection": streams,
        "max-connections": MAX_CONNECTIONS,
        "http2-idle-timeout": 60,
        "hosts": { "default": { "paths": { "/": { "file.dir": folder } } } },
    })
    .to_string()
}

/// At its best: with descriptors kept open, and sendfile for the longest body alone. With sendfile a response in the clear
/// leaves in more than one write and waits 44 ms for an acknowledgement: 23 requests a second of 12 bytes, not 9,500.
fn nginx_config(own: &Path, folder: &Path, port: u16, keys: Option<&Keys>) -> String {
    let temporary = nginx_temporary_paths(own);
    let (ssl, tls) = match keys {
        Some(keys) => (
            "ssl ",
            format!(
                "ssl_protocols TLSv1.3;\n    ssl_certificate {};\n    ssl_certificate_key {};\n    ",
                keys.cert.display(),
                keys.key.display()
            ),
        ),
        None => ("", String::new()),
    };
    format!(
        "daemon off;\nmaster_process off;\nworker_processes 1;\npid {own}/{port}.pid;\nerror_log {own}/error.log;\n\
         events {{ worker_connections {MAX_CONNECTIONS}; }}\nhttp {{\n  access_log off;\n  open_file_cache max=100;\n  \
         keepalive_requests 1000000000;\n  http2_max_concurrent_streams {MAX_STREAMS};\n{temporary}  \
         server {{\n    listen 127.0.0.1:{port} {ssl}http2;\n    {tls}root {folder};\n    location = /1073741824 {{ sendfile on; }}\n  }}\n}}\n",
        own = own.display(),
        folder = folder.display(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> Keys {
        Keys {
            cert: PathBuf::from("/k/cert.pem"),
            key: PathBuf::from("/k/key.pem"),
        }
    }

    #[test]
    fn another_protocol_or_cipher_is_no_measurement() {
        let text = "TLS Protocol: TLSv1.3\nCipher: TLS_AES_128_GCM_SHA256\n";
        assert!(same_tls(text).is_ok());
        assert!(same_tls(&text.replace("v1.3", "v1.2")).is_err());
        assert!(same_tls(&text.replace("128", "256")).is_err());
    }

    #[test]
    fn h2os_configuration_has_keys_only_over_tls() {
        let clear = h2o_config(Path::new("/f"), 1, None);
        assert!(
            clear.contains(r#""file.dir":"/f""#) && !clear.contains("ssl"),
            "{clear}"
        );
        let tls = h2o_config(Path::new("/f"), 1, Some(&keys()));
        assert!(tls.contains(r#""key-file":"/k/key.pem""#), "{tls}");
    }

    #[test]
    fn nginxs_configuration_listens_as_it_is_told() {
        let clear = nginx_config(Path::new("/o"), Path::new("/f"), 7, None);
        assert!(
            clear.contains("listen 127.0.0.1:7 http2;\n    root /f;"),
            "{clear}"
        );
        let tls = nginx_config(Path::new("/o"), Path::new("/f"), 7, Some(&keys()));
        assert!(
            tls.contains("listen 127.0.0.1:7 ssl http2;\n    ssl_protocols TLSv1.3;"),
            "{tls}"
        );
    }
}
