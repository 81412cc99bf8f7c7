//! Reverse proxies in front of an origin of HTTP/1.1: uploads over long paths, urgent responses beside bulk ones, processor
//! time, and the memory of uploads that the origin does not read.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::{Case, MIB, Report, Section, head};
use crate::comparison::{Candidate, Series, compare};
use crate::context::{Context, make_file, make_hollow_file};
use crate::error::Error;
use crate::markdown::Table;
use crate::peers::proxies::{Front, Proxy};
use crate::peers::servers::{Load, h2load};
use crate::peers::{Keys, h2loads_lines, keys};
use crate::process;
use crate::program::{self, Narrow, Served};
use crate::route::{self, Route};
use crate::worker;

const FRONT_CORE: usize = 0;
const OTHER_CORE: usize = 1;
const LIMIT: Duration = Duration::from_secs(120);

const UPLOAD: u64 = 64 * MIB;
/// An upload that takes longer is ended; its rate is that of the bytes sent by then.
const LONGEST_UPLOAD: u64 = 60;
const ROUND_TRIPS: [u32; 2] = [100, 230];

const REQUESTS: u64 = 40_000;
const LARGE: u64 = 512 * MIB;
const BULK: u64 = 1 << 30;
/// Megabits a second and milliseconds.
const NARROW: (u32, u32) = (20, 50);

/// Uploads at once, ten on a connection.
const STALLED: [u64; 3] = [20, 200, 2_000];
const STALL: Duration = Duration::from_secs(8);

/// What every table needs.
struct Bed<'a> {
    cx: &'a Context,
    folder: PathBuf,
    keys: Keys,
}

pub(super) fn run(cx: &Context) -> Result<Section, Error> {
    let mut report = Report::new(Case::Proxies, "Reverse proxies");
    report.paragraph(&format!(
        "Proxies with TLS and HTTP/2 at the front, each on one core, in front of `fullbore serve` over HTTP/1.1 on the \
         same machine, at their defaults otherwise. {}.",
        route::described("cubic, and bbr for urgent responses")
    ));
    let bed = Bed {
        cx,
        folder: cx.folder("proxies-files")?,
        keys: keys(cx)?,
    };
    make_file(&bed.folder.join("9"), 9)?;
    make_hollow_file(&bed.folder.join("bulk"), BULK)?;
    make_file(&bed.folder.join("large"), bed.size(LARGE))?;
    make_file(&bed.folder.join("upload"), UPLOAD)?;
    for rtt_ms in ROUND_TRIPS {
        uploads(&bed, &mut report, rtt_ms)?;
    }
    urgent(&bed, &mut report)?;
    for (name, work) in WORKS {
        processor(&bed, &mut report, name, *work);
    }
    for uploads in STALLED {
        stalled(&bed, &mut report, uploads)?;
    }
    report.finish(
        cx,
        &[
            "nginx", "haproxy", "nghttpx", "caddy", "apache2", "h2o", "envoy", "curl", "h2load",
        ],
    )
}

impl Bed<'_> {
    /// A tenth of it in a quick run.
    fn size(&self, whole: u64) -> u64 {
        if self.cx.options.quick { whole / 10 } else { whole }
    }

    fn origin(&self) -> Result<Served<'_>, Error> {
        process::on_core(OTHER_CORE, || program::serve(self.cx, &self.folder, &[]))
    }

    fn front(&self, proxy: Proxy, origin: u16) -> Result<Front<'_>, Error> {
        process::on_core(FRONT_CORE, || proxy.start(self.cx, origin, &self.keys))
    }

    /// Runs a program beside the proxy.
    fn run(&self, command: &mut Command) -> Result<process::Output, Error> {
        process::on_core(OTHER_CORE, || {
            process::run(&self.cx.reaper, command, self.cx.limit(LIMIT)?)
        })
    }
}

/// Each proxy in turns.
fn all<T>(cx: &Context, measure: impl Fn(Proxy) -> Result<T, Error>) -> Vec<Series<T>> {
    let measure = &measure;
    let candidates =
        Proxy::ALL.map(|proxy| Candidate::new(proxy.name(), proxy.ours(), move || measure(proxy)));
    compare(cx.options.runs, candidates.into())
}

