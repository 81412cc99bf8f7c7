//! Building a write: control frames, WINDOW_UPDATEs, then DATA in the order of the schedule, until the list is full.

use bytes::Buf;

use super::Connection;
use super::memory::{self, largest_stream_window};
use crate::config::Config;
use crate::event::Event;
use crate::frame::{HEAD_LENGTH, Kind, patch_header_block, reserve_header_block, write_data_head};
use crate::id::Key;
use crate::message;
use crate::stream::{Phase, RefillListing, SendHalf, State};
use crate::time::Time;
use crate::transmit::Transmit;

/// The most slices of one write: what a driver passes to the kernel at once.
pub(super) const MAX_SLICES: usize = 64;

/// The most streams that have their turn in one list: a peer that opens ten thousand windows by an octet each has as many
/// frames built, and others have their turn between.
const MAX_TURNS: usize = 1_024;

/// A list shorter than so many records ends where it ends: it is no part of a long transfer.
const LEAST_RECORDS: usize = 4;

/// The head of a DATA frame, and its payload.
const SLICES_OF_A_FRAME: usize = 2;

/// A frame below this that the window, not the data, would make so small is held back for a while (law 6).
const TINY_FRAME: usize = 2_048;

/// What became of a stream whose turn it was.
enum Turn {
    /// A frame left.
    Framed,
    /// Nothing can leave before the connection's window opens.
    ConnectionBlocked,
    /// Its frame is held back.
    Held,
    /// The list ends here, with the record.
    Full,
}

impl Connection {
    /// Whether [`Self::transmit`] has something to give.
    pub fn wants_transmit(&self) -> bool {
        !self.control.is_empty()
            || !self.ends.is_empty()
            || self.refills_due > 0
            || (self.failed.is_none() && self.connection_refill_due(false))
            || (!self.schedule.is_empty() && self.send_credit.usable() > 0 && !self.connection_holds())
    }

    /// Whether the connection's window is to be refilled: also when the readers of some streams hold so much of it that
    /// the rest would never come to a refill, and all other streams with it (law 5).
    fn connection_refill_due(&self, leaving: bool) -> bool {
        self.receive_window.refill_due(leaving) || self.receive_window.until_unchoked() == Some(0)
    }

    /// Whether a frame is held back that the connection's window would cut tiny.
    fn connection_holds(&self) -> bool {
        let wait = self.config.tiny_frame_wait;
        self.held_since.is_some_and(|since| self.now.since(since) < wait)
    }

    /// Appends to `out` what is to be written, up to about [`Config::write_size`] and 64 slices. Credit is spent here, frame by
    /// frame (law 7). Call it again once `out` is written, while [`Self::wants_transmit`].
    pub fn transmit(&mut self, out: &mut Transmit, now: Time) {
        self.see(now);
        // The list before this one has been written.
        self.deadlines.unsent = 0;
        let before = out.remaining();
        let data_before = self.stats.sent_data_bytes;
        self.write_refills();
        self.overhead.listed = self.control.len() as u64;
        self.cover_overhead();
        out.put_drained(&mut self.control);
        self.owed = 0;
        self.write_ends(out);
        let most = self.config.write_size.max(1);
        let mut turns = 0;
        while out.slices() < MAX_SLICES && out.remaining() < most && turns < MAX_TURNS {
            turns += 1;
            let Some(key) = self.schedule.peek() else {
                break;
            };
            match self.write_data(key, out) {
                // The end of a stream may have let a waiting request out, whose head must not come behind its body.
                Turn::Framed | Turn::Held => self.write_control(out),
                Turn::ConnectionBlocked | Turn::Full => break,
            }
        }
        self.stats.sent_bytes += (out.remaining() - before) as u64;
        if !self.waiting.is_empty() {
            // Their heads leave with the next list, before their bodies.
            self.open_waiting();
        }
        self.account_sending(self.stats.sent_data_bytes > data_before);
    }

