//! How much of a request's body an HTTP/1.1 connection has sent.
//!
//! hyper buffers what a body yields, so the body is measured where it leaves: by the octets that the transport has taken,
//! without the head and without the framing of chunks (RFC 9112 section 7.1).

use std::collections::VecDeque;
use std::io::IoSlice;

use crate::sent_bytes::Counter;

/// The end of a head (RFC 9112 section 2.1).
const END_OF_HEAD: &[u8] = b"\r\n\r\n";

/// Finds the end of a head in what is written.
#[derive(Debug, Default)]
pub(super) struct HeadLength {
    octets: u64,
    /// How much of [`END_OF_HEAD`] came last.
    matched: usize,
}

impl HeadLength {
    /// The length of the head, once it has been written.
    pub(super) fn known(&self) -> Option<u64> {
        (self.matched == END_OF_HEAD.len()).then_some(self.octets)
    }

    /// The transport has taken the first `taken` octets of `slices`.
    pub(super) fn wrote(&mut self, slices: &[IoSlice<'_>], taken: usize) {
        for octet in slices.iter().flat_map(|slice| slice.iter()).take(taken) {
            if self.known().is_some() {
                return;
            }
            self.octets += 1;
            self.matched = match END_OF_HEAD.get(self.matched) {
                Some(expected) if expected == octet => self.matched + 1,
                _ => usize::from(*octet == b'\r'),
            };
        }
    }
}

/// Counts the body of one request.
#[derive(Debug)]
pub(super) struct SentBody {
    counter: Counter,
    /// Whether each frame of the body becomes a chunk.
    chunked: bool,
    /// The lengths of the frames that hyper has taken from the body and that have not left.
    frames: VecDeque<u64>,
    /// The octets of the frames that have left: as they were written, and without framing.
    written: u64,
    bytes: u64,
}

impl SentBody {
    pub(super) fn new(counter: Counter, chunked: bool) -> Self {
        SentBody {
            counter,
            chunked,
            frames: VecDeque::new(),
            written: 0,
            bytes: 0,
        }
    }

    /// hyper has taken a frame.
    pub(super) fn yielded(&mut self, bytes: usize) {
        // hyper leaves empty ones out.
        if bytes > 0 {
            self.frames.push_back(bytes as u64);
        }
    }

    /// The transport has taken so many octets behind the head.
    pub(super) fn wrote(&mut self, octets: u64) {
        let mut left = octets.saturating_sub(self.written);
        while let Some(&frame) = self.frames.front() {
            let (before, after) = self.framing(frame);
            let whole = before + frame + after;
            if left < whole {
                let partial = left.saturating_sub(before).min(frame);
                return self.counter.set(self.bytes + partial);
            }
            left -= whole;
            self.written += whole;
            self.bytes += frame;
            self.frames.pop_front();
        }
        self.counter.set(self.bytes);
    }

    /// Whether everything that hyper has taken has left.
    pub(super) fn is_all(&self) -> bool {
        self.frames.is_empty()
    }

    /// The octets before and after a frame: its length in hexadecimal digits, and two ends of lines.
    fn framing(&self, frame: u64) -> (u64, u64) {
        match self.chunked {
            true => (u64::from(frame.ilog2() / 4 + 1) + 2, 2),
            false => (0, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sent_bytes::SentBytes;

    #[test]
    fn the_head_ends_with_the_first_empty_line_however_it_is_written() {
        let text = b"PUT / HTTP/1.1\r\na: \rb\r\n\r\nbody\r\n\r\n";
        for piece in [1, 2, 3, 5, 100] {
            let mut head = HeadLength::default();
            for octets in text.chunks(piece) {
                let (front, back) = octets.split_at(octets.len() / 2);
                head.wrote(&[IoSlice::new(front), IoSlice::new(back)], octets.len());
            }
            assert_eq!(head.known(), Some(25), "{piece}");
        }
        let mut head = HeadLength::default();
        head.wrote(&[IoSlice::new(text)], 24);
        assert_eq!(head.known(), None);
    }

    #[test]
    fn what_has_left_is_counted_without_the_framing_of_chunks() {
        for (chunked, counts) in [
            (false, [(0, 0), (1, 1), (15, 15), (20, 20), (31, 31), (40, 31)]),
            // "F\r\n", 15 octets and "\r\n", and then "10\r\n", 16 octets and "\r\n".
            (true, [(3, 0), (4, 1), (20, 15), (24, 15), (40, 31), (42, 31)]),
        ] {
            let sent = SentBytes::new();
            let mut body = SentBody::new(sent.begin(), chunked);
            for frame in [15, 0, 16] {
                body.yielded(frame);
            }
            for (octets, bytes) in counts {
                body.wrote(octets);
                assert_eq!(sent.get(), bytes, "{chunked} {octets}");
            }
        }
    }
}
