//! How much has left of the bodies whose senders ask for it: [`SentBytes`].

use std::sync::Arc;

use bytes::Buf;
use fullbore_proto::StreamId;
use tokio::io::{AsyncRead, AsyncWrite};

use super::{Accept, Driver};
use crate::cell::Cell;
use crate::sent_bytes::{Counter, SentBytes};

/// A body that is counted.
pub(super) struct CountedBody {
    id: StreamId,
    cell: Arc<Cell>,
    counter: Counter,
}

impl<T, A> Driver<T, A>
where
    T: AsyncRead + AsyncWrite + Unpin,
    A: Accept,
{
    /// Counts the body of a request that was opened, if its sender asks for it. `end` says that there is none.
    pub(super) fn begin_to_count(&mut self, id: StreamId, cell: &Arc<Cell>, sent: &SentBytes, end: bool) {
        let counter = sent.begin();
        if !end {
            self.counted.push(CountedBody {
                id,
                cell: Arc::clone(cell),
                counter,
            });
        }
    }

    /// Whether the stream is still needed for its count, after its handles.
    pub(super) fn is_counted(&self, id: StreamId) -> bool {
        self.counted.iter().any(|body| body.id == id)
    }

    /// Counts what has left since the last time.
    pub(super) fn count_sent(&mut self) {
        if self.counted.is_empty() {
            return;
        }
        let now = self.now();
        let unwritten = self.out.remaining() as u64;
        let connection = &self.connection;
        self.counted.retain(|body| {
            let Some(report) = connection.stream_report(body.id, now) else {
                return false;
            };
            // The rest of the list may be all of this stream.
            body.counter.set(report.sent_bytes.saturating_sub(unwritten));
            let state = body.cell.lock();
            let outbound = &state.outbound;
            let is_queued = !outbound.commands.is_empty() || report.queued > 0 || unwritten > 0;
            let goes_on = state.error.is_none() && (is_queued || !outbound.finished);
            drop(state);
            if !goes_on {
                // The stream may have to be released.
                body.cell.post();
            }
            goes_on
        });
    }
}
