//! URLs, the `Client` that the options describe, the fields of a request and the check of its status.

use std::sync::Arc;
use std::time::Duration;

use fullbore::tls::{self, Roots};
use fullbore::{Client, Config, HttpVersions};
use http::HeaderMap;
use http::header::{HeaderValue, USER_AGENT};
use url::Url;

use crate::args::{ConnectionArgs, HeaderLine};
use crate::exit::{Exit, Failure, chain};

/// How many characters of a server's URL are shown.
const SHOWN: usize = 200;

/// How long closing the connections may take.
const FAREWELL: Duration = Duration::from_secs(1);

/// Parses a URL for a request: absolute, http or https, with a host, without credentials. Drops the fragment.
pub(crate) fn parse_url(text: &str) -> Result<Url, Failure> {
    let wrong = |why: &str| {
        let shown: String = without_credentials(text).chars().take(SHOWN).collect();
        Failure::new(Exit::BadUrl, format!("cannot request {shown:?}: {why}"))
    };
    let mut url = Url::parse(text).map_err(|error| match error {
        url::ParseError::RelativeUrlWithoutBase => {
            wrong("the URL has no scheme; begin it with https:// or http://")
        }
        error => wrong(&error.to_string()),
    })?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong("the scheme is not http or https"));
    }
    if !url.has_host() {
        return Err(wrong("the URL has no host"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong(
            "URLs with a name or password are refused because they appear in logs; use -H 'authorization: …'",
        ));
    }
    url.set_fragment(None);
    Ok(url)
}

/// A URL, valid or not, for messages: name and password become `***`.
pub(crate) fn without_credentials(text: &str) -> String {
    // Like the parser, accept any number of slashes and backslashes after the scheme.
    let scheme = text.find(':').filter(|&colon| {
        let name = text.get(..colon).unwrap_or_default().trim();
        name.eq_ignore_ascii_case("http") || name.eq_ignore_ascii_case("https")
    });
    let begin = text
        .find("://")
        .map(|place| place + 3)
        .or(scheme.map(|colon| colon + 1))
        .unwrap_or_default();
    let after = text.get(begin..).unwrap_or_default();
    let slashes = after.len() - after.trim_start_matches(['/', '\\']).len();
    let begin = begin + slashes;
    let authority = text.get(begin..).unwrap_or_default();
    let authority = authority.split(['/', '\\', '?', '#']).next().unwrap_or_default();
    match authority.rfind('@') {
        None => text.to_owned(),
        Some(at) => {
            let (before, after) = (text.get(..begin), text.get(begin + at..));
            format!("{}***{}", before.unwrap_or_default(), after.unwrap_or_default())
        }
    }
}

/// A server's URL for messages: without credentials, escaped, and cut. It may be as long as a field section.
pub(crate) fn shown_url(text: &str) -> String {
    let quoted = format!("{:?}", without_credentials(text));
    let escaped = quoted.get(1..quoted.len() - 1).unwrap_or_default();
    match escaped.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", escaped.get(..end).unwrap_or_default()),
        None => escaped.to_owned(),
    }
}

/// The client that the options describe, with at most `connections` to an origin.
pub(crate) async fn client(args: &ConnectionArgs, connections: u32) -> Result<Client, Failure> {
    let mut builder = Client::builder()
        .config(|config| {
            args.path.configure(config);
            limit_silence(args, config);
        })
        .memory_budget(args.path.memory_budget())
        .tcp_buffers(args.path.tcp_buffers())
        .http_versions(versions(args))
        .max_connections(connections);
    if let Some(roots) = roots(args).await? {
        let config = tls::client_config(roots).map_err(|error| match &args.cacert {
            Some(path) => Failure::usage(format!("--cacert {}: {}", path.display(), chain(&error))),
            None => Failure::new(Exit::Tls, chain(&error)),
        })?;
        builder = builder.tls_config(Arc::new(config));
    }
    if let Some(seconds) = args.connect_timeout {
        builder = builder.connect_timeout(Duration::from_secs(seconds));
    }
    builder.build().map_err(|error| Failure::usage(chain(&error)))
}

/// The versions of HTTP of `--http1.1` and `--http2`.
fn versions(args: &ConnectionArgs) -> HttpVersions {
    match (args.http1, args.http2) {
        (true, _) => HttpVersions::Http1,
        (_, true) => HttpVersions::Http2,
        _ => HttpVersions::Both,
    }
}

