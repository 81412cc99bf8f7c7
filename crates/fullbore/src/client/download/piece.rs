//! A part of a body: what has come of it, and from where the rest comes.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::Body as _;
use tokio::time::Instant;

use super::super::pool::Answer;
use super::super::range::Version;
use crate::body::Incoming;
use crate::error::Error;

/// Which connection a piece comes over.
pub(super) type LaneId = u32;

pub(super) struct Piece {
    /// The offset of the next byte to be handed out.
    pub(super) begin: u64,
    /// The offset of the next byte to come.
    pub(super) got: u64,
    /// The offset behind its last byte.
    pub(super) end: u64,
    pub(super) lane: LaneId,
    pub(super) source: Source,
    /// What has come and was not handed out.
    chunks: VecDeque<Bytes>,
    /// Whether its end may still move: it is the response with which the download began. What comes behind the end waits
    /// in `excess`.
    pub(super) is_open: bool,
    excess: VecDeque<Bytes>,
    /// When it was asked for, or something of it came last.
    pub(super) moved: Instant,
    /// Where the last request for it began.
    asked_from: u64,
}

pub(super) enum Source {
    /// Nobody was asked yet.
    Wanted,
    Asked(Answer),
    Coming(Incoming),
    /// All of it has come.
    Complete,
    /// It cannot be had.
    Failed(Error),
}

/// Why nothing more of a piece comes.
pub(super) enum Trouble {
    /// The request or the response failed.
    Failed(Error),
    /// The response has another status.
    Status(StatusCode),
    /// The response is not the range that was asked for.
    NoRange(&'static str),
    /// The response ended early.
    Short,
}

impl Piece {
    pub(super) fn wanted(begin: u64, end: u64, now: Instant) -> Self {
        Piece {
            begin,
            got: begin,
            end,
            lane: 0,
            source: Source::Wanted,
            chunks: VecDeque::new(),
            is_open: false,
            excess: VecDeque::new(),
            moved: now,
            asked_from: begin,
        }
    }

    /// The piece of the response with which the download begins.
    pub(super) fn open(begin: u64, end: u64, body: Incoming, now: Instant) -> Self {
        let mut piece = Self::wanted(begin, end, now);
        piece.source = Source::Coming(body);
        piece.is_open = true;
        piece
    }

    /// Moves the end of an open piece on.
    pub(super) fn extend(&mut self, end: u64, now: Instant) {
        self.end = end;
        for data in std::mem::take(&mut self.excess) {
            self.append(data, now);
        }
    }

    /// Whether the response has come to where it is to be cut off.
    pub(super) fn is_at_cut(&self, total: u64) -> bool {
        self.is_open && self.rest() == 0 && self.end < total
    }

    /// Cuts the response off at the end of the piece.
    pub(super) fn cut(&mut self) {
        self.is_open = false;
        self.excess.clear();
        self.source = Source::Complete;
    }

    /// Whether all of it was handed out.
    pub(super) fn is_over(&self, total: u64) -> bool {
        let has_ended = matches!(self.source, Source::Complete);
        self.begin == self.end && (has_ended || (self.end < total && !self.is_open))
    }

    pub(super) fn ask(&mut self, answer: Answer, lane: LaneId, now: Instant) {
        self.source = Source::Asked(answer);
        self.lane = lane;
        self.moved = now;
        self.asked_from = self.got;
    }

    /// Whether half or more came of what was asked for last. Some servers send shorter ranges than they are asked for.
    pub(super) fn came_by_half(&self) -> bool {
        self.got - self.asked_from >= self.rest() && self.got > self.asked_from
    }

    pub(super) fn buffered(&self) -> u64 {
        self.got - self.begin
    }

    /// The bytes that have not come.
    pub(super) fn rest(&self) -> u64 {
        self.end - self.got
    }

    pub(super) fn is_under_way(&self) -> bool {
        matches!(self.source, Source::Asked(_) | Source::Coming(_))
    }

