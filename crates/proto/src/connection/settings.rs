//! SETTINGS of both sides (RFC 9113 section 6.5).

use super::writer::Writer;
use crate::config::Config;
use crate::error::ConnectionError;
use crate::flow::{DEFAULT_WINDOW, WindowSize};
use crate::frame::{Setting, SettingsEntries};
use crate::role::Role;
use crate::time::Time;

#[derive(Debug)]
pub(super) struct Settings {
    /// When our latest were sent.
    sent: Time,
    /// Whether the peer has acknowledged them.
    acknowledged: bool,
    /// How far the peer may exceed a stream window until then, because it may not know them.
    grace: u32,
    /// Whether a server accepts extended CONNECT.
    accepts_extended_connect: bool,
    /// Whether the first SETTINGS of the peer have arrived and are in effect.
    received: bool,
    peer: PeerSettings,
}

/// The values of the peer. They begin as the defaults of RFC 9113 section 6.5.2.
#[derive(Debug)]
struct PeerSettings {
    initial_window_size: u32,
    max_concurrent_streams: u32,
    max_header_list_size: u32,
    enable_connect_protocol: bool,
}

/// A change of SETTINGS_INITIAL_WINDOW_SIZE, which changes the send window of every stream (section 6.9.2).
///
/// A frame may contain the setting several times. No other frame is processed in between (section 6.5.3), so only the
/// last value takes effect. A larger value before it is still an error if it raises a window above the limit.
#[derive(Debug, Clone, Copy)]
pub(super) struct WindowChange {
    /// From the old value to the last one.
    pub(super) delta: i64,
    /// From the old value to the largest one.
    pub(super) rise: i64,
}

impl Settings {
    pub(super) fn new(config: &Config, stream_window: WindowSize, now: Time) -> Self {
        Settings {
            sent: now,
            acknowledged: false,
            grace: DEFAULT_WINDOW.bytes().saturating_sub(stream_window.bytes()),
            accepts_extended_connect: config.enable_connect_protocol,
            received: false,
            peer: PeerSettings {
                initial_window_size: DEFAULT_WINDOW.bytes(),
                // The default is no limit, but no more are opened before the peer's SETTINGS arrive.
                max_concurrent_streams: config.initial_max_send_streams,
                max_header_list_size: u32::MAX,
                enable_connect_protocol: false,
            },
        }
    }

    /// The SETTINGS that this endpoint sends.
    pub(super) fn ours(role: Role, config: &Config, stream_window: WindowSize) -> Vec<Setting> {
        let mut settings = vec![
            Setting::InitialWindowSize(stream_window.bytes()),
            Setting::MaxFrameSize(config.max_frame_size),
            Setting::MaxHeaderListSize(config.max_header_list_size),
            Setting::HeaderTableSize(config.header_table_size),
        ];
        match role {
            Role::Client => settings.push(Setting::EnablePush(false)),
            Role::Server => {
                settings.push(Setting::MaxConcurrentStreams(config.max_concurrent_streams));
                settings.push(Setting::NoRfc7540Priorities(true));
                if config.enable_connect_protocol {
                    settings.push(Setting::EnableConnectProtocol(true));
                }
            }
        }
        settings
    }

    /// When our latest were sent.
    pub(super) fn sent(&self) -> Time {
        self.sent
    }

    pub(super) fn is_acknowledged(&self) -> bool {
        self.acknowledged
    }

    pub(super) fn acknowledge(&mut self) -> Result<(), ConnectionError> {
        if self.acknowledged {
            return Err(ConnectionError::protocol(
                "a SETTINGS acknowledgement without SETTINGS",
            ));
        }
        self.acknowledged = true;
        self.grace = 0;
        Ok(())
    }

    /// How far the peer may exceed a stream window that our SETTINGS lower, until it has acknowledged them (section
    /// 6.9.3).
    #[inline]
    pub(super) fn window_grace(&self) -> u64 {
        u64::from(self.grace)
    }

    /// Sends another SETTINGS frame. `withdrawn` is by how many bytes it lowers stream windows.
    pub(super) fn change(&mut self, setting: Setting, withdrawn: u32, writer: &mut Writer, now: Time) {
        writer.settings(&[setting]);
        self.sent = now;
        self.acknowledged = false;
        self.grace = withdrawn;
    }

    pub(super) fn accept_extended_connect(&mut self) {
        self.accepts_extended_connect = true;
    }

    pub(super) fn accepts_extended_connect(&self) -> bool {
        self.accepts_extended_connect
    }

    /// Applies the values of the peer. The caller applies the window change, then calls [`Self::receive`].
    pub(super) fn apply(
        &mut self,
        entries: SettingsEntries<'_>,
        role: Role,
        writer: &mut Writer,
    ) -> Result<Option<WindowChange>, ConnectionError> {
        let peer = &mut self.peer;
        if !self.received {
            // The first SETTINGS of the peer name its limits. What they leave out has no limit.
            peer.max_concurrent_streams = u32::MAX;
        }
        let (mut last, mut largest) = (None, 0);
        for setting in entries.iter() {
            let setting = setting.map_err(|error| ConnectionError::violation(error.code, error.reason))?;
            match setting {
                Setting::HeaderTableSize(size) => writer.set_table_size(size),
                Setting::InitialWindowSize(size) => {
                    last = Some(size);
                    largest = largest.max(size);
                }
                Setting::MaxFrameSize(size) => writer.set_max_frame_size(size),
                Setting::MaxConcurrentStreams(count) => peer.max_concurrent_streams = count,
                Setting::EnableConnectProtocol(enabled) => {
                    if peer.enable_connect_protocol && !enabled {
                        return Err(ConnectionError::protocol(
                            "SETTINGS_ENABLE_CONNECT_PROTOCOL changed from 1 to 0",
                        ));
                    }
                    peer.enable_connect_protocol = enabled;
                }
                Setting::EnablePush(true) if role == Role::Client => {
                    return Err(ConnectionError::protocol("a server sent SETTINGS_ENABLE_PUSH 1"));
                }
                Setting::MaxHeaderListSize(size) => peer.max_header_list_size = size,
                // The others do not concern this endpoint.
                _ => {}
            }
        }
        let Some(last) = last else { return Ok(None) };
        let before = i64::from(peer.initial_window_size);
        peer.initial_window_size = last;
        let change = WindowChange {
            delta: i64::from(last) - before,
            rise: i64::from(largest) - before,
        };
        Ok((change.delta != 0 || change.rise > 0).then_some(change))
    }

    /// How large a field section may be that is sent. The peer's limit is advice (section 10.5.1), and a server answers 431
    /// to what is a little larger. What is much larger may cost the connection, and with it the other streams.
    #[inline]
    pub(super) fn most_to_send(&self) -> usize {
        (self.peer.max_header_list_size as usize).saturating_mul(2)
    }

    pub(super) fn receive(&mut self) {
        self.received = true;
    }

    pub(super) fn is_received(&self) -> bool {
        self.received
    }

    pub(super) fn initial_window_size(&self) -> u32 {
        self.peer.initial_window_size
    }

    pub(super) fn max_concurrent_streams(&self) -> u32 {
        self.peer.max_concurrent_streams
    }

    pub(super) fn enable_connect_protocol(&self) -> bool {
        self.peer.enable_connect_protocol
    }
}
