//! Builds a write list: WINDOW_UPDATE, control frames and field blocks, then DATA in the order of the schedule, until
//! the list is full.

use bytes::Buf;

use super::Connection;
use super::streams::{AfterEnd, Entry};
use super::writer::Writer;
use crate::config::Config;
use crate::event::Event;
use crate::frame::FRAME_HEADER_LENGTH;
use crate::role::Role;
use crate::stream::{Phase, SendHalf, Stream};
use crate::time::Time;
use crate::transmit::Transmit;

/// The most slices of one write list.
pub(super) const MAX_SLICES: usize = 64;

/// The most turns of one write list. A peer that opens ten thousand windows by one byte each causes as many frames;
/// other connections are served in between.
const MAX_TURNS: usize = 1_024;

/// Shorter lists are not aligned to records: they are no part of a long transfer.
const LEAST_RECORDS: usize = 4;

/// The largest DATA payload that is sent, in bytes: a TLS record, and what every peer accepts (RFC 9113 section 6.5.2).
pub(super) const LARGEST_DATA: usize = 16_384;

/// A frame header and a payload.
const SLICES_OF_A_FRAME: usize = 2;

/// A frame that the window, not the data, would make smaller than this is held back (law 6).
const TINY_FRAME: usize = 2_048;

/// The outcome of a stream's turn.
enum Served {
    /// A frame was built, perhaps with the end of the message.
    Framed(AfterEnd),
    /// As [`Self::Framed`], and the list ends with the record.
    Last(AfterEnd),
    /// The frame is held back.
    Held,
    /// The list ends before the frame: with the record, or because the connection's window is closed.
    Full,
    /// The list ends before the frame, which is less urgent.
    LessUrgent,
    /// No stream has both data and window.
    None,
}

/// A list while DATA is added to it.
struct List {
    /// About how many bytes it may have.
    most: usize,
    /// Whether it ends before what is less urgent.
    cuts: bool,
    /// The urgency of its last DATA.
    urgency: Option<u8>,
}

impl List {
    /// Whether it ends before DATA of this stream: because the DATA is less urgent than that before it, or continues a
    /// body that began before the frames which the list has.
    fn ends_before(&self, stream: &Stream, out: &Transmit) -> bool {
        match self.urgency {
            Some(urgency) => stream.priority.urgency() > urgency,
            None => out.has_remaining() && stream.send.credit.sent() > 0,
        }
    }
}

impl Connection {
    /// Whether [`Self::transmit`] has something to write.
    pub fn wants_transmit(&self) -> bool {
        !self.writer.is_empty()
            || self.streams.has_ends()
            || self.streams.refills_due()
            || (!self.shutdown.has_failed() && self.flow.refill_due(false))
            || (self.has_data() && !self.connection_holds())
            || self.owes_credit()
    }

    /// Whether a stream has data that all windows allow.
    pub(super) fn has_data(&self) -> bool {
        !self.streams.has_nothing_to_send() && self.flow.credit().usable() > 0
    }

    /// Whether a frame is held back because of the connection's window.
    fn connection_holds(&self) -> bool {
        self.flow
            .held_until(&self.config)
            .is_some_and(|until| until > self.now)
    }

    /// Appends what is to be written to `out`, up to about [`Config::write_size`] and 64 slices. Each DATA frame
    /// spends its credit here (law 7). Write `out` completely, then call again while [`Self::wants_transmit`].
    pub fn transmit(&mut self, out: &mut Transmit, now: Time) {
        self.transmit_within(out, usize::MAX, now);
    }

    /// As [`Self::transmit`], up to about `most` bytes if that is less: what is on a list is past all scheduling
    /// (law 9). Frames other than DATA are not limited by it. A list exceeds it by less than a frame, and over TLS
    /// ([`Config::record_size`]) by less than a record. There, a list that begins with something more urgent ends
    /// before the bulk DATA that follows: a record is of no use to the peer until its end has arrived.
    pub fn transmit_within(&mut self, out: &mut Transmit, most: usize, now: Time) {
        self.advance_time(now);
        // The previous list has been written.
        self.deadlines.hold(0);
        let before = out.remaining();
        self.write_refills();
        self.flow.overhead_mut().list(self.writer.len());
        self.lease_overhead();
        self.writer.drain_into(out);
        // Never twice in a row, so that what is less urgent continues whatever else is to be sent.
        let was_cut = self.writer.take_cut();
        let cuts = most < usize::MAX && self.config.record_size > 0 && !was_cut;
        let mut list = List {
            most: self.config.write_size.min(most).max(1),
            cuts,
            urgency: None,
        };
        let most = list.most;
        let mut turns = self.write_ends(out, most);
        while out.slices() < MAX_SLICES && out.remaining() < most && turns < MAX_TURNS {
            turns += 1;
            match self.write_data(out, &mut list) {
                Served::Framed(after) => {
                    self.follow_up(after);
                    // The end of a stream may have opened a waiting request. Its HEADERS must precede its DATA.
                    self.writer.drain_into(out);
                }
                Served::Last(after) => {
                    self.follow_up(after);
                    break;
                }
                Served::Held => {}
                Served::LessUrgent => {
                    self.writer.cut();
                    break;
                }
                Served::Full | Served::None => break,
            }
        }
        self.writer.note_sent(out.remaining() - before);
        if self.streams.waiting() > 0 {
            // Their HEADERS leave with the next list, before their DATA.
            self.open_waiting();
        }
        if self.owes_credit() {
            self.announce_credit();
        }
        let sent = self.flow.credit().sent();
        // DATA of responses may have been written ahead of the list.
        let data_left = core::mem::replace(&mut self.listed_data, sent) < sent;
        if self.role == Role::Client && self.ledgers.may_ask_whether_drained(sent) {
            self.ask_whether_drained();
        }
        self.update_sending_ledger(data_left);
    }