    pub(super) fn is_coming(&self) -> bool {
        matches!(self.source, Source::Coming(_) | Source::Complete)
    }

    pub(super) fn has_chunk(&self) -> bool {
        !self.chunks.is_empty()
    }

    pub(super) fn take(&mut self) -> Option<Bytes> {
        let chunk = self.chunks.pop_front()?;
        self.begin += chunk.len() as u64;
        Some(chunk)
    }

    /// Takes off what lies behind an offset, which must not have come. Returns the piece that is wanted in its place.
    pub(super) fn split(&mut self, at: u64, now: Instant) -> Piece {
        debug_assert!(self.got <= at && at <= self.end);
        let behind = Piece::wanted(at, self.end, now);
        self.end = at;
        behind
    }

    /// Takes what has come, until that is `most` bytes or more. Returns how many bytes. `total` is where the body ends:
    /// there the end of the response is waited for.
    pub(super) fn poll(
        &mut self,
        (version, total): (&Version, u64),
        most: u64,
        now: Instant,
        cx: &mut Context<'_>,
    ) -> Result<u64, Trouble> {
        let before = self.got;
        while self.got - before < most && !self.is_at_cut(total) {
            let next = match &mut self.source {
                Source::Wanted | Source::Complete | Source::Failed(_) => break,
                Source::Asked(answer) => match answer.as_mut().poll(cx) {
                    Poll::Pending => break,
                    Poll::Ready(Err(error)) => return Err(Trouble::Failed(error)),
                    Poll::Ready(Ok(response)) => {
                        self.moved = now;
                        Source::Coming(self.check(response, version)?)
                    }
                },
                Source::Coming(body) => match Pin::new(body).poll_frame(cx) {
                    Poll::Pending => break,
                    Poll::Ready(None) if self.rest() > 0 => return Err(Trouble::Short),
                    Poll::Ready(None) => Source::Complete,
                    Poll::Ready(Some(Err(error))) => return Err(Trouble::Failed(error)),
                    Poll::Ready(Some(Ok(frame))) => {
                        if let Ok(data) = frame.into_data() {
                            self.append(data, now);
                        }
                        match self.rest() > 0 || self.is_open || self.end == total {
                            true => continue,
                            // What lies behind is another piece's, or the end of the body, which an HTTP/1.1 connection
                            // has to see before it carries another request.
                            false => self.at_end(cx),
                        }
                    }
                },
            };
            self.source = next;
        }
        Ok(self.got - before)
    }

    fn append(&mut self, mut data: Bytes, now: Instant) {
        let rest = usize::try_from(self.rest()).unwrap_or(usize::MAX);
        if data.len() > rest {
            let behind = data.split_off(rest);
            if self.is_open {
                self.excess.push_back(behind);
            }
        }
        if !data.is_empty() {
            self.moved = now;
            self.got += data.len() as u64;
            self.chunks.push_back(data);
        }
    }

    /// All has come. Dropping a body whose end has not come resets its stream, or ends its HTTP/1.1 connection.
    fn at_end(&mut self, cx: &mut Context<'_>) -> Source {
        if let Source::Coming(body) = &mut self.source {
            if !body.is_end_stream() {
                // A body that ends here has its end at hand, as a rule.
                let _ = Pin::new(body).poll_frame(cx);
            }
        }
        Source::Complete
    }

    /// The body of a response that has the range from `got` on.
    fn check(&self, response: Response<Incoming>, version: &Version) -> Result<Incoming, Trouble> {
        match response.status() {
            StatusCode::PARTIAL_CONTENT => {}
            StatusCode::OK => return Err(Trouble::NoRange("it sent the whole in place of a range")),
            status => return Err(Trouble::Status(status)),
        }
        match version.fit(response.headers(), self.got) {
            Ok(_) => Ok(response.into_body()),
            Err(why) => Err(Trouble::NoRange(why)),
        }
    }
}