    fn write_control(&mut self, out: &mut Transmit) {
        if !self.control.is_empty() {
            out.put_drained(&mut self.control);
        }
    }

    /// WINDOW_UPDATEs, at most one a stream and one for the connection (law 2).
    fn write_refills(&mut self) {
        if self.failed.is_some() {
            return;
        }
        let leaving = !self.control.is_empty()
            || !self.ends.is_empty()
            || self.refills_due > 0
            || (!self.schedule.is_empty() && self.send_credit.usable() > 0);
        if self.connection_refill_due(leaving) {
            self.tune_connection();
            self.refill_connection();
        } else if !leaving {
            return;
        }
        for key in core::mem::take(&mut self.refills) {
            let Some(stream) = self.streams.get_mut(key) else {
                continue;
            };
            let half = &mut stream.receive;
            half.refill = RefillListing::None;
            // Silent once the peer has ended its half.
            if half.phase == Phase::Done || !stream.state.can_receive() || !half.window.refill_due(true) {
                continue;
            }
            let outgrown = half.pace.outgrows(
                self.now,
                half.window.consumed(),
                half.window.size().bytes(),
                self.stats.round_trip.minimum(),
            );
            if !self.config.adaptive {
                half.window.set_keen(outgrown.unwrap_or(half.window.is_keen()));
            } else if outgrown == Some(true) {
                let most = largest_stream_window(&self.config, self.receive_window.size());
                memory::double(&mut half.window, most);
                self.largest_stream_window = self.largest_stream_window.max(half.window.size());
            }
            self.refill_stream(key);
        }
        self.refills_due = 0;
    }

    /// END_STREAM and trailers of streams whose data has left: they need no credit.
    fn write_ends(&mut self, out: &mut Transmit) {
        for key in core::mem::take(&mut self.ends) {
            let ready = self
                .streams
                .get(key)
                .is_some_and(|stream| !stream.state.is_closed() && stream.only_end_is_missing());
            if ready {
                self.write_end(key, out);
                self.write_control(out);
            }
        }
    }

    fn write_end(&mut self, key: Key, out: &mut Transmit) {
        let Some(stream) = self.streams.get_mut(key) else {
            return;
        };
        match stream.send.trailers.take() {
            None => {
                out.put(|arena| write_data_head(arena, key.id(), 0, true));
                self.stats.sent_frames.add(Kind::DATA);
            }
            Some(trailers) => {
                let encoder = &mut self.encoder;
                let max_frame_size = self.peer.max_frame_size as usize;
                out.put(|arena| {
                    let start = reserve_header_block(arena);
                    message::encode_trailers(encoder, &trailers, arena);
                    patch_header_block(arena, start, key.id(), true, max_frame_size);
                });
                self.stats.sent_frames.add(Kind::HEADERS);
            }
        }
        self.send_ended(key);
    }

