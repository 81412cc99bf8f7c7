//! `fullbore completions` and `fullbore man`: what packagers install beside the program, generated from its command line.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::Args;
use crate::exit::Failure;

/// The name of the program, whatever its file is called.
const NAME: &str = "fullbore";

/// Prints the completions of a shell.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn completions(shell: Shell) -> Result<ExitCode, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), NAME, &mut text);
    print(&text)
}

/// Writes a man page for the program and one for each command to a folder; without a folder, prints the first.
///
/// # Errors
/// The folder or standard output cannot be written.
pub(crate) fn man(folder: Option<&Path>) -> Result<ExitCode, Failure> {
    let mut program = Args::command().name(NAME);
    program.build();
    let Some(folder) = folder else {
        return print(&page(&program)?);
    };
    std::fs::create_dir_all(folder).map_err(|error| Failure::from_io("create the folder", folder, &error))?;
    let commands = program
        .get_subcommands()
        .filter(|command| command.get_name() != "help");
    for command in commands.chain([&program]) {
        // `build` has named the commands `fullbore-get` and so on.
        let name = command.get_display_name().unwrap_or(NAME);
        let path = folder.join(format!("{name}.1"));
        let page = page(command)?;
        std::fs::write(&path, page).map_err(|error| Failure::from_io("write", &path, &error))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn page(command: &clap::Command) -> Result<Vec<u8>, Failure> {
    let mut page = Vec::new();
    Man::new(command.clone())
        .source(concat!("fullbore ", env!("CARGO_PKG_VERSION")))
        .render(&mut page)
        .map_err(cannot_print)?;
    Ok(page)
}

fn print(text: &[u8]) -> Result<ExitCode, Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text)
        .and_then(|()| out.flush())
        .map_err(cannot_print)?;
    Ok(ExitCode::SUCCESS)
}

fn cannot_print(error: io::Error) -> Failure {
    Failure::from_io("write to", Path::new("standard output"), &error)
}
