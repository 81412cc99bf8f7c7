//! The options of `get`, `put` and `serve` for windows and TCP. Those of TCP are for comparisons, and not in the help.

use clap::Args as Options;
use fullbore::Config;
use fullbore::settings::{DEFAULT_MEMORY_BUDGET, MemoryBudget, TcpBuffers, WindowSize};

use crate::sizes;

/// What `get`, `put` and `serve` let the user set about windows and TCP.
#[derive(Options, Clone, Debug)]
pub(crate) struct PathArgs {
    /// Receive window of each stream, such as 16MiB: how much the peer may send ahead [default: adapts to the path]
    #[arg(long, value_name = "BYTES", value_parser = sizes::stream_window)]
    pub(crate) stream_window: Option<WindowSize>,

    /// Receive window of each connection [default: adapts to the path]
    #[arg(long, value_name = "BYTES", value_parser = sizes::connection_window)]
    pub(crate) connection_window: Option<WindowSize>,

    /// Memory for all receive windows together, such as 64MiB [default: 512MiB]
    #[arg(long, value_name = "BYTES", value_parser = sizes::budget)]
    pub(crate) budget: Option<u64>,

    /// Size of the kernel's TCP receive buffer (SO_RCVBUF) [default: the kernel tunes it]
    #[arg(long, value_name = "BYTES", value_parser = sizes::size, hide = true)]
    pub(crate) tcp_receive_buffer: Option<u32>,

    /// Size of the kernel's TCP send buffer (SO_SNDBUF) [default: the kernel tunes it]
    #[arg(long, value_name = "BYTES", value_parser = sizes::size, hide = true)]
    pub(crate) tcp_send_buffer: Option<u32>,

    /// Limit on unsent data in the kernel (TCP_NOTSENT_LOWAT, Linux); an urgent response waits behind it; 0 is no limit
    /// [default: what the path takes in 10 ms]
    #[arg(long, value_name = "BYTES", value_parser = sizes::unsent, hide = true)]
    pub(crate) tcp_unsent: Option<u32>,
}

impl PathArgs {
    /// Applies the options of windows to a client's or a server's settings. A window that is set does not adapt.
    pub(crate) fn configure(&self, config: &mut Config) {
        config.set_adaptive(config.adaptive() && self.stream_window.or(self.connection_window).is_none());
        config.set_stream_window(self.stream_window.unwrap_or(config.stream_window()));
        config.set_connection_window(self.connection_window.unwrap_or(config.connection_window()));
    }

    pub(crate) fn memory_budget(&self) -> MemoryBudget {
        MemoryBudget::new(self.budget.unwrap_or(DEFAULT_MEMORY_BUDGET))
    }

    pub(crate) fn tcp_buffers(&self) -> TcpBuffers {
        TcpBuffers {
            send: self.tcp_send_buffer,
            receive: self.tcp_receive_buffer,
            unsent: self.tcp_unsent,
            ..TcpBuffers::default()
        }
    }
}
