//! Parses the preface, frame headers, payloads and header blocks.
//!
//! A frame other than DATA is passed on when it is complete, in place if one read contains all of it. The payload of
//! DATA is passed on as it arrives. This module counts all received bytes and frames.

use core::ops::Deref;

use bytes::{Buf, Bytes};

use super::last_request::{LastRequest, Received};
use crate::config::Config;
use crate::error::{ConnectionError, ErrorCode, PeerLimit};
use crate::frame::{Continuation, FRAME_HEADER_LENGTH, Flags, FrameHeader, FrameType, Headers, PREFACE};
use crate::hpack::{DEFAULT_TABLE_SIZE, Decoder, FieldLimits, FieldSection};
use crate::id::{Key, StreamId};
use crate::prefetch::prefetch;
use crate::role::Role;
use crate::stats::FrameCounts;

/// The state of the parser.
#[derive(Debug)]
pub(super) struct Reader {
    expected: Expected,
    /// The bytes of a frame that spans several reads: at most a frame header, or one payload.
    partial: Vec<u8>,
    block: Option<Box<Block>>,
    decoder: Decoder,
    /// The field section of the last header block.
    section: FieldSection,
    role: Role,
    /// The last request of a server.
    last_request: Option<Box<LastRequest>>,
    /// No block has come since the last [`Self::trim`]. The first one is not remembered: the next trim would free it.
    rested: bool,
    received_bytes: u64,
    received_frames: FrameCounts,
}

/// What the next bytes are.
#[derive(Debug, Clone, Copy)]
pub(super) enum Expected {
    /// The rest of the client's preface, after this many bytes of it.
    Preface(usize),
    /// The frame header of the first SETTINGS frame.
    FirstFrameHeader,
    FrameHeader,
    Payload(FrameHeader),
    /// The pad length of a padded DATA frame.
    PadLength(FrameHeader),
    Data(DataFrame),
}

/// What remains of an incomplete DATA frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct DataFrame {
    /// The stream that receives it. None if it is discarded.
    pub(super) key: Option<Key>,
    pub(super) payload: usize,
    pub(super) padding: usize,
    pub(super) end_stream: bool,
}

/// What follows a frame header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begun {
    /// The payload of a DATA frame without padding.
    Data,
    /// Nothing: the frame is complete.
    Whole,
    /// Bytes that have to arrive first.
    Octets,
}

/// A complete payload, in place or copied together.
#[derive(Debug)]
pub(super) enum FramePayload {
    Slice(Bytes),
    Gathered(Vec<u8>),
}

impl Deref for FramePayload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            FramePayload::Slice(octets) => octets,
            FramePayload::Gathered(octets) => octets,
        }
    }
}

/// An incomplete header block.
#[derive(Debug)]
struct Block {
    header: BlockHeader,
    continuations: u32,
    fragments: Vec<u8>,
}

