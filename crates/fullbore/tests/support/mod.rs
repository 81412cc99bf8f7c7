//! What the tests share: two ends on one transport, bodies of a known pattern, a peer that speaks in raw frames, and
//! transports that misbehave.

// `denied` and `trace` use a part of this.
#![allow(dead_code, unused_imports)]

pub(crate) use fullbore_testing::frames;
pub(crate) use fullbore_testing::frames::Frame;
pub(crate) use fullbore_testing::peer::Peer;

mod body;
mod faulty;
mod pair;
mod scripted;
mod service;

pub(crate) use self::body::{Chunks, Guarded, Produced, Taken, empty, full, pattern, take};
pub(crate) use self::faulty::{Breaks, Choppy, Counter};
pub(crate) use self::pair::{
    Pair, Reply, config, get, pair, pair_over, patiently, post, refused, soon, windows,
};
pub(crate) use self::scripted::{Counts, End, Observer, Polls, Script, link};
pub(crate) use self::service::{Local, service};
