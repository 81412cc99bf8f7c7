//! Downloads over as many connections as make them faster.
//!
//! A TCP connection is a window too: its congestion window after a loss, its buffers over a long round trip, a shaper's
//! limit on each flow. No HTTP/2 window lifts those; further connections do. `client/experiment` decides how many, `spread`
//! asks for ranges and hands them out in order, and `piece` is one range.

mod piece;
mod spread;

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use fullbore_proto::{StreamReport, Verdict};
use http::header::{self, HeaderMap};
use http::{Method, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};

use self::spread::Spread;
use super::pool::Client;
use super::range::{Extent, Version};
use crate::body::Incoming;
use crate::error::Error;

/// A body of which less is missing comes over one connection: a further one would have opened when the rest has come.
const WORTH_SPREADING: u64 = 1 << 20;

/// The body of a response, in order, whatever connections carried it. See [`Client::download`].
pub struct Download {
    carrier: Carrier,
}

enum Carrier {
    One(Incoming),
    Several(Box<Spread>),
}

/// What a [`Download`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct DownloadReport {
    /// The connections that carry it now.
    pub connections: usize,
    /// The most that carried it at a time.
    pub most_connections: usize,
    /// The bytes that have come.
    pub received: u64,
    /// If further connections have paid: the rate of one connection before, in bytes a second.
    pub alone: Option<u64>,
    /// The rate of all of them.
    pub together: Option<u64>,
    /// How many these were.
    pub paid_connections: Option<usize>,
}

impl DownloadReport {
    /// A verdict on the connections of the download, with what the further ones have shown: a limit on each connection is known
    /// by nothing else.
    pub fn refine(&self, verdict: Verdict) -> Verdict {
        match (self.alone, self.together, self.paid_connections) {
            (Some(alone), Some(together), Some(connections)) => {
                verdict.with_further(alone, together, connections)
            }
            _ => verdict,
        }
    }
}

impl Client {
    /// Sends a GET request, and receives its body over as many connections as make that faster, up to
    /// [`ClientBuilder::max_connections`](super::ClientBuilder::max_connections).
    ///
    /// The body begins on one connection. When its rate has settled and the rest would take more than a second, another
    /// connection asks for a range further on. It is kept if the whole became at least 1.6 times as fast, as where each
    /// connection is limited by losses, by TCP's buffers or by a shaper. Then the others that are allowed are tried, and
    /// as many are kept as carry the rate. RFC 9113 section 9.1 asks clients to open one connection to an origin; this
    /// exception lasts for a download that one connection cannot carry. `max_connections(1)` turns it off.
    ///
    /// The body comes in order, so that what has been read is always a beginning of the whole. Ranges are asked for only
    /// if the response has a strong validator and a length, and each must prove to be of the same version. A server that
    /// refuses ranges or further connections is asked no more. At most 64 MiB that are not in order wait in memory.
    ///
    /// # Errors
    /// As [`Self::request`](Client::request). When the rest can no longer be had, the body fails with
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed): what was read until then is right.
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// use http_body_util::BodyExt;
    ///
    /// let client = fullbore::Client::new();
    /// let request = http::Request::get("https://example.com/large").body(())?;
    /// let mut body = client.download(request).await?.into_body();
    /// while let Some(frame) = body.frame().await {
    ///     if let Ok(data) = frame?.into_data() {
    ///         println!("{} bytes", data.len());
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn download(&self, mut request: Request<()>) -> Result<Response<Download>, Error> {
        *request.method_mut() = Method::GET;
        let lane = self.lane(&mut request)?;
        let response = lane.send(request.clone()).await?;
        drop(lane);
        Ok(self.spread(request, response))
    }

    /// As [`Self::download`], for a response that is here already. `request` is the one that it answers. If the client
    /// followed redirects or resumed a download, it is the last request.
    ///
    /// A response whose rest cannot be asked for by ranges stays as it is.
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// use http::Request;
    /// use http_body_util::Empty;
    ///
    /// let client = fullbore::Client::new();
    /// let request = Request::get("https://example.com/large").body(())?;
    /// let response = client.request(request.clone().map(|()| Empty::<bytes::Bytes>::new())).await?;
    /// let response = client.spread(request, response);
    /// # Ok(()) }
    /// ```
    pub fn spread(&self, request: Request<()>, response: Response<Incoming>) -> Response<Download> {
        let (head, body) = response.into_parts();
        let carrier = match Part::of(&request, head.status, &head.headers, &body) {
            Some(part) => self.spread_part(request, head.version, part, body),
            None => Carrier::One(body),
        };
        Response::from_parts(head, Download { carrier })
    }

    fn spread_part(
        &self,
        mut request: Request<()>,
        http_version: http::Version,
        part: Part,
        body: Incoming,
    ) -> Carrier {
        for condition in [
            header::RANGE,
            header::IF_RANGE,
            header::IF_NONE_MATCH,
            header::IF_MODIFIED_SINCE,
        ] {
            request.headers_mut().remove(condition);
        }
        match self.lane(&mut request) {
            Ok(lane) if lane.most() > 1 => {
                let is_http1 = http_version < http::Version::HTTP_2;
                Carrier::Several(Box::new(Spread::new(lane, is_http1, request, part, body)))
            }
            _ => Carrier::One(body),
        }
    }
}

