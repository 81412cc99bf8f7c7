//! Foreign servers: how each is configured and started, and where to look for what was uploaded to it. Called by
//! `fetch_trials` and `many_files`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::certs::{Certs, certs};
use crate::files::{Hasher, Payload, Scratch, site};
use crate::fullbore::{self, Transport, Version};
use crate::peers::{Peer, go_peer, sources};
use crate::process::{Daemon, Fault, Outcome, spawn_on_free_port};

/// The servers of the suite, with the version that each is set to speak.
pub(crate) const SERVERS: [(Peer, Version); 13] = [
    (Peer::Nghttpd, Version::Http2),
    (Peer::H2o, Version::Http2),
    (Peer::Nginx, Version::Http2),
    (Peer::Lighttpd, Version::Http2),
    (Peer::Haproxy, Version::Http2),
    (Peer::Go, Version::Http2),
    (Peer::Node, Version::Http2),
    (Peer::Caddy, Version::Http2),
    (Peer::Nginx, Version::Http1),
    (Peer::Node, Version::Http1),
    (Peer::Caddy, Version::Http1),
    (Peer::Python, Version::Http1),
    (Peer::PythonModule, Version::Http1),
];

/// The programs that must be there for `server` to work: h2o and caddy keep no uploads and haproxy serves no files, so
/// each stands in front of Go.
pub(crate) fn needs(server: Peer) -> Vec<Peer> {
    match server {
        Peer::H2o | Peer::Haproxy | Peer::Caddy => vec![server, Peer::Go],
        _ => vec![server],
    }
}

/// Whether `server` can be had over `transport`: Python's module has no option for TLS.
pub(crate) fn speaks(server: Peer, transport: Transport) -> bool {
    server != Peer::PythonModule || transport == Transport::Cleartext
}

/// Whether `server` takes uploads.
pub(crate) fn takes_uploads(server: Peer) -> bool {
    server != Peer::PythonModule
}

/// A foreign server that serves a folder and takes uploads.
pub(crate) struct Foreign {
    /// Without a slash at the end.
    pub(crate) origin: String,
    receipt: Receipt,
    // The front, and the one behind it if there is one. Killed before the folder that they work in is removed: fields are
    // dropped in this order.
    daemons: Vec<Daemon>,
    scratch: Scratch,
}

/// How a server proves what it was sent.
enum Receipt {
    /// It sends the body back.
    Echo,
    /// It stores the body here.
    Folder(PathBuf),
    /// It prints `upload NAME BYTES SHA256`: the server itself, or the one behind it.
    Line,
    /// It takes no uploads.
    None,
}

impl Foreign {
    /// Starts `server` over the folder that [`site`] names.
    pub(crate) fn start(server: Peer, version: Version, transport: Transport) -> Outcome<Foreign> {
        Foreign::start_over(server, version, transport, site())
    }

    /// Starts `server` over `root`.
    pub(crate) fn start_over(
        server: Peer,
        version: Version,
        transport: Transport,
        root: &Path,
    ) -> Outcome<Foreign> {
        let scratch = Scratch::new()?;
        let place = Place {
            version,
            transport,
            root,
            certs: certs()?,
            scratch: &scratch,
        };
        let (origin, receipt, daemons) = match server {
            Peer::Nghttpd => nghttpd(&place)?,
            Peer::H2o => h2o(&place)?,
            Peer::Nginx => nginx(&place, "")?,
            Peer::Lighttpd => lighttpd(&place)?,
            Peer::Haproxy => haproxy_before_go(&place)?,
            Peer::Go => own_server(&mut go(&place, false)?)?,
            Peer::Node => own_server(&mut node(&place)?)?,
            Peer::Caddy => caddy(&place)?,
            Peer::Python => own_server(&mut python(&place)?)?,
            Peer::PythonModule => python_module(&place)?,
            other => return Err(format!("{} is no server", other.name()).into()),
        };
        Ok(Foreign {
            origin,
            receipt,
            daemons,
            scratch,
        })
    }

    /// Starts nginx over `root` with HTTP/2 in cleartext and these directives.
    pub(crate) fn start_nginx(directives: &str, root: &Path) -> Outcome<Foreign> {
        Self::start_nginx_of(Version::Http2, directives, root)
    }

