//! How curl, nghttp, h2load, nghttpd and nginx are called, and what they print.

pub(crate) mod callgrind;
pub(crate) mod go;
pub(crate) mod h2;
pub(crate) mod java;
pub(crate) mod logged;
pub(crate) mod observe;
pub(crate) mod proxies;
pub(crate) mod servers;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::context::Context;
use crate::error::Error;
use crate::process::{self, Running};

/// A peer's server, until it is dropped.
pub(crate) struct PeerServer<'a> {
    _running: Running<'a>,
    pub(crate) port: u16,
}

/// The flags of nghttp2's programs for a window of `2^bits - 1` on each stream and on the connection.
pub(crate) fn window_flags(bits: u32) -> [String; 2] {
    [format!("-w{bits}"), format!("-W{bits}")]
}

/// Downloads a URL with curl; by its own clock, from its start to the last byte.
pub(crate) fn curl_get(cx: &Context, url: &str, bytes: u64, limit: Duration) -> Result<f64, Error> {
    let mut command = Command::new("curl");
    command.args(["-w", "%{http_code} %{size_download} %{time_total}", url]);
    curl(cx, &mut command, bytes, limit)
}

/// Uploads a file with curl.
pub(crate) fn curl_put(
    cx: &Context,
    file: &Path,
    url: &str,
    bytes: u64,
    limit: Duration,
) -> Result<f64, Error> {
    let mut command = Command::new("curl");
    command
        .args(["-w", "%{http_code} %{size_upload} %{time_total}", "-T"])
        .arg(file)
        .arg(url);
    curl(cx, &mut command, bytes, limit)
}

fn curl(cx: &Context, command: &mut Command, bytes: u64, limit: Duration) -> Result<f64, Error> {
    command.args([
        "--silent",
        "--show-error",
        "--fail",
        "--http2-prior-knowledge",
        "-o",
        "/dev/null",
    ]);
    let output = process::run(&cx.reaper, command, cx.limit(limit)?)?;
    curls_line(&output.stdout, bytes)
}

/// `STATUS BYTES SECONDS`.
fn curls_line(line: &str, bytes: u64) -> Result<f64, Error> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        [status, moved, seconds] if status.starts_with('2') && moved.parse() == Ok(bytes) => {
            seconds.parse().map_err(|_| unexpected("curl", line))
        }
        _ => Err(unexpected("curl", line)),
    }
}

/// curl for many transfers over HTTP/2, accepting any certificate.
pub(crate) fn curl_parallel(at_once: u32) -> Command {
    let mut command = Command::new("curl");
    // Without the last flag the meter of parallel transfers is printed in spite of `--silent`, over any error.
    command.args([
        "--silent",
        "--show-error",
        "--fail",
        "--http2",
        "--insecure",
        "--no-progress-meter",
    ]);
    command.args(["--parallel", "--parallel-max", &at_once.to_string()]);
    command
}

/// Downloads many URLs over one connection with curl, accepting any certificate; wall time of the whole process, since
/// curl tells no total.
pub(crate) fn curl_many(cx: &Context, config: &Path, at_once: u32, limit: Duration) -> Result<f64, Error> {
    let mut command = curl_parallel(at_once);
    command.arg("--config").arg(config);
    let output = process::run(&cx.reaper, &mut command, cx.limit(limit)?)?;
    Ok(output.wall.as_secs_f64())
}

/// Downloads a URL with nghttp; by its own clock, from the connection to the last byte.
pub(crate) fn nghttp(cx: &Context, url: &str, more: &[String], limit: Duration) -> Result<f64, Error> {
    let mut command = Command::new("nghttp");
    command.args(["--null-out", "--stat"]).args(more).arg(url);
    let output = process::run(&cx.reaper, &mut command, cx.limit(limit)?)?;
    nghttps_table(&output.stdout)
}

/// The row under `id  responseEnd requestStart  process code size request path`.
fn nghttps_table(text: &str) -> Result<f64, Error> {
    let row = text
        .lines()
        .skip_while(|line| !line.starts_with("id "))
        .nth(1)
        .unwrap_or("");
    let words: Vec<&str> = row.split_whitespace().collect();
    match words.as_slice() {
        [_id, end, _start, _process, status, ..] if status.starts_with('2') => {
            seconds(end.trim_start_matches('+')).ok_or_else(|| unexpected("nghttp", row))
        }
        _ => Err(unexpected("nghttp", row)),
    }
}

