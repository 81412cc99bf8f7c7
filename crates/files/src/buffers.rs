//! The buffers that files are read into, and the limits on their memory.
//!
//! A chunk is sent as [`Bytes`] that own their buffer. When the last of them is dropped, the buffer comes back here,
//! initialised, so a long download neither allocates nor clears memory for each chunk. The memory of all responses has a
//! limit: the less of it is left, the shorter the chunks. Called by `file_body` and `files`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// A chunk takes at most this share of the free memory.
const SHARE: usize = 8;

/// The lengths of chunks, and the memory of all of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// The first chunk of a body. Only the last one may be shorter.
    pub(crate) first: usize,
    /// The longest chunk.
    pub(crate) most: usize,
    /// The memory of all chunks, beyond which each is as short as the first.
    pub(crate) all: usize,
    /// The memory of all files read whole.
    pub(crate) whole: usize,
}

/// Which count a buffer belongs to.
#[derive(Clone, Copy, Debug)]
enum Use {
    Chunk,
    Whole,
}

/// The idle buffers and the counts, shared by all responses of a service.
#[derive(Debug)]
pub(crate) struct Buffers {
    sizes: Sizes,
    max_idle: usize,
    idle: Mutex<Vec<Vec<u8>>>,
    /// Bytes of buffers in use for chunks.
    used: AtomicUsize,
    /// Bytes of buffers in use for files read whole.
    whole: AtomicUsize,
}

/// A buffer in use. Dropping it, or the last of the [`Bytes`] made of it, returns it.
pub(crate) struct Buffer {
    data: Vec<u8>,
    filled: usize,
    counts: Use,
    home: Arc<Buffers>,
}

impl Buffers {
    /// Keeps at most `max_idle` idle buffers.
    pub(crate) fn new(sizes: Sizes, max_idle: usize) -> Arc<Buffers> {
        let most = sizes.most.max(1);
        Arc::new(Buffers {
            sizes: Sizes {
                most,
                first: sizes.first.clamp(1, most),
                ..sizes
            },
            max_idle,
            idle: Mutex::new(Vec::new()),
            used: AtomicUsize::new(0),
            whole: AtomicUsize::new(0),
        })
    }

    /// The longest chunk allowed now, in bytes: the maximum divided by a power of two, at least as long as the first chunk.
    pub(crate) fn most(&self) -> usize {
        let left = self.sizes.all.saturating_sub(self.used.load(Ordering::Relaxed));
        let mut most = self.sizes.most;
        while most > left / SHARE && most / 2 >= self.sizes.first {
            most /= 2;
        }
        most
    }

    /// The longest chunk that takes no memory, in bytes.
    pub(crate) fn longest(&self) -> usize {
        self.sizes.most
    }

    /// The length of the first chunk of a body in bytes; at least 1.
    pub(crate) fn first(&self) -> usize {
        self.sizes.first
    }

    /// A buffer for `length` bytes: a reusable one for more than half of the longest chunk, otherwise one of exactly this
    /// length.
    pub(crate) fn take(self: &Arc<Self>, length: usize) -> Buffer {
        if length <= self.sizes.most / 2 {
            return self.take_exactly(length);
        }
        let idle = self.lock().pop();
        self.lend(
            idle.unwrap_or_else(|| vec![0; self.sizes.most.max(length)]),
            length,
            Use::Chunk,
        )
    }

    /// A buffer of exactly this length, counted as a chunk.
    pub(crate) fn take_exactly(self: &Arc<Self>, length: usize) -> Buffer {
        self.lend(vec![0; length], length, Use::Chunk)
    }

    /// A buffer for a file of this length; `None` when the limit for files read whole would be exceeded.
    pub(crate) fn take_whole(self: &Arc<Self>, length: usize) -> Option<Buffer> {
        let before = self.whole.load(Ordering::Relaxed);
        (before.saturating_add(length) <= self.sizes.whole)
            .then(|| self.lend(vec![0; length], length, Use::Whole))
    }

    fn lend(self: &Arc<Self>, data: Vec<u8>, length: usize, counts: Use) -> Buffer {
        self.count(counts).fetch_add(data.len(), Ordering::Relaxed);
        Buffer {
            data,
            filled: length,
            counts,
            home: Arc::clone(self),
        }
    }

    fn count(&self, counts: Use) -> &AtomicUsize {
        match counts {
            Use::Chunk => &self.used,
            Use::Whole => &self.whole,
        }
    }

