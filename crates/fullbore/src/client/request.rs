//! Requests that are put together step by step.

use std::fmt::{self, Display};
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Version, header};

use super::pool::Client;
use super::request_body::Body;
use super::response::Response;
use super::send::{Limits, send};
use super::url::{Credentials, IntoUrl, Sealed, base64, split_credentials};
use crate::error::{Error, ErrorKind, shown};
use crate::settings::HttpVersions;

/// A request that is put together step by step, from [`Client::get`] and its like.
///
/// It is sent by [`send`](Self::send), or when it is awaited. What is wrong with a step (a URL, a name or value of a
/// field, a body that cannot be written as JSON) is an error of `send`: the first one ([`Error::is_builder`]).
///
/// Redirects, cookies and content codings, which are features of the crate, apply to these requests. A request of
/// [`Client::request`] is sent as it is.
///
/// ```no_run
/// # async fn run() -> Result<(), fullbore::Error> {
/// use std::time::Duration;
///
/// let client = fullbore::Client::new();
/// let response = client
///     .put("https://example.com/notes/1")
///     .header("content-type", "text/plain")
///     .bearer_auth("token")
///     .body("content")
///     .timeout(Duration::from_secs(10))
///     .send()
///     .await?;
/// println!("{}", response.error_for_status()?.text().await?);
/// # Ok(()) }
/// ```
#[must_use = "a request is sent by `send`, or when it is awaited"]
pub struct RequestBuilder {
    client: Client,
    request: Result<Request<Body>, Error>,
    timeout: Option<Duration>,
    version: Option<HttpVersions>,
    #[cfg(feature = "redirect")]
    max_redirects: Option<u32>,
}

/// Requests that are put together step by step.
impl Client {
    /// Starts a GET request.
    ///
    /// ```no_run
    /// # async fn run(client: fullbore::Client) -> Result<(), fullbore::Error> {
    /// let text = client.get("https://example.com/").await?.text().await?;
    /// # Ok(()) }
    /// ```
    pub fn get(&self, url: impl IntoUrl) -> RequestBuilder {
        self.request_to(Method::GET, url)
    }

    /// Starts a POST request.
    ///
    /// ```no_run
    /// # async fn run(client: fullbore::Client) -> Result<(), fullbore::Error> {
    /// let response = client.post("https://example.com/").body("content").await?;
    /// # Ok(()) }
    /// ```
    pub fn post(&self, url: impl IntoUrl) -> RequestBuilder {
        self.request_to(Method::POST, url)
    }

    /// Starts a PUT request.
    pub fn put(&self, url: impl IntoUrl) -> RequestBuilder {
        self.request_to(Method::PUT, url)
    }

    /// Starts a PATCH request.
    pub fn patch(&self, url: impl IntoUrl) -> RequestBuilder {
        self.request_to(Method::PATCH, url)
    }

    /// Starts a DELETE request.
    pub fn delete(&self, url: impl IntoUrl) -> RequestBuilder {
        self.request_to(Method::DELETE, url)
    }

    /// Starts a HEAD request.
    pub fn head(&self, url: impl IntoUrl) -> RequestBuilder {
        self.request_to(Method::HEAD, url)
    }

    /// Starts a request with any method.
    pub fn request_to(&self, method: Method, url: impl IntoUrl) -> RequestBuilder {
        let request = Sealed::into_url(url).map(|url| {
            let (url, credentials) = split_credentials(url);
            let mut request = Request::new(Body::default());
            *request.method_mut() = method;
            *request.uri_mut() = url;
            if let Some(Credentials { name, password }) = credentials {
                let authorization = basic(&name, password.as_deref());
                request.headers_mut().insert(header::AUTHORIZATION, authorization);
            }
            request
        });
        RequestBuilder {
            client: self.clone(),
            request,
            timeout: None,
            version: None,
            #[cfg(feature = "redirect")]
            max_redirects: None,
        }
    }
}

