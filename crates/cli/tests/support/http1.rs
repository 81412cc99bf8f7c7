//! Servers of HTTP/1.1 that answer each request by its head and body. Clients need `--http1.1`.

use std::io::{self, BufRead, BufReader, Read, Write};

use super::peer;

/// A server on a free port; returns its origin. `answer` gets the head of a request, in lower case but for the first line, and
/// its body.
pub(crate) fn serve(answer: impl Fn(&str, &[u8]) -> Vec<u8> + Clone + Send + 'static) -> io::Result<String> {
    let address = peer::listen(move |stream| {
        let mut reader = BufReader::new(stream.try_clone()?);
        loop {
            let mut head = String::new();
            while reader.read_line(&mut head)? > 2 {}
            let Some((first, fields)) = head.split_once("\r\n") else {
                return Ok(());
            };
            let fields = fields.to_ascii_lowercase();
            let length = fields
                .lines()
                .find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok());
            let mut body = vec![0; length.unwrap_or(0)];
            reader.read_exact(&mut body)?;
            stream.write_all(&answer(&format!("{first}\r\n{fields}"), &body))?;
        }
    })?;
    Ok(format!("http://{address}"))
}

/// A response with a status, fields and a body. The fields end with CRLF.
pub(crate) fn response(status: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n{fields}\r\n");
    [head.as_bytes(), body].concat()
}

/// 200 with these fields and this body.
pub(crate) fn ok(fields: &str, body: &[u8]) -> Vec<u8> {
    response("200 OK", fields, body)
}

/// What `range: bytes=N-` asks for.
pub(crate) fn range(head: &str) -> Option<usize> {
    let line = head.lines().find_map(|line| line.strip_prefix("range: bytes="))?;
    line.trim().strip_suffix('-')?.parse().ok()
}

/// 206 with the rest of a body from `from` on, or 416.
pub(crate) fn rest(fields: &str, body: &[u8], from: usize) -> Vec<u8> {
    let length = body.len();
    match body.get(from..) {
        Some(rest) if !rest.is_empty() => {
            let last = length - 1;
            let fields = format!("content-range: bytes {from}-{last}/{length}\r\n{fields}");
            response("206 Partial Content", &fields, rest)
        }
        _ => response(
            "416 Range Not Satisfiable",
            &format!("content-range: bytes */{length}\r\n"),
            b"",
        ),
    }
}
