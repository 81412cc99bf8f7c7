//! The error of this crate.

use std::{fmt, io};

use bytes::Bytes;

use crate::failure::{Failure, Initiator, UserError};
use crate::reason::Reason;

/// What went wrong: a stream was reset, the connection ended, the transport failed, or a call was not allowed.
///
/// ```
/// use h2::{Error, Reason};
///
/// let error = Error::from(Reason::REFUSED_STREAM);
/// assert_eq!(error.reason(), Some(Reason::REFUSED_STREAM));
/// assert!(!error.is_reset() && !error.is_go_away());
/// ```
#[derive(Debug)]
pub struct Error {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// RST_STREAM of either side.
    Reset(Reason, Initiator),
    /// GOAWAY of either side, with its debug data.
    GoAway(Bytes, Reason, Initiator),
    /// A code that the user made an error of.
    Reason(Reason),
    User(UserError),
    Io(io::Error),
}

impl Error {
    /// The error code, if a frame carried one, or the error was made from one.
    pub fn reason(&self) -> Option<Reason> {
        match self.kind {
            Kind::Reset(reason, _) | Kind::GoAway(_, reason, _) | Kind::Reason(reason) => Some(reason),
            Kind::User(_) | Kind::Io(_) => None,
        }
    }

    /// Whether the transport failed.
    pub fn is_io(&self) -> bool {
        matches!(self.kind, Kind::Io(_))
    }

    /// The error of the transport, if that is what failed.
    pub fn get_io(&self) -> Option<&io::Error> {
        match &self.kind {
            Kind::Io(error) => Some(error),
            _ => None,
        }
    }

    /// As [`Self::get_io`], by value.
    pub fn into_io(self) -> Option<io::Error> {
        match self.kind {
            Kind::Io(error) => Some(error),
            _ => None,
        }
    }

    /// Whether GOAWAY ended it.
    pub fn is_go_away(&self) -> bool {
        matches!(self.kind, Kind::GoAway(..))
    }

    /// Whether RST_STREAM ended it.
    pub fn is_reset(&self) -> bool {
        matches!(self.kind, Kind::Reset(..))
    }

    /// Whether the peer sent the RST_STREAM or GOAWAY.
    pub fn is_remote(&self) -> bool {
        self.initiator() == Some(Initiator::Remote)
    }

    /// Whether this crate sent the RST_STREAM or GOAWAY, because the peer broke the protocol.
    pub fn is_library(&self) -> bool {
        self.initiator() == Some(Initiator::Library)
    }

    pub(crate) fn from_io(error: io::Error) -> Error {
        let kind = Kind::Io(error);
        Error { kind }
    }

    fn initiator(&self) -> Option<Initiator> {
        match self.kind {
            Kind::Reset(_, initiator) | Kind::GoAway(_, _, initiator) => Some(initiator),
            Kind::Reason(_) | Kind::User(_) | Kind::Io(_) => None,
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        let kind = match failure {
            Failure::Reset(reason, initiator) => Kind::Reset(reason, initiator),
            Failure::GoAway(debug, reason, initiator) => Kind::GoAway(debug, reason, initiator),
            Failure::Io(kind, None) => Kind::Io(kind.into()),
            Failure::Io(kind, Some(text)) => Kind::Io(io::Error::new(kind, text)),
        };
        Error { kind }
    }
}

impl From<UserError> for Error {
    fn from(error: UserError) -> Error {
        let kind = Kind::User(error);
        Error { kind }
    }
}

impl From<Reason> for Error {
    fn from(reason: Reason) -> Error {
        let kind = Kind::Reason(reason);
        Error { kind }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let action = |initiator| match initiator {
            Initiator::User => "sent by user",
            Initiator::Library => "detected",
            Initiator::Remote => "received",
        };
        match &self.kind {
            Kind::Reset(reason, initiator) => write!(f, "stream error {}: {reason}", action(*initiator)),
            Kind::GoAway(debug, reason, initiator) => {
                write!(f, "connection error {}: {reason}", action(*initiator))?;
                match debug.is_empty() {
                    true => Ok(()),
                    false => write!(f, " ({debug:?})"),
                }
            }
            Kind::Reason(reason) => write!(f, "protocol error: {reason}"),
            Kind::User(error) => write!(f, "user error: {error}"),
            Kind::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}
