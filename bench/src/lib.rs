//! The programs `fullbore-bench` and `fullbore-bench-counted`: run the published cases beside their peers and print what
//! they measured as tables. They differ in their allocator alone.
//!
//! Here a command line becomes cases to run, and their sections are printed and written. `cases` holds one file a
//! case; `fullbore` and `peers` know how each program is called and what it prints; `part` holds servers and clients of
//! the bench's own, which run as processes; `soak` looks for faults and leaks over minutes, `kills` for files that are cut;
//! `simulate` moves bytes through the engine alone over a path, `engine` as fast
//! as the machine can; `heap` reads the counting allocator; `process`, `place` and
//! `session` hold what every case stands on; `contest`, `stats` and `markdown` make figures and tables of the samples.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod cases;
mod contest;
mod dice;
mod engine;
mod fault;
mod fullbore;
mod heap;
mod kills;
mod markdown;
mod part;
mod peers;
mod place;
mod process;
mod session;
mod simulate;
mod soak;
mod stats;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::cases::Case;
use crate::fault::Fault;
use crate::part::Part;
use crate::session::Session;

/// Runs the published cases beside their peers and prints tables of ratios
#[derive(Parser)]
#[command(version, max_term_width = 100)]
struct CommandLine {
    #[command(subcommand)]
    command: Chosen,
    #[command(flatten)]
    options: Options,
}

/// What every case takes.
#[derive(Args)]
struct Options {
    /// How often each program is measured, in turn with the others
    #[arg(long, value_name = "N", default_value_t = 5, global = true, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Write the section of each case into this file too, in the place of the one it had there
    #[arg(long, value_name = "FILE", global = true)]
    write: Option<PathBuf>,
    /// Start no measurement after this many minutes, and end the one under way
    #[arg(long, value_name = "MINUTES", default_value_t = 60, global = true, value_parser = clap::value_parser!(u32).range(1..=1440))]
    at_most: u32,
    /// Measure each program for a tenth of the time, where a case has it scaled: figures to look at, not to publish
    #[arg(long, global = true)]
    quick: bool,
    /// Of a case with several shapes of load, measure only those whose name has this text in it
    #[arg(long, value_name = "TEXT", global = true)]
    shape: Option<String>,
    /// Keep the counts of `engine` as the ones that later runs are held against
    #[arg(long, global = true)]
    keep: bool,
    /// Stay in this network namespace instead of one of its own
    #[arg(long, global = true)]
    here: bool,
}

#[derive(Subcommand, Clone)]
enum Chosen {
    #[command(flatten)]
    Case(Case),
    /// Every case above
    All,
    /// Random requests, uploads, cancels and shutdowns for some minutes: every byte is checked, and nothing may be kept
    Soak(soak::Soak),
    /// Transfers of 1,000 files in which client or server is killed 50 times, and none of which may be lost or cut
    Kills(kills::Kills),
    /// A program of the bench's own, which the cases start
    #[command(subcommand, hide = true)]
    Part(Part),
}

impl Chosen {
    fn cases(&self) -> Vec<Case> {
        match self {
            Chosen::Case(case) => vec![*case],
            Chosen::Part(_) | Chosen::Soak(_) | Chosen::Kills(_) => Vec::new(),
            Chosen::All => Case::ALL.to_vec(),
        }
    }
}

/// Does what the command line says.
pub fn run_program() -> ExitCode {
    let line = CommandLine::parse();
    process::raise_open_files();
    if let Chosen::Part(part) = &line.command {
        return match part::run(part) {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        };
    }
    if matches!(line.command, Chosen::Soak(_)) {
        place::keep_to_one_arena();
    }
    let leaves = !line.options.here && !place::is_inside();
    if leaves && line.command.cases().contains(&Case::Responses) {
        // Inside there is no network but loopback.
        peers::java::fetch();
    }
    let place = place::enter(line.options.here);
    match run(&line, place) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(fault) => {
            eprintln!("fullbore-bench: {fault}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the chosen cases; `false` when a measurement of fullbore itself failed, which its table then says.
fn run(line: &CommandLine, place: place::Place) -> Result<bool, Fault> {
    let options = &line.options;
    let at_most = Duration::from_secs(60 * u64::from(options.at_most));
    let mut session = Session::open(place, options.runs, options.quick, at_most)?;
    session.shape.clone_from(&options.shape);
    session.keep = options.keep;
    if let Chosen::Soak(soak) = &line.command {
        return soak::run(soak, &session);
    }
    if let Chosen::Kills(kills) = &line.command {
        return kills::run(kills, &session);
    }
    let mut sound = true;
    for case in line.command.cases() {
        eprintln!("fullbore-bench: {}", case.name());
        let section = cases::run(case, &session)?;
        println!("{}", section.text);
        sound &= section.sound;
        if let Some(file) = &options.write {
            markdown::write_section(file, case.name(), &section.text)?;
        }
    }
    Ok(sound)
}
