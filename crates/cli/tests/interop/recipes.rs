//! The recipes of docs/guide/proxy.md, as they stand there: each command of the guide is started, with addresses and files of
//! this run in place of its own, in front of an application that the recipe is for, or of a few lines that stand in for it.

use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use serde_json::Value;

use crate::certs::certs;
use crate::files::Scratch;
use crate::fullbore;
use crate::grpc;
use crate::peers::{Peer, sources, trial};
use crate::process::{DEADLINE, Daemon, Outcome, ensure, run_text, spawn_on_free_port};
use crate::proxied_pages::uvicorn;

/// All trials of this file.
pub(crate) fn trials() -> Vec<Trial> {
    let of = |peers: &[Peer], what: &str, run: fn() -> Outcome| {
        trial(
            peers,
            format!("the recipe of docs/guide/proxy.md {what} works"),
            run,
        )
    };
    vec![
        of(&[Peer::Node, Peer::Curl], "for Node", node),
        of(&[Peer::Uvicorn, Peer::Curl], "for Python, ASGI", asgi),
        of(&[Peer::GrpcGo], "for gRPC", grpc),
        of(
            &[Peer::Nginx, Peer::Node, Peer::Curl],
            "behind a CDN",
            behind_a_cdn,
        ),
        of(&[Peer::Python, Peer::Curl], "beside Nextcloud or Immich", uploads),
    ]
}

/// The command `fullbore proxy` under a heading of the guide.
fn command_of(heading: &str) -> Outcome<String> {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/proxy.md");
    let guide = std::fs::read_to_string(guide)?;
    let section = guide.split("\n### ").find(|section| section.starts_with(heading));
    let section = section.ok_or_else(|| format!("the guide has no recipe {heading:?}"))?;
    let command = section.lines().find(|line| line.starts_with("fullbore proxy "));
    Ok(command
        .ok_or_else(|| format!("{heading:?} has no command"))?
        .to_owned())
}

/// Starts the command of a recipe with `origin` in place of its own, and `replaced` words of it.
fn start(heading: &str, origin: &str, replaced: &[(&str, &str)]) -> Outcome<(Daemon, String)> {
    let certs = certs()?;
    let (chain, key) = (certs.chain.display().to_string(), certs.key.display().to_string());
    let line = command_of(heading)?;
    let mut command = Command::new(fullbore::program());
    for (at, word) in line.split_whitespace().skip(1).enumerate() {
        let known = replaced
            .iter()
            .find(|(own, _)| *own == word)
            .map(|(_, other)| *other);
        command.arg(match word {
            // Behind `proxy`.
            _ if at == 1 => origin,
            "fullchain.pem" => &chain,
            "key.pem" => &key,
            _ => known.unwrap_or(word),
        });
    }
    let mut daemon = Daemon::spawn(command.args(["--listen", "127.0.0.1:0"]))?;
    let url = daemon.wait_line("listening on ")?;
    Ok((daemon, url.trim().trim_end_matches('/').to_owned()))
}

/// curl over HTTP/2, with these arguments.
fn curl(arguments: &[&str]) -> Outcome<Value> {
    let mut curl = Peer::Curl.command()?;
    curl.args(["-sS", "--fail", "--http2", "--insecure", "--noproxy", "*"])
        .args(arguments);
    let answer = run_text(&mut curl)?;
    serde_json::from_str(&answer).map_err(|error| format!("{error}: {answer}").into())
}

/// The value of a field that an application has seen.
fn field(seen: &Value, name: &str) -> String {
    let fields = seen["fields"].as_array().into_iter().flatten();
    let mut values = fields
        .filter(|field| field[0] == name)
        .filter_map(|field| field[1].as_str());
    values.next().unwrap_or_default().to_owned()
}

fn echo() -> Outcome<(Daemon, String)> {
    let mut daemon = Daemon::spawn(Peer::Node.command()?.arg(sources().join("node/echo.mjs")))?;
    let url = daemon.wait_line("listening on ")?;
    Ok((daemon, url.trim().to_owned()))
}

