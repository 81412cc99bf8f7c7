//! `fullbore link`: runs the link of `fullbore-link` until a signal, and prints a report of each connection.

use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use fullbore_link::{ConnectionReport, DEFAULT_BUFFER, End, FrameCounts, Link, Stats, Traffic};
use serde::{Serialize, Serializer};
use tokio::sync::mpsc::{self, UnboundedReceiver};

use crate::args::LinkArgs;
use crate::exit::{Exit, Failure, without_numbers};
use crate::figures::grouped;
use crate::run::{self, Interrupt};

/// Forwards until SIGTERM or Ctrl-C, then closes every connection.
///
/// # Errors
/// An address cannot be resolved, or the link cannot listen on it.
pub(crate) fn run(args: LinkArgs) -> Result<ExitCode, Failure> {
    // Two sockets for each client: the usual limit of 1,024 descriptors allows 500.
    run::raise_descriptor_limit();
    // The link has its own thread. This one waits for reports and signals.
    let runtime = run::runtime(1, 1)?;
    runtime.block_on(forward(&args))
}

/// The buffer of a link without --buffer: what is in flight, and as much that waits, as in a router. A larger one would take a whole
/// file, so that a client believes that it was sent.
fn buffer(rtt: Duration, rate: Option<u64>) -> u64 {
    const LEAST: u64 = 256 << 10;
    let Some(rate) = rate else {
        return DEFAULT_BUFFER;
    };
    let in_flight = u128::from(rate) * rtt.as_nanos() / 8 / 1_000_000_000;
    u64::try_from(2 * in_flight).unwrap_or(u64::MAX).max(LEAST)
}

async fn forward(args: &LinkArgs) -> Result<ExitCode, Failure> {
    let listen = resolve(&args.listen)?;
    let server = resolve(&args.to)?;
    // Before the address is printed: a script may send a signal as soon as it reads it.
    let mut interrupt = Interrupt::listen()?;
    let (sender, mut reports) = mpsc::unbounded_channel();
    let mut builder = Link::builder()
        .listen(listen)
        .rtt(args.rtt)
        .buffer(args.buffer.unwrap_or_else(|| buffer(args.rtt, args.rate)))
        .jitter(args.jitter)
        .seed(args.seed)
        .handshake(args.handshake)
        .count_frames(args.count_frames);
    if let Some(rate) = args.rate {
        builder = builder.rate(rate);
    }
    let all = args.count_frames;
    builder = builder.on_end(move |report| {
        if all || matches!(report.end, End::Unreachable(_)) {
            // The receiver is dropped only when the program ends.
            let _ = sender.send(report);
        }
    });
    let link = builder
        .start(server)
        .map_err(|error| cannot_listen(&args.listen, &error))?;
    print(&format!("listening on {}", link.local_addr()))?;
    tokio::select! {
        printed = print_reports(&mut reports, args) => printed?,
        _ = interrupt.next() => {}
    }
    let stats = link.stats();
    // The thread reports the connections that are still open, and then drops the channel.
    drop(link);
    print_reports(&mut reports, args).await?;
    // An error of standard error is ignored.
    let _ = writeln!(io::stderr(), "fullbore: {}", closing_line(&stats));
    Ok(ExitCode::SUCCESS)
}

/// Prints reports until the channel is closed. Without `--count-frames` they are of clients that the link has reset, because
/// it could not reach the server.
async fn print_reports(
    reports: &mut UnboundedReceiver<ConnectionReport>,
    args: &LinkArgs,
) -> Result<(), Failure> {
    while let Some(report) = reports.recv().await {
        if !args.count_frames {
            let sentence = format!("{}: {}", args.to, end(report.end).0);
            run::complain(&sentence);
        } else if args.json {
            print(&json_line(&report))?;
        } else {
            print(&table(&report))?;
        }
    }
    Ok(())
}

/// Prints and flushes a line on standard output: scripts wait for it.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")
        .and_then(|()| out.flush())
        .map_err(|error| Failure::from_io("write to", Path::new("standard output"), &error))
}

/// The first IPv4 address of a name, or its first address: a local server rarely listens on `::1` alone.
fn resolve(place: &str) -> Result<SocketAddr, Failure> {
    let addresses: Vec<SocketAddr> = place
        .to_socket_addrs()
        .map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput => {
                Failure::usage(format!("{place}: expected HOST:PORT, such as 127.0.0.1:8080"))
            }
            _ => Failure::new(
                Exit::Resolve,
                format!("{place}: {error}; check the host name and the network"),
            ),
        })?
        .collect();
    addresses
        .iter()
        .find(|address| address.is_ipv4())
        .or(addresses.first())
        .copied()
        .ok_or_else(|| Failure::new(Exit::Resolve, format!("{place}: the host name has no address")))
}

