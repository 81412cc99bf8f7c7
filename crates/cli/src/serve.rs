//! `fullbore serve` and `fullbore proxy`: threads and graceful shutdown around the services of `fullbore-files` and
//! `fullbore-proxy`.
//!
//! `listeners` opens sockets, `tls` has the certificates, `service` makes what they serve, and `policy` what is around the
//! files or the application.

mod answer;
mod auth;
mod behind;
mod body;
mod certificate;
mod exposition;
mod listeners;
mod metrics;
mod origin_metrics;
mod policy;
mod reach;
mod redirect;
mod self_signed;
mod service;
mod site;
mod text;
mod tls;
#[cfg(unix)]
mod unix_socket;

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use fullbore::rustls::ServerConfig;
use fullbore::server::ConnectionLimits;
use fullbore::settings::{HttpVersions, MemoryBudget, WindowSize};
use fullbore::{ErrorKind, Server, ServerBuilder};
use fullbore_files::{Log, LogWriter};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use self::behind::Behind;
use self::certificate::{Certificate, Hangup};
use self::listeners::{Listener, Opening, Place, SocketFile};
use self::metrics::Metrics;
use self::redirect::Redirect;
use self::service::Sites;
use self::site::Site;
use crate::args::{ListenAddress, ProxyArgs, ServeArgs, ServerArgs};
use crate::exit::{self, Exit, Failure};
use crate::run::{self, Interrupt};

/// Threads that read and write files: enough for slow disks, and a limit on memory.
const DISK_THREADS: usize = 64;

/// The most connections by default. Each may hold some 200 KiB of unread data over TLS, beside streams and windows:
/// docs/design/limits.md has the sum.
const MAX_CONNECTIONS: usize = 4_096;

/// The window that a request to an application begins with. One that the application does not read costs as much memory. It
/// carries 1 Gbit/s over 33 ms, and opens wide for an application that keeps up.
const PROXY_WINDOW: WindowSize = WindowSize::from_mebibytes(4);

/// How long an upload of files may be silent, unless an option says so.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// The limits of the listener of `--metrics`.
const METRICS_CONNECTIONS: usize = 64;
const METRICS_STREAMS: u64 = 1_024;
const METRICS_MEMORY: u64 = 16 << 20;

/// Serves files until SIGTERM or Ctrl-C. Then requests in progress end within `--drain-timeout`. A second signal stops at once.
///
/// # Errors
/// A folder, certificate or address cannot be used; requests did not end in time.
pub(crate) fn run(args: ServeArgs) -> Result<ExitCode, Failure> {
    let ServeArgs { files, server } = args;
    let kind = Kind {
        sends_ranges: files.sendfile,
        stores: files.uploads.is_some(),
        is_proxy: false,
    };
    run_server(server, kind, move |server, metrics| {
        Sites::of_files(&files, server, metrics)
    })
}

/// Passes requests on to an application, as long as [`run`] serves files.
///
/// # Errors
/// A URL, certificate or address cannot be used; requests did not end in time.
pub(crate) fn run_proxy(args: ProxyArgs) -> Result<ExitCode, Failure> {
    let ProxyArgs { origin, server } = args;
    let kind = Kind {
        sends_ranges: false,
        stores: false,
        is_proxy: true,
    };
    run_server(server, kind, move |server, metrics| {
        let proxy = service::proxy(&origin, server.has_tls())?;
        if let Some(path) = origin.origin_health {
            tokio::spawn(proxy.clone().check_health(path));
        }
        Sites::of_proxy(proxy, server, metrics)
    })
}

/// What the server has to know of its service.
#[derive(Clone, Copy)]
struct Kind {
    sends_ranges: bool,
    stores: bool,
    is_proxy: bool,
}

fn run_server(
    args: ServerArgs,
    kind: Kind,
    sites: impl FnOnce(&ServerArgs, Option<&Arc<Metrics>>) -> Result<Sites, Failure>,
) -> Result<ExitCode, Failure> {
    let threads = match args.threads {
        Some(threads) => usize::from(threads),
        None => std::thread::available_parallelism().map_or(1, usize::from),
    };
    // With --threads the workers are independent, where the system can distribute connections among them.
    let apart = args.threads.is_some() && cfg!(target_os = "linux");
    let runtime = match apart {
        true => run::lone_runtime(DISK_THREADS)?,
        false => run::runtime(threads, DISK_THREADS)?,
    };
    let ended = runtime.block_on(serve(args, kind, sites, if apart { threads } else { 1 }));
    runtime.shutdown_timeout(run::LAST_WRITES);
    ended
}

