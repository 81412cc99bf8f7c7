//! What a status of 400 or above means to the user of `get` or `put`, and what to do. Called by whatever has asked.

use http::header::{ALLOW, AUTHORIZATION, HeaderMap, SERVER, WWW_AUTHENTICATE};
use http::{Response, StatusCode};

use crate::exit::{Exit, Failure};

/// What is known of a request whose response is checked.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    is_upload: bool,
    has_credentials: bool,
}

impl Asked {
    /// A request with these fields that sends nothing.
    pub(crate) fn download(fields: &HeaderMap) -> Self {
        Self {
            is_upload: false,
            has_credentials: fields.contains_key(AUTHORIZATION),
        }
    }

    /// A request with these fields that sends a file.
    pub(crate) fn upload(fields: &HeaderMap) -> Self {
        Self {
            is_upload: true,
            ..Self::download(fields)
        }
    }
}

/// A status of 400 or above is a failure. So is 101, for no request asks for another protocol (RFC 9110 section 15.2.2).
pub(crate) fn check_status<B>(url: &str, response: &Response<B>, asked: Asked) -> Result<(), Failure> {
    let status = response.status();
    if status == StatusCode::SWITCHING_PROTOCOLS {
        let text = format!(
            "{url}: status 101 switches to a protocol that was not asked for; this is an error of the server"
        );
        return Err(Failure::new(Exit::Protocol, text));
    }
    if status.as_u16() < 400 {
        return Ok(());
    }
    let advice = advice(status, response.headers(), asked);
    let reason = status
        .canonical_reason()
        .map(|reason| format!(" {reason}"))
        .unwrap_or_default();
    Err(Failure::new(
        Exit::Status,
        format!("{url}: status {}{reason}: {advice}", status.as_u16()),
    ))
}

fn advice(status: StatusCode, headers: &HeaderMap, asked: Asked) -> &'static str {
    match status.as_u16() {
        407 => {
            "the proxy needs a name and password, or did not accept them; put them in its URL: http://user:password@host:port"
        }
        401 => unauthorized(headers, asked),
        403 => "the server refused the request; check the credentials",
        404 | 410 if asked.is_upload => "the server has no such folder; check the URL",
        404 | 410 => "the server has nothing there; check the URL",
        405 | 501 if asked.is_upload => not_taken(headers),
        408 | 429 => "the server refused the request for now; try again later",
        409 if asked.is_upload => match is_ours(headers) {
            true => {
                "the server keeps what it has; use another name, leave out what it has with --skip-existing, or start it with \
                 --overwrite"
            }
            false => {
                "the request conflicts with what the server has there, such as a file of this name, or its folder is missing; use \
                 another name"
            }
        },
        409 => "the request conflicts with what the server has there, such as a file of this name",
        412 => "what the server has is not in the state that the request demands",
        413 => "the body is larger than the server accepts",
        400..=499 => "the server refused the request; check the URL, the options and the credentials",
        _ => "this is an error of the server; try again later",
    }
}

/// `-u` is Basic authentication (RFC 7617).
fn unauthorized(headers: &HeaderMap, asked: Asked) -> &'static str {
    let is_basic = |challenge: &[u8]| {
        let word = b"basic";
        challenge
            .windows(word.len())
            .any(|part| part.eq_ignore_ascii_case(word))
    };
    let mut challenges = headers.get_all(WWW_AUTHENTICATE).iter().peekable();
    let takes_basic = challenges.peek().is_none() || challenges.any(|value| is_basic(value.as_bytes()));
    match (asked.has_credentials, takes_basic) {
        (true, _) => "the server did not accept the user or password",
        (false, true) => "the server asks for a user and password; add -u USER:PASSWORD",
        (false, false) => "the server asks for credentials; add them as -H 'authorization: …'",
    }
}