    /// One DATA frame of the stream whose turn it is.
    fn write_data(&mut self, key: Key, out: &mut Transmit) -> Turn {
        let connection_window = self.send_credit.usable();
        let largest = self.config.send_frame_size.min(self.peer.max_frame_size) as usize;
        let Some(stream) = self.streams.get_mut(key) else {
            // It cannot be: a stream leaves the schedule before it is forgotten. Were it so, others must not starve.
            self.schedule.served(false);
            return Turn::Framed;
        };
        if connection_window == 0 {
            return Turn::ConnectionBlocked;
        }
        let half = &mut stream.send;
        let stream_window = half.credit.usable();
        let wanted = half.queue.bytes().min(largest);
        let length = wanted.min(stream_window).min(connection_window);
        if length < wanted && length < TINY_FRAME {
            let by_stream = stream_window < wanted;
            let (since, credit) = match by_stream {
                true => (&mut half.held_since, &half.credit),
                false => (&mut self.held_since, &self.send_credit),
            };
            let since = *since.get_or_insert(self.now);
            let waited = self.now.since(since) >= self.config.tiny_frame_wait;
            if !waited && length < credit.largest() / 4 {
                if !by_stream {
                    return Turn::ConnectionBlocked;
                }
                half.scheduled = self.schedule.served(false);
                self.held.insert((since, key));
                self.account_stream_sending(key);
                return Turn::Held;
            }
        }
        let (length, is_full) = match within_record(out, length, half, &self.config) {
            Some(0) => return Turn::Full,
            Some(whole) => (whole, true),
            None => (length, false),
        };
        half.held_since = None;
        self.held_since = None;
        let last = length == half.queue.bytes() && half.phase == Phase::Done;
        let end = last && half.trailers.is_none();
        out.put(|arena| write_data_head(arena, key.id(), length, end));
        half.queue.take(length, |chunk| out.put_payload(chunk));
        half.credit.spend(length);
        self.send_credit.spend(length);
        self.guards.window_updates.earn(4 + length / 1_024);
        self.stats.sent_frames.add(Kind::DATA);
        self.stats.sent_data_bytes += length as u64;
        if half.wants_room.is_some_and(|most| half.queue.bytes() <= most) {
            half.wants_room = None;
            self.events.push(Event::Writable(key.id()));
        }
        let ready = !half.queue.is_empty() && half.credit.usable() > 0;
        half.scheduled = self.schedule.served(ready);
        half.window_blocked = !ready && !half.queue.is_empty();
        self.window_blocked += usize::from(half.window_blocked);
        if end {
            self.send_ended(key);
        } else if last {
            self.write_end(key, out);
        } else if !ready {
            self.account_stream_sending(key);
        }
        match is_full {
            true => Turn::Full,
            false => Turn::Framed,
        }
    }

    /// Puts a stream where it belongs after its queue, its window or its state changed.
    pub(super) fn reschedule(&mut self, key: Key) {
        let Some(stream) = self.streams.get_mut(key) else {
            return;
        };
        if stream.state == State::Waiting || stream.state.is_closed() {
            return;
        }
        let half = &mut stream.send;
        let ready = !half.queue.is_empty() && half.credit.usable() > 0;
        let blocked = !half.queue.is_empty() && !ready;
        if blocked != half.window_blocked {
            half.window_blocked = blocked;
            match blocked {
                true => self.window_blocked += 1,
                false => self.window_blocked -= 1,
            }
        }
        match half.scheduled {
            None if ready => half.scheduled = Some(self.schedule.insert(key, stream.priority)),
            Some(turn) if !ready => {
                half.scheduled = None;
                self.schedule.remove(turn, stream.priority);
            }
            _ => {}
        }
        if let Some(since) = half.held_since.filter(|_| ready) {
            // More credit or data has come: judge anew whether the frame is tiny, but keep its time.
            self.held.remove(&(since, key));
        }
        if stream.only_end_is_missing() {
            self.ends.push(key);
        }
        self.account_stream_sending(key);
    }

    /// Frames that were held back long enough leave as they are.
    pub(super) fn release_held_frames(&mut self) {
        let wait = self.config.tiny_frame_wait;
        while let Some(&(since, key)) = self.held.first() {
            if self.now.since(since) < wait {
                return;
            }
            self.held.pop_first();
            self.work += 1;
            self.reschedule(key);
        }
    }
}

/// How long the next frame may be, when the list should end with it at the end of a record: because it is full then, or
/// because there is no more for now and the body goes on. None when that is not so, or the list is short.
fn within_record(out: &Transmit, length: usize, half: &SendHalf, config: &Config) -> Option<usize> {
    let record = config.record_size;
    let before = out.remaining();
    if record == 0 || before < LEAST_RECORDS * record {
        return None;
    }
    let after = before + HEAD_LENGTH + length;
    let is_full = after >= config.write_size || out.slices() + SLICES_OF_A_FRAME >= MAX_SLICES;
    let pauses = half.phase == Phase::Body && half.queue.bytes() - length < record;
    (is_full || pauses).then(|| length.saturating_sub(after % record))
}
