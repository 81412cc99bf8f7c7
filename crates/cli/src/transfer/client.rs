//! URLs, the `Client` that the options describe, and the check of a status.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fullbore::client::{AddressFamily, Proxies};
use fullbore::rustls::{ClientConfig, KeyLog};
use fullbore::settings::{HttpVersions, WindowSize};
use fullbore::tls::{self, Roots};
use fullbore::{Client, ClientBuilder, Config};
use url::Url;

use crate::args::{ConnectionArgs, Login, NetworkArgs};
use crate::exit::{self, Exit, Failure, chain};

/// How many characters of a server's URL are shown.
const SHOWN: usize = 200;

/// The windows below `--limit-rate`: at least the initial one of a connection (RFC 9113 section 6.9.2).
const SMALLEST_WINDOW: u32 = 65_535;
const LARGEST_WINDOW: u32 = 16 << 20;

/// How long closing the connections may take.
const FAREWELL: Duration = Duration::from_secs(1);

/// A URL to request, and who asks.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    /// Without a name, a password and a fragment.
    pub(crate) url: Url,
    /// The name and password of the URL.
    pub(crate) login: Option<Login>,
}

/// Parses a URL for a request: absolute, http or https, with a host. Drops the fragment.
pub(crate) fn parse_url(text: &str) -> Result<Address, Failure> {
    let wrong = |why: &str| {
        let shown: String = without_credentials(text).chars().take(SHOWN).collect();
        Failure::new(Exit::BadUrl, format!("cannot request {shown:?}: {why}"))
    };
    let mut url = Url::parse(text).map_err(|error| match error {
        url::ParseError::RelativeUrlWithoutBase => {
            wrong("the URL has no scheme; begin it with https:// or http://")
        }
        url::ParseError::InvalidIpv6Address if has_zone(text) => wrong(
            "zones of IPv6 addresses, such as %eth0, are not supported; use the host's name or another address of it",
        ),
        error => wrong(&error.to_string()),
    })?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong("the scheme is not http or https"));
    }
    if !url.has_host() {
        return Err(wrong("the URL has no host"));
    }
    let login = login(&url);
    // Both succeed for a URL with a host.
    let _ = (url.set_username(""), url.set_password(None));
    url.set_fragment(None);
    Ok(Address { url, login })
}

/// A typed URL with a scheme: without one, https is meant, or http on this machine. Only what looks like a host gets one: it has
/// a dot, a port or brackets, or is localhost.
pub(crate) fn with_scheme(text: &str) -> String {
    let host = text.split(['/', '?', '#']).next().unwrap_or_default();
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !name.ends_with(':') && !port.contains(']') => (name, Some(port)),
        _ => (host, None),
    };
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|digit| digit.is_ascii_digit());
    let is_name = |letter: char| letter.is_alphanumeric() || "-._[]:".contains(letter);
    let is_host = name.starts_with('[') && name.ends_with(']')
        || name.eq_ignore_ascii_case("localhost")
        || name.contains('.') && !name.starts_with('.')
        || !name.is_empty() && port.is_some();
    if !is_host || !name.chars().all(is_name) || !port.is_none_or(is_port) {
        return text.to_owned();
    }
    let address = name
        .trim_start_matches('[')
        .trim_end_matches(']')
        .parse::<IpAddr>();
    let is_here =
        name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback());
    format!("{}://{text}", if is_here { "http" } else { "https" })
}

/// Whether a URL names the network interface of an address, as in `[fe80::1%25eth0]` (RFC 6874) or `[fe80::1%eth0]`.
fn has_zone(text: &str) -> bool {
    let address = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    address.is_some_and(|(address, _)| address.contains('%'))
}

