//! The buffers that files are read into, used again once the transport has let go of them.
//!
//! A chunk leaves as [`Bytes`] that own their buffer; when the last of them is dropped, the buffer comes back here,
//! already initialised, so that a long download neither allocates nor clears memory for each chunk. What all responses hold
//! at once is kept near a bound: the less of it is left, the shorter the chunks. Called by `file_body` and `files`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// A chunk takes at most this share of what is left of the bound.
const SHARE: usize = 8;

/// How long chunks are, and how many bytes they may come to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// The first of a body; none is shorter, but for the last.
    pub(crate) first: usize,
    /// The longest.
    pub(crate) most: usize,
    /// What all chunks in use come to before they are of the shortest.
    pub(crate) all: usize,
    /// What files that were read whole come to.
    pub(crate) whole: usize,
}

/// What a buffer counts among.
#[derive(Clone, Copy, Debug)]
enum Use {
    Chunk,
    Whole,
}

/// A store of idle buffers, shared by all the responses of a service.
#[derive(Debug)]
pub(crate) struct Buffers {
    sizes: Sizes,
    max_idle: usize,
    idle: Mutex<Vec<Vec<u8>>>,
    /// Bytes of buffers in use for chunks.
    used: AtomicUsize,
    /// And for files that were read whole.
    whole: AtomicUsize,
}

/// A buffer in use. Dropping it, or the last of the [`Bytes`] made of it, gives it back.
pub(crate) struct Buffer {
    data: Vec<u8>,
    filled: usize,
    counts: Use,
    home: Arc<Buffers>,
}

impl Buffers {
    /// A store that keeps `max_idle` buffers of the longest kind at most.
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

    /// How long a chunk may be now, in bytes: the longest, or a half, a quarter and so on of it; at least as long as the
    /// first.
    pub(crate) fn most(&self) -> usize {
        let left = self.sizes.all.saturating_sub(self.used.load(Ordering::Relaxed));
        let mut most = self.sizes.most;
        while most > left / SHARE && most / 2 >= self.sizes.first {
            most /= 2;
        }
        most
    }

    /// How long a chunk may be that takes no memory, in bytes.
    pub(crate) fn longest(&self) -> usize {
        self.sizes.most
    }

    /// How long the first chunk of a body is, in bytes; at least one.
    pub(crate) fn first(&self) -> usize {
        self.sizes.first
    }

    /// A buffer for `length` bytes: one to be used again when that is more than half of the longest chunk, otherwise one of
    /// just that length.
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

    /// A buffer of just that length, which counts as the others do.
    pub(crate) fn take_exactly(self: &Arc<Self>, length: usize) -> Buffer {
        self.lend(vec![0; length], length, Use::Chunk)
    }

    /// A buffer for a file of that length, unless those that were read whole come to their bound with it.
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

    /// How many bytes are in use, for chunks and for files that were read whole.
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
    /// The content, for filling.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        self.data.get_mut(..self.filled).unwrap_or_default()
    }

    /// The content, to be handed on.
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
