//! The state of one connection: a socket on each side, and a flow of bytes in each direction. The engine does all I/O.

use std::net::SocketAddr;

use mio::net::TcpStream;

use super::EngineSettings;
use crate::byte_queue::{ByteQueue, Pool};
use crate::frames::FrameReader;
use crate::side::{Pair, Side};
use crate::stats::{ConnectionReport, End, Traffic};

/// A client, a server, and the flows between them.
#[derive(Debug)]
pub(super) struct Connection {
    client: SocketAddr,
    pub(super) ends: Pair<Endpoint>,
    /// Indexed by the side that sends.
    pub(super) flows: Pair<Flow>,
    /// The packets of this connection on the two paths. Its slot is not reused while there are any.
    pub(super) packets: usize,
    pub(super) end: End,
    pub(super) reported: bool,
}

impl Connection {
    pub(super) fn new(client: SocketAddr, socket: TcpStream, settings: &EngineSettings) -> Self {
        let count_frames = settings.count_frames;
        Self {
            client,
            ends: Pair {
                client: Endpoint {
                    stage: Stage::Open(socket),
                    established: !settings.handshake,
                    readable: true,
                    writable: true,
                    ..Endpoint::default()
                },
                server: Endpoint {
                    established: true,
                    ..Endpoint::default()
                },
            },
            flows: Pair {
                client: Flow::new(count_frames.then(FrameReader::client)),
                server: Flow::new(count_frames.then(FrameReader::server)),
            },
            packets: 0,
            end: End::Closed,
            reported: false,
        }
    }

    /// Whether the connection has ended: each side is closed, or has received the other side's end after its own.
    pub(super) fn is_over(&self) -> bool {
        let gone = |side| matches!(self.ends[side].stage, Stage::Gone);
        let told = |side| self.flows[side].finish == Finish::Done;
        Side::BOTH.into_iter().all(gone) || Side::BOTH.into_iter().all(told)
    }

    pub(super) fn report(&self) -> ConnectionReport {
        ConnectionReport {
            client: self.client,
            end: self.end,
            to_server: self.flows.client.traffic,
            to_client: self.flows.server.traffic,
        }
    }

    /// The socket of `side` is closed. Drops the data for it.
    pub(super) fn lose(&mut self, side: Side, pool: &mut Pool) -> Stage {
        let towards = &mut self.flows[side.other()];
        towards.queue.clear(pool);
        towards.due = 0;
        std::mem::replace(&mut self.ends[side].stage, Stage::Gone)
    }
}

/// The link's socket towards one side.
#[derive(Debug, Default)]
pub(super) struct Endpoint {
    pub(super) stage: Stage,
    /// The emulated handshake is complete: this side may have sent data.
    pub(super) established: bool,
    /// A read may find something.
    pub(super) readable: bool,
    /// The system reported the peer's end: a read will find it.
    pub(super) closed: bool,
    /// A write may succeed.
    pub(super) writable: bool,
    /// It is on one of the engine's read lists.
    pub(super) queued: bool,
    /// The system reported an error that no read or write has returned yet.
    pub(super) failed: bool,
    /// It is on the engine's write list.
    pub(super) flushing: bool,
}

/// The state of a socket.
#[derive(Debug, Default)]
pub(super) enum Stage {
    /// The handshake is still travelling.
    #[default]
    NotYet,
    /// The system is connecting.
    Connecting(TcpStream),
    /// Connected.
    Open(TcpStream),
    /// Closed, reset or never reached.
    Gone,
}

/// One direction of one connection.
#[derive(Debug)]
pub(super) struct Flow {
    /// Bytes read and not written yet: first those that are due, then those on their way.
    pub(super) queue: ByteQueue,
    /// How many bytes of the queue have been delivered and wait for the receiver.
    pub(super) due: usize,
    /// The sender's end was read.
    pub(super) ended: bool,
    /// The end that the receiver still has to get.
    pub(super) finish: Finish,
    pub(super) traffic: Traffic,
    pub(super) frames: Option<FrameReader>,
}

impl Flow {
    fn new(frames: Option<FrameReader>) -> Self {
        Self {
            queue: ByteQueue::default(),
            due: 0,
            ended: false,
            finish: Finish::Open,
            traffic: Traffic::default(),
            frames,
        }
    }

    /// Counts the last `count` bytes of the queue, here and in the sum of all connections.
    pub(super) fn count(&mut self, count: usize, sum: &mut Traffic) {
        self.traffic.received_bytes += count as u64;
        sum.received_bytes += count as u64;
        if let Some(reader) = &mut self.frames {
            let own = &mut self.traffic.frames;
            for octets in self.queue.last(count) {
                reader.read(octets, |frame, small_run| {
                    own.get_or_insert_default().add(frame, small_run);
                    sum.frames.get_or_insert_default().add(frame, small_run);
                });
            }
        }
    }
}

/// How a flow ends for its receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Finish {
    /// The flow is open.
    Open,
    /// Close, after all due bytes are written.
    Close,
    /// Reset, after all due bytes are written or cannot be written.
    Reset,
    /// The receiver has got it.
    Done,
}
