//! What can go wrong in a benchmark.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Why a measurement or the whole run failed.
#[derive(Debug)]
pub(crate) enum Error {
    /// A program that is needed is not installed.
    Missing(String),
    /// A program could not be started.
    Start(String, std::io::Error),
    /// A program ended with a failure; the text is the last line that it printed.
    Failed(String, String),
    /// A program did not end in time.
    Slow(String, Duration),
    /// A program's output is not what this program knows how to read.
    Output(String, String),
    /// The time for the whole run is over.
    Over,
    /// There is no path of packets on this machine.
    NoPath(fullbore_packets::Unavailable),
    /// A file could not be read or written.
    File(PathBuf, std::io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Missing(what) => write!(f, "{what} is not installed"),
            Error::Start(what, error) => write!(f, "{what} does not start: {error}"),
            Error::Failed(what, output) => write!(f, "{what} failed: {output}"),
            Error::Slow(what, limit) => write!(f, "{what} took more than {:.0} s", limit.as_secs_f64()),
            Error::Output(what, why) => write!(f, "{what} printed something unexpected: {why}"),
            Error::Over => write!(f, "the time for the whole run is over (see --at-most)"),
            Error::NoPath(why) => why.fmt(f),
            Error::File(file, error) => write!(f, "{}: {error}", file.display()),
        }
    }
}

impl std::error::Error for Error {}
