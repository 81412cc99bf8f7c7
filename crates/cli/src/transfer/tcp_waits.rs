//! What the kernel says of TCP, and how data arrived, as fields for JSON.

use std::time::Duration;

use fullbore::stats::TcpInfo;
use serde::Serialize;

/// A TCP connection. Sizes are in bytes, and counts begin with the connection.
#[derive(Serialize, Debug, Clone)]
pub(super) struct TcpWaits {
    round_trip_ms: f64,
    min_round_trip_ms: f64,
    congestion_control: String,
    received_segments: u64,
    out_of_order_segments: Option<u64>,
    receive_window: u64,
    receive_buffer: u64,
    sent_bytes: u64,
    sent_again_bytes: u64,
    send_window: Option<u64>,
    send_buffer: u64,
    busy_seconds: f64,
    receiver_limited_seconds: f64,
    send_buffer_limited_seconds: f64,
}

/// How data arrived.
#[derive(Serialize, Debug, Clone)]
pub(super) struct Arrivals {
    /// For how long it came in bursts a round trip apart, their number, and the bytes of one.
    bursts_seconds: f64,
    bursts: u32,
    bytes_of_a_burst: u64,
    /// For how long the server was silent when the path does not explain it.
    silence_seconds: f64,
}

impl Arrivals {
    pub(super) fn of(arrivals: &fullbore::stats::Arrivals) -> Self {
        Self {
            bursts_seconds: arrivals.bursts.as_secs_f64(),
            bursts: arrivals.burst_count,
            bytes_of_a_burst: arrivals.burst_bytes / u64::from(arrivals.burst_count.max(1)),
            silence_seconds: arrivals.silence.as_secs_f64(),
        }
    }
}

impl TcpWaits {
    pub(super) fn of(info: &TcpInfo) -> Self {
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        Self {
            round_trip_ms: millis(info.round_trip),
            min_round_trip_ms: millis(info.min_round_trip),
            congestion_control: info.congestion_control.name().to_owned(),
            received_segments: info.received_segments,
            out_of_order_segments: info.out_of_order_segments,
            receive_window: info.receive_window,
            receive_buffer: info.receive_buffer,
            sent_bytes: info.sent_bytes,
            sent_again_bytes: info.sent_again_bytes,
            send_window: info.send_window,
            send_buffer: info.send_buffer,
            busy_seconds: info.busy.as_secs_f64(),
            receiver_limited_seconds: info.receiver_limited.as_secs_f64(),
            send_buffer_limited_seconds: info.send_buffer_limited.as_secs_f64(),
        }
    }
}
