//! SETTINGS (RFC 9113 section 6.5, RFC 8441 section 3, RFC 9218 section 2.1).

use super::error::FrameError;
use super::frame_header::{
    DEFAULT_MAX_FRAME_SIZE, Flags, FrameHeader, FrameType, LARGEST_MAX_FRAME_SIZE, put_frame_header, read_u32,
};
use crate::error::ErrorCode;

/// Octets of one parameter.
const ENTRY: usize = 6;

/// A SETTINGS frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settings<'a> {
    /// The peer has applied ours.
    Ack,
    /// The peer's parameters, in the order in which they are to be applied.
    Values(SettingsEntries<'a>),
}

/// One parameter, with its value checked for range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Setting {
    /// SETTINGS_HEADER_TABLE_SIZE, in octets.
    HeaderTableSize(u32),
    /// SETTINGS_ENABLE_PUSH.
    EnablePush(bool),
    /// SETTINGS_MAX_CONCURRENT_STREAMS.
    MaxConcurrentStreams(u32),
    /// SETTINGS_INITIAL_WINDOW_SIZE, in octets, at most 2^31-1.
    InitialWindowSize(u32),
    /// SETTINGS_MAX_FRAME_SIZE, in octets, 16,384 to 2^24-1.
    MaxFrameSize(u32),
    /// SETTINGS_MAX_HEADER_LIST_SIZE, in octets.
    MaxHeaderListSize(u32),
    /// SETTINGS_ENABLE_CONNECT_PROTOCOL (RFC 8441).
    EnableConnectProtocol(bool),
    /// SETTINGS_NO_RFC7540_PRIORITIES (RFC 9218).
    NoRfc7540Priorities(bool),
    /// A parameter that this engine does not know, to be ignored.
    Unknown(u16, u32),
}

impl<'a> Settings<'a> {
    pub(super) fn parse(header: FrameHeader, payload: &'a [u8]) -> Result<Self, FrameError> {
        if header.stream.is_some() {
            return Err(FrameError::protocol("SETTINGS on a stream"));
        }
        if header.flags.has(Flags::ACK) {
            if !payload.is_empty() {
                return Err(FrameError::size("an acknowledgement of SETTINGS with a payload"));
            }
            return Ok(Settings::Ack);
        }
        if payload.len() % ENTRY != 0 {
            return Err(FrameError::size("the length of SETTINGS is no multiple of six"));
        }
        Ok(Settings::Values(SettingsEntries { payload }))
    }
}

/// The parameters of a SETTINGS frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SettingsEntries<'a> {
    payload: &'a [u8],
}

impl SettingsEntries<'_> {
    /// How many parameters there are.
    pub fn len(&self) -> usize {
        self.payload.len() / ENTRY
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.payload.is_empty()
    }

    /// Each parameter in turn, or the error that its value is.
    pub fn iter(&self) -> impl Iterator<Item = Result<Setting, FrameError>> + '_ {
        self.payload.chunks_exact(ENTRY).map(|entry| {
            let identifier = u16::from_be_bytes([entry[0], entry[1]]);
            Setting::parse(identifier, read_u32(entry, 2))
        })
    }
}

impl Setting {
    fn parse(identifier: u16, value: u32) -> Result<Setting, FrameError> {
        let flag = |reason| match value {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(FrameError::protocol(reason)),
        };
        Ok(match identifier {
            0x1 => Setting::HeaderTableSize(value),
            0x2 => Setting::EnablePush(flag("SETTINGS_ENABLE_PUSH is neither 0 nor 1")?),
            0x3 => Setting::MaxConcurrentStreams(value),
            0x4 if value > i32::MAX as u32 => {
                return Err(FrameError::connection(
                    ErrorCode::FLOW_CONTROL_ERROR,
                    "SETTINGS_INITIAL_WINDOW_SIZE is over 2^31-1",
                ));
            }
            0x4 => Setting::InitialWindowSize(value),
            0x5 if !(DEFAULT_MAX_FRAME_SIZE..=LARGEST_MAX_FRAME_SIZE).contains(&value) => {
                return Err(FrameError::protocol(
                    "SETTINGS_MAX_FRAME_SIZE is not from 16,384 to 16,777,215",
                ));
            }
            0x5 => Setting::MaxFrameSize(value),
            0x6 => Setting::MaxHeaderListSize(value),
            0x8 => {
                Setting::EnableConnectProtocol(flag("SETTINGS_ENABLE_CONNECT_PROTOCOL is neither 0 nor 1")?)
            }
            0x9 => Setting::NoRfc7540Priorities(flag("SETTINGS_NO_RFC7540_PRIORITIES is neither 0 nor 1")?),
            _ => Setting::Unknown(identifier, value),
        })
    }

