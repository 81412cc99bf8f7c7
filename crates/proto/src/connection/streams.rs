//! The streams of a connection: those that are stored, how many may be, and the lists on which they stand.
//!
//! A stream is looked up once a step. What is found is an [`Entry`]: the stream, its key, and the lists, so that a change of the
//! stream and its place on the lists go together.

mod closed;
mod refills;
mod sending;
mod store;

use core::ops::{Deref, DerefMut};
use core::time::Duration;
use std::collections::VecDeque;

use http::Request;

use self::closed::ClosedLog;
use self::refills::Refills;
use self::sending::Sending;
use self::store::Store;
use super::ledgers::Ledgers;
use super::writer::Writer;
use crate::config::Config;
use crate::error::{Side, StreamError};
use crate::event::{Event, Events};
use crate::flow::{Lease, ReceiveWindow, SendCredit, WindowSize};
use crate::id::{Key, StreamId};
use crate::invariant::infallible;
use crate::priority::Priority;
use crate::role::Role;
use crate::schedule::Ranked;
use crate::stream::{Cause, Stream, StreamState};
use crate::time::Time;

pub(super) use self::closed::ClosedBy;

/// How many streams a connection leases at once, so that most requests cost no atomic operation.
const STREAM_BLOCK: u64 = 16;

/// So many streams gone through, or entries moved, take about a quarter of a millisecond.
pub(super) const MUCH_WORK: u64 = 2_048;

/// What a request counts as: 64 of them are much work. The owner runs their handlers before it calls again, and a read of
/// 8 KiB brings some 330: 3 ms of files in memory, for which every other connection of the thread would wait.
const WORK_OF_A_REQUEST: u64 = MUCH_WORK / 64;

/// The streams of a connection.
#[derive(Debug)]
pub(super) struct Streams {
    role: Role,
    store: Store,
    lists: Lists,
    closed: ClosedLog,
    /// The next stream that we open; none when identifiers are used up.
    next_stream: Option<StreamId>,
    /// The highest stream that the peer has opened; 0 for none.
    highest_peer_stream: u32,
    /// Streams that have finished well and are not released: they count against no limit.
    finished: usize,
    /// Streams that were reset and are not released: they count against [`Config::reset_stream_grace`].
    reset_held: u32,
    /// Streams of ours that wait for the peer to allow them, in order.
    waiting: Ranked,
    /// How many streams are leased from the budget.
    lease: Lease,
    work: u64,
}

/// What an [`Entry`] may change beside its stream.
#[derive(Debug)]
struct Lists {
    sending: Sending,
    refills: Refills,
    /// Streams whose response is whole and whose request is not, and until when the rest of it is accepted.
    early: VecDeque<(Time, Key)>,
    /// How much memory the field sections of all streams take, in octets, beyond what is free to each.
    header_memory: usize,
    /// Streams of ours that are open or half closed.
    active: u32,
}

/// A stream that was found, with the lists on which it stands.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    key: Key,
    stream: &'a mut Stream,
    lists: &'a mut Lists,
}

/// What remains to be done once one half of a stream has ended. The stream is not borrowed any more then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(super) enum AfterEnd {
    /// The other half is open.
    Nothing,
    /// The response is whole, and the rest of the request is accepted for a while although nobody reads it.
    Tolerated,
    /// The stream is closed.
    Closed { key: Key, released: bool },
}

/// What remains to be done once a stream was closed by a reset.
#[derive(Debug, Clone, Copy)]
#[must_use]
pub(super) struct Reset {
    key: Key,
    /// It had not been opened: it waited for the peer to allow it.
    waited: bool,
    /// Its owner has released it.
    released: bool,
    /// Its owner has not heard of it, and never will.
    withdrawn: bool,
}

impl Streams {
    pub(super) fn new(role: Role, config: &Config, initial_window: WindowSize) -> Self {
        Streams {
            role,
            store: Store::default(),
            lists: Lists {
                sending: Sending::new(config.scheduling),
                refills: Refills::new(initial_window),
                early: VecDeque::new(),
                header_memory: 0,
                active: 0,
            },
            closed: ClosedLog::default(),
            next_stream: (role == Role::Client).then_some(StreamId::FIRST_CLIENT),
            highest_peer_stream: 0,
            finished: 0,
            reset_held: 0,
            waiting: Ranked::default(),
            lease: Lease::of_streams(config.stream_budget.as_ref(), config.share.as_ref()),
            work: 0,
        }
    }

