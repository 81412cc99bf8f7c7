//! Clients and servers of this package and of the published h2, each with each.

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use tokio::io::{DuplexStream, duplex};

/// What a client saw of the exchanges.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    echoed: Vec<(usize, Option<HeaderMap>)>,
    informational: usize,
    reset: Option<u32>,
    fields: usize,
    pings: usize,
    refused: bool,
}

fn pattern(length: usize) -> Bytes {
    (0..length)
        .map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8)
        .collect::<Vec<_>>()
        .into()
}

fn trailers(length: usize) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("x-length", length.into());
    trailers
}

/// The same program for either crate, whose interfaces are equal.
macro_rules! program {
    ($name:ident, $h2:ident) => {
        mod $name {
            use super::*;
            use std::future::poll_fn;
            use $h2::{Ping, Reason, RecvStream, SendStream, client, server};

            async fn send(mut sender: SendStream<Bytes>, body: Bytes) {
                let mut rest = body.clone();
                while !rest.is_empty() {
                    sender.reserve_capacity(rest.len());
                    let capacity = poll_fn(|cx| sender.poll_capacity(cx))
                        .await
                        .unwrap()
                        .unwrap();
                    sender.send_data(rest.split_to(capacity), false).unwrap();
                }
                sender.send_trailers(trailers(body.len())).unwrap();
            }

            async fn read(body: &mut RecvStream) -> (Vec<u8>, Option<HeaderMap>) {
                let mut all = Vec::new();
                while let Some(chunk) = body.data().await {
                    let chunk = chunk.unwrap();
                    body.flow_control().release_capacity(chunk.len()).unwrap();
                    all.extend_from_slice(&chunk);
                }
                (all, body.trailers().await.unwrap())
            }

            /// Echoes bodies; `/reset` is reset, `/many` answered with many fields, and `/bye` shuts the server down.
            pub(super) async fn serve(transport: DuplexStream) {
                let mut served = server::Builder::new()
                    .handshake::<_, Bytes>(transport)
                    .await
                    .unwrap();
                while let Some(accepted) = served.accept().await {
                    let (request, mut respond) = accepted.unwrap();
                    let path = request.uri().path().to_owned();
                    if path == "/bye" {
                        served.graceful_shutdown();
                    }
                    tokio::spawn(async move {
                        let hint = Response::builder().status(103).body(()).unwrap();
                        respond.send_informational(hint).unwrap();
                        if path == "/reset" {
                            return respond.send_reset(Reason::ENHANCE_YOUR_CALM);
                        }
                        let mut response = Response::new(());
                        if path == "/many" {
                            for number in 0..500 {
                                let name = format!("x-{number}").parse::<http::HeaderName>().unwrap();
                                response
                                    .headers_mut()
                                    .insert(name, "a".repeat(100).parse().unwrap());
                            }
                        }
                        let sender = respond.send_response(response, false).unwrap();
                        let (body, _) = read(&mut request.into_body()).await;
                        send(sender, body.into()).await;
                    });
                }
            }

            pub(super) async fn ask(transport: DuplexStream) -> Seen {
                let mut seen = Seen::default();
                let builder = client::Builder::new();
                let (mut requests, mut connection) = builder.handshake::<_, Bytes>(transport).await.unwrap();
                let mut pings = connection.ping_pong().unwrap();
                let connection = tokio::spawn(connection);
                let request = |path: &str| {
                    Request::post(format!("http://example.com{path}"))
                        .body(())
                        .unwrap()
                };
                for length in [0, 1, 1_023, 1_024, 65_535, 65_536, 1_000_000] {
                    requests = requests.ready().await.unwrap();
                    let (mut response, sender) = requests.send_request(request("/"), false).unwrap();
                    let sending = tokio::spawn(send(sender, pattern(length)));
                    while let Some(hint) = poll_fn(|cx| response.poll_informational(cx)).await {
                        assert_eq!(hint.unwrap().status(), 103);
                        seen.informational += 1;
                    }
                    let mut body = response.await.unwrap().into_body();
                    let (echoed, trailers) = read(&mut body).await;
                    assert!(echoed == pattern(length), "{length}");
                    sending.await.unwrap();
                    seen.echoed.push((length, trailers));
                }
                let (response, _) = requests.send_request(request("/reset"), true).unwrap();
                seen.reset = response.await.unwrap_err().reason().map(u32::from);
                let (response, _) = requests.send_request(request("/many"), true).unwrap();
                seen.fields = response.await.unwrap().headers().len();
                for _ in 0..3 {
                    pings.ping(Ping::opaque()).await.unwrap();
                    seen.pings += 1;
                }
                let (response, _) = requests.send_request(request("/bye"), true).unwrap();
                read(&mut response.await.unwrap().into_body()).await;
                // The server has gone away in peace.
                connection.await.unwrap().unwrap();
                let refused = requests.send_request(request("/"), true).unwrap_err();
                seen.refused = refused.is_go_away() && refused.is_remote();
                seen
            }
        }
    };
}

program!(ours, h2);
program!(published, h2_upstream);

async fn meets<S: Future<Output = ()> + Send + 'static>(
    serve: impl FnOnce(DuplexStream) -> S,
    ask: impl AsyncFnOnce(DuplexStream) -> Seen,
) {
    let (near, far) = duplex(40_000);
    let server = tokio::spawn(serve(far));
    let limit = std::time::Duration::from_secs(60);
    let seen = tokio::time::timeout(limit, ask(near)).await.expect("it hangs");
    let lengths = [0, 1, 1_023, 1_024, 65_535, 65_536, 1_000_000];
    let expected = Seen {
        echoed: lengths.map(|length| (length, Some(trailers(length)))).into(),
        informational: lengths.len(),
        reset: Some(11),
        fields: 500,
        pings: 3,
        refused: true,
    };
    assert_eq!(seen, expected);
    server.await.unwrap();
}

#[tokio::test]
async fn our_client_and_our_server() {
    meets(ours::serve, ours::ask).await;
}

#[tokio::test]
async fn our_client_and_the_published_server() {
    meets(published::serve, ours::ask).await;
}

#[tokio::test]
async fn the_published_client_and_our_server() {
    meets(ours::serve, published::ask).await;
}