/// Sends requests over one connection with h2load, so many at once, for the URLs of a list in their order.
pub(crate) fn h2load(
    cx: &Context,
    list: &Path,
    requests: u32,
    at_once: u32,
    limit: Duration,
) -> Result<f64, Error> {
    let mut command = Command::new("h2load");
    command.args([format!("-n{requests}"), format!("-m{at_once}"), "-c1".to_owned()]);
    command.args(window_flags(30)).arg("-i").arg(list);
    let output = process::run(&cx.reaper, &mut command, cx.limit(limit)?)?;
    h2loads_lines(&output.stdout, u64::from(requests))
}

pub(crate) fn h2loads_lines(text: &str, requests: u64) -> Result<f64, Error> {
    let after = |prefix: &str| text.lines().find_map(|line| line.strip_prefix(prefix));
    let all = format!("{requests} succeeded");
    let outcome = after("requests: ").ok_or_else(|| unexpected("h2load", "no line `requests:`"))?;
    if !outcome.split(", ").any(|part| part == all) {
        return Err(unexpected("h2load", outcome));
    }
    let ended = after("finished in ").and_then(|rest| seconds(rest.split(',').next()?));
    ended.ok_or_else(|| unexpected("h2load", "no line `finished in`"))
}

/// nghttp2's durations: `1.50s`, `191.22ms`, `185us`.
fn seconds(text: &str) -> Option<f64> {
    for (unit, scale) in [("us", 1e-6), ("ms", 1e-3), ("s", 1.0)] {
        if let Some(figure) = text.strip_suffix(unit) {
            return figure.parse::<f64>().ok().map(|figure| figure * scale);
        }
    }
    None
}

/// A certificate that nobody trusts, and its key: files in PEM, ECDSA on P-256.
#[derive(Clone)]
pub(crate) struct Keys {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

/// Makes them for this machine.
pub(crate) fn keys(cx: &Context) -> Result<Keys, Error> {
    let made = fullbore::tls::self_signed(&["localhost", "127.0.0.1"]);
    let made = made.map_err(|error| Error::Failed("the certificate".to_owned(), error.to_string()))?;
    let folder = cx.folder("keys")?;
    let write = |name: &str, text: &str| {
        let file = folder.join(name);
        match std::fs::write(&file, text) {
            Ok(()) => Ok(file),
            Err(error) => Err(Error::File(file, error)),
        }
    };
    Ok(Keys {
        cert: write("cert.pem", &made.cert_pem)?,
        key: write("key.pem", &made.key_pem)?,
    })
}

/// Serves a folder with nghttpd over TLS, with a certificate that nobody trusts.
pub(crate) fn nghttpd_tls<'a>(
    cx: &'a Context,
    folder: &Path,
    more: &[String],
) -> Result<PeerServer<'a>, Error> {
    let Keys { cert, key } = keys(cx)?;
    let port = cx.free_port()?;
    let mut command = Command::new("nghttpd");
    command.args(["-a", "127.0.0.1", "-d"]).arg(folder).args(more);
    command.arg(port.to_string()).args([key, cert]);
    Ok(PeerServer {
        _running: Running::listening(&cx.reaper, &mut command, port)?,
        port,
    })
}

/// Serves a folder with nghttpd in the clear.
pub(crate) fn nghttpd<'a>(cx: &'a Context, folder: &Path, more: &[String]) -> Result<PeerServer<'a>, Error> {
    let port = cx.free_port()?;
    let mut command = Command::new("nghttpd");
    command
        .args(["--no-tls", "-a", "127.0.0.1", "-d"])
        .arg(folder)
        .args(more)
        .arg(port.to_string());
    Ok(PeerServer {
        _running: Running::listening(&cx.reaper, &mut command, port)?,
        port,
    })
}

/// nginx in one process, taking PUT into `folder`.
pub(crate) fn nginx<'a>(cx: &'a Context, folder: &Path) -> Result<PeerServer<'a>, Error> {
    let port = cx.free_port()?;
    let root = folder.display();
    let temporary = nginx_temporary_paths(folder);
    let config = format!(
        "daemon off;\nmaster_process off;\npid {root}/nginx.pid;\nerror_log {root}/error.log;\n\
         events {{}}\nhttp {{\n  access_log off;\n{temporary}  \
         server {{\n    listen 127.0.0.1:{port} http2;\n    root {root};\n    client_max_body_size 0;\n    \
         location / {{ dav_methods PUT; }}\n  }}\n}}\n"
    );
    let file = folder.join("nginx.conf");
    std::fs::write(&file, config).map_err(|error| Error::File(file.clone(), error))?;
    let mut command = Command::new("nginx");
    command
        .arg("-e")
        .arg(folder.join("error.log"))
        .arg("-c")
        .arg(&file);
    Ok(PeerServer {
        _running: Running::listening(&cx.reaper, &mut command, port)?,
        port,
    })
}

