//! What the request and the status say about the body of a response. One set of rules for both versions.

use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::response::Parts;
use http::{Method, Request, StatusCode};
use http_body::Body;

use crate::connection_fields::is_coded;
use crate::content_length::{self, Length};
use crate::error::{Error, ErrorKind};

/// What the request says about the form of the response.
#[derive(Debug, Clone, Copy)]
pub(super) struct ResponseRules {
    head_only: bool,
    connect: bool,
}

/// What follows the head of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// Nothing, whatever the service returns as its body.
    None,
    /// A body, checked against this length.
    Body(Length),
    /// The octets of a tunnel.
    Tunnel,
}

impl Content {
    /// Whether no octets are announced.
    pub(super) fn is_empty(self) -> bool {
        matches!(self, Content::Body(length) if length.is_reached())
    }
}

/// Who writes the `content-length` of a body that knows its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    Http2,
    /// hyper adds the field.
    Hyper,
}

impl ResponseRules {
    pub(super) fn of(method: &Method) -> Self {
        ResponseRules {
            head_only: *method == Method::HEAD,
            connect: *method == Method::CONNECT,
        }
    }

    pub(super) fn of_request<B>(request: &Request<B>) -> Self {
        Self::of(request.method())
    }

    /// Whether a response makes the connection, or the stream, a tunnel.
    pub(super) fn begins_tunnel(self, status: StatusCode) -> bool {
        status == StatusCode::SWITCHING_PROTOCOLS || (self.connect && status.is_success())
    }

    /// What follows the head, whose fields are made to say so.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidMessage`]: the fields contradict each other or the body.
    pub(super) fn content<B: Body>(
        self,
        head: &mut Parts,
        body: &B,
        framing: Framing,
    ) -> Result<Content, Error> {
        let fields = &mut head.headers;
        if self.begins_tunnel(head.status) {
            // RFC 9110 section 8.6: the octets of a tunnel are no content.
            fields.remove(CONTENT_LENGTH);
            return Ok(Content::Tunnel);
        }
        match head.status {
            StatusCode::NO_CONTENT => {
                // The same section: a length here may be taken for that of a body.
                fields.remove(CONTENT_LENGTH);
                Ok(Content::None)
            }
            // Their length is that of a response to GET, or with status 200.
            StatusCode::NOT_MODIFIED => Length::of(fields).map(|_| Content::None),
            _ if self.head_only => {
                // If the head says nothing, the body may know it. One that is at its end may have been left out.
                if framing == Framing::Http2
                    && Length::of(fields)? == Length::UNKNOWN
                    && !body.is_end_stream()
                {
                    content_length::announce(fields, body)?;
                }
                Ok(Content::None)
            }
            _ => match framing {
                Framing::Http2 => content_length::announce(fields, body),
                Framing::Hyper => content_length::announced(fields, body),
            }
            .map(Content::Body),
        }
    }
}

