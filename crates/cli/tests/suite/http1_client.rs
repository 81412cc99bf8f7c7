//! `get` and `put` against servers of HTTP/1.1: a small file server by hand, and peers that break off or break the rules.

use std::collections::HashMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::support::{Ended, TestResult, names, peer, program, run};

/// A request.
struct Asked {
    line: String,
    fields: HashMap<String, String>,
}

impl Asked {
    /// Reads a head; `None` at the end.
    fn read(reader: &mut impl BufRead) -> Option<Self> {
        let line = read_line(reader)?;
        let mut fields = HashMap::new();
        loop {
            let field = read_line(reader)?;
            match field.split_once(": ") {
                Some((name, value)) => fields.insert(name.to_lowercase(), value.to_owned()),
                None => break,
            };
        }
        Some(Self { line, fields })
    }

    fn path(&self) -> &str {
        self.line.split(' ').nth(1).unwrap_or_default()
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }

    /// Reads the body: of the announced length, or in chunks.
    fn body(&self, reader: &mut impl BufRead) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        if let Some(length) = self
            .field("content-length")
            .and_then(|length| length.parse().ok())
        {
            reader.take(length).read_to_end(&mut body)?;
        } else if self.field("transfer-encoding").is_some() {
            loop {
                let size = read_line(reader).unwrap_or_default();
                let size = u64::from_str_radix(&size, 16).unwrap_or_default();
                reader.by_ref().take(size).read_to_end(&mut body)?;
                read_line(reader);
                if size == 0 {
                    break;
                }
            }
        }
        Ok(body)
    }
}

fn read_line(reader: &mut impl BufRead) -> Option<String> {
    let mut line = String::new();
    match reader.read_line(&mut line) {
        Ok(1..) => Some(line.trim_end().to_owned()),
        _ => None,
    }
}

/// A server of HTTP/1.1.
struct Server {
    address: String,
    connections: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
}

impl Server {
    /// Answers as `answer` says, with the request and its body. Closes where it says false.
    fn start(
        answer: impl Fn(&mut TcpStream, &Asked, Vec<u8>) -> io::Result<bool> + Clone + Send + 'static,
    ) -> TestResult<Self> {
        let (connections, requests) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (accepted, received) = (Arc::clone(&connections), Arc::clone(&requests));
        let address = peer::listen(move |stream| {
            accepted.fetch_add(1, Ordering::SeqCst);
            let mut reader = BufReader::new(stream.try_clone()?);
            while let Some(asked) = Asked::read(&mut reader) {
                if asked.line.starts_with("PRI ") {
                    stream
                        .write_all(b"HTTP/1.1 505 HTTP Version Not Supported\r\ncontent-length: 0\r\n\r\n")?;
                    return peer::close(stream);
                }
                let body = asked.body(&mut reader)?;
                // Before the response: with it, the program may end and the test look at the count.
                received.fetch_add(1, Ordering::SeqCst);
                if !answer(stream, &asked, body)? {
                    return Ok(());
                }
            }
            Ok(())
        })?;
        Ok(Self {
            address,
            connections,
            requests,
        })
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251) as u8).collect()
}

/// Answers with this content and a validator, from where the request wants it.
fn serve(stream: &mut TcpStream, asked: &Asked, content: &[u8]) -> io::Result<()> {
    let from = asked
        .field("range")
        .and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok())
        .unwrap_or(0);
    let (rest, total) = (&content[from..], content.len());
    let status = match from {
        0 => "200 OK".to_owned(),
        _ => format!(
            "206 Partial Content\r\ncontent-range: bytes {from}-{}/{total}",
            total - 1
        ),
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\netag: \"1\"\r\ncontent-length: {}\r\n\r\n",
        rest.len()
    )?;
    stream.write_all(rest)
}

fn get(folder: &std::path::Path, more: &[&str], url: &str) -> TestResult<Ended> {
    run(folder, ["get"].iter().chain(more).chain(&[url]))
}

#[test]
fn a_file_arrives_from_a_server_of_http_1_and_the_closing_line_says_so() -> TestResult {
    let whole = content(3_000_000);
    let served = whole.clone();
    let server = Server::start(move |stream, asked, _| serve(stream, asked, &served).map(|()| true))?;
    for (option, connections) in [(&[][..], 2), (&["--http1.1"], 1)] {
        let before = server.connections();
        let folder = tempfile::tempdir()?;
        let ended = get(
            folder.path(),
            &[option, &["-v", "-o", "out"]].concat(),
            &server.url("file"),
        )?;
        ended.succeeded();
        assert_eq!(fs::read(folder.path().join("out"))?, whole);
        assert!(ended.summary().contains("; over HTTP/1.1"), "{ended:?}");
        assert!(!ended.summary().contains("window"), "{ended:?}");
        assert_eq!(server.connections() - before, connections);
    }
    Ok(())
}

