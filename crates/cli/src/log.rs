//! The events of the library on standard error: `-v`, `-vv` and RUST_LOG.

use std::io;
use std::str::FromStr;

use fullbore_files::LogWriter;
use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::run;

/// Starts the log that RUST_LOG asks for, or else `-v`: connections, resets, stalls and limits; `-vv` adds each request. Its
/// lines go through `writer`, or straight to standard error.
pub(crate) fn start(verbose: u8, writer: Option<&'static LogWriter>) {
    let wanted = match std::env::var("RUST_LOG") {
        Ok(text) if !text.is_empty() => match Targets::from_str(&text) {
            Ok(targets) => targets,
            Err(error) => return run::complain(&format!("RUST_LOG is ignored: {error}")),
        },
        _ => match verbose {
            0 => return,
            1 => Targets::new().with_target("fullbore", Level::DEBUG),
            _ => Targets::new().with_target("fullbore", Level::TRACE),
        },
    };
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(match writer {
            Some(writer) => BoxMakeWriter::new(move || Lines(writer)),
            None => BoxMakeWriter::new(io::stderr),
        })
        .with_ansi(false);
    tracing_subscriber::registry().with(lines).with(wanted).init();
}

/// Takes each event as a line.
struct Lines(&'static LogWriter);

impl io::Write for Lines {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.0.line(&String::from_utf8_lossy(octets));
        Ok(octets.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
