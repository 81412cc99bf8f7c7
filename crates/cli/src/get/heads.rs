//! The heads of responses on standard output: `--head` and `--include`.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::Path;

use fullbore::Incoming;
use http::{Response, Version};

use crate::exit::Failure;
use crate::transfer::receive::file_job;

/// Prints status and fields, and an empty line.
///
/// # Errors
/// Standard output cannot be written.
pub(super) async fn print_head(response: &Response<Incoming>) -> Result<(), Failure> {
    let text = head(response);
    file_job(move || {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())
            .and_then(|()| out.flush())
            .map_err(|error| Failure::from_io("write to", Path::new("standard output"), &error))
    })
    .await
}

fn head<T>(response: &Response<T>) -> String {
    let version = match response.version() {
        Version::HTTP_2 => "HTTP/2",
        Version::HTTP_10 => "HTTP/1.0",
        _ => "HTTP/1.1",
    };
    let status = response.status();
    let mut text = format!("{version} {}", status.as_u16());
    if let Some(reason) = status.canonical_reason() {
        let _ = write!(text, " {reason}");
    }
    text.push('\n');
    for (name, value) in response.headers() {
        let _ = writeln!(text, "{name}: {}", String::from_utf8_lossy(value.as_bytes()));
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
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
        assert_eq!(
            head(&response),
            "HTTP/2 404 Not Found\ncontent-type: text/plain\nx-a: 1\nx-a: 2\n\n"
        );
        Ok(())
    }
}
