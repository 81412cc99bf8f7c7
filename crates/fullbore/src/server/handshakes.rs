//! TLS handshakes, in turns: one at a time on a thread, and every socket that is ready between two of them.

use std::future::Future;
use std::io::{self, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use fullbore_proto::Config;
use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio_rustls::rustls::server::Acceptor;
use tokio_rustls::rustls::{ProtocolVersion, ServerConfig, ServerConnection};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{LazyConfigAcceptor, TlsAcceptor};

use crate::driver::Begun;
use crate::turns::{Turns, queue};

thread_local! {
    /// The TLS handshakes of this thread.
    static HANDSHAKES: Arc<Semaphore> = queue();
}

pin_project! {
    /// A TLS handshake that is polled in its turn.
    pub(super) struct InTurn<F> {
        turns: Turns,
        #[pin]
        handshake: F,
    }
}

impl<F> InTurn<F> {
    pub(super) fn new(handshake: F) -> Self {
        InTurn {
            turns: Turns::of(&HANDSHAKES),
            handshake,
        }
    }
}

impl<F: Future> Future for InTurn<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let handshake = this.handshake;
        ready!(this.turns.poll(cx, |cx| handshake.poll(cx)))
    }
}

/// What a handshake ends with: a transport and perhaps the connection of HTTP/2 whose SETTINGS have left, or the reason and the
/// transport below TLS.
type Accepted<T> = Result<(TlsStream<T>, Option<Box<Begun>>), (io::Error, Option<T>)>;

/// Accepts TLS. Where the configuration allows data in the server's first flight ([`ServerConfig::send_half_rtt_data`]) and HTTP/2
/// was negotiated, SETTINGS and the window of the connection are in it, so that a client knows them before its first request. If
/// they came later, the client would send 65,535 octets of a body and then wait for a round trip.
pub(super) async fn handshake<T>(io: T, tls: Arc<ServerConfig>, config: Arc<Config>) -> Accepted<T>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let mut begun = None;
    let accept = match tls.send_half_rtt_data {
        false => TlsAcceptor::from(tls).accept(io),
        true => {
            let mut hello = LazyConfigAcceptor::new(Acceptor::default(), io);
            match (&mut hello).await {
                Ok(start) => start.into_stream_with(tls, |tls| begun = send_settings(tls, config)),
                Err(error) => return Err((error, hello.take_io())),
            }
        }
    };
    match accept.into_fallible().await {
        Ok(stream) => Ok((stream, begun)),
        Err((error, io)) => Err((error, Some(io))),
    }
}

/// Begins a connection of HTTP/2 and puts its SETTINGS behind the server's part of the handshake, if that is complete.
fn send_settings(tls: &mut ServerConnection, config: Arc<Config>) -> Option<Box<Begun>> {
    // TLS 1.2 has another round trip, and so has TLS 1.3 when the client has offered no key that we take.
    if tls.protocol_version() != Some(ProtocolVersion::TLSv1_3) || tls.alpn_protocol() != Some(b"h2") {
        return None;
    }
    let mut begun = Box::new(Begun::server(config));
    begun.take_first(|octets| tls.writer().write(octets).unwrap_or(0));
    Some(begun)
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Mutex;

    use super::*;
    use crate::turns::wake_after_sockets;

    thread_local! {
        static ANOTHER: Arc<Semaphore> = queue();
    }

    type Order = Arc<Mutex<Vec<&'static str>>>;

    /// Notes a name each time it is polled, `times` times.
    async fn note(order: Order, name: &'static str, times: usize) {
        let mut polled = 0;
        poll_fn(|cx| {
            order.lock().unwrap().push(name);
            polled += 1;
            cx.waker().wake_by_ref();
            match polled == times {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }

    /// Has its turn whenever the sockets have been polled, as a task that waits for one.
    async fn other(order: Order) {
        for _ in 0..12 {
            order.lock().unwrap().push("other");
            poll_fn(|cx| {
                wake_after_sockets(cx);
                Poll::Ready(())
            })
            .await;
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn between_two_handshakes_whoever_has_something_to_read_has_its_turn() {
        let order = Order::default();
        let mut tasks: Vec<_> = (0..5)
            .map(|_| tokio::spawn(InTurn::new(note(Arc::clone(&order), "handshake", 2))))
            .collect();
        tasks.push(tokio::spawn(other(Arc::clone(&order))));
        for task in tasks {
            task.await.unwrap();
        }
        let order = order.lock().unwrap();
        let handshakes = order.iter().filter(|name| **name == "handshake").count();
        assert_eq!(handshakes, 10, "{order:?}");
        // One before the other task in a round of the runtime, and one behind it in the round before.
        let together = order.split(|name| *name == "other").map(<[_]>::len).max();
        assert_eq!(together, Some(2), "{order:?}");
    }

    #[tokio::test]
    async fn a_handshake_does_not_wait_for_those_of_another_queue() {
        let order = Order::default();
        let noted = Arc::clone(&order);
        let mut other_queue = Turns::of(&ANOTHER);
        let another = tokio::spawn(poll_fn(move |cx| {
            other_queue.poll(cx, |_| noted.lock().unwrap().push("another"))
        }));
        let handshake = tokio::spawn(InTurn::new(note(Arc::clone(&order), "handshake", 1)));
        tokio::spawn(other(Arc::clone(&order)));
        another.await.unwrap();
        handshake.await.unwrap();
        let order = order.lock().unwrap();
        assert_eq!(
            order.first_chunk(),
            Some(&["another", "handshake", "other"]),
            "{order:?}"
        );
    }

    #[tokio::test]
    async fn a_handshake_that_is_given_up_while_it_waits_passes_its_turn_on() {
        let order = Order::default();
        let first = tokio::spawn(InTurn::new(note(Arc::clone(&order), "first", 3)));
        let given_up = tokio::spawn(InTurn::new(note(Arc::clone(&order), "given up", 3)));
        let last = tokio::spawn(InTurn::new(note(Arc::clone(&order), "last", 3)));
        tokio::task::yield_now().await;
        given_up.abort();
        first.await.unwrap();
        last.await.unwrap();
        assert!(given_up.await.unwrap_err().is_cancelled());
        let order = order.lock().unwrap();
        let count = |name| order.iter().filter(|noted| **noted == name).count();
        assert_eq!((count("first"), count("last")), (3, 3), "{order:?}");
    }
}
