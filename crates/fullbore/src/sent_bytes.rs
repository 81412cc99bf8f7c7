//! How much of a request's body has left, for the caller of a client.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::Request;
use tokio::sync::watch;

/// Counts the bytes of a request's body that have left. A body is read ahead of the network, so what it has yielded is no
/// measure: a peer that refuses the rest has not got what waits in a buffer.
///
/// A byte counts once the transport has taken it, in a DATA frame over HTTP/2. TLS and the kernel may still hold it. Over
/// HTTP/2 up to one write that has begun may be missing.
///
/// ```no_run
/// # async fn run(client: fullbore::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let sent = fullbore::client::SentBytes::new();
/// let mut request = http::Request::put("https://example.com/").body("a long text".to_owned())?;
/// request.extensions_mut().insert(sent.clone());
/// let response = client.request(request).await?;
/// sent.ended().await;
/// println!("{} after {} bytes", response.status(), sent.get());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct SentBytes(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    bytes: watch::Receiver<u64>,
    has_begun: bool,
}

impl SentBytes {
    /// Counts nothing until it is in the extensions of a request that is sent. A request that is sent again is counted
    /// anew.
    pub fn new() -> Self {
        SentBytes(Arc::new(Mutex::new(State {
            bytes: watch::channel(0).1,
            has_begun: false,
        })))
    }

    /// The bytes that have left.
    pub fn get(&self) -> u64 {
        *self.lock().bytes.borrow()
    }

    /// Whether the request has been given to a connection, with its body or without one. Before, it waits for a connection or
    /// for a stream.
    pub fn has_begun(&self) -> bool {
        self.lock().has_begun
    }

    /// Waits until no more of the body leaves: it has left completely, the peer refused the rest, or the request has failed.
    /// Completes at once if the request has not begun.
    pub async fn ended(&self) {
        let mut bytes = self.lock().bytes.clone();
        while bytes.changed().await.is_ok() {}
    }

    /// The counter of a request, if it has one.
    pub(crate) fn of(request: &Request<()>) -> Option<&Self> {
        request.extensions().get()
    }

    /// Begins anew.
    pub(crate) fn begin(&self) -> Counter {
        let (sender, receiver) = watch::channel(0);
        *self.lock() = State {
            bytes: receiver,
            has_begun: true,
        };
        Counter(sender)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for SentBytes {
    fn default() -> Self {
        Self::new()
    }
}

/// Counts one sending of a body. Dropped when no more of it leaves.
#[derive(Debug)]
pub(crate) struct Counter(watch::Sender<u64>);

impl Counter {
    /// So many bytes have left. A smaller number than before changes nothing.
    pub(crate) fn set(&self, bytes: u64) {
        self.0.send_if_modified(|before| {
            let more = bytes > *before;
            *before = bytes.max(*before);
            more
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_body_that_is_sent_again_is_counted_anew_and_a_late_count_of_the_first_is_ignored() {
        let sent = SentBytes::new();
        sent.ended().await;
        assert!(!sent.has_begun());
        let first = sent.begin();
        assert!(sent.has_begun());
        first.set(5);
        first.set(3);
        assert_eq!(sent.get(), 5);
        let second = sent.begin();
        first.set(7);
        assert_eq!(sent.get(), 0);
        second.set(2);
        drop(second);
        sent.ended().await;
        assert_eq!(sent.get(), 2);
    }
}
