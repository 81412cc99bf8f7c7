//! The settings that a client and a server have in common, with their defaults and checks. The builders
//! ([`ClientBuilder`](crate::ClientBuilder), [`ServerBuilder`](crate::ServerBuilder)) take them.

use std::ops::RangeInclusive;
use std::time::Duration;

use fullbore_proto::{Config, DEFAULT_WINDOW};
use tokio::net::TcpStream;

use crate::congestion::CongestionControl;
use crate::error::Error;

pub use fullbore_proto::{
    FirstWindows, KeepAlive, Limit, MemoryBudget, PeerLimit, Promise, Refill, Scheduling, Share,
    StreamBudget, WindowSize,
};

/// The memory budget of a client or a server for which none is set, in bytes: 512 MiB.
pub const DEFAULT_MEMORY_BUDGET: u64 = 512 << 20;

/// The default of [`TcpBuffers::unsent_time`]: the kernel may hold as much unsent data as the path takes in 10 ms.
///
/// An urgent response waits for about as long. The path is never idle if the connection has its turn within half of
/// this time.
pub const DEFAULT_UNSENT_TIME: Duration = Duration::from_millis(10);

/// SETTINGS_MAX_FRAME_SIZE (RFC 9113 section 6.5.2).
const MAX_FRAME_SIZE: RangeInclusive<u32> = 16_384..=(1 << 24) - 1;

/// The shortest write that [`TcpBuffers::unsent`] leads to, in bytes: the least that ends with a TLS record.
const LEAST_WRITE: usize = 80 << 10;

/// The versions of HTTP that a client or a server speaks. Default: both.
///
/// Over TLS the handshake decides (ALPN: `h2` and `http/1.1`). In cleartext a server decides by the first octets, which
/// in HTTP/2 are the connection preface (RFC 9113 section 3.4).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HttpVersions {
    /// HTTP/2 and HTTP/1.1.
    #[default]
    Both,
    /// HTTP/2 alone.
    Http2,
    /// HTTP/1.1 alone. A server also answers requests of HTTP/1.0.
    Http1,
}

impl HttpVersions {
    /// Whether HTTP/2 is among them.
    pub fn has_http2(self) -> bool {
        self != HttpVersions::Http1
    }

    /// Whether HTTP/1.1 is among them.
    pub fn has_http1(self) -> bool {
        self != HttpVersions::Http2
    }

    /// The ALPN protocols (RFC 7301), the preferred one first.
    #[cfg(feature = "tls")]
    pub(crate) fn alpn(self) -> Vec<Vec<u8>> {
        let versions = [(self.has_http2(), &b"h2"[..]), (self.has_http1(), b"http/1.1")];
        let names = versions.into_iter().filter(|(offered, _)| *offered);
        names.map(|(_, name)| name.to_vec()).collect()
    }

    /// A TLS configuration that offers these versions.
    #[cfg(feature = "tls")]
    pub(crate) fn offered_by(
        self,
        mut config: std::sync::Arc<tokio_rustls::rustls::ClientConfig>,
    ) -> std::sync::Arc<tokio_rustls::rustls::ClientConfig> {
        if config.alpn_protocols != self.alpn() {
            std::sync::Arc::make_mut(&mut config).alpn_protocols = self.alpn();
        }
        config
    }
}

/// The sizes of the kernel's buffers of a TCP connection, in bytes. `None` leaves a size to the kernel, which tunes
/// it up to a limit (on Linux the third figures of `net.ipv4.tcp_rmem` and `net.ipv4.tcp_wmem`).
///
/// A flow-control window larger than the kernel's receive buffer does not help beyond that. `ss -tmi` shows the
/// buffers of a connection (`rb`, `tb`, `notsent`). A size of `send` or `receive` turns the kernel's own tuning off,
/// and is bounded by `net.core.rmem_max` and `net.core.wmem_max`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TcpBuffers {
    /// SO_SNDBUF.
    pub send: Option<u32>,
    /// SO_RCVBUF.
    pub receive: Option<u32>,
    /// TCP_NOTSENT_LOWAT (Linux): how much unsent data the kernel may hold. The kernel sends in the order of the
    /// writes, so an urgent response (RFC 9218) waits for all that the kernel holds.
    ///
    /// `None`, the default: over HTTP/2 the limit follows the rate of the path ([`Self::unsent_time`]). A number, in
    /// bytes, fixes the limit; writes are then no larger either, but at least 80 KiB ([`Config::write_size`]). 0
    /// leaves the limit to `net.ipv4.tcp_notsent_lowat`, which is unlimited unless somebody has set it. The connections of
    /// HTTP/1.1 of a client have a limit of 256 KiB then.
    ///
    /// The price of a low limit is processor time: the connection wakes and writes each time that half of the limit
    /// has left. The path is idle at times if it carries more than half of the limit while the connection waits for
    /// its turn: half of 128 KiB is half a millisecond of a gigabit.
    pub unsent: Option<u32>,
    /// How much unsent data the kernel may hold, as the time in which the path takes it, while [`Self::unsent`] is
    /// `None` (Linux). `None` is 10 ms ([`DEFAULT_UNSENT_TIME`]). At least 32 KiB may wait, two TLS records. There is
    /// no limit on the first 128 KiB of a connection, and none on a path that takes 2 MiB or more in this time, as
    /// loopback does.
    ///
    /// A [`Client`](crate::Client) and a [`Server`](crate::Server) limit their connections over TCP and TLS, except
    /// those through a proxy and those of a [connector](crate::ClientBuilder::connector). Other transports, Unix
    /// sockets among them, have no limit.
    pub unsent_time: Option<Duration>,
}

