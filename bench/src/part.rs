//! Programs of the bench's own: servers and clients that a case starts as processes of their own, so that what each
//! costs is told apart. Each prints lines for the case that started it; `main` calls `run` for the hidden subcommand
//! `part`, and the cases call `command`.

mod again;
mod attack;
mod budget;
mod client;
mod engine;
mod flood;
mod floor;
mod frames;
mod load;
mod memory;
mod once;
mod raw;
mod records;
mod soak;
mod stalled;
mod tls;

use std::io::Write as _;
use std::process::Command;

use clap::Subcommand;

use crate::fault::Fault;

pub(crate) use self::attack::{Attack, Attacked, LIMIT as STREAM_LIMIT};
pub(crate) use self::flood::Flooded;

/// Which of them, and with what.
#[derive(Subcommand, Clone)]
pub(crate) enum Part {
    /// Requests through the engine alone
    Engine(engine::Engine),
    /// A server of plain sockets that answers with very many DATA frames of one byte
    Flood(flood::Flood),
    /// Fetches a URL once with reqwest's defaults
    Once(once::Once),
    /// Uploads on a connection that is open already
    Again(again::Again),
    /// Fetches a URL again and again
    Load(load::Load),
    /// A server on the library with a memory budget, some of whose handlers never read
    BudgetServer(budget::BudgetServer),
    /// Very many connections to it, all uploading
    BudgetUploads(budget::BudgetUploads),
    /// Very many client connections in one process with one memory budget
    BudgetDownloads(budget::BudgetDownloads),
    /// A server that answers from memory, on one of two libraries
    Memory(memory::Memory),
    /// Writes bytes to a plain socket
    FloorWriter(floor::FloorWriter),
    /// Reads them, and throws them away
    FloorReader(floor::FloorReader),
    /// Requests one after another on a plain socket
    Raw(raw::Raw),
    /// Requests on one connection with one of several libraries
    Client(client::ClientPart),
    /// Connections that make a request each and rest
    Idle(raw::Idle),
    /// A relay that counts TLS records
    Records(records::Records),
    /// Downloads on one connection beside a stream that nobody reads
    Stalled(stalled::Stalled),
    /// The soak's server on the library
    SoakServer(soak::SoakServer),
    /// Attacks a server over raw sockets
    Attacker(attack::Attacker),
    /// Asks a server for something small again and again
    Bystander(attack::Bystander),
}

/// What went wrong in a part, in words.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Runs one to its end; `false` when it failed, which it has said then.
pub(crate) fn run(part: &Part) -> bool {
    let done = match part {
        Part::Engine(engine) => engine.run(),
        Part::Flood(flood) => flood.run(),
        Part::Once(once) => on_runtime(once.run()),
        Part::Again(again) => on_runtime(again.run()),
        Part::Load(load) => on_runtime(load.run()),
        Part::BudgetServer(server) => on_runtime(server.run()),
        Part::BudgetUploads(uploads) => on_runtime(uploads.run()),
        Part::BudgetDownloads(downloads) => on_runtime(downloads.run()),
        Part::Memory(memory) => memory.run(),
        Part::FloorWriter(writer) => writer.run(),
        Part::FloorReader(reader) => reader.run(),
        Part::Raw(raw) => raw.run(),
        Part::Client(client) => client.run(),
        Part::Idle(idle) => idle.run(),
        Part::Records(records) => records.run(),
        Part::Stalled(stalled) => on_runtime(stalled.run()),
        Part::SoakServer(server) => on_runtime(server.run()),
        Part::Attacker(attacker) => attacker.run(),
        Part::Bystander(bystander) => bystander.run(),
    };
    if let Err(failure) = &done {
        let why = in_full(failure.as_ref());
        // Who reads lines hears of it there, who reads the last words here.
        let _ = say(&format!("failed: {why}"));
        eprintln!("{why}");
    }
    done.is_ok()
}

/// The command of a part, of this very program.
///
/// # Errors
/// When the system cannot tell where this program lies.
pub(crate) fn command(name: &str) -> Result<Command, Fault> {
    let program =
        std::env::current_exe().map_err(|error| Fault::Start("fullbore-bench".to_owned(), error))?;
    let mut command = Command::new(program);
    command.args(["part", name]);
    Ok(command)
}

/// The same on an allocator that counts: the program beside this one.
///
/// # Errors
/// When it was not built.
pub(crate) fn counted(name: &str) -> Result<Command, Fault> {
    let this = std::env::current_exe().map_err(|error| Fault::Start("fullbore-bench".to_owned(), error))?;
    let program = this.with_file_name("fullbore-bench-counted");
    if !program.exists() {
        return Err(Fault::Missing(
            "fullbore-bench-counted (cargo build --release -p fullbore-bench)".to_owned(),
        ));
    }
    let mut command = Command::new(program);
    command.args(["part", name]);
    Ok(command)
}

fn on_runtime<F: Future<Output = Result<(), Failure>>>(part: F) -> Result<(), Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(part)
}

/// Prints a line at once, whatever standard output is.
fn say(line: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// An error with all that caused it.
fn in_full(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(one) = cause {
        let more = one.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = one.source();
    }
    text
}
