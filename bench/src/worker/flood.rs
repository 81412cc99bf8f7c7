//! A server that answers every request with DATA frames of one byte, as the windows allow, and counts what the client sends
//! meanwhile. The case `flood` reads its lines.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};

use super::{Failure, print_line};
use fullbore_testing::frames::{
    self, DATA, END_HEADERS, END_STREAM, Frame, GOAWAY, HEADERS, INITIAL_WINDOW_SIZE, PING, PREFACE,
    RST_STREAM, SETTINGS, WINDOW_UPDATE, frame,
};

/// `:status: 200` of HPACK's static table (RFC 7541 appendix A).
const STATUS_200: [u8; 1] = [0x88];
/// A client that says nothing and returns no credit for so long will not come to an end.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Args, Clone)]
pub(crate) struct Flood {
    /// How many DATA frames a response has
    #[arg(long)]
    frames: u64,
    /// Write each frame by itself, without Nagle's algorithm
    #[arg(long)]
    each: bool,
}

/// What the client did during one response.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Flooded {
    /// DATA frames that left, each of a byte.
    pub(crate) sent: u64,
    pub(crate) window_updates: u64,
    /// Those of them that came after the client had read all but the last DATA frame.
    pub(crate) after_the_last: u64,
    /// Whether the client let the response come to its end.
    pub(crate) whole: bool,
}

impl Flooded {
    fn line(self) -> Value {
        json!({ "sent": self.sent, "window_updates": self.window_updates,
                "after_the_last": self.after_the_last, "whole": self.whole })
    }

    /// Reads the line of a connection.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let line: Value = serde_json::from_str(line).ok()?;
        let count = |name: &str| line.get(name).and_then(Value::as_u64);
        Some(Self {
            sent: count("sent")?,
            window_updates: count("window_updates")?,
            after_the_last: count("after_the_last")?,
            whole: line.get("whole")?.as_bool()?,
        })
    }
}

impl Flood {
    /// Serves one connection after another, and prints a line when each is over.
    pub(super) fn run(&self) -> Result<(), Failure> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        print_line(&format!("listening on {}", listener.local_addr()?))?;
        for socket in listener.incoming() {
            // One that fails has only itself to blame; what it counted is told all the same.
            print_line(&self.serve(&socket?)?.line().to_string())?;
        }
        Ok(())
    }

    fn serve(&self, socket: &TcpStream) -> Result<Flooded, Failure> {
        socket.set_nodelay(true)?;
        let heard = Heard::default();
        thread::scope(|threads| {
            threads.spawn(|| heard.listen(socket));
            let answered = self.answer(socket, &heard);
            if answered.is_err() {
                // The client is gone or is given up; the listener ends with its socket.
                let _ = socket.shutdown(std::net::Shutdown::Both);
            }
        });
        Ok(heard.lock().flooded)
    }

    fn answer(&self, mut socket: &TcpStream, heard: &Heard) -> Result<(), Failure> {
        socket.write_all(&frames::settings(&[]))?;
        socket.write_all(&frames::settings_ack())?;
        let stream = heard.wait(|state| state.stream)?;
        socket.write_all(&frame(HEADERS, END_HEADERS, stream, &STATUS_200))?;
        let one = frame(DATA, 0, stream, b"x");
        let mut left = self.frames.saturating_sub(1);
        while left > 0 {
            let credit =
                heard.wait(|state| u64::try_from(state.credit()).ok().filter(|&credit| credit > 0))?;
            let now = credit.min(left);
            if self.each {
                for _ in 0..now {
                    socket.write_all(&one)?;
                }
            } else {
                socket.write_all(&one.repeat(usize::try_from(now)?))?;
            }
            let mut state = heard.lock();
            state.spent += i64::try_from(now)?;
            state.flooded.sent += now;
            left -= now;
        }
        // Once the PING is answered the client has read all before it; what it owes for that may still be on its way.
        socket.write_all(&frame(PING, 0, 0, b"all-read"))?;
        heard.wait(|state| state.pong.then_some(()))?;
        heard.wait(|state| (state.credit() > 0).then_some(()))?;
        thread::sleep(Duration::from_millis(50));
        heard.lock().last_is_out = true;
        socket.write_all(&frame(DATA, END_STREAM, stream, b"x"))?;
        heard.lock().flooded.sent += 1;
        heard.wait(|state| state.over.then_some(()))
    }
}

