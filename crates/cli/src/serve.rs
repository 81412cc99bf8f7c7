//! `fullbore serve`: threads and graceful shutdown around the service of `fullbore-files`.
//!
//! `listeners` opens addresses, `tls` has the certificates, and `service` makes the HTTP service.

mod listeners;
mod service;
mod tls;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use fullbore::rustls::ServerConfig;
use fullbore::server::ConnectionLimits;
use fullbore::{Chunk, ErrorKind, HttpVersions, MemoryBudget, Server, ServerBuilder};
use fullbore_files::{Files, Log};
use tokio::sync::{oneshot, watch};

use self::listeners::{address, cannot_listen, listen};
use self::service::service;
use self::tls::tls_config;
use crate::args::ServeArgs;
use crate::exit::{Exit, Failure};
use crate::run::{self, Interrupt};

/// Threads that read and write files: enough for slow disks, and a limit on memory.
const DISK_THREADS: usize = 64;

/// The most connections by default. Each may hold some 200 KiB of unread data over TLS, beside streams and windows:
/// SECURITY.md has the sum.
const MAX_CONNECTIONS: usize = 4_096;

/// Serves until SIGTERM or Ctrl-C. Then requests in progress end within `--drain-timeout`. A second signal stops at once.
///
/// # Errors
/// A folder, certificate or address cannot be used; requests did not end in time.
pub(crate) fn run(args: ServeArgs) -> Result<ExitCode, Failure> {
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
    let ended = runtime.block_on(async {
        let service = service(&args)?;
        // Before the address is printed: a script may send a signal as soon as it reads it.
        let interrupt = Interrupt::listen()?;
        match apart {
            true => serve_apart(args, service, interrupt, threads).await,
            false => serve(args, service, interrupt).await,
        }
    });
    runtime.shutdown_timeout(run::LAST_WRITES);
    ended
}

/// On one runtime.
async fn serve(
    args: ServeArgs,
    service: Log<Files<Chunk>>,
    interrupt: Interrupt,
) -> Result<ExitCode, Failure> {
    let listener = listen(&args).await?;
    let address = address(&listener, &args)?;
    let options = Options::new(args, address)?;
    let server = options.builder().build(listener);
    let server = server.map_err(|error| Failure::from_library(&options.args.listen, &error))?;
    options.announce(address)?;
    server
        .graceful_shutdown(drain(interrupt))
        .serve(service)
        .await
        .map_err(|error| broken_off(&options.args.listen, &error))?;
    Ok(ExitCode::SUCCESS)
}

/// On `threads` threads, including this one. Each has its own listener and runtime.
async fn serve_apart(
    args: ServeArgs,
    service: Log<Files<Chunk>>,
    interrupt: Interrupt,
    threads: usize,
) -> Result<ExitCode, Failure> {
    // First without SO_REUSEPORT, which would silently share the port with another program.
    let address = address(&listen(&args).await?, &args)?;
    let options = Arc::new(Options::new(args, address)?);
    let server = options.builder().bind_shared(address).await;
    let server = server.map_err(|error| cannot_listen(&options.args.listen, &error))?;
    let (stop, stopped) = watch::channel(false);
    let mut ends = Vec::new();
    for _ in 1..threads {
        let other = Other {
            options: Arc::clone(&options),
            service: service.clone(),
            stopped: stopped.clone(),
        };
        let (listening, listens) = oneshot::channel();
        let (ending, ends_there) = oneshot::channel();
        std::thread::Builder::new()
            .name("serve".to_owned())
            .spawn(move || {
                let ended = run::lone_runtime(DISK_THREADS / threads + 1)
                    .and_then(|runtime| runtime.block_on(other.serve(address, listening)));
                let _ = ending.send(ended);
            })
            .map_err(|error| Failure::new(Exit::Other, format!("cannot start a thread: {error}")))?;
        ends.push(ends_there);
        if listens.await.is_err() {
            // It ended before it could listen, and reports why. The other threads end with the sender.
            drop(stop);
            return ended(ends).await;
        }
    }
    options.announce(address)?;
    let server = server.graceful_shutdown(async move {
        drain(interrupt).await;
        stop.send_replace(true);
    });
    let served = server.serve(service).await;
    ended(ends).await?;
    served.map_err(|error| broken_off(&options.args.listen, &error))?;
    Ok(ExitCode::SUCCESS)
}

/// One of the other threads.
struct Other {
    options: Arc<Options>,
    service: Log<Files<Chunk>>,
    stopped: watch::Receiver<bool>,
}

