//! A server that answers each request by a script, and bodies and heads to answer with.

use std::collections::HashMap;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use fullbore_proto::hpack::{Decoder, FieldLimits, FieldSection};

use fullbore_testing::peer::BlockingPeer;

use super::frames::{self, END_STREAM};
use super::{TestResult, names, peer, run};

pub(crate) const SIZE: usize = 1_000_000;
pub(crate) const HALF: usize = 500_000;

/// A body in which no place is like another.
pub(crate) fn body(seed: u32) -> Vec<u8> {
    (0..SIZE as u32 / 4)
        .flat_map(|n| (n ^ seed).wrapping_mul(0x9e37_79b9).to_be_bytes())
        .collect()
}

/// The fields of a field block, as text.
pub(crate) fn fields(decoder: &mut Decoder, block: &[u8]) -> io::Result<HashMap<String, String>> {
    let limits = FieldLimits {
        max_bytes: 1 << 16,
        max_fields: 100,
    };
    let mut section = FieldSection::new();
    decoder
        .decode(block, &limits, &mut section)
        .map_err(io::Error::other)?;
    let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
    let fields = section.fields().iter();
    Ok(fields
        .map(|field| (text(field.name.as_bytes()), text(field.value.as_bytes())))
        .collect())
}

/// A request as a server sees it.
pub(crate) struct Asked {
    pub(crate) stream: u32,
    pub(crate) fields: HashMap<String, String>,
}

impl Asked {
    /// From which byte on the rest is asked for, of the version that is named.
    pub(crate) fn from(&self, version: &str) -> Option<usize> {
        let range = self.fields.get("range")?;
        assert_eq!(self.fields.get("if-range").map(String::as_str), Some(version));
        range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
    }

    fn read(stream: u32, decoder: &mut Decoder, block: &[u8]) -> io::Result<Self> {
        let fields = fields(decoder, block)?;
        Ok(Asked { stream, fields })
    }

    pub(crate) fn is_whole(&self) -> bool {
        !self.fields.contains_key("range") && !self.fields.contains_key("if-range")
    }
}

#[derive(PartialEq)]
pub(crate) enum Then {
    /// Ends the connection.
    Close,
    /// Waits for more.
    Go,
}

type Script = dyn Fn(usize, &Asked) -> (Vec<u8>, Then) + Send + Sync;

/// A server that answers each request by its number, over all connections, and counts them.
pub(crate) struct Server {
    address: String,
    asked: Arc<Mutex<usize>>,
    body: Arc<Mutex<Vec<u8>>>,
}

impl Server {
    pub(crate) fn start(
        script: impl Fn(usize, &Asked) -> (Vec<u8>, Then) + Send + Sync + 'static,
    ) -> TestResult<Self> {
        Self::listen(false, script)
    }

    /// As [`Self::start`], but each request is answered once its body has come.
    pub(crate) fn of_uploads(
        script: impl Fn(usize, &Asked) -> (Vec<u8>, Then) + Send + Sync + 'static,
    ) -> TestResult<Self> {
        Self::listen(true, script)
    }

    fn listen(
        whole: bool,
        script: impl Fn(usize, &Asked) -> (Vec<u8>, Then) + Send + Sync + 'static,
    ) -> TestResult<Self> {
        let asked = Arc::new(Mutex::new(0));
        let body = Arc::new(Mutex::new(Vec::new()));
        let script: Arc<Script> = Arc::new(script);
        let (count, octets) = (Arc::clone(&asked), Arc::clone(&body));
        let address = peer::listen(move |stream| talk(stream, whole, &*script, &count, &octets))?;
        Ok(Server { address, asked, body })
    }

    /// The body of the last request.
    pub(crate) fn body(&self) -> Vec<u8> {
        self.body.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/file", self.address)
    }

    pub(crate) fn asked(&self) -> usize {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `get` with one retry has these octets after so many requests, and leaves nothing else.
    pub(crate) fn completes(&self, asked: usize, octets: &[u8]) -> TestResult {
        let folder = tempfile::tempdir()?;
        run(folder.path(), ["get", "--retry", "1", "-o", "out", &self.url()])?.succeeded();
        assert_eq!(self.asked(), asked);
        holds(folder.path(), octets)
    }
}

fn talk(
    stream: &mut TcpStream,
    whole: bool,
    script: &Script,
    count: &Mutex<usize>,
    body: &Mutex<Vec<u8>>,
) -> io::Result<()> {
    let mut peer = BlockingPeer::server(stream)?;
    let mut decoder = Decoder::new(4_096);
    let mut asked: Option<Asked> = None;
    loop {
        let frame = peer.receive()?;
        match frame.kind {
            frames::HEADERS => {
                asked = Some(Asked::read(frame.stream, &mut decoder, &frame.payload)?);
                body.lock().unwrap_or_else(PoisonError::into_inner).clear();
            }
            frames::DATA => {
                body.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .extend(&frame.payload);
            }
            _ => continue,
        }
        if whole && !frame.ends_stream() {
            continue;
        }
        let Some(asked) = asked.take() else { continue };
        let number = {
            let mut count = count.lock().unwrap_or_else(PoisonError::into_inner);
            *count += 1;
            *count
        };
        let (octets, then) = script(number, &asked);
        peer.send(&octets)?;
        if then == Then::Close {
            peer.0.shutdown(Shutdown::Write)?;
            return io::copy(&mut peer.0, &mut io::sink()).map(|_| ());
        }
    }
}

/// A head of literals without indexing.
pub(crate) fn head(stream: u32, flags: u8, fields: &[(&str, &str)]) -> Vec<u8> {
    frames::headers(stream, frames::END_HEADERS | flags, &frames::block(fields))
}

pub(crate) fn data(stream: u32, octets: &[u8], end: bool) -> Vec<u8> {
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
pub(crate) fn half(asked: &Asked, version: &[(&str, &str)], octets: &[u8]) -> Vec<u8> {
    let length = octets.len().to_string();
    let mut fields = vec![(":status", "200"), ("content-length", length.as_str())];
    fields.extend(version);
    let mut out = head(asked.stream, 0, &fields);
    out.extend(data(asked.stream, &octets[..HALF], false));
    out
}

/// 200 and all of the body.
pub(crate) fn whole(asked: &Asked, version: &[(&str, &str)], octets: &[u8]) -> Vec<u8> {
    let mut out = half(asked, version, octets);
    out.extend(data(asked.stream, &octets[HALF..], true));
    out
}

/// 206 and the rest from a byte on.
pub(crate) fn rest(asked: &Asked, version: &[(&str, &str)], octets: &[u8], from: usize) -> Vec<u8> {
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

pub(crate) const V1: &[(&str, &str)] = &[("etag", "\"v1\"")];

pub(crate) fn holds(folder: &Path, octets: &[u8]) -> TestResult {
    assert_eq!(names(folder)?, ["out"]);
    assert!(std::fs::read(folder.join("out"))? == octets, "wrong bytes");
    Ok(())
}

/// Nothing but a part with these octets and its record is in the folder; nothing at all where no later run finds one.
pub(crate) fn is_left(folder: &Path, octets: &[u8]) -> TestResult {
    let left = names(folder)?;
    if cfg!(not(unix)) {
        assert!(left.is_empty(), "{left:?}");
        return Ok(());
    }
    assert_eq!(left, ["out.part", "out.part.json"]);
    assert!(std::fs::read(folder.join("out.part"))? == octets, "wrong bytes");
    Ok(())
}
