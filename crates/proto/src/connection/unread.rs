//! What streams had received and nobody had read when the connection failed. It stays readable.

use std::collections::VecDeque;

use bytes::Bytes;
use http::HeaderMap;

use crate::event::ReadState;
use crate::id::{StreamId, StreamMap};
use crate::stream::{Phase, ReceiveHalf, ReceiveQueue};

/// The unread messages, by stream. None unless the connection has failed.
#[derive(Debug, Default)]
pub(super) struct UnreadMessages(Option<Box<StreamMap<Unread>>>);

#[derive(Debug)]
struct Unread {
    queue: ReceiveQueue,
    trailers: Option<Box<HeaderMap>>,
    /// Whether the message is complete.
    complete: bool,
}

impl UnreadMessages {
    /// Keeps what the owner has not read of a stream. Returns the number of bytes.
    pub(super) fn keep(&mut self, id: StreamId, half: &mut ReceiveHalf) -> u64 {
        if half.is_discarded() || !half.announced && half.queue.is_empty() && half.trailers.is_none() {
            return 0;
        }
        let unread = Unread {
            queue: core::mem::take(&mut half.queue),
            trailers: half.trailers.take(),
            complete: half.phase == Phase::Done,
        };
        let bytes = unread.queue.bytes() as u64;
        self.0.get_or_insert_default().insert(id, unread);
        bytes
    }

    /// Moves all of a stream to `into`. Returns what follows, and the number of bytes.
    pub(super) fn read(&mut self, id: StreamId, into: &mut VecDeque<Bytes>) -> Option<(ReadState, u64)> {
        let mut unread = self.0.as_mut()?.remove(&id)?;
        let bytes = unread.queue.drain_into(into) as u64;
        let state = match (unread.complete, unread.trailers) {
            (true, Some(trailers)) => ReadState::Trailers(*trailers),
            (true, None) => ReadState::End,
            (false, _) => ReadState::Reset,
        };
        Some((state, bytes))
    }

    /// Drops what is left of a stream. Returns the number of bytes.
    pub(super) fn drop_stream(&mut self, id: StreamId) -> u64 {
        let unread = self.0.as_mut().and_then(|streams| streams.remove(&id));
        unread.map_or(0, |unread| unread.queue.bytes() as u64)
    }
}
