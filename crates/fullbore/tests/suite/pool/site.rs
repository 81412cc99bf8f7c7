//! A server that counts what reaches it, holds its answers back when told to, and may retire its connections.

use std::collections::HashMap;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::Request;
use fullbore::Config;
use fullbore::server::serve_connection;
use http_body_util::BodyExt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;

/// What a server of this file is like.
#[derive(Clone)]
pub(crate) struct Plan {
    /// SETTINGS_MAX_CONCURRENT_STREAMS.
    pub(crate) streams: u32,
    /// After how many requests a connection is ended gracefully.
    pub(crate) retire_after: Option<usize>,
    /// Whether each answer waits for [`Site::answer`].
    pub(crate) held: bool,
    /// How long answers are, in bytes.
    pub(crate) answer_bytes: usize,
}

impl Plan {
    pub(crate) fn streams(streams: u32) -> Self {
        Plan {
            streams,
            retire_after: None,
            held: false,
            answer_bytes: 1_000,
        }
    }
}

/// A server on a port of its own; it ends when dropped.
pub(crate) struct Site {
    address: SocketAddr,
    book: Arc<Book>,
    _task: JoinSet<()>,
}

struct Book {
    plan: Plan,
    permits: Semaphore,
    /// Requests by connection.
    requests: Mutex<HashMap<usize, usize>>,
    connections: AtomicUsize,
    /// Requests that are being answered, and the most at once.
    busy: AtomicUsize,
    most_busy: AtomicUsize,
}

impl Site {
    pub(crate) async fn start(plan: Plan) -> Site {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let book = Arc::new(Book {
            permits: Semaphore::new(if plan.held { 0 } else { Semaphore::MAX_PERMITS }),
            plan,
            requests: Mutex::default(),
            connections: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            most_busy: AtomicUsize::new(0),
        });
        let mut task = JoinSet::new();
        task.spawn(accept(listener, Arc::clone(&book)));
        Site {
            address,
            book,
            _task: task,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// A way in for other transports than TCP.
    pub(crate) fn door(&self) -> Door {
        Door(Arc::clone(&self.book))
    }

    /// Lets so many answers go.
    pub(crate) fn answer(&self, count: usize) {
        self.book.permits.add_permits(count);
    }

    /// Answers wait from now on.
    pub(crate) fn hold(&self) {
        self.book.permits.forget_permits(Semaphore::MAX_PERMITS);
    }

    /// Connections that were accepted.
    pub(crate) fn connections(&self) -> usize {
        self.book.connections.load(Ordering::SeqCst)
    }

    /// Connections on which requests came.
    pub(crate) fn used_connections(&self) -> usize {
        self.book.requests().len()
    }

    pub(crate) fn requests(&self) -> usize {
        self.book.requests().values().sum()
    }

    /// Requests that are being answered.
    pub(crate) fn busy(&self) -> usize {
        self.book.busy.load(Ordering::SeqCst)
    }

    pub(crate) fn most_busy(&self) -> usize {
        self.book.most_busy.load(Ordering::SeqCst)
    }
}

impl Book {
    fn requests(&self) -> std::sync::MutexGuard<'_, HashMap<usize, usize>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn accept(listener: TcpListener, book: Arc<Book>) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        connections.spawn(Door(Arc::clone(&book)).serve(stream));
    }
}

/// Where connections come in.
#[derive(Clone)]
pub(crate) struct Door(Arc<Book>);

impl Door {
    /// Serves one connection.
    pub(crate) fn serve<T>(&self, io: T) -> impl Future<Output = ()> + Send + use<T>
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let number = self.0.connections.fetch_add(1, Ordering::SeqCst);
        serve(io, number, Arc::clone(&self.0))
    }
}

/// Serves one connection, on this server's terms.
pub(crate) async fn serve_plainly(stream: TcpStream) {
    let app = Router::new().fallback(|| async { "plain" });
    let _ = serve_connection(stream, app, Config::default()).await;
}

async fn serve<T>(stream: T, number: usize, book: Arc<Book>)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut config = Config::default();
    config.set_max_concurrent_streams(book.plan.streams);
    let retire = Arc::new(Notify::new());
    let (own, other) = (Arc::clone(&retire), Arc::clone(&book));
    let app = Router::new().fallback(move |request: Request| answer(request, number, other, own));
    let mut connection = pin!(serve_connection(stream, app, config));
    tokio::select! {
        _ = &mut connection => return,
        () = retire.notified() => {}
    }
    connection.graceful_shutdown();
    let _ = connection.await;
}

async fn answer(request: Request, number: usize, book: Arc<Book>, retire: Arc<Notify>) -> Bytes {
    let count = {
        let mut requests = book.requests();
        let count = requests.entry(number).or_default();
        *count += 1;
        *count
    };
    let busy = Busy::begin(&book);
    if book.plan.retire_after.is_some_and(|after| count >= after) {
        retire.notify_one();
    }
    let body = request.into_body().collect().await;
    let length = match body.map(|body| body.to_bytes().len()) {
        Ok(0) => book.plan.answer_bytes,
        Ok(length) => length,
        Err(_) => 0,
    };
    book.permits.acquire().await.unwrap().forget();
    drop(busy);
    Bytes::from(vec![b'x'; length])
}

/// Counts a request while it is being answered, however that ends.
struct Busy<'a>(&'a Book);

impl<'a> Busy<'a> {
    fn begin(book: &'a Book) -> Self {
        let busy = book.busy.fetch_add(1, Ordering::SeqCst) + 1;
        book.most_busy.fetch_max(busy, Ordering::SeqCst);
        Busy(book)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::SeqCst);
    }
}
