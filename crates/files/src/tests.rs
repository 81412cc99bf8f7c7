//! Behaviour of the whole service: requests and their responses. The rules of each module are tested beside them.

mod archives;
mod cache;
mod digests;
mod encodings;
mod files;
#[cfg(unix)]
mod folders;
mod forms;
#[cfg(target_os = "linux")]
mod jobs;
mod listing;
mod log;
mod missing;
mod ranges;
mod reserved;
mod resumable;
mod scarce;
mod sublists;
mod traversal;
mod unfinished;
mod unfinished_limits;
mod upload_limits;
mod uploads;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, Empty};
use tempfile::TempDir;
use tower_service::Service;

use crate::settings::Limits;
use crate::{Files, ServeBody, Settings, Uploads};

/// A root of its own, and a service over it.
struct Site<D = Bytes> {
    // Removes the directory when dropped.
    _home: TempDir,
    outside: PathBuf,
    root: PathBuf,
    files: Files<D>,
}

/// The settings of a site that takes uploads, and replaces no file.
fn taking_uploads(root: &Path) -> Settings {
    Settings {
        uploads: Uploads::Directory(root.to_owned()),
        limits: Limits {
            batch_bytes: 100,
            flush_after: Duration::ZERO,
            ..Limits::DEFAULT
        },
        min_free_bytes: Some(0),
        ..Settings::default()
    }
}

/// A response, read to its end.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Site {
    fn new() -> Site {
        Site::with(|_| Settings::default())
    }

    /// A site whose settings may depend on its root.
    fn with(settings: impl FnOnce(&Path) -> Settings) -> Site {
        Site::over(|root| Files::open(root, settings(root)).unwrap())
    }
}

impl<D> Site<D> {
    fn over(open: impl FnOnce(&Path) -> Files<D>) -> Site<D> {
        let home = tempfile::tempdir().unwrap();
        let outside = home.path().to_owned();
        let root = outside.join("root");
        std::fs::create_dir(&root).unwrap();
        let files = open(&root);
        Site {
            _home: home,
            outside,
            root,
            files,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    /// Makes a file so many seconds older than now.
    fn age(&self, name: &str, seconds: u64) {
        let file = File::options().write(true).open(self.path(name)).unwrap();
        let time = SystemTime::now() - Duration::from_secs(seconds);
        file.set_modified(time).unwrap();
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.root).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    async fn call<B>(&self, request: Request<B>) -> Response<ServeBody<D>>
    where
        B: Body<Data = Bytes> + Send + 'static,
    {
        let Ok::<_, Infallible>(response) = self.files.clone().call(request).await;
        response
    }
}

impl Site {
    async fn ask(&self, method: Method, path: &str, fields: &[(&str, &str)]) -> Answer {
        let request = request(method, path, fields, Empty::new());
        Answer::read(self.call(request).await).await
    }

    async fn get(&self, path: &str) -> Answer {
        self.ask(Method::GET, path, &[]).await
    }

    async fn get_with(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        self.ask(Method::GET, path, fields).await
    }
}

impl Answer {
    /// Reads the body, and compares its length with the announced one.
    async fn read<D>(response: Response<ServeBody<D>>) -> Answer
    where
        ServeBody<D>: Body<Error = io::Error>,
    {
        let (head, body) = response.into_parts();
        let hint = body.size_hint().exact();
        let body = body.collect().await.unwrap().to_bytes();
        match hint {
            Some(hint) => assert_eq!(hint, body.len() as u64, "the size hint is exact"),
            None => assert!(!head.headers.contains_key("content-length")),
        }
        Answer {
            status: head.status,
            headers: head.headers,
            body,
        }
    }

    /// A field's text; `""` when it is absent.
    fn field(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |v| v.to_str().unwrap())
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

fn request<B>(method: Method, path: &str, fields: &[(&str, &str)], body: B) -> Request<B> {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(body).unwrap()
}

/// A request body that does what it is told, step by step.
struct Script(VecDeque<Step>);

enum Step {
    Data(Bytes),
    Trailers,
    Fail,
    /// Nothing more comes, and no end.
    Stall,
}

impl Script {
    fn of(steps: impl IntoIterator<Item = Step>) -> Script {
        Script(steps.into_iter().collect())
    }

    fn text(text: &'static str) -> Script {
        Script::of([Step::Data(Bytes::from(text))])
    }
}

impl Body for Script {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.0.pop_front() {
            None => Poll::Ready(None),
            Some(Step::Data(data)) => Poll::Ready(Some(Ok(Frame::data(data)))),
            Some(Step::Trailers) => Poll::Ready(Some(Ok(Frame::trailers(HeaderMap::new())))),
            Some(Step::Fail) => Poll::Ready(Some(Err(io::ErrorKind::ConnectionReset.into()))),
            Some(Step::Stall) => {
                self.0.push_front(Step::Stall);
                Poll::Pending
            }
        }
    }
}

/// Octets that repeat in no chunk's length, so that a misplaced chunk shows.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i % 251) as u8).collect()
}
