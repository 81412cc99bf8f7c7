//! What a server asks of a service.

use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use crate::body::Incoming;
use crate::error::BoxError;
use crate::file::Chunk;

/// A [`tower_service::Service`] that a server can call from several threads: every one that takes `Request<Incoming>`, returns
/// `Response<B>` with any body, can be cloned, and is `Send` with its futures and bodies.
///
/// There is nothing to implement. The name stands for these bounds in the signatures of [`Server`](crate::Server):
///
/// ```
/// # use http::{Request, Response};
/// # use fullbore::Incoming;
/// fn is_served<S: fullbore::server::HttpService>(_: &S) {}
///
/// is_served(&tower::service_fn(|_: Request<Incoming>| async {
///     Ok::<_, std::io::Error>(Response::new("hello".to_owned()))
/// }));
/// ```
pub trait HttpService:
    Service<
        Request<Incoming>,
        Response = Response<<Self as HttpService>::ResponseBody>,
        Error: Into<BoxError>,
        Future: Send,
    > + Clone
    + Send
    + Unpin
    + 'static
{
    /// The body of its responses.
    type ResponseBody: Body<Data: Into<Chunk> + Send, Error: Into<BoxError>> + Send + 'static;
}

impl<S, B> HttpService for S
where
    S: Service<Request<Incoming>, Response = Response<B>, Error: Into<BoxError>, Future: Send>,
    S: Clone + Send + Unpin + 'static,
    B: Body<Data: Into<Chunk> + Send, Error: Into<BoxError>> + Send + 'static,
{
    type ResponseBody = B;
}
