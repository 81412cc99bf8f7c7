//! SETTINGS in both directions, and PING (RFC 9113 sections 6.5 and 6.7).

use super::Connection;
use crate::error::{ConnectionError, ErrorCode};
use crate::event::Event;
use crate::flow::DEFAULT_WINDOW;
use crate::frame::{DEFAULT_MAX_FRAME_SIZE, Kind, Ping, Setting, Settings, SettingsEntries, WindowUpdate};
use crate::role::Role;
use crate::time::Time;

use super::receive::PREFACE;

/// The payload of the PING that measures when a graceful shutdown has reached the peer.
pub(super) const SHUTDOWN_PING: [u8; 8] = *b"shutdown";

/// The payload of the PING that measures the round trip.
pub(super) const PROBE_PING: [u8; 8] = *b"roundtri";

/// The payload of the PING that asks a silent peer whether it is there.
pub(super) const KEEP_ALIVE_PING: [u8; 8] = *b"areuthr?";

/// So many streams that a frame has the connection go through cost its sender as much as an entry of SETTINGS. With ten
/// thousand streams open, one change of the initial window takes about as long as the frames of 128 requests.
const STREAMS_A_TOKEN: usize = 128;

/// The values of SETTINGS_INITIAL_WINDOW_SIZE in one frame.
#[derive(Debug, Default)]
struct InitialWindows {
    last: Option<u32>,
    largest: u32,
}

impl InitialWindows {
    fn add(&mut self, size: u32) {
        self.last = Some(size);
        self.largest = self.largest.max(size);
    }
}

/// What we have told the peer.
#[derive(Debug)]
pub(super) struct LocalSettings {
    pub(super) sent: Time,
    pub(super) acknowledged: bool,
}

impl LocalSettings {
    pub(super) fn new(now: Time) -> Self {
        LocalSettings {
            sent: now,
            acknowledged: false,
        }
    }
}

/// What the peer has told us, beginning with the defaults of RFC 9113 section 6.5.2.
#[derive(Debug)]
pub(super) struct PeerSettings {
    pub(super) received: bool,
    pub(super) initial_window_size: u32,
    pub(super) max_frame_size: u32,
    pub(super) max_concurrent_streams: u32,
    pub(super) enable_connect_protocol: bool,
}

impl Default for PeerSettings {
    fn default() -> Self {
        PeerSettings {
            received: false,
            initial_window_size: DEFAULT_WINDOW.bytes(),
            max_frame_size: DEFAULT_MAX_FRAME_SIZE,
            // No limit by default, but section 6.5.2 recommends 100 at least: before we know, that is what we dare.
            max_concurrent_streams: 100,
            enable_connect_protocol: false,
        }
    }
}

impl Connection {
    /// What each side sends first (section 3.4): for the connection's window, the update that opens it.
    pub(super) fn write_preface(&mut self) {
        let config = &self.config;
        let mut settings = vec![
            Setting::InitialWindowSize(self.stream_window.bytes()),
            Setting::MaxFrameSize(config.max_frame_size),
            Setting::MaxHeaderListSize(config.max_header_list_size),
            Setting::HeaderTableSize(config.header_table_size),
        ];
        match self.role {
            Role::Client => {
                settings.push(Setting::EnablePush(false));
                self.control.extend_from_slice(PREFACE);
            }
            Role::Server => {
                settings.push(Setting::MaxConcurrentStreams(config.max_concurrent_streams));
                settings.push(Setting::NoRfc7540Priorities(true));
                if config.enable_connect_protocol {
                    settings.push(Setting::EnableConnectProtocol(true));
                }
            }
        }
        Setting::write_all(&settings, &mut self.control);
        self.stats.sent_frames.add(Kind::SETTINGS);
        self.refill_connection();
    }

    /// Writes the connection's WINDOW_UPDATE for all that may be advertised.
    pub(super) fn refill_connection(&mut self) {
        if self.failed.is_some() {
            return;
        }
        if let Some(increment) = self
            .receive_window
            .refill(self.now, self.stats.round_trip.minimum())
        {
            let update = WindowUpdate {
                stream: None,
                increment,
            };
            update.write(&mut self.control);
            self.stats.sent_frames.add(Kind::WINDOW_UPDATE);
            self.stats.connection_refills += 1;
        }
    }

    /// What an older, larger stream window still allows: a peer that does not know our SETTINGS yet uses 65,535
    /// (section 6.9.3).
    pub(super) fn stream_window_grace(&self) -> u64 {
        if self.local.acknowledged {
            return 0;
        }
        u64::from(DEFAULT_WINDOW.bytes().saturating_sub(self.stream_window.bytes()))
    }

    pub(super) fn on_settings(&mut self, settings: Settings<'_>) -> Result<(), ConnectionError> {
        let entries = match settings {
            Settings::Ack => {
                if self.local.acknowledged {
                    return Err(ConnectionError::protocol(
                        "an acknowledgement of SETTINGS that were not sent",
                    ));
                }
                self.local.acknowledged = true;
                self.watch_beginning();
                self.decoder
                    .set_max_table_size(self.config.header_table_size as usize);
                self.stats.round_trip.sample(self.local.sent, self.now);
                return Ok(());
            }
            Settings::Values(entries) => entries,
        };
        let reason = "too many SETTINGS";
        self.guards
            .settings
            .charge_many(1 + entries.len(), self.now, reason)?;
        self.apply(entries)?;
        if !self.peer.received {
            self.peer.received = true;
        }
        Setting::write_ack(&mut self.control);
        self.owed += crate::frame::HEAD_LENGTH;
        self.stats.sent_frames.add(Kind::SETTINGS);
        self.events.push(Event::PeerSettings);
        self.open_waiting();
        Ok(())
    }

