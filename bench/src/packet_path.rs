//! `fullbore-bench packet-path`: one command over one path of packets, for developers. The cases take the same settings of a
//! path from here as text.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use clap::Args;
use fullbore_link::units;
use fullbore_packets::{CLIENT, Counts, Direction, Path, Policer, Report, SERVER, STOCK_RECEIVE_BUFFER};
use fullbore_packets::{STOCK_SEND_BUFFER, Settings, Side, Tcp};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::process::Reaper;

/// How long the server may take until it listens.
const START: Duration = Duration::from_secs(20);
/// How long it may take to end when it is asked to.
const END: Duration = Duration::from_secs(2);
/// Where Linux lists the listening sockets of a namespace, and their state there.
const SOCKETS: [&str; 2] = ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"];
const LISTENING: &str = "0A";

/// The settings of a path, and what runs at its ends
#[derive(Args, Debug, Clone)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PacketPath {
    /// Delay of each direction: half of the round trip
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = units::milliseconds)]
    delay: Duration,
    /// Rate of each direction, of whole IP packets; unlimited when left out
    #[arg(long, value_name = "RATE", value_parser = units::rate)]
    rate: Option<u64>,
    /// Bytes that the queue in front of each link holds, or so many bandwidth-delay products, such as `0.125bdp`; one
    /// product, and at least 64 KiB, when left out
    #[arg(long, value_name = "BYTES")]
    queue: Option<String>,
    /// Share of packets that each link loses
    #[arg(long, value_name = "PERCENT", default_value = "0%", value_parser = share)]
    loss: f64,
    /// Packets lost in a row on average
    #[arg(long, value_name = "PACKETS", default_value_t = 1.0)]
    burst: f64,
    /// Further delay, drawn from zero to this for each packet; their order stays
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = units::milliseconds)]
    jitter: Duration,
    /// Share of packets that are late by --reorder-by, so that others overtake them
    #[arg(long, value_name = "PERCENT", default_value = "0%", value_parser = share)]
    reorder: f64,
    /// How late those are
    #[arg(long, value_name = "TIME", default_value = "2ms", value_parser = units::milliseconds)]
    reorder_by: Duration,
    /// Rate of a policer (token bucket) for each flow
    #[arg(long, value_name = "RATE", value_parser = units::rate)]
    police: Option<u64>,
    /// Bytes that its bucket holds; 100 ms of its rate when left out
    #[arg(long, value_name = "BYTES", value_parser = units::bytes)]
    police_burst: Option<u64>,
    /// Congestion control of both ends; the host's settings stay as they are
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    cc: String,
    /// Congestion control of the client's end
    #[arg(long, value_name = "NAME")]
    client_cc: Option<String>,
    /// Largest receive buffer of a socket (third value of tcp_rmem)
    #[arg(long, value_name = "BYTES", default_value_t = u64::from(STOCK_RECEIVE_BUFFER[2]), value_parser = units::bytes)]
    rmem: u64,
    /// Largest send buffer of a socket (third value of tcp_wmem)
    #[arg(long, value_name = "BYTES", default_value_t = u64::from(STOCK_SEND_BUFFER[2]), value_parser = units::bytes)]
    wmem: u64,
    /// Bytes of the largest IP packet
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = clap::value_parser!(u16).range(576..))]
    mtu: u16,
    /// Seed of all that is drawn
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Do all of this to the server's packets only: those of the client are only delayed and rated
    #[arg(long)]
    down_only: bool,
    /// Shell command at the server's end, which has the address 10.91.0.1; started first, and ended with the command
    #[arg(long, value_name = "COMMAND")]
    server: Option<String>,
    /// Print the counts as JSON
    #[arg(long)]
    json: bool,
    /// Command at the client's end, which has the address 10.91.0.2
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    command: Vec<String>,
}

const EXAMPLES: &str = "\
Example:
  fullbore-bench packet-path --rate 100Mbit --delay 50ms --loss 0.1% --cc cubic \\
    --server 'fullbore serve /tmp/files --plaintext --listen 10.91.0.1:8080' \\
    -- fullbore get http://10.91.0.1:8080/body -o /dev/null

It takes Linux, root and /dev/net/tun. The namespaces and devices have no name outside and end with the programs \
in them, so several paths can be open at once. COMMAND can be a shell.";

