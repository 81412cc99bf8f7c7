//! A body that comes in pieces over several connections, and is handed out in order.
//!
//! The response with which a download begins is the first piece, and reaches to the end. A further connection gets a
//! piece that is split off behind it. The first response is canceled where that piece begins, but only once something of
//! it has come: until then nothing is lost if the server does not serve ranges. Each connection has so much to do that it
//! never waits for the next request, and no more, so that none has what the body waits for while others are idle.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::{HeaderValue, IF_RANGE, RANGE};
use tokio::time::{Instant, Sleep};

use super::piece::{LaneId, Piece, Source, Trouble};
use super::{DownloadReport, Part};
use crate::body::Incoming;
use crate::client::experiment::{Advice, Judge, Meter, View, Watch};
use crate::client::pool::Lane;
use crate::client::range::Version;
use crate::error::{Error, ErrorKind};

/// The most bytes of pieces that are not the next one: what may have to wait in memory.
const AHEAD: u64 = 64 << 20;

/// How often rates are read, and connections judged.
const TICK: Duration = Duration::from_millis(50);

/// How many chunks are handed out before the other pieces get a turn.
const CHUNKS: u32 = 8;

/// The size of a piece: what comes in half a second, within these bounds.
const PIECE_TIME: f64 = 0.5;
const SMALLEST: u64 = 256 << 10;
const LARGEST: u64 = 4 << 20;

/// The rate of a connection of which nothing is known, in bytes a second.
const PRESUMED: f64 = 1e6;

/// The least rest of a piece that is worth splitting; over HTTP/1.1 the split costs a connection.
const WORTH_SPLITTING: u64 = 256 << 10;
const WORTH_SPLITTING_HTTP1: u64 = 1 << 20;

/// A piece is slow if its rest takes [`SLOW`] times as long as another connection needs to answer ([`LEAD`]). Then less of it
/// is worth splitting.
const WORTH_SPLITTING_SLOW: u64 = 64 << 10;
const SLOW: f64 = 2.0;

/// How far ahead of a piece another connection begins: what comes in this time, in seconds, and in so many round trips. A
/// connection of TLS has its first response after four. The first one begins where an experiment has its result before
/// the first response gets there.
const LEAD: (f64, f64) = (0.3, 4.0);
const TRIAL_LEAD: (f64, f64) = (0.6, 14.0);

/// The least of [`LEAD`] in bytes, which a connection has that has become slow.
const LEAST_LEAD: u64 = 16 << 10;

/// How long nothing may come of the piece that is waited for while other pieces come. Beside it, 8 round trips.
const STALLED: Duration = Duration::from_secs(2);

/// How many times as long a further connection is waited for while nothing comes at all: the path may be down.
const STALLED_ALL: u32 = 5;

/// The pause after the first failure of the last connection; each further one is twice as long.
const PAUSE: Duration = Duration::from_millis(250);

/// The failures that are borne until 1 MiB more has come.
const MOST_STUMBLES: u32 = 4;
const FORGIVEN: u64 = 1 << 20;

/// How often a further connection may be too late with a piece.
const MOST_LATE: u32 = 3;

/// The round trip where none was measured.
const USUAL_ROUND_TRIP: Duration = Duration::from_millis(100);

/// The connection with which the download began: the pool's own.
const MAIN: LaneId = 0;

pub(super) struct Spread {
    request: Request<()>,
    version: Version,
    is_http1: bool,
    end: u64,
    /// In order, without a gap, up to `end`.
    pieces: VecDeque<Piece>,
    lanes: Vec<Way>,
    /// The pool of the origin.
    main: Lane,
    /// How many connections there were in all.
    lanes_begun: LaneId,
    /// The most connections that carried it at a time.
    most_connections: usize,
    /// Connections to be opened at once.
    to_open: usize,
    /// Whether a range has come.
    proven: bool,
    judge: Judge,
    watch: Watch,
    meter: Meter,
    /// What came over the connections of an experiment, the first of which is this one.
    tried: Meter,
    tried_from: LaneId,
    tick: Pin<Box<Sleep>>,
    /// Since when there is nothing to hand out, and for how long there was nothing since `ticked`.
    waits_since: Option<Instant>,
    waited: Duration,
    ticked: Instant,
    reader_is_slow: bool,
    handed_out: u32,
    stumbles: u32,
    stumbled_at: u64,
    /// Until when nothing is asked for, after a failure.
    pauses_until: Instant,
}

