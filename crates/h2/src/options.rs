//! What the builders and the connections of clients and servers have in common.

/// The largest window (RFC 9113 section 6.9.1).
pub(crate) const MAX_WINDOW: u32 = (1 << 31) - 1;

/// The options of a builder that has them in its field `settings`.
macro_rules! builder_options {
    () => {
        /// With the defaults of RFC 9113: windows of 65,535 bytes.
        pub fn new() -> Builder {
            Builder {
                settings: Settings::default(),
            }
        }

        /// The receive window of each stream, in bytes.
        pub fn initial_window_size(&mut self, size: u32) -> &mut Self {
            self.settings.initial_window_size = Some(size);
            self
        }

        /// The receive window of the connection, in bytes.
        pub fn initial_connection_window_size(&mut self, size: u32) -> &mut Self {
            self.settings.connection_window_size = Some(size);
            self
        }

        /// The largest frame that is accepted, in bytes.
        ///
        /// # Panics
        /// Unless `max` is from 16,384 to 16,777,215.
        pub fn max_frame_size(&mut self, max: u32) -> &mut Self {
            self.settings.set_max_frame_size(max);
            self
        }

        /// The largest header list that is accepted, in bytes (RFC 9113 section 6.5.2). Default: 16 MiB. A server
        /// answers a larger request with 431.
        pub fn max_header_list_size(&mut self, max: u32) -> &mut Self {
            self.settings.max_header_list_size = Some(max);
            self
        }

        /// The dynamic table that the peer may use for header compression, in bytes.
        pub fn header_table_size(&mut self, size: u32) -> &mut Self {
            self.settings.header_table_size = Some(size);
            self
        }

        /// Accepted without effect: the last 1,024 resets are remembered, and frames on streams that were reset before are
        /// ignored, too.
        pub fn max_concurrent_reset_streams(&mut self, max: usize) -> &mut Self {
            let _ = max;
            self
        }

        /// Accepted without effect: see [`Self::max_concurrent_reset_streams`].
        pub fn reset_stream_duration(&mut self, dur: Duration) -> &mut Self {
            let _ = dur;
            self
        }

        /// The streams that may be reset for errors of the peer before the connection ends with ENHANCE_YOUR_CALM. Default: 1,024.
        /// None: no limit.
        pub fn max_local_error_reset_streams(&mut self, max: Option<usize>) -> &mut Self {
            self.settings.max_error_resets = max;
            self
        }

        /// Accepted without effect: streams that the peer resets before they are accepted are dropped at once.
        pub fn max_pending_accept_reset_streams(&mut self, max: usize) -> &mut Self {
            let _ = max;
            self
        }

        /// The unsent bytes of a stream up to which it has capacity. Default: 400 KiB.
        ///
        /// # Panics
        /// If `max` is above 2^32-1.
        pub fn max_send_buffer_size(&mut self, max: usize) -> &mut Self {
            self.settings.set_max_send_buffer_size(max);
            self
        }

        /// Accepted without effect: small DATA frames that wait to be read are copied together, and cost no more than their bytes.
        pub fn data_frame_budget(&mut self, budget: usize) -> &mut Self {
            let _ = budget;
            self
        }
    };
}

/// The methods of a connection that has a field `driver`.
macro_rules! connection_options {
    () => {
        /// Sets the receive window of the connection, in bytes. A smaller one takes effect as the peer uses up the credit that it
        /// has.
        ///
        /// # Panics
        /// If `size` is above 2^31-1.
        pub fn set_target_window_size(&mut self, size: u32) {
            assert!(
                size <= $crate::options::MAX_WINDOW,
                "a window is at most 2^31-1 bytes"
            );
            self.driver.shared().lock().set_connection_window(size);
        }

        /// Sets the receive window of each stream, in bytes, by another SETTINGS frame.
        ///
        /// # Errors
        /// The peer has not acknowledged the SETTINGS before these.
        ///
        /// # Panics
        /// If `size` is above 2^31-1.
        pub fn set_initial_window_size(&mut self, size: u32) -> Result<(), Error> {
            assert!(
                size <= $crate::options::MAX_WINDOW,
                "a window is at most 2^31-1 bytes"
            );
            self.driver.shared().lock().set_stream_window(size)
        }

        /// The handle that sends PING, to the first caller.
        pub fn ping_pong(&mut self) -> Option<PingPong> {
            let shared = self.driver.shared();
            let is_first = shared.lock().take_ping_pong();
            is_first.then(|| PingPong::new(Arc::clone(shared)))
        }

        /// The streams that the peer allows this side to open at once. A server opens none without server push.
        pub fn max_concurrent_send_streams(&self) -> usize {
            self.driver.shared().lock().max_send_streams()
        }

        /// The streams that the peer may have open at once, as the builder set them.
        pub fn max_concurrent_recv_streams(&self) -> usize {
            self.driver.shared().lock().max_receive_streams()
        }
    };
}

pub(crate) use {builder_options, connection_options};
