//! Reverse proxies in front of an origin of HTTP/1.1, each in one process, with TLS and HTTP/2 at the front.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Keys, nginx_temporary_paths};
use crate::context::Context;
use crate::error::Error;
use crate::process::{Lines, Running};
use crate::program;

const START: Duration = Duration::from_secs(10);

/// Which proxy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Proxy {
    Fullbore,
    /// It writes each upload to a file first.
    Nginx,
    /// With `proxy_request_buffering off`.
    NginxStreaming,
    Haproxy,
    Nghttpx,
    Caddy,
    Apache,
    H2o,
    Envoy,
}

/// A proxy under way, until it is dropped.
pub(crate) struct Front<'a> {
    pub(crate) running: Running<'a>,
    pub(crate) port: u16,
    // A proxy that prints must find a reader.
    _lines: Option<Lines>,
}

impl Proxy {
    pub(crate) const ALL: [Proxy; 9] = [
        Proxy::Fullbore,
        Proxy::Nginx,
        Proxy::NginxStreaming,
        Proxy::Haproxy,
        Proxy::Nghttpx,
        Proxy::Caddy,
        Proxy::Apache,
        Proxy::H2o,
        Proxy::Envoy,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Proxy::Fullbore => "fullbore proxy",
            Proxy::Nginx => "nginx",
            Proxy::NginxStreaming => "nginx, streaming",
            Proxy::Haproxy => "haproxy",
            Proxy::Nghttpx => "nghttpx",
            Proxy::Caddy => "caddy",
            Proxy::Apache => "apache2",
            Proxy::H2o => "h2o",
            Proxy::Envoy => "envoy",
        }
    }

    pub(crate) fn ours(self) -> bool {
        self == Proxy::Fullbore
    }

    /// Starts it in front of that port of 127.0.0.1.
    pub(crate) fn start<'a>(self, cx: &'a Context, origin: u16, keys: &Keys) -> Result<Front<'a>, Error> {
        let folder = cx.folder("proxies")?;
        let to = format!("127.0.0.1:{origin}");
        if self == Proxy::Fullbore {
            let mut command = program::command(cx, "proxy");
            command.args([
                &format!("http://{to}"),
                "--listen",
                "127.0.0.1:0",
                "--threads",
                "1",
            ]);
            command.arg("--cert").arg(&keys.cert).arg("--key").arg(&keys.key);
            let (running, lines) = Running::with_lines(&cx.reaper, &mut command)?;
            let port = program::port(&lines.after("listening on ", START)?)?;
            return Ok(Front {
                running,
                port,
                _lines: Some(lines),
            });
        }
        let port = cx.free_port()?;
        let mut command = self.command(&folder, port, origin, keys)?;
        Ok(Front {
            running: Running::listening(&cx.reaper, &mut command, port)?,
            port,
            _lines: None,
        })
    }

    /// The command of a peer, with its configuration in a file of `folder`.
    fn command(self, folder: &Path, port: u16, origin: u16, keys: &Keys) -> Result<Command, Error> {
        let to = format!("127.0.0.1:{origin}");
        let file = |text: String| -> Result<PathBuf, Error> {
            let file = folder.join(format!("{port}.conf"));
            std::fs::write(&file, text).map_err(|error| Error::File(file.clone(), error))?;
            Ok(file)
        };
        Ok(match self {
            // `start` has the command of `fullbore proxy`, which tells its port.
            Proxy::Fullbore | Proxy::Nginx | Proxy::NginxStreaming => {
                let mut command = Command::new("nginx");
                command.arg("-e").arg(folder.join("error.log"));
                let text = nginx(folder, port, &to, keys, self == Proxy::NginxStreaming);
                command.arg("-c").arg(file(text)?);
                command
            }
            Proxy::Haproxy => {
                let mut command = Command::new("haproxy");
                command.arg("-db").arg("-f");
                command.arg(file(haproxy(port, &to, &both_keys(folder, keys)?))?);
                command
            }
            Proxy::Nghttpx => {
                let mut command = Command::new("nghttpx");
                command.args(["--single-process", "--workers=1", "--conf=/dev/null"]);
                command.args(["--errorlog-file=/dev/null", "--accesslog-file=/dev/null"]);
                command.arg(format!("-f127.0.0.1,{port}"));
                command
                    .arg(format!("-b127.0.0.1,{origin}"))
                    .args([&keys.key, &keys.cert]);
                command
            }
            Proxy::Caddy => {
                let mut command = Command::new("caddy");
                command
                    .env("GOMAXPROCS", "1")
                    .env("XDG_DATA_HOME", folder)
                    .env("XDG_CONFIG_HOME", folder);
                command.args(["run", "--adapter", "caddyfile", "--config"]);
                command.arg(file(caddy(port, &to, keys))?);
                command
            }
            Proxy::Apache => {
                let mut command = Command::new("apache2");
                command
                    .arg("-X")
                    .arg("-f")
                    .arg(file(apache(folder, port, &to, keys))?);
                command
            }
            Proxy::H2o => {
                let mut command = Command::new("h2o");
                command.arg("-c").arg(file(h2o(port, &to, keys).to_string())?);
                command
            }
            Proxy::Envoy => {
                let mut command = Command::new("envoy");
                command.args([
                    "--disable-hot-restart",
                    "--concurrency",
                    "1",
                    "--log-level",
                    "off",
                ]);
                command
                    .arg("--config-yaml")
                    .arg(envoy(port, origin, keys).to_string());
                command
            }
        })
    }
}

