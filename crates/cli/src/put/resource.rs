//! Upload resources of draft-ietf-httpbis-resumable-upload, as a client sees them: the fields that ask for one, the 104
//! response that names it, its limits, and its state. Called by `resumable`.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fullbore::client::on_informational;
use http::header::{
    CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, EXPECT, HeaderMap, HeaderName, HeaderValue, LOCATION,
};
use http::{Method, Request, Response};
use tokio::sync::Notify;

use super::structured::{self, Value};

/// Smaller files are sent as before: sending 8 MiB again takes 0.7 s at 100 Mbit/s, about as long as the pause and the two
/// round trips of a resumption.
pub(super) const LEAST: u64 = 8 << 20;

/// The version of the protocol: that of the drafts since -09. A user who needs an older one gives the field with `-H`.
const INTEROP_VERSION: HeaderValue = HeaderValue::from_static("8");

pub(super) static UPLOAD_COMPLETE: HeaderName = HeaderName::from_static("upload-complete");
pub(super) static UPLOAD_OFFSET: HeaderName = HeaderName::from_static("upload-offset");
static UPLOAD_LENGTH: HeaderName = HeaderName::from_static("upload-length");
static UPLOAD_LIMIT: HeaderName = HeaderName::from_static("upload-limit");
static UPLOAD_VERSION: HeaderName = HeaderName::from_static("upload-draft-interop-version");
const TRUE: HeaderValue = HeaderValue::from_static("?1");
const FALSE: HeaderValue = HeaderValue::from_static("?0");
const PARTIAL_UPLOAD: HeaderValue = HeaderValue::from_static("application/partial-upload");
/// Upload Resumption Supported.
const SUPPORTED: u16 = 104;

/// Whether the server is asked to let this upload continue. Only PUT and POST replace or add a whole that a later request can
/// complete.
pub(super) fn is_worth(method: &Method, fields: &HeaderMap, length: u64) -> bool {
    let is_whole = !fields.contains_key(CONTENT_RANGE);
    length >= LEAST && is_whole && (method == Method::PUT || method == Method::POST)
}

/// Asks for a resource (section "Optimistic Upload Creation"). A server without support ignores the fields.
pub(super) fn ask(fields: &mut HeaderMap, length: u64) {
    fields.insert(&UPLOAD_COMPLETE, TRUE);
    fields.insert(&UPLOAD_LENGTH, HeaderValue::from(length));
    fields.entry(&UPLOAD_VERSION).or_insert(INTEROP_VERSION);
}

/// Changes a request that asks for a resource into one that brings only the first `length` bytes.
pub(super) fn ask_for_part(fields: &mut HeaderMap, length: u64) {
    fields.insert(&UPLOAD_COMPLETE, FALSE);
    fields.insert(CONTENT_LENGTH, HeaderValue::from(length));
}

/// The fields of requests to the resource: those of the user that are not about the representation or what it replaces.
pub(super) fn fields_of_resource(of_request: &HeaderMap) -> HeaderMap {
    let mut fields = of_request.clone();
    let of_upload = |name: &&HeaderName| {
        let text = name.as_str();
        let is_about = ["content-", "if-", "upload-", "x-oc-"]
            .iter()
            .any(|start| text.starts_with(start));
        is_about || matches!(text, "repr-digest" | "want-repr-digest" | "digest") || *name == EXPECT
    };
    let names: Vec<_> = fields.keys().filter(of_upload).cloned().collect();
    for name in names {
        fields.remove(name);
    }
    let version = of_request.get(&UPLOAD_VERSION).cloned();
    fields.insert(&UPLOAD_VERSION, version.unwrap_or(INTEROP_VERSION));
    fields
}

/// Another origin does not get the fields of the user, but it gets the version of the protocol.
pub(super) fn keep_version(fields: &mut HeaderMap, from: &HeaderMap) {
    if let Some(version) = from.get(&UPLOAD_VERSION) {
        fields.insert(&UPLOAD_VERSION, version.clone());
    }
}

/// Adds what a request has that appends at `offset` (section "Upload Append").
pub(super) fn append(fields: &mut HeaderMap, offset: u64, completes: bool) {
    fields.insert(CONTENT_TYPE, PARTIAL_UPLOAD);
    fields.insert(&UPLOAD_OFFSET, HeaderValue::from(offset));
    fields.insert(&UPLOAD_COMPLETE, if completes { TRUE } else { FALSE });
}

