//! HTTP/2 frames are counted in each direction, however they are cut up on the way.

use std::io::{self, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc;

use fullbore_link::{FrameCounts, Link};
use fullbore_testing::frames::{self, DATA, HEADERS, PREFACE, SETTINGS, WINDOW_UPDATE};

use crate::support::{pair, read_all, wait_until};

fn frame(kind: u8, stream: u32, length: usize) -> Vec<u8> {
    frames::frame(kind, 0, stream, &vec![0x55; length])
}

/// Writes in pieces of `size`, and waits each time until the link has read the piece.
fn write_in_pieces(link: &Link, mut socket: &TcpStream, octets: &[u8], size: usize) -> io::Result<()> {
    for (index, piece) in octets.chunks(size).enumerate() {
        socket.write_all(piece)?;
        let sent = (index * size + piece.len()) as u64;
        wait_until(|| link.stats().to_server.received_bytes >= sent);
    }
    Ok(())
}

#[test]
fn frames_are_counted_by_type_and_direction_and_reported() -> io::Result<()> {
    let (sender, reports) = mpsc::channel();
    let builder = Link::builder().count_frames(true).on_end(move |report| {
        let _ = sender.send(report);
    });
    let (link, client, server) = pair(builder)?;
    let mut request = PREFACE.to_vec();
    request.extend(frame(SETTINGS, 0, 18));
    request.extend(frame(WINDOW_UPDATE, 0, 4));
    request.extend(frame(HEADERS, 1, 40));
    request.extend(frame(WINDOW_UPDATE, 1, 4));
    request.extend(frame(WINDOW_UPDATE, 1, 4));
    // Cut in the preface, in heads and in payloads.
    write_in_pieces(&link, &client, &request, 7)?;
    client.shutdown(Shutdown::Write)?;
    assert!(read_all(&server)? == request);

    let mut answer = frame(SETTINGS, 0, 0);
    answer.extend(frame(HEADERS, 1, 10));
    answer.extend(frame(DATA, 1, 16_384));
    for _ in 0..25 {
        answer.extend(frame(DATA, 1, 1));
    }
    (&server).write_all(&answer)?;
    drop(server);
    assert!(read_all(&client)? == answer);

    let report = reports.recv().expect("the connection has ended");
    let sent = report.to_server.frames.expect("this was HTTP/2");
    assert_eq!(
        (
            sent.settings,
            sent.headers,
            sent.data,
            sent.connection_window_update,
            sent.stream_window_update
        ),
        (1, 1, 0, 1, 2)
    );
    let got = report.to_client.frames.expect("this was HTTP/2");
    assert_eq!((got.data, got.data_bytes), (26, 16_384 + 25));
    assert_eq!((got.small_data, got.longest_small_data_run), (25, 25));
    assert_eq!(got.frames(), 28);
    assert_eq!(got.rows().iter().find(|row| row.0 == "data"), Some(&("data", 26)));
    let stats = link.stats();
    assert_eq!(
        (stats.to_server, stats.to_client),
        (report.to_server, report.to_client)
    );
    Ok(())
}

#[test]
fn sums_go_over_all_connections() -> io::Result<()> {
    let (listener, address) = crate::support::listen()?;
    let link = Link::builder().count_frames(true).start(address)?;
    for _ in 0..3 {
        let client = TcpStream::connect(link.local_addr())?;
        let (server, _) = listener.accept()?;
        (&client).write_all(&[PREFACE.to_vec(), frame(SETTINGS, 0, 6), frame(DATA, 1, 5)].concat())?;
        drop(client);
        read_all(&server)?;
    }
    let frames = link.stats().to_server.frames.unwrap_or_default();
    assert_eq!((frames.settings, frames.data, frames.data_bytes), (3, 3, 15));
    // Each connection begins its own run.
    assert_eq!((frames.small_data, frames.longest_small_data_run), (3, 1));
    Ok(())
}

#[test]
fn other_protocols_pass_uncounted() -> io::Result<()> {
    let (link, client, server) = pair(Link::builder().count_frames(true))?;
    let request = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    (&client).write_all(request)?;
    client.shutdown(Shutdown::Write)?;
    assert_eq!(read_all(&server)?, request);
    assert_eq!(link.stats().to_server.frames, None);
    assert_eq!(FrameCounts::default().frames(), 0);
    Ok(())
}

#[test]
fn frames_are_not_counted_unless_asked_for() -> io::Result<()> {
    let (link, client, server) = pair(Link::builder())?;
    (&client).write_all(&[PREFACE.to_vec(), frame(SETTINGS, 0, 0)].concat())?;
    client.shutdown(Shutdown::Write)?;
    assert_eq!(read_all(&server)?.len(), 33);
    assert_eq!(link.stats().to_server.frames, None);
    Ok(())
}