    /// How many bytes are in use, for chunks and for files read whole.
    #[cfg(test)]
    pub(crate) fn used(&self) -> (usize, usize) {
        (
            self.used.load(Ordering::Relaxed),
            self.whole.load(Ordering::Relaxed),
        )
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Vec<u8>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Buffer {
    /// The content, to be filled.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        self.data.get_mut(..self.filled).unwrap_or_default()
    }

    /// The content as bytes that own the buffer.
    pub(crate) fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self.data.get(..self.filled).unwrap_or_default()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let count = self.home.count(self.counts);
        count.fetch_sub(self.data.len(), Ordering::Relaxed);
        if self.data.len() < self.home.sizes.most {
            return;
        }
        let mut idle = self.home.lock();
        if idle.len() < self.home.max_idle {
            idle.push(std::mem::take(&mut self.data));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffers(max_idle: usize) -> Arc<Buffers> {
        let sizes = Sizes {
            first: 2,
            most: 8,
            all: 256,
            whole: 10,
        };
        Buffers::new(sizes, max_idle)
    }

    #[test]
    fn a_buffer_comes_back_when_its_last_slice_is_dropped() {
        let buffers = buffers(1);
        let mut buffer = buffers.take(5);
        buffer.space().copy_from_slice(b"abcde");
        let place = buffer.data.as_ptr();
        let bytes = buffer.freeze();
        let slice = bytes.slice(1..2);
        assert_eq!(bytes, "abcde");
        drop(bytes);
        assert_eq!(buffers.lock().len(), 0);
        drop(slice);
        assert_eq!(buffers.lock().len(), 1);
        assert_eq!(buffers.take(8).data.as_ptr(), place);
    }

    #[test]
    fn only_chunks_of_more_than_half_of_the_longest_have_a_buffer_that_is_kept() {
        let buffers = buffers(9);
        for (length, takes) in [(1, 1), (4, 4), (5, 8), (8, 8), (9, 9)] {
            let mut buffer = buffers.take(length);
            assert_eq!(buffer.space().len(), length);
            assert_eq!(buffers.used(), (takes, 0), "{length}");
            assert_eq!(buffer.freeze().len(), length);
            buffers.lock().clear();
        }
        assert_eq!(buffers.take_exactly(8).data.len(), 8);
        assert_eq!(buffers.used(), (0, 0));
    }

    #[test]
    fn a_chunk_has_an_octet_at_least_and_the_first_is_no_longer_than_the_longest() {
        for (first, most, expected) in [(0, 0, (1, 1)), (0, 8, (1, 8)), (9, 8, (8, 8)), (8, 9, (8, 9))] {
            let sizes = Sizes {
                first,
                most,
                all: 0,
                whole: 0,
            };
            let buffers = Buffers::new(sizes, 1);
            assert_eq!((buffers.first(), buffers.longest()), expected);
        }
    }

    #[test]
    fn no_more_are_kept_than_allowed() {
        let buffers = buffers(2);
        let taken: Vec<Buffer> = (0..5).map(|_| buffers.take(8)).collect();
        drop(taken);
        assert_eq!(buffers.lock().len(), 2);
    }

    #[test]
    fn chunks_become_shorter_as_their_bound_comes_near() {
        let buffers = buffers(60);
        let mut taken = Vec::new();
        let lengths: Vec<usize> = (0..60)
            .map(|_| {
                let length = buffers.most();
                taken.push(buffers.take(length));
                length
            })
            .collect();
        // A chunk is at most an eighth of what is left, and 2 at least.
        assert_eq!(lengths[..25], [8; 25], "{lengths:?}");
        assert_eq!(lengths[25..32], [4; 7], "{lengths:?}");
        assert_eq!(lengths[32..], [2; 28], "{lengths:?}");
        let used: usize = taken.iter().map(|buffer| buffer.data.len()).sum();
        assert!(used <= 256 + 60 * 2, "{used}");
        drop(taken);
        assert!(
            buffers.lock().iter().all(|data| data.len() == 8),
            "short ones are not kept"
        );
        assert_eq!(buffers.most(), 8);
        assert_eq!(buffers.used(), (0, 0));
    }

    #[test]
    fn what_is_read_whole_has_a_bound_of_its_own() {
        let buffers = buffers(1);
        let first = buffers.take_whole(6).unwrap();
        assert!(buffers.take_whole(5).is_none());
        let second = buffers.take_whole(4).unwrap();
        assert_eq!(buffers.used(), (0, 10));
        assert!(buffers.take_whole(1).is_none());
        drop(first.freeze());
        assert!(buffers.take_whole(6).is_some());
        drop(second);
        assert_eq!(buffers.used(), (0, 0));
    }
}