/// Serves on this runtime and, with more than one, on `runtimes - 1` others, each in a thread of its own.
async fn serve(
    args: ServerArgs,
    kind: Kind,
    sites: impl FnOnce(&ServerArgs, Option<&Arc<Metrics>>) -> Result<Sites, Failure>,
    runtimes: usize,
) -> Result<ExitCode, Failure> {
    let (limits, budget) = (limits(&args), args.path.memory_budget());
    let metrics = args.metrics.as_ref();
    let metrics = metrics.map(|_| Arc::new(Metrics::new(limits.clone(), budget.clone())));
    let sites = sites(&args, metrics.as_ref())?;
    // Before the address is printed: a script may send a signal as soon as it reads it.
    let interrupt = Interrupt::listen()?;
    let sockets = Sockets::open(&args)?;
    refuse_silent_cleartext(&args, &sockets)?;
    let addresses = sockets.places.iter().filter_map(Place::address);
    let (certificate, tls) = tls::from_options(&args, addresses)?.unzip();
    let options = Arc::new(Options {
        args,
        kind,
        budget,
        limits,
        tls,
        metrics,
        log: sites.log(),
    });
    let lines = Lines::new(&options, &sockets, certificate.as_deref(), sites.path());
    let (stop, stopped) = watch::channel(false);
    let others = Others::start(runtimes - 1, &options, &sockets.places, &sites, &stopped).await?;
    let (servers, socket_files) = sockets.into_servers(&options, &sites, certificate.as_ref())?;
    let hangup = Hangup::listen()?;
    match certificate {
        Some(certificate) => tokio::spawn(certificate.keep_current(hangup)),
        None => tokio::spawn(hangup.read_nothing()),
    };
    lines.announce()?;
    tokio::spawn(async move {
        drain(interrupt).await;
        stop.send_replace(true);
    });
    let served = serve_all(servers, stopped).await;
    let others = others.ended().await;
    drop(socket_files);
    served.and(others)?;
    Ok(ExitCode::SUCCESS)
}

/// Cleartext is the default where nobody else can listen. Elsewhere it takes a word, so that no server loses its TLS by an
/// option that was forgotten.
fn refuse_silent_cleartext(args: &ServerArgs, sockets: &Sockets) -> Result<(), Failure> {
    if args.has_tls() || args.plaintext || args.lan {
        return Ok(());
    }
    let mut addresses = sockets.places.iter().filter_map(Place::address);
    match addresses.find(|address| !address.ip().is_loopback()) {
        None => Ok(()),
        Some(address) => Err(Failure::usage(format!(
            "{address} can be reached from other machines; add --cert FILE --key FILE or --self-signed for TLS, or --plaintext \
             for none"
        ))),
    }
}

/// Every socket that listens.
struct Sockets {
    /// For the files.
    places: Arc<Vec<Place>>,
    redirects: Vec<Place>,
    metrics: Vec<Place>,
}

impl Sockets {
    fn open(args: &ServerArgs) -> Result<Self, Failure> {
        let opening = Opening {
            shared: args.threads.is_some() && cfg!(target_os = "linux"),
            mode: args.socket_mode.0,
        };
        let alone = |address: &Option<ListenAddress>| match address {
            Some(address) => listeners::open_alone(address, opening.mode),
            None => Ok(Vec::new()),
        };
        Ok(Self {
            places: Arc::new(listeners::open(args, opening)?),
            redirects: alone(&args.redirect_http)?,
            metrics: alone(&args.metrics)?,
        })
    }

