//! The length of an upload's body, checked against `content-length` and the limit. Called by `uploads` and `form`.

use std::pin::Pin;

use bytes::Bytes;
use fullbore::body::content_length;
use http::{HeaderMap, StatusCode};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;

use crate::refusal::{Refusal, refuse};

/// The body failed. Its error is dropped at once, since it need not be `Send`.
pub(crate) struct Broken;

/// The next frame of a body.
pub(crate) async fn next_frame<B: Body>(mut body: Pin<&mut B>) -> Option<Result<Frame<B::Data>, Broken>> {
    let frame = body.frame().await?;
    Some(frame.map_err(|_| Broken))
}

/// The count of received bytes.
pub(crate) struct BodyLength {
    pub(crate) count: u64,
    pub(crate) announced: Option<u64>,
    limit: u64,
}

impl BodyLength {
    /// # Errors
    /// The `content-length` is malformed or over the limit.
    pub(crate) fn new(limit: u64, headers: &HeaderMap) -> Result<BodyLength, Refusal> {
        let announced = content_length(headers)
            .map_err(|_| refuse(StatusCode::BAD_REQUEST, "the content-length is malformed"))?;
        if announced.is_some_and(|announced| announced > limit) {
            return Err(too_large(limit));
        }
        Ok(BodyLength {
            count: 0,
            announced,
            limit,
        })
    }

    /// Counts a frame, and returns its data; `None` for trailers.
    ///
    /// # Errors
    /// The body broke off, or is longer than announced or allowed.
    pub(crate) fn data(&mut self, frame: Result<Frame<Bytes>, Broken>) -> Result<Option<Bytes>, Refusal> {
        let frame = frame
            .map_err(|Broken| refuse(StatusCode::BAD_REQUEST, "the upload ended before it was complete"))?;
        let Ok(data) = frame.into_data() else {
            return Ok(None);
        };
        self.count = self.count.saturating_add(data.len() as u64);
        if self.count > self.limit {
            return Err(too_large(self.limit));
        }
        if self.announced.is_some_and(|announced| self.count > announced) {
            return Err(length_mismatch());
        }
        Ok(Some(data))
    }

    /// The body has ended.
    ///
    /// # Errors
    /// It is shorter than announced.
    pub(crate) fn end(&self) -> Result<(), Refusal> {
        match self.announced {
            Some(announced) if self.count != announced => Err(length_mismatch()),
            _ => Ok(()),
        }
    }
}

pub(crate) fn too_large(limit: u64) -> Refusal {
    refuse(
        StatusCode::PAYLOAD_TOO_LARGE,
        &format!("the upload is larger than the limit of {limit} bytes"),
    )
}

fn length_mismatch() -> Refusal {
    refuse(
        StatusCode::BAD_REQUEST,
        "the upload's length differs from its content-length",
    )
}
