//! The body that a stream has to send, by reference.

use std::collections::VecDeque;

use crate::payload::Payload;

/// The unsent chunks of a body, in order. The first is separate: most bodies have one chunk, and need no list.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    first: Payload,
    /// Empty while `first` is.
    rest: VecDeque<Payload>,
    bytes: usize,
}

impl SendQueue {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Appends a chunk, unless it is empty.
    pub(crate) fn push(&mut self, chunk: Payload) {
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

    /// Passes the next `count` bytes to `sink`, chunk by chunk. The caller asks for no more than [`Self::bytes`].
    #[inline]
    pub(crate) fn take(&mut self, mut count: usize, mut sink: impl FnMut(Payload)) {
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

    pub(crate) fn clear(&mut self) {
        self.first = Payload::default();
        self.rest.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;
    use crate::payload::External;

    fn here(text: &'static str) -> Payload {
        Bytes::from_static(text.as_bytes()).into()
    }

    /// The text, or where it lies.
    fn shown(chunk: &Payload) -> String {
        match chunk {
            Payload::Memory(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Payload::External(external) => format!("{external:?}"),
        }
    }

    #[test]
    fn nothing_is_left_behind_a_queue_that_was_cleared() {
        let mut queue = SendQueue::default();
        for text in ["one", "two", "three"] {
            queue.push(here(text));
        }
        queue.clear();
        assert_eq!(queue.bytes(), 0);
        queue.push(here("new"));
        let mut left = Vec::new();
        queue.take(3, |chunk| left.push(shown(&chunk)));
        assert_eq!(left, ["new"]);
        assert!(queue.first.is_empty() && queue.rest.is_empty());
    }

    #[test]
    fn bytes_leave_in_order_cut_where_asked() {
        let mut queue = SendQueue::default();
        queue.push(here("hello "));
        queue.push(Payload::default());
        queue.push(here("world"));
        queue.push(External::new(Arc::new(()), 100, 10).into());
        assert_eq!(queue.bytes(), 21);
        let mut out = Vec::new();
        queue.take(8, |chunk| out.push(shown(&chunk)));
        assert_eq!(out, ["hello ", "wo"]);
        queue.take(7, |chunk| out.push(shown(&chunk)));
        assert_eq!(out[2..], ["rld", "External(4 from 100 on)"]);
        queue.take(6, |chunk| out.push(shown(&chunk)));
        assert_eq!(out[4..], ["External(6 from 104 on)"]);
        assert!(queue.is_empty());
    }
}