    /// The servers of this runtime. Every other runtime has its listeners.
    fn into_servers(
        self,
        options: &Options,
        sites: &Sites,
        certificate: Option<&Arc<Certificate>>,
    ) -> Result<(Vec<Serving>, Vec<SocketFile>), Failure> {
        let Some(places) = Arc::into_inner(self.places) else {
            return Err(Failure::new(Exit::Other, "a thread has not begun to listen"));
        };
        let (mut servers, mut socket_files) = (Vec::new(), Vec::new());
        let mut add = |place: Place, builder: ServerBuilder, site: Behind| {
            let name = place.name().to_owned();
            let (listener, file) = place.into_listener()?;
            socket_files.extend(file);
            servers.push(Serving::new(builder, listener, name, site)?);
            Ok::<(), Failure>(())
        };
        let address = places.iter().find_map(Place::address);
        let port = address.map_or(443, |address| address.port());
        for place in places {
            add(place, options.builder(), sites.files())?;
        }
        if let Some(certificate) = certificate {
            for place in self.redirects {
                let certificate = Arc::clone(certificate);
                let redirect = Site::Redirect(Arc::new(Redirect { certificate, port }));
                add(place, options.without_tls(), sites.logged(redirect))?;
            }
        }
        if let Some(metrics) = &options.metrics {
            for place in self.metrics {
                // With limits of its own, so that the figures can be read when the server has reached those of the others.
                let builder = Server::builder()
                    .connection_limits(ConnectionLimits::new(METRICS_CONNECTIONS, METRICS_STREAMS))
                    .memory_budget(MemoryBudget::new(METRICS_MEMORY));
                add(
                    place,
                    builder,
                    Behind::new(Log::new(Site::Metrics(Arc::clone(metrics)), None), None),
                )?;
            }
        }
        Ok((servers, socket_files))
    }
}

/// The other threads.
struct Others(Vec<oneshot::Receiver<Result<(), Failure>>>);

impl Others {
    /// Starts them. Each one listens when this returns.
    async fn start(
        count: usize,
        options: &Arc<Options>,
        places: &Arc<Vec<Place>>,
        sites: &Sites,
        stopped: &watch::Receiver<bool>,
    ) -> Result<Self, Failure> {
        let mut others = Self(Vec::new());
        for _ in 0..count {
            let other = Other {
                options: Arc::clone(options),
                places: Arc::clone(places),
                site: sites.files(),
                stopped: stopped.clone(),
            };
            let (listening, listens) = oneshot::channel();
            let (ending, ends) = oneshot::channel();
            std::thread::Builder::new()
                .name("serve".to_owned())
                .spawn(move || {
                    let ended = run::lone_runtime(DISK_THREADS / (count + 1) + 1)
                        .and_then(|runtime| runtime.block_on(other.serve(listening)));
                    let _ = ending.send(ended);
                })
                .map_err(|error| Failure::new(Exit::Other, format!("cannot start a thread: {error}")))?;
            if listens.await.is_err() {
                // It ended before it could listen, and reports why. The process ends, and with it the other threads.
                let early = || Failure::new(Exit::Other, "a thread ended before it could listen");
                return Err(Self(vec![ends]).ended().await.err().unwrap_or_else(early));
            }
            others.0.push(ends);
        }
        Ok(others)
    }

    /// Waits for them; the first failure.
    async fn ended(self) -> Result<(), Failure> {
        for end in self.0 {
            end.await
                .map_err(|_| Failure::new(Exit::Other, "a thread failed".to_owned()))??;
        }
        Ok(())
    }
}

/// One of the other threads.
struct Other {
    options: Arc<Options>,
    places: Arc<Vec<Place>>,
    site: Behind,
    stopped: watch::Receiver<bool>,
}

impl Other {
    async fn serve(self, listening: oneshot::Sender<()>) -> Result<(), Failure> {
        let mut servers = Vec::new();
        for place in &*self.places {
            let (builder, site) = (self.options.builder(), self.site.clone());
            servers.push(Serving::new(
                builder,
                place.listener()?,
                place.name().to_owned(),
                site,
            )?);
        }
        drop(self.places);
        drop(self.site);
        let _ = listening.send(());
        serve_all(servers, self.stopped).await
    }
}

/// A server on one listener.
struct Serving {
    server: AnyServer,
    /// As messages name it.
    name: String,
    site: Behind,
}

enum AnyServer {
    Tcp(Server),
    #[cfg(unix)]
    Unix(Server<tokio::net::UnixListener>),
}

impl Serving {
    fn new(builder: ServerBuilder, listener: Listener, name: String, site: Behind) -> Result<Self, Failure> {
        let server = match listener {
            Listener::Tcp(listener) => builder.build(listener).map(AnyServer::Tcp),
            #[cfg(unix)]
            Listener::Unix(listener) => builder.build(listener).map(AnyServer::Unix),
        };
        let server = server.map_err(|error| match error.kind() {
            ErrorKind::Config => Failure::usage(exit::wrong_setting(&error)),
            _ => Failure::from_library(&name, &error),
        })?;
        Ok(Self { server, name, site })
    }

