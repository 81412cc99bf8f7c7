//! Gathered writes.

use std::any::Any;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use socket2::SockRef;
use tokio::io::{AsyncWrite, Interest};
use tokio::net::TcpStream;

/// Writes the slices, a single one by a plain write: `send` costs the operating system less than `writev`.
pub(crate) fn poll_write_slices<T: AsyncWrite>(
    io: Pin<&mut T>,
    cx: &mut Context<'_>,
    slices: &[IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    match slices {
        [one] => io.poll_write(cx, one),
        slices => io.poll_write_vectored(cx, slices),
    }
}

/// As [`poll_write_slices`], over TCP by `sendmsg`, which costs the operating system less than `writev`.
pub(crate) fn poll_send_slices<T: AsyncWrite + Unpin + 'static>(
    io: Pin<&mut T>,
    cx: &mut Context<'_>,
    slices: &[IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    let io = io.get_mut();
    if slices.len() > 1 {
        if let Some(stream) = (io as &dyn Any).downcast_ref::<TcpStream>() {
            return poll_send(stream, cx, slices);
        }
    }
    poll_write_slices(Pin::new(io), cx, slices)
}

/// The most slices that a system takes at once. `writev` of the standard library takes no more of a longer list.
const MOST_SLICES: usize = 1_024;

fn poll_send(stream: &TcpStream, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
    let slices = &slices[..slices.len().min(MOST_SLICES)];
    loop {
        ready!(stream.poll_write_ready(cx))?;
        let sent = stream.try_io(Interest::WRITABLE, || SockRef::from(stream).send_vectored(slices));
        match sent {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            sent => return Poll::Ready(sent),
        }
    }
}

#[cfg(test)]
pub(crate) use tests::Calls;

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, DuplexStream, ReadBuf};

    use super::*;

    /// Counts the reads, and the writes of each kind.
    pub(crate) struct Calls {
        io: DuplexStream,
        pub(crate) reads: u32,
        pub(crate) plain: u32,
        pub(crate) vectored: u32,
    }

    impl Calls {
        pub(crate) fn of(io: DuplexStream) -> Self {
            Self {
                io,
                reads: 0,
                plain: 0,
                vectored: 0,
            }
        }
    }

    impl AsyncRead for Calls {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            into: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            self.reads += 1;
            Pin::new(&mut self.io).poll_read(cx, into)
        }
    }

    impl AsyncWrite for Calls {
        fn poll_write(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            octets: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.plain += 1;
            Pin::new(&mut self.io).poll_write(cx, octets)
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            slices: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            self.vectored += 1;
            Pin::new(&mut self.io).poll_write_vectored(cx, slices)
        }

        fn is_write_vectored(&self) -> bool {
            true
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.io).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.io).poll_shutdown(cx)
        }
    }

    /// Both ends of a TCP connection.
    async fn connected() -> (TcpStream, TcpStream) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let address = listener.local_addr().expect("an address");
        let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
        (near.expect("a connection"), far.expect("a connection").0)
    }

    #[tokio::test]
    async fn slices_are_sent_over_tcp_in_order_until_the_socket_is_full() {
        let (mut near, mut far) = connected().await;
        let bytes: Vec<u8> = (0..1 << 20).map(|index: u32| index.to_le_bytes()[1]).collect();
        let mut sent = 0;
        let mut fill = |cx: &mut Context<'_>, near: &mut TcpStream| -> Poll<io::Result<()>> {
            loop {
                let (first, second) = bytes[sent % bytes.len()..].split_at(1);
                let slices = [IoSlice::new(first), IoSlice::new(second)];
                sent += ready!(poll_send_slices(Pin::new(&mut *near), cx, &slices))?;
            }
        };
        let full = std::future::poll_fn(|cx| Poll::Ready(fill(cx, &mut near))).await;
        assert!(full.is_pending(), "nobody reads");
        drop(near);
        let mut read = Vec::new();
        far.read_to_end(&mut read).await.expect("what was sent");
        assert_eq!(read.len(), sent);
        assert!(
            read.iter()
                .zip(bytes.iter().cycle())
                .all(|(read, byte)| read == byte)
        );
    }

    #[tokio::test]
    async fn more_slices_than_the_system_takes_are_sent_in_part() {
        let (mut near, _far) = connected().await;
        let slices = vec![IoSlice::new(b"a"); MOST_SLICES + 1];
        let sent = std::future::poll_fn(|cx| poll_send_slices(Pin::new(&mut near), cx, &slices)).await;
        assert_eq!(sent.expect("room in the socket"), MOST_SLICES);
    }

    #[tokio::test]
    async fn a_send_to_a_peer_that_has_gone_is_an_error() {
        let (mut near, far) = connected().await;
        drop(far);
        let slices = [IoSlice::new(b"one"), IoSlice::new(b"two")];
        let failed = loop {
            let send = |cx: &mut Context<'_>| poll_send_slices(Pin::new(&mut near), cx, &slices);
            if let Err(error) = std::future::poll_fn(send).await {
                break error.kind();
            }
        };
        use io::ErrorKind::{BrokenPipe, ConnectionReset};
        assert!(matches!(failed, BrokenPipe | ConnectionReset), "{failed:?}");
    }

    #[cfg(feature = "tls")]
    #[tokio::test]
    async fn one_slice_below_tls_is_a_plain_write() {
        let (near, mut far) = tokio::io::duplex(64);
        let mut below = crate::tls::BelowTls(Calls::of(near));
        let (a, b) = (IoSlice::new(b"one"), IoSlice::new(b"two"));
        assert_eq!(below.write_vectored(&[a]).await.expect("room in the pipe"), 3);
        assert_eq!((below.0.plain, below.0.vectored), (1, 0));
        assert_eq!(below.write_vectored(&[a, b]).await.expect("room in the pipe"), 6);
        assert_eq!((below.0.plain, below.0.vectored), (1, 1));
        let mut read = [0; 9];
        far.read_exact(&mut read).await.expect("what was written");
        assert_eq!(&read, b"oneonetwo");
    }
}
