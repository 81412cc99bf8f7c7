//! The state of a turn: what the turn before leaves for it, and whether the driver yields or sleeps.

use std::task::{Context, Waker};

use fullbore_proto::StreamId;

use crate::turns::wake_after_sockets;

/// The state of a turn.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// Who runs before the driver continues.
    yields: Yield,
    /// The readers that were woken and have not run.
    woken: Woken,
    /// This turn begins with its write. After a yield the write precedes the read, but never in two turns in a row.
    read_postponed: bool,
    /// The transport has nothing to read.
    read_blocked: bool,
    /// The transport has taken no more since the task was woken.
    write_blocked: bool,
    /// Write lists that may leave in this turn, when they are more than one.
    lists: u32,
    /// Events wait in the engine for the next turn that begins with a read.
    events_left: bool,
    /// Something was done.
    progress: bool,
    /// Nothing is left to do for handles, the engine and its timers.
    settled: bool,
}

/// Who runs before the driver continues.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Yield {
    #[default]
    Nobody,
    /// The tasks that are ready.
    Tasks,
    /// These, and the tasks that wait for sockets.
    Sockets,
}

/// The readers that a batch has woken.
#[derive(Debug, Default)]
enum Woken {
    #[default]
    Nobody,
    /// The reader of one stream, and whether its message is complete.
    One(StreamId, bool),
    Several,
}

impl Turn {
    /// The task was woken.
    pub(super) fn wake(&mut self) {
        self.write_blocked = false;
        self.settled = false;
    }

    /// Begins a turn; whether with a read.
    pub(super) fn begin(&mut self) -> bool {
        // A yield counts as progress, so that the driver never sleeps without having asked the transport.
        self.progress = std::mem::take(&mut self.yields) != Yield::Nobody;
        self.read_postponed = self.progress && !self.read_postponed;
        self.read_blocked = false;
        !self.read_postponed
    }

    /// Sets whether events are left in the engine for the next turn that begins with a read.
    pub(super) fn leave_events(&mut self, some: bool) {
        self.events_left = some;
    }

    /// Whether events are left in the engine.
    pub(super) fn leaves_events(&self) -> bool {
        self.events_left
    }

    /// The transport was asked to read.
    pub(super) fn set_read(&mut self, some: bool, blocked: bool) {
        self.progress |= some;
        self.read_blocked = blocked;
    }

    /// Everything else was done: whether there was something to do, and whether nothing is left.
    pub(super) fn set_done(&mut self, some: bool, all: bool) {
        self.progress |= some;
        self.settled = all;
    }

    /// Whether nothing is left after a turn before, and nothing was read since.
    pub(super) fn is_settled(&self) -> bool {
        self.read_blocked && self.settled
    }

    /// The driver does not sleep yet: something came meanwhile.
    pub(super) fn unsettle(&mut self) {
        self.settled = false;
    }

    /// Whether the driver may sleep.
    pub(super) fn is_last(&self) -> bool {
        !self.progress || self.is_settled()
    }

    /// The tasks that are ready run before the driver continues.
    pub(super) fn yield_to_tasks(&mut self) {
        self.yields = self.yields.max(Yield::Tasks);
    }

    /// Wakes a handle, if it waits, and yields to it.
    pub(super) fn wake_handle(&mut self, handle: Option<Waker>) {
        if let Some(handle) = handle {
            self.yield_to_tasks();
            handle.wake();
        }
    }

    /// The tasks that wait for sockets run before the driver continues: the peer may have any amount ready. Up to `lists`
    /// write lists leave before the next read.
    pub(super) fn yield_to_sockets(&mut self, lists: u32) {
        self.yields = Yield::Sockets;
        self.lists = self.lists.max(lists);
    }