/// The name and password of a URL, decoded.
fn login(url: &Url) -> Option<Login> {
    let decoded = |text: &str| {
        percent_encoding::percent_decode_str(text)
            .decode_utf8_lossy()
            .into_owned()
    };
    let given = !url.username().is_empty() || url.password().is_some();
    given.then(|| Login {
        name: decoded(url.username()),
        password: url.password().map(decoded),
    })
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

/// The client that the options describe, with what `change` sets. `key_log` gets the secrets of TLS.
pub(crate) async fn client(
    args: &ConnectionArgs,
    key_log: Option<Arc<dyn KeyLog>>,
    change: impl FnOnce(ClientBuilder) -> ClientBuilder,
) -> Result<Client, Failure> {
    let mut builder = Client::builder()
        .config(|config| {
            limit_windows(args, config);
            args.path.configure(config);
            limit_silence(args, config);
        })
        .memory_budget(args.path.memory_budget())
        .tcp_buffers(args.path.tcp_buffers())
        .http_versions(versions(args))
        .proxies(proxies(&args.network)?)
        .address_family(family(&args.network));
    let mut config = tls_config(args).await?;
    if let Some(log) = key_log {
        // If the platform has no authorities, the first connection over TLS says so. The others need none.
        config = config.or_else(|| tls::client_config(Roots::Platform).ok());
        if let Some(config) = &mut config {
            config.key_log = log;
        }
    }
    if let Some(config) = config {
        builder = builder.tls_config(Arc::new(config));
    }
    for fixed in &args.network.resolve {
        let addresses = fixed.addresses.iter().copied();
        builder = builder.resolve(&fixed.host, fixed.port, addresses);
    }
    if let Some(limit) = args.connect_timeout {
        builder = builder.connect_timeout(limit);
    }
    let client = change(builder).build();
    client.map_err(|error| Failure::usage(exit::wrong_setting(&error)))
}

/// The versions of HTTP of `--http1.1` and `--http2`.
fn versions(args: &ConnectionArgs) -> HttpVersions {
    match (args.http1, args.http2) {
        (true, _) => HttpVersions::Http1,
        (_, true) => HttpVersions::Http2,
        _ => HttpVersions::Both,
    }
}

/// The proxies of `--proxy`, or of the environment.
fn proxies(args: &NetworkArgs) -> Result<Proxies, Failure> {
    let named = match &args.proxy {
        None => Proxies::from_env().map_err(|error| wrong_setting("", &error))?,
        Some(none) if none.is_empty() => Proxies::default(),
        Some(url) => {
            let proxies = Proxies::all(url).map_err(|error| wrong_setting("--proxy: ", &error))?;
            // The variable no_proxy holds for this option too.
            match Proxies::from_env() {
                Ok(environment) => proxies.with_exceptions_of(&environment),
                Err(_) => proxies,
            }
        }
    };
    Ok(match &args.noproxy {
        Some(list) => named.except(list),
        None => named,
    })
}

/// A setting of `place` is wrong.
fn wrong_setting(place: &str, error: &fullbore::Error) -> Failure {
    Failure::usage(format!("{place}{}", exit::wrong_setting(error)))
}

fn family(args: &NetworkArgs) -> AddressFamily {
    match (args.ipv4, args.ipv6) {
        (true, _) => AddressFamily::V4,
        (_, true) => AddressFamily::V6,
        _ => AddressFamily::Any,
    }
}

/// Below a limit on the rate, what a server may send ahead is what one second brings: larger windows would let it send
/// bodies into memory.
fn limit_windows(args: &ConnectionArgs, config: &mut Config) {
    let Some(rate) = args.network.limit_rate else {
        return;
    };
    let ahead = u32::try_from(rate).unwrap_or(u32::MAX);
    let wanted = WindowSize::new(ahead.clamp(SMALLEST_WINDOW, LARGEST_WINDOW));
    let window = wanted.unwrap_or(config.stream_window());
    config.set_adaptive(false);
    config.set_stream_window(window);
    config.set_connection_window(window);
}

/// The limits of `--speed-time` and `--speed-limit`.
fn limit_silence(args: &ConnectionArgs, config: &mut Config) {
    let silence = (!args.speed_time.is_zero()).then_some(args.speed_time);
    config.set_response_timeout(silence);
    config.set_stream_wait_timeout(silence);
    config.set_body_timeout(silence);
    config.set_body_rate(args.speed_limit);
    config.set_send_timeout(silence);
}

/// The configuration of TLS, unless it is the default one.
async fn tls_config(args: &ConnectionArgs) -> Result<Option<ClientConfig>, Failure> {
    let roots = match (args.insecure, &args.cacert) {
        (true, _) => Some(Roots::InsecureAcceptAny),
        (false, Some(path)) => Some(Roots::Pem(read(path).await?)),
        (false, None) => None,
    };
    let certificate = match &args.credentials.cert {
        None => None,
        Some(path) => Some(client_certificate(path, args.credentials.key.as_deref()).await?),
    };
    if roots.is_none() && certificate.is_none() {
        return Ok(None);
    }
    // Which file is wrong is known from what fails.
    let config = tls::client_config(roots.clone().unwrap_or(Roots::Platform));
    let config = config.map_err(|error| match &args.cacert {
        Some(path) => wrong_setting(&format!("--cacert {}: ", path.display()), &error),
        None => Failure::new(Exit::Tls, chain(&error)),
    })?;
    let Some((chain, key)) = certificate else {
        return Ok(Some(config));
    };
    let config = tls::client_config_with_certificate(roots.unwrap_or(Roots::Platform), &chain, &key);
    config.map(Some).map_err(|error| {
        let path = args.credentials.cert.as_deref().unwrap_or(Path::new(""));
        let key = args.credentials.key.as_deref();
        let key = key.map(|key| format!(" --key {}", key.display()));
        let place = format!("--cert {}{}: ", path.display(), key.unwrap_or_default());
        wrong_setting(&place, &error)
    })
}

/// The files of `--cert` and `--key`.
async fn client_certificate(path: &Path, key: Option<&Path>) -> Result<(Vec<u8>, Vec<u8>), Failure> {
    let chain = match tokio::fs::read(path).await {
        Ok(chain) => chain,
        Err(error) => {
            return Err(with_a_password(path).unwrap_or_else(|| Failure::from_io("read", path, &error)));
        }
    };
    let key = match key {
        None => chain.clone(),
        Some(key) => read(key).await?,
    };
    Ok((chain, key))
}

/// curl's `FILE:PASSWORD`.
fn with_a_password(path: &Path) -> Option<Failure> {
    let (file, _) = path.to_str()?.rsplit_once(':')?;
    Path::new(file).is_file().then(|| {
        Failure::usage(format!(
            "--cert {file}:…: a key with a password is not read; decrypt it into a file that only you can read: \
             openssl pkey -in {file} -out key.pem, and use --cert {file} --key key.pem"
        ))
    })
}

async fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    tokio::fs::read(path)
        .await
        .map_err(|error| Failure::from_io("read", path, &error))
}

