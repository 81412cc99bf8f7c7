//! What limited one exchange, for those who log it: the server leaves a way to ask in the extensions of the response.

use std::fmt;
use std::future::{Future, ready};
use std::sync::{Arc, OnceLock};

use fullbore_proto::{Arrivals, Direction, Report, Role, StreamReport, Verdict};
use futures_util::future::Either;

use crate::cell::Cell;
use crate::http1::{Meter, Traffic};
use crate::tcp;

/// What carries an exchange.
#[derive(Clone)]
enum Carrier {
    Http2(Arc<Cell>),
    Http1(Arc<Meter>),
}

/// Asks what limited a response, or the body of its request. Put one into the extensions of the response and keep a clone; the
/// server takes note when it sends the response.
///
/// Ask while the body of the response exists, best when it returns its last frame: the server forgets a stream that has ended.
/// Then what is known of the whole connection answers.
///
/// ```
/// use fullbore::server::ExchangeVerdict;
///
/// let verdict = ExchangeVerdict::new();
/// let mut response = http::Response::new("a long body");
/// response.extensions_mut().insert(verdict.clone());
/// // At the end of the body: verdict.ask(Direction::Sending).await
/// ```
#[derive(Clone, Default)]
pub struct ExchangeVerdict(Arc<OnceLock<Carrier>>);

impl ExchangeVerdict {
    /// A question that no server has seen.
    pub fn new() -> Self {
        ExchangeVerdict::default()
    }

    /// Whether a server that can answer has sent the response.
    pub fn is_answerable(&self) -> bool {
        self.0.get().is_some()
    }

    /// What limited sending the response, or receiving the body of its request. `None` below 256 KiB, which say little of a
    /// path, if nothing was waited for, and if the server does not know.
    ///
    /// The question is put when this is called, and not when the future is polled.
    pub fn ask(&self, direction: Direction) -> impl Future<Output = Option<Verdict>> + Send + 'static {
        match self.0.get() {
            Some(Carrier::Http2(cell)) => Either::Left(ask(cell, direction)),
            Some(Carrier::Http1(meter)) => Either::Right(ready(ask_http1(meter, direction))),
            None => Either::Right(ready(None)),
        }
    }

    /// The response is that of this stream.
    pub(super) fn answer_of(&self, cell: &Arc<Cell>) {
        let _ = self.0.set(Carrier::Http2(Arc::clone(cell)));
    }

    /// The response is the next one of this connection of HTTP/1.1.
    #[cold]
    pub(super) fn answer_of_http1(&self, meter: &Arc<Meter>) {
        let Traffic { sent, received, .. } = meter.traffic();
        meter.begin_record().begin_response((sent, received));
        let _ = self.0.set(Carrier::Http1(Arc::clone(meter)));
    }
}

impl fmt::Debug for ExchangeVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExchangeVerdict").finish_non_exhaustive()
    }
}

/// Asks a stream and its connection.
fn ask(cell: &Arc<Cell>, direction: Direction) -> impl Future<Output = Option<Verdict>> + Send + use<> {
    let (stream, connection) = (cell.ask_report(), cell.mailbox().report());
    async move {
        let stream = match stream {
            Some(stream) => stream.await.ok(),
            None => None,
        };
        judge(direction, stream.as_ref(), connection.await?)
    }
}

/// Asks a connection of HTTP/1.1. The body of a request precedes the response that is recorded by itself.
fn ask_http1(meter: &Meter, direction: Direction) -> Option<Verdict> {
    let record = meter.record()?;
    let report = match direction {
        Direction::Sending => record.response_report()?,
        Direction::Receiving => record.report(),
    };
    judge(direction, None, report)
}

/// Judges one stream, or all that its connection has carried if nothing is known of the stream.
fn judge(direction: Direction, stream: Option<&StreamReport>, mut report: Report) -> Option<Verdict> {
    if let Some(stream) = stream {
        // Data of other streams has its own rhythm.
        if stream.received_bytes < report.stats.received_data_bytes / 2 {
            report.arrivals = Arrivals::default();
        }
        (report.sending, report.receiving) = (stream.sending, stream.receiving);
        report.stats.sent_data_bytes = stream.sent_bytes;
        report.stats.received_data_bytes = stream.received_bytes;
    }
    if direction.data_bytes(&report) < tcp::LEAST_BYTES {
        return None;
    }
    Verdict::of(Role::Server, direction, &[report])
}
