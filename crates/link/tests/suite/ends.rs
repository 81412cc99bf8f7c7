//! How connections end: half-closes, resets, a server that is not there, and a link that is dropped.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use fullbore_link::{Builder, ConnectionReport, End, Link};
use socket2::SockRef;

use crate::support::{listen, pair, pattern, read_all, wait_until};

fn reported(builder: Builder) -> (Builder, Receiver<ConnectionReport>) {
    let (sender, reports) = mpsc::channel();
    let builder = builder.on_end(move |report| {
        let _ = sender.send(report);
    });
    (builder, reports)
}

fn end(reports: &Receiver<ConnectionReport>) -> End {
    reports.recv().expect("the end is reported").end
}

/// Closes with RST instead of FIN.
fn reset(socket: TcpStream) -> io::Result<()> {
    SockRef::from(&socket).set_linger(Some(Duration::ZERO))
}

/// The error that the next read brings, once all bytes are read.
fn read_error(mut socket: &TcpStream) -> Option<io::ErrorKind> {
    socket
        .read_to_end(&mut Vec::new())
        .err()
        .map(|error| error.kind())
}

#[test]
fn what_a_dead_connection_left_in_the_queue_does_not_delay_the_next() -> io::Result<()> {
    // The megabyte takes 800 seconds, a packet of it takes one.
    let (listener, address) = listen()?;
    let link = Link::builder().rate(10_000).start(address)?;
    let dead = TcpStream::connect(link.local_addr())?;
    let (mut server, _) = listener.accept()?;
    server.write_all(&pattern(1, 1_000_000))?;
    wait_until(|| link.stats().to_client.received_bytes == 1_000_000);
    reset(dead)?;
    wait_until(|| link.stats().open == 0);
    let client = TcpStream::connect(link.local_addr())?;
    client.set_read_timeout(Some(Duration::from_secs(100)))?;
    let (mut server, _) = listener.accept()?;
    server.write_all(b"next")?;
    drop(server);
    assert_eq!(read_all(&client)?, b"next");
    Ok(())
}

#[test]
fn a_clients_end_is_passed_on_and_the_answer_still_comes() -> io::Result<()> {
    let (builder, reports) = reported(Link::builder().rtt(Duration::from_millis(2)));
    let (_link, client, server) = pair(builder)?;
    (&client).write_all(b"question")?;
    client.shutdown(Shutdown::Write)?;
    assert_eq!(read_all(&server)?, b"question");
    let answer = pattern(1, 3_000_000);
    (&server).write_all(&answer)?;
    drop(server);
    assert!(read_all(&client)? == answer);
    assert_eq!(end(&reports), End::Closed);
    Ok(())
}

#[test]
fn a_servers_end_is_passed_on_and_the_client_may_go_on() -> io::Result<()> {
    let (builder, reports) = reported(Link::builder().rtt(Duration::from_millis(2)));
    let (_link, client, server) = pair(builder)?;
    (&server).write_all(b"greeting")?;
    server.shutdown(Shutdown::Write)?;
    assert_eq!(read_all(&client)?, b"greeting");
    (&client).write_all(b"thanks")?;
    drop(client);
    assert_eq!(read_all(&server)?, b"thanks");
    assert_eq!(end(&reports), End::Closed);
    Ok(())
}

#[test]
fn an_end_comes_after_all_bytes_before_it() -> io::Result<()> {
    let builder = Link::builder().rtt(Duration::from_millis(30)).rate(400_000_000);
    let (_link, client, server) = pair(builder)?;
    let bytes = pattern(2, 2_000_000);
    (&client).write_all(&bytes)?;
    drop(client);
    assert!(read_all(&server)? == bytes);
    Ok(())
}

#[test]
fn a_clients_reset_reaches_the_server_as_one() -> io::Result<()> {
    let (builder, reports) = reported(Link::builder().rtt(Duration::from_millis(2)));
    let (_link, client, server) = pair(builder)?;
    reset(client)?;
    assert_eq!(read_error(&server), Some(io::ErrorKind::ConnectionReset));
    assert_eq!(end(&reports), End::Reset);
    Ok(())
}

#[test]
fn a_servers_reset_reaches_the_client_as_one() -> io::Result<()> {
    let (builder, reports) = reported(Link::builder().rtt(Duration::from_millis(2)));
    let (link, client, server) = pair(builder)?;
    (&client).write_all(b"never answered")?;
    wait_until(|| link.stats().to_server.delivered_bytes == 14);
    reset(server)?;
    assert_eq!(read_error(&client), Some(io::ErrorKind::ConnectionReset));
    assert_eq!(end(&reports), End::Reset);
    Ok(())
}

