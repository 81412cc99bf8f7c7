//! One request: on which connection it is sent, and when it is sent again.
//!
//! A request is sent again only if the peer did not process it, or if processing it twice does no harm:
//!
//! | what happened | sent again |
//! |---|---|
//! | nothing of it was sent | if its body is still there |
//! | the peer speaks another version of HTTP, or requires HTTP/1.1 | if its body is still there |
//! | the peer has sent nothing, and may speak HTTP/1.1 | if its method is idempotent |
//! | the peer refused it (RFC 9113 section 8.7) | if its body can be repeated, after a pause |
//! | an HTTP/1.1 connection that had carried others closed before an answer (RFC 9112 section 9.3.1) | the same, if its method is idempotent |
//! | a new HTTP/1.1 connection closed before an answer, or its first response is 503, and the origin has others | the same |

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Body;

use super::origin::{Lease, OriginPool, Place};
use crate::body::Incoming;
use crate::client::connection::SendRequest;
use crate::client::handle::Handle;
use crate::client::http1::{self, Outgoing};
use crate::error::{BoxError, Error, ErrorKind};
use crate::observer::Slot;

/// How often a request is sent in another version because the peer does not speak the one before. A peer that speaks
/// neither must not make it turn for ever.
const MAX_TURNS: u32 = 2;

/// How often a request may not be processed although the origin answers others meanwhile. Old requests go first, so
/// that a few times are enough at a server that only serves few; a server that never takes this one must not hold it
/// for ever. The pauses before so many repeats take about four minutes.
const MOST_REFUSALS: u32 = 32;

/// How sending a request failed.
struct Failed {
    error: Error,
    what: What,
}

/// What is known of a request that failed.
enum What {
    /// Nothing of it was sent. The body is what HTTP/1.1 was to send; HTTP/2 has none to give back.
    Unsent(Outgoing),
    /// The peer speaks or requires another version, and did not process it.
    OtherVersion,
    /// The peer has answered nothing, and may speak another version.
    Silence,
    /// The connection had carried other requests, and closed before an answer.
    Reused,
    /// The connection was new, and closed before an answer.
    Unanswered,
    /// Whatever the error says.
    Other,
}

impl Failed {
    fn new(error: Error, what: What) -> Self {
        Failed { error, what }
    }

    fn other_version(cause: Error) -> Self {
        let text = match cause.requires_http1() {
            true => "it requires HTTP/1.1",
            false => "it speaks another version of HTTP now",
        };
        let error = Error::with_source(ErrorKind::Refused, text, cause);
        Self::new(error, What::OtherVersion)
    }
}

/// Counts what a peer could make endless.
#[derive(Default)]
struct Attempts {
    /// Repeats since the origin answered a request.
    repeats: u32,
    /// How often the origin had answered by then ([`OriginPool::unprocessed`]).
    round: u64,
    /// Repeats in all.
    refusals: u32,
    pauses: u32,
    turns: u32,
}

impl Attempts {
    /// Counts a change of the version; whether there may be another attempt.
    fn turn(&mut self) -> bool {
        self.turns += 1;
        self.turns <= MAX_TURNS
    }

    /// Counts an attempt that the peer certainly did not process; whether there may be another one. While the origin
    /// answers other requests, it is only busy.
    fn unprocessed(&mut self, pool: &OriginPool) -> bool {
        let round = pool.unprocessed();
        if round != self.round {
            self.round = round;
            self.repeats = 0;
        }
        self.refusals += 1;
        self.lost(pool) && self.refusals <= MOST_REFUSALS
    }

    /// Counts an attempt that the peer may have processed; whether there may be another one.
    fn lost(&mut self, pool: &OriginPool) -> bool {
        self.repeats += 1;
        self.repeats <= pool.max_repeats()
    }
}