/// What a HEADERS frame says besides its fields.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockHeader {
    pub(super) stream: StreamId,
    pub(super) end_stream: bool,
    /// Whether its RFC 7540 priority makes the stream depend on itself.
    pub(super) on_itself: bool,
    /// Whether the fields are those of [`Reader::repeated`], and not decoded.
    pub(super) repeats: bool,
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
            role,
            last_request: None,
            rested: false,
            received_bytes: 0,
            received_frames: FrameCounts::default(),
        }
    }

    /// Has the processor fetch the last request.
    #[inline]
    pub(super) fn prefetch(&self) {
        if let Some(last) = &self.last_request {
            prefetch(&**last);
        }
    }

    #[inline]
    pub(super) fn expected(&self) -> Expected {
        self.expected
    }

    /// Whether a header block, or a frame other than DATA, is incomplete.
    pub(super) fn is_within_frame(&self) -> bool {
        self.block.is_some()
            || !self.partial.is_empty()
            || matches!(self.expected, Expected::Payload(_) | Expected::PadLength(_))
    }

    pub(super) fn is_within_block(&self) -> bool {
        self.block.is_some()
    }

    /// The buffered bytes of an incomplete header block.
    pub(super) fn block_len(&self) -> usize {
        self.block.as_ref().map_or(0, |block| block.fragments.len())
    }

    /// Parses the rest of the preface, after `seen` bytes of it.
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

    /// The next frame header, if its nine bytes have arrived.
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

    /// A frame begins. Checks its length and its position among other frames before any payload is read.
    pub(super) fn begin(
        &mut self,
        header: FrameHeader,
        max_frame_size: u32,
    ) -> Result<Begun, ConnectionError> {
        if matches!(self.expected, Expected::FirstFrameHeader) {
            let settings = header.frame_type == FrameType::SETTINGS && !header.flags.has(Flags::ACK);
            if !settings {
                return Err(match is_http1(&header.to_octets()) {
                    true => ConnectionError::http1(),
                    false => ConnectionError::not_http2("the first frame is not SETTINGS"),
                });
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

    /// The payload of a frame other than DATA, if it is complete.
    pub(super) fn take_payload(&mut self, header: FrameHeader, input: &mut Bytes) -> Option<FramePayload> {
        let length = header.length as usize;
        if self.partial.is_empty() && input.len() >= length {
            self.expected = Expected::FrameHeader;
            return Some(FramePayload::Slice(input.split_to(length)));
        }
        let count = input.len().min(length - self.partial.len());
        self.partial.extend_from_slice(&input[..count]);
        input.advance(count);
        if self.partial.len() < length {
            return None;
        }
        self.expected = Expected::FrameHeader;
        Some(FramePayload::Gathered(core::mem::take(&mut self.partial)))
    }

    /// Keeps the buffer of a processed payload.
    #[inline]
    pub(super) fn recycle(&mut self, payload: FramePayload) {
        if let FramePayload::Gathered(mut octets) = payload {
            octets.clear();
            self.partial = octets;
        }
    }

    /// Expects the rest of a DATA frame, or the next frame if nothing remains.
    #[inline]
    pub(super) fn expect_data(&mut self, data: DataFrame) {
        self.expected = match data.payload + data.padding {
            0 => Expected::FrameHeader,
            _ => Expected::Data(data),
        };
    }

    /// Processes HEADERS. If its header block is complete, returns its header; [`Self::section`] has the fields.
    pub(super) fn headers(
        &mut self,
        frame: Headers<'_>,
        config: &Config,
    ) -> Result<Option<BlockHeader>, ConnectionError> {
        let mut header = BlockHeader {
            stream: frame.stream,
            end_stream: frame.end_stream,
            on_itself: frame.priority.is_some_and(|fields| fields.on_itself),
            repeats: false,
        };
        check_block_size(frame.stream, frame.fragment.len(), config)?;
        if !frame.end_headers {
            self.block = Some(Box::new(Block {
                header,
                continuations: 0,
                fragments: frame.fragment.to_vec(),
            }));
            return Ok(None);
        }
        header.repeats = self.take_block(header.stream, frame.fragment, config)?;
        Ok(Some(header))
    }

    /// Processes CONTINUATION, as [`Self::headers`] does HEADERS.
    pub(super) fn continuation(
        &mut self,
        frame: Continuation<'_>,
        config: &Config,
    ) -> Result<Option<BlockHeader>, ConnectionError> {
        // If there is a block, `begin` has checked that the frame belongs to it.
        let Some(mut block) = self.block.take() else {
            let error = "CONTINUATION without HEADERS";
            return Err(ConnectionError::protocol(error).on(frame.stream));
        };
        let mut header = block.header;
        block.continuations += 1;
        if block.continuations > config.max_continuations() {
            let error = "too many CONTINUATION frames for one header block";
            return Err(ConnectionError::limit(PeerLimit::Continuations, error).on(header.stream));
        }
        let length = block.fragments.len() + frame.fragment.len();
        check_block_size(header.stream, length, config)?;
        block.fragments.extend_from_slice(frame.fragment);
        if !frame.end_headers {
            self.block = Some(block);
            return Ok(None);
        }
        header.repeats = self.take_block(header.stream, &block.fragments, config)?;
        Ok(Some(header))
    }

    /// A complete header block. Returns whether it repeats a request, and so is not decoded: the section is empty then.
    fn take_block(
        &mut self,
        stream: StreamId,
        block: &[u8],
        config: &Config,
    ) -> Result<bool, ConnectionError> {
        if let Some(last) = &mut self.last_request {
            if last.compare(block) && !self.decoder.expects_size_update() {
                self.section.clear();
                return Ok(true);
            }
        }
        self.decode(stream, block, config)?;
        let remembers = self.role == Role::Server && !self.rested;
        self.rested = false;
        if remembers {
            let last = self
                .last_request
                .get_or_insert_with(|| Box::new(LastRequest::new()));
            last.decoded(block, self.section.changed_table());
        }
        Ok(false)
    }

    /// Decodes the block that repeats a request, because it is none.
    pub(super) fn decode_repeated(
        &mut self,
        stream: StreamId,
        config: &Config,
    ) -> Result<(), ConnectionError> {
        let block = self
            .last_request
            .as_ref()
            .map_or(Vec::new(), |last| last.block().to_vec());
        self.decode(stream, &block, config)
    }

    /// The request of a block that repeats it.
    #[inline]
    pub(super) fn repeated(&self) -> Option<&Received> {
        self.last_request.as_ref()?.received()
    }

    /// The last block is a request in order, whose fields take little memory.
    #[inline]
    pub(super) fn keep(&mut self, received: &Received) {
        if let Some(last) = &mut self.last_request {
            last.keep(received);
        }
    }

    /// Decodes a complete header block. Blocks of refused streams are decoded too, because they change the dynamic
    /// table.
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

    pub(super) fn section(&self) -> &FieldSection {
        &self.section
    }

    pub(super) fn section_mut(&mut self) -> &mut FieldSection {
        &mut self.section
    }

    /// The peer has acknowledged our SETTINGS_HEADER_TABLE_SIZE.
    pub(super) fn allow_table(&mut self, octets: u32) {
        self.decoder.set_max_table_size(octets as usize);
    }

    pub(super) fn note_received(&mut self, octets: usize) {
        self.received_bytes += octets as u64;
    }

    pub(super) fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    pub(super) fn received_frames(&self) -> &FrameCounts {
        &self.received_frames
    }

    pub(super) fn drop_block(&mut self) {
        self.block = None;
    }

    pub(super) fn trim(&mut self) {
        self.section.trim();
        self.partial.shrink_to_fit();
        self.last_request = None;
        self.rested = true;
    }
}

fn check_block_size(stream: StreamId, bytes: usize, config: &Config) -> Result<(), ConnectionError> {
    if bytes <= config.max_header_block() {
        return Ok(());
    }
    let error = "a header block is too long";
    Err(ConnectionError::limit(PeerLimit::HeaderBlock, error).on(stream))
}

/// Whether the first octets of a server are an answer of HTTP/1: a status line, or the page without one that Python's
/// `http.server` sends to a version it does not know.
fn is_http1(octets: &[u8]) -> bool {
    const PAGE: &[u8] = b"<!DOCTYPE";
    octets.starts_with(b"HTTP/1.")
        || octets
            .get(..PAGE.len())
            .is_some_and(|begin| begin.eq_ignore_ascii_case(PAGE))
}
