//! A queue of bytes in reusable chunks: one copy from a socket, one copy to another.
//!
//! The engine has one queue for each side of each connection, and one pool for all queues.

use std::array;
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};

/// Small enough for ten thousand connections with a few bytes each. A queue of 64 MiB has a thousand chunks.
const CHUNK: usize = 64 << 10;

/// The most bytes of one read: four chunks. Larger reads were not faster, and delay deliveries.
pub(crate) const MOST_READ: usize = 4 * CHUNK;

/// Four chunks and the rest of the last.
const READ_SLICES: usize = 5;

/// The most bytes of one write: 1 MiB, or a little less.
const WRITE_SLICES: usize = 16;

/// Unused chunks. Last in, first out: the last one is still in the processor's cache.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    chunks: Vec<Box<[u8]>>,
}

impl Pool {
    /// Chunks beyond this (64 MiB) are freed.
    const MOST: usize = 1024;

    fn take(&mut self) -> Box<[u8]> {
        self.chunks
            .pop()
            .unwrap_or_else(|| vec![0; CHUNK].into_boxed_slice())
    }

    fn give(&mut self, chunk: Box<[u8]>) {
        if self.chunks.len() < Self::MOST {
            self.chunks.push(chunk);
        }
    }
}

/// A queue of bytes. Holds no memory while it is empty.
#[derive(Debug, Default)]
pub(crate) struct ByteQueue {
    chunks: VecDeque<Box<[u8]>>,
    /// Written bytes of the first chunk.
    start: usize,
    len: usize,
}