impl RequestBuilder {
    /// Adds a field. A name that is given twice is sent twice.
    pub fn header<N, V>(self, name: N, value: V) -> Self
    where
        HeaderName: TryFrom<N, Error: Into<http::Error>>,
        HeaderValue: TryFrom<V, Error: Into<http::Error>>,
    {
        self.change(|request| {
            let name = HeaderName::try_from(name)
                .map_err(|error| invalid_field("the name of a field is invalid", error))?;
            let value = HeaderValue::try_from(value)
                .map_err(|error| invalid_field(format!("the value of the field {name} is invalid"), error))?;
            append(request.headers_mut(), name, value)
        })
    }

    /// Sets fields. They take the place of those with the same names.
    pub fn headers(self, headers: HeaderMap) -> Self {
        self.change(|request| {
            for name in headers.keys() {
                request.headers_mut().remove(name);
            }
            let mut last = None;
            for (name, value) in headers {
                last = name.or(last);
                if let Some(name) = &last {
                    append(request.headers_mut(), name.clone(), value)?;
                }
            }
            Ok(())
        })
    }

    /// Authorizes the request by a name and a password (RFC 7617).
    pub fn basic_auth(self, name: impl Display, password: Option<impl Display>) -> Self {
        self.change(|request| {
            let name = name.to_string();
            if name.contains(':') {
                let text = "a name of Basic authorization has no colon (RFC 7617)";
                return Err(Error::new(ErrorKind::InvalidMessage, text));
            }
            let password = password.map(|password| password.to_string());
            let value = basic(name.as_bytes(), password.as_deref().map(str::as_bytes));
            request.headers_mut().insert(header::AUTHORIZATION, value);
            Ok(())
        })
    }

    /// Authorizes the request by a token (RFC 6750).
    pub fn bearer_auth(self, token: impl Display) -> Self {
        self.change(|request| {
            let mut value = HeaderValue::try_from(format!("Bearer {token}"))
                .map_err(|error| invalid_field("the token has a character that no field may have", error))?;
            value.set_sensitive(true);
            request.headers_mut().insert(header::AUTHORIZATION, value);
            Ok(())
        })
    }

