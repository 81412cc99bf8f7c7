//! The reference of an upload resource: the path of its file, and a query with a token. Who has the token may continue the upload.
//! Called by `resumable` and `log`.

use std::borrow::Cow;

use http::Uri;

/// The query of an upload resource, before the token.
pub(crate) const QUERY: &str = "upload-resource=";

/// How much of a token a log shows: enough to tell uploads apart. The other 24 digits have 96 bits.
const SHOWN_DIGITS: usize = 8;

/// Whether a query is that of an upload resource.
pub fn is_upload_resource(query: &str) -> bool {
    query.starts_with(QUERY)
}

/// The token of an upload resource; `None` for other targets. It may be anything.
pub(crate) fn token(uri: &Uri) -> Option<&str> {
    uri.query()?.strip_prefix(QUERY)
}

/// The path and query for a log, which many may read. The token is cut.
pub(crate) fn shown(uri: &Uri) -> Cow<'_, str> {
    let whole = uri.path_and_query().map_or(uri.path(), |path| path.as_str());
    let Some(token) = token(uri) else {
        return Cow::Borrowed(whole);
    };
    match token.char_indices().nth(SHOWN_DIGITS) {
        Some((end, _)) => Cow::Owned(format!("{}?{QUERY}{}...", uri.path(), &token[..end])),
        None => Cow::Borrowed(whole),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_shows_the_start_of_a_token() {
        let token = "0123456789abcdef0123456789abcdef";
        for (target, expected) in [
            (
                format!("/a%20b?upload-resource={token}"),
                "/a%20b?upload-resource=01234567...",
            ),
            (
                format!("https://host/a?upload-resource={token}"),
                "/a?upload-resource=01234567...",
            ),
            ("/a?upload-resource=0123".to_owned(), "/a?upload-resource=0123"),
            (format!("/a?b={token}"), "/a?b=0123456789abcdef0123456789abcdef"),
            ("/a".to_owned(), "/a"),
            ("*".to_owned(), "*"),
        ] {
            let uri: Uri = target.parse().unwrap();
            assert_eq!(shown(&uri), expected);
        }
    }
}
