//! Downloads that break off: what is tried again, what is gone on with, and what a run that was killed leaves behind.

mod support;

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fullbore_proto::hpack::{Decoder, FieldLimits, FieldSection};
use support::frames::{self, END_STREAM};
use support::{TestResult, names, peer, program, run};

const SIZE: usize = 1_000_000;
const HALF: usize = 500_000;

/// A body in which no place is like another.
fn body(seed: u32) -> Vec<u8> {
    (0..SIZE as u32 / 4)
        .flat_map(|n| (n ^ seed).wrapping_mul(0x9e37_79b9).to_be_bytes())
        .collect()
}

/// A request as a server sees it.
struct Asked {
    stream: u32,
    fields: HashMap<String, String>,
}

impl Asked {
    /// From which byte on the rest is asked for, of the version that is named.
    fn from(&self, version: &str) -> Option<usize> {
        let range = self.fields.get("range")?;
        assert_eq!(self.fields.get("if-range").map(String::as_str), Some(version));
        range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
    }

    fn is_whole(&self) -> bool {
        !self.fields.contains_key("range") && !self.fields.contains_key("if-range")
    }
}

#[derive(PartialEq)]
enum Then {
    /// Ends the connection.
    Close,
    /// Waits for more.
    Go,
}

type Script = dyn Fn(usize, &Asked) -> (Vec<u8>, Then) + Send + Sync;

/// A server that answers each request by its number, over all connections, and counts them.
struct Server {
    address: String,
    asked: Arc<Mutex<usize>>,
}

impl Server {
    fn start(script: impl Fn(usize, &Asked) -> (Vec<u8>, Then) + Send + Sync + 'static) -> TestResult<Self> {
        let asked = Arc::new(Mutex::new(0));
        let script: Arc<Script> = Arc::new(script);
        let count = Arc::clone(&asked);
        let address = peer::listen(move |stream| talk(stream, &*script, &count))?;
        Ok(Server { address, asked })
    }

    fn url(&self) -> String {
        format!("http://{}/file", self.address)
    }

    fn asked(&self) -> usize {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn talk(stream: &mut TcpStream, script: &Script, count: &Mutex<usize>) -> io::Result<()> {
    stream.read_exact(&mut [0; 24])?;
    stream.write_all(&frames::settings())?;
    stream.write_all(&frames::settings_ack())?;
    let mut decoder = Decoder::new(4_096);
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head)?;
        let [a, b, c, kind, _, s0, s1, s2, s3] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        stream.read_exact(&mut payload)?;
        if kind != frames::HEADERS {
            continue;
        }
        let limits = FieldLimits {
            max_bytes: 1 << 16,
            max_fields: 100,
        };
        let mut section = FieldSection::new();
        decoder
            .decode(&payload, &limits, &mut section)
            .map_err(io::Error::other)?;
        let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
        let asked = Asked {
            stream: u32::from_be_bytes([s0, s1, s2, s3]),
            fields: section
                .fields()
                .iter()
                .map(|field| (text(field.name.as_bytes()), text(field.value.as_bytes())))
                .collect(),
        };
        let number = {
            let mut count = count.lock().unwrap_or_else(PoisonError::into_inner);
            *count += 1;
            *count
        };
        let (octets, then) = script(number, &asked);
        stream.write_all(&octets)?;
        if then == Then::Close {
            stream.shutdown(Shutdown::Write)?;
            return io::copy(stream, &mut io::sink()).map(|_| ());
        }
    }
}

/// A head of literals without indexing.
fn head(stream: u32, flags: u8, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            block.push(text.len() as u8);
            block.extend(text.as_bytes());
        }
    }
    frames::frame(frames::HEADERS, frames::END_HEADERS | flags, stream, &block)
}

fn data(stream: u32, octets: &[u8], end: bool) -> Vec<u8> {
    let mut out: Vec<u8> = octets
        .chunks(16_384)
        .flat_map(|chunk| frames::data(stream, 0, chunk))
        .collect();
    if end {
        out.extend(frames::data(stream, END_STREAM, &[]));
    }
    out
}

