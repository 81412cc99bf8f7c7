//! `fullbore serve`: from its arguments to a server that listens, and a way to end it that breaks off nothing.
//!
//! What is served is `serve`'s business; this file opens it, gives it TLS, an address and threads, and drains it when
//! a signal comes.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use fullbore::{ErrorKind, MemoryBudget, Refill, Server, TcpBuffers, tls};
use fullbore_cli::serve::{Files, Log, LogWriter, Settings, Uploads};

use crate::args::ServeArgs;
use crate::exit::{Exit, Failure};
use crate::run::{self, Interrupt};

/// Threads that read and write files: enough for slow disks, few enough to bound memory.
const DISK_THREADS: usize = 64;

/// Serves until SIGTERM or Ctrl-C, then lets the requests under way end. A second signal ends it at once.
///
/// # Errors
/// A folder, certificate or address that cannot be used.
pub(crate) fn run(args: ServeArgs) -> Result<ExitCode, Failure> {
    let threads = match args.threads {
        Some(threads) => usize::from(threads),
        None => std::thread::available_parallelism().map_or(1, usize::from),
    };
    let runtime = run::runtime(threads, DISK_THREADS)?;
    let ended = runtime.block_on(serve(args));
    runtime.shutdown_timeout(run::LAST_WRITES);
    ended
}

async fn serve(args: ServeArgs) -> Result<ExitCode, Failure> {
    let service = service(&args)?;
    // Taken over before the address is printed: who reads it may send a signal the next moment.
    let interrupt = Interrupt::listen()?;
    let mut server = Server::bind(args.listen.as_str())
        .await
        .map_err(|error| cannot_listen(&args.listen, &error))?;
    let address = server
        .local_addr()
        .map_err(|error| Failure::new(Exit::LocalIo, format!("{}: {error}", args.listen)))?;
    if let Some(bytes) = args.stream_window {
        server = server.stream_window(bytes);
    }
    if let Some(bytes) = args.connection_window {
        server = server.connection_window(bytes);
    }
    if let Some(bytes) = args.refill_at {
        server = server.refill(Refill::Remaining(bytes), Refill::Remaining(bytes));
    }
    if let Some(bytes) = args.budget {
        server = server.memory_budget(MemoryBudget::new(bytes));
    }
    server = server.peer_addresses(args.log).tcp_buffers(TcpBuffers {
        send: args.tcp_send_buffer,
        receive: args.tcp_receive_buffer,
    });
    if let Some(streams) = args.max_streams {
        server = server.max_concurrent_streams(streams);
    }
    server = with_timeouts(server, &args);
    let mut scheme = "http";
    if !args.plaintext {
        scheme = "https";
        server = with_tls(server, &args, address)?;
    }
    announce(scheme, address)?;
    server
        .graceful_shutdown(drain(interrupt))
        .serve(service)
        .await
        .map_err(|error| Failure::from_library(&args.listen, &error))?;
    Ok(ExitCode::SUCCESS)
}

/// The HTTP service: files, uploads and the access log.
fn service(args: &ServeArgs) -> Result<Log<Files>, Failure> {
    let uploads = match &args.uploads {
        None => Uploads::Refuse,
        Some(word) if word == Path::new("discard") => Uploads::Discard,
        Some(dir) => {
            std::fs::create_dir_all(dir).map_err(|error| Failure::from_io("make the folder", dir, &error))?;
            Uploads::Directory(dir.clone())
        }
    };
    let settings = Settings {
        uploads,
        ..Settings::default()
    };
    let files =
        Files::open(&args.root, settings).map_err(|error| Failure::from_io("serve", &args.root, &error))?;
    let writer = if args.log {
        let writer = LogWriter::stdout()
            .map_err(|error| Failure::new(Exit::Other, format!("cannot start a thread: {error}")))?;
        Some(writer)
    } else {
        None
    };
    Ok(Log::new(files, writer))
}

/// How long clients may take: named, and by default, as users of nginx know them.
fn with_timeouts(server: Server, args: &ServeArgs) -> Server {
    let limit = |seconds: u64| (seconds > 0).then(|| Duration::from_secs(seconds));
    server
        .idle_timeout(limit(args.keepalive_timeout))
        .header_timeout(Duration::from_secs(args.client_header_timeout))
        .body_timeout(limit(args.client_body_timeout))
        .send_timeout(limit(args.send_timeout))
}

fn with_tls(server: Server, args: &ServeArgs, address: SocketAddr) -> Result<Server, Failure> {
    let config = match (&args.cert, &args.key) {
        (Some(cert), Some(key)) => tls::server_config(&read(cert)?, &read(key)?).map_err(|error| {
            Failure::usage(format!(
                "--cert {} with --key {}: {error}",
                cert.display(),
                key.display()
            ))
        })?,
        _ => {
            let host = address.ip().to_string();
            let mut names = vec!["localhost", "127.0.0.1", "::1"];
            if !address.ip().is_unspecified() && !names.contains(&host.as_str()) {
                names.push(&host);
            }
            let made = |error: fullbore::Error| Failure::new(Exit::Tls, error.to_string());
            let signed = tls::self_signed(&names).map_err(made)?;
            tls::server_config(signed.cert_pem.as_bytes(), signed.key_pem.as_bytes()).map_err(made)?
        }
    };
    Ok(server.tls_config(Arc::new(config)))
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| Failure::from_io("read", path, &error))
}

/// One line on standard output, at once: scripts wait for it.
fn announce(scheme: &str, address: SocketAddr) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "listening on {scheme}://{address}")
        .and_then(|()| out.flush())
        .map_err(|error| Failure::from_io("write to", Path::new("standard output"), &error))?;
    drop(out);
    if !address.ip().is_loopback() && scheme == "http" {
        run::complain(&"note: without TLS, anybody on the path can read and change what is served");
    }
    Ok(())
}

/// Completes at the first signal; from then on a second one ends the process at once.
async fn drain(mut interrupt: Interrupt) {
    let name = interrupt.next().await;
    run::complain(&format!(
        "{name}: no new requests; those under way may end, a second signal stops them"
    ));
    tokio::spawn(async move {
        interrupt.next().await;
        std::process::exit(i32::from(Exit::Interrupted.code()));
    });
}

fn cannot_listen(address: &str, error: &fullbore::Error) -> Failure {
    let mut failure = Failure::from_library(&format!("cannot listen on {address}"), error);
    if error.kind() == ErrorKind::Io {
        failure
            .message
            .push_str("; choose another with --listen, such as 127.0.0.1:0 for any free port");
    }
    failure
}