    /// Starts nginx over `root` with this version in cleartext and these directives.
    pub(crate) fn start_nginx_of(version: Version, directives: &str, root: &Path) -> Outcome<Foreign> {
        let scratch = Scratch::new()?;
        let place = Place {
            version,
            transport: Transport::Cleartext,
            root,
            certs: certs()?,
            scratch: &scratch,
        };
        let (origin, receipt, daemons) = nginx(&place, directives)?;
        Ok(Foreign {
            origin,
            receipt,
            daemons,
            scratch,
        })
    }

    /// Lets `fullbore put` send `payload`, and fails unless the server has got it whole.
    pub(crate) fn take_upload(&mut self, transport: Transport, payload: &Payload) -> Outcome {
        let answer = fullbore::put(
            transport,
            &format!("{}/upload", self.origin),
            payload,
            Hasher::default(),
        )?;
        match &self.receipt {
            Receipt::Echo => payload.check_hash(&answer, "what the server sent back"),
            Receipt::Folder(folder) => {
                payload.check_file(&folder.join(&payload.name), "what the server stored")
            }
            Receipt::None => Err("this server takes no uploads".into()),
            Receipt::Line => {
                let witness = self.daemons.last_mut().ok_or("no server runs")?;
                let line = witness.wait_line(&format!("upload {} ", payload.name))?;
                let (bytes, sha256) = line.split_once(' ').unwrap_or((&line, ""));
                payload.check(
                    bytes.parse().unwrap_or(u64::MAX),
                    sha256,
                    "what the server received",
                )
            }
        }
    }

    /// A fault of ours, with what the server had to say about it.
    pub(crate) fn blame(&self, fault: &Fault) -> Fault {
        let said: Vec<String> = self.daemons.iter().map(Daemon::stderr_tail).collect();
        format!("{fault}\nthe server said:\n{}", said.join("\n")).into()
    }

    /// The trial's own folder, for what is downloaded.
    pub(crate) fn folder(&self) -> Outcome<PathBuf> {
        self.scratch.folder("downloaded")
    }
}

/// haproxy in front of any server on 127.0.0.1 that speaks HTTP/2 in cleartext. Returns its origin with it.
pub(crate) fn haproxy(
    transport: Transport,
    backend_port: u16,
    scratch: &Scratch,
) -> Outcome<(Daemon, String)> {
    let certs = certs()?;
    let (daemon, port) = spawn_on_free_port(|port| {
        let bind = match transport {
            Transport::Cleartext => "proto h2".to_owned(),
            Transport::Tls => format!("ssl crt {} alpn h2", certs.both.display()),
        };
        let text = format!(
            "defaults\n  mode http\n  timeout connect 60s\n  timeout client 120s\n  timeout server 120s\n\
             listen front\n  bind 127.0.0.1:{port} {bind}\n  server back 127.0.0.1:{backend_port} proto h2\n"
        );
        let mut command = Peer::Haproxy.command()?;
        command
            .arg("-db")
            .arg("-f")
            .arg(scratch.file("haproxy.cfg", &text)?);
        Ok(command)
    })?;
    Ok((daemon, origin(transport, port)))
}

struct Place<'a> {
    version: Version,
    transport: Transport,
    root: &'a Path,
    certs: &'a Certs,
    scratch: &'a Scratch,
}

/// Origin, place of the uploads, and the processes.
type Started = (String, Receipt, Vec<Daemon>);

fn nghttpd(place: &Place<'_>) -> Outcome<Started> {
    let (front, port) = spawn_on_free_port(|port| {
        let mut command = Peer::Nghttpd.command()?;
        command
            .args(["--address=127.0.0.1", "--echo-upload", "--htdocs"])
            .arg(place.root);
        match place.transport {
            Transport::Cleartext => command.arg("--no-tls").arg(port.to_string()),
            Transport::Tls => command
                .arg(port.to_string())
                .arg(&place.certs.key)
                .arg(&place.certs.chain),
        };
        Ok(command)
    })?;
    Ok((origin(place.transport, port), Receipt::Echo, vec![front]))
}

