//! The header fields of requests. Those of the user, names and passwords among them, go only to the origins that the user
//! named.
//!
//! A field of any name may be a secret. Neither a redirect nor a list decides who receives it.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use http::header::{AUTHORIZATION, COOKIE, HeaderMap, HeaderValue, REFERER, USER_AGENT};
use url::{Origin, Url};

use crate::args::{ConnectionArgs, Login};
use crate::exit::Failure;
use crate::transfer::client::{Address, without_credentials};
use crate::transfer::detached::detached;
use crate::transfer::netrc::Netrc;

/// The fields of a run's requests.
pub(crate) struct RequestFields {
    /// With the fields of the user.
    all: HeaderMap,
    /// Without them.
    own: HeaderMap,
    /// Whether the user gave any.
    given: bool,
    /// `--location-trusted`.
    everywhere: bool,
    netrc: Option<Netrc>,
    origins: Mutex<HashSet<Origin>>,
    told_of_withheld: AtomicBool,
}

impl RequestFields {
    /// The user's fields go to the origins of the typed URLs.
    ///
    /// # Errors
    /// The netrc file cannot be read, or two options give one field.
    pub(crate) async fn new(args: &ConnectionArgs, typed: &[String]) -> Result<Self, Failure> {
        let netrc = match netrc_file(args)? {
            None => None,
            // It may be a FIFO.
            Some(path) => Some(detached(move || Netrc::read(&path)).await?),
        };
        Self::with_netrc(args, typed, netrc)
    }

    fn with_netrc(args: &ConnectionArgs, typed: &[String], netrc: Option<Netrc>) -> Result<Self, Failure> {
        let origins = typed
            .iter()
            .filter_map(|text| Some(Url::parse(text).ok()?.origin()));
        let mut own = HeaderMap::new();
        let agent = args.credentials.user_agent.clone();
        let default = HeaderValue::from_static(concat!("fullbore/", env!("CARGO_PKG_VERSION")));
        own.insert(USER_AGENT, agent.unwrap_or(default));
        let given = of_user(args)?;
        let mut all = own.clone();
        for name in given.keys() {
            all.remove(name);
        }
        for (name, value) in &given {
            all.append(name, value.clone());
        }
        Ok(Self {
            all,
            own,
            given: !given.is_empty(),
            everywhere: args.location_trusted,
            netrc,
            origins: Mutex::new(origins.collect()),
            told_of_withheld: AtomicBool::new(false),
        })
    }

    /// Announces the next URL. If none was typed, the first URL of the list names the origin.
    pub(crate) fn next(&self, text: &str) {
        if !self.given || self.everywhere {
            return;
        }
        let mut origins = self.origins.lock().unwrap_or_else(PoisonError::into_inner);
        if let (true, Ok(url)) = (origins.is_empty(), Url::parse(text)) {
            origins.insert(url.origin());
        }
    }

    /// The fields of a request to a URL of the run. A name and password in the URL come before others; the password of a name
    /// alone is looked up in the netrc file.
    pub(crate) fn of(&self, address: &Address) -> HeaderMap {
        let mut fields = match self.may_know(&address.url) {
            true => self.all.clone(),
            false => self.own.clone(),
        };
        let login = address.login.as_ref();
        let is_given = login.is_some_and(|login| login.password.is_some());
        if !is_given && (login.is_some() || !fields.contains_key(AUTHORIZATION)) {
            if let Some(value) = self.of_netrc(&address.url, login.map(|login| login.name.as_str())) {
                fields.insert(AUTHORIZATION, value);
                return fields;
            }
        }
        if let Some(Login { name, password }) = login {
            fields.insert(
                AUTHORIZATION,
                basic(name, password.as_deref().unwrap_or_default()),
            );
        }
        fields
    }

    /// What the netrc file has for the host of a URL and this user.
    fn of_netrc(&self, url: &Url, user: Option<&str>) -> Option<HeaderValue> {
        let (name, password) = self.netrc.as_ref()?.login(bare_host(url)?, user)?;
        Some(basic(name, password))
    }

