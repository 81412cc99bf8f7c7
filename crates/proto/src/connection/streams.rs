//! The streams of a connection: the stored streams, their limits, and the lists that they are on.
//!
//! A step looks up its stream once. The lookup returns an [`Entry`], the stream together with the lists, so that a
//! change of the stream updates the lists too.

mod closed;
mod credit_waits;
mod fresh;
mod refills;
mod sending;
mod store;

use core::ops::{Deref, DerefMut};
use std::collections::VecDeque;

use http::Request;

use self::closed::ClosedLog;
use self::credit_waits::CreditWaits;
use self::refills::Refills;
use self::sending::Sending;
use self::store::Store;
use super::ledgers::Ledgers;
use crate::config::Config;
use crate::error::{Side, StreamError, StreamErrorKind};
use crate::event::{Event, Events};
use crate::flow::{CreditOverflow, Lease, WindowSize};
use crate::id::{Key, StreamId};
use crate::invariant::infallible;
use crate::priority::Priority;
use crate::role::Role;
use crate::schedule::Ranked;
use crate::stream::{Cause, Discards, Stream, StreamState, WantsCredit};
use crate::time::Time;

pub(super) use self::closed::ClosedBy;
pub(super) use self::fresh::{Fresh, FreshStreams};

/// How far open streams and reset streams that are not released may together exceed the limit on streams. RFC 9113 section
/// 5.1.2 does not count closed streams, so a client may cancel requests and send others at once, while the handlers take a
/// moment to end. Beyond that streams are refused, so a peer gains nothing by opening and resetting (CVE-2023-44487).
const RESET_GRACE: usize = 1_000;

/// How many streams a connection leases at once, so that most requests cost no atomic operation.
const STREAM_BLOCK: u64 = 16;

/// To visit this many streams, or to move this many list entries, takes about a quarter of a millisecond.
pub(super) const MUCH_WORK: u64 = 2_048;

/// The work of one request: its owner handles at most 64 of them before it calls again. Without this limit a read of
/// 8 KiB brings some 330 requests: 3 ms of files in memory, for which all other connections of the thread wait.
pub(super) const WORK_OF_A_REQUEST: u64 = MUCH_WORK / 64;

#[derive(Debug)]
pub(super) struct Streams {
    role: Role,
    store: Store,
    fresh: FreshStreams,
    lists: Lists,
    closed: ClosedLog,
    /// The next stream that we open. None when the identifiers are used up.
    next_stream: Option<StreamId>,
    /// The highest stream that the peer has opened; 0 for none.
    highest_peer_stream: u32,
    /// The highest of them that was not refused; 0 for none.
    highest_processed: u32,
    /// Complete streams that are not released. They count against no limit.
    finished: usize,
    /// Reset streams that are not released. They count against [`RESET_GRACE`].
    reset_held: u32,
    /// Streams of ours that wait until the peer allows more streams, in order.
    waiting: Ranked,
    /// The streams that are leased from the budget.
    lease: Lease,
    /// Streams of a connection that is over, whose memory has not been freed.
    gone: Option<Box<Store>>,
    work: u64,
}

/// What an [`Entry`] may change besides its stream.
#[derive(Debug)]
struct Lists {
    sending: Sending,
    refills: Refills,
    /// Streams with a complete response and an incomplete request, and until when the rest of the request is
    /// accepted.
    early: VecDeque<(Time, Key)>,
    /// The memory of the field sections of all streams beyond what each has free, in bytes.
    header_memory: usize,
    /// Streams of ours that are open or half closed.
    active: u32,
    /// Streams whose owner waits for credit of the connection.
    credit_waits: CreditWaits,
}

/// A stream, with the lists that it is on.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    key: Key,
    stream: &'a mut Stream,
    lists: &'a mut Lists,
}

/// What to do after one half of a stream has ended, once the stream is no longer borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(super) enum AfterEnd {
    /// The other half is open.
    Nothing,
    /// The response is complete. The rest of the request is discarded for a limited time.
    Tolerated,
    /// The stream is closed.
    Closed { key: Key, released: bool },
}

