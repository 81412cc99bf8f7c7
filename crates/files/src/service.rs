//! The service itself: which method goes where.
//!
//! Called by the server for each request; hands over to `files` and `uploads`.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use tokio::runtime::Handle;
use tower_service::Service;

use crate::buffers::Buffers;
use crate::cache::Cache;
use crate::file_body::ServeBody;
use crate::jobs::{Jobs, Peer};
use crate::room::Room;
use crate::source::Descriptors;
use crate::{Settings, Uploads, files, respond, uploads};

/// The future of an answer.
pub struct ServeFuture(Answer);

// The larger variant is the one that nearly every request has, and it is there once.
#[allow(clippy::large_enum_variant)]
enum Answer {
    /// It was found at once; gone when it has been handed out.
    Ready(Option<Response<ServeBody>>),
    Waiting(Pin<Box<dyn Future<Output = Response<ServeBody>> + Send>>),
}

impl Future for ServeFuture {
    type Output = Result<Response<ServeBody>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Answer::Ready(response) => match response.take() {
                Some(response) => Poll::Ready(Ok(response)),
                // Polled again after the end.
                None => Poll::Pending,
            },
            Answer::Waiting(answer) => answer.as_mut().poll(cx).map(Ok),
        }
    }
}

impl fmt::Debug for ServeFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServeFuture").finish_non_exhaustive()
    }
}

/// A file server: GET and HEAD of the files under a root, PUT and POST as the settings have it.
///
/// Clones share all they have. A call needs the context of a tokio runtime.
///
/// ```
/// # use bytes::Bytes;
/// # use fullbore_files::{Files, Settings};
/// # use http_body_util::{BodyExt, Empty};
/// # use tower_service::Service;
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let root = tempfile::tempdir().unwrap();
/// std::fs::write(root.path().join("hello.txt"), "hello").unwrap();
/// let mut files = Files::open(root.path(), Settings::default()).unwrap();
/// let request = http::Request::get("/hello.txt").body(Empty::<Bytes>::new()).unwrap();
/// let response = files.call(request).await.unwrap();
/// assert_eq!(response.headers()["content-type"], "text/plain; charset=utf-8");
/// let body = response.into_body().collect().await.unwrap().to_bytes();
/// assert_eq!(body, "hello");
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct Files {
    shared: Arc<Shared>,
}

/// What all clones share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) root: Arc<Dir>,
    pub(crate) settings: Settings,
    pub(crate) buffers: Arc<Buffers>,
    pub(crate) descriptors: Arc<Descriptors>,
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) cache: Cache,
    pub(crate) sink: Sink,
    pub(crate) room: Arc<Room>,
}

/// Where uploads go.
#[derive(Debug)]
pub(crate) enum Sink {
    Refuse,
    Discard,
    Directory(Arc<Dir>),
}

impl Files {
    /// A server of the files under `root`. It holds on to the directories themselves: moving or replacing them later
    /// changes nothing for it.
    ///
    /// # Errors
    /// The root or the directory for uploads is not there, is no directory, or may not be opened.
    pub fn open(root: &Path, settings: Settings) -> io::Result<Files> {
        let open = |path: &Path| Dir::open_ambient_dir(path, ambient_authority());
        let sink = match &settings.uploads {
            Uploads::Refuse => Sink::Refuse,
            Uploads::Discard => Sink::Discard,
            Uploads::Directory(path) => Sink::Directory(Arc::new(open(path)?)),
        };
        // Together they hold `open_files` at most.
        let for_uploads = match sink {
            Sink::Directory(_) => settings.max_uploads,
            Sink::Refuse | Sink::Discard => 0,
        };
        Ok(Files {
            shared: Arc::new(Shared {
                root: Arc::new(open(root)?),
                buffers: Buffers::new(settings.chunks(), settings.idle_chunks),
                descriptors: Descriptors::new(settings.open_files.saturating_sub(for_uploads)),
                jobs: Jobs::new(settings.jobs_per_peer),
                cache: Cache::new(settings.cache_bytes, settings.cache_after),
                room: Room::new(&settings),
                settings,
                sink,
            }),
        })
    }
}

#[cfg(test)]
impl Files {
    /// What the clones share, for tests that count it.
    pub(crate) fn shared_for_tests(&self) -> &Shared {
        &self.shared
    }
}

impl Shared {
    fn allow(&self) -> &'static str {
        match self.sink {
            Sink::Refuse => "GET, HEAD, OPTIONS",
            Sink::Discard | Sink::Directory(_) => "GET, HEAD, OPTIONS, POST, PUT",
        }
    }
}

impl<B> Service<Request<B>> for Files
where
    B: Body<Data = Bytes> + Send + 'static,
{
    type Response = Response<ServeBody>;
    type Error = Infallible;
    type Future = ServeFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> ServeFuture {
        let method = request.method().clone();
        if matches!(method, Method::GET | Method::HEAD) && request.body().is_end_stream() {
            let (head, _) = request.into_parts();
            let peer = Peer::of(&head.extensions);
            if let Some(response) = files::answer_at_once(&self.shared, &head, peer) {
                return ServeFuture(Answer::Ready(Some(respond::finish(&method, response))));
            }
            let shared = Arc::clone(&self.shared);
            return ServeFuture(Answer::Waiting(Box::pin(async move {
                respond::finish(&method, read_file(shared, head, peer).await)
            })));
        }
        let shared = Arc::clone(&self.shared);
        let peer = Peer::of(request.extensions());
        ServeFuture(Answer::Waiting(Box::pin(async move {
            respond::finish(&method, answer(shared, request, peer).await)
        })))
    }
}

async fn read_file(shared: Arc<Shared>, head: Parts, peer: Option<Peer>) -> Response<ServeBody> {
    let jobs = Arc::clone(&shared.jobs);
    let work = move || files::answer(&shared, &head, peer);
    let answered = jobs.begin(&Handle::current(), peer, work).await;
    answered.unwrap_or_else(|_| respond::status(StatusCode::INTERNAL_SERVER_ERROR))
}

async fn answer<B>(shared: Arc<Shared>, request: Request<B>, peer: Option<Peer>) -> Response<ServeBody>
where
    B: Body<Data = Bytes> + Send + 'static,
{
    let allow = shared.allow();
    // The request's body lives until there is an answer, so that its stream is not reset ahead of it.
    let (head, body) = request.into_parts();
    match head.method {
        Method::GET | Method::HEAD => read_file(shared, head, peer).await,
        Method::PUT | Method::POST => match &shared.sink {
            Sink::Refuse => respond::method_not_allowed(allow),
            Sink::Discard => uploads::discard(&shared.settings, &head, body).await,
            Sink::Directory(directory) => {
                uploads::receive(directory, &shared.room, &shared.settings, &head, body).await
            }
        },
        Method::OPTIONS => respond::options(allow),
        _ => respond::method_not_allowed(allow),
    }
}
