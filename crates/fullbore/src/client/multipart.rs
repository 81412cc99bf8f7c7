//! Forms with files (multipart/form-data, RFC 7578), as browsers send them.
//!
//! ```no_run
//! # async fn run(client: fullbore::Client) -> Result<(), fullbore::Error> {
//! use fullbore::client::multipart::{Form, Part};
//!
//! let form = Form::new()
//!     .text("title", "A day")
//!     .part("photo", Part::new(vec![1, 2, 3]).file_name("day.jpg"));
//! let response = client.post("https://example.com/photos").multipart(form).await?;
//! # Ok(()) }
//! ```

use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderValue;
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::request_body::Body;
use crate::error::{BoxError, Error, ErrorKind};

/// A form with files. Its parts are sent in their order.
#[derive(Debug, Default)]
pub struct Form {
    parts: Vec<(String, Part)>,
}

impl Form {
    /// A form without parts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a field.
    #[must_use]
    pub fn text(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.part(name, Part::new(value.into()))
    }

    /// Adds a part: a file, say.
    #[must_use]
    pub fn part(mut self, name: impl Into<String>, part: Part) -> Self {
        self.parts.push((name.into(), part));
        self
    }

    /// The content type and the body.
    pub(super) fn finish(self) -> Result<(HeaderValue, Body), Error> {
        let boundary = boundary();
        let kind = format!("multipart/form-data; boundary={boundary}");
        let kind = HeaderValue::try_from(kind).map_err(|error| invalid("its boundary", error))?;
        let mut pieces = VecDeque::new();
        for (name, part) in self.parts {
            pieces.push_back(Body::from(part.head(&boundary, &name)?));
            pieces.push_back(part.body);
            pieces.push_back(Body::from("\r\n"));
        }
        pieces.push_back(Body::from(format!("--{boundary}--\r\n")));
        // Sent again if it can be.
        let whole: Option<Vec<&[u8]>> = pieces.iter().map(Body::as_bytes).collect();
        let body = match whole {
            Some(whole) => Body::from(whole.concat()),
            None => Body::wrap(Pieces { pieces }),
        };
        Ok((kind, body))
    }
}

/// A part of a [`Form`]. With a file name it is a file.
#[derive(Debug)]
pub struct Part {
    body: Body,
    file_name: Option<String>,
    content_type: Option<String>,
}

impl Part {
    /// A part with this body: text, bytes, or a stream ([`Body::wrap_stream`]).
    pub fn new(body: impl Into<Body>) -> Self {
        Part {
            body: body.into(),
            file_name: None,
            content_type: None,
        }
    }

    /// Sets the name of the file, and its type by the name's extension, unless one is set.
    #[must_use]
    pub fn file_name(mut self, name: impl Into<String>) -> Self {
        let name = name.into();
        let guessed = mime_guess::from_path(&name).first_raw();
        self.content_type = self.content_type.or(guessed.map(str::to_owned));
        self.file_name = Some(name);
        self
    }

    /// Sets the content type.
    #[must_use]
    pub fn content_type(mut self, kind: impl Into<String>) -> Self {
        self.content_type = Some(kind.into());
        self
    }

    /// What stands in front of the body.
    fn head(&self, boundary: &str, name: &str) -> Result<String, Error> {
        let mut head = format!(
            "--{boundary}\r\ncontent-disposition: form-data; name=\"{}\"",
            quoted(name)
        );
        if let Some(file) = &self.file_name {
            head.push_str(&format!("; filename=\"{}\"", quoted(file)));
        }
        if let Some(kind) = &self.content_type {
            HeaderValue::try_from(kind).map_err(|error| invalid("the content type of a part", error))?;
            head.push_str(&format!("\r\ncontent-type: {kind}"));
        }
        head.push_str("\r\n\r\n");
        Ok(head)
    }
}

/// A name as browsers write it between quotation marks: nothing of it can end the line or the name.
fn quoted(name: &str) -> String {
    name.replace('\r', "%0D").replace('\n', "%0A").replace('"', "%22")
}

/// A boundary of 128 random bits: no part contains it, and it cannot be predicted.
fn boundary() -> String {
    let random = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", random(), random())
}

fn invalid(what: &str, error: http::header::InvalidHeaderValue) -> Error {
    let text = format!("{what} cannot be sent");
    Error::with_source(ErrorKind::InvalidMessage, text, error)
}

/// Bodies one after the other.
struct Pieces {
    pieces: VecDeque<Body>,
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        while let Some(piece) = self.pieces.front_mut() {
            match std::task::ready!(Pin::new(piece).poll_frame(cx)) {
                // The trailers of a part belong to no form.
                Some(Ok(frame)) if !frame.is_data() => {}
                Some(frame) => return Poll::Ready(Some(frame)),
                None => drop(self.pieces.pop_front()),
            }
        }
        Poll::Ready(None)
    }

    fn size_hint(&self) -> SizeHint {
        let mut lengths = self.pieces.iter().map(|piece| piece.size_hint().exact());
        let sum = lengths.try_fold(0_u64, |sum, length| sum.checked_add(length?));
        sum.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