/// What to do after a reset has closed a stream.
#[derive(Debug, Clone, Copy)]
#[must_use]
pub(super) struct Reset {
    key: Key,
    /// The stream was not open yet: it waited for the peer to allow it.
    waited: bool,
    released: bool,
    /// The event of its request was withdrawn: the owner does not know the stream.
    withdrawn: bool,
}

impl Streams {
    pub(super) fn new(role: Role, config: &Config, initial_window: WindowSize) -> Self {
        Streams {
            role,
            store: Store::default(),
            fresh: FreshStreams::default(),
            lists: Lists {
                sending: Sending::new(config.scheduling),
                refills: Refills::new(initial_window),
                early: VecDeque::new(),
                header_memory: 0,
                active: 0,
                credit_waits: CreditWaits::default(),
            },
            closed: ClosedLog::default(),
            next_stream: (role == Role::Client).then_some(StreamId::FIRST_CLIENT),
            highest_peer_stream: 0,
            highest_processed: 0,
            finished: 0,
            reset_held: 0,
            waiting: Ranked::default(),
            lease: Lease::of_streams(config.stream_budget.as_ref(), config.share.as_ref()),
            gone: None,
            work: 0,
        }
    }

    /// Has the processor fetch the lists.
    pub(super) fn prefetch(&self) {
        self.lists.sending.prefetch();
        self.store.prefetch();
    }

    pub(super) fn len(&self) -> usize {
        self.store.len() + self.fresh.len()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Stream> {
        self.store.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.store.iter_mut()
    }

    /// The streams that are not stored.
    #[inline]
    pub(super) fn fresh(&self) -> &FreshStreams {
        &self.fresh
    }

    #[inline]
    pub(super) fn fresh_mut(&mut self) -> &mut FreshStreams {
        &mut self.fresh
    }

    /// All streams. The visit counts as work.
    pub(super) fn visit_all(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.note_walk();
        self.store.iter_mut()
    }

    pub(super) fn keys(&self) -> Vec<Key> {
        self.store.keys()
    }

    pub(super) fn find(&self, id: StreamId) -> Option<Key> {
        self.store.find(id)
    }

    /// A stream, read-only.
    pub(super) fn view(&self, id: StreamId) -> Option<&Stream> {
        self.store.view(id)
    }

    #[inline]
    pub(super) fn by_id(&mut self, id: StreamId) -> Option<Entry<'_>> {
        let (key, stream) = self.store.by_id(id)?;
        let lists = &mut self.lists;
        Some(Entry { key, stream, lists })
    }