impl TcpBuffers {
    /// Applies the sizes, and TCP_NODELAY: the driver gathers frames already, so a wait in the kernel only delays them.
    /// Errors of the system are ignored. For a [connector](crate::ClientBuilder::connector); a client and a server apply
    /// their own.
    pub fn apply(self, stream: &TcpStream) {
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

    /// Limits what may wait unsent on a client's connection of HTTP/1.1. The kernel would take 2.9 MB over loopback for a server that
    /// reads nothing, which looks like a server that keeps up to whoever feeds the body.
    pub(crate) fn limit_http1(self, stream: &TcpStream) {
        #[cfg(target_os = "linux")]
        if self.unsent.is_none() {
            let _ = socket2::SockRef::from(stream).set_tcp_notsent_lowat(HTTP1_UNSENT);
        }
        #[cfg(not(target_os = "linux"))]
        let _ = stream;
    }

    /// The time in which the path takes what may wait unsent; `None` if the limit is fixed.
    pub(crate) fn adaptive_unsent(self) -> Option<Duration> {
        match self.unsent {
            Some(_) => None,
            None => Some(self.unsent_time.unwrap_or(DEFAULT_UNSENT_TIME)),
        }
    }
}

/// What may wait unsent on a client's connection of HTTP/1.1, in bytes. Half of it is a millisecond of a gigabit.
#[cfg(target_os = "linux")]
const HTTP1_UNSENT: u32 = 256 << 10;

/// How often the kernel asks a silent peer before it gives the connection up.
#[cfg(target_os = "linux")]
const PROBES: u32 = 4;

/// The silence after which a peer is asked, unless it is set.
const SILENCE: Duration = Duration::from_secs(60);

/// Has the kernel ask a silent peer whether it is still there (SO_KEEPALIVE), in the times that PING has over HTTP/2.
pub(crate) fn keep_alive(stream: &TcpStream, config: &Config) {
    let silence = match config.keep_alive() {
        KeepAlive::Never => return,
        KeepAlive::WithStreams(silence) | KeepAlive::Always(silence) => silence,
        _ => SILENCE,
    };
    let keep_alive = socket2::TcpKeepalive::new().with_time(silence.max(Duration::from_secs(1)));
    #[cfg(target_os = "linux")]
    let keep_alive = keep_alive
        .with_interval((config.keep_alive_timeout() / PROBES).max(Duration::from_secs(1)))
        .with_retries(PROBES);
    // As with the other options, errors of the system are ignored.
    let _ = socket2::SockRef::from(stream).set_tcp_keepalive(&keep_alive);
}

/// The HTTP/2 options that a client and a server have in common. [`http2_options`] makes their setters.
#[derive(Debug, Clone, Default)]
pub(crate) struct Http2Options {
    pub(crate) config: Config,
    pub(crate) tcp_buffers: TcpBuffers,
    /// `None` for that of the system.
    pub(crate) congestion_control: Option<CongestionControl>,
    /// What was out of range, or not to be had.
    fault: Option<Error>,
}

impl Http2Options {
    pub(crate) fn set_stream_window(&mut self, bytes: u32) {
        match window("a stream", 1, bytes) {
            Ok(window) => self.config.set_stream_window(window),
            Err(error) => self.fault = Some(error),
        }
        self.config.set_adaptive(false);
    }

