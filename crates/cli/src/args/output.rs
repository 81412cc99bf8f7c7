//! The options of `get` and `put` for what they print on standard error.

use clap::Args as Options;

use crate::volume::Volume;

/// What `get` and `put` print on standard error.
#[derive(Options, Clone, Debug)]
pub(crate) struct OutputArgs {
    /// Print errors only: no progress, notes or summary
    #[arg(short, long, conflicts_with = "silent", help_heading = "Log")]
    quiet: bool,

    /// Print nothing on standard error, not even errors; -sS prints errors
    #[arg(short, long, help_heading = "Log")]
    silent: bool,

    /// With -s, print errors
    #[arg(short = 'S', long, requires = "silent", help_heading = "Log")]
    show_error: bool,
}

impl OutputArgs {
    /// How much is printed; `verbose` is `-v`.
    pub(crate) fn volume(&self, verbose: bool) -> Volume {
        match (self.silent, self.quiet || self.show_error, verbose) {
            (true, false, _) => Volume::Silent,
            (_, true, _) => Volume::Quiet,
            (_, _, true) => Volume::Verbose,
            _ => Volume::Normal,
        }
    }
}