/// 200 and the first half of the body.
fn half(asked: &Asked, version: &[(&str, &str)], octets: &[u8]) -> Vec<u8> {
    let length = octets.len().to_string();
    let mut fields = vec![(":status", "200"), ("content-length", length.as_str())];
    fields.extend(version);
    let mut out = head(asked.stream, 0, &fields);
    out.extend(data(asked.stream, &octets[..HALF], false));
    out
}

/// 200 and all of the body.
fn whole(asked: &Asked, version: &[(&str, &str)], octets: &[u8]) -> Vec<u8> {
    let mut out = half(asked, version, octets);
    out.extend(data(asked.stream, &octets[HALF..], true));
    out
}

/// 206 and the rest from a byte on.
fn rest(asked: &Asked, version: &[(&str, &str)], octets: &[u8], from: usize) -> Vec<u8> {
    let range = format!("bytes {from}-{}/{}", octets.len() - 1, octets.len());
    let length = (octets.len() - from).to_string();
    let mut fields = vec![
        (":status", "206"),
        ("content-length", length.as_str()),
        ("content-range", range.as_str()),
    ];
    fields.extend(version);
    let mut out = head(asked.stream, 0, &fields);
    out.extend(data(asked.stream, &octets[from..], true));
    out
}

const V1: &[(&str, &str)] = &[("etag", "\"v1\"")];

fn holds(folder: &Path, octets: &[u8]) -> TestResult {
    assert_eq!(names(folder)?, ["out"]);
    assert!(std::fs::read(folder.join("out"))? == octets, "wrong bytes");
    Ok(())
}

#[test]
fn a_download_that_breaks_off_goes_on_where_it_was() -> TestResult {
    for version in [V1, &[("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT")]] {
        let server = Server::start(move |number, asked| match number {
            1 => (half(asked, version, &body(1)), Then::Close),
            _ => {
                let from = asked.from(version[0].1).unwrap_or_default();
                assert_eq!(from, HALF);
                (rest(asked, version, &body(1), from), Then::Go)
            }
        })?;
        let folder = tempfile::tempdir()?;
        run(folder.path(), ["get", "--retry", "1", "-o", "out", &server.url()])?.succeeded();
        assert_eq!(server.asked(), 2);
        holds(folder.path(), &body(1))?;
    }
    Ok(())
}

#[test]
fn a_body_that_was_changed_meanwhile_is_had_from_its_beginning() -> TestResult {
    let server = Server::start(|number, asked| match number {
        1 => (half(asked, V1, &body(1)), Then::Close),
        _ => {
            assert_eq!(asked.from("\"v1\""), Some(HALF));
            (whole(asked, &[("etag", "\"v2\"")], &body(2)), Then::Go)
        }
    })?;
    let folder = tempfile::tempdir()?;
    run(folder.path(), ["get", "--retry", "1", "-o", "out", &server.url()])?.succeeded();
    holds(folder.path(), &body(2))
}

#[test]
fn without_proof_of_the_version_a_body_is_had_from_its_beginning() -> TestResult {
    for version in [&[][..], &[("etag", "W/\"v1\"")]] {
        let server = Server::start(move |number, asked| {
            assert!(asked.is_whole(), "a range of what nobody knows");
            match number {
                1 => (half(asked, version, &body(1)), Then::Close),
                _ => (whole(asked, version, &body(2)), Then::Go),
            }
        })?;
        let folder = tempfile::tempdir()?;
        run(folder.path(), ["get", "--retry", "1", "-o", "out", &server.url()])?.succeeded();
        assert_eq!(server.asked(), 2);
        holds(folder.path(), &body(2))?;
    }
    Ok(())
}

#[test]
fn another_part_than_was_asked_for_is_never_put_behind_what_came() -> TestResult {
    let server = Server::start(|number, asked| match number {
        1 => (half(asked, V1, &body(1)), Then::Close),
        _ => (rest(asked, V1, &body(1), HALF + 1), Then::Go),
    })?;
    let folder = tempfile::tempdir()?;
    run(folder.path(), ["get", "--retry", "3", "-o", "out", &server.url()])?.failed_with(9);
    assert_eq!(server.asked(), 2);
    assert!(names(folder.path())?.is_empty());
    Ok(())
}

