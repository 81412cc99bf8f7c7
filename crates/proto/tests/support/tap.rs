//! A tap on one direction: the frames that went by, when, and in which write.

use bytes::Bytes;
use fullbore_proto::Time;
use fullbore_proto::frame::{FRAME_HEADER_LENGTH, Flags, FrameHeader, FrameType};

/// A frame that went by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) at: Time,
    /// Which write it left in, from 0.
    pub(crate) write: usize,
    pub(crate) header: FrameHeader,
    /// The first four octets of the payload as a number: an increment, a code, a last stream.
    pub(crate) word: u32,
}

impl Seen {
    pub(crate) fn is(&self, frame_type: FrameType) -> bool {
        self.header.frame_type == frame_type
    }

    pub(crate) fn stream(&self) -> u32 {
        self.header.stream.map_or(0, |id| id.value())
    }

    pub(crate) fn ends_stream(&self) -> bool {
        matches!(self.header.frame_type, FrameType::DATA | FrameType::HEADERS)
            && self.header.flags.has(Flags::END_STREAM)
    }
}

/// The frames of one direction.
#[derive(Debug, Default)]
pub(crate) struct Tap {
    pub(crate) frames: Vec<Seen>,
    writes: usize,
    octets: usize,
    /// The octets themselves, where a test asked for them.
    pub(crate) record: Option<Vec<u8>>,
    /// Whether the preface of a client is still to be skipped.
    preface: usize,
}

const PREFACE_LENGTH: usize = 24;

impl Tap {
    pub(crate) fn new(of_client: bool) -> Self {
        Tap {
            preface: if of_client { PREFACE_LENGTH } else { 0 },
            ..Tap::default()
        }
    }

    /// One write, which is a whole number of frames.
    pub(crate) fn write(&mut self, octets: &Bytes, at: Time) {
        let mut rest = &octets[std::mem::take(&mut self.preface)..];
        self.octets += octets.len();
        if let Some(record) = &mut self.record {
            record.extend_from_slice(octets);
        }
        while let Some((header, payload)) = rest.split_first_chunk::<FRAME_HEADER_LENGTH>() {
            let header = FrameHeader::parse(header);
            let (payload, after) = payload.split_at(header.length as usize);
            let word = payload
                .first_chunk::<4>()
                .map_or(0, |octets| u32::from_be_bytes(*octets));
            let write = self.writes;
            self.frames.push(Seen {
                at,
                write,
                header,
                word,
            });
            rest = after;
        }
        assert!(rest.is_empty(), "a write ends within a frame");
        self.writes += 1;
    }

    pub(crate) fn writes(&self) -> usize {
        self.writes
    }

    /// Octets of all writes.
    pub(crate) fn octets(&self) -> usize {
        self.octets
    }

    pub(crate) fn of(&self, frame_type: FrameType) -> impl Iterator<Item = &Seen> {
        self.frames.iter().filter(move |seen| seen.is(frame_type))
    }

    /// The increments of a stream's WINDOW_UPDATEs, or of the connection's for 0.
    pub(crate) fn increments(&self, stream: u32) -> Vec<u32> {
        self.of(FrameType::WINDOW_UPDATE)
            .filter(|seen| seen.stream() == stream)
            .map(|seen| seen.word)
            .collect()
    }

    /// The lengths of a stream's DATA frames.
    pub(crate) fn data_lengths(&self, stream: u32) -> Vec<u32> {
        self.of(FrameType::DATA)
            .filter(|seen| seen.stream() == stream)
            .map(|seen| seen.header.length)
            .collect()
    }
}