impl PacketPath {
    /// The path that the options describe.
    fn settings(&self) -> Result<Settings, String> {
        let mut policer = self.police.map(Policer::new);
        if let (Some(policer), Some(burst)) = (&mut policer, self.police_burst) {
            policer.burst = burst;
        }
        let plain = Direction {
            delay: self.delay,
            rate: self.rate,
            ..Direction::default()
        };
        let full = Direction {
            loss: self.loss,
            burst: self.burst,
            jitter: self.jitter,
            reorder: self.reorder,
            reorder_by: self.reorder_by,
            policer,
            ..plain
        };
        let most = |bytes: u64| u32::try_from(bytes).map_err(|_| format!("{bytes} bytes are no buffer"));
        let [least_received, received, _] = STOCK_RECEIVE_BUFFER;
        let [least_sent, sent, _] = STOCK_SEND_BUFFER;
        let tcp = Tcp {
            congestion_control: self.cc.clone(),
            receive_buffer: [least_received, received, most(self.rmem)?],
            send_buffer: [least_sent, sent, most(self.wmem)?],
        };
        let mut settings = Settings::new(full, tcp);
        settings.mtu = self.mtu;
        settings.seed = self.seed;
        if self.down_only {
            settings.to_server = plain;
        }
        if let Some(client) = &self.client_cc {
            settings.client.congestion_control.clone_from(client);
        }
        if let Some(text) = &self.queue {
            let queue = queue(text, settings.bandwidth_delay_product(&full))?;
            settings.to_server.queue = queue;
            settings.to_client.queue = queue;
        }
        Ok(settings)
    }
}

/// Does what the options say; the exit code is the command's.
pub(crate) fn run(options: &PacketPath) -> ExitCode {
    match try_run(options) {
        Ok((status, report)) => {
            match options.json {
                true => eprintln!("{}", json(&report)),
                false => eprint!("{}", text(&report)),
            }
            ExitCode::from(code(status))
        }
        Err(why) => {
            eprintln!("fullbore-bench: {why}");
            ExitCode::FAILURE
        }
    }
}

fn try_run(options: &PacketPath) -> Result<(ExitStatus, Report), String> {
    let path = Path::open(&options.settings()?).map_err(|error| error.to_string())?;
    for (name, side, address) in [
        ("server", path.server(), SERVER),
        ("client", path.client(), CLIENT),
    ] {
        eprintln!("{name}: {address}, nsenter --net={}", side.file());
    }
    // It ends both programs when this process is killed.
    let folder = std::env::temp_dir().join(format!("fullbore-bench-{}", std::process::id()));
    let reaper = Reaper::start(&folder).map_err(|error| error.to_string())?;
    let mut server = None;
    if let Some(text) = &options.server {
        // The shell becomes the server, so that the server is what is ended.
        let mut command = Command::new("sh");
        command.args(["-c", &format!("exec {text}")]);
        let mut child = path.server().enter(|| Ended::spawn(&reaper, &mut command))?;
        wait_until_it_listens(path.server(), &mut child.child)?;
        server = Some(child);
    }
    let [program, arguments @ ..] = options.command.as_slice() else {
        return Err("there is no command".to_owned());
    };
    let mut command = Command::new(program);
    command.args(arguments);
    let mut child = path.client().enter(|| Ended::spawn(&reaper, &mut command))?;
    let status = child.child.wait().map_err(|error| error.to_string())?;
    let report = path.report();
    drop(server);
    Ok((status, report))
}

/// A process that is ended when it is no longer needed: asked first, since a server may have processes of its own.
struct Ended<'a> {
    child: Child,
    reaper: &'a Reaper,
}

impl<'a> Ended<'a> {
    fn spawn(reaper: &'a Reaper, command: &mut Command) -> Result<Self, String> {
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command.spawn().map_err(|error| format!("{name}: {error}"))?;
        reaper.add(child.id());
        Ok(Self { child, reaper })
    }
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let id = i32::try_from(self.child.id()).unwrap_or(0);
            let until = Instant::now() + END;
            if kill(Pid::from_raw(id), Signal::SIGTERM).is_ok() {
                while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < until {
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        }
        // Of a child that was waited for, std knows that its id may be another's by now, and sends nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.reaper.remove(self.child.id());
    }
}

