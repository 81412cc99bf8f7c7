//! Handlers that live in their connection's future: they need not be `Send`, go on when they are woken, and end with it.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use fullbore::client::{SendRequest, handshake};
use fullbore::server::{ServeConnectionLocal, serve_connection_local};
use fullbore::{BoxError, Config, ErrorCode, ErrorKind, Incoming};
use http::{Request, Response};
use http_body::Body;
use http_body_util::BodyExt;
use http_body_util::channel::Channel;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::sync::{Notify, oneshot};

use crate::support::{
    Chunks, Local, Peer, Reply, config, empty, frames, full, get, pattern, post, soon, take, windows,
};

type Server = ServeConnectionLocal<DuplexStream, Local>;

/// A server on one end of a pipe whose handlers are made by `handler`, and the pipe's other end.
fn server<H, F>(config: Config, handler: H) -> (Server, DuplexStream)
where
    H: Fn(Request<Incoming>) -> F + 'static,
    F: Future<Output = Result<Reply, BoxError>> + 'static,
{
    let (near, far) = tokio::io::duplex(64 << 10);
    (serve_connection_local(near, Local::new(handler), config), far)
}

/// Runs `script` with a client of `server` until both ends have ended, which they are to do well.
async fn with_client<S, F>(
    (server, io): (S, DuplexStream),
    script: impl FnOnce(SendRequest) -> F,
) -> F::Output
where
    S: Future<Output = Result<(), fullbore::Error>>,
    F: Future,
{
    let (sender, client) = handshake(io, windows(100_000, 100_000));
    let ends = async { tokio::join!(script(sender), client, server) };
    let (output, client, server) = soon(ends).await;
    client.expect("the client ended well");
    server.expect("the server ended well");
    output
}

async fn text(response: Response<Incoming>) -> String {
    let octets = response.into_body().collect().await.expect("a body").to_bytes();
    String::from_utf8(octets.into()).expect("text")
}

/// Gives everything that is ready a turn, again and again.
async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

/// Counts how often a handler is polled.
struct Polled<F> {
    polls: Rc<Cell<u32>>,
    inner: Pin<Box<F>>,
}

impl<F: Future> Future for Polled<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.polls.set(self.polls.get() + 1);
        self.inner.as_mut().poll(cx)
    }
}

