//! Streams of messages that are silent for two minutes, which no limit of the proxy ends. The test waits as long.

use std::time::Duration;

use bytes::Bytes;
use fullbore::{BoxError, Incoming};
use futures_util::{SinkExt, StreamExt};
use http::{Request, Response};
use http_body_util::BodyExt;
use http_body_util::channel::Channel;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;

use crate::support::{Front, VERSIONS, boxed, client, origin, soon, urls};
use crate::web_sockets::echo;

/// Longer than what cuts streams elsewhere: 60 s in nginx and in many balancers.
const SILENCE: Duration = Duration::from_secs(120);

/// A request and a response at once.
async fn both_ways(url: String) {
    let site = Front::to(&url).await;
    let (mut say, body) = Channel::<Bytes, BoxError>::new(1);
    let request = Request::post(site.url("/")).body(boxed(body)).unwrap();
    say.send_data(Bytes::from_static(b"before")).await.unwrap();
    let response = soon(client(VERSIONS[1]).request(request)).await.unwrap();
    let mut answers = response.into_body();
    let frame = soon(answers.frame()).await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), "before");
    tokio::time::sleep(SILENCE).await;
    say.send_data(Bytes::from_static(b"after")).await.unwrap();
    let frame = soon(answers.frame()).await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), "after", "{url}");
    drop(say);
    assert!(soon(answers.frame()).await.is_none(), "{url}");
}

async fn web_socket(url: String) {
    let front = Front::to(&url).await;
    let stream = TcpStream::connect(front.site.address).await.unwrap();
    let address = format!("ws://{}/socket", front.site.address);
    let (mut socket, _) = soon(tokio_tungstenite::client_async(address, stream))
        .await
        .unwrap();
    for (pause, text) in [(Duration::ZERO, "before"), (SILENCE, "after")] {
        tokio::time::sleep(pause).await;
        socket.send(Message::text(text)).await.unwrap();
        let message = soon(socket.next()).await.unwrap().unwrap();
        assert_eq!(message.into_text().unwrap().as_str(), text, "{url}");
    }
}

#[tokio::test]
#[ignore = "it is silent for two minutes"]
async fn an_echo_goes_on_after_two_minutes_of_silence() {
    let mirror =
        |request: Request<Incoming>| async { Ok::<_, BoxError>(Response::new(boxed(request.into_body()))) };
    let (site, sockets) = (origin(mirror).await, echo().await);
    let [one, two] = urls(&site);
    let [three, four] = urls(&sockets);
    tokio::join!(
        both_ways(one),
        both_ways(two),
        web_socket(three),
        web_socket(four)
    );
}
