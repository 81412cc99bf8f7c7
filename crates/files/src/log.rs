//! The access log: one line for each request, written when its response has been sent or has failed.
//!
//! A thread writes the lines. Its queue is limited in bytes, so a slow reader of the log never delays a response. Lines
//! that do not fit are dropped and counted, and the log says how many. (`tracing-appender` limits its queue by lines, and
//! does not report dropped lines.) [`Log`] wraps any service with an HTTP body.
//!
//! A line has the fields time, peer, method, path, status, bytes of body sent, duration in milliseconds, user agent,
//! `aborted` when the body did not end, and `cause=` with what limited a response or an upload that took a second or more and
//! had a megabyte or more:
//!
//! ```text
//! 2026-11-21T20:02:24.512Z 127.0.0.1:40126 GET "/a.txt" 200 5 0.214ms "curl/8.14.1"
//! ```
//!
//! Fields that a peer chose are escaped, and cut at [`LogLimits::field_bytes`]: with HPACK a request repeats a long field
//! for one byte. The number of missing bytes follows a cut field, as in `"/aaaa"+3071`. [`LogFormat`] has other formats. Of the
//! token of an unfinished upload a line has the first 8 digits, as in `"/a?upload-resource=01234567..."`: who has all of it may
//! continue the upload.

mod line;

use std::fmt::Write as _;
use std::future::Future;
use std::io::Write;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Buf as _;
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use tower_service::Service;

use self::line::Line;

/// Buffers of the queue larger than this are not reused, in bytes.
const KEPT_CAPACITY: usize = 64 * 1024;

/// The limits of the log.
///
/// ```
/// # use fullbore_files::LogLimits;
/// assert_eq!(LogLimits::default().field_bytes, 1024);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct LogLimits {
    /// The longest method, path and user agent in a line, in bytes as written. The rest is cut. Default: 1 KiB.
    pub field_bytes: usize,
    /// How many bytes of lines may wait for the output, those being written included. Further lines are dropped, and
    /// their number is written once the output accepts data again. Default: 4 MiB.
    pub waiting_bytes: usize,
    /// How long dropping the last [`LogWriter`] waits for an output that accepts nothing. Default: 5 s.
    pub last_writes: Duration,
}

impl Default for LogLimits {
    fn default() -> Self {
        LogLimits {
            field_bytes: 1024,
            waiting_bytes: 4 << 20,
            last_writes: Duration::from_secs(5),
        }
    }
}

/// The format of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogFormat {
    /// Time, peer, method, path, status, bytes of body sent, duration, user agent, `aborted` when the body did not end, and
    /// `cause=` with the name of a [`Cause`](fullbore::stats::Cause) if the transfer was long enough to judge. A response that has
    /// an [`OriginTime`](fullbore::ext::OriginTime) adds `origin=` before the cause, and behind it `held_by=`: `origin`,
    /// `client`, `window` (of either) or `path`.
    #[default]
    Text,
    /// The combined format of Apache, which has no duration, `aborted` or cause. The name of a user is that of [`LogUser`].
    Combined,
    /// A JSON object with the fields `time` (RFC 3339), `peer`, `user`, `method`, `path`, `version`, `status`, `bytes`,
    /// `duration_ms`, `referer`, `user_agent`, `complete` and `cause`. What is unknown is null. A byte outside ASCII is written as
    /// the character with its number. A cut field is followed by one with the number of missing bytes, such as
    /// `path_missing`. A response that has an [`OriginTime`](fullbore::ext::OriginTime) adds `origin_ms` and `held_by`, as in
    /// [`LogFormat::Text`].
    Json,
}

/// The user of a request. For the log, a service adds it to the extensions of its response. In those of a request to
/// [`Files`](crate::Files), it is the user whose resumable uploads are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogUser(pub Arc<str>);

/// A service that logs each request to another service.
#[derive(Clone, Debug)]
pub struct Log<S> {
    service: S,
    writer: Option<LogWriter>,
}

impl<S> Log<S> {
    /// Wraps `service`. Without a `writer` nothing is logged.
    pub fn new(service: S, writer: Option<LogWriter>) -> Log<S> {
        Log { service, writer }
    }
}

impl<S, Q, P> Service<Request<Q>> for Log<S>
where
    S: Service<Request<Q>, Response = Response<P>>,
    S::Future: Unpin,
    P: Body + Unpin,
{
    type Response = Response<LogBody<P>>;
    type Error = S::Error;
    type Future = LogFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    #[inline]
    fn call(&mut self, request: Request<Q>) -> LogFuture<S::Future> {
        match &self.writer {
            None => LogFuture {
                future: self.service.call(request),
                line: None,
            },
            Some(writer) => logged(writer, &mut self.service, request),
        }
    }
}