/// Says when it is dropped.
struct Guard(Rc<Cell<u32>>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

#[tokio::test]
async fn a_handler_with_state_of_its_thread_answers_at_once() {
    let asked = Rc::new(Cell::new(0));
    let count = Rc::clone(&asked);
    let server = server(config(), move |_| {
        let count = Rc::clone(&count);
        async move {
            count.set(count.get() + 1);
            Ok(Response::new(full(count.get().to_string())))
        }
    });
    with_client(server, |client| async move {
        for round in 1..=20 {
            let response = client.send(get("/")).await.unwrap();
            assert!(response.headers().contains_key(http::header::DATE));
            assert_eq!(text(response).await, round.to_string());
        }
    })
    .await;
    assert_eq!(asked.get(), 20);
}

#[tokio::test]
async fn a_handler_that_waits_is_woken_by_timers_tasks_and_other_threads() {
    let server = server(config(), |request: Request<Incoming>| async move {
        match request.uri().path() {
            "/timer" => tokio::time::sleep(Duration::from_millis(1)).await,
            "/yield" => tokio::task::yield_now().await,
            "/task" => tokio::spawn(tokio::task::yield_now()).await?,
            "/thread" => tokio::task::spawn_blocking(|| {}).await?,
            // Woken again and again within its own turn.
            "/itself" => {
                for _ in 0..1_000 {
                    let mut woken = false;
                    std::future::poll_fn(|cx| {
                        if std::mem::replace(&mut woken, true) {
                            return Poll::Ready(());
                        }
                        cx.waker().wake_by_ref();
                        Poll::Pending
                    })
                    .await;
                }
            }
            path => return Err(format!("{path} is not known").into()),
        }
        Ok(Response::new(full("done")))
    });
    with_client(server, |client| async move {
        for _ in 0..20 {
            for path in ["/timer", "/yield", "/task", "/thread", "/itself"] {
                assert_eq!(
                    text(client.send(get(path)).await.unwrap()).await,
                    "done",
                    "{path}"
                );
            }
        }
    })
    .await;
}

#[tokio::test]
async fn many_that_wait_end_in_any_order_and_are_polled_only_when_they_are_woken() {
    const MANY: usize = 500;
    type Gates = Rc<RefCell<Vec<(usize, oneshot::Sender<()>, Rc<Cell<u32>>)>>>;
    let gates = Gates::default();
    let waiting = Rc::clone(&gates);
    let server = server(config(), move |request: Request<Incoming>| {
        let number: usize = request.uri().path()[1..].parse().expect("a number");
        let (open, gate) = oneshot::channel();
        let polls = Rc::new(Cell::new(0));
        waiting.borrow_mut().push((number, open, Rc::clone(&polls)));
        Polled {
            polls,
            inner: Box::pin(async move {
                gate.await?;
                Ok(Response::new(full(number.to_string())))
            }),
        }
    });
    with_client(server, |client| async move {
        let mut responses: Vec<_> = (0..MANY)
            .map(|number| Some(tokio::spawn(client.send(get(&format!("/{number}"))))))
            .collect();
        while gates.borrow().len() < MANY {
            tokio::task::yield_now().await;
        }
        settle().await;
        let mut random = fastrand::Rng::with_seed(1);
        let mut left = gates.take();
        random.shuffle(&mut left);
        for (number, open, polls) in left {
            assert_eq!(polls.get(), 1, "before its turn");
            open.send(()).expect("it waits");
            let response = responses[number].take().expect("once");
            let response = response.await.unwrap().unwrap();
            assert_eq!(text(response).await, number.to_string());
            assert_eq!(polls.get(), 2, "when it was woken");
        }
    })
    .await;
}

#[tokio::test]
async fn a_request_body_streams_through_a_handler_that_waits_for_it() {
    let server = server(
        windows(100_000, 100_000),
        |request: Request<Incoming>| async move {
            let body = request.into_body();
            // One that says how long it is is counted, and any other sent back.
            if body.size_hint().exact().is_some() {
                let bytes = Rc::new(Cell::new(take(body).await?.bytes));
                return Ok(Response::new(full(bytes.get().to_string())));
            }
            Ok(Response::new(body.map_err(BoxError::from).boxed_unsync()))
        },
    );
    with_client(server, |client| async move {
        let counted = client.send(post("/", Chunks::new(3_000_000, 30_000).sized()));
        let echoed = async {
            let response = client.send(post("/", Chunks::new(3_000_000, 30_000))).await;
            take(response.unwrap().into_body()).await
        };
        let (counted, echoed) = tokio::join!(counted, echoed);
        assert_eq!(text(counted.unwrap()).await, "3000000");
        assert_eq!(echoed.unwrap().bytes, 3_000_000);
        // One at a time, each of which the handler waits for.
        let (mut body, receiver) = Channel::<Bytes, BoxError>::new(1);
        let response = client.send(post("/", receiver)).await.unwrap();
        let mut back = response.into_body();
        for at in 0..50 {
            body.send_data(pattern(at, 100)).await.unwrap();
            let mut came = 0;
            while came < 100 {
                came += back.frame().await.unwrap().unwrap().into_data().unwrap().len();
            }
        }
        drop(body);
        assert!(back.frame().await.is_none());
    })
    .await;
}

#[tokio::test]
async fn a_handler_that_fails_or_panics_resets_its_stream_and_no_other() {
    let server = server(config(), |request: Request<Incoming>| {
        let path = request.uri().path().to_owned();
        assert!(path != "/panic", "the handler has panicked, as it was to");
        async move {
            match path.as_str() {
                "/late-panic" => {
                    tokio::task::yield_now().await;
                    panic!("the handler has panicked late, as it was to")
                }
                "/fail" => Err("the handler has failed".into()),
                _ => Ok(Response::new(Chunks::new(2_000_000, 50_000).boxed_unsync())),
            }
        }
    });
    with_client(server, |client| async move {
        let other = client.send(get("/")).await.unwrap();
        for path in ["/panic", "/late-panic", "/fail"] {
            let failing: Vec<_> = (0..5)
                .map(|_| tokio::spawn(client.send(post(path, Chunks::new(50_000, 5_000)))))
                .collect();
            for response in failing {
                let error = response.await.unwrap().unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Reset, "{path}: {error}");
                assert_eq!(error.code(), Some(ErrorCode::INTERNAL_ERROR), "{path}");
            }
        }
        assert_eq!(take(other.into_body()).await.unwrap().bytes, 2_000_000);
    })
    .await;
}