fn row<T>(report: &mut Report, name: &str, all: &[Series<T>], cells: impl Fn(&Series<T>) -> String) {
    report.note_errors(name, all);
    let mut table = Table::new(head(&["what"], all));
    table.row([name.to_owned()].into_iter().chain(all.iter().map(cells)));
    report.table(&table);
}

fn uploads(bed: &Bed<'_>, report: &mut Report, rtt_ms: u32) -> Result<(), Error> {
    let name = format!("curl -T, 64 MiB, {rtt_ms} ms, MB/s");
    if !bed.cx.measures(&name) {
        return Ok(());
    }
    let route = Route::gigabit(bed.cx, rtt_ms, route::CUBIC)?;
    let origin = route.serve(|| bed.origin())?;
    let all = all(bed.cx, |proxy| {
        let front = route.serve(|| bed.front(proxy, origin.port))?;
        let hop = route.to(front.port)?;
        route.ask(|| upload(bed, hop.port))
    });
    row(report, &name, &all, |series| series.cell(2, |rate| rate / 1e6));
    Ok(())
}

/// The bytes a second of an upload.
fn upload(bed: &Bed<'_>, port: u16) -> Result<f64, Error> {
    // What was sent when the time is over counts.
    let mut command = Command::new("sh");
    command.args([
        "-c",
        "\"$0\" \"$@\" || [ $? = 28 ]",
        "curl",
        "--silent",
        "--show-error",
        "--fail",
    ]);
    command.args(["--http2", "--insecure", "-o", "/dev/null"]);
    command.args(["--max-time", &LONGEST_UPLOAD.to_string()]);
    command.args(["-w", "%{size_upload} %{time_total}", "-T"]);
    command.arg(bed.folder.join("upload"));
    command.arg(format!("https://127.0.0.1:{port}/upload"));
    let output = process::run(&bed.cx.reaper, &mut command, bed.cx.limit(LIMIT)?)?;
    match output.figures().as_slice() {
        [bytes, seconds] => Ok(bytes / seconds),
        _ => Err(Error::Output("curl".to_owned(), output.stdout)),
    }
}

fn urgent(bed: &Bed<'_>, report: &mut Report) -> Result<(), Error> {
    let (megabits, rtt_ms) = NARROW;
    let name = format!("urgent beside bulk, {megabits} Mbit/s, {rtt_ms} ms, median (worst), ms");
    if !bed.cx.measures(&name) {
        return Ok(());
    }
    let route = Route::narrow(bed.cx, Narrow::new(rtt_ms, megabits), route::BBR)?;
    let origin = route.serve(|| bed.origin())?;
    let all = all(bed.cx, |proxy| {
        let front = route.serve(|| bed.front(proxy, origin.port))?;
        let hop = route.to(front.port)?;
        let mut command = worker::command("urgent")?;
        command.args([&format!("https://127.0.0.1:{}", hop.port), "--bulk", "bulk"]);
        command.args(["--streams", "1", "--requests", "20", "--longest", "20"]);
        command.args(["--fill-ms", "1800", "--pause-ms", "50"]);
        let output = route.ask(|| process::run(&bed.cx.reaper, &mut command, bed.cx.limit(LIMIT)?))?;
        match output.figures().as_slice() {
            [median, worst, ..] => Ok([*median, *worst]),
            _ => Err(Error::Output(
                "fullbore-bench worker urgent".to_owned(),
                output.stdout,
            )),
        }
    });
    row(report, &name, &all, |series| {
        let [median, worst] = [0, 1].map(|at| series.cell(0, |sample| sample[at] * 1e3));
        format!("{median}; {worst}")
    });
    Ok(())
}

/// What takes processor time, and how much of it there is.
#[derive(Clone, Copy)]
enum Work {
    Small { connections: u32, streams: u32 },
    Down,
    Up,
}

