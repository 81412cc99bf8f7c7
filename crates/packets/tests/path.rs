//! A path of packets between two real TUN devices. Skipped, with the reason, where there can be none.
#![cfg(target_os = "linux")]

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use fullbore_packets::{CLIENT, Direction, Path, SERVER, Settings, Tcp};

const BYTES: usize = 1 << 20;

fn lossy() -> Settings {
    let direction = Direction {
        delay: Duration::from_millis(2),
        rate: Some(200_000_000),
        loss: 0.02,
        ..Direction::default()
    };
    Settings::new(direction, Tcp::default())
}

#[test]
fn the_kernels_tcp_carries_each_octet_over_a_path_that_loses_packets() {
    let path = match Path::open(&lossy()) {
        Ok(path) => path,
        Err(why) => return eprintln!("skipped: {why}"),
    };

    let sent: Vec<u8> = (0..BYTES as u32)
        .flat_map(|number| number.to_le_bytes())
        .take(BYTES)
        .collect();
    let listener = path
        .server()
        .enter(|| TcpListener::bind((SERVER, 0)))
        .expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    let body = sent.clone();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client comes");
        stream.write_all(&body).expect("the client reads");
    });
    let mut stream = path
        .client()
        .enter(|| TcpStream::connect((SERVER, port)))
        .expect("the server listens");
    let mut received = Vec::new();
    stream
        .read_to_end(&mut received)
        .expect("the server ends in order");
    server.join().expect("the server does not fail");
    assert!(
        received == sent,
        "{} of {BYTES} octets arrived as they were",
        received.len()
    );

    let report = path.report();
    assert_eq!((report.flows.len(), report.overrun), (1, 0));
    assert_eq!(report.flows[0].server_port, port);
    assert!(report.flows[0].from_server > BYTES as u64, "some are sent again");
    assert!(report.to_client.lost > 0);
    assert_eq!(report.open_at_the_end(), 1);
}

#[test]
fn each_end_has_the_tcp_that_was_asked_for_and_two_paths_are_open_at_once() {
    let mut settings = lossy();
    settings.client.congestion_control = "reno".to_owned();
    settings.client.receive_buffer = [4096, 65_536, 262_144];
    let paths = [Path::open(&settings), Path::open(&Settings::default())];
    let [Ok(first), Ok(second)] = paths else {
        return eprintln!("skipped: no path of packets can be had here");
    };
    let read = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).expect("it is set");
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let of_client = first
        .client()
        .enter(|| [read("tcp_congestion_control"), read("tcp_rmem")]);
    assert_eq!(of_client, ["reno", "4096 65536 262144"]);
    for side in [first.server(), second.client()] {
        let stock = side.enter(|| [read("tcp_congestion_control"), read("tcp_rmem"), read("tcp_wmem")]);
        assert_eq!(stock, ["cubic", "4096 131072 6291456", "4096 16384 4194304"]);
    }
}

#[test]
fn the_loopback_address_of_the_client_can_be_the_servers_end() {
    let mut settings = lossy();
    settings.loopback = true;
    let path = match Path::open(&settings) {
        Ok(path) => path,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let listener = path.server().enter(|| TcpListener::bind(("127.0.0.1", 0)));
    let listener = listener.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let client = path.client().enter(|| TcpStream::connect(address));
    let (mut accepted, from) = listener.accept().expect("the client has come");
    assert_eq!(from.ip(), CLIENT);
    accepted.write_all(b"over the path").expect("the client is there");
    drop(accepted);
    let mut received = String::new();
    let mut client = client.expect("the server listens");
    client
        .read_to_string(&mut received)
        .expect("the server ends in order");
    assert_eq!(received, "over the path");
    assert_eq!(path.report().flows.len(), 1);
}
