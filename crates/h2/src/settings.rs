//! What both builders set, and the settings of the engine that follow from it.

use fullbore_proto::{
    Config, DEFAULT_WINDOW, FirstWindows, Limit, MemoryBudget, PeerLimit, Refill, WindowSize,
};

use crate::{reason, windows};

/// The largest header list that is accepted if the builder sets none, in bytes.
const DEFAULT_HEADER_LIST: u32 = 16 << 20;

/// The streams that a server accepts if the builder sets no limit.
const DEFAULT_STREAMS: u32 = 100_000;

/// The unsent bytes of a stream up to which it has capacity.
const DEFAULT_SEND_BUFFER: usize = 400 << 10;

/// The stream errors of a peer that a connection survives, if the builder sets no number.
const DEFAULT_ERROR_RESETS: usize = 1_024;

/// What SETTINGS_MAX_FRAME_SIZE may be (RFC 9113 section 6.5.2).
const FRAME_SIZES: core::ops::RangeInclusive<u32> = 16_384..=(1 << 24) - 1;

#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) initial_window_size: Option<u32>,
    pub(crate) connection_window_size: Option<u32>,
    pub(crate) max_frame_size: Option<u32>,
    pub(crate) max_header_list_size: Option<u32>,
    pub(crate) header_table_size: Option<u32>,
    pub(crate) max_concurrent_streams: Option<u32>,
    pub(crate) initial_max_send_streams: usize,
    pub(crate) max_send_buffer_size: usize,
    pub(crate) max_error_resets: Option<usize>,
    pub(crate) enable_connect_protocol: bool,
    #[cfg(feature = "unstable")]
    pub(crate) enable_push: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            initial_window_size: None,
            connection_window_size: None,
            max_frame_size: None,
            max_header_list_size: None,
            header_table_size: None,
            max_concurrent_streams: None,
            initial_max_send_streams: usize::MAX,
            max_send_buffer_size: DEFAULT_SEND_BUFFER,
            max_error_resets: Some(DEFAULT_ERROR_RESETS),
            enable_connect_protocol: false,
            #[cfg(feature = "unstable")]
            enable_push: true,
        }
    }
}

impl Settings {
    pub(crate) fn set_max_frame_size(&mut self, bytes: u32) {
        assert!(
            FRAME_SIZES.contains(&bytes),
            "a largest frame is from 16,384 to 16,777,215 bytes"
        );
        self.max_frame_size = Some(bytes);
    }

    pub(crate) fn set_max_send_buffer_size(&mut self, bytes: usize) {
        assert!(
            u32::try_from(bytes).is_ok(),
            "a send buffer is at most 2^32-1 bytes"
        );
        self.max_send_buffer_size = bytes;
    }

    pub(crate) fn max_send_buffer_size(&self) -> usize {
        self.max_send_buffer_size
    }

    pub(crate) fn max_receive_streams(&self) -> usize {
        self.max_concurrent_streams
            .map_or(usize::MAX, |most| most as usize)
    }

    /// The receive window of the connection to begin with, in bytes.
    pub(crate) fn first_connection_window(&self) -> WindowSize {
        self.connection_window_size
            .map_or(DEFAULT_WINDOW, connection_window)
    }

