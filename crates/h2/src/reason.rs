//! The error codes of HTTP/2 (RFC 9113 section 7).

use fullbore_proto::{ConnectionError, ErrorCode, PeerLimit};

#[cfg(feature = "unstable")]
pub use h2_upstream::Reason;

#[cfg(not(feature = "unstable"))]
pub use self::own::Reason;

pub(crate) fn of(code: ErrorCode) -> Reason {
    Reason::from(code.0)
}

pub(crate) fn code(reason: Reason) -> ErrorCode {
    ErrorCode(reason.into())
}

/// The debug data of GOAWAY for an error that the engine found: the words of the published crate, which peers and alerts know,
/// for the limits that it has too.
pub(crate) fn debug_data(error: &ConnectionError) -> &'static str {
    match error.exceeded() {
        Some(PeerLimit::PeerResets) => "too_many_resets",
        Some(PeerLimit::ProvokedResets | PeerLimit::RefusedStreams | PeerLimit::HeaderListSize) => {
            "too_many_internal_resets"
        }
        Some(PeerLimit::EmptyData) => "too_many_data_frames",
        Some(PeerLimit::Continuations) => "too_many_continuations",
        _ => "",
    }
}

#[cfg(not(feature = "unstable"))]
mod own {
    use std::fmt;

    use fullbore_proto::ErrorCode;

    /// An error code of RST_STREAM and GOAWAY (RFC 9113 section 7).
    ///
    /// Codes that the RFC does not name are kept as they came.
    ///
    /// ```
    /// use h2::Reason;
    ///
    /// assert_eq!(u32::from(Reason::CANCEL), 8);
    /// assert_eq!(Reason::from(8), Reason::CANCEL);
    /// assert_eq!(format!("{:?}", Reason::CANCEL), "CANCEL");
    /// ```
    #[derive(PartialEq, Eq, Clone, Copy)]
    pub struct Reason(u32);

    impl Reason {
        /// No error: a graceful end.
        pub const NO_ERROR: Reason = Reason(0);
        /// A violation of the protocol that no other code names.
        pub const PROTOCOL_ERROR: Reason = Reason(1);
        /// The endpoint itself failed.
        pub const INTERNAL_ERROR: Reason = Reason(2);
        /// More DATA came than the flow-control window allowed.
        pub const FLOW_CONTROL_ERROR: Reason = Reason(3);
        /// SETTINGS were not acknowledged in time.
        pub const SETTINGS_TIMEOUT: Reason = Reason(4);
        /// A frame came on a stream that was half-closed.
        pub const STREAM_CLOSED: Reason = Reason(5);
        /// A frame has a length that its type does not allow.
        pub const FRAME_SIZE_ERROR: Reason = Reason(6);
        /// The stream was refused before the application saw it: the request may be repeated.
        pub const REFUSED_STREAM: Reason = Reason(7);
        /// The stream is no longer needed.
        pub const CANCEL: Reason = Reason(8);
        /// The field compression state cannot be kept.
        pub const COMPRESSION_ERROR: Reason = Reason(9);
        /// The connection that a CONNECT request made was reset or closed abnormally.
        pub const CONNECT_ERROR: Reason = Reason(10);
        /// The peer causes excessive load.
        pub const ENHANCE_YOUR_CALM: Reason = Reason(11);
        /// The transport does not meet minimum security requirements.
        pub const INADEQUATE_SECURITY: Reason = Reason(12);
        /// HTTP/1.1 is required instead.
        pub const HTTP_1_1_REQUIRED: Reason = Reason(13);

        /// What the code means, in words.
        pub fn description(&self) -> &str {
            match self.0 {
                0 => "not a result of an error",
                1 => "unspecific protocol error detected",
                2 => "unexpected internal error encountered",
                3 => "flow-control protocol violated",
                4 => "settings ACK not received in timely manner",
                5 => "received frame when stream half-closed",
                6 => "frame with invalid size",
                7 => "refused stream before processing any application logic",
                8 => "stream no longer needed",
                9 => "unable to maintain the header compression context",
                10 => {
                    "connection established in response to a CONNECT request was reset or abnormally closed"
                }
                11 => "detected excessive load generating behavior",
                12 => "security properties do not meet minimum requirements",
                13 => "endpoint requires HTTP/1.1",
                _ => "unknown reason",
            }
        }
    }

    impl From<u32> for Reason {
        fn from(code: u32) -> Reason {
            Reason(code)
        }
    }

    impl From<Reason> for u32 {
        fn from(reason: Reason) -> u32 {
            reason.0
        }
    }

    impl fmt::Debug for Reason {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match ErrorCode(self.0).name() {
                Some(name) => f.write_str(name),
                None => f
                    .debug_tuple("Reason")
                    .field(&format_args!("{:x}", self.0))
                    .finish(),
            }
        }
    }

    impl fmt::Display for Reason {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.description())
        }
    }
}
