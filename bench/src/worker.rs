//! Servers and clients that a case starts as processes of their own, so that the cost of each is told apart. Each prints
//! lines for the case that started it. `run_program` calls `run` for the hidden subcommand `worker`; the cases and `peers`
//! call `command`.

mod attack;
mod client;
mod engine;
mod floor;
mod load;
mod memory;
mod raw;
mod records;
mod tls;
mod upload;
mod urgent;

use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use bytes::Bytes;
use clap::Subcommand;
use http_body::Body;
use http_body_util::BodyExt;

use crate::error::Error;

pub(crate) use self::attack::{Attack, Attacked, LIMIT as STREAM_LIMIT};

/// Which worker, and its arguments.
#[derive(Subcommand, Clone)]
pub(crate) enum Worker {
    /// Requests through the engine alone
    Engine(engine::Engine),
    /// Uploads on a connection that is open already
    Upload(upload::Upload),
    /// Fetches a URL again and again
    Load(load::Load),
    /// A server that answers from memory, on one of two libraries
    Memory(memory::Memory),
    /// Writes bytes to a plain socket
    FloorWriter(floor::FloorWriter),
    /// Reads them, and throws them away
    FloorReader(floor::FloorReader),
    /// Requests one after another on a plain socket
    Raw(raw::Raw),
    /// Requests on one connection with one of several libraries
    Client(client::ClientWorker),
    /// Connections that make a request each and rest
    Idle(raw::Idle),
    /// A relay that counts TLS records
    Records(records::Records),
    /// Attacks a server over raw sockets
    Attacker(attack::Attacker),
    /// Asks a server for something small again and again
    Bystander(attack::Bystander),
    /// Urgent requests beside bulk ones on one connection
    Urgent(urgent::Urgent),
}

/// Why a worker failed.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Runs a worker to its end. When it failed, it has said so, and this returns `false`.
pub(crate) fn run(worker: &Worker) -> bool {
    let done = match worker {
        Worker::Engine(engine) => engine.run(),
        Worker::Upload(upload) => on_runtime(upload.run()),
        Worker::Load(load) => on_runtime(load.run()),
        Worker::Memory(memory) => memory.run(),
        Worker::FloorWriter(writer) => writer.run(),
        Worker::FloorReader(reader) => reader.run(),
        Worker::Raw(raw) => raw.run(),
        Worker::Client(client) => client.run(),
        Worker::Idle(idle) => idle.run(),
        Worker::Records(records) => records.run(),
        Worker::Attacker(attacker) => attacker.run(),
        Worker::Bystander(bystander) => bystander.run(),
        Worker::Urgent(urgent) => urgent.run(),
    };
    if let Err(failure) = &done {
        let why = in_full(failure.as_ref());
        // Some cases read lines, others the end of standard error.
        let _ = print_line(&format!("failed: {why}"));
        eprintln!("{why}");
    }
    done.is_ok()
}

/// The command of a worker: this program again.
///
/// # Errors
/// When the system does not know where this program is.
pub(crate) fn command(name: &str) -> Result<Command, Error> {
    let to_error = |error| Error::Start("fullbore-bench".to_owned(), error);
    let mut command = Command::new(std::env::current_exe().map_err(to_error)?);
    command.args(["worker", name]);
    Ok(command)
}

/// The same on the counting allocator: the program beside this one.
///
/// # Errors
/// When it was not built.
pub(crate) fn counted(name: &str) -> Result<Command, Error> {
    let program = Path::new(command(name)?.get_program()).with_file_name("fullbore-bench-counted");
    if !program.exists() {
        let hint = "fullbore-bench-counted (cargo build --release -p fullbore-bench)";
        return Err(Error::Missing(hint.to_owned()));
    }
    let mut command = Command::new(program);
    command.args(["worker", name]);
    Ok(command)
}

fn on_runtime<F: Future<Output = Result<(), Failure>>>(worker: F) -> Result<(), Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(worker)
}

/// Reads a body to its end and returns its length.
async fn drain<B>(mut body: B) -> Result<u64, Failure>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Failure>,
{
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(Into::into)?;
        bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
    }
    Ok(bytes)
}

/// Prints a line at once, whatever standard output is.
fn print_line(line: &str) -> Result<(), Failure> {
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