/// A server whose handlers never answer, and count when they are dropped.
fn never_answering(
    dropped: &Rc<Cell<u32>>,
) -> (impl Future<Output = Result<(), fullbore::Error>>, DuplexStream) {
    let dropped = Rc::clone(dropped);
    server(config(), move |_| {
        let guard = Guard(Rc::clone(&dropped));
        async move {
            let _held = guard;
            std::future::pending().await
        }
    })
}

#[tokio::test]
async fn a_handler_is_dropped_when_its_request_is_reset() {
    let dropped = Rc::new(Cell::new(0));
    let (serving, io) = never_answering(&dropped);
    let script = async {
        let mut raw = Peer::client(io, &[]).await;
        for stream in [1, 3] {
            raw.request(stream, true, &[]).await;
        }
        raw.send(frames::PING, 0, 0, b"in order").await;
        raw.expect(frames::PING).await;
        assert_eq!(dropped.get(), 0);
        raw.send(frames::RST_STREAM, 0, 1, &8u32.to_be_bytes()).await;
        raw.send(frames::PING, 0, 0, b"in order").await;
        raw.expect(frames::PING).await;
        settle().await;
        assert_eq!(dropped.get(), 1, "that of the stream that was reset");
    };
    // The other one goes with the peer.
    let (_, ended) = soon(async { tokio::join!(script, serving) }).await;
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(dropped.get(), 2);
}

#[tokio::test]
async fn handlers_see_that_their_connection_has_gone_before_its_future_ends() {
    let errors = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&errors);
    let (serving, io) = server(config(), move |request: Request<Incoming>| {
        let seen = Rc::clone(&seen);
        async move {
            let error = take(request.into_body()).await.expect_err("the client goes");
            seen.borrow_mut().push(error.kind());
            Err(error.into())
        }
    });
    let script = async {
        let mut raw = Peer::client(io, &[]).await;
        for stream in [1, 3, 5] {
            raw.request(stream, false, &[]).await;
        }
        raw.send(frames::PING, 0, 0, b"in order").await;
        raw.expect(frames::PING).await;
    };
    let (_, ended) = soon(async { tokio::join!(script, serving) }).await;
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(*errors.borrow(), [ErrorKind::Closed; 3]);
}

#[tokio::test]
async fn a_graceful_end_waits_for_handlers() {
    let notify = Rc::new(Notify::new());
    let gate = Rc::clone(&notify);
    let (serving, io) = server(config(), move |_| {
        let gate = Rc::clone(&gate);
        async move {
            gate.notified().await;
            Ok(Response::new(full("finished")))
        }
    });
    let mut serving = Box::pin(serving);
    let (sender, client) = handshake(io, config());
    tokio::spawn(client);
    let response = tokio::spawn(sender.send(get("/")));
    let turns = async {
        tokio::select! { biased; ended = &mut serving => panic!("it ended: {ended:?}"), () = settle() => {} }
    };
    soon(turns).await;
    serving.graceful_shutdown();
    let turns = async {
        tokio::select! { biased; ended = &mut serving => panic!("it ended: {ended:?}"), () = settle() => {} }
    };
    soon(turns).await;
    assert!(!sender.is_open());
    notify.notify_one();
    soon(serving).await.expect("it ended well");
    assert_eq!(text(soon(response).await.unwrap().unwrap()).await, "finished");
}

