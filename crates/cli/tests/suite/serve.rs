//! `fullbore serve` and `fullbore proxy` around what they serve: where it listens, its certificates, what it adds to responses, whom it admits, and what
//! it says of wrong options.

mod around;
mod figures;
mod first;
mod listening;
mod proxy;
mod tls;
mod wrong;

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::support::{PATIENCE, TestResult, program};

/// A server whose output is read; ended when it is dropped.
struct Site {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Site {
    fn start(folder: &Path, args: &[&str]) -> TestResult<Self> {
        Self::spawn(program(folder).arg("serve").args(args))
    }

    /// A proxy.
    fn proxy(folder: &Path, args: &[&str]) -> TestResult<Self> {
        let listen = ["--plaintext", "--listen", "127.0.0.1:0"];
        Self::spawn(program(folder).arg("proxy").args(listen).args(args))
    }

    fn spawn(command: &mut Command) -> TestResult<Self> {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().ok_or("no output")?;
        Ok(Self {
            child,
            lines: BufReader::new(stdout).lines(),
        })
    }

    /// The next line of standard output.
    fn line(&mut self) -> TestResult<String> {
        match self.lines.next() {
            Some(line) => Ok(line?),
            None => {
                let mut text = String::new();
                if let Some(stderr) = &mut self.child.stderr {
                    stderr.read_to_string(&mut text)?;
                }
                Err(format!("serve has ended: {text}").into())
            }
        }
    }

    /// What follows `before` in the next line.
    fn after(&mut self, before: &str) -> TestResult<String> {
        let line = self.line()?;
        let rest = line.strip_prefix(before);
        Ok(rest
            .ok_or_else(|| format!("{line:?} does not begin with {before:?}"))?
            .to_owned())
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a request in HTTP/1.1 and reads the whole response. `fields` end with CR LF.
fn ask(mut stream: impl Read + Write, line: &str, fields: &str) -> TestResult<String> {
    write!(
        stream,
        "{line} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{fields}\r\n"
    )?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    Ok(response)
}

/// The same over TCP, to `http://ADDRESS`.
fn ask_over_tcp(origin: &str, line: &str, fields: &str) -> TestResult<String> {
    let address = origin.strip_prefix("http://").ok_or("no origin in cleartext")?;
    let stream = std::net::TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    ask(stream, line, fields)
}

/// The values of a field of a response.
fn values<'a>(response: &'a str, name: &str) -> Vec<&'a str> {
    let head = response.split("\r\n\r\n").next().unwrap_or_default();
    let fields = head.lines().skip(1).filter_map(|line| line.split_once(": "));
    fields
        .filter(|field| field.0.eq_ignore_ascii_case(name))
        .map(|field| field.1)
        .collect()
}

/// The status of a response.
fn status(response: &str) -> &str {
    response.split(' ').nth(1).unwrap_or_default()
}
