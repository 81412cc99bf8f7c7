//! A middleware of `reqwest-middleware` that sends requests through fullbore. Put it last: `reqwest` itself then sends
//! nothing, and its settings (proxies, redirects, cookies) have no effect. The timeout of a request has.

use fullbore::Client;
use http::{Extensions, Response};
use reqwest::{Body, Request, ResponseBuilderExt};
use reqwest_middleware::{Error, Middleware, Next, Result};

/// Sends each request that reaches it.
///
/// ```
/// # fn main() -> Result<(), fullbore::Error> {
/// use fullbore_recipes::reqwest_middleware::Fullbore;
///
/// let client = reqwest_middleware::ClientBuilder::new(reqwest::Client::new())
///     .with(Fullbore(fullbore::Client::new()))
///     .build();
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Fullbore(pub Client);

#[async_trait::async_trait]
impl Middleware for Fullbore {
    async fn handle(&self, request: Request, _: &mut Extensions, _: Next<'_>) -> Result<reqwest::Response> {
        let (url, limit) = (request.url().clone(), request.timeout().copied());
        let request: http::Request<Body> = request.try_into()?;
        let sent = self.0.request(request);
        let response = match limit {
            None => sent.await.map_err(Error::middleware)?,
            Some(limit) => tokio::time::timeout(limit, sent)
                .await
                .map_err(Error::middleware)?
                .map_err(Error::middleware)?,
        };
        // reqwest keeps the URL of a response among its extensions.
        let with_url = Response::builder().url(url).body(()).map_err(Error::middleware)?;
        let (mut parts, body) = response.into_parts();
        parts.extensions.extend(with_url.into_parts().0.extensions);
        Ok(Response::from_parts(parts, Body::wrap(body)).into())
    }
}
