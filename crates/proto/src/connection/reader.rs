//! From octets to frames: the preface, frame headers, payloads, and header blocks.
//!
//! A frame other than DATA is handed on whole, in place where all of it has come. The payload of DATA is handed on piece by
//! piece. All octets and frames that come are counted here.

use core::ops::Deref;

use bytes::{Buf, Bytes};

use crate::config::Config;
use crate::error::{ConnectionError, ErrorCode};
use crate::frame::{Continuation, FRAME_HEADER_LENGTH, Flags, FrameHeader, FrameType, Headers, PREFACE};
use crate::hpack::{DEFAULT_TABLE_SIZE, Decoder, FieldLimits, FieldSection};
use crate::id::{Key, StreamId};
use crate::role::Role;
use crate::stats::FrameCounts;

/// What has come of the frame that is arriving.
#[derive(Debug)]
pub(super) struct Reader {
    expected: Expected,
    /// The octets of a frame that straddles two slabs: at most a frame header, or one payload.
    partial: Vec<u8>,
    block: Option<Block>,
    decoder: Decoder,
    /// The field section of the last header block.
    section: FieldSection,
    received_bytes: u64,
    received_frames: FrameCounts,
}

/// What the next octets are.
#[derive(Debug, Clone, Copy)]
pub(super) enum Expected {
    /// The rest of the client's preface, of which so many octets have come.
    Preface(usize),
    /// The frame header of the SETTINGS frame that a connection begins with.
    FirstFrameHeader,
    FrameHeader,
    Payload(FrameHeader),
    /// The pad length of a padded DATA frame.
    PadLength(FrameHeader),
    Data(DataFrame),
}

/// What remains of a DATA frame that is arriving.
#[derive(Debug, Clone, Copy)]
pub(super) struct DataFrame {
    /// The stream that takes it; none when it is discarded.
    pub(super) key: Option<Key>,
    pub(super) payload: usize,
    pub(super) padding: usize,
    pub(super) end_stream: bool,
}

/// What follows a frame header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begun {
    /// DATA that is not padded: its payload is the next octets.
    Data,
    /// Nothing: the frame is whole.
    Whole,
    /// Octets that have to come before anything can be done.
    Octets,
}

/// A whole payload, in place or gathered.
#[derive(Debug)]
pub(super) enum Payload {
    Slice(Bytes),
    Gathered(Vec<u8>),
}

impl Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Payload::Slice(octets) => octets,
            Payload::Gathered(octets) => octets,
        }
    }
}

/// A header block whose CONTINUATION frames are arriving.
#[derive(Debug)]
struct Block {
    header: BlockHeader,
    continuations: u32,
    fragments: Vec<u8>,
}

/// What the HEADERS frame of a header block says beside its fields.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockHeader {
    pub(super) stream: StreamId,
    pub(super) end_stream: bool,
    /// Whether the priority fields of RFC 7540 make the stream depend on itself.
    pub(super) on_itself: bool,
}

impl Reader {
    pub(super) fn new(role: Role) -> Self {
        Reader {
            expected: match role {
                Role::Server => Expected::Preface(0),
                Role::Client => Expected::FirstFrameHeader,
            },
            partial: Vec::new(),
            block: None,
            decoder: Decoder::new(DEFAULT_TABLE_SIZE),
            section: FieldSection::default(),
            received_bytes: 0,
            received_frames: FrameCounts::default(),
        }
    }

    /// What the next octets are.
    #[inline]
    pub(super) fn expected(&self) -> Expected {
        self.expected
    }

    /// Whether octets of a header block, or of a frame other than DATA, have come, and more are to come.
    pub(super) fn is_within_frame(&self) -> bool {
        self.block.is_some()
            || !self.partial.is_empty()
            || matches!(self.expected, Expected::Payload(_) | Expected::PadLength(_))
    }

    /// Whether CONTINUATION frames are to come.
    pub(super) fn is_within_block(&self) -> bool {
        self.block.is_some()
    }