    /// Serves until the graceful shutdown is over.
    async fn serve(self, mut stopped: watch::Receiver<bool>) -> Result<(), Failure> {
        let stop = async move {
            // The sender is dropped when the first thread ends.
            let _ = stopped.wait_for(|stopped| *stopped).await;
        };
        let ended = match self.server {
            AnyServer::Tcp(server) => server.graceful_shutdown(stop).serve(self.site).await,
            #[cfg(unix)]
            AnyServer::Unix(server) => server.graceful_shutdown(stop).serve(self.site).await,
        };
        ended.map_err(|error| broken_off(&self.name, &error))
    }
}

/// Serves on all listeners of a runtime, the first of them in the caller's task.
async fn serve_all(servers: Vec<Serving>, stopped: watch::Receiver<bool>) -> Result<(), Failure> {
    let mut servers = servers.into_iter();
    let first = servers.next();
    let mut others = JoinSet::new();
    for server in servers {
        others.spawn(server.serve(stopped.clone()));
    }
    let mut ended = match first {
        Some(first) => first.serve(stopped).await,
        None => Ok(()),
    };
    while let Some(other) = others.join_next().await {
        let other = other.map_err(|_| Failure::new(Exit::Other, "a server failed".to_owned()));
        ended = ended.and(other.and_then(|other| other));
    }
    ended
}

/// The options of each server.
struct Options {
    args: ServerArgs,
    kind: Kind,
    budget: MemoryBudget,
    limits: ConnectionLimits,
    tls: Option<Arc<ServerConfig>>,
    metrics: Option<Arc<Metrics>>,
    log: Option<LogWriter>,
}

impl Options {
    fn builder(&self) -> ServerBuilder {
        match &self.tls {
            Some(tls) => self.without_tls().tls_config(Arc::clone(tls)),
            None => self.without_tls(),
        }
    }

    fn without_tls(&self) -> ServerBuilder {
        let args = &self.args;
        let limit = |limit: Duration| (!limit.is_zero()).then_some(limit);
        let body_timeout = args.client_body_timeout.unwrap_or(match self.kind.is_proxy {
            true => Duration::ZERO,
            false => BODY_TIMEOUT,
        });
        // The names and defaults of the timeouts are those of nginx.
        let server = Server::builder()
            .config(|config| {
                if self.kind.is_proxy {
                    // WebSockets are the application's.
                    config.set_enable_connect_protocol(true);
                    config.set_stream_window(PROXY_WINDOW);
                }
                args.path.configure(config);
            })
            .http_versions(match (args.http1, args.http2) {
                (true, _) => HttpVersions::Http1,
                (_, true) => HttpVersions::Http2,
                _ => HttpVersions::Both,
            })
            .memory_budget(self.budget.clone())
            .connection_limits(self.limits.clone())
            .peer_addresses(args.log)
            .sending_files(self.kind.sends_ranges)
            .upload_addresses(self.kind.stores)
            .tcp_buffers(args.path.tcp_buffers())
            .idle_timeout(limit(args.keepalive_timeout))
            .header_timeout(args.client_header_timeout)
            .body_timeout(limit(body_timeout))
            .body_rate(args.client_body_rate)
            .send_timeout(limit(args.send_timeout))
            .drain_timeout(match args.drain_timeout {
                Duration::ZERO => Duration::MAX,
                some => some,
            });
        let server = match args.max_streams {
            Some(streams) => server.max_concurrent_streams(streams),
            None => server,
        };
        let server = match &args.congestion_control {
            Some(name) => server.congestion_control(name),
            None => server,
        };
        let (metrics, log) = (self.metrics.clone(), self.log.clone());
        if metrics.is_none() && log.is_none() {
            return server;
        }
        server.on_end(move |connection| {
            if let Some(metrics) = &metrics {
                metrics.add_connection(connection);
            }
            // The service has not seen that request, and so has not logged it.
            if let (Some(log), Some(status)) = (&log, connection.refused) {
                log.refused(connection.peer_addr, status);
            }
        })
    }
}

/// What is printed when every socket listens.
struct Lines {
    /// On standard output.
    listening: Vec<String>,
    /// On standard error.
    notes: Vec<String>,
}

