//! The connections that packets belong to: ports, octets, first and last packet, and whether they are still open.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::direction::Bucket;
use crate::settings::Way;

const TCP: u8 = 6;
const UDP: u8 = 17;
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// One connection of TCP, or the packets of UDP between two ports. Times are nanoseconds since the path was
/// opened, when packets came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flow {
    /// The client's port.
    pub client_port: u16,
    /// The server's port.
    pub server_port: u16,
    /// When the first packet came.
    pub opened: u64,
    /// When the first packet with FIN or RST came, from either end.
    pub closed: Option<u64>,
    /// When the last packet with a payload came, from either end.
    pub last_payload: Option<u64>,
    /// Octets of payload that the server sent, retransmissions included.
    pub from_server: u64,
    /// Octets of payload that the client sent, retransmissions included.
    pub from_client: u64,
    /// Octets of payload that the path passed on to the client: those of the server that were not lost.
    pub to_client: u64,
    /// Octets of payload that the path passed on to the server.
    pub to_server: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    protocol: u8,
    client: (IpAddr, u16),
    server: (IpAddr, u16),
}

/// What is read of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Headers {
    protocol: u8,
    from: (IpAddr, u16),
    to: (IpAddr, u16),
    flags: u8,
    payload: u64,
}

/// A flow whose ports are in use.
#[derive(Debug)]
pub(crate) struct Open {
    flow: Flow,
    buckets: [Bucket; 2],
}

/// All flows of a path.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    open: HashMap<Key, Open>,
    /// Those whose ports were taken by a later one.
    ended: Vec<Flow>,
}

impl Flows {
    /// Notes a packet that came; its flow, and the octets of its payload.
    pub(crate) fn note(&mut self, now: u64, way: Way, packet: &[u8]) -> (&mut Open, u64) {
        let headers = read(packet);
        let (client, server) = match way {
            Way::ToServer => (headers.from, headers.to),
            Way::ToClient => (headers.to, headers.from),
        };
        let key = Key {
            protocol: headers.protocol,
            client,
            server,
        };
        let fresh = || Open {
            flow: Flow {
                client_port: client.1,
                server_port: server.1,
                opened: now,
                closed: None,
                last_payload: None,
                from_server: 0,
                from_client: 0,
                to_client: 0,
                to_server: 0,
            },
            buckets: [Bucket::default(); 2],
        };
        let open = self.open.entry(key).or_insert_with(fresh);
        if headers.flags & (SYN | ACK) == SYN && open.flow.closed.is_some() {
            let before = std::mem::replace(open, fresh());
            self.ended.push(before.flow);
        }
        open.flow.note(now, way, &headers);
        (open, headers.payload)
    }

    /// All of them, in the order in which they were opened.
    pub(crate) fn all(&self) -> Vec<Flow> {
        let open = self.open.values().map(|open| &open.flow);
        // Other protocols have no ports.
        let flows = self.ended.iter().chain(open).filter(|flow| flow.client_port != 0);
        let mut all: Vec<Flow> = flows.cloned().collect();
        all.sort_by_key(|flow| (flow.opened, flow.client_port));
        all
    }
}

impl Open {
    /// The policer's bucket of a direction.
    pub(crate) fn bucket(&mut self, way: Way) -> &mut Bucket {
        &mut self.buckets[way as usize]
    }

    /// Notes that so many octets were passed on.
    pub(crate) fn passed(&mut self, way: Way, payload: u64) {
        match way {
            Way::ToServer => self.flow.to_server += payload,
            Way::ToClient => self.flow.to_client += payload,
        }
    }
}

impl Flow {
    fn note(&mut self, now: u64, way: Way, headers: &Headers) {
        if headers.flags & (FIN | RST) != 0 {
            self.closed.get_or_insert(now);
        }
        if headers.payload > 0 {
            self.last_payload = Some(now);
        }
        match way {
            Way::ToServer => self.from_client += headers.payload,
            Way::ToClient => self.from_server += headers.payload,
        }
    }
}

