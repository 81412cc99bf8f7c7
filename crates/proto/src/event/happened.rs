//! The events of a connection.

use bytes::Bytes;
use http::{HeaderMap, Request, Response};

use crate::error::{ErrorCode, StreamError};
use crate::id::StreamId;

/// An event. Events are queued in order.
///
/// The owner takes all events after each [`crate::Connection::receive`] and [`crate::Connection::handle_timeout`].
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A server has received a request.
    Request {
        /// The stream. Answer it with `send_response`, and release it with `release`.
        stream: StreamId,
        /// The request without its body.
        request: Request<()>,
        /// Whether the message is complete: neither body nor trailers follow.
        end: bool,
    },
    /// A client has received the final response.
    Response {
        /// The stream.
        stream: StreamId,
        /// The response without its body.
        response: Response<()>,
        /// Whether the message is complete: neither body nor trailers follow.
        end: bool,
    },
    /// A client has received an informational response (1xx). The final one follows.
    Informational {
        /// The stream.
        stream: StreamId,
        /// The response without its body.
        response: Response<()>,
    },
    /// [`crate::Connection::read`] has something to return: data, trailers or the end. Sent at most once for each
    /// stream until the owner reads.
    Readable(StreamId),
    /// The send queue of the stream has fallen to the low-water mark that [`crate::Connection::want_room`] set.
    Writable(StreamId),
    /// The window of the stream or of the connection has grown since [`crate::Connection::want_credit`].
    Credit(StreamId),
    /// The stream ended with an error. What the peer sent before it reset the stream can still be read.
    Reset(StreamError),
    /// The SETTINGS of the peer arrived: its limits may have changed.
    PeerSettings,
    /// The peer has answered the PING that [`crate::Connection::ping`] sent with this opaque data.
    Pong([u8; 8]),
    /// The peer sent GOAWAY: it accepts no new streams, and did not process streams above `last_stream`.
    GoAway {
        /// The highest stream that the peer may process; 0 for none.
        last_stream: u32,
        /// The error code.
        code: ErrorCode,
        /// The first 256 bytes of the debug data (RFC 9113 section 6.8). They may be any bytes.
        debug: Bytes,
    },
}

/// What follows the data that [`Connection::read`](crate::Connection::read) returned.
#[derive(Debug, PartialEq, Eq)]
pub enum ReadState {
    /// More may arrive.
    Open,
    /// The message is complete.
    End,
    /// The message is complete, with these trailers.
    Trailers(HeaderMap),
    /// The stream was reset. No more data follows.
    Reset,
}
