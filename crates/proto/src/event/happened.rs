//! What a connection tells its owner.

use bytes::Bytes;
use http::{HeaderMap, Request, Response};

use crate::error::{ErrorCode, StreamError};
use crate::id::StreamId;

/// Something that happened, in the order in which it did.
///
/// The owner takes events after every [`crate::Connection::receive`] and
/// [`crate::Connection::handle_timeout`] until there are no more.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A server has a request. When `end` is set neither body nor trailers follow.
    Request {
        /// The stream, to be answered by `send_response` and let go of by `release`.
        stream: StreamId,
        /// The head of the request.
        request: Request<()>,
        /// Whether the message is whole.
        end: bool,
    },
    /// A client has the final response.
    Response {
        /// The stream.
        stream: StreamId,
        /// The head of the response.
        response: Response<()>,
        /// Whether the message is whole.
        end: bool,
    },
    /// A client has an informational response (1xx); the final one is still to come.
    Informational {
        /// The stream.
        stream: StreamId,
        /// The head of the response.
        response: Response<()>,
    },
    /// There is something for [`crate::Connection::read`]: data, trailers or the end. At most once a batch a stream.
    Readable(StreamId),
    /// The stream's queue is below the low-water mark after [`crate::Connection::want_room`] had found it above.
    Writable(StreamId),
    /// The stream ended before its time. What the peer had sent before it reset the stream can still be read.
    Reset(StreamError),
    /// The peer's SETTINGS came or changed: limits of its are other ones now.
    PeerSettings,
    /// The peer ends the connection: no new streams, and those above `last_stream` were not processed.
    GoAway {
        /// The highest stream that the peer will see to; 0 for none.
        last_stream: u32,
        /// Why.
        code: ErrorCode,
        /// The first 256 octets of what the peer adds for people to read (RFC 9113 section 6.8). They may be anything.
        debug: Bytes,
    },
}

/// What [`Connection::read`](crate::Connection::read) found behind the data.
#[derive(Debug, PartialEq, Eq)]
pub enum ReadState {
    /// More may come.
    Open,
    /// The message is whole.
    End,
    /// The message is whole, and these are its trailers.
    Trailers(HeaderMap),
    /// The stream was reset; what was received before is what there is.
    Reset,
}
