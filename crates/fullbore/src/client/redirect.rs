//! Which redirects are followed, and which fields a redirected request loses. tower-http follows them.

use http::header::{self, HeaderName};
use http::uri::{Scheme, Uri};
use http::{Extensions, HeaderMap, Request, StatusCode};
use tower_http::follow_redirect::policy::{Action, Attempt, Policy};

use super::request_body::Body;
use crate::error::{Error, ErrorKind};

/// The redirects of a request that are followed, unless a number is set: as many as reqwest follows.
pub(super) const MAX_REDIRECTS: u32 = 10;

/// Fields for the first origin alone, as are all values that are marked as sensitive. `host` is the name of that origin.
const SECRETS: [HeaderName; 5] = [
    header::AUTHORIZATION,
    header::COOKIE,
    header::PROXY_AUTHORIZATION,
    header::WWW_AUTHENTICATE,
    header::HOST,
];

/// Fields that describe a body that is no longer sent. tower-http removes the others.
const OF_BODIES: [HeaderName; 3] = [header::EXPECT, header::CONTENT_LANGUAGE, header::CONTENT_LOCATION];

/// The redirects of one request.
#[derive(Clone)]
pub(super) struct Redirects {
    most: u32,
    followed: u32,
    /// Whether a redirect has led to another origin. tower-http's own policy forgets this at the next redirect, and sends
    /// the secrets there.
    left_origin: bool,
    without_body: bool,
    /// Those of the first request: tower-http gives none to the others.
    extensions: Option<Extensions>,
}

impl Redirects {
    pub(super) fn new(most: u32) -> Self {
        Redirects {
            most,
            followed: 0,
            left_origin: false,
            without_body: false,
            extensions: None,
        }
    }
}

impl Policy<Body, Error> for Redirects {
    fn redirect(&mut self, attempt: &Attempt<'_>) -> Result<Action, Error> {
        if self.most == 0 {
            return Ok(Action::Stop);
        }
        let refused = |why: String| Error::new(ErrorKind::Redirect, why).of_request(attempt.previous());
        let scheme = attempt.location().scheme();
        if ![Some(&Scheme::HTTP), Some(&Scheme::HTTPS)].contains(&scheme) {
            let scheme = scheme.map_or("", Scheme::as_str);
            return Err(refused(format!("{scheme}: is neither http: nor https:")));
        }
        if self.followed == self.most {
            let text = format!(
                "{} were followed already (ClientBuilder::max_redirects)",
                self.most
            );
            return Err(refused(text));
        }
        self.followed += 1;
        self.left_origin |= !is_same_origin(attempt.previous(), attempt.location());
        self.without_body |=
            attempt.status() == StatusCode::SEE_OTHER || attempt.method() != attempt.previous_method();
        Ok(Action::Follow)
    }

    fn on_request(&mut self, request: &mut Request<Body>) {
        match &self.extensions {
            Some(extensions) => *request.extensions_mut() = extensions.clone(),
            None => self.extensions = Some(request.extensions().clone()),
        }
        if self.left_origin {
            remove_secrets(request.headers_mut());
        }
        if self.without_body {
            for name in OF_BODIES {
                request.headers_mut().remove(name);
            }
        }
    }

    fn clone_body(&self, body: &Body) -> Option<Body> {
        body.try_clone()
    }
}

fn remove_secrets(headers: &mut HeaderMap) {
    let sensitive: Vec<_> = headers
        .iter()
        .filter(|(_, value)| value.is_sensitive())
        .map(|(name, _)| name.clone())
        .collect();
    for name in sensitive.into_iter().chain(SECRETS) {
        headers.remove(name);
    }
}

fn is_same_origin(one: &Uri, other: &Uri) -> bool {
    let port = |url: &Uri| {
        url.port_u16().unwrap_or(if url.scheme() == Some(&Scheme::HTTPS) {
            443
        } else {
            80
        })
    };
    let host = |url: &Uri| url.host().map(str::to_ascii_lowercase);
    one.scheme() == other.scheme() && host(one) == host(other) && port(one) == port(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        let same = |one: &str, other: &str| is_same_origin(&one.parse().unwrap(), &other.parse().unwrap());
        assert!(same("http://h/a", "http://H:80/b?c"));
        assert!(same("https://h", "https://h:443/"));
        assert!(same("https://me@h/", "https://h/"));
        assert!(!same("http://h/", "https://h/"));
        assert!(!same("http://h:443/", "https://h:443/"));
        assert!(!same("https://h/", "https://h:8443/"));
        assert!(!same("https://h/", "https://www.h/"));
    }
}
