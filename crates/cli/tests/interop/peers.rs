//! Which foreign programs the trials need, whether they are on this machine, and how a trial is made of that: one whose
//! peer is missing is listed as ignored with the reason beside its name, or fails when `FULLBORE_PEERS=required`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use libtest_mimic::{Failed, Trial};

use crate::files::workshop;
use crate::process::{Fault, Outcome, run_text};

/// A program that speaks HTTP and is not ours, or that a trial needs besides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Peer {
    Curl,
    Nghttp,
    H2load,
    Nghttpd,
    H2o,
    Nginx,
    Lighttpd,
    Apache,
    Haproxy,
    Go,
    Node,
    Java,
    H2spec,
    Wget,
    Wget2,
    Aria2,
    Wrk,
    Ab,
    Chromium,
    Caddy,
    /// The suite's own server on Python's `http.server`, which takes uploads.
    Python,
    /// `python3 -m http.server`.
    PythonModule,
    Openssl,
    Tinyproxy,
    Microsocks,
    Tusd,
    /// The client and the server of grpc-go's interoperability tests.
    GrpcGo,
    /// uvicorn of Python, with the WebSockets of `websockets`.
    Uvicorn,
    /// `ws` of npm.
    Ws,
    /// `wstest`, Autobahn's test suite for WebSockets.
    Autobahn,
}

impl Peer {
    /// Its name, as its own documentation writes it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Peer::Curl => "curl",
            Peer::Nghttp => "nghttp",
            Peer::H2load => "h2load",
            Peer::Nghttpd => "nghttpd",
            Peer::H2o => "h2o",
            Peer::Nginx => "nginx",
            Peer::Lighttpd => "lighttpd",
            Peer::Apache => "Apache",
            Peer::Haproxy => "haproxy",
            Peer::Go => "Go",
            Peer::Node => "Node",
            Peer::Java => "Java",
            Peer::H2spec => "h2spec",
            Peer::Wget => "wget",
            Peer::Wget2 => "wget2",
            Peer::Aria2 => "aria2",
            Peer::Wrk => "wrk",
            Peer::Ab => "ab",
            Peer::Chromium => "Chromium",
            Peer::Caddy => "caddy",
            Peer::Python => "Python",
            Peer::PythonModule => "python3 -m http.server",
            Peer::Openssl => "openssl",
            Peer::Tinyproxy => "tinyproxy",
            Peer::Microsocks => "microsocks",
            Peer::Tusd => "tusd",
            Peer::GrpcGo => "grpc-go",
            Peer::Uvicorn => "uvicorn",
            Peer::Ws => "ws",
            Peer::Autobahn => "Autobahn",
        }
    }

    /// The program to start.
    pub(crate) fn program(self) -> Outcome<PathBuf> {
        let name = match self {
            Peer::Apache => "apache2",
            Peer::Go => "go",
            Peer::Node => "node",
            Peer::Java => "java",
            Peer::Aria2 => "aria2c",
            Peer::Chromium => "chromium",
            Peer::Python | Peer::PythonModule | Peer::Uvicorn => "python3",
            Peer::Ws => "node",
            other => other.name(),
        };
        find(name).ok_or_else(|| format!("not installed ({})", self.package()).into())
    }

    /// A command that starts it.
    pub(crate) fn command(self) -> Outcome<Command> {
        self.program().map(Command::new)
    }

    /// Where it comes from.
    fn package(self) -> &'static str {
        match self {
            Peer::Curl => "Debian: curl",
            Peer::Nghttp | Peer::H2load => "Debian: nghttp2-client",
            Peer::Nghttpd => "Debian: nghttp2-server",
            Peer::H2o => "Debian: h2o",
            Peer::Nginx => "Debian: nginx-light",
            Peer::Lighttpd => "Debian: lighttpd lighttpd-mod-openssl lighttpd-mod-webdav",
            Peer::Apache => "Debian: apache2-bin",
            Peer::Haproxy => "Debian: haproxy",
            Peer::Go => "Go 1.24 or newer",
            Peer::Node => "Node 18 or newer",
            Peer::Java => "JDK 17 or newer",
            Peer::H2spec => "go install github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible",
            Peer::Ab => "Debian: apache2-utils",
            Peer::Wget => "Debian: wget",
            Peer::Wget2 => "Debian: wget2",
            Peer::Aria2 => "Debian: aria2",
            Peer::Wrk => "Debian: wrk",
            Peer::Chromium => "Debian: chromium",
            Peer::Caddy => "Debian: caddy",
            Peer::Python | Peer::PythonModule => "Python 3.8 or newer",
            Peer::Openssl => "Debian: openssl",
            Peer::Tinyproxy => "Debian: tinyproxy-bin",
            Peer::Microsocks => "Debian: microsocks",
            Peer::Tusd => "go install github.com/tus/tusd/v2/cmd/tusd@v2.9.1",
            Peer::GrpcGo | Peer::Uvicorn | Peer::Ws => ".ci/run peers",
            Peer::Autobahn => ".ci/run peers, with Python 2.7",
        }
    }

    /// Why it cannot be used here, if so.
    fn missing(self) -> Option<String> {
        let found = match self {
            Peer::Go => go_peer().map(drop),
            Peer::GrpcGo => is_there(&grpc_programs().join("client"), self),
            Peer::Ws => is_there(&node_modules().join("ws"), self),
            Peer::Autobahn => is_there(&wstest(), self),
            Peer::Uvicorn => {
                let mut python = python_with_packages();
                run_text(python.args(["-c", "import uvicorn, websockets"])).map(drop)
            }
            Peer::Lighttpd => self.program().and_then(|_| lighttpd_modules()),
            // A runtime without the compiler cannot run a source file.
            Peer::Java => self.program().and_then(|_| {
                find("javac")
                    .ok_or("no javac (a JDK, not a runtime)".into())
                    .map(drop)
            }),
            Peer::Curl => self.command().and_then(|mut curl| {
                let version = run_text(curl.arg("--version"))?;
                if version.contains("HTTP2") {
                    Ok(())
                } else {
                    Err("this curl was built without HTTP/2".into())
                }
            }),
            _ => self.program().map(drop),
        };
        found.err().map(|fault| format!("needs {}: {fault}", self.name()))
    }
}

