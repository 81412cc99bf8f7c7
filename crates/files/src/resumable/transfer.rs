//! The content of one request on its way to the part of its upload. Called by `resumable`.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use fullbore::server::Informational;
use http::header::LOCATION;
use http::{HeaderValue, StatusCode};
use http_body::Body;
use tokio::runtime::Handle;

use super::fields::{
    NO, UPLOAD_COMPLETE, UPLOAD_LIMIT, UPLOAD_OFFSET, YES, inconsistent, interim_response, limit, too_large,
};
use crate::body_length::{BodyLength, next_frame};
use crate::cache::Cache;
use crate::file_body::FileResponse;
use crate::peer::Peer;
use crate::refusal::{Refusal, failure, not_stored};
use crate::respond;
use crate::store::{Kept, ModifiedSecond};
use crate::unfinished::{Entry, Turn, Unfinished};
use crate::upload_limits::UploadLimits;
use crate::uploads::Order;
use crate::writer::Writer;

/// The client is told of its progress after so many more bytes, or this share of the upload: a request gets few such responses.
const TELL_EVERY: u64 = 16 << 20;
const TELLS: u64 = 32;

/// What stores the content of a request.
pub(super) struct Storage {
    pub(super) cache: Arc<Cache>,
    pub(super) limits: Arc<UploadLimits>,
    pub(super) unfinished: Arc<Unfinished>,
    pub(super) peer: Option<Peer>,
    /// The largest upload, in bytes.
    pub(super) largest: u64,
}

/// The content of one request on its way to the part of its upload.
pub(super) struct Transfer {
    pub(super) storage: Storage,
    pub(super) order: Order,
    pub(super) entry: Arc<Entry>,
    pub(super) turn: Turn,
    pub(super) kept: Kept,
    pub(super) content: BodyLength,
    /// The upload ends with this content.
    pub(super) is_last: bool,
    pub(super) interim: Option<Informational>,
    /// The reference to the upload resource, if this request created it.
    pub(super) created: Option<HeaderValue>,
}

/// Why a request's content was not received to its end.
enum Cut {
    /// Another request continues the upload.
    Taken,
    Refused(Refusal),
    /// The upload is longer than its client said, or than is allowed.
    TooLong,
}

impl Transfer {
    /// Stores the content in a task of its own, which goes on when the handler of the request is dropped.
    pub(super) async fn run<B>(self: Box<Self>, body: B) -> FileResponse
    where
        B: Body<Data = Bytes> + Send + 'static,
    {
        let task = tokio::spawn(async move {
            let mut body = Box::pin(body);
            let response = self.store(body.as_mut()).await;
            // Dropping the body before there is a response would reset the stream.
            (response, Held(body))
        });
        match task.await {
            Ok((response, _)) => response,
            Err(_) => not_stored().into_response(),
        }
    }

    async fn store<B>(mut self, body: Pin<&mut B>) -> FileResponse
    where
        B: Body<Data = Bytes>,
    {
        let (limits, to) = (
            Arc::clone(&self.storage.limits),
            Arc::clone(&self.order.destination),
        );
        let mut writer = Writer::resuming(limits, to, self.kept.clone());
        writer.set_modified(
            self.turn
                .held
                .record
                .modified
                .and_then(ModifiedSecond::from_seconds),
        );
        let received = self.receive(&mut writer, body).await;
        self.entry.touch();
        let cut = match received {
            Ok(()) if self.is_last => return self.publish(writer).await,
            Ok(()) => match writer.keep().await {
                Ok(written) => {
                    self.entry.has_received(self.kept.offset + written);
                    return self.accepted();
                }
                Err(error) => return failure(&error).into_response(),
            },
            Err(cut) => cut,
        };
        // What cannot be written now was not received.
        if let Ok(written) = writer.keep().await {
            self.entry.has_received(self.kept.offset + written);
        }
        match cut {
            Cut::Taken => respond::text(StatusCode::CONFLICT, "another request continues this upload"),
            Cut::Refused(refusal) => refusal.into_response(),
            Cut::TooLong => {
                self.remove().await;
                match self.turn.held.record.length {
                    Some(_) => inconsistent("the upload is longer than its length; it was removed"),
                    None => too_large(
                        crate::body_length::too_large(self.storage.largest),
                        self.storage.largest,
                    ),
                }
            }
        }
    }