    pub(crate) fn set_connection_window(&mut self, bytes: u32) {
        match window("a connection", DEFAULT_WINDOW.bytes(), bytes) {
            Ok(window) => self.config.set_connection_window(window),
            Err(error) => self.fault = Some(error),
        }
        self.config.set_adaptive(false);
    }

    pub(crate) fn set_congestion_control(&mut self, name: &str) {
        match CongestionControl::named(name) {
            Ok(control) => self.congestion_control = Some(control),
            Err(error) => self.fault = Some(error),
        }
    }

    /// Checks the options, and adds what follows from them: a memory budget, and the size of a write.
    ///
    /// # Errors
    /// An option is out of range.
    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        let config = &mut self.config;
        window(
            "a connection",
            DEFAULT_WINDOW.bytes(),
            config.connection_window().bytes(),
        )?;
        if !MAX_FRAME_SIZE.contains(&config.max_frame_size()) {
            let (least, most) = (MAX_FRAME_SIZE.start(), MAX_FRAME_SIZE.end());
            let text = format!(
                "max_frame_size is {}; use {least} to {most}",
                config.max_frame_size()
            );
            return Err(Error::config(text));
        }
        self.complete();
        Ok(())
    }

    /// Has the builder fail with this, unless it fails already.
    pub(crate) fn refuse(&mut self, fault: Error) {
        self.fault.get_or_insert(fault);
    }

    /// Sets what follows from the options.
    pub(crate) fn complete(&mut self) {
        let config = &mut self.config;
        if let Some(unsent) = self.tcp_buffers.unsent.filter(|bytes| *bytes > 0) {
            // What is being written is past all scheduling too.
            let most = usize::try_from(unsent).unwrap_or(usize::MAX).max(LEAST_WRITE);
            config.set_write_size(config.write_size().min(most));
        }
        if config.budget().is_none() {
            config.set_budget(Some(MemoryBudget::new(DEFAULT_MEMORY_BUDGET)));
        }
    }
}

/// The setters of [`Http2Options`], for a builder that has them in its field `options`.
macro_rules! http2_options {
    () => {
        /// Changes any setting of the engine. Settings that the closure does not touch stay as they are.
        ///
        /// ```
        /// # fn main() -> Result<(), fullbore::Error> {
        /// let client = fullbore::Client::builder()
        ///     .stream_window(1 << 20)
        ///     .config(|config| config.set_max_header_list_size(16 << 10))
        ///     .build()?;
        /// # Ok(()) }
        /// ```
        pub fn config(mut self, change: impl FnOnce(&mut fullbore_proto::Config)) -> Self {
            change(&mut self.options.config);
            self
        }

        /// Sets a fixed receive window for each stream, in bytes: 1 to 2^31-1. It turns
        /// [`Config::adaptive`](crate::Config::adaptive) off.
        ///
        /// By default, windows adapt to the path. They open at 48 MiB, or less when the memory budget is short.
        pub fn stream_window(mut self, bytes: u32) -> Self {
            self.options.set_stream_window(bytes);
            self
        }

        /// Sets a fixed receive window for each connection, in bytes: 65,535 to 2^31-1. It turns
        /// [`Config::adaptive`](crate::Config::adaptive) off. Default: adaptive, 64 MiB at first.
        pub fn connection_window(mut self, bytes: u32) -> Self {
            self.options.set_connection_window(bytes);
            self
        }

        /// Sets when receive windows are refilled, for streams and for the connection. Default: when a quarter is used
        /// (a thirty-second of a fixed window that the path waits for).
        pub fn refill(mut self, stream: fullbore_proto::Refill, connection: fullbore_proto::Refill) -> Self {
            self.options.config.set_stream_refill(stream);
            self.options.config.set_connection_refill(connection);
            self
        }

        /// Sets the memory budget for receive windows. Flow-control credit plus buffered bytes of all its connections
        /// never exceed it. Clones are one budget, which several clients and servers can share.
        /// Default: [`DEFAULT_MEMORY_BUDGET`](crate::settings::DEFAULT_MEMORY_BUDGET) of its own.
        pub fn memory_budget(mut self, budget: fullbore_proto::MemoryBudget) -> Self {
            self.options.config.set_budget(Some(budget));
            self
        }

        /// Sets the sizes of the kernel's TCP buffers. Default: the kernel decides.
        pub fn tcp_buffers(mut self, buffers: crate::settings::TcpBuffers) -> Self {
            self.options.tcp_buffers = buffers;
            self
        }

        /// Sets the congestion control of TCP connections by its name, such as `bbr` (TCP_CONGESTION, Linux). It decides how
        /// fast this side sends, above all after a packet was lost; what is received obeys that of the peer. Connections have
        /// it from their beginning. Default: the system's (`net.ipv4.tcp_congestion_control`).
        ///
        /// One that the system does not have or allow is an error when the builder ends, which lists those that are allowed;
        /// so is any on systems other than Linux.
        pub fn congestion_control(mut self, name: &str) -> Self {
            self.options.set_congestion_control(name);
            self
        }

        /// Sets when a silent peer is probed by PING (RFC 9113 section 6.7). Over HTTP/1.1 a server has the kernel
        /// probe it (SO_KEEPALIVE). Default: after 60 s of silence while streams are open. The connection ends when
        /// no answer comes within [`Config::keep_alive_timeout`](crate::Config::keep_alive_timeout) (60 s).
        pub fn keep_alive(mut self, keep_alive: fullbore_proto::KeepAlive) -> Self {
            self.options.config.set_keep_alive(keep_alive);
            self
        }

        /// Limits the time that a frame other than DATA, or a whole header block, takes to arrive; over HTTP/1.1 the head of
        /// a request. Default: 30 s.
        pub fn header_timeout(mut self, timeout: std::time::Duration) -> Self {
            self.options.config.set_header_timeout(timeout);
            self
        }

        /// Limits the time that a body may pause while its receive window is open. Then the stream is reset with
        /// CANCEL; over HTTP/1.1 the connection ends. Default: no limit, because a stream of messages may be silent
        /// for hours.
        pub fn body_timeout(mut self, timeout: Option<std::time::Duration>) -> Self {
            self.options.config.set_body_timeout(timeout);
            self
        }

        /// Requires a minimum rate of a body, in bytes a second, as the mean of each [`Self::body_timeout`]. Time in
        /// which the receive window is closed does not count. Default: 0, for which one byte within the timeout is
        /// enough.
        pub fn body_rate(mut self, bytes_per_second: u32) -> Self {
            self.options.config.set_body_rate(bytes_per_second);
            self
        }

        /// Limits the time that a peer takes for each KiB that waits for it, while it keeps windows closed or does not
        /// read. Then the stream is reset, or the connection ends. Default: 300 s. `None` means no limit.
        pub fn send_timeout(mut self, timeout: Option<std::time::Duration>) -> Self {
            self.options.config.set_send_timeout(timeout);
            self
        }
    };
}

