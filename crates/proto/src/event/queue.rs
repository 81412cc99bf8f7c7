//! The events that the owner has not taken. If a stream is reset before the owner takes the event of its request, the
//! event is withdrawn, so that rapid reset (CVE-2023-44487) causes no work above this crate.

use std::collections::VecDeque;

use super::happened::Event;
use crate::prefetch::{prefetch_start, rewind};

#[derive(Debug, Default)]
pub(crate) struct Events {
    /// None for a withdrawn event.
    queue: VecDeque<Option<Event>>,
    /// The number of events that the owner has taken.
    left: u64,
}

/// The number of an event in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EventId(u64);

impl Events {
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch_start(self.queue.as_slices().0, size_of::<Option<Event>>());
    }

    pub(crate) fn push(&mut self, event: Event) -> EventId {
        let id = EventId(self.left + self.queue.len() as u64);
        self.queue.push_back(Some(event));
        id
    }

    pub(crate) fn pop(&mut self) -> Option<Event> {
        let event = self.queue.pop_front().flatten();
        if event.is_some() {
            self.left += 1;
            self.skip_withdrawn();
        }
        event
    }

    /// The first and the last of the queue are never withdrawn ones.
    fn skip_withdrawn(&mut self) {
        while let Some(None) = self.queue.front() {
            self.queue.pop_front();
            self.left += 1;
        }
        while let Some(None) = self.queue.back() {
            self.queue.pop_back();
        }
        rewind(&mut self.queue);
    }

    /// How many wait, with those that were withdrawn between them.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn trim(&mut self) {
        self.queue.shrink_to_fit();
    }

    /// Withdraws an event. Returns false if the owner has taken it. Each id may be passed once.
    pub(crate) fn withdraw(&mut self, id: EventId) -> bool {
        let index = id.0.checked_sub(self.left).map(usize::try_from);
        let Some(Ok(index)) = index else { return false };
        let event = self.queue.get_mut(index);
        let there = event.is_some_and(|event| event.take().is_some());
        self.skip_withdrawn();
        there
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::StreamId;

    fn readable(id: u32) -> Event {
        Event::Readable(StreamId::new(id).expect("not 0"))
    }

    #[test]
    fn a_queue_that_was_empty_begins_where_it_did() {
        let mut events = Events::default();
        let mut memory = Vec::new();
        for id in 1..20 {
            let event = events.push(readable(id));
            memory.push(events.queue.as_slices().0.as_ptr());
            match id % 2 {
                0 => assert!(events.withdraw(event)),
                _ => assert_eq!(pop(&mut events), Some(id)),
            }
        }
        memory.dedup();
        assert_eq!(memory.len(), 1);
    }

    fn pop(events: &mut Events) -> Option<u32> {
        match events.pop()? {
            Event::Readable(id) => Some(id.value()),
            other => panic!("{other:?} was never pushed"),
        }
    }

    #[test]
    fn what_is_taken_back_never_comes_and_the_rest_comes_in_order() {
        let mut events = Events::default();
        let ids: Vec<EventId> = (1..=5).map(|id| events.push(readable(id))).collect();
        assert_eq!(pop(&mut events), Some(1));
        assert!(!events.withdraw(ids[0]), "it has left");
        assert_eq!(events.len(), 4);
        assert!(events.withdraw(ids[2]));
        assert!(events.withdraw(ids[4]));
        let sixth = events.push(readable(6));
        assert_eq!(pop(&mut events), Some(2));
        assert_eq!(pop(&mut events), Some(4));
        assert!(events.withdraw(sixth));
        assert_eq!(pop(&mut events), None);
        assert_eq!(events.len(), 0);
        events.push(readable(7));
        assert_eq!(pop(&mut events), Some(7));
    }

    #[test]
    fn what_is_taken_back_at_once_takes_no_room() {
        let mut events = Events::default();
        for id in 1..1_000 {
            let id = events.push(readable(id));
            assert!(events.withdraw(id));
        }
        assert_eq!(events.queue.len(), 0);
    }
}
