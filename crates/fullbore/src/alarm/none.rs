//! Systems without such a timer.

use std::task::Waker;
use std::time::{Duration, Instant};

/// There are none.
#[derive(Debug, Clone)]
pub(crate) enum Alarms {}

impl Alarms {
    pub(crate) fn start() -> Option<Self> {
        None
    }

    pub(super) fn fired(&self) -> u64 {
        match *self {}
    }

    pub(super) fn longest_rest(&self) -> Duration {
        match *self {}
    }

    pub(super) fn set(&self, _: Instant, _: &mut Option<u64>, _: &Waker) {
        match *self {}
    }

    pub(super) fn remove(&self, _: Instant, _: u64) {
        match *self {}
    }
}
