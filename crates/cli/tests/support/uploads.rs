//! A server of uploads that does as a script says, over HTTP/2 or HTTP/1.1: it reads as much of a body as it likes, sends
//! interim and final responses, and closes connections. It keeps what it was asked. And the file that is sent, the runs of
//! `put`, and the steps of the server that the tests of resumed uploads share.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use fullbore_proto::hpack::Decoder;
use fullbore_testing::peer::BlockingPeer;

use super::frames::{self, END_STREAM, Frame};
use super::scripted::{fields, head};
use super::{Ended, TestResult, ended, peer, program};

/// A request, and what was read of its body.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) fields: HashMap<String, String>,
    pub(crate) body: Vec<u8>,
    stream: u32,
}

impl Asked {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }
}

/// What the server does next with a request.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Sends a head; a status below 200 is an interim response.
    Say(u16, Vec<(&'static str, String)>),
    /// Reads the body until it has this length, or to its end.
    Take(usize),
    /// Resets the stream, or closes the connection of HTTP/1.1.
    Reset,
    /// Closes the connection.
    Close,
}

/// A status without fields.
pub(crate) fn say(status: u16) -> Act {
    Act::Say(status, Vec::new())
}

/// Reads the whole body.
pub(crate) const ALL: Act = Act::Take(usize::MAX);

/// What the server does with each request, by its number, over all connections.
struct Script {
    acts: Box<Acts>,
    /// It is also asked about OPTIONS, by which `put` finds out whether uploads can be resumed. Otherwise these requests are
    /// answered with 204 and not counted.
    has_options: bool,
}

type Acts = dyn Fn(usize, &Asked) -> Vec<Act> + Send + Sync;

impl Script {
    /// What the server does with a request, which is logged; and its number.
    fn next(&self, asked: &Asked, log: &Log) -> (usize, Vec<Act>) {
        if asked.method == "OPTIONS" && !self.has_options {
            return (0, vec![say(204)]);
        }
        let number = add(log, asked);
        (number, (self.acts)(number, asked))
    }
}

/// What the server has been asked.
type Log = Arc<Mutex<Vec<Asked>>>;

pub(crate) struct Server {
    address: String,
    log: Log,
}

impl Server {
    /// Over HTTP/2.
    pub(crate) fn start(
        script: impl Fn(usize, &Asked) -> Vec<Act> + Send + Sync + 'static,
    ) -> TestResult<Self> {
        Self::listen(false, script, http2)
    }

    /// Over HTTP/1.1.
    pub(crate) fn of_http1(
        script: impl Fn(usize, &Asked) -> Vec<Act> + Send + Sync + 'static,
    ) -> TestResult<Self> {
        Self::listen(false, script, http1)
    }

    /// Over HTTP/2, with a script of OPTIONS too.
    pub(crate) fn with_options(
        script: impl Fn(usize, &Asked) -> Vec<Act> + Send + Sync + 'static,
    ) -> TestResult<Self> {
        Self::listen(true, script, http2)
    }

    /// Over HTTP/1.1, with a script of OPTIONS too.
    pub(crate) fn of_http1_with_options(
        script: impl Fn(usize, &Asked) -> Vec<Act> + Send + Sync + 'static,
    ) -> TestResult<Self> {
        Self::listen(true, script, http1)
    }

    fn listen(
        has_options: bool,
        script: impl Fn(usize, &Asked) -> Vec<Act> + Send + Sync + 'static,
        talk: fn(&mut TcpStream, &Script, &Log) -> io::Result<()>,
    ) -> TestResult<Self> {
        let (log, script): (Log, Arc<Script>) = (
            Arc::default(),
            Arc::new(Script {
                acts: Box::new(script),
                has_options,
            }),
        );
        let kept = Arc::clone(&log);
        let address = peer::listen(move |stream| talk(stream, &script, &kept))?;
        Ok(Self { address, log })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/file", self.address)
    }

    pub(crate) fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All requests so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The methods and paths of all requests so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        let asked = self.asked();
        asked
            .iter()
            .map(|asked| format!("{} {}", asked.method, asked.path))
            .collect()
    }
}

/// Adds a request, and returns its number, from 1 on.
fn add(log: &Log, asked: &Asked) -> usize {
    let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
    log.push(asked.clone());
    log.len()
}

