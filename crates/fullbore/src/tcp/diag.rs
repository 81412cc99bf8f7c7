//! Asks the kernel about one socket, by its addresses, over a socket of `NETLINK_SOCK_DIAG`. That needs no privileges and,
//! unlike getsockopt(TCP_INFO), no `unsafe`. `message` has the octets.

use std::fs;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use fullbore_proto::TcpInfo;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

use super::message::{answer, request};

/// The longest answer about one socket. Those of Linux 6.18 have 456 octets.
const LONGEST_ANSWER: usize = 4 << 10;

/// What the kernel says of the connection between these addresses. The question has a socket of its own: a socket that
/// is kept belongs to the network namespace in which it was opened, and is a descriptor that nobody closes.
pub(super) fn info(local: SocketAddr, peer: SocketAddr) -> Option<TcpInfo> {
    let mut octets = [0; LONGEST_ANSWER];
    let length = ask(&open()?, &request(local, peer), &mut octets)?;
    let mut info = answer(&octets[..length])?;
    info.largest_receive_buffer = largest("tcp_rmem");
    info.largest_send_buffer = largest("tcp_wmem");
    Some(info)
}

fn open() -> Option<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    let protocol = Some(netlink::SOCK_DIAG);
    socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, protocol).ok()
}

/// The length of the answer. The kernel has it ready when the question has been sent, so that nothing is waited for.
fn ask(socket: &OwnedFd, question: &[u8], answer: &mut [u8]) -> Option<usize> {
    send(socket, question, SendFlags::empty()).ok()?;
    let (length, _) = recv(socket, answer, RecvFlags::DONTWAIT).ok()?;
    Some(length)
}

/// The largest size of a buffer by this setting of the network namespace.
fn largest(setting: &str) -> Option<u64> {
    let sizes = fs::read_to_string(format!("/proc/sys/net/ipv4/{setting}")).ok()?;
    sizes.split_ascii_whitespace().nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::super::{Ends, info};

    /// Says whether the kernel tells anything here.
    fn is_refused() -> bool {
        let refused = super::open().is_none();
        if refused {
            eprintln!("skipped: no socket of NETLINK_SOCK_DIAG");
        }
        refused
    }

    #[tokio::test]
    async fn both_ends_of_a_connection_know_what_it_has_carried() {
        if is_refused() {
            return;
        }
        // The last is a peer of IPv4 to a listener of both versions.
        for (listens, connects) in [
            ("127.0.0.1:0", "127.0.0.1"),
            ("[::1]:0", "::1"),
            ("[::]:0", "127.0.0.1"),
        ] {
            let Ok(listener) = TcpListener::bind(listens).await else {
                eprintln!("skipped: {listens}");
                continue;
            };
            let port = listener.local_addr().unwrap().port();
            let mut near = TcpStream::connect((connects, port)).await.unwrap();
            let (mut far, _) = listener.accept().await.unwrap();
            let bytes = vec![7; 300_000];
            let mut read = vec![0; 300_000];
            let (sent, received) = tokio::join!(near.write_all(&bytes), far.read_exact(&mut read));
            sent.unwrap();
            received.unwrap();
            let sender = info(&near).expect("the sender is known");
            let receiver = info(&far).expect("the receiver is known");
            assert!(sender.sent_bytes >= 300_000, "{sender:?}");
            assert_eq!(receiver.received_bytes, 300_000, "{receiver:?}");
            assert!(receiver.received_segments > 0 && receiver.out_of_order_segments.is_some());
            assert!(!sender.congestion_control.name().is_empty());
            assert!(sender.congestion_window >= u64::from(sender.segment_bytes));
            assert!(sender.send_buffer > 0 && receiver.receive_buffer > 0 && receiver.receive_window > 0);
            assert!(sender.largest_send_buffer >= Some(4_096), "{sender:?}");
            assert!(receiver.largest_receive_buffer >= Some(4_096));
        }
    }

    #[tokio::test]
    async fn of_a_connection_that_has_ended_nothing_is_known_and_of_the_next_one_it_is() {
        if is_refused() {
            return;
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let near = TcpStream::connect(address).await.unwrap();
        let (far, _) = listener.accept().await.unwrap();
        assert!(info(&near).is_some());
        let ends = Ends::of(&far).expect("they are known");
        assert!(ends.info().is_some());
        // A reset ends it at both ends at once.
        socket2::SockRef::from(&far)
            .set_linger(Some(std::time::Duration::ZERO))
            .unwrap();
        drop(far);
        while near
            .try_read(&mut [0])
            .is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
        {
            near.readable().await.unwrap();
        }
        assert_eq!(info(&near), None);
        assert_eq!(ends.info(), None, "the listener is no answer");
        let next = TcpStream::connect(address).await.unwrap();
        assert!(info(&next).is_some());
    }
}
