//! The program `fullbore`: fast HTTP/2 downloads, uploads and a file server.
//!
//! Each command has a module of its own. `exit` has the exit codes.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod args;
mod checksum;
mod demo;
mod exit;
mod figures;
mod get;
mod hash_password;
mod key_log;
mod link_command;
mod log;
mod pages;
mod put;
mod run;
mod serve;
mod sizes;
mod text;
mod transfer;
mod volume;

use std::process::ExitCode;
use std::sync::Arc;

use crate::args::{Args, Command};
use crate::run::Leftovers;

/// With glibc's allocator small responses cost more processor time: its thread cache has no blocks as large as a header
/// map.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let args = Args::of_process();
    let serves = matches!(args.command, Command::Serve(_) | Command::Proxy(_));
    let writer = if serves {
        run::never_wait_for_stderr()
    } else {
        None
    };
    log::start(args.verbose, writer);
    let verbose = args.verbose > 0;
    let leftovers = Arc::new(Leftovers::default());
    let mut prints_errors = true;
    let ended = match args.command {
        Command::Get(get) => {
            let volume = get.print.volume(verbose);
            prints_errors = volume.prints_errors();
            let command = get::run(get, volume, Arc::clone(&leftovers));
            run::to_end(run::CLIENT_WORKERS, &leftovers, command)
        }
        Command::Put(put) => {
            let volume = put.print.volume(verbose);
            prints_errors = volume.prints_errors();
            let command = put::run(put, volume, Arc::clone(&leftovers));
            run::to_end(run::CLIENT_WORKERS, &leftovers, command)
        }
        Command::Demo => run::to_end(run::DEMO_WORKERS, &leftovers, demo::run()),
        Command::Link(link) => link_command::run(link),
        Command::HashPassword(args) => hash_password::run(&args),
        Command::Serve(serve) => serve::run(serve),
        Command::Proxy(proxy) => serve::run_proxy(proxy),
        Command::Completions { shell } => pages::completions(shell),
        Command::Man { folder } => pages::man(folder.as_deref()),
    };
    let code = match ended {
        Ok(code) => code,
        Err(failure) => {
            if prints_errors {
                run::complain(&failure);
            }
            failure.exit.into()
        }
    };
    run::finish_stderr();
    code
}
