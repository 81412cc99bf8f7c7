//! When the connection leases memory from the budget, and when it returns it (law 5).

use super::Connection;
use crate::role::Role;

impl Connection {
    /// Adapts the lease to the frames and field sections that are held. A client leases nothing for them: it chose
    /// its server, and never stops reading for lack of a lease.
    pub(super) fn lease_overhead(&mut self) {
        if self.role == Role::Client {
            return;
        }
        let listed = self.flow.overhead().listed(self.deadlines.unsent());
        let octets = self.writer.len() + self.streams.header_memory() + self.reader.block_len();
        self.flow.overhead_mut().lease_for(listed + octets as u64);
    }

    /// Frames were sent or field sections freed: tries again what failed, or returns a lease.
    pub(super) fn renew_overhead_lease(&mut self) {
        let overhead = self.flow.overhead();
        if !overhead.is_leased() || overhead.leased() > 0 {
            self.lease_overhead();
        }
    }

    /// Whether there is memory for a field section that exceeds its free part by `octets`.
    pub(super) fn can_hold_headers(&mut self, octets: usize) -> bool {
        if octets == 0 {
            return true;
        }
        let held = self.writer.len() + self.streams.header_memory();
        self.flow.overhead_mut().lease_for((held + octets) as u64);
        let can = self.flow.overhead().is_leased();
        self.renew_overhead_lease();
        can
    }

    /// The connection is idle: returns what was leased in advance.
    pub(super) fn return_spare_leases(&mut self) {
        self.streams.return_spare_leases();
        self.lease_overhead();
    }

    /// A stream was removed: returns the leases that are no longer needed.
    pub(super) fn return_unused_leases(&mut self) {
        self.streams.return_leases();
        self.renew_overhead_lease();
        if self.streams.is_empty() {
            self.flow.return_idle_lease(&self.config);
        }
    }

    /// Adapts all leases after bytes were received or released.
    pub(super) fn balance(&mut self) {
        self.lease_overhead();
        if !self.shutdown.has_failed() {
            self.flow.balance(&self.config);
        }
    }
}