    /// Identifier and value, as they stand in the frame.
    pub const fn to_pair(self) -> (u16, u32) {
        match self {
            Setting::HeaderTableSize(value) => (0x1, value),
            Setting::EnablePush(value) => (0x2, value as u32),
            Setting::MaxConcurrentStreams(value) => (0x3, value),
            Setting::InitialWindowSize(value) => (0x4, value),
            Setting::MaxFrameSize(value) => (0x5, value),
            Setting::MaxHeaderListSize(value) => (0x6, value),
            Setting::EnableConnectProtocol(value) => (0x8, value as u32),
            Setting::NoRfc7540Priorities(value) => (0x9, value as u32),
            Setting::Unknown(identifier, value) => (identifier, value),
        }
    }

    /// Its identifier.
    pub const fn identifier(self) -> u16 {
        self.to_pair().0
    }

    /// Appends a SETTINGS frame with these parameters.
    pub(crate) fn write_all(settings: &[Setting], out: &mut Vec<u8>) {
        put_frame_header(
            out,
            settings.len() * ENTRY,
            FrameType::SETTINGS,
            Flags::NONE,
            None,
        );
        for setting in settings {
            let (identifier, value) = setting.to_pair();
            out.extend_from_slice(&identifier.to_be_bytes());
            out.extend_from_slice(&value.to_be_bytes());
        }
    }

    /// Appends the acknowledgement of the peer's SETTINGS.
    pub(crate) fn write_ack(out: &mut Vec<u8>) {
        put_frame_header(out, 0, FrameType::SETTINGS, Flags::ACK, None);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{FRAME_HEADER_LENGTH, Frame, parse};
    use super::*;

    #[test]
    fn parameters_survive_the_round_trip_in_order() {
        let ours = [
            Setting::HeaderTableSize(4096),
            Setting::InitialWindowSize(1 << 20),
            Setting::MaxFrameSize(16_384),
            Setting::EnableConnectProtocol(true),
            Setting::Unknown(0x99, 7),
            Setting::Unknown(0x9a, 8),
        ];
        let mut out = Vec::new();
        Setting::write_all(&ours, &mut out);
        let header = FrameHeader::parse(out.first_chunk::<FRAME_HEADER_LENGTH>().unwrap());
        let Ok(Frame::Settings(Settings::Values(entries))) = parse(header, &out[FRAME_HEADER_LENGTH..])
        else {
            panic!("not SETTINGS")
        };
        assert_eq!(entries.len(), ours.len());
        assert_eq!(entries.iter().collect::<Result<Vec<_>, _>>().unwrap(), ours);
    }

    #[test]
    fn values_out_of_range_are_errors_of_the_code_that_the_rfc_names() {
        assert_eq!(Setting::parse(2, 2).unwrap_err().code, ErrorCode::PROTOCOL_ERROR);
        assert_eq!(
            Setting::parse(4, 1 << 31).unwrap_err().code,
            ErrorCode::FLOW_CONTROL_ERROR
        );
        assert_eq!(
            Setting::parse(5, 16_383).unwrap_err().code,
            ErrorCode::PROTOCOL_ERROR
        );
        assert_eq!(
            Setting::parse(5, 1 << 24).unwrap_err().code,
            ErrorCode::PROTOCOL_ERROR
        );
    }
}