/// The server does not take this method, or none that sends a file.
fn not_taken(headers: &HeaderMap) -> &'static str {
    let mut allowed = headers
        .get_all(ALLOW)
        .iter()
        .filter_map(|line| line.to_str().ok());
    let takes_some = allowed.any(|line| {
        let mut methods = line.split(',').map(str::trim);
        methods.any(|method| matches!(method, "PUT" | "POST"))
    });
    match (takes_some, is_ours(headers)) {
        (true, _) => "the server takes uploads there by another method only (-X, --request)",
        (false, true) => "the server takes no uploads; start it with `fullbore serve --uploads DIR`",
        (false, false) => "the server takes no uploads there; check the URL, or that uploads are allowed",
    }
}

/// Whether `fullbore serve` has answered. A proxy before it may hide that.
pub(crate) fn is_ours(headers: &HeaderMap) -> bool {
    headers
        .get(SERVER)
        .is_some_and(|name| name.as_bytes().starts_with(b"fullbore/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    type TestResult = Result<(), Box<dyn std::error::Error>>;

    const NOTHING: &[(&str, &str)] = &[];

    /// The message about a status with these fields; `None` for a success.
    fn said(
        status: u16,
        fields: &[(&'static str, &'static str)],
        asked: Asked,
    ) -> Result<Option<String>, http::Error> {
        let mut response = Response::builder().status(status);
        for &(name, value) in fields {
            response = response.header(name, value);
        }
        let checked = check_status("http://h/", &response.body(())?, asked);
        Ok(checked.err().map(|failure| failure.message))
    }

    const GET: Asked = Asked {
        is_upload: false,
        has_credentials: false,
    };
    const PUT: Asked = Asked {
        is_upload: true,
        has_credentials: false,
    };

    #[test]
    fn a_status_of_400_or_above_is_a_failure_and_so_is_101() -> TestResult {
        for (status, fails) in [
            (101, true),
            (200, false),
            (399, false),
            (400, true),
            (599, true),
            (999, true),
        ] {
            assert_eq!(said(status, NOTHING, GET)?.is_some(), fails, "{status}");
        }
        Ok(())
    }

    #[test]
    fn a_failure_says_what_to_do_for_its_status() -> TestResult {
        let ours = &[("server", "fullbore/0.1.0")][..];
        let with = Asked {
            has_credentials: true,
            ..GET
        };
        for (status, fields, asked, advice) in [
            (
                400,
                NOTHING,
                GET,
                "check the URL, the options and the credentials",
            ),
            (401, NOTHING, GET, "add -u USER:PASSWORD"),
            (
                401,
                &[("www-authenticate", "basic realm=\"x\"")],
                GET,
                "add -u USER:PASSWORD",
            ),
            (
                401,
                &[("www-authenticate", "Bearer")],
                GET,
                "add them as -H 'authorization: …'",
            ),
            (401, NOTHING, with, "did not accept the user or password"),
            (403, NOTHING, GET, "check the credentials"),
            (404, NOTHING, GET, "the server has nothing there; check the URL"),
            (404, NOTHING, PUT, "the server has no such folder; check the URL"),
            (
                405,
                NOTHING,
                GET,
                "check the URL, the options and the credentials",
            ),
            (405, NOTHING, PUT, "check the URL, or that uploads are allowed"),
            (405, ours, PUT, "start it with `fullbore serve --uploads DIR`"),
            (501, NOTHING, PUT, "check the URL, or that uploads are allowed"),
            (
                405,
                &[("allow", "GET, POST")],
                PUT,
                "by another method only (-X, --request)",
            ),
            (
                407,
                NOTHING,
                GET,
                "put them in its URL: http://user:password@host:port",
            ),
            (409, NOTHING, GET, "such as a file of this name"),
            (409, NOTHING, PUT, "or its folder is missing; use another name"),
            (
                409,
                ours,
                PUT,
                "with --skip-existing, or start it with --overwrite",
            ),
            (412, NOTHING, GET, "is not in the state that the request demands"),
            (413, NOTHING, GET, "the body is larger than the server accepts"),
            (429, NOTHING, GET, "try again later"),
            (
                500,
                NOTHING,
                GET,
                "this is an error of the server; try again later",
            ),
        ] {
            let said = said(status, fields, asked)?.unwrap_or_default();
            assert!(said.ends_with(advice), "{status} {fields:?}: {said}");
        }
        Ok(())
    }
}