    /// A stream by its key. None if it was removed since the key was taken.
    #[inline]
    pub(super) fn get(&mut self, key: Key) -> Option<Entry<'_>> {
        let stream = self.store.get_mut(key)?;
        let lists = &mut self.lists;
        Some(Entry { key, stream, lists })
    }

    /// The stream at an index below [`Self::len`].
    pub(super) fn at(&mut self, index: usize) -> Option<Entry<'_>> {
        let (key, stream) = self.store.at(index)?;
        let lists = &mut self.lists;
        Some(Entry { key, stream, lists })
    }

    /// The stream whose DATA frame is next. None if no stream has both data and window.
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

    pub(super) fn insert(&mut self, stream: Box<Stream>) -> Entry<'_> {
        let lists = &mut self.lists;
        lists.header_memory += stream.header_memory;
        lists.refills.note_size(stream.receive.window.size());
        let (key, stream) = self.store.insert(stream);
        Entry { key, stream, lists }
    }

    fn remove(&mut self, key: Key) {
        if let Some(mut stream) = infallible(self.store.remove(key), "the caller has found it") {
            self.lists.header_memory -= stream.header_memory;
            self.lists.credit_waits.remove(&mut stream);
        }
    }

    /// Whether owners wait for credit of the connection.
    #[inline]
    pub(super) fn has_credit_waits(&self) -> bool {
        !self.lists.credit_waits.is_empty()
    }

    /// The stream whose owner has waited for it longest.
    pub(super) fn first_credit_wait(&mut self) -> Option<Entry<'_>> {
        self.get(self.lists.credit_waits.first()?)
    }

    pub(super) fn next_id(&self) -> Option<StreamId> {
        self.next_stream
    }

    pub(super) fn take_id(&mut self) -> Option<StreamId> {
        let id = self.next_stream?;
        self.next_stream = id.next();
        Some(id)
    }

    /// The peer opens a stream, and thereby closes the idle streams below it (RFC 9113 section 5.1.1).
    pub(super) fn open_by_peer(&mut self, id: StreamId) {
        self.closed.open(self.highest_peer_stream, id);
        self.highest_peer_stream = id.value();
    }

    pub(super) fn highest_peer_stream(&self) -> u32 {
        self.highest_peer_stream
    }

    /// The peer has opened the stream, and it was not refused.
    pub(super) fn note_processed(&mut self, id: StreamId) {
        self.highest_processed = id.value();
    }

    /// The last stream that GOAWAY names: those above it may be repeated.
    pub(super) fn highest_processed(&self) -> u32 {
        self.highest_processed
    }

    /// Whether the stream is idle (RFC 9113 section 5.1).
    pub(super) fn is_idle(&self, id: StreamId) -> bool {
        // The identifier of a waiting stream has not been used on the wire.
        self.is_unopened(id) || self.role == Role::Client && self.view(id).is_some_and(Stream::is_waiting)
    }

    /// As [`Self::is_idle`], but false for a waiting stream of ours. The caller checks its state.
    #[inline]
    pub(super) fn is_unopened(&self, id: StreamId) -> bool {
        match (self.role, id.is_client_initiated()) {
            (Role::Server, true) => id.value() > self.highest_peer_stream,
            (Role::Client, true) => self.next_stream.is_some_and(|next| id >= next),
            // Push is disabled, so streams of a server stay idle.
            (_, false) => true,
        }
    }

    /// How a stream was closed that is neither stored nor idle.
    pub(super) fn closed_by(&self, id: StreamId) -> ClosedBy {
        self.closed.closed_by(id)
    }

    pub(super) fn remember_reset(&mut self, id: StreamId, by: Side) {
        self.closed.remember(id, by);
    }

    /// Whether the peer may open one more stream. The error says why not.
    pub(super) fn check_room(&mut self, config: &Config) -> Result<(), &'static str> {
        // RFC 9113 section 5.1.2 does not count closed streams, but the owner may not have released them yet.
        let held = self.len() - self.finished;
        let limit = config.max_concurrent_streams as usize;
        if held - self.reset_held as usize >= limit {
            return Err("more streams than SETTINGS_MAX_CONCURRENT_STREAMS");
        }
        if held >= limit.saturating_add(RESET_GRACE) {
            return Err("streams are reset faster than their handlers end");
        }
        // The only stream of a connection needs no lease. So every connection is served, however many streams others
        // hold.
        let streams = self.len() as u64;
        let lease = &mut self.lease;
        let leased = streams == 0 || streams < lease.held() || lease.grow(STREAM_BLOCK) || lease.grow(1);
        match leased {
            true => Ok(()),
            false => Err("the server, or this peer, has as many streams as its limit allows"),
        }
    }

    #[inline]
    pub(super) fn header_memory(&self) -> usize {
        self.lists.header_memory + self.fresh.header_memory()
    }

    #[inline]
    pub(super) fn active(&self) -> u32 {
        self.lists.active
    }

    pub(super) fn note_opened(&mut self) {
        self.lists.active += 1;
    }

    /// Puts a stream of ours on the list of those that wait until the peer allows more streams.
    pub(super) fn wait(&mut self, key: Key) {
        self.waiting.insert(u64::from(key.id().value()), key);
    }

    #[inline]
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Takes the first waiting stream off the list, with its request, if `may_leave` says so of the request.
    pub(super) fn pop_waiting(
        &mut self,
        may_leave: impl FnOnce(&Request<()>) -> bool,
    ) -> Option<(Entry<'_>, Box<Request<()>>)> {
        let key = self.waiting.first()?;
        let first = self
            .get(key)
            .and_then(|stream| stream.send.waiting.as_deref().map(may_leave));
        if first == Some(false) {
            return None;
        }
        self.waiting.pop_first();
        let mut stream = infallible(self.get(key), "closing a stream ends its wait")?;
        let request = infallible(stream.send.waiting.take(), "a stream that waits has its request")?;
        Some((stream, request))
    }

    /// Both halves of a stream have ended.
    pub(super) fn finish(&mut self, key: Key, released: bool) {
        match released {
            true => self.remove(key),
            false => self.finished += 1,
        }
        if self.role == Role::Client {
            self.lists.active -= 1;
        }
    }

    /// A reset has closed a stream. Returns whether the stream was removed.
    pub(super) fn finish_reset(&mut self, reset: Reset, error: &StreamError) -> bool {
        self.remember_reset(error.stream, error.by);
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

    /// The owner releases a closed stream.
    pub(super) fn forget(&mut self, key: Key, cause: Cause) {
        match cause {
            Cause::Finished => self.finished -= 1,
            Cause::Reset { .. } => self.reset_held -= 1,
        }
        self.remove(key);
    }

    /// Whether no stream has both data and window.
    #[inline]
    pub(super) fn has_nothing_to_send(&self) -> bool {
        self.lists.sending.is_empty()
    }

    /// Whether data waits for the window of a stream.
    pub(super) fn is_blocked(&self) -> bool {
        self.lists.sending.is_blocked()
    }

    #[inline]
    pub(super) fn has_ends(&self) -> bool {
        self.lists.sending.has_ends()
    }

    /// The stream at an index of those that have only END_STREAM or trailers left to send. It may have been closed since it was
    /// listed.
    pub(super) fn end(&self, index: usize) -> Option<Key> {
        self.lists.sending.end(index)
    }

    /// Takes the first `count` of them off their list.
    pub(super) fn drop_ends(&mut self, count: usize) {
        self.lists.sending.drop_ends(count);
    }

    /// Since when the oldest of the held-back frames is held back.
    pub(super) fn held_since(&self) -> Option<Time> {
        self.lists.sending.held_since()
    }

    /// Takes the stream of the oldest held-back frame off its list.
    pub(super) fn pop_held(&mut self) -> Option<Entry<'_>> {
        self.work += 1;
        let key = self.lists.sending.pop_held()?;
        infallible(self.get(key), "closing a stream takes it off the list")
    }

    /// Whether a stream window is due for a refill, even without another write.
    #[inline]
    pub(super) fn refills_due(&self) -> bool {
        self.lists.refills.is_due()
    }

    /// The streams whose windows are due, or nearly due. Some may have been closed since they were listed.
    pub(super) fn take_refills(&mut self) -> Vec<Key> {
        self.lists.refills.take()
    }

    #[inline]
    pub(super) fn initial_window(&self) -> WindowSize {
        self.lists.refills.initial()
    }

    pub(super) fn set_initial_window(&mut self, size: WindowSize) {
        self.lists.refills.set_initial(size);
    }

    pub(super) fn largest_window(&self) -> WindowSize {
        self.lists.refills.largest()
    }

    /// The largest send window that the peer has granted to a stream, in bytes.
    pub(super) fn largest_granted(&self) -> u32 {
        self.lists.refills.largest_granted()
    }

    /// When the first entry of `early` expires.
    pub(super) fn early_deadline(&self) -> Option<Time> {
        self.lists.early.front().map(|&(until, _)| until)
    }

    /// Takes a stream off `early` whose request did not end in time after its response.
    pub(super) fn pop_early(&mut self, now: Time) -> Option<StreamId> {
        while let Some(&(until, key)) = self.lists.early.front() {
            // The stream may have been closed or removed since it was listed.
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

    /// The streams that were visited for one frame, and the list entries that were moved for others.
    #[inline]
    pub(super) fn work(&self) -> u64 {
        self.work + self.lists.sending.moved()
    }

    /// The connection visits all streams for one frame.
    pub(super) fn note_walk(&mut self) {
        self.work += self.store.len() as u64;
    }

    /// The owner gets a request to handle.
    pub(super) fn note_request(&mut self) {
        self.work += WORK_OF_A_REQUEST;
    }

    #[cfg(debug_assertions)]
    pub(super) fn touched(&self) -> u64 {
        self.store.touched()
    }

    /// Returns the leases of removed streams, except for one block.
    pub(super) fn return_leases(&mut self) {
        self.return_leases_but(STREAM_BLOCK);
    }

    /// Returns all leases that no stream needs.
    pub(super) fn return_spare_leases(&mut self) {
        self.return_leases_but(0);
    }

    fn return_leases_but(&mut self, spare: u64) {
        let streams = self.len() as u64;
        if self.lease.held() > streams + 2 * spare {
            self.lease.shrink_to(streams + spare);
        }
    }

    /// The connection has failed: removes all streams, those that wait included. No other stream is opened.
    pub(super) fn clear(&mut self) {
        if self.store.len() > 0 {
            self.gone = Some(Box::new(self.store.take()));
        }
        self.fresh.clear();
        self.lists.sending.clear();
        self.lists.refills.clear();
        self.lists.header_memory = 0;
        self.lease.shrink_to(0);
        self.lists.credit_waits.clear();
        self.waiting.clear();
    }

    /// Frees up to `count` of the streams that were cleared; whether none is left.
    pub(super) fn free(&mut self, count: usize) -> bool {
        self.gone.take_if(|gone| gone.free(count));
        self.gone.is_none()
    }

    /// Frees memory that only a busy connection needs.
    pub(super) fn trim(&mut self) {
        self.store.trim();
        self.fresh.trim();
        self.lists.sending.trim();
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

    /// Updates the lists after the send queue, the send window or the state of the stream changed. A waiting stream
    /// sends nothing yet, and a closed one nothing more.
    pub(super) fn reschedule(&mut self, ledgers: &Ledgers, now: Time) {
        if self.stream.is_waiting() || self.stream.state.is_closed() {
            return;
        }
        self.lists.sending.reschedule(self.key, self.stream);
        ledgers.note_stream_sending(self.stream, now);
    }

    pub(super) fn set_priority(&mut self, priority: Priority) {
        self.lists.sending.set_priority(self.key, self.stream, priority);
    }

    /// Holds the next frame of the stream back. It is the stream's turn.
    pub(super) fn hold_back(&mut self, since: Time) {
        self.lists.sending.hold(self.key, self.stream, since);
    }

    /// A frame of the stream left in its turn. Returns whether the stream still has both data and window.
    #[inline]
    pub(super) fn served(&mut self) -> bool {
        self.lists.sending.served(self.stream)
    }

    /// Puts the stream on the list of windows to refill if its refill is due, or nearly due.
    #[inline]
    pub(super) fn list_refill(&mut self) {
        self.lists.refills.list(self.key, self.stream);
    }

    pub(super) fn resize_window(&mut self, size: WindowSize) {
        self.stream.receive.window.resize(size);
        self.lists.refills.note_size(size);
    }

    /// The peer's WINDOW_UPDATE for the stream.
    pub(super) fn grant(&mut self, increment: u32) -> Result<(), CreditOverflow> {
        self.stream.send.credit.grant(increment)?;
        self.lists.refills.note_granted(self.stream.send.credit.largest());
        Ok(())
    }

    /// The owner waits for credit of the stream and, with `of_connection`, of the connection.
    pub(super) fn want_credit(&mut self, of_connection: bool) {
        if of_connection {
            self.lists.credit_waits.insert(self.key, self.stream);
        } else if self.stream.send.wants_credit == WantsCredit::No {
            self.stream.send.wants_credit = WantsCredit::OfStream;
        }
    }

    /// Tells an owner that waits for it of new credit.
    #[inline]
    pub(super) fn announce_credit(&mut self, events: &mut Events) {
        if self.stream.send.wants_credit != WantsCredit::No {
            self.announce_wanted_credit(events);
        }
    }

    #[cold]
    fn announce_wanted_credit(&mut self, events: &mut Events) {
        self.lists.credit_waits.remove(self.stream);
        events.push(Event::Credit(self.key.id()));
    }

    /// Queues one `Readable` event until the owner reads.
    #[inline]
    pub(super) fn announce(&mut self, events: &mut Events) {
        if !self.stream.receive.announced {
            self.stream.receive.announced = true;
            events.push(Event::Readable(self.key.id()));
        }
    }

    pub(super) fn hold_headers(&mut self, octets: usize) {
        self.stream.header_memory += octets;
        self.lists.header_memory += octets;
    }

    /// Discards what was received and what arrives from now on. Returns the number of unread bytes (law 3).
    pub(super) fn discard(&mut self, what: Discards) -> u64 {
        let half = &mut self.stream.receive;
        if !matches!(half.discards, Discards::Rest(_)) {
            half.discards = what;
        }
        half.trailers = None;
        let unread = half.queue.clear() as u64;
        half.window.consume(unread);
        self.list_refill();
        unread
    }

    /// The response is complete, and the rest of the request is discarded within limits on bytes and time.
    pub(super) fn tolerate_rest(&mut self, config: &Config, now: Time) {
        self.stream.receive.discards = Discards::Rest(config.early_response_bytes);
        let until = now + config.early_response_wait;
        self.lists.early.push_back((until, self.key));
    }

    pub(super) fn note_opened(&mut self) {
        self.lists.active += 1;
    }

    /// END_STREAM was sent or queued.
    pub(super) fn end_sending(&mut self, config: &Config, ledgers: &Ledgers, now: Time) -> AfterEnd {
        self.stream.note_end_sent(ledgers, now);
        // This is a server: a client that discards the response has reset the stream.
        let half = &self.stream.receive;
        let ends = matches!(half.discards, Discards::All | Discards::Rest(_));
        if ends && self.stream.state == StreamState::HalfClosedLocal {
            self.tolerate_rest(config, now);
            return AfterEnd::Tolerated;
        }
        self.after_end()
    }

    pub(super) fn after_end(&self) -> AfterEnd {
        match self.stream.state.is_closed() {
            true => AfterEnd::Closed {
                key: self.key,
                released: self.stream.released,
            },
            false => AfterEnd::Nothing,
        }
    }

    /// Closes an unclosed stream by a reset of either side. Returns the number of bytes that nobody will read, and
    /// whether the schedule became empty.
    pub(super) fn close(&mut self, error: &StreamError) -> (u64, bool) {
        let stream = &mut *self.stream;
        stream.state = StreamState::Closed(Cause::Reset {
            by: error.by,
            code: error.code,
        });
        stream.send.queue.clear();
        stream.send.waiting = None;
        stream.send.trailers = None;
        let by_peer = error.by == Side::Peer
            || matches!(
                error.kind(),
                StreamErrorKind::Protocol | StreamErrorKind::ContentLength
            );
        let unread = match by_peer && !stream.receive.is_discarded() {
            // The owner may still read what the peer sent before.
            true => 0,
            false => stream.receive.queue.clear() as u64,
        };
        (unread, self.lists.sending.remove(self.key, stream))
    }

    pub(super) fn after_close(&self, waited: bool, withdrawn: bool) -> Reset {
        Reset {
            key: self.key,
            waited,
            released: self.stream.released,
            withdrawn,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_has_used_the_last_identifier_opens_no_stream() {
        let mut streams = Streams::new(Role::Client, &Config::default(), WindowSize::MAX);
        assert_eq!(streams.take_id(), Some(StreamId::FIRST_CLIENT));
        let last = StreamId::new(i32::MAX as u32).expect("it is not 0");
        streams.next_stream = Some(last);
        assert_eq!(streams.take_id(), Some(last));
        assert_eq!((streams.next_id(), streams.take_id()), (None, None));
        assert!(!streams.is_unopened(last));
    }
}