impl Lines {
    /// `path` is where people begin.
    fn new(options: &Options, sockets: &Sockets, certificate: Option<&Certificate>, path: &str) -> Self {
        let scheme = if certificate.is_some() { "https" } else { "http" };
        let url = |scheme: &str, place: &Place| match place.address() {
            Some(address) => format!("{scheme}://{address}"),
            None => format!("{} ({scheme})", place.name()),
        };
        let mut listening = Vec::new();
        let mut add =
            |places: &[Place], line: &dyn Fn(&Place) -> String| listening.extend(places.iter().map(line));
        add(&sockets.places, &|place| {
            format!("listening on {}", url(scheme, place))
        });
        add(&sockets.redirects, &|place| {
            format!("redirecting {} to https", url("http", place))
        });
        add(&sockets.metrics, &|place| {
            format!("metrics on {}", url("http", place))
        });
        let mut notes = Vec::new();
        let addresses = || sockets.places.iter().filter_map(Place::address);
        let is_terminal = io::stderr().is_terminal();
        if options.args.lan || is_terminal && addresses().any(|address| !address.ip().is_loopback()) {
            let own = reach::addresses();
            let urls: Vec<String> = addresses()
                .flat_map(|address| reach::urls(scheme, address, &own, path))
                .collect();
            notes.extend(reach::sentence(&urls));
            let code = urls.first().filter(|_| options.args.lan && is_terminal);
            let drawn = code.and_then(|url| Some((url, reach::code(url)?)));
            notes.extend(drawn.map(|(url, code)| format!("scan this to open {url}\n{code}")));
        }
        if certificate.is_none() && addresses().any(|address| !address.ip().is_loopback()) {
            let secret = if options.args.has_users() {
                "data and the passwords"
            } else {
                "data"
            };
            notes.push(format!(
                "note: without TLS, anybody on the path can read and change the {secret}"
            ));
        }
        let host = options
            .args
            .self_signed_name
            .first()
            .filter(|name| !name.contains([':', '*']));
        let host = host.map_or("localhost", String::as_str);
        let port = addresses().next().map_or(443, |address| address.port());
        notes.extend(certificate.and_then(|it| tls::advice(it, &format!("https://{host}:{port}/"))));
        Self { listening, notes }
    }

    /// Prints and flushes: scripts wait for the first line.
    fn announce(&self) -> Result<(), Failure> {
        // In one write: a script may close the pipe behind the first line.
        let text: String = self.listening.iter().map(|line| format!("{line}\n")).collect();
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())
            .and_then(|()| out.flush())
            .map_err(|error| Failure::from_io("write to", Path::new("standard output"), &error))?;
        drop(out);
        self.notes.iter().for_each(run::complain);
        Ok(())
    }
}

/// The limits on connections and streams.
fn limits(args: &ServerArgs) -> ConnectionLimits {
    ConnectionLimits::new(max_connections(args), args.max_total_streams)
}

/// The limit on connections.
fn max_connections(args: &ServerArgs) -> usize {
    let wanted = args
        .max_connections
        .map(|count| usize::try_from(count).unwrap_or(usize::MAX));
    wanted.unwrap_or_else(|| {
        let descriptors = run::raise_descriptor_limit().unwrap_or(u64::MAX);
        connections_within(descriptors)
    })
}

/// How many connections have descriptors beside those for files and for the program.
fn connections_within(descriptors: u64) -> usize {
    /// The descriptors of the program, its pipes, and closing connections.
    const OTHERS: u64 = 64;
    let half = descriptors - descriptors / 2;
    let left = half - OTHERS.min(half / 2);
    usize::try_from(left).unwrap_or(usize::MAX).min(MAX_CONNECTIONS)
}

/// Completes at the first signal. A second one ends the process at once.
async fn drain(mut interrupt: Interrupt) {
    let signal = interrupt.next().await;
    run::complain(&format!(
        "{signal}: waiting for requests in progress; a second signal stops at once"
    ));
    tokio::spawn(async move {
        let signal = interrupt.next().await;
        std::process::exit(i32::from(signal.exit().code()));
    });
}

/// The failure of a server: requests did not end in time, or an error of the transport.
fn broken_off(address: &str, error: &fullbore::Error) -> Failure {
    if error.kind() != ErrorKind::Timeout {
        return Failure::from_library(address, error);
    }
    Failure::new(
        Exit::Timeout,
        format!("{address}: {error}; allow more time with --drain-timeout, or no limit with 0"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_have_half_of_the_descriptors_but_for_64_and_no_more_than_4096() {
        for (descriptors, connections) in [
            (u64::MAX, 4_096),
            (8_320, 4_096),
            (8_319, 4_096),
            (8_318, 4_095),
            (1_024, 448),
            (256, 64),
            // A half of the half stays for others at least.
            (200, 50),
            (1, 1),
        ] {
            assert_eq!(connections_within(descriptors), connections, "{descriptors}");
        }
    }
}
