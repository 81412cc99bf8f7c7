//! A download over a path that exists only as numbers: two engines, a round trip of 100 ms, and no socket or clock.
//!
//! ```sh
//! cargo run --release -p fullbore-proto --example virtual_path
//! ```
//!
//! It prints how long 4 MiB take with a window of 65,535 bytes and with the default windows.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Buf, Bytes};
use fullbore_proto::{Config, Connection, Event, ReadState, Time, Transmit, WindowSize};

const BODY: usize = 4 * 1024 * 1024;
const ONE_WAY: Duration = Duration::from_millis(50);

/// One direction of the path: bytes, and when they arrive.
#[derive(Default)]
struct Direction(VecDeque<(Time, Bytes)>);

impl Direction {
    /// Takes everything that `from` has to send now.
    fn send(&mut self, from: &mut Connection, now: Time) {
        while from.wants_transmit() {
            let mut list = Transmit::new();
            from.transmit(&mut list, now);
            self.0
                .push_back((now + ONE_WAY, list.copy_to_bytes(list.remaining())));
        }
    }

    /// Delivers what has arrived by `now`.
    fn deliver(&mut self, to: &mut Connection, now: Time) -> Result<(), fullbore_proto::ConnectionError> {
        while self.0.front().is_some_and(|&(arrival, _)| arrival <= now) {
            if let Some((_, bytes)) = self.0.pop_front() {
                to.receive(bytes, now)?;
            }
        }
        Ok(())
    }

    fn next_arrival(&self) -> Option<Time> {
        self.0.front().map(|&(arrival, _)| arrival)
    }
}

/// How long the download takes, from the first byte of the request to the last of the body.
fn download(client_config: Config) -> Result<Duration, Box<dyn std::error::Error>> {
    let mut client = Connection::client(client_config, Time::ZERO);
    let mut server = Connection::server(Config::default(), Time::ZERO);
    let (mut up, mut down) = (Direction::default(), Direction::default());
    let mut now = Time::ZERO;

    let stream = client.open(http::Request::get("http://example.com/").body(())?, true)?;
    let mut received = 0;
    loop {
        // Everything that can happen at this moment.
        up.deliver(&mut server, now)?;
        while let Some(event) = server.poll_event() {
            if let Event::Request { stream, .. } = event {
                server.send_response(stream, &http::Response::new(()), false)?;
                server.send_data(stream, Bytes::from(vec![0; BODY]), true)?;
            }
        }
        down.deliver(&mut client, now)?;
        while client.poll_event().is_some() {}
        let mut chunks = VecDeque::new();
        let state = client.read(stream, &mut chunks)?;
        let bytes: usize = chunks.iter().map(Bytes::len).sum();
        client.release_credit(stream, bytes as u64);
        received += bytes;
        if state == ReadState::End {
            assert_eq!(received, BODY);
            return Ok(now.since(Time::ZERO));
        }
        up.send(&mut client, now);
        down.send(&mut server, now);

        // Time jumps to whatever comes next.
        let next = [
            up.next_arrival(),
            down.next_arrival(),
            client.next_deadline(),
            server.next_deadline(),
        ];
        now = next
            .into_iter()
            .flatten()
            .min()
            .ok_or("nothing is left to happen")?;
        client.handle_timeout(now);
        server.handle_timeout(now);
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut small = Config::default();
    small.set_stream_window(WindowSize::new(65_535).ok_or("a window is at most 2^31-1 bytes")?);
    small.set_adaptive(false);
    println!("4 MiB over a round trip of 100 ms");
    println!("window of 65,535 bytes: {:>5} ms", download(small)?.as_millis());
    println!(
        "default windows:        {:>5} ms",
        download(Config::default())?.as_millis()
    );
    Ok(())
}
