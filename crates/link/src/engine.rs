//! The thread of the link: it accepts, reads, waits for the time of each delivery, and writes.
//!
//! It owns everything except the counts of `stats`. It reads sockets as soon as they have data and the path has space, and
//! writes what is due at once. `link` starts and stops it.

mod connection;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use mio::event::Event;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use slab::Slab;

use crate::byte_queue::{MOST_READ, Pool};
use crate::path::{Cargo, Packet, Path, PathSettings};
use crate::side::{Pair, Side};
use crate::socket;
use crate::stats::{End, OnEnd, Shared};
use crate::timer::{self, Timer};

use connection::{Connection, Finish, Stage};

const LISTENER: Token = Token(0);
const TIMER: Token = Token(1);
const WAKER: Token = Token(2);
const FIRST_CONNECTION: usize = 3;

/// The most events of one poll.
const EVENTS: usize = 1024;

/// The most bytes written to one socket before other sockets and the clock are served.
const MOST_WRITTEN: usize = 2 << 20;

/// How long accepting pauses when the system has no descriptor or memory left: 50 ms.
const ACCEPT_PAUSE: u64 = 50_000_000;

/// The settings of the builder.
pub(crate) struct EngineSettings {
    pub(crate) listen: SocketAddr,
    pub(crate) server: SocketAddr,
    pub(crate) paths: Pair<PathSettings>,
    pub(crate) buffer: u64,
    pub(crate) handshake: bool,
    pub(crate) count_frames: bool,
}

/// Ends the engine from another thread.
#[derive(Debug)]
pub(crate) struct Stop {
    stopping: Arc<AtomicBool>,
    waker: Waker,
}

impl Stop {
    pub(crate) fn now(&self) {
        self.stopping.store(true, Ordering::Release);
        // Fails only if the engine has ended.
        let _ = self.waker.wake();
    }
}

/// The state of the thread.
pub(crate) struct Engine {
    poll: Poll,
    timer: Timer,
    stopping: Arc<AtomicBool>,
    began: Instant,
    listener: TcpListener,
    /// When to accept again after the system had no descriptor or memory left.
    accept_at: Option<u64>,
    settings: EngineSettings,
    /// Indexed by the side that sends.
    paths: Pair<Path>,
    connections: Slab<Connection>,
    /// Sockets that may have data, in the order in which they are served.
    readable: VecDeque<(usize, Side)>,
    /// Sockets whose path has no space.
    held: Pair<VecDeque<usize>>,
    /// Sockets with data to write or an end to report.
    flush: VecDeque<(usize, Side)>,
    /// How late the deliveries of this iteration are.
    late: Vec<u64>,
    pool: Pool,
    shared: Arc<Shared>,
    on_end: Option<OnEnd>,
}

impl Engine {
    /// Listens. The caller runs the engine on a thread, and keeps the address and the stop handle.
    pub(crate) fn new(
        settings: EngineSettings,
        on_end: Option<OnEnd>,
        shared: Arc<Shared>,
    ) -> io::Result<(Self, Stop, SocketAddr)> {
        let poll = Poll::new()?;
        let timer = Timer::new(&poll, TIMER)?;
        let mut listener = socket::listen(settings.listen, settings.buffer)?;
        let address = listener.local_addr()?;
        poll.registry()
            .register(&mut listener, LISTENER, Interest::READABLE)?;
        let stopping = Arc::new(AtomicBool::new(false));
        let stop = Stop {
            stopping: Arc::clone(&stopping),
            waker: Waker::new(poll.registry(), WAKER)?,
        };
        let engine = Self {
            poll,
            timer,
            stopping,
            began: Instant::now(),
            listener,
            accept_at: None,
            paths: Pair {
                client: Path::new(settings.paths.client.clone()),
                server: Path::new(settings.paths.server.clone()),
            },
            settings,
            connections: Slab::new(),
            readable: VecDeque::new(),
            held: Pair::default(),
            flush: VecDeque::new(),
            late: Vec::new(),
            pool: Pool::default(),
            shared,
            on_end,
        };
        Ok((engine, stop, address))
    }

