//! Keeping the ledgers of the connection (law 8).

use super::Connection;
use super::judge::Judge;
use crate::flow::Stall;
use crate::time::Time;

impl Connection {
    /// The transport takes no more of what [`Self::transmit`] gave, for now.
    pub fn socket_blocked(&mut self, now: Time) {
        self.see(now);
        self.ledgers.enter_sending(Stall::Socket, self.now);
    }

    /// The transport has taken all that [`Self::transmit`] gave, and there is no more.
    pub fn socket_idle(&mut self, now: Time) {
        self.see(now);
        self.flow.overhead_mut().list(0);
        self.cover_again();
        self.account_sending(false);
    }

    /// Says whether the owner keeps requests back because the peer allows no more streams at once, as one that pools
    /// connections does: the ledgers see nothing else of them.
    pub fn set_requests_kept_back(&mut self, kept_back: bool, now: Time) {
        if self.ledgers.requests_kept_back() != kept_back {
            self.see(now);
            self.account_receiving();
            self.ledgers.set_requests_kept_back(kept_back);
        }
    }

    /// After a write was built, or taken.
    pub(super) fn account_sending(&mut self, data_left: bool) {
        let state = match data_left {
            true => Stall::Moving,
            false => self.judge().sending(self.role),
        };
        self.ledgers.enter_sending(state, self.now);
    }

    /// Data or a head has come, or a stream begins: what was it that receiving waited for until now?
    #[inline]
    pub(super) fn account_receiving(&mut self) {
        // Frames of one batch cost a comparison each.
        if self.ledgers.receiving_since() < self.now {
            self.account_receiving_now();
        }
    }

    fn account_receiving_now(&mut self) {
        let since = self.ledgers.receiving_since();
        let judgement = self.judge().receiving(since, self.now);
        self.ledgers.settle_receiving(judgement, self.now);
    }

    /// A reader has taken something. That is news only when nothing more is to come, and time has passed.
    pub(super) fn account_reading(&mut self) {
        if self.ledgers.receiving_since() < self.now && !self.judge().is_receiving() {
            self.account_receiving_now();
        }
    }

    pub(super) fn judge(&self) -> Judge<'_> {
        Judge::new(&self.streams, &self.flow, &self.ledgers, self.pings.minimum())
    }
}