#[test]
fn what_went_to_standard_output_is_gone_on_with_or_given_up() -> TestResult {
    let server = Server::start(|number, asked| match number {
        1 => (half(asked, V1, &body(1)), Then::Close),
        _ => (
            rest(asked, V1, &body(1), asked.from("\"v1\"").unwrap_or_default()),
            Then::Go,
        ),
    })?;
    let folder = tempfile::tempdir()?;
    let ended = run(folder.path(), ["get", "--retry", "1", &server.url()])?;
    ended.succeeded();
    assert!(ended.stdout == body(1), "wrong bytes");

    let server = Server::start(|number, asked| match number {
        1 => (half(asked, &[], &body(1)), Then::Close),
        _ => (whole(asked, &[], &body(1)), Then::Go),
    })?;
    let ended = run(folder.path(), ["get", "--retry", "1", &server.url()])?;
    ended.failed_with(10);
    assert!(ended.stdout == body(1)[..HALF], "it was begun anew in the middle");
    Ok(())
}

#[test]
fn a_status_that_passes_is_tried_again_when_the_server_says_and_no_other() -> TestResult {
    let server = Server::start(|number, asked| match number {
        1 | 2 => {
            let fields = [(":status", "503"), ("retry-after", "0")];
            (head(asked.stream, END_STREAM, &fields), Then::Go)
        }
        _ => (whole(asked, V1, &body(1)), Then::Go),
    })?;
    let folder = tempfile::tempdir()?;
    run(folder.path(), ["get", "--retry", "2", "-o", "out", &server.url()])?.succeeded();
    assert_eq!(server.asked(), 3);
    holds(folder.path(), &body(1))?;

    let server = Server::start(|_, asked| (head(asked.stream, END_STREAM, &[(":status", "404")]), Then::Go))?;
    run(
        folder.path(),
        ["get", "--retry", "9", "-o", "other", &server.url()],
    )?
    .failed_with(14);
    assert_eq!(server.asked(), 1);
    Ok(())
}

#[test]
fn tries_come_to_an_end() -> TestResult {
    let server = Server::start(|_, asked| {
        let fields = [(":status", "429"), ("retry-after", "0")];
        (head(asked.stream, END_STREAM, &fields), Then::Go)
    })?;
    let folder = tempfile::tempdir()?;
    run(folder.path(), ["get", "--retry", "3", "-o", "out", &server.url()])?.failed_with(14);
    assert_eq!(server.asked(), 4);
    assert!(names(folder.path())?.is_empty());
    Ok(())
}

/// Answers with half of the body as long as nobody asks for the rest; closes the first connection after it, or none.
fn by_halves(then: Then) -> TestResult<Server> {
    let close = then == Then::Close;
    Server::start(move |number, asked| match asked.from("\"v1\"") {
        Some(from) => (rest(asked, V1, &body(1), from), Then::Go),
        None if close && number == 1 => (half(asked, V1, &body(1)), Then::Close),
        None => (half(asked, V1, &body(1)), Then::Go),
    })
}

#[cfg(unix)]
#[test]
fn the_next_run_goes_on_where_one_broke_off() -> TestResult {
    let server = by_halves(Then::Close)?;
    let folder = tempfile::tempdir()?;
    let ended = run(folder.path(), ["get", "-o", "out", &server.url()])?;
    ended.failed_with(10);
    assert!(ended.stderr.contains("goes on from there"), "{ended:?}");
    let left = names(folder.path())?;
    assert!(
        matches!(left.as_slice(), [name] if name.starts_with(".out.") && name.ends_with(".part")),
        "{left:?}"
    );
    assert_eq!(
        std::fs::metadata(folder.path().join(&left[0]))?.len(),
        HALF as u64
    );
    run(folder.path(), ["get", "-o", "out", &server.url()])?.succeeded();
    // It asked for all first, to see the version, and then for the rest.
    assert_eq!(server.asked(), 3);
    holds(folder.path(), &body(1))
}