/// The limits of `--speed-time` and `--speed-limit`.
fn limit_silence(args: &ConnectionArgs, config: &mut Config) {
    let silence = (args.speed_time > 0).then(|| Duration::from_secs(args.speed_time));
    config.response_timeout = silence;
    config.stream_wait_timeout = silence;
    config.body_timeout = silence;
    config.body_rate = args.speed_limit;
    config.send_timeout = silence;
}

async fn roots(args: &ConnectionArgs) -> Result<Option<Roots>, Failure> {
    if args.insecure {
        return Ok(Some(Roots::InsecureAcceptAny));
    }
    match &args.cacert {
        None => Ok(None),
        Some(path) => match tokio::fs::read(path).await {
            Ok(pem) => Ok(Some(Roots::Pem(pem))),
            Err(error) => Err(Failure::from_io("read", path, &error)),
        },
    }
}

/// Closes the connections gracefully, so that the server logs no error.
pub(crate) async fn farewell(client: &Client) {
    let _ = tokio::time::timeout(FAREWELL, client.shutdown()).await;
}

/// The fields of `-H`, and a user-agent if they have none.
pub(crate) fn request_headers(lines: &[HeaderLine]) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(lines.len() + 1);
    for line in lines {
        headers.append(line.name.clone(), line.value.clone());
    }
    headers
        .entry(USER_AGENT)
        .or_insert(HeaderValue::from_static(concat!(
            "fullbore/",
            env!("CARGO_PKG_VERSION")
        )));
    headers
}

/// A status of 400 or above is a failure.
pub(crate) fn check_status(url: &str, status: http::StatusCode) -> Result<(), Failure> {
    if status.as_u16() < 400 {
        return Ok(());
    }
    let fault = if status.is_client_error() {
        "the server refused the request; check the URL and the credentials"
    } else {
        "this is an error of the server; try again later"
    };
    let reason = status
        .canonical_reason()
        .map(|reason| format!(" {reason}"))
        .unwrap_or_default();
    Err(Failure::new(
        Exit::Status,
        format!("{url}: status {}{reason}: {fault}", status.as_u16()),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_absolute_http_urls_are_requested() {
        for text in [
            "",
            "example.org/x",
            "ftp://example.org/",
            "http://",
            "https://u:p@example.org/",
            "http://[::1",
        ] {
            assert_eq!(
                parse_url(text).err().map(|f| f.exit),
                Some(Exit::BadUrl),
                "{text}"
            );
        }
        assert_eq!(
            parse_url("http://example.org/a b#part")
                .ok()
                .map(String::from)
                .as_deref(),
            Some("http://example.org/a%20b")
        );
    }

    #[test]
    fn credentials_in_a_url_are_never_shown() {
        for (text, shown) in [
            ("https://u:p@h/x?y=@z", "https://***@h/x?y=@z"),
            ("https://u@h", "https://***@h"),
            ("https:u:p@h/", "https:***@h/"),
            ("https:\\\\u:p@h", "https:\\\\***@h"),
            ("ftp://u:p@a@h/", "ftp://***@h/"),
            ("//u:p@h/x", "//***@h/x"),
            ("u:p@h/x", "***@h/x"),
            ("https://h/a@b", "https://h/a@b"),
            ("https://h?a@b", "https://h?a@b"),
        ] {
            assert_eq!(without_credentials(text), shown);
            let failure = parse_url(text).err().map(|failure| failure.message);
            assert!(!failure.is_some_and(|message| message.contains("u:p")), "{text}");
        }
    }

    #[test]
    fn a_url_that_a_server_names_is_shown_escaped_and_cut_at_200_characters() {
        assert_eq!(shown_url("http://u:p@h/it's"), "http://***@h/it's");
        assert_eq!(shown_url("/a\u{1b}[31m\"\n"), "/a\\u{1b}[31m\\\"\\n");
        assert_eq!(shown_url(&"x".repeat(200)), "x".repeat(200));
        assert_eq!(shown_url(&"é".repeat(65_536)), "é".repeat(200) + "…");
        assert_eq!(shown_url(&"\u{1b}".repeat(65_536)).chars().count(), 201);
    }

    #[test]
    fn the_users_user_agent_takes_the_place_of_ours() {
        let ours = request_headers(&[]);
        assert!(
            ours.get(USER_AGENT)
                .is_some_and(|v| v.as_bytes().starts_with(b"fullbore/"))
        );
        let line = "User-Agent: theirs"
            .parse()
            .map_or_else(|_| Vec::new(), |line| vec![line]);
        assert_eq!(
            request_headers(&line).get(USER_AGENT),
            Some(&HeaderValue::from_static("theirs"))
        );
    }
}
