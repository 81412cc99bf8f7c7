//! What may go wrong in a benchmark, in words for the one who ran it. Every room returns this.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Why a measurement, or the whole run, came to nothing.
#[derive(Debug)]
pub(crate) enum Fault {
    /// A program that is needed is not installed.
    Missing(String),
    /// A program could not be started.
    Start(String, std::io::Error),
    /// A program ended with a failure; the text is the end of what it said.
    Failed(String, String),
    /// A program did not end in time.
    Slow(String, Duration),
    /// A program's output is not what this program knows how to read.
    Output(String, String),
    /// The time for the whole run is over.
    Over,
    /// A file could not be read or written.
    File(PathBuf, std::io::Error),
    /// The markers of a section in a file do not stand in pairs.
    Markers(PathBuf, String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Missing(what) => write!(f, "{what} is not installed"),
            Fault::Start(what, error) => write!(f, "{what} does not start: {error}"),
            Fault::Failed(what, said) => write!(f, "{what} failed: {said}"),
            Fault::Slow(what, limit) => write!(f, "{what} took more than {:.0} s", limit.as_secs_f64()),
            Fault::Output(what, why) => write!(f, "{what} printed something unexpected: {why}"),
            Fault::Over => write!(f, "the time for the whole run is over (see --at-most)"),
            Fault::File(file, error) => write!(f, "{}: {error}", file.display()),
            Fault::Markers(file, why) => write!(f, "{}: {why}; mend the file and run again", file.display()),
        }
    }
}

impl std::error::Error for Fault {}