fn set_body(log: &Log, number: usize, body: &[u8]) {
    let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(asked) = number.checked_sub(1).and_then(|index| log.get_mut(index)) {
        asked.body = body.to_vec();
    }
}

fn http2(stream: &mut TcpStream, script: &Script, log: &Log) -> io::Result<()> {
    let mut peer = BlockingPeer::server(stream)?;
    let mut decoder = Decoder::new(4_096);
    // What came for other streams while one was read.
    let mut pending = VecDeque::new();
    loop {
        let frame = match pending.pop_front() {
            Some(frame) => frame,
            None => receive(&mut peer)?,
        };
        if frame.kind != frames::HEADERS {
            continue;
        }
        let mut asked = read(frame.stream, &mut decoder, &frame.payload)?;
        let mut has_ended = frame.ends_stream();
        let (number, acts) = script.next(&asked, log);
        for act in acts {
            match act {
                Act::Say(status, fields) => {
                    let status_text = status.to_string();
                    let mut all = vec![(":status", status_text.as_str())];
                    all.extend(fields.iter().map(|(name, value)| (*name, value.as_str())));
                    let flags = if status < 200 { 0 } else { END_STREAM };
                    peer.send(&head(asked.stream, flags, &all))?;
                }
                Act::Take(length) => {
                    while !has_ended && asked.body.len() < length {
                        let own = pending
                            .iter()
                            .position(|frame: &Frame| frame.stream == asked.stream);
                        let frame = match own.and_then(|index| pending.remove(index)) {
                            Some(frame) => frame,
                            None => receive(&mut peer)?,
                        };
                        let is_own = frame.stream == asked.stream;
                        match frame.kind {
                            frames::RST_STREAM if is_own => break,
                            frames::DATA if is_own => {
                                asked.body.extend(&frame.payload);
                                has_ended = frame.ends_stream();
                            }
                            _ => pending.push_back(frame),
                        }
                    }
                    set_body(log, number, &asked.body);
                }
                Act::Reset => peer.send(&frames::reset(asked.stream, 2))?,
                Act::Close => return peer.0.shutdown(Shutdown::Both),
            }
        }
    }
}

/// The next frame. DATA is paid back at once, also that of streams which nobody reads any more.
fn receive(peer: &mut BlockingPeer<&mut TcpStream>) -> io::Result<Frame> {
    let frame = peer.receive()?;
    if frame.kind == frames::DATA && !frame.payload.is_empty() {
        let bytes = u32::try_from(frame.payload.len()).map_err(io::Error::other)?;
        let of_stream = frames::window_update(frame.stream, bytes);
        peer.send(&[frames::window_update(0, bytes), of_stream].concat())?;
    }
    Ok(frame)
}

fn read(stream: u32, decoder: &mut Decoder, block: &[u8]) -> io::Result<Asked> {
    let mut fields = fields(decoder, block)?;
    Ok(Asked {
        method: fields.remove(":method").unwrap_or_default(),
        path: fields.remove(":path").unwrap_or_default(),
        fields,
        body: Vec::new(),
        stream,
    })
}

fn http1(stream: &mut TcpStream, script: &Script, log: &Log) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let mut text = String::new();
        while reader.read_line(&mut text)? > 2 {}
        let Some((first, fields)) = text.split_once("\r\n") else {
            return Ok(());
        };
        if first.starts_with("PRI ") {
            // Only HTTP/1.1 is spoken here.
            stream
                .write_all(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")?;
            return stream.shutdown(Shutdown::Both);
        }
        let mut words = first.split(' ').map(str::to_owned);
        let fields = fields.lines().filter_map(|line| line.split_once(": "));
        let mut asked = Asked {
            method: words.next().unwrap_or_default(),
            path: words.next().unwrap_or_default(),
            fields: fields
                .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
                .collect(),
            ..Asked::default()
        };
        let length = asked.field("content-length").and_then(|text| text.parse().ok());
        let (number, acts) = script.next(&asked, log);
        for act in acts {
            match act {
                Act::Say(status, fields) => {
                    let mut head = format!("HTTP/1.1 {status} Status\r\n");
                    for (name, value) in fields {
                        head.push_str(&format!("{name}: {value}\r\n"));
                    }
                    head.push_str(if status < 200 || status == 204 {
                        "\r\n"
                    } else {
                        "content-length: 0\r\n\r\n"
                    });
                    stream.write_all(head.as_bytes())?;
                }
                Act::Take(most) => {
                    let more = most.min(length.unwrap_or(0)) - asked.body.len();
                    let begun = asked.body.len();
                    asked.body.resize(begun + more, 0);
                    reader.read_exact(&mut asked.body[begun..])?;
                    set_body(log, number, &asked.body);
                }
                Act::Reset | Act::Close => return stream.shutdown(Shutdown::Both),
            }
        }
    }
}

