//! The interface of the crate h2, client or server: what a user calls and what a peer says, in any order. Whatever comes of it,
//! nothing panics, and capacity is never more than was reserved nor an empty promise.
#![no_main]

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use arbitrary::Arbitrary;
use bytes::Bytes;
use h2::{FlowControl, Ping, Reason, RecvStream, SendStream, client, server};
use http::{HeaderMap, Request, Response};
use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// One thing that happens.
#[derive(Arbitrary, Debug)]
enum Operation {
    /// The peer says octets.
    Octets(Vec<u8>),
    /// The peer says a frame with a header that fits its payload.
    Frame {
        kind: u8,
        flags: u8,
        stream: u8,
        payload: Vec<u8>,
    },
    /// The peer says a head that is well formed.
    Head {
        stream: u8,
        end: bool,
    },
    /// The connection is polled.
    Poll,
    Open {
        end: bool,
    },
    Respond {
        at: u8,
        end: bool,
    },
    Send {
        at: u8,
        length: u16,
        end: bool,
    },
    Trailers(u8),
    Reserve {
        at: u8,
        bytes: u32,
    },
    Capacity(u8),
    Reset {
        at: u8,
        code: u8,
    },
    Read(u8),
    Release {
        at: u8,
        bytes: u16,
    },
    DropBody(u8),
    DropSender(u8),
    DropCredit(u8),
    Window(u32),
    StreamWindow(u32),
    Ping,
    ShutDown,
}

#[derive(Arbitrary, Debug)]
struct Input {
    is_server: bool,
    /// The octets that the transport takes at once.
    takes: u16,
    operations: Vec<Operation>,
}

#[derive(Debug, Default)]
struct Wire {
    incoming: Vec<u8>,
    takes: usize,
}

#[derive(Debug, Clone)]
struct Transport(Arc<Mutex<Wire>>);

