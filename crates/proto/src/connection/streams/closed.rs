//! How streams were closed that are no longer stored.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

use crate::error::Side;
use crate::id::StreamId;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::connection) enum ClosedBy {
    /// Both sides sent END_STREAM.
    EndStream,
    /// One side sent RST_STREAM.
    Reset(Side),
    /// The peer opened a later stream, and never this one (RFC 9113 section 5.1.1).
    LaterStream,
    /// By END_STREAM or RST_STREAM, too long ago to tell.
    Unknown,
}

/// The closed streams.
///
/// Frames may still arrive on a stream that this endpoint has reset, and are no error (RFC 9113 section 5.1, closed).
/// The log is bounded: it keeps the last [`ClosedLog::RESETS`] resets and the last [`ClosedLog::GAPS`] gaps.
#[derive(Debug, Default)]
pub(in crate::connection) struct ClosedLog {
    /// None before the first reset or gap. Most connections have neither.
    log: Option<Box<Log>>,
}

#[derive(Debug, Default)]
struct Log {
    /// Oldest first.
    resets: VecDeque<StreamId>,
    /// The side that reset each of them last, and how often it is among them.
    sides: BTreeMap<StreamId, (Side, u32)>,
    /// The first and the last identifier of each gap: identifiers that the peer skipped. In order.
    gaps: VecDeque<(u32, u32)>,
    /// The highest stream whose reset was dropped from the log; 0 for none.
    forgotten: u32,
}

impl ClosedLog {
    const RESETS: usize = 1_024;
    const GAPS: usize = 64;

    pub(in crate::connection) fn remember(&mut self, id: StreamId, by: Side) {
        let log = self.log.get_or_insert_default();
        if log.resets.len() == Self::RESETS {
            if let Some(oldest) = log.resets.pop_front() {
                log.forget(oldest);
            }
        }
        log.resets.push_back(id);
        let (side, count) = log.sides.entry(id).or_insert((by, 0));
        *side = by;
        *count += 1;
    }

    /// The peer opened `id` after `highest` (0 for none), and skipped the identifiers between them.
    #[inline]
    pub(in crate::connection) fn open(&mut self, highest: u32, id: StreamId) {
        let next = if highest == 0 { 1 } else { highest + 2 };
        if id.value() <= next {
            return;
        }
        let log = self.log.get_or_insert_default();
        if log.gaps.len() == Self::GAPS {
            log.gaps.pop_front();
        }
        log.gaps.push_back((next, id.value() - 2));
    }

    pub(in crate::connection) fn closed_by(&self, id: StreamId) -> ClosedBy {
        let Some(log) = &self.log else {
            return ClosedBy::EndStream;
        };
        if let Some(&(by, _)) = log.sides.get(&id) {
            return ClosedBy::Reset(by);
        }
        let gap = log.gaps.partition_point(|&(_, last)| last < id.value());
        if log.gaps.get(gap).is_some_and(|&(first, _)| first <= id.value()) {
            return ClosedBy::LaterStream;
        }
        match id.value() <= log.forgotten {
            true => ClosedBy::Unknown,
            false => ClosedBy::EndStream,
        }
    }
}

impl Log {
    fn forget(&mut self, id: StreamId) {
        self.forgotten = self.forgotten.max(id.value());
        if let Entry::Occupied(mut entry) = self.sides.entry(id) {
            let (_, count) = entry.get_mut();
            *count -= 1;
            if *count == 0 {
                entry.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u32) -> StreamId {
        StreamId::new(number).expect("not 0")
    }

    #[test]
    fn of_streams_that_were_left_out_the_latest_64_runs_are_known() {
        let mut log = ClosedLog::default();
        // 3, 7, 11 and so on are opened; each leaves out the one before it.
        for opened in 0..64 {
            let highest = if opened == 0 { 0 } else { 4 * opened - 1 };
            log.open(highest, id(4 * opened + 3));
        }
        assert_eq!(
            (log.closed_by(id(1)), log.closed_by(id(5))),
            (ClosedBy::LaterStream, ClosedBy::LaterStream)
        );
        assert_eq!(log.closed_by(id(253)), ClosedBy::LaterStream);
        log.open(255, id(259));
        assert_eq!(
            (log.closed_by(id(1)), log.closed_by(id(5))),
            (ClosedBy::EndStream, ClosedBy::LaterStream)
        );
        assert_eq!(log.closed_by(id(257)), ClosedBy::LaterStream);
        for opened in [3, 7, 255, 259] {
            assert_eq!(log.closed_by(id(opened)), ClosedBy::EndStream);
        }
        // The next one leaves none out.
        log.open(259, id(261));
        assert_eq!(
            (log.closed_by(id(5)), log.closed_by(id(261))),
            (ClosedBy::LaterStream, ClosedBy::EndStream)
        );
    }

    #[test]
    fn the_newest_reset_of_a_stream_counts_until_the_last_one_is_forgotten() {
        let mut log = ClosedLog::default();
        log.open(0, id(9));
        log.open(9, id(15));
        log.remember(id(9), Side::Local);
        log.remember(id(9), Side::Peer);
        assert_eq!(log.closed_by(id(9)), ClosedBy::Reset(Side::Peer));
        for (stream, past) in [
            (1, ClosedBy::LaterStream),
            (7, ClosedBy::LaterStream),
            (11, ClosedBy::LaterStream),
            (13, ClosedBy::LaterStream),
            (15, ClosedBy::EndStream),
        ] {
            assert_eq!(log.closed_by(id(stream)), past, "stream {stream}");
        }
        for number in 0..ClosedLog::RESETS as u32 - 1 {
            log.remember(id(101 + 2 * number), Side::Peer);
        }
        assert_eq!(log.closed_by(id(9)), ClosedBy::Reset(Side::Peer));
        log.remember(id(99), Side::Local);
        assert_eq!(log.closed_by(id(9)), ClosedBy::Unknown);
        let log = log.log.expect("there were resets");
        assert_eq!(log.sides.len(), log.resets.len());
    }
}
