//! Uploads whose rest the server refuses: the user learns of it for every kind of source, with the bytes that left.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

use fullbore_testing::peer::BlockingPeer;
use serde_json::Value;

use crate::support::{Ended, TestResult, frames, peer, program};

const SIZE: usize = 3_000_000;

/// Uploads a file or a pipe of zeros.
fn put(url: &str, options: &[&str], of_pipe: bool, size: usize) -> TestResult<(Ended, Value)> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("file"), vec![0; size])?;
    let mut command = program(folder.path());
    command
        .args(["put", if of_pipe { "-" } else { "file" }, url])
        .args(["--json", "-o", "response", "--force"])
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let mut stdin = child.stdin.take().ok_or("no standard input")?;
    let writer = std::thread::spawn(move || {
        // The program may end before it has read all.
        let _ = stdin.write_all(&vec![0; size]);
    });
    let output = child.wait_with_output()?;
    writer.join().map_err(|_| "the writer panicked")?;
    let document = serde_json::from_slice(&output.stdout)?;
    let ended = Ended {
        code: output.status.code(),
        stdout: output.stdout,
        stderr: String::from_utf8(output.stderr)?,
    };
    Ok((ended, document))
}

/// Answers 200 once a window's octets have come, and refuses the rest.
fn refuse(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut peer = BlockingPeer::server(stream)?;
    let id = peer.expect(frames::HEADERS)?.stream;
    let mut left = 65_535;
    while left > 0 {
        left -= peer.expect(frames::DATA)?.payload.len();
    }
    peer.send(&frames::status(id, "200"))?;
    peer.send(&frames::reset(id, 0))?;
    std::io::copy(&mut peer.0, &mut std::io::sink()).map(drop)
}

#[test]
fn a_refused_rest_is_named_for_a_file_and_a_pipe_with_the_bytes_that_left() -> TestResult {
    let address = peer::listen(refuse)?;
    // The second is buffered whole before it is refused.
    for size in [SIZE, 100_000] {
        for of_pipe in [false, true] {
            let (ended, document) = put(&format!("http://{address}/x"), &["--http2"], of_pipe, size)?;
            ended.succeeded();
            assert!(
                ended
                    .stderr
                    .contains("responded with 200 after 65535 bytes and refused the rest"),
                "{of_pipe} {size}: {ended:?}"
            );
            assert_eq!(document["sent"], 65_535, "{document}");
        }
    }
    Ok(())
}

#[test]
fn over_http1_a_pipe_that_is_refused_is_named_too() -> TestResult {
    let address = peer::listen(|stream| {
        stream.read_exact(&mut [0; 5_000])?;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")?;
        peer::close_now(stream)
    })?;
    // More than all buffers on the way.
    let size = 64 << 20;
    for of_pipe in [false, true] {
        let (ended, document) = put(&format!("http://{address}/x"), &["--http1.1"], of_pipe, size)?;
        ended.succeeded();
        let sent = document["sent"].as_u64().ok_or("no count")?;
        let text = format!("responded with 200 after {sent} bytes and refused the rest");
        assert!(ended.stderr.contains(&text), "{ended:?} {document}");
        assert!(sent < size as u64, "{document}");
    }
    Ok(())
}

#[test]
fn a_whole_upload_is_counted_to_its_last_byte() -> TestResult {
    let root = tempfile::tempdir()?;
    let serving =
        crate::support::Serving::start(root.path(), &["--plaintext", "--uploads", ".", "--overwrite"])?;
    for of_pipe in [false, true] {
        for size in [0, 1, SIZE] {
            let (ended, document) = put(&format!("{}/x", serving.origin), &[], of_pipe, size)?;
            ended.succeeded();
            assert_eq!(ended.stderr, "");
            assert_eq!(document["sent"], size, "{document}");
            assert_eq!(std::fs::metadata(root.path().join("x"))?.len(), size as u64);
        }
    }
    Ok(())
}
