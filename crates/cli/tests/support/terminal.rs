//! A terminal for the program to print on.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::process::{Command, ExitStatus, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::TestResult;

/// Runs a command with standard error, and perhaps standard output, on a terminal; how it ended, and all that the terminal
/// got.
pub(crate) fn on_terminal(command: Command, stdout_too: bool) -> TestResult<(ExitStatus, String)> {
    on_watched_terminal(command, stdout_too, |_| ())
}

/// The same, where `watch` is shown all that the terminal has, whenever there is more.
pub(crate) fn on_watched_terminal(
    mut command: Command,
    stdout_too: bool,
    mut watch: impl FnMut(&str),
) -> TestResult<(ExitStatus, String)> {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let name = ptsname(&master, Vec::new())?;
    let slave = OpenOptions::new().read(true).write(true).open(name.to_str()?)?;
    let size = Winsize {
        ws_row: 24,
        ws_col: 120,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&slave, size)?;
    command
        .env("TERM", "xterm")
        .stderr(Stdio::from(slave.try_clone()?));
    command.stdout(match stdout_too {
        true => Stdio::from(slave.try_clone()?),
        false => Stdio::null(),
    });
    drop(slave);
    let mut child = command.spawn()?;
    // The terminal ends when nobody has it open for writing.
    drop(command);
    let mut text = Vec::new();
    let mut some = [0; 4_096];
    let mut master = File::from(master);
    // Linux reports the end as EIO.
    while let Ok(count @ 1..) = master.read(&mut some) {
        text.extend_from_slice(&some[..count]);
        watch(&String::from_utf8_lossy(&text));
    }
    Ok((child.wait()?, String::from_utf8_lossy(&text).into_owned()))
}
