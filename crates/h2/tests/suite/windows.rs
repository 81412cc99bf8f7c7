//! Windows that grow, which the feature `fixed-windows` switches off.

use h2::{client, server};
use tokio::io::duplex;

use crate::support::{
    ACK, DATA, END_HEADERS, HEADERS, PING, Peer, SETTINGS, WINDOW_UPDATE, client_before_peer, get, read,
    request_block, server_before_peer,
};

#[tokio::test]
async fn settings_say_what_was_set_and_updates_what_the_path_may_need() {
    let (near, transport) = duplex(1 << 16);
    let mut builder = client::Builder::new();
    builder
        .initial_window_size(2 << 20)
        .initial_connection_window_size(5 << 20);
    let (mut requests, connection) = builder.handshake::<_, bytes::Bytes>(near).await.unwrap();
    let (_response, _) = requests.send_request(get("/"), true).unwrap();
    let _connection = tokio::spawn(connection);
    let mut peer = Peer::after_preface(transport).await;
    let settings = peer.hears_of(SETTINGS).await.payload;
    assert!(settings.chunks(6).any(|entry| entry == [0, 4, 0, 0x20, 0, 0]));
    let of_connection = peer.hears_of(WINDOW_UPDATE).await;
    assert_eq!(of_connection.stream, 0);
    let window = of_connection.word(0) + 65_535;
    assert!(window > 5 << 20);
    assert_eq!(peer.hears_of(HEADERS).await.stream, 1);
    // The round trip is not known yet.
    let of_stream = peer.hears_of(WINDOW_UPDATE).await;
    assert_eq!(
        (of_stream.stream, of_stream.word(0) + (2 << 20)),
        (1, window / 4 * 3)
    );
}

#[tokio::test]
async fn a_handler_that_reads_nothing_is_sent_what_was_set_and_16_mib() {
    const SET: u32 = 1 << 20;
    let mut builder = server::Builder::new();
    builder
        .initial_window_size(SET)
        .initial_connection_window_size(SET)
        .max_concurrent_streams(100);
    let (mut served, mut peer) = server_before_peer(&builder, &[]).await;
    let mut credit = 65_535;
    let uploading = async {
        let mut sent = 0;
        for stream in (1..).step_by(2).take(40) {
            peer.says(HEADERS, END_HEADERS, stream, &request_block("POST"))
                .await;
            for _ in 0..SET / 16_384 {
                if sent + 16_384 > credit {
                    break;
                }
                peer.says(DATA, 0, stream, &[7; 16_384]).await;
                sent += 16_384;
            }
            // What the server says before its answer is all that it will say.
            peer.says(PING, 0, 0, b"all read").await;
            loop {
                let frame = peer.hears().await.unwrap();
                match (frame.kind, frame.stream) {
                    (PING, _) if frame.flags == ACK => break,
                    (WINDOW_UPDATE, 0) => credit += frame.word(0),
                    (WINDOW_UPDATE, stream) => panic!("stream {stream} was widened"),
                    _ => {}
                }
            }
        }
        sent
    };
    let mut accepted = Vec::new();
    let serving = async {
        while let Some(request) = served.accept().await {
            accepted.push(request.unwrap());
        }
    };
    let sent = tokio::select! {
        sent = uploading => sent,
        () = serving => panic!("the connection ended"),
    };
    assert_eq!(accepted.len(), 40);
    assert_eq!((sent, credit), (SET + (16 << 20), SET + (16 << 20)));
}

#[tokio::test]
async fn a_reader_that_keeps_up_is_given_a_wide_window_at_once() {
    let mut builder = server::Builder::new();
    builder.initial_window_size(1 << 20);
    let (near, far) = duplex(1 << 16);
    let serving = tokio::spawn(async move {
        let mut served = builder.handshake::<_, bytes::Bytes>(far).await.unwrap();
        let (request, respond) = served.accept().await.unwrap().unwrap();
        let reading = tokio::spawn(async move { read(&mut request.into_body()).await });
        while served.accept().await.is_some() {}
        drop((reading, respond));
    });
    let mut peer = Peer::new(near);
    peer.preface().await;
    peer.says(SETTINGS, 0, 0, b"").await;
    peer.says(HEADERS, END_HEADERS, 1, &request_block("POST")).await;
    for _ in 0..3 {
        peer.says(DATA, 0, 1, &[7; 16_384]).await;
    }
    let mut widened = 0;
    while widened < 11 << 20 {
        let frame = peer.hears_of(WINDOW_UPDATE).await;
        if frame.stream == 1 {
            widened += frame.word(0);
        }
    }
    drop(peer);
    serving.await.unwrap();
}

#[tokio::test]
async fn a_program_that_raises_a_window_never_lowers_one_that_has_grown() {
    let (near, far) = duplex(1 << 16);
    let builder = client::Builder::new();
    let (_requests, mut connection) = builder.handshake::<_, bytes::Bytes>(near).await.unwrap();
    let heard = tokio::spawn(async move {
        let mut peer = Peer::after_preface(far).await;
        peer.says(SETTINGS, 0, 0, b"").await;
        let mut credit = Vec::new();
        while let Some(frame) = peer.hears().await {
            if frame.kind == WINDOW_UPDATE {
                credit.push(frame.word(0));
            }
        }
        credit
    });
    // As a program does that follows the path by itself.
    let mut step = async |size| {
        connection.set_target_window_size(size);
        for _ in 0..3 {
            let polled = std::future::poll_fn(|cx| {
                std::task::Poll::Ready(std::future::Future::poll(std::pin::Pin::new(&mut connection), cx))
            });
            assert!(polled.await.is_pending());
            tokio::task::yield_now().await;
        }
    };
    step(100_000).await;
    step(200_000).await;
    step(1 << 30).await;
    drop(connection);
    let credit = heard.await.unwrap();
    assert_eq!(credit.len(), 2, "at the start and at the end: {credit:?}");
    assert_eq!(credit.iter().sum::<u32>() + 65_535, 1 << 30);
}

#[tokio::test]
async fn a_connection_window_below_that_of_the_rfc_stays() {
    let mut builder = client::Builder::new();
    builder.initial_connection_window_size(10_000);
    let (mut requests, _connection, mut peer) = client_before_peer(&builder, &[]).await;
    let (_response, _) = requests.send_request(get("/"), true).unwrap();
    peer.hears_of(HEADERS).await;
    assert!(peer.is_content_without(WINDOW_UPDATE).await);
}
