//! The settings of a connection, with their defaults and reasons.

use core::time::Duration;

use crate::error::ConnectionError;
use crate::flow::{DEFAULT_WINDOW, MemoryBudget, Refill, Share, StreamBudget, WindowSize};
use crate::guard::Limit;
use crate::schedule::Scheduling;

/// The settings of a connection. [`Config::default`] is meant to be right for most.
///
/// ```
/// use fullbore_proto::{Config, WindowSize};
///
/// let mut config = Config::default();
/// config.stream_window = WindowSize::from_mebibytes(32);
/// assert_eq!(config.connection_window, WindowSize::from_mebibytes(64));
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// The receive window of each stream (SETTINGS_INITIAL_WINDOW_SIZE). Default: 48 MiB. 1 Gbit/s over 230 ms is
    /// 28.75 MB, and a refill at a quarter needs four thirds of that.
    pub stream_window: WindowSize,
    /// The receive window of the connection. Default: 64 MiB, so that a stream whose reader stalls leaves credit to
    /// others. Values below 65,535 count as 65,535, because a connection's window cannot start smaller (RFC 9113
    /// section 6.9.2).
    pub connection_window: WindowSize,
    /// Whether windows adapt: they open smaller if the budget is short of room, double if the peer uses three
    /// quarters of one within two round trips, and shrink if the budget is scarce. Default: on. If off, windows keep
    /// the configured sizes.
    pub adaptive: bool,
    /// The largest size of an adaptive window, of streams and of the connection. Without a budget, also the most that
    /// a connection holds for slow readers, so that they take no credit from others. Default: 256 MiB.
    pub largest_window: WindowSize,
    /// The sizes that adaptive windows begin with and never shrink below, whatever the budget holds: it leases only what they
    /// grow by. SETTINGS announce that of streams. Windows grow for readers that keep up, as far as the budget allows: on a
    /// path that needs it, up to [`Self::stream_window`] and [`Self::connection_window`] as soon as a reader has taken what
    /// arrived first. A client's connection opens with 16 MiB at once. The window of a stream whose reader falls behind
    /// shrinks again. Slow readers take no credit from other streams while they leave up to 16 MiB unread. Default: none;
    /// windows begin as large as the budget allows.
    pub first_windows: Option<FirstWindows>,
    /// The budget that this connection and others lease their windows from. Default: none; the connection's window is
    /// the only bound.
    pub budget: Option<MemoryBudget>,
    /// The budget that the connections of a server lease streams from. Default: none;
    /// [`Self::max_concurrent_streams`] is the only bound.
    pub stream_budget: Option<StreamBudget>,
    /// The share of the connection: connections with the same share together get only a part of the two budgets.
    /// Default: none; a connection may take all that is left.
    pub share: Option<Share>,
    /// When a stream's window is refilled. Default: at a quarter.
    pub stream_refill: Refill,
    /// When the connection's window is refilled. Default: at a quarter.
    pub connection_refill: Refill,
    /// The streams that the peer may have open (SETTINGS_MAX_CONCURRENT_STREAMS). Default: 10,000.
    pub max_concurrent_streams: u32,
    /// How far open streams and reset streams that are not released may together exceed
    /// [`Self::max_concurrent_streams`]. Default: 100. RFC 9113 section 5.1.2 does not count closed streams, so a
    /// client may cancel requests and send others at once, while the handlers take a moment to end. Beyond the limit
    /// streams are refused, so a peer gains nothing by opening and resetting (CVE-2023-44487).
    pub reset_stream_grace: u32,
    /// The largest frame that is accepted (SETTINGS_MAX_FRAME_SIZE), in bytes. Default: 16,384. Values are clamped to
    /// 16,384..=2^24-1.
    pub max_frame_size: u32,
    /// The largest DATA payload that is sent, even if the peer accepts more, in bytes. Default: 16,384, one TLS
    /// record.
    pub send_frame_size: u32,
    /// The largest decoded field section that is accepted, by the measure of RFC 9113 section 6.5.2
    /// (SETTINGS_MAX_HEADER_LIST_SIZE), in bytes. Default: 64 KiB. A larger request is answered with 431.
    pub max_header_list_size: u32,
    /// The most fields in a field section, cookie crumbs included. Default: 1,000. A request with more is answered
    /// with 431.
    pub max_header_fields: u32,
    /// The largest encoded header block that is accepted, in bytes. Default: 128 KiB. A larger one ends the
    /// connection.
    pub max_header_block: usize,
    /// The most CONTINUATION frames of one header block. Default: 32. More end the connection.
    pub max_continuations: u32,
    /// The dynamic table that the peer may use (SETTINGS_HEADER_TABLE_SIZE), in bytes. Default: 4,096.
    pub header_table_size: u32,
    /// The most of the peer's dynamic table that is used, in bytes. Default: 4,096.
    pub encoder_table_size: u32,
    /// Whether a server accepts extended CONNECT (RFC 8441). Default: off.
    pub enable_connect_protocol: bool,
    /// The most streams that a client opens before the server's SETTINGS arrive. Default: 100, which RFC 9113 section 6.5.2
    /// recommends to servers as the least.
    pub initial_max_send_streams: u32,
    /// The debug data of GOAWAY for an error that the engine found. Default: [`ConnectionError::reason`]. The reason of
    /// [`Connection::abort`](crate::Connection::abort) is always sent.
    pub debug_data: fn(&ConnectionError) -> &'static str,
    /// Whether a request may have a URI without scheme and authority, and is then sent with the scheme `http` and no
    /// `:authority`. Default: off; most servers refuse such a request.
    pub relative_requests: bool,
    /// How streams share the connection by default. Default: in order.
    pub scheduling: Scheduling,
    /// The low-water mark of a stream's send queue, in bytes: see
    /// [`Connection::want_room`](crate::Connection::want_room). Default: 128 KiB.
    pub send_low_water: usize,
    /// The record size of the transport, in bytes. Write lists of a long transfer end at a multiple of it, because
    /// the rest would be a record of its own. 16,384 suits TLS (RFC 8446 section 5.1). Default: 0, for no records.
    pub record_size: usize,
    /// The size of a write list of [`Connection::transmit`](crate::Connection::transmit), to within a frame, in
    /// bytes; at least one frame. Default: 512 KiB. Scheduling cannot reorder a list: more urgent streams wait for
    /// it. Below 256 KiB the cost of each write is noticeable beside the copy.
    pub write_size: usize,
    /// How long a frame is held back that the window would make tiny (law 6 of `docs/design/flow-control.md`).
    /// Default: 1 ms.
    pub tiny_frame_wait: Duration,
    /// The most streams that may wait until the peer allows them. Then `open` fails. Default: 100,000.
    pub max_waiting_streams: usize,
    /// The bytes of unsent replies above which nothing more is read. Default: 8 KiB (CVE-2019-9512, 9515, 9517).
    pub max_owed_replies: usize,
    /// The bytes of unsent frames other than DATA, HEADERS included, above which nothing more is read. Default: 256
    /// KiB, the HEADERS of some thousand responses (CVE-2019-9517).
    pub max_unsent_control: usize,
    /// The most bytes of bodies of all streams that wait to be sent. Default: 384 KiB. With up to four streams, each
    /// has an equal share of it; with more, an equal share of half of it, and at least 4 KiB (CVE-2019-9517). A body
    /// is polled while less than its share waits.
    pub send_buffer: usize,
    /// The memory of the field sections of all streams that are not released, in bytes. 2 KiB of each stream are
    /// free, and each field costs 96 bytes besides its name and value. Default: 4 MiB. A request above it is refused
    /// with REFUSED_STREAM, because a block of a few bytes that refer to the table may decode to a thousand times as
    /// many.
    pub max_header_memory: usize,
    /// The longest time between the two GOAWAY frames of a graceful shutdown. Default: 1 s. Usually it is a round
    /// trip.
    pub shutdown_grace: Duration,
    /// The time limit for the peer's preface and SETTINGS. Default: 10 s.
    pub preface_timeout: Duration,
    /// The time limit for the acknowledgement of SETTINGS (RFC 9113 section 6.5.3). Default: 30 s. Then the
    /// connection ends with SETTINGS_TIMEOUT.
    pub settings_timeout: Duration,
    /// The time limit for a frame other than DATA, and for a header block with its CONTINUATION frames, from the
    /// first byte to the last. Default: 30 s; a block of 64 KiB takes 18 s at 28.8 kbit/s. Then the connection ends
    /// with ENHANCE_YOUR_CALM.
    pub header_timeout: Duration,
    /// How long a server keeps a connection without streams. Default: 180 s, longer than browsers wait between two
    /// pages. Then the server shuts it down gracefully. None: no limit. Clients ignore it.
    pub idle_timeout: Option<Duration>,
    /// When to send PING to a silent peer. Default: by role.
    pub keep_alive: KeepAlive,
    /// How long the peer may then stay silent while the transport takes nothing either. Default: 60 s, because the
    /// PING may wait behind much that the kernel holds for a slow link. Then the connection ends.
    pub keep_alive_timeout: Duration,
    /// How long a body may make no progress although its window is open. Then its stream is reset with CANCEL.
    /// Tunnels (CONNECT) are exempt. Default: none, because a stream of messages may be silent for hours.
    pub body_timeout: Option<Duration>,
    /// The least rate of a body, in bytes per second: the mean over each [`Self::body_timeout`] in which its window
    /// was open. No more than one full window is required. Default: 0; one byte within the timeout is enough.
    pub body_rate: u32,
    /// How long a server may take to respond after the whole request was sent. Then the stream is reset with CANCEL.
    /// Default: none, because a long poll or a slow computation may take minutes. Servers ignore it.
    pub response_timeout: Option<Duration>,
    /// How long requests wait while the peer allows no stream (SETTINGS_MAX_CONCURRENT_STREAMS is 0) and none is
    /// open. Then they fail. Default: 30 s; RFC 9113 section 6.5.2 recommends 0 only for short times. None: no limit.
    pub stream_wait_timeout: Option<Duration>,
    /// How long a peer may take for each KiB that waits for it, by a closed window or by not reading. Default: 300 s.
    /// Then the stream ends with CANCEL, or, for the connection's window and the transport, the connection with
    /// ENHANCE_YOUR_CALM (CVE-2019-9517). None: no limit.
    pub send_timeout: Option<Duration>,
    /// How long open streams may take after the final GOAWAY of a graceful shutdown. Default: none. `Server` of the
    /// library has its own limit.
    pub drain_timeout: Option<Duration>,
    /// How long the responses to a client may take that has closed its half of the transport. Default: 30 s. Then the
    /// connection ends. A client that is gone is detected earlier, by a PING each second.
    pub half_close_timeout: Duration,
    /// How many bytes of a request are discarded after its response is complete, before the stream is reset with
    /// NO_ERROR (RFC 9113 section 8.1). Default: 256 KiB. An upload that is almost done may end by itself; many
    /// clients treat a reset as a failure.
    pub early_response_bytes: u64,
    /// How long the rest of such a request is discarded. Default: 1 s.
    pub early_response_wait: Duration,
    /// RST_STREAM from the peer. Default: 10,000 at once, 1,000 per second (CVE-2023-44487).
    pub peer_resets: Limit,
    /// Refused requests: beyond `max_concurrent_streams` or the memory budget, after our GOAWAY, or late frames on
    /// closed streams. Header blocks beyond 2 for each stream that this endpoint's owner has reset count. Default: 10,000 at
    /// once, 1,000 per second. A client may open as many before it knows the limits.
    pub refused_streams: Limit,
    /// Stream errors that the peer causes, and requests with field sections over the limit. Default: 1,000 at once,
    /// 100 per second (CVE-2025-8671).
    pub provoked_resets: Limit,
    /// DATA frames without data and END_STREAM. Default: 1,000 at once, 100 per second (CVE-2019-9518).
    pub empty_data: Limit,
    /// PING frames, and acknowledgements without a PING. Default: 1,000 at once, 100 per second (CVE-2019-9512).
    pub pings: Limit,
    /// SETTINGS frames with their entries, and GOAWAY frames. Default: 1,000 at once, 100 per second (CVE-2019-9515,
    /// CVE-2020-11080).
    pub settings: Limit,
    /// WINDOW_UPDATE frames beyond 4 for each DATA frame that was sent, 1 for each KiB, and 2 for each stream.
    /// Default: 10,000 at once, 1,000 per second (CVE-2019-9511, CVE-2019-9517).
    pub window_updates: Limit,
    /// Informational responses (1xx) beyond 8 for each request. Default: 1,000 at once, 100 per second.
    pub informational: Limit,
    /// PRIORITY, PRIORITY_UPDATE and frames of unknown type. Default: 10,000 at once, 1,000 per second
    /// (CVE-2019-9513).
    pub priorities: Limit,
}

