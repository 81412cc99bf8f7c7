//! What the connection leases from the budget as it works, and when it gives that back (law 5).

use super::Connection;
use crate::role::Role;

impl Connection {
    /// Leases memory for frames and field sections, or gives it back, as there are more or fewer of them. A client has chosen
    /// its server, and is not stopped from reading by that.
    pub(super) fn lease_overhead(&mut self) {
        if self.role == Role::Client {
            return;
        }
        let listed = self.flow.overhead().listed(self.deadlines.unsent());
        let octets = self.writer.len() + self.streams.header_memory() + self.reader.block_len();
        self.flow.overhead_mut().lease_for(listed + octets as u64);
    }

    /// Frames have left or field sections are gone: what could not be leased before may be now.
    pub(super) fn renew_overhead_lease(&mut self) {
        let overhead = self.flow.overhead();
        if !overhead.is_leased() || overhead.leased() > 0 {
            self.lease_overhead();
        }
    }

    /// Whether there is memory for a field section of so many octets beyond what is free to each.
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

    /// Nothing happens for a while: what was leased ahead goes back.
    pub(super) fn return_spare_leases(&mut self) {
        self.streams.return_spare_leases();
        self.lease_overhead();
    }

    /// A stream is gone. A connection that opened without a lease, and has no stream left, gives back what it leased for
    /// them.
    pub(super) fn return_unused_leases(&mut self) {
        self.streams.return_leases();
        self.renew_overhead_lease();
        if self.streams.is_empty() {
            self.flow.return_idle_lease(&self.config);
        }
    }

    /// Leases memory for what slow readers leave unread, or gives it back.
    pub(super) fn balance(&mut self) {
        self.lease_overhead();
        self.flow.balance(&self.config);
    }
}