    /// Adds pairs to the query of the URL: a struct, a map or a list of pairs. Feature `form`.
    ///
    /// ```no_run
    /// # async fn run(client: fullbore::Client) -> Result<(), fullbore::Error> {
    /// let response = client.get("https://example.com/?a=b").query(&[("q", "one two")]).await?;
    /// // https://example.com/?a=b&q=one+two
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "form")]
    #[cfg_attr(docsrs, doc(cfg(feature = "form")))]
    pub fn query<T: serde::Serialize + ?Sized>(self, pairs: &T) -> Self {
        self.change(|request| {
            let added = serde_urlencoded::to_string(pairs)
                .map_err(|error| unwritable("the query cannot be written", error))?;
            if added.is_empty() {
                return Ok(());
            }
            let target = match request.uri().path_and_query().map(|target| target.as_str()) {
                None => format!("/?{added}"),
                Some(target) if target.ends_with(['?', '&']) => format!("{target}{added}"),
                Some(target) if target.contains('?') => format!("{target}&{added}"),
                Some(target) => format!("{target}?{added}"),
            };
            let mut parts = request.uri().clone().into_parts();
            let invalid = |error: http::Error| unwritable("the query cannot be sent", error);
            parts.path_and_query = Some(
                target
                    .try_into()
                    .map_err(|error: http::uri::InvalidUri| invalid(error.into()))?,
            );
            *request.uri_mut() = http::Uri::from_parts(parts).map_err(|error| invalid(error.into()))?;
            Ok(())
        })
    }

    /// Sets the body to pairs as an HTML form sends them. Feature `form`.
    #[cfg(feature = "form")]
    #[cfg_attr(docsrs, doc(cfg(feature = "form")))]
    pub fn form<T: serde::Serialize + ?Sized>(self, pairs: &T) -> Self {
        self.change(|request| {
            let form = serde_urlencoded::to_string(pairs)
                .map_err(|error| unwritable("the form cannot be written", error))?;
            set_content(request, "application/x-www-form-urlencoded", form);
            Ok(())
        })
    }

    /// Sets the body to a value as JSON. Feature `json`.
    ///
    /// ```no_run
    /// # async fn run(client: fullbore::Client) -> Result<(), fullbore::Error> {
    /// use std::collections::HashMap;
    ///
    /// let body = HashMap::from([("name", "value")]);
    /// let made: HashMap<String, u64> = client.post("https://example.com/").json(&body).await?.json().await?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "json")]
    #[cfg_attr(docsrs, doc(cfg(feature = "json")))]
    pub fn json<T: serde::Serialize + ?Sized>(self, value: &T) -> Self {
        self.change(|request| {
            let json = serde_json::to_vec(value)
                .map_err(|error| unwritable("the value cannot be written as JSON", error))?;
            set_content(request, "application/json", json);
            Ok(())
        })
    }

    /// Sets the body to a form with files. Feature `multipart`.
    #[cfg(feature = "multipart")]
    #[cfg_attr(docsrs, doc(cfg(feature = "multipart")))]
    pub fn multipart(self, form: super::multipart::Form) -> Self {
        self.change(|request| {
            let (kind, body) = form.finish()?;
            // Always of this form: the boundary is in it.
            request.headers_mut().insert(header::CONTENT_TYPE, kind);
            *request.body_mut() = body;
            Ok(())
        })
    }

    /// Adds an extension, such as [`SentBytes`](super::SentBytes) or a callback for 1xx responses. A redirected request has it
    /// too.
    ///
    /// ```no_run
    /// # async fn run(client: fullbore::Client) -> Result<(), fullbore::Error> {
    /// let sent = fullbore::client::SentBytes::new();
    /// client.put("https://example.com/a").body("content").extension(sent.clone()).await?;
    /// println!("{} bytes", sent.get());
    /// # Ok(()) }
    /// ```
    pub fn extension<T: Clone + Send + Sync + 'static>(self, value: T) -> Self {
        self.change(|request| {
            request.extensions_mut().insert(value);
            Ok(())
        })
    }

    /// Sets the body. The last one that is set is sent.
    pub fn body(self, body: impl Into<Body>) -> Self {
        self.change(|request| {
            *request.body_mut() = body.into();
            Ok(())
        })
    }

    /// Limits the time until the end of the response's body, in place of
    /// [`ClientBuilder::timeout`](super::ClientBuilder::timeout) and
    /// [`ClientBuilder::request_timeout`](super::ClientBuilder::request_timeout).
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sends the request in HTTP/1.1 or HTTP/2 alone, in place of
    /// [`ClientBuilder::http_versions`](super::ClientBuilder::http_versions). Such requests have connections of their own. A server
    /// that does not speak the version is an error ([`ErrorKind::NotHttp2`](crate::ErrorKind::NotHttp2) for HTTP/2).
    pub fn version(mut self, version: Version) -> Self {
        self.version = match version {
            Version::HTTP_11 => Some(HttpVersions::Http1),
            Version::HTTP_2 => Some(HttpVersions::Http2),
            _ => {
                return self.change(|_| {
                    let text = format!("{version:?} is not spoken; use HTTP_11 or HTTP_2");
                    Err(Error::new(ErrorKind::InvalidMessage, text))
                });
            }
        };
        self
    }

    /// Limits the redirects that this request follows, in place of
    /// [`ClientBuilder::max_redirects`](super::ClientBuilder::max_redirects). 0 follows none. Feature `redirect`.
    #[cfg(feature = "redirect")]
    #[cfg_attr(docsrs, doc(cfg(feature = "redirect")))]
    pub fn max_redirects(mut self, redirects: u32) -> Self {
        self.max_redirects = Some(redirects);
        self
    }

    /// The request, for [`Client::request`], which sends it as it is. Its limits and its version are lost.
    ///
    /// # Errors
    /// The first wrong step ([`Error::is_builder`]).
    pub fn build(self) -> Result<Request<Body>, Error> {
        self.request
    }

    /// A copy, unless the body is a stream.
    pub fn try_clone(&self) -> Option<Self> {
        let request = match &self.request {
            Ok(request) => {
                let mut copy = Request::new(request.body().try_clone()?);
                *copy.method_mut() = request.method().clone();
                *copy.uri_mut() = request.uri().clone();
                *copy.headers_mut() = request.headers().clone();
                *copy.extensions_mut() = request.extensions().clone();
                Ok(copy)
            }
            Err(error) => Err(error.clone()),
        };
        Some(RequestBuilder {
            client: self.client.clone(),
            request,
            timeout: self.timeout,
            version: self.version,
            #[cfg(feature = "redirect")]
            max_redirects: self.max_redirects,
        })
    }

    /// Sends the request, and waits for the head of the response. Dropping the future cancels the request. Call it within
    /// a tokio runtime.
    ///
    /// # Errors
    /// The first wrong step ([`Error::is_builder`]), and the errors of [`Client::request`]. An error status is no error
    /// ([`Response::error_for_status`]).
    pub async fn send(self) -> Result<Response, Error> {
        let client = match self.version {
            Some(version) => self.client.speaking(version).clone(),
            None => self.client,
        };
        let limits = Limits {
            time: self.timeout,
            #[cfg(feature = "redirect")]
            redirects: self.max_redirects,
        };
        send(client, self.request?, limits).await
    }

    /// Takes a step, unless an earlier one was wrong.
    fn change(mut self, step: impl FnOnce(&mut Request<Body>) -> Result<(), Error>) -> Self {
        if let Ok(request) = &mut self.request {
            if let Err(error) = step(request) {
                self.request = Err(error.of_request(request.uri()));
            }
        }
        self
    }
}

