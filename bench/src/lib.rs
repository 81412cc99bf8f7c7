//! The programs `fullbore-bench` and `fullbore-bench-counted`: run the published cases beside their peers and print what
//! they measured as tables. They differ in their allocator alone.
//!
//! This file turns a command line into cases to run, and prints and writes their sections. `cases` has one file for each
//! case. `program` and `peers` know how each program is called and what it prints. `worker` has servers and clients that
//! run as processes of their own. `simulate` moves bytes through the engine over a simulated path, and `engine` as fast as
//! the machine can. `heap` reads the counting allocator. `process`, `environment` and `context` hold what every case needs.
//! `packet_path` runs a command by hand over a path of packets, `over_packets`
//! has `fullbore serve` at the end of one, and `route` any server, or a relay where there can be no path.
//! `comparison`, `stats`, `markdown` and `plot` make figures, tables and plots of the samples.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod cases;
mod comparison;
mod context;
mod engine;
mod environment;
mod error;
mod heap;
mod markdown;
mod over_packets;
mod packet_path;
mod peers;
mod plot;
mod process;
mod program;
mod route;
mod stats;
mod worker;

use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::cases::Case;
use crate::context::{Context, Options};
use crate::environment::Environment;
use crate::error::Error;
use crate::packet_path::PacketPath;
use crate::worker::Worker;

/// Runs the published cases beside their peers and prints tables of ratios
#[derive(Parser)]
#[command(version, max_term_width = 100)]
struct CommandLine {
    #[command(subcommand)]
    command: Chosen,
    #[command(flatten)]
    options: Options,
}

#[derive(Subcommand, Clone)]
enum Chosen {
    #[command(flatten)]
    Case(Case),
    /// Every case above
    All,
    /// Draw the plots of BENCHMARKS.md from the tables in bench/results
    Plots,
    /// Run a command over an emulated path of IP packets, with its server at the other end
    PacketPath(PacketPath),
    /// A server or client that a case starts as a process of its own
    #[command(subcommand, hide = true)]
    Worker(Worker),
}

/// Where the results and the plots are, from the root of the repository.
const RESULTS: &str = "bench/results";

/// Does what the command line says.
pub fn run_program() -> ExitCode {
    let line = CommandLine::parse();
    process::raise_open_files();
    let cases = match line.command {
        Chosen::Worker(worker) => {
            return match worker::run(&worker) {
                true => ExitCode::SUCCESS,
                false => ExitCode::FAILURE,
            };
        }
        Chosen::PacketPath(path) => return packet_path::run(&path),
        Chosen::Plots => return exit(plot::draw(Path::new(RESULTS), None).map(|()| true)),
        Chosen::Case(case) => vec![case],
        Chosen::All => Case::ALL.to_vec(),
    };
    let leaves = !line.options.here && !environment::is_inside();
    if leaves && cases.contains(&Case::Responses) {
        // The namespace has no network but loopback.
        peers::java::fetch();
    }
    if !environment::is_inside() && cases.contains(&Case::H2) {
        if let Err(error) = peers::h2::build() {
            eprintln!("fullbore-bench: {error}");
            return ExitCode::FAILURE;
        }
    }
    let environment = environment::enter(line.options.here);
    exit(run(&cases, &environment, line.options))
}

fn exit(done: Result<bool, Error>) -> ExitCode {
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("fullbore-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the cases; `false` when a measurement of fullbore itself failed, which its table says.
fn run(cases: &[Case], environment: &Environment, options: Options) -> Result<bool, Error> {
    let cx = Context::open(environment, options)?;
    let mut ok = true;
    for &case in cases {
        eprintln!("fullbore-bench: {}", case.name());
        let section = cases::run(case, &cx)?;
        println!("{}", section.text);
        ok &= section.ok;
        if let Some(folder) = &cx.options.write {
            markdown::write(folder, case.name(), &section.text)?;
            // A part of the tables, with --shape, has no plots.
            if let Err(error) = plot::draw(folder, Some(case.name())) {
                eprintln!("fullbore-bench: no plots: {error}");
            }
        }
    }
    Ok(ok)
}