    /// How many octets of a header block wait for the rest of it.
    pub(super) fn block_len(&self) -> usize {
        self.block.as_ref().map_or(0, |block| block.fragments.len())
    }

    /// The rest of the preface, of which `seen` octets have come.
    pub(super) fn take_preface(&mut self, seen: usize, input: &mut Bytes) -> Result<(), ConnectionError> {
        let count = input.len().min(PREFACE.len() - seen);
        if input[..count] != PREFACE[seen..seen + count] {
            return Err(ConnectionError::not_http2(
                "the connection does not begin with the HTTP/2 preface (is it HTTP/1.1?)",
            ));
        }
        input.advance(count);
        self.expected = match seen + count {
            all if all == PREFACE.len() => Expected::FirstFrameHeader,
            some => Expected::Preface(some),
        };
        Ok(())
    }

    /// The next frame header, once its nine octets have come.
    #[inline]
    pub(super) fn take_frame_header(&mut self, input: &mut Bytes) -> Option<FrameHeader> {
        let partial = &mut self.partial;
        if partial.is_empty() {
            if let Some(octets) = input.first_chunk::<FRAME_HEADER_LENGTH>() {
                let header = FrameHeader::parse(octets);
                input.advance(FRAME_HEADER_LENGTH);
                return Some(header);
            }
        }
        let count = input.len().min(FRAME_HEADER_LENGTH - partial.len());
        partial.extend_from_slice(&input[..count]);
        input.advance(count);
        let header = FrameHeader::parse(partial.first_chunk::<FRAME_HEADER_LENGTH>()?);
        partial.clear();
        Some(header)
    }

    /// A frame begins. Its length and its place among other frames are checked before any of its payload is read.
    pub(super) fn begin(
        &mut self,
        header: FrameHeader,
        max_frame_size: u32,
    ) -> Result<Begun, ConnectionError> {
        if matches!(self.expected, Expected::FirstFrameHeader) {
            let settings = header.frame_type == FrameType::SETTINGS && !header.flags.has(Flags::ACK);
            if !settings {
                return Err(ConnectionError::not_http2("the first frame is not SETTINGS"));
            }
        }
        self.received_frames.add(header.frame_type);
        if let Some(block) = &self.block {
            if header.frame_type != FrameType::CONTINUATION || header.stream != Some(block.header.stream) {
                let error = "a frame between HEADERS and its CONTINUATION";
                return Err(ConnectionError::protocol(error).on(block.header.stream));
            }
        }
        if header.length > max_frame_size {
            return Err(ConnectionError::violation(
                ErrorCode::FRAME_SIZE_ERROR,
                "a frame longer than SETTINGS_MAX_FRAME_SIZE",
            ));
        }
        if header.frame_type == FrameType::DATA {
            if header.flags.has(Flags::PADDED) && header.length > 0 {
                self.expected = Expected::PadLength(header);
                return Ok(Begun::Octets);
            }
            return Ok(Begun::Data);
        }
        if header.length == 0 {
            self.expected = Expected::FrameHeader;
            return Ok(Begun::Whole);
        }
        self.expected = Expected::Payload(header);
        Ok(Begun::Octets)
    }

    /// The payload of a frame other than DATA, once it is whole.
    pub(super) fn take_payload(&mut self, header: FrameHeader, input: &mut Bytes) -> Option<Payload> {
        let length = header.length as usize;
        if self.partial.is_empty() && input.len() >= length {
            self.expected = Expected::FrameHeader;
            return Some(Payload::Slice(input.split_to(length)));
        }
        let count = input.len().min(length - self.partial.len());
        self.partial.extend_from_slice(&input[..count]);
        input.advance(count);
        if self.partial.len() < length {
            return None;
        }
        self.expected = Expected::FrameHeader;
        Some(Payload::Gathered(core::mem::take(&mut self.partial)))
    }

    /// Keeps the memory of a payload that was processed.
    #[inline]
    pub(super) fn recycle(&mut self, payload: Payload) {
        if let Payload::Gathered(mut octets) = payload {
            octets.clear();
            self.partial = octets;
        }
    }

