//! Resumable uploads over HTTP/2, with the informational responses that announce them.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use fullbore::{Client, Incoming};
use fullbore_files::{Files, Settings, Uploads};
use http::{HeaderMap, Method, Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;

/// The responses with 104 to a request, in order.
type Told = Arc<Mutex<Vec<HeaderMap>>>;

/// Data in pieces of 10,000 bytes, and then the end, or nothing more.
struct Content {
    rest: Bytes,
    stalls: bool,
}

impl Body for Content {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let length = self.rest.len().min(10_000);
        let piece = self.rest.split_to(length);
        match (piece.is_empty(), self.stalls) {
            (true, true) => Poll::Pending,
            (true, false) => Poll::Ready(None),
            (false, _) => Poll::Ready(Some(Ok(Frame::data(piece)))),
        }
    }
}

struct Served {
    origin: String,
    client: Client,
}

impl Served {
    async fn start(root: &Path) -> Served {
        let mut settings = Settings::default();
        settings.uploads = Uploads::Directory(root.to_owned());
        settings.min_free_bytes = Some(0);
        let server = fullbore::Server::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", server.local_addr().unwrap());
        tokio::spawn(server.serve(Files::open_with_ranges(root, settings).unwrap()));
        let client = Client::new();
        Served { origin, client }
    }

    fn send(
        &self,
        method: Method,
        path: &str,
        fields: &[(&str, &str)],
        content: Content,
    ) -> (Told, tokio::task::JoinHandle<Response<Incoming>>) {
        let told = Told::default();
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.origin));
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let mut request = request.body(content).unwrap();
        let to = Arc::clone(&told);
        fullbore::client::on_informational(&mut request, move |response| {
            assert_eq!(response.status(), 104);
            to.lock().unwrap().push(response.headers().clone());
        });
        let client = self.client.clone();
        let response = tokio::spawn(async move { client.request(request).await.unwrap() });
        (told, response)
    }

    async fn offset(&self, resource: &str) -> usize {
        let (_, told) = self.send(Method::HEAD, resource, &[], whole(&[]));
        let told = told.await.unwrap();
        assert_eq!(told.status(), 204);
        field(told.headers(), "upload-offset").parse().unwrap()
    }
}

fn whole(data: &[u8]) -> Content {
    Content {
        rest: Bytes::copy_from_slice(data),
        stalls: false,
    }
}

fn field<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).map_or("", |value| value.to_str().unwrap())
}

/// The upload resource that a response with 104 names.
async fn resource(told: &Told) -> String {
    loop {
        if let Some(headers) = told.lock().unwrap().first() {
            return field(headers, "location").strip_prefix('.').unwrap().to_owned();
        }
        tokio::task::yield_now().await;
    }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8).collect()
}

const LAST: (&str, &str) = ("upload-complete", "?1");
const PARTIAL: (&str, &str) = ("content-type", "application/partial-upload");

#[tokio::test]
async fn an_upload_that_breaks_off_is_continued_where_it_broke_off() {
    let root = tempfile::tempdir().unwrap();
    let served = Served::start(root.path()).await;
    let data = pattern(1_000_000);
    let content = Content {
        rest: Bytes::copy_from_slice(&data[..300_000]),
        stalls: true,
    };
    let fields = [
        LAST,
        ("upload-length", "1000000"),
        ("upload-draft-interop-version", "6"),
    ];
    let (told, request) = served.send(Method::PUT, "/a", &fields, content);
    let resource = resource(&told).await;
    let first = told.lock().unwrap()[0].clone();
    assert!(resource.starts_with("/a?upload-resource="), "{resource}");
    assert_eq!(field(&first, "upload-draft-interop-version"), "6");
    assert!(field(&first, "upload-limit").starts_with("max-size=17179869184, max-age=86"));
    // The stream is reset, or not even that: the next request ends the one before it.
    request.abort();
    let mut offset = served.offset(&resource).await;
    let mut rounds = 0;
    while offset < data.len() {
        rounds += 1;
        let cut = (offset + 250_000 * (rounds % 2)).min(data.len());
        let content = Content {
            rest: Bytes::copy_from_slice(&data[offset..if rounds > 3 { data.len() } else { cut }]),
            stalls: rounds <= 3,
        };
        let at = offset.to_string();
        let fields = [LAST, PARTIAL, ("upload-offset", &at)];
        let (_, request) = served.send(Method::PATCH, &resource, &fields, content);
        if rounds > 3 {
            let response = request.await.unwrap();
            assert_eq!(response.status(), 201);
            assert_eq!(field(response.headers(), "upload-complete"), "?1");
            let text = response.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(text, "1000000\n");
            break;
        }
        tokio::task::yield_now().await;
        let now = served.offset(&resource).await;
        assert!((offset..=cut).contains(&now), "{now}");
        offset = now;
    }
    assert!(std::fs::read(root.path().join("a")).unwrap() == data);
    assert_eq!(served.offset(&resource).await, data.len());
}

#[tokio::test]
async fn a_client_is_told_of_the_progress_of_a_long_upload() {
    let root = tempfile::tempdir().unwrap();
    let served = Served::start(root.path()).await;
    let data = pattern(40 << 20);
    let (told, request) = served.send(Method::PUT, "/a", &[LAST], whole(&data));
    let response = request.await.unwrap();
    assert_eq!(response.status(), 201);
    assert_eq!(field(response.headers(), "upload-complete"), "?1");
    let told = told.lock().unwrap().clone();
    let offsets = told[1..].iter().map(|headers| {
        assert!(!headers.contains_key("location"));
        field(headers, "upload-offset").parse().unwrap()
    });
    let offsets: Vec<usize> = offsets.collect();
    assert_eq!(offsets.len(), 2, "{offsets:?}");
    assert!(offsets[0] >= 16 << 20 && offsets[1] >= 32 << 20 && offsets.is_sorted());
    assert!(std::fs::read(root.path().join("a")).unwrap() == data);
}

#[tokio::test]
async fn resumption_is_offered_where_it_is_of_use() {
    let root = tempfile::tempdir().unwrap();
    let served = Served::start(root.path()).await;
    for (number, (fields, length, expected)) in [
        (&[LAST][..], 100_000, true),
        (&[LAST, ("content-length", "65536")], 65_536, true),
        // It is on its way with its head.
        (&[LAST, ("content-length", "65535")], 65_535, false),
        (&[LAST, ("content-length", "1000")], 1_000, false),
        (&[LAST, ("upload-draft-interop-version", "8")], 100_000, true),
        // What came before had other fields.
        (&[LAST, ("upload-draft-interop-version", "5")], 100_000, false),
        (&[("upload-complete", "1")], 100_000, false),
        (&[], 100_000, false),
    ]
    .into_iter()
    .enumerate()
    {
        let data = pattern(length);
        let (told, request) = served.send(Method::PUT, &format!("/{number}"), fields, whole(&data));
        assert_eq!(request.await.unwrap().status(), 201);
        assert_eq!(!told.lock().unwrap().is_empty(), expected, "{fields:?}");
        assert!(std::fs::read(root.path().join(number.to_string())).unwrap() == data);
    }
}