impl IntoFuture for RequestBuilder {
    type Output = Result<Response, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

impl fmt::Debug for RequestBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.request {
            Ok(request) => f
                .debug_struct("RequestBuilder")
                .field("method", request.method())
                .field("url", &shown(&request.uri().to_string()))
                .finish_non_exhaustive(),
            Err(error) => f.debug_tuple("RequestBuilder").field(error).finish(),
        }
    }
}

/// Adds a field. A `HeaderMap` holds some 30,000 at most.
fn append(headers: &mut HeaderMap, name: HeaderName, value: HeaderValue) -> Result<(), Error> {
    match headers.try_append(name, value) {
        Ok(_) => Ok(()),
        Err(error) => Err(invalid_field("it has more fields than a message can have", error)),
    }
}

/// Sets a body, and its type unless the request has one.
#[cfg(any(feature = "form", feature = "json"))]
fn set_content(request: &mut Request<Body>, kind: &'static str, body: impl Into<Body>) {
    let kind = HeaderValue::from_static(kind);
    request.headers_mut().entry(header::CONTENT_TYPE).or_insert(kind);
    *request.body_mut() = body.into();
}

fn basic(name: &[u8], password: Option<&[u8]>) -> HeaderValue {
    let credentials = base64(&[name, b":", password.unwrap_or_default()].concat());
    let mut value = HeaderValue::try_from(format!("Basic {credentials}"))
        .unwrap_or_else(|_| HeaderValue::from_static("Basic"));
    value.set_sensitive(true);
    value
}

fn invalid_field(text: impl Into<String>, error: impl Into<http::Error>) -> Error {
    Error::with_source(ErrorKind::InvalidMessage, text, error.into())
}

#[cfg(any(feature = "form", feature = "json"))]
fn unwritable(what: &str, error: impl Into<crate::error::BoxError>) -> Error {
    Error::with_source(ErrorKind::InvalidMessage, what, error)
}
