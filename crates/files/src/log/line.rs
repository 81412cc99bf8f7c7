//! One line of the access log, in each of its formats.

use std::fmt::{self, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fullbore::ext::OriginTime;
use fullbore::server::{ExchangeVerdict, PeerAddr};
use fullbore::stats::{Cause, Direction};
use http::header::{HeaderName, REFERER, USER_AGENT};
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use http_body::Body;
use tokio::time::Instant;

use super::{LogFormat, LogUser, LogWriter};
use crate::upload_reference;

/// What limited a response, or an upload, of fewer bytes is not asked.
const LEAST_BYTES: u64 = 1_000_000;

/// Nor what limited one that took less time.
const LEAST_TIME: Duration = Duration::from_secs(1);

/// The line of a request in progress. Dropping it writes it.
#[derive(Debug)]
pub(super) struct Line {
    writer: LogWriter,
    began: Instant,
    /// How long it took, once that is known.
    took: Option<Duration>,
    time: SystemTime,
    peer: Option<SocketAddr>,
    user: Option<Arc<str>>,
    /// What the request says, as written. The request itself is not kept: a header value may keep its whole field section in
    /// memory.
    fields: String,
    /// Where in `fields` that begins which follows the response's own fields.
    rest_at: usize,
    status: Option<u16>,
    bytes: u64,
    whole: bool,
    /// Whether the request may upload something.
    may_upload: bool,
    /// What limited the transfer, if it may be large.
    verdict: Option<(Direction, ExchangeVerdict)>,
    cause: Option<Cause>,
    /// Of a request that was passed on.
    origin: Option<Duration>,
}

impl Line {
    pub(super) fn begin<Q>(writer: &LogWriter, request: &Request<Q>) -> Line {
        let uri = request.uri();
        let path = &*upload_reference::shown(uri);
        let (method, version) = (request.method().as_str(), request.version());
        let headers = request.headers();
        let mut fields = Fields {
            text: String::with_capacity(64),
            most: writer.queue.limits.field_bytes,
        };
        let rest_at = match writer.format {
            LogFormat::Text => fields.as_text(method, path, headers),
            LogFormat::Combined => fields.as_combined(method, path, version, headers),
            LogFormat::Json => fields.as_json(method, path, version, headers),
        };
        Line {
            writer: writer.clone(),
            began: Instant::now(),
            took: None,
            time: SystemTime::now(),
            peer: request.extensions().get::<PeerAddr>().map(|peer| peer.0),
            user: None,
            fields: fields.text,
            rest_at,
            status: None,
            bytes: 0,
            whole: false,
            may_upload: !matches!(*request.method(), Method::GET | Method::HEAD),
            verdict: None,
            cause: None,
            origin: None,
        }
    }

    /// The line of a request that the server refused before a service saw it.
    pub(super) fn refused(writer: &LogWriter, peer: Option<SocketAddr>, status: StatusCode) -> Line {
        let mut fields = Fields::unlimited();
        let rest_at = match writer.format {
            LogFormat::Text => fields.unknown("- \"-\"", "-"),
            LogFormat::Combined => fields.unknown("\"-\"", "\"-\" \"-\""),
            LogFormat::Json => fields.unknown(
                "\"method\":null,\"path\":null,\"version\":null",
                "\"referer\":null,\"user_agent\":null",
            ),
        };
        Line {
            writer: writer.clone(),
            began: Instant::now(),
            took: None,
            time: SystemTime::now(),
            peer,
            user: None,
            fields: fields.text,
            rest_at,
            status: Some(status.as_u16()),
            bytes: 0,
            whole: true,
            may_upload: false,
            verdict: None,
            cause: None,
            origin: None,
        }
    }

    /// There is a response. If it, or what was uploaded before it, may be large, the server is asked what limits it.
    pub(super) fn respond<P: Body>(&mut self, response: &mut Response<P>) {
        self.status = Some(response.status().as_u16());
        self.user = response
            .extensions()
            .get::<LogUser>()
            .map(|user| Arc::clone(&user.0));
        self.origin = response.extensions().get::<OriginTime>().map(|time| time.0);
        let direction = if response
            .body()
            .size_hint()
            .upper()
            .is_none_or(|most| most >= LEAST_BYTES)
        {
            Direction::Sending
        } else if self.may_upload && self.began.elapsed() >= LEAST_TIME {
            Direction::Receiving
        } else {
            return;
        };
        let verdict = ExchangeVerdict::new();
        response.extensions_mut().insert(verdict.clone());
        self.verdict = Some((direction, verdict));
    }

    /// Bytes of the body were sent.
    pub(super) fn add_bytes(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// The body has ended, or was given up. Writes the line: at once, or when the server has said what limited the transfer.
    pub(super) fn end(mut self: Box<Self>, whole: bool) {
        self.whole = whole;
        let Some((direction, verdict)) = self.verdict.take() else {
            return;
        };
        let took = self.began.elapsed();
        self.took = Some(took);
        let is_large = direction == Direction::Receiving || self.bytes >= LEAST_BYTES;
        if !is_large || took < LEAST_TIME || !verdict.is_answerable() {
            return;
        }
        // Without a runtime nobody waits for the answer. A runtime that ends drops the line, which writes it.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let answer = verdict.ask(direction);
            runtime.spawn(async move {
                self.cause = answer.await.map(|verdict| verdict.cause);
            });
        }
    }

    /// Writing to a String does not fail, so results are ignored.
    fn text(&self) -> String {
        let mut text = String::with_capacity(160 + self.fields.len());
        let _ = match self.writer.format {
            LogFormat::Text => self.write_text(&mut text),
            LogFormat::Combined => self.write_combined(&mut text),
            LogFormat::Json => self.write_json(&mut text),
        };
        text.push('\n');
        text
    }

    fn millis(&self) -> f64 {
        millis(self.took.unwrap_or_else(|| self.began.elapsed()))
    }

    fn write_text(&self, text: &mut String) -> fmt::Result {
        let (request, agent) = self.fields.split_at_checked(self.rest_at).unwrap_or_default();
        write!(text, "{} ", humantime::format_rfc3339_millis(self.time))?;
        match self.peer {
            Some(peer) => write!(text, "{}", Shown(peer))?,
            None => text.push('-'),
        }
        write!(text, " {request}")?;
        match self.status {
            Some(status) => write!(text, " {status}")?,
            None => text.push_str(" -"),
        }
        write!(text, " {} {:.3}ms {agent}", self.bytes, self.millis())?;
        if !self.whole {
            text.push_str(" aborted");
        }
        if let Some(origin) = self.origin {
            write!(text, " origin={:.3}ms", millis(origin))?;
        }
        if let Some(cause) = &self.cause {
            write!(text, " cause={}", cause.name())?;
        }
        if let Some(holder) = self.held_by() {
            write!(text, " held_by={holder}")?;
        }
        Ok(())
    }

    /// `%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i"` of Apache.
    fn write_combined(&self, text: &mut String) -> fmt::Result {
        let (request, rest) = self.fields.split_at_checked(self.rest_at).unwrap_or_default();
        match self.peer {
            Some(peer) => write!(text, "{}", peer.ip())?,
            None => text.push('-'),
        }
        text.push_str(" - ");
        match &self.user {
            // A space would end the field.
            Some(user) => text.push_str(&escaped(user.as_bytes()).replace(' ', "\\x20")),
            None => text.push('-'),
        }
        // `Mon, 23 Nov 2026 20:02:25 GMT`
        let date = httpdate::fmt_http_date(self.time);
        let mut parts = date.split(' ').skip(1);
        let mut part = || parts.next().unwrap_or_default();
        write!(
            text,
            " [{}/{}/{}:{} +0000] {request} ",
            part(),
            part(),
            part(),
            part()
        )?;
        match self.status {
            Some(status) => write!(text, "{status}")?,
            None => text.push('-'),
        }
        write!(text, " {} {rest}", self.bytes)
    }

    fn write_json(&self, text: &mut String) -> fmt::Result {
        let (request, rest) = self.fields.split_at_checked(self.rest_at).unwrap_or_default();
        write!(
            text,
            "{{\"time\":\"{}\",",
            humantime::format_rfc3339_millis(self.time)
        )?;
        match self.peer {
            Some(peer) => write!(text, "\"peer\":\"{}\",", Shown(peer))?,
            None => text.push_str("\"peer\":null,"),
        }
        let mut user = Fields::unlimited();
        user.json("user", self.user.as_deref().map(str::as_bytes));
        write!(text, "{},{request},", user.text)?;
        match self.status {
            Some(status) => write!(text, "\"status\":{status}")?,
            None => text.push_str("\"status\":null"),
        }
        let (bytes, took, whole) = (self.bytes, self.millis(), self.whole);
        write!(
            text,
            ",\"bytes\":{bytes},\"duration_ms\":{took:.3},{rest},\"complete\":{whole}"
        )?;
        match &self.cause {
            Some(cause) => write!(text, ",\"cause\":\"{}\"", cause.name())?,
            None => text.push_str(",\"cause\":null"),
        }
        if let Some(origin) = self.origin {
            write!(text, ",\"origin_ms\":{:.3}", millis(origin))?;
            match self.held_by() {
                Some(holder) => write!(text, ",\"held_by\":\"{holder}\"")?,
                None => text.push_str(",\"held_by\":null"),
            }
        }
        text.push('}');
        Ok(())
    }

    /// Who held a transfer up that was passed on, in the operator's words.
    fn held_by(&self) -> Option<&'static str> {
        self.origin?;
        Some(match self.cause.as_ref()? {
            // The handler here is the proxy, which waits for nobody else.
            Cause::ThisSide => "origin",
            Cause::Peer => "client",
            Cause::StreamWindow
            | Cause::ConnectionWindow
            | Cause::PeerWindow(_)
            | Cause::PeerReceiveBuffer(_)
            | Cause::ReceiveBuffer(_)
            | Cause::SendBuffer(_) => "window",
            _ => "path",
        })
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

impl Drop for Line {
    fn drop(&mut self) {
        self.writer.line(&self.text());
    }
}

/// Fields of a request as they are written.
struct Fields {
    text: String,
    /// The longest field, in bytes as written.
    most: usize,
}

impl Fields {
    fn unlimited() -> Self {
        Fields {
            text: String::new(),
            most: usize::MAX,
        }
    }

    /// What stands for the request, and what follows the response's own fields.
    fn unknown(&mut self, request: &str, rest: &str) -> usize {
        self.text.push_str(request);
        self.text.push_str(rest);
        request.len()
    }

    fn as_text(&mut self, method: &str, path: &str, headers: &HeaderMap) -> usize {
        // A method is a token (RFC 9110 section 5.6.2), so there is nothing to escape.
        let (kept, rest) = method.split_at_checked(self.most).unwrap_or((method, ""));
        self.text.push_str(kept);
        tell_cut(&mut self.text, rest.len());
        self.text.push(' ');
        quote(&mut self.text, path.as_bytes(), self.most);
        let rest_at = self.text.len();
        self.quoted_header(headers, USER_AGENT, "-");
        rest_at
    }

    /// The request line in quotes, and what follows the length.
    fn as_combined(&mut self, method: &str, path: &str, version: Version, headers: &HeaderMap) -> usize {
        self.text.push('"');
        for (part, end) in [(method, ' '), (path, ' ')] {
            let missing = escape(&mut self.text, part.as_bytes(), self.most, Escapes::Hex);
            tell_cut(&mut self.text, missing);
            self.text.push(end);
        }
        let _ = write!(self.text, "{version:?}\"");
        let rest_at = self.text.len();
        self.quoted_header(headers, REFERER, "\"-\"");
        self.text.push(' ');
        self.quoted_header(headers, USER_AGENT, "\"-\"");
        rest_at
    }

    fn as_json(&mut self, method: &str, path: &str, version: Version, headers: &HeaderMap) -> usize {
        self.json("method", Some(method.as_bytes()));
        self.text.push(',');
        self.json("path", Some(path.as_bytes()));
        self.text.push(',');
        // As the metrics have it: HTTP/2 has no minor versions (RFC 9113).
        let version = match version {
            Version::HTTP_2 => "2",
            Version::HTTP_11 => "1.1",
            _ => "1.0",
        };
        self.json("version", Some(version.as_bytes()));
        let rest_at = self.text.len();
        self.json("referer", headers.get(REFERER).map(|value| value.as_bytes()));
        self.text.push(',');
        self.json(
            "user_agent",
            headers.get(USER_AGENT).map(|value| value.as_bytes()),
        );
        rest_at
    }

    fn quoted_header(&mut self, headers: &HeaderMap, name: HeaderName, none: &str) {
        match headers.get(name) {
            Some(value) => quote(&mut self.text, value.as_bytes(), self.most),
            None => self.text.push_str(none),
        }
    }

    /// A member of an object, and how many bytes of it are missing.
    fn json(&mut self, name: &str, value: Option<&[u8]>) {
        let _ = write!(self.text, "\"{name}\":");
        let Some(value) = value else {
            return self.text.push_str("null");
        };
        self.text.push('"');
        let missing = escape(&mut self.text, value, self.most, Escapes::Json);
        self.text.push('"');
        if missing > 0 {
            let _ = write!(self.text, ",\"{name}_missing\":{missing}");
        }
    }
}

/// How bytes are written that are not visible characters of ASCII.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Escapes {
    /// `\x1b`
    Hex,
    /// `\u001b`
    Json,
}

/// An address. One that a proxy has told has no port.
struct Shown(SocketAddr);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.port() {
            0 => self.0.ip().fmt(f),
            _ => self.0.fmt(f),
        }
    }
}