const WORKS: &[(&str, Work)] = &[
    (
        "processor time a request for 9 bytes, 50 connections, us",
        Work::Small {
            connections: 50,
            streams: 1,
        },
    ),
    (
        "processor time a request for 9 bytes, 100 at once on one connection, us",
        Work::Small {
            connections: 1,
            streams: 100,
        },
    ),
    ("processor time a megabyte down, us", Work::Down),
    ("processor time a megabyte up, us", Work::Up),
];

fn processor(bed: &Bed<'_>, report: &mut Report, name: &str, work: Work) {
    if !bed.cx.measures(name) {
        return;
    }
    let all = all(bed.cx, |proxy| {
        let origin = bed.origin()?;
        let front = bed.front(proxy, origin.port)?;
        let url = |path: &str| format!("https://127.0.0.1:{}/{path}", front.port);
        let before = front.running.cpu()?;
        let units = match work {
            Work::Small { connections, streams } => {
                let load = Load {
                    requests: bed.size(REQUESTS),
                    connections,
                    streams,
                    window_bits: 24,
                    bytes: 9,
                    http1: false,
                };
                let output = bed.run(&mut h2load(load, &url("9")))?;
                h2loads_lines(&output.stdout, load.requests)?;
                load.requests as f64
            }
            Work::Down | Work::Up => {
                let mut curl = Command::new("curl");
                curl.args(["--silent", "--show-error", "--fail", "--http2", "--insecure"]);
                curl.args(["-o", "/dev/null"]);
                if matches!(work, Work::Up) {
                    curl.arg("-T").arg(bed.folder.join("large"));
                }
                bed.run(curl.arg(url("large")))?;
                bed.size(LARGE) as f64 / 1e6
            }
        };
        Ok((front.running.cpu()? - before).as_secs_f64() / units)
    });
    row(report, name, &all, |series| {
        series.cell(1, |seconds| seconds * 1e6)
    });
}

/// The memory of a proxy whose origin takes connections and reads nothing.
fn stalled(bed: &Bed<'_>, report: &mut Report, uploads: u64) -> Result<(), Error> {
    let name = format!("resident memory with {uploads} uploads that the origin does not read, MiB");
    if !bed.cx.measures(&name) {
        return Ok(());
    }
    let origin = SilentOrigin::start()?;
    let all = all(bed.cx, |proxy| {
        let front = bed.front(proxy, origin.port)?;
        let connections = u32::try_from(uploads / 10).unwrap_or(1);
        let load = Load {
            requests: uploads,
            connections,
            streams: 10,
            window_bits: 24,
            bytes: 0,
            http1: false,
        };
        let mut command = Command::new("timeout");
        let loads = h2load(load, &format!("https://127.0.0.1:{}/upload", front.port));
        command.arg(STALL.as_secs().to_string()).arg(loads.get_program());
        command
            .args(loads.get_args())
            .arg("-d")
            .arg(bed.folder.join("upload"));
        let cx = bed.cx;
        // It ends only by its limit.
        let _ = process::on_core(OTHER_CORE, || {
            process::run(&cx.reaper, &mut command, cx.limit(LIMIT)?)
        });
        let peak = front.running.peak_memory();
        drop(front);
        origin.forget();
        peak.ok_or_else(|| Error::Output(proxy.name().to_owned(), "it ended".to_owned()))
    });
    row(report, &name, &all, |series| {
        series.cell(0, |bytes| *bytes as f64 / MIB as f64)
    });
    Ok(())
}

/// Takes connections for as long as this process runs, and reads nothing.
struct SilentOrigin {
    port: u16,
    kept: Arc<Mutex<Vec<TcpStream>>>,
}

impl SilentOrigin {
    fn start() -> Result<Self, Error> {
        let to_error = |error| Error::Start("a silent origin".to_owned(), error);
        let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(to_error)?;
        let port = listener.local_addr().map_err(to_error)?.port();
        let kept = Arc::new(Mutex::new(Vec::new()));
        let keeps = Arc::clone(&kept);
        thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                keeps.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
            }
        });
        Ok(Self { port, kept })
    }

    /// Closes the connections of a proxy that has ended. Those of all proxies together would pass the limit of open files.
    fn forget(&self) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
