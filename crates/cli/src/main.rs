//! The program `fullbore`: HTTP/2 downloads, uploads and a file server at the speed of the path.
//!
//! Here a command line becomes a command, and what the command returns becomes an exit code. Each command has a
//! file of its own; `exit` holds the codes they all end with.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod args;
mod demo;
mod exit;
mod figures;
mod get;
mod link_command;
mod put;
mod run;
mod serve_command;
mod sizes;
mod transfer;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Args, Command};

/// Small responses cost less of the processor than with glibc's allocator, whose thread cache ends below the size of a
/// header map.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let ended = match Args::parse().command {
        Command::Get(get) => run::to_end(run::CLIENT_WORKERS, get::run(get)),
        Command::Put(put) => run::to_end(run::CLIENT_WORKERS, put::run(put)),
        Command::Demo => run::to_end(run::DEMO_WORKERS, demo::run()),
        Command::Link(link) => link_command::run(link),
        Command::Serve(serve) => serve_command::run(serve),
    };
    match ended {
        Ok(code) => code,
        Err(failure) => {
            run::complain(&failure);
            failure.exit.into()
        }
    }
}
