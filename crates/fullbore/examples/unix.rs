//! HTTP over a Unix socket: `cargo run --example unix -- /run/app.sock http://app/path`.

use fullbore::{BoxError, Client};
use http::Uri;
use http_body_util::BodyExt;
use tokio::net::UnixStream;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let mut args = std::env::args().skip(1);
    let (Some(path), Some(url)) = (args.next(), args.next()) else {
        return Err("usage: unix <SOCKET> <URL>".into());
    };
    // Whatever the host is, the socket has the server.
    let socket = tower::service_fn(move |_: Uri| UnixStream::connect(path.clone()));
    let client = Client::builder().connector(socket).build()?;
    let response = client.get(&url).await?;
    eprintln!("{}", response.status());
    let body = response.into_body().collect().await?.to_bytes();
    print!("{}", String::from_utf8_lossy(&body));
    Ok(())
}