/// Removes what a response says about its coding for one connection: the connection frames the body itself.
///
/// # Errors
/// [`ErrorKind::InvalidMessage`]: the body has another coding than `chunked`, which the peer could not undo.
pub(super) fn remove_transfer_encoding(head: &mut Parts) -> Result<(), Error> {
    // A comparison with each of a few names costs less than a lookup.
    if !head.headers.keys().any(|name| name == TRANSFER_ENCODING) {
        return Ok(());
    }
    if is_coded(&head.headers) {
        let text =
            "transfer-encoding may say \"chunked\" and nothing else: the server frames the body itself";
        return Err(Error::new(ErrorKind::InvalidMessage, text));
    }
    head.headers.remove(TRANSFER_ENCODING);
    Ok(())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::Response;
    use http_body_util::{Empty, Full};

    use super::*;

    fn head(status: u16, fields: &[(&'static str, &'static str)]) -> Parts {
        let mut response = Response::builder().status(status);
        for (name, value) in fields {
            response = response.header(*name, *value);
        }
        response.body(()).expect("a response").into_parts().0
    }

    /// What follows, and the `content-length` that is left, of a response whose body has five octets.
    fn content(
        method: &Method,
        status: u16,
        length: Option<&'static str>,
        framing: Framing,
    ) -> (Result<Content, ErrorKind>, Option<String>) {
        let fields: Vec<_> = length
            .map(|length| ("content-length", length))
            .into_iter()
            .collect();
        let mut head = head(status, &fields);
        let body = Full::new(Bytes::from_static(b"hello"));
        let content = ResponseRules::of(method).content(&mut head, &body, framing);
        let left = head.headers.get("content-length");
        let left = left.map(|value| value.to_str().expect("text").to_owned());
        (content.map_err(|error| error.kind()), left)
    }

    #[test]
    fn only_101_and_a_success_of_connect_begin_a_tunnel() {
        for (method, status, tunnel) in [
            (Method::GET, 101, true),
            (Method::GET, 200, false),
            (Method::CONNECT, 200, true),
            (Method::CONNECT, 299, true),
            (Method::CONNECT, 407, false),
        ] {
            let status = StatusCode::from_u16(status).expect("a status");
            assert_eq!(
                ResponseRules::of(&method).begins_tunnel(status),
                tunnel,
                "{status}"
            );
        }
    }

    #[test]
    fn a_response_that_has_no_body_announces_none() {
        for framing in [Framing::Http2, Framing::Hyper] {
            for (method, status, expected) in [
                (Method::GET, 204, (Content::None, None)),
                (Method::HEAD, 204, (Content::None, None)),
                (Method::CONNECT, 200, (Content::Tunnel, None)),
                (Method::CONNECT, 204, (Content::Tunnel, None)),
                (Method::GET, 304, (Content::None, Some("7".to_owned()))),
                (Method::HEAD, 200, (Content::None, Some("7".to_owned()))),
            ] {
                let (content, left) = content(&method, status, Some("7"), framing);
                assert_eq!((content, left), (Ok(expected.0), expected.1), "{method} {status}");
            }
        }
    }

    #[test]
    fn a_length_that_is_wrong_refuses_the_response_in_either_version() {
        for framing in [Framing::Http2, Framing::Hyper] {
            for length in ["4", "6", "0", "five", "5, 6"] {
                let (content, _) = content(&Method::GET, 200, Some(length), framing);
                assert_eq!(content, Err(ErrorKind::InvalidMessage), "{length}");
            }
            let (right, _) = content(&Method::GET, 200, Some("5"), framing);
            assert!(matches!(right, Ok(Content::Body(length)) if length.is_known()));
            for method in [Method::HEAD, Method::GET] {
                let (no_number, _) = content(&method, 304, Some("five"), framing);
                assert_eq!(no_number, Err(ErrorKind::InvalidMessage));
            }
        }
    }

    #[test]
    fn a_body_that_knows_its_length_announces_it_unless_hyper_does() {
        for (method, framing, left) in [
            (Method::GET, Framing::Http2, Some("5")),
            (Method::HEAD, Framing::Http2, Some("5")),
            (Method::GET, Framing::Hyper, None),
            (Method::HEAD, Framing::Hyper, None),
        ] {
            let (_, announced) = content(&method, 200, None, framing);
            assert_eq!(announced.as_deref(), left, "{method} {framing:?}");
        }
        // A HEAD handler may leave the body out.
        let mut head = head(200, &[]);
        let body = Empty::<Bytes>::new();
        let content = ResponseRules::of(&Method::HEAD).content(&mut head, &body, Framing::Http2);
        assert_eq!(content.expect("no contradiction"), Content::None);
        assert!(head.headers.is_empty());
    }

    #[test]
    fn a_coding_of_the_connection_is_left_to_the_connection() {
        let mut chunked = head(200, &[("transfer-encoding", "chunked")]);
        remove_transfer_encoding(&mut chunked).expect("it can be undone");
        assert!(chunked.headers.is_empty());
        let mut coded = head(200, &[("transfer-encoding", "gzip, chunked")]);
        let error = remove_transfer_encoding(&mut coded).expect_err("it cannot");
        assert_eq!(error.kind(), ErrorKind::InvalidMessage);
    }
}