    /// Wakes the reader of a stream, if it waits. Its message may be complete now. Data that follows a header section finds
    /// its reader woken.
    pub(super) fn wake_reader(&mut self, stream: StreamId, reader: Option<Waker>, complete: bool) {
        self.woken = match (std::mem::take(&mut self.woken), &reader) {
            (Woken::Nobody, Some(_)) => Woken::One(stream, complete),
            (Woken::One(one, _), None) if one == stream => Woken::One(stream, complete),
            (Woken::One(..), Some(_)) => Woken::Several,
            (woken, _) => woken,
        };
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// Handlers within the driver have run, and with them the readers that were woken.
    pub(super) fn handlers_ran(&mut self) {
        self.woken = Woken::Nobody;
    }

    /// Whether the driver yields now. Then its task is woken again, behind whoever runs first.
    ///
    /// A single reader that has its complete message, and no write to join, is not waited for: its next request wakes the
    /// driver, which runs after it on the same thread. A task that yields is put where other threads may take it, and tokio
    /// wakes a sleeping thread to do so: consecutive requests cost a third to a half more by that.
    pub(super) fn yields(&mut self, cx: &mut Context<'_>, has_write: impl FnOnce() -> bool) -> bool {
        let waits = match std::mem::take(&mut self.woken) {
            Woken::Nobody => false,
            Woken::One(_, complete) => !complete || has_write(),
            Woken::Several => true,
        };
        if waits {
            self.yield_to_tasks();
        }
        match self.yields {
            Yield::Nobody => return false,
            Yield::Tasks => cx.waker().wake_by_ref(),
            Yield::Sockets => wake_after_sockets(cx),
        }
        true
    }

    /// The transport took a part of a list, or nothing of it.
    pub(super) fn block_write(&mut self) {
        self.write_blocked = true;
    }

    /// Whether the transport has taken no more since the task was woken.
    pub(super) fn is_write_blocked(&self) -> bool {
        self.write_blocked
    }

    /// A list was written; whether another one may leave in this turn.
    pub(super) fn continues_writing(&mut self) -> bool {
        self.lists = self.lists.saturating_sub(1);
        self.lists > 0
    }

    /// Nothing more is written in this turn.
    pub(super) fn end_writing(&mut self) {
        self.lists = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fullbore_testing::wakes::Wakes;

    use super::*;

    const ONE: StreamId = StreamId::FIRST_CLIENT;

    fn other() -> StreamId {
        ONE.next().expect("there are more")
    }

    fn waker() -> Option<Waker> {
        Some(Waker::noop().clone())
    }

    /// Whether the driver yields, and how often it is woken for that.
    fn yields(turn: &mut Turn, has_write: bool) -> (bool, usize) {
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let yields = turn.yields(&mut Context::from_waker(&waker), || has_write);
        (yields, wakes.count())
    }

    const YES: (bool, usize) = (true, 1);
    const NO: (bool, usize) = (false, 0);

    #[test]
    fn the_write_precedes_the_read_after_a_yield_and_never_twice_in_a_row() {
        let mut turn = Turn::default();
        let mut reads = Vec::new();
        for wakes in [true, true, true, false, true, false, false] {
            reads.push(turn.begin());
            turn.set_read(false, true);
            turn.wake_handle(waker().filter(|_| wakes));
            assert_eq!(yields(&mut turn, false), if wakes { YES } else { NO });
        }
        assert_eq!(reads, [true, false, true, false, true, false, true]);
    }

    #[test]
    fn a_single_reader_is_waited_for_unless_it_has_its_whole_message_and_there_is_no_write() {
        for (complete, has_write, waits) in [
            (true, false, NO),
            (true, true, YES),
            (false, false, YES),
            (false, true, YES),
        ] {
            let mut turn = Turn::default();
            turn.wake_reader(ONE, waker(), complete);
            assert_eq!(yields(&mut turn, has_write), waits);
            assert!(turn.begin() != waits.0, "a yield postpones the read");
            assert_eq!(yields(&mut turn, has_write), NO, "once");
        }
    }

    #[test]
    fn what_follows_for_a_reader_that_was_woken_may_complete_its_message() {
        let mut turn = Turn::default();
        turn.wake_reader(ONE, waker(), false);
        turn.wake_reader(ONE, None, true);
        assert_eq!(yields(&mut turn, false), NO);
        turn.wake_reader(ONE, waker(), false);
        turn.wake_reader(other(), None, true);
        assert_eq!(yields(&mut turn, false), YES, "that is another stream's");
        let mut turn = Turn::default();
        turn.wake_reader(ONE, None, false);
        assert_eq!(yields(&mut turn, true), NO, "nobody was woken");
    }

    #[test]
    fn several_readers_are_waited_for_unless_they_live_in_the_driver_and_have_run() {
        let mut turn = Turn::default();
        for ran in [false, true] {
            turn.wake_reader(ONE, waker(), true);
            turn.wake_reader(other(), waker(), true);
            if ran {
                turn.handlers_ran();
            }
            assert_eq!(yields(&mut turn, false), if ran { NO } else { YES });
            turn.begin();
        }
    }

    #[test]
    fn the_driver_sleeps_when_nothing_was_done_or_nothing_is_left() {
        // Something was read, the transport has no more; something was done, nothing is left.
        for (read, blocked, done, all, last) in [
            (false, false, false, false, true),
            (false, true, false, true, true),
            (true, false, false, true, false),
            (false, false, true, true, false),
            (false, true, true, false, false),
            (false, true, true, true, true),
            (true, true, false, true, true),
        ] {
            let mut turn = Turn::default();
            turn.wake();
            turn.begin();
            turn.set_read(read, blocked);
            turn.set_done(done, all);
            assert_eq!(turn.is_settled(), blocked && all);
            assert_eq!(turn.is_last(), last, "{read} {blocked} {done} {all}");
            turn.unsettle();
            assert!(!turn.is_settled());
            // The next turn knows nothing of this one.
            turn.begin();
            assert!(turn.is_last());
        }
    }

    #[test]
    fn a_yield_counts_as_progress() {
        let mut turn = Turn::default();
        turn.begin();
        turn.yield_to_tasks();
        turn.begin();
        assert!(!turn.is_last());
        turn.begin();
        assert!(turn.is_last());
    }

    #[test]
    fn the_transport_is_blocked_until_the_task_is_woken() {
        let mut turn = Turn::default();
        assert!(!turn.is_write_blocked());
        turn.block_write();
        turn.begin();
        assert!(turn.is_write_blocked());
        turn.set_read(false, true);
        turn.set_done(false, true);
        turn.wake();
        assert!(!turn.is_write_blocked() && !turn.is_settled());
    }

    #[test]
    fn as_many_lists_leave_as_the_read_allows_and_otherwise_one() {
        let mut turn = Turn::default();
        assert!(!turn.continues_writing());
        turn.yield_to_sockets(3);
        turn.yield_to_sockets(0);
        assert_eq!([(); 3].map(|()| turn.continues_writing()), [true, true, false]);
        turn.yield_to_sockets(3);
        turn.end_writing();
        assert!(!turn.continues_writing());
    }
}
