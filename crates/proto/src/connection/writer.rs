//! The frames that wait to be sent: control frames and field blocks, encoded in the order in which they were written.
//!
//! Every frame except DATA goes into one buffer, so that field blocks leave in the order in which HPACK encoded them. A
//! write takes the whole buffer and appends DATA behind it. All frames that this endpoint sends are counted here.

use http::{HeaderMap, HeaderValue, Response};

use crate::error::ErrorCode;
use crate::frame::{
    FRAME_HEADER_LENGTH, FrameType, GoAway, PREFACE, Ping, PriorityUpdate, ResetStream, Setting,
    WindowUpdate, patch_header_block, reserve_header_block, write_data_header,
};
use crate::hpack::Encoder;
use crate::id::StreamId;
use crate::message;
use crate::role::Role;
use crate::stats::FrameCounts;
use crate::transmit::Transmit;

/// The length of a PING frame's payload, in octets.
const PING_LENGTH: usize = 8;

/// The length of an RST_STREAM frame, in octets.
const RESET_LENGTH: usize = FRAME_HEADER_LENGTH + 4;

/// The frames that wait to be sent, and the state that encoding them needs.
#[derive(Debug)]
pub(super) struct Writer {
    encoder: Encoder,
    /// The `date` field of responses that have none.
    date: Option<HeaderValue>,
    /// All frames that leave before DATA, in order.
    control: Vec<u8>,
    /// How many octets of `control` are replies that the peer caused.
    owed: usize,
    sent_frames: FrameCounts,
    sent_bytes: u64,
}

impl Writer {
    pub(super) fn new(encoder_table_size: u32) -> Self {
        Writer {
            encoder: Encoder::new(encoder_table_size as usize),
            date: None,
            control: Vec::new(),
            owed: 0,
            sent_frames: FrameCounts::default(),
            sent_bytes: 0,
        }
    }

    /// What an endpoint sends first (RFC 9113 section 3.4).
    pub(super) fn preface(&mut self, role: Role, settings: &[Setting]) {
        if role == Role::Client {
            self.control.extend_from_slice(PREFACE);
        }
        Setting::write_all(settings, &mut self.control);
        self.sent_frames.add(FrameType::SETTINGS);
    }

    /// The acknowledgement of the peer's SETTINGS.
    pub(super) fn settings_ack(&mut self) {
        Setting::write_ack(&mut self.control);
        self.owed += FRAME_HEADER_LENGTH;
        self.sent_frames.add(FrameType::SETTINGS);
    }

    pub(super) fn ping(&mut self, opaque: [u8; PING_LENGTH]) {
        let frame = Ping { ack: false, opaque };
        frame.write(&mut self.control);
        self.sent_frames.add(FrameType::PING);
    }

    /// The acknowledgement of a PING of the peer.
    pub(super) fn ping_ack(&mut self, ping: Ping) {
        let reply = Ping { ack: true, ..ping };
        reply.write(&mut self.control);
        self.owed += FRAME_HEADER_LENGTH + PING_LENGTH;
        self.sent_frames.add(FrameType::PING);
    }

    /// A WINDOW_UPDATE, of the connection when there is no stream.
    pub(super) fn window_update(&mut self, stream: Option<StreamId>, increment: u32) {
        let frame = WindowUpdate { stream, increment };
        frame.write(&mut self.control);
        self.sent_frames.add(FrameType::WINDOW_UPDATE);
    }

    pub(super) fn reset(&mut self, stream: StreamId, code: ErrorCode) {
        let frame = ResetStream { stream, code };
        frame.write(&mut self.control);
        self.sent_frames.add(FrameType::RST_STREAM);
    }

    pub(super) fn go_away(&mut self, last_stream: u32, code: ErrorCode, debug: &[u8]) {
        let frame = GoAway {
            last_stream,
            code,
            debug,
        };
        frame.write(&mut self.control);
        self.sent_frames.add(FrameType::GOAWAY);
    }

    pub(super) fn priority_update(&mut self, prioritized: StreamId, value: &[u8]) {
        let frame = PriorityUpdate { prioritized, value };
        frame.write(&mut self.control);
        self.sent_frames.add(FrameType::PRIORITY_UPDATE);
    }

    /// A field block, in frames of `max_frame_size` octets at most.
    pub(super) fn head(
        &mut self,
        stream: StreamId,
        end: bool,
        max_frame_size: u32,
        encode: impl FnOnce(&mut Encoder, &mut Vec<u8>),
    ) {
        let out = &mut self.control;
        let start = reserve_header_block(out);
        encode(&mut self.encoder, out);
        patch_header_block(out, start, stream, end, max_frame_size as usize);
        self.sent_frames.add(FrameType::HEADERS);
    }

    /// The field block of a final response, with a `date`.
    pub(super) fn response(
        &mut self,
        stream: StreamId,
        end: bool,
        max_frame_size: u32,
        response: &Response<()>,
    ) {
        let date = self.date.take();
        self.head(stream, end, max_frame_size, |encoder, out| {
            message::encode_response(encoder, response, date.as_ref(), out);
        });
        self.date = date;
    }

    /// The frame header of a DATA frame, straight onto the list: its payload follows there.
    pub(super) fn data_header(&mut self, out: &mut Transmit, stream: StreamId, length: usize, end: bool) {
        out.put(|arena| write_data_header(arena, stream, length, end));
        self.sent_frames.add(FrameType::DATA);
    }

    /// Trailers, straight onto the list: they follow the DATA that is on it.
    pub(super) fn trailers(
        &mut self,
        out: &mut Transmit,
        stream: StreamId,
        trailers: &HeaderMap,
        max_frame_size: u32,
    ) {
        let encoder = &mut self.encoder;
        out.put(|arena| {
            let start = reserve_header_block(arena);
            message::encode_trailers(encoder, trailers, arena);
            patch_header_block(arena, start, stream, true, max_frame_size as usize);
        });
        self.sent_frames.add(FrameType::HEADERS);
    }

    /// Moves everything that waits onto the list.
    pub(super) fn drain_into(&mut self, out: &mut Transmit) {
        if !self.control.is_empty() {
            out.put_drained(&mut self.control);
            self.owed = 0;
        }
    }

    /// How many octets wait.
    pub(super) fn len(&self) -> usize {
        self.control.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.control.is_empty()
    }

    /// How many of them are replies that the peer caused.
    pub(super) fn owed(&self) -> usize {
        self.owed
    }

    /// The next RST_STREAM counts as a reply that the peer caused.
    pub(super) fn owe_reset(&mut self) {
        self.owed += RESET_LENGTH;
    }

    /// Takes note of octets that were put onto a list, DATA among them.
    pub(super) fn note_sent(&mut self, octets: usize) {
        self.sent_bytes += octets as u64;
    }

    /// All octets that were put onto lists.
    pub(super) fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    /// All frames that were written.
    pub(super) fn sent_frames(&self) -> &FrameCounts {
        &self.sent_frames
    }

    /// The peer's SETTINGS_HEADER_TABLE_SIZE.
    pub(super) fn set_table_size(&mut self, octets: u32) {
        self.encoder.set_max_table_size(octets as usize);
    }

    pub(super) fn set_date(&mut self, date: HeaderValue) {
        self.date = Some(date);
    }

    /// Gives back memory that only a busy connection needs.
    pub(super) fn trim(&mut self) {
        self.encoder.trim();
        self.date = None;
        self.control.shrink_to_fit();
    }
}
