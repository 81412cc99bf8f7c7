//! One request and its response: calls the service and sends what it returns.

use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use fullbore_proto::{ErrorCode, Payload};
use http::{HeaderValue, Request, Response};
use http_body::{Body, Frame};
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep_until};
use tower_service::Service;

use crate::body::Incoming;
use crate::content_length::Length;
use crate::driver::{Accept, Unanswered};
use crate::error::{BoxError, Error};
use crate::file::Chunk;
use crate::sender::Sender;

use super::date;
use super::informational::Offering;
use super::rules::{Content, Framing, ResponseRules};
use super::verdict::ExchangeVerdict;

/// The time until which the body of a response may wait for the peer's flow-control window (RFC 9113 section 5.2). Put it
/// into the extensions of the response. A body that waits at that time is dropped, and its stream is reset with CANCEL.
///
/// It has no effect over HTTP/1.1, nor when the body has ended and only the send buffer (at most 384 KiB) is left to send.
///
/// ```
/// use std::time::Duration;
///
/// use fullbore::server::SendDeadline;
/// use tokio::time::Instant;
///
/// let mut response = http::Response::new("a long body");
/// response.extensions_mut().insert(SendDeadline(Instant::now() + Duration::from_secs(10)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendDeadline(pub Instant);

/// Calls a service for each request.
pub(crate) struct Handlers<S> {
    pub(crate) service: S,
}

impl<S> Handlers<S> {
    pub(crate) fn new(service: S) -> Self {
        Handlers { service }
    }
}

impl<S, B> Accept for Handlers<S>
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: Body + Send + 'static,
    B::Data: Into<Chunk> + Send,
    B::Error: Into<BoxError>,
{
    /// Polls the handler once, in the driver's turn. The response of a handler that completes leaves with this batch.
    /// Any other handler continues in a task of its own.
    fn accept(&mut self, request: Request<Incoming>, unanswered: &mut Unanswered<'_>, cx: &mut Context<'_>) {
        let rules = ResponseRules::of_request(&request);
        let mut service = self.service.clone();
        // Taken from here where it is needed: a closure that owned it would be copied twice.
        let mut request = Some(request);
        let _ = std::panic::catch_unwind(AssertUnwindSafe(|| {
            let offering = Offering::begin();
            let ready = service.poll_ready(cx);
            let Some(request) = request.take() else { return };
            match ready {
                Poll::Ready(Ok(())) => begin(rules, service.call(request), unanswered, &offering, cx),
                Poll::Ready(Err(_)) => unanswered.sender().reset(ErrorCode::INTERNAL_ERROR),
                Poll::Pending => {
                    let answer = async move {
                        poll_fn(|cx| service.poll_ready(cx)).await?;
                        service.call(request).await
                    };
                    begin(rules, answer, unanswered, &offering, cx);
                }
            }
        }));
    }

    fn date(&self) -> Option<(HeaderValue, Duration)> {
        Some(date::now())
    }
}

/// Polls an answer once, and spawns its exchange unless that completes.
fn begin<F, B, E>(
    rules: ResponseRules,
    answer: F,
    unanswered: &mut Unanswered<'_>,
    offering: &Offering,
    cx: &mut Context<'_>,
) where
    F: Future<Output = Result<Response<B>, E>> + Send + 'static,
    E: Into<BoxError> + 'static,
    B: Body + Send + 'static,
    B::Data: Into<Chunk> + Send,
    B::Error: Into<BoxError>,
{
    let mut exchange = Box::pin(Exchange {
        rules,
        sender: None,
        stage: Stage::Answering { answer },
    });
    if exchange
        .as_mut()
        .poll_first(unanswered, offering, cx)
        .is_pending()
    {
        tokio::spawn(exchange);
    }
}

pin_project! {
    /// Waits for the response and sends it, unless the peer resets the stream first. While the body waits for a slow
    /// peer, it keeps nothing of the request and the handler. An `async fn` would reserve memory for both to its end,
    /// and twice for its arguments.
    pub(super) struct Exchange<F, B> {
        rules: ResponseRules,
        // None until the first poll is over.
        sender: Option<Sender>,
        #[pin]
        stage: Stage<F, B>,
    }
}

