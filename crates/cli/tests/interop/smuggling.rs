//! Requests that two parsers may read in two ways, through `fullbore proxy` to Go, Node, Python and nginx: the application
//! sees what the client meant, or the client is refused.
//!
//! `http1` and `http2` have the cases. Each application prints what it has seen. A request in that list which no case
//! expects has no `via` of the proxy, or another target, and fails the trial. The last trial sends the same octets to the
//! applications without a proxy: cases that none of them reads wrongly would prove little.

#[path = "smuggling/http1.rs"]
mod http1;
#[path = "smuggling/http2.rs"]
mod http2;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use fullbore_testing::frames::{self, END_HEADERS, END_STREAM, GOAWAY, HEADERS, RST_STREAM};
use fullbore_testing::peer::BlockingPeer;
use libtest_mimic::Trial;
use serde_json::Value;

use crate::files::Scratch;
use crate::fullbore;
use crate::peers::{Peer, go_peer, sources, trial};
use crate::process::{DEADLINE, Daemon, Outcome, ensure, spawn_on_free_port};

/// The fields that nginx is asked for: it has no variable for all.
const NGINX_FIELDS: [&str; 24] = [
    "authorization",
    "connection",
    "content-length",
    "content-type",
    "cookie",
    "expect",
    "forwarded",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
    "x-a",
    "x-b",
    "x-c",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-real-ip",
    "proxy-connection",
    "http2-settings",
    "max-forwards",
];

/// What a client sends.
enum Sent {
    /// The octets of a connection.
    Http1(Vec<u8>),
    /// The fields of a stream, in this order, with a body and trailers.
    Http2 {
        fields: Vec<(Vec<u8>, Vec<u8>)>,
        body: Vec<u8>,
        trailers: Vec<(Vec<u8>, Vec<u8>)>,
    },
}

/// What a client sends, and what it means.
struct Case {
    name: String,
    sent: Sent,
    /// The requests that the application has to see. With none, the client has to be refused.
    meant: Vec<Meant>,
    /// An application, or the version that it speaks, may have no such request: 400 will do.
    may_be_refused: bool,
}

/// A request as the client meant it.
#[derive(Clone, Copy, Debug)]
struct Meant {
    method: &'static str,
    target: &'static str,
    /// Fields that are there, with these values alone.
    has: &'static [(&'static str, &'static str)],
    /// Fields that are not there.
    lacks: &'static [&'static str],
    body: &'static str,
}

impl Meant {
    /// A request for `/seen` with this body.
    const fn post(body: &'static str) -> Self {
        Self {
            method: "POST",
            target: "/seen",
            has: &[("host", "h")],
            lacks: &[],
            body,
        }
    }

    /// A request without a body.
    const fn get(target: &'static str) -> Self {
        Self {
            method: "GET",
            target,
            ..Self::post("")
        }
    }

    const fn has(self, has: &'static [(&'static str, &'static str)]) -> Self {
        Self { has, ..self }
    }

    const fn lacks(self, lacks: &'static [&'static str]) -> Self {
        Self { lacks, ..self }
    }
}

/// An application behind the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Go,
    GoHttp2,
    Node,
    Python,
    Nginx,
}

impl Origin {
    const ALL: [Self; 5] = [Self::Go, Self::GoHttp2, Self::Node, Self::Python, Self::Nginx];

    fn peer(self) -> Peer {
        match self {
            Self::Go | Self::GoHttp2 => Peer::Go,
            Self::Node => Peer::Node,
            Self::Python => Peer::Python,
            Self::Nginx => Peer::Nginx,
        }
    }

    fn version(self) -> &'static str {
        if self == Self::GoHttp2 {
            "HTTP/2"
        } else {
            "HTTP/1.1"
        }
    }

    /// Starts it. Returns its address besides.
    fn start(self, scratch: &Scratch) -> Outcome<(Daemon, String)> {
        let mut daemon = match self {
            Self::Nginx => {
                let (daemon, port) = spawn_on_free_port(|port| nginx(scratch, port))?;
                return Ok((daemon, format!("127.0.0.1:{port}")));
            }
            Self::Go | Self::GoHttp2 => Daemon::spawn(std::process::Command::new(go_peer()?).arg("echo"))?,
            Self::Node => Daemon::spawn(Peer::Node.command()?.arg(sources().join("node/echo.mjs")))?,
            Self::Python => Daemon::spawn(Peer::Python.command()?.arg(sources().join("python/echo.py")))?,
        };
        let url = daemon.wait_line("listening on http://")?;
        Ok((daemon, url.trim().to_owned()))
    }
}

