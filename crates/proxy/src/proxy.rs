//! The service: one request on its way to an origin, and the response on its way back.

use std::convert::Infallible;
use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use fullbore::client::on_informational;
use fullbore::server::{Informational, PeerAddr};
use fullbore::{BoxError, ErrorKind, Incoming};
use http::header::{CONTENT_LENGTH, EXPECT, HOST, UPGRADE};
use http::uri::Scheme;
use http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::{Body, Frame, SizeHint};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::sync::oneshot;
use tower_service::Service;

use crate::body::{Held, ProxyBody};
use crate::fields;
use crate::forwarded;
use crate::instances::{InstanceStats, Instances, UnderWay};
use crate::refusal::{Refusal, is_bad_answer};
use crate::request_body::{Gate, Kept};
use crate::settings::{Change, Failure, OriginHost, Settings};
use crate::upgrade::{self, LateBody, Wish};

/// How often the health of an instance is checked, and how long it may take to answer.
const HEALTH_EVERY: Duration = Duration::from_secs(5);
const HEALTH_WITHIN: Duration = Duration::from_secs(2);

/// The fields that a request gets: `via`, three of `x-forwarded-`, `forwarded` and `host`.
const ADDED_FIELDS: usize = 6;

/// A reverse proxy, as a [`Service`]. Cheap to clone; clones share their connections.
///
/// See the [crate](crate) for what it does.
#[derive(Clone)]
pub struct Proxy {
    instances: Arc<Instances>,
    settings: Arc<Settings>,
}

impl Proxy {
    /// What is known of each instance.
    pub fn stats(&self) -> Vec<InstanceStats> {
        self.instances.stats()
    }

    /// Asks each instance for `path` every 5 s. One that does not answer with 2xx or 3xx within 2 s gets no requests until it
    /// does, unless none does. The future never ends: spawn it.
    pub async fn check_health(self, path: String) {
        let check = |index: usize| {
            let (instances, path) = (Arc::clone(&self.instances), path.clone());
            let settings = Arc::clone(&self.settings);
            async move {
                loop {
                    let healthy = is_healthy(&instances, index, &path).await;
                    let change = instances.set_healthy(index, healthy);
                    settings.report_change(change, &instances.origin(index).name, None);
                    tokio::time::sleep(HEALTH_EVERY).await;
                }
            }
        };
        let mut checks = tokio::task::JoinSet::new();
        for index in 0..self.instances.len() {
            checks.spawn(check(index));
        }
        while checks.join_next().await.is_some() {}
    }

    pub(crate) fn new(instances: Arc<Instances>, settings: Arc<Settings>) -> Self {
        Self { instances, settings }
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy")
            .field("instances", &self.stats())
            .finish_non_exhaustive()
    }
}

async fn is_healthy(instances: &Arc<Instances>, index: usize, path: &str) -> bool {
    let origin = instances.origin(index);
    let Ok(uri) = path
        .parse()
        .map_err(BoxError::from)
        .and_then(|path| Ok(origin.uri(Some(path))?))
    else {
        return false;
    };
    let mut request = Request::new(Nothing);
    *request.uri_mut() = uri;
    let answer = tokio::time::timeout(HEALTH_WITHIN, origin.client().request(request)).await;
    matches!(answer, Ok(Ok(response)) if response.status().is_success() || response.status().is_redirection())
}

impl<B> Service<Request<B>> for Proxy
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<ProxyBody>;
    type Error = Infallible;
    type Future = ProxyFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> ProxyFuture {
        let peer = request.extensions().get().copied().or_else(PeerAddr::current);
        let exchange = Exchange {
            proxy: self.clone(),
            peer,
            informational: Informational::current(),
        };
        ProxyFuture {
            answer: Box::pin(exchange.answer(request)),
        }
    }
}

/// The future of [`Proxy`]. Dropping it resets the request at the origin.
#[must_use = "futures do nothing unless they are polled"]
pub struct ProxyFuture {
    answer: Pin<Box<dyn Future<Output = Response<ProxyBody>> + Send>>,
}

