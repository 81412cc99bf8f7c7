//! What is a URL: the texts and types that requests are sent to, and the name and password in front of a host.

use http::Uri;
use http::uri::Authority;

use crate::error::Error;

/// What a request can be sent to: a text, a [`Uri`], or with the feature `url` a `url::Url`.
///
/// A text is taken as browsers take it: without the white space around it and without its fragment, and characters that no
/// URL may have are percent-encoded in path and query. With the feature `url`, a host may have letters outside ASCII. A name and a
/// password in front of the host become the `Authorization` of the request, if it has none.
pub trait IntoUrl: sealed::Sealed {}

mod sealed {
    pub trait Sealed {
        fn into_url(self) -> Result<http::Uri, crate::error::Error>;
    }
}

pub(super) use self::sealed::Sealed;

macro_rules! urls {
    ($($kind:ty, $url:ident => $parsed:expr;)*) => {$(
        impl IntoUrl for $kind {}
        impl Sealed for $kind {
            fn into_url(self) -> Result<Uri, Error> {
                let $url = self;
                $parsed
            }
        }
    )*};
}

urls! {
    &str, url => parse(url);
    String, url => parse(&url);
    &String, url => parse(url);
    Uri, url => Ok(url);
    &Uri, url => Ok(url.clone());
}

#[cfg(feature = "url")]
urls! {
    url::Url, url => parse(url.as_str());
    &url::Url, url => parse(url.as_str());
}

/// # Errors
/// [`ErrorKind::InvalidUrl`](crate::ErrorKind::InvalidUrl).
pub(super) fn parse(text: &str) -> Result<Uri, Error> {
    let text = text.trim();
    let refused = match text.parse() {
        Ok(url) => return Ok(url),
        Err(refused) => http::uri::InvalidUri::to_string(&refused),
    };
    if text.contains(|letter: char| letter.is_control()) {
        return Err(Error::invalid_url(text, "it has a control character"));
    }
    if !text.is_empty() && !text.contains("://") {
        return Err(Error::invalid_url(
            text,
            "it does not begin with http:// or https://",
        ));
    }
    let Some(path) = text.find("://").and_then(|scheme| {
        let authority = &text[scheme + 3..];
        Some(scheme + 3 + authority.find(['/', '?', '#'])?)
    }) else {
        return parse_host(text, text, refused);
    };
    let (origin, path) = text.split_at(path);
    let path = path.split('#').next().unwrap_or_default();
    let mut encoded = origin.to_owned();
    for byte in path.bytes() {
        // What http::Uri refuses, and RFC 3986 too.
        match byte {
            b' ' | b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' | 128.. => {
                encoded.push_str(&format!("%{byte:02X}"));
            }
            _ => encoded.push(char::from(byte)),
        }
    }
    encoded.parse().or_else(|_| parse_host(text, origin, refused))
}

/// Parses a URL whose host may have letters that no host name has (RFC 5890).
#[cfg(feature = "url")]
fn parse_host(text: &str, origin: &str, refused: String) -> Result<Uri, Error> {
    let is_ours = origin.contains("://") && !origin.is_ascii();
    let url = is_ours.then(|| url::Url::parse(text).ok()).flatten();
    let url = url.and_then(|url| url.as_str().parse().ok());
    url.ok_or_else(|| Error::invalid_url(text, refused))
}

#[cfg(not(feature = "url"))]
fn parse_host(text: &str, origin: &str, refused: String) -> Result<Uri, Error> {
    match origin.is_ascii() {
        true => Err(Error::invalid_url(text, refused)),
        false => Err(Error::invalid_url(
            text,
            "its host has letters outside ASCII; write it as xn--…, or enable the feature `url`",
        )),
    }
}

/// The name and password in front of a host.
#[derive(PartialEq, Eq)]
pub(super) struct Credentials {
    pub(super) name: Vec<u8>,
    pub(super) password: Option<Vec<u8>>,
}

/// The URL without the name and password in front of its host, and these.
pub(super) fn split_credentials(url: Uri) -> (Uri, Option<Credentials>) {
    let Some((credentials, host)) = url
        .authority()
        .and_then(|authority| authority.as_str().rsplit_once('@'))
    else {
        return (url, None);
    };
    let (name, password) = match credentials.split_once(':') {
        Some((name, password)) => (name, Some(percent_decoded(password))),
        None => (credentials, None),
    };
    let credentials = (!credentials.is_empty()).then(|| Credentials {
        name: percent_decoded(name),
        password,
    });
    let Ok(authority) = host.parse::<Authority>() else {
        return (url, credentials);
    };
    let mut parts = url.clone().into_parts();
    parts.authority = Some(authority);
    (Uri::from_parts(parts).unwrap_or(url), credentials)
}

fn percent_decoded(text: &str) -> Vec<u8> {
    let digit = |byte: Option<&u8>| char::from(*byte?).to_digit(16);
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let [first, others @ ..] = rest {
        let code = match (first, digit(others.first()), digit(others.get(1))) {
            (b'%', Some(high), Some(low)) => u8::try_from(high * 16 + low).ok(),
            _ => None,
        };
        bytes.push(code.unwrap_or(*first));
        rest = &others[if code.is_some() { 2 } else { 0 }..];
    }
    bytes
}

