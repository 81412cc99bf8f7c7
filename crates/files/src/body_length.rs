//! The length of an upload's body, checked against `content-length` and the limit. Called by `uploads` and `form`.

use std::pin::Pin;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
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
        let announced = announced_length(headers)
            .map_err(|()| refuse(StatusCode::BAD_REQUEST, "the content-length is malformed"))?;
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

/// `content-length`, which may be repeated with the same value only (RFC 9110 section 8.6).
fn announced_length(headers: &HeaderMap) -> Result<Option<u64>, ()> {
    let mut announced = None;
    for value in headers.get_all(CONTENT_LENGTH) {
        let digits = value.to_str().map_err(|_| ())?;
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(());
        }
        let length: u64 = digits.parse().map_err(|_| ())?;
        if announced.is_some_and(|announced| announced != length) {
            return Err(());
        }
        announced = Some(length);
    }
    Ok(announced)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_length_is_digits_and_one_value() {
        let of = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(CONTENT_LENGTH, value.parse().unwrap());
            }
            announced_length(&headers)
        };
        assert_eq!(of(&[]), Ok(None));
        assert_eq!(of(&["5"]), Ok(Some(5)));
        assert_eq!(of(&["5", "5"]), Ok(Some(5)));
        for bad in [
            &["5", "6"][..],
            &["+5"],
            &["-1"],
            &[""],
            &["5, 5"],
            &["99999999999999999999"],
        ] {
            assert_eq!(of(bad), Err(()), "{bad:?}");
        }
    }
}