#[cfg(unix)]
#[test]
fn the_next_run_goes_on_where_one_was_killed() -> TestResult {
    let server = by_halves(Then::Go)?;
    let folder = tempfile::tempdir()?;
    let mut child = program(folder.path())
        .args(["get", "-o", "out", &server.url()])
        .stderr(Stdio::null())
        .spawn()?;
    let begun = Instant::now();
    let written = || -> TestResult<u64> {
        match names(folder.path())?.as_slice() {
            [name] => Ok(std::fs::metadata(folder.path().join(name))?.len()),
            _ => Ok(0),
        }
    };
    while written()? == 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing is written");
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill()?;
    child.wait()?;
    assert!(!names(folder.path())?.contains(&"out".to_owned()));
    run(folder.path(), ["get", "-o", "out", &server.url()])?.succeeded();
    holds(folder.path(), &body(1))
}

#[test]
fn a_body_that_lacks_nothing_but_its_end_is_had_again() -> TestResult {
    let server = Server::start(|number, asked| match number {
        1 => {
            // All of it, of a length that was not said, and no END_STREAM.
            let mut out = head(asked.stream, 0, &[(":status", "200"), ("etag", "\"v1\"")]);
            out.extend(data(asked.stream, &body(1), false));
            (out, Then::Close)
        }
        2 => {
            assert_eq!(asked.from("\"v1\""), Some(SIZE));
            (head(asked.stream, END_STREAM, &[(":status", "416")]), Then::Go)
        }
        _ => {
            assert!(asked.is_whole());
            (whole(asked, V1, &body(1)), Then::Go)
        }
    })?;
    let folder = tempfile::tempdir()?;
    run(folder.path(), ["get", "--retry", "1", "-o", "out", &server.url()])?.succeeded();
    assert_eq!(server.asked(), 3);
    holds(folder.path(), &body(1))
}

/// `fullbore serve` on a port that it has had before.
#[cfg(unix)]
fn serve_again(folder: &Path, port: &str) -> TestResult<(std::process::Child, String)> {
    use std::io::{BufRead, BufReader};
    let mut child = program(folder)
        .args(["serve", "--plaintext", "--listen"])
        .arg(format!("127.0.0.1:{port}"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    let port = line.trim().rsplit(':').next().unwrap_or_default().to_owned();
    Ok((child, port))
}

#[cfg(unix)]
#[test]
fn whoever_is_killed_in_the_middle_nothing_is_lost_and_no_name_stands_for_a_part() -> TestResult {
    const FILES: usize = 60;
    let source = tempfile::tempdir()?;
    let folder = tempfile::tempdir()?;
    for number in 0..FILES {
        std::fs::write(source.path().join(format!("{number}.bin")), body(number as u32))?;
    }
    let (mut server, port) = serve_again(source.path(), "0")?;
    let urls: String = (0..FILES)
        .map(|number| format!("http://127.0.0.1:{port}/{number}.bin\n"))
        .collect();
    std::fs::write(source.path().join("urls"), urls)?;
    let list = source.path().join("urls");
    let get = || {
        let mut get = program(folder.path());
        get.args(["get", "--dir", "out", "--skip-existing", "--parallel", "6", "-i"])
            .arg(&list);
        get
    };
    let out = folder.path().join("out");
    // Every file that has its name, whole or the test fails; how many they are.
    let complete = || -> TestResult<usize> {
        let mut count = 0;
        for name in names(&out).unwrap_or_default() {
            if let Some(number) = name.strip_suffix(".bin") {
                assert!(
                    std::fs::read(out.join(&name))? == body(number.parse()?),
                    "{name} is a part"
                );
                count += 1;
            }
        }
        Ok(count)
    };
    for round in 1..=10 {
        let mut child = get().stderr(Stdio::null()).spawn()?;
        while names(&out).unwrap_or_default().len() < round * 5 && child.try_wait()?.is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        if round % 3 == 0 {
            server.kill()?;
            server.wait()?;
            child.wait()?;
            server = serve_again(source.path(), &port)?.0;
        } else {
            child.kill()?;
            child.wait()?;
        }
        complete()?;
    }
    let ended = support::ended(&mut get());
    server.kill()?;
    server.wait()?;
    ended?.succeeded();
    assert_eq!(complete()?, FILES);
    assert_eq!(names(&out)?.len(), FILES, "parts are left");
    Ok(())
}
