//! A TCP relay that makes the path to a server long, and counts connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// Octets arrive this much later, in each direction.
const DELAY: Duration = Duration::from_millis(20);

/// A long path of 40 ms there and back.
pub(crate) struct Relay {
    address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    _task: JoinSet<()>,
}

impl Relay {
    /// To a server, for as many connections as come.
    pub(crate) async fn to(server: SocketAddr) -> Relay {
        Self::for_the_first(usize::MAX, server).await
    }

    /// To a server for the first `count` connections; those after them are closed at once.
    pub(crate) async fn for_the_first(count: usize, server: SocketAddr) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepted = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&accepted);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut relays = JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.unwrap();
                if counter.fetch_add(1, Ordering::SeqCst) < count {
                    relays.spawn(join_up(client, server));
                }
            }
        });
        Relay {
            address,
            accepted,
            _task: task,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// How many connections came.
    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

async fn join_up(client: TcpStream, server: SocketAddr) {
    let server = TcpStream::connect(server).await.unwrap();
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let (client_in, client_out) = client.into_split();
    let (server_in, server_out) = server.into_split();
    tokio::join!(carry(client_in, server_out), carry(server_in, client_out));
}

/// Carries octets, each after the delay.
async fn carry(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let read = async move {
        let mut chunk = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from.read(&mut chunk).await {
            let _ = sender.send((Instant::now() + DELAY, chunk[..count].to_vec()));
        }
    };
    let write = async move {
        while let Some((due, chunk)) = receiver.recv().await {
            sleep_until(due).await;
            if to.write_all(&chunk).await.is_err() {
                return;
            }
        }
        let _ = to.shutdown().await;
    };
    tokio::join!(read, write);
}
