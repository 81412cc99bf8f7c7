//! The service: dispatches each request by its method to `files`, `uploads` or `form`.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use fullbore::body::Chunk;
use http::request::Parts;
use http::uri::Scheme;
use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use tokio::runtime::Handle;
use tower_service::Service;

use crate::file_body::{FileResponse, ServeBody};
use crate::folders::Folders;
use crate::head::Head;
use crate::peer::Peer;
use crate::refusal::Refusal;
use crate::settings::Settings;
#[cfg(test)]
use crate::shared::Shared;
use crate::shared::{FolderError, UploadTarget};
use crate::uploads::Store;
use crate::{digest, files, form, respond, resumable, upload_reference, uploads};

/// The future of [`Files`].
pub struct ServeFuture<D = Bytes> {
    answer: Answer,
    data: PhantomData<fn() -> D>,
}

enum Answer {
    /// The response was available at once; `None` once it has been returned.
    Ready(Option<FileResponse>),
    Waiting(Pin<Box<dyn Future<Output = FileResponse> + Send>>),
}

impl<D> Future for ServeFuture<D> {
    type Output = Result<Response<ServeBody<D>>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let response = match &mut self.answer {
            Answer::Ready(response) => match response.take() {
                Some(response) => response,
                // Polled again after it was ready.
                None => return Poll::Pending,
            },
            Answer::Waiting(answer) => std::task::ready!(answer.as_mut().poll(cx)),
        };
        Poll::Ready(Ok(response.map(ServeBody::new)))
    }
}

impl<D> fmt::Debug for ServeFuture<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServeFuture").finish_non_exhaustive()
    }
}

/// A file server: GET and HEAD of the files under a root, PUT and POST as the settings say.
///
/// Clones share everything. A call needs the context of a tokio runtime. `D` is the data of response bodies: [`Bytes`]
/// for any server, [`Chunk`] for [`fullbore::Server`].
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
#[derive(Debug)]
pub struct Files<D = Bytes> {
    folders: Arc<Folders>,
    data: PhantomData<fn() -> D>,
}

impl<D> Clone for Files<D> {
    fn clone(&self) -> Self {
        Files {
            folders: Arc::clone(&self.folders),
            data: PhantomData,
        }
    }
}

impl Files {
    /// A server of the files under `root`, with bodies for any HTTP server. When a path comes to name another folder,
    /// because a link was changed or the folder was made again, requests get that one a second later at most (Unix).
    ///
    /// # Errors
    /// [`FolderError`]: the root or the folder for uploads cannot be opened.
    pub fn open(root: impl AsRef<Path>, settings: Settings) -> Result<Files, FolderError> {
        Files::with(root.as_ref(), settings, false)
    }
}

impl Files<Chunk> {
    /// As [`Files::open`], with bodies for [`fullbore::Server`]: they hand over ranges of up to
    /// 256 KiB ([`fullbore::body::FileRange`]) that the system has in memory (Linux), and bytes otherwise.
    ///
    /// # Errors
    /// [`FolderError`]: the root or the folder for uploads cannot be opened.
    pub fn open_with_ranges(root: impl AsRef<Path>, settings: Settings) -> Result<Self, FolderError> {
        Files::with(root.as_ref(), settings, true)
    }
}

impl<D> Files<D> {
    fn with(root: &Path, settings: Settings, hands_over_ranges: bool) -> Result<Self, FolderError> {
        Ok(Files {
            folders: Folders::open(root.to_owned(), settings, hands_over_ranges)?,
            data: PhantomData,
        })
    }

    /// The shared state, for tests that read its counters.
    #[cfg(test)]
    pub(crate) fn shared_for_tests(&self) -> &Shared {
        &self.folders.first
    }
}

impl<B, D> Service<Request<B>> for Files<D>
where
    B: Body<Data = Bytes> + Send + 'static,
{
    type Response = Response<ServeBody<D>>;
    type Error = Infallible;
    type Future = ServeFuture<D>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    #[inline]
    fn call(&mut self, request: Request<B>) -> ServeFuture<D> {
        ServeFuture {
            answer: begin(&self.folders, request),
            data: PhantomData,
        }
    }
}