/// Connections to the origin are kept and TLS 1.3 is spoken, as newer versions do by themselves.
fn nginx(folder: &Path, port: u16, to: &str, keys: &Keys, streaming: bool) -> String {
    let own = folder.display();
    let temporary = nginx_temporary_paths(folder);
    let buffering = if streaming { "off" } else { "on" };
    format!(
        "daemon off;\nmaster_process off;\nworker_processes 1;\npid {own}/{port}.pid;\nerror_log {own}/error.log;\n\
         events {{ worker_connections 16000; }}\nhttp {{\n  access_log off;\n{temporary}  \
         upstream origin {{ server {to}; keepalive 64; }}\n  server {{\n    listen 127.0.0.1:{port} ssl http2;\n    \
         ssl_protocols TLSv1.2 TLSv1.3;\n    ssl_certificate {};\n    ssl_certificate_key {};\n    client_max_body_size 0;\n    location / {{\n      \
         proxy_pass http://origin;\n      proxy_http_version 1.1;\n      proxy_set_header Connection \"\";\n      \
         proxy_request_buffering {buffering};\n    }}\n  }}\n}}\n",
        keys.cert.display(),
        keys.key.display()
    )
}

/// haproxy reads the certificate and the key from one file.
fn both_keys(folder: &Path, keys: &Keys) -> Result<PathBuf, Error> {
    let read =
        |file: &Path| std::fs::read_to_string(file).map_err(|error| Error::File(file.to_owned(), error));
    let both = folder.join("both.pem");
    std::fs::write(&both, read(&keys.cert)? + &read(&keys.key)?)
        .map_err(|error| Error::File(both.clone(), error))?;
    Ok(both)
}

fn haproxy(port: u16, to: &str, keys: &Path) -> String {
    format!(
        "global\n  nbthread 1\ndefaults\n  mode http\n  timeout connect 5s\n  timeout client 60s\n  timeout server 60s\n\
         frontend front\n  bind 127.0.0.1:{port} ssl crt {} alpn h2,http/1.1\n  default_backend origin\n\
         backend origin\n  server origin {to}\n",
        keys.display()
    )
}

fn caddy(port: u16, to: &str, keys: &Keys) -> String {
    format!(
        "{{\n  admin off\n  auto_https off\n  default_sni localhost\n}}\nhttps://:{port} {{\n  bind 127.0.0.1\n  \
         tls {} {}\n  reverse_proxy {to}\n}}\n",
        keys.cert.display(),
        keys.key.display()
    )
}

/// One process with as many threads as Debian's configuration gives to several.
fn apache(folder: &Path, port: u16, to: &str, keys: &Keys) -> String {
    let own = folder.display();
    let modules = ["mpm_event", "authz_core", "ssl", "http2", "proxy", "proxy_http"]
        .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"))
        .concat();
    format!(
        "ServerName localhost\nPidFile {own}/{port}.pid\nErrorLog {own}/error.log\nListen 127.0.0.1:{port}\n\
         User #65534\nGroup #65534\n{modules}\
         ServerLimit 1\nThreadLimit 150\nThreadsPerChild 150\nMaxRequestWorkers 150\n\
         Protocols h2 http/1.1\nSSLEngine on\nSSLCertificateFile {}\nSSLCertificateKeyFile {}\nProxyPass / http://{to}/\n",
        keys.cert.display(),
        keys.key.display()
    )
}

fn h2o(port: u16, to: &str, keys: &Keys) -> Value {
    let ssl = json!({ "certificate-file": keys.cert, "key-file": keys.key });
    json!({
        "num-threads": 1,
        "listen": { "host": "127.0.0.1", "port": port, "ssl": ssl },
        "hosts": { "default": { "paths": { "/": { "proxy.reverse.url": format!("http://{to}/") } } } },
    })
}

fn envoy(port: u16, origin: u16, keys: &Keys) -> Value {
    let address = |port: u16| json!({ "socket_address": { "address": "127.0.0.1", "port_value": port } });
    let endpoint = json!({ "endpoint": { "address": address(origin) } });
    let certificates = json!([{
        "certificate_chain": { "filename": keys.cert },
        "private_key": { "filename": keys.key },
    }]);
    let tls = json!({
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
        "common_tls_context": { "alpn_protocols": ["h2", "http/1.1"], "tls_certificates": certificates },
    });
    let router = json!({
        "name": "envoy.filters.http.router",
        "typed_config": { "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router" },
    });
    let route = json!({ "match": { "prefix": "/" }, "route": { "cluster": "origin", "timeout": "0s" } });
    let manager = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "front",
        "route_config": { "virtual_hosts": [{ "name": "all", "domains": ["*"], "routes": [route] }] },
        "http_filters": [router],
    });
    json!({ "static_resources": {
        "listeners": [{
            "address": address(port),
            "filter_chains": [{
                "transport_socket": { "name": "envoy.transport_sockets.tls", "typed_config": tls },
                "filters": [{
                    "name": "envoy.filters.network.http_connection_manager",
                    "typed_config": manager,
                }],
            }],
        }],
        "clusters": [{
            "name": "origin",
            "type": "STATIC",
            "connect_timeout": "5s",
            "load_assignment": { "cluster_name": "origin", "endpoints": [{ "lb_endpoints": [endpoint] }] },
        }],
    } })
}