/// Writes at most `most` bytes of a peer's text in quotes, escaped: it cannot end the line or the field, or control a
/// terminal.
fn quote(text: &mut String, raw: &[u8], most: usize) {
    text.push('"');
    let missing = escape(text, raw, most, Escapes::Hex);
    text.push('"');
    tell_cut(text, missing);
}

fn escaped(raw: &[u8]) -> String {
    let mut text = String::new();
    escape(&mut text, raw, usize::MAX, Escapes::Hex);
    text
}

/// Writes at most `most` bytes of a text, escaped. Returns how many bytes of the text are missing.
fn escape(text: &mut String, raw: &[u8], most: usize, escapes: Escapes) -> usize {
    let end = text.len().saturating_add(most);
    for (at, &byte) in raw.iter().enumerate() {
        let length = match byte {
            b'"' | b'\\' => 2,
            b' '..=b'~' => 1,
            _ if escapes == Escapes::Hex => 4,
            _ => 6,
        };
        if text.len() + length > end {
            return raw.len() - at;
        }
        match length {
            4 => drop(write!(text, "\\x{byte:02x}")),
            6 => drop(write!(text, "\\u{byte:04x}")),
            length => {
                if length == 2 {
                    text.push('\\');
                }
                text.push(char::from(byte));
            }
        }
    }
    0
}

