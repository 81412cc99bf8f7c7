//! The body that a stream has to send, by reference.

use std::collections::VecDeque;

use bytes::Bytes;

/// The chunks of a body that have not left, in order. The first stands apart: most bodies are one chunk, and need no list.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    first: Bytes,
    /// Empty while `first` is.
    rest: VecDeque<Bytes>,
    bytes: usize,
}

impl SendQueue {
    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether nothing is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Appends a chunk; an empty one leaves no trace.
    pub(crate) fn push(&mut self, chunk: Bytes) {
        if chunk.is_empty() {
            return;
        }
        self.bytes += chunk.len();
        if self.first.is_empty() {
            self.first = chunk;
        } else {
            self.rest.push_back(chunk);
        }
    }

    /// Hands the next `count` bytes to `sink`, cut from the front chunk by chunk. The caller asks for no more than
    /// [`Self::bytes`].
    pub(crate) fn take(&mut self, mut count: usize, mut sink: impl FnMut(Bytes)) {
        while count > 0 && !self.first.is_empty() {
            let chunk = if self.first.len() > count {
                self.first.split_to(count)
            } else {
                let next = self.rest.pop_front().unwrap_or_default();
                core::mem::replace(&mut self.first, next)
            };
            count -= chunk.len();
            self.bytes -= chunk.len();
            sink(chunk);
        }
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self) {
        self.first = Bytes::new();
        self.rest.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_leave_in_order_cut_where_asked() {
        let mut queue = SendQueue::default();
        queue.push(Bytes::from_static(b"hello "));
        queue.push(Bytes::new());
        queue.push(Bytes::from_static(b"world"));
        assert_eq!(queue.bytes(), 11);
        let mut out = Vec::new();
        queue.take(8, |chunk| out.push(chunk));
        assert_eq!(out, ["hello ", "wo"]);
        queue.take(3, |chunk| out.push(chunk));
        assert_eq!(out.last().unwrap(), "rld");
        assert!(queue.is_empty());
    }
}
