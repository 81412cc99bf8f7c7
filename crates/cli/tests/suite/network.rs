//! The way to a server: proxies and what they refuse, addresses, and the rate. Real proxies are in `interop/proxies.rs`.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use crate::support::scripted::{Server, Then, data, head};
use crate::support::{Ended, Serving, TestResult, ended, patiently, peer, program, run};
use fullbore_testing::nobody::Nobody;

/// The heads that came, one for each connection.
type Heads = Arc<Mutex<Vec<String>>>;

/// A proxy that answers every request with these octets, and notes what it was asked.
fn proxy(answer: &'static str) -> io::Result<(String, Heads)> {
    let heads = Heads::default();
    let noted = Arc::clone(&heads);
    let address = peer::listen(move |stream| {
        let head = read_head(stream)?;
        noted.lock().unwrap_or_else(PoisonError::into_inner).push(head);
        stream.write_all(answer.as_bytes())?;
        stream.shutdown(Shutdown::Write)?;
        io::copy(stream, &mut io::sink()).map(drop)
    })?;
    Ok((address, heads))
}

fn read_head(stream: &mut TcpStream) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut octet = [0];
        stream.read_exact(&mut octet)?;
        head.extend(octet);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

fn seen(heads: &Heads) -> Vec<String> {
    heads.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn get(environment: &[(&str, &str)], args: &[&str]) -> TestResult<Ended> {
    let folder = tempfile::tempdir()?;
    let mut command = program(folder.path());
    ended(command.envs(environment.iter().copied()).arg("get").args(args))
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbody";

#[test]
fn a_request_without_tls_goes_whole_to_an_http_proxy_with_the_credentials_of_its_url() -> TestResult {
    let (address, heads) = proxy(OK)?;
    let url = format!("http://user:p%40ss@{address}");
    let asked = "http://name.invalid/file?x";
    for (environment, args) in [
        (&[("http_proxy", url.as_str())][..], &[asked][..]),
        (&[("ALL_PROXY", url.as_str())], &[asked]),
        (&[("http_proxy", "ftp://ignored")], &["--proxy", &url, asked]),
    ] {
        let ended = get(environment, args)?;
        ended.succeeded();
        assert_eq!(ended.stdout, b"body");
        let head = seen(&heads).pop().unwrap_or_default().to_lowercase();
        assert!(
            head.starts_with("get http://name.invalid/file?x http/1.1\r\n"),
            "{head}"
        );
        assert!(head.contains("host: name.invalid\r\n"), "{head}");
        assert!(
            head.contains("proxy-authorization: basic dxnlcjpwqhnz\r\n"),
            "{head}"
        );
    }
    Ok(())
}

#[test]
fn a_proxy_that_opens_no_tunnel_is_blamed_in_a_sentence() -> TestResult {
    for (answer, url, parts) in [
        (
            "HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n",
            "http://ADDRESS",
            &["needs a name and password", "http://user:password@ADDRESS"][..],
        ),
        (
            "HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n",
            "http://user:hunter2@ADDRESS",
            &["did not accept the name and password"],
        ),
        (
            "HTTP/1.0 403 Filtered\r\n\r\nno",
            "http://ADDRESS",
            &["refused a tunnel to name.invalid:443", "status 403", "no_proxy"],
        ),
        (
            "HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n",
            "ADDRESS",
            &["cannot reach name.invalid:443", "status 502"],
        ),
        (
            "SSH-2.0-OpenSSH_9.9\r\n",
            "http://ADDRESS",
            &["did not answer as an HTTP proxy"],
        ),
        ("", "http://ADDRESS", &["did not answer as an HTTP proxy"]),
    ] {
        let (address, heads) = proxy(answer)?;
        let url = url.replace("ADDRESS", &address);
        let ended = get(&[("https_proxy", &url)], &["https://name.invalid/"])?;
        ended.failed_with(5);
        for part in parts {
            let part = part.replace("ADDRESS", &address);
            assert!(ended.stderr.contains(&part), "{part}: {ended:?}");
        }
        assert!(
            !ended.stderr.contains("hunter2") && !ended.stderr.contains("os error"),
            "{ended:?}"
        );
        assert!(seen(&heads)[0].starts_with("CONNECT name.invalid:443 HTTP/1.1\r\n"));
    }
    Ok(())
}

#[test]
fn what_is_no_socks_proxy_and_what_cannot_be_reached_is_said_and_the_exit_code_is_20() -> TestResult {
    let no_socks = peer::says(b"HTTP/1.1 400 Bad Request\r\n\r\n")?;
    let dead = Nobody::bind();
    for (proxy, part) in [
        (
            format!("socks5h://{no_socks}"),
            "did not answer as a SOCKS5 proxy",
        ),
        (format!("socks5h://{dead}"), "cannot be reached"),
        (format!("http://{dead}"), "cannot be reached"),
        ("http://proxy.invalid:1".to_owned(), "cannot be reached"),
    ] {
        let ended = get(&[], &["-x", &proxy, "https://name.invalid/"])?;
        ended.failed_with(5);
        assert!(ended.stderr.contains(part), "{proxy}: {ended:?}");
    }
    Ok(())
}

/// A SOCKS5 proxy that answers every request with this reply (RFC 1928 section 6).
fn socks(reply: u8) -> std::io::Result<String> {
    peer::listen(move |stream| {
        let mut greeting = [0; 3];
        stream.read_exact(&mut greeting)?;
        stream.write_all(&[5, 0])?;
        let mut head = [0; 5];
        stream.read_exact(&mut head)?;
        // A name of the length in the fifth octet, or an address, and a port.
        let rest = if head[3] == 3 { usize::from(head[4]) + 2 } else { 5 };
        stream.read_exact(&mut vec![0; rest])?;
        stream.write_all(&[5, reply, 0, 1, 0, 0, 0, 0, 0, 0])?;
        peer::close(stream)
    })
}

#[test]
fn what_a_socks_proxy_cannot_do_is_said() -> TestResult {
    for (reply, part) in [
        (2, "refused a connection to name.invalid:443"),
        (5, "cannot reach name.invalid:443 (connection refused)"),
        (7, "opens no connections for its clients"),
        (8, "resolves no names; use socks5://"),
    ] {
        let proxy = format!("socks5h://{}", socks(reply)?);
        let ended = get(&[], &["-x", &proxy, "https://name.invalid/"])?;
        ended.failed_with(5);
        assert!(ended.stderr.contains(part), "{reply}: {ended:?}");
    }
    Ok(())
}

#[test]
fn a_proxy_for_http_that_is_none_is_named_and_so_is_one_that_is_silent() -> TestResult {
    let no_proxy = peer::says(b"SSH-2.0-OpenSSH_9.9\r\n")?;
    let ended = get(&[], &["-x", &no_proxy, "http://name.invalid/"])?;
    ended.failed_with(5);
    let text = format!("http://{no_proxy} did not answer as an HTTP proxy");
    assert!(ended.stderr.contains(&text), "{ended:?}");
    let silent = peer::is_silent()?;
    let args = [
        "-x",
        &silent,
        "--connect-timeout",
        "200ms",
        "https://name.invalid/",
    ];
    let ended = get(&[], &args)?;
    ended.failed_with(13);
    assert!(
        ended.stderr.contains("TCP, the proxy and TLS took too long"),
        "{ended:?}"
    );
    assert!(
        ended.stderr.contains("--connect-timeout") && !ended.stderr.contains("--speed-time"),
        "{ended:?}"
    );
    Ok(())
}

#[test]
fn hosts_of_no_proxy_are_reached_directly() -> TestResult {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("file"), "content")?;
    let serving = Serving::start(folder.path(), &[".", "--plaintext"])?;
    let nobody = Nobody::bind();
    let (url, dead) = (format!("{}/file", serving.origin), nobody.to_string());
    let named = ("http_proxy", dead.as_str());
    get(&[named], &[&url])?.failed_with(5);
    for (environment, args) in [
        (&[named, ("no_proxy", "127.0.0.0/8")][..], &[url.as_str()][..]),
        (&[named, ("no_proxy", "example")], &["--noproxy", "*", &url]),
        (&[("NO_PROXY", "127.0.0.1")], &["--proxy", &dead, &url]),
        (&[named], &["--proxy", "", &url]),
        (&[("HTTP_PROXY", dead.as_str())], &[&url]),
    ] {
        let ended = get(environment, args)?;
        ended.succeeded();
        assert_eq!(ended.stdout, b"content", "{args:?}");
    }
    Ok(())
}

#[test]
fn localhost_is_reached_at_its_ipv6_address_too() -> TestResult {
    let Ok(listener) = TcpListener::bind("[::1]:0") else {
        return Ok(()); // There is no IPv6 on this machine.
    };
    let port = listener.local_addr()?.port();
    // The same port of 127.0.0.1 may be another program's: it is not asked.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            if read_head(&mut stream).is_ok() {
                let _ = stream.write_all(OK.as_bytes());
            }
        }
    });
    let url = format!("http://localhost:{port}/file");
    let ended = get(&[], &["--http1.1", &url])?;
    ended.succeeded();
    assert_eq!(ended.stdout, b"body");
    get(&[], &["--http1.1", "-6", &url])?.succeeded();
    Ok(())
}