#[tokio::test]
async fn handlers_go_with_the_future_of_their_connection() {
    let dropped = Rc::new(Cell::new(0));
    let (serving, io) = never_answering(&dropped);
    let mut serving = Box::pin(serving);
    let (sender, client) = handshake(io, config());
    tokio::spawn(client);
    let responses: Vec<_> = (0..10).map(|_| tokio::spawn(sender.send(get("/")))).collect();
    let turns = async {
        tokio::select! { biased; ended = &mut serving => panic!("it ended: {ended:?}"), () = settle() => {} }
    };
    soon(turns).await;
    assert_eq!(dropped.get(), 0);
    drop(serving);
    assert_eq!(dropped.get(), 10);
    for response in responses {
        let error = soon(response).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    }
}

#[tokio::test]
async fn a_service_that_is_not_ready_is_waited_for() {
    /// Ready once the gate is open.
    #[derive(Clone)]
    struct Gated(Rc<Cell<bool>>);

    impl tower::Service<Request<Incoming>> for Gated {
        type Response = Reply;
        type Error = Infallible;
        type Future = std::future::Ready<Result<Reply, Infallible>>;

        fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            if self.0.get() {
                return Poll::Ready(Ok(()));
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        }

        fn call(&mut self, _: Request<Incoming>) -> Self::Future {
            std::future::ready(Ok(Response::new(empty())))
        }
    }

    let gate = Rc::new(Cell::new(false));
    let (near, far) = tokio::io::duplex(64 << 10);
    let server = serve_connection_local(near, Gated(Rc::clone(&gate)), config());
    with_client((server, far), |client| async move {
        let response = tokio::spawn(client.send(get("/")));
        settle().await;
        assert!(!response.is_finished());
        gate.set(true);
        response.await.unwrap().unwrap();
    })
    .await;
}

/// A transport that counts the writes.
struct Writes(DuplexStream, Rc<Cell<u32>>);

impl AsyncRead for Writes {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Writes {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.1.set(self.1.get() + 1);
        Pin::new(&mut self.0).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[tokio::test]
async fn answers_of_handlers_that_are_woken_together_leave_in_one_write() {
    let notify = Rc::new(Notify::new());
    let gate = Rc::clone(&notify);
    let service = tower::service_fn(move |_: Request<Incoming>| {
        let gate = Rc::clone(&gate);
        async move {
            gate.notified().await;
            Ok::<Reply, Infallible>(Response::new(empty()))
        }
    });
    let writes = Rc::new(Cell::new(0));
    let (near, far) = tokio::io::duplex(64 << 10);
    let server = serve_connection_local(Writes(near, Rc::clone(&writes)), service, config());
    with_client((server, far), |client| async move {
        let responses: Vec<_> = (0..20).map(|_| tokio::spawn(client.send(get("/")))).collect();
        settle().await;
        let before = writes.get();
        notify.notify_waiters();
        for response in responses {
            response.await.unwrap().unwrap();
        }
        assert_eq!(writes.get() - before, 1);
    })
    .await;
}

#[tokio::test]
async fn a_handler_that_another_thread_wakes_at_any_moment_goes_on() {
    let server = server(config(), |request: Request<Incoming>| async move {
        let spins: u32 = request.uri().path()[1..].parse()?;
        let (open, gate) = oneshot::channel();
        tokio::task::spawn_blocking(move || {
            for _ in 0..spins {
                std::hint::spin_loop();
            }
            open.send(()).ok();
        });
        gate.await?;
        Ok(Response::new(empty()))
    });
    with_client(server, |client| async move {
        for round in 0..5_000 {
            let path = format!("/{}", round % 1_000);
            client.send(get(&path)).await.unwrap();
        }
    })
    .await;
}