fn node() -> Outcome {
    let (_application, origin) = echo()?;
    let (_proxy, url) = start("Node", &origin, &[])?;
    let seen = curl(&[
        &format!("{url}/a?b"),
        "-H",
        "X-Forwarded-For: 192.0.2.1",
        "-d",
        "body",
    ])?;
    let host = url.trim_start_matches("https://");
    for (name, expected) in [
        ("host", host),
        ("x-forwarded-for", "127.0.0.1"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", host),
    ] {
        ensure(field(&seen, name) == expected, || {
            format!("{name} is not {expected}: {seen}")
        })?;
    }
    ensure(seen["target"] == "/a?b" && seen["body"] == "body", || {
        seen.to_string()
    })
}

fn asgi() -> Outcome {
    let scratch = Scratch::new()?;
    let socket = scratch.path().join("app.sock").display().to_string();
    let options = ["--uds", &socket, "--proxy-headers", "--forwarded-allow-ips", "*"];
    let mut application = Daemon::spawn(&mut uvicorn(&options))?;
    let begun = Instant::now();
    while std::os::unix::net::UnixStream::connect(&socket).is_err() {
        application.check_alive()?;
        ensure(begun.elapsed() < DEADLINE, || {
            format!("nobody listens on {socket}")
        })?;
        std::thread::sleep(Duration::from_millis(5));
    }
    let (_proxy, url) = start("Python, ASGI", &format!("unix:{socket}"), &[])?;
    let seen = curl(&[&format!("{url}/seen"), "-d", "12345"])?;
    ensure(
        seen["scheme"] == "https" && seen["client"] == "127.0.0.1" && seen["bytes"] == 5,
        || seen.to_string(),
    )?;
    ensure(seen["host"] == url.trim_start_matches("https://"), || {
        seen.to_string()
    })
}

fn grpc() -> Outcome {
    let (_server, port) = grpc::server(false)?;
    let (_proxy, url) = start("gRPC", &format!("h2c://127.0.0.1:{port}"), &[])?;
    grpc::run_cases(url.rsplit(':').next().unwrap_or_default(), true)
}

/// nginx stands in for the CDN.
fn behind_a_cdn() -> Outcome {
    let (_application, origin) = echo()?;
    let (_proxy, url) = start("Behind a CDN", &origin, &[("10.0.0.0/8", "127.0.0.0/8")])?;
    let scratch = Scratch::new()?;
    let work = scratch.folder("nginx")?;
    let work = work.display();
    let (_cdn, port) = spawn_on_free_port(|port| {
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|name| format!("{name}_temp_path {work}/{name}; "))
            .collect();
        let text = format!(
            "daemon off; master_process off; pid {work}/pid; error_log stderr crit; events {{}}\n\
             http {{ access_log off; {temporary} server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass {url};\n\
             proxy_set_header Host cdn.example; proxy_set_header X-Forwarded-For 192.0.2.7;\n\
             proxy_set_header X-Forwarded-Proto https; proxy_set_header X-Forwarded-Host app.example; }} }} }}\n"
        );
        let mut command = Peer::Nginx.command()?;
        command
            .args(["-e", "stderr", "-c"])
            .arg(scratch.file("nginx.conf", &text)?);
        Ok(command)
    })?;
    let seen = curl(&[&format!("http://127.0.0.1:{port}/")])?;
    for (name, expected) in [
        ("x-forwarded-for", "192.0.2.7, 127.0.0.1"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "app.example"),
        ("host", "cdn.example"),
    ] {
        ensure(field(&seen, name) == expected, || {
            format!("{name} is not {expected}: {seen}")
        })?;
    }
    Ok(())
}

/// An application that says when the first octet of an upload has come stands in for Nextcloud and Immich.
fn uploads() -> Outcome {
    let mut application = Daemon::spawn(Peer::Python.command()?.arg(sources().join("python/uploads.py")))?;
    let origin = application.wait_line("listening on ")?;
    let (_proxy, url) = start("Beside Nextcloud or Immich", origin.trim(), &[])?;
    let mut curl = Peer::Curl.command()?;
    curl.args([
        "-sS",
        "--fail",
        "--http2",
        "--insecure",
        "--noproxy",
        "*",
        "-T",
        "-",
        &format!("{url}/upload"),
    ]);
    let mut curl = curl
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()?;
    let mut input = curl.stdin.take().ok_or("no input")?;
    let half = vec![7; 1 << 20];
    let uploaded = (|| -> Outcome {
        input.write_all(&half)?;
        input.flush()?;
        // The upload has not ended, and the application has some of it.
        application.wait_line("begun")?;
        input.write_all(&half)?;
        drop(input);
        let mut answer = String::new();
        curl.stdout
            .take()
            .ok_or("no output")?
            .read_to_string(&mut answer)?;
        ensure(answer == "2097152", || format!("the answer is {answer:?}"))
    })();
    if uploaded.is_err() {
        curl.kill()?;
    }
    let status = curl.wait()?;
    uploaded?;
    ensure(status.success(), || status.to_string())?;
    Ok(())
}
