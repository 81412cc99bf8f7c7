//! The program `fullbore`: fast HTTP/2 downloads, uploads and a file server.
//!
//! Each command has a module of its own. `exit` has the exit codes.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod args;
mod demo;
mod exit;
mod figures;
mod get;
mod link_command;
mod log;
mod put;
mod run;
mod serve;
mod sizes;
mod transfer;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Args, Command};

/// With glibc's allocator small responses cost more processor time: its thread cache has no blocks as large as a header
/// map.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let args = Args::parse();
    log::start(args.verbose);
    let ended = match args.command {
        Command::Get(get) => run::to_end(run::CLIENT_WORKERS, get::run(get)),
        Command::Put(put) => run::to_end(run::CLIENT_WORKERS, put::run(put)),
        Command::Demo => run::to_end(run::DEMO_WORKERS, demo::run()),
        Command::Link(link) => link_command::run(link),
        Command::Serve(serve) => serve::run(serve),
    };
    match ended {
        Ok(code) => code,
        Err(failure) => {
            run::complain(&failure);
            failure.exit.into()
        }
    }
}