/// A trial that needs `peers`.
pub(crate) fn trial(
    peers: &[Peer],
    name: impl Into<String>,
    run: impl FnOnce() -> Outcome + Send + 'static,
) -> Trial {
    let name = name.into();
    // The build of tusd takes minutes: a job of CI of its own has it. Few systems still have the Python that Autobahn needs.
    let is_optional = |peer| matches!(peer, &Peer::Tusd | &Peer::Autobahn);
    let is_required = required() && !peers.iter().any(is_optional);
    match peers.iter().find_map(|peer| reason(*peer)) {
        None => {
            let names: Vec<&str> = peers.iter().map(|peer| peer.name()).collect();
            let trial = Trial::test(name, move || run().map_err(Failed::from));
            if names.is_empty() {
                trial
            } else {
                trial.with_kind(names.join("+"))
            }
        }
        Some(reason) => {
            let failure = reason.clone();
            Trial::test(name, move || Err(Failed::from(failure)))
                .with_kind(reason)
                .with_ignored_flag(!is_required)
        }
    }
}

/// Whether no peer may be missing, and each gets files of every size up to 256 MiB.
pub(crate) fn required() -> bool {
    env::var_os("FULLBORE_PEERS").is_some_and(|value| value == "required")
}

/// A trial that moves 256 MiB, by default ignored.
pub(crate) fn trial_of_a_big_file(
    peers: &[Peer],
    name: String,
    run: impl FnOnce() -> Outcome + Send + 'static,
) -> Trial {
    let trial = trial(peers, name, run);
    match required() {
        true => trial,
        false => trial.with_kind("FULLBORE_PEERS=required").with_ignored_flag(true),
    }
}

/// The program in Go, compiled once.
pub(crate) fn go_peer() -> Outcome<&'static Path> {
    static BUILT: OnceLock<Outcome<PathBuf>> = OnceLock::new();
    BUILT
        .get_or_init(|| {
            let go = Peer::Go.program()?;
            let built = workshop().join("go-peer");
            let mut command = Command::new(go);
            command
                .current_dir(sources().join("go"))
                .args(["build", "-buildvcs=false", "-o"])
                .arg(&built)
                .arg(".");
            // A Go that is too old must say so, not fetch another one.
            run_text(command.env("GOTOOLCHAIN", "local").env("GOFLAGS", "-mod=mod"))
                .map_err(|fault| Fault::from(format!("Go 1.24 or newer: {fault}")))?;
            Ok(built)
        })
        .as_deref()
        .map_err(Fault::clone)
}

/// Where `.ci/run peers` puts what has no package of the system.
fn installed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/peers")
}

/// The folder of the programs of grpc-go.
pub(crate) fn grpc_programs() -> PathBuf {
    installed().join("grpc")
}

/// The folder of the modules of npm.
pub(crate) fn node_modules() -> PathBuf {
    installed().join("node/node_modules")
}

/// Python with the packages of PyPI.
pub(crate) fn python_with_packages() -> Command {
    let mut python = Command::new("python3");
    python.env("PYTHONPATH", installed().join("python"));
    python
}

fn wstest() -> PathBuf {
    installed().join("autobahn/bin/wstest")
}

/// Autobahn's test suite, which finds its packages by a variable.
pub(crate) fn autobahn() -> Command {
    let mut command = Command::new(wstest());
    command.env("PYTHONUSERBASE", installed().join("autobahn"));
    command
}

fn is_there(path: &Path, peer: Peer) -> Outcome {
    match path.exists() {
        true => Ok(()),
        false => Err(format!("not installed ({})", peer.package()).into()),
    }
}

/// The folder of the peers' sources.
pub(crate) fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers")
}

fn reason(peer: Peer) -> Option<String> {
    static KNOWN: std::sync::Mutex<Vec<(Peer, Option<String>)>> = std::sync::Mutex::new(Vec::new());
    let mut known = crate::process::lock(&KNOWN);
    if let Some((_, reason)) = known.iter().find(|(other, _)| *other == peer) {
        return reason.clone();
    }
    let reason = peer.missing();
    known.push((peer, reason.clone()));
    reason
}

/// lighttpd ends at once when a module that its configuration names is not there.
fn lighttpd_modules() -> Outcome {
    let folders = ["/usr/lib/lighttpd", "/usr/lib64/lighttpd", "/usr/local/lib"];
    for module in ["mod_openssl.so", "mod_webdav.so"] {
        if !folders
            .iter()
            .any(|folder| Path::new(folder).join(module).exists())
        {
            return Err(format!("{module} is not installed ({})", Peer::Lighttpd.package()).into());
        }
    }
    Ok(())
}

/// Looks in `PATH`, where servers are that only root has in `PATH`, and where `go install` puts programs.
fn find(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let home = |folder: &str| env::var_os("HOME").map(|home| Path::new(&home).join(folder));
    env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin"), PathBuf::from("/usr/local/sbin")])
        .chain(env::var_os("GOBIN").map(PathBuf::from))
        .chain(env::var_os("GOPATH").map(|path| Path::new(&path).join("bin")))
        .chain(home("go/bin"))
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_file())
}
