//! Informational responses (1xx, RFC 9110 section 15.2) for the caller of a client.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use http::{Request, Response};

/// Calls `callback` with each informational response (1xx) to a request, such as 103 (Early Hints). Without a callback they
/// are dropped. A request has one callback: a later call replaces it.
///
/// The callback runs in the connection's task, so it must not block. It is not called for 101, which HTTP/2 forbids.
///
/// ```no_run
/// # async fn run(client: fullbore::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let mut request = http::Request::get("https://example.com/").body(String::new())?;
/// fullbore::client::on_informational(&mut request, |response| println!("{}", response.status()));
/// let response = client.request(request).await?;
/// # Ok(()) }
/// ```
pub fn on_informational<B>(
    request: &mut Request<B>,
    callback: impl Fn(Response<()>) + Send + Sync + 'static,
) {
    request
        .extensions_mut()
        .insert(OnInformational(Arc::new(callback)));
}

/// The callback, in the extensions of a request and in the cell of its stream.
#[derive(Clone)]
pub(crate) struct OnInformational(Arc<dyn Fn(Response<()>) + Send + Sync>);

impl OnInformational {
    /// The callback of a request, if it has one.
    pub(crate) fn of(request: &Request<()>) -> Option<Box<Self>> {
        request.extensions().get::<Self>().cloned().map(Box::new)
    }

    /// Calls the callback. A panic concerns no other stream of the connection, so it ends here.
    pub(crate) fn call(&self, response: Response<()>) {
        let _ = std::panic::catch_unwind(AssertUnwindSafe(|| (self.0)(response)));
    }
}

impl fmt::Debug for OnInformational {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnInformational")
    }
}
