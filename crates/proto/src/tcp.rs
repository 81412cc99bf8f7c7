//! What the kernel says of the TCP connection below. The engine carries it in its reports; whoever owns the transport reads it.

use core::fmt;
use core::time::Duration;

/// What an endpoint may take to answer, beyond the round trip.
const BUSY_ENDPOINT: Duration = Duration::from_millis(5);

/// What the kernel says of a TCP connection, and what limits its buffers. Counts begin with the connection.
///
/// A proxy that ends TCP in between has two such connections, of which this describes the near one: compare
/// [`Self::min_round_trip`] with the round trip of HTTP/2.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TcpInfo {
    /// The smoothed round trip, as sent data was acknowledged.
    pub round_trip: Duration,
    /// The shortest round trip of the last minutes. Zero if it is unknown.
    pub min_round_trip: Duration,
    /// The round trip as a receiver sees it, with what queues add. Zero if it is unknown.
    pub receive_round_trip: Duration,
    /// The largest segment that is sent, in bytes.
    pub segment_bytes: u32,
    /// The congestion window, in bytes.
    pub congestion_window: u64,
    /// Whether the congestion window still grows exponentially.
    pub is_in_slow_start: bool,
    /// The name of the congestion control, of what is sent.
    pub congestion_control: CongestionControl,

    /// Bytes received in order.
    pub received_bytes: u64,
    /// Segments with data that were received.
    pub received_segments: u64,
    /// Segments that came out of order: others were lost before them, or overtaken. `None` if the kernel does not count them.
    pub out_of_order_segments: Option<u64>,
    /// The bytes that the peer may send, at most; as a bound where the kernel does not tell the window itself.
    pub receive_window: u64,
    /// The size of the receive buffer, in bytes, with the kernel's overhead.
    pub receive_buffer: u64,
    /// What the kernel lets the receive buffer grow to (`net.ipv4.tcp_rmem`). `None` if it is unknown, or larger than the
    /// buffer while its size is fixed.
    pub largest_receive_buffer: Option<u64>,

    /// Bytes sent, with what was sent again.
    pub sent_bytes: u64,
    /// Bytes sent again, because they were lost or acknowledged late.
    pub sent_again_bytes: u64,
    /// Bytes written that have not been sent.
    pub unsent_bytes: u64,
    /// The peer's window, in bytes. `None` if the kernel does not tell.
    pub send_window: Option<u64>,
    /// The size of the send buffer, in bytes, with the kernel's overhead.
    pub send_buffer: u64,
    /// What the kernel lets the send buffer grow to (`net.ipv4.tcp_wmem`).
    pub largest_send_buffer: Option<u64>,
    /// The latest rate at which data was delivered, in bytes per second.
    pub delivery_rate: u64,
    /// For how long data was on its way or waited to be sent.
    pub busy: Duration,
    /// For how long of it the peer's receive window was closed.
    pub receiver_limited: Duration,
    /// For how long of it the send buffer was too small.
    pub send_buffer_limited: Duration,
}

impl TcpInfo {
    /// Bytes that were sent for the first time.
    pub fn first_sent_bytes(&self) -> u64 {
        self.sent_bytes.saturating_sub(self.sent_again_bytes)
    }

    /// The part of the bytes that was sent again.
    #[expect(clippy::cast_precision_loss, reason = "a share for people")]
    pub fn sent_again_share(&self) -> f64 {
        match self.sent_bytes {
            0 => 0.0,
            sent => self.sent_again_bytes as f64 / sent as f64,
        }
    }

    /// The part of the segments that came out of order. `None` if the kernel does not count them.
    #[expect(clippy::cast_precision_loss, reason = "a share for people")]
    pub fn out_of_order_share(&self) -> Option<f64> {
        let late = self.out_of_order_segments?;
        Some(match self.received_segments {
            0 => 0.0,
            received => late as f64 / received as f64,
        })
    }

    /// Whether this describes the whole path, of which HTTP/2 has measured the round trip: no proxy close by ends TCP. An
    /// endpoint may take some milliseconds to answer.
    pub fn spans(&self, round_trip: Option<Duration>) -> bool {
        match round_trip {
            Some(trip) => self.min_round_trip * 3 + BUSY_ENDPOINT >= trip,
            None => true,
        }
    }
}

/// The name of a congestion control.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct CongestionControl {
    /// Filled with zeros.
    name: [u8; 16],
}

impl CongestionControl {
    /// The name; empty if it is unknown.
    pub fn name(&self) -> &str {
        let length = self.name.iter().position(|&octet| octet == 0);
        core::str::from_utf8(&self.name[..length.unwrap_or(self.name.len())]).unwrap_or_default()
    }

    /// Whether it sends less after a loss, whatever caused that: all but BBR do.
    pub fn yields_to_loss(&self) -> bool {
        !self.name().starts_with("bbr")
    }
}

impl From<&[u8]> for CongestionControl {
    /// Takes a name up to its first zero, at most 16 octets of it.
    fn from(octets: &[u8]) -> Self {
        let mut name = [0; 16];
        let octets = octets.iter().take_while(|&&octet| octet != 0);
        for (slot, &octet) in name.iter_mut().zip(octets) {
            *slot = octet;
        }
        CongestionControl { name }
    }
}

impl fmt::Debug for CongestionControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_ends_at_its_first_zero_and_after_16_octets() {
        let name = |octets: &[u8]| CongestionControl::from(octets).name().to_owned();
        assert_eq!(name(b"cubic\0"), "cubic");
        assert_eq!(name(b"bbr\0reno"), "bbr");
        assert_eq!(name(b""), "");
        assert_eq!(name(b"0123456789abcdefg"), "0123456789abcdef");
        assert_eq!(name(b"\xff\xfe"), "", "it is no text");
        assert!(!CongestionControl::from(&b"bbr3"[..]).yields_to_loss());
        assert!(CongestionControl::from(&b"cubic"[..]).yields_to_loss());
    }

    #[test]
    fn tcp_that_ends_close_by_does_not_span_the_path() {
        let millis = Duration::from_millis;
        let near = TcpInfo {
            min_round_trip: millis(1),
            ..TcpInfo::default()
        };
        assert!(!near.spans(Some(millis(100))) && near.spans(Some(millis(8))) && near.spans(None));
        let whole = TcpInfo {
            min_round_trip: millis(90),
            ..near
        };
        assert!(whole.spans(Some(millis(100))));
    }

    #[test]
    fn shares_of_nothing_are_nothing() {
        let mut info = TcpInfo::default();
        assert_eq!((info.sent_again_share(), info.out_of_order_share()), (0.0, None));
        info.out_of_order_segments = Some(5);
        assert_eq!(info.out_of_order_share(), Some(0.0));
        info.received_segments = 50;
        assert_eq!(info.out_of_order_share(), Some(0.1));
        (info.sent_bytes, info.sent_again_bytes) = (1_000, 10);
        assert!((info.sent_again_share() - 0.01).abs() < 1e-12);
    }
}
