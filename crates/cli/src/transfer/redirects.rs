//! Which redirects are followed, and how many.
//!
//! A redirect that is not followed is a failure: its body is not what was asked for.

use http::header::LOCATION;
use http::{HeaderMap, HeaderValue, StatusCode};
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use url::Url;

use crate::args::ConnectionArgs;
use crate::exit::{Exit, Failure};
use crate::transfer::client::{Address, parse_url, shown_url};

/// The octets of a Location that are encoded before it is read, beside those beyond ASCII. A server may have its names in any
/// character set, and as UTF-8 they would become other ones.
const RAW: &AsciiSet = CONTROLS;

/// The redirects that a run follows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Redirects {
    /// None with `--no-location`.
    most: Option<u32>,
    /// Whether they may lead from https to http.
    insecure: bool,
}

impl Redirects {
    pub(crate) fn from_args(args: &ConnectionArgs) -> Self {
        Self {
            most: (!args.no_location).then_some(args.max_redirs),
            insecure: args.location_insecure,
        }
    }

    /// The URL to which a response leads, with the name and password that it may have; `None` if it is no redirect. `name` is the
    /// URL for messages, and `followed` the number of redirects that led to it.
    ///
    /// # Errors
    /// The redirect cannot or must not be followed.
    pub(crate) fn next(
        self,
        url: &Url,
        name: &str,
        (status, fields): (StatusCode, &HeaderMap),
        followed: u32,
    ) -> Result<Option<Address>, Failure> {
        if !status.is_redirection() {
            return Ok(None);
        }
        let code = status.as_u16();
        let refused = |why: String| Err(Failure::new(Exit::Status, format!("{name}: status {code} {why}")));
        if !matches!(code, 301 | 302 | 303 | 307 | 308) {
            return refused(
                "is neither a body nor a redirect that can be followed; check the URL".to_owned(),
            );
        }
        let Some(location) = fields.get(LOCATION) else {
            return refused(
                "redirects without saying where to (it has no Location); this is an error of the server"
                    .to_owned(),
            );
        };
        let text = percent_encode(location.as_bytes(), RAW).to_string();
        let next = parse(url, &text).map_err(|why| {
            let shown = shown_url(&text);
            let text = format!("{name}: the server redirects to the invalid URL \"{shown}\": {why}");
            Failure::new(Exit::Protocol, text)
        })?;
        let shown = shown_url(next.url.as_str());
        let Some(most) = self.most else {
            return refused(format!(
                "redirects to {shown}; request that URL, or leave out --no-location"
            ));
        };
        if followed >= most {
            return Err(Failure::new(
                Exit::Status,
                format!(
                    "{name}: more than {most} redirects; the server may have a redirect loop, otherwise --max-redirs allows more"
                ),
            ));
        }
        if self.loses_tls(url, &next.url) {
            return refused(format!(
                "redirects to {shown} without TLS, where anybody on the path can read and change the data; use \
                 --location-insecure to follow it"
            ));
        }
        Ok(Some(next))
    }

    /// The URL in a Location that is no redirect; `None` if it is invalid, if data would lose the protection of TLS there, or if
    /// it is of another origin and no redirects are followed.
    pub(crate) fn named(self, url: &Url, location: &HeaderValue) -> Option<Address> {
        let text = percent_encode(location.as_bytes(), RAW).to_string();
        let named = parse(url, &text).ok()?;
        let may_be_elsewhere = self.most.is_some() || named.url.origin() == url.origin();
        (may_be_elsewhere && !self.loses_tls(url, &named.url)).then_some(named)
    }

    fn loses_tls(self, from: &Url, to: &Url) -> bool {
        from.scheme() == "https" && to.scheme() == "http" && !self.insecure
    }
}

