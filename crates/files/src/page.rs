//! The pages of the service: HTML without scripts, in the colours that the user prefers. Called by `form` and `listing`.

use std::fmt::{self, Write as _};

use bytes::Bytes;
use http::header::{
    CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderValue, StatusCode};

use crate::budget::Share;
use crate::file_body::{FileResponse, ResponseBody};
use crate::respond;

const STYLE: &str = include_str!("page.css");

/// Nothing is loaded and no script runs. The hash is that of [`STYLE`].
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'sha256-ghe4dFfoNryqrKXuGc/dhTzUBOm6B0FdP299kfaxQCM='; form-action 'self'; \
     base-uri 'none'; frame-ancestors 'none'",
);

const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");

/// A text that is being sent, with its part of a budget.
pub(crate) struct Counted {
    text: String,
    _share: Share,
}

impl Counted {
    /// The bytes of `text`. The share is that of the text alone from now on, and ends with the last of them.
    pub(crate) fn bytes(text: String, mut share: Share) -> Bytes {
        share.shrink(text.capacity());
        Bytes::from_owner(Counted { text, _share: share })
    }
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

/// Whether a terminal obeys a character (C0, DEL and C1), or it reorders the text around it (`Bidi_Control` of Unicode, as in
/// a name that ends with `.txt` and seems to end with `.exe`).
pub(crate) fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Text for an element or a quoted attribute. [Deceptive](is_deceptive) characters are replaced.
pub(crate) struct Escaped<'a>(pub(crate) &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(at) = rest.find(|c| matches!(c, '&' | '<' | '>' | '"' | '\'') || is_deceptive(c)) {
            let (plain, special) = rest.split_at(at);
            f.write_str(plain)?;
            let mut special = special.chars();
            f.write_str(match special.next() {
                Some('&') => "&amp;",
                Some('<') => "&lt;",
                Some('>') => "&gt;",
                Some('"') => "&quot;",
                Some('\'') => "&#39;",
                _ => "\u{fffd}",
            })?;
            rest = special.as_str();
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
        assert_eq!(
            Escaped("a\u{202e}b\u{9b}c\n").to_string(),
            "a\u{fffd}b\u{fffd}c\u{fffd}"
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