    fn apply(&mut self, entries: SettingsEntries<'_>) -> Result<(), ConnectionError> {
        if !self.peer.received {
            // The peer's first SETTINGS say what it limits; what they leave out is without a limit.
            self.peer.max_concurrent_streams = u32::MAX;
        }
        let mut windows = InitialWindows::default();
        for setting in entries.iter() {
            let setting = setting.map_err(|error| ConnectionError::peer(error.code, error.reason))?;
            match setting {
                Setting::HeaderTableSize(size) => self.encoder.set_max_table_size(size as usize),
                Setting::InitialWindowSize(size) => windows.add(size),
                Setting::MaxFrameSize(size) => self.peer.max_frame_size = size,
                Setting::MaxConcurrentStreams(count) => self.peer.max_concurrent_streams = count,
                Setting::EnableConnectProtocol(enabled) => {
                    if self.peer.enable_connect_protocol && !enabled {
                        return Err(ConnectionError::protocol(
                            "SETTINGS_ENABLE_CONNECT_PROTOCOL went from 1 to 0",
                        ));
                    }
                    self.peer.enable_connect_protocol = enabled;
                }
                Setting::EnablePush(true) if self.role == Role::Client => {
                    return Err(ConnectionError::protocol("a server sent SETTINGS_ENABLE_PUSH 1"));
                }
                // A limit on field sections is advice (section 10.5.1); the rest does not concern us.
                _ => {}
            }
        }
        match windows.last {
            Some(size) => self.change_initial_window(size, windows.largest),
            None => Ok(()),
        }
    }

    /// SETTINGS_INITIAL_WINDOW_SIZE changes the send window of every stream by the difference (section 6.9.2).
    ///
    /// A frame may have the setting several times, and no other frame is processed between its values (section 6.5.3):
    /// only the last one is to be seen afterwards. It is an error all the same when a value before it, of which `largest` is
    /// the largest, puts a window over the limit.
    fn change_initial_window(&mut self, size: u32, largest: u32) -> Result<(), ConnectionError> {
        let before = i64::from(self.peer.initial_window_size);
        let delta = i64::from(size) - before;
        let rise = i64::from(largest) - before;
        self.peer.initial_window_size = size;
        if delta == 0 && rise <= 0 {
            return Ok(());
        }
        self.charge_walk()?;
        for place in 0..self.streams.len() {
            let Some(key) = self.streams.key_at(place) else {
                continue;
            };
            let Some(stream) = self.streams.get_mut(key) else {
                continue;
            };
            if stream.state.is_closed() {
                continue;
            }
            let credit = &mut stream.send.credit;
            if !credit.has_room_for(rise) || credit.adjust(delta).is_err() {
                let error = "SETTINGS_INITIAL_WINDOW_SIZE puts a stream's window over 2^31-1";
                return Err(ConnectionError::peer(ErrorCode::FLOW_CONTROL_ERROR, error).on(key.id()));
            }
            // Without data it waits for no window.
            if !stream.send.queue.is_empty() {
                self.reschedule(key);
            }
        }
        Ok(())
    }

    /// A frame has the connection go through all of its streams: that is counted, and the peer pays for it, as for SETTINGS.
    pub(super) fn charge_walk(&mut self) -> Result<(), ConnectionError> {
        let streams = self.streams.len();
        self.work += streams as u64;
        let reason = "too many changes of SETTINGS_INITIAL_WINDOW_SIZE, or GOAWAY, for so many streams";
        let tokens = streams / STREAMS_A_TOKEN;
        self.guards.settings.charge_many(tokens, self.now, reason)
    }

    /// Until when the peer's SETTINGS have to come.
    pub(super) fn preface_deadline(&self) -> Option<Time> {
        let waits = !self.peer.received && self.failed.is_none();
        waits.then(|| self.local.sent + self.config.preface_timeout)
    }

    pub(super) fn preface_timeout(&mut self) {
        if self.preface_deadline().is_some_and(|until| until <= self.now) {
            self.fail(ConnectionError::protocol(
                "the peer sent no SETTINGS within the time for its preface (does it speak HTTP/2?)",
            ));
        }
    }

    pub(super) fn on_ping(&mut self, ping: Ping) -> Result<(), ConnectionError> {
        if ping.ack {
            match ping.opaque {
                SHUTDOWN_PING if self.is_shutting_down() => self.shutdown_reached_peer(),
                PROBE_PING if self.probe.is_some() => {
                    if let Some(sent) = self.probe.take() {
                        self.stats.round_trip.sample(sent, self.now);
                    }
                }
                // Whatever came since has answered it: the peer is there.
                KEEP_ALIVE_PING => {}
                _ => return self.guards.pings.charge(self.now, "too many answers to no PING"),
            }
            return Ok(());
        }
        self.guards.pings.charge(self.now, "too many PING")?;
        let reply = Ping { ack: true, ..ping };
        reply.write(&mut self.control);
        self.owed += crate::frame::HEAD_LENGTH + ping.opaque.len();
        self.stats.sent_frames.add(Kind::PING);
        Ok(())
    }
}
