//! Which site made a browser send a request. A page may have the browser of its reader send a form or a simple POST to any
//! server, with the address and the passwords of that reader (cross-site request forgery). Called by `form` and `uploads`.

use http::header::{CONTENT_TYPE, HOST, ORIGIN};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The media types that a page of another site may send. For others a browser asks the server first, by OPTIONS (CORS), as it
/// does for PUT.
const UNASKED: [&str; 3] = [
    "application/x-www-form-urlencoded",
    "multipart/form-data",
    "text/plain",
];

/// Whether a page of another site had a browser send this upload without asking the server.
pub(crate) fn is_forged(head: &Parts) -> bool {
    head.method == Method::POST && is_unasked(head) && is_of_another_site(head)
}

fn is_unasked(head: &Parts) -> bool {
    // A script may send bytes without a type, too.
    let media_type = media_type(head);
    media_type.is_empty()
        || UNASKED
            .iter()
            .any(|known| media_type.eq_ignore_ascii_case(known.as_bytes()))
}

/// The media type without its parameters, which may have octets that are no text.
pub(crate) fn media_type(head: &Parts) -> &[u8] {
    let value = head.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let media_type = value.unwrap_or_default().split(|octet| *octet == b';').next();
    media_type.unwrap_or_default().trim_ascii()
}

/// Whether a browser says that the request is from a page of another site.
pub(crate) fn is_of_another_site(head: &Parts) -> bool {
    let field = |name: HeaderName| {
        head.headers
            .get(name)
            .map(|value| value.to_str().unwrap_or_default())
    };
    // Sent to secure origins and to localhost.
    if let Some(site) = field(SEC_FETCH_SITE) {
        return !matches!(site, "same-origin" | "none");
    }
    let Some(origin) = field(ORIGIN) else {
        return false;
    };
    let authority = head
        .uri
        .authority()
        .map(|authority| authority.as_str())
        .or(field(HOST));
    let origin = origin.split_once("://").map(|(_, authority)| authority);
    match (origin, authority) {
        (Some(origin), Some(authority)) => !origin.eq_ignore_ascii_case(authority),
        _ => true,
    }
}

/// How much of a field is shown.
const SHOWN: usize = 100;

/// Why a request seems to be from a page of another site, for those whose proxy has changed its host.
pub(crate) fn explanation(head: &Parts) -> String {
    let shown = |text: &str| -> String {
        let letters = text.chars().filter(char::is_ascii_graphic);
        letters.take(SHOWN).collect()
    };
    let field = |name: HeaderName| head.headers.get(name).and_then(|value| value.to_str().ok());
    let authority = head.uri.authority().map(|authority| authority.as_str());
    if let Some(site) = field(SEC_FETCH_SITE) {
        return format!("the browser says so (sec-fetch-site: {})", shown(site));
    }
    format!(
        "origin is {}, and host is {}; if both are this server, the proxy in front of it has to pass on the host of the client, with \
         its port (nginx: proxy_set_header Host $http_host)",
        shown(field(ORIGIN).unwrap_or("missing")),
        shown(authority.or(field(HOST)).unwrap_or("missing"))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upload_is_forged_if_another_site_can_have_a_browser_send_it_unasked() {
        for (method, media_type, expected) in [
            ("POST", "", true),
            ("POST", "text/plain", true),
            ("POST", "Text/Plain ;charset=UTF-8", true),
            ("POST", "text/plain;charset=\u{e9}", true),
            ("POST", "multipart/form-data; boundary=x; y=\u{e9}", true),
            ("POST", ";charset=UTF-8", true),
            ("POST", "application/x-www-form-urlencoded", true),
            ("POST", "multipart/form-data; boundary=x", true),
            ("POST", "application/octet-stream", false),
            ("POST", "image/png", false),
            ("PUT", "text/plain", false),
        ] {
            for (site, is_foreign) in [("cross-site", true), ("same-site", true), ("same-origin", false)] {
                let mut request = http::Request::builder().method(method);
                request = request.header(SEC_FETCH_SITE, site);
                if !media_type.is_empty() {
                    request = request.header(CONTENT_TYPE, media_type);
                }
                let (head, ()) = request.body(()).unwrap().into_parts();
                assert_eq!(
                    is_forged(&head),
                    expected && is_foreign,
                    "{method} {media_type} {site}"
                );
            }
        }
    }

    #[test]
    fn a_page_of_another_site_is_known_by_what_browsers_say() {
        let is_foreign = |uri: &str, fields: &[(&str, &str)]| {
            let mut request = http::Request::post(uri);
            for (name, value) in fields {
                request = request.header(*name, *value);
            }
            is_of_another_site(&request.body(()).unwrap().into_parts().0)
        };
        for (uri, fields, expected) in [
            ("/", &[][..], false),
            ("/", &[("sec-fetch-site", "same-origin")], false),
            ("/", &[("sec-fetch-site", "none")], false),
            ("/", &[("sec-fetch-site", "same-site")], true),
            ("/", &[("sec-fetch-site", "cross-site")], true),
            ("/", &[("host", "a:80"), ("origin", "http://a:80")], false),
            ("/", &[("host", "A"), ("origin", "https://a")], false),
            ("/", &[("host", "a:80"), ("origin", "http://a:81")], true),
            ("/", &[("host", "a"), ("origin", "null")], true),
            ("/", &[("origin", "http://a")], true),
            ("https://a/", &[("origin", "https://a")], false),
            ("https://a/", &[("origin", "https://b")], true),
            // A proxy may have changed the host; a browser over TLS says both.
            (
                "/",
                &[
                    ("host", "inner"),
                    ("origin", "https://a"),
                    ("sec-fetch-site", "same-origin"),
                ],
                false,
            ),
        ] {
            assert_eq!(is_foreign(uri, fields), expected, "{uri} {fields:?}");
        }
    }
}