/// nginx writes a line of its log for each request, with the body: a variable that is known where it is passed on.
fn nginx(scratch: &Scratch, port: u16) -> Outcome<std::process::Command> {
    let work = scratch.folder("nginx")?;
    let work = work.display();
    let fields: Vec<String> = NGINX_FIELDS
        .iter()
        .map(|name| format!("[\"{name}\",\"$http_{}\"]", name.replace('-', "_")))
        .collect();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|name| format!("{name}_temp_path {work}/{name}; "))
        .collect();
    let text = format!(
        "daemon off; master_process off; pid {work}/pid; error_log stderr crit; events {{}}\n\
         http {{ {temporary}\n\
         map $status $seen {{ 200 request; 405 request; 400 refused; default broken; }}\n\
         log_format seen escape=json '$seen {{\"method\":\"$request_method\",\"target\":\"$request_uri\",\
         \"fields\":[{fields}],\"body\":\"$request_body\",\"trailers\":[]}}';\n\
         client_body_buffer_size 1m; client_body_in_single_buffer on; large_client_header_buffers 4 128k; merge_slashes off;\n\
         server {{ listen 127.0.0.1:{port}; access_log /dev/stdout seen;\n\
         location / {{ proxy_pass http://unix:{work}/behind; }} }}\n\
         server {{ listen unix:{work}/behind; access_log off; return 200 seen; }} }}\n",
        fields = fields.join(",")
    );
    let mut command = Peer::Nginx.command()?;
    command
        .args(["-e", "stderr", "-c"])
        .arg(scratch.file("nginx.conf", &text)?);
    Ok(command)
}

/// All trials of this file.
pub(crate) fn trials() -> Vec<Trial> {
    Origin::ALL
        .iter()
        .map(|&origin| {
            let (peer, version) = (origin.peer(), origin.version());
            trial(
                &[peer],
                format!(
                    "no request is smuggled through fullbore proxy to {} over {version}",
                    peer.name()
                ),
                move || through(origin),
            )
        })
        .collect()
}

fn cases() -> Vec<Case> {
    let mut cases = http1::cases();
    cases.extend(http2::cases());
    cases
}

fn through(origin: Origin) -> Outcome {
    let scratch = Scratch::new()?;
    let (application, address) = origin.start(&scratch)?;
    let scheme = if origin == Origin::GoHttp2 { "h2c" } else { "http" };
    let mut command = std::process::Command::new(fullbore::program());
    command.args([
        "proxy",
        &format!("{scheme}://{address}"),
        "--plaintext",
        "--listen",
        "127.0.0.1:0",
    ]);
    let mut proxy = Daemon::spawn(&mut command)?;
    let front = proxy.wait_line("listening on http://")?;
    let front = front.trim().trim_end_matches('/').to_owned();
    let mut fences = Fences::new(&front, application)?;
    let mut failed = Vec::new();
    let cases = cases();
    ensure(cases.len() >= 150, || format!("only {} cases", cases.len()))?;
    for case in &cases {
        let answer = case
            .sent
            .send(&front, !case.meant.is_empty(), DEADLINE)
            .map_err(|fault| format!("{}: {fault}", case.name))?;
        let seen = fences.seen()?;
        if let Err(reason) = judge(case, origin, answer.as_deref(), &seen) {
            failed.push(format!(
                "{}: {reason}\n    answer {answer:?}\n    seen {seen:?}",
                case.name
            ));
        }
    }
    proxy.check_alive()?;
    ensure(failed.is_empty(), || {
        format!(
            "{} of {} cases:\n{}",
            failed.len(),
            cases.len(),
            failed.join("\n")
        )
    })
}

/// Requests behind the cases, which tell that the application has printed what it saw of these.
struct Fences {
    stream: TcpStream,
    application: Daemon,
    count: usize,
}

impl Fences {
    fn new(front: &str, application: Daemon) -> Outcome<Self> {
        let stream = TcpStream::connect(front)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        Ok(Self {
            stream,
            application,
            count: 0,
        })
    }

