//! The pages of the service: HTML without scripts, in the colours that the user prefers. Called by `form` and `listing`.

use std::fmt::{self, Write as _};

use bytes::Bytes;
use http::header::{
    CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderValue, StatusCode};

use crate::file_body::{FileResponse, ResponseBody};
use crate::respond;

const STYLE: &str = include_str!("page.css");

/// Nothing is loaded and no script runs. The hash is that of [`STYLE`].
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'sha256-Z9hRX1OXNbhdqfDamgIFWDCBgSJnWTwznqv9yWEvOdM='; form-action 'self'; \
     base-uri 'none'; frame-ancestors 'none'",
);

const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");

/// Text for an element or a quoted attribute.
pub(crate) struct Escaped<'a>(pub(crate) &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(at) = rest.find(['&', '<', '>', '"', '\'']) {
            let (plain, special) = rest.split_at(at);
            f.write_str(plain)?;
            f.write_str(match special.as_bytes().first() {
                Some(b'&') => "&amp;",
                Some(b'<') => "&lt;",
                Some(b'>') => "&gt;",
                Some(b'"') => "&quot;",
                _ => "&#39;",
            })?;
            rest = special.get(1..).unwrap_or_default();
        }
        f.write_str(rest)
    }
}

/// A whole document around `body`, which is HTML.
pub(crate) fn document(title: &str, body: &str) -> String {
    let mut html = String::with_capacity(STYLE.len() + body.len() + 400);
    begin(&mut html, title);
    html.push_str(body);
    end(&mut html);
    html
}

/// The document up to its body.
pub(crate) fn begin(html: &mut String, title: &str) {
    // Writing to a String does not fail.
    let _ = write!(
        html,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n",
        Escaped(title)
    );
}

/// The rest of the document.
pub(crate) fn end(html: &mut String) {
    html.push_str("</body>\n</html>\n");
}

/// A response with a document of this module.
pub(crate) fn response(status: StatusCode, document: impl Into<Bytes>) -> FileResponse {
    let document = document.into();
    let mut response = respond::bare(status);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HTML);
    headers.insert(CONTENT_LENGTH, HeaderValue::from(document.len()));
    headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // With `no-referrer` browsers would hide the origin of the page's own form.
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    *response.body_mut() = ResponseBody::full(document);
    response
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use sha2::Digest as _;

    use super::*;

    #[test]
    fn text_cannot_leave_its_place() {
        let escaped = Escaped("<a href=\"x\" b='y'>&amp;é</a>").to_string();
        assert_eq!(
            escaped,
            "&lt;a href=&quot;x&quot; b=&#39;y&#39;&gt;&amp;amp;é&lt;/a&gt;"
        );
        assert!(document("</title><script>", "").contains("<title>&lt;/title&gt;&lt;script&gt;</title>"));
    }

    #[test]
    fn the_policy_has_the_hash_of_the_style() {
        let hash = base64::engine::general_purpose::STANDARD.encode(sha2::Sha256::digest(STYLE));
        let policy = POLICY;
        let policy = policy.to_str().unwrap();
        assert!(policy.contains(&format!("'sha256-{hash}'")), "it is {hash}");
        assert!(!STYLE.contains('<'), "the style would end its element");
    }
}
