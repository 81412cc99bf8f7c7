//! The header fields of requests. Fields of `-H` go only to the origins that the user named.
//!
//! A field of any name may be a secret. Neither a redirect nor a list decides who receives it.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use http::HeaderMap;
use url::{Origin, Url};

use crate::args::HeaderLine;
use crate::transfer::client;

/// The fields of a run's requests.
pub(crate) struct RequestFields {
    /// With the fields of `-H`.
    all: HeaderMap,
    /// Without them.
    own: HeaderMap,
    /// Whether there is a `-H`.
    given: bool,
    /// `--location-trusted`.
    everywhere: bool,
    origins: Mutex<HashSet<Origin>>,
    noted: AtomicBool,
}

impl RequestFields {
    /// The fields of `-H` go to the origins of the typed URLs.
    pub(crate) fn new(lines: &[HeaderLine], everywhere: bool, typed: &[String]) -> Self {
        let origins = typed
            .iter()
            .filter_map(|text| Some(Url::parse(text).ok()?.origin()));
        Self {
            all: client::request_headers(lines),
            own: client::request_headers(&[]),
            given: !lines.is_empty(),
            everywhere,
            origins: Mutex::new(origins.collect()),
            noted: AtomicBool::new(false),
        }
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

    /// The fields of a request to a URL of the run.
    pub(crate) fn of(&self, url: &Url) -> HeaderMap {
        if self.may_know(url) {
            self.all.clone()
        } else {
            self.own.clone()
        }
    }

    /// Updates the fields of a request for this redirect.
    pub(crate) fn after_redirect(&self, fields: &mut HeaderMap, from: &Url, to: &Url) {
        if !self.everywhere && from.origin() != to.origin() {
            fields.clone_from(&self.own);
        }
    }

    /// A note for the first URL that does not get the fields.
    pub(crate) fn note(&self, url: &Url) -> Option<String> {
        if self.may_know(url) || self.noted.swap(true, Ordering::Relaxed) {
            return None;
        }
        Some(format!(
            "{url}: fields of -H were not sent to this origin; they go only to the origins of the typed URLs, or of the first \
             URL of a list; --location-trusted sends them to all"
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

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(everywhere: bool, typed: &[&str]) -> RequestFields {
        let lines = ["X-Api-Key: secret".parse()];
        let lines: Vec<HeaderLine> = lines.into_iter().flatten().collect();
        let typed: Vec<String> = typed.iter().map(ToString::to_string).collect();
        RequestFields::new(&lines, everywhere, &typed)
    }

    fn told(fields: &RequestFields, url: &str) -> Option<bool> {
        Some(fields.of(&Url::parse(url).ok()?).contains_key("x-api-key"))
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
        let without_fields = RequestFields::new(&[], false, &[]);
        for silent in [without_fields, fields(true, &["https://a/"])] {
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
            let mut carried = some.of(&from);
            some.after_redirect(&mut carried, &from, &Url::parse(to)?);
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
