//! A minimal HTTP/2 client on one blocking socket: one request at a time, down or up. It is the same for every server and
//! cheap, so that it does not limit what it measures. The case `servers` reads its line.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConnection, StreamOwned};

use super::{Failure, print_line, tls};
use fullbore_testing::frames::{
    self, ACK, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADER_LENGTH, HEADERS, INITIAL_WINDOW_SIZE, PING,
    PREFACE, RST_STREAM, SETTINGS, WINDOW_UPDATE, frame, window_update,
};

/// RFC 9113 section 3.4.
const FRAME: usize = 16_384;
/// Frames of a body that are written at once.
const FRAMES: usize = 16;
const DEFAULT_WINDOW: i64 = 65_535;
/// What a body down may take without a further word.
const WIDE: u32 = 1 << 30;
const AT_A_MARK: Duration = Duration::from_millis(300);

#[derive(Args, Clone)]
pub(crate) struct Raw {
    server: SocketAddr,
    /// The path of each request
    #[arg(long)]
    path: String,
    /// Over TLS, accepting any certificate
    #[arg(long)]
    secure: bool,
    /// How many requests follow one another, after a tenth as many unless there are marks
    #[arg(long)]
    requests: usize,
    /// After which of them to say so, and to wait a moment so that somebody can look at the server
    #[arg(long, value_delimiter = ',')]
    marks: Vec<usize>,
    /// How many bytes each sends with PUT; without it, GET
    #[arg(long)]
    upload: Option<u64>,
}

#[derive(Args, Clone)]
pub(crate) struct Idle {
    server: SocketAddr,
    #[arg(long)]
    connections: usize,
}

impl Idle {
    /// Makes one request on each connection, one after the other, says so and keeps all of them open.
    pub(super) fn run(&self) -> Result<(), Failure> {
        let raw = Raw {
            server: self.server,
            path: "/12".to_owned(),
            secure: false,
            requests: 1,
            marks: Vec::new(),
            upload: None,
        };
        let mut open = Vec::with_capacity(self.connections);
        for _ in 0..self.connections {
            let mut wire = raw.connect()?;
            raw.request(&mut wire)?;
            open.push(wire.io);
        }
        print_line(&format!("idle {}", open.len()))?;
        loop {
            thread::park();
        }
    }
}

trait Transport: Read + Write {}
impl<T: Read + Write> Transport for T {}

impl Raw {
    /// Prints the seconds of all requests, and the microseconds of the middle one and of the one that 99 % are faster than.
    pub(super) fn run(&self) -> Result<(), Failure> {
        let mut wire = self.connect()?;
        let warm_up = if self.marks.is_empty() {
            self.requests / 10
        } else {
            0
        };
        for _ in 0..warm_up {
            self.request(&mut wire)?;
        }
        let mut each = Vec::with_capacity(self.requests);
        let begun = Instant::now();
        for done in 1..=self.requests {
            let begun = Instant::now();
            self.request(&mut wire)?;
            each.push(begun.elapsed());
            if self.marks.contains(&done) {
                print_line(&format!("mark {done}"))?;
                thread::sleep(AT_A_MARK);
            }
        }
        let all = begun.elapsed().as_secs_f64();
        each.sort_unstable();
        let micros = |percent: usize| {
            let at = (each.len() * percent / 100).min(each.len().saturating_sub(1));
            each.get(at).map(Duration::as_secs_f64).unwrap_or(0.0) * 1e6
        };
        print_line(&format!("{all} {:.2} {:.2}", micros(50), micros(99)))
    }

    fn connect(&self) -> Result<Wire, Failure> {
        let socket = TcpStream::connect(self.server)?;
        socket.set_nodelay(true)?;
        Wire::open(self.transport(socket)?)
    }

    fn transport(&self, socket: TcpStream) -> Result<Box<dyn Transport>, Failure> {
        if !self.secure {
            return Ok(Box::new(socket));
        }
        let config = tls::config()?;
        let name = ServerName::try_from("localhost")?;
        Ok(Box::new(StreamOwned::new(
            ClientConnection::new(config, name)?,
            socket,
        )))
    }

    fn request(&self, wire: &mut Wire) -> Result<(), Failure> {
        let block = self.field_block();
        match self.upload {
            None => wire.begin(&block, END_HEADERS | END_STREAM)?,
            Some(bytes) => {
                wire.begin(&block, END_HEADERS)?;
                wire.send_body(bytes)?;
            }
        }
        wire.until_answered()
    }

    /// RFC 7541 without a dynamic table: fields of the static one, and literals that are not indexed.
    fn field_block(&self) -> Vec<u8> {
        let method = if self.upload.is_some() { "PUT" } else { "GET" };
        let scheme = if self.secure { "https" } else { "http" };
        let authority = self.server.to_string();
        let fields = [(2, method), (6, scheme), (4, &self.path), (1, &authority)];
        let mut block = fields
            .map(|(index, value)| frames::literal(index, value))
            .concat();
        if let Some(bytes) = self.upload {
            block.extend(frames::literal(28, &bytes.to_string()));
        }
        block
    }
}

/// A connection and what of its state one stream at a time needs.
struct Wire {
    io: Box<dyn Transport>,
    input: VecDeque<u8>,
    buffer: Vec<u8>,
    /// Frames of a body, one behind another.
    body: Vec<u8>,
    stream: u32,
    connection_window: i64,
    stream_window: i64,
    initial_window: i64,
    answered: bool,
    /// Of the connection's own window, since it was refilled.
    taken: u32,
}

