//! Requests every URL of a list on standard input at once, and counts the answers and the bytes:
//! `seq -f http://127.0.0.1:8080/%g 10000 | cargo run --release --example list`.

use std::io::{BufRead, stdin};

use fullbore::{BoxError, Client, Error};
use http_body_util::BodyExt;
use tokio::task::JoinSet;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let client = Client::new();
    let mut requests = JoinSet::new();
    for url in stdin().lock().lines() {
        let (client, url) = (client.clone(), url?);
        requests.spawn(async move {
            let length = length(&client, &url).await;
            (url, length)
        });
    }
    let (mut answers, mut bytes, mut failures) = (0, 0, 0);
    while let Some(ended) = requests.join_next().await {
        match ended? {
            (_, Ok(length)) => {
                answers += 1;
                bytes += length;
            }
            (url, Err(error)) => {
                failures += 1;
                eprintln!("{url}: {error}");
            }
        }
    }
    println!("{answers} answers, {bytes} bytes, {failures} failures");
    Ok(())
}

async fn length(client: &Client, url: &str) -> Result<usize, Error> {
    let body = client.get(url).await?.into_body();
    Ok(body.collect().await?.to_bytes().len())
}
