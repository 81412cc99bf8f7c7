//! Frames: their nine-octet head and the payload of each type (RFC 9113 sections 4 and 6, RFC 9218 section 7.1).
//!
//! Parsing borrows the payload and copies nothing; writing appends to a byte vector. What a frame *means* is decided
//! above, in `connection`. DATA has no parser here, because its payload is delivered piece by piece while it arrives.

mod data;
mod error;
mod go_away;
mod head;
mod headers;
mod ping;
mod priority_update;
mod reset;
mod settings;
mod window_update;

pub use self::error::FrameError;
pub use self::go_away::GoAway;
pub use self::head::{DEFAULT_MAX_FRAME_SIZE, Flags, HEAD_LENGTH, Head, Kind, LARGEST_MAX_FRAME_SIZE};
pub use self::headers::{Continuation, Headers, PriorityFields};
pub use self::ping::Ping;
pub use self::priority_update::PriorityUpdate;
pub use self::reset::ResetStream;
pub use self::settings::{Setting, Settings, SettingsEntries};
pub use self::window_update::WindowUpdate;

pub(crate) use self::data::write_head as write_data_head;
pub(crate) use self::head::PREFACE;
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
