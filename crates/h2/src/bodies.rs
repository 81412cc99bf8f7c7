//! The payloads of bodies, by reference: buffers of the user's type that wait in the engine as tokens.
//!
//! The engine frames payloads and never reads them. A long buffer stays here, and an [`External`] range with the number of its
//! slot goes to the engine. The connection resolves the ranges on a write list to slices. A buffer is dropped when its last
//! range is: written, or dropped with its stream.

use std::collections::HashMap;
use std::io::IoSlice;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Buf;
use fullbore_proto::{External, IdHashing, Payload, Segment, Transmit};

/// A buffer below this length is copied: a token costs more.
pub(crate) const COPY_BELOW: usize = 1_024;

/// Where an offset begins in the start of a range; the slot lies above.
const OFFSET_BITS: u32 = 32;

/// The way of buffers from the handles to the connection.
#[derive(Debug)]
pub(crate) struct Outbox<B> {
    arrivals: Mutex<Arrivals<B>>,
    dropped: Arc<Dropped>,
}

#[derive(Debug)]
struct Arrivals<B> {
    next_slot: u32,
    buffers: Vec<(u32, B)>,
}

/// The slots whose ranges are all dropped.
#[derive(Debug, Default)]
struct Dropped(Mutex<Vec<u32>>);

/// The owner of the ranges of one buffer.
#[derive(Debug)]
struct Token {
    slot: u32,
    dropped: Arc<Dropped>,
}

/// The buffers of a connection, by slot.
#[derive(Debug)]
pub(crate) struct Bodies<B> {
    buffers: HashMap<u32, Body<B>, IdHashing>,
    /// The number of the newest write, in which each buffer is advanced once.
    pass: u64,
}

#[derive(Debug)]
struct Body<B> {
    buffer: B,
    /// How many bytes it has been advanced.
    advanced: u64,
    pass: u64,
}

impl<B> Outbox<B> {
    pub(crate) fn new() -> Self {
        Outbox {
            arrivals: Mutex::new(Arrivals {
                next_slot: 0,
                buffers: Vec::new(),
            }),
            dropped: Arc::default(),
        }
    }
}

impl<B: Buf> Outbox<B> {
    /// The payload that stands for a buffer in the engine.
    pub(crate) fn put(&self, mut buffer: B) -> Payload {
        let length = buffer.remaining();
        if length < COPY_BELOW {
            return buffer.copy_to_bytes(length).into();
        }
        let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = arrivals.next_slot;
        arrivals.next_slot = slot.wrapping_add(1);
        arrivals.buffers.push((slot, buffer));
        drop(arrivals);
        let dropped = Arc::clone(&self.dropped);
        let token = Arc::new(Token { slot, dropped });
        External::new(token, u64::from(slot) << OFFSET_BITS, length).into()
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        let slots = &self.dropped.0;
        slots
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(self.slot);
    }
}

impl<B> Bodies<B> {
    pub(crate) fn new() -> Self {
        Bodies {
            buffers: HashMap::default(),
            pass: 0,
        }
    }

    /// Takes the buffers that have arrived, and drops those that nobody needs.
    pub(crate) fn update(&mut self, outbox: &Outbox<B>) {
        // First, because a buffer arrives before its ranges can be dropped.
        let dropped = {
            let mut slots = outbox.dropped.0.lock().unwrap_or_else(PoisonError::into_inner);
            core::mem::take(&mut *slots)
        };
        let arrived = {
            let mut arrivals = outbox.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
            core::mem::take(&mut arrivals.buffers)
        };
        for (slot, buffer) in arrived {
            let body = Body {
                buffer,
                advanced: 0,
                pass: 0,
            };
            self.buffers.insert(slot, body);
        }
        for slot in dropped {
            self.buffers.remove(&slot);
        }
    }
}