pub(crate) use http2_options;

/// A window of `bytes`, or an error that says the range.
pub(crate) fn window(what: &str, least: u32, bytes: u32) -> Result<WindowSize, Error> {
    WindowSize::new(bytes)
        .filter(|window| window.bytes() >= least)
        .ok_or_else(|| {
            Error::config(format!(
                "the receive window of {what} is {bytes} bytes; use {least} to 2147483647"
            ))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_budget_of_the_callers_there_is_the_default_one() {
        let mut options = Http2Options::default();
        options.complete();
        let budget = options.config.budget().map(|budget| budget.limit());
        assert_eq!(budget, Some(DEFAULT_MEMORY_BUDGET));
        let mut options = Http2Options::default();
        options.config.set_budget(Some(MemoryBudget::new(1 << 20)));
        options.finish().expect("it is right");
        let budget = options.config.budget().map(|budget| budget.limit());
        assert_eq!(budget, Some(1 << 20));
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn the_limit_of_unsent_data_is_set_on_both_ends() {
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

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn silent_peers_are_probed_in_the_times_of_the_settings() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let socket = socket2::SockRef::from(&stream);
        let mut config = Config::default();
        config.set_keep_alive(KeepAlive::Never);
        keep_alive(&stream, &config);
        assert!(!socket.keepalive().unwrap());
        config.set_keep_alive(KeepAlive::ByRole);
        config.set_keep_alive_timeout(Duration::from_secs(40));
        keep_alive(&stream, &config);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), SILENCE);
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), Duration::from_secs(10));
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), PROBES);
    }

    #[test]
    fn a_write_is_no_larger_than_the_limit_of_unsent_data_and_at_least_80_kib() {
        let largest = Config::default().write_size();
        for (unsent, write) in [
            (None, largest),
            (Some(0), largest),
            (Some(u32::MAX), largest),
            (Some(200_000), 200_000),
            (Some(1), LEAST_WRITE),
        ] {
            let mut options = Http2Options::default();
            options.tcp_buffers.unsent = unsent;
            options.finish().unwrap();
            assert_eq!(options.config.write_size(), write, "{unsent:?}");
        }
    }
}
