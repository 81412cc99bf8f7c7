//! A limit on memory that all peers share, of which one peer has half at most. Called by `listing`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::peer::Peer;

/// How much more is taken at a time, so that few bytes do not take a lock each.
const STEP: usize = 16 * 1024;

#[derive(Debug)]
pub(crate) struct Budget {
    most: usize,
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    all: usize,
    of_peer: HashMap<Peer, usize>,
}

/// A part of the budget. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Budget>,
    peer: Option<Peer>,
    /// What was taken of the budget, in bytes.
    taken: usize,
}

impl Budget {
    /// A budget of so many bytes.
    pub(crate) fn new(most: usize) -> Arc<Budget> {
        Arc::new(Budget {
            most,
            used: Mutex::default(),
        })
    }

    /// A share of nothing yet.
    pub(crate) fn share(self: &Arc<Self>, peer: Option<Peer>) -> Share {
        Share {
            budget: Arc::clone(self),
            peer,
            taken: 0,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Used> {
        // No code panics while it holds the lock, so the counts are consistent.
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many bytes are taken.
    #[cfg(test)]
    pub(crate) fn used(&self) -> usize {
        self.lock().all
    }
}

impl Share {
    /// Takes as much as is needed for `bytes` in all. Returns whether the budget had it.
    pub(crate) fn reach(&mut self, bytes: usize) -> bool {
        if bytes <= self.taken {
            return true;
        }
        let more = (bytes - self.taken).next_multiple_of(STEP);
        let mut used = self.budget.lock();
        let all = used.all.saturating_add(more);
        if all > self.budget.most {
            return false;
        }
        if let Some(peer) = self.peer {
            let of_peer = used.of_peer.entry(peer).or_default();
            if of_peer.saturating_add(more) > self.budget.most / 2 {
                return false;
            }
            *of_peer += more;
        }
        used.all = all;
        drop(used);
        self.taken += more;
        true
    }

    /// Gives back what is beyond `bytes`.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let less = self.taken.saturating_sub(bytes);
        self.taken -= less;
        let mut used = self.budget.lock();
        used.all = used.all.saturating_sub(less);
        if let Some(peer) = self.peer {
            if let Some(of_peer) = used.of_peer.get_mut(&peer) {
                *of_peer = of_peer.saturating_sub(less);
                if *of_peer == 0 {
                    used.of_peer.remove(&peer);
                }
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
        assert!(budget.lock().of_peer.is_empty());
    }
}