/// Writes how many bytes of a field are missing, if any.
fn tell_cut(text: &mut String, bytes: usize) {
    if bytes > 0 {
        let _ = write!(text, "+{bytes}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quoted(raw: &[u8], most: usize) -> String {
        let mut text = String::new();
        quote(&mut text, raw, most);
        text
    }

    #[test]
    fn nothing_a_peer_sends_ends_a_line_or_a_field() {
        let text = quoted(b"a\"b\\c\r\nd\x1b[2J\x7f\xc3\xa9 ~", 1024);
        assert_eq!(text, r#""a\"b\\c\x0d\x0ad\x1b[2J\x7f\xc3\xa9 ~""#);
    }

    #[test]
    fn a_field_is_cut_between_two_escapes_and_says_how_much_is_missing() {
        assert_eq!(quoted(b"abcd", 4), r#""abcd""#);
        assert_eq!(quoted(b"abcde", 4), r#""abcd"+1"#);
        assert_eq!(quoted(b"ab\"\"", 4), r#""ab\""+1"#);
        assert_eq!(quoted(b"abc\"", 4), r#""abc"+1"#);
        assert_eq!(quoted(b"\xff\xff\xff", 7), r#""\xff"+2"#);
        assert_eq!(quoted(b"a", 0), r#"""+1"#);
        assert_eq!(quoted(b"", 0), r#""""#);
        for most in 0..40 {
            let text = quoted(b"a\"\\\n\xff0123456789", most);
            let (kept, _) = text.rsplit_once('"').unwrap();
            assert!(kept.len() <= 1 + most, "{text}");
        }
    }

    fn json(name: &str, value: Option<&[u8]>, most: usize) -> String {
        let mut fields = Fields {
            text: String::new(),
            most,
        };
        fields.json(name, value);
        fields.text
    }

    #[test]
    fn a_member_of_an_object_is_json_whatever_a_peer_sends() {
        assert_eq!(json("path", None, 9), r#""path":null"#);
        let text = json("path", Some(b"a\"b\\c\r\n\x1b\xc3\xa9"), 1024);
        assert_eq!(text, r#""path":"a\"b\\c\u000d\u000a\u001b\u00c3\u00a9""#);
        assert_eq!(
            json("path", Some(b"abcde"), 4),
            r#""path":"abcd","path_missing":1"#
        );
        assert_eq!(
            json("path", Some(b"\xff\xff"), 7),
            r#""path":"\u00ff","path_missing":1"#
        );
    }
}