#[test]
fn a_family_of_addresses_and_an_address_for_a_name_are_obeyed() -> TestResult {
    let names = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&names);
    let server = Server::start(move |_, asked| {
        let name = asked.fields.get(":authority").cloned().unwrap_or_default();
        noted.lock().unwrap_or_else(PoisonError::into_inner).push(name);
        let mut out = head(asked.stream, 0, &[(":status", "200")]);
        out.extend(data(asked.stream, b"body", true));
        (out, Then::Go)
    })?;
    let url = server.url();
    get(&[], &["-4", &url])?.succeeded();
    let other_family = get(&[], &["-6", &url])?;
    other_family.failed_with(5);
    assert!(
        other_family.stderr.contains("has no IPv6 address"),
        "{other_family:?}"
    );

    let port = url
        .trim_end_matches("/file")
        .rsplit(':')
        .next()
        .unwrap_or_default();
    let named = format!("http://name.invalid:{port}/file");
    for host in ["name.invalid", "NAME.invalid", "*"] {
        let fixed = format!("{host}:{port}:127.0.0.1");
        let ended = get(&[], &["--resolve", &fixed, &named])?;
        ended.succeeded();
        assert_eq!(ended.stdout, b"body");
    }
    let names = names.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert_eq!(names[1..], vec![format!("name.invalid:{port}"); 3]);
    let other_port = "name.invalid:1:127.0.0.1";
    get(&[], &["--resolve", other_port, &named])?.failed_with(5);
    Ok(())
}

