//! Rate limits on the peer: token buckets.
//!
//! The connection takes a token for each event that costs this endpoint more than the peer. When none is left, the
//! connection ends with ENHANCE_YOUR_CALM. The limits are settings of [`crate::Config`], with their defaults and
//! reasons.

use crate::error::{ConnectionError, PeerLimit};
use crate::time::Time;

/// A rate limit: how many events are allowed at once, and how many per second in the long run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// The events allowed at once.
    pub burst: u32,
    /// The events allowed per second in the long run.
    pub per_second: u32,
}

impl Limit {
    /// A limit of `burst` at once and `per_second` in the long run.
    pub const fn new(burst: u32, per_second: u32) -> Self {
        Limit { burst, per_second }
    }
}

/// The state of one limit.
#[derive(Debug, Clone)]
pub(crate) struct Bucket {
    limit: Limit,
    /// In billionths of a token, so that a refill loses nothing to rounding.
    tokens: u128,
    updated: Time,
}

const TOKEN: u128 = 1_000_000_000;

impl Bucket {
    pub(crate) fn new(limit: Limit, now: Time) -> Self {
        Bucket {
            limit,
            tokens: u128::from(limit.burst) * TOKEN,
            updated: now,
        }
    }

    /// Takes a token, or ends the connection with ENHANCE_YOUR_CALM.
    pub(crate) fn charge(
        &mut self,
        now: Time,
        limit: PeerLimit,
        detail: &'static str,
    ) -> Result<(), ConnectionError> {
        self.charge_many(1, now, limit, detail)
    }

    /// Takes tokens, or ends the connection with ENHANCE_YOUR_CALM.
    pub(crate) fn charge_many(
        &mut self,
        tokens: usize,
        now: Time,
        limit: PeerLimit,
        detail: &'static str,
    ) -> Result<(), ConnectionError> {
        match self.take(tokens, now) {
            true => Ok(()),
            false => Err(ConnectionError::limit(limit, detail)),
        }
    }

    /// Adds tokens that another event has earned. [`Self::take`] keeps no more of them than the burst.
    pub(crate) fn earn(&mut self, tokens: usize) {
        self.tokens += tokens as u128 * TOKEN;
    }

    /// Takes tokens. Returns false, and takes none, if there are too few.
    #[must_use]
    fn take(&mut self, tokens: usize, now: Time) -> bool {
        let nanos = now.since(self.updated).as_nanos();
        self.updated = self.updated.max(now);
        let most = u128::from(self.limit.burst) * TOKEN;
        self.tokens = (self.tokens + nanos * u128::from(self.limit.per_second)).min(most);
        match self.tokens.checked_sub(tokens as u128 * TOKEN) {
            Some(rest) => {
                self.tokens = rest;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    #[test]
    fn a_burst_passes_and_then_only_the_rate() {
        let mut bucket = Bucket::new(Limit::new(3, 10), Time::ZERO);
        assert_eq!((0..5).filter(|_| bucket.take(1, Time::ZERO)).count(), 3);
        let later = Time::ZERO + Duration::from_millis(250);
        assert_eq!((0..5).filter(|_| bucket.take(1, later)).count(), 2);
        let much_later = Time::ZERO + Duration::from_secs(1000);
        assert_eq!((0..9).filter(|_| bucket.take(1, much_later)).count(), 3);
    }

    #[test]
    fn what_is_earned_never_passes_the_burst() {
        let mut bucket = Bucket::new(Limit::new(3, 10), Time::ZERO);
        assert!(bucket.take(1, Time::ZERO));
        assert!(bucket.take(1, Time::ZERO));
        bucket.earn(1);
        assert_eq!((0..9).filter(|_| bucket.take(1, Time::ZERO)).count(), 2);
        bucket.earn(100);
        assert_eq!((0..9).filter(|_| bucket.take(1, Time::ZERO)).count(), 3);
    }

    #[test]
    fn what_is_earned_is_so_many_tokens_exactly() {
        let mut bucket = Bucket::new(Limit::new(u32::MAX, 0), Time::ZERO);
        bucket.earn(1);
        assert!(bucket.take(u32::MAX as usize, Time::ZERO) && !bucket.take(1, Time::ZERO));
        bucket.earn(2_000_000_000);
        assert!(bucket.take(2_000_000_000, Time::ZERO) && !bucket.take(1, Time::ZERO));
    }

    #[test]
    fn a_token_is_there_when_its_time_has_come_and_not_a_nanosecond_before() {
        let mut bucket = Bucket::new(Limit::new(1, 4), Time::ZERO);
        let quarter = 250_000_000;
        for at in [0, quarter, 2 * quarter] {
            assert!(at == 0 || !bucket.take(1, Time::from_nanos(at - 1)));
            assert!(bucket.take(1, Time::from_nanos(at)));
        }
    }
}
