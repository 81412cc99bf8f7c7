//! The owner of one end: it answers requests, sends bodies as there is room, reads at a pace, checks every byte that it
//! reads, and lets go of streams that are over.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use fullbore_proto::{
    Connection, ErrorCode, Event, ReadState, Role, StreamError, StreamId, Time, UsageError,
};
use http::{HeaderMap, Request, Response};

use super::pattern;

/// How an owner reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Everything at once, credit and all.
    Eager,
    /// Everything at once, but it is done with only so many octets in each interval.
    Slow { bytes: u64, every: Duration },
    /// Everything at once, and gives no credit back.
    Hoards,
    /// Nothing.
    Never,
}

/// What a server answers.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) response: Response<()>,
    /// The length of the body.
    pub(crate) body: u64,
    pub(crate) trailers: Option<HeaderMap>,
}

type Handler = Box<dyn FnMut(&Request<()>) -> Answer>;

/// What is known of one stream.
#[derive(Debug, Default)]
pub(crate) struct Talk {
    pub(crate) request: Option<Request<()>>,
    pub(crate) informational: Vec<Response<()>>,
    pub(crate) response: Option<Response<()>>,
    pub(crate) received: u64,
    pub(crate) trailers: Option<HeaderMap>,
    /// The message is whole.
    pub(crate) ended: bool,
    pub(crate) reset: Option<StreamError>,
    /// What is to be sent: the octets left, and trailers behind them.
    sending: Option<(u64, Option<HeaderMap>)>,
    sent: u64,
    /// This side has sent all it will.
    finished: bool,
    pub(crate) released: bool,
}

/// An owner.
pub(crate) struct App {
    pub(crate) pace: Pace,
    handler: Handler,
    /// Whether a request is answered when it is whole, rather than when its head has come.
    pub(crate) answers_late: bool,
    /// How many octets are handed over at once.
    pub(crate) chunk: u64,
    /// A body is continued while no more than so many bytes of it wait.
    pub(crate) low_water: usize,
    pub(crate) talks: BTreeMap<u32, Talk>,
    pub(crate) go_aways: Vec<(u32, ErrorCode)>,
    /// Every octet of every body so far, each time that some came.
    pub(crate) progress: Vec<(Time, u64)>,
    pub(crate) received: u64,
    /// Whether the bytes of bodies are compared with what was to be sent.
    pub(crate) compares: bool,
    /// Streams that it never reads, whatever the pace.
    pub(crate) stalled: Vec<StreamId>,
    lent: VecDeque<(StreamId, u64)>,
    next_release: Option<Time>,
}

impl Default for App {
    fn default() -> Self {
        App {
            pace: Pace::Eager,
            handler: Box::new(|_| Answer::default()),
            answers_late: false,
            chunk: 64 << 10,
            low_water: 128 << 10,
            talks: BTreeMap::new(),
            go_aways: Vec::new(),
            progress: Vec::new(),
            received: 0,
            compares: true,
            stalled: Vec::new(),
            lent: VecDeque::new(),
            next_release: None,
        }
    }
}

impl App {
    /// Answers `/N` with a body of N octets.
    pub(crate) fn answering() -> Self {
        Self::answering_with(|request| Answer {
            body: request.uri().path()[1..].parse().unwrap_or(0),
            ..Answer::default()
        })
    }

    pub(crate) fn answering_with(handler: impl FnMut(&Request<()>) -> Answer + 'static) -> Self {
        App {
            handler: Box::new(handler),
            ..App::default()
        }
    }

    /// What is known of a stream.
    #[track_caller]
    pub(crate) fn talk(&self, stream: StreamId) -> &Talk {
        self.talks
            .get(&stream.value())
            .expect("nothing is known of the stream")
    }

    /// How many octets of bodies came from `from` until before `until`.
    pub(crate) fn received_between(&self, from: Time, until: Time) -> u64 {
        let at = |time: Time| {
            let before = self.progress.partition_point(|&(at, _)| at < time);
            before.checked_sub(1).map_or(0, |last| self.progress[last].1)
        };
        at(until) - at(from)
    }

    /// Sends a body of so many octets as there is room for it, and trailers.
    pub(crate) fn send_body(
        &mut self,
        connection: &mut Connection,
        stream: StreamId,
        length: u64,
        trailers: Option<HeaderMap>,
    ) {
        let talk = self.talks.entry(stream.value()).or_default();
        talk.sending = Some((length, trailers));
        self.pump(connection, stream);
    }