    /// Updates the fields of a request for this redirect. Another origin gets what netrc has for its host, but not in
    /// cleartext: anybody on the path of an `http://` URL could send the redirect, and read the password. A name and password in
    /// the new URL come before others, as in curl.
    pub(crate) fn after_redirect(&self, fields: &mut HeaderMap, from: &Url, to: &Address) {
        let login = to.login.as_ref();
        if !self.everywhere && from.origin() != to.url.origin() {
            fields.clone_from(&self.own);
            let user = login.map(|login| login.name.as_str());
            let netrc = self.netrc.as_ref().filter(|_| to.url.scheme() == "https");
            if let Some((name, password)) = netrc.and_then(|netrc| netrc.named(bare_host(&to.url)?, user)) {
                fields.insert(AUTHORIZATION, basic(name, password));
            }
        }
        if let Some(Login { name, password }) = login {
            if password.is_some() || !fields.contains_key(AUTHORIZATION) {
                fields.insert(
                    AUTHORIZATION,
                    basic(name, password.as_deref().unwrap_or_default()),
                );
            }
        }
    }

    /// A note for the first URL that does not get the fields.
    pub(crate) fn note(&self, url: &Url) -> Option<String> {
        if self.may_know(url) || self.told_of_withheld.swap(true, Ordering::Relaxed) {
            return None;
        }
        Some(format!(
            "{}: fields of -H, -u, -e and -b were not sent to this origin; they go only to the origins of the typed URLs, or of \
             the first URL of a list; --location-trusted sends them to all",
            without_credentials(url.as_str())
        ))
    }

    fn may_know(&self, url: &Url) -> bool {
        if !self.given || self.everywhere {
            return true;
        }
        let origins = self.origins.lock().unwrap_or_else(PoisonError::into_inner);
        origins.contains(&url.origin())
    }
}

/// The fields of `-H`, `-u`, `-e` and `-b`.
fn of_user(args: &ConnectionArgs) -> Result<HeaderMap, Failure> {
    let mut fields = HeaderMap::new();
    for line in &args.headers {
        fields.append(line.name.clone(), line.value.clone());
    }
    let credentials = &args.credentials;
    for (option, name, value) in [
        (
            "-u",
            AUTHORIZATION,
            credentials
                .user
                .as_ref()
                .map(|login| basic(&login.name, login.password.as_deref().unwrap_or_default())),
        ),
        ("-e", REFERER, credentials.referer.clone()),
        ("-b", COOKIE, credentials.cookie.clone()),
    ] {
        let Some(value) = value else { continue };
        if fields.insert(&name, value).is_some() {
            return Err(Failure::usage(format!(
                "{option} and -H both give the field {name}; use one of them"
            )));
        }
    }
    Ok(fields)
}

/// The host of a URL, as netrc has it: an address of IPv6 without brackets.
fn bare_host(url: &Url) -> Option<&str> {
    Some(url.host_str()?.trim_start_matches('[').trim_end_matches(']'))
}

/// The value of `Authorization` (RFC 7617).
fn basic(name: &str, password: &str) -> HeaderValue {
    let encoded = BASE64_STANDARD.encode(format!("{name}:{password}"));
    let value = HeaderValue::from_str(&format!("Basic {encoded}"));
    // Base64 is valid in a field.
    let mut value = value.unwrap_or(HeaderValue::from_static("Basic"));
    value.set_sensitive(true);
    value
}

