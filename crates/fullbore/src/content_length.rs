//! The length that a message announces for its body, and whether the body that is sent has it (RFC 9110 section 8.6).
//!
//! One rule for requests and responses, in both versions: `sender` counts what is sent over HTTP/2, `http1::Measured` what
//! hyper is given.

use fullbore_proto::decimal;
use http::header::{CONTENT_LENGTH, HeaderMap, HeaderValue};
use http_body::Body;

use crate::error::{Error, ErrorKind};

/// The length that a message declares for its body, in bytes.
///
/// A value may be there several times, as fields or in a list, as long as it is the same (RFC 9110 section 8.6).
///
/// # Errors
/// [`ErrorKind::InvalidMessage`]: a value is no number, passes 64 bits, or differs from another.
///
/// ```
/// let mut headers = http::HeaderMap::new();
/// headers.insert("content-length", "5, 5".parse()?);
/// assert_eq!(fullbore::body::content_length(&headers)?, Some(5));
/// headers.append("content-length", "6".parse()?);
/// assert!(fullbore::body::content_length(&headers).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn content_length(headers: &HeaderMap) -> Result<Option<u64>, Error> {
    Length::of(headers).map(|Length(length)| length)
}

/// What is left of the length that a message announces, if it announces one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Length(Option<u64>);

impl Length {
    /// None is announced.
    pub(crate) const UNKNOWN: Length = Length(None);

    /// The length that a head announces. A value may be repeated, as fields or in a list.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidMessage`]: a value is no number, or differs from another.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self, Error> {
        match Found::of(headers) {
            Found::Nothing => Ok(Self::UNKNOWN),
            Found::Number(bytes) => Ok(Length(Some(bytes))),
            Found::Other => Self::parse(headers),
        }
    }

    fn parse(headers: &HeaderMap) -> Result<Self, Error> {
        fullbore_proto::content_length(headers)
            .map(Length)
            .map_err(|invalid| Error::new(ErrorKind::InvalidMessage, invalid.to_string()))
    }

    /// Checks the body before anything is sent, as far as it knows its own length.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidMessage`]: it has another length.
    pub(crate) fn check(self, body: &impl Body) -> Result<(), Error> {
        let Some(length) = self.0 else { return Ok(()) };
        let (least, most) = match body.is_end_stream() {
            true => (0, Some(0)),
            false => {
                let hint = body.size_hint();
                (hint.lower(), hint.upper())
            }
        };
        if length < least || most.is_some_and(|most| length > most) {
            let text = format!("content-length is {length}, and the body has another length");
            return Err(Error::new(ErrorKind::InvalidMessage, text));
        }
        Ok(())
    }

    /// Counts `bytes` of the body; `ends` says whether nothing follows.
    ///
    /// # Errors
    /// [`ErrorKind::BodyLength`]: the body is longer or shorter than announced.
    pub(crate) fn count(&mut self, bytes: usize, ends: bool) -> Result<(), Error> {
        let Some(left) = &mut self.0 else { return Ok(()) };
        match left.checked_sub(bytes as u64) {
            None => Err(Error::new(
                ErrorKind::BodyLength,
                "this side sends more bytes than it announced",
            )),
            Some(rest) if ends && rest > 0 => Err(Error::new(
                ErrorKind::BodyLength,
                format!("this side sends {rest} bytes less than it announced"),
            )),
            Some(rest) => {
                *left = rest;
                Ok(())
            }
        }
    }

    pub(crate) fn is_known(self) -> bool {
        self.0.is_some()
    }

    /// Whether everything that was announced has been counted.
    pub(crate) fn is_reached(self) -> bool {
        self.0 == Some(0)
    }
}

/// Leaves one of equal lengths that a head announces.
///
/// # Errors
/// As [`Length::of`].
pub(crate) fn unify(headers: &mut HeaderMap) -> Result<(), Error> {
    if let Found::Other = Found::of(headers) {
        if let Length(Some(bytes)) = Length::parse(headers)? {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes));
        }
    }
    Ok(())
}

/// The length of the body of a message. If the head announces none and the body knows it, it is announced. Of values that are
/// repeated one is left: recipients may refuse a repeated one.
///
/// # Errors
/// As [`Length::of`] and [`Length::check`].
pub(crate) fn announce(headers: &mut HeaderMap, body: &impl Body) -> Result<Length, Error> {
    let length = match Found::of(headers) {
        Found::Nothing => {
            let exact = body.size_hint().exact();
            if let Some(bytes) = exact {
                headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes));
            }
            return Ok(Length(exact));
        }
        Found::Number(bytes) => Length(Some(bytes)),
        Found::Other => {
            let length = Length::parse(headers)?;
            if let Length(Some(bytes)) = length {
                headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes));
            }
            length
        }
    };
    length.check(body)?;
    Ok(length)
}

