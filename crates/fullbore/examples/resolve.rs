//! An address in place of what the DNS says: `cargo run --example resolve -- 192.0.2.1 https://example.com/`. TLS still
//! verifies the name of the URL.

use std::io;
use std::net::IpAddr;

use fullbore::settings::TcpBuffers;
use fullbore::{BoxError, Client};
use http::Uri;
use http_body_util::BodyExt;
use tokio::net::TcpStream;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let mut args = std::env::args().skip(1);
    let (Some(address), Some(url)) = (args.next(), args.next()) else {
        return Err("usage: resolve <ADDRESS> <URL>".into());
    };
    let address: IpAddr = address.parse()?;
    let connector = tower::service_fn(move |origin: Uri| async move {
        // The client always says the port.
        let port = origin.port_u16().ok_or(io::ErrorKind::InvalidInput)?;
        let stream = TcpStream::connect((address, port)).await?;
        TcpBuffers::default().apply(&stream);
        io::Result::Ok(stream)
    });
    let client = Client::builder().connector(connector).build()?;
    let response = client.get(&url).await?;
    eprintln!("{}", response.status());
    let body = response.into_body().collect().await?.to_bytes();
    print!("{}", String::from_utf8_lossy(&body));
    Ok(())
}
