//! How long an urgent response (RFC 9218) takes beside a bulk one on the same connection:
//! `cargo run --release --example urgent -- http://127.0.0.1:9000/large http://127.0.0.1:9000/small`.

use std::time::{Duration, Instant};

use bytes::Bytes;
use fullbore::ext::Priority;
use fullbore::{BoxError, Client};
use http::Request;
use http_body_util::{BodyExt, Empty};

/// How often the small one is asked for.
const TIMES: usize = 15;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let mut urls = std::env::args().skip(1);
    let (Some(large), Some(small)) = (urls.next(), urls.next()) else {
        return Err("usage: urgent <URL OF A LARGE FILE> <URL OF A SMALL ONE>".into());
    };
    let client = Client::builder().max_connections(1).build()?;
    let mut bulk = client.request(ask(&large, 5)?).await?.into_body();
    let reading = tokio::spawn(async move {
        while let Some(frame) = bulk.frame().await {
            frame?;
        }
        Ok::<_, fullbore::Error>(())
    });
    // Until whatever lies between the two ends has filled.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let mut took = Vec::new();
    for _ in 0..TIMES {
        let began = Instant::now();
        let response = client.request(ask(&small, 0)?).await?;
        response.into_body().collect().await?;
        took.push(began.elapsed());
        tokio::time::sleep(Duration::from_millis(130)).await;
    }
    if reading.is_finished() {
        return Err("the large file ended before the last of the small ones".into());
    }
    took.sort();
    let [least, median, most] = [took[0], took[TIMES / 2], took[TIMES - 1]];
    println!("{TIMES} urgent responses: least {least:.1?}, median {median:.1?}, most {most:.1?}");
    Ok(())
}

/// A request of this urgency, 0 being the most urgent.
fn ask(url: &str, urgency: u8) -> Result<Request<Empty<Bytes>>, BoxError> {
    let priority = Priority::new(urgency, false).ok_or("urgency is 0 to 7")?;
    Ok(Request::get(url)
        .header("priority", priority.to_field_value())
        .body(Empty::new())?)
}