/// The length of the body of a message whose `content-length` hyper adds if the head has none.
///
/// # Errors
/// As [`announce`].
pub(crate) fn announced(headers: &mut HeaderMap, body: &impl Body) -> Result<Length, Error> {
    match Found::of(headers) {
        Found::Nothing => Ok(Length(body.size_hint().exact())),
        Found::Number(_) | Found::Other => announce(headers, body),
    }
}

/// The `content-length` of a head.
enum Found {
    Nothing,
    /// One field, which is a number.
    Number(u64),
    /// Several fields perhaps, a list, or no number.
    Other,
}

impl Found {
    fn of(headers: &HeaderMap) -> Found {
        // A comparison with each of a few names costs less than a lookup.
        let Some((_, value)) = headers.iter().find(|(name, _)| *name == CONTENT_LENGTH) else {
            return Found::Nothing;
        };
        let repeats_a_name = headers.len() > headers.keys_len();
        match decimal(value.as_bytes()) {
            Some(bytes) if !repeats_a_name => Found::Number(bytes),
            _ => Found::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body_util::{Empty, Full};

    use super::*;

    fn headers(values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            let value = HeaderValue::from_str(value).expect("a value");
            headers.append(CONTENT_LENGTH, value);
        }
        headers
    }

    #[test]
    fn a_length_is_one_number_however_often_it_is_said_and_is_sent_once() {
        for values in [&["5"][..], &["5", "5"], &["5, 5"], &["5", " 5 ,5"]] {
            let mut headers = headers(values);
            assert_eq!(Length::of(&headers).expect("a number"), Length(Some(5)));
            let body = Full::new(Bytes::from_static(b"hello"));
            assert_eq!(announce(&mut headers, &body).expect("it fits"), Length(Some(5)));
            let left: Vec<_> = headers.get_all(CONTENT_LENGTH).iter().collect();
            assert_eq!(left, ["5"], "{values:?}");
        }
        assert_eq!(Length::of(&headers(&[])).expect("none"), Length::UNKNOWN);
        for values in [
            &["5", "6"][..],
            &["5, 6"],
            &[""],
            &["+5"],
            &["0x5"],
            &["5,"],
            &["18446744073709551616"],
        ] {
            let error = Length::of(&headers(values)).expect_err("no number");
            assert_eq!(error.kind(), ErrorKind::InvalidMessage, "{values:?}");
        }
    }

    #[test]
    fn a_body_that_knows_its_length_announces_it_or_is_refused() {
        let body = Full::new(Bytes::from_static(b"hello"));
        let mut none = HeaderMap::new();
        assert_eq!(announced(&mut none, &body).expect("it fits"), Length(Some(5)));
        assert!(none.is_empty());
        assert_eq!(announce(&mut none, &body).expect("it fits"), Length(Some(5)));
        assert_eq!(none[CONTENT_LENGTH], "5");
        for length in ["0", "4", "6"] {
            let error = announce(&mut headers(&[length]), &body).expect_err("it has five");
            assert_eq!(error.kind(), ErrorKind::InvalidMessage, "{length}");
        }
        let nothing = Empty::<Bytes>::new();
        announce(&mut headers(&["1"]), &nothing).expect_err("there is no body");
        announce(&mut headers(&["0"]), &nothing).expect("that is right");
    }

    #[test]
    fn a_body_ends_where_its_length_does() {
        let count = |pieces: &[(usize, bool)]| {
            let mut length = Length(Some(5));
            pieces
                .iter()
                .try_for_each(|&(bytes, ends)| length.count(bytes, ends))
                .map(|()| length)
                .map_err(|error| error.kind())
        };
        assert_eq!(count(&[(2, false), (3, true)]), Ok(Length(Some(0))));
        assert_eq!(count(&[(5, false), (0, true)]), Ok(Length(Some(0))));
        for wrong in [
            &[(5, false), (1, false)][..],
            &[(6, true)],
            &[(4, true)],
            &[(4, false), (0, true)],
        ] {
            assert_eq!(count(wrong), Err(ErrorKind::BodyLength), "{wrong:?}");
        }
        let mut unknown = Length::UNKNOWN;
        unknown.count(7, true).expect("any length is right");
    }
}