/// Of a packet that is cut short or of another protocol, what there is of it.
fn read(packet: &[u8]) -> Headers {
    let nowhere = (IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
    let mut headers = Headers {
        protocol: 0,
        from: nowhere,
        to: nowhere,
        flags: 0,
        payload: 0,
    };
    let Some((addresses, protocol, rest)) = network(packet) else {
        return headers;
    };
    headers.protocol = protocol;
    (headers.from.0, headers.to.0) = addresses;
    if let (TCP | UDP, Some([a, b, c, d])) = (protocol, rest.first_chunk()) {
        headers.from.1 = u16::from_be_bytes([*a, *b]);
        headers.to.1 = u16::from_be_bytes([*c, *d]);
    }
    if let (TCP, Some(offset), Some(flags)) = (protocol, rest.get(12), rest.get(13)) {
        headers.flags = *flags;
        headers.payload = rest.len().saturating_sub(usize::from(offset >> 4) * 4) as u64;
    }
    if protocol == UDP {
        headers.payload = rest.len().saturating_sub(8) as u64;
    }
    headers
}

/// Addresses, protocol and what follows the IP header.
fn network(packet: &[u8]) -> Option<((IpAddr, IpAddr), u8, &[u8])> {
    match packet.first()? >> 4 {
        4 => {
            let header = usize::from(packet.first()? & 15) * 4;
            let total = usize::from(u16::from_be_bytes([*packet.get(2)?, *packet.get(3)?]));
            let address =
                |at: usize| Some(IpAddr::V4(Ipv4Addr::from(*packet.get(at..)?.first_chunk::<4>()?)));
            let rest = packet.get(header..total.min(packet.len()))?;
            Some(((address(12)?, address(16)?), *packet.get(9)?, rest))
        }
        6 => {
            let address = |at: usize| {
                Some(IpAddr::V6(Ipv6Addr::from(
                    *packet.get(at..)?.first_chunk::<16>()?,
                )))
            };
            Some(((address(8)?, address(24)?), *packet.get(6)?, packet.get(40..)?))
        }
        _ => None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A packet of TCP over IPv4, without checksums.
    pub(crate) fn packet(from: (u8, u16), to: (u8, u16), flags: u8, payload: usize) -> Vec<u8> {
        let mut packet = vec![0; 40 + payload];
        let length = packet.len() as u16;
        packet[0] = 0x45;
        packet[2..4].copy_from_slice(&length.to_be_bytes());
        packet[9] = TCP;
        packet[12..16].copy_from_slice(&[10, 0, 0, from.0]);
        packet[16..20].copy_from_slice(&[10, 0, 0, to.0]);
        packet[20..22].copy_from_slice(&from.1.to_be_bytes());
        packet[22..24].copy_from_slice(&to.1.to_be_bytes());
        packet[32] = 0x50;
        packet[33] = flags;
        packet
    }

    #[test]
    fn both_directions_of_a_connection_are_one_flow_and_its_octets_are_counted() {
        let (client, server) = ((2, 4000), (1, 80));
        let mut flows = Flows::default();
        flows.note(1, Way::ToServer, &packet(client, server, SYN, 0));
        flows.note(2, Way::ToClient, &packet(server, client, SYN | ACK, 0));
        flows.note(3, Way::ToServer, &packet(client, server, ACK, 100));
        flows.note(4, Way::ToClient, &packet(server, client, ACK, 1460));
        flows.note(5, Way::ToClient, &packet(server, client, ACK | FIN, 0));
        let all = flows.all();
        let [flow] = all.as_slice() else { panic!("{all:?}") };
        assert_eq!((flow.client_port, flow.server_port), (4000, 80));
        assert_eq!((flow.from_client, flow.from_server), (100, 1460));
        assert_eq!(
            (flow.opened, flow.last_payload, flow.closed),
            (1, Some(4), Some(5))
        );
    }

    #[test]
    fn a_port_that_is_used_again_is_another_connection() {
        let (client, server) = ((2, 4000), (1, 80));
        let mut flows = Flows::default();
        flows.note(1, Way::ToServer, &packet(client, server, SYN, 0));
        flows.note(2, Way::ToServer, &packet(client, server, SYN, 0));
        assert_eq!(flows.all().len(), 1, "a SYN that is sent again opens nothing");
        flows.note(3, Way::ToServer, &packet(client, server, RST, 0));
        flows.note(4, Way::ToServer, &packet(client, server, SYN, 0));
        assert_eq!(flows.all().len(), 2);
    }

    #[test]
    fn a_packet_that_is_cut_short_anywhere_is_no_other_connection() {
        let whole = packet((2, 4000), (1, 80), ACK, 20);
        let mut flows = Flows::default();
        for length in 0..whole.len() {
            flows.note(1, Way::ToServer, &whole[..length]);
        }
        assert_eq!(flows.all().len(), 1);
    }
}
