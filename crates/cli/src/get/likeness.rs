//! What a body looks like from outside, to tell another version of it from another thing.
//!
//! A download that broke off is asked for again, and what then comes may be a page to log in, or an error page with status
//! 200. Such a page must not replace what came before. Called by `resume`.

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use url::Url;

/// What the response of a whole body looks like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Likeness {
    /// The last segment of the path, behind all redirects.
    name: String,
    redirected: bool,
    /// The media type without parameters, in lower case.
    kind: Vec<u8>,
    total: Option<u64>,
}

impl Likeness {
    /// Of a response of `url`, and whether redirects led there.
    pub(super) fn of(url: &Url, redirected: bool, headers: &HeaderMap, total: Option<u64>) -> Self {
        let last = url.path_segments().and_then(|mut segments| segments.next_back());
        let kind = headers.get(CONTENT_TYPE).map_or(&[][..], |kind| kind.as_bytes());
        let kind = kind.split(|&octet| octet == b';').next().unwrap_or_default();
        Self {
            name: last.unwrap_or_default().to_owned(),
            redirected,
            kind: kind.trim_ascii().to_ascii_lowercase(),
            total,
        }
    }

    /// Whether the other may be a later version of the same thing: it is as long, as on another mirror; or it has the same
    /// type and, if pages to log in have that type too or there is none, the same place.
    pub(super) fn fits(&self, other: &Self) -> bool {
        let as_long = self.total.is_some() && self.total == other.total;
        let same_place = self.name == other.name && self.redirected == other.redirected;
        let may_be_a_page = matches!(
            self.kind.as_slice(),
            b"" | b"text/html" | b"application/xhtml+xml"
        );
        as_long || self.kind == other.kind && (same_place || !may_be_a_page)
    }

    /// For a message.
    pub(super) fn shown(&self) -> String {
        let kind = match self.kind.is_empty() {
            true => "no content-type".to_owned(),
            false => String::from_utf8_lossy(&self.kind).escape_debug().to_string(),
        };
        match self.total {
            Some(total) => format!("{kind}, {total} bytes"),
            None => kind,
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_later_version_or_a_mirror_fits_and_a_page_to_log_in_does_not()
    -> Result<(), Box<dyn std::error::Error>> {
        let of = |url: &str, redirected, kind: &'static str, total| {
            let mut headers = HeaderMap::new();
            if !kind.is_empty() {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            }
            Url::parse(url).map(|url| Likeness::of(&url, redirected, &headers, total))
        };
        let iso = "application/x-iso9660-image";
        let begun = of("https://a/x.iso", false, iso, Some(9))?;
        for (fits, url, redirected, kind, total) in [
            (true, "https://a/x.iso", false, iso, Some(8)),
            (true, "https://b/y/x-2.iso?signature=1", true, iso, None),
            (
                true,
                "https://b/mirror",
                true,
                "application/octet-stream",
                Some(9),
            ),
            (
                false,
                "https://a/x.iso",
                false,
                "text/html; charset=utf-8",
                Some(8),
            ),
            (false, "https://a/login", true, "text/html", None),
            (false, "https://a/login", true, "", None),
        ] {
            assert_eq!(
                begun.fits(&of(url, redirected, kind, total)?),
                fits,
                "{url} {kind}"
            );
        }
        for kind in ["text/html", ""] {
            let begun = of("https://a/x", false, kind, Some(9))?;
            for (fits, url, redirected) in [
                (true, "https://a/x", false),
                (false, "https://a/x?login", true),
                (false, "https://a/login", false),
            ] {
                assert_eq!(
                    begun.fits(&of(url, redirected, kind, Some(8))?),
                    fits,
                    "{url} {kind}"
                );
            }
        }
        // Two unknown lengths are not the same length.
        let begun = of("https://a/x.iso", false, iso, None)?;
        assert!(!begun.fits(&of("https://a/login", true, "text/html", None)?));
        Ok(())
    }
}
