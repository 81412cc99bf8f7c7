//! How much may wait unsent in the kernel: what the path takes within some milliseconds.
//!
//! The kernel sends in the order of the writes. An urgent frame waits for all that was written before it, so that a slow
//! path gets little at a time. Lists are built only when the kernel has sent half of what it may hold, and are no longer
//! than the other half. TCP_NOTSENT_LOWAT makes the kernel say when that is so. The rate of the path is the pace at which it
//! takes the writes: no system call measures it. On a fast path there is no limit, and nothing is asked.
//!
//! Linux only: elsewhere there is no limit. `write` calls this.

use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use fullbore_proto::Time;
use tokio::net::TcpStream;

use crate::tcp::TcpBelow;

/// The unit of limits: two TLS records, or two DATA frames.
const LEAST: usize = 32 << 10;

/// A new connection may write this much before its limit applies, and has this limit until the pace of its path is known.
/// Most connections never write more, so that they need no system call for this.
const FIRST: usize = 128 << 10;

/// From this limit on there is none: at 10 ms that is 210 MB/s, more than a path of 1 Gbit/s takes and less than loopback.
const MOST: usize = 2 << 20;

/// A list is at least this long: a DATA frame, or a TLS record.
const LEAST_LIST: usize = 16 << 10;

/// The pace is judged after this many limits were taken: fewer if the transport was never full, so that the responses of one
/// batch are enough on a fast path, and not before `SHORTEST` otherwise.
const LIMITS_IF_FULL: usize = 4;
const LIMITS: usize = 2;
const SHORTEST: Duration = Duration::from_millis(1);

/// The pace of a transport that is full is judged after this time however little it took.
const LONGEST: Duration = Duration::from_millis(100);

/// The largest step up. The first bytes fill the queues of the path, which tells little of its rate.
const STEP: usize = 4;

/// What may wait unsent below the transport of one connection.
#[derive(Debug)]
pub(super) struct Unsent<T> {
    socket: TcpBelow<T>,
    pace: Pace,
    /// How much may be written before the kernel is asked for room.
    room: usize,
    /// The limit that the kernel has.
    set: Option<usize>,
}

impl<T> Unsent<T> {
    /// What the path takes within `time` may wait.
    pub(super) fn new(socket: TcpBelow<T>, time: Duration) -> Self {
        Unsent {
            socket,
            pace: Pace::new(time),
            room: FIRST,
            set: None,
        }
    }

    /// Whether the kernel is to be asked before the next list is built.
    pub(super) fn asks(&self) -> bool {
        self.room < LEAST_LIST && self.pace.limit.is_some()
    }

    /// How long the next list may be.
    pub(super) fn longest_list(&self) -> usize {
        match self.pace.limit {
            Some(_) => self.room - self.room % LEAST_LIST,
            None => usize::MAX,
        }
    }

    /// Asks the kernel whether it has sent half of what it may hold. If not, the task is woken when it has.
    pub(super) fn poll_room(&mut self, io: &T, cx: &mut Context<'_>, now: Time) -> Poll<io::Result<()>> {
        let Some(socket) = (self.socket)(io) else {
            self.pace.limit = None;
            return Poll::Ready(Ok(()));
        };
        self.adjust(socket);
        let ready = poll_half_sent(socket, cx);
        self.pace.judge(now, ready.is_pending());
        self.adjust(socket);
        if ready.is_ready() {
            self.room = self.pace.limit.unwrap_or(0) / 2;
        }
        ready
    }

    /// The transport took so many bytes.
    pub(super) fn take(&mut self, bytes: usize) {
        self.pace.taken += bytes;
        self.room = self.room.saturating_sub(bytes);
    }

    /// The transport takes no more.
    pub(super) fn fill(&mut self, io: &T, now: Time) {
        self.pace.judge(now, true);
        if let Some(socket) = (self.socket)(io) {
            self.adjust(socket);
        }
    }

    /// Nothing is left to be written.
    pub(super) fn rest(&mut self, now: Time) {
        self.pace.rest(now);
    }

    /// There is something to write.
    pub(super) fn resume(&mut self, now: Time) {
        self.pace.resume(now);
    }

    /// Tells the kernel the limit.
    fn adjust(&mut self, socket: &TcpStream) {
        if self.set != self.pace.limit {
            self.set = self.pace.limit;
            // 0 is the value of the system, which is no limit unless somebody has set one.
            set_limit(socket, self.pace.limit.unwrap_or(0));
        }
    }
}

#[cfg(target_os = "linux")]
fn set_limit(socket: &TcpStream, bytes: usize) {
    // As with the other options, errors of the system are ignored.
    let _ = socket2::SockRef::from(socket).set_tcp_notsent_lowat(u32::try_from(bytes).unwrap_or(0));
}

