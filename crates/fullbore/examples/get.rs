//! Fetches a URL and writes its body to standard output: `cargo run --example get -- https://example.com/`.

use fullbore::BoxError;
use http_body_util::BodyExt;
use tokio::io::AsyncWriteExt;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let url = std::env::args().nth(1).ok_or("usage: get <URL>")?;
    let client = fullbore::Client::new();
    let response = client.get(&url).await?;
    eprintln!("{:?} {}", response.version(), response.status());
    for (name, value) in response.headers() {
        eprintln!("{name}: {}", String::from_utf8_lossy(value.as_bytes()));
    }
    let mut body = response.into_body();
    let mut out = tokio::io::stdout();
    while let Some(frame) = body.frame().await {
        // Trailers are not for standard output.
        if let Ok(data) = frame?.into_data() {
            out.write_all(&data).await?;
        }
    }
    out.flush().await?;
    Ok(())
}