    /// How many are stored.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.store.len()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.store.len() == 0
    }

    /// All of them, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Stream> {
        self.store.iter()
    }

    /// All of them, for one look at each.
    pub(super) fn visit_all(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.note_walk();
        self.store.iter_mut()
    }

    /// The keys of all of them.
    pub(super) fn keys(&self) -> Vec<Key> {
        self.store.keys()
    }

    /// Whether a stream is stored.
    pub(super) fn find(&self, id: StreamId) -> Option<Key> {
        self.store.find(id)
    }

    /// A stream that is only looked at.
    pub(super) fn view(&self, id: StreamId) -> Option<&Stream> {
        self.store.view(id)
    }

    #[inline]
    pub(super) fn by_id(&mut self, id: StreamId) -> Option<Entry<'_>> {
        let (key, stream) = self.store.by_id(id)?;
        let lists = &mut self.lists;
        Some(Entry { key, stream, lists })
    }

    /// A stream by the key that was kept of it; none when it was removed meanwhile.
    #[inline]
    pub(super) fn get(&mut self, key: Key) -> Option<Entry<'_>> {
        let stream = self.store.get_mut(key)?;
        let lists = &mut self.lists;
        Some(Entry { key, stream, lists })
    }

    /// The stream at this index, of [`Self::len`] ones.
    pub(super) fn at(&mut self, index: usize) -> Option<Entry<'_>> {
        let (key, stream) = self.store.at(index)?;
        let lists = &mut self.lists;
        Some(Entry { key, stream, lists })
    }

    /// The stream whose DATA frame is next; none when no stream has data that its window allows.
    #[inline]
    pub(super) fn next_to_send(&mut self) -> Option<Entry<'_>> {
        let key = self.lists.sending.first()?;
        let lists = &mut self.lists;
        let found = infallible(
            self.store.get_mut(key),
            "closing a stream takes it off the schedule",
        );
        let Some(stream) = found else {
            // Other streams must not starve.
            lists.sending.skip();
            return None;
        };
        Some(Entry { key, stream, lists })
    }

    /// A stream that is to be stored by [`Self::insert`].
    pub(super) fn create(
        &self,
        id: StreamId,
        state: StreamState,
        credit: u32,
        config: &Config,
        now: Time,
    ) -> Box<Stream> {
        let size = self.lists.refills.initial();
        let window = ReceiveWindow::new(size.bytes(), size, config.stream_refill);
        let window = match config.adaptive {
            true => window,
            false => window.fixed(),
        };
        Box::new(Stream::new(id, state, window, SendCredit::new(credit), now))
    }

    /// Stores a stream.
    pub(super) fn insert(&mut self, stream: Box<Stream>) -> Entry<'_> {
        let lists = &mut self.lists;
        lists.header_memory += stream.header_memory;
        let (key, stream) = self.store.insert(stream);
        Entry { key, stream, lists }
    }

    /// Forgets a stream.
    fn remove(&mut self, key: Key) {
        if let Some(stream) = infallible(self.store.remove(key), "the caller has found it") {
            self.lists.header_memory -= stream.header_memory;
        }
    }

    /// The identifier of the next stream of ours; none when they are used up.
    pub(super) fn next_id(&self) -> Option<StreamId> {
        self.next_stream
    }

    /// Takes the identifier of the next stream of ours.
    pub(super) fn take_id(&mut self) -> Option<StreamId> {
        let id = self.next_stream?;
        self.next_stream = id.next();
        Some(id)
    }

    /// The peer opens a stream, and closes those below that it left out (RFC 9113 section 5.1.1).
    pub(super) fn open_by_peer(&mut self, id: StreamId) {
        self.closed.open(self.highest_peer_stream, id);
        self.highest_peer_stream = id.value();
    }

    /// The highest stream that the peer has opened; 0 for none.
    pub(super) fn highest_peer_stream(&self) -> u32 {
        self.highest_peer_stream
    }

    /// Whether the identifier belongs to no stream yet (RFC 9113 section 5.1, idle).
    pub(super) fn is_idle(&self, id: StreamId) -> bool {
        // An identifier that waits for its turn has not been used on the wire.
        self.is_unopened(id) || self.role == Role::Client && self.view(id).is_some_and(Stream::is_waiting)
    }

    /// As [`Self::is_idle`], but for a stream of ours that waits, which the caller has to see by its state.
    #[inline]
    pub(super) fn is_unopened(&self, id: StreamId) -> bool {
        match (self.role, id.is_client_initiated()) {
            (Role::Server, true) => id.value() > self.highest_peer_stream,
            (Role::Client, true) => self.next_stream.is_some_and(|next| id >= next),
            // Push is refused, so that no stream of a server ever leaves this state.
            (_, false) => true,
        }
    }

    /// What became of a stream that is neither stored nor idle.
    pub(super) fn closed_by(&self, id: StreamId) -> ClosedBy {
        self.closed.closed_by(id)
    }

    /// A stream was reset.
    pub(super) fn remember_reset(&mut self, id: StreamId, by: Side) {
        self.closed.remember(id, by);
    }

    /// Whether one more stream of the peer may begin; otherwise the reason why it is refused.
    pub(super) fn check_room(&mut self, config: &Config) -> Result<(), &'static str> {
        // RFC 9113 section 5.1.2 counts no closed streams, but the owner may not have released them yet.
        let held = self.store.len() - self.finished;
        let limit = config.max_concurrent_streams as usize;
        if held - self.reset_held as usize >= limit {
            return Err("more streams than SETTINGS_MAX_CONCURRENT_STREAMS");
        }
        if held >= limit.saturating_add(config.reset_stream_grace as usize) {
            return Err("streams are reset faster than their handlers end");
        }
        // The only stream of a connection needs no lease: every connection is served, however many streams others hold.
        let streams = self.store.len() as u64;
        let lease = &mut self.lease;
        let leased = streams == 0 || streams < lease.held() || lease.grow(STREAM_BLOCK) || lease.grow(1);
        match leased {
            true => Ok(()),
            false => Err("the server, or this peer, has as many streams as its limit allows"),
        }
    }

    /// How much memory the field sections of all streams take, in octets, beyond what is free to each.
    #[inline]
    pub(super) fn header_memory(&self) -> usize {
        self.lists.header_memory
    }

    /// Streams of ours that are open or half closed.
    #[inline]
    pub(super) fn active(&self) -> u32 {
        self.lists.active
    }

    /// A stream of ours has been opened.
    pub(super) fn note_opened(&mut self) {
        self.lists.active += 1;
    }

    /// A stream of ours waits for the peer to allow it.
    pub(super) fn wait(&mut self, key: Key) {
        self.waiting.insert(u64::from(key.id().value()), key);
    }

    /// How many do.
    #[inline]
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Takes the first of them off the list, with its request.
    pub(super) fn pop_waiting(&mut self) -> Option<(Entry<'_>, Box<Request<()>>)> {
        let key = self.waiting.pop_first()?;
        let mut stream = infallible(self.get(key), "closing a stream ends its wait")?;
        let request = infallible(stream.send.waiting.take(), "a stream that waits has its request")?;
        Some((stream, request))
    }

    /// A half has ended, and the stream with it.
    pub(super) fn finish(&mut self, key: Key, released: bool) {
        match released {
            true => self.remove(key),
            false => self.finished += 1,
        }
        if self.role == Role::Client {
            self.lists.active -= 1;
        }
    }

    /// A stream was closed by a reset. Whether it is gone.
    pub(super) fn finish_reset(&mut self, reset: Reset, error: &StreamError) -> bool {
        self.closed.remember(error.stream, error.by);
        if reset.waited {
            self.work += self.waiting.remove(u64::from(error.stream.value())) as u64;
        } else if self.role == Role::Client {
            self.lists.active -= 1;
        }
        if reset.withdrawn {
            self.work = self.work.saturating_sub(WORK_OF_A_REQUEST);
        }
        let gone = reset.released || reset.withdrawn;
        match gone {
            true => self.remove(reset.key),
            false => self.reset_held += 1,
        }
        gone
    }

    /// A stream that is closed is released by its owner.
    pub(super) fn forget(&mut self, key: Key, cause: Cause) {
        match cause {
            Cause::Finished => self.finished -= 1,
            Cause::Reset { .. } => self.reset_held -= 1,
        }
        self.remove(key);
    }

    /// Whether nothing can be sent before a window opens or data comes.
    #[inline]
    pub(super) fn has_nothing_to_send(&self) -> bool {
        self.lists.sending.is_empty()
    }

    /// Whether data waits for windows of streams.
    pub(super) fn is_blocked(&self) -> bool {
        self.lists.sending.is_blocked()
    }

    /// Whether some stream lacks only END_STREAM or trailers.
    #[inline]
    pub(super) fn has_ends(&self) -> bool {
        self.lists.sending.has_ends()
    }

    /// The streams that lack only END_STREAM or trailers. A stream that was closed meanwhile may be among them.
    pub(super) fn take_ends(&mut self) -> Vec<Key> {
        self.lists.sending.take_ends()
    }

    /// Since when the first frame that is held back by a stream's window has been.
    pub(super) fn held_since(&self) -> Option<Time> {
        self.lists.sending.held_since()
    }

    /// The first stream whose frame is held back.
    pub(super) fn pop_held(&mut self) -> Option<Entry<'_>> {
        self.work += 1;
        let key = self.lists.sending.pop_held()?;
        infallible(self.get(key), "closing a stream takes it off the list")
    }

    /// Whether the window of some stream is due for a refill without a write to join.
    #[inline]
    pub(super) fn refills_due(&self) -> bool {
        self.lists.refills.is_due()
    }

    /// The streams whose windows are due, or nearly. A stream that was closed meanwhile may be among them.
    pub(super) fn take_refills(&mut self) -> Vec<Key> {
        self.lists.refills.take()
    }

    /// The window that streams begin with.
    #[inline]
    pub(super) fn initial_window(&self) -> WindowSize {
        self.lists.refills.initial()
    }

    /// The largest window that a stream has grown to.
    pub(super) fn largest_window(&self) -> WindowSize {
        self.lists.refills.largest()
    }

    /// Until when the rest of the first request is accepted whose response is whole.
    pub(super) fn early_deadline(&self) -> Option<Time> {
        self.lists.early.front().map(|&(until, _)| until)
    }

    /// The first stream whose request took too long to end behind its response.
    pub(super) fn pop_early(&mut self, now: Time) -> Option<StreamId> {
        while let Some(&(until, key)) = self.lists.early.front() {
            // It may have been closed, or removed, since it was listed.
            let stream = self.store.get_mut(key);
            let open = stream.is_some_and(|stream| !stream.state.is_closed());
            if open && until > now {
                return None;
            }
            self.lists.early.pop_front();
            if open {
                return Some(key.id());
            }
        }
        None
    }

    /// Streams that were gone through for one frame, and entries of lists that were moved for others.
    #[inline]
    pub(super) fn work(&self) -> u64 {
        self.work + self.lists.sending.moved()
    }

    /// The connection goes through all streams for one frame.
    pub(super) fn note_walk(&mut self) {
        self.work += self.store.len() as u64;
    }

    /// The owner has a request to handle.
    pub(super) fn note_request(&mut self) {
        self.work += WORK_OF_A_REQUEST;
    }

    /// How many streams were looked up or gone through.
    #[cfg(debug_assertions)]
    pub(super) fn touched(&self) -> u64 {
        self.store.touched()
    }

    /// Gives back the leases of streams that are gone, except for a block of them.
    pub(super) fn return_leases(&mut self) {
        self.return_leases_but(STREAM_BLOCK);
    }

    /// Gives back all leases that no stream needs.
    pub(super) fn return_spare_leases(&mut self) {
        self.return_leases_but(0);
    }

    fn return_leases_but(&mut self, spare: u64) {
        let streams = self.store.len() as u64;
        if self.lease.held() > streams + 2 * spare {
            self.lease.shrink_to(streams + spare);
        }
    }

    /// The connection has failed: no stream is found any more. Requests that wait are dropped with the others.
    pub(super) fn clear(&mut self) {
        self.store.clear();
        self.lists.sending.clear();
        self.lists.refills.clear();
        self.lists.early.clear();
        self.lists.header_memory = 0;
        self.lease.shrink_to(0);
        self.waiting.clear();
        self.finished = 0;
        self.reset_held = 0;
    }

    /// Gives back memory that only a busy connection needs.
    pub(super) fn trim(&mut self) {
        self.store.trim();
        self.lists.sending.trim();
        self.lists.refills.trim();
        self.lists.early.shrink_to_fit();
        self.waiting.trim();
    }
}

