//! Why the proxy answers in place of the origin, and what the client is told: a status and a sentence, but never where the
//! origin is.

use bytes::Bytes;
use fullbore::{BoxError, Error, ErrorKind};
use http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};

use crate::body::ProxyBody;

const BAD_ANSWER: &str = "The application gave no valid answer.";

/// Whether a response has another length than its head says. A request whose body has another length than announced is an
/// error of the same kind, but it has no code of HTTP/2: a code says that the peer has broken a rule.
pub(crate) fn is_bad_answer(error: &Error) -> bool {
    error.kind() == ErrorKind::BodyLength && error.code().is_some()
}

/// Why there is no answer of the origin.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    says: &'static str,
    pub(crate) error: BoxError,
    /// Nothing of the request was sent: another instance may have it.
    pub(crate) is_unsent: bool,
}

impl Refusal {
    /// The client's request is at fault.
    pub(crate) fn of_request(status: StatusCode, says: &'static str) -> Self {
        Self {
            status,
            says,
            error: says.into(),
            is_unsent: false,
        }
    }

    /// The origin said something that it may not say.
    pub(crate) fn bad_answer(error: impl Into<BoxError>) -> Self {
        Self {
            status: StatusCode::BAD_GATEWAY,
            says: BAD_ANSWER,
            error: error.into(),
            is_unsent: false,
        }
    }

    /// What an error of the client means.
    pub(crate) fn of_error(error: &Error) -> Self {
        let (status, says) = match error.kind() {
            ErrorKind::Timeout => (
                StatusCode::GATEWAY_TIMEOUT,
                "The application did not answer in time.",
            ),
            ErrorKind::Refused | ErrorKind::Budget | ErrorKind::Busy | ErrorKind::Canceled => (
                StatusCode::SERVICE_UNAVAILABLE,
                "The application takes no request at the moment.",
            ),
            _ if is_bad_answer(error) => (StatusCode::BAD_GATEWAY, BAD_ANSWER),
            // The body of the request, which comes from the client.
            ErrorKind::Body | ErrorKind::BodyLength => {
                (StatusCode::BAD_REQUEST, "The request did not arrive whole.")
            }
            ErrorKind::InvalidMessage => (
                StatusCode::BAD_REQUEST,
                "The request cannot be passed on to the application.",
            ),
            _ if error.is_connect() => (StatusCode::BAD_GATEWAY, "The application cannot be reached."),
            _ => (StatusCode::BAD_GATEWAY, BAD_ANSWER),
        };
        Self {
            status,
            says,
            // The instance is named beside it.
            error: error.without_url().clone().into(),
            is_unsent: error.is_connect() || error.kind() == ErrorKind::Busy,
        }
    }

    /// What the client gets.
    pub(crate) fn response(&self) -> Response<ProxyBody> {
        let text = format!("{}\n", self.says);
        let mut response = Response::new(ProxyBody::text(Bytes::from(text)));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("text/plain; charset=utf-8"),
        );
        // Over HTTP/1.1 what follows such a request may be a part of it. HTTP/2 has no such field, and the server leaves it out.
        if self.status == StatusCode::BAD_REQUEST {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
