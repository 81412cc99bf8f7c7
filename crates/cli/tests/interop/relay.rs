//! A TCP relay on 127.0.0.1 that counts the connections it passes on: what a client claims of one connection can be seen.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crate::process::Outcome;

/// Relays from its own port to another until dropped.
pub(crate) struct Relay {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    connections: AtomicUsize,
    closed: AtomicBool,
}

impl Relay {
    /// To the server at `origin`, `http://127.0.0.1:PORT`.
    pub(crate) fn to(origin: &str) -> Outcome<Relay> {
        let digits = origin.rsplit(':').next().unwrap_or_default();
        let port: u16 = digits.parse().map_err(|_| format!("no port in {origin}"))?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            connections: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
        });
        let own = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if own.closed.load(Ordering::SeqCst) {
                    return;
                }
                own.connections.fetch_add(1, Ordering::SeqCst);
                if let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
                    join_up(&client, &server);
                }
            }
        });
        Ok(Relay { address, shared })
    }

    /// What a client is to be given in place of the server's.
    pub(crate) fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// How many connections were made.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts; when that fails it has nothing to accept any more.
        let _ = TcpStream::connect(self.address);
    }
}

fn join_up(client: &TcpStream, server: &TcpStream) {
    for (from, to) in [(client, server), (server, client)] {
        let _ = from.set_nodelay(true);
        // A connection whose handle cannot be had is dropped, and the client sees it closed.
        if let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) {
            thread::spawn(move || pump(from, to));
        }
    }
}

fn pump(mut from: TcpStream, mut to: TcpStream) {
    let mut chunk = vec![0; 64 * 1024];
    while let Ok(count) = from.read(&mut chunk) {
        if count == 0 || to.write_all(&chunk[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}