/// A connection.
struct Way {
    id: LaneId,
    lane: Lane,
    meter: Meter,
    /// Whether it is asked for nothing more.
    is_closing: bool,
    /// How often the first response came to a piece before it did.
    late: u32,
}

impl Spread {
    pub(super) fn new(lane: Lane, is_http1: bool, request: Request<()>, part: Part, body: Incoming) -> Self {
        let now = Instant::now();
        let most = lane.most();
        Spread {
            request,
            version: part.version,
            is_http1,
            end: part.end,
            pieces: VecDeque::from([Piece::open(part.begin, part.end, body, now)]),
            lanes: vec![Way::new(MAIN, lane.same())],
            main: lane,
            lanes_begun: 1,
            most_connections: 1,
            to_open: 0,
            proven: false,
            judge: Judge::new(most, now),
            watch: Watch::default(),
            meter: Meter::default(),
            tried: Meter::default(),
            tried_from: 1,
            tick: Box::pin(tokio::time::sleep(TICK)),
            waits_since: None,
            waited: Duration::ZERO,
            ticked: now,
            reader_is_slow: false,
            handed_out: 0,
            stumbles: 0,
            stumbled_at: 0,
            pauses_until: now,
        }
    }

    pub(super) fn set_connections(&mut self, connections: usize) {
        self.judge.refused();
        self.to_open = connections.saturating_sub(self.lanes.len());
    }

    /// The bytes that were not handed out.
    pub(super) fn rest(&self) -> u64 {
        self.pieces.front().map_or(0, |piece| self.end - piece.begin)
    }

    /// The first response, while it is the only one.
    pub(super) fn only_body(&mut self) -> Option<&mut Incoming> {
        let is_only = self.pieces.len() == 1 && !self.proven;
        match self.pieces.front_mut() {
            Some(Piece {
                source: Source::Coming(body),
                ..
            }) if is_only => Some(body),
            _ => None,
        }
    }

    pub(super) fn report(&self) -> DownloadReport {
        DownloadReport {
            connections: self.connections(),
            most_connections: self.most_connections,
            received: self.meter.total(),
            alone: self.judge.gain().map(|gain| gain.alone as u64),
            together: self.judge.gain().map(|gain| gain.together as u64),
            paid_connections: self.judge.gain().map(|gain| gain.connections),
        }
    }

    /// The connections that carry it. Over HTTP/1.1 the pool may have fewer of them than requests, which then wait in it.
    fn connections(&self) -> usize {
        match self.is_http1 {
            true => self.lanes.len().min(self.main.connections()).max(1),
            false => self.lanes.len(),
        }
    }