    /// Resets a stream.
    pub(crate) fn reset(&mut self, connection: &mut Connection, stream: StreamId, code: ErrorCode) {
        if connection.reset(stream, code).is_ok() {
            self.give_up(connection, stream);
        }
    }

    /// Reads no more of a stream.
    pub(crate) fn discard(&mut self, connection: &mut Connection, stream: StreamId) {
        connection.discard(stream);
        let talk = self.talks.entry(stream.value()).or_default();
        talk.ended = true;
        self.let_go(connection, stream);
    }

    /// Lets go of a stream, whatever its state.
    pub(crate) fn release(&mut self, connection: &mut Connection, stream: StreamId) {
        connection.release(stream);
        let talk = self.talks.entry(stream.value()).or_default();
        talk.released = true;
        talk.sending = None;
    }

    /// Gives back everything that was read and hoarded.
    pub(crate) fn release_hoard(&mut self, connection: &mut Connection) {
        for (stream, bytes) in self.lent.drain(..) {
            connection.release_credit(stream, bytes);
        }
        self.next_release = None;
    }

    /// Reads everything that was left unread, whatever the pace.
    pub(crate) fn catch_up(&mut self, connection: &mut Connection, now: Time) {
        let streams: Vec<_> = self.talks.keys().copied().collect();
        for stream in streams.into_iter().filter_map(StreamId::new) {
            self.read(connection, stream, now);
        }
        self.release_hoard(connection);
    }

    /// Lets go of every stream that was reset, or whose messages are whole, if that was not done before.
    pub(crate) fn let_go_of_resets(&mut self, connection: &mut Connection) {
        let streams: Vec<_> = self.talks.keys().copied().filter_map(StreamId::new).collect();
        for stream in streams {
            if self.talk(stream).reset.is_some() {
                self.give_up(connection, stream);
            } else {
                self.let_go(connection, stream);
            }
        }
    }

    /// When it releases more credit.
    pub(crate) fn next_time(&self) -> Option<Time> {
        self.next_release
    }

    /// Releases what is due at this time; whether there was something.
    pub(crate) fn on_time(&mut self, connection: &mut Connection, now: Time) -> bool {
        let (Pace::Slow { bytes, every }, Some(at)) = (self.pace, self.next_release) else {
            return false;
        };
        if at > now {
            return false;
        }
        let mut left = bytes;
        while let Some((stream, lent)) = self.lent.front_mut() {
            let part = left.min(*lent);
            connection.release_credit(*stream, part);
            *lent -= part;
            left -= part;
            if *lent > 0 {
                break;
            }
            self.lent.pop_front();
        }
        self.next_release = (!self.lent.is_empty()).then(|| now + every);
        true
    }

    pub(crate) fn on_event(&mut self, connection: &mut Connection, event: Event, now: Time) {
        match event {
            Event::Request { stream, request, end } => {
                let talk = self.talks.entry(stream.value()).or_default();
                talk.request = Some(request);
                talk.ended = end;
                if end || !self.answers_late {
                    self.answer(connection, stream);
                }
                self.let_go(connection, stream);
            }
            Event::Response {
                stream,
                response,
                end,
            } => {
                let talk = self.talks.entry(stream.value()).or_default();
                assert!(talk.response.replace(response).is_none(), "two final responses");
                talk.ended = end;
                self.let_go(connection, stream);
            }
            Event::Informational { stream, response } => {
                let talk = self.talks.entry(stream.value()).or_default();
                assert!(
                    talk.response.is_none(),
                    "an informational response after the final one"
                );
                talk.informational.push(response);
            }
            Event::Readable(stream) if self.stalled.contains(&stream) => {}
            Event::Readable(stream) if self.pace != Pace::Never => self.read(connection, stream, now),
            Event::Readable(_) | Event::PeerSettings => {}
            Event::Writable(stream) => self.pump(connection, stream),
            Event::Reset(error) => {
                let stream = error.stream;
                if self.pace != Pace::Never {
                    self.read(connection, stream, now);
                }
                let talk = self.talks.entry(stream.value()).or_default();
                assert!(talk.reset.replace(error).is_none(), "reset twice");
                self.give_up(connection, stream);
            }
            Event::GoAway {
                last_stream, code, ..
            } => self.go_aways.push((last_stream, code)),
            other => panic!("an event that the tests do not know: {other:?}"),
        }
    }