/// Sends a request whose body can be repeated, until the peer has processed it.
pub(super) async fn repeatable<B>(
    pool: &Arc<OriginPool>,
    head: Arc<Request<()>>,
    body: B,
) -> Result<Response<Incoming>, Error>
where
    B: Body<Data = Bytes> + Clone + Send + 'static,
    B::Error: Into<BoxError>,
{
    let mut attempts = Attempts::default();
    let mut place = Place::default();
    loop {
        let Lease { handle, slot } = match body.is_end_stream() {
            true => pool.lease(&mut place).await?,
            false => lease_proven(pool, &mut place).await?,
        };
        let may_be_lost = head.method().is_idempotent();
        let sent = match &handle {
            Handle::Http2(sender) => send(pool, sender, &handle, slot, Arc::clone(&head), body.clone()).await,
            // In a box, so that a request over HTTP/2 does not carry its memory.
            Handle::Http1(sender) => {
                let body = Outgoing::new(body.clone());
                Box::pin(send_http1(pool, sender, &handle, slot, &head, body)).await
            }
        };
        let failed = match sent {
            Ok(response)
                if may_be_lost
                    && takes_no_more(&response)
                    && handle.is_turned_away()
                    && attempts.lost(pool) =>
            {
                continue;
            }
            Ok(response) => return Ok(response),
            Err(failed) => failed,
        };
        let repeats = match failed.what {
            What::OtherVersion if attempts.turn() => continue,
            What::Unsent(_) => attempts.unprocessed(pool),
            What::Silence if may_be_lost && attempts.turn() => continue,
            What::Reused if may_be_lost => attempts.lost(pool),
            What::Unanswered if may_be_lost && pool.has_others() => attempts.lost(pool),
            What::OtherVersion | What::Other if failed.error.is_refused() => attempts.unprocessed(pool),
            What::Reused | What::Unanswered | What::OtherVersion | What::Silence | What::Other => {
                return Err(failed.error);
            }
        };
        if !repeats {
            return Err(pool.refusal(failed.error));
        }
        if failed.error.wants_pause() {
            tokio::time::sleep(pool.pause(attempts.pauses, &mut place)).await;
            attempts.pauses += 1;
        }
    }
}

/// Sends a request whose body cannot be repeated. The body is not begun before the peer has shown how many streams it
/// allows.
pub(super) async fn once<B>(
    pool: &Arc<OriginPool>,
    head: Arc<Request<()>>,
    body: B,
) -> Result<Response<Incoming>, Error>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let (mut attempts, mut place) = (Attempts::default(), Place::default());
    let lease = lease_settled(pool, &mut attempts, &mut place).await?;
    match &lease.handle {
        Handle::Http2(sender) => {
            let sent = send(pool, sender, &lease.handle, lease.slot, head, body).await;
            sent.map_err(|failed| failed.error)
        }
        Handle::Http1(_) => {
            Box::pin(once_http1(
                pool,
                lease,
                head,
                Outgoing::new(body),
                (attempts, place),
            ))
            .await
        }
    }
}

/// As [`once`], from a connection of HTTP/1.1 on, which gives back what it did not send.
async fn once_http1(
    pool: &Arc<OriginPool>,
    mut lease: Lease,
    head: Arc<Request<()>>,
    mut body: Outgoing,
    (mut attempts, mut place): (Attempts, Place),
) -> Result<Response<Incoming>, Error> {
    loop {
        let Lease { handle, slot } = lease;
        let sent = match &handle {
            Handle::Http2(sender) => send(pool, sender, &handle, slot, Arc::clone(&head), body).await,
            Handle::Http1(sender) => match send_http1(pool, sender, &handle, slot, &head, body).await {
                Err(Failed {
                    what: What::Unsent(unsent),
                    ..
                }) if attempts.unprocessed(pool) => {
                    body = unsent;
                    lease = lease_settled(pool, &mut attempts, &mut place).await?;
                    continue;
                }
                sent => sent,
            },
        };
        return sent.map_err(|failed| failed.error);
    }
}

