//! The reference of a handle to its stream. The last one ends the stream.

use std::fmt;
use std::sync::{Arc, MutexGuard};
use std::task::Poll;

use fullbore_proto::StreamId;

use crate::state::{Shared, State};
use crate::stream::Stream;

pub(crate) struct Handle {
    shared: Arc<Shared>,
    id: StreamId,
    /// Whether it counts no more.
    is_released: bool,
}

impl Handle {
    /// The mutex is held by the caller.
    pub(crate) fn new(shared: &Arc<Shared>, state: &mut State, id: StreamId) -> Self {
        state.add_stream_handle(id);
        Handle {
            shared: Arc::clone(shared),
            id,
            is_released: false,
        }
    }

    /// Another handle of the stream. The mutex is held by the caller.
    pub(crate) fn another(&self, state: &mut State) -> Self {
        Handle::new(&self.shared, state, self.id)
    }

    pub(crate) fn id(&self) -> StreamId {
        self.id
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.lock()
    }

    /// Asks the stream, which is there as long as one of its handles is. `Pending` without a wake-up if it is not.
    pub(crate) fn poll<R>(&self, ask: impl FnOnce(&mut Stream) -> Poll<R>) -> Poll<R> {
        match self.lock().stream(self.id) {
            Some(stream) => ask(stream),
            None => Poll::Pending,
        }
    }
}

impl Handle {
    /// Drops it early, after something else, and locks the mutex once for both.
    pub(crate) fn release(&mut self, first: impl FnOnce(&mut State, StreamId)) {
        let mut state = self.shared.lock();
        first(&mut state, self.id);
        state.drop_stream_handle(self.id);
        self.is_released = true;
    }
}

impl Clone for Handle {
    fn clone(&self) -> Self {
        Handle::new(&self.shared, &mut self.lock(), self.id)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.is_released {
            self.lock().drop_stream_handle(self.id);
        }
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