/// Closes the connections gracefully, so that the server logs no error.
pub(crate) async fn farewell(client: &Client) {
    let _ = tokio::time::timeout(FAREWELL, client.shutdown()).await;
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Args, Command};

    #[test]
    fn a_host_without_a_scheme_gets_one_and_nothing_else_does() {
        for (text, with) in [
            ("example.org/x", "https://example.org/x"),
            ("example.org", "https://example.org"),
            ("example.org:8443/x?y", "https://example.org:8443/x?y"),
            ("nas:8080/x", "https://nas:8080/x"),
            ("localhost/x", "http://localhost/x"),
            ("127.0.0.1:8080/x", "http://127.0.0.1:8080/x"),
            ("[::1]:8080/", "http://[::1]:8080/"),
            ("[2001:db8::1]/", "https://[2001:db8::1]/"),
        ] {
            assert_eq!(with_scheme(text), with);
            assert!(Url::parse(with).is_ok());
        }
        for text in [
            "http://h/x",
            "ftp://h.example/",
            "mailto:a@b.example",
            "user:1@h.example/",
            "copy",
            "./x.iso",
            "../x",
            "/x.y",
            "",
            "a b.c",
            "data:text/plain,x",
            "h:/x",
            "::1",
        ] {
            assert_eq!(with_scheme(text), text);
        }
    }

    #[test]
    fn each_wait_for_the_server_ends_after_the_speed_time() {
        let limits = |args: &[&str]| {
            let parsed = Args::try_parse_from([&["fullbore", "get", "http://a/"], args].concat());
            let Command::Get(get) = parsed.unwrap().command else {
                panic!("another command");
            };
            let mut config = Config::default();
            limit_silence(&get.connection, &mut config);
            let times = [
                config.response_timeout(),
                config.stream_wait_timeout(),
                config.body_timeout(),
                config.send_timeout(),
            ];
            (times, config.body_rate())
        };
        let after = |seconds| [Some(std::time::Duration::from_secs(seconds)); 4];
        assert_eq!(
            limits(&["--speed-time", "7", "--speed-limit", "9"]),
            (after(7), 9)
        );
        assert_eq!(limits(&["--speed-time", "0"]).0, [None; 4]);
    }

    #[test]
    fn only_absolute_http_urls_are_requested() {
        for text in [
            "",
            "example.org/x",
            "ftp://example.org/",
            "http://",
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
                .map(|address| String::from(address.url))
                .as_deref(),
            Some("http://example.org/a%20b")
        );
    }

    #[test]
    fn that_a_zone_is_not_supported_is_said() {
        for (text, is_zone) in [
            ("http://[fe80::1%25eth0]:80/", true),
            ("http://[fe80::1%eth0]/", true),
            ("http://[fe80::x]/%25", false),
        ] {
            let message = parse_url(text).err().map(|failure| failure.message);
            let message = message.unwrap_or_default();
            assert_eq!(message.contains("zones of IPv6 addresses"), is_zone, "{message}");
        }
    }

    #[test]
    fn a_name_and_password_leave_the_url_decoded() {
        let parsed = parse_url("https://us%40er:p%3A@h/x");
        let login = parsed.as_ref().ok().and_then(|address| address.login.clone());
        let login = login.map(|login| (login.name, login.password));
        assert_eq!(login, Some(("us@er".to_owned(), Some("p:".to_owned()))));
        let url = parsed.map(|address| address.url.to_string());
        assert_eq!(url.ok().as_deref(), Some("https://h/x"));
        assert!(parse_url("https://h/").is_ok_and(|address| address.login.is_none()));
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
}
