//! Where the measurements run: a network namespace of their own on a machine that every table names. Touches `/proc` and
//! the programs `unshare` and `ip`. `run_program` calls it before anything else.

use std::env;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Set in the process that already runs inside its namespace.
const INSIDE: &str = "FULLBORE_BENCH_INSIDE";

/// Set to reno, which every kernel has: loopback loses nothing, so any algorithm that does not pace does as well.
const CONGESTION_CONTROL: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// What is known of the environment.
pub(crate) struct Environment {
    own_namespace: bool,
}

/// Whether this process is the one that was re-executed inside.
pub(crate) fn is_inside() -> bool {
    env::var_os(INSIDE).is_some()
}

/// Re-executes this program in a network namespace of its own, or says why not and stays. The namespace ends with the
/// process, so there is nothing to remove.
pub(crate) fn enter(stay: bool) -> Environment {
    if is_inside() {
        if let Err(why) = set_up() {
            eprintln!("fullbore-bench: the network namespace is not as it should be: {why}");
        }
        return Environment { own_namespace: true };
    }
    if !stay {
        // Root may simply have one; another user gets one inside a user namespace, where the kernel allows it.
        for flags in [["--net"].as_slice(), ["--net", "--map-root-user"].as_slice()] {
            if works(flags) {
                let error = re_execute(flags);
                eprintln!("fullbore-bench: {error}");
                break;
            }
        }
        eprintln!(
            "fullbore-bench: cannot make a network namespace; continuing in this one, with its settings"
        );
    }
    Environment { own_namespace: false }
}

fn works(flags: &[&str]) -> bool {
    let probe = Command::new("unshare")
        .args(flags)
        .args(["--", "ip", "link", "set", "lo", "up"])
        .output();
    probe.is_ok_and(|output| output.status.success())
}

/// Returns only when it failed.
fn re_execute(flags: &[&str]) -> std::io::Error {
    match env::current_exe() {
        Ok(program) => Command::new("unshare")
            .args(flags)
            .arg("--")
            .arg(program)
            .args(env::args_os().skip(1))
            .env(INSIDE, "1")
            .exec(),
        Err(error) => error,
    }
}

fn set_up() -> Result<(), String> {
    let up = Command::new("ip")
        .args(["link", "set", "lo", "up"])
        .stdin(Stdio::null())
        .output();
    let up = up.map_err(|error| format!("ip: {error}"))?;
    if !up.status.success() {
        return Err(String::from_utf8_lossy(&up.stderr).trim().to_owned());
    }
    fs::write(CONGESTION_CONTROL, "reno").map_err(|error| format!("{CONGESTION_CONTROL}: {error}"))
}

impl Environment {
    /// The machine, its kernel and its network in a sentence or two.
    pub(crate) fn text(&self) -> String {
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let model = field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unnamed".to_owned());
        let kernel = read("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".to_owned());
        let memory = field("/proc/meminfo", "MemTotal")
            .and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok())
            .map_or_else(
                || "unknown".to_owned(),
                |kib| format!("{:.1} GiB", kib / 1024.0 / 1024.0),
            );
        let load = read("/proc/loadavg")
            .and_then(|text| text.split_whitespace().next().map(str::to_owned))
            .unwrap_or_else(|| "unknown".to_owned());
        let congestion = read(CONGESTION_CONTROL).unwrap_or_else(|| "unknown".to_owned());
        let namespace = if self.own_namespace {
            "a network namespace of its own"
        } else {
            "the machine's network"
        };
        format!(
            "{cores} cores ({model}), {memory} of memory, Linux {kernel}; load average {load} at the start; \
             loopback in {namespace}, TCP congestion control {congestion}"
        )
    }
}

fn read(file: &str) -> Option<String> {
    fs::read_to_string(file).ok().map(|text| text.trim().to_owned())
}

/// The value of the first line `name : value`.
fn field(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}
