//! Frames: the nine-octet header and the payload of each type (RFC 9113 sections 4 and 6, RFC 9218 section 7.1).
//!
//! Parsing borrows the payload and copies nothing. Writing appends to a byte vector. `connection` acts on frames.
//! DATA has no parser here: the connection passes its payload on as it arrives.

mod data;
mod error;
mod frame_header;
mod go_away;
mod headers;
mod ping;
mod priority_update;
mod reset;
mod settings;
mod window_update;

pub use self::error::FrameError;
pub use self::frame_header::{
    DEFAULT_MAX_FRAME_SIZE, FRAME_HEADER_LENGTH, Flags, FrameHeader, FrameType, LARGEST_MAX_FRAME_SIZE,
};
pub use self::go_away::GoAway;
pub use self::headers::{Continuation, Headers, PriorityFields};
pub use self::ping::Ping;
pub use self::priority_update::PriorityUpdate;
pub use self::reset::ResetStream;
pub use self::settings::{Setting, Settings, SettingsEntries};
pub use self::window_update::WindowUpdate;

pub(crate) use self::data::write_head as write_data_header;
pub(crate) use self::frame_header::PREFACE;
pub(crate) use self::headers::{patch_header_block, reserve_header_block};

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

/// Parses the whole payload of a frame other than DATA.
///
/// # Errors
/// The payload has a length or a content that its type does not allow; the error says whether that is the stream's end
/// or the connection's.
///
/// ```
/// use fullbore_proto::frame::{Frame, FrameHeader, parse};
///
/// let header = FrameHeader::parse(&[0, 0, 4, 8, 0, 0, 0, 0, 1]);
/// let Ok(Frame::WindowUpdate(update)) = parse(header, &[0, 0, 1, 0]) else { panic!() };
/// assert_eq!(update.increment, 256);
/// ```
pub fn parse(header: FrameHeader, payload: &[u8]) -> Result<Frame<'_>, FrameError> {
    Ok(match header.frame_type {
        FrameType::HEADERS => Frame::Headers(Headers::parse(header, payload)?),
        FrameType::PRIORITY => Frame::Priority(PriorityFields::parse_frame(header, payload)?),
        FrameType::RST_STREAM => Frame::Reset(ResetStream::parse(header, payload)?),
        FrameType::SETTINGS => Frame::Settings(Settings::parse(header, payload)?),
        FrameType::PUSH_PROMISE => Frame::PushPromise,
        FrameType::PING => Frame::Ping(Ping::parse(header, payload)?),
        FrameType::GOAWAY => Frame::GoAway(GoAway::parse(header, payload)?),
        FrameType::WINDOW_UPDATE => Frame::WindowUpdate(WindowUpdate::parse(header, payload)?),
        FrameType::CONTINUATION => Frame::Continuation(Continuation::parse(header, payload)?),
        FrameType::PRIORITY_UPDATE => Frame::PriorityUpdate(PriorityUpdate::parse(header, payload)?),
        _ => Frame::Unknown,
    })
}