/// The response to OPTIONS of a server with resumable uploads.
pub(crate) fn offer(limits: &str) -> Act {
    Act::Say(204, vec![("upload-limit", limits.to_owned())])
}

/// The response to an empty request that creates an upload.
pub(crate) fn created(location: &str) -> Act {
    let fields = [
        ("location", location),
        ("upload-offset", "0"),
        ("upload-complete", "?0"),
    ];
    Act::Say(201, fields.map(|(name, value)| (name, value.to_owned())).to_vec())
}

/// Above the least length of an upload that can be continued, which is 8 MiB.
pub(crate) const LENGTH: usize = 9_000_000;
/// What the server has when it breaks off: the offset that it tells, and what it has read at least.
pub(crate) const HAD: usize = 3_000_000;

/// A file in which no place is like another.
pub(crate) fn content() -> Vec<u8> {
    (0..LENGTH as u32 / 4)
        .flat_map(|n| n.wrapping_mul(0x9e37_79b9).to_be_bytes())
        .collect()
}

pub(crate) fn folder() -> TestResult<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("file"), content())?;
    Ok(folder)
}

/// The program, with a state folder of its own.
pub(crate) fn command(folder: &Path) -> Command {
    let mut command = program(folder);
    command.env("XDG_STATE_HOME", folder.join("state"));
    command
}

pub(crate) fn put(folder: &Path, url: &str, options: &[&str]) -> TestResult<Ended> {
    ended(command(folder).args(["put", "file", url]).args(options))
}

/// The records of uploads.
pub(crate) fn records(folder: &Path) -> TestResult<Vec<String>> {
    let Ok(entries) = fs::read_dir(folder.join("state/fullbore/uploads")) else {
        return Ok(Vec::new());
    };
    let names: Result<Vec<_>, _> = entries
        .map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()))
        .collect();
    Ok(names?
        .into_iter()
        .filter(|name| name.ends_with(".json"))
        .collect())
}

/// 104 (Upload Resumption Supported) with this resource.
pub(crate) fn supported(location: &str) -> Act {
    limited(location, "")
}

pub(crate) fn limited(location: &str, limits: &str) -> Act {
    let mut fields = vec![
        ("location", location.to_owned()),
        ("upload-draft-interop-version", "8".to_owned()),
    ];
    if !limits.is_empty() {
        fields.push(("upload-limit", limits.to_owned()));
    }
    Act::Say(104, fields)
}

/// The response to HEAD of the resource.
pub(crate) fn offset(bytes: usize) -> Act {
    let fields = vec![
        ("upload-offset", bytes.to_string()),
        ("upload-length", LENGTH.to_string()),
        ("upload-complete", "?0".to_owned()),
    ];
    Act::Say(204, fields)
}

/// A final response with `upload-complete`.
pub(crate) fn complete(status: u16, is_complete: bool) -> Act {
    let value = if is_complete { "?1" } else { "?0" };
    Act::Say(status, vec![("upload-complete", value.to_owned())])
}

/// The first request breaks off after `HAD` bytes.
pub(crate) fn broken() -> Vec<Act> {
    vec![supported("/upload/1"), Act::Take(HAD), Act::Close]
}

/// What a server does that loses the first connection and takes the rest.
pub(crate) fn once_broken(asked: &Asked) -> Vec<Act> {
    match asked.method.as_str() {
        "PUT" | "POST" => broken(),
        "HEAD" => vec![offset(HAD)],
        _ => vec![ALL, complete(201, true)],
    }
}
