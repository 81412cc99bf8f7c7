//! Calls of each kind, with what has to come back. Every pair of a channel and a server runs them.

use bytes::Bytes;
use tokio::task::JoinSet;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Code, Request};

use super::client::{Client, Transport};

/// The largest message that both sides take by default: 4 MiB.
const LARGEST: usize = 4 << 20;

/// All kinds of calls, and messages of all sizes.
pub(crate) async fn all<T: Transport>(channel: T) {
    let mut client = Client::new(channel);
    unary(&mut client).await;
    statuses(&mut client).await;
    server_streaming(&mut client).await;
    client_streaming(&mut client).await;
    both_streaming(&mut client).await;
}

async fn unary<T: Transport>(client: &mut Client<T>) {
    for size in [0, 1, 16_384, 65_536, LARGEST] {
        let message = Bytes::from(vec![b'm'; size]);
        let answer = client
            .unary(message.clone())
            .await
            .expect("an answer")
            .into_inner();
        assert!(answer == message, "{} of {size} bytes came back", answer.len());
    }
    let mut request = Request::new(Bytes::from_static(b"fields"));
    request
        .metadata_mut()
        .insert("x-text", "a text".parse().expect("a value"));
    let octets = tonic::metadata::MetadataValue::from_bytes(&[0, 1, 254, 255]);
    request.metadata_mut().insert_bin("x-octets-bin", octets.clone());
    let answer = client.unary(request).await.expect("an answer");
    assert_eq!(answer.metadata().get("x-text").expect("the text"), "a text");
    let returned = answer.metadata().get_bin("x-octets-bin").expect("the octets");
    assert_eq!(
        returned.to_bytes().expect("base64"),
        octets.to_bytes().expect("base64")
    );
}

/// Trailers only, with a text that has to be escaped.
async fn statuses<T: Transport>(client: &mut Client<T>) {
    for code in 1..=16 {
        let mut request = Request::new(Bytes::new());
        let wanted = code.to_string().parse().expect("a value");
        request.metadata_mut().insert("want-status", wanted);
        let status = client.unary(request).await.expect_err("a status");
        assert_eq!(status.code(), Code::from(code), "{status:?}");
        assert_eq!(status.message(), "wie gewünscht: 100 %");
    }
    let status = client.nothing().await.expect_err("no method");
    assert_eq!(status.code(), Code::Unimplemented, "{status:?}");
}

async fn server_streaming<T: Transport>(client: &mut Client<T>) {
    for (count, size) in [(0, 0), (1, 1), (100, 10_000), (5, 1 << 20)] {
        let message = Bytes::from(format!("{count} {size}"));
        let mut answers = client.expand(message).await.expect("a head").into_inner();
        for _ in 0..count {
            let answer = answers.message().await.expect("no error").expect("a message");
            assert_eq!(answer.len(), size);
        }
        assert!(answers.message().await.expect("a good end").is_none());
    }
}

async fn client_streaming<T: Transport>(client: &mut Client<T>) {
    for (count, size) in [(0, 0), (1, 1), (2, 50_000), (100, 10_000), (5, 1 << 20)] {
        let message = Bytes::from(vec![b's'; size]);
        let messages = tokio_stream::iter(std::iter::repeat_n(message, count));
        let answer = client.collect(messages).await.expect("an answer").into_inner();
        assert_eq!(answer, format!("{count} {}", count * size));
    }
}

/// Each message is sent when the answer to the one before has come.
async fn both_streaming<T: Transport>(client: &mut Client<T>) {
    let (send, messages) = tokio::sync::mpsc::unbounded_channel();
    send.send(Bytes::from_static(b"0")).expect("open");
    let messages = UnboundedReceiverStream::new(messages);
    let mut answers = client.both(messages).await.expect("a head").into_inner();
    for number in 1..20 {
        let answer = answers.next().await.expect("no end").expect("an answer");
        assert_eq!(answer, (number - 1).to_string());
        send.send(number.to_string().into()).expect("open");
    }
    drop(send);
    assert_eq!(answers.next().await.expect("no end").expect("an answer"), "19");
    assert!(answers.next().await.is_none());
}

/// 1,000 calls at once.
pub(crate) async fn thousand<T: Transport>(channel: T) {
    let mut calls = JoinSet::new();
    for number in 0..1_000 {
        let mut client = Client::new(channel.clone());
        calls.spawn(async move {
            let message = Bytes::from(format!("call {number}"));
            let answer = client.unary(message.clone()).await.expect("an answer");
            assert_eq!(answer.into_inner(), message);
        });
    }
    assert_eq!(calls.join_all().await.len(), 1_000);
}