#[cfg(not(target_os = "linux"))]
fn set_limit(_: &TcpStream, _: usize) {}

/// Whether less than half of the limit is unsent. `poll` says so, and has the kernel tell the runtime when it becomes true;
/// a write would be taken up to the end of a segment of 64 KiB whatever the limit is.
#[cfg(target_os = "linux")]
fn poll_half_sent(socket: &TcpStream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
    use std::task::ready;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    let no_wait = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    loop {
        ready!(socket.poll_write_ready(cx))?;
        let asked = socket.try_io(tokio::io::Interest::WRITABLE, || {
            let mut sockets = [PollFd::new(socket, PollFlags::OUT)];
            match poll(&mut sockets, Some(&no_wait)) {
                Ok(0) => Err(io::ErrorKind::WouldBlock.into()),
                // An error of the socket is one of the write that follows.
                _ => Ok(()),
            }
        });
        match asked {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            _ => return Poll::Ready(Ok(())),
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn poll_half_sent(_: &TcpStream, _: &mut Context<'_>) -> Poll<io::Result<()>> {
    Poll::Ready(Ok(()))
}

/// The pace of writes, and the limit that follows from it.
#[derive(Debug)]
struct Pace {
    time: Duration,
    /// How much may wait unsent.
    limit: Option<usize>,
    /// Since when writes are counted.
    since: Option<Time>,
    /// What was taken since.
    taken: usize,
    /// The transport was full when counting began.
    began_full: bool,
    /// It has been full since.
    full: bool,
    /// How long there was nothing to write since: the path may take more than it was given.
    rested: Duration,
    /// Since when there is nothing to write.
    resting: Option<Time>,
    /// The limit was lowered, and the kernel holds more than that.
    overfull: bool,
}

impl Pace {
    fn new(time: Duration) -> Self {
        Pace {
            time,
            limit: match cfg!(target_os = "linux") {
                true => Some(FIRST),
                false => None,
            },
            since: None,
            taken: 0,
            began_full: false,
            full: false,
            rested: Duration::ZERO,
            resting: None,
            overfull: false,
        }
    }

    /// Nothing is left to be written.
    fn rest(&mut self, now: Time) {
        self.resting.get_or_insert(now);
    }

    /// There is something to write.
    fn resume(&mut self, now: Time) {
        if let Some(since) = self.resting.take() {
            self.rested += now.since(since);
        }
    }

    /// Sets the limit by the pace; the transport may be `full`. A limit stays that is between 2/3 and 3/2 of what it should
    /// be.
    fn judge(&mut self, now: Time, full: bool) {
        self.overfull &= full;
        if self.overfull {
            return;
        }
        let Some(since) = self.since else {
            return self.begin(now, full);
        };
        self.full |= full;
        let limit = self.limit.unwrap_or(MOST);
        let span = now.since(since);
        let limits = if self.full { LIMITS_IF_FULL } else { LIMITS };
        let little = self.taken < limits * limit && !(full && span >= LONGEST);
        if little || (self.full && span < SHORTEST) {
            if span >= LONGEST && self.rested > span / 2 {
                self.begin(now, full);
            }
            return;
        }
        // The kernel held less or more than half of the limit at each end, as it was full or not.
        let half = limit / 2;
        let more = if full && !self.began_full { limit } else { half };
        let least = self.within_time(self.taken.saturating_sub(more), span);
        // Without a limit a full socket holds the same at both ends. While there was nothing to write, it may have run dry.
        let less = match self.limit {
            None => 0,
            Some(_) if full => half,
            Some(_) => limit,
        };
        let most = self.within_time(self.taken.saturating_add(less), span.saturating_sub(self.rested));
        let lower = limit_for(most);
        if least > limit + half {
            self.limit = limit_for(least.min(limit * STEP));
        } else if self.began_full && most < limit - limit / 3 && lower != self.limit {
            self.limit = lower;
            // What leaves until the kernel holds less than the limit is not counted: nobody knows how much it is.
            self.overfull = true;
            self.since = None;
            return;
        }
        self.begin(now, full);
    }

    fn begin(&mut self, now: Time, full: bool) {
        self.since = Some(now);
        self.taken = 0;
        self.began_full = full;
        self.full = full;
        self.rested = Duration::ZERO;
    }

    /// What is taken within the time that data may wait, if `bytes` take `span`.
    fn within_time(&self, bytes: usize, span: Duration) -> usize {
        let bytes = bytes as u128 * self.time.as_nanos() / span.as_nanos().max(1);
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }
}

/// The limit where the path takes so many bytes within the time.
fn limit_for(bytes: usize) -> Option<usize> {
    let limit = bytes.clamp(LEAST, MOST).next_multiple_of(LEAST);
    Some(limit).filter(|limit| *limit < MOST)
}

#[cfg(test)]
mod tests;
