//! The send window of a stream or of the connection.

/// The most that a window may hold (RFC 9113 section 6.9.1).
const MAX_WINDOW: i64 = (1 << 31) - 1;

/// A send window, as offsets: bytes allowed and bytes sent.
///
/// The difference may be negative after the peer lowered SETTINGS_INITIAL_WINDOW_SIZE (section 6.9.2).
#[derive(Debug, Clone, Copy)]
pub(crate) struct SendCredit {
    allowed: i64,
    sent: i64,
    largest: i64,
}

/// The window would pass 2^31-1.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CreditOverflow;

impl SendCredit {
    pub(crate) fn new(initial: u32) -> Self {
        SendCredit {
            allowed: i64::from(initial),
            sent: 0,
            largest: i64::from(initial),
        }
    }

    /// The send window, in bytes. It may be negative.
    pub(crate) fn available(&self) -> i64 {
        self.allowed - self.sent
    }

    /// The bytes that may be sent now.
    pub(crate) fn usable(&self) -> usize {
        usize::try_from(self.available()).unwrap_or(0)
    }

    pub(crate) fn sent(&self) -> u64 {
        u64::try_from(self.sent).unwrap_or(0)
    }

    /// The largest window so far.
    pub(crate) fn largest(&self) -> usize {
        usize::try_from(self.largest).unwrap_or(0)
    }

    /// The peer's WINDOW_UPDATE.
    pub(crate) fn grant(&mut self, increment: u32) -> Result<(), CreditOverflow> {
        self.adjust(i64::from(increment))
    }

    /// Whether the window may grow by `rise`.
    pub(crate) fn has_room_for(&self, rise: i64) -> bool {
        self.available() + rise <= MAX_WINDOW
    }

    /// A change of SETTINGS_INITIAL_WINDOW_SIZE by `delta` bytes.
    pub(crate) fn adjust(&mut self, delta: i64) -> Result<(), CreditOverflow> {
        if !self.has_room_for(delta) {
            return Err(CreditOverflow);
        }
        self.allowed += delta;
        // A peer that lowers SETTINGS_INITIAL_WINDOW_SIZE has smaller windows from now on.
        self.largest += delta.min(0);
        self.largest = self.largest.max(self.available());
        Ok(())
    }

    /// A frame was built, with at most [`Self::usable`] bytes.
    pub(crate) fn spend(&mut self, bytes: usize) {
        self.sent += bytes as i64;
        debug_assert!(bytes == 0 || self.available() >= 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_past_the_limit_is_refused_and_left_as_it_was() {
        let mut credit = SendCredit::new(65_535);
        assert_eq!(credit.grant(i32::MAX as u32), Err(CreditOverflow));
        assert_eq!(credit.available(), 65_535);
        credit.spend(65_535);
        assert_eq!(credit.grant(i32::MAX as u32), Ok(()));
    }

    #[test]
    fn settings_may_make_the_window_negative() {
        let mut credit = SendCredit::new(65_535);
        credit.spend(60_000);
        credit.adjust(-65_535).unwrap();
        assert_eq!(credit.available(), -60_000);
        assert_eq!(credit.usable(), 0);
        credit.grant(60_001).unwrap();
        assert_eq!(credit.usable(), 1);
    }

    #[test]
    fn a_window_that_is_lowered_before_it_is_used_is_measured_by_its_new_size() {
        let mut credit = SendCredit::new(65_535);
        credit.adjust(-64_535).unwrap();
        assert_eq!(credit.largest(), 1_000);
    }
}
