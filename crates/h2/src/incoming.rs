//! Requests that nobody has accepted, in the order of their streams.

use std::collections::VecDeque;

use fullbore_proto::StreamId;
use http::Request;

#[derive(Debug, Default)]
pub(crate) struct Incoming {
    /// None for a request that was withdrawn. The last is never one. Boxed, since a request is long, and the queue keeps the room
    /// of the longest batch.
    queue: VecDeque<(StreamId, Option<Box<Request<()>>>)>,
}

impl Incoming {
    /// Identifiers of streams rise (RFC 9113 section 5.1.1).
    pub(crate) fn push(&mut self, id: StreamId, request: Request<()>) {
        self.queue.push_back((id, Some(Box::new(request))));
    }

    /// Drops a request. A peer may reset thousands that it has just sent, so the queue is not searched through.
    pub(crate) fn withdraw(&mut self, id: StreamId) {
        if let Ok(at) = self.queue.binary_search_by_key(&id, |(id, _)| *id) {
            self.queue[at].1 = None;
        }
        while let Some((_, None)) = self.queue.back() {
            self.queue.pop_back();
        }
    }

    pub(crate) fn pop(&mut self) -> Option<(StreamId, Request<()>)> {
        loop {
            let (id, request) = self.queue.pop_front()?;
            if let Some(request) = request {
                return Some((id, *request));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue of streams 1, 3, and so on.
    fn of(count: u32) -> Incoming {
        let mut incoming = Incoming::default();
        for number in 0..count {
            incoming.push(id(number), Request::new(()));
        }
        incoming
    }

    fn id(number: u32) -> StreamId {
        StreamId::new(2 * number + 1).unwrap()
    }

    #[test]
    fn what_is_withdrawn_never_comes_and_the_rest_comes_in_order() {
        let mut incoming = of(6);
        for number in [2, 5, 4, 0, 7] {
            incoming.withdraw(id(number));
        }
        assert_eq!(incoming.queue.len(), 4, "none at the end");
        let left: Vec<StreamId> = std::iter::from_fn(|| incoming.pop()).map(|(id, _)| id).collect();
        assert_eq!(left, [id(1), id(3)]);
    }
}
