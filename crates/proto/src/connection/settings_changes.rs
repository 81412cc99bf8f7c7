//! SETTINGS that the owner changes during the connection (RFC 9113 section 6.5), one at a time until the peer has
//! acknowledged them.

use super::Connection;
use crate::error::UsageError;
use crate::flow::WindowSize;
use crate::frame::Setting;
use crate::role::Role;

impl Connection {
    /// Whether the peer has acknowledged the latest SETTINGS of this endpoint.
    pub fn settings_acknowledged(&self) -> bool {
        self.settings.is_acknowledged()
    }

    /// Changes the receive windows of all streams with another SETTINGS_INITIAL_WINDOW_SIZE: of later streams, and of
    /// those that exist by the difference (RFC 9113 section 6.9.2). A larger window counts at once. Until the peer has
    /// acknowledged a smaller one, it may use the old one.
    ///
    /// # Errors
    /// [`UsageError::SettingsUnacknowledged`], [`UsageError::ConnectionFailed`], and [`UsageError::WindowOutOfRange`]
    /// if the window of a stream would exceed 2^31-1 bytes.
    pub fn change_stream_window(&mut self, size: WindowSize) -> Result<(), UsageError> {
        self.check_settings()?;
        self.store_all_fresh();
        let delta = i64::from(size.bytes()) - i64::from(self.streams.initial_window().bytes());
        if delta > 0
            && !self
                .streams
                .iter()
                .all(|stream| stream.receive.window.can_shift(delta))
        {
            return Err(UsageError::WindowOutOfRange);
        }
        for stream in self.streams.visit_all() {
            stream.receive.window.shift(delta);
        }
        self.streams.set_initial_window(size);
        let withdrawn = u32::try_from(-delta).unwrap_or(0);
        self.send_setting(Setting::InitialWindowSize(size.bytes()), withdrawn);
        Ok(())
    }

    /// A server accepts extended CONNECT (RFC 8441) from now on. That cannot be taken back (section 3).
    ///
    /// # Errors
    /// [`UsageError::WrongRole`], [`UsageError::SettingsUnacknowledged`], [`UsageError::ConnectionFailed`].
    pub fn accept_extended_connect(&mut self) -> Result<(), UsageError> {
        if self.role != Role::Server {
            return Err(UsageError::WrongRole);
        }
        self.check_settings()?;
        self.settings.accept_extended_connect();
        self.send_setting(Setting::EnableConnectProtocol(true), 0);
        Ok(())
    }

    fn check_settings(&self) -> Result<(), UsageError> {
        match (self.shutdown.has_failed(), self.settings.is_acknowledged()) {
            (true, _) => Err(UsageError::ConnectionFailed),
            (false, false) => Err(UsageError::SettingsUnacknowledged),
            (false, true) => Ok(()),
        }
    }

    fn send_setting(&mut self, setting: Setting, withdrawn: u32) {
        self.settings
            .change(setting, withdrawn, &mut self.writer, self.now);
        self.schedule_checks();
    }
}