    pub(super) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
        if self.handed_out < CHUNKS {
            if let Some(chunk) = self.take_chunk() {
                self.handed_out += 1;
                return Poll::Ready(Some(Ok(chunk)));
            }
        }
        self.handed_out = 0;
        let now = Instant::now();
        if let Some(since) = self.waits_since.take() {
            self.waited += now - since;
        }
        loop {
            self.poll_pieces(now, cx);
            let has_moved = self.move_end_of_first(now);
            while self.tick.as_mut().poll(cx).is_ready() {
                self.tick.as_mut().reset(now + TICK);
                self.judge_rates(now);
            }
            self.watch.poll(now, cx);
            self.open_lanes();
            let has_asked = self.ask(now);
            if let Some(chunk) = self.take_chunk() {
                return Poll::Ready(Some(Ok(chunk)));
            }
            match self.pieces.front() {
                None => return Poll::Ready(None),
                Some(Piece {
                    source: Source::Failed(error),
                    ..
                }) => return Poll::Ready(Some(Err(error.clone()))),
                Some(_) => {}
            }
            if !has_asked && !has_moved {
                self.waits_since = Some(now);
                return Poll::Pending;
            }
        }
    }

    /// The next chunk, if it has come.
    fn take_chunk(&mut self) -> Option<Bytes> {
        let front = self.pieces.front_mut()?;
        let chunk = front.take();
        if front.is_over(self.end) {
            self.pieces.pop_front();
        }
        chunk
    }

    fn poll_pieces(&mut self, now: Instant, cx: &mut Context<'_>) {
        let behind = self.pieces.iter().skip(1);
        let mut room = AHEAD.saturating_sub(behind.map(Piece::buffered).sum());
        let mut index = 0;
        while let Some(piece) = self.pieces.get_mut(index) {
            // The reader sets the pace of the next piece. Others come as fast as they can.
            let most = match index {
                0 if piece.has_chunk() => 0,
                0 => 1,
                _ => room,
            };
            let lane = piece.lane;
            match piece.poll((&self.version, self.end), most, now, cx) {
                Ok(bytes) => {
                    if index > 0 {
                        room = room.saturating_sub(bytes);
                    }
                    self.proven |= !piece.is_open && piece.is_coming();
                    self.count(lane, bytes);
                    index += 1;
                }
                Err(trouble) => {
                    self.bear(index, trouble, now);
                    // It may have gone, and others with it.
                    index = 0;
                }
            }
        }
    }

    fn count(&mut self, lane: LaneId, bytes: u64) {
        if bytes > 0 {
            self.meter.count(bytes);
            if lane >= self.tried_from {
                self.tried.count(bytes);
            }
            if let Some(way) = self.lanes.iter_mut().find(|way| way.id == lane) {
                way.meter.count(bytes);
            }
            if self.meter.total() > self.stumbled_at + FORGIVEN {
                self.stumbles = 0;
            }
        }
    }

    /// Cuts the first response off where the next piece begins, or goes on with it if nothing of that piece has come.
    /// Drops a piece that is over. Returns whether there is something new to look at.
    fn move_end_of_first(&mut self, now: Instant) -> bool {
        let Some(front) = self.pieces.front_mut() else {
            return false;
        };
        if front.is_over(self.end) {
            self.pieces.pop_front();
            return true;
        }
        if !front.is_at_cut(self.end) {
            return false;
        }
        let next = self.pieces.remove(1);
        match (next, self.pieces.front_mut()) {
            (Some(next), Some(front)) if next.buffered() == 0 => {
                front.extend(next.end, now);
                if next.is_under_way() {
                    self.swallowed(next.lane, now);
                }
            }
            (next, Some(front)) => {
                front.cut();
                if let Some(next) = next {
                    self.pieces.insert(1, next);
                }
            }
            (_, None) => {}
        }
        true
    }

    /// A connection was too late with a piece. After some it is given back.
    fn swallowed(&mut self, lane: LaneId, now: Instant) {
        if let Some(way) = self.lanes.iter_mut().find(|way| way.id == lane && lane != MAIN) {
            way.late += 1;
            if way.late >= MOST_LATE {
                self.judge.refused();
                self.remove_lane(lane, now);
            }
        }
    }

    /// Whether the response with which the download began still carries it.
    fn is_first_open(&self) -> bool {
        self.pieces.front().is_some_and(|front| front.is_open)
    }

    /// Once further connections have paid, the first response is to end soon: what they carry must not wait for it.
    fn pull_in(&mut self, now: Instant) {
        if self.judge.is_convinced() && self.is_first_open() {
            let at = self.pieces[0].got + self.lead(MAIN, false);
            if at < self.pieces[0].end {
                let behind = self.pieces[0].split(at, now);
                self.pieces.insert(1, behind);
            }
        }
    }

    /// The first response carries the rest.
    fn go_on_alone(&mut self, now: Instant) {
        self.pieces.truncate(1);
        self.lanes.truncate(1);
        self.to_open = 0;
        if let Some(front) = self.pieces.front_mut() {
            front.extend(self.end, now);
        }
    }

    /// Whether a connection can be given up. Over HTTP/1.1 none is special: that of the first response ends when it is cut off.
    fn is_spare(&self, lane: LaneId) -> bool {
        match self.is_http1 {
            true => self.lanes.iter().any(|way| way.id != lane && !way.is_closing),
            false => lane != MAIN,
        }
    }

    /// Deals with the end of a piece that has not come whole.
    fn bear(&mut self, index: usize, trouble: Trouble, now: Instant) {
        let (lane, is_open) = (self.pieces[index].lane, self.pieces[index].is_open);
        if !is_open && self.is_first_open() && !self.proven {
            self.judge.refused();
            return self.go_on_alone(now);
        }
        if matches!(trouble, Trouble::Short) && !is_open && self.pieces[index].came_by_half() {
            self.pieces[index].source = Source::Wanted;
            return;
        }
        if !is_open && self.is_spare(lane) {
            self.judge.refused();
            return self.remove_lane(lane, now);
        }
        self.stumbles += 1;
        self.stumbled_at = self.meter.total();
        let is_final = matches!(trouble, Trouble::NoRange(_)) || self.stumbles > MOST_STUMBLES;
        let piece = &mut self.pieces[index];
        piece.is_open = false;
        piece.source = match is_final || (is_open && !self.proven) {
            true => Source::Failed(trouble.into_error()),
            false => Source::Wanted,
        };
        self.pauses_until = now + PAUSE * 2_u32.pow(self.stumbles.min(MOST_STUMBLES) - 1);
    }

    /// Takes a further connection out, and has what it was asked for come over others.
    fn remove_lane(&mut self, lane: LaneId, now: Instant) {
        self.lanes.retain(|way| way.id != lane);
        for piece in self
            .pieces
            .iter_mut()
            .filter(|piece| piece.lane == lane && piece.is_under_way())
        {
            piece.source = Source::Wanted;
            piece.moved = now;
        }
    }

    fn judge_rates(&mut self, now: Instant) {
        let elapsed = now - self.ticked;
        self.reader_is_slow = self.waited < elapsed / 5;
        self.waited = Duration::ZERO;
        self.ticked = now;
        self.meter.read(now);
        self.tried.read(now);
        for way in &mut self.lanes {
            way.meter.read(now);
        }
        self.free_stalled(now);
        self.free_unanswered(now);
        let carries = |way: &&Way| {
            let mut pieces = self.pieces.iter();
            pieces.any(|piece| piece.lane == way.id && matches!(piece.source, Source::Coming(_)))
        };
        let carrying = self.lanes.iter().filter(carries).count();
        self.most_connections = self.most_connections.max(carrying);
        let pieces = &self.pieces;
        self.lanes.retain(|way| {
            !way.is_closing
                || pieces
                    .iter()
                    .any(|piece| piece.lane == way.id && piece.is_under_way())
        });
        let open = self.lanes.iter().filter(|way| !way.is_closing);
        let under_way = self.pieces.iter().filter(|piece| piece.is_under_way()).count();
        let view = View {
            facts: self.watch.facts(now),
            is_shared: !self.main.is_alone(under_way),
            connections: open.clone().count(),
            answered: open.clone().all(|way| way.id == MAIN || way.meter.total() > 0),
            rest: self.pieces.iter().map(Piece::rest).sum(),
            round_trip: self.main.round_trip(),
            reader_is_slow: self.reader_is_slow,
        };
        if self.judge.is_looking() {
            self.watch.ask(|| self.main.tcp(), now);
        }
        let advice = self.judge.advise(&self.meter, &self.tried, view, now);
        #[cfg(feature = "tracing")]
        if advice != Advice::Stay {
            tracing::debug!(target: "fullbore::download", "{advice}");
            tracing::trace!(target: "fullbore::download", ?view, judge = ?self.judge, round_trips = ?self.watch.round_trips());
        }
        match advice {
            Advice::Stay => {}
            Advice::Open(connections) => {
                self.to_open = connections;
                (self.tried, self.tried_from) = (Meter::default(), self.lanes_begun);
                self.pull_in(now);
            }
            // What came over the others comes once more: that is less than what the first response would have under way
            // when it is cut off.
            Advice::Close(_) if self.is_first_open() => self.go_on_alone(now),
            Advice::Close(connections) => self.close_lanes(connections),
        }
    }

    fn close_lanes(&mut self, connections: usize) {
        for _ in 0..connections {
            let span = 10 * TICK;
            let rate = |way: &Way| way.meter.rate(span, Duration::ZERO).unwrap_or(0.0);
            let further = self
                .lanes
                .iter_mut()
                .filter(|way| way.id != MAIN && !way.is_closing);
            if let Some(slowest) = further.min_by(|one, other| rate(one).total_cmp(&rate(other))) {
                slowest.is_closing = true;
            }
        }
    }

    /// Gives up further connections that have not answered. Over HTTP/1.1 their requests may wait in the pool, because the
    /// server takes no more connections.
    fn free_unanswered(&mut self, now: Instant) {
        let patience = STALLED.max(8 * self.round_trip());
        let is_late = |way: &&Way| {
            let mut asked = self
                .pieces
                .iter()
                .filter(|piece| piece.lane == way.id && piece.is_under_way());
            way.meter.total() == 0 && asked.any(|piece| now > piece.moved + patience)
        };
        let late: Vec<LaneId> = self.lanes.iter().filter(is_late).map(|way| way.id).collect();
        for lane in late {
            if self.is_spare(lane) {
                self.judge.refused();
                self.remove_lane(lane, now);
            }
        }
    }

    /// Frees the piece that the body waits for from a connection over which nothing comes, while others move or for long.
    fn free_stalled(&mut self, now: Instant) {
        let patience = STALLED.max(8 * self.round_trip());
        let Some(front) = self.pieces.front() else { return };
        let lane = front.lane;
        let is_stalled = |patience| front.is_under_way() && now > front.moved + patience;
        let others_move = self
            .pieces
            .iter()
            .any(|piece| piece.lane != lane && now < piece.moved + patience);
        let is_given_up = match others_move {
            true => is_stalled(patience),
            false => self.is_spare(lane) && is_stalled(STALLED_ALL * patience),
        };
        if !is_given_up || front.has_chunk() || front.is_open {
            return;
        }
        if self.is_spare(lane) {
            self.judge.refused();
            return self.remove_lane(lane, now);
        }
        if let Some(front) = self.pieces.front_mut() {
            front.source = Source::Wanted;
            front.moved = now;
        }
    }

    fn open_lanes(&mut self) {
        let wanted = std::mem::take(&mut self.to_open);
        for _ in 0..wanted {
            let lane = match self.is_http1 {
                true => Some(self.main.same()),
                false => self.main.further(),
            };
            let Some(lane) = lane else {
                self.judge.refused();
                break;
            };
            self.lanes.push(Way::new(self.lanes_begun, lane));
            self.lanes_begun += 1;
        }
    }

    fn round_trip(&self) -> Duration {
        self.main.round_trip().unwrap_or(USUAL_ROUND_TRIP)
    }

    /// Bytes a second over all connections.
    fn rate(&self) -> f64 {
        let lately = self.meter.rate(10 * TICK, Duration::ZERO);
        lately.filter(|&rate| rate > 0.0).unwrap_or(PRESUMED)
    }

    /// Gives each connection what it is to carry next. Returns whether something was asked for.
    fn ask(&mut self, now: Instant) -> bool {
        let mut has_asked = false;
        if (self.lanes.len() == 1 && self.is_first_open()) || now < self.pauses_until {
            return false;
        }
        let round = self.round_trip().as_secs_f64();
        let presumed = self.rate() / self.lanes.len() as f64;
        let open = self.lanes.iter().filter(|way| !way.is_closing).count();
        for index in 0..self.lanes.len() {
            let way = &self.lanes[index];
            if way.is_closing {
                continue;
            }
            let id = way.id;
            let lately = way.meter.rate(10 * TICK, Duration::ZERO);
            let rate = lately.filter(|&rate| rate > 0.0).unwrap_or(presumed);
            let size = match open {
                1 => u64::MAX,
                _ => ((rate * PIECE_TIME) as u64).clamp(SMALLEST, LARGEST),
            };
            // So much is under way when the next request has reached the server.
            let enough = ((rate * (2.0 * round + 0.1)) as u64).max(SMALLEST);
            loop {
                let under_way = self
                    .pieces
                    .iter()
                    .filter(|piece| piece.lane == id && piece.is_under_way());
                let (count, rest) =
                    under_way.fold((0, 0), |(count, rest), piece| (count + 1, rest + piece.rest()));
                if rest >= enough || (self.is_http1 && count > 0) || !self.ask_on(index, size, rest == 0, now)
                {
                    break;
                }
                has_asked = true;
            }
        }
        has_asked
    }

    /// Asks for one piece over a connection. One that is idle takes over a part of what another one has to do.
    fn ask_on(&mut self, lane: usize, size: u64, is_idle: bool, now: Instant) -> bool {
        let wanted = self
            .pieces
            .iter()
            .position(|piece| matches!(piece.source, Source::Wanted));
        let ahead: u64 = self
            .pieces
            .iter()
            .skip(1)
            .filter(|piece| !matches!(piece.source, Source::Wanted))
            .map(|piece| piece.end - piece.begin)
            .sum();
        let index = match wanted {
            Some(0) => 0,
            Some(index) if ahead < AHEAD => index,
            _ if is_idle => match self.split_slowest(now) {
                Some(index) => index,
                None => return false,
            },
            _ => return false,
        };
        let room = if index == 0 {
            u64::MAX
        } else {
            AHEAD.saturating_sub(ahead).max(SMALLEST)
        };
        let piece = &mut self.pieces[index];
        let size = size.min(room);
        if piece.rest() > size.saturating_add(size / 2) {
            let behind = piece.split(piece.got + size, now);
            self.pieces.insert(index + 1, behind);
        }
        let way = &self.lanes[lane];
        let piece = &mut self.pieces[index];
        let mut request = self.request.clone();
        let range = format!("bytes={}-{}", piece.got, piece.end - 1);
        let fields = request.headers_mut();
        if let Ok(range) = HeaderValue::try_from(range) {
            fields.insert(RANGE, range);
        }
        if let Some(validator) = self.version.validator() {
            fields.insert(IF_RANGE, validator.clone());
        }
        piece.ask(way.lane.send(request), way.id, now);
        true
    }

    /// How far ahead of what has come over a connection another one begins.
    fn lead(&self, lane: LaneId, is_trial: bool) -> u64 {
        let way = self.lanes.iter().find(|way| way.id == lane);
        let rate = way.and_then(|way| way.meter.rate(10 * TICK, Duration::ZERO));
        let (time, rounds) = if is_trial { TRIAL_LEAD } else { LEAD };
        let lead = rate.unwrap_or(PRESUMED) * (time + rounds * self.round_trip().as_secs_f64());
        (lead as u64).max(if is_trial { SMALLEST } else { LEAST_LEAD })
    }

    /// Splits the piece under way that would take longest, at the place where it will be when another connection has answered.
    /// Returns the index of what lies behind.
    fn split_slowest(&mut self, now: Instant) -> Option<usize> {
        let worth = match self.is_http1 {
            true => WORTH_SPLITTING_HTTP1,
            false => WORTH_SPLITTING,
        };
        let presumed = self.rate() / self.lanes.len() as f64;
        let rate = |piece: &Piece| {
            let way = self.lanes.iter().find(|way| way.id == piece.lane);
            let way = way.filter(|way| way.meter.total() > 0);
            let rate = way.and_then(|way| way.meter.rate(10 * TICK, Duration::ZERO));
            rate.unwrap_or(presumed).max(1.0)
        };
        let pieces = self.pieces.iter().enumerate();
        let (index, piece, seconds) = pieces
            .filter(|(_, piece)| piece.is_under_way())
            .map(|(index, piece)| (index, piece, piece.rest() as f64 / rate(piece)))
            .max_by(|(_, _, one), (_, _, other)| one.total_cmp(other))?;
        let is_slow = seconds > SLOW * (LEAD.0 + LEAD.1 * self.round_trip().as_secs_f64());
        let worth = if is_slow { WORTH_SPLITTING_SLOW } else { worth };
        if piece.rest() < worth {
            return None;
        }
        let is_trial = piece.is_open && !self.judge.is_convinced();
        let lead = self.lead(piece.lane, is_trial).min(piece.rest() / 2);
        let at = piece.got + lead;
        let behind = self.pieces[index].split(at, now);
        self.pieces.insert(index + 1, behind);
        Some(index + 1)
    }
}

impl Way {
    fn new(id: LaneId, lane: Lane) -> Self {
        Way {
            id,
            lane,
            meter: Meter::default(),
            is_closing: false,
            late: 0,
        }
    }
}

impl Trouble {
    fn into_error(self) -> Error {
        let text = match self {
            Trouble::Failed(error) => return error,
            Trouble::Status(status) => {
                format!("the server answered {status} to a request for the rest of the body")
            }
            Trouble::NoRange(why) => format!("the server sent no range of the same body: {why}"),
            Trouble::Short => "the server ended a range early".to_owned(),
        };
        Error::new(ErrorKind::Closed, text)
    }
}