impl ByteQueue {
    /// Reads once, at most `most` bytes; returns what [`Read::read_vectored`] returned.
    pub(crate) fn read_from(
        &mut self,
        source: &mut impl Read,
        most: usize,
        pool: &mut Pool,
    ) -> io::Result<usize> {
        let most = most.min(MOST_READ);
        let end = self.start + self.len;
        while self.chunks.len() * CHUNK < end + most {
            self.chunks.push_back(pool.take());
        }
        let mut slices: [IoSliceMut<'_>; READ_SLICES] = array::from_fn(|_| IoSliceMut::new(&mut []));
        let mut from = end % CHUNK;
        let mut left = most;
        for (slice, chunk) in slices.iter_mut().zip(self.chunks.iter_mut().skip(end / CHUNK)) {
            let to = CHUNK.min(from + left);
            left -= to - from;
            *slice = IoSliceMut::new(&mut chunk[from..to]);
            from = 0;
        }
        let read = source.read_vectored(&mut slices);
        // A reader may not report more than the space it was given.
        self.len += read.as_ref().map_or(0, |&count| count.min(most));
        self.trim(pool);
        read
    }

    /// The last `count` bytes, in order.
    pub(crate) fn last(&self, count: usize) -> impl Iterator<Item = &[u8]> {
        let end = self.start + self.len;
        let mut from = end - count.min(self.len);
        self.chunks.iter().skip(from / CHUNK).map_while(move |chunk| {
            if from == end {
                return None;
            }
            let begin = from % CHUNK;
            let size = (CHUNK - begin).min(end - from);
            from += size;
            Some(&chunk[begin..begin + size])
        })
    }

    /// Writes once, at most `most` bytes from the front, and removes the written bytes.
    pub(crate) fn write_to(
        &mut self,
        writer: &mut impl Write,
        most: usize,
        pool: &mut Pool,
    ) -> io::Result<usize> {
        let mut slices: [IoSlice<'_>; WRITE_SLICES] = array::from_fn(|_| IoSlice::new(&[]));
        let mut from = self.start;
        let mut left = most.min(self.len);
        for (slice, chunk) in slices.iter_mut().zip(self.chunks.iter()) {
            let to = CHUNK.min(from + left);
            left -= to - from;
            *slice = IoSlice::new(&chunk[from..to]);
            from = 0;
            if left == 0 {
                break;
            }
        }
        let written = writer.write_vectored(&slices)?.min(self.len);
        self.len -= written;
        self.start += written;
        while self.start >= CHUNK {
            self.start -= CHUNK;
            if let Some(chunk) = self.chunks.pop_front() {
                pool.give(chunk);
            }
        }
        self.trim(pool);
        Ok(written)
    }

    /// Removes all bytes.
    pub(crate) fn clear(&mut self, pool: &mut Pool) {
        self.len = 0;
        self.trim(pool);
    }

    /// Returns the chunks after the last byte to the pool.
    fn trim(&mut self, pool: &mut Pool) {
        if self.len == 0 {
            self.start = 0;
        }
        let used = (self.start + self.len).div_ceil(CHUNK);
        for chunk in self.chunks.drain(used..) {
            pool.give(chunk);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes or gives a different number of bytes each time.
    struct Odd {
        bytes: Vec<u8>,
        at: usize,
        turn: usize,
    }

    impl Odd {
        fn new(bytes: Vec<u8>) -> Self {
            Self {
                bytes,
                at: 0,
                turn: 0,
            }
        }

        fn size(&mut self) -> usize {
            self.turn += 1;
            [1, 70_000, 65_536, 9, 200_000, 65_535, 131_072][self.turn % 7]
        }
    }

    impl Read for Odd {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = buffer.len().min(self.bytes.len() - self.at);
            buffer[..count].copy_from_slice(&self.bytes[self.at..self.at + count]);
            self.at += count;
            Ok(count)
        }

        fn read_vectored(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
            let mut left = self.size();
            let mut total = 0;
            for slice in slices {
                let part = left.min(slice.len());
                let count = self.read(&mut slice[..part])?;
                left -= count;
                total += count;
            }
            Ok(total)
        }
    }

    impl Write for Odd {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.bytes.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
            let mut left = self.size();
            let mut total = 0;
            for slice in slices {
                let part = left.min(slice.len());
                self.write(&slice[..part])?;
                left -= part;
                total += part;
            }
            Ok(total)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn pattern(count: usize) -> Vec<u8> {
        (0..count).map(|at| (at * 31 + at / 251) as u8).collect()
    }

    #[test]
    fn what_goes_in_comes_out_whatever_the_sizes() -> io::Result<()> {
        let bytes = pattern(3_000_000);
        let mut source = Odd::new(bytes.clone());
        let mut writer = Odd::new(Vec::new());
        let (mut queue, mut pool) = (ByteQueue::default(), Pool::default());
        let mut turn = 0;
        while writer.bytes.len() < bytes.len() {
            turn += 1;
            let before = source.at;
            let count = queue.read_from(&mut source, MOST_READ - turn % 1_000, &mut pool)?;
            let last: Vec<u8> = queue.last(count).flatten().copied().collect();
            assert_eq!(last, bytes[before..before + count]);
            if turn % 3 == 0 || count == 0 {
                queue.write_to(&mut writer, 100_000 + turn, &mut pool)?;
            }
        }
        assert!(writer.bytes == bytes);
        assert_eq!(queue.len, 0);
        Ok(())
    }

    #[test]
    fn an_empty_queue_holds_no_memory_and_chunks_are_used_again() -> io::Result<()> {
        let (mut queue, mut pool) = (ByteQueue::default(), Pool::default());
        for _ in 0..100 {
            let mut source = Odd::new(pattern(200_000));
            while queue.read_from(&mut source, MOST_READ, &mut pool)? > 0 {}
            let mut writer = Odd::new(Vec::new());
            while queue.len > 0 {
                queue.write_to(&mut writer, usize::MAX, &mut pool)?;
            }
            assert_eq!(queue.chunks.len(), 0);
        }
        assert!(pool.chunks.len() <= 8, "{} chunks", pool.chunks.len());
        queue.read_from(&mut Odd::new(pattern(10)), MOST_READ, &mut pool)?;
        queue.clear(&mut pool);
        assert_eq!((queue.len, queue.chunks.len()), (0, 0));
        Ok(())
    }
}
