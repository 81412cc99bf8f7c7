//! `fullbore link`: what goes in comes out, frames are counted, and a signal ends it well.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};

use fullbore_testing::nobody::Nobody;

use crate::support::{Signal, TestResult, program, run, signal};

/// The client's preface, an empty SETTINGS, a WINDOW_UPDATE for the connection, and 5 bytes of DATA.
const REQUEST: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\
    \0\0\0\x04\0\0\0\0\0\
    \0\0\x04\x08\0\0\0\0\0\0\0\x10\0\
    \0\0\x05\0\0\0\0\0\x01hello";

/// `fullbore link`; killed if a test ends before it did.
struct Linking {
    child: Child,
    output: BufReader<ChildStdout>,
    address: String,
}

impl Linking {
    fn start(server: &TcpListener, options: &[&str]) -> TestResult<Self> {
        Self::start_to(server.local_addr()?, options)
    }

    fn start_to(server: SocketAddr, options: &[&str]) -> TestResult<Self> {
        let to = server.to_string();
        let mut child = program(Path::new("."))
            .args(["link", "--to", &to])
            .args(options)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut output = BufReader::new(child.stdout.take().ok_or("no standard output")?);
        let mut line = String::new();
        output.read_line(&mut line)?;
        let address = line
            .trim()
            .strip_prefix("listening on ")
            .ok_or("no address")?
            .to_owned();
        Ok(Self {
            child,
            output,
            address,
        })
    }

    /// One request and its answer through the link, both ended.
    fn exchange(&self, server: &TcpListener) -> TestResult {
        let mut client = TcpStream::connect(&self.address)?;
        client.write_all(REQUEST)?;
        client.shutdown(Shutdown::Write)?;
        let (mut accepted, _) = server.accept()?;
        let mut received = Vec::new();
        accepted.read_to_end(&mut received)?;
        assert_eq!(received, REQUEST);
        accepted.write_all(b"\0\0\0\x04\0\0\0\0\0")?;
        drop(accepted);
        let mut answer = Vec::new();
        client.read_to_end(&mut answer)?;
        assert_eq!(answer.len(), 9);
        Ok(())
    }

    /// Ends it with SIGTERM; returns its exit code and all that it still printed.
    fn stop(mut self) -> TestResult<(Option<i32>, String, String)> {
        signal(&self.child, Signal::Terminate)?;
        let (mut out, mut notes) = (String::new(), String::new());
        self.output.read_to_string(&mut out)?;
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut notes)?;
        }
        Ok((self.child.wait()?.code(), out, notes))
    }
}

impl Drop for Linking {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn frames_are_printed_when_a_connection_ends() -> TestResult {
    let server = TcpListener::bind("127.0.0.1:0")?;
    let link = Linking::start(
        &server,
        &[
            "--rtt",
            "4ms",
            "--rate",
            "1Gbit",
            "--jitter",
            "1ms",
            "--seed",
            "3",
            "--count-frames",
            "--json",
        ],
    )?;
    link.exchange(&server)?;
    let (code, out, notes) = link.stop()?;
    assert_eq!(code, Some(0));
    let report: serde_json::Value = serde_json::from_str(out.trim())?;
    assert_eq!(report["end"], "closed");
    assert_eq!(report["to_server"]["received_bytes"], REQUEST.len());
    let frames = &report["to_server"]["frames"];
    for (name, count) in [
        ("settings", 1),
        ("connection_window_update", 1),
        ("stream_window_update", 0),
        ("data", 1),
        ("data_bytes", 5),
        ("small_data", 1),
        ("longest_small_data_run", 1),
    ] {
        assert_eq!(frames[name], count, "{name}");
    }
    assert_eq!(report["to_client"]["frames"]["settings"], 1);
    assert!(notes.contains("deliveries late by"), "{notes}");
    Ok(())
}

#[test]
fn a_connection_that_is_open_at_the_end_is_reported_as_well() -> TestResult {
    let server = TcpListener::bind("127.0.0.1:0")?;
    let link = Linking::start(&server, &["--count-frames"])?;
    let mut client = TcpStream::connect(&link.address)?;
    client.write_all(b"no HTTP/2")?;
    let (mut accepted, _) = server.accept()?;
    accepted.read_exact(&mut [0; 9])?;
    let (code, out, _) = link.stop()?;
    assert_eq!(code, Some(0));
    assert!(out.contains("open when the link stopped"), "{out}");
    assert!(out.contains("not HTTP/2 in cleartext"), "{out}");
    Ok(())
}

#[test]
fn without_counting_only_the_address_is_printed() -> TestResult {
    let server = TcpListener::bind("127.0.0.1:0")?;
    let link = Linking::start(&server, &["--handshake", "--rtt", "2ms"])?;
    link.exchange(&server)?;
    let (code, out, _) = link.stop()?;
    assert_eq!((code, out.as_str()), (Some(0), ""));
    Ok(())
}

#[test]
fn a_server_that_cannot_be_reached_is_named() -> TestResult {
    let nobody = Nobody::bind();
    let link = Linking::start_to(nobody.address(), &[])?;
    let mut client = TcpStream::connect(&link.address)?;
    // The link resets it.
    assert!(client.read_to_end(&mut Vec::new()).is_err());
    let (code, out, notes) = link.stop()?;
    assert_eq!((code, out.as_str()), (Some(0), ""));
    let sentence = format!("{nobody}: cannot reach the server: connection refused");
    assert!(notes.contains(&sentence), "{notes}");
    Ok(())
}

#[test]
fn what_cannot_be_is_refused_with_a_sentence() -> TestResult {
    let taken = TcpListener::bind("127.0.0.1:0")?;
    let listen = taken.local_addr()?.to_string();
    let here = Path::new(".");
    run(here, ["link", "--to", "127.0.0.1:1", "--listen", &listen])?.failed_with(5);
    run(here, ["link", "--to", "127.0.0.1"])?.failed_with(2);
    run(here, ["link", "--to", "127.0.0.1:1", "--buffer", "0"])?.failed_with(2);
    for wrong in [["--rate", "0Gbit"], ["--rtt", "100x"], ["--buffer", "1.5B"]] {
        let ended = run(here, ["link", "--to", "127.0.0.1:1", wrong[0], wrong[1]])?;
        assert_eq!(ended.code, Some(2), "{ended:?}");
    }
    Ok(())
}
