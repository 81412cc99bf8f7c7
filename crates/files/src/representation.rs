//! The header fields that describe a file, built once for all its responses.

use std::fs::Metadata;
use std::time::SystemTime;

use http::header::{
    ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
    LAST_MODIFIED, SERVER, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue};

use crate::conditional::Validators;
use crate::encoding::Encoding;
use crate::respond;

/// The media type of files with no known one.
pub(crate) const OCTETS: &str = "application/octet-stream";

/// What a page may do that somebody has uploaded: all but act as a page of this server, with what the browser has of it and with
/// the passwords of its reader. Its origin is one of its own.
const SANDBOX: HeaderValue = HeaderValue::from_static("sandbox allow-downloads allow-popups allow-scripts");

/// How a file was chosen among its encodings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chosen {
    /// There was no choice.
    Only,
    /// By `accept-encoding`: the file itself.
    Plain,
    /// By `accept-encoding`: a sibling.
    Encoded(Encoding),
}

/// The fields of one state of a file.
#[derive(Clone, Debug)]
pub(crate) struct Representation {
    /// Bytes.
    pub(crate) length: u64,
    pub(crate) content_type: HeaderValue,
    pub(crate) validators: Validators,
    pub(crate) etag: Option<HeaderValue>,
    chosen: Chosen,
    is_sandboxed: bool,
    last_modified: Option<HeaderValue>,
    /// The fields of a response with the whole file.
    whole: HeaderMap,
}

impl Representation {
    /// For a file of this name, of a sibling that of the file itself; `metadata` is current.
    pub(crate) fn of(metadata: &Metadata, name: &str, chosen: Chosen) -> Representation {
        let mut validators = Validators::of(metadata, SystemTime::now());
        if let Chosen::Encoded(encoding) = chosen {
            validators = validators.coded(encoding.name());
        }
        let mut representation = Representation {
            length: metadata.len(),
            content_type: content_type(name),
            etag: validators.etag(),
            last_modified: validators.last_modified(),
            validators,
            chosen,
            is_sandboxed: false,
            whole: HeaderMap::new(),
        };
        let mut whole = HeaderMap::with_capacity(10);
        representation.describe(&mut whole, representation.length);
        whole.insert(CONTENT_TYPE, representation.content_type.clone());
        whole.insert(SERVER, respond::SERVER_NAME);
        representation.whole = whole;
        representation
    }

    /// Whether a browser may run scripts in it.
    pub(crate) fn may_run_scripts(&self) -> bool {
        let known = self.content_type.to_str().unwrap_or_default();
        let essence = known.split(';').next().unwrap_or_default();
        essence.ends_with("/html") || essence.ends_with("/xml") || essence.ends_with("+xml")
    }

    /// Has a browser take it for a page of another origin.
    pub(crate) fn sandbox(&mut self) {
        self.is_sandboxed = true;
        self.whole.insert(CONTENT_SECURITY_POLICY, SANDBOX);
    }

    /// The fields of a response with the whole file.
    pub(crate) fn whole(&self) -> HeaderMap {
        self.whole.clone()
    }

    /// The fields that 200 and 206 share.
    pub(crate) fn describe(&self, headers: &mut HeaderMap, content_length: u64) {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(content_length));
        headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        // The type is that of the name, whatever the content seems to be.
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if self.is_sandboxed {
            headers.insert(CONTENT_SECURITY_POLICY, SANDBOX);
        }
        if let Some(etag) = &self.etag {
            headers.insert(ETAG, etag.clone());
        }
        if let Some(modified) = &self.last_modified {
            headers.insert(LAST_MODIFIED, modified.clone());
        }
        if let Chosen::Encoded(encoding) = self.chosen {
            headers.insert(CONTENT_ENCODING, encoding.value());
        }
        self.vary(headers);
    }

    /// The field that 304 has too (RFC 9110 section 15.4.5).
    pub(crate) fn vary(&self, headers: &mut HeaderMap) {
        if self.chosen != Chosen::Only {
            headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
        }
    }

    /// Whether the bytes are encoded already.
    pub(crate) fn is_encoded(&self) -> bool {
        matches!(self.chosen, Chosen::Encoded(_))
    }
}

/// The media type for the name's extension. Text is labelled as UTF-8.
fn content_type(name: &str) -> HeaderValue {
    let Some(known) = mime_guess::from_path(name).first_raw() else {
        return HeaderValue::from_static(OCTETS);
    };
    if known.starts_with("text/") {
        HeaderValue::try_from(format!("{known}; charset=utf-8")).unwrap_or(HeaderValue::from_static(OCTETS))
    } else {
        HeaderValue::from_static(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_said_to_be_utf_8_and_the_unknown_is_octets() {
        for (name, expected) in [
            ("a.html", "text/html; charset=utf-8"),
            ("a.TXT", "text/plain; charset=utf-8"),
            ("a.css", "text/css; charset=utf-8"),
            ("a.js", "text/javascript; charset=utf-8"),
            ("a.json", "application/json"),
            ("a.svg", "image/svg+xml"),
            ("a.png", "image/png"),
            ("a.wasm", "application/wasm"),
            ("a.tar.gz", "application/gzip"),
            ("a", OCTETS),
            ("a.no-such-thing", OCTETS),
            (".html", OCTETS),
        ] {
            assert_eq!(content_type(name), expected, "{name}");
        }
    }
}
