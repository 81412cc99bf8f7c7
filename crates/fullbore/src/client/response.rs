//! A response, and its body as bytes, text, JSON or a stream.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use http::{Extensions, HeaderMap, StatusCode, Uri, Version, header};
use http_body::Body;

use crate::body::Incoming;
use crate::error::{Error, ErrorKind};

/// The most that is reserved for a body because its `content-length` promises it.
const MOST_RESERVED: u64 = 1 << 20;

/// The response to a request of a [`RequestBuilder`](super::RequestBuilder).
///
/// Dropping it before the end of its body resets the stream; over HTTP/1.1 it ends the connection.
#[derive(Debug)]
pub struct Response {
    inner: http::Response<Incoming>,
    url: Uri,
}

impl Response {
    pub(super) fn new(inner: http::Response<Incoming>, url: Uri) -> Self {
        Response { inner, url }
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.inner.status()
    }

    /// The version of HTTP.
    pub fn version(&self) -> Version {
        self.inner.version()
    }

    /// The fields.
    pub fn headers(&self) -> &HeaderMap {
        self.inner.headers()
    }

    /// The extensions.
    pub fn extensions(&self) -> &Extensions {
        self.inner.extensions()
    }

    /// The URL that answered: the last one, after redirects. It has no name and password.
    pub fn url(&self) -> &Uri {
        &self.url
    }

    /// The length of the body, if it is known.
    pub fn content_length(&self) -> Option<u64> {
        self.inner.body().size_hint().exact()
    }

    /// The body.
    pub fn body(&self) -> &Incoming {
        self.inner.body()
    }

    /// The body, to be read as a [`http_body::Body`]. Its errors do not name the URL.
    pub fn into_body(self) -> Incoming {
        self.inner.into_body()
    }

    /// The head and the body.
    pub fn into_parts(self) -> (http::response::Parts, Incoming) {
        self.inner.into_parts()
    }

    /// The whole body. Its length has no limit other than memory: read one that may be large by [`Self::chunk`].
    ///
    /// # Errors
    /// The body fails ([`Error::is_body`]).
    pub async fn bytes(mut self) -> Result<Bytes, Error> {
        let Some(first) = self.chunk().await? else {
            return Ok(Bytes::new());
        };
        let Some(second) = self.chunk().await? else {
            return Ok(first);
        };
        let rest = self.content_length().unwrap_or_default().min(MOST_RESERVED);
        let known = first.len() + second.len();
        let mut whole = BytesMut::with_capacity(known + usize::try_from(rest).unwrap_or_default());
        whole.extend_from_slice(&first);
        whole.extend_from_slice(&second);
        while let Some(chunk) = self.chunk().await? {
            whole.extend_from_slice(&chunk);
        }
        Ok(whole.freeze())
    }

    /// The whole body as text, in the charset that `content-type` names: UTF-8, which is also the default, or any with the
    /// feature `charset`. What is not valid in it becomes U+FFFD.
    ///
    /// # Errors
    /// As [`Self::bytes`]; [`ErrorKind::Decode`] for a charset that is not known.
    pub async fn text(self) -> Result<String, Error> {
        let (charset, url) = (charset(self.headers()), self.url.clone());
        let bytes = self.bytes().await?;
        decoded(charset.as_deref().unwrap_or("utf-8"), &bytes).map_err(|error| error.of_body(&url))
    }

    /// The whole body, parsed as JSON.
    ///
    /// # Errors
    /// As [`Self::bytes`]; [`ErrorKind::Decode`] when it is no JSON, or not that of a `T`.
    #[cfg(feature = "json")]
    #[cfg_attr(docsrs, doc(cfg(feature = "json")))]
    pub async fn json<T: serde::de::DeserializeOwned>(self) -> Result<T, Error> {
        let url = self.url.clone();
        let bytes = self.bytes().await?;
        serde_json::from_slice(&bytes).map_err(|error| {
            Error::with_source(ErrorKind::Decode, "it is not the JSON that is expected", error).of_body(&url)
        })
    }