pin_project! {
    #[project = StageNow]
    enum Stage<F, B> {
        Answering {
            #[pin]
            answer: F,
        },
        Sending {
            #[pin]
            body: B,
            deadline: Option<Instant>,
            timer: Option<Pin<Box<Sleep>>>,
        },
    }
}

impl<F, B> Exchange<F, B> {
    pub(super) fn new(rules: ResponseRules, sender: Sender, answer: F) -> Self {
        Exchange {
            rules,
            sender: Some(sender),
            stage: Stage::Answering { answer },
        }
    }
}

impl<F, B, E> Exchange<F, B>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body,
    B::Data: Into<Chunk>,
    B::Error: Into<BoxError>,
{
    /// The first poll. It makes a sender unless the request has no body and the whole response is there.
    fn poll_first(
        self: Pin<&mut Self>,
        unanswered: &mut Unanswered<'_>,
        offering: &Offering,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let mut this = self.project();
        let answered = match this.stage.as_mut().project() {
            StageNow::Answering { answer } => answer.poll(cx),
            StageNow::Sending { .. } => Poll::Pending,
        };
        if let Some(informational) = offering.taken() {
            informational.bind(this.sender.insert(unanswered.sender()).cell());
        }
        let Poll::Ready(answered) = answered else {
            // Its task polls it again at once.
            this.sender.get_or_insert_with(|| unanswered.sender());
            return Poll::Pending;
        };
        let Ok(response) = answered else {
            let sender = this.sender.get_or_insert_with(|| unanswered.sender());
            sender.reset(ErrorCode::INTERNAL_ERROR);
            return Poll::Ready(());
        };
        if let Some(verdict) = response.extensions().get::<ExchangeVerdict>() {
            // The cell answers for the stream.
            verdict.answer_of(this.sender.get_or_insert_with(|| unanswered.sender()).cell());
        }
        let is_short = unanswered.is_complete() && this.sender.is_none();
        let (head, body, mut length) = match split(*this.rules, response) {
            Ok((head, body, Some(length))) => (head, body, length),
            Ok((head, _, None)) => {
                match is_short {
                    true => unanswered.respond(head, &Payload::default()),
                    false => this
                        .sender
                        .get_or_insert_with(|| unanswered.sender())
                        .send_response(head, true),
                }
                return Poll::Ready(());
            }
            Err(error) => {
                let sender = this.sender.get_or_insert_with(|| unanswered.sender());
                sender.reset_for(ErrorCode::INTERNAL_ERROR, &error);
                return Poll::Ready(());
            }
        };
        let deadline = deadline(&head);
        this.stage.set(Stage::Sending {
            body,
            deadline,
            timer: None,
        });
        let StageNow::Sending { mut body, .. } = this.stage.project() else {
            return Poll::Pending;
        };
        let mut polled = body.as_mut().poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = polled {
            match frame.into_data() {
                Ok(data) if is_short && body.is_end_stream() => {
                    let data = data.into().into_payload();
                    match length.count(data.len(), true) {
                        Ok(()) => unanswered.respond(head, &data),
                        Err(error) => unanswered.sender().reset_for(ErrorCode::INTERNAL_ERROR, &error),
                    }
                    return Poll::Ready(());
                }
                Ok(data) => polled = Poll::Ready(Some(Ok(Frame::data(data)))),
                Err(frame) => polled = Poll::Ready(Some(Ok(frame))),
            }
        }
        let sender = this.sender.get_or_insert_with(|| unanswered.sender());
        sender.announce(length);
        sender
            .poll_body_from(cx, Some(head), Some(polled), body)
            .map(drop)
    }
}