/// Until a socket of that end listens.
fn wait_until_it_listens(side: &Side, server: &mut Child) -> Result<(), String> {
    let until = Instant::now() + START;
    while !side.enter(listens) {
        if let Ok(Some(status)) = server.try_wait() {
            return Err(format!("the server has ended ({status})"));
        }
        if Instant::now() > until {
            return Err(format!("the server does not listen after {} s", START.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Whether a socket of TCP listens in the namespace of this thread.
pub(crate) fn listens() -> bool {
    SOCKETS.iter().any(|file| {
        let sockets = std::fs::read_to_string(file).unwrap_or_default();
        let states = sockets.lines().filter_map(|line| line.split_whitespace().nth(3));
        states.into_iter().any(|state| state == LISTENING)
    })
}

/// As a shell reports it.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// A share in per cent, or from 0 to 1.
fn share(text: &str) -> Result<f64, String> {
    let (number, whole) = match text.strip_suffix('%') {
        Some(number) => (number, 100.0),
        None => (text, 1.0),
    };
    let share = number.trim().parse::<f64>().ok().map(|number| number / whole);
    share
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| "expected a share, such as 0.1% or 0.001".to_owned())
}

/// Bytes, or a number of bandwidth-delay products.
fn queue(text: &str, product: u64) -> Result<Option<u64>, String> {
    let Some(factor) = text.strip_suffix("bdp") else {
        return units::bytes(text).map(Some).map_err(|error| error.to_string());
    };
    let factor: f64 = factor.parse().map_err(|_| format!("`{text}` is no queue"))?;
    // Without a rate there is no queue.
    Ok((product > 0).then_some((product as f64 * factor) as u64))
}

fn text(report: &Report) -> String {
    let line = |name: &str, counts: &Counts| {
        format!(
            "{name}: {} packets, {} B; lost {}, dropped by the queue {}, policed {}, reordered {}; longest queue {} B\n",
            counts.packets,
            counts.bytes,
            counts.lost,
            counts.dropped,
            counts.policed,
            counts.reordered,
            counts.longest_queue
        )
    };
    let mut text = line("to server", &report.to_server) + &line("to client", &report.to_client);
    text.push_str(&format!(
        "connections: {}, open at the end {}; {} packets more than 1 ms late, the latest {:.1} ms; {} overrun; \
         {:.2} s of processor time\n",
        report.flows.len(),
        report.open_at_the_end(),
        report.late,
        report.latest.as_secs_f64() * 1e3,
        report.overrun,
        report.processor.as_secs_f64()
    ));
    text
}

fn json(report: &Report) -> serde_json::Value {
    let counts = |counts: &Counts| {
        serde_json::json!({
            "packets": counts.packets, "bytes": counts.bytes, "delivered": counts.delivered, "lost": counts.lost,
            "dropped": counts.dropped, "policed": counts.policed, "reordered": counts.reordered,
            "longest_queue": counts.longest_queue,
        })
    };
    let flows = report.flows.iter().map(|flow| {
        serde_json::json!({
            "client_port": flow.client_port, "server_port": flow.server_port,
            "opened_ms": flow.opened as f64 / 1e6, "closed_ms": flow.closed.map(|at| at as f64 / 1e6),
            "last_payload_ms": flow.last_payload.map(|at| at as f64 / 1e6),
            "from_server": flow.from_server, "to_client": flow.to_client,
            "from_client": flow.from_client, "to_server": flow.to_server,
        })
    });
    serde_json::json!({
        "to_server": counts(&report.to_server),
        "to_client": counts(&report.to_client),
        "flows": flows.collect::<Vec<_>>(),
        "open_at_the_end": report.open_at_the_end(),
        "late": report.late,
        "latest_ms": report.latest.as_secs_f64() * 1e3,
        "overrun": report.overrun,
        "processor_ms": report.processor.as_secs_f64() * 1e3,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_number_or_a_percentage_up_to_all() {
        assert_eq!(share("0.1%"), Ok(0.001));
        assert_eq!(share("0.5"), Ok(0.5));
        assert!(share("101%").is_err() && share("-1%").is_err() && share("much").is_err());
    }

    #[test]
    fn a_queue_is_stated_in_bytes_or_in_bandwidth_delay_products() {
        assert_eq!(queue("64KiB", 1), Ok(Some(65_536)));
        assert_eq!(queue("0.125bdp", 1_000_000), Ok(Some(125_000)));
        assert_eq!(queue("1bdp", 0), Ok(None));
        assert!(queue("bdp", 1).is_err());
    }
}
