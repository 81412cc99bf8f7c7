//! Writes a body to standard output, shows the progress, and says at the end what limited the transfer.
//!
//! ```sh
//! cargo run --release -p fullbore --example progress -- https://example.com/large.iso >large.iso
//! ```

use fullbore::stats::{Direction, Role, Verdict};
use fullbore::{BoxError, Client};
use tokio::io::AsyncWriteExt;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let url = std::env::args().nth(1).ok_or("usage: progress <URL>")?;
    let client = Client::new();
    let mut response = client.get(&url).await?.error_for_status()?;
    let total = response.content_length();
    let mut output = tokio::io::stdout();
    let (mut received, mut shown) = (0, 0);
    while let Some(chunk) = response.chunk().await? {
        output.write_all(&chunk).await?;
        received += chunk.len() as u64;
        // A line for each megabyte, because a terminal is slower than a network.
        if received / 1_000_000 > shown {
            shown = received / 1_000_000;
            match total {
                Some(total) => eprint!("\r{shown} MB of {} MB", total / 1_000_000),
                None => eprint!("\r{shown} MB"),
            }
        }
    }
    output.flush().await?;
    eprintln!("\r{received} bytes");
    // Only connections of HTTP/2 are in the reports.
    if let Some(verdict) = Verdict::of(Role::Client, Direction::Receiving, &client.reports().await) {
        eprintln!("{verdict}");
    }
    Ok(())
}