fn cannot_listen(address: &str, error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::InvalidInput {
        return Failure::usage(error.to_string());
    }
    Failure::new(
        Exit::Listen,
        format!(
            "cannot listen on {address}: {}; use another address with --listen, such as 127.0.0.1:0 for any free port",
            without_numbers(&error.to_string())
        ),
    )
}

/// One connection as a table, without empty rows.
fn table(report: &ConnectionReport) -> String {
    let (up, down) = (report.to_server, report.to_client);
    let mut text = format!(
        "{} {}\n  {:<26}{:>16}{:>16}\n",
        report.client,
        end(report.end).0,
        "",
        "to server",
        "to client"
    );
    let mut row = |name: &str, up: u64, down: u64| {
        text.push_str(&format!("  {name:<26}{:>16}{:>16}\n", grouped(up), grouped(down)));
    };
    row("bytes", up.received_bytes, down.received_bytes);
    row("bytes delivered", up.delivered_bytes, down.delivered_bytes);
    if up.frames.is_none() && down.frames.is_none() {
        text.push_str("  not HTTP/2 in cleartext: no frames to count");
        return text;
    }
    let rows = |traffic: Traffic| traffic.frames.unwrap_or_default().rows();
    for ((name, up), (_, down)) in rows(up).into_iter().zip(rows(down)) {
        if up + down > 0 {
            row(title(name), up, down);
        }
    }
    text.truncate(text.trim_end().len());
    text
}

/// A count's name for people.
fn title(name: &str) -> &str {
    match name {
        "data" => "DATA",
        "data_bytes" => "DATA bytes",
        "small_data" => "DATA under 100 bytes",
        "longest_small_data_run" => "longest run of those",
        "headers" => "HEADERS",
        "priority" => "PRIORITY",
        "rst_stream" => "RST_STREAM",
        "settings" => "SETTINGS",
        "push_promise" => "PUSH_PROMISE",
        "ping" => "PING",
        "go_away" => "GOAWAY",
        "stream_window_update" => "WINDOW_UPDATE, stream",
        "connection_window_update" => "WINDOW_UPDATE, connection",
        "continuation" => "CONTINUATION",
        "priority_update" => "PRIORITY_UPDATE",
        "other" => "other frames",
        name => name,
    }
}

/// How a connection ended: for people, and for `--json`.
fn end(end: End) -> (String, &'static str) {
    match end {
        End::Closed => ("closed".to_owned(), "closed"),
        End::Reset => ("reset".to_owned(), "reset"),
        End::Unreachable(kind) => (format!("cannot reach the server: {kind}"), "unreachable"),
        End::Stopped => ("open when the link stopped".to_owned(), "stopped"),
        _ => ("ended".to_owned(), "other"),
    }
}

/// One connection as a line of JSON.
#[derive(Serialize)]
struct Line {
    client: SocketAddr,
    end: &'static str,
    to_server: Way,
    to_client: Way,
}

#[derive(Serialize)]
struct Way {
    received_bytes: u64,
    delivered_bytes: u64,
    frames: Option<Frames>,
}

impl From<Traffic> for Way {
    fn from(traffic: Traffic) -> Self {
        Self {
            received_bytes: traffic.received_bytes,
            delivered_bytes: traffic.delivered_bytes,
            frames: traffic.frames.map(Frames),
        }
    }
}

/// An object with a member for each count, in their fixed order.
struct Frames(FrameCounts);

impl Serialize for Frames {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.rows())
    }
}

/// Structs of plain fields always serialize; `null` would tell of the one that does not.
fn json_line(report: &ConnectionReport) -> String {
    let line = Line {
        client: report.client,
        end: end(report.end).1,
        to_server: report.to_server.into(),
        to_client: report.to_client.into(),
    };
    serde_json::to_string(&line).unwrap_or_else(|_| "null".to_owned())
}

/// The traffic, and how late deliveries were: late deliveries make the figures of a measurement wrong.
fn closing_line(stats: &Stats) -> String {
    let late = stats.release_error;
    format!(
        "{} connections, {} bytes to the server, {} to clients; deliveries late by {:.3} ms (median), {:.3} ms (p99), \
         {:.3} ms (maximum)",
        grouped(stats.connections),
        grouped(stats.to_server.delivered_bytes),
        grouped(stats.to_client.delivered_bytes),
        late.median.as_secs_f64() * 1e3,
        late.p99.as_secs_f64() * 1e3,
        late.max.as_secs_f64() * 1e3,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_count_has_a_title() {
        for (name, _) in FrameCounts::default().rows() {
            assert_ne!(title(name), name);
        }
    }

    #[test]
    fn addresses_need_a_port() {
        assert_eq!(
            resolve("127.0.0.1:80").ok(),
            Some(SocketAddr::from(([127, 0, 0, 1], 80)))
        );
        for place in ["127.0.0.1", "localhost", ":", "127.0.0.1:port", ""] {
            assert!(resolve(place).is_err(), "{place} was accepted");
        }
    }
}