/// A function of its own: a request that is borrowed is copied when it is moved on, which those without a log need not pay.
fn logged<S, Q>(writer: &LogWriter, service: &mut S, request: Request<Q>) -> LogFuture<S::Future>
where
    S: Service<Request<Q>>,
{
    let line = Box::new(Line::begin(writer, &request));
    LogFuture {
        future: service.call(request),
        line: Some(line),
    }
}

/// The future of a [`Log`].
#[derive(Debug)]
pub struct LogFuture<F> {
    future: F,
    line: Option<Box<Line>>,
}

impl<F, P, E> Future for LogFuture<F>
where
    F: Future<Output = Result<Response<P>, E>> + Unpin,
    P: Body + Unpin,
{
    type Output = Result<Response<LogBody<P>>, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.future).poll(cx).map_ok(|mut response| {
            let mut line = self.line.take();
            if let Some(line) = &mut line {
                line.respond(&mut response);
            }
            response.map(|body| LogBody { body, line })
        })
    }
}

/// A body that counts its bytes for the log.
#[derive(Debug)]
pub struct LogBody<P: Body + Unpin> {
    body: P,
    line: Option<Box<Line>>,
}

impl<P: Body + Unpin> Body for LogBody<P> {
    type Data = P::Data;
    type Error = P::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<P::Data>, P::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        let this = &mut *self;
        let over = match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let (Some(line), Some(data)) = (&mut this.line, frame.data_ref()) {
                    line.add_bytes(data.remaining() as u64);
                }
                this.body.is_end_stream()
            }
            // The body may still report its end after a failure.
            Poll::Ready(Some(Err(_))) => {
                this.end(false);
                false
            }
            Poll::Ready(None) => true,
            Poll::Pending => false,
        };
        if over {
            this.end(true);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<P: Body + Unpin> LogBody<P> {
    fn end(&mut self, whole: bool) {
        if let Some(line) = self.line.take() {
            line.end(whole);
        }
    }
}

impl<P: Body + Unpin> Drop for LogBody<P> {
    fn drop(&mut self) {
        // A server need not poll a body that has ended: HEAD, 204, 304.
        self.end(self.body.is_end_stream());
    }
}

/// A thread that writes lines to an output. Clones share it. Dropping the last one waits until all lines are written, for
/// at most [`LogLimits::last_writes`].
#[derive(Clone, Debug)]
pub struct LogWriter {
    queue: Arc<Writer>,
    format: LogFormat,
}

/// What the writers share.
#[derive(Debug)]
struct Writer {
    limits: LogLimits,
    shared: Arc<LogQueue>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the writers and the thread share.
#[derive(Debug, Default)]
struct LogQueue {
    waiting: Mutex<Waiting>,
    /// Wakes the thread: there are lines, or the log is closed.
    more: Condvar,
    /// Wakes the last writer: the thread has ended.
    done: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    lines: String,
    /// How many lines did not fit.
    dropped: u64,
    /// How many bytes the thread is writing.
    writing: usize,
    /// The thread waits for lines.
    idle: bool,
    /// There will be no more lines.
    closed: bool,
    /// The thread has ended: the log is closed, or the output failed.
    over: bool,
}

impl LogWriter {
    /// Writes to the standard output.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn stdout(limits: LogLimits) -> std::io::Result<LogWriter> {
        LogWriter::new(std::io::stdout(), limits)
    }

    /// Writes to `output`, whole lines at a time.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn new(output: impl Write + Send + 'static, limits: LogLimits) -> std::io::Result<LogWriter> {
        let shared = Arc::new(LogQueue::default());
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("fullbore-log".to_owned())
            .spawn(move || of_thread.write_lines(output))?;
        Ok(LogWriter {
            queue: Arc::new(Writer {
                limits,
                shared,
                thread: Mutex::new(Some(thread)),
            }),
            format: LogFormat::default(),
        })
    }

    /// Ends the log, for all clones: waits until the lines are written, for at most [`LogLimits::last_writes`]. What comes
    /// later is dropped. For a writer that is never dropped, such as that of a global subscriber.
    pub fn finish(&self) {
        self.queue.finish();
    }

    /// Sets the format of the lines that come through this handle. Default: [`LogFormat::Text`].
    pub fn format(mut self, format: LogFormat) -> LogWriter {
        self.format = format;
        self
    }

    /// Writes the line of a request that the server refused before the service saw it: `refused` of [`fullbore::server::Ended`].
    /// What the request says is not known.
    pub fn refused(&self, peer: Option<SocketAddr>, status: StatusCode) {
        // Dropping a line writes it.
        drop(Line::refused(self, peer, status));
    }

    /// Writes a line, which ends with a newline, once the output takes it. The caller never waits: lines beyond
    /// [`LogLimits::waiting_bytes`] are dropped and counted.
    pub fn line(&self, line: &str) {
        let Writer { limits, shared, .. } = &*self.queue;
        let mut waiting = shared.lock();
        if waiting.over {
            return;
        }
        if waiting.lines.len() + waiting.writing + line.len() <= limits.waiting_bytes {
            waiting.lines.push_str(line);
        } else {
            waiting.dropped += 1;
        }
        let wake = std::mem::take(&mut waiting.idle);
        drop(waiting);
        if wake {
            shared.more.notify_one();
        }
    }
}