/// Whether a response says that the upload is complete.
pub(super) fn completeness(fields: &HeaderMap) -> Option<bool> {
    structured::boolean(fields, &UPLOAD_COMPLETE)
}

/// The offset in a response.
pub(super) fn offset(fields: &HeaderMap) -> Option<u64> {
    structured::length(fields, &UPLOAD_OFFSET)
}

/// The length of the whole in a response.
pub(super) fn length(fields: &HeaderMap) -> Option<u64> {
    structured::length(fields, &UPLOAD_LENGTH)
}

/// `upload-limit`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) max_size: Option<u64>,
    pub(super) max_append: Option<u64>,
    pub(super) min_append: Option<u64>,
    pub(super) max_age: Option<Duration>,
}

impl Limits {
    /// The limits of a response; `None` without the field. An unknown key is ignored; a known one with a value of another type
    /// makes the whole field invalid (section "Limits").
    pub(super) fn of(fields: &HeaderMap) -> Option<Self> {
        let mut limits = Self::default();
        for (key, value) in structured::dictionary(fields, &UPLOAD_LIMIT)? {
            let known = matches!(
                key.as_str(),
                "max-size" | "min-size" | "max-append-size" | "min-append-size" | "max-age"
            );
            if !known {
                continue;
            }
            let Value::Integer(number) = value else {
                return None;
            };
            // The draft gives a negative number no meaning.
            let number = u64::try_from(number).ok()?;
            match key.as_str() {
                "max-size" => limits.max_size = Some(number),
                "max-append-size" => limits.max_append = Some(number),
                "min-append-size" => limits.min_append = Some(number),
                "max-age" => limits.max_age = Some(Duration::from_secs(number)),
                _ => {}
            }
        }
        Some(limits)
    }

    /// The part to send next of `rest` bytes: its length, and whether it completes the upload. `None` if the limits allow none.
    /// The last part may be shorter than the least.
    pub(super) fn part(self, rest: u64) -> Option<(u64, bool)> {
        let most = self.max_append.unwrap_or(u64::MAX);
        match rest <= most {
            true => Some((rest, true)),
            false if most > 0 && most >= self.min_append.unwrap_or(0) => Some((most, false)),
            false => None,
        }
    }
}

/// What the 104 responses to one request have named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) location: HeaderValue,
    pub(super) limits: Limits,
    /// Another 104 response has named another resource.
    pub(super) is_contradicted: bool,
}

/// Listens for the 104 responses to one request.
#[derive(Default)]
pub(super) struct Listener {
    named: Mutex<Option<Named>>,
    news: Notify,
}

impl Listener {
    /// Listens to the responses to this request.
    pub(super) fn of<B>(request: &mut Request<B>) -> Arc<Self> {
        let listener = Arc::new(Self::default());
        let version = request.headers().get(&UPLOAD_VERSION).cloned();
        let receiver = Arc::clone(&listener);
        on_informational(request, move |response| {
            receiver.receive(&response, version.as_ref())
        });
        listener
    }

    /// A 104 response of another version of the protocol must be ignored (section "Draft Version Identification").
    fn receive(&self, response: &Response<()>, version: Option<&HeaderValue>) {
        let fields = response.headers();
        if response.status().as_u16() != SUPPORTED || fields.get(&UPLOAD_VERSION) != version {
            return;
        }
        // Later ones may tell the progress alone.
        let Some(location) = fields.get(LOCATION) else {
            return;
        };
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *named {
            Some(named) if named.location == location => return,
            Some(named) => named.is_contradicted = true,
            None => {
                *named = Some(Named {
                    location: location.clone(),
                    limits: Limits::of(fields).unwrap_or_default(),
                    is_contradicted: false,
                });
            }
        }
        drop(named);
        self.news.notify_one();
    }

    /// Waits for a resource.
    pub(super) async fn news(&self) {
        self.news.notified().await;
    }

