//! `fullbore demo`: transfers data between a server and a client in this process, and checks every byte.
//!
//! It needs no argument, file or network. `pattern` makes the bytes, `service` is the server's side, and `path` emulates a
//! long path.

mod path;
mod pattern;
mod service;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use fullbore::{Client, Incoming, Server, tls};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

use crate::exit::{Exit, Failure};
use crate::figures::{grouped, rate};
use crate::transfer::client;

use pattern::{Check, PatternBody};
use service::{DemoService, SMALL_BYTES};

/// Long enough that the first round trips do not matter, short enough for a slow laptop.
const LARGE_BYTES: u64 = 64 << 20;
const SMALL_REQUESTS: u64 = 1_000;

/// Runs every transfer, over cleartext and over TLS, and prints a line for each.
///
/// # Errors
/// A byte was wrong, or a transfer failed.
pub(crate) async fn run() -> Result<ExitCode, Failure> {
    say("fullbore demo: a client and a server in one process, on 127.0.0.1\n")?;
    say(&format!(
        "{:<38} {:>12} {:>8} {:>9}  {}",
        "what", "bytes", "seconds", "MB/s", "checked"
    ))?;
    let mut total = 0;
    let mut cleartext = None;
    for secure in [false, true] {
        let pair = Pair::start(secure).await?;
        let over = if secure { "TLS" } else { "cleartext" };
        let many = grouped(SMALL_REQUESTS);
        total += line(&format!("download over {over}"), pair.download()).await?;
        total += line(&format!("upload over {over}"), pair.upload()).await?;
        total += line(&format!("{many} small responses over {over}"), pair.small()).await?;
        if !secure {
            cleartext = Some(pair);
            continue;
        }
        pair.stop().await?;
    }
    if let Some(pair) = cleartext {
        total += path::run(pair.address).await?;
        pair.stop().await?;
    }
    say(&format!(
        "\nAll {} bytes arrived and are correct.",
        grouped(total)
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Runs one transfer and prints a line for it.
async fn line(what: &str, transfer: impl Future<Output = Result<u64, Failure>>) -> Result<u64, Failure> {
    let begun = Instant::now();
    let bytes = transfer.await?;
    let seconds = begun.elapsed().as_secs_f64();
    say(&format!(
        "{what:<38} {:>12} {seconds:>8.2} {:>9.1}  every byte",
        grouped(bytes),
        rate(bytes, seconds)
    ))?;
    Ok(bytes)
}

fn say(text: &str) -> Result<(), Failure> {
    writeln!(io::stdout(), "{text}")
        .map_err(|error| Failure::from_io("write to", "standard output".as_ref(), &error))
}

/// A server, and a client of it with one connection.
struct Pair {
    client: Client,
    origin: String,
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    server: JoinHandle<Result<(), fullbore::Error>>,
}

impl Pair {
    async fn start(secure: bool) -> Result<Self, Failure> {
        let wrong = |error: fullbore::Error| Failure::from_library("demo", &error);
        let mut server = Server::builder();
        let mut client = Client::builder();
        let mut scheme = "http";
        if secure {
            scheme = "https";
            let signed = tls::self_signed(&["127.0.0.1"]).map_err(wrong)?;
            let config =
                tls::server_config(signed.cert_pem.as_bytes(), signed.key_pem.as_bytes()).map_err(wrong)?;
            server = server.tls_config(Arc::new(config));
            // The client verifies the certificate, with the certificate itself as the only authority.
            let roots = tls::Roots::Pem(signed.cert_pem.into_bytes());
            let config = tls::client_config(roots).map_err(wrong)?;
            client = client.tls_config(Arc::new(config));
        }
        let server = server.bind("127.0.0.1:0").await.map_err(wrong)?;
        let address = server
            .local_addr()
            .map_err(|error| Failure::new(Exit::Other, format!("demo: {error}")))?;
        let (stop, stopped) = oneshot::channel::<()>();
        let server = server.graceful_shutdown(async {
            let _ = stopped.await;
        });
        Ok(Self {
            client: client.build().map_err(wrong)?,
            origin: format!("{scheme}://{address}"),
            address,
            stop,
            server: tokio::spawn(server.serve(DemoService)),
        })
    }

    /// Ends both sides gracefully. A server that ended early has failed.
    async fn stop(self) -> Result<(), Failure> {
        let _ = self.stop.send(());
        client::farewell(&self.client).await;
        match self.server.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(Failure::from_library(&self.origin, &error)),
            Err(error) => Err(Failure::new(Exit::Other, format!("demo: {error}"))),
        }
    }

    async fn download(&self) -> Result<u64, Failure> {
        let url = format!("{}/pattern/{LARGE_BYTES}", self.origin);
        receive_pattern(&self.client, url, 0, LARGE_BYTES).await
    }

    /// The server checks the bytes and responds with their count.
    async fn upload(&self) -> Result<u64, Failure> {
        let url = format!("{}/check", self.origin);
        let request = Request::put(&url).body(PatternBody::new(0, LARGE_BYTES));
        let response = send(&self.client, &url, request).await?;
        let answer = response
            .into_body()
            .collect()
            .await
            .map_err(|error| Failure::from_library(&url, &error))?
            .to_bytes();
        if answer == LARGE_BYTES.to_string().as_bytes() {
            return Ok(LARGE_BYTES);
        }
        Err(Failure::new(
            Exit::WrongBytes,
            format!(
                "{url}: {} bytes were sent, and the server reports: {}",
                grouped(LARGE_BYTES),
                String::from_utf8_lossy(&answer)
            ),
        ))
    }

    async fn small(&self) -> Result<u64, Failure> {
        let mut requests = JoinSet::new();
        for index in 0..SMALL_REQUESTS {
            let url = format!("{}/small/{index}", self.origin);
            let client = self.client.clone();
            requests
                .spawn(async move { receive_pattern(&client, url, index * SMALL_BYTES, SMALL_BYTES).await });
        }
        let mut total = 0;
        while let Some(ended) = requests.join_next().await {
            total += ended.map_err(|error| Failure::new(Exit::Other, format!("demo: {error}")))??;
        }
        Ok(total)
    }
}

/// Downloads `bytes` of the pattern from `position` on, and compares each chunk.
async fn receive_pattern(client: &Client, url: String, position: u64, bytes: u64) -> Result<u64, Failure> {
    let request = Request::get(&url).body(Empty::<Bytes>::new());
    let mut body = send(client, &url, request).await?.into_body();
    let mut check = Check::new(position);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Failure::from_library(&url, &error))?;
        if let Some(data) = frame.data_ref() {
            check.update(data);
        }
    }
    match check.result() {
        Ok(count) if count == bytes => Ok(count),
        Ok(count) => Err(Failure::new(
            Exit::WrongBytes,
            format!(
                "{url}: received {} bytes instead of {}",
                grouped(count),
                grouped(bytes)
            ),
        )),
        Err(wrong) => Err(Failure::new(
            Exit::WrongBytes,
            format!("{url}: the byte at {} is wrong", grouped(wrong)),
        )),
    }
}

async fn send<B>(
    client: &Client,
    url: &str,
    request: http::Result<Request<B>>,
) -> Result<Response<Incoming>, Failure>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let request = request.map_err(|error| Failure::new(Exit::BadUrl, format!("{url}: {error}")))?;
    let response = client
        .request(request)
        .await
        .map_err(|error| Failure::from_library(url, &error))?;
    if response.status() == StatusCode::OK {
        return Ok(response);
    }
    Err(Failure::new(
        Exit::Status,
        format!("{url}: status {}", response.status()),
    ))
}
