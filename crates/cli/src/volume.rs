//! How much `get` and `put` print on standard error: `-q`, `-s`, `-S` and `-v`.

use std::io::{self, IsTerminal};

/// How much a run prints on standard error.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Volume {
    /// Nothing.
    Silent,
    /// Errors.
    Quiet,
    /// On a terminal also the progress and the summary; notes anywhere.
    Normal,
    /// The summary anywhere.
    Verbose,
}

impl Volume {
    /// Whether errors are printed.
    pub(crate) fn prints_errors(self) -> bool {
        self >= Volume::Quiet
    }

    /// Whether notes are printed, and the progress on a terminal.
    pub(crate) fn prints_notes(self) -> bool {
        self >= Volume::Normal
    }

    /// Whether the closing line is printed.
    pub(crate) fn prints_summary(self) -> bool {
        self == Volume::Verbose || self == Volume::Normal && io::stderr().is_terminal()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quiet_run_prints_errors_and_a_silent_one_nothing() {
        let printed = |volume: Volume| [volume.prints_errors(), volume.prints_notes()];
        assert_eq!(printed(Volume::Silent), [false, false]);
        assert_eq!(printed(Volume::Quiet), [true, false]);
        assert_eq!(printed(Volume::Normal), [true, true]);
        assert_eq!(printed(Volume::Verbose), [true, true]);
        assert!(Volume::Verbose.prints_summary() && !Volume::Quiet.prints_summary());
    }
}
