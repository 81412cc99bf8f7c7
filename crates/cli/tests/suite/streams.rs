//! Bodies that never end, on standard output: what has arrived is written before more comes.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Stdio};

use crate::support::{Signal, TestResult, peer, program, signal};

/// `data: 1` and an end of line, as much of a gzip body as a server flushes.
const GZIP: &[u8] =
    b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\x4a\x49\x2c\x49\xb4\x52\x30\xe4\x02\x00\x00\x00\xff\xff";

/// A server that answers with these fields and one line of a body that goes on.
fn lines(fields: &'static str, line: &'static [u8]) -> std::io::Result<String> {
    let address = peer::listen(move |stream| {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut octet = [0];
            stream.read_exact(&mut octet)?;
            head.extend(octet);
        }
        stream.write_all(format!("HTTP/1.1 200 OK\r\n{fields}\r\n").as_bytes())?;
        stream.write_all(line)?;
        std::io::copy(stream, &mut std::io::sink()).map(drop)
    })?;
    Ok(format!("http://{address}/events"))
}

fn get(folder: &std::path::Path, args: &[&str]) -> std::io::Result<Child> {
    program(folder)
        .args(["get", "--http1.1"])
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
}

/// Stops a run that is under way; what it said.
fn stop(child: Child, told: Signal) -> TestResult<String> {
    signal(&child, told)?;
    let output = child.wait_with_output()?;
    assert_eq!(output.status.code(), told.exit_code());
    Ok(String::from_utf8(output.stderr)?)
}

#[test]
fn what_has_arrived_of_a_body_without_end_is_on_standard_output_before_more_comes() -> TestResult {
    let folder = tempfile::tempdir()?;
    for (fields, octets, option) in [
        ("content-type: text/event-stream\r\n", &b"data: 1\n"[..], &[][..]),
        ("content-length: 1000000\r\n", b"data: 1\n", &["-o", "-"]),
        ("content-encoding: gzip\r\n", GZIP, &["--compressed"]),
    ] {
        let url = lines(fields, octets)?;
        for told in [Signal::Interrupt, Signal::Terminate] {
            let mut child = get(folder.path(), &[option, &[&url]].concat())?;
            let mut line = [0; 8];
            let mut stdout = child.stdout.take().ok_or("no standard output")?;
            stdout.read_exact(&mut line)?;
            assert_eq!(&line, b"data: 1\n");
            let said = stop(child, told)?;
            assert!(
                said.ends_with("; standard output has what had arrived\n"),
                "{said}"
            );
        }
    }
    Ok(())
}

#[test]
fn what_has_arrived_is_in_a_fifo_before_more_comes() -> TestResult {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU)?;
    let url = lines("content-type: text/event-stream\r\n", b"data: 1\n")?;
    let child = get(folder.path(), &["-o", "fifo", &url])?;
    let mut line = [0; 8];
    File::open(&path)?.read_exact(&mut line)?;
    assert_eq!(&line, b"data: 1\n");
    stop(child, Signal::Interrupt)?;
    Ok(())
}

#[test]
fn the_response_to_an_upload_is_printed_as_it_comes() -> TestResult {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("file"), "")?;
    let url = lines("content-length: 1000000\r\n", b"data: 1\n")?;
    let mut child = program(folder.path())
        .args(["put", "--http1.1", "file", &url])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut line = [0; 8];
    let mut stdout = child.stdout.take().ok_or("no standard output")?;
    stdout.read_exact(&mut line)?;
    assert_eq!(&line, b"data: 1\n");
    let said = stop(child, Signal::Terminate)?;
    assert!(said.ends_with("; the upload is not complete\n"), "{said}");
    Ok(())
}
