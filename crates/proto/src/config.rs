//! Every setting of a connection, with its default and the reason for it.

use core::time::Duration;

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
    /// The receive window of each stream (SETTINGS_INITIAL_WINDOW_SIZE). 48 MiB: a gigabit over 230 ms is 28.75 MB, of
    /// which a refill at a quarter needs four thirds.
    pub stream_window: WindowSize,
    /// The receive window of the connection. 64 MiB, so that one stream whose reader stalls leaves some to others. A
    /// value below 65,535 counts as that, since a connection's window cannot be made smaller than it begins (RFC 9113
    /// section 6.9.2).
    pub connection_window: WindowSize,
    /// Whether windows follow the path and the budget: opened less where the budget is short of room, doubled where a
    /// path uses up three quarters of one within two round trips, shrunk where the budget is scarce. On. Off, windows
    /// are as they were set.
    pub adaptive: bool,
    /// The largest window that an adaptive one grows to, for streams and the connection; without a budget also the most
    /// that a connection holds for slow readers, so that they take no credit from others. 256 MiB.
    pub largest_window: WindowSize,
    /// The budget that this connection leases its windows from, with any number of others. None: the connection's
    /// window is its own bound.
    pub budget: Option<MemoryBudget>,
    /// The budget that a server leases the streams of its clients from, with any number of other connections. None:
    /// [`Self::max_concurrent_streams`] is the only bound.
    pub stream_budget: Option<StreamBudget>,
    /// Whose connection this is: all connections with one share have, together, only a part of the two budgets. None: a
    /// connection may take all that is left.
    pub share: Option<Share>,
    /// When a stream's window is refilled. A quarter.
    pub stream_refill: Refill,
    /// When the connection's window is refilled. A quarter.
    pub connection_refill: Refill,
    /// How many streams the peer may have open (SETTINGS_MAX_CONCURRENT_STREAMS). 10,000.
    pub max_concurrent_streams: u32,
    /// How many streams that were reset and that their owner has not released yet may be held beyond
    /// [`Self::max_concurrent_streams`] together with those that are open. 100: RFC 9113 section 5.1.2 counts no closed
    /// streams, so that a client may cancel requests and send others in their place at once, while a handler takes a
    /// moment to go. Past it streams are refused, so that a peer that opens and resets gains nothing (CVE-2023-44487).
    pub reset_stream_grace: u32,
    /// The largest frame that we accept (SETTINGS_MAX_FRAME_SIZE), in octets. 16,384. Values out of
    /// the range 16,384 to 2^24-1 count as the nearest in it.
    pub max_frame_size: u32,
    /// The largest DATA payload that we send, however much more the peer accepts, in octets. 16,384: one TLS record.
    pub send_frame_size: u32,
    /// The largest field section that we accept, decoded, by the measure of RFC 9113 section 6.5.2
    /// (SETTINGS_MAX_HEADER_LIST_SIZE), in octets. 64 KiB. A request over it is answered with 431.
    pub max_header_list_size: u32,
    /// The most fields in a field section, cookie crumbs counted. 1,000. A request over it is answered with 431.
    pub max_header_fields: u32,
    /// The largest header block that we accept, encoded, in octets. 128 KiB; past it the connection ends.
    pub max_header_block: usize,
    /// The most CONTINUATION frames of one header block. 32; past it the connection ends.
    pub max_continuations: u32,
    /// The dynamic table that the peer may use (SETTINGS_HEADER_TABLE_SIZE), in octets. 4,096.
    pub header_table_size: u32,
    /// The most of the peer's dynamic table that we use, in octets. 4,096.
    pub encoder_table_size: u32,
    /// Whether a server takes extended CONNECT (RFC 8441). Off.
    pub enable_connect_protocol: bool,
    /// How streams share the connection when the peer asks for nothing. In order.
    pub scheduling: Scheduling,
    /// Below how many queued bytes a stream that ran full takes more. 128 KiB.
    pub send_low_water: usize,
    /// What the transport seals at once, in bytes: a write that more is to follow, or many such pieces of which precede,
    /// ends at a multiple of it. 16,384 over TLS (RFC 8446 section 5.1), where what is over would be a record of its own;
    /// 0, which is none.
    pub record_size: usize,
    /// How many bytes one list of [`Connection::transmit`](crate::Connection::transmit) has, to within a frame; one frame at
    /// least. 512 KiB. What is on a list is past all scheduling: a more urgent stream waits for it. At 256 KiB a write's own
    /// cost is lost in the copy, below that it is felt. Where [`Self::record_size`] is set, below five records lists do not
    /// end with one.
    pub write_size: usize,
    /// How long a frame is held back that the window would cut tiny, while more credit may be on its way. 1 ms.
    pub tiny_frame_wait: Duration,
    /// Up to how many streams may wait for the peer to allow them before `open` fails. 100,000.
    pub max_waiting_streams: usize,
    /// How many octets of replies may wait unsent before nothing more is read. 8 KiB (CVE-2019-9512, 9515, 9517).
    pub max_owed_replies: usize,
    /// How many octets of frames other than DATA may wait unsent, heads of messages among them, before nothing more is
    /// read. 256 KiB: the heads of some thousand responses (CVE-2019-9517).
    pub max_unsent_control: usize,
    /// How many bytes of bodies may wait unsent, of all streams together. 384 KiB, of which each has an equal
    /// share, of half of it when they are more than four, and 4 KiB at least (CVE-2019-9517); a body is asked for more while
    /// less than that waits.
    pub send_buffer: usize,
    /// How much memory the field sections of all streams that are not released may take together, in octets: 2 KiB of
    /// each stream are free, and each field costs 96 beside its octets. 4 MiB; a request over it is refused with
    /// REFUSED_STREAM, since a block of a few octets that refer to a table may decode to a thousand times as many.
    pub max_header_memory: usize,
    /// How long the first GOAWAY of a graceful shutdown waits for streams under way. 1 s at most; a round trip usually.
    pub shutdown_grace: Duration,
    /// How long the peer may take for its preface and SETTINGS. 10 s.
    pub preface_timeout: Duration,
    /// How long the peer may take to acknowledge our SETTINGS (RFC 9113 section 6.5.3). 30 s; then the connection ends
    /// with SETTINGS_TIMEOUT.
    pub settings_timeout: Duration,
    /// How long a frame other than DATA may take from its first octet to its last, and a header block with all its
    /// CONTINUATION frames. 30 s: a block of 64 KiB takes 18 s at 28.8 kbit/s. Then the connection ends with
    /// ENHANCE_YOUR_CALM.
    pub header_timeout: Duration,
    /// How long a client may keep a connection to a server without a stream. 180 s, which is longer than browsers wait
    /// between two pages; then the server ends it gracefully. None: for ever. Of no concern to a client.
    pub idle_timeout: Option<Duration>,
    /// When a peer that says nothing is asked by PING whether it is there. By role.
    pub keep_alive: KeepAlive,
    /// How long it may take to say anything after that, while the transport takes nothing either. 60 s, since the PING
    /// may stand behind much that the kernel holds for a slow link; then the connection ends.
    pub keep_alive_timeout: Duration,
    /// How long a body may come to a halt although its window is open, before its stream is reset with CANCEL; tunnels
    /// (CONNECT) may. None: for ever, since a stream of messages may be silent for hours.
    pub body_timeout: Option<Duration>,
    /// How many bytes a second of a body have to arrive at least, as the mean over each [`Self::body_timeout`] in which
    /// its window was open; a window smaller than that amount has to be used up once. 0: one byte within the timeout
    /// is enough.
    pub body_rate: u32,
    /// How long a server may take for the head of its response once the whole request has left, before the stream is
    /// reset with CANCEL. None: for ever, since a long poll or a slow computation may take minutes. Of no concern to a
    /// server.
    pub response_timeout: Option<Duration>,
    /// How long requests of ours wait while the peer allows no stream at all (SETTINGS_MAX_CONCURRENT_STREAMS of 0) and
    /// none is under way, before they fail. 30 s: RFC 9113 section 6.5.2 wants a value of 0 only for short times. None:
    /// for ever.
    pub stream_wait_timeout: Option<Duration>,
    /// How long a peer may take for each KiB of what waits for it, by closed windows or by not reading. 300 s; then the
    /// stream ends with CANCEL, or the connection with ENHANCE_YOUR_CALM when it is the connection's window or the
    /// transport (CVE-2019-9517). None: for ever.
    pub send_timeout: Option<Duration>,
    /// How long streams under way may take once the last stream is named in a graceful shutdown. None: as long as they
    /// need; `Server` of the library above has a limit of its own.
    pub drain_timeout: Option<Duration>,
    /// How long the answers to a client may take that has ended its half of the transport behind its last request. 30 s;
    /// then the connection ends. A client that is gone altogether is noticed sooner, by a PING each second.
    pub half_close_timeout: Duration,
    /// How many octets of a request are still taken and dropped once its response is whole, before the stream is reset
    /// with NO_ERROR (RFC 9113 section 8.1). 256 KiB: an upload that was almost done may end by itself, and many clients
    /// take a reset for a failure.
    pub early_response_bytes: u64,
    /// How long that may take. 1 s.
    pub early_response_wait: Duration,
    /// RST_STREAM from the peer. 10,000 at once, 1,000 a second (CVE-2023-44487).
    pub peer_resets: Limit,
    /// Requests that come to nothing: beyond `max_concurrent_streams` or the memory budget, after our GOAWAY, or header
    /// blocks on streams that are gone. 10,000 at once, 1,000 a second: a client may open as many before it knows
    /// better.
    pub refused_streams: Limit,
    /// Stream errors that the peer provokes, and requests with field sections over the limit. 1,000 at once, 100 a
    /// second (CVE-2025-8671).
    pub provoked_resets: Limit,
    /// DATA frames with no data and no end. 1,000 at once, 100 a second (CVE-2019-9518).
    pub empty_data: Limit,
    /// PING that asks for an answer, or answers what was not asked. 1,000 at once, 100 a second (CVE-2019-9512).
    pub pings: Limit,
    /// SETTINGS that ask for an acknowledgement, counted with their entries, and GOAWAY. 1,000 at once, 100 a second
    /// (CVE-2019-9515, CVE-2020-11080).
    pub settings: Limit,
    /// WINDOW_UPDATE beyond those that what was sent accounts for: 4 for each DATA frame, 1 for each KiB, 2 for each
    /// stream. 10,000 at once, 1,000 a second (CVE-2019-9511, CVE-2019-9517).
    pub window_updates: Limit,
    /// Informational responses (1xx) beyond 8 for each request. 1,000 at once, 100 a second.
    pub informational: Limit,
    /// PRIORITY, PRIORITY_UPDATE and frames of unknown type. 10,000 at once, 1,000 a second (CVE-2019-9513).
    pub priorities: Limit,
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
    /// A server asks after 60 s of silence while streams are open, since a peer that is gone would hold them; a client,
    /// whose owner notices by itself, does not ask.
    #[default]
    ByRole,
    /// Never.
    Never,
    /// After so long a silence while streams are open.
    WithStreams(Duration),
    /// After so long a silence, streams or not: for paths that forget connections on which nothing moves.
    Always(Duration),
}

/// After how long a silence a server asks unless told otherwise.
const SERVER_KEEP_ALIVE: Duration = Duration::from_secs(60);

impl KeepAlive {
    /// After how long a silence to ask, and whether without streams too.
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
    /// The connection's window, which cannot be smaller than it begins.
    pub(crate) fn effective_connection_window(&self) -> WindowSize {
        self.connection_window.max(DEFAULT_WINDOW)
    }

    /// How many bytes of a body that is waited for have to arrive within `body_timeout`.
    pub(crate) fn least_body_bytes(&self) -> u64 {
        let timeout = self.body_timeout.unwrap_or_default();
        let bytes = u128::from(self.body_rate) * timeout.as_millis() / 1_000;
        u64::try_from(bytes).unwrap_or(u64::MAX).max(1)
    }
}