    /// What the application has seen since the last call.
    fn seen(&mut self) -> Outcome<Vec<String>> {
        self.count += 1;
        let target = format!("/fence-{}", self.count);
        // In one write: a second small one would wait for the acknowledgement of the first.
        let request = format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
        self.stream.write_all(request.as_bytes())?;
        let head = read_head(&mut self.stream)?;
        ensure(head.starts_with("HTTP/1.1 200 "), || format!("{target}: {head}"))?;
        skip_body(&mut self.stream, &head)?;
        let (begun, mut lines) = (Instant::now(), Vec::new());
        let target = format!("\"target\":\"{target}\"");
        loop {
            lines.extend(self.application.take_lines());
            if let Some(at) = lines
                .iter()
                .position(|line| without_spaces(line).contains(&target))
            {
                lines.remove(at);
                return Ok(lines);
            }
            ensure(begun.elapsed() < DEADLINE, || {
                format!("{target} was not seen, but {lines:?}")
            })?;
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Python's JSON has spaces between members.
fn without_spaces(line: &str) -> String {
    line.replace("\": \"", "\":\"")
}

fn read_head(stream: &mut TcpStream) -> Outcome<String> {
    let mut head = Vec::new();
    let mut octet = [0];
    while !head.ends_with(b"\r\n\r\n") {
        ensure(stream.read(&mut octet)? > 0, || {
            format!("closed after {:?}", String::from_utf8_lossy(&head))
        })?;
        head.push(octet[0]);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

fn skip_body(stream: &mut TcpStream, head: &str) -> Outcome {
    let head = head.to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    match length.and_then(|value| value.trim().parse::<usize>().ok()) {
        Some(length) => stream.read_exact(&mut vec![0; length])?,
        None => {
            let mut body = Vec::new();
            let mut octet = [0];
            while !body.ends_with(b"0\r\n\r\n") {
                stream.read_exact(&mut octet)?;
                body.push(octet[0]);
            }
        }
    }
    Ok(())
}

impl Sent {
    /// Sends it, and returns the start of the answer: the line of the status, or `reset`. `None` if the connection was closed
    /// without one.
    fn send(&self, front: &str, is_meant: bool, patience: Duration) -> Outcome<Option<String>> {
        let mut stream = TcpStream::connect(front)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        match self {
            // A server that closes early may reset what is still sent.
            Sent::Http1(octets) => {
                let _ = stream.write_all(octets);
                if !is_meant {
                    // What waits for more is not to wait for long.
                    let _ = stream.shutdown(std::net::Shutdown::Write);
                }
                let mut answer = Vec::new();
                let mut octet = [0];
                while !answer.ends_with(b"\r\n") || answer.starts_with(b"HTTP/1.1 100 ") {
                    if answer.ends_with(b"\r\n\r\n") {
                        answer.clear();
                    }
                    match stream.read(&mut octet) {
                        Ok(0) => break,
                        Ok(_) => answer.push(octet[0]),
                        Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
                        Err(error) => return Err(error.into()),
                    }
                }
                let line = String::from_utf8_lossy(&answer).trim_end().to_owned();
                Ok(Some(line).filter(|line| !line.is_empty()))
            }
            Sent::Http2 {
                fields,
                body,
                trailers,
            } => {
                let mut peer = BlockingPeer::client(stream)?;
                let ends = body.is_empty() && trailers.is_empty();
                let mut octets = Vec::new();
                // A block that is longer than a frame goes on in CONTINUATION.
                let block = frames::block(fields);
                let mut pieces = block.chunks(16_384).peekable();
                let mut flags = if ends { END_STREAM } else { 0 };
                let mut is_first = true;
                while let Some(piece) = pieces.next() {
                    flags |= if pieces.peek().is_none() { END_HEADERS } else { 0 };
                    octets.extend(match is_first {
                        true => frames::headers(1, flags, piece),
                        false => frames::continuation(1, flags, piece),
                    });
                    (is_first, flags) = (false, 0);
                }
                if !body.is_empty() {
                    let end = if trailers.is_empty() { END_STREAM } else { 0 };
                    octets.extend(frames::data(1, end, body));
                }
                if !trailers.is_empty() {
                    octets.extend(frames::headers(
                        1,
                        END_HEADERS | END_STREAM,
                        &frames::block(trailers),
                    ));
                }
                let _ = peer.send(&octets);
                loop {
                    let Ok(frame) = peer.receive() else {
                        return Ok(None);
                    };
                    return Ok(Some(match frame.kind {
                        // `:status` is an entry of the static table, or a literal.
                        HEADERS if frame.payload.starts_with(&[0x88]) => "200".to_owned(),
                        // A literal that begins with 10, in the code of HPACK: an informational response.
                        HEADERS if frame.payload.starts_with(&[0x48, 0x82, 0x08]) => continue,
                        HEADERS => format!("refused {:x?}", &frame.payload[..frame.payload.len().min(5)]),
                        RST_STREAM | GOAWAY => format!("reset {}", frame.code()),
                        _ => continue,
                    }));
                }
            }
        }
    }
}

/// Whether what the application has seen is what the client meant.
fn judge(case: &Case, origin: Origin, answer: Option<&str>, seen: &[String]) -> Result<(), String> {
    let requests: Result<Vec<Value>, _> = seen
        .iter()
        .filter_map(|line| line.strip_prefix("request "))
        .map(serde_json::from_str)
        .collect();
    let mut requests = requests.map_err(|error| format!("no JSON: {error}"))?;
    if origin == Origin::Nginx {
        requests.iter_mut().for_each(leave_out_empty_fields);
    }
    for request in &requests {
        is_sound(request, origin)?;
    }
    let is_refused = answer.is_none_or(|answer| !answer.contains("200"));
    let refuses_itself = matches!(seen, [] | [_]) && seen.iter().all(|line| line.starts_with("refused "));
    if case.may_be_refused && is_refused && refuses_itself {
        return Ok(());
    }
    // A request that broke off is one that was refused; anything else there is not.
    let is_other = |line: &&String| {
        let is_known = ["request ", "broken /seen"]
            .iter()
            .any(|start| line.starts_with(start));
        !is_known && !line.contains("\"target\":\"/seen")
    };
    if let Some(line) = seen.iter().find(is_other) {
        return Err(format!("the application was sent what is no HTTP: {line}"));
    }
    if case.meant.is_empty() {
        return match (requests.is_empty(), is_refused) {
            (true, true) => Ok(()),
            (false, _) => Err("it is passed on".into()),
            (true, false) => Err("it is answered with 200".into()),
        };
    }
    if is_refused {
        return Err("it is refused".into());
    }
    if requests.len() != case.meant.len() {
        return Err(format!(
            "{} requests in place of {}",
            requests.len(),
            case.meant.len()
        ));
    }
    case.meant
        .iter()
        .zip(&requests)
        .try_for_each(|(meant, request)| is_meant(meant, request, origin))
}

/// What holds for each request that comes from the proxy.
fn is_sound(request: &Value, origin: Origin) -> Result<(), String> {
    let via = values(request, "via");
    if !via.iter().any(|via| via.ends_with(" fullbore")) {
        return Err("a request did not pass the proxy as one: it has no `via`".into());
    }
    if values(request, "x-forwarded-for") != ["127.0.0.1"] {
        return Err("x-forwarded-for is the client's".into());
    }
    // nginx says the length that it has counted, and Go says it in place of the field.
    let lengths = values(request, "content-length").len();
    let codings = values(request, "transfer-encoding");
    if lengths > 1 || codings.len() > 1 || (lengths == 1 && !codings.is_empty()) {
        return Err(format!("{lengths} lengths and {codings:?}"));
    }
    if codings.iter().any(|coding| coding != "chunked") {
        return Err(format!("another coding: {codings:?}"));
    }
    if origin != Origin::Nginx && values(request, "host").len() != 1 {
        return Err(format!("hosts {:?}", values(request, "host")));
    }
    let has_control = |text: &str| {
        text.chars()
            .any(|octet| octet.is_ascii_control() && octet != '\t')
    };
    if pairs(request, "fields").any(|(name, value)| has_control(name) || has_control(value)) {
        return Err("a control in a field".into());
    }
    let framing = [
        "content-length",
        "transfer-encoding",
        "host",
        "connection",
        "x-forwarded-for",
        "authorization",
    ];
    match pairs(request, "trailers").find(|(name, _)| framing.contains(name)) {
        Some((name, _)) => Err(format!("{name} in the trailers")),
        None => Ok(()),
    }
}

fn is_meant(meant: &Meant, request: &Value, origin: Origin) -> Result<(), String> {
    let text = |member: &str| request[member].as_str().unwrap_or_default().to_owned();
    for (member, expected) in [
        ("method", meant.method),
        ("target", meant.target),
        ("body", meant.body),
    ] {
        if text(member) != expected {
            return Err(format!("{member} {:?} in place of {expected:?}", text(member)));
        }
    }
    for &(name, value) in meant.has {
        // nginx knows these fields, and of several only the first.
        let is_asked = origin != Origin::Nginx || (NGINX_FIELDS.contains(&name) && !value.contains(", "));
        let found = values(request, name);
        if is_asked && found.join(", ") != value {
            return Err(format!("{name}: {found:?} in place of {value:?}"));
        }
    }
    match meant.lacks.iter().find(|name| !values(request, name).is_empty()) {
        Some(name) => Err(format!("{name} is there")),
        None => Ok(()),
    }
}

fn pairs<'a>(request: &'a Value, member: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let all = request[member].as_array().into_iter().flatten();
    all.filter_map(|pair| Some((pair[0].as_str()?, pair[1].as_str()?)))
}

/// A variable of nginx is empty if the field is not there.
fn leave_out_empty_fields(request: &mut Value) {
    if let Some(fields) = request["fields"].as_array_mut() {
        fields.retain(|field| field[1] != "");
    }
}

fn values(request: &Value, name: &str) -> Vec<String> {
    let found = pairs(request, "fields").filter(|(own, _)| *own == name);
    found.map(|(_, value)| value.to_owned()).collect()
}