fn nginx(place: &Place<'_>, directives: &str) -> Outcome<Started> {
    let stored = place.scratch.folder("stored")?;
    let uploads = place.scratch.folder("stored/upload")?;
    let work = place.scratch.folder("nginx")?;
    let (front, port) = spawn_on_free_port(|port| {
        let http2 = match place.version {
            Version::Http1 => "",
            Version::Http2 => " http2",
        };
        let listen = match place.transport {
            Transport::Cleartext => format!("listen 127.0.0.1:{port}{http2};"),
            Transport::Tls => format!(
                "listen 127.0.0.1:{port} ssl{http2}; ssl_certificate {}; ssl_certificate_key {};",
                place.certs.chain.display(),
                place.certs.key.display()
            ),
        };
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|name| format!("{name}_temp_path {}/{name}; ", work.display()))
            .collect();
        let text = format!(
            "daemon off; master_process off; pid {work}/pid; error_log stderr warn; events {{}}\n\
             http {{ access_log off; client_max_body_size 0; {temporary}\n\
             server {{ {listen} {directives} root {root}; location /upload/ {{ root {stored}; dav_methods PUT; }} }} }}\n",
            work = work.display(),
            root = place.root.display(),
            stored = stored.display(),
        );
        let mut command = Peer::Nginx.command()?;
        command
            .args(["-e", "stderr", "-c"])
            .arg(place.scratch.file("nginx.conf", &text)?);
        Ok(command)
    })?;
    Ok((
        origin(place.transport, port),
        Receipt::Folder(uploads),
        vec![front],
    ))
}

fn lighttpd(place: &Place<'_>) -> Outcome<Started> {
    let stored = place.scratch.folder("stored")?;
    let uploads = place.scratch.folder("stored/upload")?;
    let work = place.scratch.folder("lighttpd")?;
    let (front, port) = spawn_on_free_port(|port| {
        let tls = match place.transport {
            Transport::Cleartext => String::new(),
            Transport::Tls => format!(
                "ssl.engine = \"enable\"\nssl.pemfile = \"{}\"\nssl.privkey = \"{}\"\n",
                place.certs.chain.display(),
                place.certs.key.display()
            ),
        };
        let text = format!(
            "server.modules = (\"mod_openssl\", \"mod_webdav\")\n\
             server.bind = \"127.0.0.1\"\nserver.port = {port}\n\
             server.document-root = \"{root}\"\nserver.upload-dirs = (\"{work}\")\nserver.max-request-size = 0\n{tls}\
             $HTTP[\"url\"] =~ \"^/upload/\" {{ server.document-root = \"{stored}\" webdav.activate = \"enable\" }}\n",
            root = place.root.display(),
            work = work.display(),
            stored = stored.display(),
        );
        let mut command = Peer::Lighttpd.command()?;
        command
            .arg("-D")
            .arg("-f")
            .arg(place.scratch.file("lighttpd.conf", &text)?);
        Ok(command)
    })?;
    Ok((
        origin(place.transport, port),
        Receipt::Folder(uploads),
        vec![front],
    ))
}

/// h2o serves the files itself, and hands uploads to Go over HTTP/1.1.
fn h2o(place: &Place<'_>) -> Outcome<Started> {
    let mut backend = Daemon::spawn(&mut go(place, true)?)?;
    let behind = backend.wait_line("listening on ")?;
    let (front, port) = spawn_on_free_port(|port| {
        let tls = match place.transport {
            Transport::Cleartext => String::new(),
            // Without OCSP stapling it starts no helper.
            Transport::Tls => format!(
                "  ssl:\n    certificate-file: {}\n    key-file: {}\n    ocsp-update-interval: 0\n",
                place.certs.chain.display(),
                place.certs.key.display()
            ),
        };
        let text = format!(
            "num-threads: 1\nhandshake-timeout: 600\nhttp1-request-timeout: 600\n\
             http2-idle-timeout: 600\nlimit-request-body: 4294967296\n{user}listen:\n  host: 127.0.0.1\n  port: {port}\n{tls}\
             hosts:\n  default:\n    paths:\n      /:\n        file.dir: {root}\n\
             \x20     /upload:\n        proxy.reverse.url: {behind}/\n        proxy.timeout.io: 120000\n",
            user = run_as(),
            root = place.root.display(),
        );
        let mut command = Peer::H2o.command()?;
        command.arg("-c").arg(place.scratch.file("h2o.conf", &text)?);
        Ok(command)
    })?;
    Ok((origin(place.transport, port), Receipt::Line, vec![front, backend]))
}

