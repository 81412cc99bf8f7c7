//! Frames: their nine-octet head and the payload of each type (RFC 9113 sections 4 and 6, RFC 9218 section 7.1).
//!
//! Parsing borrows the payload and copies nothing; writing appends to a byte vector. What a frame *means* is decided
//! above, in `connection`. DATA has no parser here, because its payload is delivered piece by piece while it arrives.

mod data;
mod go_away;
mod head;
mod headers;
mod ping;
mod priority_update;
mod reset;
mod settings;
mod window_update;

pub use self::go_away::GoAway;
pub use self::head::{Flags, HEAD_LENGTH, Head, Kind};
pub use self::headers::{Continuation, Headers, PriorityFields};
pub use self::ping::Ping;
pub use self::priority_update::PriorityUpdate;
pub use self::reset::ResetStream;
pub use self::settings::{Setting, Settings, SettingsEntries};
pub use self::window_update::WindowUpdate;

pub(crate) use self::data::write_head as write_data_head;
pub(crate) use self::head::put_head;
pub(crate) use self::headers::{patch_header_block, reserve_header_block};

use crate::error::ErrorCode;
use crate::stream::StreamId;

/// The largest payload that every endpoint accepts, and the default (RFC 9113 section 4.2).
pub const DEFAULT_MAX_FRAME_SIZE: u32 = 16_384;

/// The largest value that SETTINGS_MAX_FRAME_SIZE may take.
pub const LARGEST_MAX_FRAME_SIZE: u32 = (1 << 24) - 1;

/// A frame other than DATA, with its payload checked for form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame<'a> {
    /// Opens a stream or carries trailers.
    Headers(Headers<'a>),
    /// The priority scheme of RFC 7540: read and ignored.
    Priority(PriorityFields),
    /// Ends a stream at once.
    Reset(ResetStream),
    /// Parameters of the peer, or the acknowledgement of ours.
    Settings(Settings<'a>),
    /// A push, which is always refused here.
    PushPromise,
    /// A round trip.
    Ping(Ping),
    /// The beginning of the end of the connection.
    GoAway(GoAway<'a>),
    /// Credit for DATA.
    WindowUpdate(WindowUpdate),
    /// More of a header block.
    Continuation(Continuation<'a>),
    /// The priority of a stream (RFC 9218).
    PriorityUpdate(PriorityUpdate<'a>),
    /// A type that this engine does not know, to be ignored (RFC 9113 section 5.5).
    Unknown,
}

/// A frame whose form is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameError {
    /// The code that the RFC names.
    pub code: ErrorCode,
    /// The stream to reset when the error is confined to it; otherwise the connection ends.
    pub stream: Option<StreamId>,
    /// What is wrong, as a clause that follows a colon.
    pub reason: &'static str,
}

impl FrameError {
    const fn connection(code: ErrorCode, reason: &'static str) -> Self {
        FrameError {
            code,
            stream: None,
            reason,
        }
    }

    const fn size(reason: &'static str) -> Self {
        Self::connection(ErrorCode::FRAME_SIZE_ERROR, reason)
    }

    const fn protocol(reason: &'static str) -> Self {
        Self::connection(ErrorCode::PROTOCOL_ERROR, reason)
    }

    const fn stream(stream: StreamId, code: ErrorCode, reason: &'static str) -> Self {
        FrameError {
            code,
            stream: Some(stream),
            reason,
        }
    }
}

/// Parses the whole payload of a frame other than DATA.
///
/// # Errors
/// The payload has a length or a content that its type does not allow; the error says whether that is the stream's end
/// or the connection's.
///
/// ```
/// use fullbore_proto::frame::{Frame, Head, parse};
///
/// let head = Head::parse(&[0, 0, 4, 8, 0, 0, 0, 0, 1]);
/// let Ok(Frame::WindowUpdate(update)) = parse(head, &[0, 0, 1, 0]) else { panic!() };
/// assert_eq!(update.increment, 256);
/// ```
pub fn parse(head: Head, payload: &[u8]) -> Result<Frame<'_>, FrameError> {
    Ok(match head.kind {
        Kind::HEADERS => Frame::Headers(Headers::parse(head, payload)?),
        Kind::PRIORITY => Frame::Priority(PriorityFields::parse_frame(head, payload)?),
        Kind::RST_STREAM => Frame::Reset(ResetStream::parse(head, payload)?),
        Kind::SETTINGS => Frame::Settings(Settings::parse(head, payload)?),
        Kind::PUSH_PROMISE => Frame::PushPromise,
        Kind::PING => Frame::Ping(Ping::parse(head, payload)?),
        Kind::GOAWAY => Frame::GoAway(GoAway::parse(head, payload)?),
        Kind::WINDOW_UPDATE => Frame::WindowUpdate(WindowUpdate::parse(head, payload)?),
        Kind::CONTINUATION => Frame::Continuation(Continuation::parse(head, payload)?),
        Kind::PRIORITY_UPDATE => Frame::PriorityUpdate(PriorityUpdate::parse(head, payload)?),
        _ => Frame::Unknown,
    })
}

/// The four octets at `at`, big-endian; the caller has checked the length.
fn read_u32(payload: &[u8], at: usize) -> u32 {
    payload
        .get(at..at + 4)
        .and_then(|octets| octets.try_into().ok())
        .map_or(0, u32::from_be_bytes)
}
