//! Settings that a client and a server have in common, and their defaults in this library.

use fullbore_proto::{Config, DEFAULT_WINDOW, MemoryBudget, Refill, WindowSize};
use tokio::net::TcpStream;

use crate::error::Error;

/// The memory budget of a client or a server that is given none, in bytes: 512 MiB.
pub const DEFAULT_MEMORY_BUDGET: u64 = 512 << 20;

/// No write is made shorter than this because little may wait in the kernel: the least that ends with a TLS record.
const LEAST_WRITE: usize = 80 << 10;

/// Sizes of the kernel's buffers of a TCP connection, and of what may wait in them, in bytes. None leaves them to the kernel,
/// which tunes them itself up to a limit (on Linux the third figures of `net.ipv4.tcp_rmem` and `net.ipv4.tcp_wmem`).
///
/// A flow-control window larger than the kernel's receive buffer cannot help beyond it: the octets have nowhere to be.
/// `ss -tmi` shows what a connection has (`rb`, `tb`, `notsent`) and how full its windows are. A size of `send` or `receive`
/// that is set turns the kernel's own tuning off, and is bounded by `net.core.rmem_max` and `net.core.wmem_max`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TcpBuffers {
    /// SO_SNDBUF.
    pub send: Option<u32>,
    /// SO_RCVBUF.
    pub receive: Option<u32>,
    /// TCP_NOTSENT_LOWAT (Linux): how much the kernel may hold that it has not sent yet, whatever the size of its buffer.
    /// Writes are made no larger than that either, down to 80 KiB ([`Config::write_size`]). None, which is the default,
    /// and 0 leave it to `net.ipv4.tcp_notsent_lowat`, which is no limit unless somebody has set it.
    ///
    /// What the kernel holds leaves in the order in which it came: an urgent response (RFC 9218) waits for all of it.
    /// Beside a bulk response over 100 Mbit/s and 20 ms one of 10 KB took 375 ms, with 128 KiB here 81:
    ///
    /// ```text
    /// fullbore serve DIR --plaintext --tcp-unsent 128KiB
    /// fullbore link --listen 127.0.0.1:9000 --to 127.0.0.1:8080 --rtt 20ms --rate 100Mbit --buffer 256KiB
    /// cargo run --release -p fullbore --example urgent -- http://127.0.0.1:9000/1GiB http://127.0.0.1:9000/10KB
    /// ```
    ///
    /// The price is that the connection is woken, and writes, for each half of the limit that leaves, which costs processor
    /// time: the more of it, the lower the limit. A path that carries more than half of the limit while the connection waits
    /// for its turn runs dry: half of 128 KiB is half a millisecond of a gigabit.
    pub unsent: Option<u32>,
}

impl TcpBuffers {
    /// Applies them, with TCP_NODELAY: frames are gathered here already, and waiting for more in the kernel only delays
    /// them. What the system refuses is left as it is.
    pub(crate) fn apply(self, stream: &TcpStream) {
        let _ = stream.set_nodelay(true);
        let socket = socket2::SockRef::from(stream);
        if let Some(bytes) = self.send {
            let _ = socket.set_send_buffer_size(bytes as usize);
        }
        if let Some(bytes) = self.receive {
            let _ = socket.set_recv_buffer_size(bytes as usize);
        }
        #[cfg(target_os = "linux")]
        if let Some(bytes) = self.unsent {
            let _ = socket.set_tcp_notsent_lowat(bytes);
        }
    }
}

/// What a client's and a server's builder set in the same way.
#[derive(Debug, Clone, Default)]
pub(crate) struct Engine {
    pub(crate) config: Config,
    pub(crate) tcp_buffers: TcpBuffers,
    /// The window that was out of range, if one was.
    fault: Option<Error>,
}

impl Engine {
    /// The window of each stream, fixed from then on.
    pub(crate) fn set_stream_window(&mut self, bytes: u32) {
        match window("a stream", 1, bytes) {
            Ok(window) => self.config.stream_window = window,
            Err(error) => self.fault = Some(error),
        }
        self.config.adaptive = false;
    }

    /// The window of each connection, fixed from then on.
    pub(crate) fn set_connection_window(&mut self, bytes: u32) {
        match window("the connection", DEFAULT_WINDOW.bytes(), bytes) {
            Ok(window) => self.config.connection_window = window,
            Err(error) => self.fault = Some(error),
        }
        self.config.adaptive = false;
    }

    pub(crate) fn set_refill(&mut self, stream: Refill, connection: Refill) {
        self.config.stream_refill = stream;
        self.config.connection_refill = connection;
    }

    /// Nothing more is set: a budget of its own, unless it was given one.
    ///
    /// # Errors
    /// A window that was set is out of range.
    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        if let Some(unsent) = self.tcp_buffers.unsent.filter(|bytes| *bytes > 0) {
            // What is being written is past all scheduling too.
            let most = usize::try_from(unsent).unwrap_or(usize::MAX).max(LEAST_WRITE);
            self.config.write_size = self.config.write_size.min(most);
        }
        self.config
            .budget
            .get_or_insert_with(|| MemoryBudget::new(DEFAULT_MEMORY_BUDGET));
        Ok(())
    }
}

/// A window of `bytes`, or the error that says what a window is.
pub(crate) fn window(what: &str, least: u32, bytes: u32) -> Result<WindowSize, Error> {
    WindowSize::new(bytes)
        .filter(|window| window.bytes() >= least)
        .ok_or_else(|| {
            Error::config(format!(
                "the window of {what} is from {least} to 2147483647 bytes, and {bytes} is not"
            ))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn what_may_wait_unsent_is_set_on_the_socket_of_either_end() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connected = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        for stream in [connected, accepted] {
            let unsent = || socket2::SockRef::from(&stream).tcp_notsent_lowat().unwrap();
            let before = unsent();
            TcpBuffers::default().apply(&stream);
            assert_eq!(unsent(), before);
            let buffers = TcpBuffers {
                unsent: Some(131_072),
                ..TcpBuffers::default()
            };
            buffers.apply(&stream);
            assert_eq!(unsent(), 131_072);
            assert!(stream.nodelay().unwrap());
        }
    }

    #[test]
    fn a_write_is_no_larger_than_what_may_wait_unsent_unless_that_is_very_little() {
        let largest = Config::default().write_size;
        for (unsent, write) in [
            (None, largest),
            (Some(0), largest),
            (Some(u32::MAX), largest),
            (Some(200_000), 200_000),
            (Some(1), LEAST_WRITE),
        ] {
            let mut engine = Engine::default();
            engine.tcp_buffers.unsent = unsent;
            engine.finish().unwrap();
            assert_eq!(engine.config.write_size, write, "{unsent:?}");
        }
    }
}
