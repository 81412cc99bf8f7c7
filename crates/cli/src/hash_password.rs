//! `fullbore hash-password`: makes what `serve --auth` takes.

use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::path::Path;
use std::process::ExitCode;

use crate::args::HashPasswordArgs;
use crate::exit::{Exit, Failure};

/// The longest password that bcrypt takes whole, in bytes: it takes 72, and the last is a zero byte.
pub(crate) const LONGEST_PASSWORD: usize = 71;

/// Twice the time for each step: a quarter of a second or so for this one.
const COST: u32 = 12;

/// Reads a password from the terminal or from a line of standard input, and prints `NAME:HASH`.
///
/// # Errors
/// The password cannot be read or used.
pub(crate) fn run(args: &HashPasswordArgs) -> Result<ExitCode, Failure> {
    let password = if io::stdin().is_terminal() {
        let first = ask("Password: ")?;
        if ask("Again: ")? != first {
            return Err(Failure::usage("the two passwords differ; start again"));
        }
        first
    } else {
        line()?
    };
    check(&password)?;
    let hash = bcrypt::non_truncating_hash(&password, COST)
        .map_err(|error| Failure::new(Exit::Other, format!("the password cannot be hashed: {error}")))?;
    writeln!(io::stdout(), "{}:{hash}", args.name)
        .map_err(|error| Failure::from_io("write to", Path::new("standard output"), &error))?;
    Ok(ExitCode::SUCCESS)
}

fn check(password: &str) -> Result<(), Failure> {
    if password.is_empty() {
        return Err(Failure::usage(
            "the password is empty; type one, or send a line to standard input",
        ));
    }
    if password.len() > LONGEST_PASSWORD {
        return Err(Failure::usage(format!(
            "the password has {} bytes, and bcrypt takes at most {LONGEST_PASSWORD}; use a shorter one",
            password.len()
        )));
    }
    if password.contains(char::is_control) {
        return Err(Failure::usage(
            "the password has control characters; use one without",
        ));
    }
    Ok(())
}

/// Asks in the terminal, which does not show what is typed.
fn ask(prompt: &str) -> Result<String, Failure> {
    let _ = write!(io::stderr(), "{prompt}");
    let hidden = hidden::Hidden::begin();
    let line = line();
    drop(hidden);
    let _ = writeln!(io::stderr());
    line
}

/// A line of standard input.
fn line() -> Result<String, Failure> {
    let failed = |error: io::Error| Failure::from_io("read", Path::new("standard input"), &error);
    let mut line = String::new();
    // A line that is much too long is not read to its end.
    let mut input = io::stdin().lock().take(4_096);
    input.read_line(&mut line).map_err(failed)?;
    let text = line.strip_suffix('\n').unwrap_or(&line);
    Ok(text.strip_suffix('\r').unwrap_or(text).to_owned())
}

#[cfg(unix)]
mod hidden {
    use std::io;

    use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

    /// The terminal shows nothing until this is dropped.
    pub(super) struct Hidden(Termios);

    impl Hidden {
        pub(super) fn begin() -> Option<Self> {
            let before = tcgetattr(io::stdin()).ok()?;
            let mut silent = before.clone();
            silent.local_modes.remove(LocalModes::ECHO);
            tcsetattr(io::stdin(), OptionalActions::Flush, &silent).ok()?;
            Some(Self(before))
        }
    }

    impl Drop for Hidden {
        fn drop(&mut self) {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
        }
    }
}

#[cfg(not(unix))]
mod hidden {
    /// The terminal shows what is typed.
    pub(super) struct Hidden;

    impl Hidden {
        pub(super) fn begin() -> Option<Self> {
            None
        }
    }
}
