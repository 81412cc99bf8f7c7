//! The server of the demo: it sends the pattern, and checks uploads.
//!
//! `GET /pattern/BYTES`, `GET /small/INDEX` and `PUT /check`; anything else is 404.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use fullbore::Incoming;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Either, Full};
use tower_service::Service;

use super::pattern::{Check, PatternBody};

/// The size of a small response.
pub(super) const SMALL_BYTES: u64 = 1_024;
/// The largest response.
const MOST_BYTES: u64 = 1 << 40;

type DemoBody = Either<PatternBody, Full<Bytes>>;

/// The service, which has no state.
#[derive(Clone, Copy)]
pub(super) struct DemoService;

impl Service<Request<Incoming>> for DemoService {
    type Response = Response<DemoBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        Box::pin(async { Ok(answer(request).await) })
    }
}

async fn answer(request: Request<Incoming>) -> Response<DemoBody> {
    let mut segments = request.uri().path().split('/').skip(1);
    let first = segments.next().unwrap_or_default();
    let number = segments.next().and_then(|text| text.parse::<u64>().ok());
    match (request.method(), first, number) {
        (&Method::GET, "pattern", Some(bytes)) if bytes <= MOST_BYTES => send(0, bytes),
        (&Method::GET, "small", Some(index)) if index <= MOST_BYTES => send(index * SMALL_BYTES, SMALL_BYTES),
        (&Method::PUT, "check", None) => check(request.into_body()).await,
        _ => {
            let mut response = say("not found".to_owned());
            *response.status_mut() = StatusCode::NOT_FOUND;
            response
        }
    }
}

fn send(position: u64, bytes: u64) -> Response<DemoBody> {
    Response::new(Either::Left(PatternBody::new(position, bytes)))
}

fn say(text: String) -> Response<DemoBody> {
    Response::new(Either::Right(Full::new(Bytes::from(text))))
}

/// Responds with the count of the bytes if all are correct, and otherwise with the error.
async fn check(mut body: Incoming) -> Response<DemoBody> {
    let mut check = Check::new(0);
    while let Some(frame) = body.frame().await {
        match frame {
            Err(error) => return say(format!("the upload failed: {error}")),
            Ok(frame) => {
                if let Some(data) = frame.data_ref() {
                    check.update(data);
                }
            }
        }
    }
    say(match check.result() {
        Ok(count) => count.to_string(),
        Err(wrong) => format!("the byte at {wrong} is wrong"),
    })
}
