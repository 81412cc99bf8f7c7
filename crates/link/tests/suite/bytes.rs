//! Whatever goes through the link comes out the same: both ways, in any sizes, under any settings, for many at once.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use fullbore_link::{Builder, End, Link};
use fullbore_testing::random::Random;

use crate::support::{listen, pair, pattern, read_all, wait_until};

/// Sends `count` bytes each way at once, in pieces of random sizes, and checks every byte.
fn exchange(builder: Builder, seed: u64, count: usize) -> io::Result<()> {
    let (link, client, server) = pair(builder)?;
    let mut threads = Vec::new();
    for (socket, salt) in [(client, seed), (server, seed + 1)] {
        let mut sender = socket.try_clone()?;
        threads.push(thread::spawn(move || -> io::Result<()> {
            let mut random = Random::new(salt);
            let bytes = pattern(salt, count);
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let bits = random.below(18);
                let size = random.below(1 << bits) as usize + 1;
                let (now, later) = rest.split_at(size.min(rest.len()));
                sender.write_all(now)?;
                rest = later;
            }
            sender.shutdown(Shutdown::Write)
        }));
        let other = if salt == seed { seed + 1 } else { seed };
        threads.push(thread::spawn(move || {
            let received = read_all(&socket)?;
            assert!(received == pattern(other, count), "the bytes changed on the way");
            Ok(())
        }));
    }
    for thread in threads {
        thread.join().expect("every byte is the right one")?;
    }
    wait_until(|| link.stats().open == 0);
    let stats = link.stats();
    for traffic in [stats.to_server, stats.to_client] {
        assert_eq!(traffic.received_bytes, count as u64);
        assert_eq!(traffic.delivered_bytes, count as u64);
        assert_eq!(traffic.frames, None);
    }
    assert_eq!(stats.connections, 1);
    assert!(stats.release_error.deliveries > 0);
    Ok(())
}

#[test]
fn bytes_are_unchanged_without_any_limit() -> io::Result<()> {
    exchange(Link::builder(), 1, 20_000_000)
}

#[test]
fn bytes_are_unchanged_over_a_long_path() -> io::Result<()> {
    exchange(
        Link::builder().rtt(Duration::from_millis(20)).rate(2_000_000_000),
        3,
        10_000_000,
    )
}

#[test]
fn bytes_are_unchanged_under_jitter() -> io::Result<()> {
    let builder = Link::builder()
        .rtt(Duration::from_millis(4))
        .jitter(Duration::from_millis(2))
        .seed(7);
    exchange(builder, 5, 5_000_000)
}

#[test]
fn bytes_are_unchanged_through_a_buffer_that_is_always_full() -> io::Result<()> {
    let builder = Link::builder()
        .rtt(Duration::from_millis(2))
        .rate(500_000_000)
        .buffer(10_000);
    exchange(builder, 9, 2_000_000)
}

#[test]
fn bytes_are_unchanged_after_a_handshake_that_takes_time() -> io::Result<()> {
    exchange(
        Link::builder().rtt(Duration::from_millis(3)).handshake(true),
        11,
        1_000_000,
    )
}

#[test]
fn a_receiver_that_does_not_read_stops_its_sender() -> io::Result<()> {
    const BUFFER: u64 = 1 << 20;
    let (link, client, server) = pair(Link::builder().buffer(BUFFER))?;
    client.set_nonblocking(true)?;
    let piece = vec![1; 64 << 10];
    let mut sent = 0_u64;
    let mut quiet = 0;
    // All that the link and the four kernel buffers hold fits into 1 GiB with much to spare.
    while quiet < 100 {
        match (&client).write(&piece) {
            Ok(count) => {
                sent += count as u64;
                quiet = 0;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                thread::sleep(Duration::from_millis(1));
                quiet += 1;
            }
            Err(error) => return Err(error),
        }
        assert!(sent < 1 << 30, "the link takes without end");
    }
    let to_server = link.stats().to_server;
    let held = to_server.received_bytes - to_server.delivered_bytes;
    // A read that began just below the limit may end above it.
    assert!(held <= BUFFER + (256 << 10), "the link holds {held} bytes");
    client.set_nonblocking(false)?;
    client.shutdown(Shutdown::Write)?;
    assert_eq!(read_all(&server)?.len() as u64, sent);
    Ok(())
}

#[test]
fn many_connections_share_a_link() -> io::Result<()> {
    const CONNECTIONS: usize = 200;
    let (listener, address) = listen()?;
    let (sender, reports) = mpsc::channel();
    let link = Link::builder()
        .rtt(Duration::from_millis(4))
        .rate(1_000_000_000)
        .on_end(move |report| sender.send(report).expect("the test still listens"))
        .start(address)?;
    let server = thread::spawn(move || -> io::Result<()> {
        let mut threads = Vec::new();
        for _ in 0..CONNECTIONS {
            let (mut socket, _) = listener.accept()?;
            threads.push(thread::spawn(move || -> io::Result<()> {
                let bytes = read_all(&socket)?;
                socket.write_all(&bytes)
            }));
        }
        for thread in threads {
            thread.join().expect("an echo does not panic")?;
        }
        Ok(())
    });
    let mut clients = Vec::new();
    for seed in 0..CONNECTIONS {
        let mut socket = std::net::TcpStream::connect(link.local_addr())?;
        clients.push(thread::spawn(move || -> io::Result<()> {
            let bytes = pattern(seed as u64, 20_000 + seed);
            socket.write_all(&bytes)?;
            socket.shutdown(Shutdown::Write)?;
            assert!(
                read_all(&socket)? == bytes,
                "connection {seed} got another's bytes"
            );
            Ok(())
        }));
    }
    for client in clients {
        client.join().expect("every byte is the right one")?;
    }
    server.join().expect("the server does not panic")?;
    let all: Vec<_> = (0..CONNECTIONS)
        .map(|_| reports.recv().expect("each connection is reported"))
        .collect();
    assert!(all.iter().all(|report| report.end == End::Closed));
    let bytes: u64 = all.iter().map(|report| report.to_client.delivered_bytes).sum();
    assert_eq!(bytes, link.stats().to_server.received_bytes);
    assert_eq!(
        (link.stats().connections, link.stats().open),
        (CONNECTIONS as u64, 0)
    );
    Ok(())
}

#[test]
fn the_rate_is_shared_and_the_order_on_the_link_is_that_of_arrival() -> io::Result<()> {
    // What one connection put on the link goes ahead of what another puts there later.
    let (listener, address) = listen()?;
    let link = Link::builder().rate(80_000_000).start(address)?;
    let first = std::net::TcpStream::connect(link.local_addr())?;
    let (first_server, _) = listener.accept()?;
    let second = std::net::TcpStream::connect(link.local_addr())?;
    let (second_server, _) = listener.accept()?;
    (&first).write_all(&pattern(1, 1_000_000))?;
    wait_until(|| link.stats().to_server.received_bytes == 1_000_000);
    (&second).write_all(b"x")?;
    (&second_server).read_exact(&mut [0])?;
    // The second's byte has left the link, so all of the first's has: it was at least on its way to its socket.
    assert!(link.stats().to_server.delivered_bytes >= 1_000_000);
    first.shutdown(Shutdown::Write)?;
    assert!(read_all(&first_server)? == pattern(1, 1_000_000));
    Ok(())
}