#[test]
fn a_limit_on_the_rate_holds_for_downloads_and_uploads_in_both_versions() -> TestResult {
    const LENGTH: usize = 64 << 20;
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("file"), vec![7; LENGTH])?;
    let serving = Serving::start(folder.path(), &[".", "--plaintext", "--uploads", "discard"])?;
    let url = format!("{}/file", serving.origin);
    patiently(|seconds| limited_in(folder.path(), &url, 2 * seconds))?;
    std::fs::write(folder.path().join("small"), vec![7; 100_000])?;
    let url = format!("{}/small", serving.origin);
    let ended = run(folder.path(), ["get", "--limit-rate", "10MB", &url])?;
    ended.succeeded();
    assert_eq!(ended.stdout, vec![7; 100_000]);
    run(folder.path(), ["put", "--limit-rate", "10MB", "small", &url])?.succeeded();
    Ok(())
}

/// Transfers of the file at a limited rate, for so long.
fn limited_in(folder: &Path, url: &str, seconds: u32) -> TestResult {
    let limit = seconds.to_string();
    let limited = ["--limit-rate", "1MB", "--max-time", &limit, "--json"];
    for version in ["--http2", "--http1.1"] {
        let ended = run(
            folder,
            [&["get", "--discard", version, url, url][..], &limited].concat(),
        )?;
        assert_eq!(ended.code, Some(13), "{ended:?}");
        let document: serde_json::Value = serde_json::from_slice(&ended.stdout)?;
        let bytes = document["totals"]["bytes"].as_u64().unwrap_or_default();
        // About a megabyte in a second, where without the limit it is all.
        let most = (u64::from(seconds) * 8) << 20;
        assert!((1..most).contains(&bytes), "{version}: {bytes}");
        for result in document["results"].as_array().into_iter().flatten() {
            assert!(result["bytes"].as_u64() > Some(0), "one had no turn: {document}");
        }

        let ended = run(folder, [&["put", "file", version, url][..], &limited].concat())?;
        assert_eq!(ended.code, Some(13), "{ended:?}");
        let document: serde_json::Value = serde_json::from_slice(&ended.stdout)?;
        let bytes = document["sent"].as_u64().unwrap_or_default();
        assert!((1..most).contains(&bytes), "{version}: {bytes}");
    }
    Ok(())
}

#[test]
fn a_path_that_is_cut_without_a_reset_ends_get_by_default() -> TestResult {
    // What the default is, the tests of the command line say; here it is a second.
    let server = Server::start(|_, asked| {
        let fields = [(":status", "200"), ("content-length", "100000")];
        let mut out = head(asked.stream, 0, &fields);
        out.extend(data(asked.stream, &[7; 50_000], false));
        (out, Then::Go)
    })?;
    let url = server.url();
    let ended = get(&[], &["--speed-time", "1", "-o", "out", &url])?;
    ended.failed_with(13);
    let http1 = peer::listen(|stream| {
        read_head(stream)?;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")?;
        io::copy(stream, &mut io::sink()).map(drop)
    })?;
    let url = format!("http://{http1}/file");
    get(&[], &["--http1.1", "--speed-time", "1", "-o", "out", &url])?.failed_with(13);
    Ok(())
}