fn parse(url: &Url, text: &str) -> Result<Address, String> {
    let next = url.join(text).map_err(|error| error.to_string())?;
    parse_url(next.as_str()).map_err(|failure| failure.message)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Redirects = Redirects {
        most: Some(10),
        insecure: false,
    };

    /// Where a response leads to, or with which exit code it fails.
    fn next(redirects: Redirects, status: u16, location: Option<&'static str>) -> Result<Option<String>, u8> {
        let from = Url::parse("https://a/b/c").map_err(|_| 0)?;
        let status = StatusCode::from_u16(status).map_err(|_| 0)?;
        let mut fields = HeaderMap::new();
        if let Some(location) = location {
            fields.insert(LOCATION, HeaderValue::from_static(location));
        }
        let next = redirects.next(&from, "https://a/b/c", (status, &fields), 9);
        next.map(|address| address.map(|address| String::from(address.url)))
            .map_err(|failure| failure.exit.code())
    }

    #[test]
    fn a_redirect_is_followed_or_fails_and_what_is_none_is_taken() {
        let to = |url: &str| Ok(Some(url.to_owned()));
        for status in [301, 302, 303, 307, 308] {
            assert_eq!(next(ALL, status, Some("../d?e#f")), to("https://a/d?e"));
            assert_eq!(next(ALL, status, None), Err(14), "without Location");
        }
        for status in [300, 304, 305, 399] {
            assert_eq!(next(ALL, status, Some("/d")), Err(14), "{status}");
        }
        for status in [200, 201, 206] {
            assert_eq!(next(ALL, status, Some("/d")), Ok(None), "{status}");
        }
        assert_eq!(next(ALL, 302, Some("https://u:p@a/")), to("https://a/"));
        for (location, code) in [("http://a/", 14), ("ftp://a/", 9), ("https://", 9)] {
            assert_eq!(next(ALL, 302, Some(location)), Err(code), "{location}");
        }
    }

    #[test]
    fn octets_of_a_location_beyond_ascii_stay_what_they_are() -> Result<(), Box<dyn std::error::Error>> {
        let from = Url::parse("https://a/")?;
        for (octets, url) in [
            (&b"/caf\xe9?\xe9"[..], "https://a/caf%E9?%E9"),
            ("/café".as_bytes(), "https://a/caf%C3%A9"),
            (
                "https://bücher.example/ä".as_bytes(),
                "https://xn--bcher-kva.example/%C3%A4",
            ),
            (b"/%e9%2f", "https://a/%e9%2f"),
        ] {
            let mut fields = HeaderMap::new();
            fields.insert(LOCATION, HeaderValue::from_bytes(octets)?);
            let next = ALL.next(&from, "https://a/", (StatusCode::FOUND, &fields), 0);
            let next = next.map_err(|failure| failure.message)?;
            assert_eq!(
                next.map(|address| String::from(address.url)).as_deref(),
                Some(url)
            );
        }
        Ok(())
    }

    #[test]
    fn a_location_that_is_no_redirect_is_named_but_not_without_tls() -> Result<(), Box<dyn std::error::Error>>
    {
        let from = Url::parse("https://a/b/c")?;
        let named = |most, insecure, location| {
            let redirects = Redirects { most, insecure };
            let found = redirects.named(&from, &HeaderValue::from_static(location));
            found.map(|address| String::from(address.url))
        };
        assert_eq!(named(None, false, "../d").as_deref(), Some("https://a/d"));
        assert_eq!(named(None, false, "https://b/d"), None, "--no-location");
        assert_eq!(
            named(Some(1), false, "https://b/d").as_deref(),
            Some("https://b/d")
        );
        assert_eq!(named(Some(1), false, "http://a/d"), None);
        assert_eq!(named(Some(1), true, "http://a/d").as_deref(), Some("http://a/d"));
        assert_eq!(named(Some(1), true, "https://"), None);
        Ok(())
    }

    #[test]
    fn options_say_which_redirects_are_followed() {
        let some = |most, insecure| next(Redirects { most, insecure }, 302, Some("http://a/"));
        assert_eq!(some(Some(10), true), Ok(Some("http://a/".to_owned())));
        assert_eq!(some(Some(9), true), Err(14), "nine were followed");
        assert_eq!(some(None, true), Err(14), "--no-location");
    }
}
