//! Streams ordered by rank: those of the schedule, and those that wait until the peer allows them. Usually the first
//! leaves and a new one is the last.
//!
//! A peer decides when a stream leaves from the middle (RST_STREAM, PRIORITY_UPDATE) or returns there
//! (WINDOW_UPDATE). The cost of that must not grow with the number of streams, of which there may be ten thousand.

use std::collections::{BTreeMap, VecDeque};

use crate::id::Key;
use crate::prefetch::{prefetch_start, rewind};

/// An insertion into a list, or a removal, moves at most this many others.
const FEW: usize = 64;

/// Streams by rank, the lowest first.
///
/// A list, while streams are inserted and removed near its ends: the usual case, for which a tree is slower. The
/// first change further inside makes it a tree until it is empty. That moves each stream once.
#[derive(Debug)]
pub(crate) enum Ranked {
    List(VecDeque<(u64, Key)>),
    Tree(BTreeMap<u64, Key>),
}

impl Default for Ranked {
    fn default() -> Self {
        Ranked::List(VecDeque::new())
    }
}

impl Ranked {
    #[inline]
    pub(crate) fn prefetch(&self) {
        if let Ranked::List(list) = self {
            prefetch_start(list.as_slices().0, size_of::<(u64, Key)>());
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Ranked::List(list) => list.is_empty(),
            Ranked::Tree(tree) => tree.is_empty(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Ranked::List(list) => list.len(),
            Ranked::Tree(tree) => tree.len(),
        }
    }

    #[inline]
    pub(crate) fn first(&self) -> Option<Key> {
        match self {
            Ranked::List(list) => list.front().map(|&(_, key)| key),
            Ranked::Tree(tree) => tree.first_key_value().map(|(_, &key)| key),
        }
    }

    pub(crate) fn pop_first(&mut self) -> Option<Key> {
        let (key, emptied) = match self {
            Ranked::List(list) => {
                let first = list.pop_front();
                rewind(list);
                return first.map(|(_, key)| key);
            }
            Ranked::Tree(tree) => (tree.pop_first().map(|(_, key)| key), tree.is_empty()),
        };
        if emptied {
            *self = Self::default();
        }
        key
    }

    /// Inserts a stream, unless the rank is taken. Returns how many others were moved.
    #[inline]
    pub(crate) fn insert(&mut self, rank: u64, key: Key) -> usize {
        if let Ranked::List(list) = self {
            if list.back().is_none_or(|&(last, _)| last < rank) {
                list.push_back((rank, key));
                return 0;
            }
        }
        self.insert_inside(rank, key)
    }

    fn insert_inside(&mut self, rank: u64, key: Key) -> usize {
        let list = match self {
            Ranked::List(list) => list,
            Ranked::Tree(tree) => {
                tree.entry(rank).or_insert(key);
                return 0;
            }
        };
        let Err(at) = list.binary_search_by_key(&rank, |&(other, _)| other) else {
            return 0;
        };
        let distance = at.min(list.len() - at);
        if distance <= FEW {
            list.insert(at, (rank, key));
            return distance;
        }
        let moved = list.len();
        let mut tree: BTreeMap<_, _> = core::mem::take(list).into_iter().collect();
        tree.insert(rank, key);
        *self = Ranked::Tree(tree);
        moved
    }

    /// Removes the stream of a rank, if there is one. Returns how many others were moved.
    pub(crate) fn remove(&mut self, rank: u64) -> usize {
        let list = match self {
            Ranked::List(list) => list,
            Ranked::Tree(tree) => {
                tree.remove(&rank);
                if tree.is_empty() {
                    *self = Self::default();
                }
                return 0;
            }
        };
        let Ok(at) = list.binary_search_by_key(&rank, |&(other, _)| other) else {
            return 0;
        };
        let distance = at.min(list.len() - 1 - at);
        if distance <= FEW {
            list.remove(at);
            rewind(list);
            return distance;
        }
        let moved = list.len();
        let mut tree: BTreeMap<_, _> = core::mem::take(list).into_iter().collect();
        tree.remove(&rank);
        *self = Ranked::Tree(tree);
        moved
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn trim(&mut self) {
        if let Ranked::List(list) = self {
            list.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::keys;

    fn ids(ranked: &mut Ranked) -> Vec<u32> {
        core::iter::from_fn(|| ranked.pop_first())
            .map(|key| key.id().value())
            .collect()
    }

    #[test]
    fn streams_leave_in_the_order_of_their_ranks_however_they_came() {
        // 7 and 1,000 are coprime: every rank comes once, all over the place.
        for count in [10, 100, 1_000] {
            let keys = keys(count);
            let mut ranked = Ranked::default();
            for step in 0..count {
                let at = (step * 7 + 3) % count;
                ranked.insert(u64::from(at), keys[at as usize]);
            }
            let removed = |at: u32| at % 3 == 1;
            for at in (0..count).rev().filter(|&at| removed(at)) {
                ranked.remove(u64::from(at));
                ranked.remove(u64::from(at));
            }
            let rest: Vec<u32> = (0..count)
                .filter(|&at| !removed(at))
                .map(|at| keys[at as usize].id().value())
                .collect();
            assert_eq!(ranked.len(), rest.len());
            assert_eq!(ids(&mut ranked), rest, "of {count}");
            assert!(ranked.is_empty() && ranked.first().is_none());
        }
    }

    #[test]
    fn a_rank_that_is_taken_keeps_its_stream() {
        for count in [3, 300] {
            let keys = keys(count);
            let mut ranked = Ranked::default();
            for (rank, &key) in (0..).zip(&keys) {
                ranked.insert(rank, key);
            }
            assert_eq!(ranked.insert(u64::from(count / 2), keys[0]), 0);
            assert_eq!(ranked.len(), count as usize);
            let all: Vec<u32> = keys.iter().map(|key| key.id().value()).collect();
            assert_eq!(ids(&mut ranked), all);
        }
    }

    #[test]
    fn a_list_that_was_empty_begins_where_it_did() {
        let keys = keys(20);
        let mut ranked = Ranked::default();
        let mut memory = Vec::new();
        for (rank, &key) in (0..).zip(&keys) {
            ranked.insert(rank, key);
            if let Ranked::List(list) = &ranked {
                memory.push(list.as_slices().0.as_ptr());
            }
            match rank % 2 {
                0 => assert_eq!(ranked.pop_first(), Some(key)),
                _ => assert_eq!(ranked.remove(rank), 0),
            }
        }
        memory.dedup();
        assert_eq!(memory.len(), 1);
    }

    #[test]
    fn a_list_becomes_a_tree_when_more_than_64_would_be_moved() {
        let keys = keys(400);
        let list = |ranks: core::ops::Range<usize>| {
            let mut ranked = Ranked::default();
            for rank in ranks {
                ranked.insert(2 * rank as u64, keys[rank]);
            }
            ranked
        };
        // From the front and from the back; 200 streams are 199 beside the one that leaves.
        for (near, far) in [(64, 65), (200 - 1 - 64, 200 - 1 - 65)] {
            let mut ranked = list(0..200);
            assert_eq!(ranked.remove(2 * near), 64);
            assert!(matches!(ranked, Ranked::List(_)));
            let mut ranked = list(0..200);
            assert_eq!(ranked.remove(2 * far), 200);
            assert!(matches!(ranked, Ranked::Tree(_)));
            // From now on none is moved.
            assert_eq!((ranked.insert(2 * far, keys[0]), ranked.remove(2 * far)), (0, 0));
        }
        for (near, far) in [(63, 64), (199 - 64, 199 - 65)] {
            let mut ranked = list(0..200);
            assert_eq!(ranked.insert(2 * near + 1, keys[300]), 64);
            assert!(matches!(ranked, Ranked::List(_)));
            let mut ranked = list(0..200);
            assert_eq!(ranked.insert(2 * far + 1, keys[300]), 200);
            assert!(matches!(ranked, Ranked::Tree(_)));
        }
    }

    #[test]
    fn few_are_moved_for_each_that_comes_or_goes_whatever_their_number() {
        for count in [100u32, 10_000] {
            let keys = keys(count);
            let mut ranked = Ranked::default();
            let mut moved = 0;
            for (rank, &key) in (0..).zip(&keys) {
                moved += ranked.insert(rank, key);
            }
            assert_eq!(moved, 0, "behind all others");
            for round in 0..3 {
                let inside = (0..u64::from(count)).filter(|rank| (rank + round) % 3 > 0);
                for rank in inside.clone() {
                    moved += ranked.remove(rank);
                }
                for rank in inside {
                    moved += ranked.insert(rank, keys[rank as usize]);
                }
            }
            assert!(moved <= count as usize * 4 * (FEW + 1), "{moved} of {count}");
            assert!(count < 1_000 || moved <= 2 * count as usize, "{moved} of {count}");
        }
    }
}
