//! A connector of `object_store` whose stores send their requests through fullbore. Uploads in parts and ranges of many
//! objects share a connection.

use ::object_store::ClientOptions;
use ::object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody,
    HttpService,
};
use fullbore::{Client, Error, ErrorKind};
use http_body_util::BodyExt;

/// For `with_http_connector` of a store's builder. The settings of the HTTP client are those of [`Client`]; of the store's
/// `ClientOptions`, nothing is used.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use fullbore_recipes::object_store::Fullbore;
///
/// let store = object_store::http::HttpBuilder::new()
///     .with_url("https://example.com/files")
///     .with_http_connector(Fullbore(fullbore::Client::new()))
///     .build()?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Fullbore(pub Client);

impl HttpConnector for Fullbore {
    fn connect(&self, _: &ClientOptions) -> ::object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait::async_trait]
impl HttpService for Fullbore {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        // Bodies are in memory, so that a request which the server did not process is sent again.
        let response = self.0.request_repeatable(request).await.map_err(error)?;
        Ok(response.map(|body| HttpResponseBody::new(body.map_err(error))))
    }
}

/// The kind decides whether the store repeats the request.
fn error(error: Error) -> HttpError {
    let kind = match error.kind() {
        _ if error.is_connect() => HttpErrorKind::Connect,
        ErrorKind::Timeout => HttpErrorKind::Timeout,
        ErrorKind::Refused => HttpErrorKind::Request,
        ErrorKind::Closed | ErrorKind::Io | ErrorKind::Reset => HttpErrorKind::Interrupted,
        _ => HttpErrorKind::Unknown,
    };
    HttpError::new(kind, error)
}