fn begin<B>(folders: &Arc<Folders>, request: Request<B>) -> Answer
where
    B: Body<Data = Bytes> + Send + 'static,
{
    if is_foreign(request.uri()) {
        let line = "this server answers for http and https only";
        return Answer::Ready(Some(respond::text(StatusCode::MISDIRECTED_REQUEST, line)));
    }
    let peer = Peer::of(request.extensions());
    let reads = matches!(*request.method(), Method::GET | Method::HEAD) && request.body().is_end_stream();
    if reads && upload_reference::token(request.uri()).is_none() {
        if digest::is_wanted(request.method(), request.headers()) && folders.current().takes_uploads() {
            let (head, _) = request.into_parts();
            let folders = Arc::clone(folders);
            return Answer::Waiting(Box::pin(async move {
                respond::finish(&Method::HEAD, read_with_digest(folders, head, peer).await)
            }));
        }
        let answered = files::answer_nonblocking(&folders.current(), Head::from(&request), peer);
        if let Some(response) = answered {
            return Answer::Ready(Some(respond::finish(request.method(), response)));
        }
        let (head, _) = request.into_parts();
        let method = head.method.clone();
        let folders = Arc::clone(folders);
        return Answer::Waiting(Box::pin(async move {
            respond::finish(&method, read_file(folders, head, peer).await)
        }));
    }
    let method = request.method().clone();
    let folders = Arc::clone(folders);
    Answer::Waiting(Box::pin(async move {
        respond::finish(&method, answer(folders, request, peer).await)
    }))
}

/// Whether a target is of another scheme, such as `ftp://host/path` of a client that takes this server for a proxy (RFC 9110
/// section 7.4).
fn is_foreign(uri: &http::Uri) -> bool {
    uri.scheme()
        .is_some_and(|scheme| *scheme != Scheme::HTTP && *scheme != Scheme::HTTPS)
}

async fn read_file(folders: Arc<Folders>, head: Parts, peer: Option<Peer>) -> FileResponse {
    let jobs = Arc::clone(&folders.current().jobs);
    let work = move || files::answer(&folders.find(), Head::from(&head), peer);
    let answered = jobs.begin(&Handle::current(), peer, work).await;
    answered.unwrap_or_else(|_| respond::status(StatusCode::INTERNAL_SERVER_ERROR))
}

/// Answers HEAD with a digest of the file.
async fn read_with_digest(folders: Arc<Folders>, head: Parts, peer: Option<Peer>) -> FileResponse {
    let uri = head.uri.clone();
    let response = read_file(Arc::clone(&folders), head, peer).await;
    let shared = Arc::clone(&folders.current());
    digest::add((&shared.root, &shared.digests), &uri, peer, response).await
}

async fn answer<B>(folders: Arc<Folders>, request: Request<B>, peer: Option<Peer>) -> FileResponse
where
    B: Body<Data = Bytes> + Send + 'static,
{
    let shared = folders.find_in_job().await;
    let allow = shared.allow();
    // The request's body lives until there is a response: dropping it earlier would reset the stream.
    let (head, body) = request.into_parts();
    let means = match &shared.uploads {
        UploadTarget::Directory(folder, unfinished) => Some(resumable::Means {
            store: Store {
                folder,
                limits: &shared.upload_limits,
                cache: &shared.cache,
                settings: &shared.settings,
                pages: &shared.pages,
            },
            unfinished,
            peer,
        }),
        _ => None,
    };
    if let Some((means, token)) = means.zip(upload_reference::token(&head.uri)) {
        return resumable::answer(means, &head, token, body).await;
    }
    match head.method {
        Method::GET | Method::HEAD => read_file(folders, head, peer).await,
        Method::PUT | Method::POST => match (&shared.uploads, means) {
            (UploadTarget::Discard, _) => uploads::discard(&shared.settings, &head, body).await,
            (_, Some(means)) => {
                let asked = resumable::Asked::of(&head.headers);
                if form::is_form(&head) {
                    return match asked.is_some_and(|asked| !asked.is_last) {
                        true => resumable::form_in_parts(),
                        false => form::store(means.store, &head, peer, body).await,
                    };
                }
                if let Some(asked) = asked {
                    return resumable::create(means, &head, asked, body).await;
                }
                let stored = uploads::store(means.store, &head, peer, body).await;
                stored.unwrap_or_else(Refusal::into_response)
            }
            (_, None) => respond::method_not_allowed(allow),
        },
        Method::OPTIONS => match means {
            Some(_) => resumable::offered(respond::options(allow), shared.settings.max_upload_bytes),
            None => respond::options(allow),
        },
        _ => respond::method_not_allowed(allow),
    }
}