    /// Runs until it is stopped.
    pub(crate) fn run(mut self) {
        timer::prefer_this_thread();
        let mut events = Events::with_capacity(EVENTS);
        while !self.stopping.load(Ordering::Acquire) {
            let now = self.now();
            self.deliver(now);
            self.let_in(now);
            let deadline = self.next_deadline();
            let now = self.now();
            if self
                .timer
                .wait(&mut self.poll, &mut events, now, deadline)
                .is_err()
            {
                // Fails only if the poll descriptor is invalid. Then there is nothing to wait for.
                break;
            }
            for event in &events {
                self.note(event);
            }
            self.read_round();
        }
        for (_, connection) in self.connections.iter_mut() {
            if !connection.reported {
                connection.end = End::Stopped;
                report(connection, &self.shared, &mut self.on_end);
            }
        }
    }

    /// Nanoseconds since the engine was made.
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// The next deadline.
    fn next_deadline(&self) -> Option<u64> {
        if !self.readable.is_empty() || !self.flush.is_empty() {
            return Some(0);
        }
        let path = |side| {
            let space = (!self.held[side].is_empty()).then(|| self.paths[side].space_at());
            [self.paths[side].next_delivery(), space]
        };
        let [client, server] = Side::BOTH.map(path);
        client
            .into_iter()
            .chain(server)
            .chain([self.accept_at])
            .flatten()
            .min()
    }

    // Events of a poll.

    fn note(&mut self, event: &Event) {
        match event.token() {
            LISTENER => self.accept(),
            TIMER | WAKER => {}
            Token(token) => {
                let token = token - FIRST_CONNECTION;
                let side = if token % 2 == 0 {
                    Side::Client
                } else {
                    Side::Server
                };
                self.note_socket(token / 2, side, event);
            }
        }
    }