#[test]
fn bytes_sent_before_a_reset_and_taken_by_the_link_are_delivered() -> io::Result<()> {
    let (link, client, server) = pair(Link::builder().rtt(Duration::from_millis(40)))?;
    (&client).write_all(b"last words")?;
    wait_until(|| link.stats().to_server.received_bytes == 10);
    reset(client)?;
    wait_until(|| link.stats().to_server.delivered_bytes == 10);
    let mut words = [0; 10];
    (&server).read_exact(&mut words)?;
    assert_eq!(&words, b"last words");
    assert_eq!(read_error(&server), Some(io::ErrorKind::ConnectionReset));
    Ok(())
}

#[test]
fn a_reset_after_a_half_close_is_passed_on() -> io::Result<()> {
    let (builder, reports) = reported(Link::builder());
    let (_link, client, server) = pair(builder)?;
    client.shutdown(Shutdown::Write)?;
    assert_eq!(read_all(&server)?, b"");
    reset(client)?;
    // Nobody writes: the reset alone must bring the news.
    assert_eq!(end(&reports), End::Reset);
    wait_until(|| (&server).write(b"anyone?").is_err());
    Ok(())
}

#[test]
fn a_reset_passes_a_link_that_is_full() -> io::Result<()> {
    let (builder, reports) = reported(Link::builder().buffer(1 << 18));
    let (_link, client, server) = pair(builder)?;
    client.set_nonblocking(true)?;
    let piece = vec![1; 1 << 16];
    let mut refused = 0;
    while refused < 50 {
        if (&client).write(&piece).is_err() {
            refused += 1;
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    reset(client)?;
    assert_eq!(end(&reports), End::Reset);
    assert_eq!(read_error(&server), Some(io::ErrorKind::ConnectionReset));
    Ok(())
}

#[test]
fn a_server_that_is_not_there_is_a_reset_for_the_client() -> io::Result<()> {
    let nobody = fullbore_testing::nobody::Nobody::bind();
    for handshake in [false, true] {
        let (builder, reports) = reported(Link::builder().rtt(Duration::from_millis(2)).handshake(handshake));
        let link = builder.start(nobody.address())?;
        let client = TcpStream::connect(link.local_addr())?;
        assert_eq!(read_error(&client), Some(io::ErrorKind::ConnectionReset));
        assert_eq!(end(&reports), End::Unreachable(io::ErrorKind::ConnectionRefused));
        assert_eq!(link.stats().open, 0);
    }
    Ok(())
}

#[test]
fn a_place_is_used_again_after_every_kind_of_end() -> io::Result<()> {
    let (listener, address) = listen()?;
    let link = Link::builder().rtt(Duration::from_millis(1)).start(address)?;
    for turn in 0..60 {
        let client = TcpStream::connect(link.local_addr())?;
        let (server, _) = listener.accept()?;
        (&client).write_all(b"ping")?;
        let mut buffer = [0; 4];
        (&server).read_exact(&mut buffer)?;
        assert_eq!(&buffer, b"ping");
        match turn % 3 {
            0 => drop(client),
            1 => reset(client)?,
            _ => reset(server)?,
        }
    }
    wait_until(|| link.stats().open == 0);
    assert_eq!(link.stats().connections, 60);
    Ok(())
}

#[test]
fn dropping_the_link_closes_everything() -> io::Result<()> {
    // Nobody else is given this port once it is free again.
    let port = fullbore_testing::process::free_port().map_err(io::Error::other)?;
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let (builder, reports) = reported(Link::builder().rtt(Duration::from_secs(3600)).listen(address));
    let (link, client, server) = pair(builder)?;
    (&client).write_all(b"an hour away")?;
    wait_until(|| link.stats().to_server.received_bytes == 12);
    drop(link);
    assert_eq!(end(&reports), End::Stopped);
    // The callback went with the thread.
    assert!(reports.recv().is_err());
    assert!(read_all(&server).is_ok_and(|bytes| bytes.is_empty()));
    assert!(read_all(&client).is_ok_and(|bytes| bytes.is_empty()));
    // Nobody listens there any more: another may.
    let (_listener, server) = listen()?;
    assert_eq!(
        Link::builder().listen(address).start(server)?.local_addr(),
        address
    );
    Ok(())
}

#[test]
fn a_rate_or_a_buffer_of_zero_is_refused() -> io::Result<()> {
    let (_listener, address) = listen()?;
    for builder in [Link::builder().rate(0), Link::builder().buffer(0)] {
        let error = builder.start(address).err().map(|error| error.kind());
        assert_eq!(error, Some(io::ErrorKind::InvalidInput));
    }
    Ok(())
}