/// The part of a representation that a response carries.
struct Part {
    version: Version,
    begin: u64,
    end: u64,
}

impl Part {
    /// `None` if ranges of the rest cannot be asked for, or are not worth it.
    fn of(request: &Request<()>, status: StatusCode, headers: &HeaderMap, body: &Incoming) -> Option<Self> {
        let length = body
            .size_hint()
            .exact()
            .filter(|&length| length > WORTH_SPREADING)?;
        let refuses = headers
            .get_all(header::ACCEPT_RANGES)
            .iter()
            .any(|value| value == "none");
        if request.method() != Method::GET || refuses {
            return None;
        }
        let part = match status {
            StatusCode::OK => Part {
                version: Version::of(headers, Some(length))?,
                begin: 0,
                end: length,
            },
            StatusCode::PARTIAL_CONTENT => {
                let (begin, Extent { end, total }) = Extent::of(headers)?;
                Part {
                    version: Version::of(headers, Some(total))?,
                    begin,
                    end,
                }
            }
            _ => return None,
        };
        (part.end.checked_sub(part.begin) == Some(length)).then_some(part)
    }
}

impl Download {
    /// Receives the rest over exactly so many connections from now on, in place of experiments. At most
    /// [`ClientBuilder::max_connections`](super::ClientBuilder::max_connections). It has no effect on a body that cannot
    /// be asked for by ranges.
    pub fn set_connections(&mut self, connections: usize) {
        if let Carrier::Several(spread) = &mut self.carrier {
            spread.set_connections(connections.max(1));
        }
    }

    /// Returns what was done.
    pub fn download_report(&self) -> DownloadReport {
        match &self.carrier {
            Carrier::One(_) => DownloadReport {
                connections: 1,
                most_connections: 1,
                ..DownloadReport::default()
            },
            Carrier::Several(spread) => spread.report(),
        }
    }

    /// Returns what the stream of the body waited for ([`Incoming::report`]), as long as one stream carries it.
    pub async fn report(&mut self) -> Option<StreamReport> {
        let body = match &mut self.carrier {
            Carrier::One(body) => body,
            Carrier::Several(spread) => spread.only_body()?,
        };
        body.report().await
    }
}

impl Body for Download {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        match &mut self.carrier {
            Carrier::One(body) => Pin::new(body).poll_frame(cx),
            Carrier::Several(spread) => spread.poll_data(cx).map_ok(Frame::data),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.carrier {
            Carrier::One(body) => body.is_end_stream(),
            Carrier::Several(spread) => spread.rest() == 0,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.carrier {
            Carrier::One(body) => body.size_hint(),
            Carrier::Several(spread) => SizeHint::with_exact(spread.rest()),
        }
    }
}

impl fmt::Debug for Download {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Download")
            .field("rest", &self.size_hint().exact())
            .finish_non_exhaustive()
    }
}
