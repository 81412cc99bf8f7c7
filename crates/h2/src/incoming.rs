//! Requests that nobody has accepted, in the order of their streams.

use std::collections::VecDeque;

use fullbore_proto::StreamId;
use http::Request;

/// A batch of more requests is long.
const LONG: usize = 8;

/// After so many long batches in a row another one is expected.
const MANY: u8 = 4;

#[derive(Debug, Default)]
pub(crate) struct Incoming {
    /// None for a request that was withdrawn. The last is never one.
    queue: VecDeque<(StreamId, Option<Request<()>>)>,
    /// The requests since the queue was empty.
    batch: usize,
    /// The long batches in a row, up to [`MANY`].
    row: u8,
}

impl Incoming {
    /// Identifiers of streams rise (RFC 9113 section 5.1.1).
    pub(crate) fn push(&mut self, id: StreamId, request: Request<()>) {
        self.batch += 1;
        self.queue.push_back((id, Some(request)));
    }

    /// Drops a request. A peer may reset thousands that it has just sent, so the queue is not searched through.
    pub(crate) fn withdraw(&mut self, id: StreamId) {
        let Ok(at) = self.queue.binary_search_by_key(&id, |(id, _)| *id) else {
            return;
        };
        self.queue[at].1 = None;
        while let Some((_, None)) = self.queue.back() {
            self.queue.pop_back();
        }
        if self.queue.is_empty() {
            self.end_batch();
        }
    }

    pub(crate) fn pop(&mut self) -> Option<(StreamId, Request<()>)> {
        loop {
            let (id, request) = self.queue.pop_front()?;
            if self.queue.is_empty() {
                self.end_batch();
            }
            if let Some(request) = request {
                return Some((id, request));
            }
        }
    }

    /// Frees the room of a long batch, unless another one is expected. A request is long, and those of a few batches may wait for
    /// their handlers while no other arrives.
    fn end_batch(&mut self) {
        self.row = match self.batch > LONG {
            true => MANY.min(self.row + 1),
            false => 0,
        };
        if self.queue.capacity() > LONG && self.row < MANY {
            self.queue = VecDeque::new();
        }
        self.batch = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: usize) -> StreamId {
        StreamId::new(2 * number as u32 + 1).unwrap()
    }

    fn push(incoming: &mut Incoming, count: usize) {
        for number in 0..count {
            incoming.push(id(number), Request::new(()));
        }
    }

    #[test]
    fn what_is_withdrawn_never_comes_and_the_rest_comes_in_order() {
        let mut incoming = Incoming::default();
        push(&mut incoming, 6);
        for number in [2, 5, 4, 0, 7] {
            incoming.withdraw(id(number));
        }
        assert_eq!(incoming.queue.len(), 4, "none at the end");
        let left: Vec<StreamId> = std::iter::from_fn(|| incoming.pop()).map(|(id, _)| id).collect();
        assert_eq!(left, [id(1), id(3)]);
    }

    #[test]
    fn the_room_of_a_long_batch_stays_only_after_many() {
        let mut incoming = Incoming::default();
        for (batch, stays) in [
            (4, true),
            (100, false),
            (9, false),
            (100, false),
            (100, true),
            (9, true),
            (8, false),
            (100, false),
        ] {
            push(&mut incoming, batch);
            while incoming.pop().is_some() {}
            assert_eq!(incoming.queue.capacity() > 0, stays, "after {batch}");
        }
        // The same of a batch that its peer resets.
        push(&mut incoming, 100);
        for number in 0..100 {
            incoming.withdraw(id(number));
        }
        assert_eq!(incoming.queue.capacity(), 0);
    }
}