impl Writer {
    /// Ends the log. Returns whether all lines were written in time.
    fn finish(&self) -> bool {
        let mut waiting = self.shared.lock();
        waiting.closed = true;
        self.shared.more.notify_one();
        let limit = self.limits.last_writes;
        let waited = self.shared.done.wait_timeout_while(waiting, limit, |w| !w.over);
        waited.unwrap_or_else(PoisonError::into_inner).0.over
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let over = self.finish();
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take().filter(|_| over) {
            // A panic has printed its message.
            let _ = thread.join();
        }
    }
}

impl LogQueue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // No code panics while it holds the lock, so the state is consistent.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread: takes all waiting lines and writes them in one call. An output that fails ends the log, not the server.
    fn write_lines(&self, mut output: impl Write) {
        while let Some(batch) = self.next_batch() {
            let written = output.write_all(batch.as_bytes());
            if written.and_then(|()| output.flush()).is_err() {
                break;
            }
            self.put_back(batch);
        }
        let mut waiting = self.lock();
        waiting.over = true;
        waiting.lines = String::new();
        drop(waiting);
        self.done.notify_all();
    }

    /// Waits for lines; `None` at the end.
    fn next_batch(&self) -> Option<String> {
        let mut waiting = self.lock();
        while waiting.lines.is_empty() && waiting.dropped == 0 {
            if waiting.closed {
                return None;
            }
            waiting.idle = true;
            waiting = self.more.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        waiting.idle = false;
        waiting.writing = waiting.lines.len();
        let mut batch = std::mem::take(&mut waiting.lines);
        let dropped = std::mem::take(&mut waiting.dropped);
        drop(waiting);
        if dropped > 0 {
            let _ = writeln!(
                batch,
                "... {dropped} lines dropped: the log was not read fast enough"
            );
        }
        Some(batch)
    }

    /// Takes back a written batch. Its memory is reused unless it is large.
    fn put_back(&self, mut batch: String) {
        batch.clear();
        let mut waiting = self.lock();
        waiting.writing = 0;
        if waiting.lines.capacity() == 0 && batch.capacity() <= KEPT_CAPACITY {
            waiting.lines = batch;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    /// An output that waits for permission before each write.
    struct Gate(Receiver<()>, Arc<Mutex<Vec<u8>>>);

    impl Write for Gate {
        fn write(&mut self, octets: &[u8]) -> std::io::Result<usize> {
            let _ = self.0.recv();
            self.1.lock().unwrap().extend_from_slice(octets);
            Ok(octets.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// A log of `waiting_bytes` at most behind a [`Gate`], which keeps up to `permits` of the permissions sent to it.
    fn gated(permits: usize, waiting_bytes: usize) -> (SyncSender<()>, Arc<Mutex<Vec<u8>>>, LogWriter) {
        let (open, gate) = sync_channel(permits);
        let written = Arc::new(Mutex::new(Vec::new()));
        let limits = LogLimits {
            waiting_bytes,
            ..LogLimits::default()
        };
        let writer = LogWriter::new(Gate(gate, Arc::clone(&written)), limits).unwrap();
        (open, written, writer)
    }

    #[test]
    fn a_log_that_is_finished_has_written_its_lines_although_clones_of_it_are_left() {
        let (open, written, writer) = gated(1, 10_000);
        let kept = writer.clone();
        kept.line("line\n");
        open.send(()).unwrap();
        writer.finish();
        kept.line("too late\n");
        assert_eq!(*written.lock().unwrap(), b"line\n");
    }

    #[test]
    fn a_stalled_output_holds_a_bounded_number_of_bytes_and_is_told_how_many_lines_it_lost() {
        let (open, written, writer) = gated(1, 10_000);
        let sent = 3_000;
        for number in 0..sent {
            writer.line(&("x".repeat(number % 300) + "x\n"));
            let waiting = writer.queue.shared.lock();
            assert!(waiting.lines.len() + waiting.writing <= 10_000);
        }
        drop(open);
        drop(writer);
        let written = String::from_utf8(written.lock().unwrap().clone()).unwrap();
        let kept: Vec<&str> = written.lines().filter(|l| l.starts_with('x')).collect();
        let bytes: usize = kept.iter().map(|line| line.len() + 1).sum();
        assert!((9_000..=10_000).contains(&bytes), "{bytes}");
        let lost: usize = written
            .lines()
            .filter_map(|l| l.strip_prefix("... ")?.split(' ').next()?.parse::<usize>().ok())
            .sum();
        assert_eq!(kept.len() + lost, sent);
    }

    /// Waits until what the thread has written and what waits for it are as they should be.
    fn until(condition: impl Fn() -> bool) {
        for _ in 0..3000 {
            if condition() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("it never came true");
    }

    #[test]
    fn an_output_that_goes_on_gets_each_line_at_once_and_has_all_its_room_again() {
        let (open, written, writer) = gated(0, 100);
        let line = "x".repeat(99) + "\n";
        for round in 1..5 {
            // One fills the queue while it is being written; then the note takes a write of its own.
            writer.line(&line);
            until(|| writer.queue.shared.lock().writing == 100);
            writer.line(&line);
            open.send(()).unwrap();
            open.send(()).unwrap();
            let note = "... 1 lines dropped: the log was not read fast enough\n";
            let all = (line.clone() + note).repeat(round);
            until(|| *written.lock().unwrap() == all.as_bytes());
            until(|| writer.queue.shared.lock().idle);
            assert_eq!(writer.queue.shared.lock().writing, 0);
        }
        drop(open);
    }

    #[test]
    fn what_has_been_written_makes_room_for_as_much_again() {
        let (open, written, writer) = gated(0, 100);
        let line = "x".repeat(99) + "\n";
        for round in 1..5 {
            writer.line(&line);
            open.send(()).unwrap();
            until(|| writer.queue.shared.lock().idle);
            assert_eq!(writer.queue.shared.lock().writing, 0);
            assert_eq!(*written.lock().unwrap(), line.repeat(round).as_bytes());
        }
        drop(open);
    }

    #[test]
    fn the_memory_of_a_batch_serves_again_up_to_64_kib() {
        let shared = LogQueue::default();
        for (bytes, is_kept) in [(KEPT_CAPACITY + 1, false), (KEPT_CAPACITY, true)] {
            let mut batch = String::with_capacity(bytes);
            batch.push_str("written");
            shared.put_back(batch);
            let waiting = shared.lock();
            assert!(waiting.lines.is_empty());
            assert_eq!(waiting.lines.capacity() > 0, is_kept, "{bytes}");
        }
        // Lines that came meanwhile stay.
        shared.lock().lines.push_str("waiting");
        shared.put_back(String::with_capacity(10));
        assert_eq!(shared.lock().lines, "waiting");
    }

    #[test]
    fn an_output_that_never_goes_on_does_not_hold_up_the_end() {
        let (open, gate) = sync_channel(1);
        let written = Arc::new(Mutex::new(Vec::new()));
        let limits = LogLimits {
            last_writes: Duration::ZERO,
            ..LogLimits::default()
        };
        let writer = LogWriter::new(Gate(gate, Arc::clone(&written)), limits).unwrap();
        writer.line("line\n");
        drop(writer);
        assert!(written.lock().unwrap().is_empty());
        drop(open);
    }

    /// An output that is broken.
    struct Broken;

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn behind_an_output_that_failed_nothing_is_kept() {
        let writer = LogWriter::new(Broken, LogLimits::default()).unwrap();
        writer.line("line\n");
        let shared = &writer.queue.shared;
        let waiting = shared.done.wait_while(shared.lock(), |w| !w.over).unwrap();
        assert_eq!(waiting.lines.capacity(), 0);
        drop(waiting);
        writer.line("line\n");
        assert_eq!(shared.lock().lines.len(), 0);
    }
}