impl Deref for Entry<'_> {
    type Target = Stream;

    #[inline]
    fn deref(&self) -> &Stream {
        self.stream
    }
}

impl DerefMut for Entry<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Stream {
        self.stream
    }
}

impl Entry<'_> {
    #[inline]
    pub(super) fn key(&self) -> Key {
        self.key
    }

    /// Puts the stream where it belongs after its queue, its send window or its state changed.
    pub(super) fn reschedule(&mut self, ledgers: &Ledgers, now: Time) {
        if self.stream.is_waiting() || self.stream.state.is_closed() {
            return;
        }
        self.lists.sending.reschedule(self.key, self.stream);
        ledgers.note_stream_sending(self.stream, now);
    }

    /// The stream is scheduled by another priority from now on.
    pub(super) fn set_priority(&mut self, priority: Priority) {
        self.lists.sending.set_priority(self.key, self.stream, priority);
    }

    /// The next frame of the stream, whose turn it is, is held back.
    pub(super) fn hold_back(&mut self, since: Time) {
        self.lists.sending.hold(self.key, self.stream, since);
    }

    /// A frame of the stream, whose turn it was, has left. Whether it has more that its window allows.
    #[inline]
    pub(super) fn served(&mut self) -> bool {
        self.lists.sending.served(self.stream)
    }

    /// Puts the stream on the list of windows to refill when that is near.
    #[inline]
    pub(super) fn list_refill(&mut self) {
        self.lists.refills.list(self.key, self.stream);
    }

    /// The stream's receive window is `size` from now on.
    pub(super) fn resize_window(&mut self, size: WindowSize) {
        self.stream.receive.window.resize(size);
        self.lists.refills.note_size(size);
    }

    /// Tells the owner once that there is something to read.
    #[inline]
    pub(super) fn announce(&mut self, events: &mut Events) {
        if !self.stream.receive.announced {
            self.stream.receive.announced = true;
            events.push(Event::Readable(self.key.id()));
        }
    }

    /// The field sections of the stream take so much more memory.
    pub(super) fn hold_headers(&mut self, octets: usize) {
        self.stream.header_memory += octets;
        self.lists.header_memory += octets;
    }

    /// Nobody reads the stream any more. How many octets had not been read (law 3).
    pub(super) fn discard(&mut self) -> u64 {
        let half = &mut self.stream.receive;
        half.discard = true;
        half.trailers = None;
        let unread = half.queue.clear() as u64;
        half.window.consume(unread);
        self.list_refill();
        unread
    }

    /// The response is whole, and the rest of the request is not wanted: it may end by itself, within bounds.
    pub(super) fn tolerate_rest(&mut self, config: &Config, now: Time) {
        self.stream.receive.early_bytes_left = Some(config.early_response_bytes);
        let until = now + config.early_response_wait;
        self.lists.early.push_back((until, self.key));
    }

    /// The stream leaves the wait for the peer to allow it.
    pub(super) fn note_opened(&mut self) {
        self.lists.active += 1;
    }

    /// END_STREAM has left, or stands among the frames that wait.
    pub(super) fn end_sending(&mut self, config: &Config, ledgers: &Ledgers, now: Time) -> AfterEnd {
        self.stream.note_end_sent(ledgers, now);
        // A client that does not want a response has reset its stream already.
        if self.stream.receive.discard && self.stream.state == StreamState::HalfClosedLocal {
            self.tolerate_rest(config, now);
            return AfterEnd::Tolerated;
        }
        self.after_end()
    }

    /// What remains to be done after a half has ended.
    pub(super) fn after_end(&self) -> AfterEnd {
        match self.stream.state.is_closed() {
            true => AfterEnd::Closed {
                key: self.key,
                released: self.stream.released,
            },
            false => AfterEnd::Nothing,
        }
    }

    /// Closes the stream, which is not closed yet, by a reset of either side. How many octets nobody will read, and whether
    /// no stream has its turn any more.
    pub(super) fn close(&mut self, error: &StreamError) -> (u64, bool) {
        let stream = &mut *self.stream;
        stream.state = StreamState::Closed(Cause::Reset {
            by: error.by,
            code: error.code,
        });
        stream.send.queue.clear();
        stream.send.waiting = None;
        stream.send.trailers = None;
        let unread = match error.by {
            // What the peer sent before is still worth reading.
            Side::Peer if !stream.receive.discard => 0,
            _ => stream.receive.queue.clear() as u64,
        };
        (unread, self.lists.sending.remove(self.key, stream))
    }

    /// What remains to be done after [`Self::close`], of a stream that `waited`.
    pub(super) fn after_close(&self, waited: bool, withdrawn: bool) -> Reset {
        Reset {
            key: self.key,
            waited,
            released: self.stream.released,
            withdrawn,
        }
    }
}

impl Stream {
    /// Whether it is a request that waits for the peer to allow it.
    pub(super) fn is_waiting(&self) -> bool {
        self.state == StreamState::Waiting
    }

    /// Writes a WINDOW_UPDATE for all that may be advertised, unless the peer does not know the stream or has ended it.
    pub(super) fn refill(&mut self, writer: &mut Writer, now: Time, round_trip: Option<Duration>) {
        if !self.state.can_receive() {
            return;
        }
        if let Some(increment) = self.receive.window.refill(now, round_trip) {
            writer.window_update(Some(self.id), increment);
        }
    }

    /// END_STREAM has left, or stands among the frames that wait.
    pub(super) fn note_end_sent(&mut self, ledgers: &Ledgers, now: Time) {
        self.send.ended = true;
        self.state = self.state.after_send_end();
        ledgers.note_stream_sending(self, now);
    }
}
