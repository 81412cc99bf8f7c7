//! The octets of `NETLINK_SOCK_DIAG`: a question about one TCP socket, and the kernel's answer (sock_diag(7), and `struct
//! tcp_info` of linux/tcp.h, which only ever grows at its end). Numbers are in the order of the machine, ports and addresses
//! in that of the network.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use fullbore_proto::{CongestionControl, TcpInfo};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;

/// The state of a socket that listens.
const TCP_LISTEN: u8 = 10;

/// Attributes of an answer.
const INET_DIAG_INFO: u16 = 2;
const INET_DIAG_CONG: u16 = 4;
const INET_DIAG_SKMEMINFO: u16 = 7;

/// The lengths of `struct nlmsghdr`, `inet_diag_req_v2` and `inet_diag_msg`.
const HEADER: usize = 16;
const REQUEST: usize = 56;
const MESSAGE: usize = 72;

/// The question about the socket that has these addresses.
pub(super) fn request(local: SocketAddr, peer: SocketAddr) -> Vec<u8> {
    let mut octets = Vec::with_capacity(HEADER + REQUEST);
    octets.extend(((HEADER + REQUEST) as u32).to_ne_bytes());
    octets.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    octets.extend(NLM_F_REQUEST.to_ne_bytes());
    // The number of the question and the port of its sender: the kernel fills in what matters.
    octets.extend([0; 8]);
    let family = if local.is_ipv4() { AF_INET } else { AF_INET6 };
    let wanted = [INET_DIAG_INFO, INET_DIAG_CONG, INET_DIAG_SKMEMINFO];
    let wanted = wanted
        .iter()
        .fold(0, |bits, attribute| bits | 1 << (attribute - 1));
    octets.extend([family, IPPROTO_TCP, wanted, 0]);
    // In any state.
    octets.extend(u32::MAX.to_ne_bytes());
    octets.extend(local.port().to_be_bytes());
    octets.extend(peer.port().to_be_bytes());
    octets.extend(address(local));
    octets.extend(address(peer));
    octets.extend(interface(local).to_ne_bytes());
    // No cookie: the addresses suffice.
    octets.extend([0xff; 8]);
    octets
}

/// 16 octets, of which IPv4 uses the first four.
fn address(of: SocketAddr) -> [u8; 16] {
    match of.ip() {
        IpAddr::V6(address) => address.octets(),
        IpAddr::V4(address) => {
            let mut octets = [0; 16];
            octets[..4].copy_from_slice(&address.octets());
            octets
        }
    }
}

/// The interface of an address that is unique only there.
fn interface(of: SocketAddr) -> u32 {
    match of {
        SocketAddr::V6(address) => address.scope_id(),
        SocketAddr::V4(_) => 0,
    }
}

/// What an answer says. `None` if it is an error, or says nothing of TCP. When a connection has ended, the kernel answers about
/// the socket that listens at its address.
pub(super) fn answer(octets: &[u8]) -> Option<TcpInfo> {
    let header = Fields(octets);
    let is_answer = header.u16(4) == SOCK_DIAG_BY_FAMILY && octets.get(HEADER + 1) != Some(&TCP_LISTEN);
    let length = header.u32(0) as usize;
    let attributes = octets.get(HEADER + MESSAGE..length).filter(|_| is_answer)?;
    let (mut info, mut memory, mut name) = (None, None, CongestionControl::default());
    for (kind, value) in Attributes(attributes) {
        match kind {
            INET_DIAG_INFO => info = Some(Fields(value)),
            INET_DIAG_SKMEMINFO => memory = Some(Fields(value)),
            INET_DIAG_CONG => name = CongestionControl::from(value),
            _ => {}
        }
    }
    let mut info = tcp_info(info?);
    info.congestion_control = name;
    if let Some(memory) = memory {
        info.receive_buffer = memory.u32(4).into();
        info.send_buffer = memory.u32(12).into();
    }
    Some(info)
}

/// `struct tcp_info`. A kernel that does not know a field gives none.
fn tcp_info(of: Fields<'_>) -> TcpInfo {
    let micros = |micros: u64| Duration::from_micros(micros);
    let time = |at| micros(of.u32(at).into());
    let segment = of.u32(16);
    let (threshold, window) = (of.u32(76), of.u32(80));
    // The largest number stands for no sample.
    let shortest = of.u32(148);
    let mut info = TcpInfo::default();
    info.round_trip = time(68);
    info.min_round_trip = match shortest {
        u32::MAX => Duration::ZERO,
        shortest => micros(shortest.into()),
    };
    info.receive_round_trip = time(92);
    info.segment_bytes = segment;
    info.congestion_window = u64::from(window) * u64::from(segment);
    info.is_in_slow_start = window < threshold;
    info.received_bytes = of.u64(128);
    info.received_segments = of.u32(152).into();
    info.out_of_order_segments = of.has(224, 4).then(|| of.u32(224).into());
    info.receive_window = match of.u32(232) {
        // Before Linux 6.2: what the window is limited to.
        0 => of.u32(64),
        window => window.max(of.u32(64)),
    }
    .into();
    info.sent_bytes = match of.has(200, 8) {
        true => of.u64(200),
        false => of.u64(120),
    };
    info.sent_again_bytes = match of.has(208, 8) {
        true => of.u64(208),
        false => u64::from(of.u32(100)) * u64::from(segment),
    };
    info.unsent_bytes = of.u32(144).into();
    info.send_window = of.has(228, 4).then(|| of.u32(228).into());
    info.delivery_rate = of.u64(160);
    info.busy = micros(of.u64(168));
    info.receiver_limited = micros(of.u64(176));
    info.send_buffer_limited = micros(of.u64(184));
    info
}