impl<B: Buf> Bodies<B> {
    /// The next octets of a write list, as far as they are contiguous in their buffers and there are slots. Returns the number
    /// of slices, which is 0 only for an empty list.
    pub(crate) fn slices<'a>(&'a mut self, list: &'a Transmit, slices: &mut [IoSlice<'a>]) -> usize {
        if !list.has_external() {
            return list.first_chunks(usize::MAX, slices);
        }
        self.advance(list);
        let mut count = 0;
        for segment in list.segments() {
            if count == slices.len() {
                break;
            }
            let (octets, is_whole) = match &segment {
                Segment::Memory(octets) => (*octets, true),
                Segment::External(range) => self.octets(range),
            };
            if !octets.is_empty() {
                slices[count] = IoSlice::new(octets);
                count += 1;
            }
            if !is_whole {
                break;
            }
        }
        count
    }

    /// Advances each buffer to the first of its octets that is not written.
    fn advance(&mut self, list: &Transmit) {
        self.pass += 1;
        for segment in list.segments() {
            let Segment::External(range) = segment else {
                continue;
            };
            let (slot, offset) = place(range);
            let Some(body) = self.buffers.get_mut(&slot) else {
                continue;
            };
            if body.pass == self.pass {
                continue;
            }
            body.pass = self.pass;
            let written = offset.saturating_sub(body.advanced);
            // A range is never longer than the buffer that it was made for.
            let written = usize::try_from(written).unwrap_or(usize::MAX);
            let written = written.min(body.buffer.remaining());
            body.buffer.advance(written);
            body.advanced += written as u64;
        }
    }

    /// The octets of a range, and whether they are all.
    fn octets(&self, range: &External) -> (&[u8], bool) {
        let (slot, offset) = place(range);
        let Some(body) = self.buffers.get(&slot) else {
            return (&[], false);
        };
        let chunk = body.buffer.chunk();
        let start = usize::try_from(offset.saturating_sub(body.advanced)).unwrap_or(usize::MAX);
        let rest = chunk.get(start..).unwrap_or(&[]);
        match rest.get(..range.len()) {
            Some(whole) => (whole, true),
            None => (rest, false),
        }
    }
}

/// The slot of a range, and its offset in the buffer.
fn place(range: &External) -> (u32, u64) {
    let start = range.start();
    ((start >> OFFSET_BITS) as u32, start & u64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use bytes::Bytes;
    use fullbore_proto::{Config, Connection, Time};

    use super::*;

    /// All octets of the list, in writes of at most `most` octets.
    fn written(bodies: &mut Bodies<VecDeque<u8>>, list: &mut Transmit, most: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while list.has_remaining() {
            let mut slices = [IoSlice::new(&[]); 8];
            let count = bodies.slices(list, &mut slices);
            assert!(count > 0);
            let octets: Vec<u8> = slices[..count]
                .iter()
                .flat_map(|slice| slice.iter().copied())
                .collect();
            let taken = octets.len().min(most);
            all.extend_from_slice(&octets[..taken]);
            list.advance(taken);
        }
        all
    }

    #[test]
    fn buffers_in_pieces_are_written_in_order_and_dropped_at_their_end() {
        for most in [101, 5_000, 100_000] {
            let outbox = Outbox::new();
            let mut bodies = Bodies::new();
            let mut client = Connection::client(Config::default(), Time::ZERO);
            let request = http::Request::post("http://example.com/").body(()).unwrap();
            let stream = client.open(request, false).unwrap();
            let mut expected = Vec::new();
            for (start, length) in [(0, 3_000), (1, 10), (2, 40_000), (3, 0)] {
                // Wraps around within the buffer.
                let mut buffer: VecDeque<u8> = (0..length + 500).map(|at| (at * 7 + start) as u8).collect();
                buffer.drain(..500);
                buffer.extend([9; 400]);
                expected.extend(buffer.iter());
                client.send_data(stream, outbox.put(buffer), false).unwrap();
            }
            let mut sent = Vec::new();
            while client.wants_transmit() {
                let mut list = Transmit::new();
                client.transmit(&mut list, Time::ZERO);
                bodies.update(&outbox);
                sent.extend(written(&mut bodies, &mut list, most));
            }
            let payloads: Vec<u8> = data(&sent);
            assert!(payloads == expected, "{most} at a time");
            bodies.update(&outbox);
            assert!(bodies.buffers.is_empty());
        }
    }

    /// The payloads of the DATA frames after a client's preface.
    fn data(mut octets: &[u8]) -> Vec<u8> {
        let mut payloads = Vec::new();
        octets = &octets[24..];
        while let [a, b, c, kind, _, _, _, _, _, rest @ ..] = octets {
            let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
            let (payload, next) = rest.split_at(length);
            if *kind == 0 {
                payloads.extend_from_slice(payload);
            }
            octets = next;
        }
        payloads
    }

    #[test]
    fn a_buffer_is_dropped_with_its_stream() {
        let outbox = Outbox::new();
        let mut bodies: Bodies<Bytes> = Bodies::new();
        let payload = outbox.put(Bytes::from(vec![0; 5_000]));
        bodies.update(&outbox);
        assert_eq!(bodies.buffers.len(), 1);
        drop(payload);
        bodies.update(&outbox);
        assert!(bodies.buffers.is_empty());
        // Dropped before it was taken.
        drop(outbox.put(Bytes::from(vec![0; 5_000])));
        bodies.update(&outbox);
        assert!(bodies.buffers.is_empty());
    }
}