impl<F, B, E> Future for Exchange<F, B>
where
    F: Future<Output = Result<Response<B>, E>>,
    E: Into<BoxError>,
    B: Body,
    B::Data: Into<Chunk>,
    B::Error: Into<BoxError>,
{
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        // `poll_first` has made it.
        let Some(sender) = this.sender else {
            return Poll::Ready(());
        };
        let mut head = None;
        if let StageNow::Answering { answer } = this.stage.as_mut().project() {
            let offering = Offering::begin();
            let answered = answer.poll(cx);
            if let Some(informational) = offering.taken() {
                informational.bind(sender.cell());
            }
            drop(offering);
            let Poll::Ready(answered) = answered else {
                // When the peer has gone, the handler is dropped.
                return sender.poll_failed(cx).map(drop);
            };
            let Ok(response) = answered else {
                sender.reset(ErrorCode::INTERNAL_ERROR);
                return Poll::Ready(());
            };
            if let Some(verdict) = response.extensions().get::<ExchangeVerdict>() {
                verdict.answer_of(sender.cell());
            }
            let (response, body) = match split(*this.rules, response) {
                Ok((response, body, Some(length))) => {
                    sender.announce(length);
                    (response, body)
                }
                Ok((response, _, None)) => {
                    sender.send_response(response, true);
                    return Poll::Ready(());
                }
                Err(error) => {
                    sender.reset_for(ErrorCode::INTERNAL_ERROR, &error);
                    return Poll::Ready(());
                }
            };
            let deadline = deadline(&response);
            head = Some(response);
            this.stage.set(Stage::Sending {
                body,
                deadline,
                timer: None,
            });
        }
        match this.stage.project() {
            StageNow::Sending {
                body,
                deadline,
                timer,
            } => {
                let sent = sender.poll_body(cx, head, body);
                let waits = sent.is_pending() && deadline.is_some() && sender.waits_for_room();
                if let Some(deadline) = deadline.filter(|_| waits) {
                    let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
                    if timer.as_mut().poll(cx).is_ready() {
                        sender.reset(ErrorCode::CANCEL);
                        return Poll::Ready(());
                    }
                }
                // An error has reset the stream already, or the peer has.
                sent.map(drop)
            }
            StageNow::Answering { .. } => Poll::Pending,
        }
    }
}

/// Until when the body may wait for the peer.
fn deadline(head: &Response<()>) -> Option<Instant> {
    let deadline = head.extensions().get();
    deadline.map(|&SendDeadline(deadline)| deadline)
}

/// The head, the body, and the length of the body unless there is none.
///
/// # Errors
/// The response contradicts itself.
fn split<B: Body>(
    rules: ResponseRules,
    response: Response<B>,
) -> Result<(Response<()>, B, Option<Length>), Error> {
    let (mut parts, body) = response.into_parts();
    let content = rules.content(&mut parts, &body, Framing::Http2)?;
    let length = match content {
        Content::None => None,
        _ if body.is_end_stream() => None,
        Content::Body(length) => Some(length),
        Content::Tunnel => Some(Length::UNKNOWN),
    };
    Ok((Response::from_parts(parts, ()), body, length))
}

#[cfg(test)]
mod tests {
    use fullbore_testing::frames;
    use fullbore_testing::peer::Peer;

    use super::*;
    use crate::server::{serve_connection, serve_connection_local};

    /// A service that cannot take requests.
    #[derive(Clone)]
    struct Broken;

    impl Service<Request<Incoming>> for Broken {
        type Response = Response<String>;
        type Error = BoxError;
        type Future = std::future::Pending<Result<Response<String>, BoxError>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
            Poll::Ready(Err("it is broken".into()))
        }

        fn call(&mut self, _: Request<Incoming>) -> Self::Future {
            std::future::pending()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn requests_to_a_service_that_is_broken_are_reset_and_the_connection_goes_on() {
        for local in [false, true] {
            let (near, far) = tokio::io::duplex(64 << 10);
            let config = fullbore_proto::Config::default();
            let serving: Pin<Box<dyn Future<Output = _>>> = match local {
                false => Box::pin(serve_connection(near, Broken, config)),
                true => Box::pin(serve_connection_local(near, Broken, config)),
            };
            let asking = async {
                let mut peer = Peer::client(far, &[]).await;
                for stream in [1, 3] {
                    peer.request(stream, true, &[]).await;
                    let reset = peer.expect(frames::RST_STREAM).await;
                    // INTERNAL_ERROR.
                    assert_eq!((reset.stream, &reset.payload[..]), (stream, &[0, 0, 0, 2][..]));
                }
            };
            let exchange = futures_util::future::join(serving, asking);
            let (ended, ()) = tokio::time::timeout(Duration::from_secs(10), exchange)
                .await
                .expect("each request is reset");
            ended.expect("the connection goes on until its client has gone");
        }
    }
}
