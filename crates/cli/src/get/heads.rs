//! The heads of responses on standard output: `--head` and `--include`.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;

use fullbore::Incoming;
use http::{Response, Version};

use crate::exit::Failure;
use crate::text::escaped_octets;
use crate::transfer::receive::file_job;

/// Prints status and fields, and an empty line.
///
/// # Errors
/// Standard output cannot be written.
pub(super) async fn print_head(response: &Response<Incoming>) -> Result<(), Failure> {
    let octets = head(response, io::stdout().is_terminal());
    file_job(move || {
        let mut out = io::stdout().lock();
        out.write_all(&octets)
            .and_then(|()| out.flush())
            .map_err(|error| Failure::from_io("write to", Path::new("standard output"), &error))
    })
    .await
}

/// The octets of the fields as they are, unless a terminal would obey some.
fn head<T>(response: &Response<T>, for_terminal: bool) -> Vec<u8> {
    let version = match response.version() {
        Version::HTTP_2 => "HTTP/2",
        Version::HTTP_10 => "HTTP/1.0",
        _ => "HTTP/1.1",
    };
    let status = response.status();
    let mut head = format!("{version} {}", status.as_u16()).into_bytes();
    if let Some(reason) = status.canonical_reason() {
        head.push(b' ');
        head.extend(reason.as_bytes());
    }
    head.push(b'\n');
    for (name, value) in response.headers() {
        head.extend(name.as_str().as_bytes());
        head.extend(b": ");
        match for_terminal {
            true => head.extend(escaped_octets(value.as_bytes()).into_bytes()),
            false => head.extend(value.as_bytes()),
        }
        head.push(b'\n');
    }
    head.push(b'\n');
    head
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_head_is_a_status_line_fields_and_an_empty_line() -> Result<(), http::Error> {
        let response = Response::builder()
            .status(404)
            .version(Version::HTTP_2)
            .header("content-type", "text/plain")
            .header("x-a", "1")
            .header("x-a", "2")
            .body(())?;
        for for_terminal in [false, true] {
            assert_eq!(
                head(&response, for_terminal),
                b"HTTP/2 404 Not Found\ncontent-type: text/plain\nx-a: 1\nx-a: 2\n\n"
            );
        }
        Ok(())
    }

    #[test]
    fn octets_of_a_field_stay_as_they_are_but_on_a_terminal() -> Result<(), http::Error> {
        let octets = HeaderValue::from_bytes(b"caf\xe9 \xc3\xa9 \xc2\x9b31m")?;
        let response = Response::builder().header("x-a", octets).body(())?;
        let raw = head(&response, false);
        assert!(raw.ends_with(b"x-a: caf\xe9 \xc3\xa9 \xc2\x9b31m\n\n"));
        let shown = head(&response, true);
        assert!(shown.ends_with("x-a: caf\\xe9 é \\u{9b}31m\n\n".as_bytes()));
        Ok(())
    }
}
