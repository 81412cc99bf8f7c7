//! The buffers that files are read into, used again once the transport has let go of them.
//!
//! A chunk leaves as [`Bytes`] that own their buffer; when the last of them is dropped, the buffer comes back here,
//! already initialised, so that a long download neither allocates nor clears memory for each chunk. Called by
//! `file_body`.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// A store of idle buffers, shared by all the responses of a service.
#[derive(Debug)]
pub(super) struct Buffers {
    size: usize,
    max_idle: usize,
    idle: Mutex<Vec<Vec<u8>>>,
}

/// A buffer in use. Dropping it, or the last of the [`Bytes`] made of it, gives it back.
pub(super) struct Buffer {
    data: Vec<u8>,
    filled: usize,
    home: Arc<Buffers>,
}

impl Buffers {
    /// A store of buffers of `size` bytes each, which keeps `max_idle` of them at most.
    pub(super) fn new(size: usize, max_idle: usize) -> Arc<Buffers> {
        Arc::new(Buffers {
            size: size.max(1),
            max_idle,
            idle: Mutex::new(Vec::new()),
        })
    }

    /// How long each buffer is, in bytes; at least one.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// An idle buffer, or a new one.
    pub(super) fn take(self: &Arc<Self>) -> Buffer {
        let idle = self.lock().pop();
        Buffer {
            data: idle.unwrap_or_else(|| vec![0; self.size]),
            filled: 0,
            home: Arc::clone(self),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Vec<u8>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Buffer {
    /// Makes the first `length` bytes the content (or all, when there are fewer), and lends them for filling.
    pub(super) fn fill(&mut self, length: usize) -> &mut [u8] {
        self.filled = length.min(self.data.len());
        self.data.get_mut(..self.filled).unwrap_or_default()
    }

    /// The content, to be handed on.
    pub(super) fn freeze(self) -> Bytes {
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
        let mut idle = self.home.lock();
        if idle.len() < self.home.max_idle {
            idle.push(std::mem::take(&mut self.data));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_when_its_last_slice_is_dropped() {
        let buffers = Buffers::new(8, 1);
        let mut buffer = buffers.take();
        buffer.fill(3).copy_from_slice(b"abc");
        let place = buffer.data.as_ptr();
        let bytes = buffer.freeze();
        let slice = bytes.slice(1..2);
        assert_eq!(bytes, "abc");
        drop(bytes);
        assert_eq!(buffers.lock().len(), 0);
        drop(slice);
        assert_eq!(buffers.lock().len(), 1);
        assert_eq!(buffers.take().data.as_ptr(), place);
    }

    #[test]
    fn no_more_are_kept_than_allowed() {
        let buffers = Buffers::new(8, 2);
        let taken: Vec<Buffer> = (0..5).map(|_| buffers.take()).collect();
        drop(taken);
        assert_eq!(buffers.lock().len(), 2);
    }
}
