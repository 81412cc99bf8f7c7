//! The frames that wait to be sent, DATA excepted.
//!
//! They share one buffer, so that field blocks are sent in the order in which HPACK encoded them. A write takes the
//! whole buffer and appends DATA. DATA of whole responses is in the buffer too, or by reference between its octets. This
//! module counts all sent frames.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};

use super::last_response::LastResponse;
use crate::error::ErrorCode;
use crate::frame::{
    DEFAULT_MAX_FRAME_SIZE, FRAME_HEADER_LENGTH, FrameType, GoAway, PREFACE, Ping, PriorityUpdate,
    ResetStream, Setting, WindowUpdate, patch_header_block, reserve_header_block, write_data_header,
};
use crate::hpack::{DEFAULT_TABLE_SIZE, Encoder};
use crate::id::StreamId;
use crate::message;
use crate::prefetch::{prefetch, prefetch_start};
use crate::role::Role;
use crate::stats::FrameCounts;
use crate::transmit::{INLINE_PAYLOAD, Transmit};

const PING_LENGTH: usize = 8;

const RESET_LENGTH: usize = FRAME_HEADER_LENGTH + 4;

#[derive(Debug)]
pub(super) struct Writer {
    encoder: Encoder,
    /// The last response of a server.
    last_response: Option<Box<LastResponse>>,
    /// No response has left since the last [`Self::trim`]. The first one is not remembered: the next trim would free it.
    rested: bool,
    /// The `date` field of responses without one.
    date: Option<HeaderValue>,
    /// The frames that are sent before DATA, in order.
    control: Vec<u8>,
    /// The long bodies among them. Boxed, because few connections have any.
    bodies: Option<Box<Bodies>>,
    /// The peer's SETTINGS_MAX_FRAME_SIZE.
    max_frame_size: u32,
    /// How many bytes of `control` are replies to the peer.
    owed: usize,
    /// The last list ended before what is less urgent.
    cut: bool,
    sent_frames: FrameCounts,
    sent_bytes: u64,
}

/// Long bodies of whole responses. Each follows so many octets of `Writer::control`.
#[derive(Debug, Default)]
struct Bodies(Vec<(usize, Bytes)>);

impl Writer {
    pub(super) fn new() -> Self {
        Writer {
            encoder: Encoder::new(DEFAULT_TABLE_SIZE),
            last_response: None,
            rested: false,
            date: None,
            control: Vec::new(),
            bodies: None,
            max_frame_size: DEFAULT_MAX_FRAME_SIZE,
            owed: 0,
            cut: false,
            sent_frames: FrameCounts::default(),
            sent_bytes: 0,
        }
    }

    /// Has the processor fetch the last response.
    #[inline]
    pub(super) fn prefetch(&self) {
        if let Some(last) = &self.last_response {
            prefetch(&**last);
            last.prefetch();
        }
        prefetch_start(&self.control, 64);
    }

    /// The preface (RFC 9113 section 3.4).
    pub(super) fn preface(&mut self, role: Role, settings: &[Setting]) {
        if role == Role::Client {
            self.control.extend_from_slice(PREFACE);
        }
        self.settings(settings);
    }

    pub(super) fn settings(&mut self, settings: &[Setting]) {
        Setting::write_all(settings, &mut self.control);
        self.sent_frames.add(FrameType::SETTINGS);
    }

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

    pub(super) fn ping_ack(&mut self, ping: Ping) {
        let reply = Ping { ack: true, ..ping };
        reply.write(&mut self.control);
        self.owed += FRAME_HEADER_LENGTH + PING_LENGTH;
        self.sent_frames.add(FrameType::PING);
    }

    /// WINDOW_UPDATE of a stream, or of the connection if there is none.
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

    /// HEADERS and CONTINUATION, each with at most as many bytes of payload as the peer accepts.
    pub(super) fn head(
        &mut self,
        stream: StreamId,
        end: bool,
        encode: impl FnOnce(&mut Encoder, &mut Vec<u8>),
    ) {
        let out = &mut self.control;
        let start = reserve_header_block(out);
        encode(&mut self.encoder, out);
        patch_header_block(out, start, stream, end, self.max_frame_size as usize);
        self.sent_frames.add(FrameType::HEADERS);
    }

    /// The HEADERS of a request.
    pub(super) fn request(&mut self, stream: StreamId, end: bool, request: &Request<()>) {
        self.head(stream, end, |encoder, out| {
            message::encode_request(encoder, request, out);
        });
    }

    /// Whether a final response repeats the last one, so that it is in order.
    pub(super) fn repeats(&self, response: &Response<()>) -> bool {
        let (Some(last), Some(changes)) = (&self.last_response, self.encoder.changes()) else {
            return false;
        };
        last.matches(response, self.date.as_ref(), changes)
    }

