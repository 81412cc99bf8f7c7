//! A path as tests and benchmarks use it: two ends, the settings of their TCP, and the relay in between.

use std::fmt;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};

use tun_rs::{DeviceBuilder, SyncDevice};

use crate::emulator::{Emulator, Report};
use crate::namespace::{self, Namespace};
use crate::relay::Relay;
use crate::settings::{Settings, Tcp};

/// The address of the server's end of every path.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 91, 0, 1);
/// The address of the client's end.
pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 91, 0, 2);

/// The device of an end, in its namespace.
const DEVICE: &str = "path";
/// Packets that a device holds until the relay takes them: at 1 Gbit/s, a tenth of a second.
const DEVICE_QUEUE: u32 = 10_000;

/// Why there is no path.
#[derive(Debug)]
pub struct Unavailable(String);

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no path of packets can be had here: {}", self.0)
    }
}

impl std::error::Error for Unavailable {}

/// A path that is open until it is dropped.
#[derive(Debug)]
pub struct Path {
    // The order is that of their end.
    relay: Relay,
    server: Side,
    client: Side,
}

/// One end of a path.
#[derive(Debug)]
pub struct Side {
    namespace: Namespace,
    address: Ipv4Addr,
}

impl Path {
    /// Makes the namespaces and devices, and starts the thread in between.
    ///
    /// # Errors
    /// When there can be none on this machine or for this user, or when TCP cannot be set as the settings say.
    pub fn open(settings: &Settings) -> Result<Self, Unavailable> {
        if !std::path::Path::new("/dev/net/tun").exists() {
            return Err(Unavailable("there is no /dev/net/tun".to_owned()));
        }
        let (server, of_server) = Side::new(SERVER, settings, &settings.server)?;
        let (client, of_client) = Side::new(CLIENT, settings, &settings.client)?;
        let delay = settings.to_server.delay.min(settings.to_client.delay);
        let relay = Relay::start(Emulator::new(settings), delay, of_client, of_server)
            .map_err(|error| Unavailable(format!("its thread: {error}")))?;
        Ok(Self {
            relay,
            server,
            client,
        })
    }

    /// The server's end.
    pub fn server(&self) -> &Side {
        &self.server
    }

    /// The client's end.
    pub fn client(&self) -> &Side {
        &self.client
    }

    /// What the packets met until now.
    pub fn report(&self) -> Report {
        let mut report = self.relay.report();
        report.overrun += self.server.overrun() + self.client.overrun();
        report
    }
}

impl Side {
    fn new(address: Ipv4Addr, settings: &Settings, tcp: &Tcp) -> Result<(Self, SyncDevice), Unavailable> {
        let namespace = Namespace::new()
            .map_err(|error| Unavailable(format!("network namespaces need root (CAP_SYS_ADMIN): {error}")))?;
        let set_up = || {
            let device = namespace.enter(|| set_up(address, settings, tcp))??;
            let caller = Namespace::current()?;
            namespace::set_congestion_control(&namespace, &caller, &tcp.congestion_control)?;
            Ok(device)
        };
        let device = set_up().map_err(|error: io::Error| Unavailable(error.to_string()))?;
        Ok((Self { namespace, address }, device))
    }

    /// The address of this end.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Does something at this end: the sockets that this thread opens, and the processes that it starts, are there. Other
    /// threads are not, those of a runtime among them, unless they are started inside.
    ///
    /// # Panics
    /// When the thread cannot enter the namespace, which it could when the path was opened.
    pub fn enter<T>(&self, work: impl FnOnce() -> T) -> T {
        match self.namespace.enter(work) {
            Ok(done) => done,
            Err(error) => panic!("the namespace of a path cannot be entered: {error}"),
        }
    }

    /// The file of the namespace while this process runs, for `nsenter --net=FILE`.
    pub fn file(&self) -> String {
        let descriptor = self.namespace.descriptor().as_raw_fd();
        format!("/proc/{}/fd/{descriptor}", std::process::id())
    }

    /// Packets that found no room in the device.
    fn overrun(&self) -> u64 {
        let devices = self.enter(|| std::fs::read_to_string("/proc/thread-self/net/dev"));
        let line = devices.as_deref().unwrap_or_default().lines().find_map(|line| {
            let (name, counts) = line.split_once(':')?;
            (name.trim() == DEVICE).then_some(counts)
        });
        // Eight counts of packets that were received, of which the fourth are dropped, then those that were sent.
        let counts = line.unwrap_or_default().split_whitespace();
        counts
            .skip(3)
            .step_by(8)
            .filter_map(|count| count.parse::<u64>().ok())
            .sum()
    }
}

/// Sets up an end in the namespace of this thread.
fn set_up(address: Ipv4Addr, settings: &Settings, tcp: &Tcp) -> io::Result<SyncDevice> {
    let device = DeviceBuilder::new()
        .name(DEVICE)
        .enable(false)
        .build_sync()
        .map_err(|error| io::Error::new(error.kind(), format!("no TUN device: {error}")))?;
    device.set_nonblocking(true)?;
    let mtu = settings.mtu;
    // Without link-local addresses no end sends a packet by itself.
    ip(&format!(
        "link set lo up\n\
         link set {DEVICE} addrgenmode none mtu {mtu} txqueuelen {DEVICE_QUEUE}\n\
         address add {address}/24 dev {DEVICE}\n\
         link set {DEVICE} up\n"
    ))?;
    if settings.loopback {
        namespace::set(&format!("conf/{DEVICE}/route_localnet"), "1")?;
        if address == CLIENT {
            ip(&format!(
                "address del 127.0.0.1/8 dev lo\n\
                 route add 127.0.0.1 dev {DEVICE} src {CLIENT}\n"
            ))?;
        }
    }
    namespace::set("tcp_rmem", &three(tcp.receive_buffer))?;
    namespace::set("tcp_wmem", &three(tcp.send_buffer))?;
    // A connection learns nothing from the one before it.
    namespace::set("tcp_no_metrics_save", "1")?;
    Ok(device)
}

fn three([least, default, most]: [u32; 3]) -> String {
    format!("{least} {default} {most}")
}

/// Commands of `ip`, in the namespace of this thread.
fn ip(commands: &str) -> io::Result<()> {
    let mut command = Command::new("ip");
    command
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("ip (of iproute2): {error}")))?;
    if let Some(mut to) = child.stdin.take() {
        to.write_all(commands.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "ip: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ))),
    }
}