impl Wire {
    fn open(mut io: Box<dyn Transport>) -> Result<Self, Failure> {
        let settings = frames::settings(&[(INITIAL_WINDOW_SIZE, WIDE)]);
        io.write_all(&[PREFACE, &settings, &window_update(0, WIDE)].concat())?;
        io.flush()?;
        let mut wire = Self {
            io,
            input: VecDeque::new(),
            buffer: vec![0; 256 << 10],
            body: Vec::new(),
            stream: 1,
            connection_window: DEFAULT_WINDOW,
            stream_window: DEFAULT_WINDOW,
            initial_window: DEFAULT_WINDOW,
            answered: false,
            taken: 0,
        };
        // Uploads begin with the windows that the server really has.
        wire.read()?;
        Ok(wire)
    }

    fn begin(&mut self, block: &[u8], flags: u8) -> Result<(), Failure> {
        self.answered = false;
        self.stream_window = self.initial_window;
        let head = frame(HEADERS, flags, self.stream, block);
        self.io.write_all(&head)?;
        Ok(self.io.flush()?)
    }

    fn send_body(&mut self, bytes: u64) -> Result<(), Failure> {
        self.body.clear();
        for _ in 0..(bytes / FRAME as u64).min(FRAMES as u64) {
            self.body
                .extend_from_slice(&frame(DATA, 0, self.stream, &[b'x'; FRAME]));
        }
        let mut left = bytes;
        while left > 0 {
            let window = u64::try_from(self.connection_window.min(self.stream_window)).unwrap_or(0);
            let whole = (window.min(left.saturating_sub(1)) / FRAME as u64).min(FRAMES as u64);
            let sent = if whole > 0 {
                let octets = whole as usize * (HEADER_LENGTH + FRAME);
                self.io.write_all(self.body.get(..octets).unwrap_or(&self.body))?;
                whole * FRAME as u64
            } else {
                // The last frame, or less than a frame of window.
                let part = window.min(left).min(FRAME as u64);
                if part > 0 {
                    let end = if part == left { END_STREAM } else { 0 };
                    let payload = vec![b'x'; part as usize];
                    self.io.write_all(&frame(DATA, end, self.stream, &payload))?;
                }
                part
            };
            left -= sent;
            self.connection_window -= sent as i64;
            self.stream_window -= sent as i64;
            let next = left.min(FRAME as u64) as i64;
            if left > 0 && self.connection_window.min(self.stream_window) < next {
                self.io.flush()?;
                self.read()?;
            }
        }
        Ok(self.io.flush()?)
    }

    fn until_answered(&mut self) -> Result<(), Failure> {
        while !self.answered {
            self.read()?;
        }
        self.stream += 2;
        if self.taken > WIDE / 4 {
            let taken = std::mem::take(&mut self.taken);
            self.io.write_all(&window_update(0, taken))?;
            self.io.flush()?;
        }
        Ok(())
    }

    /// Waits for octets and takes in the frames that are whole.
    fn read(&mut self) -> Result<(), Failure> {
        let read = self.io.read(&mut self.buffer)?;
        if read == 0 {
            return Err("the server has closed the connection".into());
        }
        self.input.extend(self.buffer.get(..read).unwrap_or_default());
        loop {
            let head: Vec<u8> = self.input.iter().take(HEADER_LENGTH).copied().collect();
            let &[a, b, c, kind, flags, s, t, u, v] = head.as_slice() else {
                return Ok(());
            };
            let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
            if self.input.len() < HEADER_LENGTH + length {
                return Ok(());
            }
            self.input.drain(..HEADER_LENGTH);
            let payload: Vec<u8> = match kind {
                DATA => {
                    self.input.drain(..length);
                    self.taken += length as u32;
                    Vec::new()
                }
                _ => self.input.drain(..length).collect(),
            };
            self.on_frame(kind, flags, u32::from_be_bytes([s & 0x7f, t, u, v]), &payload)?;
        }
    }

    fn on_frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Result<(), Failure> {
        match kind {
            HEADERS if (0x8b..=0x8e).contains(payload.first().unwrap_or(&0)) => {
                return Err("the server answers with an error".into());
            }
            DATA | HEADERS if stream == self.stream => self.answered |= flags & END_STREAM != 0,
            SETTINGS if flags & ACK == 0 => {
                self.on_settings(payload);
                self.io.write_all(&frames::settings_ack())?;
                self.io.flush()?;
            }
            PING if flags & ACK == 0 => {
                self.io.write_all(&frame(PING, ACK, 0, payload))?;
                self.io.flush()?;
            }
            WINDOW_UPDATE => {
                let more = payload.iter().fold(0, |sum, octet| sum << 8 | i64::from(*octet));
                match stream {
                    0 => self.connection_window += more,
                    _ if stream == self.stream => self.stream_window += more,
                    _ => {}
                }
            }
            // Without an error it ends nothing: the answer was whole before the body was.
            RST_STREAM if payload != [0; 4] => return Err("the server has reset the stream".into()),
            GOAWAY => return Err("the server ends the connection".into()),
            _ => {}
        }
        Ok(())
    }

    fn on_settings(&mut self, payload: &[u8]) {
        for setting in payload.chunks_exact(6) {
            if let &[0, 4, a, b, c, d] = setting {
                let window = i64::from(u32::from_be_bytes([a, b, c, d]));
                self.stream_window += window - self.initial_window;
                self.initial_window = window;
            }
        }
    }
}
