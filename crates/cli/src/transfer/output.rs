//! Where a run prints its result, and what both commands print alike.

use std::borrow::Cow;
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

use crate::exit::Failure;
use crate::figures::{grouped, rate};
use crate::text;

/// Where the result goes, and in which format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Format {
    /// Sentences on standard error.
    Text,
    /// The document on standard output, sentences on standard error.
    JsonOut,
    /// The document alone on standard error, since a body goes to standard output.
    JsonErr,
}

impl Format {
    pub(crate) fn choose(json: bool, body_on_stdout: bool) -> Self {
        match (json, body_on_stdout) {
            (false, _) => Self::Text,
            (true, false) => Self::JsonOut,
            (true, true) => Self::JsonErr,
        }
    }

    /// Prints a part of the document.
    ///
    /// # Errors
    /// Standard output cannot be written. An error of standard error is ignored: nothing is left to report it on.
    pub(crate) fn print(self, text: &str) -> Result<(), Failure> {
        if self != Self::JsonOut {
            let _ = io::stderr().write_all(text.as_bytes());
            return Ok(());
        }
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())
            .and_then(|()| out.flush())
            .map_err(|error| Failure::from_io("write to", Path::new("standard output"), &error))
    }
}

/// The shortest transfer of which the closing line says what it waited for: a second and a megabyte. In less, the first round
/// trip and the start of the program take most of the time.
pub(crate) fn has_verdict(bytes: u64, seconds: f64) -> bool {
    bytes >= 1_000_000 && seconds >= 1.0
}

/// A struct of plain fields always serializes.
pub(crate) fn json(value: &impl Serialize) -> String {
    let document = serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned());
    match text::escaped_json(&document) {
        Cow::Borrowed(_) => document,
        Cow::Owned(escaped) => escaped,
    }
}

/// Bytes, seconds and MB/s (10^6 bytes a second), as the closing lines show them.
pub(crate) fn moved(bytes: u64, seconds: f64) -> String {
    format!(
        "{} bytes in {seconds:.2} s, {:.1} MB/s",
        grouped(bytes),
        rate(bytes, seconds)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_verdict_is_passed_on_what_is_over_at_once() {
        for (bytes, seconds, has) in [
            (8, 0.001, false),
            (999_999, 100.0, false),
            (1 << 30, 0.99, false),
            (1_000_000, 1.0, true),
        ] {
            assert_eq!(has_verdict(bytes, seconds), has, "{bytes} {seconds}");
        }
    }

    #[test]
    fn the_document_goes_where_no_body_does() {
        assert_eq!(Format::choose(false, false), Format::Text);
        assert_eq!(Format::choose(false, true), Format::Text);
        assert_eq!(Format::choose(true, false), Format::JsonOut);
        assert_eq!(Format::choose(true, true), Format::JsonErr);
    }
}
