//! A limit that all peers share, of which one peer has half at most: of bytes for `listing`, of slots for `upload_limits` and
//! `compress`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::peer::Peer;

/// How many more bytes are taken at a time, so that few bytes do not take a lock each.
const STEP: usize = 16 * 1024;

#[derive(Debug)]
pub(crate) struct Budget {
    most: usize,
    step: usize,
    /// What is taken; changed with `of_peer` locked.
    all: AtomicUsize,
    of_peer: Mutex<HashMap<Peer, usize>>,
}

/// A part of the budget. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Budget>,
    peer: Option<Peer>,
    /// What was taken of the budget.
    taken: usize,
}

impl Budget {
    /// A budget of so many bytes.
    pub(crate) fn new(most: usize) -> Arc<Budget> {
        Budget::with(most, STEP)
    }

    /// A budget of so many slots.
    pub(crate) fn of_slots(most: usize) -> Arc<Budget> {
        Budget::with(most, 1)
    }

    fn with(most: usize, step: usize) -> Arc<Budget> {
        Arc::new(Budget {
            most,
            step,
            all: AtomicUsize::new(0),
            of_peer: Mutex::default(),
        })
    }

    /// A slot; `None` if all are taken, or the peer has half of them.
    pub(crate) fn slot(self: &Arc<Self>, peer: Option<Peer>) -> Option<Share> {
        let mut share = self.share(peer);
        share.reach(1).then_some(share)
    }

    /// A share of nothing yet.
    pub(crate) fn share(self: &Arc<Self>, peer: Option<Peer>) -> Share {
        Share {
            budget: Arc::clone(self),
            peer,
            taken: 0,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Peer, usize>> {
        // No code panics while it holds the lock, so the counts are consistent.
        self.of_peer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How much is taken.
    pub(crate) fn used(&self) -> usize {
        self.all.load(Ordering::Relaxed)
    }
}

impl Share {
    /// Takes as much as is needed for `amount` in all. Returns whether the budget had it.
    pub(crate) fn reach(&mut self, amount: usize) -> bool {
        if amount <= self.taken {
            return true;
        }
        let budget = &*self.budget;
        let more = (amount - self.taken).next_multiple_of(budget.step);
        let mut of_peer = budget.lock();
        let of_this = self.peer.and_then(|peer| of_peer.get(&peer)).unwrap_or(&0);
        let fits = |taken: usize, most| taken.saturating_add(more) <= most;
        let of_one = self.peer.map_or(budget.most, |_| budget.most.div_ceil(2));
        if !fits(budget.used(), budget.most) || !fits(*of_this, of_one) {
            return false;
        }
        if let Some(peer) = self.peer {
            *of_peer.entry(peer).or_default() += more;
        }
        budget.all.fetch_add(more, Ordering::Relaxed);
        drop(of_peer);
        self.taken += more;
        true
    }

    /// Whether so much is taken that only what is necessary should take more: a quarter of the budget, or half as much by this peer.
    pub(crate) fn is_scarce(&self) -> bool {
        let budget = &*self.budget;
        let of_peer = self.peer.and_then(|peer| budget.lock().get(&peer).copied());
        budget.used() > budget.most / 4 || of_peer.is_some_and(|taken| taken > budget.most / 8)
    }

    /// Gives back what is beyond `amount`.
    pub(crate) fn shrink(&mut self, amount: usize) {
        let less = self.taken.saturating_sub(amount);
        self.taken -= less;
        let mut of_peer = self.budget.lock();
        self.budget.all.fetch_sub(less, Ordering::Relaxed);
        if let Some(Entry::Occupied(mut taken)) = self.peer.map(|peer| of_peer.entry(peer)) {
            *taken.get_mut() -= less;
            if *taken.get() == 0 {
                taken.remove();
            }
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shrink(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_has_half_and_all_comes_back() {
        let budget = Budget::new(8 * STEP);
        let peer = |address: &str| Some(Peer::at(address.parse().unwrap()));
        let mut one = budget.share(peer("10.0.0.1"));
        assert!(one.reach(1) && one.reach(STEP) && one.reach(4 * STEP));
        assert!(!one.reach(4 * STEP + 1));
        let mut again = budget.share(peer("10.0.0.1"));
        assert!(!again.reach(1));
        let mut two = budget.share(peer("10.0.0.2"));
        assert!(two.reach(3 * STEP));
        let mut unknown = budget.share(None);
        assert!(unknown.reach(STEP) && !unknown.reach(STEP + 1));
        assert!(!two.reach(4 * STEP));
        assert_eq!(budget.used(), 8 * STEP);
        one.shrink(100);
        assert_eq!(budget.used(), 4 * STEP + 100);
        assert!(again.reach(2 * STEP));
        drop((one, two, unknown, again));
        assert_eq!(budget.used(), 0);
        assert!(budget.lock().is_empty());
    }

    #[test]
    fn no_more_are_admitted_than_may_be_and_each_gives_its_place_back() {
        let budget = Budget::of_slots(2);
        let first = budget.slot(None).unwrap();
        let second = budget.slot(None).unwrap();
        assert!(budget.slot(None).is_none());
        assert!(budget.slot(None).is_none());
        assert_eq!(budget.used(), 2);
        drop(first);
        assert!(budget.slot(None).is_some());
        let third = budget.slot(None).unwrap();
        assert!(budget.slot(None).is_none());
        drop((second, third));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn one_address_has_half_of_the_slots_at_most() {
        let budget = Budget::of_slots(5);
        let at = |address: &str| Some(Peer::at(address.parse().unwrap()));
        let mut slots = Vec::new();
        // The addresses of a row are one host's.
        for row in [
            ["192.0.2.1", "::ffff:192.0.2.1", "192.0.2.1"],
            ["2001:db8::1", "2001:db8::ffff:1", "2001:db8:0:0:1::1"],
        ] {
            let before = slots.len();
            slots.extend(row.iter().filter_map(|address| budget.slot(at(address))));
            assert_eq!(slots.len() - before, (5 - before).min(3));
            assert!(budget.slot(at(row[0])).is_none());
        }
        assert!(budget.slot(at("192.0.2.2")).is_none() && budget.slot(None).is_none());
        slots.pop();
        assert!(budget.slot(at("192.0.2.2")).is_some() && budget.slot(at("2001:db8:0:1::1")).is_some());
        assert!(budget.slot(at("192.0.2.1")).is_none());
        slots.clear();
        assert_eq!(budget.used(), 0);
        assert!(budget.lock().is_empty());
    }
}