    async fn receive<B>(&mut self, writer: &mut Writer, mut body: Pin<&mut B>) -> Result<(), Cut>
    where
        B: Body<Data = Bytes>,
    {
        let failed = |error| Cut::Refused(failure(&error));
        let length = self.turn.held.record.length;
        let most = length.unwrap_or(self.storage.largest);
        let step = TELL_EVERY.max(length.unwrap_or_default() / TELLS);
        let mut tell_at = self.kept.offset.saturating_add(step);
        loop {
            let next = unless(self.turn.taken(), next_frame(body.as_mut()));
            let Some(arrived) = writer.wait(next).await.map_err(failed)? else {
                return Err(Cut::Taken);
            };
            let Some(frame) = arrived else { break };
            // One request may take longer than an upload is kept without any.
            self.entry.touch();
            let data = self.content.data(frame).map_err(|refusal| match refusal.status {
                StatusCode::PAYLOAD_TOO_LARGE => Cut::TooLong,
                _ => Cut::Refused(refusal),
            })?;
            if self.kept.offset.saturating_add(self.content.count) > most {
                return Err(Cut::TooLong);
            }
            if let Some(data) = data {
                writer.push(data).await.map_err(failed)?;
            }
            let offset = self.kept.offset + writer.written();
            self.entry.has_received(offset);
            if let Some(interim) = self.interim.as_ref().filter(|_| offset >= tell_at) {
                tell_at = offset.saturating_add(step);
                let mut response = interim_response();
                response
                    .headers_mut()
                    .insert(UPLOAD_OFFSET.clone(), HeaderValue::from(offset));
                let _ = interim.send(response);
            }
        }
        self.content.end().map_err(Cut::Refused)
    }

    /// The content was appended, and there is more to come.
    fn accepted(self) -> FileResponse {
        let mut response = match &self.created {
            Some(_) => respond::bare(StatusCode::CREATED),
            None => respond::bare(StatusCode::NO_CONTENT),
        };
        let offset = self.kept.offset.saturating_add(self.content.count);
        let headers = response.headers_mut();
        headers.insert(UPLOAD_COMPLETE.clone(), NO);
        headers.insert(UPLOAD_OFFSET.clone(), HeaderValue::from(offset));
        let response = respond::with(response, LOCATION, self.created);
        respond::with(
            response,
            UPLOAD_LIMIT.clone(),
            limit(self.storage.largest, self.entry.remaining()),
        )
    }

    /// The upload has all its bytes.
    async fn publish(mut self, writer: Writer) -> FileResponse {
        let length = self.kept.offset.saturating_add(self.content.count);
        if self.turn.held.record.length.is_some_and(|known| known != length) {
            let _ = writer.keep().await;
            return inconsistent("the upload is shorter than its length");
        }
        let (published, ends) = match self.order.publish(&self.storage.cache, writer, length).await {
            Ok(response) => {
                self.turn.held.record.complete = Some(length);
                let record = self.turn.held.record.clone();
                let (unfinished, entry) = (Arc::clone(&self.storage.unfinished), Arc::clone(&self.entry));
                self.job(move || unfinished.complete(&entry, &record)).await;
                (response, true)
            }
            // The same would come of another attempt.
            Err(refusal) if refusal.status.is_client_error() => {
                self.remove().await;
                (refusal.into_response(), true)
            }
            Err(refusal) => (refusal.into_response(), false),
        };
        respond::with(published, UPLOAD_COMPLETE.clone(), ends.then_some(YES))
    }

    async fn remove(&mut self) {
        self.turn.held.is_gone = true;
        let (unfinished, entry) = (Arc::clone(&self.storage.unfinished), Arc::clone(&self.entry));
        self.job(move || unfinished.remove(&entry)).await;
    }

    async fn job(&self, work: impl FnOnce() + Send + 'static) {
        let job = self
            .storage
            .limits
            .jobs()
            .begin(&Handle::current(), self.storage.peer, work);
        // The entry expires if it fails.
        let _ = job.await;
    }
}

/// A body that is only dropped.
struct Held<B>(#[allow(dead_code, reason = "it is held until the response is there")] Pin<Box<B>>);

/// What `next` yields, unless `end` is ready before.
async fn unless<T>(end: impl Future<Output = ()>, next: impl Future<Output = T>) -> Option<T> {
    let (mut end, mut next) = (pin!(end), pin!(next));
    poll_fn(|cx| match end.as_mut().poll(cx) {
        Poll::Ready(()) => Poll::Ready(None),
        Poll::Pending => next.as_mut().poll(cx).map(Some),
    })
    .await
}
