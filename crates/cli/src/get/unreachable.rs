//! Origins that cannot be reached: once a connection to one has failed for good, no other URL of it tries again.
//!
//! A list of 50,000 URLs of a dead server thus costs a few attempts and one sentence. `fetch` asks before each request.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use url::{Origin, Url};

use crate::exit::{Exit, Failure};

/// The origins of a run to which no connection can be made.
#[derive(Default)]
pub(crate) struct Unreachable {
    any: AtomicBool,
    /// Why, without the URL.
    origins: Mutex<HashMap<Origin, (Exit, String)>>,
}

impl Unreachable {
    /// A connection to this origin has failed for good. Returns whether this is news.
    pub(super) fn note(&self, origin: Origin, name: &str, failure: &Failure) -> bool {
        let mut origins = self.origins.lock().unwrap_or_else(PoisonError::into_inner);
        self.any.store(true, Ordering::Relaxed);
        let message = failure.message.strip_prefix(name).unwrap_or(&failure.message);
        let reason = message.strip_prefix(": ").unwrap_or(message).to_owned();
        origins.insert(origin, (failure.exit, reason)).is_none()
    }

    /// Why this URL cannot be reached, if that is known.
    pub(super) fn failure(&self, url: &Url, name: &str) -> Option<Failure> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        let origins = self.origins.lock().unwrap_or_else(PoisonError::into_inner);
        let (exit, reason) = origins.get(&url.origin())?;
        Some(Failure::new(*exit, format!("{name}: {reason}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_of_an_origin_is_said_of_its_other_urls_and_of_no_others() -> Result<(), url::ParseError>
    {
        let unreachable = Unreachable::default();
        let (first, other) = (Url::parse("http://a:1/x")?, Url::parse("http://a:1/y")?);
        assert!(unreachable.failure(&other, "http://a:1/y").is_none());
        let failure = Failure::new(Exit::Connect, "http://a:1/x: cannot connect: a: refused");
        assert!(unreachable.note(first.origin(), "http://a:1/x", &failure));
        assert!(!unreachable.note(first.origin(), "http://a:1/x", &failure));
        let told = unreachable.failure(&other, "http://a:1/y");
        assert_eq!(
            told.map(|failure| (failure.exit, failure.message)),
            Some((
                Exit::Connect,
                "http://a:1/y: cannot connect: a: refused".to_owned()
            ))
        );
        assert!(unreachable.failure(&Url::parse("http://a:2/")?, "").is_none());
        Ok(())
    }
}
