//! The settings of a connection, with their defaults and reasons.

use core::time::Duration;

use crate::error::{ConnectionError, PeerLimit};
use crate::flow::{DEFAULT_WINDOW, MemoryBudget, Refill, Share, StreamBudget, WindowSize};
use crate::frame::DEFAULT_MAX_FRAME_SIZE;
use crate::guard::Limit;
use crate::schedule::Scheduling;

/// A time that does not pass.
const NEVER: Duration = Duration::from_secs(100 * 365 * 86_400);

/// The largest encoded header block is accepted up to at least this length, in bytes: twice the default of
/// [`Config::max_header_list_size`].
const LEAST_HEADER_BLOCK: usize = 128 << 10;

/// And up to this length at the most, in bytes: it is in memory before anybody sees it. Crate h2's limit is as large.
const MOST_HEADER_BLOCK: usize = 16 << 20;

/// A header block may have as many CONTINUATION frames, however small its limit is.
const LEAST_CONTINUATIONS: u32 = 32;

/// Declares the settings: each with its reason, its setter, and its default. The private ones have no setter of their own.
macro_rules! settings {
    (
        $(#[$about:meta])*
        public { $($(#[$doc:meta])* $field:ident, $set:ident: $type:ty = $default:expr;)* }
        private { $($(#[$note:meta])* $hidden:ident: $kind:ty = $initial:expr;)* }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone)]
        pub struct Config {
            $(pub(crate) $field: $type,)*
            $($(#[$note])* pub(crate) $hidden: $kind,)*
        }

        impl Default for Config {
            fn default() -> Self {
                Config { $($field: $default,)* $($hidden: $initial,)* }
            }
        }

        impl Config {
            $(
                $(#[$doc])*
                pub fn $set(&mut self, value: $type) {
                    self.$field = value;
                }

                #[doc = concat!("See [`Self::", stringify!($set), "`].")]
                #[allow(clippy::clone_on_copy)]
                pub fn $field(&self) -> $type {
                    self.$field.clone()
                }
            )*
        }
    };
}

settings! {
    /// The settings of a connection. [`Config::default`] is meant to be right for most.
    ///
    /// ```
    /// use fullbore_proto::{Config, WindowSize};
    ///
    /// let mut config = Config::default();
    /// config.set_stream_window(WindowSize::from_mebibytes(32));
    /// assert_eq!(config.connection_window(), WindowSize::from_mebibytes(64));
    /// ```
    public {
        /// The receive window of each stream (SETTINGS_INITIAL_WINDOW_SIZE). Default: 48 MiB. 1 Gbit/s over 230 ms is
        /// 28.75 MB, and a refill at a quarter needs four thirds of that. A smaller window that adapts opens as wide as the path
        /// needs once its reader has taken a quarter of it at once.
        stream_window, set_stream_window: WindowSize = WindowSize::from_mebibytes(48);
        /// The receive window of the connection. Default: 64 MiB, so that a stream whose reader stalls leaves credit to
        /// others. Values below 65,535 count as 65,535, because a connection's window cannot start smaller (RFC 9113
        /// section 6.9.2).
        connection_window, set_connection_window: WindowSize = WindowSize::from_mebibytes(64);
        /// Whether windows adapt: they open smaller if the budget is short of room, double if the peer uses three
        /// quarters of one within two round trips, and shrink if the budget is scarce. Default: on. If off, windows keep
        /// the configured sizes.
        adaptive, set_adaptive: bool = true;
        /// The largest size of an adaptive window, of streams and of the connection. Without a budget, also the most that
        /// a connection holds for slow readers, so that they take no credit from others. Default: 256 MiB.
        largest_window, set_largest_window: WindowSize = WindowSize::from_mebibytes(256);
        /// The sizes that adaptive windows begin with and never shrink below, whatever the budget holds: it leases only what they
        /// grow by. SETTINGS announce that of streams. Windows grow for readers that keep up, as far as the budget allows: on a
        /// path that needs it, up to [`Self::stream_window`] and [`Self::connection_window`] as soon as a reader has taken what
        /// arrived first. A client's connection opens with 16 MiB at once. The window of a stream whose reader falls behind
        /// shrinks again. Slow readers take no credit from other streams while they leave up to 16 MiB unread. Default: none;
        /// windows begin as large as the budget allows.
        first_windows, set_first_windows: Option<FirstWindows> = None;
        /// The budget that this connection and others lease their windows from. Default: none; the connection's window is
        /// the only bound.
        budget, set_budget: Option<MemoryBudget> = None;
        /// The budget that the connections of a server lease streams from. Default: none;
        /// [`Self::max_concurrent_streams`] is the only bound.
        stream_budget, set_stream_budget: Option<StreamBudget> = None;
        /// The share of the connection: connections with the same share together get only a part of the two budgets.
        /// Default: none; a connection may take all that is left.
        share, set_share: Option<Share> = None;
        /// When a stream's window is refilled. Default: at a quarter.
        stream_refill, set_stream_refill: Refill = Refill::default();
        /// When the connection's window is refilled. Default: at a quarter.
        connection_refill, set_connection_refill: Refill = Refill::default();
        /// The streams that the peer may have open (SETTINGS_MAX_CONCURRENT_STREAMS). Default: 10,000.
        max_concurrent_streams, set_max_concurrent_streams: u32 = 10_000;
        /// The largest frame that is accepted (SETTINGS_MAX_FRAME_SIZE), in bytes. Default: 16,384. Values are clamped to
        /// 16,384..=2^24-1.
        max_frame_size, set_max_frame_size: u32 = 16_384;
        /// The largest decoded field section that is accepted, by the measure of RFC 9113 section 6.5.2
        /// (SETTINGS_MAX_HEADER_LIST_SIZE), in bytes. Default: 64 KiB. A larger request is answered with 431.
        max_header_list_size, set_max_header_list_size: u32 = 64 << 10;
        /// The most fields in a field section, cookie crumbs included. Default: 1,000; over HTTP/1.1, 100 in a request and 256
        /// in a response. A request with more is answered with 431.
        max_header_fields, set_max_header_fields: u32 = 1_000;
        /// The dynamic table that the peer may use (SETTINGS_HEADER_TABLE_SIZE), in bytes. Default: 4,096.
        header_table_size, set_header_table_size: u32 = 4_096;
        /// Whether a server accepts extended CONNECT (RFC 8441). Default: off.
        enable_connect_protocol, set_enable_connect_protocol: bool = false;
        /// The most streams that a client opens before the server's SETTINGS arrive. Default: 100, which RFC 9113 section 6.5.2
        /// recommends to servers as the least.
        initial_max_send_streams, set_initial_max_send_streams: u32 = 100;
        /// The debug data of GOAWAY for an error that the engine found. Default: [`ConnectionError::reason`]. The reason of
        /// [`Connection::abort`](crate::Connection::abort) is always sent.
        debug_data, set_debug_data: fn(&ConnectionError) -> &'static str = ConnectionError::reason;
        /// Whether a request may have a URI without scheme and authority, and is then sent with the scheme `http` and no
        /// `:authority`. Default: off; most servers refuse such a request.
        relative_requests, set_relative_requests: bool = false;
        /// How streams share the connection by default. Default: in order.
        scheduling, set_scheduling: Scheduling = Scheduling::InOrder;
        /// The record size of the transport, in bytes. Write lists of a long transfer end at a multiple of it, because
        /// the rest would be a record of its own. 16,384 suits TLS (RFC 8446 section 5.1). Default: 0, for no records.
        record_size, set_record_size: usize = 0;
        /// The size of a write list of [`Connection::transmit`](crate::Connection::transmit), to within a frame, in
        /// bytes; at least one frame. Default: 512 KiB. Scheduling cannot reorder a list: more urgent streams wait for
        /// it. Below 256 KiB the cost of each write is noticeable beside the copy.
        write_size, set_write_size: usize = 512 << 10;
        /// The most bytes of bodies of all streams that wait to be sent. Default: 384 KiB. With up to four streams, each
        /// has an equal share of it; with more, an equal share of half of it, and at least 4 KiB (CVE-2019-9517). A body
        /// is polled while less than its share waits.
        send_buffer, set_send_buffer: usize = 384 << 10;
        /// The memory of the field sections of all streams that are not released, in bytes. 2 KiB of each stream are
        /// free, and each field costs 96 bytes besides its name and value. Default: 4 MiB. A request above it is refused
        /// with REFUSED_STREAM, because a block of a few bytes that refer to the table may decode to a thousand times as
        /// many.
        max_header_memory, set_max_header_memory: usize = 4 << 20;
        /// The longest time between the two GOAWAY frames of a graceful shutdown. Default: 1 s. Usually it is a round
        /// trip.
        shutdown_grace, set_shutdown_grace: Duration = Duration::from_secs(1);
        /// The time limit for the peer's preface and SETTINGS. Default: 10 s.
        preface_timeout, set_preface_timeout: Duration = Duration::from_secs(10);
        /// The time limit for a frame other than DATA, and for a header block with its CONTINUATION frames, from the
        /// first byte to the last. Default: 30 s; a block of 64 KiB takes 18 s at 28.8 kbit/s. Then the connection ends
        /// with ENHANCE_YOUR_CALM.
        header_timeout, set_header_timeout: Duration = Duration::from_secs(30);
        /// How long a server keeps a connection without streams. Default: 180 s, longer than browsers wait between two
        /// pages. Then the server shuts it down gracefully. None: no limit. Clients ignore it.
        idle_timeout, set_idle_timeout: Option<Duration> = Some(Duration::from_secs(180));
        /// When to send PING to a silent peer. Default: by role.
        keep_alive, set_keep_alive: KeepAlive = KeepAlive::ByRole;
        /// How long the peer may then stay silent while the transport takes nothing either. Default: 60 s, because the
        /// PING may wait behind much that the kernel holds for a slow link. Then the connection ends.
        keep_alive_timeout, set_keep_alive_timeout: Duration = Duration::from_secs(60);
        /// How long a body may make no progress although its window is open. Then its stream is reset with CANCEL.
        /// Tunnels (CONNECT) are exempt. Default: none, because a stream of messages may be silent for hours.
        body_timeout, set_body_timeout: Option<Duration> = None;
        /// The least rate of a body, in bytes per second: the mean over each [`Self::body_timeout`] in which its window
        /// was open. No more than one full window is required. Default: 0; one byte within the timeout is enough.
        body_rate, set_body_rate: u32 = 0;
        /// How long a server may take to respond after the whole request was sent. Then the stream is reset with CANCEL.
        /// Default: none, because a long poll or a slow computation may take minutes. Servers ignore it.
        response_timeout, set_response_timeout: Option<Duration> = None;
        /// How long requests wait while the peer allows no stream (SETTINGS_MAX_CONCURRENT_STREAMS is 0) and none is
        /// open. Then they fail. Default: 30 s; RFC 9113 section 6.5.2 recommends 0 only for short times. None: no limit.
        stream_wait_timeout, set_stream_wait_timeout: Option<Duration> = Some(Duration::from_secs(30));
        /// How long a peer may take for each KiB that waits for it, by a closed window or by not reading. Default: 300 s.
        /// Then the stream ends with CANCEL, or, for the connection's window and the transport, the connection with
        /// ENHANCE_YOUR_CALM (CVE-2019-9517). None: no limit.
        send_timeout, set_send_timeout: Option<Duration> = Some(Duration::from_secs(300));
        /// How long the responses to a client may take that has closed its half of the transport. Default: 30 s. Then the
        /// connection ends. A client that is gone is detected earlier, by a PING each second.
        half_close_timeout, set_half_close_timeout: Duration = Duration::from_secs(30);
    }
    private {
        /// How long a frame is held back that the window would make tiny (law 6 of `docs/design/flow-control.md`).
        /// Default: 1 ms.
        tiny_frame_wait: Duration = Duration::from_millis(1);
        /// The time limit for the acknowledgement of SETTINGS (RFC 9113 section 6.5.3). Default: 30 s. Then the
        /// connection ends with SETTINGS_TIMEOUT.
        settings_timeout: Duration = Duration::from_secs(30);
        /// How many bytes of a request are discarded after its response is complete, before the stream is reset with
        /// NO_ERROR (RFC 9113 section 8.1). Default: 256 KiB. An upload that is almost done may end by itself; many
        /// clients treat a reset as a failure.
        early_response_bytes: u64 = 256 << 10;
        /// How long the rest of such a request is discarded. Default: 1 s.
        early_response_wait: Duration = Duration::from_secs(1);
        /// The limits that differ from their defaults.
        limits: Vec<(PeerLimit, Limit)> = Vec::new();
    }
}

/// The sizes that adaptive windows begin with: see [`Config::set_first_windows`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstWindows {
    /// The window of each stream (SETTINGS_INITIAL_WINDOW_SIZE).
    pub stream: WindowSize,
    /// The window of the connection. Values below 65,535 count as 65,535.
    pub connection: WindowSize,
}

/// When a peer that has said nothing is asked by PING whether it is still there.
///
/// ```
/// use core::time::Duration;
/// use fullbore_proto::{Config, KeepAlive};
///
/// let mut config = Config::default();
/// config.set_keep_alive(KeepAlive::WithStreams(Duration::from_secs(30)));
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeepAlive {
    /// A server sends PING after 60 s of silence while streams are open, because a peer that is gone would hold them.
    /// A client sends none.
    #[default]
    ByRole,
    /// Never.
    Never,
    /// After this time of silence, while streams are open.
    WithStreams(Duration),
    /// After this time of silence, with or without streams, for paths that drop idle connections.
    Always(Duration),
}

/// The default of servers.
const SERVER_KEEP_ALIVE: Duration = Duration::from_secs(60);

impl KeepAlive {
    /// The time of silence before a PING, and whether it is sent without streams too.
    pub(crate) fn resolve(self, is_server: bool) -> Option<(Duration, bool)> {
        match self {
            KeepAlive::ByRole => is_server.then_some((SERVER_KEEP_ALIVE, false)),
            KeepAlive::Never => None,
            KeepAlive::WithStreams(silence) => Some((silence, false)),
            KeepAlive::Always(silence) => Some((silence, true)),
        }
    }
}

impl Config {
    /// How many events of a kind the peer may cause. [`PeerLimit`] has the defaults and what counts. For
    /// [`PeerLimit::HeaderListSize`], [`PeerLimit::HeaderBlock`] and [`PeerLimit::Continuations`] this has no effect: they
    /// follow [`Self::set_max_header_list_size`].
    pub fn set_limit(&mut self, which: PeerLimit, limit: Limit) {
        self.limits.retain(|(other, _)| *other != which);
        self.limits.push((which, limit));
    }

    /// See [`Self::set_limit`].
    pub fn limit(&self, which: PeerLimit) -> Limit {
        let set = self.limits.iter().find(|(other, _)| *other == which);
        set.map_or(default_limit(which), |&(_, limit)| limit)
    }

    /// For an owner without timers, which calls [`Connection::handle_timeout`](crate::Connection::handle_timeout) only now and
    /// then: no time limit is in force, nothing is held back or sent for time that has passed, and the rest of a request is not
    /// waited for once its response is complete.
    pub fn set_untimed(&mut self) {
        self.tiny_frame_wait = Duration::ZERO;
        self.early_response_bytes = 0;
        self.early_response_wait = Duration::ZERO;
        self.shutdown_grace = NEVER;
        self.preface_timeout = NEVER;
        self.settings_timeout = NEVER;
        self.header_timeout = NEVER;
        self.half_close_timeout = NEVER;
        self.idle_timeout = None;
        self.keep_alive = KeepAlive::Never;
        self.stream_wait_timeout = None;
        self.send_timeout = None;
    }

    /// The largest encoded header block that is accepted, in bytes. A larger one ends the connection.
    pub(crate) fn max_header_block(&self) -> usize {
        (self.max_header_list_size as usize).clamp(LEAST_HEADER_BLOCK, MOST_HEADER_BLOCK)
    }

    /// The most CONTINUATION frames of one header block: those of full frames, and a quarter more. More end the connection.
    pub(crate) fn max_continuations(&self) -> u32 {
        let block = u32::try_from(self.max_header_block()).unwrap_or(u32::MAX);
        let frames = block / self.max_frame_size.max(DEFAULT_MAX_FRAME_SIZE);
        (frames + frames / 4).max(LEAST_CONTINUATIONS)
    }

    /// The connection's window, at least its initial size by the RFC.
    pub(crate) fn effective_connection_window(&self) -> WindowSize {
        self.connection_window.max(DEFAULT_WINDOW)
    }

    /// Whether windows begin as they are set ([`Self::first_windows`]).
    pub(crate) fn begins_as_set(&self) -> bool {
        self.adaptive && self.first_windows.is_some()
    }

    /// The size that the connection's window begins with at no cost to the budget, in bytes.
    pub(crate) fn first_connection_window(&self) -> u32 {
        let first = self.first_windows.filter(|_| self.adaptive);
        first.map_or(0, |first| first.connection.max(DEFAULT_WINDOW).bytes())
    }

    /// The bytes of a body that have to arrive within `body_timeout`.
    pub(crate) fn least_body_bytes(&self) -> u64 {
        let timeout = self.body_timeout.unwrap_or_default();
        let bytes = u128::from(self.body_rate) * timeout.as_millis() / 1_000;
        u64::try_from(bytes).unwrap_or(u64::MAX).max(1)
    }
}

const fn default_limit(which: PeerLimit) -> Limit {
    match which {
        PeerLimit::PeerResets
        | PeerLimit::RefusedStreams
        | PeerLimit::WindowUpdates
        | PeerLimit::Priorities => Limit::new(10_000, 1_000),
        _ => Limit::new(1_000, 100),
    }
}