    /// The next chunk of the body, or `None` at its end. Trailers are skipped.
    ///
    /// # Errors
    /// The body fails ([`Error::is_body`]).
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        let next = std::future::poll_fn(|cx| poll_chunk(self.inner.body_mut(), cx)).await;
        next.transpose().map_err(|error| error.of_body(&self.url))
    }

    /// The body as a stream of chunks.
    ///
    /// ```no_run
    /// # async fn run(client: fullbore::Client) -> Result<(), fullbore::Error> {
    /// use futures_util::StreamExt;
    ///
    /// let mut chunks = client.get("https://example.com/large").await?.bytes_stream();
    /// while let Some(chunk) = chunks.next().await {
    ///     println!("{} bytes", chunk?.len());
    /// }
    /// # Ok(()) }
    /// ```
    pub fn bytes_stream(self) -> impl Stream<Item = Result<Bytes, Error>> + Send + Unpin {
        Chunks {
            body: self.inner.into_body(),
            url: self.url,
        }
    }

    /// The response itself, unless its status is 400 or more.
    ///
    /// # Errors
    /// [`ErrorKind::Status`]. [`Error::status`] has it, and the body is dropped.
    ///
    /// ```no_run
    /// # async fn run(client: fullbore::Client) -> Result<(), fullbore::Error> {
    /// let text = client.get("https://example.com/").await?.error_for_status()?.text().await?;
    /// # Ok(()) }
    /// ```
    pub fn error_for_status(self) -> Result<Self, Error> {
        match self.error_for_status_ref() {
            Ok(_) => Ok(self),
            Err(error) => Err(error),
        }
    }

    /// As [`Self::error_for_status`], and keeps the response.
    ///
    /// # Errors
    /// [`ErrorKind::Status`].
    pub fn error_for_status_ref(&self) -> Result<&Self, Error> {
        let status = self.status();
        match status.is_client_error() || status.is_server_error() {
            true => Err(Error::from_status(status).of_request(&self.url)),
            false => Ok(self),
        }
    }
}

impl From<Response> for http::Response<Incoming> {
    fn from(response: Response) -> Self {
        response.inner
    }
}

/// The chunks of a body.
struct Chunks {
    body: Incoming,
    url: Uri,
}

impl Stream for Chunks {
    type Item = Result<Bytes, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        poll_chunk(&mut this.body, cx).map_err(|error| error.of_body(&this.url))
    }
}

fn poll_chunk(body: &mut Incoming, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
    loop {
        let frame = match std::task::ready!(Pin::new(&mut *body).poll_frame(cx)) {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return Poll::Ready(Some(Err(error))),
            None => return Poll::Ready(None),
        };
        if let Ok(chunk) = frame.into_data() {
            return Poll::Ready(Some(Ok(chunk)));
        }
    }
}

/// The parameter `charset` of `content-type` (RFC 9110 section 8.3.1).
fn charset(headers: &HeaderMap) -> Option<String> {
    let kind = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    kind.split(';').skip(1).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        let is_it = name.trim().eq_ignore_ascii_case("charset");
        is_it.then(|| value.trim().trim_matches('"').to_ascii_lowercase())
    })
}

fn decoded(charset: &str, bytes: &Bytes) -> Result<String, Error> {
    match charset {
        "utf-8" | "utf8" | "us-ascii" | "ascii" | "" => Ok(utf8(bytes)),
        other => decoded_from(other, bytes),
    }
}

/// UTF-8 without its byte order mark.
fn utf8(bytes: &[u8]) -> String {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(feature = "charset")]
fn decoded_from(charset: &str, bytes: &[u8]) -> Result<String, Error> {
    match encoding_rs::Encoding::for_label(charset.as_bytes()) {
        Some(encoding) => Ok(encoding.decode(bytes).0.into_owned()),
        None => Err(unknown(charset, "is not known; read it by `bytes`")),
    }
}

#[cfg(not(feature = "charset"))]
fn decoded_from(charset: &str, _: &[u8]) -> Result<String, Error> {
    Err(unknown(
        charset,
        "needs the feature `charset`, or is read by `bytes`",
    ))
}

fn unknown(charset: &str, what: &str) -> Error {
    let shown: String = charset.chars().take(40).collect();
    Error::new(ErrorKind::Decode, format!("its charset \"{shown}\" {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charset_is_found_in_a_content_type_and_decodes_the_text() {
        let of = |kind: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, kind.parse().unwrap());
            charset(&headers)
        };
        assert_eq!(of("text/html"), None);
        assert_eq!(of("text/html; a=b; Charset=\"UTF-8\"").as_deref(), Some("utf-8"));
        assert_eq!(of("text/html;charset"), None);
        let bytes = Bytes::from_static(b"\xef\xbb\xbfa\xff");
        assert_eq!(decoded("utf-8", &bytes).unwrap(), "a\u{fffd}");
        let error = decoded("none such", &bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Decode, "{error}");
        let latin = decoded("iso-8859-1", &Bytes::from_static(b"caf\xe9"));
        assert_eq!(latin.is_ok(), cfg!(feature = "charset"));
        if let Ok(text) = latin {
            assert_eq!(text, "café");
        }
    }
}