    /// The resource that was named.
    pub(super) fn named(&self) -> Option<Named> {
        self.named.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(text: &'static str) -> Option<Limits> {
        let mut fields = HeaderMap::new();
        fields.insert(&UPLOAD_LIMIT, HeaderValue::from_static(text));
        Limits::of(&fields)
    }

    #[test]
    fn limits_are_read_by_key_and_one_of_another_type_makes_all_of_them_invalid() {
        let some =
            limits("max-size=9, max-append-size=4, min-append-size=2, max-age=60, new-key=\"a\", min-size=1");
        let expected = Limits {
            max_size: Some(9),
            max_append: Some(4),
            min_append: Some(2),
            max_age: Some(Duration::from_secs(60)),
        };
        assert_eq!(some, Some(expected));
        for text in [
            "max-size=9, max-age=?1",
            "max-size=\"9\"",
            "max-size=1.0",
            "max-size=-1",
            "min-size",
            "max-size=(1)",
        ] {
            assert_eq!(limits(text), None, "{text}");
        }
        assert_eq!(Limits::of(&HeaderMap::new()), None);
    }

    #[test]
    fn parts_are_as_long_as_the_limits_allow_and_the_last_one_may_be_short() {
        let of = |max_append, min_append| Limits {
            max_append,
            min_append,
            ..Limits::default()
        };
        for (limits, rest, part) in [
            (of(None, None), 9, Some((9, true))),
            (of(Some(9), None), 9, Some((9, true))),
            (of(Some(4), Some(4)), 9, Some((4, false))),
            (of(Some(4), Some(4)), 1, Some((1, true))),
            (of(None, Some(20)), 9, Some((9, true))),
            (of(Some(4), Some(5)), 9, None),
            (of(Some(0), None), 9, None),
            (of(Some(0), None), 0, Some((0, true))),
        ] {
            assert_eq!(limits.part(rest), part, "{limits:?} {rest}");
        }
    }

    #[test]
    fn a_104_response_names_the_resource_if_its_version_is_that_of_the_request() -> Result<(), http::Error> {
        let response = |status: u16, version: &str, location: &str| {
            let built = Response::builder()
                .status(status)
                .header(&UPLOAD_VERSION, version);
            let built = match location {
                "" => built,
                location => built.header(LOCATION, location),
            };
            built.header(&UPLOAD_LIMIT, "max-size=7").body(())
        };
        let listener = Listener::default();
        let asked = Some(&INTEROP_VERSION);
        for (status, version, location) in [(103, "8", "/a"), (104, "3", "/a"), (104, "8", "")] {
            listener.receive(&response(status, version, location)?, asked);
            assert_eq!(listener.named(), None, "{status} {version}");
        }
        listener.receive(&response(104, "8", "/a")?, None);
        assert_eq!(listener.named(), None);
        listener.receive(&response(104, "8", "/a")?, asked);
        listener.receive(&response(104, "8", "/a")?, asked);
        let named = listener.named();
        let max_size = named.as_ref().and_then(|named| named.limits.max_size);
        assert_eq!(max_size, Some(7));
        assert!(named.is_some_and(|named| named.location == "/a" && !named.is_contradicted));
        listener.receive(&response(104, "8", "/b")?, asked);
        assert!(listener.named().is_some_and(|named| named.is_contradicted));
        Ok(())
    }

    #[test]
    fn the_resource_gets_the_credentials_and_not_what_describes_the_file() {
        let mut fields = HeaderMap::new();
        for name in [
            "authorization",
            "cookie",
            "user-agent",
            "content-type",
            "content-length",
            "if-match",
            "expect",
        ] {
            fields.insert(HeaderName::from_static(name), HeaderValue::from_static("x"));
        }
        ask(&mut fields, 5);
        assert_eq!(fields[&UPLOAD_LENGTH], "5");
        let mut of_resource = fields_of_resource(&fields);
        let names: Vec<_> = of_resource.keys().map(HeaderName::as_str).collect();
        assert_eq!(
            names,
            [
                "authorization",
                "cookie",
                "user-agent",
                "upload-draft-interop-version"
            ]
        );
        append(&mut of_resource, 3, false);
        assert_eq!(of_resource[CONTENT_TYPE], "application/partial-upload");
        assert_eq!(
            (&of_resource[&UPLOAD_OFFSET], &of_resource[&UPLOAD_COMPLETE]),
            (&HeaderValue::from(3), &FALSE)
        );
    }
}