#[test]
fn json_has_what_connections_of_http_1_waited_for_without_windows() -> TestResult {
    let server = Server::start(|stream, asked, _| serve(stream, asked, &content(100_000)).map(|()| true))?;
    let folder = tempfile::tempdir()?;
    let ended = get(folder.path(), &["--json", "-o", "out"], &server.url("file"))?;
    ended.succeeded();
    let document: serde_json::Value = serde_json::from_slice(&ended.stdout)?;
    let waited = &document["totals"]["waited"];
    assert_eq!(waited["http1_1"]["direction"], "receiving");
    assert_eq!(waited["http1_1"]["connections"], 1);
    let (http1, seconds) = (&waited["http1_1"], &waited["http1_1"]["seconds"]);
    let held_by = http1["held_by"].as_str().ok_or("no state")?;
    let states = seconds.as_object().ok_or("no seconds")?.values();
    let busy: f64 = states.filter_map(serde_json::Value::as_f64).sum();
    let share = seconds[held_by].as_f64().ok_or("no share")? / busy * 100.0;
    let percent = http1["percent"].as_f64().ok_or("no percent")?;
    // The cause may explain more than one state.
    assert!((share - 0.001..=100.001).contains(&percent), "{waited}");
    let known = ["cause", "sentence"].map(|name| http1[name].is_string());
    assert_eq!(known, [true; 2], "{waited}");
    assert!(
        http1["sentence"]
            .as_str()
            .is_some_and(|text| text.starts_with("over HTTP/1.1, "))
    );
    assert!(waited["stream_window"].is_null(), "{waited}");
    Ok(())
}

#[test]
fn one_version_alone_is_spoken_on_request() -> TestResult {
    let server = Server::start(|stream, asked, _| serve(stream, asked, b"x").map(|()| true))?;
    let folder = tempfile::tempdir()?;
    let ended = get(folder.path(), &["--http2", "-o", "out"], &server.url("file"))?;
    ended.failed_with(9);
    assert_eq!((server.connections(), server.requests()), (1, 0));
    let both = get(folder.path(), &["--http2", "--http1.1"], &server.url("file"))?;
    assert_eq!(both.code, Some(2), "{both:?}");
    Ok(())
}

#[test]
fn many_files_share_few_connections() -> TestResult {
    let server =
        Server::start(|stream, asked, _| serve(stream, asked, asked.path().as_bytes()).map(|()| true))?;
    let folder = tempfile::tempdir()?;
    let urls: Vec<String> = (0..200)
        .map(|number| server.url(&format!("file{number}")))
        .collect();
    let options = ["get", "-v", "--http1.1", "--parallel", "50", "--dir", "."];
    let ended = run(
        folder.path(),
        options.into_iter().chain(urls.iter().map(String::as_str)),
    )?;
    ended.succeeded();
    assert!(ended.summary().contains("200 files, "), "{ended:?}");
    for number in 0..200 {
        let name = format!("file{number}");
        assert_eq!(fs::read_to_string(folder.path().join(&name))?, format!("/{name}"));
    }
    assert_eq!(server.requests(), 200);
    assert!(server.connections() <= 8, "{} connections", server.connections());
    Ok(())
}

#[test]
fn a_download_that_breaks_off_is_resumed() -> TestResult {
    let whole = content(1_000_000);
    let served = whole.clone();
    let server = Server::start(move |stream, asked, _| {
        if asked.field("range").is_some() {
            assert_eq!(asked.field("if-range"), Some("\"1\""));
            return serve(stream, asked, &served).map(|()| true);
        }
        write!(
            stream,
            "HTTP/1.1 200 OK\r\netag: \"1\"\r\ncontent-length: 1000000\r\n\r\n"
        )?;
        stream.write_all(&served[..400_000])?;
        Ok(false)
    })?;
    let folder = tempfile::tempdir()?;
    let ended = get(folder.path(), &["--retry", "1", "-o", "out"], &server.url("file"))?;
    ended.succeeded();
    assert_eq!(fs::read(folder.path().join("out"))?, whole);
    assert_eq!(server.requests(), 2);
    Ok(())
}

#[test]
fn a_redirect_is_followed() -> TestResult {
    let server = Server::start(|stream, asked, _| match asked.path() {
        "/old" => stream
            .write_all(b"HTTP/1.1 302 Found\r\nlocation: /new\r\ncontent-length: 4\r\n\r\nmove")
            .map(|()| true),
        _ => serve(stream, asked, b"found").map(|()| true),
    })?;
    let folder = tempfile::tempdir()?;
    get(folder.path(), &["-L", "-o", "out"], &server.url("old"))?.succeeded();
    assert_eq!(fs::read(folder.path().join("out"))?, b"found");
    Ok(())
}