    /// What remains of a DATA frame; the next frame follows when that is nothing.
    #[inline]
    pub(super) fn expect_data(&mut self, data: DataFrame) {
        self.expected = match data.payload + data.padding {
            0 => Expected::FrameHeader,
            _ => Expected::Data(data),
        };
    }

    /// HEADERS: when its header block is whole, what the block is for, and [`Self::section`] has the fields.
    pub(super) fn headers(
        &mut self,
        frame: Headers<'_>,
        config: &Config,
    ) -> Result<Option<BlockHeader>, ConnectionError> {
        let header = BlockHeader {
            stream: frame.stream,
            end_stream: frame.end_stream,
            on_itself: frame.priority.is_some_and(|fields| fields.on_itself),
        };
        check_block_size(frame.stream, frame.fragment.len(), config)?;
        if !frame.end_headers {
            self.block = Some(Block {
                header,
                continuations: 0,
                fragments: frame.fragment.to_vec(),
            });
            return Ok(None);
        }
        self.decode(header.stream, frame.fragment, config)?;
        Ok(Some(header))
    }

    /// CONTINUATION: as [`Self::headers`].
    pub(super) fn continuation(
        &mut self,
        frame: Continuation<'_>,
        config: &Config,
    ) -> Result<Option<BlockHeader>, ConnectionError> {
        // `begin` has checked that it belongs to the block, if there is one.
        let Some(mut block) = self.block.take() else {
            let error = "CONTINUATION without HEADERS";
            return Err(ConnectionError::protocol(error).on(frame.stream));
        };
        let header = block.header;
        block.continuations += 1;
        if block.continuations > config.max_continuations {
            let error = "too many CONTINUATION frames for one header block";
            return Err(ConnectionError::limit(error).on(header.stream));
        }
        let length = block.fragments.len() + frame.fragment.len();
        check_block_size(header.stream, length, config)?;
        block.fragments.extend_from_slice(frame.fragment);
        if !frame.end_headers {
            self.block = Some(block);
            return Ok(None);
        }
        self.decode(header.stream, &block.fragments, config)?;
        Ok(Some(header))
    }

    /// Decodes a whole header block, whatever becomes of its stream: the dynamic table depends on it.
    fn decode(&mut self, stream: StreamId, block: &[u8], config: &Config) -> Result<(), ConnectionError> {
        let limits = FieldLimits {
            max_bytes: config.max_header_list_size as usize,
            max_fields: config.max_header_fields as usize,
        };
        self.section.clear();
        self.decoder
            .decode(block, &limits, &mut self.section)
            .map_err(|_| {
                let error = "a header block that cannot be decoded";
                ConnectionError::violation(ErrorCode::COMPRESSION_ERROR, error).on(stream)
            })
    }

    /// The field section of the last header block.
    pub(super) fn section(&self) -> &FieldSection {
        &self.section
    }

    /// As [`Self::section`], to be taken out.
    pub(super) fn section_mut(&mut self) -> &mut FieldSection {
        &mut self.section
    }

    /// The peer has acknowledged our SETTINGS_HEADER_TABLE_SIZE.
    pub(super) fn allow_table(&mut self, octets: u32) {
        self.decoder.set_max_table_size(octets as usize);
    }

    /// Takes note of octets that were processed.
    pub(super) fn note_received(&mut self, octets: usize) {
        self.received_bytes += octets as u64;
    }

    pub(super) fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    pub(super) fn received_frames(&self) -> &FrameCounts {
        &self.received_frames
    }

    /// Drops the header block that is arriving.
    pub(super) fn drop_block(&mut self) {
        self.block = None;
    }

    /// Gives back memory that only a busy connection needs.
    pub(super) fn trim(&mut self) {
        self.section.trim();
    }
}

fn check_block_size(stream: StreamId, bytes: usize, config: &Config) -> Result<(), ConnectionError> {
    if bytes <= config.max_header_block {
        return Ok(());
    }
    Err(ConnectionError::limit("a header block is too long").on(stream))
}