impl AsyncRead for Transport {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut wire = self.0.lock().unwrap();
        let count = wire.incoming.len().min(room.remaining());
        if count == 0 {
            return Poll::Pending;
        }
        let octets: Vec<u8> = wire.incoming.drain(..count).collect();
        room.put_slice(&octets);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Transport {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        match self.0.lock().unwrap().takes.min(octets.len()) {
            0 => Poll::Pending,
            count => Poll::Ready(Ok(count)),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

enum Side {
    Client(client::SendRequest<Bytes>, client::Connection<Transport, Bytes>),
    Server(server::Connection<Transport, Bytes>),
}

/// What the user holds.
#[derive(Default)]
struct Handles {
    responses: Vec<client::ResponseFuture>,
    answers: Vec<server::SendResponse<Bytes>>,
    senders: Vec<(SendStream<Bytes>, usize)>,
    bodies: Vec<RecvStream>,
    credits: Vec<FlowControl>,
}

fn pick<T>(list: &mut [T], at: u8) -> Option<&mut T> {
    match list.len() {
        0 => None,
        length => list.get_mut(usize::from(at) % length),
    }
}

fn take<T>(list: &mut Vec<T>, at: u8) {
    if !list.is_empty() {
        let at = usize::from(at) % list.len();
        drop(list.swap_remove(at));
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    [&head, payload].concat()
}

fuzz_target!(|input: Input| {
    let wire = Arc::new(Mutex::new(Wire {
        takes: usize::from(input.takes),
        ..Wire::default()
    }));
    let says = |octets: &[u8]| wire.lock().unwrap().incoming.extend_from_slice(octets);
    let mut cx = Context::from_waker(Waker::noop());
    let transport = Transport(Arc::clone(&wire));
    let mut side = match input.is_server {
        true => {
            says(PREFACE);
            says(&frame(4, 0, 0, b""));
            match pin!(server::handshake(transport)).poll(&mut cx) {
                Poll::Ready(Ok(connection)) => Side::Server(connection),
                _ => return,
            }
        }
        false => {
            says(&frame(4, 0, 0, b""));
            match pin!(client::handshake(transport)).poll(&mut cx) {
                Poll::Ready(Ok((requests, connection))) => Side::Client(requests, connection),
                _ => return,
            }
        }
    };
    let mut pings = match &mut side {
        Side::Client(_, connection) => connection.ping_pong(),
        Side::Server(connection) => connection.ping_pong(),
    };
    let mut held = Handles::default();
    let mut ended = false;
    for operation in input.operations {
        match operation {
            Operation::Octets(octets) => says(&octets),
            Operation::Frame {
                kind,
                flags,
                stream,
                payload,
            } => says(&frame(kind % 10, flags, u32::from(stream), &payload)),
            Operation::Head { stream, end } => {
                // GET https example.com / or 200.
                let block: &[u8] = match input.is_server {
                    true => b"\x82\x87\x84\x41\x0bexample.com",
                    false => b"\x88",
                };
                says(&frame(1, 4 | u8::from(end), u32::from(stream) | 1, block));
            }
            // A future that has ended is polled no more.
            Operation::Poll if ended => {}
            Operation::Poll => match &mut side {
                Side::Client(_, connection) => ended = Pin::new(connection).poll(&mut cx).is_ready(),
                Side::Server(connection) => match connection.poll_accept(&mut cx) {
                    Poll::Ready(Some(Ok((request, answer)))) => {
                        held.bodies.push(request.into_body());
                        held.answers.push(answer);
                    }
                    Poll::Ready(_) => ended = true,
                    Poll::Pending => {}
                },
            },
            Operation::Open { end } => {
                if let Side::Client(requests, _) = &mut side {
                    let request = Request::get("https://example.com/").body(()).unwrap();
                    let is_ready = requests.poll_ready(&mut cx).is_ready();
                    if let Ok((response, sender)) = requests.send_request(request, end) {
                        assert!(is_ready, "a request was accepted while another waited");
                        held.responses.push(response);
                        held.senders.push((sender, 0));
                    }
                }
            }
            Operation::Respond { at, end } => {
                if let Some(answer) = pick(&mut held.answers, at) {
                    if let Ok(sender) = answer.send_response(Response::new(()), end) {
                        held.senders.push((sender, 0));
                    }
                }
            }
            Operation::Send { at, length, end } => {
                if let Some((sender, reserved)) = pick(&mut held.senders, at) {
                    let sent = sender.send_data(Bytes::from(vec![7; usize::from(length)]), end);
                    if sent.is_ok() {
                        *reserved = reserved.saturating_sub(usize::from(length));
                    }
                }
            }
            Operation::Trailers(at) => {
                if let Some((sender, _)) = pick(&mut held.senders, at) {
                    let _ = sender.send_trailers(HeaderMap::new());
                }
            }
            Operation::Reserve { at, bytes } => {
                if let Some((sender, reserved)) = pick(&mut held.senders, at) {
                    sender.reserve_capacity(bytes as usize);
                    *reserved = bytes as usize;
                }
            }
            Operation::Capacity(at) => {
                if let Some((sender, reserved)) = pick(&mut held.senders, at) {
                    assert!(sender.capacity() <= *reserved);
                    if let Poll::Ready(Some(Ok(capacity))) = sender.poll_capacity(&mut cx) {
                        assert!((1..=*reserved).contains(&capacity));
                        assert_eq!(capacity, sender.capacity());
                    }
                }
            }
            Operation::Reset { at, code } => {
                if let Some((sender, _)) = pick(&mut held.senders, at) {
                    sender.send_reset(Reason::from(u32::from(code)));
                }
            }
            Operation::Read(at) => {
                let mut heads = Vec::new();
                held.responses
                    .retain_mut(|response| match Pin::new(response).poll(&mut cx) {
                        Poll::Ready(head) => {
                            heads.extend(head.ok());
                            false
                        }
                        Poll::Pending => true,
                    });
                held.bodies.extend(heads.into_iter().map(Response::into_body));
                if let Some(body) = pick(&mut held.bodies, at) {
                    let at_end = body.is_end_stream();
                    let data = body.poll_data(&mut cx);
                    assert!(!at_end || matches!(data, Poll::Ready(None)));
                    if let Poll::Ready(None) = data {
                        let _ = body.poll_trailers(&mut cx);
                    }
                    held.credits.push(body.flow_control().clone());
                }
            }
            Operation::Release { at, bytes } => {
                if let Some(credit) = pick(&mut held.credits, at) {
                    let used = credit.used_capacity();
                    let released = credit.release_capacity(usize::from(bytes));
                    assert!(released.is_err() || usize::from(bytes) <= used);
                    let _ = credit.available_capacity();
                }
            }
            Operation::DropBody(at) => take(&mut held.bodies, at),
            Operation::DropSender(at) => take(&mut held.senders, at),
            Operation::DropCredit(at) => take(&mut held.credits, at),
            Operation::Window(bytes) => match &mut side {
                Side::Client(_, connection) => connection.set_target_window_size(bytes >> 1),
                Side::Server(connection) => connection.set_target_window_size(bytes >> 1),
            },
            Operation::StreamWindow(bytes) => {
                let _ = match &mut side {
                    Side::Client(_, connection) => connection.set_initial_window_size(bytes >> 1),
                    Side::Server(connection) => connection.set_initial_window_size(bytes >> 1),
                };
            }
            Operation::Ping => {
                if let Some(pings) = &mut pings {
                    let _ = pings.send_ping(Ping::opaque());
                    let _ = pings.poll_pong(&mut cx);
                }
            }
            Operation::ShutDown => match &mut side {
                Side::Client(..) => {}
                Side::Server(connection) => connection.graceful_shutdown(),
            },
        }
    }
});