    fn answer(&mut self, connection: &mut Connection, stream: StreamId) {
        let talk = self.talks.entry(stream.value()).or_default();
        let Some(request) = &talk.request else {
            return;
        };
        if talk.sending.is_some() || talk.finished {
            return;
        }
        let answer = (self.handler)(request);
        let whole = answer.body == 0 && answer.trailers.is_none();
        match connection.send_response(stream, &answer.response, whole) {
            Ok(()) if whole => talk.finished = true,
            Ok(()) => self.send_body(connection, stream, answer.body, answer.trailers),
            Err(UsageError::UnknownStream) => talk.finished = true,
            Err(error) => panic!("the answer was refused: {error}"),
        }
    }

    /// Sends as much of a body as there is room for.
    fn pump(&mut self, connection: &mut Connection, stream: StreamId) {
        let low_water = self.low_water;
        let chunk = self.chunk;
        let Some(talk) = self.talks.get_mut(&stream.value()) else {
            return;
        };
        while let Some((left, trailers)) = &mut talk.sending {
            if connection.want_room(stream, low_water) > low_water {
                return;
            }
            let data = pattern::slice(stream, talk.sent, chunk.min(*left));
            let length = data.len() as u64;
            *left -= length;
            let last = *left == 0;
            let end = last && trailers.is_none();
            let mut result = connection.send_data(stream, data, end);
            if let (Ok(()), true, Some(trailers)) = (&result, last, trailers.take_if(|_| last)) {
                result = connection.send_trailers(stream, trailers);
            }
            match result {
                Ok(()) => talk.sent += length,
                Err(UsageError::UnknownStream) => {}
                Err(error) => panic!("{error}"),
            }
            if last || result.is_err() {
                talk.sending = None;
                talk.finished = true;
            }
        }
        self.let_go(connection, stream);
    }

    fn read(&mut self, connection: &mut Connection, stream: StreamId, now: Time) {
        let mut chunks: VecDeque<Bytes> = VecDeque::new();
        let Ok(state) = connection.read(stream, &mut chunks) else {
            return;
        };
        let talk = self.talks.entry(stream.value()).or_default();
        let mut bytes = 0;
        for chunk in chunks {
            assert!(
                !self.compares || pattern::matches(stream, talk.received, &chunk),
                "stream {stream}: other bytes than were sent at {}",
                talk.received
            );
            talk.received += chunk.len() as u64;
            bytes += chunk.len() as u64;
        }
        self.received += bytes;
        if bytes > 0 {
            self.progress.push((now, self.received));
        }
        match state {
            ReadState::Open | ReadState::Reset => {}
            ReadState::End => talk.ended = true,
            ReadState::Trailers(trailers) => {
                talk.trailers = Some(trailers);
                talk.ended = true;
            }
        }
        match self.pace {
            Pace::Slow { every, .. } if bytes > 0 => {
                self.lent.push_back((stream, bytes));
                self.next_release.get_or_insert(now + every);
            }
            Pace::Hoards => self.lent.push_back((stream, bytes)),
            _ => connection.release_credit(stream, bytes),
        }
        if self.talk(stream).ended {
            if connection.role() == Role::Server {
                self.answer(connection, stream);
            }
            self.let_go(connection, stream);
        }
    }

    /// Lets go of the stream when both messages are whole.
    fn let_go(&mut self, connection: &mut Connection, stream: StreamId) {
        let Some(talk) = self.talks.get_mut(&stream.value()) else {
            return;
        };
        let sends_nothing = connection.role() == Role::Client && talk.sending.is_none();
        if talk.ended && (talk.finished || sends_nothing) && !talk.released {
            talk.released = true;
            connection.release(stream);
        }
    }

    fn give_up(&mut self, connection: &mut Connection, stream: StreamId) {
        let talk = self.talks.entry(stream.value()).or_default();
        talk.sending = None;
        talk.finished = true;
        if !talk.released && self.pace != Pace::Never {
            talk.released = true;
            connection.release(stream);
        }
    }
}