/// The file of `-n` or `--netrc-file`.
fn netrc_file(args: &ConnectionArgs) -> Result<Option<PathBuf>, Failure> {
    if !args.credentials.netrc {
        return Ok(args.credentials.netrc_file.clone());
    }
    let home = std::env::var_os(if cfg!(windows) { "USERPROFILE" } else { "HOME" });
    let home =
        home.ok_or_else(|| Failure::usage("-n: there is no home folder; name the file: --netrc-file FILE"))?;
    Ok(Some(PathBuf::from(home).join(".netrc")))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Args, Command};
    use crate::transfer::client::parse_url;

    /// What a command line with these options leads to.
    fn of_options(options: &[&str], typed: &[&str]) -> Result<RequestFields, Failure> {
        let line = [&["fullbore", "get", "http://h/"], options].concat();
        let parsed = Args::try_parse_from(line).map_err(|error| Failure::usage(error.to_string()))?;
        let Command::Get(get) = parsed.command else {
            return Err(Failure::usage("another command"));
        };
        let typed: Vec<String> = typed.iter().map(ToString::to_string).collect();
        RequestFields::with_netrc(&get.connection, &typed, None)
    }

    fn fields(everywhere: bool, typed: &[&str]) -> RequestFields {
        let mut options = vec!["-H", "X-Api-Key: secret"];
        options.extend(everywhere.then_some("--location-trusted"));
        of_options(&options, typed).unwrap_or_else(|failure| unreachable!("{failure}"))
    }

    fn address(url: &str) -> Address {
        parse_url(url).unwrap_or_else(|failure| unreachable!("{failure}"))
    }

    fn of(fields: &RequestFields, url: &str) -> HeaderMap {
        fields.of(&address(url))
    }

    fn told(fields: &RequestFields, url: &str) -> Option<bool> {
        Some(of(fields, url).contains_key("x-api-key"))
    }

    fn authorization(fields: &HeaderMap) -> Option<&str> {
        fields.get(AUTHORIZATION)?.to_str().ok()
    }

    #[test]
    fn a_login_comes_from_the_url_or_from_an_option_and_stays_with_its_origin() -> Result<(), url::ParseError>
    {
        // Aladdin's, from RFC 7617 section 2.
        let aladdin = "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==";
        let some = of_options(&["-u", "Aladdin:open sesame"], &["https://a/"]);
        let some = some.unwrap_or_else(|failure| unreachable!("{failure}"));
        assert_eq!(authorization(&of(&some, "https://a/x")), Some(aladdin));
        assert_eq!(authorization(&of(&some, "https://b/x")), None);
        // "x:y"
        assert_eq!(authorization(&of(&some, "https://x:y@b/")), Some("Basic eDp5"));
        let mut carried = of(&some, "https://Aladdin:open%20sesame@b/");
        assert_eq!(authorization(&carried), Some(aladdin));
        let from = Url::parse("https://b/")?;
        for (to, then) in [
            ("https://b/2", Some(aladdin)),
            ("https://somebody@b/3", Some(aladdin)),
            ("https://c/", None),
            ("https://x:y@c/", Some("Basic eDp5")),
            // "x:"
            ("https://x@d/", Some("Basic eDo=")),
        ] {
            some.after_redirect(&mut carried, &from, &address(to));
            assert_eq!(authorization(&carried), then, "{to}");
        }
        Ok(())
    }

    #[test]
    fn a_redirect_to_a_host_that_netrc_names_gets_its_password_over_tls_alone() -> Result<(), url::ParseError>
    {
        let some = of_options(&[], &["https://a/"]);
        let mut some = some.unwrap_or_else(|failure| unreachable!("{failure}"));
        let folder = tempfile::tempdir().unwrap_or_else(|error| unreachable!("{error}"));
        let path = folder.path().join("netrc");
        let text = "machine a login x password y\nmachine a login Aladdin password \"open sesame\"\nmachine ::1 login x \
                    password y\ndefault login all password all";
        std::fs::write(&path, text).unwrap_or_else(|error| unreachable!("{error}"));
        some.netrc = Netrc::read(&path).ok();
        let from = Url::parse("https://b/")?;
        for (to, then) in [
            ("https://a/", Some("Basic eDp5")),
            ("https://a:8443/", Some("Basic eDp5")),
            ("https://Aladdin@a/", Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==")),
            ("https://[::1]/", Some("Basic eDp5")),
            ("http://a/", None),
            // `default` is for the URLs of the user.
            ("https://c/", None),
        ] {
            let mut carried = of(&some, "https://b/");
            assert!(authorization(&carried).is_some(), "default");
            some.after_redirect(&mut carried, &from, &address(to));
            assert_eq!(authorization(&carried), then, "{to}");
        }
        Ok(())
    }

    #[test]
    fn two_options_must_not_give_one_field_and_a_user_agent_goes_everywhere() {
        for options in [
            &["-u", "a:b", "-H", "authorization: c"][..],
            &["-b", "a=b", "-H", "cookie: c"],
            &["-e", "a", "-H", "referer: c"],
        ] {
            assert!(of_options(options, &[]).is_err(), "{options:?}");
        }
        let some = of_options(&["-A", "mine", "-b", "a=b", "-e", "r"], &["https://a/"]);
        let some = some.unwrap_or_else(|failure| unreachable!("{failure}"));
        let (named, other) = (of(&some, "https://a/"), of(&some, "https://b/"));
        assert_eq!((named.len(), other.len()), (3, 1));
        assert_eq!(named[USER_AGENT], "mine");
        assert_eq!(other[USER_AGENT], "mine");
        assert_eq!(
            (&named[COOKIE], &named[REFERER]),
            (&HeaderValue::from_static("a=b"), &HeaderValue::from_static("r"))
        );
        let theirs = of_options(&["-H", "User-Agent: theirs"], &["https://a/"]);
        let theirs = theirs.unwrap_or_else(|failure| unreachable!("{failure}"));
        assert_eq!(of(&theirs, "https://a/")[USER_AGENT], "theirs");
        assert!(
            of(&theirs, "https://b/")[USER_AGENT]
                .as_bytes()
                .starts_with(b"fullbore/")
        );
    }

    #[test]
    fn every_origin_that_was_typed_is_told_and_no_other() {
        let some = fields(false, &["https://a/x", "https://b:444/y"]);
        some.next("https://c/");
        for (url, is_told) in [
            ("https://a/z", true),
            ("https://a:443/", true),
            ("https://b:444/", true),
            ("https://b/", false),
            ("http://a/", false),
            ("https://c/", false),
        ] {
            assert_eq!(told(&some, url), Some(is_told), "{url}");
        }
        assert_eq!(told(&fields(true, &["https://a/"]), "http://c/"), Some(true));
    }

    #[test]
    fn that_the_fields_were_not_sent_is_said_once() -> Result<(), url::ParseError> {
        let some = fields(false, &["https://a/"]);
        assert_eq!(some.note(&Url::parse("https://a/x")?), None);
        let note = some.note(&Url::parse("https://b/x")?).unwrap_or_default();
        assert!(note.starts_with("https://b/x: "), "{note}");
        assert_eq!(some.note(&Url::parse("https://c/x")?), None);
        let without_fields = of_options(&[], &[]).ok();
        for silent in without_fields.into_iter().chain([fields(true, &["https://a/"])]) {
            assert_eq!(silent.note(&Url::parse("https://b/x")?), None);
        }
        Ok(())
    }

    #[test]
    fn a_redirect_to_another_origin_takes_the_fields_away() -> Result<(), url::ParseError> {
        for (everywhere, to, is_told) in [
            (false, "https://a/y", true),
            (false, "https://b/", false),
            (false, "http://a/", false),
            (true, "https://b/", true),
        ] {
            let some = fields(everywhere, &["https://a/"]);
            let from = Url::parse("https://a/x")?;
            let mut carried = of(&some, "https://a/x");
            some.after_redirect(&mut carried, &from, &address(to));
            assert_eq!(carried.contains_key("x-api-key"), is_told, "{everywhere} {to}");
        }
        Ok(())
    }

    #[test]
    fn the_first_url_of_a_list_names_the_origin_when_none_was_typed() {
        let list = fields(false, &[]);
        list.next("https://a/1");
        list.next("https://b/1");
        assert_eq!(told(&list, "https://a/2"), Some(true));
        assert_eq!(told(&list, "https://b/1"), Some(false));
    }
}