/// What the client has sent so far.
#[derive(Default)]
struct Heard {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    stream: Option<u32>,
    /// Windows less what was sent: the connection's and the stream's.
    connection: i64,
    of_stream: i64,
    spent: i64,
    pong: bool,
    last_is_out: bool,
    over: bool,
    flooded: Flooded,
}

impl Default for State {
    fn default() -> Self {
        Self {
            stream: None,
            connection: 65_535,
            of_stream: 65_535,
            spent: 0,
            pong: false,
            last_is_out: false,
            over: false,
            flooded: Flooded {
                sent: 0,
                window_updates: 0,
                after_the_last: 0,
                whole: true,
            },
        }
    }
}

impl State {
    fn credit(&self) -> i64 {
        self.connection.min(self.of_stream) - self.spent
    }
}

impl Heard {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is an answer.
    fn wait<T>(&self, answer: impl Fn(&State) -> Option<T>) -> Result<T, Failure> {
        let until = Instant::now() + PATIENCE;
        let mut state = self.lock();
        loop {
            if let Some(answer) = answer(&state) {
                return Ok(answer);
            }
            let left = until.saturating_duration_since(Instant::now());
            if state.over || left.is_zero() {
                state.flooded.whole &= state.last_is_out;
                return Err("the client came to no end".into());
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Reads frames until the connection ends.
    fn listen(&self, socket: &TcpStream) {
        let mut reader = std::io::BufReader::new(socket);
        let mut preface = [0; PREFACE.len()];
        if reader.read_exact(&mut preface).is_ok() {
            while let Ok(frame) = Frame::read(&mut reader) {
                self.take(&frame, socket);
                self.changed.notify_all();
            }
        }
        self.lock().over = true;
        self.changed.notify_all();
    }

    fn take(&self, received: &Frame, mut socket: &TcpStream) {
        let mut state = self.lock();
        match received.kind {
            // All clients here send their fields in one frame.
            HEADERS => state.stream = Some(received.stream),
            WINDOW_UPDATE => {
                let more = i64::from(received.increment());
                match received.stream {
                    0 => state.connection += more,
                    _ => state.of_stream += more,
                }
                state.flooded.window_updates += 1;
                state.flooded.after_the_last += u64::from(state.last_is_out);
            }
            SETTINGS if !received.is_ack() => {
                for entry in received.payload.chunks_exact(6) {
                    if let &[a, b, c, d, e, f] = entry {
                        if u16::from_be_bytes([a, b]) == INITIAL_WINDOW_SIZE {
                            state.of_stream = i64::from(u32::from_be_bytes([c, d, e, f]));
                        }
                    }
                }
            }
            PING if received.is_ack() => state.pong = true,
            PING => {
                // The thread that floods sees a socket that takes no more.
                let _ = socket.write_all(&frame(PING, frames::ACK, 0, &received.payload));
            }
            RST_STREAM => {
                state.flooded.whole = false;
                state.over = true;
            }
            // A client that is done says so with GOAWAY and NO_ERROR.
            GOAWAY => {
                state.flooded.whole &= received.code() == 0;
                state.over = true;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_connection_is_read_as_it_was_written() {
        let flooded = Flooded {
            sent: 4,
            window_updates: 3,
            after_the_last: 2,
            whole: false,
        };
        assert_eq!(Flooded::parse(&flooded.line().to_string()), Some(flooded));
        assert_eq!(Flooded::parse("{}"), None);
    }

    #[test]
    fn both_windows_bound_the_credit_and_what_was_sent_is_spent() {
        let mut state = State::default();
        state.connection += 10;
        assert_eq!(state.credit(), 65_535);
        state.of_stream += 20;
        state.spent = 45;
        assert_eq!(state.credit(), 65_500);
    }
}
