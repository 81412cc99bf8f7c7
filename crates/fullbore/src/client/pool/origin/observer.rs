//! What the driver of a pooled connection reports to the pool of its origin.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::Instant;

use super::PooledConnection;
use crate::error::Error;
use crate::observer::Observer;
use crate::tcp;

impl Observer for PooledConnection {
    fn over_tcp(&self, tcp: &TcpStream) {
        if self.pool.upgrade().is_some_and(|pool| pool.may_hold_back()) {
            if let Some(tcp) = tcp::info(tcp) {
                self.record_tcp_round_trip(tcp.min_round_trip);
            }
        }
    }

    fn settings_received(&self, max_streams: u32) {
        self.set_max_streams(max_streams);
        if let Some(pool) = self.pool.upgrade() {
            pool.settings_received(max_streams);
        }
    }

    fn round_trip_measured(&self, minimum: Duration) {
        self.record_round_trip(minimum);
    }

    fn wants_round_trip(&self) -> bool {
        self.wants_probe() && self.requests_wait()
    }

    fn round_trip_asked(&self) {
        self.record_probe();
    }

    fn requests_wait(&self) -> bool {
        self.pool.upgrade().is_some_and(|pool| pool.has_waiting())
    }

    fn refused(&self, error: &Error, slot_taken: Option<Instant>) {
        if let Some(pool) = self.pool.upgrade().filter(|_| error.wants_pause()) {
            pool.refused(error, self, slot_taken);
        }
    }

    fn ended_after(&self, requests: u64) {
        if let Some(pool) = self.pool.upgrade() {
            pool.ended_after(requests);
        }
    }

    fn answered(&self) {
        if !self.set_served() {
            return;
        }
        let proven = self.settle_http1();
        if let Some(pool) = self.pool.upgrade() {
            pool.first_answered(self);
            if proven {
                pool.http1_proven();
            }
        }
    }

    fn turned_away(&self) {
        if self.pool.upgrade().is_some_and(|pool| pool.turned_away(self)) {
            self.set_turned_away();
        }
    }

    fn is_turned_away(&self) -> bool {
        self.state.is_turned_away()
    }

    fn closing(&self) {
        if let Some(pool) = self.pool.upgrade() {
            pool.closing(self);
        }
    }

    fn closed(&self, error: &Error) {
        let pool = self.pool.upgrade();
        let explained = match &pool {
            Some(pool) if !self.is_settled() => pool.explain(error),
            _ => error.clone(),
        };
        self.end(&explained);
        if let Some(pool) = pool {
            pool.closed(self, &explained);
        }
        self.conclude();
    }

    fn failure(&self) -> Option<Error> {
        self.state.failure()
    }

    fn is_version_proven(&self) -> bool {
        self.state.is_version_proven()
    }

    fn version_proven(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.state.version_proven())
    }

    fn settled(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.state.settled())
    }

    fn is_other_version(&self) -> bool {
        self.state.is_other_version()
    }

    fn slot_freed(&self, exchange: Option<Duration>) {
        if let Some(pool) = self.pool.upgrade() {
            pool.slot_freed(self, exchange);
        }
    }
}