    /// Writes END_STREAM or trailers of streams whose DATA was sent. They need no credit. The next list has those that find no
    /// room in this one. Returns how many streams had their turn.
    fn write_ends(&mut self, out: &mut Transmit, most: usize) -> usize {
        let mut turns = 0;
        while out.remaining() < most && turns < MAX_TURNS {
            let Some(key) = self.streams.end(turns) else {
                break;
            };
            turns += 1;
            // The stream may have been closed or removed since it was listed.
            let Some(mut stream) = self.streams.get(key) else {
                continue;
            };
            if stream.state.is_closed() || !stream.only_end_is_missing() {
                continue;
            }
            write_end(&mut stream, &mut self.writer, out);
            let after = stream.end_sending(&self.config, &self.ledgers, self.now);
            self.follow_up(after);
            self.writer.drain_into(out);
        }
        self.streams.drop_ends(turns);
        turns
    }

    /// Builds one DATA frame of the stream whose turn it is.
    fn write_data(&mut self, out: &mut Transmit, list: &mut List) -> Served {
        let connection_window = self.flow.credit().usable();
        let Some(mut stream) = self.streams.next_to_send() else {
            return Served::None;
        };
        if connection_window == 0 {
            return Served::Full;
        }
        if list.cuts {
            if list.ends_before(&stream, out) {
                return Served::LessUrgent;
            }
            list.urgency = Some(stream.priority.urgency());
        }
        let half = &mut stream.send;
        let stream_window = half.credit.usable();
        let wanted = half.queue.bytes().min(LARGEST_DATA);
        let length = wanted.min(stream_window).min(connection_window);
        if length < wanted && length < TINY_FRAME {
            let by_stream = stream_window < wanted;
            let (since, largest_window) = match by_stream {
                true => (*half.held_since.get_or_insert(self.now), half.credit.largest()),
                false => (self.flow.hold(self.now), self.flow.credit().largest()),
            };
            let waited = self.now.since(since) >= self.config.tiny_frame_wait;
            if !waited && length < largest_window / 4 {
                if !by_stream {
                    return Served::Full;
                }
                stream.hold_back(since);
                self.ledgers.note_stream_sending(&mut stream, self.now);
                return Served::Held;
            }
        }
        let (length, is_full) = match within_record(out, length, half, list.most, &self.config) {
            Some(0) => return Served::Full,
            Some(whole) => (whole, true),
            None => (length, false),
        };
        half.held_since = None;
        let last = length == half.queue.bytes() && half.phase == Phase::Done;
        let end = last && half.trailers.is_none();
        self.writer.data_header(out, stream.id, length, end);
        let half = &mut stream.send;
        half.queue.take(length, |chunk| out.put_payload(chunk));
        half.credit.spend(length);
        self.flow.spend(length);
        self.guards.earn_by_data(length);
        if half.wants_room.is_some_and(|most| half.queue.bytes() <= most) {
            half.wants_room = None;
            self.events.push(Event::Writable(stream.id));
        }
        let ready = stream.served();
        let after = if last {
            if !end {
                write_end(&mut stream, &mut self.writer, out);
            }
            stream.end_sending(&self.config, &self.ledgers, self.now)
        } else {
            if !ready {
                self.ledgers.note_stream_sending(&mut stream, self.now);
            }
            AfterEnd::Nothing
        };
        match is_full {
            true => Served::Last(after),
            false => Served::Framed(after),
        }
    }
}

fn write_end(stream: &mut Entry<'_>, writer: &mut Writer, out: &mut Transmit) {
    match stream.send.trailers.take() {
        None => writer.data_header(out, stream.id, 0, true),
        Some(trailers) => writer.trailers(out, stream.id, &trailers),
    }
}

/// The length of the next frame if the list is to end with it at the end of a TLS record: because the list is full
/// then, or because the body continues and has no more data now. None otherwise. A list that is short by itself is no
/// part of a long transfer; one that is short because of its limit of at least a record may be.
fn within_record(
    out: &Transmit,
    length: usize,
    half: &SendHalf,
    most: usize,
    config: &Config,
) -> Option<usize> {
    let record = config.record_size;
    let before = out.remaining();
    if record == 0 {
        return None;
    }
    let after = before + FRAME_HEADER_LENGTH + length;
    let whole = length.saturating_sub(after % record);
    if before < LEAST_RECORDS * record {
        return (after >= most && most >= record && whole > 0).then_some(whole);
    }
    let is_full = after >= most || out.slices() + SLICES_OF_A_FRAME >= MAX_SLICES;
    let pauses = half.phase == Phase::Body && half.queue.bytes() - length < record;
    (is_full || pauses).then_some(whole)
}