#[test]
fn what_a_server_of_http_1_does_wrong_has_the_exit_code_of_http_2() -> TestResult {
    for (answer, exit) in [
        ("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", 14),
        ("HTTP/1.1 two hundred\r\n\r\n", 9),
        (
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
            9,
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            9,
        ),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", 9),
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhell", 10),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhell",
            10,
        ),
        ("", 10),
    ] {
        let server = Server::start(move |stream, _, _| stream.write_all(answer.as_bytes()).map(|()| false))?;
        let folder = tempfile::tempdir()?;
        let ended = get(folder.path(), &["-o", "out"], &server.url("file"))?;
        ended.failed_with(exit);
        assert!(!folder.path().join("out").exists(), "{answer:?} stored half");
        assert_eq!(server.requests(), 1, "{answer:?}");
    }
    Ok(())
}

#[test]
fn a_server_that_is_silent_exits_with_13() -> TestResult {
    let server = Server::start(|stream, _, _| {
        // Until the client gives up.
        stream.read_to_end(&mut Vec::new()).map(|_| false)
    })?;
    let folder = tempfile::tempdir()?;
    let options = ["--http1.1", "--speed-time", "1", "-o", "out"];
    get(folder.path(), &options, &server.url("file"))?.failed_with(13);
    Ok(())
}

#[test]
fn an_upload_arrives_whole_with_its_length_or_in_chunks() -> TestResult {
    let whole = content(2_000_000);
    let stored = Arc::new(Mutex::new(Vec::new()));
    let book = Arc::clone(&stored);
    let server = Server::start(move |stream, asked, body| {
        book.lock()
            .map(|mut book| book.push((asked.field("content-length").is_some(), body)))
            .ok();
        stream
            .write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n")
            .map(|()| true)
    })?;
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("in"), &whole)?;
    let ended = run(folder.path(), ["put", "-v", "in", &server.url("file")])?;
    ended.succeeded();
    assert!(ended.summary().contains("status 201; over HTTP/1.1"), "{ended:?}");
    let redirected = program(folder.path())
        .args(["put", "-", &server.url("file")])
        .stdin(fs::File::open(folder.path().join("in"))?)
        .status()?;
    assert!(redirected.success());
    let mut piped = program(folder.path())
        .args(["put", "-", &server.url("file")])
        .stdin(std::process::Stdio::piped())
        .spawn()?;
    piped.stdin.take().ok_or("no pipe")?.write_all(&whole)?;
    assert!(piped.wait()?.success());
    let stored = stored.lock().map_err(|_| "poisoned")?;
    assert!(stored.iter().all(|(_, body)| *body == whole));
    let has_length: Vec<_> = stored.iter().map(|(has_length, _)| *has_length).collect();
    assert_eq!(has_length, [true, cfg!(unix), false]);
    Ok(())
}

#[test]
fn an_upload_that_the_server_refuses_early_shows_its_status() -> TestResult {
    let address = peer::listen(|stream| {
        let mut reader = BufReader::new(stream.try_clone()?);
        if Asked::read(&mut reader).is_some_and(|asked| !asked.line.starts_with("PRI ")) {
            stream.write_all(b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 0\r\n\r\n")?;
        }
        Ok(())
    })?;
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("in"), content(30_000_000))?;
    let ended = run(folder.path(), ["put", "in", &format!("http://{address}/file")])?;
    ended.failed_with(14);
    assert!(ended.stderr.contains("413"), "{ended:?}");
    assert_eq!(names(folder.path())?, ["in"]);
    Ok(())
}

#[test]
fn an_upload_is_repeated_only_when_it_may_be() -> TestResult {
    for (method, requests, exit) in [("PUT", 2, None), ("POST", 1, Some(10))] {
        let count = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&count);
        let server = Server::start(move |stream, _, _| match counter.fetch_add(1, Ordering::SeqCst) {
            0 => Ok(false),
            _ => stream
                .write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n")
                .map(|()| true),
        })?;
        let folder = tempfile::tempdir()?;
        fs::write(folder.path().join("in"), b"once")?;
        let url = server.url("file");
        let ended = run(
            folder.path(),
            ["put", "--http1.1", "--retry", "2", "-X", method, "in", &url],
        )?;
        match exit {
            None => ended.succeeded(),
            Some(exit) => ended.failed_with(exit),
        };
        assert_eq!(count.load(Ordering::SeqCst), requests, "{method}");
    }
    Ok(())
}