/// Base64 with padding (RFC 4648 section 4). The crate would be one more for every client.
pub(super) fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let bits = three
            .iter()
            .chain([&0; 2])
            .take(3)
            .fold(0, |bits, byte| bits << 8 | usize::from(*byte));
        for place in 0..4 {
            match place <= three.len() {
                true => text.push(char::from(LETTERS[bits >> (18 - 6 * place) & 63])),
                false => text.push('='),
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn a_text_is_taken_as_browsers_take_it() {
        for (text, expected) in [
            (" https://h/a b?c=\"d e\"#f g\n", "https://h/a%20b?c=%22d%20e%22"),
            ("https://h/%41%zz", "https://h/%41%zz"),
            ("http://h?q=a b", "http://h/?q=a%20b"),
            ("http://h/é|\\`{}", "http://h/%C3%A9%7C%5C%60%7B%7D"),
            ("http://[::1]:8080/a b", "http://[::1]:8080/a%20b"),
            ("http://h/a#b#c", "http://h/a"),
            ("HTTP://H/", "http://H/"),
        ] {
            let url = parse(text).map(|url| url.to_string());
            assert_eq!(url.ok().as_deref(), Some(expected), "{text:?}");
        }
    }

    #[test]
    fn what_is_no_url_is_refused_and_its_secrets_are_not_printed() {
        for text in [
            "",
            " ",
            "ht tp://h",
            "http://a b/",
            "http://h/\r\nX: secret",
            "http://me:secret@a b/?secret",
            "http://[secret/",
            "http://me:s[ec@h/\u{0}",
            "http://h\\secret",
            &format!("http://h/{}", "x".repeat(70_000)),
        ] {
            let error = parse(text).expect_err(text);
            assert_eq!(error.kind(), ErrorKind::InvalidUrl, "{text}");
            let all = format!("{error} {:?}", error.url());
            assert!(!all.contains("me:") && all.len() < 1_500, "{all}");
        }
    }

    #[test]
    fn a_text_without_a_scheme_is_refused_with_the_schemes_that_there_are() {
        for text in ["example.com/path", "http:example.com/", "münchen.example/a"] {
            let error = parse(text).expect_err(text).to_string();
            assert!(
                error.ends_with("it does not begin with http:// or https://"),
                "{error}"
            );
        }
    }

    #[test]
    fn no_text_panics_and_no_error_prints_a_password() {
        let mut random = fastrand::Rng::with_seed(47);
        let pieces = [
            "http",
            "https",
            ":",
            "//",
            "/",
            "@",
            "me",
            "?",
            "#",
            "[",
            "]",
            "::1",
            "h.example",
            "%",
            "%4",
            "%zz",
            "\\",
            " ",
            "\t",
            "\n",
            "\0",
            "é",
            "中",
            "\u{202e}",
            "<",
            "{",
            "99999",
            "..",
            "xn--",
            "&=;",
        ];
        let (mut urls, mut refused) = (0, 0);
        for _ in 0..20_000 {
            let mut some = || -> String {
                (0..random.usize(0..6))
                    .map(|_| pieces[random.usize(0..pieces.len())])
                    .collect()
            };
            let (user, host) = (some(), some());
            for text in [
                format!("http://{user}SECRET@{host}"),
                format!("{user}:SECRET@{host}"),
                format!("{user}{host}"),
            ] {
                match parse(&text) {
                    Ok(url) => {
                        urls += 1;
                        let (url, _) = split_credentials(url);
                        assert!(
                            !url.to_string()
                                .contains(|letter: char| letter.is_control() || letter == ' ')
                        );
                    }
                    Err(error) => {
                        refused += 1;
                        let secret = text.contains("SECRET@") && error.to_string().contains("SECRET");
                        assert!(!secret, "{text:?}: {error}");
                    }
                }
            }
        }
        assert!(urls > 1_000 && refused > 1_000, "{urls} {refused}");
    }

    #[test]
    fn credentials_leave_the_url_and_are_decoded() {
        let split = |text: &str| {
            let (url, credentials) = split_credentials(text.parse().unwrap());
            let text = |bytes| String::from_utf8(bytes).unwrap();
            let both = credentials.map(|both| (text(both.name), both.password.map(text)));
            (url.to_string(), both)
        };
        let me = |password: Option<&str>| Some(("me".to_owned(), password.map(str::to_owned)));
        for (url, expected, credentials) in [
            ("http://h/a", "http://h/a", None),
            ("http://me@h:1/", "http://h:1/", me(None)),
            ("http://m%65:p%3A:%2@h/?q", "http://h/?q", me(Some("p::%2"))),
        ] {
            assert_eq!(split(url), (expected.to_owned(), credentials));
        }
    }

    #[test]
    fn base64_is_that_of_the_rfc() {
        for (bytes, expected) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), expected);
        }
    }
}