/// Numbers in octets. What lies beyond the end is zero.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn has(self, at: usize, length: usize) -> bool {
        self.0.len() >= at + length
    }

    fn octets<const N: usize>(self, at: usize) -> [u8; N] {
        let octets = self.0.get(at..at + N);
        octets.and_then(|octets| octets.try_into().ok()).unwrap_or([0; N])
    }

    fn u16(self, at: usize) -> u16 {
        u16::from_ne_bytes(self.octets(at))
    }

    fn u32(self, at: usize) -> u32 {
        u32::from_ne_bytes(self.octets(at))
    }

    fn u64(self, at: usize) -> u64 {
        u64::from_ne_bytes(self.octets(at))
    }
}

/// The attributes of a message: kind and value.
struct Attributes<'a>(&'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let header = Fields(self.0);
        let length = usize::from(header.u16(0));
        let value = self.0.get(4..length)?;
        let kind = header.u16(2);
        // Each begins at a multiple of four.
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer with these attributes.
    fn answered(attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut octets = vec![0; HEADER + MESSAGE];
        octets[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        for (kind, value) in attributes {
            octets.extend(((value.len() + 4) as u16).to_ne_bytes());
            octets.extend(kind.to_ne_bytes());
            octets.extend(*value);
            octets.resize(octets.len().next_multiple_of(4), 0);
        }
        let length = octets.len() as u32;
        octets[..4].copy_from_slice(&length.to_ne_bytes());
        octets
    }

    #[test]
    fn a_question_has_the_addresses_in_the_order_of_the_network() {
        let local = "192.0.2.1:258".parse().unwrap();
        let peer = "198.51.100.7:443".parse().unwrap();
        let octets = request(local, peer);
        assert_eq!(octets.len(), 72);
        assert_eq!(octets[16..20], [AF_INET, IPPROTO_TCP, 0b100_1010, 0]);
        assert_eq!(octets[24..28], [1, 2, 1, 187]);
        assert_eq!(octets[28..32], [192, 0, 2, 1]);
        assert_eq!(octets[44..48], [198, 51, 100, 7]);
        let scoped = "[fe80::1%3]:1".parse().unwrap();
        let octets = request(scoped, scoped);
        assert_eq!((octets[16], &octets[60..64]), (AF_INET6, &3u32.to_ne_bytes()[..]));
    }

    #[test]
    fn an_answer_tells_what_the_kernel_knows_and_no_more() {
        let mut octets = vec![0; 232];
        octets[16..20].copy_from_slice(&1_448u32.to_ne_bytes());
        octets[64..68].copy_from_slice(&65_000u32.to_ne_bytes());
        octets[76..80].copy_from_slice(&20u32.to_ne_bytes());
        octets[80..84].copy_from_slice(&10u32.to_ne_bytes());
        octets[148..152].copy_from_slice(&u32::MAX.to_ne_bytes());
        octets[176..184].copy_from_slice(&7_000u64.to_ne_bytes());
        octets[224..228].copy_from_slice(&9u32.to_ne_bytes());
        let memory: Vec<u8> = [1u32, 2, 3, 4]
            .iter()
            .flat_map(|number| number.to_ne_bytes())
            .collect();
        let attributes = [
            (INET_DIAG_CONG, &b"cubic\0"[..]),
            (99, &b"x"[..]),
            (INET_DIAG_SKMEMINFO, &memory),
            (INET_DIAG_INFO, &octets),
        ];
        let info = answer(&answered(&attributes)).expect("an answer");
        assert_eq!(info.congestion_control.name(), "cubic");
        assert_eq!((info.receive_buffer, info.send_buffer), (2, 4));
        assert_eq!((info.congestion_window, info.is_in_slow_start), (14_480, true));
        assert_eq!(info.min_round_trip, Duration::ZERO);
        assert_eq!(info.receiver_limited, Duration::from_millis(7));
        assert_eq!(info.out_of_order_segments, Some(9));
        assert_eq!((info.send_window, info.receive_window), (Some(0), 65_000));
        // Linux 4.9.
        let older = answer(&answered(&[(INET_DIAG_INFO, &octets[..160])])).expect("an answer");
        assert_eq!((older.out_of_order_segments, older.send_window), (None, None));
        assert_eq!(older.busy, Duration::ZERO);
    }

    #[test]
    fn what_is_no_answer_says_nothing() {
        assert_eq!(answer(&[]), None);
        assert_eq!(answer(&answered(&[])), None);
        let whole = answered(&[(INET_DIAG_INFO, &[0; 280])]);
        for length in 0..whole.len() {
            assert_eq!(answer(&whole[..length]), None, "{length} octets");
        }
        // NLMSG_ERROR.
        let mut error = whole;
        error[4..6].copy_from_slice(&2u16.to_ne_bytes());
        assert_eq!(answer(&error), None);
        // A socket that listens.
        let mut listens = answered(&[(INET_DIAG_INFO, &[0; 280])]);
        listens[HEADER + 1] = TCP_LISTEN;
        assert_eq!(answer(&listens), None);
        // An attribute that claims to be shorter than its header, or longer than the answer.
        for claimed in [0u16, 3, 4_000] {
            let mut octets = answered(&[(INET_DIAG_INFO, &[0; 280])]);
            octets[HEADER + MESSAGE..][..2].copy_from_slice(&claimed.to_ne_bytes());
            assert_eq!(answer(&octets), None, "{claimed}");
        }
    }
}
