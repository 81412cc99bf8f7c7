//! The options of `fullbore link`.

use std::time::Duration;

use clap::Args as Options;
use fullbore_link::units;

pub(super) const EXAMPLES: &str = "\
Examples:
  fullbore link --to 127.0.0.1:8080 --rtt 100ms        a server 100 ms away
  fullbore link --listen 127.0.0.1:9000 --to localhost:8080 --rtt 100ms --rate 1Gbit
  fullbore link --to 127.0.0.1:8080 --count-frames --json

Units of TIME: ns us ms s m h; without one, milliseconds
Units of RATE: bit kbit Mbit Gbit (a second); without one, bits
Units of BYTES: K M G or KiB MiB GiB (powers of two), kB MB GB (powers of ten)
All connections share the emulated link. A relay of TCP connections loses no packets. For loss, run
client and server in a network namespace of their own (unshare -rn, where the kernel has netem):
  ip link set lo up; tc qdisc add dev lo root netem loss 0.1%
The link runs until Ctrl-C or SIGTERM.";

/// `fullbore link`.
#[derive(Options, Debug)]
pub(crate) struct LinkArgs {
    /// The address to listen on; port 0 is any free port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    pub(crate) listen: String,

    /// The server to connect to
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) to: String,

    /// Round-trip time to add, half of it each way, such as 100ms; without a unit, in milliseconds
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = units::milliseconds)]
    pub(crate) rtt: Duration,

    /// Rate in each direction, such as 1Gbit; without a unit, in bits a second [default: no limit]
    #[arg(long, value_name = "RATE", value_parser = units::rate)]
    pub(crate) rate: Option<u64>,

    /// Size of the buffer in each direction; the link stops reading when it is full [default: twice what the rate carries in
    /// --rtt, at least 256KiB; without a rate 64MiB]
    #[arg(long, value_name = "BYTES", value_parser = units::bytes)]
    pub(crate) buffer: Option<u64>,

    /// Random variation of each packet's delay, up or down, in milliseconds without a unit; packets keep their order
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = units::milliseconds)]
    pub(crate) jitter: Duration,

    /// Seed of the random delays of --jitter
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,

    /// Delay the TCP handshake by a round trip too
    #[arg(long)]
    pub(crate) handshake: bool,

    /// Count HTTP/2 frames by type on cleartext connections, and print the counts when a connection ends
    #[arg(long)]
    pub(crate) count_frames: bool,

    /// Print a line of JSON for each connection instead of a table
    #[arg(long, requires = "count_frames")]
    pub(crate) json: bool,
}
