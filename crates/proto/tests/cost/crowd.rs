//! A connection with many streams, and what frames on it cost.

use std::alloc::System;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Buf, Bytes};
use fullbore_proto::{Config, ConnectionError, Priority, Transmit};
use http::Response;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use crate::support::frames;
use crate::support::peer::{Faced, id};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Allocations are counted for the whole process: one test counts at a time.
static COUNTING: Mutex<()> = Mutex::new(());

/// How many streams are open.
pub(crate) const CROWDS: [u32; 3] = [1, 100, 10_000];

/// What so many frames cost at most: streams looked up, entries moved and octets allocated, a frame each, whatever the
/// number of streams.
const TOUCHED_A_FRAME: u64 = 300;
const WORK_A_FRAME: u64 = 130;
const ALLOCATED_A_FRAME: u64 = 4_096;

/// What was paid for by the HEADERS of a stream: lists and maps that grow or change their form do so once for each.
const WORK_A_STREAM: u64 = 2;
const ALLOCATED_A_STREAM: u64 = 400;

/// What the streams of a crowd wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The requests' bodies.
    Bodies,
    /// The connection's window, in the order of their identifiers: all are in the schedule.
    Turn,
    /// The same, each having a frame in turn.
    IncrementalTurn,
    /// Their own windows.
    Windows,
}

/// The identifier of a stream of a crowd, in another order than that in which they were opened.
pub(crate) fn scattered(index: u32, streams: u32) -> u32 {
    2 * (index.wrapping_mul(7_919) % streams) + 1
}

/// A server with so many streams.
pub(crate) fn server(streams: u32, wait: Wait) -> Faced {
    let mut faced = Faced::server(Config::default());
    if wait == Wait::Windows {
        faced.says(&frames::settings(&[(4, 0)]));
    }
    for index in 0..streams {
        let stream = 2 * index + 1;
        if wait == Wait::Bodies {
            faced.says(&frames::post(stream));
            continue;
        }
        faced.says(&frames::get(stream));
        let connection = &mut faced.connection;
        if wait == Wait::IncrementalTurn {
            let priority = Priority::new(Priority::DEFAULT_URGENCY, true).unwrap();
            connection.prioritize(id(stream), priority).unwrap();
        }
        connection
            .send_response(id(stream), &Response::new(()), false)
            .unwrap();
        connection
            .send_data(id(stream), Bytes::from_static(&[0; 100_000]), true)
            .unwrap();
    }
    faced.events();
    faced.heard();
    faced
}

/// What something has cost.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cost {
    pub(crate) frames: u64,
    pub(crate) touched: u64,
    pub(crate) work: u64,
    pub(crate) allocated: u64,
}

/// Counts from now on. Every test of this program has one, so that it does not disturb another one's count.
pub(crate) struct Counting {
    _alone: MutexGuard<'static, ()>,
}

impl Counting {
    pub(crate) fn begin() -> Self {
        Counting {
            _alone: COUNTING.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// What these frames cost, each of which comes by itself, a millisecond behind the one before, with the events and the writes that follow.
    pub(crate) fn frames(
        &self,
        faced: &mut Faced,
        frames: impl IntoIterator<Item = Vec<u8>>,
    ) -> (Cost, Result<(), ConnectionError>) {
        let mut cost = Cost::default();
        let mut result = Ok(());
        let mut out = Transmit::new();
        for frame in frames {
            let input = Bytes::from(frame);
            faced.now = faced.now + Duration::from_millis(1);
            let connection = &mut faced.connection;
            let (touched, work) = (connection.streams_touched(), connection.work());
            let region = Region::new(ALLOCATOR);
            result = connection.receive(input, faced.now);
            while connection.poll_event().is_some() {}
            while connection.wants_transmit() {
                connection.transmit(&mut out, faced.now);
                out.advance(out.remaining());
            }
            if connection.next_deadline().is_some_and(|at| at <= faced.now) {
                connection.handle_timeout(faced.now);
            }
            cost.allocated += region.change().bytes_allocated as u64;
            cost.frames += 1;
            cost.touched += connection.streams_touched() - touched;
            cost.work += connection.work() - work;
            if result.is_err() {
                break;
            }
        }
        (cost, result)
    }

    /// The bytes that a connection holds once it is trimmed, besides its own struct.
    pub(crate) fn held_at_rest(&self, make: impl Fn() -> Faced) -> usize {
        let held = || {
            let mut connection = make().connection;
            connection.trim();
            let region = Region::new(ALLOCATOR);
            drop(connection);
            region.change().bytes_deallocated
        };
        // Another thread of the program may free something at the same moment, but not each time.
        (0..9).map(|_| held()).min().unwrap_or_default()
    }
}

impl Cost {
    /// Asserts that it does not grow with the streams, but for what each of them has paid for once.
    #[track_caller]
    pub(crate) fn is_bounded(self, what: &str, streams: u32) {
        let most = |a_frame: u64, a_stream: u64| self.frames * a_frame + u64::from(streams) * a_stream;
        let bounded = self.touched <= self.frames * TOUCHED_A_FRAME
            && self.work <= most(WORK_A_FRAME, WORK_A_STREAM)
            && self.allocated <= most(ALLOCATED_A_FRAME, ALLOCATED_A_STREAM);
        assert!(bounded, "{what} with {streams} streams: {self:?}");
    }
}