    /// The budget that windows grow within. None if they are fixed. A connection window below that of the RFC is meant.
    pub(crate) fn budget(&self) -> Option<&'static MemoryBudget> {
        windows::budget().filter(|_| self.first_connection_window() >= DEFAULT_WINDOW)
    }

    fn set_windows(&self, config: &mut Config) {
        let first = FirstWindows {
            stream: self.initial_window_size.map_or(DEFAULT_WINDOW, stream_window),
            connection: self.first_connection_window(),
        };
        match self.budget() {
            Some(budget) => {
                config.set_budget(Some(budget.clone()));
                config.set_connection_window(config.connection_window().max(first.connection));
                config.set_first_windows(Some(first));
            }
            None => {
                config.set_adaptive(false);
                config.set_stream_window(first.stream);
                config.set_connection_window(first.connection.min(DEFAULT_WINDOW));
            }
        }
    }

    /// A fixed connection window above the one that every connection starts with.
    pub(crate) fn later_connection_window(&self) -> Option<WindowSize> {
        let window = self.first_connection_window();
        (window > DEFAULT_WINDOW && self.budget().is_none()).then_some(window)
    }

    /// A connection window below the one that every connection starts with.
    pub(crate) fn small_connection_window(&self) -> Option<WindowSize> {
        let window = self.first_connection_window();
        (window < DEFAULT_WINDOW).then_some(window)
    }

    /// The settings of the engine. All its guards are on. Its time limits are off: nothing but the user's polls drives a
    /// connection.
    pub(crate) fn to_engine(&self) -> Config {
        let mut config = Config::default();
        self.set_windows(&mut config);
        config.set_max_frame_size(self.max_frame_size.unwrap_or(config.max_frame_size()));
        config.set_header_table_size(self.header_table_size.unwrap_or(config.header_table_size()));
        config.set_max_concurrent_streams(self.max_concurrent_streams.unwrap_or(DEFAULT_STREAMS));
        config.set_enable_connect_protocol(self.enable_connect_protocol);
        config.set_initial_max_send_streams(u32::try_from(self.initial_max_send_streams).unwrap_or(u32::MAX));
        config.set_relative_requests(true);
        config.set_debug_data(reason::debug_data);
        if cfg!(feature = "unstable") {
            config.set_stream_refill(Refill::HalfRest);
            config.set_connection_refill(Refill::HalfRest);
            config.set_write_size(256);
        }
        self.limit_headers(&mut config);
        let resets = match self.max_error_resets {
            Some(most) => Limit::new(u32::try_from(most).unwrap_or(u32::MAX), 0),
            None => Limit::new(u32::MAX, u32::MAX),
        };
        config.set_limit(PeerLimit::ProvokedResets, resets);
        if self
            .max_error_resets
            .is_some_and(|most| most < DEFAULT_ERROR_RESETS)
        {
            config.set_limit(PeerLimit::RefusedStreams, resets);
        }
        // A hundred in the life of a connection end one of the published crate.
        config.set_limit(PeerLimit::EmptyData, Limit::new(100, 1));
        // One a round trip, as clients of gRPC send them to measure it.
        config.set_limit(PeerLimit::Pings, Limit::new(10_000, 10_000));
        config.set_untimed();
        config
    }

    /// The first bytes of a connection without the settings that the builder does not set, as tests of the published crate
    /// expect them. The engine's values for those are the defaults of RFC 9113, or concern this side alone. `start` is where
    /// SETTINGS begin.
    #[cfg(feature = "unstable")]
    pub(crate) fn quiet(&self, first: &[u8], start: usize) -> bytes::Bytes {
        const FRAME_HEADER: usize = 9;
        const ENTRY: usize = 6;
        let (header, frames) = first[start..].split_at(FRAME_HEADER);
        let (entries, rest) = frames.split_at(usize::from(u16::from_be_bytes([header[1], header[2]])));
        let announced = self.announced();
        let is_set = |entry: &&[u8]| announced.contains(&u16::from_be_bytes([entry[0], entry[1]]));
        let entries = entries
            .chunks_exact(ENTRY)
            .filter(is_set)
            .collect::<Vec<_>>()
            .concat();
        let length = (entries.len() as u32).to_be_bytes();
        [&first[..start], &length[1..], &header[3..], &entries, rest]
            .concat()
            .into()
    }

    /// The identifiers of the settings that were set.
    #[cfg(feature = "unstable")]
    fn announced(&self) -> Vec<u16> {
        let set = [
            (0x1, self.header_table_size.is_some()),
            (0x2, !self.enable_push),
            (0x3, self.max_concurrent_streams.is_some()),
            (0x4, self.initial_window_size.is_some()),
            (0x5, self.max_frame_size.is_some()),
            (0x6, self.max_header_list_size.is_some()),
            (0x8, self.enable_connect_protocol),
        ];
        let set = set.into_iter().filter(|&(_, is_set)| is_set);
        set.map(|(identifier, _)| identifier).collect()
    }

    /// Header lists up to what is set.
    fn limit_headers(&self, config: &mut Config) {
        let list = self.max_header_list_size.unwrap_or(DEFAULT_HEADER_LIST);
        let bytes = list as usize;
        config.set_max_header_list_size(list);
        config.set_max_header_fields(20_000);
        config.set_max_header_memory(config.max_header_memory().max(2 * bytes));
    }
}

/// The window of a stream, which may be closed.
pub(crate) fn stream_window(bytes: u32) -> WindowSize {
    match bytes {
        0 => WindowSize::CLOSED,
        bytes => WindowSize::new(bytes).unwrap_or(WindowSize::MAX),
    }
}

/// The window of the connection: at least a byte.
pub(crate) fn connection_window(bytes: u32) -> WindowSize {
    stream_window(bytes.max(1))
}