/// Takes a slot for a request with a body, on a connection whose version is known: a server of HTTP/1.1 that is lenient
/// could read the octets of DATA frames as a request.
async fn lease_proven(pool: &Arc<OriginPool>, place: &mut Place) -> Result<Lease, Error> {
    let mut attempts = Attempts::default();
    loop {
        let lease = pool.lease(place).await?;
        lease.handle.version_proven().await;
        if !lease.handle.is_other_version() || !attempts.turn() {
            return match lease.handle.failure() {
                Some(error) => Err(error),
                None => Ok(lease),
            };
        }
    }
}

/// Takes a slot for a request with a body that cannot be repeated: of those that the peer's SETTINGS allow, on a
/// connection that takes requests.
async fn lease_settled(
    pool: &Arc<OriginPool>,
    attempts: &mut Attempts,
    place: &mut Place,
) -> Result<Lease, Error> {
    loop {
        let lease = lease_proven(pool, place).await?;
        if !lease.handle.is_http1() {
            lease.handle.settled().await;
        }
        if let Some(error) = lease.handle.failure() {
            return Err(error);
        }
        let ended = !lease.handle.is_open();
        if ended && !attempts.unprocessed(pool) {
            return Err(pool.refusal(Error::never_sent(&Error::connection_gone())));
        }
        if !ended && pool.allows(&lease) {
            return Ok(lease);
        }
    }
}

/// Sends a request over HTTP/2. [`ErrorKind::Refused`] says that the peer did not process it: the peer said so, or the
/// connection ended before the request was sent.
async fn send<B>(
    pool: &Arc<OriginPool>,
    sender: &SendRequest,
    handle: &Handle,
    slot: Slot,
    head: Arc<Request<()>>,
    body: B,
) -> Result<Response<Incoming>, Failed>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let mut response = sender.send_in(Some(slot), head, body);
    match (&mut response).await {
        Ok(response) if takes_no_more(&response) && pool.turns_away(handle) => Ok(response),
        Ok(response) => {
            sender.report_response();
            pool.answered();
            Ok(response)
        }
        Err(error) if handle.is_other_version() && error.is_silence() => {
            Err(Failed::new(error, What::Silence))
        }
        Err(error) if handle.is_other_version() || (error.requires_http1() && pool.require_http1()) => {
            Err(Failed::other_version(error))
        }
        Err(error) if (error.is_closed() || error.is_refused()) && response.never_began() => {
            // A new connection that takes no request is about to end, and only its end says why.
            handle.settled().await;
            if handle.is_other_version() {
                return Err(Failed::other_version(error));
            }
            let error = handle.failure().unwrap_or_else(|| Error::never_sent(&error));
            Err(Failed::new(error, What::Other))
        }
        Err(error) => Err(Failed::new(error, What::Other)),
    }
}

/// Whether a response says that the server takes no further connection, or no more requests for now.
fn takes_no_more(response: &Response<Incoming>) -> bool {
    let status = response.status();
    status == StatusCode::SERVICE_UNAVAILABLE || status == StatusCode::TOO_MANY_REQUESTS
}

/// Sends a request over HTTP/1.1.
async fn send_http1(
    pool: &Arc<OriginPool>,
    sender: &http1::SendRequest,
    handle: &Handle,
    slot: Slot,
    head: &Request<()>,
    body: Outgoing,
) -> Result<Response<Incoming>, Failed> {
    let failed = match sender.send(slot, head, body).await {
        Ok(response) => {
            pool.answered();
            return Ok(response);
        }
        Err(failed) => failed,
    };
    let http1::Failed {
        error,
        unsent,
        reused,
    } = failed;
    if let Some(failure) = handle.failure() {
        return Err(Failed::new(failure, What::Other));
    }
    if let Some(unsent) = unsent {
        return Err(Failed::new(error, What::Unsent(unsent)));
    }
    if handle.is_other_version() {
        return Err(Failed::other_version(error));
    }
    if !error.is_unanswered() {
        return Err(Failed::new(error, What::Other));
    }
    if reused {
        pool.drop_idle();
        return Err(Failed::new(error, What::Reused));
    }
    Err(Failed::new(error, What::Unanswered))
}
