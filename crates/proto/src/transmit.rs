//! The write list: frame headers and short payloads in an arena, long payloads by reference.
//!
//! `connection::transmit` fills the list. A driver writes it with one vectored write and advances it. The list is a [`Buf`], and
//! while all payloads are in memory a driver needs nothing else.

use std::io::IoSlice;

use bytes::Buf;

use crate::payload::{External, Payload};

/// A payload up to this length is copied behind its frame header: a slice of its own costs the kernel more than the copy.
pub(crate) const INLINE_PAYLOAD: usize = 1_024;

/// Where [`Transmit::fetch`] begins in its buffer. An allocator aligns such a buffer to a page, and so the one of a TLS record,
/// in which the octets come to lie some 14 bytes further on. Some processors copy at a twentieth of their speed where the
/// destination lies up to 16 bytes behind the source, modulo 4,096 (`rep movsb` of AMD Zen 4).
const FETCH_START: usize = 512;

/// A list of octets to write, in order, as slices of an arena and of payloads.
///
/// External payloads have no slices: the chunks of the [`Buf`] end before the first of them, although more remains. A driver
/// that sends such payloads uses [`Self::segments`], or reads them into the list with [`Self::fetch`].
///
/// ```
/// use bytes::Buf;
/// use fullbore_proto::Transmit;
///
/// let out = Transmit::new();
/// assert!(!out.has_remaining());
/// ```
#[derive(Debug, Default)]
pub struct Transmit {
    /// Frame headers, control frames and short payloads.
    arena: Vec<u8>,
    /// The segments, in order. The last run of the arena is added when it is sealed.
    segments: Vec<Stored>,
    /// The octets of external payloads that [`Self::fetch`] has read. It keeps its length, so it is zeroed only once.
    fetched: Vec<u8>,
    /// Where the unsealed run of the arena begins.
    sealed: usize,
    /// The first segment that is not completely written.
    first: usize,
    /// The bytes left to write.
    remaining: usize,
}

