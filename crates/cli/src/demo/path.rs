//! One download over an emulated long path: with the initial windows of HTTP/2, and with fullbore's.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use fullbore::Client;
use fullbore_link::Link;

use super::{receive_pattern, say};
use crate::exit::{Exit, Failure};
use crate::figures::{grouped, rate};
use crate::transfer::client;
use crate::transfer::waits::{Direction, Set, Waits};

/// Some 10,000 km of fibre, there and back.
const ROUND_TRIP: Duration = Duration::from_millis(100);
const BITS_PER_SECOND: u64 = 1_000_000_000;

/// The initial windows (RFC 9113 section 6.9.2).
const COMMON_WINDOW: u32 = 65_535;

/// 65,535 bytes for each round trip take six and a half seconds.
const BYTES: u64 = 4 << 20;

/// Downloads over the path once with each kind of windows, and prints a line and the cause for each.
pub(super) async fn run(server: SocketAddr) -> Result<u64, Failure> {
    let wrong =
        |error: std::io::Error| Failure::new(Exit::Other, format!("demo: the emulated path: {error}"));
    let link = Link::builder()
        .rtt(ROUND_TRIP)
        .rate(BITS_PER_SECOND)
        .start(server)
        .map_err(wrong)?;
    let origin = format!("http://{}", link.local_addr());
    say("\nOver an emulated path of 100 ms and 1 Gbit/s:")?;
    let common = Client::builder()
        .stream_window(COMMON_WINDOW)
        .connection_window(COMMON_WINDOW);
    let mut total = 0;
    for (what, builder) in [
        ("download, windows of 65,535 bytes", common),
        ("download, fullbore's windows", Client::builder()),
    ] {
        let client = builder
            .build()
            .map_err(|error| Failure::from_library("demo", &error))?;
        let begun = Instant::now();
        let url = format!("{origin}/pattern/{BYTES}");
        let bytes = receive_pattern(&client, url, 0, BYTES).await?;
        let seconds = begun.elapsed().as_secs_f64();
        total += bytes;
        say(&format!(
            "{what:<38} {:>12} {seconds:>8.2} {:>9.1}  every byte",
            grouped(bytes),
            rate(bytes, seconds)
        ))?;
        if let Some(waited) = Waits::of(Direction::Receiving, &client, Set::default()).await {
            say(&format!("  {}", waited.sentence()))?;
        }
        client::farewell(&client).await;
    }
    Ok(total)
}
