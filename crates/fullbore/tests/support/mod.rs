//! What the tests share: two ends on one transport, bodies of a known pattern, a peer that speaks in raw frames, and
//! transports that misbehave.

// Each test file is a program of its own and uses its share of this.
#![allow(dead_code, unused_imports)]

mod body;
mod faulty;
mod pair;
mod raw;
mod scripted;

pub(crate) use self::body::{Chunks, Guarded, Produced, Taken, empty, full, pattern, take};
pub(crate) use self::faulty::{Breaks, Choppy, Counter};
pub(crate) use self::pair::{Pair, Reply, config, get, pair, pair_over, post, refused, soon, windows};
pub(crate) use self::raw::{Raw, RawFrame, kind};
pub(crate) use self::scripted::{Counts, End, Observer, Polls, Script, link};