/// A segment of a write list.
#[derive(Debug, Clone, Copy)]
pub enum Segment<'a> {
    /// Octets, perhaps none.
    Memory(&'a [u8]),
    /// Octets that the owner of the connection can write without having them in memory.
    External(&'a External),
}

impl Segment<'_> {
    /// The number of octets.
    pub fn len(&self) -> usize {
        match self {
            Segment::Memory(octets) => octets.len(),
            Segment::External(external) => external.len(),
        }
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[derive(Debug)]
enum Stored {
    Arena {
        start: usize,
        end: usize,
    },
    /// Octets of an external payload that was read, and its range.
    Fetched {
        start: usize,
        end: usize,
        from: External,
    },
    Payload(Payload),
}

impl Transmit {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of slices of the whole list.
    pub fn slices(&self) -> usize {
        self.segments.len() - self.first + usize::from(self.sealed < self.arena.len())
    }

    /// As [`Buf::chunks_vectored`], but at most `most` octets.
    pub fn first_chunks<'a>(&'a self, most: usize, slices: &mut [IoSlice<'a>]) -> usize {
        let mut left = most;
        let mut count = 0;
        let here = self.segments[self.first..].iter();
        let here = here.map_while(|segment| (!segment.is_external()).then(|| segment.slice(self)));
        let tail = match self.has_external() {
            true => &[],
            false => &self.arena[self.sealed..],
        };
        let octets = here.chain([tail]).filter(|octets| !octets.is_empty());
        for (slot, octets) in slices.iter_mut().zip(octets) {
            if left == 0 {
                break;
            }
            *slot = IoSlice::new(&octets[..octets.len().min(left)]);
            left -= octets.len().min(left);
            count += 1;
        }
        count
    }

    /// What is to be written, in order, external payloads among it. [`Buf::advance`] takes off what was written.
    pub fn segments(&self) -> impl Iterator<Item = Segment<'_>> {
        let sealed = self.segments[self.first..].iter().map(|segment| match segment {
            Stored::Payload(Payload::External(external)) => Segment::External(external),
            here => Segment::Memory(here.slice(self)),
        });
        sealed.chain([Segment::Memory(&self.arena[self.sealed..])])
    }

    /// Whether an external payload is on the list: the chunks before it are not all that remains.
    pub fn has_external(&self) -> bool {
        self.segments[self.first..].iter().any(Stored::is_external)
    }

    /// Reads the external payloads among the next `most` octets of the list. Does nothing while octets that an earlier call read
    /// are not written. Adjacent ranges of one source are read at once. The list keeps a buffer of `most` octets
    /// and half a KiB until [`Self::unfetch`].
    ///
    /// # Errors
    /// The error of `read`. The list is unusable then.
    pub fn fetch<E>(
        &mut self,
        most: usize,
        mut read: impl FnMut(&External, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.has_fetched() {
            return Ok(());
        }
        if self.fetched.len() < FETCH_START + most {
            self.fetched.resize(FETCH_START + most, 0);
        }
        let (mut left, mut end, mut index) = (most, FETCH_START, self.first);
        // Adjacent ranges that are to be read at once.
        let mut run: Option<External> = None;
        while left > 0 {
            let Some(segment) = self.segments.get_mut(index) else {
                break;
            };
            index += 1;
            let Stored::Payload(Payload::External(payload)) = segment else {
                left = left.saturating_sub(segment.len());
                continue;
            };
            let first = payload.split_to(left);
            let length = first.len();
            left -= length;
            let rest = core::mem::replace(
                segment,
                Stored::Fetched {
                    start: end,
                    end: end + length,
                    from: first.clone(),
                },
            );
            if rest.len() > 0 {
                self.segments.insert(index, rest);
            }
            run = match run {
                Some(mut run) if run.continues_with(&first) => {
                    run.extend(length);
                    Some(run)
                }
                before => {
                    if let Some(before) = before {
                        read(&before, &mut self.fetched[end - before.len()..end])?;
                    }
                    Some(first)
                }
            };
            end += length;
        }
        match run {
            Some(run) => read(&run, &mut self.fetched[end - run.len()..end]),
            None => Ok(()),
        }
    }

    /// Drops unwritten octets that [`Self::fetch`] has read, and returns its buffer. They are read again later.
    pub fn unfetch(&mut self) -> Vec<u8> {
        for segment in &mut self.segments[self.first..] {
            if let Stored::Fetched { from, .. } = segment {
                *segment = Stored::Payload(Payload::External(from.clone()));
            }
        }
        core::mem::take(&mut self.fetched)
    }

    /// Gives the list a buffer for [`Self::fetch`], which [`Self::unfetch`] of any list has returned, unless it has
    /// one.
    pub fn lend_room(&mut self, room: Vec<u8>) {
        if self.fetched.is_empty() {
            self.fetched = room;
        }
    }

    /// The capacity of the buffer for [`Self::fetch`], in bytes.
    pub fn room(&self) -> usize {
        self.fetched.capacity()
    }

    /// Whether octets that [`Self::fetch`] has read are unwritten.
    pub fn has_fetched(&self) -> bool {
        let unwritten = &self.segments[self.first..];
        unwritten
            .iter()
            .any(|segment| matches!(segment, Stored::Fetched { .. }))
    }

    /// Appends to the arena whatever `write` appends.
    pub(crate) fn put(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let before = self.arena.len();
        write(&mut self.arena);
        self.remaining += self.arena.len() - before;
    }

    /// Moves `octets` to the arena.
    pub(crate) fn put_drained(&mut self, octets: &mut Vec<u8>) {
        self.put(|arena| arena.append(octets));
    }

    /// Appends a payload, by reference unless it is short.
    #[inline]
    pub(crate) fn put_payload(&mut self, payload: Payload) {
        if let Payload::Memory(bytes) = &payload {
            if bytes.len() <= INLINE_PAYLOAD {
                self.put(|arena| arena.extend_from_slice(bytes));
                return;
            }
        }
        self.seal();
        self.remaining += payload.len();
        self.segments.push(Stored::Payload(payload));
    }

    /// Ends the current run of the arena with a segment.
    fn seal(&mut self) {
        if self.sealed < self.arena.len() {
            self.segments.push(Stored::Arena {
                start: self.sealed,
                end: self.arena.len(),
            });
            self.sealed = self.arena.len();
        }
    }

    fn clear(&mut self) {
        self.arena.clear();
        self.segments.clear();
        self.sealed = 0;
        self.first = 0;
        self.remaining = 0;
    }
}

impl Stored {
    /// The octets in memory.
    fn slice<'a>(&'a self, list: &'a Transmit) -> &'a [u8] {
        match self {
            Stored::Arena { start, end } => &list.arena[*start..*end],
            Stored::Fetched { start, end, .. } => &list.fetched[*start..*end],
            Stored::Payload(Payload::Memory(bytes)) => bytes,
            Stored::Payload(Payload::External(_)) => &[],
        }
    }

    fn len(&self) -> usize {
        match self {
            Stored::Arena { start, end } | Stored::Fetched { start, end, .. } => end - start,
            Stored::Payload(payload) => payload.len(),
        }
    }

    fn is_external(&self) -> bool {
        matches!(self, Stored::Payload(Payload::External(_)))
    }

    fn advance(&mut self, count: usize) {
        match self {
            Stored::Arena { start, .. } => *start += count,
            Stored::Fetched { start, from, .. } => {
                *start += count;
                from.advance(count);
            }
            Stored::Payload(Payload::Memory(bytes)) => bytes.advance(count),
            Stored::Payload(Payload::External(external)) => external.advance(count),
        }
    }
}

impl Buf for Transmit {
    fn remaining(&self) -> usize {
        self.remaining
    }

    fn chunk(&self) -> &[u8] {
        match self.segments.get(self.first) {
            Some(segment) => segment.slice(self),
            None => &self.arena[self.sealed..],
        }
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.first_chunks(usize::MAX, slices)
    }

    /// # Panics
    /// If `count` exceeds what remains, as [`Buf::advance`] requires.
    fn advance(&mut self, mut count: usize) {
        assert!(count <= self.remaining, "advanced past the end of the list");
        if count == self.remaining {
            // The usual case: a write took everything.
            self.clear();
            return;
        }
        self.seal();
        self.remaining -= count;
        while let Some(segment) = self.segments.get_mut(self.first) {
            let length = segment.len();
            if count < length {
                segment.advance(count);
                return;
            }
            count -= length;
            // Drop the payload at once: it may keep a whole slab.
            *segment = Stored::Arena { start: 0, end: 0 };
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;

    fn filled() -> (Transmit, Vec<u8>) {
        let mut out = Transmit::new();
        let mut expected = Vec::new();
        for round in 0..5u8 {
            let head = [round; 9];
            out.put(|arena| arena.extend_from_slice(&head));
            expected.extend_from_slice(&head);
            let payload = vec![0x80 | round; 2000 * usize::from(round % 2) + 7];
            expected.extend_from_slice(&payload);
            out.put_payload(Bytes::from(payload).into());
        }
        (out, expected)
    }

    #[test]
    fn slices_and_partial_writes_keep_the_order() {
        for step in [1, 3, 8, 9, 10, 2007, 2016, 3000] {
            let (mut out, expected) = filled();
            let mut written = Vec::new();
            while out.has_remaining() {
                let mut slices = [IoSlice::new(&[]); 3];
                let count = out.chunks_vectored(&mut slices);
                let mut left = step;
                for slice in &slices[..count] {
                    let taken = left.min(slice.len());
                    written.extend_from_slice(&slice[..taken]);
                    left -= taken;
                }
                out.advance(step - left);
            }
            assert_eq!(written, expected, "in steps of {step}");
        }
    }

    #[test]
    fn the_first_chunks_are_as_many_octets_as_asked_for_of_whatever_slices() {
        let (out, expected) = filled();
        for most in (0..40).chain([2_000, 2_007, 2_016, 2_030, 4_200, usize::MAX]) {
            let mut slices = [IoSlice::new(&[]); 16];
            let count = out.first_chunks(most, &mut slices);
            let octets: Vec<u8> = slices[..count]
                .iter()
                .flat_map(|slice| slice.iter().copied())
                .collect();
            assert_eq!(octets, expected[..most.min(expected.len())], "{most} octets");
            assert!(slices[..count].iter().all(|slice| !slice.is_empty()));
        }
    }

    #[test]
    fn what_was_written_is_no_slice_any_more() {
        let (mut out, _) = filled();
        // A run of the arena, a payload, and so on: two payloads are long.
        let mut counts = vec![out.slices()];
        for written in [9 + 7 + 9, 2_007, 9 + 7 + 9, 2_007] {
            out.advance(written);
            counts.push(out.slices());
        }
        assert_eq!(counts, [5, 4, 3, 2, 1]);
    }

    #[test]
    fn long_payloads_stay_where_they_are() {
        let payload = Bytes::from(vec![1; INLINE_PAYLOAD + 1]);
        let mut out = Transmit::new();
        out.put_payload(payload.clone().into());
        assert_eq!(out.chunk().as_ptr(), payload.as_ptr());
        assert_eq!(out.slices(), 1);
        let mut out = Transmit::new();
        out.put_payload(payload.slice(1..).into());
        assert_ne!(
            out.chunk().as_ptr(),
            payload[1..].as_ptr(),
            "a short one is copied"
        );
    }

    #[test]
    fn external_payloads_keep_their_place() {
        let mut out = Transmit::new();
        out.put(|arena| arena.extend_from_slice(b"head"));
        out.put_payload(External::new(Arc::new(()), 50, 3).into());
        out.put(|arena| arena.extend_from_slice(b"next"));
        assert_eq!((out.remaining(), out.slices()), (11, 3));

        // What is next, when that lies external.
        let place = |out: &Transmit| match out.segments().next() {
            Some(Segment::External(at)) => Some((at.start(), at.len())),
            _ => None,
        };
        let all: Vec<_> = out.segments().map(|part| (part.len(), part.is_empty())).collect();
        assert_eq!(all, [(4, false), (3, false), (4, false)]);
        let mut slices = [IoSlice::new(&[]); 4];
        assert_eq!(out.chunks_vectored(&mut slices), 1);
        assert_eq!(&*slices[0], b"head");
        assert!(place(&out).is_none() && out.has_external());
        out.advance(4);

        // It is written in two parts.
        assert_eq!(out.chunks_vectored(&mut [IoSlice::new(&[]); 4]), 0);
        assert_eq!(place(&out), Some((50, 3)));
        out.advance(1);
        assert_eq!(place(&out), Some((51, 2)));
        out.advance(2);
        assert!(place(&out).is_none() && !out.has_external());
        assert_eq!(out.chunk(), b"next");
        out.advance(4);
        assert!(!out.has_remaining());
        assert!(out.segments().all(|part| part.is_empty()));
    }

    /// Two places of 200 octets each: what is read of the first is its offset, of the second that and 0x80.
    fn places() -> [Arc<u8>; 2] {
        [Arc::new(0), Arc::new(0x80)]
    }

    fn octets(of: &External, space: &mut [u8]) {
        let mark = of.owner().downcast_ref::<u8>().unwrap();
        for (at, octet) in (of.start()..).zip(space) {
            *octet = at as u8 | mark;
        }
    }

    #[test]
    fn external_payloads_are_fetched_in_their_place_a_portion_at_a_time() {
        let places = places();
        // Frames of 20 and 3 octets: of the first place, then of both in turn, with some that are here between.
        let fill = |out: &mut Transmit| {
            let mut expected = Vec::new();
            for frame in 0..6u64 {
                out.put(|arena| arena.extend_from_slice(b"head"));
                expected.extend_from_slice(b"head");
                let place = &places[usize::from(frame > 3 && frame % 2 == 1)];
                let payload = External::new(Arc::clone(place) as _, frame * 20, 20);
                let mut read = [0; 20];
                octets(&payload, &mut read);
                expected.extend_from_slice(&read);
                out.put_payload(payload.into());
                let here = vec![frame as u8; 1_500 * usize::from(frame == 2) + 3];
                expected.extend_from_slice(&here);
                out.put_payload(Bytes::from(here).into());
            }
            expected
        };
        for most in [1, 3, 24, 25, 64, 100, 2_000] {
            for step in [1, 7, 25, 5_000] {
                let mut out = Transmit::new();
                // The second time the room is there already.
                for _ in 0..2 {
                    let expected = fill(&mut out);
                    let mut written = Vec::new();
                    while out.has_remaining() {
                        out.fetch(most, |of, space| {
                            assert!(of.len() == space.len() && space.len() <= most);
                            octets(of, space);
                            Ok::<_, ()>(())
                        })
                        .unwrap();
                        let chunk = out.chunk();
                        let count = chunk.len().min(step);
                        assert!(count > 0, "{most} {step}");
                        written.extend_from_slice(&chunk[..count]);
                        out.advance(count);
                    }
                    assert_eq!(written, expected, "{most} at a time, written in steps of {step}");
                }
            }
        }
    }

    #[test]
    fn what_was_fetched_and_not_written_is_given_up_and_fetched_again() {
        let [place, _] = places();
        for written in 0..27 {
            let mut out = Transmit::new();
            let mut expected = Vec::new();
            for frame in 0..3 {
                out.put(|arena| arena.extend_from_slice(b"head"));
                expected.extend_from_slice(b"head");
                out.put_payload(External::new(Arc::clone(&place) as _, frame * 20, 20).into());
                expected.extend(frame as u8 * 20..frame as u8 * 20 + 20);
            }
            let read = |of: &External, space: &mut [u8]| {
                octets(of, space);
                Ok::<_, ()>(())
            };
            out.fetch(50, read).unwrap();
            out.advance(written);
            assert_eq!(out.has_fetched(), written < 50, "{written}");
            let room = out.unfetch();
            assert!(room.len() == FETCH_START + 50 && out.room() == 0 && !out.has_fetched());
            let at = room.as_ptr();
            out.lend_room(room);
            out.lend_room(vec![0; 1_000]);
            assert_eq!((out.fetched.as_ptr(), out.room()), (at, FETCH_START + 50));
            assert_eq!(out.remaining(), expected.len() - written);
            out.fetch(1_000, read).unwrap();
            let rest = out.copy_to_bytes(out.remaining());
            assert_eq!(rest, expected[written..], "{written}");
        }
    }

    #[test]
    fn no_more_is_fetched_than_lies_within_the_octets_that_are_next() {
        let [place, _] = places();
        // 30 octets are here, in the list's own memory and in a payload, before the 40 that lie external.
        for (most, expected) in [(10, 0), (30, 0), (31, 1), (45, 15), (70, 40), (100, 40)] {
            let mut out = Transmit::new();
            out.put(|arena| arena.extend_from_slice(&[1; 10]));
            out.put_payload(Bytes::from_static(&[2; 20]).into());
            out.put_payload(External::new(Arc::clone(&place) as _, 0, 40).into());
            let mut fetched = 0;
            let read = |of: &External, space: &mut [u8]| {
                assert_eq!(of.len(), space.len());
                fetched += space.len();
                Ok::<_, ()>(())
            };
            out.fetch(most, read).unwrap();
            assert_eq!(fetched, expected, "of {most}");
            assert_eq!((out.remaining(), out.has_external()), (70, expected < 40));
        }
    }

    #[test]
    fn neighbours_are_fetched_at_once_and_a_failure_is_told() {
        let [place, other] = places();
        let mut out = Transmit::new();
        for start in [0, 20, 40] {
            out.put(|arena| arena.extend_from_slice(b"head"));
            out.put_payload(External::new(Arc::clone(&place) as _, start, 20).into());
        }
        out.put_payload(External::new(Arc::clone(&other) as _, 60, 20).into());
        out.put_payload(External::new(place, 60, 20).into());
        let mut reads = Vec::new();
        let read = |of: &External, _: &mut [u8]| {
            reads.push((of.start(), of.len()));
            match reads.len() {
                3 => Err("gone"),
                _ => Ok(()),
            }
        };
        assert_eq!(out.fetch(1_000, read), Err("gone"));
        assert_eq!(reads, [(0, 60), (60, 20), (60, 20)]);
    }
}
