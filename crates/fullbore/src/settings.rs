//! Settings that a client and a server have in common, and their defaults in this library.

use fullbore_proto::{Config, DEFAULT_WINDOW, MemoryBudget, Refill, WindowSize};
use tokio::net::TcpStream;

use crate::error::Error;

/// The memory budget of a client or a server that is given none, in bytes: 512 MiB.
pub const DEFAULT_MEMORY_BUDGET: u64 = 512 << 20;

/// Sizes of the kernel's buffers of a TCP connection, in bytes. None leaves them to the kernel, which tunes them itself
/// up to a limit (on Linux the third figures of `net.ipv4.tcp_rmem` and `net.ipv4.tcp_wmem`).
///
/// A flow-control window larger than the kernel's receive buffer cannot help beyond it: the octets have nowhere to be.
/// `ss -tmi` shows what a connection has (`rb`, `tb`) and how full its windows are. A size that is set turns the
/// kernel's own tuning off, and is bounded by `net.core.rmem_max` and `net.core.wmem_max`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TcpBuffers {
    /// SO_SNDBUF.
    pub send: Option<u32>,
    /// SO_RCVBUF.
    pub receive: Option<u32>,
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