fn haproxy_before_go(place: &Place<'_>) -> Outcome<Started> {
    let cleartext = Place {
        transport: Transport::Cleartext,
        ..*place
    };
    let mut backend = Daemon::spawn(&mut go(&cleartext, false)?)?;
    let behind = backend.wait_line("listening on ")?;
    let port = behind
        .rsplit(':')
        .next()
        .and_then(|digits| digits.parse().ok())
        .ok_or("Go printed no port")?;
    let (front, origin) = haproxy(place.transport, port, place.scratch)?;
    Ok((origin, Receipt::Line, vec![front, backend]))
}

fn go(place: &Place<'_>, http1: bool) -> Outcome<Command> {
    let mut command = Command::new(go_peer()?);
    command.args(["server", "-root"]).arg(place.root);
    if http1 {
        command.arg("-http1");
    } else if place.transport == Transport::Tls {
        command
            .arg("-cert")
            .arg(&place.certs.chain)
            .arg("-key")
            .arg(&place.certs.key);
    }
    Ok(command)
}

fn node(place: &Place<'_>) -> Outcome<Command> {
    let script = match place.version {
        Version::Http1 => "node/http1-server.mjs",
        Version::Http2 => "node/server.mjs",
    };
    script_of(Peer::Node, script, place)
}

fn python(place: &Place<'_>) -> Outcome<Command> {
    script_of(Peer::Python, "python/server.py", place)
}

/// A server of the suite's own: `SCRIPT ROOT [CERT KEY]`.
fn script_of(peer: Peer, script: &str, place: &Place<'_>) -> Outcome<Command> {
    let mut command = peer.command()?;
    command.arg(sources().join(script)).arg(place.root);
    if place.transport == Transport::Tls {
        command.arg(&place.certs.chain).arg(&place.certs.key);
    }
    Ok(command)
}

fn python_module(place: &Place<'_>) -> Outcome<Started> {
    let (front, port) = spawn_on_free_port(|port| {
        let mut command = Peer::PythonModule.command()?;
        command
            .args(["-m", "http.server", "--bind", "127.0.0.1", "--directory"])
            .arg(place.root)
            .arg(port.to_string());
        Ok(command)
    })?;
    Ok((origin(place.transport, port), Receipt::None, vec![front]))
}

/// caddy serves the files itself, and hands uploads to Go over HTTP/1.1.
fn caddy(place: &Place<'_>) -> Outcome<Started> {
    let mut backend = Daemon::spawn(&mut go(place, true)?)?;
    let behind = backend.wait_line("listening on ")?;
    let work = place.scratch.folder("caddy")?;
    let protocols = match place.version {
        Version::Http1 => "h1",
        Version::Http2 => "h1 h2 h2c",
    };
    let (front, port) = spawn_on_free_port(|port| {
        let tls = match place.transport {
            Transport::Cleartext => String::new(),
            Transport::Tls => format!(
                "\ttls {} {}\n",
                place.certs.chain.display(),
                place.certs.key.display()
            ),
        };
        let text = format!(
            "{{\n\tadmin off\n\tauto_https off\n\tstorage file_system {work}\n\tservers {{\n\t\tprotocols {protocols}\n\t}}\n}}\n\
             {origin} {{\n\tbind 127.0.0.1\n{tls}\troot * {root}\n\treverse_proxy /upload/* {behind}\n\tfile_server\n}}\n",
            work = work.display(),
            origin = origin(place.transport, port),
            root = place.root.display(),
        );
        let mut command = Peer::Caddy.command()?;
        // It keeps its configuration and its state in the user's folders otherwise.
        command.env("XDG_CONFIG_HOME", &work).env("XDG_DATA_HOME", &work);
        command.args(["run", "--adapter", "caddyfile", "--config"]);
        command.arg(place.scratch.file("Caddyfile", &text)?);
        Ok(command)
    })?;
    Ok((origin(place.transport, port), Receipt::Line, vec![front, backend]))
}

/// A server of the suite's own, which chooses its port and prints it.
fn own_server(command: &mut Command) -> Outcome<Started> {
    let mut front = Daemon::spawn(command)?;
    let origin = front.wait_line("listening on ")?;
    Ok((origin, Receipt::Line, vec![front]))
}

/// h2o gives up root for `nobody` unless told otherwise, who may not read the suite's files.
pub(crate) fn run_as() -> &'static str {
    let root =
        std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    if root { "user: root\n" } else { "" }
}

fn origin(transport: Transport, port: u16) -> String {
    match transport {
        Transport::Cleartext => format!("http://127.0.0.1:{port}"),
        Transport::Tls => format!("https://127.0.0.1:{port}"),
    }
}