    /// The HEADERS of a final response, with a `date`. It [repeats](Self::repeats) the last one, or not.
    pub(super) fn response(&mut self, stream: StreamId, end: bool, response: &Response<()>, repeats: bool) {
        let date = self.date.take();
        if self.rested {
            self.rested = false;
            self.head(stream, end, |encoder, out| {
                message::encode_response(encoder, response, date.as_ref(), out);
            });
            self.date = date;
            return;
        }
        let mut last = self
            .last_response
            .take()
            .unwrap_or_else(|| Box::new(LastResponse::new()));
        self.head(stream, end, |encoder, out| {
            if repeats {
                out.extend_from_slice(last.block());
                return;
            }
            let (start, before) = (out.len(), encoder.changes());
            message::encode_response(encoder, response, date.as_ref(), out);
            if let (Some(before), Some(after)) = (before, encoder.changes()) {
                let block = out.get(start..).unwrap_or_default();
                last.encoded(block, (before, after), response, date.as_ref());
            }
        });
        self.date = date;
        self.last_response = Some(last);
    }

    /// A final response and its body, which is one frame, or none if it is empty.
    pub(super) fn whole_response(
        &mut self,
        stream: StreamId,
        response: &Response<()>,
        repeats: bool,
        body: &Bytes,
    ) {
        self.response(stream, body.is_empty(), response, repeats);
        if body.is_empty() {
            return;
        }
        write_data_header(&mut self.control, stream, body.len(), true);
        match body.len() <= INLINE_PAYLOAD {
            true => self.control.extend_from_slice(body),
            false => {
                let bodies = self.bodies.get_or_insert_default();
                bodies.0.push((self.control.len(), body.clone()));
            }
        }
        self.sent_frames.add(FrameType::DATA);
    }

    /// The header of a DATA frame, directly on the write list. The caller appends the payload.
    pub(super) fn data_header(&mut self, out: &mut Transmit, stream: StreamId, length: usize, end: bool) {
        out.put(|arena| write_data_header(arena, stream, length, end));
        self.sent_frames.add(FrameType::DATA);
    }

    /// Trailers, directly on the write list, after the DATA that is on it.
    pub(super) fn trailers(&mut self, out: &mut Transmit, stream: StreamId, trailers: &HeaderMap) {
        let encoder = &mut self.encoder;
        let max_frame_size = self.max_frame_size;
        out.put(|arena| {
            let start = reserve_header_block(arena);
            message::encode_trailers(encoder, trailers, arena);
            patch_header_block(arena, start, stream, true, max_frame_size as usize);
        });
        self.sent_frames.add(FrameType::HEADERS);
    }

    /// Moves all waiting frames to the write list.
    pub(super) fn drain_into(&mut self, out: &mut Transmit) {
        if self.control.is_empty() {
            return;
        }
        self.owed = 0;
        if let Some(bodies) = &mut self.bodies {
            let mut start = 0;
            for (end, body) in bodies.0.drain(..) {
                let before = self.control.get(start..end).unwrap_or_default();
                out.put(|arena| arena.extend_from_slice(before));
                out.put_payload(body.into());
                start = end;
            }
            self.control.drain(..start);
        }
        out.put_drained(&mut self.control);
    }

    /// The number of waiting bytes in memory of the connection.
    pub(super) fn len(&self) -> usize {
        self.control.len()
    }

    /// The number of waiting bytes, with bodies by reference.
    pub(super) fn waiting(&self) -> usize {
        let bodies = self.bodies.iter().flat_map(|bodies| &bodies.0);
        self.control.len() + bodies.map(|(_, body)| body.len()).sum::<usize>()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.control.is_empty()
    }

    /// How many of them are replies to the peer.
    pub(super) fn owed(&self) -> usize {
        self.owed
    }

    /// The next RST_STREAM counts as a reply to the peer.
    pub(super) fn owe_reset(&mut self) {
        self.owed += RESET_LENGTH;
    }

    /// The list ends before what is less urgent.
    pub(super) fn cut(&mut self) {
        self.cut = true;
    }

    /// Whether the list before did.
    pub(super) fn take_cut(&mut self) -> bool {
        std::mem::take(&mut self.cut)
    }

    /// Counts bytes that were put on a write list, DATA included.
    pub(super) fn note_sent(&mut self, octets: usize) {
        self.sent_bytes += octets as u64;
    }

    pub(super) fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    pub(super) fn sent_frames(&self) -> &FrameCounts {
        &self.sent_frames
    }

    pub(super) fn set_max_frame_size(&mut self, octets: u32) {
        self.max_frame_size = octets;
    }

    pub(super) fn set_table_size(&mut self, octets: u32) {
        self.encoder.set_max_table_size(octets as usize);
    }

    pub(super) fn set_date(&mut self, date: HeaderValue) {
        self.date = Some(date);
    }

    pub(super) fn trim(&mut self) {
        self.encoder.trim();
        self.last_response = None;
        self.rested = true;
        self.date = None;
        self.control.shrink_to_fit();
        self.bodies.take_if(|bodies| bodies.0.is_empty());
    }
}
