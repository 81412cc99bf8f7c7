//! Measures the link on this machine: lateness of deliveries, throughput and processor time.
//!
//! `cargo run --release -p fullbore-link --example accuracy`, on an otherwise idle machine. Every line is a new measurement;
//! a client, a server and the link share the processors.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use fullbore_link::Link;

const PINGS: u32 = 500;
const GBIT: u64 = 1_000_000_000;

fn main() -> io::Result<()> {
    println!(
        "round trips of 64 bytes, beyond the round-trip time asked for; the peers' own time is in them:"
    );
    println!(
        "{:<28} {:>10} {:>10} {:>10} | deliveries late by {:>8} {:>10} {:>10}",
        "", "median", "p99", "max", "median", "p99", "max"
    );
    let direct = pings(echo_server()?, PINGS)?;
    println!("{}", errors("no link at all", direct, Duration::ZERO));
    for (milliseconds, pings_sent) in [(0, PINGS), (1, PINGS), (20, 200), (100, 50)] {
        let rtt = Duration::from_millis(milliseconds);
        let link = Link::builder().rtt(rtt).start(echo_server()?)?;
        let times = pings(link.local_addr(), pings_sent)?;
        let errors = errors(&format!("rtt {milliseconds} ms"), times, rtt);
        println!("{errors} | {}", lateness(&link));
    }

    println!("\none connection, one direction:");
    println!(
        "{:<28} {:>10} {:>10} {:>14} | deliveries late by {:>8} {:>10} {:>10}",
        "", "Gbit/s", "CPU", "CPU ms/Gbit", "median", "p99", "max"
    );
    for (name, rtt, rate, bytes) in [
        ("no rate, rtt 0", 0, None, 8 << 30),
        ("no rate, rtt 20 ms", 20, None, 4 << 30),
        ("10 Gbit/s, rtt 20 ms", 20, Some(10 * GBIT), 4 << 30),
        ("1 Gbit/s, rtt 0", 0, Some(GBIT), 512 << 20),
        ("1 Gbit/s, rtt 100 ms", 100, Some(GBIT), 512 << 20),
        ("100 Mbit/s, rtt 100 ms", 100, Some(GBIT / 10), 32 << 20),
        ("10 Mbit/s, rtt 20 ms", 20, Some(GBIT / 100), 2 << 20),
    ] {
        throughput(name, Duration::from_millis(rtt), rate, bytes)?;
    }
    Ok(())
}

fn errors(name: &str, mut times: Vec<Duration>, rtt: Duration) -> String {
    times.sort();
    let at = |percent: usize| {
        let index = (times.len() * percent / 100).min(times.len() - 1);
        milliseconds(times[index].saturating_sub(rtt))
    };
    format!("{name:<28} {:>10} {:>10} {:>10}", at(50), at(99), at(100))
}

/// What the link itself says of its deliveries.
fn lateness(link: &Link) -> String {
    let late = link.stats().release_error;
    format!(
        "{:>27} {:>10} {:>10}",
        milliseconds(late.median),
        milliseconds(late.p99),
        milliseconds(late.max)
    )
}

fn milliseconds(time: Duration) -> String {
    format!("{:.3} ms", time.as_secs_f64() * 1e3)
}

/// A server that returns what it gets, to one client.
fn echo_server() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || -> io::Result<()> {
        let (mut socket, _) = listener.accept()?;
        socket.set_nodelay(true)?;
        let mut buffer = [0; 64];
        while socket.read_exact(&mut buffer).is_ok() {
            socket.write_all(&buffer)?;
        }
        Ok(())
    });
    Ok(address)
}

fn pings(address: SocketAddr, count: u32) -> io::Result<Vec<Duration>> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_nodelay(true)?;
    let mut buffer = [7; 64];
    let mut times = Vec::new();
    for _ in 0..count {
        let begun = Instant::now();
        socket.write_all(&buffer)?;
        socket.read_exact(&mut buffer)?;
        times.push(begun.elapsed());
    }
    // The first opens the connection behind the link.
    times.remove(0);
    Ok(times)
}

fn throughput(name: &str, rtt: Duration, rate: Option<u64>, bytes: u64) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut builder = Link::builder().rtt(rtt);
    if let Some(rate) = rate {
        builder = builder.rate(rate);
    }
    let link = builder.start(listener.local_addr()?)?;
    let address = link.local_addr();
    let sender = thread::spawn(move || -> io::Result<()> {
        let mut socket = TcpStream::connect(address)?;
        let buffer = vec![7; 256 << 10];
        let mut left = bytes;
        while left > 0 {
            let count = left.min(buffer.len() as u64);
            socket.write_all(&buffer[..count as usize])?;
            left -= count;
        }
        Ok(())
    });
    let (mut socket, _) = listener.accept()?;
    let mut buffer = vec![0; 256 << 10];
    // Timed from the first byte on: what comes before is the delay.
    let mut total = socket.read(&mut buffer)? as u64;
    let begun = Instant::now();
    let cpu_before = link_cpu();
    let first = total;
    loop {
        match socket.read(&mut buffer)? {
            0 => break,
            count => total += count as u64,
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    let cpu = link_cpu()
        .zip(cpu_before)
        .map(|(after, before)| (after - before).as_secs_f64());
    assert_eq!(total, bytes, "bytes were lost");
    sender
        .join()
        .map_err(|_| io::Error::other("the sender failed"))??;
    let gbit = (total - first) as f64 * 8.0 / 1e9;
    println!(
        "{name:<28} {:>10.3} {:>10} {:>14} | {}",
        gbit / seconds,
        cpu.map_or("?".to_owned(), |cpu| format!("{:.1} %", 100.0 * cpu / seconds)),
        cpu.map_or("?".to_owned(), |cpu| format!("{:.1}", 1e3 * cpu / gbit)),
        lateness(&link),
    );
    Ok(())
}

/// The processor time of the link's thread so far, where the system tells it (Linux).
fn link_cpu() -> Option<Duration> {
    for task in std::fs::read_dir("/proc/self/task").ok()?.flatten() {
        let name = std::fs::read_to_string(task.path().join("comm")).ok()?;
        if name.trim() == "fullbore-link" {
            let times = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
            let nanoseconds = times.split_whitespace().next()?.parse().ok()?;
            return Some(Duration::from_nanos(nanoseconds));
        }
    }
    None
}