/// The sizes that adaptive windows begin with: see [`Config::first_windows`].
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
/// config.keep_alive = KeepAlive::WithStreams(Duration::from_secs(30));
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

impl Default for Config {
    fn default() -> Self {
        Config {
            stream_window: WindowSize::from_mebibytes(48),
            connection_window: WindowSize::from_mebibytes(64),
            adaptive: true,
            largest_window: WindowSize::from_mebibytes(256),
            first_windows: None,
            budget: None,
            stream_budget: None,
            share: None,
            stream_refill: Refill::default(),
            connection_refill: Refill::default(),
            max_concurrent_streams: 10_000,
            reset_stream_grace: 100,
            max_frame_size: 16_384,
            send_frame_size: 16_384,
            max_header_list_size: 64 << 10,
            max_header_fields: 1_000,
            max_header_block: 128 << 10,
            max_continuations: 32,
            header_table_size: 4_096,
            encoder_table_size: 4_096,
            enable_connect_protocol: false,
            initial_max_send_streams: 100,
            debug_data: ConnectionError::reason,
            relative_requests: false,
            scheduling: Scheduling::InOrder,
            send_low_water: 128 << 10,
            record_size: 0,
            write_size: 512 << 10,
            tiny_frame_wait: Duration::from_millis(1),
            max_waiting_streams: 100_000,
            max_owed_replies: 8 << 10,
            max_unsent_control: 256 << 10,
            send_buffer: 384 << 10,
            max_header_memory: 4 << 20,
            shutdown_grace: Duration::from_secs(1),
            preface_timeout: Duration::from_secs(10),
            settings_timeout: Duration::from_secs(30),
            header_timeout: Duration::from_secs(30),
            idle_timeout: Some(Duration::from_secs(180)),
            keep_alive: KeepAlive::ByRole,
            keep_alive_timeout: Duration::from_secs(60),
            body_timeout: None,
            body_rate: 0,
            response_timeout: None,
            stream_wait_timeout: Some(Duration::from_secs(30)),
            send_timeout: Some(Duration::from_secs(300)),
            drain_timeout: None,
            half_close_timeout: Duration::from_secs(30),
            early_response_bytes: 256 << 10,
            early_response_wait: Duration::from_secs(1),
            peer_resets: Limit::new(10_000, 1_000),
            refused_streams: Limit::new(10_000, 1_000),
            provoked_resets: Limit::new(1_000, 100),
            empty_data: Limit::new(1_000, 100),
            pings: Limit::new(1_000, 100),
            settings: Limit::new(1_000, 100),
            window_updates: Limit::new(10_000, 1_000),
            informational: Limit::new(1_000, 100),
            priorities: Limit::new(10_000, 1_000),
        }
    }
}

impl Config {
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