impl Other {
    async fn serve(self, address: SocketAddr, listening: oneshot::Sender<()>) -> Result<(), Failure> {
        let listen = &self.options.args.listen;
        let server = self.options.builder().bind_shared(address).await;
        let server = server.map_err(|error| cannot_listen(listen, &error))?;
        let _ = listening.send(());
        let mut stopped = self.stopped;
        let stop = async move {
            // The sender is dropped when the first thread ends.
            let _ = stopped.wait_for(|stopped| *stopped).await;
        };
        server
            .graceful_shutdown(stop)
            .serve(self.service)
            .await
            .map_err(|error| broken_off(listen, &error))
    }
}

/// Waits for the other threads; the first failure.
async fn ended(ends: Vec<oneshot::Receiver<Result<(), Failure>>>) -> Result<ExitCode, Failure> {
    for end in ends {
        end.await
            .map_err(|_| Failure::new(Exit::Other, "a thread failed".to_owned()))??;
    }
    Ok(ExitCode::SUCCESS)
}

/// The options of each thread's server.
struct Options {
    args: ServeArgs,
    budget: MemoryBudget,
    limits: ConnectionLimits,
    tls: Option<Arc<ServerConfig>>,
}

impl Options {
    fn new(args: ServeArgs, address: SocketAddr) -> Result<Self, Failure> {
        Ok(Self {
            budget: args.path.memory_budget(),
            limits: ConnectionLimits::new(max_connections(&args), args.max_total_streams),
            tls: match args.plaintext {
                true => None,
                false => Some(Arc::new(tls_config(&args, address)?)),
            },
            args,
        })
    }

    fn builder(&self) -> ServerBuilder {
        let args = &self.args;
        let limit = |limit: Duration| (!limit.is_zero()).then_some(limit);
        // The names and defaults of the timeouts are those of nginx.
        let mut server = Server::builder()
            .config(|config| args.path.configure(config))
            .http_versions(match (args.http1, args.http2) {
                (true, _) => HttpVersions::Http1,
                (_, true) => HttpVersions::Http2,
                _ => HttpVersions::Both,
            })
            .memory_budget(self.budget.clone())
            .connection_limits(self.limits.clone())
            .peer_addresses(args.log)
            .sending_files(args.sendfile)
            .upload_addresses(args.uploads.is_some())
            .tcp_buffers(args.path.tcp_buffers())
            .idle_timeout(limit(args.keepalive_timeout))
            .header_timeout(args.client_header_timeout)
            .body_timeout(limit(args.client_body_timeout))
            .body_rate(args.client_body_rate)
            .send_timeout(limit(args.send_timeout))
            .drain_timeout(match args.drain_timeout {
                Duration::ZERO => Duration::MAX,
                some => some,
            });
        if let Some(streams) = args.max_streams {
            server = server.max_concurrent_streams(streams);
        }
        match &self.tls {
            Some(tls) => server.tls_config(Arc::clone(tls)),
            None => server,
        }
    }

    /// Prints and flushes one line on standard output: scripts wait for it.
    fn announce(&self, address: SocketAddr) -> Result<(), Failure> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let mut out = io::stdout().lock();
        writeln!(out, "listening on {scheme}://{address}")
            .and_then(|()| out.flush())
            .map_err(|error| Failure::from_io("write to", Path::new("standard output"), &error))?;
        drop(out);
        if !address.ip().is_loopback() && self.tls.is_none() {
            run::complain(&"note: without TLS, anybody on the path can read and change the data");
        }
        Ok(())
    }
}

/// The limit on connections: the descriptors that are left beside those for files and for the program.
fn max_connections(args: &ServeArgs) -> usize {
    /// The descriptors of the program, its pipes, and closing connections.
    const OTHERS: u64 = 64;
    let wanted = args
        .max_connections
        .map(|count| usize::try_from(count).unwrap_or(usize::MAX));
    wanted.unwrap_or_else(|| {
        let descriptors = run::raise_descriptor_limit().unwrap_or(u64::MAX);
        let half = descriptors - descriptors / 2;
        let left = half - OTHERS.min(half / 2);
        usize::try_from(left).map_or(MAX_CONNECTIONS, |left| left.min(MAX_CONNECTIONS))
    })
}

/// Completes at the first signal. A second one ends the process at once.
async fn drain(mut interrupt: Interrupt) {
    let name = interrupt.next().await;
    run::complain(&format!(
        "{name}: waiting for requests in progress; a second signal stops at once"
    ));
    tokio::spawn(async move {
        interrupt.next().await;
        std::process::exit(i32::from(Exit::Interrupted.code()));
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
