//! Bytes that depend on their position. One side sends them, the other compares them.
//!
//! The comparison finds the position of any byte that is lost, repeated, moved or changed.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// The size of a body's chunks.
const CHUNK: u64 = 64 << 10;

/// The eight bytes at positions `8 * index` and after: splitmix64's output function of the index.
fn word(index: u64) -> [u8; 8] {
    let mut z = index.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (z ^ (z >> 31)).to_le_bytes()
}

/// The words that hold `length` bytes from `position` on, and how many bytes of the first to skip.
fn words(position: u64) -> (impl Iterator<Item = [u8; 8]>, usize) {
    let skip = usize::from(position.to_le_bytes()[0] % 8);
    ((position / 8..).map(word), skip)
}

/// The `length` bytes at `position`.
pub(super) fn bytes(position: u64, length: u64) -> Bytes {
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let (words, skip) = words(position);
    let mut made = Vec::with_capacity(length + 16);
    for word in words {
        if made.len() >= skip + length {
            break;
        }
        made.extend_from_slice(&word);
    }
    let mut made = Bytes::from(made);
    made.truncate(skip + length);
    made.slice(skip..)
}

/// Compares received chunks of any size with the pattern.
pub(super) struct Check {
    begin: u64,
    position: u64,
    wrong: Option<u64>,
}

impl Check {
    /// The first byte is at `position`.
    pub(super) fn new(position: u64) -> Self {
        Self {
            begin: position,
            position,
            wrong: None,
        }
    }

    /// Compares the next chunk.
    pub(super) fn update(&mut self, data: &[u8]) {
        let (words, skip) = words(self.position);
        let mut rest = data;
        let mut at = self.position;
        for (index, word) in words.enumerate() {
            if rest.is_empty() {
                break;
            }
            let word = word.get(if index == 0 { skip } else { 0 }..).unwrap_or_default();
            let (now, later) = rest.split_at(word.len().min(rest.len()));
            if self.wrong.is_none() && !word.starts_with(now) {
                let same = word.iter().zip(now).take_while(|(a, b)| a == b).count();
                self.wrong = Some(at + count(same));
            }
            at += count(now.len());
            rest = later;
        }
        self.position = at;
    }

    /// The count of bytes if all are correct, or the position of the first wrong byte.
    pub(super) fn result(&self) -> Result<u64, u64> {
        self.wrong.map_or(Ok(self.position - self.begin), Err)
    }
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// A part of the pattern as a body.
pub(super) struct PatternBody {
    position: u64,
    end: u64,
}

impl PatternBody {
    pub(super) fn new(position: u64, length: u64) -> Self {
        Self {
            position,
            end: position.saturating_add(length),
        }
    }
}

impl Body for PatternBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let length = (self.end - self.position).min(CHUNK);
        if length == 0 {
            return Poll::Ready(None);
        }
        let chunk = bytes(self.position, length);
        self.position += length;
        Poll::Ready(Some(Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.position == self.end
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.end - self.position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_cut_of_the_pattern_is_a_part_of_the_whole() {
        let whole = bytes(0, 100);
        for position in 0..20_usize {
            for length in 0..20_usize {
                let cut = bytes(count(position), count(length));
                assert_eq!(cut, whole.slice(position..position + length));
            }
        }
    }

    #[test]
    fn right_bytes_in_chunks_of_any_size_are_right() {
        for size in 1..40 {
            let mut check = Check::new(5);
            for chunk in bytes(5, 1_000).chunks(size) {
                check.update(chunk);
            }
            assert_eq!(check.result(), Ok(1_000));
        }
    }

    #[test]
    fn the_first_wrong_byte_is_found() {
        for wrong in 0..50_usize {
            let mut data = bytes(3, 50).to_vec();
            data[wrong] ^= 1;
            let mut check = Check::new(3);
            for chunk in data.chunks(7) {
                check.update(chunk);
            }
            assert_eq!(check.result(), Err(3 + count(wrong)));
        }
    }
}