impl Future for ProxyFuture {
    type Output = Result<Response<ProxyBody>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.answer.as_mut().poll(cx).map(Ok)
    }
}

impl fmt::Debug for ProxyFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyFuture").finish_non_exhaustive()
    }
}

/// One request.
struct Exchange {
    proxy: Proxy,
    peer: Option<PeerAddr>,
    informational: Option<Informational>,
}

/// A request that gets no answer of the origin, and the instance that had it.
type Refused = (Refusal, Option<UnderWay>);

impl Exchange {
    async fn answer<B>(self, request: Request<B>) -> Response<ProxyBody>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (head, body) = request.into_parts();
        let mut head = Request::from_parts(head, ());
        let answered = match self.prepare(&mut head, body.is_end_stream()) {
            Ok(Wish::Nothing | Wish::Stream) => self.pass_on(head, body, None).await,
            Ok(Wish::Upgrade(client, protocol)) => self.upgrade(head, client, protocol).await,
            Ok(Wish::WebSocket) => self.web_socket(head, body).await,
            Err(refusal) => Err((refusal, None)),
        };
        answered.unwrap_or_else(|(refusal, under_way)| {
            if let Some(under_way) = &under_way {
                under_way.refused(refusal.status);
            }
            if refusal.status.is_server_error() {
                let origin = under_way.as_ref().map(UnderWay::origin);
                self.proxy.settings.report(&Failure {
                    origin: origin.map(|origin| origin.name.as_str()),
                    status: Some(refusal.status),
                    error: refusal.error.as_ref(),
                });
            }
            let mut response = refusal.response();
            if let Some(under_way) = under_way {
                response.extensions_mut().insert(under_way.waited());
            }
            response
        })
    }

    /// Checks a request, and gives it the fields that the origin is to see.
    fn prepare(&self, head: &mut Request<()>, is_whole: bool) -> Result<Wish, Refusal> {
        let settings = &self.proxy.settings;
        let wish = Wish::of(head, is_whole)?;
        // It would answer with the fields that this proxy adds.
        if *head.method() == Method::TRACE {
            let says = "TRACE is not allowed here.";
            return Err(Refusal::of_request(StatusCode::METHOD_NOT_ALLOWED, says));
        }
        let (method, version) = (head.method().clone(), head.version());
        if fields::is_last_hop(&method, head.headers_mut()) {
            return Err(Refusal::of_request(StatusCode::OK, "This is a proxy."));
        }
        let host = match head.uri().authority() {
            Some(authority) => HeaderValue::from_str(authority.as_str()).ok(),
            None => head.headers().get(HOST).cloned(),
        };
        is_clear(head, host.as_ref())?;
        let headers = head.headers_mut();
        fields::remove_of_connection(headers);
        headers.reserve(ADDED_FIELDS);
        if fields::add_hop(headers, version) {
            let says = "The request goes in a circle.";
            return Err(Refusal::of_request(StatusCode::LOOP_DETECTED, says));
        }
        let client = forwarded::Client {
            address: self.peer.map(|PeerAddr(address)| address),
            https: settings.https,
            host: host.as_ref(),
        };
        forwarded::set(headers, &client, &settings.trusted);
        match (&settings.host, host) {
            (OriginHost::Always(host), _) => drop(headers.insert(HOST, host.clone())),
            (OriginHost::OfClient, Some(host)) => drop(headers.insert(HOST, host)),
            // Otherwise the origin would be told its own address, which it may repeat to the client.
            (OriginHost::OfClient, None) => drop(headers.insert(HOST, HeaderValue::from_static(""))),
        }
        Ok(wish)
    }

    /// Passes a request on. If its instance cannot be reached, another one has it. `failed` could not be reached already.
    async fn pass_on<B>(
        &self,
        mut head: Request<()>,
        body: B,
        mut failed: Option<usize>,
    ) -> Result<Response<ProxyBody>, Refused>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let kept = (!body.is_end_stream()).then(|| Kept::new(body));
        let gate = kept.is_some() && expects_continue(&head);
        let gate = gate.then(Arc::<Gate>::default);
        self.listen(&mut head, gate.as_ref());
        loop {
            let mut under_way = self.proxy.instances.pick(failed);
            let may_repeat = failed.is_none() && self.proxy.instances.len() > 1;
            let attempt = match may_repeat {
                true => head.clone(),
                false => std::mem::replace(&mut head, Request::new(())),
            };
            let attempt = on_to(&under_way, attempt);
            let attempt = attempt.map_err(|error| (Refusal::bad_answer(error), None))?;
            let client = under_way.origin().client();
            let sent = match &kept {
                None => client.request(attempt.map(|()| Nothing)).await,
                Some(kept) => {
                    let body = kept.sending(gate.clone());
                    client.request(attempt.map(|()| body)).await
                }
            };
            if let (Some(gate), Ok(_)) = (&gate, &sent) {
                gate.open();
            }
            under_way.waits_since(kept.as_ref().and_then(Kept::ended));
            match sent {
                Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                    let error = "it has switched to a protocol that nobody asked for";
                    return Err((Refusal::bad_answer(error), Some(under_way)));
                }
                Ok(response) => return self.answered(response, under_way),
                Err(error) => {
                    let is_begun = kept.as_ref().is_some_and(Kept::is_begun);
                    let refused = self.failed_with(&error, under_way);
                    match self.next_after(&refused, failed) {
                        Some(index) if !is_begun => failed = Some(index),
                        _ => return Err(refused),
                    }
                }
            }
        }
    }

    /// Passes on that a connection of HTTP/1.1 is to be upgraded. If its instance cannot be reached, another one is asked.
    async fn upgrade(
        &self,
        head: Request<()>,
        client: OnUpgrade,
        protocol: HeaderValue,
    ) -> Result<Response<ProxyBody>, Refused> {
        let mut failed = None;
        loop {
            let under_way = self.proxy.instances.pick(failed);
            let (attempt, client) = (head.clone(), client.clone());
            let answer = match under_way.origin().is_http2 {
                true => self.connect(attempt, under_way, client, &protocol).await,
                false => self.switch(attempt, under_way, client, protocol.clone()).await,
            };
            match answer
                .as_ref()
                .err()
                .and_then(|refused| self.next_after(refused, failed))
            {
                Some(index) => failed = Some(index),
                None => return answer,
            }
        }
    }

    /// Passes on that a connection is to be upgraded, to an origin of HTTP/1.1.
    async fn switch(
        &self,
        mut head: Request<()>,
        under_way: UnderWay,
        client: OnUpgrade,
        protocol: HeaderValue,
    ) -> Result<Response<ProxyBody>, Refused> {
        upgrade::ask(head.headers_mut(), protocol.clone());
        let mut response = self.send_upgrade(head, &under_way).await?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return self.answered(response, under_way);
        }
        let is_asked = |own: &HeaderValue| own.as_bytes().eq_ignore_ascii_case(protocol.as_bytes());
        if !response.headers().get(UPGRADE).is_some_and(is_asked) {
            let refusal = Refusal::bad_answer("it has switched to another protocol than it was asked for");
            return Err((refusal, Some(under_way)));
        }
        let origin = hyper::upgrade::on(&mut response);
        let mut answer = self.switched(response, &under_way, ProxyBody::default());
        upgrade::ask(answer.headers_mut(), protocol);
        tokio::spawn(async move {
            upgrade::join(client, origin).await;
            drop(under_way);
        });
        Ok(answer)
    }

    /// Passes a WebSocket of HTTP/1.1 on over HTTP/2.
    async fn connect(
        &self,
        mut head: Request<()>,
        under_way: UnderWay,
        client: OnUpgrade,
        protocol: &HeaderValue,
    ) -> Result<Response<ProxyBody>, Refused> {
        let accept = match upgrade::connect_web_socket(&mut head, protocol) {
            Ok(accept) => accept,
            Err(refusal) => return Err((refusal, None)),
        };
        let head = on_to(&under_way, head).map_err(|error| (Refusal::bad_answer(error), None))?;
        let (tunnel, body, other) = LateBody::new();
        let sent = under_way.origin().client().request(head.map(|()| body)).await;
        let response = match sent {
            Ok(response) => response,
            Err(error) => return Err(self.failed_with(&error, under_way)),
        };
        if !response.status().is_success() {
            return self.answered(response, under_way);
        }
        let (head, body) = response.into_parts();
        let response = Response::from_parts(head, ());
        let mut answer = self.switched(response, &under_way, ProxyBody::default());
        *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        upgrade::accepted(answer.headers_mut(), accept);
        tokio::spawn(async move {
            if let Ok(client) = client.await {
                let (reader, writer) = tokio::io::split(TokioIo::new(client));
                let _ = tunnel.send(reader);
                upgrade::pass(Box::pin(body), writer, other).await;
            }
            drop(under_way);
        });
        Ok(answer)
    }

    /// Passes a WebSocket of HTTP/2 on.
    async fn web_socket<B>(&self, head: Request<()>, body: B) -> Result<Response<ProxyBody>, Refused>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let mut failed = None;
        let (mut response, under_way, accept) = loop {
            let under_way = self.proxy.instances.pick(failed);
            if under_way.origin().is_http2 {
                drop(under_way);
                return self.pass_on(head, body, failed).await;
            }
            let mut attempt = head.clone();
            let accept = upgrade::ask_for_web_socket(&mut attempt);
            match self.send_upgrade(attempt, &under_way).await {
                Ok(response) => break (response, under_way, accept),
                Err(refused) => match self.next_after(&refused, failed) {
                    Some(index) => failed = Some(index),
                    None => return Err(refused),
                },
            }
        };
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return match response.status().is_success() {
                // The client would take it for a WebSocket.
                true => {
                    let refusal = Refusal::bad_answer("it has answered a WebSocket with a document");
                    Err((refusal, Some(under_way)))
                }
                false => self.answered(response, under_way),
            };
        }
        if response.headers().get(upgrade::ACCEPT) != Some(&accept) {
            let refusal = Refusal::bad_answer("its sec-websocket-accept is wrong");
            return Err((refusal, Some(under_way)));
        }
        let upgraded = match hyper::upgrade::on(&mut response).await {
            Ok(upgraded) => upgraded,
            Err(error) => return Err((Refusal::bad_answer(error), Some(under_way))),
        };
        let (reader, writer) = tokio::io::split(TokioIo::new(upgraded));
        let (of_response, response_is_gone) = oneshot::channel();
        tokio::spawn(upgrade::pass_beside(Box::pin(body), writer, response_is_gone));
        let mut answer = self.switched(response, &under_way, ProxyBody::default());
        *answer.body_mut() = ProxyBody::tunnel(reader, of_response, self.held(under_way));
        *answer.status_mut() = StatusCode::OK;
        answer.headers_mut().remove(upgrade::ACCEPT);
        Ok(answer)
    }

    /// Sends a request that upgrades a connection of HTTP/1.1.
    async fn send_upgrade(
        &self,
        head: Request<()>,
        under_way: &UnderWay,
    ) -> Result<Response<Incoming>, Refused> {
        let head = on_to(under_way, head).map_err(|error| (Refusal::bad_answer(error), None))?;
        let sent = under_way
            .origin()
            .upgrades()
            .request(head.map(|()| Nothing))
            .await;
        sent.map_err(|error| self.failed_with(&error, under_way.another()))
    }

    /// Passes informational responses to the client. 100 (Continue) opens the body, and the client gets its own when that is read.
    fn listen(&self, head: &mut Request<()>, gate: Option<&Arc<Gate>>) {
        let (client, gate) = (self.informational.clone(), gate.cloned());
        if client.is_none() && gate.is_none() {
            return;
        }
        on_informational(head, move |mut response| {
            if response.status() == StatusCode::CONTINUE {
                if let Some(gate) = &gate {
                    gate.open();
                }
            } else if let Some(client) = &client {
                fields::remove_of_connection(response.headers_mut());
                response.headers_mut().remove(CONTENT_LENGTH);
                // 101 is none that is passed on.
                let _ = client.send(response);
            }
        });
    }

    /// The answer of the origin as the client gets it.
    fn answered(
        &self,
        mut response: Response<Incoming>,
        under_way: UnderWay,
    ) -> Result<Response<ProxyBody>, Refused> {
        if fields::is_coded(response.headers()) {
            let refusal = Refusal::bad_answer("its transfer-encoding is another one than chunked");
            return Err((refusal, Some(under_way)));
        }
        let waited = under_way.waited();
        self.report_change(under_way.answered(waited), &under_way, None);
        response.extensions_mut().insert(waited);
        let held = self.held(under_way);
        Ok(for_client(response.map(|body| ProxyBody::origin(body, held))))
    }

    /// The head of an answer that makes a tunnel.
    fn switched<T>(
        &self,
        mut response: Response<T>,
        under_way: &UnderWay,
        body: ProxyBody,
    ) -> Response<ProxyBody> {
        let waited = under_way.waited();
        self.report_change(under_way.answered(waited), under_way, None);
        response.extensions_mut().insert(waited);
        for_client(response.map(|_| body))
    }

    /// A request failed at an instance.
    fn failed_with(&self, error: &fullbore::Error, under_way: UnderWay) -> Refused {
        let is_its_fault = error.is_connect()
            || error.is_timeout()
            || error.is_closed()
            || is_bad_answer(error)
            || matches!(error.kind(), ErrorKind::Refused | ErrorKind::Protocol);
        if is_its_fault {
            self.report_change(under_way.failed(), &under_way, Some(error.without_url()));
        }
        (Refusal::of_error(error), Some(under_way))
    }

    /// The instance that is not to have a request again which another one may have: nothing of it was sent, and it is the
    /// first that failed.
    fn next_after(&self, (refusal, under_way): &Refused, failed: Option<usize>) -> Option<usize> {
        let under_way = under_way.as_ref()?;
        let may_repeat = failed.is_none() && refusal.is_unsent && self.proxy.instances.len() > 1;
        may_repeat.then(|| {
            under_way.passed_on();
            under_way.index()
        })
    }

    fn report_change(&self, change: Option<Change>, under_way: &UnderWay, error: Option<&fullbore::Error>) {
        let error = error.map(|error| error as &(dyn StdError + 'static));
        let settings = &self.proxy.settings;
        settings.report_change(change, &under_way.origin().name, error);
    }

    fn held(&self, under_way: UnderWay) -> Held {
        Held {
            under_way,
            settings: Arc::clone(&self.proxy.settings),
        }
    }
}

/// Removes what concerns the connection to the origin.
fn for_client(mut response: Response<ProxyBody>) -> Response<ProxyBody> {
    // That of the origin would be written on the client's connection.
    *response.version_mut() = Version::default();
    fields::remove_of_connection(response.headers_mut());
    response
}

/// Gives a request the URL of its instance.
fn on_to(under_way: &UnderWay, mut head: Request<()>) -> Result<Request<()>, http::Error> {
    let path = head.uri().path_and_query().cloned();
    *head.uri_mut() = under_way.origin().uri(path)?;
    Ok(head)
}

/// Refuses what an origin could read in another way: a host that is none, a scheme that is not of HTTP, and names of fields that
/// HTTP/1.1 does not have.
fn is_clear(head: &Request<()>, host: Option<&HeaderValue>) -> Result<(), Refusal> {
    let refuse = |says| Err(Refusal::of_request(StatusCode::BAD_REQUEST, says));
    if host.is_some_and(|host| !fields::is_host(host.as_bytes())) {
        return refuse("The host of the request is invalid.");
    }
    let scheme = head.uri().scheme();
    if scheme.is_some_and(|scheme| *scheme != Scheme::HTTP && *scheme != Scheme::HTTPS) {
        return refuse("The scheme of the request is neither http nor https.");
    }
    match fields::are_tokens(head.headers()) {
        true => Ok(()),
        false => refuse("The name of a field is invalid."),
    }
}

fn expects_continue(head: &Request<()>) -> bool {
    fields::lists(head.headers(), &EXPECT, "100-continue")
}

/// A body without a byte.
struct Nothing;

impl Body for Nothing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        true
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(0)
    }
}
