//! The cookies of a client. The crate `cookie_store` knows which belong to a request.

use std::convert::Infallible;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use cookie_store::{CookieStore, RawCookie};
use http::{HeaderMap, HeaderValue, Uri, header};
use url::Url;

/// The longest `set-cookie` that is kept (RFC 6265 section 6.1).
const MAX_LENGTH: usize = 4_096;

/// The most cookies that are kept: for a request, which sends them all, and in all (RFC 6265 section 6.1).
const MAX_FOR_URL: usize = 50;
const MAX_COOKIES: usize = 3_000;

/// The cookies that servers have set.
#[derive(Default)]
pub(super) struct Jar {
    store: Mutex<CookieStore>,
}

impl Jar {
    /// Adds the cookies of a URL to a request that has none of its caller's.
    pub(super) fn add_to(&self, url: &Uri, headers: &mut HeaderMap) {
        if headers.contains_key(header::COOKIE) {
            return;
        }
        let Ok(url) = Url::parse(&url.to_string()) else {
            return;
        };
        let store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        let cookies: Vec<_> = store
            .get_request_values(&url)
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        drop(store);
        if let (false, Ok(mut value)) = (cookies.is_empty(), HeaderValue::try_from(cookies.join("; "))) {
            value.set_sensitive(true);
            headers.insert(header::COOKIE, value);
        }
    }

    /// Keeps what the response of a URL sets.
    pub(super) fn keep(&self, url: &Uri, headers: &HeaderMap) {
        let mut set = headers.get_all(header::SET_COOKIE).iter().peekable();
        if set.peek().is_none() {
            return;
        }
        let Ok(url) = Url::parse(&url.to_string()) else {
            return;
        };
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        for value in set.filter(|value| value.len() <= MAX_LENGTH) {
            let Some(cookie) = value
                .to_str()
                .ok()
                .and_then(|value| RawCookie::parse(value.to_owned()).ok())
            else {
                continue;
            };
            // A domain of one label is a suffix of strangers' sites, if it is not the host itself.
            let domain = cookie.domain().map(|domain| domain.trim_matches('.'));
            if domain.is_some_and(|domain| !domain.contains('.') && url.host_str() != Some(domain)) {
                continue;
            }
            let known = store.matches(&url);
            // A cookie that is there may always be replaced, or be ended.
            let is_known = known.iter().any(|known| known.name() == cookie.name());
            let has_room = known.len() < MAX_FOR_URL && has_room(&mut store);
            if is_known || has_room {
                // Err: it is for another domain, or has ended, which the store has noted.
                let _ = store.insert_raw(&cookie, &url);
            }
        }
    }
}

/// Whether there is room for another cookie, if need be in the place of those that have ended.
fn has_room(store: &mut CookieStore) -> bool {
    if store.iter_any().count() >= MAX_COOKIES {
        let lasting: Vec<_> = store.iter_unexpired().cloned().map(Ok::<_, Infallible>).collect();
        let Ok(lasting) = CookieStore::from_cookies(lasting, false);
        *store = lasting;
    }
    store.iter_any().count() < MAX_COOKIES
}

impl fmt::Debug for Jar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Cookies are secrets.
        f.debug_struct("Jar").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cookies that a URL gets after another one has set this.
    fn told(set: &'static str, by: &'static str, to: &'static str) -> Option<String> {
        let (jar, mut headers) = (Jar::default(), HeaderMap::new());
        headers.insert(header::SET_COOKIE, HeaderValue::from_static(set));
        jar.keep(&Uri::from_static(by), &headers);
        let mut headers = HeaderMap::new();
        jar.add_to(&Uri::from_static(to), &mut headers);
        Some(headers.get(header::COOKIE)?.to_str().ok()?.to_owned())
    }

    #[test]
    fn a_cookie_goes_to_its_domain_and_to_no_stranger() {
        let by = "http://a.example.com/";
        for (set, to, expected) in [
            ("k=v", "http://a.example.com/b", Some("k=v")),
            ("k=v", "http://b.example.com/", None),
            ("k=v; Domain=example.com", "http://b.example.com/", Some("k=v")),
            ("k=v; Domain=com", "http://stranger.com/", None),
            ("k=v; Domain=.com", "http://a.example.com/", None),
            ("k=v; Domain=other.com", "http://other.com/", None),
            ("k=v; Secure", "http://a.example.com/", None),
        ] {
            assert_eq!(told(set, by, to).as_deref(), expected, "{set} to {to}");
        }
        let local = told("k=v; Domain=localhost", "http://localhost/", "http://localhost/");
        assert_eq!(local.as_deref(), Some("k=v"));
    }
}