    /// An event may be for a closed socket, and reach the connection that reuses its slot. It then causes a read or write
    /// that finds nothing.
    fn note_socket(&mut self, key: usize, side: Side, event: &Event) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let end = &mut connection.ends[side];
        // A server may have sent all its data before the event of the connection.
        end.closed |= event.is_read_closed();
        match &end.stage {
            Stage::NotYet | Stage::Gone => return,
            Stage::Connecting(_) => return self.finish_connect(key),
            Stage::Open(_) => {}
        }
        end.failed |= event.is_error();
        if event.is_writable() && !end.writable {
            end.writable = true;
            if !end.flushing {
                end.flushing = true;
                self.flush.push_back((key, side));
            }
        }
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            end.readable = true;
            if event.is_error() && connection.flows[side].ended {
                // No read will report the error.
                return self.broken(key, side);
            }
            self.queue_read(key, side);
        }
    }

    // New connections.

    fn accept(&mut self) {
        self.accept_at = None;
        loop {
            match self.listener.accept() {
                Ok((socket, client)) => self.begin(socket, client),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return,
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
                    _ => {
                        self.accept_at = Some(self.now() + ACCEPT_PAUSE);
                        return;
                    }
                },
            }
        }
    }

    fn begin(&mut self, mut socket: TcpStream, client: SocketAddr) {
        socket::prepare_accepted(&socket);
        let entry = self.connections.vacant_entry();
        let key = entry.key();
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registry = self.poll.registry();
        if registry
            .register(&mut socket, token(key, Side::Client), interest)
            .is_err()
        {
            // Closed at once: the client sees that the server is unreachable.
            return;
        }
        entry.insert(Connection::new(client, socket, &self.settings));
        {
            let mut counts = self.shared.lock();
            counts.connections += 1;
            counts.open += 1;
        }
        if self.settings.handshake {
            self.send(key, Side::Client, Cargo::Syn);
        } else {
            self.connect(key);
            self.queue_read(key, Side::Client);
        }
    }

    fn connect(&mut self, key: usize) {
        let connected = socket::connect(self.settings.server, self.settings.buffer).and_then(|mut socket| {
            let interest = Interest::READABLE | Interest::WRITABLE;
            self.poll
                .registry()
                .register(&mut socket, token(key, Side::Server), interest)?;
            Ok(socket)
        });
        match connected {
            Ok(socket) => {
                if let Some(connection) = self.connections.get_mut(key) {
                    connection.ends.server.stage = Stage::Connecting(socket);
                }
            }
            Err(error) => self.unreachable(key, &error),
        }
    }

    /// Connecting to the server succeeded or failed.
    fn finish_connect(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let end = &mut connection.ends.server;
        let Stage::Connecting(socket) = &end.stage else {
            return;
        };
        let failed = socket.take_error();
        match (failed, socket.peer_addr()) {
            (Ok(None), Ok(_)) => {}
            (Ok(None), Err(error)) if error.kind() == io::ErrorKind::NotConnected => return,
            (Ok(Some(error)) | Err(error), _) | (_, Err(error)) => return self.unreachable(key, &error),
        }
        if let Stage::Connecting(socket) = std::mem::take(&mut end.stage) {
            end.stage = Stage::Open(socket);
        }
        end.readable = true;
        end.writable = true;
        self.queue_read(key, Side::Server);
        self.queue_flush(key, Side::Server);
    }

    fn unreachable(&mut self, key: usize, error: &io::Error) {
        if let Some(connection) = self.connections.get_mut(key) {
            connection.end = End::Unreachable(error.kind());
        }
        self.lose(key, Side::Server);
        self.send(key, Side::Server, Cargo::Reset);
        self.settle(key);
    }

    // From a socket to a path.

    /// Puts cargo of a connection on the path from `side`.
    fn send(&mut self, key: usize, side: Side, cargo: Cargo) {
        let now = self.now();
        if let Some(connection) = self.connections.get_mut(key) {
            connection.packets += 1;
            self.paths[side].send(now, key, cargo);
        }
    }

    fn queue_read(&mut self, key: usize, side: Side) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let end = &mut connection.ends[side];
        if end.readable && !end.queued {
            end.queued = true;
            self.readable.push_back((key, side));
        }
    }

    /// Resumes reading on a path that has space again.
    fn let_in(&mut self, now: u64) {
        for side in Side::BOTH {
            let path = &self.paths[side];
            if !self.held[side].is_empty() && path.space(now) >= path.enough_space() {
                let keys = self.held[side].drain(..);
                self.readable.extend(keys.map(|key| (key, side)));
            }
        }
        if self.accept_at.is_some_and(|time| time <= now) {
            self.accept();
        }
    }

    /// Reads each socket that may have data once, unless a delivery is due.
    fn read_round(&mut self) {
        for _ in 0..self.readable.len() {
            let Some((key, side)) = self.readable.pop_front() else {
                return;
            };
            let now = self.now();
            self.read(key, side, now);
            let due = |side| self.paths[side].next_delivery().is_some_and(|time| time <= now);
            if Side::BOTH.into_iter().any(due) {
                return;
            }
        }
    }

    fn read(&mut self, key: usize, side: Side, now: u64) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let receiver_gone = matches!(connection.ends[side.other()].stage, Stage::Gone);
        let end = &mut connection.ends[side];
        let flow = &mut connection.flows[side];
        end.queued = false;
        if !end.readable || !end.established || flow.ended || receiver_gone {
            return;
        }
        let Stage::Open(socket) = &mut end.stage else {
            return;
        };
        let path = &mut self.paths[side];
        let space = path.space(now);
        let receiver_reads = (flow.due as u64) < self.settings.buffer;
        if end.failed && (space < path.enough_space() || !receiver_reads) {
            // A reset needs no space.
            return self.broken(key, side);
        }
        if !receiver_reads {
            // `flush` puts it on the list again.
            return;
        }
        if space < path.enough_space() {
            end.queued = true;
            self.held[side].push_back(key);
            return;
        }
        let most = usize::try_from(space).unwrap_or(MOST_READ);
        match flow.queue.read_from(socket, most, &mut self.pool) {
            Ok(0) => {
                flow.ended = true;
                self.send(key, side, Cargo::End);
            }
            Ok(count) => {
                flow.count(count, &mut self.shared.lock().traffic[side]);
                connection.packets += path.send_bytes(now, key, count);
                // After a short read there is no more data until the next event. An end that was reported is still to be
                // read.
                end.readable = count >= most.min(MOST_READ) || end.closed || end.failed;
                self.queue_read(key, side);
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => end.readable = false,
                io::ErrorKind::Interrupted => self.queue_read(key, side),
                _ => self.broken(key, side),
            },
        }
    }

    /// The connection of this socket was reset or failed. The other side gets a reset after the data on its way.
    fn broken(&mut self, key: usize, side: Side) {
        self.lose(key, side);
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        connection.flows[side].ended = true;
        if connection.end == End::Closed {
            connection.end = End::Reset;
        }
        if !matches!(connection.ends[side.other()].stage, Stage::Gone) {
            self.send(key, side, Cargo::Reset);
        }
        self.settle(key);
    }

    // From a path to a socket.

    /// Delivers what is due, and writes it.
    fn deliver(&mut self, now: u64) {
        for side in Side::BOTH {
            while let Some(packet) = self.paths[side].receive(now) {
                self.late.push(now - packet.delivery);
                self.arrive(packet, side);
            }
        }
        if !self.late.is_empty() {
            let mut counts = self.shared.lock();
            for late in self.late.drain(..) {
                counts.late.add(late);
            }
        }
        for _ in 0..self.flush.len() {
            if let Some((key, side)) = self.flush.pop_front() {
                self.write(key, side);
            }
        }
    }

    fn arrive(&mut self, packet: Packet, from: Side) {
        let key = packet.connection;
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        connection.packets -= 1;
        let to = from.other();
        if matches!(connection.ends[to].stage, Stage::Gone) {
            return self.settle(key);
        }
        let flow = &mut connection.flows[from];
        match packet.cargo {
            Cargo::Bytes(count) => flow.due += count,
            Cargo::End => flow.finish = Finish::Close,
            Cargo::Reset => flow.finish = Finish::Reset,
            Cargo::Syn => return self.send(key, Side::Server, Cargo::SynAck),
            Cargo::SynAck => {
                connection.ends.client.established = true;
                self.send(key, Side::Client, Cargo::Ack);
                return self.queue_read(key, Side::Client);
            }
            Cargo::Ack => return self.connect(key),
        }
        self.queue_flush(key, to);
    }

    fn queue_flush(&mut self, key: usize, side: Side) {
        if let Some(connection) = self.connections.get_mut(key) {
            let end = &mut connection.ends[side];
            if !end.flushing {
                end.flushing = true;
                self.flush.push_back((key, side));
            }
        }
    }

    /// Writes what is due to `side`, then closes or resets it if that is due too.
    fn write(&mut self, key: usize, side: Side) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let end = &mut connection.ends[side];
        let flow = &mut connection.flows[side.other()];
        end.flushing = false;
        let Stage::Open(socket) = &mut end.stage else {
            if flow.finish == Finish::Reset {
                self.lose(key, side);
                self.settle(key);
            }
            return;
        };
        let before = flow.due;
        while flow.due > 0 && end.writable && before - flow.due < MOST_WRITTEN {
            match flow.queue.write_to(socket, flow.due, &mut self.pool) {
                Ok(count) if count > 0 => flow.due -= count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => end.writable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => return self.broken(key, side),
            }
        }
        let written = (before - flow.due) as u64;
        if written > 0 {
            flow.traffic.delivered_bytes += written;
            self.shared.lock().traffic[side.other()].delivered_bytes += written;
        }
        if flow.due > 0 && end.writable {
            end.flushing = true;
            self.flush.push_back((key, side));
        } else if flow.finish == Finish::Reset {
            if let Stage::Open(socket) = self.lose(key, side) {
                socket::reset(socket);
            }
        } else if flow.finish == Finish::Close && flow.due == 0 {
            flow.finish = Finish::Done;
            // Fails only if the peer has reset the connection, which the next read reports.
            let _ = socket.shutdown(std::net::Shutdown::Write);
        }
        if written > 0 {
            self.queue_read(key, side.other());
        }
        self.settle(key);
    }

    // Ended connections.

    /// The socket of `side` is closed: drops the data for it, also what waits on the path. Returns the socket.
    fn lose(&mut self, key: usize, side: Side) -> Stage {
        let now = self.now();
        let Some(connection) = self.connections.get_mut(key) else {
            return Stage::Gone;
        };
        let stage = connection.lose(side, &mut self.pool);
        if connection.packets > 0 && !matches!(stage, Stage::Gone) {
            connection.packets -= self.paths[side.other()].drop_waiting(now, key);
        }
        stage
    }

    /// Reports an ended connection, and frees its slot when no packet on the paths belongs to it.
    fn settle(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if !connection.is_over() {
            return;
        }
        for side in Side::BOTH {
            self.lose(key, side);
        }
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if !connection.reported {
            report(connection, &self.shared, &mut self.on_end);
        }
        if connection.packets == 0 {
            self.connections.remove(key);
        }
    }
}

/// Counts an ended connection and reports it.
fn report(connection: &mut Connection, shared: &Shared, on_end: &mut Option<OnEnd>) {
    connection.reported = true;
    let mut counts = shared.lock();
    counts.open -= 1;
    drop(counts);
    if let Some(on_end) = on_end {
        on_end(connection.report());
    }
}

fn token(key: usize, side: Side) -> Token {
    Token(FIRST_CONNECTION + 2 * key + usize::from(side == Side::Server))
}