/// Lines that keep nginx's own folders inside this one, whoever runs it.
fn nginx_temporary_paths(folder: &Path) -> String {
    let root = folder.display();
    ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|name| format!("  {name}_temp_path {root}/{name};\n"))
        .collect()
}

/// The versions of the programs named, in one line; one that is not installed is named as such.
pub(crate) fn versions(cx: &Context, programs: &[&str]) -> String {
    let limit = Duration::from_secs(10);
    let texts = programs.iter().map(|program| {
        let flag = match *program {
            "nginx" | "lighttpd" | "haproxy" | "apache2" => "-v",
            "strace" => "-V",
            "go" | "caddy" => "version",
            _ => "--version",
        };
        match process::run(&cx.reaper, Command::new(program).arg(flag), limit) {
            Ok(output) => {
                let line = output
                    .stdout
                    .lines()
                    .chain(output.stderr.lines())
                    .find(|line| !line.is_empty())
                    .unwrap_or("")
                    .trim()
                    .to_owned();
                match line.strip_prefix("nginx version: ") {
                    Some(version) => version.to_owned(),
                    // `2.6.2`, or `v2.6.2 h1:...`
                    None if *program == "caddy" => {
                        format!("caddy {}", line.split_whitespace().next().unwrap_or(""))
                    }
                    // `PATH  version: COMMIT/1.40.0/Clean/RELEASE/BoringSSL`
                    None if *program == "envoy" => {
                        format!("envoy {}", line.rsplit('/').nth(3).unwrap_or(""))
                    }
                    None if ["go", "h2o", "aria2", "HAProxy"]
                        .iter()
                        .any(|name| line.starts_with(&format!("{name} version "))) =>
                    {
                        line.replace("version ", "")
                    }
                    // `Server version: Apache/2.4.62 (Debian)`
                    None if *program == "apache2" => {
                        line.split_whitespace().nth(2).unwrap_or("").replace('/', " ")
                    }
                    None if line.starts_with("strace -- version ") => line.replace("-- version ", ""),
                    // `nghttpd nghttp2/1.52.0`, `curl 7.88.1 (...)`
                    None => line.split_whitespace().take(2).collect::<Vec<_>>().join(" "),
                }
            }
            Err(error) => error.to_string(),
        }
    });
    texts.collect::<Vec<_>>().join(", ")
}

fn unexpected(program: &str, why: &str) -> Error {
    let why = if why.is_empty() { "nothing" } else { why };
    Error::Output(program.to_owned(), why.chars().take(200).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_of_nghttp2_are_read_in_each_unit() {
        assert_eq!(seconds("1.50s"), Some(1.5));
        assert_eq!(seconds("250ms"), Some(0.25));
        assert_eq!(seconds("500000us"), Some(0.5));
        assert_eq!(seconds("fast"), None);
    }

    #[test]
    fn curls_line_must_have_the_status_and_the_bytes() {
        assert_eq!(curls_line("200 64 0.25", 64).ok(), Some(0.25));
        assert!(curls_line("404 64 0.25", 64).is_err());
        assert!(curls_line("200 63 0.25", 64).is_err());
        assert!(curls_line("", 64).is_err());
    }

    #[test]
    fn h2load_must_have_succeeded_with_all() {
        let text =
            "finished in 1.25s, 1 req/s\nrequests: 10 total, 10 started, 10 done, 10 succeeded, 0 failed\n";
        assert_eq!(h2loads_lines(text, 10).ok(), Some(1.25));
        assert!(h2loads_lines(&text.replace("10 succeeded", "9 succeeded"), 10).is_err());
    }

    #[test]
    fn nghttps_table_is_read_below_its_head() {
        let text = "***\nid  responseEnd requestStart  process code size request path\n \
                    13   +250.00ms       +115us 249.89ms  200   2M /f\n";
        assert_eq!(nghttps_table(text).ok(), Some(0.25));
        assert!(nghttps_table(&text.replace(" 200 ", " 404 ")).is_err());
        assert!(nghttps_table("").is_err());
    }
}
